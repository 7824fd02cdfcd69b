"""A pilot run shows what samples, steps and miscoverage are worth, and recommends what is cheap and hardly longer."""

import json
from fractions import Fraction

import numpy as np
import pytest
from commands import call, done
from stores import write_run

from pixelbounds.workflows.pilot import affordable, pilot_runs

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


@pytest.fixture
def pilots(tmp_path):
    truth = a_run(tmp_path / "good.zarr", steps=8, pace=4.0)
    a_run(tmp_path / "poor.zarr", steps=2, spread=0.15, pace=1.0)
    np.save(tmp_path / "truth.npy", truth)
    return tmp_path


def test_numbers_of_samples_and_miscoverages_that_go_together():
    assert affordable(19, 0.2) == [(19, Fraction(1, 5)), (19, Fraction(1, 10)), (9, Fraction(1, 5))]
    assert affordable(8, 0.2) == []


def test_what_is_recommended_is_the_cheapest_that_is_hardly_longer(pilots):
    runs = [pilots / "good.zarr", pilots / "poor.zarr"]
    found = pilot_runs(runs, pilots / "truth.npy", risk_level=0.1, tolerance=0.02)
    costs = [choice.seconds for choice in found.choices]
    assert costs == sorted(costs)
    best = found.recommended
    assert best.steps == 8, "samples that are too wide were recommended because they are cheap"
    assert best.longer <= 0.02
    cheaper = [choice for choice in found.choices if choice.seconds < best.seconds]
    assert cheaper
    assert all(choice.longer > 0.02 for choice in cheaper)
    assert {choice.miscoverage for choice in found.choices} == {0.1, 0.05}  # never above what was asked
    whole = next(choice for choice in found.choices if (choice.steps, choice.samples) == (8, 39))
    assert whole.seconds == pytest.approx(4.0 * 39 / 40)
    assert whole.evaluations == 39 * 9
    # ends are the second least and greatest of 39 samples of centre + 0.05 z, 1.73 deviations out on average: they
    # miss 10% of the truths, a little more or less, and are widened where it is more
    assert 2 * 1.73 * 0.05 * 0.98 < whole.length < 2 * 1.73 * 0.05 * 1.08


REFUSED = {
    "kept no samples": {"kept": False},
    "observations of": {"observations": "others"},
    "samples per image cannot give coverage": {"samples": 9},
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_compared_is_refused(pilots, said):
    a_run(pilots / "other.zarr", steps=3, **REFUSED[said])
    runs = [pilots / "other.zarr"] if said != "observations of" else [pilots / "good.zarr", pilots / "other.zarr"]
    with pytest.raises(ValueError, match=said):
        pilot_runs(runs, pilots / "truth.npy", risk_level=0.1)


def test_the_command_shows_time_for_the_images_and_writes_the_picture(pilots):
    words = ["--risk-level", 0.1, "--pilot", pilots / "good.zarr", "--truth", pilots / "truth.npy", "--images", 1000]
    said = done("plan", *words, "--plot", pilots / "pilot.png")
    assert said["recommended"]["steps"] == 8
    assert (pilots / "pilot.png").read_bytes()[:4] == b"\x89PNG"
    json.dumps(said)
    shown = call("plan", *words).output
    seconds = said["recommended"]["seconds"] * 1000
    assert f"{seconds / 60:.3g} min for 1,000 images" in " ".join(shown.split())
    assert "calibrate on others" in " ".join(shown.split())
    assert call("plan", "--pilot", pilots / "good.zarr").exit_code == 2
    assert call("plan", "--truth", pilots / "truth.npy").exit_code == 2
