"""In memory, in chunks, in threads, on a cluster: the same bits."""

import json
import os

import numpy as np
import pytest
import zarr
from flat import flat_calibrate
from stores import CHOICES, SIZE, M, N, store
from typer.testing import CliRunner

import pixelbounds as pb
from pixelbounds import execution, samplers
from pixelbounds.cli import app
from pixelbounds.images.library import Runner, current_runner

pytest_plugins = ["clusters"]
CUTS = {  # images and samples in a chunk of samples, images in a chunk of truth, and how chunks are packed
    "one image": ((1, M), 1, {"compressors": None}),
    "many images": ((50, M), 37, {}),
    "split samples": ((7, 5), N, {"compressors": None}),
    "shards": ((2, M), 4, {"shards": (8, M, SIZE, SIZE)}),
}


def calibrated(folder, arrays, cut, **choices):
    """The calibration file's bytes from stores that are cut in some way."""
    chunks, rows, how = CUTS[cut]
    truth = store(folder, "truth.zarr", arrays[0], (rows,))
    samples = store(folder, "samples.zarr", arrays[1], chunks, **how)
    band, there = samplers.bands_to(samples, folder / "bands.zarr", 0.1)
    assert there.all()
    return flat_calibrate(truth, band, **CHOICES, **choices).to_bytes()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("cut", CUTS)
def test_chunks_and_threads_change_no_bit(tmp_path, arrays, wanted, cut, threads):
    with execution.running(threads=threads, memory="16M" if threads == 1 else "1G"):
        assert calibrated(tmp_path, arrays, cut) == wanted[0].to_bytes()
    assert type(current_runner()) is Runner


@pytest.mark.parametrize(
    "choices",
    [
        {"method": "rcps", "bound": "hoeffding_bentkus"},
        {"method": "krcps", "bound": "hoeffding_bentkus"},
        {"groups": "band", "units": np.arange(N) // 2},
        {"groups": "learned", "k": 4},
    ],
)
def test_every_method_on_a_cluster(tmp_path, arrays, wanted, choices, client):
    with execution.running(client):
        found = calibrated(tmp_path, arrays, "many images", **choices)
    assert found == flat_calibrate(arrays[0], wanted[1], **CHOICES, **choices).to_bytes()


def test_an_evaluation_on_a_cluster(tmp_path, arrays, wanted, client):
    interval = wanted[0].apply(wanted[1])
    parts = [store(tmp_path, f"{x}.zarr", getattr(interval, x), (11,)) for x in ("lower", "upper")]
    truth, samples = store(tmp_path, "truth.zarr", arrays[0], (7,)), store(tmp_path, "s.zarr", arrays[1], (5,))
    with execution.running(client):
        found = pb.evaluate(truth, pb.Interval(*parts), samples=samples)
    assert found.to_dict() == pb.evaluate(arrays[0], interval, samples=arrays[1]).to_dict()


def test_promises_on_a_cluster(tmp_path, arrays, wanted, client):
    truth = arrays[0]
    band = wanted[1]
    edges, weights = pb.regions.edges(truth, top=0.2), np.abs(truth - 0.5)

    def asked(edges, weights):
        return [pb.share(0.3), pb.share(0.4, within=edges, name="edges"), pb.share(0.4, within=weights, name="weights")]

    how = {"groups": "band", "k": 3, "seed": 3}
    here = flat_calibrate(truth, band, promises=asked(edges, weights), **how)
    parts = [store(tmp_path, f"{x}.zarr", getattr(band, x), (11,)) for x in ("lower", "upper")]
    far = [store(tmp_path, f"{name}.zarr", x, (9,)) for name, x in {"truth": truth, "e": edges, "w": weights}.items()]
    with execution.running(client):
        there = flat_calibrate(far[0], pb.Band(*parts, source=band.source), promises=asked(*far[1:]), **how)
        seen = pb.evaluate(far[0], pb.Interval(*parts), promises=asked(*far[1:]))
    assert there.to_bytes() == here.to_bytes()
    found = pb.evaluate(truth, pb.Interval(band.lower, band.upper), promises=asked(edges, weights))
    assert seen.to_dict() == found.to_dict()


def test_commands_give_the_same_files(tmp_path, arrays, cluster):
    truth, samples = arrays
    np.save(tmp_path / "truth.npy", truth)
    np.save(tmp_path / "other.npy", np.clip(truth + np.float32(1e-3), 0, 1))  # images that calibrated do not judge
    store(tmp_path, "samples.zarr", samples, (3,))

    def run(name, *words):
        result = CliRunner().invoke(app, [name, *map(str, words), "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    risk = "--risk-level", 0.1, "--failure-prob", 0.2
    found = {}
    for name, more in {"here": ("--memory", "32M"), "there": ("--scheduler", cluster.scheduler_address)}.items():
        more = *more, "--scratch", tmp_path
        cal, out = tmp_path / f"{name}.safetensors", tmp_path / f"{name}.zarr"
        run("calibrate", tmp_path / "truth.npy", tmp_path / "samples.zarr", *risk, "--out", cal, *more)
        applied = run("apply", cal, tmp_path / "samples.zarr", "--out", out, *more)
        group = zarr.open_group(out, mode="r")
        words = "evaluate", tmp_path / "other.npy", tmp_path / "samples.zarr", "--calibration", cal
        evaluated = run(*words, *more)
        stored = run("evaluate", tmp_path / "other.npy", out)
        assert stored["evaluation"]["apart_from"] is None  # intervals alone do not know which images calibrated
        assert stored["evaluation"] | {"apart_from": evaluated["evaluation"]["apart_from"]} == evaluated["evaluation"]
        ends = group["lower"][:].tobytes() + group["upper"][:].tobytes()
        found[name] = cal.read_bytes(), ends, applied["mean_length"], evaluated
    assert found["here"] == found["there"]
    left = {x.name for x in tmp_path.iterdir()} - {"truth.npy", "other.npy", "samples.zarr"}
    assert left == {f"{name}.{kind}" for name in found for kind in ("safetensors", "zarr")}


# ---------------------------------------------------------------- where the work goes


def test_a_pass_over_files_runs_on_the_workers(tmp_path, arrays, client):
    truth = store(tmp_path, "truth.zarr", arrays[0], (1,))

    def work(start, stop):
        return os.getpid(), truth[start:stop].sum(axis=(1, 2))

    with execution.running(client):
        found = list(current_runner().over(work, N, 2, [truth]))
    assert {pid for pid, _ in found} == set(client.run(os.getpid).values())
    np.testing.assert_array_equal(np.concatenate([x for _, x in found]), arrays[0].sum(axis=(1, 2)))


def test_arrays_in_memory_stay_here_and_large_ones_are_refused(tmp_path, arrays, wanted, client):
    with execution.running(client):
        assert flat_calibrate(arrays[0], wanted[1], **CHOICES).to_bytes() == wanted[0].to_bytes()
        truth = store(tmp_path, "truth.zarr", np.zeros((300, 128, 128), np.float32), (50,))
        band = pb.Band(np.zeros(truth.shape, np.float32), np.ones(truth.shape, np.float32))
        with pytest.raises(ValueError, match=r"shape \(300, 128, 128\), float32, lies in memory"):
            pb.calibrate(truth, band, risk_level=0.1, method="rcps")
