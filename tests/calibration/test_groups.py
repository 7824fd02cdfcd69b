"""Every grouping keeps one contract: it labels every end, from what is known at test time, and survives a file."""

import json
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from flat import flat_calibrate
from labelled_world import FITTING, SIZE, N, world
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds import groups
from pixelbounds.calibration.block import all_entries
from pixelbounds.calibration.data import CalibrationData
from pixelbounds.calibration.groups.contract import load_grouping

PARTITION = np.arange(SIZE * SIZE).reshape(SIZE, SIZE) % 7 * 11


def _band_groups(**kwargs):
    return lambda pairs, images: groups.fit_band_groups(pairs, images, **kwargs)


def _learned(pairs, images):
    return groups.fit_learned_groups(pairs, images, np.random.default_rng(0), bins_per_side=6, trees=8)


KINDS = {
    "single": lambda pairs, images: groups.Single(),
    "loss": lambda pairs, images: groups.by_loss(pairs, images, 4),
    "otsu": lambda pairs, images: groups.by_otsu(pairs, images, 3),
    "partition": lambda pairs, images: groups.partition(PARTITION, (SIZE, SIZE)),
    "labels": lambda pairs, images: groups.fit_labelled_groups(pairs, images, groups.Single()),
    "labels and band": lambda pairs, images: groups.fit_labelled_groups(
        pairs, images, groups.fit_band_groups(pairs, images, width=4, room=2), least=20
    ),
    "band": lambda pairs, images: groups.fit_band_groups(pairs, images),
    "band, one feature": _band_groups(width=5, room=1, side=False),
    "band, all products": _band_groups(width=4, room=3, level=5),
    "band, one group": _band_groups(width=1, room=1, side=False),
    "learned": _learned,
}


every_kind = pytest.mark.parametrize("fit", KINDS.values(), ids=KINDS)


def labels_of(grouping, pairs, start=0, stop=None):
    """Labels of every end of some images: (2, n, pixels)."""
    _, block = pairs.read(start, len(pairs) if stop is None else stop)
    return grouping.at(block, *all_entries(block)).reshape(2, len(block), -1)


# ---------------------------------------------------------------- the contract, for every member


@every_kind
def test_labels_run_from_0_without_empty_groups_on_the_fitting_images(rng, fit):
    pairs = world(rng)
    grouping = fit(pairs, FITTING)
    labels = labels_of(grouping, pairs)
    assert labels.dtype.kind == "i"
    assert labels.min() >= 0
    assert labels.max() < grouping.count
    others = set(grouping.table[-1].tolist()) if isinstance(grouping, groups.LabelledGroups) else set()
    assert set(np.unique(labels[:, FITTING])) == set(range(grouping.count)) - others
    if not grouping.sided:
        np.testing.assert_array_equal(labels[0], labels[1])


@every_kind
def test_a_file_keeps_the_labels(rng, fit):
    pairs = world(rng)
    grouping = fit(pairs, FITTING)
    meta, arrays = grouping.state()
    assert all(isinstance(x, np.ndarray) and x.dtype.kind in "iuf" for x in arrays.values())
    again = load_grouping(grouping.kind, json.loads(json.dumps(meta)), {k: x.copy() for k, x in arrays.items()})
    assert type(again) is type(grouping)
    assert again.count == grouping.count
    np.testing.assert_array_equal(labels_of(again, pairs), labels_of(grouping, pairs))


@every_kind
def test_labels_do_not_depend_on_how_images_are_cut(rng, fit):
    pairs = world(rng)
    grouping = fit(pairs, FITTING)
    whole = labels_of(grouping, pairs)
    pieces = [labels_of(grouping, pairs, a, b) for a, b in [(0, 1), (1, 8), (8, 9), (9, N)]]
    np.testing.assert_array_equal(np.concatenate(pieces, axis=1), whole)
    _, block = pairs.read(0, N)
    entry, side = all_entries(block)
    some = rng.permutation(len(entry))[:300]
    np.testing.assert_array_equal(grouping.at(block, entry[some], side[some]), whole.reshape(-1)[some])
    every = grouping.every(block)
    assert every.shape == (2 if grouping.sided else 1, N * SIZE * SIZE)
    np.testing.assert_array_equal(np.broadcast_to(every, (2, N * SIZE * SIZE)), whole.reshape(2, -1))
    assert len(grouping.at(block, entry[:0], side[:0])) == 0


@every_kind
def test_entries_outside_the_block_are_refused(rng, fit):
    pairs = world(rng)
    grouping = fit(pairs, FITTING)
    if not grouping.sided:
        return  # NumPy looks these up, and checks
    block = pairs.read(0, 2)[1]
    for entry in (-1, 2 * SIZE * SIZE):
        with pytest.raises(IndexError, match=r"0\.\.199"):
            grouping.at(block, np.array([0, entry]), np.zeros(2, np.uint8))


