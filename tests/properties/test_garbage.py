"""Random garbage meets every public function: a ValueError or a TypeError, and nothing given is changed."""

import inspect
import os
import warnings

import numpy as np
import pytest
from flat import flat_calibrate
from garbage import BAND, CAL, CENTRED, GARBAGE, IMAGES, INTERVAL, LOSSES, PAIRS, SAMPLES, SMALL
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import HERE, SIZE, N, data

import pixelbounds as pb
from pixelbounds import bounds, families, groups, losses
from pixelbounds.calibration.losses import l01


def test_nothing_given_is_changed():
    truth, band = data(np.float32)
    labels = np.zeros((SIZE, SIZE), np.int16)
    features, units, direction, gammas = np.ones((N, SIZE, SIZE)), np.arange(N), np.ones(1), np.array([0.4, 0.5])
    given_arrays = (truth, band.lower, band.upper, labels, features, units, direction, gammas)
    before = [x.copy() for x in given_arrays]
    cals = [
        flat_calibrate(
            truth, band, method="krcps", groups=labels, units=units, direction=direction, gammas=gammas, **HERE
        ),
        flat_calibrate(truth, band, features=features, units=units, **HERE),
        flat_calibrate(truth, band, groups="band", limits=(0.0, 1.0), **HERE),
    ]
    cals[0].apply(band)
    cals[1].apply(band, features=features)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    flat_calibrate(truth, band, groups="band", **HERE)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    for x, kept in zip(given_arrays, before, strict=True):
        np.testing.assert_array_equal(x, kept)


def _members(module):
    """Public functions that a module defines."""
    return {
        f"{module.__name__.split('.')[-1]}.{name}": x
        for name, x in vars(module).items()
        if inspect.isfunction(x) and not name.startswith("_") and x.__module__.startswith(module.__name__)
    }


PUBLIC = {
    **{name: getattr(pb, name) for name in pb.__all__ if callable(getattr(pb, name))},
    **_members(bounds), **_members(families), **_members(losses), **_members(groups),
}  # fmt: skip

GROWING = pb.AnytimeCalibration(*SMALL, risk_level=0.5, method="rcps")


def _drawn(observation, samples, seed):
    return np.random.default_rng(seed).normal(size=(samples, *np.shape(observation)))


