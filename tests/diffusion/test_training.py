"""Training: it learns the analytic score, resumes bit for bit, and refuses what it cannot use."""

import ast
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gaussian_world as world  # noqa: E402
from waiting import wait_until  # noqa: E402

from pixelbounds.diffusion import batches, learner  # noqa: E402
from pixelbounds.diffusion import trainer as training  # noqa: E402
from pixelbounds.diffusion.checkpoint import load_state, state_files  # noqa: E402
from pixelbounds.diffusion.network import Resample, _Halve, double, halve  # noqa: E402
from pixelbounds.diffusion.regression import quantile_loss, regressor  # noqa: E402
from pixelbounds.diffusion.sde import VESDE  # noqa: E402
from pixelbounds.diffusion.session import alone, processes, read_log  # noqa: E402
from pixelbounds.diffusion.trainer import Settings, score_matching, train, weighted_matching  # noqa: E402
from pixelbounds.storage.files import exclusive  # noqa: E402

torch.set_num_threads(1)
SDE = VESDE(sigma_min=0.05, sigma_max=2.0)
LITTLE = {"batch": 8, "warmup": 3, "learning_rate": 2e-3, "log_every": 4, "checkpoint_every": 4, "seed": 3}


def small_run(folder, *, steps=16, **changes):
    """A run of a few steps, dropout and rotations included, so that every source of randomness is at work."""
    return train(
        changes.pop("network", None) or world.network(base=8, dropout=0.1),
        np.clip(world.draw(20, 0), *world.LIMITS),
        sde=SDE,
        limits=world.LIMITS,
        folder=folder,
        settings=Settings(steps=steps, **{**LITTLE, **changes.pop("settings", {})}),
        **changes,
    )


def state(folder):
    tensors, meta = load_state(folder)
    return meta["step"], tensors


def assert_same_state(one, other):
    assert one[0] == other[0]
    assert one[1].keys() == other[1].keys()
    for name, tensor in one[1].items():
        assert torch.equal(tensor, other[1][name]), name


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    small_run(folder)
    return folder


# ---------------------------------------------------------------- learning


def relative_error(predicted, sigma, y):
    """Mean square of the error of a score over the mean square of the score."""
    true = world.score(y, sigma)
    return float(((predicted - true) ** 2).mean() / (true**2).mean())


def test_the_score_approaches_the_analytic_score_at_every_level():
    began = time.perf_counter()
    settings = Settings(steps=100, batch=32, learning_rate=1e-2, warmup=20, ema=0.93, augment=batches.keep)
    result = train(world.network(), world.draw(4096, 0), sde=SDE, settings=settings, limits=world.LIMITS, device="cpu")
    x, z = world.draw(256, 1), np.random.default_rng(2).normal(size=(256, world.SIZE, world.SIZE)).astype("f4")
    errors = {}
    for sigma in (0.1, 0.3, 1.0, 2.0):
        y = x + np.float32(sigma) * z
        with torch.inference_mode():
            learned = result.network(torch.from_numpy(y)[:, None], torch.full((256,), sigma))[:, 0].numpy()
        errors[sigma] = relative_error(learned, sigma, y)
        # teeth: neither no score at all nor the paper's misprint, sigma in place of sigma^2, would pass
        assert relative_error(0 * learned, sigma, y) > 0.9
        if abs(np.log(sigma)) > 0.5:
            assert relative_error(learned * sigma, sigma, y) > 0.2
    print(f"relative errors {errors}, {time.perf_counter() - began:.1f} s")
    assert max(errors.values()) < 0.12


def test_the_loss_is_least_at_the_score_of_the_kernel(rng):
    x, noise = (torch.from_numpy(rng.normal(size=(4, 1, 8, 8))) for _ in range(2))
    sigma = torch.tensor([0.1, 0.5, 1.0, 3.0], dtype=torch.float64)

    def kernel_score(y, sigma):
        return -(y - x) / sigma.reshape(-1, 1, 1, 1) ** 2

    assert score_matching(kernel_score, x, sigma, noise).max() < 1e-10
    zero = score_matching(lambda y, sigma: torch.zeros_like(y), x, sigma, noise)
    assert torch.allclose(zero, noise.float().square().mean((1, 2, 3)).to(zero.dtype), rtol=1e-5)  # equal at all levels


