"""Of several miscoverages `calibrate` chooses one on the fitting images, from samples or from those that a run kept."""

import shutil

import numpy as np
import pytest
from commands import call, done
from stores import write_run

import pixelbounds as pb

LEVELS = (0.05, 0.1, 0.5)
HOW = ("--risk-level", "0.3", "--n-fit", "8", "--groups", "band", "--units", "each", "--force")
N, M, SIDE = 24, 39, 12
ENDS = "lower", "upper", "naive_lower", "naive_upper", "mean", "deviation"


def a_run(path, *, steps, spread=0.05, pace=None, samples=M, kept=True, observations="same", seed=0):
    """Exact posterior samples, or wider ones, as a run of `pixelbounds sample` would have kept them; and the truth."""
    rng = np.random.default_rng(seed)
    centre = rng.uniform(0.3, 0.7, (N, SIDE, SIDE))
    truth = (centre + 0.05 * rng.standard_normal(centre.shape)).astype(np.float32)
    about = {"kind": "score", "samples": samples, "held_out": 1, "keep_samples": kept, "steps": steps}
    about |= {"sampler": "heun", "sigma_0": 0.2, "limits": [0.0, 1.0], "observations": observations}
    about |= {"miscoverage": 0.1, "network": "a" * 64} | ({} if pace is None else {"pace": pace})
    names = dict.fromkeys(ENDS, ()) | ({"samples": (samples,)} if kept else {})
    images = []
    draws = np.random.default_rng(steps)
    for i in range(N):
        noise = spread * draws.standard_normal((samples, SIDE, SIDE))
        bias = (spread - 0.05) * draws.standard_normal((SIDE, SIDE))
        drawn = (centre[i] + bias + noise).astype(np.float32)
        low, high = drawn.min(axis=0), drawn.max(axis=0)
        parts = dict(zip(ENDS, (low, high, low, high, drawn.mean(axis=0), drawn.std(axis=0)), strict=True))
        images.append({"observation": truth[i], **parts} | ({"samples": drawn} if kept else {}))
    write_run(path, about, range(N), (SIDE, SIDE), names, images)
    return truth


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("files")
    truth = a_run(tmp_path / "run.zarr", steps=8)
    np.save(tmp_path / "truth.npy", truth)
    samples = pb.samplers.runs.open_run(tmp_path / "run.zarr")["samples"][:]
    np.save(tmp_path / "samples.npy", np.asarray(samples, np.float32))
    return tmp_path, truth, samples


def chosen(tmp_path, bands, *more):
    words = ("--miscoverage", ",".join(map(str, LEVELS)), *more, *HOW)
    return done("calibrate", tmp_path / "truth.npy", tmp_path / bands, "--out", tmp_path / "cal.safetensors", *words)


def refused(*words):
    result = call(*words)
    assert result.exit_code in (1, 2), result.output
    return " ".join(result.output.split())


def test_samples_become_the_band_that_python_would_choose(files):
    tmp_path, truth, samples = files
    told = chosen(tmp_path, "samples.npy")
    bands = {str(level): pb.calibrated_quantiles(samples.astype(np.float32), level) for level in LEVELS}
    here = pb.calibrate(truth, bands, risk_level=0.3, method=pb.Frontier(n_fit=8, groups="band"))
    assert (tmp_path / "cal.safetensors").read_bytes() == here.to_bytes()
    assert told["record"]["settings"]["bands"].keys() == bands.keys()
    best = told["record"]["settings"]["band"]
    assert here.record.source == bands[best].source
    done("apply", tmp_path / "cal.safetensors", tmp_path / "samples.npy", "--out", tmp_path / "i.npz", "--force")
    with np.load(tmp_path / "i.npz") as found:
        np.testing.assert_array_equal(found["lower"], here.apply(bands[best]).lower)


def test_a_run_that_kept_its_samples_is_calibrated_and_applied_by_them(files):
    tmp_path, _, samples = files
    told = chosen(tmp_path, "run.zarr")
    record = told["record"]
    assert record["settings"]["band"] == "0.5"
    assert record["source"]["kind"] == "calibrated quantiles of kept samples"
    assert record["source"]["miscoverage"] == "1/2"
    assert record["source"]["network"] == "a" * 64
    done("apply", tmp_path / "cal.safetensors", tmp_path / "run.zarr", "--out", tmp_path / "i.npz", "--force")
    cal = pb.load_calibration(tmp_path / "cal.safetensors")
    band = pb.calibrated_quantiles(samples, 0.5)
    with np.load(tmp_path / "i.npz") as found:
        np.testing.assert_array_equal(
            found["upper"], cal.apply(pb.Band(band.lower, band.upper, source=cal.record.source)).upper
        )
    words = ("--out", tmp_path / "x.npz")
    assert "kind" in refused("apply", tmp_path / "cal.safetensors", tmp_path / "samples.npy", *words)
    shutil.rmtree(tmp_path / "run.zarr" / "samples")
    assert "kept no samples" in refused("apply", tmp_path / "cal.safetensors", tmp_path / "run.zarr", *words)
