"""Validation: the best average is kept, patience ends a run, all of it resumes, and nothing learned is an error."""

import itertools
import json
import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gaussian_world as world  # noqa: E402
from small_training import SDE, assert_same_state, explode, state  # noqa: E402

from pixelbounds.diffusion import batches, validation  # noqa: E402
from pixelbounds.diffusion import trainer as training  # noqa: E402
from pixelbounds.diffusion.checkpoint import load_state, save_state  # noqa: E402
from pixelbounds.diffusion.regression import quantile_loss, regressor  # noqa: E402
from pixelbounds.diffusion.schedule import Settings  # noqa: E402
from pixelbounds.diffusion.session import Log, read_log  # noqa: E402
from pixelbounds.diffusion.trainer import score_matching, train  # noqa: E402

torch.set_num_threads(1)
QUICK = {
    "batch": 8,
    "warmup": 3,
    "learning_rate": 2e-3,
    "log_every": 4,
    "checkpoint_every": 6,
    "look_every": 3,
    "seed": 3,
}


def clipped(n, seed):
    return np.clip(world.draw(n, seed), *world.LIMITS)


def run(folder=None, *, steps=24, images=None, **changes):
    """A short run with validation images; dropout and rotations are at work."""
    return train(
        changes.pop("network", None) or world.network(base=8, dropout=0.1),
        clipped(20, 0) if images is None else images,
        sde=SDE,
        limits=world.LIMITS,
        folder=folder,
        validation=clipped(30, 5),
        settings=Settings(steps=steps, **{**QUICK, **changes.pop("settings", {})}),
        **changes,
    )


def by_heart(folder=None, steps=400, **changes):
    """Two images, learned by heart: the loss of others falls, then rises."""
    settings = {"learning_rate": 1e-2, "ema": 0.5, "augment": batches.keep, "cosine": False, **changes}
    return run(folder, steps=steps, images=clipped(2, 0), settings=settings, network=world.network(base=16))


# ---------------------------------------------------------------- what is kept


def test_the_average_with_the_least_validation_loss_is_returned_and_patience_ends_the_run(tmp_path):
    done = by_heart(tmp_path, patience=12)
    log = read_log(tmp_path)
    seen = np.isfinite(log["validation"])
    steps, losses = log["step"][seen], log["validation"][seen]
    assert done.ended == "patience"
    assert done.step == steps[-1] < 400
    assert done.best == steps[losses.argmin()]
    assert len(losses) - 1 - losses.argmin() == 12
    assert done.loss == losses.min() < losses[-1]
    assert log["loss"][-1] < log["loss"][0]  # what it learns by heart goes on falling
    images = batches.Pixels(clipped(30, 5), limits=world.LIMITS)
    settings = Settings(steps=1, **QUICK)
    measured = validation.mean_loss(done.network, images, score_matching, sde=SDE, settings=settings)
    assert measured == pytest.approx(done.loss, rel=1e-6)


def test_without_patience_a_run_goes_on_to_its_end_and_still_returns_its_best():
    done = by_heart(patience=None, steps=160)
    assert (done.step, done.ended) == (160, "steps")
    assert done.best < 160


def test_a_run_that_ended_by_patience_is_finished_until_its_patience_grows(tmp_path):
    first = by_heart(tmp_path, patience=5)
    content = (tmp_path / "log.jsonl").read_bytes()
    again = by_heart(tmp_path, patience=5)
    assert (again.step, again.best, again.loss) == (first.step, first.best, first.loss)
    assert (tmp_path / "log.jsonl").read_bytes() == content
    for a, b in zip(first.network.parameters(), again.network.parameters(), strict=True):
        assert torch.equal(a, b)
    assert by_heart(tmp_path, patience=8).step > first.step


def test_no_validation_images_no_best():
    done = train(
        world.network(base=8), clipped(20, 0), sde=SDE, limits=world.LIMITS, settings=Settings(steps=6, **QUICK)
    )
    assert (done.best, done.ended) == (6, "steps")


# ---------------------------------------------------------------- resuming


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(folder)


def best(folder):
    tensors, meta = load_state(folder)
    return meta["best"], {name: x for name, x in tensors.items() if name.startswith("best/")}


