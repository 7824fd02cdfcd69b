"""Files that lie about themselves, or were made to do harm: exit code 2 with a message, and nothing of a size that only
a file declares is ever made.
"""

import io
import json
import os
import shutil
import struct
import zipfile
from importlib import import_module

import numpy as np
import pytest
import zarr
from commands import call, flat
from PIL import Image

import pixelbounds as pb
from pixelbounds import execution
from pixelbounds.formats import scans
from pixelbounds.formats.opener import open_images
from pixelbounds.images.ragged import write_ragged
from pixelbounds.problems.declared import declared_problem, read_problem
from pixelbounds.storage.chunks import BadChunk, guarded
from pixelbounds.storage.toml import read_toml
from pixelbounds.workflows.promise_words import promise_texts

N, M, SIZE = 40, 20, 8


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A calibration, bands and samples in stores, and images of different sizes."""
    folder = tmp_path_factory.mktemp("good")
    centre = np.random.default_rng(0).uniform(0.3, 0.7, (N, SIZE, SIZE)).astype(np.float32)
    band = pb.Band(centre - 0.1, centre + 0.1)
    pb.calibrate(centre, band, risk_level=0.3, method="rcps").save(folder / "cal.safetensors")
    group = zarr.create_group(folder / "bands.zarr")
    for name in ("lower", "upper"):
        group.create_array(name, data=getattr(band, name), chunks=(4, SIZE, SIZE))
    samples = np.repeat(centre[:, None], M, axis=1)
    zarr.create_group(folder / "samples.zarr").create_array("samples", data=samples, chunks=(1, M, SIZE, SIZE))
    small = [centre[0], centre[1, :3]]
    write_ragged(folder / "ragged.zarr", {"lower": [x - 0.1 for x in small], "upper": [x + 0.1 for x in small]})
    return folder


def bomb(codec):
    """16 MB of zeros, packed into a chunk of some kB at most."""
    store = zarr.storage.MemoryStore()
    how = {"chunks": (1, 2**21), "compressors": (codec,), "config": {"write_empty_chunks": True}}
    zarr.create_array(store, data=np.zeros((1, 2**21)), **how)
    return store._store_dict["c/0/0"].to_bytes()


BOMB = bomb(zarr.codecs.ZstdCodec())


def edited(folder, change, where="lower/zarr.json"):
    """Metadata of a store, changed."""
    path = folder / where
    known = json.loads(path.read_text())
    change(known)
    path.write_text(json.dumps(known))


def chunk_shape(known, shape):
    known["chunk_grid"]["configuration"]["chunk_shape"] = shape


def attributes(folder, **told):
    edited(folder, lambda known: known.update(attributes=told), "zarr.json")


def first_chunk(folder, make):
    path = folder / "lower" / "c" / "0" / "0" / "0"
    path.unlink()
    make(path)


RUN = {"kind": "score", "format": 1, "limits": [0, 1], "miscoverage": 0.1}
STORES = {
    "half a band": lambda x: shutil.rmtree(x / "lower"),
    "the other half": lambda x: shutil.rmtree(x / "upper"),
    "no metadata": lambda x: (x / "lower" / "zarr.json").unlink(),
    "a long shape": lambda x: edited(x, lambda known: known.update(shape=[2**40, SIZE, SIZE])),
    "a negative shape": lambda x: edited(x, lambda known: known.update(shape=[-1, SIZE, SIZE])),
    "a large chunk": lambda x: edited(x, lambda known: chunk_shape(known, [2**40, SIZE, SIZE])),
    "an empty chunk": lambda x: edited(x, lambda known: chunk_shape(known, [0, SIZE, SIZE])),
    "words": lambda x: edited(x, lambda known: known.update(data_type="string")),
    "an unknown codec": lambda x: edited(x, lambda known: known.update(codecs=[{"name": "evil"}])),
    "cut metadata": lambda x: (x / "lower" / "zarr.json").write_text("{"),
    "deep metadata": lambda x: (x / "lower" / "zarr.json").write_text("[" * 100_000),
    "a deep root": lambda x: (x / "zarr.json").write_text("[" * 100_000),
    "no root": lambda x: (x / "zarr.json").write_text("null"),
    "a run without arrays": lambda x: attributes(x, pixelbounds=RUN),
    "a run without limits": lambda x: attributes(x, pixelbounds={**RUN, "limits": None}),
    "a run of an unknown kind": lambda x: attributes(x, pixelbounds={**RUN, "kind": "evil"}),
    "a run of a list": lambda x: attributes(x, pixelbounds={**RUN, "kind": ["score"]}),
    "bands without marks": lambda x: attributes(x, pixelbounds={"kind": "bands"}, source="mine"),
    "bands without a source": lambda x: attributes(x, pixelbounds={"kind": "bands"}),
    "garbage": lambda x: first_chunk(x, lambda path: path.write_bytes(bytes(10))),
    "a bomb": lambda x: first_chunk(x, lambda path: path.write_bytes(BOMB)),
    "a folder": lambda x: first_chunk(x, os.mkdir),
    "a pipe": lambda x: first_chunk(x, os.mkfifo),
    "endless zeros": lambda x: first_chunk(x, lambda path: path.symlink_to("/dev/zero")),
}


@pytest.mark.parametrize("skip", [(), ("--skip-bad",)], ids=["", "skip-bad"])
@pytest.mark.parametrize("kind", STORES)
def test_a_store_that_lies_is_refused(files, tmp_path, kind, skip):
    shutil.copytree(files / "bands.zarr", tmp_path / "bands.zarr")
    STORES[kind](tmp_path / "bands.zarr")
    words = "apply", files / "cal.safetensors", tmp_path / "bands.zarr", "--out", tmp_path / "out.zarr"
    result = call(*words, "--memory", "64M", *skip)
    if skip and kind in ("garbage", "a bomb", "a folder", "a pipe", "endless zeros"):
        assert result.exit_code == 0, result.output  # the images of that chunk are left out
        assert "4 images in bad chunks: 0, 1, 2, 3" in flat(result.stdout)
        return
    assert result.exit_code == 2, result.output
    assert "bands.zarr" in flat(result.stderr)


@pytest.mark.parametrize("codec", [zarr.codecs.ZstdCodec(), zarr.codecs.GzipCodec(), zarr.codecs.BloscCodec()])
def test_a_chunk_unpacks_to_no_more_than_it_should(tmp_path, codec):
    x = zarr.create_array(tmp_path / "x.zarr", data=np.ones((4, 4, 4)), chunks=(2, 4, 4), compressors=(codec,))
    np.testing.assert_array_equal(guarded(x)[:], np.ones((4, 4, 4)))
    (tmp_path / "x.zarr" / "c" / "1" / "0" / "0").write_bytes(bomb(codec))
    with pytest.raises(BadChunk, match="does not say that it unpacks to at most"):
        guarded(x)[2:]


SHAPES = {
    "around": [[2**32, 2**32], [8, 11]],  # the product is 0 in 64 bits
    "negative": [[-8, -8], [3, 8]],
    "large": [[2**62, 4], [8, 11]],
    "none": [[8, 8], [0, 8]],
    "short": [[8, 8]],
    "real": np.array([[8, 8], [3, 8]], float),
    "unsigned": np.array([[2**63, 2], [8, 11]], np.uint64),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_shapes_of_different_sizes_that_lie_are_refused(files, tmp_path, kind):
    shutil.copytree(files / "ragged.zarr", tmp_path / "bands.zarr")
    group = zarr.open_group(tmp_path / "bands.zarr", mode="r+")
    del group["lower"]["shapes"]
    group["lower"].create_array("shapes", data=np.array(SHAPES[kind]))
    words = "apply", files / "cal.safetensors", tmp_path / "bands.zarr", "--out", tmp_path / "out.zarr"
    result = call(*words)
    assert result.exit_code == 2, result.output


# ---------------------------------------------------------------- arrays


def member(shape, content=b"", descr="<f4"):
    """An .npy file of a header and some bytes."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": descr, "fortran_order": False, "shape": shape})
    return out.getvalue() + content


