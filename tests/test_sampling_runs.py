"""Training and sampling from files: what is killed resumes to the same bits, what is wrong is said, not traced."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from typer.testing import CliRunner  # noqa: E402

import pixelbounds as pb  # noqa: E402
from pixelbounds import store  # noqa: E402
from pixelbounds.arrays import library_of  # noqa: E402
from pixelbounds.cli import app  # noqa: E402
from pixelbounds.diffusion.checkpoint import load_network  # noqa: E402
from pixelbounds.files import exclusive  # noqa: E402
from pixelbounds.jobs import SampleOptions, sample_to  # noqa: E402
from pixelbounds.jobs import sampling as jobs  # noqa: E402
from pixelbounds.jobs.training import split  # noqa: E402
from pixelbounds.settings import Configuration, line_of  # noqa: E402
from pixelbounds.store import create_run, open_run  # noqa: E402

torch.set_num_threads(1)
SIGMA = 0.3
N, M = 6, 19
OPTIONS = SampleOptions(samples=M, steps=4, held_out=1, keep_samples=True, batch=2 * (M + 1))  # two images a block
SETTINGS = """# a tiny run
[data]
path = "x.npy"
held_out = 0.25

[network]
name = "tiny"
base = 4
multipliers = [1, 1]
attention = []
dropout = 0.1

[process]
sigma_max = 1.0
sigma_0 = 0.3

[training]
kind = "score"
steps = 4
batch = 8
augment = "flips"

[output]
folder = "run"
"""
TUNING = """# fine-tunes the network of SETTINGS
[data]
path = "x.npy"

[training]
kind = "conffusion"
from = "run/score.safetensors"
steps = 4
batch = 8
augment = "flips"

[output]
folder = "conffusion"
"""


def images(n, seed=0):
    rng = np.random.default_rng(seed)
    steps = rng.uniform(0.1, 0.3, (n, 1, 1)) * np.linspace(0, 2, 8)[:, None] + rng.uniform(0, 0.3, (n, 1, 1))
    return np.clip(steps + 0.05 * rng.normal(size=(n, 8, 8)), 0, 1).astype(np.float32)


def write(folder, text=SETTINGS, name="score.toml"):
    (folder / name).write_text(text)
    return folder / name


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def start(*words):
    """The command in a process of its own."""
    command = [sys.executable, "-m", "pixelbounds.cli", *map(str, words)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, **quiet)


def kill_when(process, ready):
    """SIGKILL as soon as `ready()`; the process must not have ended before."""
    for _ in range(4000):
        if ready() or process.poll() is not None:
            break
        time.sleep(0.005)
    assert process.poll() is None, "ended before it could be killed"
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with images, observations, and networks of all three kinds, trained through the command."""
    folder = tmp_path_factory.mktemp("world")
    np.save(folder / "x.npy", images(32))
    np.save(folder / "hot.npy", np.where(np.arange(32)[:, None, None] == 3, 7 * np.eye(8), 0.5 * np.eye(8)))
    np.save(folder / "large.npy", np.zeros((4, 16, 16), np.float32))
    rng = np.random.default_rng(1)
    np.save(folder / "y.npy", (images(N, 1) + SIGMA * rng.normal(size=(N, 8, 8))).astype(np.float32))
    result = call("train", write(folder), "--quiet")
    assert result.exit_code == 0, result.output
    regressor = SETTINGS.replace('kind = "score"', 'kind = "regressor"').replace('"run"', '"regressor"')
    for kind, text in {"regressor": regressor, "conffusion": TUNING}.items():
        result = call("train", write(folder, text, f"{kind}.toml"), "--quiet")
        assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="module")
def score(world):
    return world / "run" / "score.safetensors"


@pytest.fixture(scope="module")
def whole(world, score):
    """An uninterrupted run."""
    return sample_to(score, np.load(world / "y.npy"), world / "whole.zarr", OPTIONS)


