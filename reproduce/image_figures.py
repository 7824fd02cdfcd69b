"""Figures that show images, made from the material: only where the experiment allows pictures of its data."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from pixelbounds.calibration.calibration import calibrate
from pixelbounds.calibration.methods import KRCPS
from pixelbounds.demo.packaged import SIGMA_0, network_file
from pixelbounds.images.library import Array
from pixelbounds.report.style import TEXT_WIDTH, house_style, new_figure, save_figure, show_image
from pixelbounds.workflows import SampleOptions, sample_to

from .draws import Draw
from .experiment import Experiment
from .material import PACKAGED, Material

_K = (4, 8, 32)  # of the maps, with n_opt 256 and d_opt 100 as in the paper, or the most that there is
_PRINTED = "Algorithm 3"


def draw_pictures(
    experiment: Experiment, material: Material, folder: str | Path, images: tuple[int, ...] = (0, 1)
) -> list[Path]:
    """All figures of images that the material has the arrays for."""
    folder = Path(folder)
    have = material.arrays
    out = [*forward(experiment, material, folder, images), *maps(experiment, material, folder)]
    if "observation" in have:
        out += quantile_pictures(experiment, material, folder, images)
    if {"observation", "qr_lower", "qr_estimate", "qr_upper"} <= have.keys():
        out += regression(material, folder, images)
    if "observation" in have and {"samples", "samples_printed"} & have.keys():
        out += kept_samples(experiment, material, folder, images)
    elif material.source == PACKAGED and find_spec("torch") is not None and network_file().is_file():
        out += live_samples(material, folder, images[0], heun_steps=experiment.sampling.steps)
    return out


def _draw_rows(
    folder: Path,
    name: str,
    heads: list[str],
    rows: list[list[Array]],
    labels: Sequence[str] = (),
    lengths: bool = False,
) -> list[Path]:
    """Images in rows under headings; the last may be lengths, coloured up to what only a few exceed."""
    longest = max(float(np.quantile(row[-1], 0.99)) for row in rows)
    width = (TEXT_WIDTH - 0.5) / max(len(heads), 5)
    with house_style():
        figure, panels = new_figure(
            width * len(heads) + 0.5, 0.25 + width * len(rows), len(rows), len(heads), squeeze=False
        )
        for i, row in enumerate(rows):
            for j, pixels in enumerate(row):
                head = heads[j] if i == 0 else ""
                if not lengths or j < len(row) - 1:
                    show_image(panels[i, j], pixels, head)
                else:
                    shown = show_image(panels[i, j], pixels, head, most=longest, colours="cividis")
        if lengths:
            figure.colorbar(shown, ax=panels[:, -1].tolist(), shrink=0.8, label="length", extend="max")
        for axes, label in zip(panels[:, 0], labels, strict=False):
            axes.set_ylabel(label)
        return save_figure(figure, folder, name)


def _flat(pixels: Array) -> Array:
    """Mean over the channels of a colour image."""
    return pixels if pixels.ndim == 2 else pixels.mean(axis=0)


def quantile_pictures(experiment: Experiment, material: Material, folder: Path, images: tuple[int, ...]) -> list[Path]:
    """Observation, calibrated quantiles and their distance."""
    rows = []
    for i in images:
        lower = np.clip(material["lower"][i], 0, 1)
        upper = np.clip(material["upper"][i], 0, 1)
        rows.append([material.truth[i], material["observation"][i], lower, upper, _flat(upper - lower)])
    alpha = experiment.task.miscoverage
    heads = ["truth $x$", "observation $y$", rf"lower, $\alpha$ = {alpha:g}", "upper", "upper $-$ lower"]
    return _draw_rows(folder, "calibrated_quantiles", heads, rows, lengths=True)


def regression(material: Material, folder: Path, images: tuple[int, ...]) -> list[Path]:
    """Observation and the three heads of the quantile regressor."""
    names = ("qr_lower", "qr_estimate", "qr_upper")
    rows = []
    for i in images:
        length = _flat(np.clip(material["qr_upper"][i], 0, 1) - np.clip(material["qr_lower"][i], 0, 1))
        rows.append([material["observation"][i], *(material[name][i] for name in names), length.clip(0)])
    heads = ["observation $y$", "lower quantile", "estimate", "upper quantile", "upper $-$ lower"]
    return _draw_rows(folder, "quantile_regression", heads, rows, lengths=True)


def _sample_rows(
    material: Material, folder: Path, rows: list[tuple[int, str, int | None, Array]], count: int
) -> list[Path]:
    """Rows of an image, the sampler, its steps and its samples (s, *pixels), each beside truth and observation."""
    count = min(count, *(len(drawn) for *_, drawn in rows))
    heads = ["truth $x$", "observation $y$", *(f"sample {s + 1}" for s in range(count))]
    pixels = [[material.truth[i], material["observation"][i], *drawn[:count]] for i, *_, drawn in rows]
    names = [_PRINTED if sampler == "euler_maruyama" else sampler for _, sampler, *_ in rows]
    labels = [name + (f"\n{row[2]} steps" if row[2] else "") for name, row in zip(names, rows, strict=True)]
    return _draw_rows(folder, "samples", heads, pixels, labels=labels)


def kept_samples(
    experiment: Experiment, material: Material, folder: Path, images: tuple[int, ...], count: int = 4
) -> list[Path]:
    """Samples of the diffusion model for one observation each, of Algorithm 3 as printed and of the experiment's."""
    kept = {
        "samples_printed": _how(material, "printed", "euler_maruyama", experiment.sampling.printed_steps),
        "samples": _how(material, "score", experiment.sampling.sampler, experiment.sampling.steps),
    }
    rows = [
        (i, *how, material[name][i])
        for i in images
        for name, how in kept.items()
        if name in material.arrays and i < len(material[name])
    ]
    return _sample_rows(material, folder, rows, count) if rows else []


