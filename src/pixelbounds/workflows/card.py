"""The model card of a calibration file, as Markdown."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from ..calibration.calibration import Calibration, load_calibration
from ..formats.arrays import FilePath
from ..formats.opener import check_target
from ..images.checks import check_line
from ..report.model_card import card_markdown
from ..storage.files import replace_file


def card_file(
    calibration: FilePath,
    out: FilePath,
    *,
    title: str = "Model card of a calibration",
    intended_use: str | None = None,
    notes: Sequence[str] = (),
    replace: bool = False,
    today: date | None = None,
) -> tuple[Path, Calibration]:
    """Write the card of a calibration, .md. Nothing of it tells of people.

    intended_use   what the calibration is meant for, in a sentence or two; the card says where it is not stated
    notes          further paragraphs: from which scanners, by whom, approved when
    """
    target = check_target(out, (".md",), replace=replace, inputs=(calibration,))
    check_line(title, "title")
    described, file = load_calibration(calibration), Path(calibration)
    dates = {
        "file last changed": datetime.fromtimestamp(file.stat().st_mtime, UTC).date().isoformat(),
        "card written": (today or datetime.now(UTC).date()).isoformat(),
        "SHA-256 of the file": hashlib.sha256(file.read_bytes()).hexdigest(),
    }
    text = card_markdown(described, title, dates=dates, intended_use=intended_use, notes=notes)
    replace_file(target, text.encode())
    return target, described
