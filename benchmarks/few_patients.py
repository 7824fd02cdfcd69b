"""What few patients certify: lengths of shares, caps and tails by scan or patient, before and after.

python -m benchmarks.few_patients ct64=ct_64.zip chest128=chest_128.zip [--source NAME]    (JSON, then the page)
python -m benchmarks.few_patients                                        (writes docs/research/few_patients.md)

Slices with noise, bands of a local Wiener filter; some scans (patients) calibrate, at most 12 slices of each, others
judge. With --source rows are kept under that name: "before" was measured by this file beside the source of 85af890.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
from PIL import Image
from scipy.ndimage import uniform_filter

import pixelbounds as pb
from benchmarks.__main__ import RESULTS, machine
from pixelbounds.images.library import Array

PAGE = Path(__file__).parents[1] / "docs/research/few_patients.md"
NOISE, SLICES, DRAWS = 0.1, 12, 12
CASES: dict[str, tuple[Any, int, bool]] = {  # promise, units that calibrate, whether one slice stands for each
    "share 10%": (pb.share(0.1), 30, False),
    "share 5%, 50": (pb.share(0.05), 50, False),
    "share 5%, 60": (pb.share(0.05), 60, False),
    "share 5%, cap 25%": (pb.share(0.05, cap=0.25), 30, False),
    "tail 10% above 2%": (pb.tail(0.1, above=0.02), 40, False),
    "tail 10% above 2%, one slice each": (pb.tail(0.1, above=0.02), 40, True),
    "tail 10% above 2%, one slice each, 60": (pb.tail(0.1, above=0.02), 60, True),
    "tail 10% above 2%, one slice each, 80": (pb.tail(0.1, above=0.02), 80, True),
}


def material(archive: str) -> tuple[Array, pb.Band, Array]:
    """Slices (n, height, width), their bands, and the scan (patient) of each, (n,)."""
    with ZipFile(archive) as held:
        names = [x for x in held.namelist() if x.endswith(".png") and "/labels/" not in x]
        unit = np.array([name.split("/")[-2] for name in names])
        kept = np.concatenate([
            np.flatnonzero(unit == one)[:: -(-int((unit == one).sum()) // SLICES)] for one in np.unique(unit)
        ])  # fmt: skip
        truth = np.stack([np.asarray(Image.open(io.BytesIO(held.read(names[i])))) for i in kept]) / np.float32(255)
    seen = truth + NOISE * np.random.default_rng(0).standard_normal(truth.shape, np.float32)
    size = (1, 5, 5)
    mean = uniform_filter(seen, size)
    gain = np.maximum(uniform_filter(seen**2, size) - mean**2 - NOISE**2, 1e-4)
    gain = gain / (gain + NOISE**2)
    centre, half = mean + gain * (seen - mean), 1.645 * NOISE * np.sqrt(gain)
    return truth, pb.Band(np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)), unit[kept]


def length(truth: Array, band: pb.Band, unit: Array, case: str, draw: int) -> float:
    """Mean length on the scans that do not calibrate."""
    promise, count, single = CASES[case]
    order = np.random.default_rng([draw, 3]).permutation(np.unique(unit))
    chosen = np.isin(unit, order[:count])
    new = pb.Band(band.lower[~chosen], band.upper[~chosen])
    images = np.flatnonzero(chosen)
    if single:
        images = np.random.default_rng([draw, 4]).permutation(images)
        images = images[np.unique(unit[images], return_index=True)[1]]
    cal = pb.calibrate(
        truth[images], pb.Band(band.lower[images], band.upper[images]), promises=[promise], seed=draw,
        units=None if single else unit[images],
    )  # fmt: skip
    return float(cal.apply(new).length.mean())


def text(rows: list[dict[str, Any]]) -> str:
    """The page."""
    lines = [
        "# Few patients: lengths before and after",
        "",
        "Bets that stake almost all from the first loss on where losses are few, and the exact binomial test for",
        "losses of 0 and 1 (`calibration/bounds.py`). Mean length on scans (ct64) or patients (chest128) that do not",
        "calibrate, the same draws before and after; changes with their standard error over draws. Bands of a local",
        "Wiener filter of slices with noise of 0.1.",
        "",
        "| data | promise | units | before | after | change |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        if row["source"] == "after":
            (old,) = (
                x for x in rows if x["source"] == "before" and (x["data"], x["case"]) == (row["data"], row["case"])
            )
            before, after = np.array(old["lengths"]), np.array(row["lengths"])
            change = after / before - 1
            error = change.std(ddof=1) / np.sqrt(len(change))
            lines.append(
                f"| {row['data']} | {row['case']} | {row['units']} | {before.mean():.4f} | {after.mean():.4f} "
                f"| {change.mean():+.1%} +- {error:.1%} |"
            )
    return "\n".join([*lines, "", f"{DRAWS} draws (`python -m benchmarks.few_patients`).", ""])


def main() -> None:
    """Measure what is named, keep the rows, write the page."""
    file, source, words = RESULTS / "few_patients.json", "after", sys.argv[1:]
    if "--source" in words:
        at = words.index("--source")
        source, words = words[at + 1], words[:at] + words[at + 2 :]
    kept = json.loads(file.read_text())["rows"] if file.exists() else []
    for word in words:
        data, _, archive = word.partition("=")
        made = material(archive)
        kept = [row for row in kept if (row["source"], row["data"]) != (source, data)]
        for case, (_, count, _) in CASES.items():
            lengths = [length(*made, case, draw) for draw in range(DRAWS)]
            kept.append({"source": source, "data": data, "case": case, "units": count, "lengths": lengths})
            print(source, data, case, f"{np.mean(lengths):.4f}", flush=True)
    file.write_text(json.dumps({"benchmark": "few_patients", "machine": machine(), "rows": kept}, indent=1) + "\n")
    PAGE.write_text(text(kept))


if __name__ == "__main__":
    main()