def test_edms_weights_make_wieners_filter_of_white_images_lose_1_at_every_level(rng):
    deviation, levels = 0.2, torch.tensor([0.02, 0.1, 0.4, 2.0])
    x, noise = (torch.from_numpy(rng.normal(size=(4, 1, 128, 128))).float() for _ in range(2))

    def wiener(y, sigma):
        share = deviation**2 / (deviation**2 + sigma**2)
        return (share.reshape(-1, 1, 1, 1) * y - y) / sigma.reshape(-1, 1, 1, 1) ** 2

    loss = weighted_matching(deviation)(wiener, deviation * x, levels, noise)
    assert torch.allclose(loss, torch.ones(4), atol=0.05)
    plain = score_matching(wiener, deviation * x, levels, noise)
    assert plain[3] < 0.02  # the paper's weight makes little of high noise


# ---------------------------------------------------------------- resuming

CHILD = """
import sys, time
import numpy as np
import test_training as t
from pathlib import Path
from types import SimpleNamespace

def slowly(line):
    Path(sys.argv[1], "alive").write_text(str(line["step"]))
    time.sleep(0.3)

t.small_run(sys.argv[1], progress=slowly)
"""


def child(tmp_path, body, *arguments, **environment):
    script = tmp_path / "child.py"
    script.write_text(textwrap.dedent(body))
    here = Path(__file__).parent
    places = [str(here), str(here.parent / "support"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(places), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_killed_and_resumed_equals_uninterrupted_bit_for_bit(tmp_path, uninterrupted):
    folder = tmp_path / "run"
    folder.mkdir()
    process = child(tmp_path, CHILD, folder)
    wait_until(state_files(folder)[1].exists, process)  # two states are there
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert 0 < load_state(folder)[1]["step"] < 16
    small_run(folder)
    assert_same_state(state(folder), state(uninterrupted))
    log, whole = read_log(folder), read_log(uninterrupted)
    assert np.array_equal(log["step"], whole["step"])
    assert np.array_equal(log["loss"], whole["loss"])


@pytest.mark.parametrize("number, error", [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_saves_the_state_before_leaving(tmp_path, uninterrupted, number, error):
    before = signal.getsignal(number)

    def strike(line):
        if line["step"] == 6:
            os.kill(os.getpid(), number)

    with pytest.raises(error):
        small_run(tmp_path, progress=strike, settings={"log_every": 2, "checkpoint_every": 100})
    assert load_state(tmp_path)[1]["step"] == 7  # the step at work is finished
    assert signal.getsignal(number) is before
    small_run(tmp_path)
    assert_same_state(state(tmp_path), state(uninterrupted))


def test_a_truncated_state_falls_back_on_the_one_before(tmp_path, uninterrupted):
    small_run(tmp_path, steps=12, settings={"cosine": False})
    whole = state(tmp_path)
    newest, previous = state_files(tmp_path)
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="cut short"):
        small_run(tmp_path, steps=12, settings={"cosine": False})
    assert_same_state(state(tmp_path), whole)
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="cut short"):  # the save did not put the damaged one over the good one
        assert load_state(tmp_path)[1]["step"] == 8
    for path in (newest, previous):
        path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="no state can be read"):
        small_run(tmp_path, steps=12, settings={"cosine": False})


def test_a_finished_run_is_returned_at_once_and_can_be_extended(tmp_path):
    first = small_run(tmp_path, steps=8)
    again = small_run(tmp_path, steps=8)
    assert (again.step, again.last) == (8, first.last)
    for a, b in zip(first.network.parameters(), again.network.parameters(), strict=True):
        assert torch.equal(a, b)
    assert small_run(tmp_path, steps=10).step == 10


def test_a_run_stops_when_its_seconds_are_over(tmp_path, monkeypatch):
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(ticks) / 8)  # a second in eight looks
    monkeypatch.setattr(training, "time", clock)
    result = small_run(tmp_path, steps=None, settings={"seconds": 2.0})
    assert result.seconds == 2
    assert result.step == 15  # the clock is looked at before every step and once before the first
    rates = read_log(tmp_path)["learning_rate"]
    assert rates[-1] == 0
    assert rates.max() > 0


