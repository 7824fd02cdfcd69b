"""Every problem on phantoms with the embedded network: PSNR, certified length, risk on other phantoms, seconds.

python -m benchmarks problems [FOLDER]   (an hour on one core; resumes in FOLDER; draws docs/problems_samples.png)
python -m benchmarks.problems            (docs/problems.png: what each operator does to a phantom)

Few phantoms and few samples, since this runs on a CPU. The network was trained to denoise up to 0.22 and knows no level
above, so it sharpens what least squares finds rather than inventing what is missing; three sweeps make up for some.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import pixelbounds as pb
from benchmarks.pages import HERE, result
from pixelbounds.demo.packaged import NEW, network_file, some_phantoms
from pixelbounds.images.library import Array
from pixelbounds.problems import Problem, ct, deblur, denoise, inpaint, motion_blur, mri, poisson, super_resolve
from pixelbounds.samplers.runs import open_run

PAGE = "docs/research/samplers.md"
CALIBRATE, HELD_OUT = 48, 48
FEWER = 32  # calibrate for a second length: so few that none of them fit groups
SAMPLES, MISCOVERAGE, LEVEL, CAP = 7, 0.25, 0.05, 0.25
STEPS, SOLVER_STEPS, SWEEPS = 3, 1, 3


def problems(side: int) -> dict[str, Problem]:
    """The problems of the table, for images of side x side."""
    return {
        "denoise": denoise(0.2),
        "inpaint, half of the pixels": inpaint(0.5, 0.05),
        "super-resolve, 2 x 2": super_resolve(2, 0.02),
        "deblur, width 1": deblur(1.0, 0.02),
        "motion blur, 5 pixels": motion_blur(5, 30, 0.02),
        "CT, sparse views": ct(side // 2, side, 0.01),
        "CT, limited angle": ct(side // 2, side, 0.01, span=120),
        "MRI, 3 times fewer lines, 4 coils": mri(3, 0.02),
        "photons, 40 at most": poisson(denoise(0.0), 40),
    }


def psnr(truth: Array, found: Array) -> float:
    return float(-10 * np.log10(np.mean((truth - np.clip(found, 0, 1)) ** 2)))


def solution(problem: Problem, y: Array) -> Array:
    """Least squares, damped by the noise."""
    return np.asarray(problem.solve(y, damping=float(np.sqrt(problem.variance(y).mean()))))


def row(name: str, problem: Problem, truth: Array, folder: Path) -> tuple[dict[str, Any], list[Array]]:
    """Figures of one problem, and pictures of its first held-out phantom."""
    import torch

    from pixelbounds.diffusion import Guidance
    from pixelbounds.samplers import LinearSampler, sample_function_to

    torch.set_num_threads(1)
    y = problem(truth, 0)
    sampler = LinearSampler(network_file(), problem, Guidance(steps=STEPS, solver_steps=SOLVER_STEPS, sweeps=SWEEPS))
    begun = time.process_time()
    out = folder / f"{name.replace(' ', '_')}.zarr"
    known = {"samples": SAMPLES, "miscoverage": MISCOVERAGE, "limits": (0.0, 1.0)}
    had = out.exists() and bool(open_run(out).done.all())
    run = sample_function_to(sampler, y, out, **known)
    clock = folder / f"{out.stem}.seconds"
    if not had:
        clock.write_text(str((time.process_time() - begun) / len(truth)))
    band = run.band().map(lambda x: np.asarray(x[:], np.float32))
    first, rest = slice(0, CALIBRATE), slice(CALIBRATE, None)

    def calibrated(images: slice) -> pb.Calibration:
        promise = pb.share(LEVEL, cap=CAP)
        return pb.calibrate(truth[images], band[images], failure_prob=0.1, promises=[promise])

    interval = calibrated(first).apply(band[rest])
    few = calibrated(slice(0, FEWER))
    assert few.record.fitting == 0, "the page says that none of so few fit"
    mean = run.mean[:]
    solved = solution(problem, y)
    missed = (truth[rest] < interval.lower) | (truth[rest] > interval.upper)
    figures = {
        "problem": name,
        "says": repr(problem),
        "psnr_solution": psnr(truth[rest], solved[rest]),
        "psnr_mean": psnr(truth[rest], mean[rest]),
        "length": float(interval.length.mean()),
        "length_fewer": float(few.apply(band[rest]).length.mean()),
        "risk": float(missed.mean()),
        "seconds": float(clock.read_text()),
    }
    shown = [truth[CALIBRATE], _seen(problem, y[CALIBRATE]), solved[CALIBRATE], mean[CALIBRATE], interval.length[0]]
    return figures, shown


def _seen(problem: Problem, y: Array) -> Array:
    """An observation as a picture: counts and sinograms as they are, k-space as its size."""
    if np.iscomplexobj(y):
        return np.asarray(np.log1p(20 * np.abs(np.fft.fftshift(y[0]))))
    return y


def run(work: str | None = None) -> dict[str, Any]:
    """Figures of all problems; samples are kept in a folder of their own where one is named."""
    folder = Path(work or tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    truth = some_phantoms(CALIBRATE + HELD_OUT, NEW).images
    rows = []
    pictures = {}
    for name, problem in problems(truth.shape[-1]).items():
        figures, pictures[name] = row(name, problem, truth, folder)
        rows.append(figures)
        print(figures, flush=True)
    titles = ["truth", "observation", "least squares", "mean of samples", "certified length"]
    _draw(pictures, titles, HERE.parent / "docs/problems_samples.png")
    settings = {"calibrate": CALIBRATE, "fewer": FEWER, "held_out": HELD_OUT, "samples": SAMPLES}
    settings |= {"miscoverage": MISCOVERAGE, "level": LEVEL, "cap": CAP}
    settings |= {"steps": STEPS, "solver_steps": SOLVER_STEPS, "sweeps": SWEEPS}
    return {"settings": settings, "rows": rows}


def middle(images: Array, side: int) -> Array:
    edge = (images.shape[-1] - side) // 2
    return np.ascontiguousarray(images[:, edge : edge + side, edge : edge + side])


def picture() -> None:
    """What each operator does to a phantom."""
    truth = some_phantoms(1, NEW).images
    pictures = {}
    for name, problem in problems(truth.shape[-1]).items():
        y = problem(truth, 0)
        pictures[name] = [truth[0], _seen(problem, y[0]), problem.adjoint(y)[0], solution(problem, y)[0]]
    titles = ["truth", "observation", "adjoint of it", "least squares"]
    _draw(pictures, titles, HERE.parent / "docs/problems.png")


def _draw(pictures: dict[str, list[Array]], titles: list[str], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.7 * len(titles), 1.75 * len(pictures)), layout="constrained")
    axes = figure.subplots(len(pictures), len(titles))
    for number, (line, (name, shown)) in enumerate(zip(axes, pictures.items(), strict=True)):
        for ax, title, image in zip(line, titles, shown, strict=True):
            ax.imshow(image, cmap="gray", aspect="auto" if title == "observation" else "equal", interpolation="nearest")
            ax.set_xticks([])
            ax.set_yticks([])
            if number == 0:
                ax.set_title(title, fontsize=8)
        line[0].set_ylabel(name.replace(", ", ",\n"), fontsize=7)
    figure.savefig(path, dpi=80)


def text() -> str:
    """The table of the page."""
    kept = result("problems")
    about = kept["settings"]
    lines = [
        "| problem | noise | PSNR of least squares | of the mean | mean certified length "
        f"| if {about['fewer']} calibrate | risk on held-out phantoms | CPU seconds an image |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in kept["rows"]:
        noise = one["says"].rpartition(", ")[2]
        lines.append(
            f"| {one['problem']} | {noise} | {one['psnr_solution']:.1f} | {one['psnr_mean']:.1f} "
            f"| {one['length']:.3f} | {one['length_fewer']:.3f} | {one['risk']:.3f} | {one['seconds']:.1f} |"
        )
    at = kept["machine"]
    greater = [one["length_fewer"] / one["length"] - 1 for one in kept["rows"]]
    said = (
        f"{about['calibrate']} phantoms calibrated, and {about['held_out']} others are held out. Of "
        f"{about['fewer']} none fit groups ([few images](tried.md#few-images)): lengths are {min(greater):.0%} to "
        f"{max(greater):.0%} greater. "
        f"{about['samples']} samples of each by moment matching, {about['sweeps']} sweeps of {about['steps']} steps. "
        f"Promised: at most {about['level']:.0%} of the pixels missed, an image counting for at most {about['cap']:g}, "
        f"at 90%. Measured at commit {at['commit']} on {at['cpu'] or 'an unnamed CPU'} "
        "(`python -m benchmarks problems`)."
    )
    return "\n".join([*lines, "", said])


if __name__ == "__main__":
    picture()
