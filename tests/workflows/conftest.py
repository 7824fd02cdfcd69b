"""Networks of all three kinds, trained once through the command, and an uninterrupted sampling run."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """A folder with images, observations, and networks of all three kinds, trained through the command."""
    from sampling_world import SETTINGS, SIGMA, TUNING, N, call, images, write  # which needs torch

    folder = tmp_path_factory.mktemp("world")
    np.save(folder / "x.npy", images(32))
    np.save(folder / "hot.npy", np.where(np.arange(32)[:, None, None] == 3, 7 * np.eye(8), 0.5 * np.eye(8)))
    np.save(folder / "large.npy", np.zeros((4, 16, 16), np.float32))
    np.save(folder / "rgb.npy", np.zeros((8, 16, 16, 3), np.float32))
    rng = np.random.default_rng(1)
    np.save(folder / "y.npy", (images(N, 1) + SIGMA * rng.normal(size=(N, 8, 8))).astype(np.float32))
    result = call("train", write(folder), "--quiet")
    assert result.exit_code == 0, result.output
    regressor = SETTINGS.replace('kind = "score"', 'kind = "regressor"').replace('weighting = "paper"\n', "")
    regressor = regressor.replace('"run"', '"regressor"')
    for kind, text in {"regressor": regressor, "conffusion": TUNING}.items():
        result = call("train", write(folder, text, f"{kind}.toml"), "--quiet")
        assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="session")
def score(world):
    return world / "run" / "score.safetensors"


@pytest.fixture(scope="session")
def whole(world, score):
    """An uninterrupted run."""
    from sampling_world import OPTIONS

    from pixelbounds.workflows import sample_to

    return sample_to(score, np.load(world / "y.npy"), world / "whole.zarr", OPTIONS)
