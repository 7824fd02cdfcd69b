"""What `reproduce phantom --train` leaves can be put into the package, and other phantoms cannot."""

import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from pixelbounds.demo import packaged


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The script, with a folder of its own as the package, and `work` with the first of the packaged arrays."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2]), *sys.path])
    work, target = tmp_path / "work", tmp_path / "embedded"
    (work / "material").mkdir(parents=True)
    (work / "score").mkdir()
    for name, x in packaged.material().items():
        if name != "figures":
            np.save(work / "material" / f"{name}.npy", x[:6])
    told = {"samples": 19, "steps": 16, "miscoverage": 0.2, "sigma_0": 0.2}
    (work / "material" / "figures.json").write_text(json.dumps({"score": told, "regressor": {"step": 1}}))
    (work / "score" / "score.safetensors").write_bytes(b"network")
    monkeypatch.setattr(packaged, "network_file", lambda: target / "score.safetensors")
    monkeypatch.setattr(sys, "argv", ["package", str(work)])
    return import_module("reproduce.gpu.package").main, work, target


def test_arrays_and_network_are_packaged(package):
    main, _, target = package
    main()
    arrays, figures = packaged.unpack_arrays((target / "phantoms.xz").read_bytes())
    given = {name: x[:6] for name, x in packaged.material().items() if name != "figures"}
    assert np.array_equal(arrays["mean"], given["mean"])
    step = 1.01 / packaged.STEPS  # ends go outward once more
    assert ((arrays["lower"] <= given["lower"]) & (arrays["lower"] >= given["lower"] - step)).all()
    assert ((arrays["upper"] >= given["upper"]) & (arrays["upper"] <= given["upper"] + step)).all()
    assert (figures["samples"], figures["miscoverage"], figures["regressor"]["step"]) == (19, 0.2, 1)
    assert (target / "score.safetensors").read_bytes() == b"network"


def test_other_phantoms_are_refused(package):
    main, work, target = package
    np.save(work / "material" / "truth.npy", packaged.some_phantoms(6, first=9).images)
    with pytest.raises(SystemExit, match="other phantoms"):
        main()
    assert not target.exists()
