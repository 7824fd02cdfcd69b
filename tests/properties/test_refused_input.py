"""What is refused at the door: tables of settings, of calls, and of bands that a calibration was not made for.

Each row has what is wrong and the words that the message must hold: the value or the image, and the remedy. The fuzzer
of `test_garbage` covers the rest.
"""

from fractions import Fraction

import dask.array as da
import numpy as np
import pytest
import zarr
from flat import flat_calibrate
from refusals import HERE, METHODS, SIZE, N, data, every_method, refuses, refuses_to_calibrate
from tensors import as_tensor

import pixelbounds as pb
from pixelbounds import bounds, groups
from pixelbounds.calibration.data import CalibrationData
from pixelbounds.calibration.losses import l01

TRUTH, BAND = data()
LABELS = np.zeros((N, SIZE, SIZE), int)
LABELS[:, :, 3:] = 1
FEATURES = np.random.default_rng(0).normal(size=(N, 2, SIZE, SIZE))
LABELLED = groups.LabelledGroups(np.array([0]), groups.Single(), np.array([[0], [1]], np.int32))
HALVES = np.arange(SIZE * SIZE).reshape(SIZE, SIZE) % 2
NAMES = [f"P{i // 2}" for i in range(N)]
NAN, INF, HUGE = np.nan, np.inf, 10**400


def with_value(x, place, value):
    """A copy with another value at a place."""
    changed = np.array(x, copy=True)
    changed[place] = value
    return changed


def covered(truth, interval):
    """A loss that rises as intervals grow."""
    return 1 - l01(truth, interval)


def length(truth, interval):
    """Another one."""
    return 0.1 * (interval.upper - interval.lower).mean(axis=(1, 2))


# ---------------------------------------------------------------- settings of calibrate