ZIPS = {
    "declares too much": member((2**40, 4, 4)),
    "unpacks to too much": member((2**16 + 1, 16, 16), bytes(2**26 + 2**10)),
    "holds objects": member((1,), b"cos\nsystem", "|O"),
    "is no array": b"hello",
    "is deep": b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"(" * 9000,
}


@pytest.mark.parametrize("kind", ZIPS)
@pytest.mark.parametrize("command", ["apply", "calibrate"])
def test_an_npz_that_lies_is_refused(files, tmp_path, kind, command):
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in ("lower", "upper") if command == "apply" else ("truth",):
            archive.writestr(f"{name}.npy", ZIPS[kind])
    words = ("apply", files / "cal.safetensors", tmp_path / "x.npz", "--out", tmp_path / "out.zarr")
    if command == "calibrate":
        more = "--risk-level", 0.3, "--out", tmp_path / "c.safetensors"
        words = ("calibrate", tmp_path / "x.npz", files / "bands.zarr", *more)
    result = call(*words, "--memory", "64M")
    assert result.exit_code == 2, result.output
    assert "x.npz" in flat(result.stderr)


# ---------------------------------------------------------------- pictures


def test_pictures_unpack_to_no_more_than_memory_allows(tmp_path, monkeypatch):
    monkeypatch.setattr(scans, "_LEAST", 0)
    Image.new("L", (100, 90)).save(tmp_path / "a.png")
    with (
        execution.running(memory="8K"),
        pytest.raises(ValueError, match=r"a\.png unpacks to 9 kB, more than the memory"),
    ):
        open_images(tmp_path)
    for name in "abc":
        Image.new("L", (50, 60)).save(tmp_path / f"{name}.png")
    with execution.running(memory="8K"), pytest.raises(ValueError, match=r"at least 3, add up to 9 kB"):
        open_images(tmp_path)
    with execution.running(memory="9K"):
        assert open_images(tmp_path).pixels.shape == (3, 60, 50)
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.png", bytes(9000))
    with execution.running(memory="8K"), pytest.raises(ValueError, match=r"a\.png unpacks to 9 kB"):
        open_images(tmp_path / "x.zip")


# ---------------------------------------------------------------- files that no checksum seals


@pytest.mark.parametrize("read", ["problem", "promises", "training"])
@pytest.mark.parametrize("text", ["x = " + "[" * 100_000, "x = " + "{a = " * 5000, "x = " + "9" * 5000, "x = \ud800"])
def test_a_table_that_nobody_means_is_refused(tmp_path, read, text):
    file = tmp_path / "table.toml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    readers = {"problem": read_problem, "promises": lambda path: promise_texts([str(path)])}
    if read == "training":
        pytest.importorskip("torch")
        settings = import_module("pixelbounds.workflows.settings")
        readers[read] = lambda path: read_toml(path, settings.TrainSettings)
    with pytest.raises(ValueError, match="TOML"):
        readers[read](file)


@pytest.mark.parametrize(
    "told",
    [
        {"problem": "ct", "views": 10**12, "size": 64},
        {"problem": "ct", "views": 16, "size": 10**9},
        {"problem": "motion_blur", "length": 1e300},
    ],
)
def test_a_problem_of_a_size_beyond_all_proportion_is_refused(told):
    with pytest.raises(ValueError, match="most"):
        declared_problem(told)
