"""Files are whole or not there, readable by whom the umask says; sealed ones are refused by name where they are odd."""

import json
import os
import signal
import stat
import struct
from time import perf_counter

import numpy as np
import pytest

from pixelbounds.storage import files
from pixelbounds.storage.files import aside, checksum, exclusive, replace_file, seal, strict_json, sweep, unseal

HOW = {"what": "thing", "remedy": "make one", "again": "make it again"}


@pytest.fixture
def umask():
    """Set the umask for a test."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mask, wanted", [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_umask_says_who_may_read(tmp_path, umask, mask, wanted):
    umask(mask)
    replace_file(tmp_path / "file", b"x")
    assert mode(tmp_path / "file") == wanted


def test_a_file_that_is_replaced_keeps_its_readers(tmp_path, umask):
    (tmp_path / "file").write_bytes(b"secret")
    (tmp_path / "file").chmod(0o600)
    replace_file(tmp_path / "file", b"x")
    assert mode(tmp_path / "file") == 0o600
    assert [x.name for x in tmp_path.iterdir()] == ["file"]


# ---------------------------------------------------------------- what killed writers left


def killed_while_writing(folder, kind):
    """A process of our own that dies with a file or folder half written."""
    child = os.fork()
    if not child:
        try:
            if kind == "file":
                files.os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
                replace_file(folder / "x", b"half")
            with aside(folder / "x.zarr") as place:
                (place / "half").write_text("half")
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_writer_left_is_swept_by_the_next(tmp_path, kind):
    killed_while_writing(tmp_path, kind)
    assert len(list(tmp_path.glob(".pixelbounds.*.part"))) == 1
    if kind == "file":
        replace_file(tmp_path / "y", b"y")
    else:
        with aside(tmp_path / "y"):
            (tmp_path / "y").write_text("y")
    assert [x.name for x in tmp_path.iterdir()] == ["y"]


def test_what_somebody_writes_is_not_swept(tmp_path):
    with aside(tmp_path / "x.zarr") as place:
        files._SWEPT.discard(tmp_path)
        sweep(tmp_path)
        assert place.exists()
    held = tmp_path / ".pixelbounds.held.part"
    held.write_text("x")
    with exclusive(held):
        files._SWEPT.discard(tmp_path)
        sweep(tmp_path)
        assert held.exists()
    files._SWEPT.discard(tmp_path)
    sweep(tmp_path)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- sealed files


def sealed(text):
    """A file whose text is these very characters, under a checksum that fits."""
    from safetensors.numpy import save

    arrays = {"x": np.zeros(3)}
    return save(arrays, {"pixelbounds": f"{checksum(text, arrays)} {text}"})


def with_header(header, rest=b""):
    """A safetensors file of a header as it stands."""
    return struct.pack("<Q", len(header)) + header + rest


def test_what_is_sealed_comes_back():
    data = seal({"format": 2, "a": [1, 2.5, None]}, {"x": np.arange(3)})
    text, arrays = unseal(data, "file", **HOW)
    assert text == {"format": 2, "a": [1, 2.5, None]}
    assert arrays["x"].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="JSON"):
        seal({"format": 2, "a": float("nan")}, {})


ODD = {
    "deep text": sealed('{"format": 2, "a": ' + "[" * 100_000),
    "twice": sealed('{"format": 2, "a": 1, "a": 2}'),
    "NaN": sealed('{"format": 2, "a": NaN}'),
    "no format": sealed("{}"),
    "empty": b"",
    "long header": struct.pack("<Q", 2**63) + b"{}",
    "header beyond the file": struct.pack("<Q", 100) + b"{}",
    "deep header": with_header(b'{"a":' + b"[" * 100_000),
    "metadata twice": with_header(b'{"__metadata__": {"pixelbounds": "a b"}, "__metadata__": {"pixelbounds": "a b"}}'),
    "bfloat16": with_header(
        b'{"__metadata__": {"pixelbounds": "a b"}, "x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}',
        bytes(4),
    ),
    "unknown dtype": with_header(
        b'{"__metadata__": {"pixelbounds": "a b"}, "x": {"dtype": "Q9", "shape": [2], "data_offsets": [0, 4]}}',
        bytes(4),
    ),
    "shape beyond the data": with_header(
        b'{"__metadata__": {"pixelbounds": "a b"}, "x": {"dtype": "F32", "shape": [1048576], "data_offsets": [0, 4]}}',
        bytes(4),
    ),
    "overflow": with_header(
        b'{"__metadata__": {"pixelbounds": "a b"}, "x": {"dtype": "F32", "shape": [4294967296, 4294967296, 4], '
        b'"data_offsets": [0, 0]}}'
    ),
}


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_file_is_refused_by_name(kind):
    with pytest.raises(ValueError, match=r"'file' (is not a pixelbounds thing|was changed)"):
        unseal(ODD[kind], "file", **HOW)


def test_many_names_take_no_quadratic_time():
    """40,000 names took 37 s; now hundredths of one."""
    names = [f'"{number}": 1' for number in range(40_000)]
    start = perf_counter()
    strict_json("{" + ", ".join(names) + "}")
    with pytest.raises(ValueError, match="'7' is given twice"):
        strict_json("{" + ", ".join([*names, names[7]]) + "}")
    assert perf_counter() - start < 5


def test_every_byte_is_covered_by_the_checksum():
    data = seal({"format": 2, "level": 0.25}, {"x": np.arange(4, dtype=np.float32)})
    start = data.index(b"pixelbounds")
    rng = np.random.default_rng(0)
    for at in [*rng.integers(start, len(data), 60), len(data) - 1]:
        other = bytearray(data)
        other[at] ^= 1 << rng.integers(8)
        try:
            found = unseal(bytes(other), "file", **HOW)
        except ValueError:
            continue
        assert json.dumps(found[0], sort_keys=True) == '{"format": 2, "level": 0.25}'  # white space between arrays
        assert found[1]["x"].tolist() == [0, 1, 2, 3]
