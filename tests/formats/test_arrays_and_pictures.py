"""Arrays, pictures, CelebA's layout, the cache and splits: files in, the same numbers out, or what is wrong."""

import io
import zipfile

import numpy as np
import pytest
import zarr
from PIL import Image

from pixelbounds.formats.arrays import Arrays
from pixelbounds.formats.opener import check_target, open_images
from reproduce.cache import cached
from reproduce.celeba import celeba


def png(x, **options):
    buffer = io.BytesIO()
    Image.fromarray(x).save(buffer, "PNG", **options)
    return buffer.getvalue()


@pytest.fixture
def grey(rng):
    return rng.integers(0, 256, (4, 8, 8)).astype(np.uint8)


# ---------------------------------------------------------------- pictures


def test_pictures_of_a_folder_and_a_zip(tmp_path, grey):
    with zipfile.ZipFile(tmp_path / "grey.zip", "w") as archive:
        for i, x in enumerate(grey):
            (tmp_path / f"{i}.png").write_bytes(png(x))
            archive.writestr(f"some/{i}.png", png(x))
    images = open_images(tmp_path / "grey.zip")
    np.testing.assert_array_equal(images.pixels, grey)
    assert images.names == tuple(f"some/{i}.png" for i in range(4))
    assert images.units is None  # one folder for all says nothing
    (tmp_path / "grey.zip").write_bytes((tmp_path / "grey.zip").read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"grey.zip cannot be read"):
        open_images(tmp_path / "grey.zip")
    (tmp_path / "grey.zip").unlink()
    np.testing.assert_array_equal(open_images(tmp_path).pixels, grey)
    np.testing.assert_array_equal(open_images(tmp_path / "2.png").pixels, grey[2:3])
    (tmp_path / "3.png").write_bytes(png(grey[3][:, :4]))
    with pytest.raises(ValueError, match=r"3.png is uint8 of shape \(8, 4\), 0.png is uint8 of shape \(8, 8\)"):
        open_images(tmp_path)
    (tmp_path / "3.png").write_bytes((tmp_path / "2.png").read_bytes()[:50])
    with pytest.raises(ValueError, match=r"3.png is no image"):
        open_images(tmp_path)