def same(one, other):
    names = set(one.group.array_keys())
    assert names == set(other.group.array_keys())
    for name in names:
        assert one[name].dtype == other[name].dtype
        assert one[name][:].tobytes() == other[name][:].tobytes(), name


# ---------------------------------------------------------------- training


def test_train_saves_what_it_says(world, score):
    network, sde, meta = load_network(score, kind="score")
    assert (sde.sigma_max, meta["extra"]["sigma_0"], meta["extra"]["limits"]) == (1.0, SIGMA, [0.0, 1.0])
    assert network.config.size == 8
    assert len(np.load(world / "run" / "held_out.npy")) == 8
    before = score.read_bytes()
    assert call("train", world / "score.toml", "--quiet").exit_code == 0  # finished already: nothing changes
    assert score.read_bytes() == before


def test_training_killed_by_the_system_resumes_to_the_same_bits(world, tmp_path):
    text = SETTINGS.replace("steps = 4", "steps = 120\ncheckpoint_every = 15").replace("x.npy", str(world / "x.npy"))
    process = start("train", write(tmp_path, text))
    kill_when(process, (tmp_path / "run" / "state.safetensors").exists)
    assert not (tmp_path / "run" / "score.safetensors").exists()
    assert call("train", tmp_path / "score.toml", "--quiet").exit_code == 0
    other = write(tmp_path, text.replace('"run"', '"whole"'), "whole.toml")
    assert call("train", other, "--quiet").exit_code == 0
    resumed, uninterrupted = (load_network(tmp_path / x / "score.safetensors")[0] for x in ("run", "whole"))
    for here, there in zip(resumed.parameters(), uninterrupted.parameters(), strict=True):
        assert torch.equal(here, there)


@pytest.mark.parametrize(
    "old, new, line, words",
    [
        ("steps = 4", "stpes = 4", 19, "did you mean 'steps'"),
        ("steps = 4", "steps = -4", 19, "[training] steps is -4: it should be greater than 0"),
        ("steps = 4", 'steps = "four"', 19, "[training] steps is 'four'"),
        ("steps = 4", "", 17, "neither steps nor seconds"),
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
        ("steps = 4", "steps = 4.5", 19, "[training] steps is 4.5"),
        ("batch = 8", f"batch = 8\nseed = {10**23 - 1}", 21, "it must be an integer in [0, 2^64)"),
        ("sigma_max = 1.0", "sigma_max = 0.005", 14, "above sigma_min"),
        ("multipliers = [1, 1]", "multipliers = [1, 1, 1, 1, 1]", 9, "must be divisible by 16"),
        ("[output]", "[outputs]", 23, "did you mean 'output'"),
        ("base = 4", "base = ", 8, "not TOML"),
    ],
)
def test_a_wrong_configuration_names_file_line_and_remedy(world, old, new, line, words):
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
    ],
)
def test_conffusion_cannot_contradict_its_score_network(world, old, new, line, words):
    refused(world, TUNING.replace('folder = "conffusion"', 'folder = "nowhere"'), old, new, line, words)


def test_conffusion_takes_limits_and_levels_from_its_score_network(tmp_path):
    np.save(tmp_path / "x.npy", 10 * images(16) - 5)
    text = SETTINGS.replace("held_out = 0.25", "limits = [-5.0, 5.0]").replace("sigma_max = 1.0", "sigma_max = 90.0")
    assert call("train", write(tmp_path, text.replace("sigma_0 = 0.3", "sigma_0 = 4.0")), "--quiet").exit_code == 0
    same_again = TUNING.replace(
        "[training]", "limits = [-5.0, 5.0]\n[process]\nsigma_0 = 4.0\n[training]\nsigma_top = 5.0"
    )
    for text in (TUNING, same_again.replace('folder = "conffusion"', 'folder = "again"')):
        result = call("train", write(tmp_path, text, "tune.toml"), "--quiet")
        assert result.exit_code == 0, result.output
    for folder in ("conffusion", "again"):
        _, sde, meta = load_network(tmp_path / folder / "conffusion.safetensors")
        assert (sde.sigma_max, meta["extra"]["sigma_0"], meta["extra"]["limits"]) == (90.0, 4.0, [-5.0, 5.0])