@pytest.mark.parametrize(
    "change, message",
    [
        ({"settings": {"batch": 4}}, "batch = 8, this call has 4"),
        ({"settings": {"augment": batches.flips}}, "augment = rotations, this call has flips"),
        ({"settings": {"sigma_top": 0.5}}, "sigma_top = None"),
    ],
)
def test_another_configuration_is_refused_and_the_state_is_kept(uninterrupted, change, message):
    before = state_files(uninterrupted)[0].read_bytes()
    with pytest.raises(ValueError, match=message):
        small_run(uninterrupted, **change)
    assert state_files(uninterrupted)[0].read_bytes() == before


@pytest.mark.parametrize(
    "begun, change, message",
    [
        ({"network": 0.5}, {"network": 0.1}, "data_deviation = 0.5, this call has 0.1"),
        ({"network": 0.5}, {"network": inf}, "data_deviation = 0.5, this call has None"),
        ({"identity": {"from": "a1"}}, {"identity": {"from": "b2"}}, "from = a1, this call has b2"),
        ({"identity": {"from": "a1"}}, {}, "from = a1, this call has None"),
        ({}, {"identity": {"from": "a1"}}, "from = None, this call has a1"),
    ],
)
def test_what_is_no_setting_belongs_to_a_run_too(tmp_path, begun, change, message):
    """A regressor of deviation 0.5 went on as one of 0.1, and its file said 0.1."""

    def run(network=None, **changes):
        heads = {} if network is None else {"loss": quantile_loss(0.1)}
        heads |= {} if network is None else {"network": regressor(world.config(base=8), data_deviation=network)}
        small_run(tmp_path, steps=1, **heads, **changes)

    run(**begun)
    before = state_files(tmp_path)[0].read_bytes()
    with pytest.raises(ValueError, match=message):
        run(**change)
    assert state_files(tmp_path)[0].read_bytes() == before
    run(**begun)


def test_identity_cannot_hide_what_a_run_keeps_itself():
    with pytest.raises(ValueError, match="identity names batch, seed, which"):
        small_run(None, identity={"seed": 1, "batch": 1, "from": 2})


def explode(network, x, sigma, noise):
    return score_matching(network, x, sigma, noise) * float("nan")


explode.__name__ = "score_matching"


