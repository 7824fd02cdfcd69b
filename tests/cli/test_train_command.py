"""`train` and `sample` on paths that are wrong, and the network that comes with the package."""

import errno
import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from typer.testing import CliRunner  # noqa: E402

from pixelbounds.cli import app  # noqa: E402
from pixelbounds.cli.command import code_of, error_message  # noqa: E402
from pixelbounds.demo.packaged import SIGMA_0, SIZE, network_file  # noqa: E402
from pixelbounds.diffusion.checkpoint import load_network  # noqa: E402


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "400"})


@pytest.fixture
def noisy(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((2, SIZE, SIZE), dtype=np.float32))
    return tmp_path / "x.npy"


@pytest.mark.parametrize(
    "number, code, remedy",
    [
        (errno.ENOENT, 2, "check the path"),
        (errno.EEXIST, 2, "give another path"),
        (errno.ENOTDIR, 2, "correct the path"),
        (errno.EISDIR, 2, "give the path of a file"),
        (errno.EACCES, 3, "change its permissions"),
        (errno.EROFS, 3, "write elsewhere"),
    ],
)
def test_a_path_that_is_wrong_is_named_with_the_remedy_and_nothing_is_promised(number, code, remedy):
    error = OSError(number, os.strerror(number), "a/b")
    assert code_of(error) == code
    said = error_message(error, code, "the state is saved")
    assert said.startswith(f"{os.strerror(number)} (a/b); ")
    assert remedy in said
    assert "saved" not in said


def test_the_packaged_network_refuses_noise_beyond_its_training(noisy):
    extra = load_network(network_file(), kind="score")[2]["extra"]
    assert extra["sigma_top"] == pytest.approx(1.1 * SIGMA_0)
    out = noisy.parent / "run.zarr"
    result = call("sample", network_file(), noisy, "--out", out, "--sigma0", "0.3", "--samples", "19")
    assert result.exit_code == 2
    assert "sigma_0 is 0.3, but" in result.stderr
    assert "was trained up to 0.22" in result.stderr
    assert not out.exists()