def test_the_numbers_of_held_out_images_are_there_from_the_start(world, tmp_path, monkeypatch):
    """A run that was stopped has them too, and another split cannot replace them."""
    from pixelbounds.diffusion import training

    text = SETTINGS.replace("x.npy", str(world / "x.npy"))
    monkeypatch.setattr(training._Learner, "update", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert call("train", write(tmp_path, text), "--quiet").exit_code == 130
    held_out = np.load(tmp_path / "run" / "held_out.npy")
    assert np.array_equal(held_out, split(np.arange(32), 0.25, 0)[1])
    monkeypatch.undo()
    assert call("train", tmp_path / "score.toml", "--quiet").exit_code == 0
    other = write(tmp_path, text.replace("held_out = 0.25", "held_out = 0.25\nseed = 1"), "other.toml")
    result = call("train", other, "--quiet")
    assert result.exit_code == 2
    assert "other.toml, line 4: the run in" in " ".join(result.output.split())
    assert np.array_equal(np.load(tmp_path / "run" / "held_out.npy"), held_out)


def test_a_folder_is_trained_in_by_one_process_at_a_time(world, tmp_path):
    pytest.importorskip("fcntl")
    text = SETTINGS.replace("x.npy", str(world / "x.npy"))
    (tmp_path / "run").mkdir()
    with exclusive(tmp_path / "run"):
        result = call("train", write(tmp_path, text), "--quiet")
    assert result.exit_code == 2
    assert "is being written by another process" in " ".join(result.output.split())
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[1] / "examples").glob("*.toml")), ids=lambda x: x.name)
def test_the_examples_are_valid(path):
    assert Configuration(path).settings.training.kind == path.stem


def test_lines_of_keys_in_other_notations():
    text = "data.path = 1\nnetwork = { base = 2 }\n['training']\n\"steps\" = 3\n"
    keys = ("data", "path"), ("network", "base"), ("training", "steps"), ("training", "batch"), ("output", "folder")
    assert [line_of(text, key) for key in keys] == [1, 2, 4, 3, None]


def test_a_unit_is_never_cut():
    units = np.repeat(np.arange(10), 5)
    learnt, unseen = split(units, 0.4, 0)
    assert len(unseen) == 20
    assert not set(units[learnt]) & set(units[unseen])


# ---------------------------------------------------------------- sampling


def test_a_run_holds_bands_that_calibrate(whole, world):
    assert whole.done.all()
    assert repr(whole).endswith("6 of 6 images finished, bands calibrated, naive, mean")
    sources = [whole.band(kind).source for kind in whole.kinds]
    samples = whole["samples"][:]
    assert sources[:2] == [f(samples, 0.1).source for f in (pb.calibrated_quantiles, pb.naive_quantiles)]
    assert sources[2] == pb.mean_and_std(samples.astype(np.float32)).source
    np.testing.assert_array_equal(whole.observation[:], np.load(world / "y.npy"))
    for kind in whole.kinds:
        cal = pb.calibrate(images(N, 1), whole.band(kind), risk_level=0.5, failure_prob=0.5, groups="band")
        assert cal.apply(whole.band(kind)).lower.shape == (N, 8, 8)


def test_ends_are_rounded_outward(world, score, whole, monkeypatch):
    exact = {}
    monkeypatch.setattr(jobs, "write_image", lambda group, image, parts: exact.update({image: parts}))
    sample_to(score, np.load(world / "y.npy"), world / "exact.zarr", OPTIONS)
    assert len(exact) == N
    strict = 0
    for image, parts in exact.items():
        for low, high in (("lower", "upper"), ("naive_lower", "naive_upper")):
            assert whole[low].dtype == np.float16
            below, above = (whole[name][image].astype(np.float64) for name in (low, high))
            assert (below <= parts[low]).all()
            assert (above >= parts[high]).all()
            assert (np.abs(below - parts[low]) <= 2e-3).all()
            strict += int((below < parts[low]).sum())
    assert strict > 0


