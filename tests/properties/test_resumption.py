"""A run that goes on knows what its blocks were made of: content decides, never the name of a file."""

import shutil

import numpy as np
import pytest
import zarr
from stores import store, world

import pixelbounds as pb
from pixelbounds import execution, samplers
from pixelbounds.images.ragged import write_ragged
from pixelbounds.workflows.apply import apply_files
from pixelbounds.workflows.calibrate import calibrate_files
from pixelbounds.workflows.request import ApplyOptions, Request, Resources

N = 60
SMALL = {"memory": "300K", "threads": 1}  # many blocks, one after the other


class Stop(Exception):
    """What ends a run in the middle, as an interrupt would."""


def halfway(done, total):
    if done > total / 2:
        raise Stop


def drawn(folder, seed, name="samples.zarr"):
    """Samples in a store of this name, drawn anew."""
    shutil.rmtree(folder / name, ignore_errors=True)
    samples = world(N, seed=seed)[1]
    store(folder, name, samples, (1,), compressors=None)
    return samples


def half_made(samples, out):
    """A store of bands that was begun and not finished; which images it has."""
    with pytest.raises(Stop), execution.running(**SMALL, progress=halfway):
        samplers.bands_to(samples, out)
    marks = zarr.open_group(out.with_name(f"{out.name}.part"), mode="r")["done"][:]
    assert 0 < marks.sum() < N
    return marks


def same_bands(band, samples):
    wanted = pb.calibrated_quantiles(samples, 0.1)
    np.testing.assert_array_equal(band.lower[:], wanted.lower)
    np.testing.assert_array_equal(band.upper[:], wanted.upper)


def opened(path):
    return zarr.open_array(path, mode="r")


def written(part):
    """When each finished block was written."""
    folder = part / "lower" / "c"
    return {str(x.relative_to(folder)): x.stat().st_mtime_ns for x in folder.rglob("*") if x.is_file()}


def test_only_what_changed_is_made_again(tmp_path):
    samples = drawn(tmp_path, 1)
    half_made(opened(tmp_path / "samples.zarr"), tmp_path / "b.zarr")
    before = written(tmp_path / "b.zarr.part")
    samples[0, 3, 2, 1] += 1e-3
    zarr.open_array(tmp_path / "samples.zarr", mode="r+")[0] = samples[0]
    with execution.running(**SMALL):
        band, _ = samplers.bands_to(opened(tmp_path / "samples.zarr"), tmp_path / "b.zarr")
    same_bands(band, samples)
    after = written(tmp_path / "b.zarr")
    again = [name for name, when in before.items() if after[name] != when]
    assert len(again) == 1


@pytest.mark.parametrize("changed", ["samples", "features", "calibration"])
def test_intervals_are_about_what_lies_there_now(tmp_path, changed):
    truth, samples = world(N, seed=1)
    features = np.random.default_rng(0).random(truth.shape).astype(np.float32)
    cal = pb.calibrate(truth, pb.calibrated_quantiles(samples, 0.1), risk_level=0.3, features=features)
    other = pb.calibrate(truth, pb.calibrated_quantiles(samples, 0.1), risk_level=0.25, features=features)
    cal.save(tmp_path / "cal.safetensors")
    np.save(tmp_path / "features.npy", features)
    drawn(tmp_path, 1)
    words = tmp_path / "cal.safetensors", tmp_path / "samples.zarr", tmp_path / "i.zarr"
    known = {"options": ApplyOptions(features=tmp_path / "features.npy"), "resources": Resources(**SMALL)}
    with pytest.raises(Stop):
        apply_files(*words, **known | {"resources": Resources(**SMALL, progress=halfway)})
    if changed == "samples":
        samples = drawn(tmp_path, 2)
    elif changed == "features":
        features = features[::-1].copy()
        np.save(tmp_path / "features.npy", features)
    else:
        cal = other
        cal.save(tmp_path / "cal.safetensors")
        with pytest.raises(ValueError, match="begun with other inputs or options"):
            apply_files(*words, **known)
    apply_files(*words, **known, replace=changed == "calibration")
    wanted = cal.apply(pb.calibrated_quantiles(samples, 0.1), features=features)
    found = zarr.open_group(tmp_path / "i.zarr", mode="r")
    np.testing.assert_array_equal(found["lower"][:], wanted.lower)
    np.testing.assert_array_equal(found["upper"][:], wanted.upper)


@pytest.mark.parametrize("kind", ["one size", "different sizes"])
def test_kept_bands_of_other_samples_are_refused_or_made_anew(tmp_path, kind):
    truth = world(N, seed=1)[0]

    def draw(seed):
        samples = drawn(tmp_path, seed)
        if kind != "one size":
            shutil.rmtree(tmp_path / "samples.zarr")
            write_ragged(tmp_path / "samples.zarr", {"samples": list(samples)})
        return samples

    def calibrated(name, bands, **more):
        words = tmp_path / "truth.zarr", tmp_path / "samples.zarr", tmp_path / name
        request = Request(risk_level=0.3, groups="band")
        calibrate_files(*words, request, bands_out=tmp_path / bands, **more)
        return (tmp_path / name).read_bytes()

    if kind == "one size":
        store(tmp_path, "truth.zarr", truth, (7,))
    else:
        write_ragged(tmp_path / "truth.zarr", {"truth": list(truth)})
    draw(1)
    first = calibrated("a.safetensors", "bands.zarr")
    assert calibrated("a.safetensors", "bands.zarr", replace=True) == first  # the same samples, so the same bands
    draw(2)
    with pytest.raises(FileExistsError, match=r"bands.zarr exists and holds .*bands of other samples.*--force"):
        calibrated("b.safetensors", "bands.zarr")
    found = calibrated("b.safetensors", "bands.zarr", replace=True)
    assert found != first
    assert found == calibrated("c.safetensors", "fresh.zarr")
