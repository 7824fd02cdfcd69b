"""House style of all figures: sizes for print, colours that colour-blind readers can tell apart, files without dates.

Figures are made without pyplot, so that no screen is needed and nothing of a user's session is changed.
"""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..images.library import Array
from ..storage.files import replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

# Okabe and Ito
BLACK = "#000000"
ORANGE = "#e69f00"
SKY = "#56b4e9"
GREEN = "#009e73"
BLUE = "#0072b2"
RED = "#d55e00"
GREY = "#999999"
ABOVE = "#ff7f0e"  # orange: the truth lies above its interval, in every picture, legend and chart
BELOW = "#00b2ff"  # blue: it lies below
QUIET = "#5b646b"  # of names and numbers beside a chart

COLUMN = 3.4  # inches, one column of a paper
TEXT_WIDTH = 6.8  # inches, both columns

_UNDATED: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}


def house_style(changes: dict[Any, Any] | None = None) -> AbstractContextManager[None]:
    """Matplotlib in the style of house.mplstyle, with some of its settings changed."""
    from matplotlib import rc_context

    return rc_context(changes, str(files(__package__).joinpath("house.mplstyle")))


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A figure of some inches, and its axes as `Figure.subplots` gives them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def figure_bytes(figure: Figure, kind: str) -> bytes:
    """A figure as pdf, svg or png; without dates, so that equal figures are equal bytes."""
    content = io.BytesIO()
    figure.savefig(content, format=kind, metadata=_UNDATED[kind])
    return content.getvalue()


def save_figure(figure: Figure, folder: Path, name: str, kinds: tuple[str, ...] = ("pdf", "png")) -> list[Path]:
    """Write a figure in some formats, each aside and then renamed."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{kind}" for kind in kinds]
    for path, kind in zip(paths, kinds, strict=True):
        replace_file(path, figure_bytes(figure, kind))
    return paths


def show_image(
    axes: Axes, pixels: Array, title: str = "", *, least: float = 0.0, most: float | None = 1.0, colours: str = "gray"
) -> AxesImage:
    """Show an image (h, w), or (3, h, w) in colour, without ticks; values up to `least` are darkest."""
    if pixels.ndim == 3:
        pixels = ((pixels.transpose(1, 2, 0) - least) / ((most or 1.0) - least)).clip(0, 1)
    shown = axes.imshow(pixels, colours, vmin=least, vmax=most)
    axes.set(xticks=[], yticks=[], title=title)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    return shown


def show_map(axes: Axes, values: Array, title: str, label: str = "") -> None:
    """A map (h, w) of values of at least 0 in cividis with its scale; of colours (3, h, w) the mean."""
    shown = show_image(axes, values.mean(axis=0) if values.ndim == 3 else values, title, most=None, colours="cividis")
    axes.figure.colorbar(shown, ax=axes, label=label, shrink=0.8)
