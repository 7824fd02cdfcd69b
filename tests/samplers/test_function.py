"""Any function that draws samples makes bands: in memory, in a run, on a cluster; and what is wrong with it is said."""

from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from sampling_world import call

import pixelbounds as pb
from pixelbounds.samplers import bands_from, load_sampler, sample_function_to
from pixelbounds.samplers.function import SampleTails
from pixelbounds.samplers.runs import open_run

N, M = 5, 19
Y = np.random.default_rng(0).uniform(0.2, 0.8, (N, 6, 4)).astype(np.float32)


def noisy(observation, samples, seed):
    """Samples about the observation, (samples, 6, 4)."""
    noise = np.random.default_rng(seed).normal(size=(samples, *np.shape(observation)))
    return (np.asarray(observation) + 0.1 * noise).astype(np.float32)


def one_by_one(observation, samples, seed):
    yield from noisy(observation, samples, seed)


def for_ever(observation, samples, seed):
    yield from noisy(observation, samples, seed)
    while True:
        yield np.full(np.shape(observation), 9.0, np.float32)


def as_tensor(observation, samples, seed):
    import torch

    return torch.from_numpy(noisy(observation, samples, seed))


@pytest.mark.parametrize("sampler", [one_by_one, for_ever, as_tensor, lambda *words: list(noisy(*words))])
def test_arrays_tensors_lists_and_iterators_make_one_band(sampler):
    if sampler is as_tensor:
        pytest.importorskip("torch")
    wanted = bands_from(noisy, Y, samples=M, seed=3)
    found = bands_from(sampler, Y, samples=M, seed=3)
    np.testing.assert_array_equal(found.lower, wanted.lower)
    np.testing.assert_array_equal(found.upper, wanted.upper)
    assert wanted.source == pb.Source("calibrated quantiles", M, Fraction(1, 10), f"{__name__}:noisy")
    assert (bands_from(noisy, Y, samples=M, seed=4).lower != wanted.lower).any()


@pytest.mark.parametrize("m, level", [(19, 0.1), (40, 0.1), (83, 0.2), (9, 0.5)])
def test_tails_that_stream_by_are_the_quantiles(m, level, rng):
    samples = rng.normal(size=(m, 7))
    tails = SampleTails(m, level)
    for block in np.array_split(samples, 4):
        tails.push(block)
    parts = tails.parts()
    for f, before in ((pb.calibrated_quantiles, ""), (pb.naive_quantiles, "naive_")):
        band = f(samples[None], level)
        np.testing.assert_allclose(parts[f"{before}lower"], band.lower[0], rtol=1e-12)
        np.testing.assert_allclose(parts[f"{before}upper"], band.upper[0], rtol=1e-12)
    np.testing.assert_array_equal(parts["lower"], pb.calibrated_quantiles(samples[None], level).lower[0])
    np.testing.assert_allclose(parts["mean"], samples.mean(0))
    np.testing.assert_allclose(parts["deviation"], samples.std(0, ddof=1))


def test_memory_is_bounded_where_samples_come_one_by_one():
    import tracemalloc

    def many(observation, samples, seed):
        rng = np.random.default_rng(seed)
        for _ in range(samples):
            yield rng.random((32, 32), dtype=np.float32)

    tracemalloc.start()
    bands_from(many, np.zeros((1, 1)), samples=999)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 999 * 32 * 32 * 4 / 2.5  # some 50 at either end, in two copies, and a block


# ---------------------------------------------------------------- runs


def test_a_run_of_a_function_calibrates_and_holds_what_it_was_asked(tmp_path):
    band = bands_from(noisy, Y, samples=M, seed=3, out=tmp_path / "run.zarr", held_out=2, keep_samples=True)
    run = open_run(tmp_path / "run.zarr")
    assert run.kinds == ("calibrated", "naive", "mean")
    assert run["held_out"].shape == (N, 2, 6, 4)
    assert run["samples"].shape == (N, M, 6, 4)
    assert band.source == bands_from(noisy, Y, samples=M, seed=3).source
    sampler = load_sampler("test_function:noisy")
    seen = [x[:] for x in run["samples"][:].astype(np.float32)]
    np.testing.assert_allclose(np.sort(seen[1], axis=0)[0], run["lower"][1], atol=1e-3)
    np.testing.assert_array_equal(run["observation"][:], Y)
    cal = pb.calibrate(Y, band, risk_level=0.5, failure_prob=0.5)
    assert "sampler test_function:noisy" in cal.guarantee
    assert sampler is not None
    plain = bands_from(noisy, Y, samples=M, seed=3, out=tmp_path / "plain.zarr")
    assert ((plain.lower[:] >= band.lower[:].min()) & np.isfinite(plain.lower[:])).all()


