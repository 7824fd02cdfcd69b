"""The table of promises: of each its level, what was seen when it was certified and on other images, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..calibration.calibration import Calibration
from ..calibration.promises import promise_key
from ..calibration.text import counted_in_short, description_of
from ..calibration.words import level_in_words, number_of
from ..evaluation.evaluation import Evaluation, SeenPromise
from ..evaluation.guarantee_check import GuaranteeCheck
from .cells import percent, span
from .example import Example
from .svg import whisker

_VERDICTS = {
    "kept": "kept: within the level, for all rows at once",
    "broken": "broken: above the level, for all rows at once",
    "undecided": "undecided: {} too few to confirm {}",
    "not seen": "undecided: no such image here",
}
_ALONE = "undecided: {} the level, which chance may do to one of these rows"


def promise_rows(
    calibration: Calibration, evaluation: Evaluation | None, check: GuaranteeCheck | None, examples: Sequence[Example]
) -> list[dict[str, Any]]:
    """Rows of the table: each certified promise, then what the evaluation was asked about and nobody promised."""
    regions = {name for example in examples for name in example.regions or {}}
    rows: list[dict[str, Any]] = []
    for words, promise in zip(description_of(calibration).promises, calibration.promises, strict=True):
        seen, by = seen_of(promise, evaluation, check), f"by {words.certified_by}"
        rows.append(_row(promise, words.counted, words.level, words.seen, by, "not checked", seen))
    keys = {promise_key(promise) for promise in calibration.promises}
    for seen in () if evaluation is None else evaluation.promises:
        if evaluation is not None and promise_key(seen) not in keys:
            what = counted_in_short(seen, evaluation.pixels, evaluation.each)
            rows.append(_row(seen, what, level_in_words(seen.at_most), None, "", "not promised", seen))
    shown = [row["seen"] for row in rows if row["seen"] is not None and row["seen"].units]
    decided = [p.interval[1] for p in shown if p.verdict in ("kept", "broken")]  # others may reach far
    most = max([1.25 * p.at_most for p in calibration.promises] + decided + [1.15 * p.risk for p in shown])
    for row in rows:
        row["outline"] = row["name"] if row["name"] in regions else None
        if row["seen"] is not None and evaluation is not None:
            row |= _of_images(row, row["seen"], evaluation, most, check)
    return rows


def _row(
    promise: Any, what: str, level: str, certified: str | None, by: str, verdict: str, seen: SeenPromise | None
) -> dict[str, Any]:
    return {
        "name": promise.name, "what": what, "level": level, "certified": certified, "by": by, "verdict": verdict,
        "kind": "", "place": promise.place, "seen": seen,
    }  # fmt: skip


def seen_of(promise: Any, evaluation: Evaluation | None, check: GuaranteeCheck | None) -> SeenPromise | None:
    """What a promise came to on other images: what the evaluation was asked, or the one mean that was compared."""
    seen = [] if evaluation is None else [*evaluation.promises, *(check.promises if check else ())]
    return next((x for x in seen if promise_key(x) == promise_key(promise)), None)


def _of_images(
    row: dict[str, Any], seen: SeenPromise, evaluation: Evaluation, most: float, check: GuaranteeCheck | None
) -> dict[str, Any]:
    compared = check is not None and bool(check.promises)
    some, (low, high) = number_of(seen.units, evaluation.each), seen.interval
    few = f"{some} {'is' if seen.units == 1 else 'are'}"
    words = verdict = _VERDICTS[seen.verdict].format(few, level_in_words(seen.at_most))
    if seen.verdict == "undecided" and (low > seen.at_most or high <= seen.at_most):
        verdict = _ALONE.format("above" if low > seen.at_most else "within")
    if row["certified"] is None:
        verdict = f"not promised; {words.partition(': ')[2]}" if seen.units else row["verdict"]
    elif not compared:
        verdict = "not compared: see what is guaranteed"
    cells = {"verdict": verdict, "kind": seen.verdict.replace(" ", "-") if compared and row["certified"] else ""}
    if not seen.units:
        return {**cells, "seen": None}
    return {
        **cells,
        "seen": percent(seen.risk),
        "span": span(*seen.interval),
        "on": f"on {some}",
        "cell": whisker(seen.risk, *seen.interval, most, seen.at_most),
    }
