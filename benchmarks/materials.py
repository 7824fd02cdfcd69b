"""What benchmarks on the materials of `python -m reproduce` share: NAME=FOLDER words, and rows that are kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.__main__ import RESULTS, machine, show
from benchmarks.readme import HERE, with_figures
from reproduce.material import Material, load_material

Rows = Callable[[str, Material], Iterable[dict[str, Any]]]


def measure_or_write(
    name: str, title: str, rows_of: Rows, page: tuple[str, str], text: Callable[[], str], **settings: Any
) -> None:
    """Measure on the materials that the command names, if any, and write the figures into their page."""
    if words := [word.split("=") for word in sys.argv[1:]]:
        rows = []
        for data, folder in words:
            for row in rows_of(data, load_material(folder)):
                rows.append(row)
                print(json.dumps(row), flush=True)
        show(title, rows)
        content = {"benchmark": name, "machine": machine(), **settings, "rows": rows}
        (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    (HERE.parent / page[0]).write_text(with_figures(*page, text()))
