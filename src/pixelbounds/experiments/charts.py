"""Figures from the results, and two that need none: the motivation and the losses."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Band, Interval
from ..confidence import hoeffding_bentkus
from ..families import additive
from ..losses import l01, l_gamma
from .drawing import BLACK, BLUE, COLOURS, MARKERS, ORANGE, RED, SKY, WIDTH, save, style
from .rows import BAND_NAMES, BOUND_NAMES, REFERENCE, SHORTEST, Row
from .tables import Summary, summaries

_SHORT = {
    "rcps": "RCPS", "krcps_best": "K-RCPS (best)", "krcps_chosen": "K-RCPS (chosen)", "krcps_plain": "K-RCPS",
    "frontier": "frontier", "featured": "frontier, features", "oracle_cut": "oracle cut", "oracle": "oracle",
}  # fmt: skip
_BAND = {**BAND_NAMES, "multiplicative": "N-Conffusion, mult.", "conffusion": "N-Conffusion, add."}


def draw_charts(results: dict[str, Any], folder: str | Path) -> list[Path]:
    """All figures that need no images."""
    folder = Path(folder)
    out = [*motivation(folder), *losses(folder), *risks(results, folder), *lengths(results, folder)]
    curves = {point["curve"] for point in results["curves"]}
    out += by_calibration(results, folder) if "calibration" in curves else []
    return out + (by_groups(results, folder) if "groups" in curves else [])


# ---------------------------------------------------------------- the paper's ideas


def motivation(folder: Path, n: int = 128, seed: int = 0) -> list[Path]:
    """Two features, one widening each: where Hoeffding-Bentkus allows the risk, and what two widenings gain."""
    grid = np.arange(0, 3.6001, 0.02)
    bound = [hoeffding_bentkus(np.full(n, count / (2 * n)), 0.1) for count in range(n // 2)]
    allowed = int(np.sum(np.array(bound) <= 0.1)) - 1
    with style() as plt:
        figure, panels = plt.subplots(1, 2, figsize=(WIDTH, 3.2))
        for axes, mu in zip(panels, ((-1.0, 1.0), (-2.0, 0.75)), strict=True):
            truth = np.random.default_rng(seed).normal(mu, 1, (n, 2))
            need = additive.shortfall(truth, Band(np.full((n, 2), -1.0), np.full((n, 2), 1.0)))
            missed = (need[:, :, None] > grid).sum(axis=0)
            passes = missed[0][:, None] + missed[1][None] <= allowed
            length = 2 + grid[:, None] + grid[None]
            one = int(np.argmax(passes.diagonal()))
            two = np.unravel_index(np.where(passes, length, np.inf).argmin(), passes.shape)
            axes.contourf(grid, grid, passes.T, levels=[-0.5, 0.5, 1.5], colors=["#f3d9c9", "#d3e6f3"])
            axes.contour(grid, grid, passes.T, levels=[0.5], colors=[BLACK], linewidths=0.8)
            axes.plot([0, 3.6], [0, 3.6], color="#777777", linewidth=0.8, linestyle="--")
            axes.plot(grid[one], grid[one], "*", color=BLUE, markersize=11, label="one widening", markeredgecolor="w")
            axes.plot(*grid[list(two)], "*", color=ORANGE, markersize=11, label="two widenings", markeredgecolor=BLACK)
            gain = length[one, one] - length[two]
            axes.set(
                xlabel=r"$\lambda_1$", ylabel=r"$\lambda_2$", xlim=(0, 3.6), ylim=(0, 3.6), aspect="equal",
                title=rf"$\mu = ({mu[0]:g}, {mu[1]:g})$: gain $\Delta$ = {gain:.2f} of {length[one, one]:.2f}",
            )  # fmt: skip
            axes.text(3.5, 2.3, r"$\hat R^{01+} \leq \epsilon$", ha="right")
            axes.text(1.4, 0.5, r"$\hat R^{01+} > \epsilon$")
            axes.grid(visible=False)
        panels[1].legend(loc="upper left")
        return save(figure, folder, "motivation")


def losses(folder: Path) -> list[Path]:
    """The loss and its convex surrogates against x and against the widening, for the interval [0.5, 1.5]."""
    x, w = np.linspace(0, 2, 801), np.linspace(0, 0.5, 801)
    against_x = x[:, None], Interval(np.full((801, 1), 0.5), np.full((801, 1), 1.5))
    against_w = np.full((801, 1), 1.6), Interval(0.5 - w[:, None], 1.5 + w[:, None])
    with style() as plt:
        figure, panels = plt.subplots(1, 2, figsize=(WIDTH, 2.4))
        for axes, at, (truth, interval) in zip(panels, (x, w), (against_x, against_w), strict=True):
            axes.plot(at, l01(truth, interval), color=BLACK, label=r"$\ell^{01}$")
            for gamma, colour, dash in ((0.0, BLUE, "--"), (0.5, RED, "-."), (0.9, ORANGE, ":")):
                value = l_gamma(truth, interval, gamma)
                axes.plot(at, value, color=colour, linestyle=dash, label=rf"$\ell^\gamma$, $\gamma$ = {gamma:g}")
        panels[0].set(xlabel="$x$", ylabel="loss", ylim=(-0.1, 3), title=r"$\lambda = 0$")
        panels[1].set(xlabel=r"$\lambda$", ylabel="loss", ylim=(-0.1, 2.2), title="$x = 1.6$")
        panels[0].legend(loc="upper center")
        return save(figure, folder, "losses")


# ---------------------------------------------------------------- the table as figures


def _name(row: Row) -> str:
    scan = "" if row.scan_level is None else ", unit: scan"
    bound = "" if row.bound == "none" else f", {BOUND_NAMES[row.bound]}"
    return f"{_BAND[row.band]}, {_SHORT[row.procedure]}{bound}{scan}"


def _shown(results: dict[str, Any]) -> list[Summary]:
    """Rows whose unit is the image and that were certified in every draw."""
    return [s for s in summaries(results) if s.row.scan_level is None and not s.uncertified]


def _colour(row: Row) -> str:
    if not row.controlled:
        return "#999999"
    return BLUE if row.procedure in ("frontier", "featured") else ORANGE if row.procedure.startswith("krcps") else SKY


def risks(results: dict[str, Any], folder: Path) -> list[Path]:
    """Risk on the validation images over the draws, as box plots."""
    found = [s for s in _shown(results) if s.row.controlled]
    level = results["configuration"]["task"]["risk_level"]
    with style() as plt:
        figure, axes = plt.subplots(figsize=(WIDTH, 0.5 + 0.19 * len(found)))
        boxes = axes.boxplot(
            [s.risk for s in found], orientation="horizontal", widths=0.6, patch_artist=True,
            tick_labels=[_name(s.row) for s in found], flierprops={"markersize": 2.5},
            medianprops={"color": BLACK},
        )  # fmt: skip
        for patch, s in zip(boxes["boxes"], found, strict=True):
            patch.set(facecolor=_colour(s.row), alpha=0.75)
        axes.axvline(level, color=RED, linewidth=1, label=rf"$\epsilon$ = {level:g}")
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set(xlabel=f"share of pixels outside, {len(found[0].risk)} draws")
        axes.legend(loc="lower left")
        return save(figure, folder, "risk")


def lengths(results: dict[str, Any], folder: Path) -> list[Path]:
    """Mean length of every row with its deviation over the draws, and the limit; rows far off are arrows."""
    found = _shown(results)
    means = np.array([s.length.mean() for s in found])
    far = 1.6 * float(np.median(means))
    limit = next((s.length.mean() for s in found if s.row.procedure == "oracle"), None)
    with style() as plt:
        figure, axes = plt.subplots(figsize=(WIDTH, 0.5 + 0.19 * len(found)))
        for y, s in enumerate(found):
            marked = s.row.key in (REFERENCE, SHORTEST)
            if means[y] > far:
                axes.plot(far, y, ">", color=_colour(s.row), markeredgecolor=BLACK, markeredgewidth=0.3)
                axes.annotate(f"{means[y]:.2f}", (far, y), (-6, 0), textcoords="offset points", ha="right", va="center")
                continue
            axes.errorbar(
                s.length.mean(), y, xerr=s.deviation, fmt="D" if marked else "o", color=_colour(s.row), capsize=2,
                markeredgecolor=BLACK, markeredgewidth=0.8 if marked else 0.3, ecolor=BLACK, elinewidth=0.7,
            )  # fmt: skip
        if limit is not None:
            axes.axvline(limit, color="#999999", linestyle="--", linewidth=1, label="oracle")
            axes.legend(loc="upper right")
        axes.set_yticks(range(len(found)), [_name(s.row) for s in found])
        axes.invert_yaxis()
        axes.set(xlabel="mean interval length (bar: deviation over the draws)")
        return save(figure, folder, "length")


# ---------------------------------------------------------------- what the paper lacks


def _means(points: list[dict[str, Any]], x: str, by: tuple[str, ...]) -> dict[tuple[Any, ...], tuple[Any, Any]]:
    """Mean length at every x for each combination of some keys: x (p,), length (p,)."""
    sums: dict[tuple[Any, ...], dict[Any, list[float]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        sums[tuple(point[name] for name in by)][point[x]].append(point["length"])
    return {
        key: (np.array(sorted(at)), np.array([np.mean(at[value]) for value in sorted(at)])) for key, at in sums.items()
    }


def by_calibration(results: dict[str, Any], folder: Path) -> list[Path]:
    """What the bound costs: mean length against the number of calibration images, for each bound."""
    points = [p for p in results["curves"] if p["curve"] == "calibration"]
    whole = {(p["bound"], p["x"]) for p in points} - {(p["bound"], p["x"]) for p in points if not p["certified"]}
    lines = _means([p for p in points if (p["bound"], p["x"]) in whole], "x", ("bound",))
    limit = next((s.length.mean() for s in summaries(results) if s.row.procedure == "oracle_cut"), None)
    with style() as plt:
        figure, axes = plt.subplots(figsize=(WIDTH / 2 + 0.6, 2.8))
        order = [bound for bound in BOUND_NAMES if (bound,) in lines]
        for bound, colour, marker in zip(order, COLOURS, MARKERS, strict=False):
            axes.plot(*lines[bound,], marker=marker, color=colour, label=BOUND_NAMES[bound])
        if limit is not None:
            axes.axhline(limit, color="#777777", linestyle="--", linewidth=1, label="the same path, no bound")
        n_opt = results["configuration"]["frontier"]["n_opt"]
        axes.set(xlabel=f"calibration images (of which {n_opt} fit)", ylabel="mean interval length")
        axes.legend()
        return save(figure, folder, "length_by_calibration")


def by_groups(results: dict[str, Any], folder: Path) -> list[Path]:
    """Mean length against K, one panel per number of fitting images."""
    points = [p for p in results["curves"] if p["curve"] == "groups"]
    lines = _means(points, "k", ("n_opt", "method", "bound"))
    counts = sorted({key[0] for key in lines})
    kinds = sorted({key[1:] for key in lines}, key=lambda kind: (not kind[0].startswith("krcps"), kind))
    with style() as plt:
        figure, panels = plt.subplots(1, len(counts), figsize=(WIDTH, 2.5), sharey=True, squeeze=False)
        for axes, n_opt in zip(panels[0], counts, strict=True):
            for kind, colour, marker in zip(kinds, (ORANGE, RED, BLUE, BLACK), MARKERS, strict=False):
                if (n_opt, *kind) in lines:
                    name = f"{kind[0].replace('krcps', 'K-RCPS')}, {BOUND_NAMES[kind[1]]}"
                    axes.plot(*lines[(n_opt, *kind)], marker=marker, color=colour, label=name)
            axes.set_xscale("log", base=2)
            ticks = sorted({p["k"] for p in points})
            axes.set_xticks(ticks, [str(k) for k in ticks])
            axes.set(title=f"$n_{{opt}}$ = {n_opt}", xlabel="$K$")
        panels[0, 0].set_ylabel("mean interval length")
        figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        return save(figure, folder, "length_by_groups")
