"""Training from files: what is killed resumes to the same bits, what is wrong is said, not traced."""

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

torch = pytest.importorskip("torch")

from sampling_world import SETTINGS, SIGMA, TUNING, call, write  # noqa: E402

from pixelbounds.diffusion.batches import Pixels  # noqa: E402
from pixelbounds.diffusion.checkpoint import load_network  # noqa: E402
from pixelbounds.storage.toml import read_toml  # noqa: E402
from pixelbounds.workflows.settings import TrainSettings  # noqa: E402
from pixelbounds.workflows.train import training_parts  # noqa: E402

torch.set_num_threads(1)


def test_train_saves_what_it_says(world, score):
    network, sde, meta = load_network(score, kind="score")
    assert (sde.sigma_max, meta["extra"]["sigma_0"], meta["extra"]["limits"]) == (1.0, SIGMA, [0.0, 1.0])
    assert network.config.size == 8
    assert len(np.load(world / "run" / "held_out.npy")) == 8
    before = score.read_bytes()
    assert call("train", world / "score.toml", "--quiet").exit_code == 0  # finished already: nothing changes
    assert score.read_bytes() == before


@pytest.mark.parametrize(
    "old, new, line, words",
    [
        ("steps = 20", "stpes = 4", 19, "did you mean 'steps'"),
        ("steps = 20", "steps = -4", 19, "[training] steps is -4; it must be positive"),
        ("steps = 20", 'steps = "four"', 19, "[training] steps is 'four'"),
        ("steps = 20", "", 17, "neither steps nor seconds"),
        ("base = 4", "base = 5", 8, "must be divisible by 4"),
        ('name = "tiny"', 'name = "tinny"', 7, "did you mean 'tiny'"),
        ('"flips"', '"flip"', 21, "did you mean 'flips'"),
        ("sigma_0 = 0.3", "sigma_0 = 1.5", 15, "outside (sigma_min, sigma_max]"),
        ("sigma_0 = 0.3", "sigma_0 = 0.01", 15, "outside (sigma_min, sigma_max]"),
        ("batch = 8", "batch = 8\nsigma_top = 0.2", 21, "below sigma_0"),
        ('kind = "score"', 'kind = "conffusion"', 18, "add from ="),
        ('kind = "score"', 'kind = "scores"', 18, "'score', 'regressor' or 'conffusion'"),
        ('path = "x.npy"', 'path = "z.npy"', 3, "does not exist"),
        ('path = "x.npy"', "", 2, "[data] path is missing"),
        ("held_out = 0.25", "held_out = 0.25\nlimits = [1.0, 0.0]", 5, "does not ascend"),
        ("held_out = 0.25", "held_out = 0.25\nlimits = [0.0, inf]", 5, "[0.0, inf] has no end"),
        ("held_out = 0.25", "held_out = 0.25\nlimits = [-inf, 0.0]", 5, "[-inf, 0.0] has no end"),
        ('path = "x.npy"', 'path = "hot.npy"', 3, "image 3 spans [0, 7], the limits are [0, 1]"),
        ("steps = 20", "steps = 4.5", 19, "[training] steps is 4.5"),
        ("batch = 8", f"batch = 8\nseed = {10**23 - 1}", 21, "it must be an integer in [0, 2^64)"),
        ("sigma_max = 1.0", "sigma_max = 0.005", 14, "above sigma_min"),
        ("multipliers = [1, 1]", "multipliers = [1, 1, 1, 1, 1]", 9, "must be divisible by 16"),
        ("[output]", "[outputs]", 25, "did you mean 'output'"),
        ("base = 4", "base = ", 8, "not TOML"),
        ("batch = 8", 'batch = 8\ndevice = "gpu"', 21, "device is 'gpu'; it must be cpu, cuda or cuda:0"),
        ("batch = 8", 'batch = 8\ndevice = "cuda"', 21, "device is 'cuda', but torch sees no GPU; use cpu"),
        (
            'path = "x.npy"',
            'path = "rgb.npy"',
            3,
            "channels belong on axis 1, (n, 3, h, w): np.moveaxis(images, -1, 1)",
        ),
        ('folder = "nowhere"', 'folder = "x.npy"', 26, "x.npy is no folder and cannot be made one (File exists); name"),
        ('folder = "nowhere"', 'folder = "x.npy/run"', 26, "cannot be made one (Not a directory); name another"),
    ],
)
def test_a_wrong_configuration_names_file_line_and_remedy(world, monkeypatch, old, new, line, words):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused(world, SETTINGS.replace('"run"', '"nowhere"'), old, new, line, words)


