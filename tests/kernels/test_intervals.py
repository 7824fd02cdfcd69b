"""Ends widened in one compiled pass are those of the additive family, clipped and rounded outward, byte by byte."""

import numpy as np
import pytest

import pixelbounds as pb
from pixelbounds.calibration.block import Block, Single
from pixelbounds.calibration.families import additive
from pixelbounds.calibration.groups.positions import Partition
from pixelbounds.images.ends import outward

SPECIAL = np.array([0.0, -0.0, 1e-45, -1e-45, 1.0, -1.0, 0.1, 1e30, -1e30, 3e38, 1 - 2**-24, 2.0**-126])


def band_of(dtype):
    rng = np.random.default_rng(0)
    ends = np.sort(np.concatenate([rng.normal(size=(2, 1500)), rng.choice(SPECIAL, (2, 700))], axis=1), axis=0)
    return pb.Band(ends[0][None].astype(dtype), ends[1][None].astype(dtype))


@pytest.mark.parametrize("limits", [(0.0, 1.0), (-0.1, 0.3), (-np.inf, np.inf), (0.0, np.inf)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("stored", [np.float32, np.float64, np.float16])
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_the_bytes_of_widen_clip_and_outward(limits, dtype, stored):
    band = band_of(dtype)
    block = Block(0, band, limits)
    label = np.arange(band.lower.size) % 5
    grouping = Partition(label.astype(np.int32))
    widening = np.array([0.0, 1e-9, 0.03, 0.5, 2.0])
    out = np.empty(band.shape, stored), np.empty(band.shape, stored)
    block.widen_into(out, additive, grouping, widening)
    wanted = additive.widen(block.band_for(additive), widening[label][None])
    wanted = outward(*(np.clip(end, *limits) for end in wanted), stored)
    for ours, theirs in zip(out, wanted, strict=True):
        assert ours.tobytes() == theirs.tobytes()


def test_large_blocks_in_pieces_give_the_same():
    rng = np.random.default_rng(0)
    lower = rng.uniform(size=(7, 130, 130)).astype(np.float32)
    block = Block(0, pb.Band(lower, lower + np.float32(0.1)), (0.0, 1.0))
    whole = block.widen(additive, Single(), np.array([0.2]))
    for i in range(7):
        for ours, theirs in zip(block.rows(i, i + 1).widen(additive, Single(), np.array([0.2])), whole, strict=True):
            np.testing.assert_array_equal(ours[0], theirs[i])
