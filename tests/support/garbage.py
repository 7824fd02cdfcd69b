"""A small world, and values that no function of the package can use, or only some."""

from fractions import Fraction

import dask.array as da
import numpy as np
import torch
import zarr
from hypothesis import strategies as st
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds import families, groups
from pixelbounds.calibration.data import CalibrationData

SMALL = heteroscedastic(20, np.random.default_rng(0), size=3, dtype=np.float64)
BAND = SMALL[1]
CENTRED = pb.Band(BAND.lower, BAND.upper, (BAND.lower + BAND.upper) / 2)
INTERVAL = pb.Interval(BAND.lower, BAND.upper)
PAIRS = CalibrationData(*SMALL, labels=np.zeros((20, 3, 3), int), features=np.zeros((20, 1, 3, 3)))
CAL = pb.calibrate(*SMALL, risk_level=0.5, method="rcps")
SAMPLES = np.random.default_rng(0).normal(size=(2, 24, 3))
IMAGES = np.arange(5)
LOSSES = np.full(20, 0.1)
BLOCK = PAIRS.read(0, 2)[1]


def _nothing():
    return st.sampled_from([
        None, True, False, "", "abc", "0.1", "band", b"bytes", {}, {"a": 1}, set(), object(), len, lambda: 3, ..., type,
        slice(None), Fraction(1, 3), Fraction(10**400), 1j, "a\0b", "x" * 300, "no/such/folder/file",
    ])  # fmt: skip


def _numbers():
    return st.sampled_from([
        0, 1, -1, 2, 3, -7, 0.5, -0.5, 1e-300, 1e300, np.nan, np.inf, -np.inf, 2**31, 2**63, -(2**63), 10**400,
        -(10**400), np.float32(0.3), np.int8(-3), np.float64(np.nan), np.bool_(True), np.longdouble(0.1),
    ])  # fmt: skip


def _lists():
    return st.sampled_from([
        [], [[]], [1, 2], [0.1, 0.2], [[1.0], [1.0, 2.0]], ["a", 1], [None], [np.nan], [1j], (0.0,), (0.0, 1.0),
        (1.0, 0.0), (None, None), ("a", "b"), [10**400], (0, 10**400), [True, False], [[0.1, 0.2]] * 20, [SMALL[0]],
        [SMALL[0], None],
    ])  # fmt: skip


def _arrays():
    shape = (20, 3, 3)
    bad = SMALL[0].copy()
    bad[4, 1, 1] = np.nan
    endless = SMALL[0].copy()
    endless[7, 0, 0] = np.inf
    return st.sampled_from([
        np.zeros(shape, complex), np.full(shape, None), np.full(shape, "a"), np.empty((0, 3, 3)), np.empty(0),
        np.empty((20, 0)), np.array(0.5), np.zeros(20), np.zeros((3, 3)), np.zeros((20, 3, 3, 3)),
        np.zeros((2, 20, 3, 3)), bad, endless, -np.ones(shape), np.full(shape, 1e300), np.zeros(shape, int),
        np.zeros(shape, bool), np.full(shape, 10**30), np.zeros(shape, np.uint16), np.zeros(shape, "datetime64[s]"),
        np.zeros(shape, [("a", float)]), SMALL[0].astype(">f8"), SMALL[0].astype(np.longdouble),
        SMALL[0].astype(np.float16), np.zeros((3, 3), int), np.full((3, 3), -5), np.arange(20), np.arange(20) - 30,
        np.array([100]), np.array([0.5, np.nan]), np.ma.masked_all(shape), SMALL[0][::-1], SMALL[0].T,
        torch.zeros(20, 3, 3, dtype=torch.complex64), torch.zeros(20, 3, 3, requires_grad=True),
        torch.zeros(20, 3, 3, dtype=int), torch.full((20, 3, 3), float("nan")), da.zeros(shape), da.full(shape, np.nan),
        zarr.array(bad), zarr.array(np.zeros(3)), BAND, CENTRED, INTERVAL, pb.Band(np.zeros((20, 2)), np.ones((20, 2))),
        families.additive, families.scaled, families.multiplicative, PAIRS, BLOCK, groups.Single(),
        groups.Partition(np.zeros((2, 2), np.int32)),
    ])  # fmt: skip


GARBAGE = st.one_of(_nothing(), _numbers(), _lists(), _arrays())