def test_a_diverged_run_keeps_the_last_good_state_and_goes_on_from_it_at_a_lower_rate(tmp_path):
    small_run(tmp_path, steps=4)
    good = state(tmp_path)
    remedy = r"lower the learning rate \(0.002\) or the clip \(1\) to go on from the last good state in .*"
    with pytest.raises(FloatingPointError, match=remedy):
        small_run(tmp_path, steps=12, loss=explode)
    assert_same_state(state(tmp_path), good)
    slower = {"learning_rate": 1e-3, "clip": 0.5, "cosine": True}
    with pytest.warns(
        UserWarning, match="from step 4 in .*: learning_rate was 0.002 and is 0.001, clip was 1 and is 0.5"
    ):
        small_run(tmp_path, steps=12, settings=slower)
    log = read_log(tmp_path)
    assert log["step"].tolist() == [4, 8, 12]
    assert log["learning_rate"][1] == pytest.approx(1e-3 * (1 + np.cos(np.pi * 8 / 12)) / 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # these are now what the run has
        small_run(tmp_path, steps=13, settings=slower)


def test_a_run_that_diverges_before_its_first_state_promises_none(tmp_path):
    for folder in (None, tmp_path):
        with pytest.raises(FloatingPointError, match="start anew; no state was saved"):
            small_run(folder, loss=explode)


# ---------------------------------------------------------------- one run in a folder


def test_a_folder_belongs_to_one_run_from_its_first_step_to_its_last(tmp_path):
    pytest.importorskip("fcntl")
    refused = []

    def intrude(line):
        with pytest.raises(BlockingIOError, match="another process"), exclusive(tmp_path):
            raise AssertionError("the folder is free")
        refused.append(line["step"])

    small_run(tmp_path, progress=intrude)
    assert {4, 8, 12, 16} <= set(refused)
    with exclusive(tmp_path), pytest.raises(BlockingIOError, match="another process"):
        small_run(tmp_path)


def test_what_a_killed_process_left_is_cleared_once_and_a_live_file_is_not(tmp_path):
    stale, live = tmp_path / ".pixelbounds.killed.part", tmp_path / ".pixelbounds.live.part"
    stale.touch()
    small_run(tmp_path, progress=lambda line: live.touch())  # another program writes beside the run
    assert not stale.exists()
    assert live.exists()


def test_who_holds_the_folder_can_train_there_but_another_thread_cannot(tmp_path):
    pytest.importorskip("fcntl")
    with alone(tmp_path):
        assert small_run(tmp_path, steps=2, held=True).step == 2
        with ThreadPoolExecutor(1) as pool, pytest.raises(BlockingIOError):
            pool.submit(small_run, tmp_path).result()
    small_run(tmp_path, steps=3)


# ---------------------------------------------------------------- weights that do not learn

LOST = {
    "a gradient of 0": lambda patch: patch(
        _Halve, "backward", staticmethod(lambda ctx, gradient: 0 * double(gradient))
    ),
    "no gradient": lambda patch: patch(Resample, "forward", lambda self, x: (double if self.up else halve)(x).detach()),
}


@pytest.mark.parametrize("lose", LOST.values(), ids=LOST)
def test_a_network_that_loses_its_gradient_half_way_is_stopped(monkeypatch, tmp_path, lose):
    """As torch 2.11 did when it compiled the resampling: all seemed well, and the lower resolutions never learned."""
    lose(monkeypatch.setattr)
    wrong = r"in 16 steps no gradient reached \d+ of \d+ weights, .*change the learning rate \(0.002\) or the clip"
    with pytest.raises(ValueError, match=wrong) as raised:
        small_run(tmp_path)
    assert "compile" not in str(raised.value)
    assert state(tmp_path)[0] < 16


def test_compilation_is_blamed_only_where_it_is_on():
    learns = learner.Learner(world.network(base=8), Settings(steps=20, compile=True), processes("cpu"))
    learns.step = 16
    with pytest.raises(ValueError, match=r"no gradient reached .* train with compile = false"):
        learns.check(None)


def test_weights_that_are_frozen_on_purpose_may_stay_as_they_are():
    network = world.network(base=8)
    frozen = next(network.parameters()).requires_grad_(False)
    before = frozen.clone()
    train(network, world.draw(20, 0), sde=SDE, limits=world.LIMITS, settings=Settings(steps=16, **LITTLE), device="cpu")
    assert torch.equal(frozen, before)


# ---------------------------------------------------------------- at the door


@pytest.mark.parametrize(
    "images, message",
    [
        (np.zeros((4, 16, 16), "f4"), "16 x 16 pixels, but the network is made for 1 of 8 x 8"),
        (np.zeros((4, 3, 8, 8), "f4"), "3 channels"),
        (np.full((4, 8, 8), 200.0, "f4"), r"image 0 spans \[200, 200\], the limits are \[0, 1\]"),
        (np.full((4, 8, 8), np.nan, "f4"), "image 0 holds NaN"),
        (np.zeros((4, 8, 8), "i4"), "images are int32"),
        (np.zeros((8, 8), "f4"), r"shape \(8, 8\); give an array"),
        (np.zeros((0, 8, 8), "f4"), "shape"),
        (batches.Pixels(np.zeros((4, 8, 8), "f4"), device="meta"), "images are for meta, the network for cpu"),
    ],
)
def test_images_that_do_not_fit_are_refused(tmp_path, images, message):
    with pytest.raises(ValueError, match=message):
        train(world.network(base=8), images, sde=SDE, settings=Settings(steps=1), folder=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({}, "neither steps nor seconds"),
        ({"steps": 0}, "steps is 0"),
        ({"steps": 1, "ema": 1.0}, "ema is 1"),
        ({"steps": 1, "warmup": -1}, "warmup is -1"),
        ({"seconds": float("inf")}, "seconds is inf"),
        ({"steps": 2.5}, "steps is 2.5; it must be a whole number"),
        ({"steps": 4.0}, "steps is 4.0; it must be a whole number"),
        ({"steps": 1, "batch": 8.5}, "batch is 8.5"),
        ({"steps": 1, "batch": True}, "batch is True"),
        ({"steps": 1, "batch": None}, "batch is None"),
        ({"steps": 1, "warmup": 0.5}, "warmup is 0.5"),
        ({"steps": 1, "log_every": 1.5}, "log_every is 1.5"),
        ({"steps": 1, "checkpoint_every": 1.5}, "checkpoint_every is 1.5"),
        ({"steps": 1, "seed": 10**23 - 1}, r"seed is 9+; it must be an integer in \[0, 2\^64\)"),
        ({"steps": 1, "seed": 1.5}, "seed is 1.5"),
        ({"steps": 1, "seed": -1}, "seed is -1"),
    ],
)
def test_wrong_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Settings(**wrong)