LEVELS = [
    ({name: level}, ValueError, (name, "inf" if level == HUGE else repr(level)))
    for name in ("risk_level", "failure_prob") for level in (0, 1, -0.1, 1.5, NAN, INF, HUGE)
]  # fmt: skip
COUNTS = [
    ({"method": "krcps", name: value}, error, (name, word))
    for name in ("n_fit", "d_opt", "k")
    for value, error, word in (
        (0, ValueError, "at least"), (-1, ValueError, "at least"), (1.5, TypeError, "whole number"),
        ("3", TypeError, "whole number"), (True, TypeError, "whole number"), ([2], TypeError, "whole number"),
    )
]  # fmt: skip
BOTH = (ValueError, TypeError)
SETTINGS = [
    *LEVELS, *COUNTS,
    *[({"risk_level": x}, TypeError, ("risk_level",)) for x in ("0.1", True, [0.1], 0.1j)],
    *[({"failure_prob": x}, TypeError, ("failure_prob",)) for x in ("0.1", None, True)],
    *[({"method": m, "groups": by, "n_fit": n}, ValueError, (f"n_fit is {n}", f"only {N} images", "lower n_fit"))
      for m, by in METHODS for n in (N, 10**30)],
    *[({"method": m, "groups": by, "k": 10**30}, ValueError, ("k is", "at most")) for m, by in METHODS[1:]],
    # names
    ({"method": "fronteir"}, ValueError, ("method is 'fronteir'", "did you mean 'frontier'", "rcps")),
    ({"method": "zzz"}, ValueError, ("method is 'zzz'", "frontier, krcps, rcps")),
    ({"bound": "beting"}, ValueError, ("bound is 'beting'", "did you mean 'betting'", "hoeffding")),
    ({"groups": "lerned"}, ValueError, ("groups is 'lerned'", "did you mean 'learned'", "band")),
    ({"family": "multiplicitive"}, ValueError, ("did you mean 'multiplicative'",)),
    *[({name: 3.5}, TypeError, (name,)) for name in ("method", "family", "bound", "groups", "loss")],
    # options that do not fit together
    ({"method": "rcps", "groups": "band"}, ValueError, ("rcps has no setting 'groups'", "leave")),
    ({"d_opt": 5}, ValueError, ("d_opt", "frontier has no setting")),
    ({"direction": [1.0]}, ValueError, ("direction", "frontier has no setting")),
    ({"method": "krcps", "groups": "band"}, ValueError, ("'band'", "frontier")),
    ({"method": "krcps", "groups": "learned"}, ValueError, ("'learned'", "frontier")),
    ({"method": "krcps", "groups": LABELS[0], "k": 2}, ValueError, ("k sets", "leave it out")),
    ({"groups": np.zeros((SIZE, SIZE))}, ValueError, ("float64", "whole numbers")),
    ({"groups": np.zeros((SIZE, 3), int)}, ValueError, ("(6, 3)", "(6, 6)")),
    ({"groups": LABELS}, ValueError, ("labels=",)),
    ({"groups": groups.Partition(np.zeros((3, 3), np.int32))}, ValueError, ("(3, 3)", "(6, 6)")),
    ({"groups": LABELLED}, ValueError, ("uses labels", "labels=")),
    ({"labels": LABELS, "method": "rcps"}, ValueError, ("rcps has one group",)),
    ({"labels": LABELS[0]}, ValueError, ("labels", "shape")),
    ({"method": "krcps", "d_opt": 5, "labels": LABELS}, ValueError, ("d_opt", "leave")),
    ({"method": "rcps", "features": FEATURES}, ValueError, ("features are for learned groups",)),
    ({"groups": "band", "features": FEATURES}, ValueError, ("features are for learned groups",)),
    *[({"method": "krcps", "groups": HALVES, "direction": x}, BOTH, ("direction", "2 finite values"))
      for x in ([1.0, -1.0], [0.0, 0.0], [1.0], [1.0, NAN], [[1.0, 1.0]], "up", [None, 1], [1j, 1j])],
    *[({"method": "krcps", "gammas": x}, BOTH, ("gammas", "[0, 1)"))
      for x in ([], [1.0], [-0.1], [0.5, NAN], "half", [None], [[0.1, 0.2]], [0.5j], [HUGE])],
    # units
    *[({"method": "rcps", "units": x}, BOTH, ("units", "patient"))
      for x in (np.zeros(N - 1), np.zeros((N, 2)), "patient", 3, [], np.full(N, NAN), [None] * N, [[1], [1, 2]])],
    ({"units": ["", " ", *NAMES[2:]]}, ValueError, ("units of 2 images are missing",)),
    ({"units": np.zeros(N, int), "groups": "band"}, ValueError, ("give more units", "1 cannot both")),
    *[({"units": NAMES, "unit_name": x}, ValueError, ("would promise more",))  # a mean over images is certified
      for x in ("image", "Images", "future image", "pixel", "values")],
    # limits and seeds
    *[({"limits": x}, ValueError, ("limits", "first must be below the second"))
      for x in ((1.0, 0.0), (0.5, 0.5), (NAN, 1.0), (0.0, NAN))],
    *[({"limits": x}, TypeError, ("limits", "(0.0, 1.0)"))
      for x in (0.5, (1.0,), (0.0, 0.5, 1.0), "01x", ("a", "b"), (0, HUGE))],
    ({"seed": -1}, ValueError, ("seed",)),
    *[({"seed": x}, TypeError, ("seed",)) for x in (1.5, "a", None)],
    # several bands, families
    ({"band": {}}, ValueError, ("0 candidates",)),
    ({"band": {"a": BAND, "b": BAND}, "method": "rcps"}, ValueError, ("no image fits",)),
    ({"family": "scaled"}, ValueError, ("mean_and_std",)),
    ({"band": BAND.map(lambda x: x - 1), "family": "multiplicative", "limits": None}, ValueError, ("negative",)),
    # losses of the user
    ({"method": "rcps", "loss": lambda truth, interval: np.full(len(truth), NAN)}, ValueError, ("nan", "[0, 1]")),
    ({"method": "rcps", "loss": lambda truth, interval: np.zeros(truth.shape)}, ValueError, ("shape", "one per image")),
    ({"method": "rcps", "loss": lambda truth, interval: 0.1}, ValueError, ("shape", "one per image")),
    *[({"method": m, "groups": by, "loss": x}, ValueError, ("rises where", "nonincreasing"))
      for x in (covered, length) for m, by in (("rcps", None), ("krcps", "loss"), ("frontier", "band"))],
    # truth, band and features
    ({"truth": np.full((N, 4), 7.0), "band": pb.Band(np.full((N, 4), 0.5), np.ones((N, 4)))}, ValueError,
     ("100.000% of the values",)),
    ({"band": BAND.map(lambda x: x * 255)}, ValueError, ("band of image", "far outside", "one scale")),
    ({"band": BAND.lower}, TypeError, ("ndarray", "pixelbounds.Band(lower, upper)")),
    ({"truth": TRUTH[:, 0]}, ValueError, ("truth", f"({N}, {SIZE})", f"({N}, {SIZE}, {SIZE})")),
    ({"truth": TRUTH[:-1]}, ValueError, ("truth", "must agree")),
    ({"features": np.zeros((3, SIZE, SIZE))}, ValueError, ("features", "(3, 6, 6)", "(n, f, *pixels)")),
    ({"features": [np.zeros(TRUTH.shape), np.zeros((3, SIZE, SIZE))]}, ValueError, ("features[1]", "must agree")),
    *[({"features": wrap(with_value(FEATURES[:, 0], (21, 0, 0), NAN))}, ValueError, ("features of image 21",))
      for wrap in (np.asarray, as_tensor, da.from_array, zarr.array)],
    *[({"truth": np.zeros(shape)}, ValueError, (str(shape), "at least one image of at least one pixel"))
      for shape in ((0,), (0, 4, 4), (3, 0), (3, 4, 0))],
    ({"truth": TRUTH[:1], "band": BAND[:1], "method": "rcps"}, ValueError, ("by 1 images", "that certify")),
    *[({"truth": TRUTH[:1], "band": BAND[:1], "method": m, "groups": by}, ValueError, ("more images", "1 cannot"))
      for m, by in METHODS[1:]],
]  # fmt: skip


