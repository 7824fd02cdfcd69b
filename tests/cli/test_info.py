"""`pixelbounds info`: every kind of file says what it is, and a file that is none, or was edited, is told."""

import numpy as np
import pytest
from commands import call, done, flat
from stores import write_run

import pixelbounds as pb
from pixelbounds.demo.packaged import network_file


@pytest.fixture
def world():
    rng = np.random.default_rng(0)
    centre = rng.uniform(0.3, 0.7, (120, 8, 8))
    return centre + 0.05 * rng.standard_normal(centre.shape), pb.Band(centre - 0.05, centre + 0.05)


def test_a_calibration_says_its_guarantee_and_its_promises(world, tmp_path):
    truth, band = world
    promises = [pb.share(0.25), pb.share(0.3, within=truth > 0.5, name="bright")]
    cal = pb.calibrate(truth, band, promises=promises, method="rcps")
    cal.save(tmp_path / "cal.safetensors")
    told = done("info", tmp_path / "cal.safetensors")
    assert told["kind"] == "calibration"
    assert told["sentence"] == cal.guarantee
    assert [(p["name"], p["at_most"], p["seen"]) for p in told["promises"]] == [
        (p.name, p.at_most, p.risk) for p in cal.promises
    ]
    shown = flat(call("info", tmp_path / "cal.safetensors").stdout)
    assert "all of these hold jointly" in shown
    assert "not known how they were made" in shown


def test_networks_messages_and_runs_say_what_they_are(world, tmp_path):
    assert done("info", network_file())["weights"] == 862689
    pb.federated.announce(*world, site="north").save(tmp_path / "north.safetensors")
    told = done("info", tmp_path / "north.safetensors")
    assert (told["kind"], told["site"]) == ("announcement", "north")
    about = {"kind": "score", "limits": [0.0, 1.0], "miscoverage": 0.2, "samples": 9, "sampler": "ode", "steps": 4}
    names = dict.fromkeys(("lower", "upper", "naive_lower", "naive_upper", "mean", "deviation"), ())
    parts = dict.fromkeys(("observation", *names), np.full((8, 8), 0.5))
    write_run(tmp_path / "run.zarr", about, range(2), (8, 8), names, [parts])
    told = done("info", tmp_path / "run.zarr")
    assert "1 of 2 images finished; the same `sample` resumes it" in told["sentence"]
    assert "samples 9" in told["bands"]["calibrated"]


def test_what_lives_after_deployment_says_how_it_stands(world, tmp_path):
    truth, band = world
    growing = pb.AnytimeCalibration(truth[:40], band[:40], risk_level=0.3)
    growing.save(tmp_path / "growing.safetensors")
    told = done("info", tmp_path / "growing.safetensors")
    assert (told["kind"], told["images"]) == ("anytime calibration", 0)
    assert "nothing certified yet" in told["sentence"]
    monitor = pb.Monitor(pb.calibrate(truth[:80], band[:80], risk_level=0.3, method="rcps"))
    monitor.update(truth[80:], band[80:])
    pb.save_monitor(monitor, tmp_path / "monitor.safetensors")
    told = done("info", tmp_path / "monitor.safetensors")
    assert (told["kind"], told["images"]) == ("monitor", 40)
    assert told["sentence"].startswith("No alarm")


def test_intervals_bands_and_images_say_what_they_hold(world, tmp_path):
    truth, band = world
    cal = pb.calibrate(truth, band, risk_level=0.3, method="rcps")
    cal.save(tmp_path / "cal.safetensors")
    np.save(tmp_path / "truth.npy", truth)
    np.savez(tmp_path / "band.npz", lower=band.lower, upper=band.upper)
    told = done("info", tmp_path / "truth.npy")
    assert told["kind"] == "images"
    assert str(truth.shape) in told["arrays"]["the array"]
    told = done("info", tmp_path / "band.npz")
    assert told["kind"] == "bands"
    assert set(told["arrays"]) == {"lower", "upper"}
    for name in ("intervals.npz", "intervals.zarr"):
        done("apply", tmp_path / "cal.safetensors", tmp_path / "band.npz", "--out", tmp_path / name)
        told = done("info", tmp_path / name)
        assert told["kind"] == "intervals"
        assert told["sentence"] == cal.guarantee
        assert set(told["arrays"]) >= {"lower", "upper"}


def test_other_files_and_edited_ones_are_told(world, tmp_path):
    (tmp_path / "text.txt").write_text("no file of ours, but some text")
    assert "is no file of pixelbounds" in flat(call("info", tmp_path / "text.txt").stderr)
    assert "does not exist" in flat(call("info", tmp_path / "none").stderr)
    path = tmp_path / "cal.safetensors"
    pb.calibrate(*world, risk_level=0.3, method="rcps").save(path)
    path.write_bytes(path.read_bytes().replace(b'\\"at_most\\": 0.3', b'\\"at_most\\": 0.1'))
    found = call("info", path)
    assert found.exit_code == 2
    assert "was changed after it was written" in flat(found.stderr)
