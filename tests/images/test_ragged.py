"""Images of different sizes: each counts the same, and where sizes happen to agree nothing changes."""

import dataclasses

import numpy as np
import pytest
import zarr
from refusals import refuses
from tensors import as_tensor
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds.calibration import data
from pixelbounds.calibration.families import Family, additive
from pixelbounds.calibration.losses import l01
from pixelbounds.images import library
from pixelbounds.images.ends import one_band
from pixelbounds.images.ragged import Ragged, flat_images, read_ragged, write_ragged

SHAPES = ((6, 9), (11, 5), (8, 8), (3, 20))
N = 120


def images(n=N, seed=0, shapes=SHAPES, dtype=np.float32):
    """Lists of truth, lower and upper ends, of changing shapes."""
    rng, parts = np.random.default_rng(seed), ([], [], [])
    for i in range(n):
        h, w = shapes[i % len(shapes)]
        truth, band = heteroscedastic(1, rng, size=20, dtype=dtype)
        for part, x in zip(parts, (truth, band.lower, band.upper), strict=True):
            part.append(x[0, :h, :w])
    return parts


def as_ragged(truth, band):
    return Ragged(list(truth)), band.map(lambda x: Ragged(list(x)))


HOWS = {
    "band": {"method": pb.Frontier(groups="band")},
    "learned": {"method": pb.Frontier(groups="learned", k=4)},
    "the shorter": {},
    "exact": {"method": pb.Frontier(groups="band"), "bound": "hoeffding_bentkus"},
    "rcps": {"method": "rcps", "bound": "bentkus"},
    "no limits": {"method": pb.Frontier(groups="band"), "limits": None},
    "units": {"method": pb.Frontier(groups="band"), "units": np.arange(N) // 2, "risk_level": 0.3},
    "own loss": {"method": "rcps", "risk_level": None, "promises": [pb.loss(0.2, lambda x, i: l01(x, i))]},
    "own family": {"family": Family("own", additive.widen, additive.score)},
}


@pytest.mark.parametrize("how", HOWS.values(), ids=HOWS)
def test_images_that_happen_to_agree_in_size_give_what_one_array_gives(how):
    truth, band = heteroscedastic(N, np.random.default_rng(1), size=8)
    words = {"risk_level": 0.2, **how}
    if "family" in words:
        band = dataclasses.replace(band, family=words.pop("family"))
    one, several = pb.calibrate(truth, band, **words), pb.calibrate(*as_ragged(truth, band), **words)
    for name in ("widening", "risk", "curve", "chosen", "limits"):
        np.testing.assert_array_equal(getattr(one, name), getattr(several, name), err_msg=name)
    for name, x in one.grouping.state()[1].items():
        np.testing.assert_array_equal(x, several.grouping.state()[1][name])
    assert one.record.digest == several.record.digest
    assert (one.record.pixels, several.record.pixels) == ((8, 8), ())
    interval, parts = one.apply(band), several.apply(as_ragged(truth, band)[1])
    np.testing.assert_array_equal(interval.lower, np.stack(list(parts.lower)))
    np.testing.assert_array_equal(interval.upper, np.stack(list(parts.upper)))
    first, second = pb.evaluate(truth, interval), pb.evaluate(Ragged(list(truth)), parts)
    assert {**first.to_dict(), "pixels": []} == second.to_dict()


@pytest.mark.parametrize("confidence", ["betting", "hoeffding_bentkus"])
def test_the_certified_loss_is_the_mean_over_images_of_their_own_share(confidence):
    truth, lower, upper = images()
    cal = pb.calibrate(
        truth, pb.Band(lower, upper), risk_level=0.2, method=pb.Frontier(groups="band"), bound=confidence
    )
    interval = cal.apply(pb.Band(lower, upper))
    share = np.array([1 - inside.mean() for inside in interval.contains(truth)])
    certifying = np.sort(np.random.default_rng(0).permutation(N)[cal.record.fitting :])
    assert share[certifying].mean() == pytest.approx(cal.risk, abs=1e-12)
    pixels = np.concatenate([inside.reshape(-1) for inside in interval.contains(truth)])
    assert abs(1 - pixels.mean() - share.mean()) > 1e-5  # weighing pixels alike would be something else
    ev = pb.evaluate(truth, interval)
    assert ev.risk == pytest.approx(share.mean(), abs=1e-12)
    np.testing.assert_allclose(ev.by_image, share, atol=1e-15)
    assert ev.mean_length == pytest.approx(np.mean([x.mean(dtype=np.float64) for x in interval.length]), rel=1e-6)
    lengths = np.concatenate([x.reshape(-1) for x in interval.length])
    assert ev.median_length == pytest.approx(np.median(lengths), rel=0.01)
    assert ev.risk_interval[0] < ev.risk < ev.risk_interval[1]
    assert "different sizes" in str(ev)


def test_every_image_counts_the_same_whatever_its_size():
    """A tenth of the images are huge and missed throughout: a third of the pixels, but a tenth of the loss."""
    truth = [np.full((30, 30) if i % 10 == 0 else (10, 10), 0.5) for i in range(100)]
    lower = [x - 0.1 + 0.15 * (i % 10 == 0) for i, x in enumerate(truth)]
    interval = pb.Interval(lower, [x + 0.2 for x in lower])
    ev = pb.evaluate(truth, interval)
    assert ev.risk == pytest.approx(0.1)
    cal = pb.calibrate(truth, pb.Band(lower, interval.upper), risk_level=0.2, method="rcps")
    assert cal.widening[0] == 0
    assert cal.risk == pytest.approx(0.1)


@pytest.mark.parametrize("rows", [1, 7, N])
def test_how_a_set_is_cut_does_not_matter(rows, monkeypatch):
    truth, lower, upper = images()
    words = {"risk_level": 0.2, "method": pb.Frontier(groups="band"), "bound": "hoeffding_bentkus"}
    whole = pb.calibrate(truth, pb.Band(lower, upper), **words)
    sizes = []
    for room in (library, data):
        monkeypatch.setattr(room, "block_of", lambda size, n: sizes.append(size) or rows)
    assert pb.calibrate(truth, pb.Band(lower, upper), **words).to_bytes() == whole.to_bytes()
    assert sizes


def test_lists_of_bands_and_other_arrays_are_taken():
    truth, lower, upper = images()
    how = {"risk_level": 0.2, "method": pb.Frontier(groups="band")}
    want = pb.calibrate(truth, pb.Band(lower, upper), **how)
    bands = [pb.Band(low[None], high[None]) for low, high in zip(lower, upper, strict=True)]
    assert pb.calibrate(truth, bands, **how).to_bytes() == want.to_bytes()
    tensors = [[as_tensor(np.ascontiguousarray(x)) for x in part] for part in (truth, lower, upper)]
    assert pb.calibrate(tensors[0], pb.Band(*tensors[1:]), **how).to_bytes() == want.to_bytes()
    stores = [[zarr.array(x) for x in part] for part in (truth, lower, upper)]
    assert pb.calibrate(stores[0], pb.Band(*stores[1:]), **how).to_bytes() == want.to_bytes()
    np.testing.assert_array_equal(want.apply(bands).lower[7], want.apply(pb.Band(lower, upper)).lower[7])
    one_image = want.apply(bands[7])
    np.testing.assert_array_equal(one_image.lower[0], want.apply(bands).lower[7])
    assert one_band(bands[:1]).pixels == SHAPES[0]


def test_a_store_is_read_image_by_image(tmp_path):
    truth, lower, upper = images()
    lower[3] = np.zeros_like(lower[3])  # what zarr would leave out were it the fill value
    write_ragged(tmp_path / "set.zarr", {"truth": truth, "lower": lower, "upper": upper})
    assert [x.name for x in tmp_path.iterdir()] == ["set.zarr"]
    found = read_ragged(tmp_path / "set.zarr")
    assert list(found) == ["lower", "truth", "upper"]
    assert found["truth"].shapes == [x.shape for x in truth]
    np.testing.assert_array_equal(found["upper"][5], upper[5])
    how = {"risk_level": 0.2, "method": pb.Frontier(groups="learned", k=4)}
    cal = pb.calibrate(found["truth"], pb.Band(found["lower"], found["upper"]), **how)
    assert cal.to_bytes() == pb.calibrate(truth, pb.Band(lower, upper), **how).to_bytes()
    cal.save(tmp_path / "cal.safetensors")
    again = pb.load_calibration(tmp_path / "cal.safetensors")
    interval, stored = again.apply(pb.Band(lower, upper)), again.apply(pb.Band(found["lower"], found["upper"]))
    for a, b in zip(interval.upper, stored.upper, strict=True):
        np.testing.assert_array_equal(a, b)
    assert pb.evaluate(found["truth"], stored).to_dict() == pb.evaluate(truth, interval).to_dict()


def test_bad_images_are_refused_by_number():
    truth, lower, upper = images(40)
    band = pb.Band(lower, upper)
    wrong = [x.copy() for x in truth]
    wrong[17][0, 0] = np.nan
    refuses(
        lambda: pb.calibrate(wrong, band, risk_level=0.3, method=pb.Frontier(groups="band")), "truth of image 17", "NaN"
    )
    crossed = [x.copy() for x in lower]
    crossed[23][1, 1] = 2.0
    refuses(lambda: pb.Band(crossed, upper), "band of image 23", "lower above upper")
    refuses(lambda: pb.Band(lower, [*upper[:-1], upper[-1].T]), "of image 39 has shape (20, 3)", "(3, 20)")
    refuses(lambda: pb.calibrate(truth[:-1], band, risk_level=0.3), "shape")
    single = [pb.Band(low, high) for low, high in zip(lower, upper, strict=True)]
    refuses(lambda: pb.calibrate(truth, single, risk_level=0.3), "40 Bands hold", "Band(lower[None], upper[None])")
    refuses(lambda: pb.Band(lower, [*upper[:-1], upper[-1][None]]), "as many axes")
    refuses(lambda: pb.Band([x.astype(int) for x in lower], upper), "int", error=TypeError)
    refuses(lambda: flat_images(np.zeros(5), [(2, 3)]), "6 pixels")
    refuses(lambda: flat_images(np.zeros(6), [(2.0, 3.0)]), "whole numbers")
    refuses(lambda: Ragged([]), "empty")
    refuses(lambda: one_band([band, pb.Band(lower, upper, source="x")]), "one source")
