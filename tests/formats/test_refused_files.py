"""Files that run code, take gigabytes or wait for ever: refused before anything is read of them."""

import bz2
import io
import json
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
import zarr
from commands import call, flat
from PIL import Image
from zarr.codecs import ZstdCodec

from pixelbounds.execution import running
from pixelbounds.formats.arrays import Arrays, open_arrays, source_of
from pixelbounds.formats.inputs import open_bands
from pixelbounds.formats.opener import open_images
from pixelbounds.images.ragged import write_ragged
from pixelbounds.storage.toml import TomlError, read_toml


class Code:
    """Makes a file when it is unpickled."""

    def __init__(self, proof):
        self.proof = str(proof)

    def __reduce__(self):
        return os.mkdir, (self.proof,)


def pickled(folder, proof, *, how, n=4):
    """A v2 array whose chunk is a pickle, as an old numcodecs would load it."""
    folder.mkdir(parents=True, exist_ok=True)
    words, pickles = {"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}
    codecs = {"filters": [words, pickles]} if how == "filter" else {"filters": [words], "compressor": pickles}
    metadata = {"zarr_format": 2, "order": "C", "fill_value": "", "compressor": None, "dtype": "|O"} | codecs
    (folder / ".zarray").write_text(json.dumps(metadata | {"shape": [n], "chunks": [n]}))
    (folder / "0").write_bytes(pickle.dumps(Code(proof)))


@pytest.mark.parametrize("how", ["filter", "compressor"])
def test_units_and_marks_of_a_store_run_no_code(tmp_path, how, monkeypatch):
    monkeypatch.setattr("numcodecs.pickles.Pickle.decode", lambda self, data, out=None: pickle.loads(data))
    x = np.random.default_rng(0).random((4, 8, 8)).astype(np.float32)
    truth, bands, mixed = (tmp_path / f"{name}.zarr" for name in ("truth", "bands", "mixed"))
    zarr.create_group(truth, zarr_format=2).create_array("images", data=x, compressors=None)
    about = {"pixelbounds": {"kind": "bands"}, "source": {"kind": "values"}}
    group = zarr.create_group(bands, zarr_format=2, attributes=about)
    for name in ("lower", "upper"):
        group.create_array(name, data=x, compressors=None)
    for folder in (truth / "units", truth / "names", bands / "done"):
        pickled(folder, tmp_path / "proof", how=how)
    for read in (lambda: open_images(truth), lambda: open_bands(bands)):
        with pytest.raises(ValueError, match="nothing is read that runs code"):
            read()
    assert not (tmp_path / "proof").exists()
    write_ragged(mixed, {"truth": [x[0], x[1, :4]]})
    (mixed / "truth" / "shapes" / "zarr.json").unlink()
    pickled(mixed / "truth" / "shapes", tmp_path / "proof", how=how)
    assert call("calibrate", mixed, mixed, "--risk-level", 0.5, "--out", tmp_path / "c.safetensors").exit_code == 2
    assert not (tmp_path / "proof").exists()


def test_names_beside_images_unpack_to_no_more_than_they_hold(tmp_path):
    group = zarr.create_group(tmp_path / "x.zarr")
    group.create_array("images", data=np.zeros((4, 8, 8), np.float32))
    units = group.create_array("units", shape=(4,), chunks=(4,), dtype="int64", compressors=(ZstdCodec(),))
    units[:] = 1
    zarr.create_array(tmp_path / "big.zarr", data=np.ones(2**20), chunks=(2**20,), compressors=(ZstdCodec(),))
    content = (tmp_path / "big.zarr" / "c" / "0").read_bytes()
    (tmp_path / "x.zarr" / "units" / "c" / "0").write_bytes(content)
    with pytest.raises(ValueError, match="does not say that it unpacks"):
        open_images(tmp_path / "x.zarr")


def bz2_member(path, name, content, declared):
    """A zip with one bz2 member that declares a size of its own."""
    packed = bz2.compress(content)
    data = name.encode()
    head = (46, 0, 12, 0, 33, 0, len(packed), declared, len(data), 0)
    local = struct.pack("<4s5H3I2H", b"PK\x03\x04", *head) + data
    central = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 46, *head, 0, 0, 0, 0, 0) + data
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1, 1, len(central), len(local) + len(packed), 0)
    path.write_bytes(local + packed + central + end)


def test_members_of_zips_are_stored_or_deflated(tmp_path):
    header = io.BytesIO()
    np.save(header, np.zeros((4, 8, 8), np.float32))
    bz2_member(tmp_path / "x.npz", "lower.npy", header.getvalue() + bytes(2**20), len(header.getvalue()))
    bz2_member(tmp_path / "x.zip", "a.png", bytes(2**20), 100)
    for name in ("x.npz", "x.zip"):
        with pytest.raises(ValueError, match="packed so that its size is not known"):
            open_images(tmp_path / name)


