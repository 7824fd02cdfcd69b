"""What intervals are worth in each structure: an organ, a lesion, a region of a promise, as a row of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..calibration.promises import ALL_PIXELS
from ..images.checks import check_same_shape, check_values
from ..images.ends import Interval, check_labels, trusted_band
from ..images.library import Array, as_array, current_runner, over_images, rows_of
from ..images.measure import open_ends
from ..images.regions import place_of, region_rows


@dataclass(frozen=True)
class Structure:
    """A structure on images whose truth is known.

    images, pixels   that have it, and how many pixels these are together
    above, below     share of these pixels whose truth lies above, or below, its interval
    missed           mean over the images that have it of the share missed, each image counting the same
    length           mean length over these pixels
    open_share       share of them with an end at the edge of a window; None where there is no window
    closed_length    mean length of the others; None where there are none, or no window
    """

    name: str
    images: int
    pixels: int
    above: float
    below: float
    missed: float
    length: float
    open_share: float | None = None
    closed_length: float | None = None


def structures_of(
    truth: Any, interval: Interval, *, regions: Mapping[str, Any] | None = None, labels: Any = None,
    names: Mapping[int, str] | None = None, windowed: bool = False,
) -> list[Structure]:  # fmt: skip
    """Every structure: all pixels, each of some `regions` by name, each label of `labels` but 0, by its name.

    A region is a mask or weights (n, *pixels), of which a pixel with a weight counts, or (n,) for whole images. Where
    values were seen through a window (`windowed`), an end at 0 or 1 is open.

    >>> truth = np.array([[0.1, 0.5, 0.9, 0.9]])
    >>> held = Interval(truth * 0 + 0.2, truth * 0 + 0.6)
    >>> rows = structures_of(truth, held, labels=np.array([[0, 1, 1, 2]]), names={1: "liver"})
    >>> [(row.name, row.pixels, row.above, row.below) for row in rows]
    [('all pixels', 4, 0.5, 0.25), ('liver', 2, 0.5, 0.0), ('label 2', 1, 1.0, 0.0)]
    """
    truth = as_array(truth, "truth")
    check_same_shape(interval=interval.lower, truth=truth)
    labels = check_labels(labels, trusted_band(interval.lower, interval.upper))
    named = {name: place_of(x, interval.lower, f"region {name!r}", name) for name, x in (regions or {}).items()}

    def work(start: int, stop: int) -> dict[str | int, Array]:
        x, lower, upper = (rows_of(part, start, stop) for part in (truth, interval.lower, interval.upper))
        check_values("truth", x, start)
        length, opened = upper.astype(np.float64) - lower, open_ends(lower, upper) > 0
        parts = (np.ones(x.shape), x > upper, x < lower, length, opened, length * ~opened)
        columns = np.stack([np.asarray(part, np.float64).reshape(len(x), -1) for part in parts])
        found: dict[str | int, Array] = {ALL_PIXELS: columns.sum(axis=-1)}
        for name, (place, values) in named.items():
            whole = place == "subgroup"
            inside = values[start:stop, None] if whole else region_rows(values, f"region {name!r}", start, stop) > 0
            found[name] = (columns * inside.reshape(len(x), -1)).sum(axis=-1)
        if labels is not None:
            numbers = rows_of(labels, start, stop).reshape(len(x), -1)
            for label in np.unique(numbers[numbers != 0]).tolist():
                found[int(label)] = (columns * (numbers == label)).sum(axis=-1)
        return found

    arrays = (truth, interval.lower, interval.upper, labels, *(values for _, values in named.values()))
    sums: dict[str | int, list[Array]] = {}
    for part in over_images(work, truth, current_runner(), arrays):
        for name, rows in part.items():
            sums.setdefault(name, []).append(rows)
    titles: dict[str | int, str] = {name: name for name in (ALL_PIXELS, *named)}
    titles |= {key: (names or {}).get(key, f"label {key}") for key in sorted(x for x in sums if isinstance(x, int))}
    return [_row(title, np.concatenate(sums[key], axis=1), windowed) for key, title in titles.items()]


def _row(name: str, sums: Array, windowed: bool) -> Structure:
    """Sums (6, n) of the images, of one, above, below, length, open and closed length, as a row."""
    count, above, below, length, opened, closed = sums.sum(axis=1).tolist()
    having, total = sums[0] > 0, max(count, 1.0)
    shares = (sums[1] + sums[2])[having] / sums[0][having]
    missed = float(shares.mean()) if having.any() else 0.0
    row = (name, int(having.sum()), int(count), above / total, below / total, missed, length / total)
    held = count - opened
    return Structure(*row, opened / total, closed / held if held else None) if windowed else Structure(*row)