GOOD = {
    "Band": {"lower": BAND.lower, "upper": BAND.upper, "centre": CENTRED.centre, "source": "test"},
    "Source": {"kind": "test", "samples": 19, "miscoverage": 0.1, "sampler": "heun", "steps": 12, "sigma_0": 0.3},
    "Measure": {"low": -160.0, "high": 240.0, "unit": "HU"},
    "losses.any_channel": {"axis": -1},
    "Promise": {"kind": "share", "at_most": 0.1, "cap": 0.5, "name": "heart", "weighting": "images"},
    "share": {"at_most": 0.1, "cap": 0.5, "name": "heart", "weighting": "images"},
    "tail": {"at_most": 0.1, "above": 0.2, "name": "heart"},
    "Interval": {"lower": BAND.lower, "upper": BAND.upper},
    "Ragged": {"images": [BAND.lower[0], BAND.lower[1, :2]]},
    "Family": {"name": "own", "widen": families.additive.widen, "score": families.additive.score, "start": 0.0},
    "calibrate": {
        "truth": SMALL[0], "band": BAND, "risk_level": 0.5, "failure_prob": 0.1, "method": "krcps", "bound": "betting",
        "groups": "loss", "features": None, "family": "additive", "loss": l01, "k": 2, "n_fit": 4, "d_opt": 4,
        "direction": None, "gammas": [0.5], "units": np.arange(20), "limits": (0.0, 1.0), "seed": 0,
    },
    "calibrate, rcps": {
        "truth": SMALL[0], "band": BAND, "risk_level": 0.5, "method": "rcps", "n_fit": 2, "limits": None,
    },
    "calibrate, frontier": {
        "truth": SMALL[0], "band": BAND, "risk_level": 0.5, "groups": "band", "k": 3, "n_fit": 4, "limits": (0, 1),
        "family": None,
    },
    "calibrated_quantiles": {"samples": SAMPLES, "miscoverage": 0.2, "axis": 1},
    "naive_quantiles": {"samples": SAMPLES, "miscoverage": 0.2, "axis": 1},
    "mean_and_std": {"samples": SAMPLES, "axis": 1, "floor": 0.01},
    "narrow": {"samples": SAMPLES, "axis": 1, "deviations": 0.8},
    "calibrated_ranks": {"m": 128, "miscoverage": 0.1},
    "least_samples": {"miscoverage": 0.1},
    "least_images": {"risk_level": 0.1, "failure_prob": 0.1, "bound": "betting"},
    "conffusion": {"lower": BAND.lower, "upper": BAND.upper},
    "quantile_regression": {
        "lower": BAND.lower, "estimate": CENTRED.centre, "upper": BAND.upper, "form": "distance", "floor": 1e-6,
    },
    "evaluate": {
        "truth": SMALL[0], "interval": INTERVAL, "samples": SMALL[0][:, None], "sample_axis": 1,
        "groups": np.zeros((20, 3, 3), int), "units": np.arange(20), "calibration": None,
        "limits": None, "confidence_level": 0.95, "seed": 0,
    },
    "load_calibration": {"path": "nowhere.safetensors", "family": None},
    "Calibration.apply": {"self": CAL, "band": BAND, "features": None, "labels": None},
    "loss": {"at_most": 0.1, "function": l01, "within": None, "cap": 0.5, "name": "mine", "weighting": "images"},
    "plan": {
        "risk_level": 0.3, "failure_prob": 0.1, "promises": None, "prevalence": None, "bound": "hoeffding",
        "method": "rcps", "groups": False, "images": [30], "miscoverage": 0.1, "spread": 0.5,
    },
    "functional_band": {"samples": SAMPLES, "function": np.mean, "miscoverage": 0.2, "axis": 1, "name": "mean"},
    "functional_values": {"images": SAMPLES, "function": np.mean, "known": (), "sample_axis": 1},
    "bands_from": {"sampler": _drawn, "observations": SAMPLES[:, 0], "samples": 9, "miscoverage": 0.2, "seed": 0},
    "recalibrate": {
        "truth": SMALL[0], "band": BAND, "weights": np.ones(20), "max_weight": 1.0, "risk_level": 0.5,
        "failure_prob": 0.1, "labels": None, "units": np.arange(20), "limits": (0.0, 1.0), "method": "rcps", "seed": 0,
    },
    "AnytimeCalibration": {
        "truth": SMALL[0], "band": BAND, "risk_level": 0.5, "failure_prob": 0.1,
        "method": pb.Frontier(groups="band", k=2), "units": pb.Units(np.arange(20), "scan"), "expected": 50,
        "limits": (0.0, 1.0), "seed": 0,
    },
    "AnytimeCalibration.add": {
        "self": GROWING, "truth": 1 - SMALL[0], "band": BAND, "within": None, "batch": None,
    },
    "Monitor": {"calibration": CAL, "false_alarm": 0.01, "loss": None},
    "Monitor.update": {"self": pb.Monitor(CAL), "truth": 1 - SMALL[0], "band": BAND, "units": None, "within": None},
    "Monitor.check_drift": {"self": pb.Monitor(CAL), "band": BAND, "units": None, "when": 0.0},
    "save_monitor": {"monitor": pb.Monitor(CAL), "path": "monitor.safetensors"},
    "load_monitor": {"path": "nowhere.safetensors", "loss": None, "family": None},
    "Calibration.save": {"self": CAL, "path": "cal.safetensors"},
    "Interval.contains": {"self": INTERVAL, "truth": SMALL[0]},
    "Band.rows": {"self": BAND, "start": 0, "stop": 3},
    **{f"bounds.{name}": {"losses": LOSSES, "failure_prob": 0.1} for name in bounds.BOUNDS},
    "bounds.check_losses": {"losses": LOSSES},
    "bounds.bound_named": {"bound": "betting"},
    "bounds.sees_mean_only": {"bound": bounds.betting},
    "bounds.least_images": {"risk_level": 0.1, "failure_prob": 0.1, "bound": "bentkus"},
    "bounds.greatest_loss": {"images": 100, "risk_level": 0.1, "failure_prob": 0.1},
    "bounds.binomial": {"losses": np.arange(20) % 2, "failure_prob": 0.1},
    "segmentation_band": {"probabilities": SMALL[0], "logits": False, "axis": None},
    "margin_band": {"masks": SMALL[0] > 0.5, "spacing": 1.0},
    "class_masks": {"labels": np.zeros((20, 3, 3), int), "classes": {"lung": 0, "heart": 1}},
    "segmentation_promises": {"masks": SMALL[0] > 0.5, "missed": 0.1, "false": 0.05, "names": None, "above": 0.2},
    "calibrate_masks": {
        "truth": SMALL[0] > 0.5, "band": pb.segmentation_band(SMALL[0]), "missed": 0.5, "false": 0.5, "names": None,
        "above": None, "failure_prob": 0.2, "bound": "betting", "units": np.arange(20), "seed": 0,
    },
    "volume_outside": {"truth": SMALL[0], "interval": INTERVAL},
    "volumes": {"interval": INTERVAL, "voxel": 0.5},
    "trust": {
        "estimate": CENTRED.centre, "band": BAND, "truth": SMALL[0], "tolerance": 0.5, "at_most": 0.5,
        "failure_prob": 0.2, "bound": "betting", "units": np.arange(20), "limits": (0.0, 1.0), "seed": 0,
    },
    "load_trust": {"path": "nowhere.safetensors"},
    "conformal_p_values": {"calibration": CAL, "band": BAND, "threads": False},
    "losses.l01": {"truth": SMALL[0], "interval": INTERVAL},
    "groups.by_loss": {"pairs": PAIRS, "images": IMAGES, "k": 4},
    "groups.by_otsu": {"pairs": PAIRS, "images": IMAGES, "k": 4},
    "groups.fit_band_groups": {"pairs": PAIRS, "images": IMAGES, "width": 4, "room": 2, "level": 2, "side": True},
    "groups.fit_learned_groups": {
        "pairs": PAIRS, "images": IMAGES, "rng": np.random.default_rng(0), "bins_per_side": 3, "quantile": 0.8,
        "trees": 2,
    },
    "families.check_nested": {"family": families.additive, "truth": SMALL[0], "band": BAND, "scale": 1.0},
    "groups.load_grouping": {"kind": "partition", "meta": {}, "arrays": {"labels": np.zeros((3, 3), np.int32)}},
    "groups.partition": {"labels": np.zeros((3, 3), int), "pixels": (3, 3)},
    "groups.fit_labelled_groups": {
        "pairs": pb.CalibrationData(PAIRS.truth, BAND, labels=np.ones(PAIRS.band.shape, int)), "images": IMAGES,
        "inner": groups.Single(), "runs": 2, "least": 5,
    },
}  # fmt: skip
RESULTS = {"Calibration", "CertifiedPoint", "Evaluation", "NoGuarantee", "TrustMask"}  # made by functions, or raised
THROUGH_CALIBRATE = {"CalibrationData", "Frontier", "KRCPS", "Method", "RCPS", "Target", "Units"}
STAGES = {"Path", "certify", "fixed_sequence_test", "loss_table", "split", "split_at"}  # trust the stages before them
INNER = {
    "bounds.binomial_tail",
    "bounds.few_units",
    "families.check_fits",
    "families.family_named",
    "bounds.gamma_quantiles",
    "losses.points_to_test",
    "bounds.for_zero_one",
    "bounds.rejects",
    "bounds.rejects_mean",
}


