"""One experiment from its name to tables and figures; what is finished is not done again."""

from __future__ import annotations

from pathlib import Path

from pixelbounds.execution.runner import Progress, silent
from pixelbounds.storage.files import replace_file

from .experiment import Experiment, load_experiment, miniature
from .image_figures import draw_pictures
from .ledger import Teller
from .material import PACKAGED, Material, load_material
from .result_figures import draw_charts
from .results import load_results, run_experiment
from .summaries import difference_markdown, latex, markdown


def reproduce(
    source: str,
    *,
    material: Path | None = None,
    data: Path | None = None,
    train: bool = False,
    out: Path | None = None,
    draws: int | None = None,
    toy: bool = False,
    fresh: bool = False,
    workers: int | None = None,
    figures: bool = True,
    device: str | None = None,
    tell: Teller = print,
    progress: Progress = silent,
) -> Path:
    """Run an experiment by name or TOML file as far as it is not finished; returns the folder of its results.

    material       ready arrays; otherwise `data` or `train` make them, or they come with the package (phantom)
    fresh          compute finished draws again
    """
    experiment = load_experiment(source)
    if toy:
        experiment = miniature(experiment)
    if draws is not None:
        experiment = experiment.changed(draws={"count": draws})
    if out is None:
        out = Path("out") / (f"{experiment.name}-toy" if toy else experiment.name)
    found = _material(experiment, material, data, train, out, device, tell, progress)
    path = run_experiment(
        experiment, found, out, fresh=fresh, workers=workers, tell=tell,
        progress=lambda done, total, next_: progress(done, total),
    )  # fmt: skip
    results = load_results(path)
    text = f"# {experiment.title}\n\n{markdown(results)}\n\n## Paired differences\n\n{difference_markdown(results)}\n"
    replace_file(out / "table.md", text.encode())
    replace_file(out / "table.tex", (latex(results) + "\n").encode())
    if figures:
        draw_charts(results, out / "figures")
        if experiment.pictures:
            draw_pictures(experiment, found, out / "figures")
    return out


def _material(
    experiment: Experiment,
    material: Path | None,
    data: Path | None,
    train: bool,
    out: Path,
    device: str | None,
    tell: Teller,
    progress: Progress,
) -> Material:
    """Ready arrays: those given, those that the experiment brings along, or those that training and sampling make."""
    if material is not None and (data is not None or train):
        raise ValueError("--material names ready arrays, --data and --train make them; choose one")
    if material is not None:
        return load_material(material)
    if data is not None or train:
        from .pipeline import make_material

        return load_material(make_material(experiment, data, out / "work", device=device, tell=tell, progress=progress))
    if experiment.name == "phantom":
        return load_material(PACKAGED)
    raise ValueError(f"{experiment.name} needs --material (ready arrays) or --data ({experiment.data.source})")
