"""Figures from the results, and two that need none: the motivation and the losses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from pixelbounds.calibration.bounds import hoeffding_bentkus
from pixelbounds.calibration.families import additive
from pixelbounds.calibration.losses import l01
from pixelbounds.images.ends import Band, Interval
from pixelbounds.images.library import Array
from pixelbounds.report.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    SKY,
    TEXT_WIDTH,
    house_style,
    new_figure,
    save_figure,
)

from .rows import BAND_NAMES, BOUND_NAMES, REFERENCE, SHORTEST, TableRow
from .summaries import Summary, summaries

Lines = dict[tuple[Any, ...], Array]

_SHORT = {
    "rcps": "RCPS", "krcps_best": "K-RCPS (best)", "krcps_chosen": "K-RCPS (chosen)", "krcps_plain": "K-RCPS",
    "krcps_equal": "K-RCPS (best, few)",
    "frontier": "frontier", "featured": "frontier, features", "oracle_bound": "oracle cut, certifiable",
    "oracle_cut": "oracle cut", "oracle": "oracle",
}  # fmt: skip
_BAND = {
    **BAND_NAMES, "multiplicative": "N-Conffusion, mult.", "conffusion": "N-Conffusion, add.",
    "printed": "Algorithm 3 as printed",
}  # fmt: skip
_LENGTH = "mean interval length, share of the range"
_FAMILIES = {"RCPS": SKY, "K-RCPS": ORANGE, "frontier": BLUE, "oracle": GREY}
_PLAIN = {"facecolor": "w", "edgecolor": "none", "pad": 1}
_MARKED = {REFERENCE: "K-RCPS, the paper's", SHORTEST: "ours"}
_BOUND: dict[str, dict[str, Any]] = {  # Bentkus often equals Hoeffding-Bentkus, which is therefore wide and beneath
    "hoeffding_bentkus": {"color": SKY, "marker": "o", "markersize": 7, "linewidth": 3.5},
    "betting": {"color": RED, "marker": "s"},
    "empirical_bernstein": {"color": GREEN, "marker": "^", "linestyle": "-."},
    "bentkus": {"color": BLACK, "marker": "D", "linestyle": "--", "markersize": 3},
    "hoeffding": {"color": ORANGE, "marker": "v", "linestyle": ":"},
}
_METHOD: dict[tuple[str, str], dict[str, Any]] = {
    ("krcps", "hoeffding_bentkus"): {"color": RED, "marker": "s"},
    ("krcps", "betting"): {"color": ORANGE, "marker": "o"},
    ("frontier, band groups", "betting"): {"color": BLUE, "marker": "^", "linestyle": "--"},
    ("frontier, learned groups", "betting"): {"color": BLACK, "marker": "D", "linestyle": "-."},
}


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
    with house_style():
        figure, panels = new_figure(TEXT_WIDTH, 3.2, 1, 2)
        for axes, mu in zip(panels, ((-1.0, 1.0), (-2.0, 0.75)), strict=True):
            truth = np.random.default_rng(seed).normal(mu, 1, (n, 2))
            need = additive.score(truth, Band(np.full((n, 2), -1.0), np.full((n, 2), 1.0)))
            missed = (need[:, :, None] > grid).sum(axis=0)
            passes = missed[0][:, None] + missed[1][None] <= allowed
            length = 2 + grid[:, None] + grid[None]
            one = int(np.argmax(passes.diagonal()))
            two = np.unravel_index(np.where(passes, length, np.inf).argmin(), passes.shape)
            axes.contourf(grid, grid, passes.T, levels=[-0.5, 0.5, 1.5], colors=["#f3d9c9", "#d3e6f3"])
            axes.contour(grid, grid, passes.T, levels=[0.5], colors=[BLACK], linewidths=0.8)
            axes.plot([0, 3.6], [0, 3.6], color="#777777", linewidth=0.8, linestyle="--")
            open_star = {"markersize": 18, "markerfacecolor": "w", "markeredgecolor": BLUE, "markeredgewidth": 1.4}
            axes.plot(grid[one], grid[one], "*", label="one widening", **open_star)
            axes.plot(
                *grid[list(two)], "*", color=ORANGE, markersize=9, label="two widenings", markeredgecolor=BLACK,
                markeredgewidth=0.7,
            )  # fmt: skip
            gain = length[one, one] - length[two]
            axes.set(
                xlabel=r"$\lambda_1$", ylabel=r"$\lambda_2$", xlim=(0, 3.6), ylim=(0, 3.6), aspect="equal",
                title=rf"$\mu = ({mu[0]:g}, {mu[1]:g})$: gain $\Delta$ = {gain:.2f} of {length[one, one]:.2f}",
            )  # fmt: skip
            axes.text(3.5, 2.3, r"$\hat R^{01+} \leq \epsilon$", ha="right")
            axes.text(1.4, 0.5, r"$\hat R^{01+} > \epsilon$")
            axes.grid(visible=False)
        panels[1].legend(loc="upper left", markerscale=0.7)
        return save_figure(figure, folder, "motivation")


def l_gamma(truth: np.ndarray, interval: Interval, gamma: float) -> np.ndarray:
    """The convex surrogate, 0 within the inner share gamma of the interval and 1 at its ends: (n, *pixels) -> (n,)."""
    q = gamma / (1 - gamma)
    distance = np.abs(truth - (interval.lower + interval.upper) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(distance > 0, 2 * distance / interval.length, 0.0)
    return np.maximum((1 + q) * ratio - q, 0).mean(axis=1)


def losses(folder: Path) -> list[Path]:
    """The loss and its convex surrogates against x and against the widening, for the interval [0.5, 1.5]."""
    x = np.linspace(0, 2, 801)
    w = np.linspace(0, 0.5, 801)
    against_x = x[:, None], Interval(np.full((801, 1), 0.5), np.full((801, 1), 1.5))
    against_w = np.full((801, 1), 1.6), Interval(0.5 - w[:, None], 1.5 + w[:, None])
    with house_style():
        figure, panels = new_figure(TEXT_WIDTH, 2.4, 1, 2)
        for axes, at, (truth, interval) in zip(panels, (x, w), (against_x, against_w), strict=True):
            axes.plot(at, l01(truth, interval), color=BLACK, label=r"$\ell^{01}$")
            for gamma, colour, dash in ((0.0, BLUE, "--"), (0.5, RED, "-."), (0.9, ORANGE, ":")):
                value = l_gamma(truth, interval, gamma)
                axes.plot(at, value, color=colour, linestyle=dash, label=rf"$\ell^\gamma$, $\gamma$ = {gamma:g}")
        panels[0].set(xlabel="$x$", ylabel="loss", ylim=(-0.1, 3), title=r"$\lambda = 0$")
        panels[1].set(xlabel=r"$\lambda$", ylabel="loss", ylim=(-0.1, 2.2), title="$x = 1.6$")
        panels[0].legend(loc="upper center")
        return save_figure(figure, folder, "losses")


# ---------------------------------------------------------------- the table as figures


def _name(row: TableRow) -> str:
    scan = "" if row.scan_level is None else ", unit: scan"
    bound = "" if row.bound == "none" else f", {BOUND_NAMES[row.bound]}"
    return f"{_BAND[row.band]}, {_SHORT[row.procedure]}{bound}{scan}"


def _shown(results: dict[str, Any]) -> list[Summary]:
    """Rows whose unit is the image."""
    return [s for s in summaries(results) if s.row.scan_level is None]


def _family(row: TableRow) -> str:
    if not row.controlled:
        return "oracle"
    return "K-RCPS" if row.procedure.startswith("krcps") else "RCPS" if row.procedure == "rcps" else "frontier"


def _colour(row: TableRow) -> str:
    return _FAMILIES[_family(row)]


def _far(values: Iterable[float]) -> float:
    """Where an axis of lengths ends: what lies beyond would flatten the rest, and becomes an arrow."""
    found = list(values)
    return 1.6 * float(np.median(found)) if found else np.inf


def _rows(axes: Any, found: list[Summary], marker: str, right: bool) -> None:
    """Names of the rows, what their colours mean, and which were not certified, said at one end of the row."""
    axes.set_yticks(range(len(found)), [_name(s.row) for s in found])
    axes.set_ylim(len(found) - 0.4, -0.6)
    for name in sorted({_family(s.row) for s in found}, key=list(_FAMILIES).index):
        edge = {"markeredgecolor": BLACK, "markeredgewidth": 0.3}
        axes.plot([], [], marker, color=_FAMILIES[name], label=name, markersize=5, **edge)
    for y, s in enumerate(found):
        if s.uncertified:
            draws = "" if s.uncertified == len(s.length) else f" in {s.uncertified} of {len(s.length)} draws"
            axes.annotate(
                f"not certified{draws}", (right, y), (-4 if right else 4, 0), textcoords="offset points",
                xycoords=axes.get_yaxis_transform(), ha="right" if right else "left", va="center", fontsize=7,
                fontstyle="italic", bbox=_PLAIN,
            )  # fmt: skip


def risks(results: dict[str, Any], folder: Path) -> list[Path]:
    """Risk on the validation images over the draws, as box plots; rows that were not certified have none."""
    found = [s for s in _shown(results) if s.row.controlled]
    level = results["configuration"]["task"]["risk_level"]
    draws = max(len(s.risk) for s in found)
    with house_style():
        figure, axes = new_figure(TEXT_WIDTH, 0.8 + 0.19 * len(found))
        for y, s in enumerate(found):
            if not s.uncertified:
                axes.boxplot(
                    [s.risk], positions=[y], orientation="horizontal", widths=0.6, patch_artist=True,
                    manage_ticks=False, flierprops={"markersize": 2.5}, medianprops={"color": BLACK},
                    boxprops={"facecolor": _colour(s.row), "alpha": 0.75},
                )  # fmt: skip
        _rows(axes, found, "s", right=False)
        axes.axvline(level, color=RED, linewidth=1, label=rf"$\epsilon$ = {level:g}")
        axes.grid(visible=False, axis="y")
        axes.set(xlabel=f"share of pixels outside, {draws} draws")
        figure.legend(loc="outside upper center", ncols=5)
        return save_figure(figure, folder, "risk")


def lengths(results: dict[str, Any], folder: Path) -> list[Path]:
    """Mean length of every row with its deviation over the draws, and the limit; rows far off are arrows."""
    found = _shown(results)
    far = _far(s.length.mean() for s in found if not s.uncertified)
    limit = next((s.length.mean() for s in found if s.row.procedure == "oracle"), None)
    with house_style():
        figure, axes = new_figure(TEXT_WIDTH, 0.9 + 0.19 * len(found))
        _rows(axes, found, "o", right=True)
        for y, s in enumerate(found):
            mean = s.length.mean()
            edge = {"color": _colour(s.row), "markeredgecolor": BLACK}
            if s.uncertified:
                continue
            if mean > far:
                axes.plot(far, y, ">", markeredgewidth=0.3, **edge)
                axes.annotate(
                    f"{mean:.2f}", (far, y), (-6, 0), textcoords="offset points", ha="right", va="center", fontsize=7,
                    bbox=_PLAIN,
                )  # fmt: skip
                continue
            marked = s.row.key in _MARKED
            axes.errorbar(
                mean, y, xerr=s.deviation, fmt="D" if marked else "o", capsize=2, ecolor=BLACK, elinewidth=0.7,
                markeredgewidth=0.8 if marked else 0.3, **edge,
            )  # fmt: skip
            if marked:
                axes.plot([], [], "D", label=_MARKED[s.row.key], **edge)
        if limit is not None:
            axes.axvline(limit, color=GREY, linestyle="--", linewidth=1, label="oracle, calibrated quantiles", zorder=1)
        axes.set(xlabel=f"{_LENGTH} (bar: deviation over {max(len(s.length) for s in found)} draws)")
        figure.legend(loc="outside upper center", ncols=4)
        return save_figure(figure, folder, "length")


# ---------------------------------------------------------------- what the paper lacks


def _lines(points: list[dict[str, Any]], by: tuple[str, ...], setting: str, x: Callable[[Any], float]) -> Lines:
    """Lines by some keys, (4, p): median x, mean, least and greatest length of each setting over its draws.

    A setting that was not certified in every draw is left out.
    """
    found: dict[tuple[Any, ...], dict[Any, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        found[tuple(point[name] for name in by)][point[setting]].append(point)
    out = {}
    for key, settings in found.items():
        whole = [drawn for drawn in settings.values() if all(p.get("certified", True) for p in drawn)]
        lengths = [[p["length"] for p in drawn] for drawn in whole]
        columns = [
            (np.median([x(p) for p in drawn]), np.clip(np.mean(at), min(at), max(at)), min(at), max(at))
            for drawn, at in zip(whole, lengths, strict=True)
        ]
        out[key] = np.array(sorted(columns)).reshape(-1, 4).T
    return out


def _draws(points: list[dict[str, Any]]) -> int:
    return len({point["draw"] for point in points})


def by_calibration(results: dict[str, Any], folder: Path) -> list[Path]:
    """What the bound costs: mean length against the number of calibration images; points far off are arrows."""
    points = [p for p in results["curves"] if p["curve"] == "calibration"]
    lines = _lines(points, ("bound",), "x", lambda p: p["x"])
    cut = next((s.length for s in summaries(results) if s.row.procedure == "oracle_cut"), None)
    limit = None if cut is None else cut[: _draws(points)].mean()  # of the same draws, the first
    far = _far(y for line in lines.values() for y in line[1])
    beyond = defaultdict(list)
    with house_style():
        figure, axes = new_figure(TEXT_WIDTH / 2 + 0.6, 3.0)
        for bound, look in _BOUND.items():
            if (bound,) not in lines:
                continue
            x, mean, least, most = lines[bound,]
            near = mean <= far
            none = "" if len(x) else ": not certified"
            bars = np.stack([mean - least, most - mean])[:, near]
            axes.errorbar(
                x[near], mean[near], bars, elinewidth=0.6, capsize=2, capthick=0.6, label=BOUND_NAMES[bound] + none,
                **look,
            )  # fmt: skip
            for at, value in zip(x[~near], mean[~near], strict=True):
                beyond[at].append(f"{BOUND_NAMES[bound]} {value:.2f}")
        for at, names in beyond.items():
            axes.plot(at, far, "^", color=BLACK)
            axes.annotate(
                "\n".join(names), (at, far), (5, 3), textcoords="offset points", va="top", fontsize=7, bbox=_PLAIN
            )
        if limit is not None:
            axes.axhline(limit, color=GREY, linewidth=1, zorder=1, label="path of all images, no bound")
            axes.autoscale()  # the line counts
        draws = f"mean of {_draws(points)} draws, bar from least to greatest;\nonly points certified in every draw"
        axes.set(xlabel=f"calibration images, to fit and to certify\n({draws})", ylabel=_LENGTH.replace(", ", ",\n"))
        figure.legend(loc="outside upper center", ncols=2, handlelength=3.5)
        return save_figure(figure, folder, "length_by_calibration")


def by_groups(results: dict[str, Any], folder: Path) -> list[Path]:
    """Mean length against the number of groups as made (K asked for may be more), a panel per number of images."""
    points = [p for p in results["curves"] if p["curve"] == "groups"]
    lines = _lines(points, ("n_opt", "method", "bound"), "k", lambda p: int(p["groups"].split()[0]))
    with house_style():
        counts = sorted({p["n_opt"] for p in points})
        figure, panels = new_figure(TEXT_WIDTH, 2.7, 1, len(counts), sharey=True, squeeze=False)
        for axes, n_opt in zip(panels[0], counts, strict=True):
            for (method, bound), look in _METHOD.items():
                x, mean, least, most = lines.get((n_opt, method, bound), np.empty((4, 0)))
                axes.errorbar(
                    x, mean, [mean - least, most - mean], elinewidth=0.6, capsize=2, capthick=0.6, markersize=3,
                    label=f"{method.replace('krcps', 'K-RCPS')}, {BOUND_NAMES[bound]}", **look,
                )  # fmt: skip
            axes.set_xscale("log", base=4)
            axes.xaxis.set_major_formatter("{x:g}")
            axes.minorticks_off()
            axes.set(title=f"$n_{{opt}}$ = {n_opt}", xlabel="groups, $K$")
        panels[0, 0].set_ylabel(_LENGTH.replace(", ", ",\n"))
        figure.legend(
            *panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, title_fontsize=7,
            handlelength=3.5,
            title=f"mean of {_draws(points)} draws, bar from least to greatest; only points certified in every draw",
        )  # fmt: skip
        return save_figure(figure, folder, "length_by_groups")