@pytest.mark.parametrize("struck", [7, 12, 20])  # between looks, at a look and checkpoint, after the last checkpoint
def test_a_run_that_was_stopped_resumes_with_its_best_network_bit_for_bit(tmp_path, uninterrupted, struck):
    folder, whole = uninterrupted

    def strike(line):
        if line["step"] == struck:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit):
        run(tmp_path, settings={"log_every": 1}, progress=strike)
    assert load_state(tmp_path)[1]["step"] < 24
    done = run(tmp_path)
    assert_same_state(state(tmp_path), state(folder))
    assert best(tmp_path)[0] == best(folder)[0]
    assert best(tmp_path)[1].keys() == best(folder)[1].keys() != set()
    assert (done.best, done.loss) == (whole.best, whole.loss)
    for a, b in zip(done.network.parameters(), whole.network.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_killed_run_looks_at_its_images_as_the_uninterrupted_one_did(tmp_path, uninterrupted):
    def die(line):
        if line["step"] == 14:
            raise MemoryError

    with pytest.raises(MemoryError):  # the state is that of step 12
        run(tmp_path, settings={"log_every": 1}, progress=die)
    assert load_state(tmp_path)[1]["step"] == 12
    run(tmp_path)
    assert_same_state(state(tmp_path), state(uninterrupted[0]))
    log, whole = read_log(tmp_path), read_log(uninterrupted[0])
    looks = {step: x for step, x in zip(log["step"], log["validation"], strict=True) if np.isfinite(x)}
    assert looks == {s: x for s, x in zip(whole["step"], whole["validation"], strict=True) if np.isfinite(x)}


def test_other_validation_images_are_refused(tmp_path):
    run(tmp_path, steps=3)
    with pytest.raises(ValueError, match="has validation = "):
        train(
            world.network(base=8, dropout=0.1), clipped(20, 0), sde=SDE, limits=world.LIMITS, folder=tmp_path,
            validation=clipped(30, 6), settings=Settings(steps=6, **QUICK),
        )  # fmt: skip


def test_a_state_from_before_there_was_validation_goes_on(tmp_path):
    def part(steps):
        return train(
            world.network(base=8), clipped(20, 0), sde=SDE, limits=world.LIMITS, folder=tmp_path,
            settings=Settings(steps=steps, **QUICK),
        )  # fmt: skip

    part(3)
    tensors, meta = load_state(tmp_path)
    assert meta.pop("best")["looked"] == 0
    assert meta["about"].keys().isdisjoint({"look_every", "validation", "patience"})
    save_state(tmp_path, tensors, meta)
    assert part(6).step == 6


# ---------------------------------------------------------------- the yardstick


def test_the_trivial_denoiser_is_the_better_of_identity_and_mean_at_each_level(rng):
    """Pixels of variance v: the loss of the noisy image is 1, that of the mean v / sigma^2."""
    x = (0.5 + 0.2 * rng.standard_normal((400, 8, 8))).clip(-1, 2).astype("f4")
    images = batches.Pixels(x, limits=(-1, 2))
    settings = Settings(steps=1, batch=128, sigma_top=1.0)
    found = validation.trivial_loss(world.network(), images, score_matching, sde=SDE, settings=settings)
    sigma = np.exp(np.linspace(np.log(SDE.sigma_min), 0, 10_000))
    assert found == pytest.approx(np.minimum(1, 0.2**2 / sigma**2).mean(), rel=0.03)
    assert found < 0.95 * min(1, np.mean(0.2**2 / sigma**2))  # teeth: neither of the two alone, at all levels


def test_a_regressor_has_a_yardstick_too():
    images, settings = batches.Pixels(clipped(40, 1), limits=world.LIMITS), Settings(steps=1, batch=32)
    heads = regressor(world.config(base=8), data_deviation=1.0)
    found = validation.trivial_loss(heads, images, quantile_loss(0.1), sde=SDE, settings=settings)
    variance = float(clipped(40, 1).var())
    assert 0 < found < 2 * variance
    assert np.isfinite(validation.mean_loss(heads, images, quantile_loss(0.1), sde=SDE, settings=settings))


def test_a_network_that_learned_nothing_is_refused_with_a_remedy():
    done = run(steps=1, settings={"learning_rate": 1e-9})
    assert done.trivial <= done.loss
    with pytest.raises(ValueError, match=r"no better than the .* nothing was learned; give the run more steps"):
        done.check()
    learned = run(steps=60, settings={"learning_rate": 1e-2, "ema": 0.9})
    assert learned.loss < learned.trivial
    learned.check()
    with pytest.raises(ValueError, match="no better"):
        training.Trained(None, 1, 0.0, {}, float("nan"), 1.0).check()


# ---------------------------------------------------------------- schedule


@pytest.mark.parametrize("length", [{"steps": 40}, {"seconds": 180.0}])
def test_a_short_run_does_not_end_inside_its_warmup(length):
    settings = Settings(learning_rate=1.0, warmup=500, cosine=False, **length)
    rates = [settings.rate(step, settings.done(step, 4.5 * step)) for step in range(40)]  # 40 steps in 180 seconds
    assert rates[0] < 0.01
    assert rates[4:] == [1.0] * 36
    long = Settings(steps=100_000, learning_rate=1.0, warmup=500, cosine=False)
    assert long.rate(249, 249 / 100_000) == 0.5  # as told, where the run is long


def test_looks_are_frequent_at_first_and_in_proportion_later():
    settings = Settings(steps=10**6)
    looks = np.array([step for step in range(1, 20_000) if settings.looks(step)])
    assert list(looks[:4]) == [20, 40, 60, 80]
    gaps = np.diff(looks) / looks[1:]
    assert gaps[looks[1:] > 800].max() <= 0.05
    assert gaps[looks[1:] > 800].min() >= 0.024
    fixed = Settings(steps=100, look_every=7)
    assert [step for step in range(30) if fixed.looks(step)] == [7, 14, 21, 28]


@pytest.mark.parametrize("wrong", [{"patience": 0}, {"patience": 1.5}, {"look_every": 0}, {"look_every": True}])
def test_wrong_looks_are_refused(wrong):
    name = next(iter(wrong))
    with pytest.raises(ValueError, match=f"{name} is "):
        Settings(steps=1, **wrong)


# ---------------------------------------------------------------- what a run tells


def test_progress_is_told_at_least_about_every_second(monkeypatch):
    """With a line of the log every 1,000 steps, and a step every half second."""
    ticks = itertools.count()
    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=lambda: next(ticks) / 2))
    told = []
    run(steps=20, progress=told.append, settings={"log_every": 1000, "checkpoint_every": 1000, "look_every": 8})
    seconds = [0.0, *(line["seconds"] for line in told)]
    assert max(np.diff(seconds)) <= 1.5
    between = [line for line in told if line["step"] == 10]
    assert between[0].keys() >= {"loss", "images_per_second", "validation", "least", "remaining", "done"}
    assert between[0]["done"] == 0.5
    assert between[0]["remaining"] == pytest.approx(between[0]["seconds"])
    assert [line["step"] for line in told if line["step"] == 20] == [20]


def test_the_log_holds_lines_and_no_more(tmp_path):
    told = []
    log = Log(tmp_path, 0, 8, told.append)
    log.write(4, 1.0, 0.25, loss=0.5, validation=0.7)
    log.tell(5, 2.0, 0.5, 0.4)
    log.tell(6, 2.5, 0.75, None)
    log.write(8, 4.0, 1.0, loss=0.3, validation=0.6)
    assert [json.loads(line)["step"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [4, 8]
    assert [(line.get("loss"), line["validation"], line["least"]) for line in told] == [
        (0.5, 0.7, 0.7), (0.4, 0.7, 0.7), (None, 0.7, 0.7), (0.3, 0.6, 0.6),
    ]  # fmt: skip
    assert told[1]["remaining"] == 2.0
    resumed = []
    log = Log(tmp_path, 4, 8, resumed.append)
    log.tell(5, 2.0, 0.5, 0.4)
    assert resumed[0]["validation"] == 0.7  # known from the lines that were kept


def test_a_diverged_network_is_not_the_best(tmp_path):
    run(tmp_path, steps=6)
    kept = best(tmp_path)[0]
    with pytest.raises(FloatingPointError):
        run(tmp_path, steps=12, loss=explode)
    assert best(tmp_path)[0] == kept