def _how(material: Material, run: str, sampler: str, steps: int | None) -> tuple[str, int | None]:
    """Sampler and steps of a sampling run as the material says, else as planned, else the usual steps."""
    about = material.figures.get(run, {})
    sampler = about.get("sampler") or sampler
    steps = about.get("steps") or steps
    if steps is None and find_spec("torch") is not None:
        from pixelbounds.diffusion.posterior import SAMPLERS

        steps = SAMPLERS[sampler][1]
    return sampler, steps


def live_samples(
    material: Material, folder: Path, image: int, count: int = 4, steps: int = 40, heun_steps: int | None = None
) -> list[Path]:
    """Samples of the packaged network: Algorithm 3 as printed in the first row, of the posterior in the second."""
    noisy = material["observation"][image : image + 1]
    rows = []
    for sampler, number in (("euler_maruyama", steps), ("heun", heun_steps)):
        with TemporaryDirectory() as aside:
            options = SampleOptions(
                samples=count, miscoverage=0.5, sampler=sampler, steps=number, keep_samples=True, sigma_0=SIGMA_0,
                device="cpu",
            )  # fmt: skip
            run = sample_to(network_file(), noisy, Path(aside) / "run.zarr", options)
            rows.append((image, sampler, run.about["steps"], run["samples"][0]))
    return _sample_rows(material, folder, rows, count)


def forward(
    experiment: Experiment, material: Material, folder: Path, images: tuple[int, ...], steps: int = 6
) -> list[Path]:
    """Images perturbed by the forward SDE, from sigma_min to variance 1 (in the units of the network)."""
    least = experiment.process["sigma_min"]
    most = experiment.process["sigma_max"]
    low, high = experiment.data.limits
    rng = np.random.default_rng(0)
    sigmas = least * (min(1.0, most) / least) ** np.linspace(0, 1, steps)
    rows = []
    for i in images:
        noise = rng.standard_normal(material.truth[i].shape)
        rows.append([np.clip(material.truth[i] + s / (high - low) * noise, 0, 1) for s in sigmas])
    times = np.log(sigmas / least) / np.log(most / least)
    heads = [f"$t$ = {t:.2f}\n$\\sigma$ = {s:.2g}" for t, s in zip(times, sigmas, strict=True)]
    return _draw_rows(folder, "forward_sde", heads, rows)


def maps(experiment: Experiment, material: Material, folder: Path) -> list[Path]:
    """K-RCPS: the widening of every pixel for K in 4, 8, 32, and one conformalised map each."""
    draw = Draw(experiment, material, 0)
    task = experiment.task
    cal, val = draw.images
    band = material.band("calibrated")
    n_opt = max(experiment.krcps.n_opt)
    d_opt = max((d for d in experiment.krcps.d_opt if d != "all"), default=None)
    fitted = []
    widths = []
    for k in _K:
        found = calibrate(
            material.truth[cal], band[cal], risk_level=task.risk_level, failure_prob=task.failure_prob,
            bound="hoeffding_bentkus", method=KRCPS(k, d_opt, gammas=experiment.krcps.gamma_values, n_fit=n_opt),
            seed=draw.seed,
        )  # fmt: skip
        labels = found.grouping.state()[1]["labels"]
        fitted.append(_flat(found.widening[labels]))
        widths.append(_flat(found.apply(band[val[:1]]).length[0]))
    wide = max(1e-3, *(x.max() for x in fitted))
    long = max(np.quantile(x, 0.99) for x in widths)
    with house_style():
        figure, panels = new_figure(TEXT_WIDTH, 3.4, 2, 4)
        show_image(panels[0, 0], material.truth[val[0]], "truth $x$")
        before = np.clip(band.upper[val[0]], 0, 1) - np.clip(band.lower[val[0]], 0, 1)
        show_image(panels[1, 0], _flat(before), r"$u_\alpha - l_\alpha$", most=long, colours="cividis")
        for j, k in enumerate(_K, 1):
            first = show_image(
                panels[0, j], fitted[j - 1], rf"$\hat\lambda_K$, $K$ = {k}", most=wide, colours="viridis"
            )
            second = show_image(panels[1, j], widths[j - 1], rf"conformalised, $K$ = {k}", most=long, colours="cividis")
        figure.colorbar(first, ax=panels[0].tolist(), shrink=0.8, label="widening", pad=0.01)
        figure.colorbar(second, ax=panels[1].tolist(), shrink=0.8, label="length", pad=0.01, extend="max")
        return save_figure(figure, folder, "widening_maps")
