"""Sampling into a store: its bands calibrate, and a run that was stopped in any way ends with the same bits."""

import json
import shutil

import numpy as np
import pytest
import zarr

torch = pytest.importorskip("torch")

from sampling_world import OPTIONS, M, N, call, harm, images, kill_when, same, start  # noqa: E402
from waiting import whole_files  # noqa: E402

import pixelbounds as pb  # noqa: E402
from pixelbounds.samplers import loop as jobs  # noqa: E402
from pixelbounds.samplers import runs as store  # noqa: E402
from pixelbounds.samplers.network_backend import NetworkBackend  # noqa: E402
from pixelbounds.samplers.runs import open_run  # noqa: E402
from pixelbounds.workflows import SampleOptions, sample_to  # noqa: E402

torch.set_num_threads(1)
LOOSE = {"risk_level": 0.5, "failure_prob": 0.5, "method": pb.Frontier(groups="band")}


def test_a_run_holds_bands_that_calibrate(whole, world):
    assert whole.done.all()
    assert repr(whole).endswith("6 of 6 images finished, bands calibrated, naive, mean")
    sources = [whole.band(kind).source for kind in whole.kinds]
    samples = whole["samples"][:]
    made = [f(samples, 0.1).source for f in (pb.calibrated_quantiles, pb.naive_quantiles)]
    made.append(pb.mean_and_std(samples.astype(np.float32)).source)
    for source, plain in zip(sources, made, strict=True):  # a run knows more: sampler, steps, noise level, network
        assert plain.known.items() < source.known.items()
        assert {"sampler", "steps", "sigma_0", "network"} <= source.known.keys()
    np.testing.assert_array_equal(whole["observation"][:], np.load(world / "y.npy"))
    for kind in whole.kinds:
        cal = pb.calibrate(images(N, 1), whole.band(kind), **LOOSE)
        assert cal.apply(whole.band(kind)).lower.shape == (N, 8, 8)


def test_ends_are_rounded_outward(world, score, whole, monkeypatch):
    exact = {}
    monkeypatch.setattr(jobs, "write_image", lambda store, image, parts, number: exact.update({image: parts}))
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
    words = "sample", score, world / "y.npy", "--samples", M, "--sampler", "reverse_sde", "--steps", 40, "--batch", 40
    process = start(*words, "--out", tmp_path / "run.zarr")
    part = tmp_path / "run.zarr.part"
    marks = part / "done"
    kill_when(process, lambda: any(name.startswith("c.") for name in whole_files(marks)))
    run = open_run(part)
    assert 0 < run.done.sum() < N
    with pytest.raises(ValueError, match=r"of 6 images; run the same"):
        run.band()
    with pytest.raises(FileNotFoundError, match="is not finished; run the same"):
        open_run(tmp_path / "run.zarr")
    finished = int(np.argmax(run.done))
    chunk = f"lower/c.{finished}.0.0"
    written = (part / chunk).stat().st_mtime_ns
    result = call(*words, "--out", tmp_path / "run.zarr")
    assert result.exit_code == 0, result.output
    assert "are finished; the run resumes" in result.output
    assert (tmp_path / "run.zarr" / chunk).stat().st_mtime_ns == written  # no finished work is done again
    assert call(*words, "--out", tmp_path / "whole.zarr").exit_code == 0
    same(open_run(tmp_path / "run.zarr"), open_run(tmp_path / "whole.zarr"))
    assert not list((tmp_path / "run.zarr").rglob("*.partial"))


@pytest.mark.parametrize("after", [0, 1, 3])
def test_stopped_within_a_block_a_run_resumes_to_the_same_bits(world, score, whole, tmp_path, monkeypatch, after):
    count, write_image = [], jobs.write_image

    def stop(store, image, parts, number):
        if len(count) == after:
            store.array("lower")[image] = np.zeros(parts["lower"].shape)  # some of the image is there already
            raise KeyboardInterrupt
        count.append(image)
        write_image(store, image, parts, number)

    monkeypatch.setattr(jobs, "write_image", stop)
    y = np.load(world / "y.npy")
    with pytest.raises(KeyboardInterrupt):
        sample_to(score, y, tmp_path / "run.zarr", OPTIONS)
    part = tmp_path / "run.zarr.part"
    assert open_run(part).done.sum() == after if after else not part.exists()
    monkeypatch.setattr(jobs, "write_image", write_image)
    blocks, draw = [], NetworkBackend.draw
    monkeypatch.setattr(
        NetworkBackend, "draw", lambda own, y, ids, *more: blocks.append(list(ids)) or draw(own, y, ids, *more)
    )
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
    path, passes = world / kind / f"{kind}.safetensors", ("--samples", 8) if kind == "regressor" else ()
    result = call("sample", path, world / "y.npy", "--out", tmp_path / "run.zarr", *passes, "--images", "1:5")
    assert result.exit_code == 0, result.output
    run = open_run(tmp_path / "run.zarr")
    assert run.ids.tolist() == [1, 2, 3, 4]
    assert run.kinds == (("regressor", "dropout") if kind == "regressor" else ("conffusion",))
    bands = [run.band(name) for name in run.kinds]
    assert all(band.shape == (4, 8, 8) for band in bands)
    if kind == "regressor":
        assert (run["dropout_deviation"][:] > 0).any()
        np.testing.assert_allclose(bands[1].centre, run.mean[:])


