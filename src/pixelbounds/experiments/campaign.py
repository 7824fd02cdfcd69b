"""One experiment from its name to tables and figures; what is finished is not done again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..storage.files import replace_file
from . import experiment as plans
from .experiment import Plan
from .image_figures import draw_pictures
from .ledger import Tell
from .material import PACKAGED, Material, load_material
from .result_figures import draw_charts
from .results import load_results, run
from .summaries import difference_markdown, latex, markdown

Progress = Callable[[int, int], None]


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
    tell: Tell = print,
    progress: Progress = lambda done, total: None,
) -> Path:
    """Run an experiment by name or TOML file as far as it is not finished; returns the folder of what it gave.

    material       ready arrays; otherwise `data` or `train` make them, or they come with the package (phantom)
    fresh          compute finished draws again
    """
    plan = plans.load_plan(source)
    plan = plans.toy(plan) if toy else plan
    plan = plan if draws is None else plan.changed(draws={"count": draws})
    out = Path("out") / (plan.name + "-toy" * toy) if out is None else out
    found = _material(plan, material, data, train, out, device, tell, progress)
    path = run(
        plan, found, out, fresh=fresh, workers=workers, tell=tell,
        progress=lambda done, total, next_: progress(done, total),
    )  # fmt: skip
    results = load_results(path)
    text = f"# {plan.title}\n\n{markdown(results)}\n\n## Paired differences\n\n{difference_markdown(results)}\n"
    replace_file(out / "table.md", text.encode())
    replace_file(out / "table.tex", (latex(results) + "\n").encode())
    if figures:
        draw_charts(results, out / "figures")
        if plan.pictures:
            draw_pictures(plan, found, out / "figures")
    return out


def _material(
    plan: Plan, material: Path | None, data: Path | None, train: bool, out: Path, device: str | None, tell: Tell,
    progress: Progress,
) -> Material:  # fmt: skip
    """Ready arrays: those given, those that the experiment brings along, or those that training and sampling make."""
    if material is not None and (data is not None or train):
        raise ValueError("--material gives ready arrays, --data and --train make them; choose one")
    if material is not None:
        return load_material(material)
    if data is not None or train:
        from .pipeline import make_material

        return load_material(make_material(plan, data, out / "work", device=device, tell=tell, progress=progress))
    if plan.name == "phantom":
        return load_material(PACKAGED)
    raise ValueError(f"{plan.name} needs --material (ready arrays) or --data ({plan.data.source})")
