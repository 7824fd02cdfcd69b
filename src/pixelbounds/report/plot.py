"""Pictures for a notebook or a paper, `pixelbounds.plot`: each function takes axes, or makes them, and returns them.

Axes made here belong to pyplot, so that a notebook shows them. Colours are those of the page: orange where the truth
lies above its interval, blue where it lies below; lengths in cividis, which readers with any colour vision see alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..calibration.calibration import Calibration
from ..calibration.words import level_in_words
from ..evaluation.evaluation import Evaluation
from ..images.checks import check_choice, check_count, check_same_shape
from ..images.ends import Interval
from ..images.library import Array, as_array, channels_first, differ_in_size, to_numpy
from .cells import LengthWords
from .charts import draw_path, draw_promises, draw_strata
from .pack import is_colour
from .style import ABOVE, BELOW, COLUMN, house_style, show_image, show_map

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANEL = 1.7  # inches of one image


def intervals(
    interval: Interval, image: int = 0, *, truth: Any = None, estimate: Any = None, plane: int | None = None,
    window: tuple[float, float] | None = None, axes: Any = None,
) -> Array:  # fmt: skip
    """Truth and estimate, where given, both ends and the length of one image, side by side: -> axes (panels,).

    Lengths are in the unit of the interval's measure (HU), where a calibration gave it one.

    interval         what `Calibration.apply` gave, (n, *pixels)
    truth, estimate  images of the same shape
    plane            which plane of a volume, by default the middle one
    window           values shown as black and white; by default what the ends of this image span
    axes             as many axes as panels: three, and one more for truth and estimate each

    >>> shown = intervals(Interval(np.zeros((1, 8, 8)), np.ones((1, 8, 8))))
    >>> [axes.get_title() for axes in shown]
    ['lower end', 'upper end', 'length']
    """
    panels = {"truth": truth, "estimate": estimate, "lower end": interval.lower, "upper end": interval.upper}
    images = {name: _picture(x, image, plane, name) for name, x in panels.items() if x is not None}
    check_same_shape(**{name.replace(" ", "_"): x for name, x in images.items()})
    lower, upper = images["lower end"], images["upper end"]
    least, most = window or _span(float(lower.min()), float(upper.max()))
    if not most > least:
        raise ValueError(f"window is {window}; give the value shown as black and a greater one shown as white")
    chosen = _row(axes, len(images) + 1)
    with house_style():
        for place, (name, pixels) in zip(chosen, images.items(), strict=False):
            show_image(place, pixels, name, least=least, most=most)
        words = LengthWords.of(interval.measure)
        show_map(chosen[-1], (upper - lower) * words.width, "length", words.unit)
    return chosen


def misses(
    truth: Any, interval: Interval, image: int = 0, *, plane: int | None = None, axes: Axes | None = None
) -> Any:
    """One true image with the pixels that its interval misses: orange where truth lies above, blue where below.

    >>> truth = np.linspace(0, 1, 64).reshape(1, 8, 8)
    >>> shown = misses(truth, Interval(truth * 0, truth * 0 + 0.5))
    >>> shown.get_title()
    '50.00% outside'
    """
    parts = {"truth": truth, "lower": interval.lower, "upper": interval.upper}
    images = {name: _picture(x, image, plane, name) for name, x in parts.items()}
    check_same_shape(**images)
    x, lower, upper = images.values()
    above, below = x > upper, x < lower
    outside = float((above | below).mean())
    if x.ndim == 3:
        above, below = np.atleast_2d(above.any(axis=0)), np.atleast_2d(below.any(axis=0))
    place = _row(axes, 1, (_PANEL * 1.5, _PANEL * 1.7))[0]
    with house_style():
        low, high = _span(float(x.min()), float(x.max()))
        show_image(place, x, f"{outside:.2%} outside", least=low, most=high)
        marks = np.zeros((*above.shape, 4))
        for colour, shape, name, where in ((ABOVE, "^", "truth above", above), (BELOW, "v", "truth below", below)):
            marks[where] = [*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)), 1.0]
            place.plot([], [], shape, color=colour, label=name)
        place.imshow(marks)
        place.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=2, handletextpad=0.2)
    return place


def samples(drawn: Any, image: int = 0, *, count: int = 4, plane: int | None = None, axes: Any = None) -> Array:
    """Some samples of one image, their mean and their deviation: samples (n, m, *pixels) -> axes (count + 2,).

    >>> shown = samples(np.random.default_rng(0).uniform(size=(2, 5, 8, 8)), count=2)
    >>> [axes.get_title() for axes in shown]
    ['sample 1', 'sample 2', 'mean of 5', 'deviation']
    """
    if len(as_array(drawn, "samples").shape) < 4:
        raise ValueError(f"samples have shape {tuple(drawn.shape)}; give (n, m, *pixels), m samples of each image")
    shown = np.stack([_picture(x[None], 0, plane, "samples") for x in _image_of(drawn, image, "samples")])
    count = min(check_count(count, "count"), len(shown))
    mean, spread = shown.mean(axis=0), shown.std(axis=0)
    least, most = _span(float(shown.min()), float(shown.max()))
    chosen = _row(axes, count + 2)
    with house_style():
        for i in range(count):
            show_image(chosen[i], shown[i], f"sample {i + 1}", least=least, most=most)
        show_image(chosen[count], mean, f"mean of {len(shown)}", least=least, most=most)
        show_map(chosen[-1], spread, "deviation")
    return chosen


def promises(result: Calibration | Evaluation, *, axes: Axes | None = None) -> Any:
    """Each promise with its level and what was seen: at calibration, or on other images with an interval."""
    if not result.promises:
        raise ValueError("this evaluation looked at no promises; give them: evaluate(truth, interval, promises=[...])")
    place = _row(axes, 1, (1.3 * COLUMN, 0.9 + 0.3 * len(result.promises)))[0]
    with house_style():
        draw_promises(place, result.promises)
    return place


def calibration(shown: Calibration, evaluation: Evaluation | None = None, *, axes: Axes | None = None) -> Any:
    """Risk and bound along the path with the point that was certified, and the risk on other images beside it."""
    promise = shown.promises[0]
    if not len(shown.curve):
        raise ValueError(f"a calibration of the loss {promise.name!r} keeps no curve, so there is none to show")
    place = _row(axes, 1, (1.3 * COLUMN, 2.6))[0]
    with house_style():
        draw_path(place, shown, evaluation)
        place.legend(loc="upper center", bbox_to_anchor=(0.5, -0.24), ncols=1)
        level = level_in_words(promise.at_most)
        place.set_title(f"{place.get_title(loc='left')}; certified is the level, {level}", loc="left")
    return place


def strata(evaluation: Evaluation, by: str = "length", *, axes: Axes | None = None) -> Any:
    """Risk by interval "length", by "edge" strength or by "group", each with its interval."""
    check_choice(by, evaluation.strata, "by")
    place = _row(axes, 1, (1.3 * COLUMN, 0.9 + 0.25 * min(len(evaluation.strata[by]), 12)))[0]
    with house_style():
        draw_strata(place, evaluation.strata[by], by)
    return place


def _image_of(images: Any, image: int, name: str) -> Array:
    x = as_array(images, name)
    check_count(image, "image", least=0, most=len(x) - 1)
    return to_numpy(x[image] if differ_in_size(x) else x[image : image + 1][0])


def _picture(images: Any, image: int, plane: int | None, name: str) -> Array:
    """One image that can be shown: (h, w), or (3, h, w) in colour."""
    x = channels_first(_image_of(images, image, name))
    if x.ndim < 2 or x.ndim > 3:
        raise ValueError(f"{name} has images of shape {x.shape}; only pictures, colour pictures and volumes are shown")
    if x.ndim == 2 or (plane is None and is_colour(x.shape)):
        if plane is not None:
            raise ValueError(f"plane is {plane}, but images of shape {x.shape} have one only; leave it out")
        return x
    at = len(x) // 2 if plane is None else check_count(plane, "plane", least=0, most=len(x) - 1)
    return x[at]


def _span(low: float, high: float) -> tuple[float, float]:
    return (low, high) if high > low else (low, low + 1.0)


def _row(axes: Any, count: int, size: tuple[float, float] | None = None) -> Array:
    """As many axes as panels, given or new."""
    if axes is not None:
        given = np.array(axes if isinstance(axes, Sequence | np.ndarray) else [axes], dtype=object).ravel()
        if len(given) != count or not all(hasattr(x, "imshow") for x in given):
            raise ValueError(f"axes are {len(given)}, but there are {count} panels; give so many matplotlib axes")
        return given
    from matplotlib import pyplot

    with house_style():
        size = size or (_PANEL * count + 0.5, _PANEL + 0.3)
        return np.atleast_1d(pyplot.subplots(1, count, figsize=size, layout="constrained")[1])
