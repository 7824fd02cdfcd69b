"""Several promises along one path: the walk is the literal one, however regions are stored, cut or weighted."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from flat import flat_calibrate
from refusals import refuses
from scipy.stats import beta
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds.calibration.block import Single
from pixelbounds.calibration.calibration_file import calibration_from_bytes
from pixelbounds.calibration.data import FittingImages
from pixelbounds.calibration.methods import Need, _enough
from pixelbounds.calibration.paths.path import scalar_path
from pixelbounds.calibration.promises import CertifiedPromise

N, SIZE, DELTA = 90, 8, 0.1


def data(n=N, size=SIZE):
    """Truth, band, an overlapping mask that a third of the images lacks, weights, and a subgroup."""
    rng = np.random.default_rng(3)
    truth, band = heteroscedastic(n, rng, size=size, dtype=np.float64)
    mask = (band.upper + band.lower) / 2 > 0.6
    mask[::3] = False
    weights = rng.uniform(size=truth.shape) * (rng.random((n, 1, 1)) < 0.9)
    return truth, band, mask, weights, rng.random(n) < 0.7


def promises_of(mask, weights, subgroup):
    return [
        pb.share(0.25),
        pb.share(0.3, within=mask, name="mask"),
        pb.share(0.3, within=weights, name="weights"),
        pb.share(0.25, within=subgroup, name="subgroup"),
        pb.share(0.2, cap=0.5),
        pb.tail(0.3, above=0.2),
        pb.tail(0.3, above=0.3, within=mask),
        pb.share(0.3, within=mask, weighting="pixels", name="pooled"),
    ]


# ---------------------------------------------------------------- the literal walk


def literal_risks(truth, interval, promise, unit_of, order, most):
    """What is bounded of each unit that has the region, in order, and its level: written out."""
    missed = ~interval.contains(truth)
    within = np.ones(truth.shape) if promise.within is None else np.asarray(promise.within, float)
    if within.ndim == 1:
        within = within[:, None, None] * np.ones(truth.shape)
    cap = promise.cap or 1.0
    level = promise.at_most / cap
    values = []
    for unit in order:
        losses, sizes = [], []
        for i in np.flatnonzero(unit_of == unit):
            size = within[i].sum()
            if size > 0:
                part = (within[i] * missed[i]).sum() / size
                losses.append(float(part > promise.above) if promise.kind == "tail" else min(part, cap) / cap)
                sizes.append(size)
        if not losses:
            continue
        if promise.weighting == "pixels":
            pooled = np.dot(losses, sizes) / sum(sizes)
            values.append(level + min(sum(sizes), most) / most * (pooled - level))
        else:
            values.append(np.mean(losses))
    return np.array(values), level


def clopper_pearson(losses, delta):
    count = losses.sum()
    return beta.ppf(1 - delta, count + 1, len(losses) - count)


@pytest.mark.parametrize("confidence", ["betting", "hoeffding"])
@pytest.mark.parametrize("per_unit", [1, 2])
def test_the_walk_is_the_literal_one(confidence, per_unit):
    truth, band, mask, weights, subgroup = data(360 if confidence == "hoeffding" else N * per_unit)
    unit_of = np.arange(len(truth)) // per_unit
    promises = promises_of(mask, weights, subgroup)
    units = unit_of + 1000 if per_unit > 1 else None
    cal = pb.calibrate(truth, band, promises=promises, bound=confidence, seed=1, method=pb.RCPS(n_fit=10), units=units)
    order = np.random.default_rng(1).permutation(unit_of.max() + 1)[10:]
    path = scalar_path(pb.CalibrationData(truth, band), Single())
    bound = getattr(pb.bounds, confidence)
    fitted = np.isin(unit_of, np.setdiff1d(unit_of, order))
    most = max(mask[fitted & (unit_of == unit)].sum() for unit in np.unique(unit_of[fitted]))

    def at(knot):
        widening = path.points[0, knot]
        interval = pb.Interval(np.clip(band.lower - widening, 0, 1), np.clip(band.upper + widening, 0, 1))
        return [literal_risks(truth, interval, promise, unit_of, order, most) for promise in promises]

    def passes(knot):
        tails = [promise.kind == "tail" and per_unit == 1 and confidence == "betting" for promise in promises]
        tests = [clopper_pearson if exact else bound for exact in tails]
        return all(test(values, DELTA) < level for test, (values, level) in zip(tests, at(knot), strict=True))

    (knot,) = np.flatnonzero(path.points[0] == cal.widening[0])
    assert passes(knot)
    assert not passes(knot - 1)
    for wider in np.linspace(knot, len(path) - 1, 5).astype(int):
        assert passes(wider)
    for found, promise, (values, _) in zip(cal.promises, promises, at(knot), strict=True):
        assert found.certifying == len(values)
        if promise.weighting != "pixels":
            assert found.risk == pytest.approx(values.mean() * (promise.cap or 1.0), abs=1e-12)
    pooled = (mask & ~cal.apply(band).contains(truth))[~fitted].sum() / mask[~fitted].sum()
    assert cal.promises[-1].risk == pytest.approx(pooled, abs=0.02)  # units larger than any that fitted count for less
    assert cal.promises[-1].most == most


def test_counting_images_weighs_units_by_their_images_with_the_region():
    truth, band, mask, *_ = data(200)
    units = np.repeat(np.arange(80), np.where(np.arange(80) % 2, 4, 1))
    promise = pb.share(0.3, within=mask, name="mask", weighting="images")
    cal = pb.calibrate(truth, band, promises=[promise], method=pb.RCPS(n_fit=20), units=units + 1000)
    has = mask.any(axis=(1, 2))
    fitting = np.isin(units, np.random.default_rng(0).permutation(80)[:20])
    certifying = has & ~fitting
    missed = (mask & ~cal.apply(band).contains(truth)).sum(axis=(1, 2))[certifying] / mask.sum(axis=(1, 2))[certifying]
    assert cal.promises[0].most == np.bincount(units[has & fitting]).max()
    assert cal.promises[0].risk == pytest.approx(missed.mean(), abs=1e-9)
    assert "a unit of more than 3 such images as one of 3" in cal.guarantee


# ---------------------------------------------------------------- the same bytes


@pytest.mark.parametrize("settings", [{"method": "rcps"}, {"groups": "band"}, {"method": "krcps", "k": 3}])
def test_one_share_of_all_pixels_is_the_short_form(settings):
    truth, band, *_ = data()
    for confidence in ("betting", "hoeffding_bentkus"):
        how = {"bound": confidence, **settings}
        short = flat_calibrate(truth, band, risk_level=0.3, **how)
        assert flat_calibrate(truth, band, promises=[pb.share(0.3)], **how).to_bytes() == short.to_bytes()
        (promise,) = short.promises
        assert (promise.name, promise.at_most, promise.risk) == ("all pixels", 0.3, short.risk)


def test_regions_may_lie_anywhere_and_blocks_be_cut_anyhow(tmp_path, monkeypatch):
    import dask.array as da
    import zarr

    truth, band, mask, weights, subgroup = data()
    how = {"groups": partial(pb.groups.fit_band_groups, width=3, room=1), "n_fit": 20}
    whole = flat_calibrate(truth, band, promises=promises_of(mask, weights, subgroup), **how).to_bytes()
    lazy = da.from_array(mask, chunks=(7, 8, 8)), zarr.create_array(tmp_path / "w.zarr", data=weights), subgroup
    assert flat_calibrate(truth, band, promises=promises_of(*lazy), **how).to_bytes() == whole
    stored = [zarr.create_array(tmp_path / f"{i}.zarr", data=x) for i, x in enumerate((truth, band.lower, band.upper))]
    found = flat_calibrate(
        stored[0], pb.Band(*stored[1:]), promises=promises_of(mask.astype(np.uint8), *lazy[1:]), **how
    )
    assert found.to_bytes() == whole
    monkeypatch.setattr("pixelbounds.images.library.block_of", lambda size, rows: 4)
    monkeypatch.setattr("pixelbounds.images.library.Runner.table_bytes", 2**14)  # to a file
    assert flat_calibrate(truth, band, promises=promises_of(mask, weights, subgroup), **how).to_bytes() == whole


# ---------------------------------------------------------------- the path for several promises


def test_the_path_for_several_promises_is_shorter_and_groups_without_a_miss_widen():
    rng = np.random.default_rng(0)
    place = np.zeros((12, 12), int)
    place[:3, :3] = 1  # a hard organ
    place[6:, 6:] = 2  # covered by the band as it is

    def draw(n):
        centre = rng.uniform(0.3, 0.7, (n, 12, 12))
        deviation = np.array([0.03, 0.08, 0.001])[place]
        truth = centre + deviation * rng.standard_normal(centre.shape)
        return np.clip(truth, 0, 1), pb.Band(centre - 0.03, centre + 0.03)

    truth, band = draw(300)
    organ = np.broadcast_to(place == 1, truth.shape)
    how = {"groups": place, "failure_prob": 0.1}
    both = flat_calibrate(truth, band, promises=[pb.share(0.1), pb.share(0.1, within=organ, name="organ")], **how)
    for promise in both.promises:
        assert 0.06 < promise.risk < 0.1  # neither is far from its level
    with pytest.MonkeyPatch.context() as patch:  # the frontier that does not know of the organ, walked until both hold
        patch.setattr(FittingImages, "weighed", lambda fitting, target: ())
        blind = flat_calibrate(truth, band, promises=[pb.share(0.1), pb.share(0.1, within=organ, name="organ")], **how)
    assert both.apply(band).length.mean() < 0.95 * blind.apply(band).length.mean()
    tight = flat_calibrate(truth, band, promises=[pb.tail(0.02, above=0.0), pb.share(0.05, within=organ)], **how)
    assert (tight.widening > 0).all()
    assert tight.apply(band).length.max() < 0.999


# ---------------------------------------------------------------- file and sentence


def test_a_file_keeps_its_promises_and_refuses_strange_ones():
    truth, band, mask, weights, subgroup = data()
    cal = pb.calibrate(truth, band, promises=promises_of(mask, weights, subgroup), method=pb.RCPS(n_fit=9))
    again = calibration_from_bytes(cal.to_bytes())
    assert again.promises == cal.promises
    assert again.guarantee == cal.guarantee
    assert again.to_bytes() == cal.to_bytes()
    good = cal.promises[0].state()
    for change in (
        {"kind": "hope"}, {"name": "two\nlines"}, {"place": "moon"}, {"at_most": 1.5}, {"certifying": 0},
        {"certifying": 1.5}, {"weighting": "stars"}, {"extra": 1}, {"risk": "low"}, {"cap": float("nan")},
        {"risk": 1e400},
    ):  # fmt: skip
        refuses(lambda change=change: CertifiedPromise.from_state({**good, **change}), error=(ValueError, TypeError))
    refuses(lambda: replace(cal, promises=()), "promises")


# ---------------------------------------------------------------- at the door


def test_what_cannot_be_promised_is_refused_at_the_door():
    truth, band, mask, weights, _ = data()

    def tried(*promises, **how):
        return lambda: flat_calibrate(truth, band, promises=list(promises), **{"method": "rcps", **how})

    refuses(lambda: pb.calibrate(truth, band), "risk_level", "promises")
    refuses(lambda: pb.calibrate(truth, band, risk_level=0.1, promises=[pb.share(0.1)]), "either")
    refuses(tried(), "promises", "share")
    refuses(tried("share:0.1"), "promise 1", "pb.share", error=TypeError)
    refuses(lambda: pb.share(0), "at_most", "0")
    refuses(lambda: pb.share(0.1, cap=0.05), "cap", "0.05")
    refuses(lambda: pb.share(0.1, cap=1.5), "cap", "1.5")
    refuses(lambda: pb.share(0.1, cap=0.5, weighting="pixels"), "cap", "pixels")
    refuses(lambda: pb.share(0.1, weighting="voxels"), "weighting", "pixels")
    refuses(lambda: pb.share(0.1, name="a\nb"), "name")
    refuses(lambda: pb.tail(0.1, above=1.0), "above", "1.0")
    refuses(lambda: pb.tail(0.1, above=None), "above", error=TypeError)
    refuses(tried(pb.share(0.3, within=mask[:, :4])), "within of promise 1", "(90, 4, 8)", "(90, 8, 8)")
    refuses(tried(pb.share(0.3, within=mask.astype(str))), "dtype", error=TypeError)
    refuses(tried(pb.share(0.3, within=mask * 2, name="organ")), "'organ'", "labels == 2", "see image")
    refuses(tried(pb.share(0.3, within=np.arange(N))), "one value per image")
    for value, words in ((-0.1, "below 0"), (np.nan, "NaN")):
        bad = weights.copy()
        bad[41, 2, 2] = value
        refuses(tried(pb.share(0.3, within=bad, name="w")), "'w'", words, "image 41")
    refuses(tried(pb.share(0.3, within=mask, weighting="pixels")), "fitting images", "n_fit")
    none = np.zeros_like(mask)
    refuses(tried(pb.share(0.3, within=none, name="spleen")), "'spleen'", "none", error=pb.NoGuarantee)
    none[:12] = True
    refuses(
        tried(pb.share(0.3), pb.share(0.1, within=none, name="spleen")), "'spleen'", "by 12 images", "at least 23",
        error=pb.NoGuarantee,
    )  # fmt: skip


# ---------------------------------------------------------------- rare regions


def test_who_certifies_is_drawn_from_all_also_where_something_is_rare():
    """Sparing units that have a rare region for certification would certify all else on too many of them."""
    rng = np.random.default_rng(0)
    more = []
    for _ in range(1500):
        having = rng.random(80) < 0.3
        shuffled = rng.permutation(80)
        fit = _enough(Need(having, 10), shuffled, 40)
        assert 1 <= fit <= 40
        more.append((having[shuffled[fit:]] - 0.3).sum())
    assert abs(np.mean(more)) < 4 * np.std(more) / np.sqrt(len(more))
    spared = [(having.sum() - 0.3 * 40) for having in (rng.random(80) < 0.3 for _ in range(100))]  # none of them fits
    assert np.mean(spared) > 20 * np.std(more) / np.sqrt(len(more))
