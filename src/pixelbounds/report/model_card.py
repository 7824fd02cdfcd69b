"""The model card of a calibration, card.md: what it promises, of what data, how made, for what, and what voids it.

Its headings follow what FDA's draft on the lifecycle of AI-enabled devices (January 2025) wants to be said to users. It
tells nothing of people: a calibration holds no names, and what is said beside it is the reader's own. What comes from
the file is escaped, since a promise's name may have been chosen by somebody else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jinja2 import Environment, StrictUndefined

from ..calibration.calibration import Calibration
from ..calibration.text import description_of, independent_in_words
from .render import asset

_MARKUP = re.compile(r"[\\`*_\[\]|~$]")


def card_markdown(
    calibration: Calibration, title: str, *, dates: Mapping[str, str], intended_use: str | None = None,
    notes: Sequence[str] = (),
) -> str:  # fmt: skip
    """The card; `dates` are what is known of the file itself, by name: days, and its checksum."""
    words, source = description_of(calibration), calibration.record.source
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(asset("card.md")).render(
        calibration=calibration, title=title, intended_use=intended_use, notes=notes, words=words, escaped=_escaped,
        facts=_facts, table=_table, source={name: str(x) for name, x in source.known.items()},
        independent=independent_in_words(calibration.record), parts=any(p.place != "all" for p in calibration.promises),
        dates={**words.rows("made_by", "images_digest"), **dates},
    )  # fmt: skip


def _escaped(text: str) -> str:
    """Plain text, of which no part is markup."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKUP.sub(lambda mark: f"\\{mark[0]}", text)


def _facts(facts: Mapping[str, str]) -> str:
    return _table(("", ""), *facts.items()) if facts else ""


def _table(head: Sequence[str], *rows: Sequence[str]) -> str:
    lines = [f"| {' | '.join(map(_escaped, row))} |" for row in (head, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(head)}", *lines[1:]])