@pytest.mark.parametrize("settings, error, words", SETTINGS)
def test_calibrate_refuses(settings, error, words):
    refuses_to_calibrate(*words, error=error, **settings)


# ---------------------------------------------------------------- calls

INTERVAL = pb.Interval(np.zeros((2, 2)), np.ones((2, 2)))
LOWER, UPPER = np.zeros((6, 4)), np.ones((6, 4))
CROSSED = with_value(LOWER, (4, slice(2)), 2.0)
EMPTY = [(0,), (0, 4, 4), (3, 0), (3, 4, 0)]
NO_IMAGES = [
    np.zeros((2, 3), np.uint8), np.zeros((2, 3), np.int64), np.zeros((2, 3), bool), np.zeros((2, 3), complex),
    np.array([[None, 1.0]]), [["a"]], "text", [[1.0], [1.0, 2.0]], np.zeros((2, 3), np.longdouble), None, object(),
]  # fmt: skip
CALLS = [
    *[(lambda f=f, x=x: f(x), ValueError, (name, "inf" if x == HUGE else repr(x)))
      for x in (0, 1, -0.1, NAN, INF, HUGE)
      for f, name in ((lambda x: pb.calibrated_quantiles(np.zeros((1, 40, 2)), x), "miscoverage"),
                      (pb.least_samples, "miscoverage"), (pb.least_images, "risk_level"),
                      (lambda x: pb.least_images(0.1, x), "failure_prob"))],
    *[(lambda x=x: pb.least_samples(x), TypeError, ("miscoverage",)) for x in ("0.1", None, True, [0.1], 0.1j)],
    *[(lambda x=x: pb.least_samples(x), ValueError, ("miscoverage", "strictly between 0 and 1"))
      for x in (Fraction(0), Fraction(3, 2), Fraction(HUGE))],
    *[(lambda a=a, m=m: pb.calibrated_quantiles(np.zeros((2, m, 3)), a), ValueError, (f"{m} samples", f"{m + 1}"))
      for a, m in ((0.1, 18), (0.05, 38), (0.01, 198), (0.5, 2))],
    *[(lambda x=x: bounds.betting(x, 0.1), error, (word,))
      for x, error, word in (([], ValueError, "at least one"), ([[0.1, 0.2]], ValueError, "(1, 2)"),
                             ([0.1, NAN], ValueError, "image 1 is nan"), ([0.1, 1.5], ValueError, "image 1 is 1.5"),
                             (["a"], TypeError, "losses"), ([0.1j], TypeError, "losses"))],
    *[(lambda b=b: b(np.zeros(3), 1.5), ValueError, ("failure_prob",)) for b in bounds.BOUNDS.values()],
    (lambda: groups.fit_band_groups(CalibrationData(TRUTH, BAND), np.arange(9), width=0), ValueError, ("width is 0",)),
    (lambda: pb.regions.edges(TRUTH, top=1.5), ValueError, ("top", "1.5")),
    (lambda: pb.regions.label(TRUTH, 1), TypeError, ("whole numbers",)),
    (lambda: pb.regions.dilate(TRUTH, 1), TypeError, ("bool",)),
    # shapes and types
    (lambda: pb.Band(TRUTH, TRUTH[:5]), ValueError, ("upper", f"({5}, {SIZE}, {SIZE})", "must agree")),
    (lambda: pb.Band(TRUTH, TRUTH, TRUTH[:, 0]), ValueError, ("centre", "must agree")),
    (lambda: pb.Interval(TRUTH, TRUTH[:5]), ValueError, ("must agree",)),
    (lambda: l01(TRUTH[:3], pb.Interval(TRUTH, TRUTH)), ValueError, ("truth", "must agree")),
    (lambda: pb.Interval(TRUTH, TRUTH).contains(TRUTH[:3]), ValueError, ("truth", "must agree")),
    (lambda: pb.conffusion(TRUTH, TRUTH[:3]), ValueError, ("must agree",)),
    (lambda: pb.quantile_regression(TRUTH, TRUTH, TRUTH[:3]), ValueError, ("must agree",)),
    *[(lambda s=s: pb.Band(np.zeros(s), np.ones(s)), ValueError, (str(s), "at least one image")) for s in EMPTY],
    *[(lambda s=s: pb.calibrated_quantiles(np.zeros((*s, 19)), 0.1, axis=-1), ValueError, ("at least one image",))
      for s in EMPTY],
    *[(lambda x=x: pb.Band(x, x), TypeError, ("Band" if x is None else "band.lower",)) for x in NO_IMAGES],
    (lambda: BAND[3], TypeError, ("band[3:4]",)),
    # values
    *[(lambda name=name, x=x: pb.Band(**{"lower": LOWER, "centre": UPPER / 2, "upper": UPPER,
                                         name: with_value(UPPER / 2, (3, 1), x)}),
       ValueError, (f"band.{name} of image 3", "1 values"))
      for name in ("lower", "upper", "centre") for x in (NAN, INF, -INF)],
    (lambda: pb.Band(CROSSED, UPPER), ValueError, ("image 4", "lower above upper at 2 pixels", "swap", "conffusion")),
    *[(lambda w=w: pb.calibrate(UPPER / 2, pb.Band(w(CROSSED), w(UPPER)), risk_level=0.2, limits=(0, 2), method="rcps"),
       ValueError, ("image 4", "lower above upper at 2")) for w in (as_tensor, da.from_array, zarr.array)],
    (lambda: l01(np.array([[0.5, 0.5], [0.5, NAN]]), INTERVAL), ValueError, ("truth of image 1", "NaN")),
    (lambda: l01(LOWER, pb.Interval(LOWER, np.full(LOWER.shape, NAN))), ValueError, ("interval", "NaN")),
    (lambda: l01(LOWER, (0, 1)), TypeError, ("pixelbounds.Interval",)),
    (lambda: CalibrationData(with_value(TRUTH, (11, 0, 0), NAN), BAND).gather(np.array([2, 5, 11, 40])), ValueError,
     ("truth of image 11",)),
]  # fmt: skip


