"""What `reproduce phantom --train` leaves can be put into the repository and the package, and other phantoms cannot."""

import json

import numpy as np
import pytest

from pixelbounds.demo import packaged
from reproduce import phantom_arrays
from reproduce.gpu import package


def outputs(n=3, size=8):
    rng = np.random.default_rng(0)
    middle, half = rng.random((n, size, size)), 0.2 * rng.random((n, size, size))
    arrays = {name: middle + 0.01 * rng.standard_normal(middle.shape) for name in phantom_arrays._ARRAYS}
    arrays |= {name: half * 0.5 for name in arrays if "deviation" in name}
    demo = packaged.unpack_bands(package.pack_bands(middle - half, middle + half, arrays["fresh"][1:], {}))[0]
    return arrays, demo


def test_what_is_packed_comes_back_in_8_bits_with_ends_rounded_outward():
    given, demo = outputs()
    arrays, about = phantom_arrays.unpack_arrays(phantom_arrays.pack_arrays(given, {"samples": 19}, demo), demo)
    assert about == {"samples": 19}
    assert set(arrays) == set(given)
    for name, x in given.items():
        step = 1 / phantom_arrays._ARRAYS[name]
        within, back = np.clip(x, 0, 1), arrays[name]
        assert np.abs(back - within).max() < 1.001 * step
        if name.endswith(("lower", "upper")):
            assert ((back <= within) if name.endswith("lower") else (back >= within)).all()
        else:
            assert np.abs(back - within).max() < 0.501 * step
    del given["fresh"]
    with pytest.raises(ValueError, match="lacks fresh"):
        phantom_arrays.pack_arrays(given, {}, demo)


@pytest.fixture
def work(tmp_path, monkeypatch):
    """`work` with the first of the packaged arrays, and a folder of its own for what is packaged."""
    folder, target = tmp_path / "work", tmp_path / "embedded"
    (folder / "material").mkdir(parents=True)
    (folder / "score").mkdir()
    for name, x in phantom_arrays.phantom_arrays().items():
        if name != "figures":
            np.save(folder / "material" / f"{name}.npy", x[:6])
    (folder / "material" / "figures.json").write_text(
        json.dumps(
            {"score": {"samples": 19, "steps": 16, "miscoverage": 0.2, "sigma_0": 0.2}, "regressor": {"step": 1}}
        )
    )
    (folder / "score" / "score.safetensors").write_bytes(b"network")
    monkeypatch.setattr(packaged, "network_file", lambda: target / "score.safetensors")
    monkeypatch.setattr(packaged, "CALIBRATION", 4)
    monkeypatch.setattr(package, "FILE", tmp_path / "phantoms.xz")
    monkeypatch.setattr("sys.argv", ["package", str(folder)])
    return folder


def test_arrays_and_network_are_packaged(work, tmp_path):
    given = {file.stem: np.load(file) for file in (work / "material").glob("*.npy")}
    package.main()
    small, about = packaged.unpack_bands((tmp_path / "embedded" / "bands.xz").read_bytes())
    arrays, figures = phantom_arrays.unpack_arrays((tmp_path / "phantoms.xz").read_bytes(), small)
    assert np.array_equal(arrays["mean"], given["mean"])
    assert (figures["samples"], figures["regressor"]["step"]) == (19, 1)
    for name in ("lower", "upper"):
        assert np.abs(small[name] - given[name]).max() <= 1.01 / packaged.STEPS  # ends go outward once more
    assert np.array_equal(small["fresh"], given["fresh"][4:])
    assert about == {"samples": 19, "steps": 16, "miscoverage": 0.2, "sigma_0": 0.2}
    assert (tmp_path / "embedded" / "score.safetensors").read_bytes() == b"network"