def test_an_array_twice_and_one_beside_its_name_are_no_way_around_the_checks(tmp_path):
    content = io.BytesIO()
    np.save(content, np.zeros((4, 8, 8), np.float32))
    with zipfile.ZipFile(tmp_path / "twice.npz", "w") as file:
        file.writestr("x.npy", content.getvalue())
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("x.npy", content.getvalue())
    with pytest.raises(ValueError, match="twice under one name"):
        open_arrays(tmp_path / "twice.npz")
    with zipfile.ZipFile(tmp_path / "beside.npz", "w") as file:
        file.writestr("x.npy", content.getvalue())
        file.writestr("x", b"another file")
    assert Arrays(tmp_path / "beside.npz")["x"].shape == (4, 8, 8)


def test_json_without_end_in_an_npz_is_refused(tmp_path):
    np.savez(tmp_path / "x.npz", lower=np.zeros((2, 4, 4)), upper=np.ones((2, 4, 4)), source="[" * 100_000)
    with pytest.raises(ValueError, match="not in JSON"):
        source_of(tmp_path / "x.npz")


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.nii.gz", "x.dcm", "x.png", "x.zip", "x.toml", "x.safetensors"])
def test_pipes_and_devices_are_not_read(tmp_path, name):
    os.mkfifo(tmp_path / name)
    for path in (tmp_path / name, "/dev/zero"):
        with pytest.raises(ValueError, match="is a pipe or a device"):
            open_images(path)
    with pytest.raises((TomlError, ValueError), match="is a pipe or a device"):
        read_toml(tmp_path / name, dict)
    for words in (("info", tmp_path / name), ("apply", tmp_path / name, tmp_path / name, "--out", tmp_path / "y.npz")):
        result = call(*words)
        assert result.exit_code == 2
        assert "is a pipe or a device" in flat(result.stderr)


def test_pipes_in_folders_and_stores_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(ValueError, match="holds no images"):
        open_images(tmp_path)
    group = zarr.create_group(tmp_path / "x.zarr")
    group.create_array("lower", data=np.zeros((2, 4, 4)))
    (tmp_path / "x.zarr" / "lower" / "zarr.json").unlink()
    os.mkfifo(tmp_path / "x.zarr" / "lower" / "zarr.json")
    with pytest.raises(ValueError, match="it is no file"):
        open_bands(tmp_path / "x.zarr")


# ---------------------------------------------------------------- pictures and scans


def test_a_palette_is_counted_as_the_colours_that_it_becomes(tmp_path):
    Image.fromarray(np.zeros((5000, 5000), np.uint8)).convert("P").save(tmp_path / "a.png")
    with running(memory="64MB"), pytest.raises(ValueError, match="unpacks to 100 MB"):
        open_images(tmp_path)


def test_complex_volumes_keep_their_imaginary_part_by_being_refused(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    nibabel.save(nibabel.Nifti1Image(np.ones((4, 4, 2), np.complex64), np.eye(4)), tmp_path / "x.nii.gz")
    with pytest.raises(ValueError, match="holds complex64; convert its values to real numbers"):
        open_images(tmp_path / "x.nii.gz", window=None)


@pytest.mark.parametrize("kind", ["JPEG2000", "JPEG"])
def test_a_packed_frame_is_as_large_as_its_file_says(tmp_path, kind):
    """770 bytes became 3.1 GB: the frame was decoded at the size that it declares itself."""
    pydicom = pytest.importorskip("pydicom")
    from medical import write_dicom

    (file,) = write_dicom(tmp_path / "ct", np.zeros((1, 16, 16), np.int16), intercept=0.0)
    for size in (16, 64):
        frame = io.BytesIO()
        picture = Image.fromarray(np.zeros((size, size), np.uint8))
        picture.save(frame, kind, **({"no_jp2": True} if kind == "JPEG2000" else {}))
        data = pydicom.dcmread(file)
        data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = 8, 8, 7, 0
        data.PixelData = pydicom.encaps.encapsulate([frame.getvalue()])
        data["PixelData"].VR = "OB"
        syntaxes = {"JPEG2000": pydicom.uid.JPEG2000Lossless, "JPEG": pydicom.uid.JPEGBaseline8Bit}
        data.file_meta.TransferSyntaxUID = syntaxes[kind]
        data.save_as(tmp_path / f"{size}.dcm")
    assert open_images(tmp_path / "16.dcm", window=None).pixels.shape == (1, 16, 16)
    with pytest.raises(ValueError, match=r"a packed frame has rows, columns and values \(64, 64, 1\), but .* 16 x 16"):
        open_images(tmp_path / "64.dcm", window=None)