def test_a_folder_is_a_unit(tmp_path, grey):
    for name, x in zip(["a/1", "a/2", "b/1", "b/late/2"], grey, strict=True):
        (tmp_path / "ct" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ct" / f"{name}.png").write_bytes(png(x))
    images = open_images(tmp_path)
    assert images.units.tolist() == ["a", "a", "b", "b"]
    assert images.names[3] == "ct/b/late/2.png"


# ---------------------------------------------------------------- arrays


def test_arrays_of_npz_and_zarr(tmp_path, rng):
    x = rng.random((4, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "one.npz", x=x, units=np.array(["a", "a", "b", "b"]), names=np.array(list("wxyz")))
    np.savez(tmp_path / "two.npz", x=x, z=x + 1)
    one = open_images(tmp_path / "one.npz")
    np.testing.assert_array_equal(one.pixels, x)
    assert one.units.tolist() == ["a", "a", "b", "b"]
    assert one.names == ("w", "x", "y", "z")
    np.testing.assert_array_equal(open_images(tmp_path / "two.npz", key="z").pixels, x + 1)
    with pytest.raises(ValueError, match="holds the arrays x, z; name one"):
        open_images(tmp_path / "two.npz")
    with pytest.raises(ValueError, match="not 'y'"):
        open_images(tmp_path / "two.npz", key="y")
    (tmp_path / "one.npz").write_bytes((tmp_path / "one.npz").read_bytes()[:300])
    with pytest.raises(ValueError, match="use another copy"):
        open_images(tmp_path / "one.npz")
    zarr.save_array(tmp_path / "x.zarr", x)
    lazy = open_images(tmp_path / "x.zarr")
    assert isinstance(lazy.pixels, zarr.Array)
    np.testing.assert_array_equal(lazy.pixels[:], x)
    np.save(tmp_path / "x.npy", x)
    assert isinstance(open_images(tmp_path / "x.npy").pixels, np.memmap)


# ---------------------------------------------------------------- CelebA


@pytest.fixture
def faces(tmp_path, rng):
    """The published layout: 178 x 218 photographs and the partition file."""
    folder = tmp_path / "celeba"
    (folder / "img_align_celeba").mkdir(parents=True)
    pixels = rng.integers(0, 256, (5, 218, 178, 3)).astype(np.uint8)
    lines = []
    for i, x in enumerate(pixels):
        Image.fromarray(x).save(folder / "img_align_celeba" / f"{i + 1:06d}.jpg", quality=95)
        lines.append(f"{i + 1:06d}.jpg {[0, 0, 1, 2, 0][i]}")
    (folder / "list_eval_partition.txt").write_text("\n".join(lines) + "\n")
    return folder


def test_celeba_parts_and_crop(faces):
    images = celeba(faces, "train")
    assert images.names == ("000001.jpg", "000002.jpg", "000005.jpg")
    assert images.pixels.shape == (3, 3, 128, 128)
    with Image.open(faces / "img_align_celeba" / "000005.jpg") as picture:
        whole = np.moveaxis(np.asarray(picture), -1, 0)
    np.testing.assert_array_equal(images.pixels[2], whole[:, 45:173, 25:153])  # the paper: a plain central crop
    assert len(celeba(faces, "valid")) == len(celeba(faces, "test")) == 1
    small = celeba(faces, "train", 64, crop=140).pixels[2]  # score_sde
    assert small.shape == (3, 64, 64)
    assert small.mean() == pytest.approx(whole[:, 39:179, 19:159].mean(), abs=1)


# ---------------------------------------------------------------- the cache


def test_a_cache_goes_on_where_it_was_cut_off(tmp_path, rng):
    parts = [rng.random((n, 4, 4)).astype(np.float32) for n in (2, 1, 3)]
    asked = []

    def read(part, fail_at=None):
        asked.append(part)
        if part == fail_at:
            raise KeyboardInterrupt
        return parts[part]

    def make(about, fail_at=None):
        return cached(tmp_path / "x.zarr", about, [2, 1, 3], (4, 4), "float32", lambda part: read(part, fail_at))

    with pytest.raises(KeyboardInterrupt):
        make({"of": 1}, fail_at=1)
    assert not (tmp_path / "x.zarr").exists()
    np.testing.assert_array_equal(make({"of": 1})[:], np.concatenate(parts))
    assert asked == [0, 1, 1, 2]  # part 0 was not read again
    assert sorted(x.name for x in tmp_path.iterdir()) == ["x.zarr"]
    make({"of": 1})
    assert asked == [0, 1, 1, 2]
    with pytest.raises(ValueError, match=r"other images or settings \(of\)"):
        make({"of": 2})


def test_the_one_opener_reads_what_is_asked_for_and_never_unpickles(tmp_path, rng):
    x = rng.random((4, 8, 8)).astype(np.float32)
    objects = np.array([{}], object)
    np.savez(tmp_path / "x.npz", x=x, objects=objects)
    arrays = Arrays(tmp_path / "x.npz")
    assert list(arrays) == ["x", "objects"]
    assert "y" not in arrays
    np.testing.assert_array_equal(arrays["x"], x)  # the other one is not touched
    with pytest.raises(ValueError, match="unpickled"):
        arrays["objects"]
    with pytest.raises(KeyError):
        arrays["y"]
    np.save(tmp_path / "objects.npy", objects)
    with pytest.raises(ValueError, match=r"[Pp]ython object"):
        Arrays(tmp_path / "objects.npy")
    group = zarr.create_group(tmp_path / "x.zarr", attributes={"pixelbounds": {"kind": "interval"}})
    group.create_array("lower", data=x)
    store = Arrays(tmp_path / "x.zarr")
    assert isinstance(store["lower"], zarr.Array)
    assert store.attributes == {"pixelbounds": {"kind": "interval"}}


# ---------------------------------------------------------------- targets


def test_a_target_is_never_what_is_read(tmp_path):
    """By whatever name it is called: the same path, a link, a folder around it, or a part of it."""
    store = zarr.create_group(tmp_path / "in.zarr", attributes={"pixelbounds": {"kind": "interval"}})
    store.create_array("lower", data=np.zeros((2, 3, 3)))
    (tmp_path / "link.zarr").symlink_to("in.zarr")
    (tmp_path / "scans").mkdir()
    (tmp_path / "scans" / "a_lower.nii.gz").write_bytes(b"a scan")
    (tmp_path / "around" / "scan_1" / "lower").mkdir(parents=True)
    kinds = ".zarr", ".npz", ".nii.gz", ".safetensors"

    def asked(target, given):
        check_target(target, kinds, replace=True, folder=True, inputs=(None, tmp_path / "gone", given))

    for target, given, said in (
        ("in.zarr", "in.zarr", "which is read: it would be lost"),
        ("in.zarr", "link.zarr", "which is read: it would be lost"),
        ("link.zarr", "in.zarr", "which is read: it would be lost"),
        ("scans/../in.zarr", "in.zarr", "which is read: it would be lost"),
        ("in.zarr", "in.zarr/lower", "holds .*in.zarr/lower, which is read"),
        ("around", "around/scan_1", "holds .*around/scan_1, which is read"),
        ("in.zarr/out.npz", "in.zarr", "is a part of .*in.zarr, which is read"),
        ("scans/a.nii.gz", "scans", "is a part of .*scans, which is read"),
    ):
        with pytest.raises(FileExistsError, match=said):
            asked(tmp_path / target, tmp_path / given)
    (tmp_path / "scans" / "cal.safetensors").write_bytes(b"an earlier one")
    asked(tmp_path / "scans" / "cal.safetensors", tmp_path / "scans")  # is no image
    asked(tmp_path / "scans" / "new.nii.gz", tmp_path / "scans")
    asked(tmp_path / "in.zarr", tmp_path / "scans")
