"""The model card of a calibration: what it promises, of what data, how made, meant for what, and what voids it.

It tells nothing of people: a calibration holds no names, and what is said beside it is the reader's own. What comes
from the file is escaped, since a promise's name may have been chosen by somebody else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ..calibration.calibration import Calibration
from ..calibration.text import description_of, independent_in_words

VOIDED_BY = (
    "Choosing among calibrations of the same images: the shortest of several seeds or methods is not certified.",
    "Testing again and again as images arrive, until one test certifies; `pixelbounds anytime` may be tested at any "
    "time.",
    "Bands made in another way: another number of samples, miscoverage, sampler, step number, noise level or network.",
    "Groups, labels or features that were fitted on the images that certified.",
    "Judging it by the images that calibrated it.",
    "Units that are not independent, or that are not what was said: slices of one patient given as independent images.",
    "Another source of images: scanner, protocol, reconstruction, disease, population.",
    "Numbers that stand for something else: another window, other limits, other units of measure.",
)
_NOT_STATED = "Not stated: whoever made this calibration should say it before it is used (--intended-use)."
_NO_PEOPLE = (
    "The file keeps digests of single images, by which they are recognised, and a few numbers of each of some bands; "
    "no names, no pictures, no values of pixels. It does not know from whom, where and when the images come: say so "
    "under intended use."
)
_DATA = ("images", "image_shape", "independent", "fitted_on", "certified_by", "left_out", "limits", "measure")
_METHOD = ("method", "groups", "family", "bound", "failure_probability", "seed")
_MARKUP = re.compile(r"[\\`*_\[\]|~$]")


def card_markdown(
    calibration: Calibration,
    title: str,
    *,
    dates: Mapping[str, str],
    intended_use: str | None = None,
    notes: Sequence[str] = (),
) -> str:
    """The card; `dates` are what is known of the file itself, by name: days, and its checksum."""
    words, source = description_of(calibration), calibration.record.source
    made = "A band that says otherwise is refused where this calibration is applied."
    if not source.known:
        made = "Nobody said how the bands were made, so a band made in another way cannot be told from them."
    sections = {
        "What is promised": (_escaped(words.guarantee), _table(*words.table)),
        "Intended use": (intended_use or _NOT_STATED, *notes),
        "Data": (_NO_PEOPLE, _facts(words.rows(*_DATA))),
        "How bands are made": (made, _facts({name: str(x) for name, x in source.known.items()})),
        "Method": (_facts(words.rows(*_METHOD)),),
        "Limits": (_points(_limits(calibration)),),
        "What voids the promise": (_points(VOIDED_BY),),
        "Dates and checksum": (
            "A calibration file holds no date: the same images give the same bytes.",
            _facts({**words.rows("made_by", "images_digest"), **dates}),
        ),
    }
    blocks = [f"# {title}"]
    for heading, parts in sections.items():
        blocks += [f"## {heading}", *(part for part in parts if part)]
    return "\n\n".join(blocks) + "\n"


def _limits(calibration: Calibration) -> list[str]:
    """What is not promised."""
    parts = any(p.place != "all" for p in calibration.promises)
    where = "other regions than those named above" if parts else "parts of an image"
    points = [
        f"Shares are promised on average over future {independent_in_words(calibration.record)}.",
        "Nothing is promised about a single pixel, or a single image: one may be missed far more often than the mean.",
        f"Nothing is promised about {where}: an organ, an edge or a lesion may be worse.",
        "Only the level is certified. What was seen at calibration is no bound.",
        "Short intervals (a trust mask) are not those that hold the truth more often.",
    ]
    if calibration.measure is not None and calibration.measure.window is not None:
        points.append(
            f"What lies beyond the {calibration.measure} counts as its edge: its value may lie anywhere beyond."
        )
    if calibration.labelled:
        points.append("Labels of new images are needed; those that no fitting image had widen as all labels together.")
    return points


# ---------------------------------------------------------------- Markdown


def _escaped(text: str) -> str:
    """Plain text, of which no part is markup."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKUP.sub(lambda mark: f"\\{mark[0]}", text)


def _points(points: Iterable[str]) -> str:
    return "\n".join(f"- {point}" for point in points)


def _facts(facts: Mapping[str, str]) -> str:
    return _table(("", ""), *facts.items()) if facts else ""


def _table(head: Sequence[str], *rows: Sequence[str]) -> str:
    lines = [f"| {' | '.join(map(_escaped, row))} |" for row in (head, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(head)}", *lines[1:]])