@pytest.mark.parametrize("call, error, words", CALLS)
def test_a_call_refuses(call, error, words):
    refuses(call, *words, error=error, unchanged=(TRUTH, BAND.lower, BAND.upper, LOWER, UPPER, CROSSED))


# ---------------------------------------------------------------- whichever method it is


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@every_method
def test_truth_that_is_not_finite_names_its_image(method, groups, value):
    """Whichever image it is: fitting images are named by their own number too."""
    for image in (0, 13, 59):
        truth = with_value(with_value(TRUTH, (image, 2, 3), value), (image, 4, 0), value)
        words = f"truth of image {image} has 2 values that are NaN or infinite"
        refuses_to_calibrate(words, "correct or drop", truth=truth, method=method, groups=groups)


@every_method
def test_limits_must_contain_the_truth_and_say_how_much_is_outside(method, groups):
    truth = with_value(TRUTH, (slice(None), 0, 0), 1.25)
    words = ("1.25", "outside the limits (0, 1)", "% of the values", "rescale")
    refuses_to_calibrate(*words, truth=truth, method=method, groups=groups)


@pytest.mark.parametrize("bound", sorted(bounds.BOUNDS))
def test_too_few_images_say_how_far_it_got_and_how_many_are_needed(bound):
    least = pb.least_images(0.02, 0.1, bound=bound)
    how = {"groups": "band", "n_fit": 30, "risk_level": 0.02, "bound": bound}
    if least <= 30:
        flat_calibrate(TRUTH, BAND, **how)
        return
    words = ("risk level of 0.02 cannot be certified", f"by {N - 30} images", bound, "Valid are fresh images")
    refuses_to_calibrate(f"Give at least {least} images", *words, **how)


