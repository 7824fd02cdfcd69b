"""From what a model gives, samples or quantiles, to a `Band`.

A sampler F draws m images for one observation. The calibrated quantiles are the order statistics of ranks
floor((m + 1) a / 2) and ceil((m + 1)(1 - a / 2)); a further draw falls between them, entry by entry, with probability
at least 1 - a (Lemma 3.2 of the paper), for any sampler and any m for which those ranks exist. The other bands promise
nothing by themselves; risk control makes each of them safe for the truth.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor, prod
from typing import Any

import numpy as np

from .images.checks import (
    ImageError,
    NoGuarantee,
    check_choice,
    check_count,
    check_line,
    check_number,
    check_same_shape,
    numbered,
)
from .images.ends import Band
from .images.foreign import axes_of
from .images.functional import Functional, functional_values
from .images.library import Array, as_array, differ_in_size, in_threads, is_plain, library_of, like, to_numpy
from .images.source import NAMELESS_VALUES, Source, exact_share
from .kernels.selection import tails

FLOOR = 0.01  # least deviation of a band that widens about its mean
NARROW = 0.8  # deviations of the narrow base
_LONG_TAIL = 48  # beyond this rank a selection is cheaper than carrying the tails
_BLOCK_BYTES = 2**26  # samples read at a time from zarr, or converted at a time


def least_samples(miscoverage: float | Fraction) -> int:
    """Fewest samples per image that can give coverage 1 - miscoverage.

    >>> least_samples(0.1), least_samples(0.05)
    (19, 39)
    """
    return ceil(2 / exact_share(miscoverage, "miscoverage")) - 1


def calibrated_ranks(m: int, miscoverage: float | Fraction) -> tuple[int, int]:
    """Ranks, counted from 1, of the calibrated quantiles among m sorted samples.

    >>> calibrated_ranks(128, 0.1)
    (6, 123)
    """
    m, a = check_count(m, "m"), exact_share(miscoverage, "miscoverage")
    low, high = floor((m + 1) * a / 2), ceil((m + 1) * (1 - a / 2))
    if low < 1 or high > m:
        raise NoGuarantee(
            f"{m} samples per image cannot give coverage {float(1 - a):g}: draw at least {least_samples(a)}, "
            f"or ask for a miscoverage of at least {2 / (m + 1):.3g}"
        )
    return low, high


def quantile_source(kind: str, samples: int, miscoverage: float | Fraction) -> Source:
    """How a band of quantiles says that it was made.

    >>> quantile_source("calibrated", 19, 0.1)
    calibrated quantiles, samples 19, miscoverage 1/10
    """
    return Source(f"{kind} quantiles", samples=samples, miscoverage=exact_share(miscoverage, "miscoverage"))


# ---------------------------------------------------------------- reductions over the sample axis

Reduction = Callable[[Any], tuple[Any, Any]]  # samples (n, m, *pixels) -> two images (n, *pixels)
_NOT_FINITE = "samples of {image} hold NaN or infinite values; drop the image or draw again"


def _checked(samples: Any, axis: int) -> tuple[Any, int]:
    samples = as_array(samples, "samples")
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or not -samples.ndim <= axis < samples.ndim:
        raise ValueError(
            f"axis is {axis!r}, but samples have shape {tuple(samples.shape)}; it must be the axis that counts samples"
        )
    return samples, int(axis) % samples.ndim


def _reduce(samples: Any, axis: int, reduction: Reduction) -> tuple[Any, Any]:
    """Reduce the sample axis: in blocks of images for zarr, lazily for Dask, on its device for torch."""
    library = library_of(samples)
    if library == "dask":
        import dask.array as da

        def block(x: Array) -> tuple[Array, Array]:  # (..., m) -> (...), (...)
            try:
                return _reduce_block(np.moveaxis(x, -1, 0), 0, reduction)
            except ImageError as error:  # of which image a block of Dask's is, is not known here
                raise ValueError(error.message.replace("{image}", "an image")) from error

        single = samples.rechunk({axis: -1})
        first, second = da.apply_gufunc(block, "(m)->(),()", single, axis=axis, output_dtypes=[samples.dtype] * 2)
        return first, second
    if library == "zarr":  # where images lie on the first axis, a few are read at a time
        shape = tuple(size for i, size in enumerate(samples.shape) if i != axis)
        row_bytes = prod(samples.shape[1:]) * samples.dtype.itemsize
        step = max(1, _BLOCK_BYTES // row_bytes) if axis > 0 else samples.shape[0]
        parts = []
        for start in range(0, samples.shape[0], step):
            with numbered(start):
                parts.append(_reduce_block(samples[start : start + step], axis, reduction))
        lower = np.concatenate([part[0] for part in parts])
        upper = np.concatenate([part[1] for part in parts])
        return lower.reshape(shape), upper.reshape(shape)
    if library == "torch" and samples.device.type == "cpu":
        first, second = _reduce_block(to_numpy(samples), axis, reduction)
        return like(first, samples).to(samples.dtype), like(second, samples).to(samples.dtype)
    return _reduce_block(samples, axis, reduction)


def _reduce_block(samples: Any, axis: int, reduction: Reduction) -> tuple[Any, Any]:
    """Reduce a block of images; an error names one by its number in the block."""
    move = samples.movedim if library_of(samples) == "torch" else lambda a, b: np.moveaxis(samples, a, b)
    stacked = move(axis, 1) if axis > 0 else samples[None]
    try:
        first, second = reduction(stacked)
    except ImageError as error:
        if axis > 0 or samples.ndim == 1:
            raise
        images = np.swapaxes(to_numpy(samples), 0, 1)  # the samples came first, the images follow
        finite = np.isfinite(images).reshape(len(images), -1).all(axis=1)
        raise ImageError(error.message, int(np.argmin(finite))) from None
    return (first, second) if axis > 0 else (first[0], second[0])


def order_statistics(samples: Any, rank: int, *, threads: bool = True) -> tuple[Any, Any]:
    """The rank-th smallest and the rank-th largest sample: (n, m, *pixels) -> two of (n, *pixels), same dtype."""
    if library_of(samples) == "torch":
        return _order_statistics_torch(samples, rank)
    n, m, *pixels = samples.shape
    p = prod(pixels)
    flat = samples.reshape(n, m, p)
    low = np.empty((n, p), samples.dtype)
    high = np.empty((n, p), samples.dtype)
    columns = max(1, min(p, 2**22 // m))
    per_image = -(-p // columns)

    def work(start: int, stop: int) -> None:
        for job in range(start, stop):
            image, first = divmod(job, per_image)
            a = first * columns
            if not _select(flat[image], a, min(p, a + columns), rank, low[image], high[image]):
                raise ImageError(_NOT_FINITE, image)

    jobs = n * per_image
    for _ in in_threads(work, jobs, max(1, per_image // 16) if threads else jobs):
        pass
    return low.reshape(n, *pixels), high.reshape(n, *pixels)


def _order_statistics_torch(samples: Any, rank: int) -> tuple[Any, Any]:
    """The same on the tensor's own device, image by image, so that little memory is needed."""
    import torch

    m, low, high = samples.shape[1], [], []
    for image, x in enumerate(samples):
        if not bool(torch.isfinite(x).all()):
            raise ImageError(_NOT_FINITE, image)
        low.append(x.topk(rank, dim=0, largest=False).values[rank - 1] if rank < m else x.amax(0))
        high.append(x.topk(rank, dim=0).values[rank - 1] if rank < m else x.amin(0))
    return torch.stack(low), torch.stack(high)


