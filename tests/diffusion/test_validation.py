"""Validation: the best average is kept, patience ends a run, all of it resumes, and nothing learned is an error."""

import os
import signal

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gaussian_world as world  # noqa: E402
from small_training import SDE, assert_same_state, explode, state  # noqa: E402

from pixelbounds.diffusion import batches, learner  # noqa: E402
from pixelbounds.diffusion import trainer as training  # noqa: E402
from pixelbounds.diffusion.checkpoint import load_state  # noqa: E402
from pixelbounds.diffusion.schedule import Settings  # noqa: E402
from pixelbounds.diffusion.session import read_log  # noqa: E402
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
    measured = learner.mean_loss(done.network, images, score_matching, SDE, settings)
    assert measured == pytest.approx(done.loss, rel=1e-6)


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


# ---------------------------------------------------------------- the yardstick


def test_the_trivial_denoiser_is_the_better_of_identity_and_mean_at_each_level(rng):
    """Pixels of variance v: the loss of the noisy image is 1, that of the mean v / sigma^2."""
    x = (0.5 + 0.2 * rng.standard_normal((400, 8, 8))).clip(-1, 2).astype("f4")
    images = batches.Pixels(x, limits=(-1, 2))
    settings = Settings(steps=1, batch=128, sigma_top=1.0)
    found = learner.trivial_loss(world.network(), images, score_matching, SDE, settings)
    sigma = np.exp(np.linspace(np.log(SDE.sigma_min), 0, 10_000))
    assert found == pytest.approx(np.minimum(1, 0.2**2 / sigma**2).mean(), rel=0.03)
    assert found < 0.95 * min(1, np.mean(0.2**2 / sigma**2))  # teeth: neither of the two alone, at all levels


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


# ---------------------------------------------------------------- what a run tells


def test_a_diverged_network_is_not_the_best(tmp_path):
    run(tmp_path, steps=6)
    kept = best(tmp_path)[0]
    with pytest.raises(FloatingPointError):
        run(tmp_path, steps=12, loss=explode)
    assert best(tmp_path)[0] == kept
