"""The model card of a calibration: what it promises, of what data, made how, meant for what, and what voids it.

A card is a list of sections of plain paragraphs and tables, so that Markdown and a page of print say the same. It tells
nothing of people: a calibration holds no names, and what is said beside it is the reader's own.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..calibration.calibration import Calibration
from ..calibration.phrases import promise_in_words
from ..calibration.sentence import level_in_words, plural
from ..images.source import Source

_WIDTH = 92  # characters of a line of print
_LINES = 62  # of a page
_TO_FILL = "Not stated: whoever made this calibration should say it before it is used (--intended-use)."
VOIDED_BY = (
    "Choosing among calibrations of the same images: the shortest of several seeds or methods is not certified.",
    "Looking again and again as images arrive, until one look certifies; `pixelbounds anytime` may be asked at any time.",  # noqa: E501
    "Bands made in another way: another number of samples, miscoverage, sampler, step number, noise level or network.",
    "Groups, labels or features that were fitted on the images that certified.",
    "Judging it by the images that calibrated it.",
    "Units that are not independent, or that are not what was said: slices of one patient given as independent images.",
    "Another source of images: scanner, protocol, reconstruction, disease, population.",
    "Numbers that stand for something else: another window, other limits, other units of measure.",
)


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs, and a table (head, rows) where there is one."""

    heading: str
    paragraphs: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    points: tuple[str, ...] = ()


def card_of(
    calibration: Calibration,
    *,
    checksum: str,
    changed: str,
    written: str,
    intended_use: str | None = None,
    notes: Sequence[str] = (),
) -> list[Section]:
    """The sections of a card; `checksum` of the file, the day it was `changed`, and the day the card was `written`."""
    record = calibration.record
    units = plural(record.unit_name) if record.units else "images"
    sections = [
        Section("What is promised", (calibration.guarantee,), _promises(calibration, units)),
        Section("Intended use", (intended_use or _TO_FILL, *notes)),
        Section("Data", (_NO_PEOPLE,), _data(calibration)),
        Section("How bands are made", _made_words(record.source), _facts(record.source.known)),
        Section("Method", (), _method(calibration)),
        Section("Limits", points=tuple(_limits(calibration))),
        Section("What voids the promise", points=VOIDED_BY),
        Section(
            "Dates and checksum",
            ("A calibration file holds no date: the same images give the same bytes.",),
            (
                ("", ""),
                ("made by", f"pixelbounds {record.version}"),
                ("file last changed", changed),
                ("card written", written),
                ("SHA-256 of the file", checksum),
                ("digest of the images", record.digest),
            ),
        ),
    ]
    return [section for section in sections if section.paragraphs or section.rows or section.points]


_NO_PEOPLE = (
    "The file keeps digests of single images, by which they are known again, and a few numbers of each of some bands; "
    "no names, no pictures, no values of pixels. It does not know from whom, where and when the images come: say so "
    "under intended use."
)


def _promises(calibration: Calibration, units: str) -> tuple[tuple[str, ...], ...]:
    head = ("promise", "at most", f"seen on {units} that certified", f"{units} that certified")
    rows = [
        (promise_in_words(p), level_in_words(p.at_most), f"{p.risk:.2%}", f"{p.certifying:,}")
        for p in calibration.promises
    ]
    return (head, *rows)


def _data(calibration: Calibration) -> tuple[tuple[str, ...], ...]:
    record = calibration.record
    shape = " x ".join(map(str, record.pixels)) if record.pixels else "of different sizes"
    limits = " to ".join(f"{x:g}" for x in calibration.limits)
    certified = f"{record.certifying:,} {plural(record.unit_name) if record.units else 'images'}"
    rows = {
        "images": f"{record.images:,}, {shape}",
        "independent": f"each {record.unit_name}" if record.units else "each image, as was said or assumed",
        "fitted": f"{record.fitting:,} images, which chose groups and path" if record.fitting else "none",
        "certified": certified,
        "left out": f"{record.skipped:,} that could not be read" if record.skipped else "none",
        "limits": limits,
        "measure": "not known" if calibration.measure is None else str(calibration.measure),
    }
    return (("", ""), *rows.items())


def _made_words(source: Source) -> tuple[str, ...]:
    if source.known:
        return ("A band that says otherwise is refused where this calibration is applied.",)
    return ("Nobody said how the bands were made, so a band made in another way cannot be told from them.",)


def _facts(known: dict[str, Any]) -> tuple[tuple[str, ...], ...]:
    return (("", ""), *((name, str(x)) for name, x in known.items())) if known else ()