@every_kind
def test_fitting_does_not_depend_on_how_images_are_cut(fit, monkeypatch):
    whole = fit(world(np.random.default_rng(0)), FITTING)
    monkeypatch.setattr("pixelbounds.calibration.data.block_of", lambda size, rows: 3)
    cut = fit(world(np.random.default_rng(0)), FITTING)
    for ours, theirs in zip(cut.state()[1].values(), whole.state()[1].values(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@every_kind
def test_labels_never_depend_on_the_truth_of_other_images(fit):
    """Scramble the truth of every image that does not fit: same groups, same labels."""
    others = np.setdiff1d(np.arange(N), FITTING)
    plain, scrambled = world(np.random.default_rng(0)), world(np.random.default_rng(0), truth_noise=others)
    assert (plain.truth[others] != scrambled.truth[others]).any()
    before = [x.copy() for x in (plain.truth, plain.band.lower, plain.band.upper, plain.features, plain.labels)]
    first, second = fit(plain, FITTING), fit(scrambled, FITTING)
    for x, kept in zip((plain.truth, *plain.band.arrays[:2], plain.features, plain.labels), before, strict=True):
        np.testing.assert_array_equal(x, kept)
    np.testing.assert_array_equal(labels_of(first, plain), labels_of(second, scrambled))
    np.testing.assert_array_equal(labels_of(first, plain), labels_of(first, scrambled))


@pytest.mark.parametrize("kind", ["band", "learned"])
def test_groups_of_the_band_fit_images_of_another_size(rng, kind):
    pairs = world(rng, features=0)
    grouping = KINDS[kind](pairs, FITTING)
    truth, band = heteroscedastic(3, rng, size=SIZE + 5)
    labels = labels_of(grouping, CalibrationData(truth, band))
    assert labels.shape == (2, 3, (SIZE + 5) ** 2)
    assert 0 <= labels.min() <= labels.max() < grouping.count


@every_kind
def test_images_without_limits(rng, fit):
    pairs = world(rng, limits=(-np.inf, np.inf))
    grouping = fit(pairs, FITTING)
    grouping.check(pairs.read(0, N)[1])
    assert labels_of(grouping, pairs).max() < grouping.count


# ---------------------------------------------------------------- band features


def test_a_combination_never_seen_joins_the_nearest_of_its_side():
    """Fitted where wide bands are high and narrow ones low; a wide low band joins one of its neighbours."""
    half = np.repeat([0.02, 0.1, 0.2], 20)
    middle = np.repeat([0.2, 0.5, 0.75], 20)
    fitted = pb.Band((middle - half)[None].repeat(4, 0), (middle + half)[None].repeat(4, 0))
    pairs = CalibrationData(np.full((4, 60), 0.5), fitted)
    grouping = groups.fit_band_groups(pairs, np.arange(4), width=3, room=1, level=3)
    assert grouping.count == 6  # three combinations of nine occur, per side
    seen = labels_of(grouping, pairs)[:, 0, [0, 20, 40]]
    strange = pb.Band(np.array([[0.0, 0.73, 0.28]]), np.array([[0.4, 0.77, 0.32]]))
    new = labels_of(grouping, CalibrationData(np.full((1, 3), 0.5), strange))[:, 0]
    for side in (0, 1):
        assert set(new[side]) <= set(seen[side])  # never the other side's
        assert new[side][2] == seen[side][0]  # narrow and a little higher than low: the narrow low one


# ---------------------------------------------------------------- learned groups


def test_applying_learned_groups_never_loads_lightgbm(rng, tmp_path):
    truth, band = heteroscedastic(40, rng, size=8)
    pb.calibrate(truth, band, risk_level=0.3, method=pb.Frontier(groups="learned", k=4)).save(
        tmp_path / "cal.safetensors"
    )
    np.savez(tmp_path / "band.npz", lower=band.lower, upper=band.upper)
    script = """
import sys, numpy as np, pixelbounds as pb
sys.modules["lightgbm"] = None  # importing it is an error
given = np.load("band.npz")
cal = pb.load_calibration("cal.safetensors")
print(float(cal.apply(pb.Band(given["lower"], given["upper"], source=cal.record.source)).length.mean()))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0


def test_learned_groups_use_the_features():
    """The error's scale is told by a feature image only: with it the groups separate large needs from small."""
    rng = np.random.default_rng(0)
    scale = np.where(rng.uniform(size=(80, 12, 12)) < 0.5, 0.01, 0.2)
    truth = np.clip(0.5 + scale * rng.standard_normal(scale.shape), 0, 1)
    band = pb.Band(np.full(scale.shape, 0.49), np.full(scale.shape, 0.51))
    kwargs = {"risk_level": 0.1, "n_fit": 20, "k": 8}
    with_features = flat_calibrate(truth, band, features=scale, **kwargs)
    without = flat_calibrate(truth, band, **kwargs)
    short = with_features.apply(band, features=scale).length
    assert short.mean() < 0.75 * without.apply(band).length.mean()
    assert short[scale < 0.1].mean() < 0.3 * short[scale > 0.1].mean()
    with pytest.raises(ValueError, match=r"learned with 1 feature images.*0 were given.*features="):
        with_features.apply(band)
    with pytest.raises(ValueError, match=r"learned with 0 feature images.*1 were given"):
        without.apply(band, features=scale)
    as_list = flat_calibrate(truth, band, features=[scale], **kwargs)
    np.testing.assert_array_equal(as_list.widening, with_features.widening)


def test_a_function_that_fits_groups_is_accepted(rng):
    truth, band = heteroscedastic(60, rng, size=8)
    fit = partial(groups.fit_band_groups, width=3, room=1, level=2, side=False)
    cal = pb.calibrate(truth, band, risk_level=0.2, method=pb.Frontier(groups=fit))
    assert cal.grouping.count == 6
    assert not cal.grouping.by_side
    with pytest.raises(TypeError, match="returned a int"):
        pb.calibrate(truth, band, risk_level=0.2, method=pb.Frontier(groups=lambda pairs, images: 3))
