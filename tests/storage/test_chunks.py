"""Chunks that are read without zarr: the same values, and errors that name the file."""

import json

import numcodecs
import numpy as np
import pytest
import zarr
from stores import N, store, world
from zarr.codecs import Crc32cCodec, GzipCodec, ZstdCodec

from pixelbounds.images.library import rows_of
from pixelbounds.storage import chunks as plain
from pixelbounds.storage.chunks import BadChunk, guarded, rows_at

KINDS = {"bare": None, "checked": (Crc32cCodec(),)}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_zarr_wrote_is_read_from_anywhere(tmp_path, dtype, kind):
    data = (np.random.default_rng(0).random((17, 3, 5)) * 200).astype(dtype)
    x = store(tmp_path, "x.zarr", data, (7,), compressors=KINDS[kind])
    assert plain.has_plain_chunks(x)
    for start, stop in ((0, 7), (3, 15), (16, 17), (0, 17)):
        np.testing.assert_array_equal(rows_at(x, start, stop), data[start:stop])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_wrong_with_a_chunk_is_told(tmp_path, kind):
    data = np.ones((17, 3, 5), np.float32)
    x = guarded(store(tmp_path, "x.zarr", data, (7,), compressors=KINDS[kind]))
    first, second = (tmp_path / "x.zarr" / "c" / str(i) / "0" / "0" for i in (0, 1))
    content = bytearray(first.read_bytes())
    content[9] ^= 1
    first.write_bytes(content)
    second.unlink()
    with pytest.raises(BadChunk, match=rf"{second} is missing"):
        rows_at(x, 9, 10)
    if kind == "checked":
        for stop in (3, 7):  # part of a chunk is not believed either
            with pytest.raises(BadChunk, match=rf"{first} is damaged \(its checksum is wrong\)"):
                rows_at(x, 0, stop)
    first.write_bytes(content[:-1])
    with pytest.raises(BadChunk, match=rf"{first} is damaged \(it has \d+ bytes instead of"):
        rows_at(x, 0, 1)


@pytest.mark.parametrize("kind", [*KINDS, "packed"])
def test_pieces_are_the_images_in_order(tmp_path, kind, monkeypatch):
    samples = world()[1]
    monkeypatch.setattr(plain, "_PIECE", 3 * samples[0].nbytes)
    x = store(tmp_path, "x.zarr", samples, (4,), **({"compressors": KINDS[kind]} if kind in KINDS else {}))
    found = [(first, part.copy()) for first, part in plain.pieces(x, 2, N - 1)]
    assert len(found) == (1 if kind != "bare" else -(-(N - 3) // 3))
    assert [first for first, _ in found] == list(range(2, N - 1, 3))[: len(found)]
    np.testing.assert_array_equal(np.concatenate([part for _, part in found]), samples[2 : N - 1])


def test_the_core_reads_plain_chunks_so_too(tmp_path, monkeypatch):
    truth = world()[0]
    x = store(tmp_path, "x.zarr", truth, (7,), compressors=None)
    monkeypatch.setattr(zarr.Array, "__getitem__", lambda *_: pytest.fail("zarr was asked"))
    np.testing.assert_array_equal(rows_of(x, 3, 30), truth[3:30])


# ---------------------------------------------------------------- what is read at all


@pytest.mark.parametrize(
    "how",
    [
        {"zarr_format": 2, "filters": [numcodecs.Pickle()], "dtype": "O"},
        {"zarr_format": 2, "filters": [numcodecs.Delta("<f4")], "dtype": "f4"},
        {"zarr_format": 2, "compressors": numcodecs.BZ2(), "dtype": "f4"},
        {"zarr_format": 2, "compressors": numcodecs.LZMA(), "dtype": "f4"},
        {"compressors": (ZstdCodec(), GzipCodec()), "dtype": "f4"},
    ],
    ids=["pickle", "filter", "bz2", "lzma", "twice"],
)
def test_codecs_that_run_code_or_hide_a_size_are_refused_before_a_chunk_is_read(tmp_path, how):
    dtype = how.pop("dtype")
    if dtype == "O":  # zarr itself writes no such store, but reads one
        zarr.create_array(tmp_path / "x.zarr", shape=(4,), chunks=(2,), dtype="f4", zarr_format=2)
        path = tmp_path / "x.zarr" / ".zarray"
        metadata = json.loads(path.read_text()) | {"dtype": "|O", "fill_value": 0}
        metadata["filters"] = [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}]
        path.write_text(json.dumps(metadata))
    else:
        zarr.create_array(tmp_path / "x.zarr", shape=(4, 4), chunks=(2, 4), dtype=dtype, **how)
    x = zarr.open_array(tmp_path / "x.zarr", mode="r")
    with pytest.raises(ValueError, match="nothing is read that runs code or hides its size"):
        guarded(x)