def _function(case):
    name = case.split(",")[0]
    if name == "calibrate":
        return flat_calibrate
    if name in PUBLIC:
        return PUBLIC[name]
    first, *rest = name.split(".")
    return getattr(getattr(pb, first), rest[0])


def test_every_public_function_meets_garbage():
    assert set(PUBLIC) - RESULTS - THROUGH_CALIBRATE - STAGES - INNER <= {case.split(",")[0] for case in GOOD}


EXAMPLES = {"calibrate": 120, "calibrate, rcps": 60, "calibrate, frontier": 60, "groups.fit_learned_groups": 25}
MORE = int(os.environ.get("PIXELBOUNDS_GARBAGE", "1"))  # times as many examples, and other ones every time


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A folder of its own: garbage may be a file name."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("garbage"))
    yield
    os.chdir(before)


@pytest.mark.parametrize("case", GOOD)
def test_good_input_is_accepted(case, elsewhere):
    """Else the test below would show nothing."""
    if case.startswith("load_"):
        return
    _call(case, dict(GOOD[case]))


def _call(case, arguments):
    positional = [arguments.pop("self")] if "self" in arguments else []
    function = _function(case)
    if ".widen" in case or ".score" in case:
        return function(*arguments.values())
    return function(*positional, **arguments)


@pytest.mark.parametrize("case", GOOD)
def test_garbage_raises_value_or_type_errors_and_nothing_else(case, elsewhere):
    @settings(
        max_examples=MORE * EXAMPLES.get(case, 40), deadline=None, derandomize=MORE == 1, database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    @given(data=st.data())
    def drive(data):
        arguments = dict(GOOD[case])
        names = [name for name in arguments if name != "self"]
        for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)):
            arguments[name] = data.draw(GARBAGE, label=name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                _call(case, arguments)
            except (ValueError, TypeError) as error:
                assert str(error).strip()  # noqa: PT017

    drive()