class Broken:
    """Raises at its fourth image, until it is mended."""

    def __init__(self):
        self.calls = 0
        self.seeds = []

    def __call__(self, observation, samples, seed):
        self.calls += 1
        self.seeds.append(seed)
        if self.calls == 4:
            raise RuntimeError("out of luck")
        return noisy(observation, samples, seed)


def test_what_raises_midway_loses_nothing_and_goes_on_to_the_same_bits(tmp_path):
    sampler, out = Broken(), tmp_path / "run.zarr"
    with pytest.raises(ValueError, match=r"raised RuntimeError at image 3: out of luck.*finished are kept"):
        bands_from(sampler, Y, samples=M, out=out, name="broken")
    assert open_run(tmp_path / "run.zarr.part").done.tolist() == [True] * 3 + [False] * 2
    seen = []
    sample_function_to(
        sampler, Y, out, samples=M, name="broken", progress=lambda done, total: seen.append((done, total))
    )
    assert {total for _, total in seen} == {N * M}
    assert {done for done, _ in seen if done % M == 0} == {3 * M, 4 * M, 5 * M}
    assert sorted(seen) == seen
    assert len(seen) > 3  # and told of while it is drawn
    assert sampler.seeds[4] == sampler.seeds[0]  # a finished image is drawn again, to see that the seed is kept
    assert len(set(sampler.seeds)) == N
    drawn = len(sampler.seeds)
    assert len(sample_function_to(sampler, Y, out, samples=M, name="broken")) == N  # it is finished: nothing is drawn
    assert len(sampler.seeds) == drawn
    wanted = bands_from(sampler, Y, samples=M, out=tmp_path / "whole.zarr", name="broken")
    np.testing.assert_array_equal(open_run(out)["lower"][:], wanted.lower[:])


def test_a_sampler_that_takes_many_observations_draws_the_same(tmp_path):
    calls = []

    def together(observations, samples, seeds):
        calls.append(len(observations))
        return [noisy(y, samples, seed) for y, seed in zip(observations, seeds, strict=True)]

    together.batched = 2
    wanted = bands_from(noisy, Y, samples=M, seed=3)
    for out in (None, tmp_path / "run.zarr"):
        calls.clear()
        band = bands_from(together, Y, samples=M, seed=3, out=out, name="together")
        assert calls[-3:] == [2, 2, 1]
        np.testing.assert_allclose(band.lower[:], wanted.lower, atol=1e-3)
    together.batched = 3
    with pytest.raises(ValueError, match="drew for 2 observations, it was given 3"):
        bands_from(lambda_of(together), Y, samples=M, name="short")


def lambda_of(together):
    def short(observations, samples, seeds):
        return together(observations[:2], samples, seeds[:2])

    short.batched = 3
    return short


BAD = {
    "fewer": (lambda y, m, s: noisy(y, m - 1, s), "gave shape .18, 6, 4. for image 0; give 19 samples"),
    "fewer, one by one": (lambda y, m, s: iter(noisy(y, m - 1, s)), "gave 18 samples of image 0; 19 were asked for"),
    "nothing": (lambda y, m, s: None, "gave None for image 0"),
    "flat": (lambda y, m, s: np.zeros(m), "give 19 samples"),
    "nan": (lambda y, m, s: noisy(y, m, s) * np.nan, "image 0 hold NaN"),
    "complex": (lambda y, m, s: noisy(y, m, s) + 1j, "complex"),
    "whole numbers": (lambda y, m, s: np.ones((m, 6, 4), int), "samples of image 0 has dtype int64"),
    "shapes": (lambda y, m, s: [np.ones((2 + i % 2, 2)) for i in range(m)], r"shapes \(2, 2\) and \(3, 2\)"),
    "later shape": (lambda y, m, s: noisy(y[: 6 - int(y[0, 0] != Y[0, 0, 0])], m, s), "of image 1 give"),
}