def refused(world, text, old, new, line, words):
    """The text with a part replaced is an error that names the line, and no folder is made."""
    assert old in text
    result = call("train", write(world, text.replace(old, new), "wrong.toml"), "--quiet")
    assert result.exit_code == 2, result.output
    message = " ".join(result.output.split())
    assert words in message, message
    assert f"wrong.toml, line {line}:" in message or f"at line {line}," in message, message
    assert "Traceback" not in message
    assert not (world / "nowhere").exists()


@pytest.mark.parametrize(
    "old, new, line, words",
    [
        ("run/score.safetensors", "no.safetensors", 7, "does not exist"),
        ("[training]", '[network]\nname = "tiny"\n[training]', 5, "[network] is given"),
        ('path = "x.npy"', 'path = "x.npy"\nlimits = [-1.0, 1.0]', 4, "that of the score network [0.0, 1.0]"),
        ("[training]", "[process]\nsigma_0 = 0.2\n[training]", 6, "sigma_0 is 0.2, that of the score network 0.3"),
        ("[training]", "[process]\nsigma_max = 2.0\n[training]", 6, "sigma_max is 2.0, that of the score network 1.0"),
        ("[training]", "[process]\nsigma_min = 2.0\n[training]", 6, "sigma_min is 2.0, that of the score network 0.01"),
        ("batch = 8", "batch = 8\nsigma_top = 0.2", 10, "sigma_top is 0.2, below sigma_0 = 0.3"),
        ("batch = 8", "batch = 8\nsigma_top = 1.5", 10, "outside (sigma_min, sigma_max]"),
        ('path = "x.npy"', 'path = "large.npy"', 3, "16 x 16 pixels, but the network is made for 1 of 8 x 8"),
        ('path = "x.npy"', 'path = "rgb.npy"', 3, "channels belong on axis 1"),
    ],
)
def test_conffusion_cannot_contradict_its_score_network(world, old, new, line, words):
    refused(world, TUNING.replace('folder = "conffusion"', 'folder = "nowhere"'), old, new, line, words)


def test_conffusion_does_not_go_on_from_another_score_network(world, tmp_path):
    text, tuned = TUNING.replace("x.npy", str(world / "x.npy")), tmp_path / "conffusion" / "conffusion.safetensors"
    shutil.copytree(world / "run", tmp_path / "run")
    assert call("train", write(tmp_path, text), "--quiet").exit_code == 0
    before = tuned.read_bytes()
    (tmp_path / "run").rename(tmp_path / "moved")
    moved = write(tmp_path, text.replace("run/", "moved/"))
    assert call("train", moved, "--quiet").exit_code == 0  # the same network, wherever it lies
    other = SETTINGS.replace("batch = 8", "batch = 8\nseed = 1").replace("x.npy", str(world / "x.npy"))
    assert call("train", write(tmp_path, other, "other.toml"), "--quiet").exit_code == 0
    result = call("train", write(tmp_path, text), "--quiet")
    assert result.exit_code == 2, result.output
    digests = [hashlib.sha256((tmp_path / x / "score.safetensors").read_bytes()).hexdigest() for x in ("moved", "run")]
    assert "has from = {}, this call has {}; use the same".format(*digests) in " ".join(result.output.split())
    assert tuned.read_bytes() == before


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "examples").glob("*.toml")), ids=lambda x: x.name)
def test_the_examples_are_valid(path):
    assert read_toml(path, TrainSettings).content.training.kind == path.stem


def test_a_unit_is_never_cut():
    units = np.repeat(np.arange(10), 5)
    parts = training_parts(units, 0.4, 0, validation=0.3)
    assert {name: len(numbers) for name, numbers in parts.items()} == {"train": 20, "validation": 10, "held_out": 20}
    seen = [set(units[numbers]) for numbers in parts.values()]
    assert len(set.union(*seen)) == sum(map(len, seen)) == 10
    assert np.array_equal(
        parts["held_out"], training_parts(units, 0.4, 0)["held_out"]
    )  # validation takes none of these


# ---------------------------------------------------------------- images in a store


@pytest.mark.parametrize(
    "how",
    [{"chunks": (4, 8, 8)}, {"chunks": (4, 4, 8)}, {"chunks": (2, 8, 8), "shards": (4, 8, 8)}, {"chunks": (30, 2, 2)}],
    ids=str,
)
def test_pixels_of_a_store_are_those_of_the_array(tmp_path, rng, how):
    x, index = rng.integers(0, 256, (30, 8, 8), dtype=np.uint8), np.array([29, 3, 3, 17])
    in_memory, stored = (Pixels(images) for images in (x, zarr.create_array(tmp_path / "x.zarr", data=x, **how)))
    assert stored.digest == in_memory.digest
    assert torch.equal(stored.take(index), in_memory.take(index))