def test_killed_by_the_system_a_run_resumes_to_the_same_bits(world, score, tmp_path):
    words = (
        "sample",
        score,
        world / "y.npy",
        "--samples",
        M,
        "--sampler",
        "reverse_sde",
        "--steps",
        150,
        "--batch",
        40,
    )
    process = start(*words, "--out", tmp_path / "run.zarr")
    marks = tmp_path / "run.zarr" / "done"
    kill_when(process, lambda: any(path.suffix != ".partial" for path in marks.glob("c.*")))
    run = open_run(tmp_path / "run.zarr")
    assert 0 < run.done.sum() < N
    with pytest.raises(ValueError, match=r"of 6 images; run the same"):
        run.band()
    finished = int(np.argmax(run.done))
    chunk = tmp_path / "run.zarr" / "lower" / f"c.{finished}.0.0"
    written = chunk.stat().st_mtime_ns
    result = call(*words, "--out", tmp_path / "run.zarr")
    assert result.exit_code == 0, result.output
    assert "are finished; going on" in result.output
    assert chunk.stat().st_mtime_ns == written  # no finished work is done again
    assert call(*words, "--out", tmp_path / "whole.zarr").exit_code == 0
    same(open_run(tmp_path / "run.zarr"), open_run(tmp_path / "whole.zarr"))
    assert not list((tmp_path / "run.zarr").rglob("*.partial"))