@pytest.mark.parametrize("out", [None, "run.zarr"])
@pytest.mark.parametrize("sampler, said", BAD.values(), ids=BAD)
def test_a_bad_sampler_is_told_what_is_wrong(sampler, said, out, tmp_path):
    with pytest.raises((ValueError, TypeError), match=said):
        bands_from(sampler, Y, samples=M, out=out and tmp_path / out)
    assert out is None or "later" in said or (tmp_path / f"{out}.part").exists() == ("image 1" in said)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"sampler": 3}, "give a function"),
        ({"observations": 5.0}, "form an array"),
        ({"observations": [np.ones(3), np.ones(4)]}, "differ in size"),
        ({"observations": np.full((2, 3), np.nan)}, "observation 0 holds NaN"),
        ({"samples": 18}, "draw at least 19"),
        ({"seed": -1}, "seed is -1"),
        ({"held_out": 3}, "for runs only"),
        ({"ids": [1, 1, 2, 3, 4]}, "5 different whole numbers"),
    ],
)
def test_bad_input_is_refused_at_the_door(change, said):
    words = {"sampler": noisy, "observations": Y, "samples": M} | change
    with pytest.raises((ValueError, TypeError), match=said):
        bands_from(words.pop("sampler"), words.pop("observations"), **words)


def test_what_drawing_costs_is_said_first_and_how_much_is_done(monkeypatch):
    shown, drawn = [], []

    @contextmanager
    def bar(text, of):
        shown.append(text)
        yield lambda done, total: drawn.append((done, total))

    monkeypatch.setattr("pixelbounds.samplers.function.bar", bar)
    bands_from(lambda y, samples, seed: np.random.default_rng(seed).normal(size=(samples, 2, 2)), np.zeros((3, 2, 2)))
    assert shown == ["3 images, 79 samples of each (samples=19 would do)"]
    assert drawn[0] == (0, 237)
    assert drawn[-1] == (237, 237)
    assert len(drawn) > 3


# ---------------------------------------------------------------- the command, a cluster


def test_from_a_function_to_a_page_in_ten_lines_and_in_two_commands(tmp_path, monkeypatch):
    docs = (Path(__file__).parents[2] / "docs/samplers.md").read_text()
    journey = docs.partition("in ten lines")[2].partition("```python")[2].partition("```")[0]
    assert "write_report" in journey
    assert len([line for line in journey.splitlines() if line]) <= 10
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "def sampler(y, samples, seed):\n"
        "    return y + 0.1 * np.random.default_rng(seed).normal(size=(samples, *y.shape))\n"
    )
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    truth = rng.uniform(0.2, 0.8, (120, 8, 8)).astype(np.float32)
    observations = truth + 0.1 * rng.normal(size=truth.shape).astype(np.float32)
    sampler = load_sampler("mine:sampler")
    exec(journey, {"truth": truth, "observations": observations, "sampler": sampler})
    assert "<script" in Path("report.html").read_text()
    np.save("observations.npy", observations)
    np.save("truth.npy", truth)
    starts = "pixelbounds sample mine.samplers:sampler", "pixelbounds calibrate truth.npy run.zarr"
    commands = [line.replace("mine.samplers:", "mine:") for line in docs.splitlines() if line.startswith(starts)]
    assert len(commands) == 2
    for line in commands:
        words = line.partition("#")[0].split()[1:]
        result = call(*words)
        assert result.exit_code == 0, result.output
    assert Path("cal.safetensors").exists()
    for more, said in {
        ("mine:none",): "has no none",
        ("no_such_thing:draw",): "no module no_such_thing",
        ("mine:sampler", "--steps", 3): "leave --steps out",
    }.items():
        result = call("sample", more[0], "observations.npy", "--out", "o.zarr", *more[1:])
        assert result.exit_code == 2
        assert said in " ".join(result.output.split())