def test_the_folder_imports_what_it_says():
    """torch, numpy, safetensors, its neighbours and two files of rooms above: it runs where no more is installed."""
    for file in Path(batches.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert node.level == 1 or node.module in ("storage.files", "problems.krylov"), (
                    f"{file.name} imports {'.' * node.level}{node.module}"
                )
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                roots = {str(name).split(".")[0] for name in names}
                assert roots <= sys.stdlib_module_names | {"torch", "numpy", "safetensors"}, (file.name, roots)


def test_a_level_outside_the_process_is_refused():
    with pytest.raises(ValueError, match="sigma_top is 3, outside"):
        small_run(None, settings={"sigma_top": 3.0})


# ---------------------------------------------------------------- what a step draws


def test_every_image_is_seen_once_per_epoch_and_the_order_changes():
    steps = [batches.batch_indices(10, batch=4, step=step, seed=1) for step in range(5)]
    walk = np.concatenate(steps)
    assert sorted(walk[:10]) == sorted(walk[10:]) == list(range(10))
    assert list(walk[:10]) != list(walk[10:])


def test_levels_follow_the_law_of_the_process():
    generator = torch.Generator().manual_seed(0)
    sigma = torch.cat([batches.noise_levels(SDE, 16, generator, sigma_top=0.5) for _ in range(500)]).double()
    t = torch.log(sigma / SDE.sigma_min) / np.log(0.5 / SDE.sigma_min)
    assert -1e-6 < t.min() < 0.01
    assert 0.99 < t.max() < 1 + 1e-6
    assert np.abs(np.sort(t.numpy()) - np.linspace(0, 1, len(t))).max() < 0.02


def test_uint8_spans_the_limits_and_memory_maps_are_read_in_place(tmp_path, rng):
    pixels = rng.integers(0, 256, (5, 8, 8), dtype=np.uint8)
    np.save(tmp_path / "x.npy", pixels)
    index = np.array([3, 0])
    expected = pixels[index, None] / 255 * 2 - 1
    for source in (pixels, torch.from_numpy(pixels), np.load(tmp_path / "x.npy", mmap_mode="r")):
        images = batches.Pixels(source, limits=(-1, 1))
        assert np.allclose(images.take(index).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("pixels", [(8, 8), (2, 8, 8)])
def test_zarr_arrays_and_chosen_rows_give_the_pixels_of_the_array(pixels, rng):
    zarr = pytest.importorskip("zarr")
    x = rng.random((7, *pixels), dtype=np.float32)
    stored, rows, index = zarr.array(x, chunks=(2, *pixels)), np.array([0, 2, 3, 6]), np.array([3, 0, 3, 1])
    for source in (x, stored):
        chosen = batches.Pixels(source, rows=rows)
        assert (len(chosen), chosen.shape) == (4, (1, 8, 8) if len(pixels) == 2 else pixels)
        assert np.array_equal(chosen.take(index).numpy(), x[rows[index]].reshape(4, *chosen.shape))
        assert chosen.digest() == batches.Pixels(x[rows]).digest() != batches.Pixels(x).digest()
    x[6, ..., 0, 0] = 2.0
    with pytest.raises(ValueError, match="image 6 spans"):  # its number in the array
        batches.Pixels(x, rows=rows)
    with pytest.raises(ValueError, match="rows name none of 7 images"):
        batches.Pixels(x, rows=rows[:0])


def test_a_three_dimensional_zarr_array_trains_like_the_array(tmp_path):
    zarr = pytest.importorskip("zarr")
    x = np.clip(world.draw(20, 0), *world.LIMITS)
    results = [
        train(world.network(base=8), source, sde=SDE, limits=world.LIMITS, settings=Settings(steps=3, **LITTLE))
        for source in (x, zarr.array(x, chunks=(4, 8, 8)), batches.Pixels(x, limits=world.LIMITS))
    ]
    for other in results[1:]:
        for here, there in zip(results[0].network.parameters(), other.network.parameters(), strict=True):
            assert torch.equal(here, there)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_images_that_a_gpu_has_no_room_for_stay_as_they_are(monkeypatch, dtype, rng):
    """They were rounded to float16, and a run could not go on once the GPU was fuller: their digest had changed."""
    x = rng.random((5, 8, 8)).astype(dtype)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2 * 4 * x.size - 2, 2**40))
    full = batches.Pixels(x, device="cuda")
    assert not full.on_device
    assert full.digest() == batches.Pixels(x).digest()