def test_a_path_that_cannot_be_certified_says_how_far_it_got():
    """A multiplicative lower end never reaches a truth of 0: half of the pixels stay missed."""
    truth = np.zeros((N, 4))
    truth[:, :2] = np.random.default_rng(0).uniform(0.45, 0.55, (N, 2))
    band = pb.Band(np.full((N, 4), 0.3), np.full((N, 4), 0.4))
    world = {"truth": truth, "band": band, "family": "multiplicative"}
    words = ("cannot be certified", "0.5", "multiplicative", "Use the additive", "Valid are fresh images")
    for method, by in (("rcps", None), ("frontier", "band")):
        refuses_to_calibrate(*words, method=method, groups=by, **world)
    refuses_to_calibrate("cannot be covered", "additive", method="krcps", **world)


def test_a_loss_outside_the_unit_interval_names_its_image():
    def loss(truth, interval):
        return l01(truth, interval) + 3 * (truth[:, 0, 0] == 0.123)

    truth = with_value(TRUTH, (47, 0, 0), 0.123)
    refuses_to_calibrate("loss of image 47", "[0, 1]", "np.minimum", truth=truth, method="rcps", loss=loss)


# ---------------------------------------------------------------- what is not refused


def test_what_looks_odd_and_is_none_the_worse():
    one, other = (flat_calibrate(TRUTH, BAND, method="krcps", d_opt=d, **HERE) for d in (HUGE, SIZE * SIZE))
    np.testing.assert_array_equal(one.widening, other.widening)  # all pixels
    padded = [name + " " * (i % 2) for i, name in enumerate(NAMES)]
    assert flat_calibrate(TRUTH, BAND, units=padded, risk_level=0.3, method="rcps").record.units == N // 2
    expected = flat_calibrate(TRUTH, BAND, features=FEATURES[:, 0], k=4, **HERE)
    for wrap in (as_tensor, da.from_array, zarr.array):
        features = wrap(np.ascontiguousarray(FEATURES[:, 0]))
        cal = flat_calibrate(TRUTH, BAND, features=features, k=4, **HERE)
        np.testing.assert_array_equal(cal.widening, expected.widening)
        wanted = expected.apply(BAND, features=FEATURES[:, 0]).lower
        np.testing.assert_array_equal(cal.apply(BAND, features=features).lower, wanted)


