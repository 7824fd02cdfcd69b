"""Runs compiled kernels on small images, for a process in which Numba checks every index.

`python tests/support/every_kernel.py [all]` with NUMBA_BOUNDSCHECK=1 and an empty NUMBA_CACHE_DIR stops at the first
index that leaves its array; it prints a digest of what was found and the kernels that ran. Without `all` it runs those
that follow what a file holds: trees, bins, arrival times, intervals. Compiling takes nearly all of the time.
"""

import sys
from pathlib import Path
from zlib import crc32

import numpy as np
from labelled_world import FITTING, N, world

import pixelbounds as pb
from pixelbounds import groups, kernels
from pixelbounds.calibration.families import additive


def run_files():
    """Groups label all ends and some, and ends widen and arrive; a digest of all that was found."""
    digest = 0
    pairs = world(np.random.default_rng(0))
    truth, block = pairs.read(0, N)
    learned = groups.fit_learned_groups(pairs, FITTING, np.random.default_rng(0), bins_per_side=5, trees=6)
    for grouping in (groups.fit_band_groups(pairs, FITTING, level=2), learned):
        label = grouping.every(block)
        entry, side, need = block.missed(truth, additive)
        path = pb.Path(np.linspace(0, [1.0] * grouping.count, 50).T, grouping)
        arrival = path.entry_scores(grouping.at(block, entry, side), need)
        assert 0 <= arrival.min() <= arrival.max() <= 50
        widening = np.linspace(0, 0.3, grouping.count)
        out = np.empty(block.band.shape, np.float32), np.empty(block.band.shape, np.float32)
        block.widen_into(out, additive, grouping, widening, label)
        for found in (label, arrival, *out):
            digest = crc32(found.tobytes(), digest)
    return digest


def run_all():
    """Whole calibrations, with a user's loss, promises and labels, samples, an evaluation and images that arrive."""
    pairs = world(np.random.default_rng(0), features=0)
    truth, band = pairs.truth, pairs.band
    samples = np.random.default_rng(1).normal(size=(3, 19, 6, 6)).astype(np.float32)
    pb.calibrated_quantiles(samples, miscoverage=0.2, axis=1)
    for method in (pb.Frontier("band", n_fit=6), pb.Frontier("learned", k=40, n_fit=6), pb.KRCPS(n_fit=6)):
        interval = pb.calibrate(truth, band, risk_level=0.4, method=method).apply(band)
        pb.evaluate(truth, interval)
    missed = pb.loss(0.4, lambda x, i: 1 - i.contains(x).mean(axis=(1, 2)))
    pb.calibrate(truth, band, promises=[missed], method=pb.Frontier("band", n_fit=6))
    bright = pb.share(0.6, within=truth > 0.4, name="bright")
    asked = [pb.share(0.5), bright, pb.share(0.6, within=truth, name="weights")]
    pb.calibrate(truth, band, promises=asked, labels=pairs.labels, method=pb.Frontier("band", n_fit=6))
    anytime = pb.AnytimeCalibration(truth[:8], band[:8], risk_level=0.4, method=pb.Frontier("band"))
    anytime.add(truth[8:], band[8:])


def compiled():
    """Every kernel that was compiled for some types, as file:name."""
    found = []
    for file in sorted(Path(kernels.__path__[0]).glob("*.py")):
        module = sys.modules.get(f"pixelbounds.kernels.{file.stem}")
        names = vars(module) if module else {}
        found += [f"{file.stem}:{name}" for name, x in names.items() if getattr(x, "signatures", None)]
    return found


if __name__ == "__main__":
    print(run_files())
    if sys.argv[1:] == ["all"]:
        run_all()
    print("\n".join(compiled()))
