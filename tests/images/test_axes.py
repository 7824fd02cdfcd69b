"""Bands and intervals to and from xarray: names and coordinates go along, and what does not fit is refused."""

from dataclasses import replace

import numpy as np
import pytest

import pixelbounds as pb

xarray = pytest.importorskip("xarray")
N, HEIGHT, WIDTH = 40, 5, 6
RNG = np.random.default_rng(0)
DIMS = ("patient", "row", "column")
COORDS = {
    "patient": [f"P{i:02}" for i in range(N)],
    "row": np.linspace(0, 2, HEIGHT),
    "column": np.linspace(0, 3, WIDTH),
    "site": ("patient", np.arange(N) % 3),
}


def named(x):
    return xarray.DataArray(x, dims=DIMS, coords=COORDS)


TRUTH = RNG.uniform(size=(N, HEIGHT, WIDTH))
BAND = pb.Band(named(TRUTH - 0.1), named(TRUTH + 0.05), source="mine")
HERE = {"risk_level": 0.5, "failure_prob": 0.3, "method": "rcps"}


def test_names_and_coordinates_come_back_with_the_intervals():
    cal = pb.calibrate(named(TRUTH), BAND, **HERE)
    plain = pb.Band(TRUTH - 0.1, TRUTH + 0.05, source="mine")
    nameless = replace(cal, record=replace(cal.record, settings={}))
    assert nameless.to_bytes() == pb.calibrate(TRUTH, plain, **HERE).to_bytes()
    found = cal.apply(BAND[3:9]).to_xarray()
    assert found.lower.dims == DIMS
    assert found.patient.values.tolist() == COORDS["patient"][3:9]
    assert found.site.dims == ("patient",)
    assert np.array_equal(found.upper, cal.apply(plain[3:9]).upper)
    back = pb.Interval.from_xarray(found)
    assert np.array_equal(back.lower, found.lower)
    assert back.to_xarray().identical(found)
    numbers = np.arange(N) % 2 == 0
    assert BAND[numbers].to_xarray().patient.values.tolist() == COORDS["patient"][::2]


def test_a_band_survives_the_way_to_a_dataset_and_back():
    for band in (BAND, pb.calibrated_quantiles(RNG.uniform(size=(N, 19, 4, 4)), 0.1)):
        back = pb.Band.from_xarray(band.to_xarray())
        assert back.source == band.source
        assert np.array_equal(back.lower, band.lower)
    assert back.to_xarray().lower.dims == ("image", "y", "x")
    centred = pb.Band(named(TRUTH - 0.1), TRUTH + 0.1, TRUTH)
    assert set(centred.to_xarray()) == {"lower", "upper", "centre"}


def test_samples_leave_their_axis_behind():
    samples = xarray.DataArray(
        RNG.uniform(size=(2, 19, 4, 4)),
        dims=("patient", "draw", "y", "x"),
        coords={"patient": [7, 8], "draw": range(19)},
    )
    found = pb.calibrated_quantiles(samples, 0.1).to_xarray()
    assert found.lower.dims == ("patient", "y", "x")
    assert set(found.coords) == {"patient"}


@pytest.mark.parametrize(
    "enter",
    [
        lambda x: pb.calibrate(x, BAND, **HERE),
        lambda x: pb.evaluate(x, pb.Interval(BAND.lower, BAND.upper, BAND.axes)),
        lambda x: pb.Interval(BAND.lower, BAND.upper, BAND.axes).contains(x),
        lambda x: pb.Band(BAND.to_xarray().lower, x + 1),
        lambda x: pb.calibrate(TRUTH, BAND, risk_level=0.5, labels=x > 0.5),
        lambda x: pb.calibrate(TRUTH, BAND, promises=[pb.share(0.5, within=x > 0.5)]),
        lambda x: pb.Monitor(pb.calibrate(1 - TRUTH, pb.Band(TRUTH, TRUTH, source="mine"), **HERE)).update(x, BAND),
    ],
    ids=["calibrate", "evaluate", "contains", "band", "labels", "within", "monitor"],
)
def test_other_axes_and_other_coordinates_are_refused(enter):
    with pytest.raises(ValueError, match="has the axes patient, column, row, but the band has patient, row, column"):
        enter(named(TRUTH).transpose("patient", "column", "row"))
    shifted = named(TRUTH).assign_coords(patient=[f"Q{i}" for i in range(N)])
    with pytest.raises(ValueError, match="other coordinates 'patient' than the band"):
        enter(shifted)


def test_a_calibration_remembers_the_order_of_its_axes(tmp_path):
    """Groups of positions would be those of other pixels."""
    square = TRUTH[:, :, :5]
    band = pb.Band(named(TRUTH - 0.1)[:, :, :5], named(TRUTH + 0.05)[:, :, :5], source="mine")
    made = pb.calibrate(named(TRUTH)[:, :, :5], band, risk_level=0.5, failure_prob=0.3, method="krcps")
    made.save(tmp_path / "c.safetensors")
    cal = pb.load_calibration(tmp_path / "c.safetensors")
    turned = band.to_xarray().transpose("patient", "column", "row")
    with pytest.raises(ValueError, match=r"had row, column; bring them into that order: transpose\(..., 'row', 'col"):
        cal.apply(pb.Band(turned.lower, turned.upper, source="mine"))
    plain = cal.apply(pb.Band(square - 0.1, square + 0.05, source="mine"))  # without names nobody can tell
    assert np.array_equal(plain.lower, cal.apply(band).lower)
