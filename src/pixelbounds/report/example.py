"""What a report shows: examples, each one image with its intervals, and the rows of a comparison.

Pictures are gray (h, w), colour with three channels first (3, h, w), or stacks of planes (p, h, w) of which some are
shown; a single channel (1, h, w) is gray. Signals (w,) and colour volumes (c, d, h, w) are not shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..calibration.calibration import Calibration
from ..calibration.promises import Promise, check_promises, risk_targets_of
from ..evaluation.evaluation import Evaluation
from ..images.checks import check_count, check_same_shape, check_values
from ..images.ends import Band, Interval
from ..images.library import Array, as_array, channels_first, differ_in_size, rows_of, to_numpy
from ..images.regions import region_rows


@dataclass(frozen=True, eq=False)
class Row:
    """One line of the comparison: a method, its calibration, what other images say, and seconds where known."""

    name: str
    calibration: Calibration
    evaluation: Evaluation
    seconds: float | None = None


@dataclass(frozen=True, eq=False)
class Example:
    """One image: its interval and whatever else is known of it, (*pixels) each.

    `samples` are (m, *pixels); `band` is the band of this image before calibration, (1, *pixels), such as band[i:i+1];
    `observation` may have another size than the image. `regions` are masks (or weights, outlined where they are above
    0) by the name of the promise that is about them; `also` are further pictures by name. `name` may be any text, such
    as a file name. `image` is its row among the images that were evaluated, so that the page can open the worst.
    """

    name: str
    lower: Any
    upper: Any
    estimate: Any = None
    truth: Any = None
    samples: Any = None
    band: Band | None = None
    observation: Any = None
    regions: Mapping[str, Any] | None = None
    image: int | None = None
    also: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        of = f"of example {self.name!r}"
        if self.image is not None:
            check_count(self.image, f"image {of}", least=0)
        for part in ("lower", "upper", "estimate", "truth", "samples", "observation"):
            value = getattr(self, part)
            if value is not None or part in ("lower", "upper"):
                x = channels_first(to_numpy(as_array(value, f"{part} {of}")), int(part == "samples"))
                check_values(f"{part} {of}", x[None], 0)
                object.__setattr__(self, part, x)
        pixels = self.pixels
        if len(pixels) not in (2, 3):
            raise ValueError(
                f"example {self.name!r} has shape {pixels}; a report shows gray (h, w), colour (3, h, w) or planes "
                "(p, h, w): give one channel or one volume at a time"
            )
        same = {name: getattr(self, name) for name in ("lower", "upper", "estimate", "truth")}
        check_same_shape(**{f"{name} of {self.name!r}": x for name, x in same.items() if x is not None})
        if (self.lower > self.upper).any():
            raise ValueError(f"example {self.name!r} has lower above upper; swap the arrays")
        if self.samples is not None and self.samples.shape[1:] != pixels:
            raise ValueError(f"samples of {self.name!r} have shape {self.samples.shape}; they must be (m, {pixels})")
        if self.band is not None and differ_in_size(self.band.lower) is False:
            object.__setattr__(self, "band", self.band.map(lambda x: channels_first(to_numpy(x), 1)))
        if self.band is not None and self.band.shape != (1, *pixels):
            raise ValueError(f"band of {self.name!r} has shape {self.band.shape}; it must be {(1, *pixels)}")
        object.__setattr__(self, "regions", self._masks())

    def _masks(self) -> dict[str, Array]:
        masks = {}
        for name, region in (self.regions or {}).items():
            values = channels_first(to_numpy(region))
            if not isinstance(name, str) or values.shape != self.pixels or values.dtype.kind not in "biuf":
                raise ValueError(
                    f"region {name!r} of example {self.name!r} is {values.dtype} {values.shape}; give a mask of shape "
                    f"{self.pixels} by the name of its promise"
                )
            masks[name] = region_rows(values[None], f"region {name!r} of example {self.name!r}", 0, 1)[0] > 0
        return masks

    @property
    def pixels(self) -> tuple[int, ...]:
        """Shape of the image."""
        return tuple(self.lower.shape)

    @property
    def length(self) -> Array:
        """Upper minus lower, (*pixels)."""
        return self.upper - self.lower


def examples_of(
    interval: Interval, images: Sequence[int], *, names: Sequence[str] | None = None, band: Band | None = None,
    estimate: Any = None, truth: Any = None, samples: Any = None, observation: Any = None,
    promises: Sequence[Promise] | None = None, numbers: Mapping[str, tuple[Any, Interval]] | None = None,
) -> list[Example]:  # fmt: skip
    """Examples of some images of arrays (n, *pixels), samples (n, m, *pixels); `names` holds a name of each of n.

    The regions of `promises`, given for these n images as to `evaluate`, can be outlined in the viewer. `numbers` are,
    by name, the values of every sample, (n, m), and their calibrated interval, (n, 1): the samples with the smallest
    and the largest value that it allows are shown.
    """
    n = len(interval)
    parts = {"estimate": estimate, "truth": truth, "samples": samples, "band": band, "observation": observation}
    for name, x in {**parts, "names": names}.items():
        if x is not None and len(x) != n:
            raise ValueError(f"{name} hold {len(x)} images but interval {n}; give one for each image")
    places: dict[str, Any] = {}  # regions (n, *pixels) of promises that are about some of the pixels
    if promises is not None:
        targets, masks = risk_targets_of(check_promises(promises), interval.lower, "units", units=False)
        places = {target.name: masks[target.region - 1][1] for target in targets if target.region}
    out = []
    for i in images:
        i = check_count(i, "image", least=0, most=n - 1)
        given = {name: x[i : i + 1] if name == "band" else x[i] for name, x in parts.items() if x is not None}
        name = f"image {i}" if names is None else str(names[i])
        regions = {place: rows_of(values, i, i + 1)[0] for place, values in places.items()}
        given["also"] = {} if samples is None else _extremes(samples[i], numbers or {}, i)
        out.append(Example(name, interval.lower[i], interval.upper[i], regions=regions, image=i, **given))
    return out


def _extremes(samples: Any, numbers: Mapping[str, tuple[Any, Interval]], image: int) -> dict[str, Any]:
    """Of each number the samples with the smallest and the largest value within its interval, by name and value."""
    pictures = {}
    for name, (values, interval) in numbers.items():
        of_samples = to_numpy(values[image]).reshape(len(samples))
        low, high = (to_numpy(end[image]).item() for end in (interval.lower, interval.upper))
        allowed = np.flatnonzero((of_samples >= low) & (of_samples <= high))
        for word, pick in (("smallest", np.argmin), ("largest", np.argmax)) if len(allowed) else ():
            which = allowed[pick(of_samples[allowed])]
            pictures[f"{word} {name}: {of_samples[which]:.4g}"] = samples[which]
    return pictures


_BETWEEN = "between both masks"  # its outline is that of the outer and of the inner mask


def with_masks(example: Example) -> Example:
    """An example of a segmentation, with its outer and inner mask as pictures and outlines."""
    outer, inner = example.upper >= 1, example.lower > 0
    masks = {"outer mask": outer, "inner mask": inner}
    also = {name: mask.astype(np.float32) for name, mask in masks.items()}
    regions = {**(example.regions or {}), **masks, _BETWEEN: outer & ~inner}
    return replace(example, regions=regions, also={**(example.also or {}), **also})


def outline_of(examples: Sequence[Example]) -> str:
    """What is outlined first: both masks, or where they are one everywhere, the outer one."""
    return _BETWEEN if any((x.regions or {})[_BETWEEN].any() for x in examples) else "outer mask"
