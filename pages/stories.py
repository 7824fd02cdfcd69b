"""Stories of the gallery: a Python file of cells -> a page with what it prints and draws, and a notebook.

A cell begins with `# %%`, one of text with `# %% [markdown]`. The first is of text: its heading is the title, its next
paragraph the line on the gallery's first page. A cell that draws says what is seen in a comment `# figure: ...`, which
becomes the caption. Cells run in one namespace, in an empty folder, in the house's style of figures; the output is
kept in build/gallery until the story or the package changes.
"""

import base64
import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "pixelbounds"
KEPT = ROOT / "build" / "gallery"
DOTS = 160  # per inch of a picture
GROUPS = {  # of the gallery's first page
    "First steps": ("first_calibration", "quantiles", "what_voids_it"),
    "Medical": (
        "organs_and_edges",
        "patients",
        "few_patients",
        "tails",
        "subgroups",
        "labels",
        "masks",
        "numbers",
        "many_sizes",
        "mr_in_nifti",
    ),
    "Samplers": ("own_network", "own_sampler", "inverse_problem"),
    "After deployment": ("monitor", "anytime"),
    "The paper": ("methods",),
}
_CAPTION = re.compile(r"^# figure: (.*(?:\n#   .*)*)\n?", re.MULTILINE)


@dataclass(frozen=True)
class Cell:
    """Text, or code."""

    kind: str  # "markdown" or "code"
    text: str


@dataclass(frozen=True)
class Story:
    """A file of the gallery, read."""

    path: Path
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """Name of its page: that of the file without its number."""
        return self.path.stem.split("_", 1)[1]

    @property
    def title(self) -> str:
        """Its heading."""
        return self.cells[0].text.split("\n")[0].removeprefix("# ")

    @property
    def summary(self) -> str:
        """Its first paragraph, in one line."""
        return " ".join(self.cells[0].text.split("\n\n")[1].split("\n"))


@dataclass(frozen=True)
class StoryRun:
    """A story with what each cell printed and drew: `printed` and `drawn` have one entry for each cell."""

    story: Story
    printed: tuple[str, ...]
    drawn: tuple[tuple[bytes, ...], ...]

    def pictures(self, cell: int) -> dict[str, bytes]:
        """Names and contents of the pictures of a cell."""
        before = sum(len(made) for made in self.drawn[:cell])
        return {f"{self.story.name}_{before + i + 1}.png": made for i, made in enumerate(self.drawn[cell])}

    @property
    def files(self) -> dict[str, bytes]:
        """Pictures and notebook, by name."""
        made = {name: content for cell in range(len(self.drawn)) for name, content in self.pictures(cell).items()}
        return {
            **made,
            f"{self.story.name}.ipynb": notebook(self),
            f"{self.story.name}.py": self.story.path.read_bytes(),
        }


def stories_in(folder: Path) -> list[Story]:
    """All stories of a folder, in the order of their numbers."""
    return [read_story(path) for path in sorted(folder.glob("[0-9]*_*.py"))]


def read_story(path: Path) -> Story:
    """The cells of a file."""
    parts = re.split(r"^# %%(.*)\n", path.read_text(), flags=re.MULTILINE)
    if parts[0].strip() or len(parts) < 3:
        raise ValueError(f"{path.name} must begin with a cell, `# %% [markdown]`")
    cells = []
    for mark, text in zip(parts[1::2], parts[2::2], strict=True):
        if mark.strip() == "[markdown]":
            cells.append(Cell("markdown", re.sub(r"^# ?", "", text.strip("\n"), flags=re.MULTILINE)))
        else:
            cells.append(Cell("code", text.strip("\n")))
    if cells[0].kind != "markdown" or not cells[0].text.startswith("# ") or "\n\n" not in cells[0].text:
        raise ValueError(f"{path.name}: the first cell must be text, a heading and a paragraph that says what is shown")
    return Story(path, tuple(cells))


# ---------------------------------------------------------------- run


def load_or_run(story: Story) -> StoryRun:
    """What a story prints and draws, from build/gallery or run now; nothing if PIXELBOUNDS_SKIPPED_STORIES names it."""
    if story.name in os.environ.get("PIXELBOUNDS_SKIPPED_STORIES", "").split(","):
        return StoryRun(story, ("",) * len(story.cells), ((),) * len(story.cells))
    kept = KEPT / f"{story.name}.json"
    digest = _digest(story)
    if kept.exists():
        saved = json.loads(kept.read_text())
        if saved["digest"] == digest:
            drawn = tuple(tuple(base64.b64decode(one) for one in cell) for cell in saved["drawn"])
            return StoryRun(story, tuple(saved["printed"]), drawn)
    made = run(story)
    drawn_text = [[base64.b64encode(one).decode() for one in cell] for cell in made.drawn]
    KEPT.mkdir(parents=True, exist_ok=True)
    aside = kept.with_suffix(f".{os.getpid()}")
    aside.write_text(json.dumps({"digest": digest, "printed": made.printed, "drawn": drawn_text}))
    aside.replace(kept)
    return made


