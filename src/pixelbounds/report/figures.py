"""Figures for a paper, of what the page is made of.

Charts are written as PDF and SVG, examples as PNG. Files are named by what they show, never by names from the data, and
the same arguments give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..calibration.calibration import Calibration
from ..evaluation.evaluation import Evaluation
from .cells import LengthWords, strata_rows
from .charts import draw_path, draw_strata, draw_units, level_of_all
from .example import Example
from .pack import one_plane, pictures_of, window_of
from .style import COLUMN, house_style, new_figure, save_figure, show_image, show_map

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_figures(
    folder: str | os.PathLike[str], *, calibration: Calibration, evaluation: Evaluation | None,
    examples: Sequence[Example] = (),
) -> list[Path]:  # fmt: skip
    """Write path, strata and units as PDF and SVG and each example as PNG; return their paths."""
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise ValueError(f"{str(target)!r} is a file; give a folder for the figures")
    out = []
    with house_style({"svg.fonttype": "path", "text.parse_math": False}):
        for name, figure in _charts(calibration, evaluation).items():
            out += save_figure(figure, target, name, ("pdf", "svg"))
        for i, example in enumerate(examples, 1):
            out += save_figure(_example(example, calibration), target, f"example-{i:02d}", ("png",))
    return out


def _charts(calibration: Calibration, evaluation: Evaluation | None) -> dict[str, Figure]:
    charts: dict[str, Figure] = {}
    level = level_of_all(calibration)
    if len(calibration.curve):
        charts["path"], axes = new_figure(COLUMN, 2.9)
        draw_path(axes, calibration, evaluation)
        charts["path"].legend(loc="outside lower left")
    if evaluation is not None:
        charts["units"], axes = new_figure(COLUMN, 2.0)
        draw_units(axes, evaluation, level)
        for name, strata in evaluation.strata.items():
            charts[f"by-{name}"], axes = new_figure(COLUMN, 0.9 + 0.2 * len(strata_rows(strata)))
            draw_strata(axes, strata, name, level, LengthWords.of(calibration.measure))
    return charts


def _example(example: Example, calibration: Calibration) -> Figure:
    """Pictures of one example side by side, with maps of length and widening and their scales."""
    shown = pictures_of(example, calibration.limits)
    low, high = window_of(example, calibration.limits)
    tall = example.pixels[-2] / example.pixels[-1]
    figure, panels = new_figure(1.3 * len(shown), 1.2 * tall + 0.65, 1, len(shown), squeeze=False)
    for axes, (name, x) in zip(panels[0], shown.items(), strict=True):
        axes.set_anchor("N")
        x = one_plane(x)
        if name in ("length", "widening"):
            show_map(axes, x, name, orientation="horizontal", shrink=0.9, pad=0.02)
        else:
            show_image(axes, x, name, least=low, most=high)
    return figure
