"""The table of promises: of each its level, what was seen when it was certified and on other images, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..calibration.calibration import Calibration
from ..calibration.phrases import counted_in_short
from ..calibration.promises import CertifiedPromise
from ..calibration.sentence import plural
from ..evaluation.evaluation import Evaluation, SeenPromise
from ..evaluation.guarantee_check import GuaranteeCheck
from .example import Example
from .svg import whisker
from .words import level_text, percent, span

_VERDICTS = {
    "kept": "kept: the whole range is within the level",
    "broken": "broken: above the level, for all rows at once",
    "not told": "not told: the range reaches beyond the level",
    "not seen": "not told: no such image here",
}
_ALONE = "not told: above the level, which chance may do to one of these rows"


def promise_rows(
    calibration: Calibration, evaluation: Evaluation | None, judged: GuaranteeCheck | None, examples: Sequence[Example]
) -> list[dict[str, Any]]:
    """Rows of the table, one for each promise; none where there is but one level for all pixels and no other was asked.

    Promises that the evaluation was asked about and that nobody made are rows of their own.
    """
    seen = () if evaluation is None else evaluation.promises
    made: tuple[CertifiedPromise | None, ...] = () if calibration.of_all_pixels else calibration.promises
    if not made and not seen:
        return []
    if made and seen and [_asked(p) for p in seen] != [_asked(p) for p in calibration.promises]:
        raise ValueError(
            f"the evaluation is of {len(seen)} promises, and the calibration certified {len(made)} others; evaluate "
            "with calibration= and the same promises in the same order"
        )
    made = made or (None,) * len(seen)
    others: tuple[SeenPromise | None, ...] = seen or (None,) * len(made)
    known = {name for example in examples for name in example.regions or {}}
    levels = [p.at_most for p in calibration.promises] + [p.at_most for p in seen]
    told = [p.interval[1] for p in seen if p.verdict in ("kept", "broken")]  # others may reach far
    most = max(1.25 * max(levels), *told, *(1.15 * p.risk for p in seen if p.units), 0.0)
    compared = judged is not None and bool(judged.promises)
    pairs = zip(made, others, strict=True)
    return [_row(i, a, b, calibration, evaluation, known, most, compared) for i, (a, b) in enumerate(pairs, 1)]


def _asked(promise: CertifiedPromise | SeenPromise) -> tuple[str, float]:
    return promise.kind, promise.at_most


def _row(
    number: int,
    made: CertifiedPromise | None,
    seen: SeenPromise | None,
    calibration: Calibration,
    evaluation: Evaluation | None,
    known: set[str],
    most: float,
    compared: bool,
) -> dict[str, Any]:
    promise: Any = made or seen
    record = calibration.record
    one = record.unit_name if record.units else "image"
    row = {
        "number": number,
        "name": promise.name,
        "what": counted_in_short(promise, record.pixels, one if made or evaluation is None else evaluation.each),
        "level": level_text(promise.at_most),
        "made": made is not None,
        "certified": None if made is None else percent(made.risk),
        "by": None if made is None else f"by {made.certifying} {plural(one)}",
        "seen": None,
        "verdict": "not promised" if made is None else "not checked",
        "kind": "",
        "outline": promise.name if promise.name in known else None,
    }
    if seen is None or evaluation is None:
        return row
    if seen.units:
        row["seen"] = percent(seen.risk)
        row["span"] = span(*seen.interval)
        row["on"] = f"on {seen.units} {plural(evaluation.each)}"
        row["cell"] = whisker(seen.risk, *seen.interval, most, seen.at_most)
    if made is not None:
        alone = seen.verdict == "not told" and seen.interval[0] > seen.at_most
        words = _ALONE if alone else _VERDICTS[seen.verdict]
        row["verdict"] = words if compared else "not compared, as said above"
        row["kind"] = seen.verdict.replace(" ", "-") if compared else ""
    elif seen.units:
        row["verdict"] = f"not promised; {_VERDICTS[seen.verdict].partition(': ')[2]}"
    return row


def promises_to_look_at(
    calibration: Calibration, rows: Sequence[dict[str, Any]], entries: str, noun: str
) -> list[dict[str, str]]:
    """What the viewer says of promises that count pixels of a region drawn by hand; `outline` is empty for all pixels.

    rows       of the table of promises, as `promise_rows` gives them
    """
    if not calibration.of_all_pixels:
        pairs = zip(calibration.promises, rows, strict=True)
        return [
            {
                "name": row["name"], "level": row["level"], "what": row["what"],
                "outline": "" if made.place == "all" else row["outline"] or row["name"],
            }
            for made, row in pairs
        ]  # fmt: skip
    words = {"what": f"the {entries} outside, mean over {plural(noun)}", "outline": ""}
    return [{"name": f"all {entries}", "level": level_text(calibration.risk_level), **words}]


def certified_above(calibration: Calibration) -> list[str]:
    """Promises that betting certified although the certifying images miss more than the level, in words."""
    if calibration.bound != "betting":
        return []
    alone = calibration.of_all_pixels
    return [
        f"{percent(p.risk)} {'' if alone else f'for “{p.name}” '}at a level of {level_text(p.at_most)}"
        for p in calibration.promises
        if p.risk > p.at_most
    ]
