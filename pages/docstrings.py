"""The house's docstrings as Markdown, for the pages of the API.

Arguments stand in two columns there, name and meaning, and become a list; doctests become code blocks; names of pages,
such as docs/guarantee.md, become links.
"""

import re

from griffe import Extension, Object

_ROW = re.compile(r"^(\S.*?)\s{2,}(\S.*)$")
_PAGE = re.compile(r"\bdocs/((?:\w+/)*(\w+)\.md)")


class HouseDocstrings(Extension):
    """Turn each docstring into Markdown when its object has been read."""

    def on_object(self, *, obj: Object, **_: object) -> None:
        """Replace what the docstring says by the same in Markdown."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """A docstring of the house as Markdown."""
    return "\n\n".join(_paragraph(part) for part in re.split(r"\n\s*\n", text.strip("\n")) if part.strip())


def _paragraph(text: str) -> str:
    lines = text.split("\n")
    if lines[0].lstrip().startswith(">>>"):
        return f"```pycon\n{text}\n```"
    rows = _rows(lines)
    if rows:
        shown = [row for row in rows if not row[0].endswith(".py")]  # files are for readers of the source
        return "\n".join(f"- `{name}`: {_linked(meaning)}" for name, meaning in shown)
    return _linked(text)


def _rows(lines: list[str]) -> list[tuple[str, str]]:
    """Names and meanings of lines in two columns, or none."""
    rows: list[tuple[str, str]] = []
    for line in lines:
        row = _ROW.match(line)
        if row:
            rows.append((row[1], row[2]))
        elif rows and line.startswith("  "):
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {line.strip()}")
        else:
            return []
    return rows


def _linked(text: str) -> str:
    return _PAGE.sub(r"[\2](../\1)", text)
