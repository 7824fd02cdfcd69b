"""Images of different sizes: made one by one where passes run now, put in a store in order by this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..bands import calibrated_quantiles
from ..images import Array, Band
from ..images.ragged import Ragged, growing_ragged, read_ragged
from ..kernels import cut_rows
from ..storage.growth import digest_of
from .blocks import numbered, watched, where
from .runner import PER_PIXEL, current

T = TypeVar("T")
_READ_BYTES = 2**24  # at a time


def each_image(make: Callable[[int], T], reads: Sequence[Ragged], pixels: Array) -> Iterator[T]:
    """`make(image)` for every image, in order; it reads that image of `reads` and works on so many `pixels`, (n,)."""
    size = np.sum([x.sizes * x.dtype.itemsize for x in reads], axis=0)
    cost = int((2 * size + PER_PIXEL * pixels).max())  # of the largest image
    rows = max(1, min(_READ_BYTES // int(size.max()), current().memory // (2 * cost)))
    jobs = cut_rows(len(pixels), rows)

    def several(start: int, stop: int) -> list[T]:
        return [make(i) for i in range(start, stop)]

    return chain.from_iterable(current().each(several, jobs, min(rows, len(pixels)) * cost, rows * int(size.mean())))


def ragged_to(
    path: Path,
    shapes: Sequence[tuple[int, ...]],
    dtype: Any,
    made: Iterable[Mapping[str, Array]],
    about: Mapping[str, Any],
    settle: Callable[[Path, Path], None] | None = None,
) -> None:
    """Put the lower and upper ends of images, as they are made, in a store that `read_ragged` reads."""
    ends = "lower", "upper"
    sets = dict.fromkeys(ends, (np.array(shapes, np.int64), dtype))
    with growing_ragged(path, sets, about, **({} if settle is None else {"settle": settle})) as put:
        for part in made:
            for name in ends:
                put(name, part[name])


def ragged_bands(samples: Ragged, out: Path | None, miscoverage: float | Fraction = 0.1) -> Band:
    """Calibrated quantiles of the samples (m, *pixels) of each image: in a store, or in memory where `out` is None."""

    def make(image: int) -> dict[str, Array]:
        with numbered(image):
            band = calibrated_quantiles(samples[image][None], miscoverage)
        return {"lower": band.lower[0], "upper": band.upper[0]}

    shapes = [shape[1:] for shape in samples.shapes]
    pixels = np.array([np.prod(shape, dtype=np.int64) for shape in shapes])
    first = calibrated_quantiles(samples[0][None], miscoverage)
    if out is None:
        parts = list(each_image(make, [samples], pixels))
        lower, upper = (Ragged([part[end] for part in parts]) for end in ("lower", "upper"))
        return Band(lower, upper, source=first.source)
    request = {"samples": where(getattr(samples.images, "values", None)), "shapes": shapes, "source": first.source}
    about = {"source": first.source, "request": digest_of(request)}
    if not out.exists():
        ragged_to(out, shapes, first.lower.dtype, each_image(make, [samples], pixels), about)
    elif _request(out) != about["request"]:
        raise FileExistsError(f"{out} exists and holds something else; choose another name")
    found = read_ragged(out, watched)
    return Band(found["lower"], found["upper"], source=first.source)


def _request(path: Path) -> Any:
    import zarr

    return dict(zarr.open_group(path, mode="r").attrs).get("request")
