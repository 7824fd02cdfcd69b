"""What all figures share: sizes for print, colours that colour-blind readers can tell apart, PDF and PNG."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PURPLE = (  # Okabe and Ito
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
GREY = "#999999"
WIDTH = 6.8  # inches, the text width of a page
_STYLE: Any = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "legend.fontsize": 7, "xtick.labelsize": 7,
    "ytick.labelsize": 7, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#dddddd", "grid.linewidth": 0.5, "axes.axisbelow": True, "lines.linewidth": 1.2,
    "lines.markersize": 4, "legend.frameon": False, "pdf.fonttype": 42, "image.interpolation": "nearest",
    "figure.constrained_layout.use": True,
}  # fmt: skip


@contextmanager
def style() -> Iterator[Any]:
    """Matplotlib without a screen, in house style."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with matplotlib.rc_context(_STYLE):
        yield plt


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write a figure as PDF and PNG, without the date, and close it."""
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.pdf", folder / f"{name}.png"]
    figure.savefig(paths[0], metadata={"CreationDate": None})
    figure.savefig(paths[1], dpi=200, metadata={"Software": None})
    plt.close(figure)
    return paths


def image(axes: Any, pixels: Any, title: str = "", *, most: float = 1.0, colours: str = "gray") -> Any:
    """Show an image without ticks; colour images have their channels first."""
    shown = axes.imshow(
        pixels if pixels.ndim == 2 else pixels.transpose(1, 2, 0).clip(0, 1), colours, vmin=0, vmax=most
    )
    axes.set(xticks=[], yticks=[], title=title)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    return shown