def test_the_digest_stays_as_it_is():
    """It is kept in states: another one would refuse to go on with every run there is."""
    x = np.arange(70 * 4 * 4, dtype=np.float32).reshape(70, 4, 4) % 97 / 97
    assert batches.Pixels(x).digest() == [70, 1, 4, 4, "float32 3a79880dc7b9795f"]
    bits = (np.arange(70 * 2 * 4 * 4) % 251).astype(np.uint8).reshape(70, 2, 4, 4)
    assert batches.Pixels(bits, limits=(-1, 1)).digest() == [70, 2, 4, 4, "uint8 1094123c1ee7ac13"]


@pytest.mark.parametrize("name", batches.AUGMENTATIONS)
def test_augmentations_keep_shape_range_and_seed(name, rng):
    augment = batches.AUGMENTATIONS[name]
    x = torch.from_numpy(rng.random((64, 2, 8, 8), dtype=np.float32))
    turned = augment(x, torch.Generator().manual_seed(1))
    assert turned.shape == x.shape
    assert 0 <= turned.min() <= turned.max() <= 1
    assert torch.equal(turned, augment(x, torch.Generator().manual_seed(1)))
    assert torch.equal(turned, x) is (name == "keep")
    flat = torch.full((4, 1, 8, 8), 0.25)
    assert torch.allclose(augment(flat, torch.Generator().manual_seed(2)), flat)
    if name in ("flips", "quarter_turns"):  # pixels move, none is made up
        assert torch.equal(turned.flatten(2).sort().values, x.flatten(2).sort().values)


def test_rotations_turn_about_the_centre_by_up_to_90_degrees():
    x = torch.zeros(400, 1, 33, 33)
    x[:, :, 16, 22] = 1.0  # six pixels to the right
    turned = batches.rotations(x, torch.Generator().manual_seed(0))
    i, j = torch.meshgrid(torch.arange(33.0) - 16, torch.arange(33.0) - 16, indexing="ij")
    mass = turned.sum((1, 2, 3))
    row, column = (turned[:, 0] * i).sum((1, 2)) / mass, (turned[:, 0] * j).sum((1, 2)) / mass
    assert torch.allclose((row**2 + column**2).sqrt(), torch.tensor(6.0), atol=0.3)
    angle = torch.atan2(row, column)
    assert np.abs(np.sort(angle.numpy()) - np.linspace(-np.pi, np.pi, 400)).max() < 0.5  # flips fill the circle