@pytest.mark.parametrize("after", [0, 1, 3])
def test_stopped_within_a_block_a_run_resumes_to_the_same_bits(world, score, whole, tmp_path, monkeypatch, after):
    count, write_image = [], jobs.write_image

    def stop(group, image, parts):
        if len(count) == after:
            group["lower"][image] = np.zeros(parts["lower"].shape)  # some of the image is there already
            raise KeyboardInterrupt
        count.append(image)
        write_image(group, image, parts)

    monkeypatch.setattr(jobs, "write_image", stop)
    y = np.load(world / "y.npy")
    with pytest.raises(KeyboardInterrupt):
        sample_to(score, y, tmp_path / "run.zarr", OPTIONS)
    assert open_run(tmp_path / "run.zarr").done.sum() == after
    monkeypatch.setattr(jobs, "write_image", write_image)
    blocks, draw = [], jobs._Plan.draw
    monkeypatch.setattr(jobs._Plan, "draw", lambda plan, y, ids, b: blocks.append(list(ids)) or draw(plan, y, ids, b))
    same(sample_to(score, y, tmp_path / "run.zarr", OPTIONS), whole)
    assert blocks == [[0, 1], [2, 3], [4, 5]][after // 2 :]  # whole blocks, or a GPU could give other last bits


def test_a_part_of_the_images_draws_what_the_whole_draws(world, score, whole, tmp_path):
    y = np.load(world / "y.npy")
    part = sample_to(score, y[2:4], tmp_path / "part.zarr", OPTIONS, ids=[2, 3])  # a block of the whole
    assert part.ids.tolist() == [2, 3]
    np.testing.assert_array_equal(part["samples"][:], whole["samples"][2:4])


@pytest.mark.filterwarnings("ignore:.*quantiles")
@pytest.mark.parametrize("kind", ["regressor", "conffusion"])
def test_other_networks_give_their_bands(world, tmp_path, kind):
    path = world / kind / f"{kind}.safetensors"
    result = call("sample", path, world / "y.npy", "--out", tmp_path / "run.zarr", "--samples", 8, "--images", "1:5")
    assert result.exit_code == 0, result.output
    run = open_run(tmp_path / "run.zarr")
    assert run.ids.tolist() == [1, 2, 3, 4]
    assert run.kinds == (("regressor", "dropout") if kind == "regressor" else ("conffusion",))
    bands = [run.band(name) for name in run.kinds]
    assert all(band.shape == (4, 8, 8) for band in bands)
    if kind == "regressor":
        assert (run.deviation[:] > 0).any()
        np.testing.assert_allclose(bands[1].centre, run.mean[:])


def in_memory(run, kind):
    """The band of a kind, made of NumPy arrays."""
    parts = {name: run[name][:].astype(np.float32) for name in ("lower", "estimate", "upper") if name in run.group}
    if kind == "conffusion":
        return pb.conffusion(**parts)
    if kind == "regressor":
        return pb.quantile_regression(**parts)
    mean, deviation = run.mean[:], np.maximum(run.deviation[:], np.float32(0.01))
    return pb.Band(mean - deviation, mean + deviation, mean)


@pytest.mark.filterwarnings("ignore:.*quantiles")
@pytest.mark.parametrize("kind", ["score", "regressor", "conffusion"])
def test_large_bands_are_read_where_they_are_used(world, score, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(store, "_SMALL_BYTES", 0)
    monkeypatch.setattr(store, "_BLOCK_BYTES", 2 * 4 * 64)  # two images
    network = score if kind == "score" else world / kind / f"{kind}.safetensors"
    run = sample_to(network, np.load(world / "y.npy"), tmp_path / "run.zarr", SampleOptions(samples=M, batch=40))
    for name in run.kinds:
        band = run.band(name)
        ends = [x for x in (band.lower, band.upper, band.centre) if x is not None]
        assert {library_of(x) for x in ends} <= {"zarr", "dask"}, name
        if name not in ("calibrated", "naive"):
            wanted = in_memory(run, name).rows(1, 5)
            found = band.rows(1, 5)
            for part in ("lower", "upper", "centre"):
                np.testing.assert_array_equal(getattr(found, part), getattr(wanted, part))
        cal = pb.calibrate(images(N, 1), band, risk_level=0.5, failure_prob=0.5, groups="band")
        assert cal.apply(band).lower.shape == (N, 8, 8)


@pytest.mark.parametrize("kind", ["nifti", "dicom", "negative"])
def test_scans_are_mapped_and_not_clipped(world, score, tmp_path, kind):
    pytest.importorskip("nibabel")
    pytest.importorskip("pydicom")
    from data.medical import write_dicom, write_nifti

    y = np.load(world / "y.npy")
    values = np.rint(400 * y - 160)  # Hounsfield units
    if kind == "nifti":
        write_nifti(tmp_path / "y.nii.gz", values)
    else:
        write_dicom(tmp_path / "y", values, photometric="MONOCHROME1" if kind == "negative" else "MONOCHROME2")
    path, out = tmp_path / ("y.nii.gz" if kind == "nifti" else "y"), tmp_path / "run.zarr"
    words = ("sample", score, path, "--samples", M, "--steps", 2)
    result = call(*words, "--out", out)
    assert result.exit_code == 0, result.output
    wanted = (values + 160) / 400
    assert wanted.min() < 0 < 1 < wanted.max()
    np.testing.assert_allclose(open_run(out).observation[:], 1 - wanted if kind == "negative" else wanted, atol=1e-6)
    result = call(*words, "--out", tmp_path / "wide.zarr", "--window", 800, 240)
    assert result.exit_code == 0, result.output
    wide = open_run(tmp_path / "wide.zarr").observation[:]
    np.testing.assert_allclose(wide, 1 - wanted / 2 if kind == "negative" else wanted / 2, atol=1e-6)
    result = call(*words, "--out", tmp_path / "raw.zarr", "--raw")
    assert result.exit_code == 2
    assert "further beyond the limits (0, 1)" in " ".join(result.output.split())


def test_a_range_of_a_store_is_read_where_it_lies(world, score, whole, tmp_path, monkeypatch):
    import zarr

    import pixelbounds.jobs

    seen = []

    class Watched:
        """Tells which images are read."""

        def __init__(self, x):
            self.x, self.shape = x, x.shape

        def __getitem__(self, rows):
            seen.append(rows)
            return self.x[rows]

    zarr.create_array(tmp_path / "y.zarr", data=np.load(world / "y.npy"), chunks=(1, 8, 8))
    monkeypatch.setattr(
        pixelbounds.jobs, "sample_to", lambda network, y, *rest, **more: sample_to(network, Watched(y), *rest, **more)
    )
    words = ("--samples", M, "--steps", 4, "--held-out", 1, "--keep-samples", "--batch", 40, "--images", "2:4")
    result = call("sample", score, tmp_path / "y.zarr", "--out", tmp_path / "part.zarr", *words)
    assert result.exit_code == 0, result.output
    assert open_run(tmp_path / "part.zarr").ids.tolist() == [2, 3]
    np.testing.assert_array_equal(open_run(tmp_path / "part.zarr")["samples"][:], whole["samples"][2:4])
    assert min(rows.start for rows in seen) == 2  # the command itself read nothing
    assert max(rows.stop for rows in seen) == 4


# ---------------------------------------------------------------- faults


def test_another_configuration_is_refused_with_what_differs(world, score, whole):
    words = ("sample", score, world / "y.npy", "--out", whole.path, "--samples", M, "--steps", 4, "--held-out", 1)
    result = call(*words, "--keep-samples")
    assert result.exit_code == 0, result.output
    for more, said in {
        ("--seed", 3, "--keep-samples"): "seed is 0 there and 3 here",
        ("--sigma0", 0.2, "--keep-samples"): "sigma_0 is 0.3 there and 0.2 here",
        ("--sampler", "reverse_sde", "--keep-samples"): "sampler is 'heun' there and 'reverse_sde' here",
        ("--images", "0:5", "--keep-samples"): "images is 6 there and 5 here",
    }.items():
        result = call(*words, *more)
        assert result.exit_code == 2
        assert said in " ".join(result.output.split())
    assert open_run(whole.path).done.all()


@pytest.mark.parametrize(
    "change, code, words",
    [
        ({"network": "none.safetensors"}, 2, "does not exist"),
        ({"observations": "none.npy"}, 2, "does not exist"),
        ({"--sigma0": 1.5}, 2, "outside (sigma_min, sigma_max]"),
        ({"--sigma0": 0.01}, 2, "outside (sigma_min, sigma_max]"),
        ({"--samples": 18}, 1, "draw at least 19"),
        ({"--sampler": "huen"}, 2, "did you mean 'heun'"),
        ({"--seed": -1}, 2, "seed is -1"),
        ({"--batch": 0}, 2, "batch is 0"),
        ({"--images": "9:12"}, 2, "chooses none of 6 images"),
        ({"--images": "some"}, 2, "is no range"),
        ({"--device": "tpu"}, 2, "must be cpu"),
        ({"observations": "nan.npy"}, 2, "observation 4 holds NaN"),
        ({"observations": "odd.npy"}, 2, "multiples of 2"),
        ({"observations": "colour.npy"}, 2, "this network takes (n, h, w)"),
        ({"observations": "whole.npy"}, 2, "convert the images to uint8"),
        ({"observations": "scaled.npy"}, 2, "further beyond the limits (0, 1) than noise of sigma_0 = 0.3 goes"),
        ({"observations": "far.npy"}, 2, "observation 5 spans"),
        ({"--sampler": "euler_maruyama", "--steps": 1}, 2, "1 steps over [0, 1] leave none below sigma_0 = 0.3"),
        ({"network": "truncated.safetensors"}, 2, "truncated"),
        ({"network": "y.npy"}, 2, "no safetensors file"),
        ({"--out": "x.npy"}, 2, "no zarr store"),
    ],
)
def test_wrong_input_is_a_message_and_leaves_no_store(world, score, tmp_path, change, code, words):
    y = np.load(world / "y.npy")
    nan = y.copy()
    nan[4, 2, 2] = np.nan
    far = y.copy()
    far[5, 1, 1] = -2.41  # 8 sigma_0 and a thousandth of the limits is -2.401
    for name, x in {
        "nan": nan, "odd": y[:, :7], "colour": np.stack([y] * 3, 1), "whole": y.astype(np.int64), "y": y, "x": y,
        "scaled": 255 * y, "far": far,
    }.items():  # fmt: skip
        np.save(tmp_path / f"{name}.npy", x)
    (tmp_path / "truncated.safetensors").write_bytes(score.read_bytes()[:-100])
    options = {"--out": "run.zarr", "--samples": M, "--steps": 2} | {k: v for k, v in change.items() if k[0] == "-"}
    options["--out"] = tmp_path / options["--out"]
    network = tmp_path / change["network"] if "network" in change else score
    result = call(
        "sample",
        network,
        tmp_path / change.get("observations", "y.npy"),
        *[x for pair in options.items() for x in pair],
    )
    assert result.exit_code == code, result.output
    output = " ".join(result.output.replace("│", " ").split())
    assert words in output, output
    assert "Traceback" not in output
    assert not (tmp_path / "run.zarr").exists()


@pytest.mark.parametrize("ids, words", [([0, -1], "from -1 to 0"), ([0, 2**32], "2\\^32"), ([3, 3], "different")])
def test_numbers_that_seed_nothing_leave_no_store(world, score, tmp_path, ids, words):
    with pytest.raises(ValueError, match=words):
        sample_to(score, np.load(world / "y.npy")[:2], tmp_path / "run.zarr", OPTIONS, ids=ids)
    assert not list(tmp_path.iterdir())


def test_observations_just_within_reach_and_whole_numbers(world, score, tmp_path):
    y = np.load(world / "y.npy")[:2]
    y[0, 0, 0], y[1, 0, 0] = -2.4, 3.4
    assert sample_to(score, y, tmp_path / "run.zarr", OPTIONS).done.all()
    with pytest.raises(ValueError, match="observations are int16; convert"):
        sample_to(score, np.rint(y).astype(np.int16), tmp_path / "other.zarr", OPTIONS)
    with pytest.raises(ValueError, match=r"range\(1, 3\); choose a range within the 2"):
        sample_to(score, y, tmp_path / "other.zarr", OPTIONS, images=range(1, 3))
    assert not (tmp_path / "other.zarr").exists()


@pytest.mark.parametrize(
    "words, named",
    [
        (("--sampler", "nonsense", "--steps", -3), "leave --sampler, --steps out"),
        (("--miscoverage", 0.5), "leave --miscoverage out"),
        (("--keep-samples", "--held-out", 2), "leave --held-out, --keep-samples out"),
    ],
)
@pytest.mark.parametrize("kind", ["regressor", "conffusion"])
def test_options_of_the_sampler_are_refused_where_none_samples(world, tmp_path, kind, words, named):
    path = world / kind / f"{kind}.safetensors"
    result = call("sample", path, world / "y.npy", "--out", tmp_path / "run.zarr", *words)
    assert result.exit_code == 2
    output = " ".join(result.output.split())
    assert f"is a {kind} network, which draws no samples; {named}" in output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"\1\1\1"])