@pytest.mark.parametrize("method", ["krcps", "frontier"])
def test_a_label_that_only_certifying_images_have(method):
    """It has a group, that of all labels together: never a label out of range."""
    labels = np.zeros((N, SIZE, SIZE), int)
    labels[N // 2 :] = 5
    cal = flat_calibrate(TRUTH, BAND, method=method, labels=labels, n_fit=3, **HERE)
    interval = cal.apply(BAND, labels=np.full_like(labels, 77))
    assert set(cal.grouping.values.tolist()) <= {0, 5}
    assert (interval.lower <= BAND.lower).all()
    assert (cal.widening[cal.grouping.table[-1]] > 0).all()


# ---------------------------------------------------------------- applying to what was not calibrated

HOW = pb.Source("calibrated quantiles", samples=19, miscoverage=0.1)
CENTRED = pb.Band(BAND.lower, BAND.upper, (BAND.lower + BAND.upper) / 2)
SOURCED = pb.Band(BAND.lower, BAND.upper, source=HOW)
STRANGE = pb.Band(BAND.lower, BAND.upper, source=pb.Source("calibrated quantiles", samples=39, miscoverage=0.2))
OTHER = pb.Band(np.zeros((3, 5, 5)), np.ones((3, 5, 5)))
NOT_FINITE = pb.Band(da.from_array(with_value(BAND.lower, (7, 0, 0), NAN)), da.from_array(BAND.upper))
RANGE = BAND.map(lambda x: np.concatenate([x[:2], 255 * x[2:3]]))
KNOWN = {
    "plain": lambda: flat_calibrate(TRUTH, BAND, method="rcps", **HERE),
    "scaled": lambda: flat_calibrate(TRUTH, CENTRED, method="rcps", **HERE),
    "sourced": lambda: flat_calibrate(TRUTH, SOURCED, method="rcps", **HERE),
    "krcps": lambda: flat_calibrate(TRUTH, BAND, method="krcps", **HERE),
    "partition": lambda: flat_calibrate(TRUTH, BAND, method="krcps", groups=LABELS[0], **HERE),
    "loss": lambda: flat_calibrate(TRUTH, BAND, groups="loss", **HERE),
    "band": lambda: flat_calibrate(TRUTH, BAND, groups="band", **HERE),
    "labels": lambda: flat_calibrate(TRUTH, BAND, labels=LABELS, groups="band", **HERE),
    "features": lambda: flat_calibrate(TRUTH, BAND, features=FEATURES, k=4, **HERE),
}
APPLIED = [
    *[(name, OTHER, {}, ValueError, ("(5, 5)", "(6, 6)", "that grid"))
      for name in ("krcps", "partition", "loss")],
    *[("band", pb.Band(np.zeros((1, *s)), np.ones((1, *s))), {}, ValueError, ("another number of axes", str(s)))
      for s in ((6, 6, 3), (36,), (2, 3, 6))],
    ("plain", BAND.lower, {}, TypeError, ("ndarray", "pixelbounds.Band(lower, upper)")),
    ("plain", RANGE, {}, ValueError, ("band of image 2", "limits (0, 1)")),
    ("plain", NOT_FINITE, {}, ValueError, ("band.lower of image 7",)),
    ("plain", CENTRED, {}, ValueError, ("additive", "scaled")),
    ("scaled", BAND, {}, ValueError, ("centre", "mean_and_std")),
    ("sourced", STRANGE, {}, ValueError,
     ("1/10", "1/5", "samples: 19 at calibration, 39 here", "calibrate again")),
    ("sourced", BAND, {}, ValueError, ("samples: 19 at calibration, unknown here", "source=")),
    ("band", BAND, {"features": FEATURES}, ValueError, ("features belong to learned groups", "leave them out")),
    ("band", BAND, {"labels": LABELS}, ValueError, ("without labels", "leave labels out")),
    ("features", BAND, {}, ValueError, ("learned with 2 feature images", "0 were given", "features=")),
    ("features", BAND, {"features": FEATURES[:, :1]}, ValueError, ("learned with 2", "1 were given")),
    ("features", BAND, {"features": FEATURES[:5]}, ValueError, ("features", "(5, 2, 6, 6)")),
    ("features", BAND, {"features": with_value(FEATURES, 9, NAN)}, ValueError, ("features of image 9",)),
    ("labels", BAND, {}, ValueError, ("uses labels", "labels=", "--labels")),
    ("labels", BAND, {"labels": LABELS[:5]}, ValueError, ("labels", "shape")),
    ("labels", BAND[:5], {"labels": LABELS}, ValueError, ("labels", "shape")),
    ("labels", BAND, {"labels": LABELS[:, :2]}, ValueError, ("labels", "shape")),
    *[("labels", BAND, {"labels": x}, TypeError, ("labels", "whole number")) for x in ("brain", LABELS / 2)],
]  # fmt: skip


@pytest.fixture(scope="module")
def known():
    return {name: make() for name, make in KNOWN.items()}


@pytest.mark.parametrize("name, band, more, error, words", APPLIED)
def test_apply_refuses(known, name, band, more, error, words):
    refuses(lambda: known[name].apply(band, **more), *words, error=error, unchanged=(BAND.lower, BAND.upper))
