"""The curves of a training run, as a picture in its folder: what it learned, and what that was worth elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..report.style import new_figure


def draw_curves(folder: Path) -> Path | None:
    """Draw the losses of `log.jsonl` over the steps into `curves.png`; None where there is nothing to draw yet."""
    from ..diffusion.session import read_log

    if not (folder / "log.jsonl").exists():
        return None
    log = read_log(folder)
    if len(log.get("step", ())) < 2:
        return None
    figure, axes = new_figure(7, 4)
    axes.plot(log["step"], log["loss"], color="0.6", label="training images")
    if "validation" in log:
        seen = np.isfinite(log["validation"])
        steps, losses = log["step"][seen], log["validation"][seen]
        best = int(np.argmin(losses))
        axes.plot(steps, losses, color="tab:blue", marker=".", label="validation images, averaged network")
        axes.axvline(steps[best], color="tab:blue", linestyle=":")
        axes.annotate(f"kept: {losses[best]:.4g} at step {steps[best]:.0f}", (steps[best], losses[best]), (4, 12),
                      textcoords="offset points")  # fmt: skip
    axes.set(xlabel="step", ylabel="loss", yscale="log")
    axes.legend()
    path = folder / "curves.png"
    figure.savefig(path, dpi=100)
    return path
