"""Labels known at test time: shorter where they are right, valid whatever they are, the same from any array."""

import dask.array as da
import numpy as np
import pytest
import zarr
from flat import flat_calibrate

import pixelbounds as pb
from pixelbounds import groups
from pixelbounds.calibration.data import CalibrationData
from pixelbounds.calibration.families import additive
from pixelbounds.calibration.paths.frontier import frontier_of
from pixelbounds.images.ragged import write_ragged
from pixelbounds.workflows.apply import apply_files
from pixelbounds.workflows.calibrate import calibrate_files
from pixelbounds.workflows.request import ApplyOptions, Request

SIZE = 12
HOW = {"groups": "band", "failure_prob": 0.1}


def world(n, rng, *, wrong=0.02, noise=(0.02, 0.06)):
    """A small organ, missed more often than the rest, which nothing in the band tells; and labels, some wrong."""
    centre = rng.uniform(0.3, 0.7, (n, SIZE, SIZE))
    y, x = rng.integers(2, SIZE - 3, (2, n, 1, 1))
    grid = np.mgrid[:SIZE, :SIZE]
    organ = (np.abs(grid[0] - y) < 2) & (np.abs(grid[1] - x) < 2) & (rng.random((n, 1, 1)) < 0.7)
    truth = np.clip(centre + np.where(organ, noise[1], noise[0]) * rng.standard_normal(centre.shape), 0, 1)
    labels = np.where(rng.random(organ.shape) < wrong, ~organ, organ).astype(np.int16) * 3
    return truth, pb.Band(centre - 0.02, centre + 0.02), organ, labels


def promises(organ):
    return [pb.share(0.1), pb.share(0.15, within=organ, name="organ")]


def test_labels_make_a_rare_organ_cheap(rng):
    truth, band, organ, labels = world(300, rng)
    new_truth, new, new_organ, new_labels = world(300, rng)
    without = flat_calibrate(truth, band, promises=promises(organ), **HOW).apply(new)
    cal = flat_calibrate(truth, band, promises=promises(organ), labels=labels, **HOW)
    interval = cal.apply(new, labels=new_labels)
    assert interval.length.mean() < 0.75 * without.length.mean()
    missed = ~interval.contains(new_truth)
    assert missed.mean() < 0.1
    assert missed[new_organ].mean() < 0.15
    assert "labels" in cal.guarantee


# ---------------------------------------------------------------- groups and their path


def labelled(pairs, fitting, **how):
    return groups.fit_labelled_groups(pairs, fitting, groups.fit_band_groups(pairs, fitting, width=8, room=1), **how)


def test_a_group_without_a_miss_widens_along_the_way(rng):
    """Else the walk would go on to full width as soon as a certifying image misses there."""
    truth, band, organ, labels = world(120, rng, wrong=0.0)
    fitting = np.arange(40)
    middle = (band.lower + band.upper) / 2
    inside = np.isin(np.arange(120), fitting)[:, None, None] & organ
    truth = np.where(inside, middle, truth)  # on the fitting images the organ is never missed
    pairs = CalibrationData(truth, band, labels=labels)
    grouping = labelled(pairs, fitting)
    path = frontier_of(pairs, fitting, grouping, 0.1)
    own = np.unique(grouping.table[list(grouping.values).index(3)])
    at = int(np.argmin(np.abs(path.points[np.unique(grouping.table[0])].mean(axis=0) - 0.05)))
    assert (path.points[own, at] > 0.01).all()
    others = np.arange(40, 120)
    block = pairs.gather(others)[1]
    for knot in range(0, len(path), 8):
        lower, upper = block.widen(additive, grouping, path.points[:, knot])
        missed = (truth[others] < lower) | (truth[others] > upper)
        if missed[organ[others]].mean() <= 0.15:
            break
    assert (upper - lower).mean() < 0.3


def test_too_many_labels_are_refused(rng):
    truth, band, _, _ = world(60, rng)
    with pytest.raises(ValueError, match="merge some"):
        flat_calibrate(truth, band, risk_level=0.2, labels=np.arange(truth.size).reshape(truth.shape), **HOW)


# ---------------------------------------------------------------- any array, any size


def test_labels_of_any_library_give_the_same_bytes(rng, tmp_path):
    truth, band, organ, labels = world(60, rng)
    how = {**HOW, "promises": promises(organ)}
    cal = flat_calibrate(truth, band, labels=labels, **how)
    wanted = cal.apply(band, labels=labels)
    for same in (
        zarr.create_array(tmp_path / "labels.zarr", data=labels, chunks=(7, SIZE, SIZE)),
        da.from_array(labels, chunks=(9, SIZE, SIZE)),
        list(labels),
    ):
        assert flat_calibrate(truth, band, labels=same, **how).to_bytes() == cal.to_bytes()
        np.testing.assert_array_equal(cal.apply(band, labels=same).lower, wanted.lower)
    cal.save(tmp_path / "cal.safetensors")
    again = pb.load_calibration(tmp_path / "cal.safetensors")
    np.testing.assert_array_equal(again.apply(band, labels=labels).upper, wanted.upper)


def test_labels_of_images_of_different_sizes_also_in_files(rng, tmp_path):
    truth, band, _, labels = world(60, rng)

    def cropped(x):
        return [np.ascontiguousarray(image[: 8 + i % 4]) for i, image in enumerate(x)]

    band = pb.Band(cropped(band.lower), cropped(band.upper))
    cal = flat_calibrate(cropped(truth), band, risk_level=0.1, labels=cropped(labels), **HOW)
    wanted = cal.apply(band, labels=cropped(labels))
    write_ragged(tmp_path / "truth.zarr", {"truth": cropped(truth)})
    write_ragged(tmp_path / "band.zarr", {"lower": band.lower, "upper": band.upper})
    write_ragged(tmp_path / "labels.zarr", {"labels": cropped(labels)})
    places = [tmp_path / name for name in ("truth.zarr", "band.zarr", "cal.safetensors")]
    calibrate_files(*places, Request(risk_level=0.1, labels=tmp_path / "labels.zarr", **HOW))
    assert pb.load_calibration(places[2]).widening.tolist() == cal.widening.tolist()
    apply_files(places[2], places[1], tmp_path / "out.zarr", ApplyOptions(labels=tmp_path / "labels.zarr"))
    found = pb.images.ragged.read_ragged(tmp_path / "out.zarr")["lower"]
    for ours, theirs in zip(found, wanted.lower, strict=True):
        np.testing.assert_array_equal(ours, theirs)