def _select(samples: Array, start: int, stop: int, rank: int, low: Array, high: Array) -> bool:
    if samples.dtype.itemsize > 2 and rank <= _LONG_TAIL:
        if samples.flags.c_contiguous:
            return bool(tails(samples, start, stop, rank, low, high))
        step = max(1, 2**18 // len(samples))  # copied a little at a time, so that the copy stays in the cache
        return all(
            bool(tails(np.ascontiguousarray(samples[:, a:b]), 0, b - a, rank, low[a:b], high[a:b]))
            for a, b in ((a, min(stop, a + step)) for a in range(start, stop, step))
        )
    block = samples[:, start:stop]
    if samples.dtype.itemsize == 2:  # half precision: selection in single is exact
        block = block.astype(np.float32)
    if not np.isfinite(block).all():
        return False
    if rank <= _LONG_TAIL:
        ends = np.empty(stop - start, block.dtype), np.empty(stop - start, block.dtype)
        tails(np.ascontiguousarray(block), 0, stop - start, rank, *ends)
        low[start:stop], high[start:stop] = ends
    else:
        m = len(block)
        ranked = np.partition(block, (rank - 1, m - rank), axis=0)
        low[start:stop], high[start:stop] = ranked[rank - 1], ranked[m - rank]
    return True


# ---------------------------------------------------------------- bands of a sampler


def calibrated_quantiles(samples: Any, miscoverage: float | Fraction, *, axis: int = 1, threads: bool = True) -> Band:
    """Entrywise coverage of future samples: (n, m, *pixels) -> Band of (n, *pixels), m on `axis`.

    Pixels are worked on in `threads`, or one after the other for a caller that has threads of its own.

    >>> samples = np.random.default_rng(0).normal(size=(2, 19, 4, 4))
    >>> calibrated_quantiles(samples, 0.1)
    Band of 2 images of shape (4, 4), float64, calibrated quantiles, samples 19, miscoverage 1/10
    """
    a = exact_share(miscoverage, "miscoverage")
    named = None if is_plain(samples) else axes_of(samples)
    samples, axis = _checked(samples, axis)
    rank, _ = calibrated_ranks(samples.shape[axis], a)  # by symmetry the upper rank is m + 1 - rank
    lower, upper = _reduce(samples, axis, lambda x: order_statistics(x, rank, threads=threads))
    source = quantile_source("calibrated", samples.shape[axis], a)
    return Band(lower, upper, source=source, axes=None if named is None else named.without(axis))


def functional_band(
    samples: Any,
    function: Functional,
    miscoverage: float | Fraction,
    *,
    axis: int = 1,
    known: Sequence[Any] = (),
    name: str | None = None,
) -> Band:
    """Numbers, not pixels: samples (n, m, *pixels) and a function of an image -> Band of its values, (n, q).

    The values of the truth (`functional_values` with the same function) calibrate it like any image, with limits=None
    unless values have limits. `known` is what else is known of each image, as in `functional_values`. The `name` of
    what is measured, by default the function's, is part of how the band was made: another one is another source.

    >>> samples = np.random.default_rng(0).normal(size=(2, 19, 4, 4))
    >>> functional_band(samples, np.mean, 0.1)
    Band of 2 images of shape (1,), float64, mean, calibrated quantiles, samples 19, miscoverage 1/10
    """
    samples = as_array(samples, "samples")
    if not differ_in_size(samples):
        samples, axis = _checked(samples, axis)
        calibrated_ranks(samples.shape[axis], miscoverage)  # before the work, whether they are enough
    band = calibrated_quantiles(functional_values(samples, function, known=known, sample_axis=axis), miscoverage)
    own = str(getattr(function, "__name__", "<lambda>"))
    start = NAMELESS_VALUES if own == "<lambda>" else f"{own}, "
    start = start if name is None else f"{check_line(name, 'name')}, "
    return replace(band, source=replace(band.source, kind=start + band.source.kind))


def naive_quantiles(samples: Any, miscoverage: float | Fraction, *, axis: int = 1) -> Band:
    """Interpolated empirical quantiles, as the paper's baseline: no promise for future samples.

    >>> band = naive_quantiles(np.arange(5.0).reshape(1, 5, 1), 0.5)
    >>> float(band.lower[0, 0]), float(band.upper[0, 0])
    (1.0, 3.0)
    """
    a = exact_share(miscoverage, "miscoverage")

    samples, axis = _checked(samples, axis)
    position = (samples.shape[axis] - 1) * a / 2
    rank, fraction = floor(position) + 1, float(position - floor(position))

    def reduction(x: Any) -> tuple[Any, Any]:
        low, high = order_statistics(x, rank)
        if fraction > 0:
            next_low, next_high = order_statistics(x, rank + 1)
            low, high = low + (next_low - low) * fraction, high - (high - next_high) * fraction
        return low, high

    lower, upper = _reduce(samples, axis, reduction)
    return Band(lower, upper, source=quantile_source("naive", samples.shape[axis], a))


def _moments(samples: Any, axis: int) -> tuple[Any, Any, int]:
    samples, axis = _checked(samples, axis)
    if samples.shape[axis] < 2:
        raise ValueError("one sample per image has no deviation; draw at least 2")

    def reduction(x: Any) -> tuple[Any, Any]:
        if library_of(x) == "torch":
            mean, deviation = x.mean(dim=1), x.std(dim=1)
        else:
            mean = x.mean(axis=1, dtype=np.float64).astype(x.dtype)
            deviation = x.std(axis=1, ddof=1, dtype=np.float64).astype(x.dtype)
        for image, finite in enumerate(np.isfinite(to_numpy(mean + deviation)).reshape(len(mean), -1).all(axis=1)):
            if not finite:
                raise ImageError(_NOT_FINITE, image)
        return mean, deviation

    return *_reduce(samples, axis, reduction), int(samples.shape[axis])


def mean_and_std(samples: Any, *, axis: int = 1, floor: float = FLOOR) -> Band:
    """Mean and deviation, as MC-Dropout uses them: a band that widens about its centre in units of the deviation.

    The deviation is kept at least at `floor`, without which a pixel that never varies could never be covered.

    >>> mean_and_std(np.random.default_rng(0).normal(size=(2, 8, 3)))
    Band of 2 images of shape (3,), float64, mean and deviation, floor 0.01, samples 8
    """
    if check_number(floor, "floor") <= 0:
        raise ValueError(f"floor is {floor}; it must be positive, or a pixel that never varies cannot be covered")
    mean, deviation, m = _moments(samples, axis)
    deviation = deviation.clip(min=floor)
    source = Source(f"mean and deviation, floor {floor:g}", samples=m)
    return Band(mean - deviation, mean + deviation, mean, source=source)


def narrow(samples: Any, *, axis: int = 1, deviations: float = NARROW) -> Band:
    """Risk control alone, for shorter intervals: the mean plus or minus 0.8 deviations, which is then widened.

    What you give up: these intervals do not promise to hold future samples entry by entry, as calibrated quantiles do.
    """
    if check_number(deviations, "deviations") < 0:
        raise ValueError(f"deviations is {deviations}; it must be at least 0")
    mean, deviation, m = _moments(samples, axis)
    half = deviation * deviations
    source = Source(f"mean and {deviations:g} deviations, no entrywise coverage", samples=m)
    return Band(mean - half, mean + half, source=source)


# ---------------------------------------------------------------- bands of a regressor


def quantile_regression(lower: Any, estimate: Any, upper: Any, *, form: str = "distance", floor: float = 1e-6) -> Band:
    """Band of a regressor's triple (lower quantile, estimate, upper quantile), widened about the estimate.

    form "distance" (Angelopoulos et al.): [e - w (e - lower), e + w (upper - e)]; distances below `floor`, crossed
    quantiles among them, are raised to it and counted in a warning. form "printed" (the paper): [e - w lower,
    e + w upper], which is nested only where both quantiles are at least 0.
    """
    check_choice(form, ("distance", "printed"), "form")
    if check_number(floor, "floor") <= 0:
        raise ValueError(f"floor is {floor}; it must be positive, or a pixel of distance 0 cannot be covered")
    lower, estimate, upper = _triple(lower=lower, estimate=estimate, upper=upper)
    below, above = (estimate - lower, upper - estimate) if form == "distance" else (lower, upper)
    short = int((below < 0).sum()) + int((above < 0).sum())
    if short and form == "printed":
        raise ValueError(
            f"{short} quantiles are negative, so the printed form [e - w lower, e + w upper] is not nested; "
            "use form='distance'"
        )
    if short:
        warnings.warn(f"{short} quantiles lie on the wrong side of the estimate; raised to {floor:g}", stacklevel=2)
    below, above = below.clip(min=floor), above.clip(min=floor)
    return Band(estimate - below, estimate + above, estimate, source=f"quantile regression, {form} form")


def conffusion(lower: Any, upper: Any) -> Band:
    """Band of a pair of predicted quantiles; crossed pairs are sorted and counted in a warning."""
    lower, upper = _triple(lower=lower, upper=upper)
    crossed = lower > upper
    count = int(crossed.sum())
    if count:
        warnings.warn(f"{count} of {prod(lower.shape)} pairs of quantiles were crossed; they are sorted", stacklevel=2)
        low = lower * ~crossed + upper * crossed
        upper = upper * ~crossed + lower * crossed
        lower = low
    return Band(lower, upper, source="quantile pair")


def _triple(**arrays: Any) -> list[Any]:
    parts = {name: as_array(x, name) for name, x in arrays.items()}
    check_same_shape(**parts)
    return [to_numpy(x) if library_of(x) == "zarr" else x for x in parts.values()]