def _method(calibration: Calibration) -> tuple[tuple[str, ...], ...]:
    groups = calibration.grouping
    return (
        ("", ""),
        ("method", calibration.method),
        ("groups", f"{groups.count} of kind {groups.kind}"),
        ("family", calibration.family.name),
        ("bound", calibration.bound),
        ("share of calibrations that may be unlucky", level_in_words(calibration.failure_prob)),
        ("seed", str(calibration.record.seed)),
    )


def _limits(calibration: Calibration) -> list[str]:
    """What is not promised."""
    some = any(p.place != "all" for p in calibration.promises)
    where = "other regions than those named above" if some else "parts of an image"
    record = calibration.record
    found = [
        f"Shares are promised on average over future {plural(record.unit_name) if record.units else 'images'}.",
        "Nothing is promised about a single pixel, or a single image: one may be missed far more often than the mean.",
        f"Nothing is promised about {where}: an organ, an edge or a lesion may be worse.",
        "Only the level is certified. What was seen at calibration is no bound.",
        "Short intervals (a trust mask) are not those that hold the truth more often.",
    ]
    if calibration.measure is not None and calibration.measure.window is not None:
        found.append(
            f"What lies beyond the {calibration.measure} counts as its edge: its value may lie anywhere beyond."
        )
    if calibration.labelled:
        found.append("Labels of new images are needed; those that no fitting image had widen as all labels together.")
    return found


# ---------------------------------------------------------------- Markdown and print


def card_markdown(sections: Sequence[Section], title: str) -> str:
    """The card as Markdown."""
    lines = [f"# {title}", ""]
    for section in sections:
        lines += [f"## {section.heading}", ""]
        for paragraph in section.paragraphs:
            lines += [paragraph, ""]
        lines += [*(f"- {point}" for point in section.points), *([""] if section.points else [])]
        if section.rows:
            head, *rows = [[cell.replace("|", "\\|") for cell in row] for row in section.rows]
            lines += [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
            lines += [*(f"| {' | '.join(row)} |" for row in rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def card_pdf(sections: Sequence[Section], title: str) -> bytes:
    """The card as pages of A4, text that can be searched."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure

    lines = _printed(sections, title)
    pages = [lines[start : start + _LINES] for start in range(0, len(lines), _LINES)]
    content = io.BytesIO()
    about = {"Title": title, "CreationDate": None, "ModDate": None, "Creator": "pixelbounds", "Producer": None}
    with rc_context({"pdf.fonttype": 42, "font.family": "DejaVu Sans Mono"}), PdfPages(content, metadata=about) as pdf:
        for number, page in enumerate(pages, 1):
            figure = Figure(figsize=(8.27, 11.69))
            for row, (text, bold) in enumerate(page):
                place = 0.95 - 0.0143 * row
                figure.text(0.07, place, text, fontsize=8, weight="bold" if bold else "normal", parse_math=False)
            figure.text(0.93, 0.03, f"{number} of {len(pages)}", fontsize=7, ha="right")
            pdf.savefig(figure)
    return content.getvalue()


def _printed(sections: Sequence[Section], title: str) -> list[tuple[str, bool]]:
    """Lines of print, and which are headings; a heading never stands alone at the end of a page."""
    lines: list[tuple[str, bool]] = [(line, True) for line in textwrap.wrap(title, _WIDTH)]
    for section in sections:
        body = [line for text in section.paragraphs for line in (*textwrap.wrap(text, _WIDTH), "")]
        for point in section.points:
            body += textwrap.wrap(point, _WIDTH - 2, initial_indent="- ", subsequent_indent="  ")
        body += _table_lines(section.rows)
        if len(lines) % _LINES > _LINES - 5:
            lines += [("", False)] * (_LINES - len(lines) % _LINES)
        lines += [("", False), (section.heading, True), *((line, False) for line in body)]
    return lines


def _table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in columns; what is wider than its share of a line is broken."""
    if not rows:
        return []
    count = len(rows[0])
    longest = [max(len(row[i]) for row in rows) for i in range(count)]
    least = [min(width, _WIDTH // count - 2) for width in longest]
    spare = _WIDTH - 2 * (count - 1) - sum(least)
    widths = []
    for width, own in zip(longest, least, strict=True):
        more = min(width - own, max(spare, 0))
        widths.append(own + more)
        spare -= more
    lines = []
    for row in rows:
        if not any(row):
            continue
        cells = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)]
        for i in range(max(map(len, cells))):
            parts = [(cell[i] if i < len(cell) else "").ljust(width) for cell, width in zip(cells, widths, strict=True)]
            lines.append("  ".join(parts).rstrip())
    return [*lines, ""]