@pytest.mark.parametrize("kind", ["nifti", "dicom", "negative"])
def test_scans_are_mapped_and_not_clipped(world, score, tmp_path, kind):
    pytest.importorskip("nibabel")
    pytest.importorskip("pydicom")
    from medical import write_dicom, write_nifti

    y = np.load(world / "y.npy")
    values = np.rint(400 * y - 160)  # Hounsfield units
    if kind == "nifti":
        write_nifti(tmp_path / "y.nii.gz", values)
    else:
        write_dicom(tmp_path / "y", values, photometric="MONOCHROME1" if kind == "negative" else "MONOCHROME2")
    path, out = tmp_path / ("y.nii.gz" if kind == "nifti" else "y"), tmp_path / "run.zarr"
    words = ("sample", score, path, "--samples", M, "--steps", 2)
    result = call(*words, "--out", out, *(("--window", 400, 40) if kind == "nifti" else ()))
    assert result.exit_code == 0, result.output
    wanted = (values + 160) / 400
    assert wanted.min() < 0 < 1 < wanted.max()
    np.testing.assert_allclose(open_run(out)["observation"][:], 1 - wanted if kind == "negative" else wanted, atol=1e-6)
    result = call(*words, "--out", tmp_path / "wide.zarr", "--window", 800, 240)
    assert result.exit_code == 0, result.output
    wide = open_run(tmp_path / "wide.zarr")["observation"][:]
    np.testing.assert_allclose(wide, 1 - wanted / 2 if kind == "negative" else wanted / 2, atol=1e-6)
    result = call(*words, "--out", tmp_path / "raw.zarr", "--raw")
    assert result.exit_code == 2
    assert "further beyond the limits (0, 1)" in " ".join(result.output.split())


# ---------------------------------------------------------------- damaged images


@pytest.fixture(scope="module")
def runs(world, score):
    """A run of every network, by the kinds of its bands."""
    y, found = np.load(world / "y.npy"), {}
    for name in ("run", "regressor", "conffusion"):
        network = score if name == "run" else world / name / f"{name}.safetensors"
        options = SampleOptions(samples=None if name == "conffusion" else M, batch=40)
        run = sample_to(network, y, world / f"skip_{name}.zarr", options)
        found |= dict.fromkeys(run.kinds, run)
    return found


@pytest.mark.filterwarnings("ignore:.*quantiles")
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("kind", ["calibrated", "mean", "regressor", "dropout", "conffusion"])
def test_damaged_images_are_skipped_whatever_their_band(runs, tmp_path, monkeypatch, kind, large):
    """Image 1 lacks a chunk, a bit of image 3 has changed."""
    band, truth, good = runs[kind].band(kind), images(N, 1), np.array([0, 2, 4, 5])
    names = {"calibrated": ("lower", "upper"), "mean": ("mean", "deviation"), "regressor": ("estimate", "upper")}
    names |= {"dropout": ("dropout_mean", "dropout_deviation"), "conffusion": ("lower", "upper")}
    run, cal, out = (tmp_path / name for name in ("run.zarr", "cal.safetensors", "intervals.zarr"))
    np.save(tmp_path / "x.npy", truth)
    shutil.copytree(runs[kind].path, run)
    harm(run / names[kind][0] / "c.1.0.0", "remove")
    harm(run / names[kind][1] / "c.3.0.0", "flip")
    if large:
        monkeypatch.setattr(store, "_SMALL_BYTES", 0)
        monkeypatch.setattr(store, "_BLOCK_BYTES", 2 * 4 * 64)  # two images
    words = ("calibrate", tmp_path / "x.npy", run, "--kind", kind, "--out", cal, "--risk-level", 0.5)
    words = (*words, "--failure-prob", 0.5, "--groups", "band")
    result = call(*words)
    assert result.exit_code == 2
    assert "of image 1 in" in " ".join(result.output.split())

    def facts(*words):
        result = call(*words, "--skip-bad", "--kind", kind, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    assert facts(*words)["skipped"] == [1, 3]
    found = pb.load_calibration(cal)
    few = pb.calibrate(truth[good], band.map(lambda x: x[:])[good], **LOOSE)
    assert (found.record.settings, found.record.digest) == ({"skipped": [1, 3]}, few.record.digest)
    np.testing.assert_array_equal(found.widening, few.widening)
    assert facts("apply", cal, run, "--out", out)["skipped"] == [1, 3]
    lower, wanted = zarr.open_group(out, mode="r")["lower"][:], few.apply(band.map(lambda x: x[:])[good])
    assert np.isnan(lower[[1, 3]]).all()
    np.testing.assert_array_equal(lower[good], wanted.lower)
    found.without_hashes().save(cal)
    told = facts("evaluate", tmp_path / "x.npy", run, "--calibration", cal)
    assert told["skipped"] == [1, 3]
    assert told["risk"] == pb.evaluate(truth[good], wanted).risk