def test_an_image_whose_mark_is_damaged_is_drawn_again(world, score, whole, tmp_path, content):
    y, out = np.load(world / "y.npy"), tmp_path / "run.zarr"
    shutil.copytree(whole.path, out)
    (out / "done" / "c.3").write_bytes(content)
    assert open_run(out).done.tolist() == [True, True, True, False, True, True]
    with pytest.raises(ValueError, match="5 of 6 images; run the same"):
        open_run(out).band()
    for repair in (True, False):
        (out / "done" / "c.3").write_bytes(content)
        same(sample_to(score, y, out, SampleOptions(**{**vars(OPTIONS), "repair": repair})), whole)


@pytest.mark.parametrize("harm", ["truncate", "flip", "remove"])
def test_a_damaged_image_is_named_and_can_be_drawn_again(world, score, whole, tmp_path, harm):
    y = np.load(world / "y.npy")
    shutil.copytree(whole.path, tmp_path / "run.zarr")
    chunk = tmp_path / "run.zarr" / "upper" / "c.3.0.0"
    content = chunk.read_bytes()
    if harm == "remove":
        chunk.unlink()
    else:
        chunk.write_bytes(
            content[:-9] if harm == "truncate" else content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
        )
    with pytest.raises(ValueError, match=r"upper of image 3 in .* is damaged"):
        open_run(tmp_path / "run.zarr").band()
    assert open_run(tmp_path / "run.zarr").band("naive").shape == (N, 8, 8)  # the rest can be used
    with pytest.raises(ValueError, match="--repair"):
        sample_to(score, y, tmp_path / "run.zarr", OPTIONS)
    repair = SampleOptions(**{**vars(OPTIONS), "repair": True})
    same(sample_to(score, y, tmp_path / "run.zarr", repair), whole)


