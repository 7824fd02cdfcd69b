"""Gain of a cap where patients are few: certified intervals by scan, with a cap and without, over several draws.

    python -m benchmarks.scans ct64_bands.npz

The file holds truth, lower and upper (n, *pixels) and `unit` (n,), the scan of each slice; `--band NAME` takes the band
NAME/lower and NAME/upper of a file with several. A draw takes some scans at random to calibrate on, the others judge.
Everything else is as `pb.calibrate` does it by itself.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import pixelbounds as pb
from benchmarks.__main__ import RESULTS, machine, show
from pixelbounds.images.library import Array
from pixelbounds.storage.files import replace_file

LEVEL = 0.05
DELTA = 0.1
CAPS = (None, 0.5, 0.25)
Row = dict[str, Any]


def judged(truth: Array, interval: pb.Interval, unit: Array, cap: float | None) -> Row:
    """Mean over scans of what slices miss, as promised and without the cap, and mean length."""
    share = (~interval.contains(truth)).reshape(len(truth), -1).mean(axis=1)
    who = np.unique(unit, return_inverse=True)[1]
    slices = np.bincount(who)
    capped = np.bincount(who, np.minimum(share, cap or 1.0)) / slices
    return {
        "length": float(interval.length.mean()), "risk": float(capped.mean()),
        "risk without cap": float((np.bincount(who, share) / slices).mean()),
    }  # fmt: skip


def draw(truth: Array, band: pb.Band, unit: Array, count: int, seed: int) -> list[Row]:
    """What each cap comes to in one draw."""
    rng = np.random.default_rng(seed)
    first = np.isin(unit, rng.permutation(np.unique(unit))[:count])
    rows = []
    for cap in CAPS:
        cal = pb.calibrate(
            truth[first],
            band[first],
            promises=[pb.share(LEVEL, cap=cap)],
            failure_prob=DELTA,
            seed=seed,
            units=pb.Units(unit[first], name="scan"),
        )
        found = judged(truth[~first], cal.apply(band[~first]), unit[~first], cap)
        rows.append({"draw": seed, "cap": cap, **found, "seen": cal.risk, "certifying": cal.record.certifying})
    return rows


def summary(rows: list[Row]) -> list[Row]:
    """Means over draws for each cap, and how much shorter than without one."""
    lengths = {cap: float(np.mean([row["length"] for row in rows if row["cap"] == cap])) for cap in CAPS}
    out = []
    for cap in CAPS:
        own = [row for row in rows if row["cap"] == cap]
        out.append({
            "cap": cap, "draws": len(own), "length": lengths[cap], "against none": lengths[cap] / lengths[None] - 1,
            "risk": float(np.mean([row["risk"] for row in own])),
            "risk without cap": float(np.mean([row["risk without cap"] for row in own])),
            "kept": sum(row["risk"] <= LEVEL for row in own),
        })  # fmt: skip
    return out


def main() -> None:
    """Run, print the table, write JSON after every draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--band", default="", help="name of the band, where the file has several")
    parser.add_argument("--units", type=int, default=58, help="scans that calibrate")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="seed of the first draw")
    parser.add_argument("--out", type=Path, default=RESULTS / "scans.json")
    given = parser.parse_args()
    held = np.load(given.file)
    start = given.band + "/" if given.band else ""
    band = pb.Band(held[f"{start}lower"], held[f"{start}upper"])
    truth, unit = held["truth"], held["unit"]
    scans = len(np.unique(unit))
    if given.units >= scans:
        parser.error(f"{given.units} of {scans} scans cannot calibrate and leave others to judge; lower --units")
    about = {"machine": machine(), "slices": len(truth), "scans": scans, "calibrating": given.units, "level": LEVEL}
    rows: list[Row] = []
    for seed in range(given.first, given.first + given.draws):
        rows += draw(truth, band, unit, given.units, seed)
        replace_file(given.out, (json.dumps({**about, "rows": rows}, indent=1) + "\n").encode())
        print(f"draw {seed}: " + ", ".join(f"cap {row['cap']} {row['length']:.4f}" for row in rows[-len(CAPS) :]))
    show(f"{given.units} scans calibrate, {scans - given.units} judge", summary(rows))


if __name__ == "__main__":
    main()