def run(story: Story) -> StoryRun:
    """Run the cells one after the other; an error names the story and the cell."""
    import matplotlib
    from matplotlib import pyplot

    from pixelbounds.report.style import house_style

    matplotlib.use("agg")
    pyplot.close("all")  # what others left open is not of this story
    space: dict[str, Any] = {"__name__": "__main__"}
    printed, drawn = [], []
    with in_empty_folder(), house_style():
        for number, cell in enumerate(story.cells, start=1):
            said = io.StringIO()
            if cell.kind == "code":
                try:
                    with contextlib.redirect_stdout(said):
                        exec(compile(cell.text, f"{story.path.name}, cell {number}", "exec"), space)
                except Exception as error:
                    raise RuntimeError(f"{story.path.name}, cell {number}: {type(error).__name__}: {error}") from error
            printed.append(said.getvalue())
            drawn.append(_pictures())
            if len(drawn[-1]) != len(captions(cell)):
                raise ValueError(
                    f"{story.path.name}, cell {number} draws {len(drawn[-1])} pictures and has {len(captions(cell))} "
                    "captions; give each a comment `# figure: what is seen`"
                )
    return StoryRun(story, tuple(printed), tuple(drawn))


@contextlib.contextmanager
def in_empty_folder() -> Iterator[Path]:
    """Work in a folder that is gone afterwards."""
    here = Path.cwd()
    folder = Path(tempfile.mkdtemp())
    try:
        os.chdir(folder)
        yield folder
    finally:
        os.chdir(here)
        shutil.rmtree(folder, ignore_errors=True)


def captions(cell: Cell) -> list[str]:
    """What a cell says of its pictures."""
    texts = re.findall(_CAPTION, cell.text)
    return [re.sub(r"\n#\s+", " ", text) for text in texts] if cell.kind == "code" else []


def _pictures() -> tuple[bytes, ...]:
    """What pyplot has open, as PNG; closed then."""
    from matplotlib import pyplot

    made = []
    for number in pyplot.get_fignums():
        content = io.BytesIO()
        pyplot.figure(number).savefig(
            content, format="png", dpi=DOTS, facecolor="white", bbox_inches="tight", metadata={"Software": None}
        )
        made.append(content.getvalue())
    pyplot.close("all")
    return tuple(made)


def _digest(story: Story) -> str:
    """Of all that may change what a story tells."""
    seen = hashlib.sha256(story.path.read_bytes())
    for file in [Path(__file__), *sorted(SOURCE.rglob("*"))]:
        if file.suffix in (".py", ".mplstyle", ".safetensors", ".xz"):
            seen.update(file.read_bytes())
    return seen.hexdigest()


# ---------------------------------------------------------------- pages and notebooks


def as_page(made: StoryRun) -> str:
    """A story as Markdown, with links to its notebook and to its file."""
    name = made.story.name
    head = f"[Notebook]({name}.ipynb){{ download }} · [Python file]({name}.py){{ download }}"
    out = []
    for number, cell in enumerate(made.story.cells):
        if cell.kind == "markdown":
            out.append(cell.text)
        else:
            code = _CAPTION.sub("", cell.text).strip("\n")  # it stands below the picture
            out.append(f"```python\n{code}\n```")
        if made.printed[number]:
            out.append(f"```text\n{made.printed[number].rstrip()}\n```")
        for picture, caption in zip(made.pictures(number), captions(cell), strict=False):
            out.append(f"![{caption}]({picture}){{ .story }}\n\n*{caption}*")
        if number == 0:
            out.append(head)
    return "\n\n".join(out) + "\n"


def cards(runs: list[StoryRun]) -> str:
    """The gallery's first page: every story with its first picture, in groups."""
    by_name = {made.story.name: made for made in runs}
    absent = by_name.keys() ^ {name for names in GROUPS.values() for name in names}
    if absent:
        raise ValueError(f"{', '.join(sorted(absent))}: GROUPS of pages/stories.py must name each story once")
    out = [
        "# Gallery",
        "Short stories on synthetic images, each of a few seconds. They ran when this site was built, and each is also "
        "a notebook.",
    ]
    for group, names in GROUPS.items():
        out += [f"## {group}", '<div class="cards" markdown>', *(_card(by_name[name]) for name in names), "</div>"]
    return "\n\n".join(out) + "\n"


def _card(made: StoryRun) -> str:
    picture = next((name for name in made.files if name.endswith("_1.png")), None)
    shown = f"![]({picture})" if picture else ""
    return f"[{shown}**{made.story.title}** <span>{made.story.summary}</span>]({made.story.name}.md)"


def notebook(made: StoryRun) -> bytes:
    """A story as a Jupyter notebook, with what its cells printed and drew."""
    cells = []
    for number, cell in enumerate(made.story.cells):
        entry: dict[str, Any] = {"cell_type": cell.kind, "id": f"cell-{number}", "metadata": {}}
        entry["source"] = cell.text.splitlines(keepends=True)
        if cell.kind == "code":
            entry |= {"execution_count": None, "outputs": _outputs(made, number)}
        cells.append(entry)
    about = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return json.dumps({"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}, indent=1).encode()


def _outputs(made: StoryRun, cell: int) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    if made.printed[cell]:
        out.append({"output_type": "stream", "name": "stdout", "text": made.printed[cell].splitlines(keepends=True)})
    for picture in made.pictures(cell).values():
        data = {"image/png": base64.b64encode(picture).decode()}
        out.append({"output_type": "display_data", "data": data, "metadata": {}})
    return out