def test_what_a_killed_process_left_of_a_store_does_no_harm(world, score, whole, tmp_path):
    for name in ("run.zarr.part", "run.zarr.abc.part"):
        (tmp_path / name / "lower").mkdir(parents=True)
        (tmp_path / name / "zarr.json").write_text("{")
    same(sample_to(score, np.load(world / "y.npy"), tmp_path / "run.zarr", OPTIONS), whole)


def test_two_processes_that_make_one_store_leave_one_whole(tmp_path, monkeypatch):
    path, make, turns = tmp_path / "run.zarr", store.zarr.create_group, []
    empty = {"kind": "conffusion"}, (8, 8), np.arange(3), {"lower": (), "upper": ()}

    def overtaken(*words, **more):
        group = make(*words, **more)
        if not turns:
            turns.append(1)
            create_run(path, *empty)  # the other one, from beginning to end
        return group

    monkeypatch.setattr(store.zarr, "create_group", overtaken)
    with pytest.raises(FileExistsError, match="came into being meanwhile"):
        create_run(path, *empty)
    assert [x.name for x in tmp_path.iterdir()] == ["run.zarr"]
    run = open_run(path)
    assert len(run) == 3
    assert sorted(run.group.array_keys()) == ["done", "ids", "lower", "observation", "upper"]
    (tmp_path / "plain").mkdir()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode  # who may read a folder may read a run


def test_a_store_that_cannot_be_made_leaves_nothing(tmp_path, monkeypatch):
    def full(*words, **more):
        Path(words[0]).mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.zarr, "create_group", full)
    with pytest.raises(OSError, match="No space"):
        create_run(tmp_path / "run.zarr", {}, (8, 8), np.arange(3), {})
    assert not list(tmp_path.iterdir())


def test_a_store_that_another_process_made_meanwhile_is_gone_on_with(world, score, whole, tmp_path, monkeypatch):
    def overtaken(*words):
        create_run(*words)
        create_run(*words)

    monkeypatch.setattr(jobs, "create_run", overtaken)
    same(sample_to(score, np.load(world / "y.npy"), tmp_path / "run.zarr", OPTIONS), whole)


def test_a_store_is_written_by_one_process_at_a_time(world, score, whole, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    handle = os.open(whole.path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with pytest.raises(OSError, match="another process"):
            sample_to(score, np.load(world / "y.npy"), whole.path, OPTIONS)
    finally:
        os.close(handle)


def test_what_is_no_run_is_refused(tmp_path):
    import zarr

    zarr.create_group(tmp_path / "other.zarr")
    with pytest.raises(ValueError, match="no run of pixelbounds"):
        open_run(tmp_path / "other.zarr")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        open_run(tmp_path / "none.zarr")


def test_debug_shows_the_traceback(tmp_path):
    words = ("sample", tmp_path / "a.safetensors", tmp_path / "y.npy", "--out", tmp_path / "r.zarr")
    assert isinstance(call(*words, "--debug").exception, FileNotFoundError)
    assert isinstance(call(*words).exception, SystemExit)


@pytest.mark.parametrize("command", ["train", "sample"])
def test_help_shows_an_example(command):
    result = call(command, "--help")
    assert result.exit_code == 0
    assert f"Example: pixelbounds {command}" in " ".join(result.output.split())
