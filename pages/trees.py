"""Decision trees: a comment `<!-- tree: ... -->` of a page becomes an SVG with links, in the place of the comment.

A question stands at the left margin, its answers below it, indented, each with what to call and a page by its file:

    What do people look at?
        all of the image => pb.share(0.05) @ guides/arrays.md

The page says the same as a list, which is for phones and the repository.
"""

import re
from html import escape
from textwrap import wrap

TREE = re.compile(r"<!-- tree:\n(.*?)-->", re.DOTALL)
_ANSWER = re.compile(r"^\s+(.*?)\s*=>\s*(.*?)(?:\s*@\s*(\S+))?$")
_COLUMNS = ((0, 225), (275, 235), (550, 390))  # question, answer, what to call: left edge and width
_LINE, _PAD, _GAP = 17, 9, 10  # pixels


def with_trees(markdown: str) -> str:
    """A page with its trees drawn."""
    return TREE.sub(lambda match: draw(match[1]), markdown)


def read(text: str) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Questions, each with answers: what is answered, what to call, and the page that explains it, by its file."""
    tree: list[tuple[str, list[tuple[str, str, str]]]] = []
    for line in filter(str.strip, text.split("\n")):
        answer = _ANSWER.match(line)
        if answer and tree:
            tree[-1][1].append((answer[1], answer[2], answer[3] or ""))
        elif line[0].isspace():
            raise ValueError(f"a tree has the line {line!r}; write `    answer => call @ page.md` below a question")
        else:
            tree.append((line.strip(), []))
    return tree


def draw(text: str) -> str:
    """A tree as SVG."""
    shapes: list[str] = []
    y = 0
    for question, answers in read(text):
        tops, rows = [], []
        for answer, call, page in answers:
            height = max(_height(answer, 29), _height(call, 50))
            tops.append((y, height))
            rows += [_box(1, y, height, answer, 29, "answer"), _line(1, y + height / 2, y + height / 2)]
            rows.append(_box(2, y, height, call, 50, "call", page))
            y += height + _GAP
        first, last = tops[0][0], tops[-1][0] + tops[-1][1]
        height = _height(question, 26)
        top = (first + last - height) / 2
        lines = [_line(0, top + height / 2, at + tall / 2) for at, tall in tops]
        shapes += [_box(0, top, height, question, 26, "question"), *lines, *rows]
        y += 2 * _GAP
    width = sum(_COLUMNS[-1])
    return (
        f'<svg class="decisions" viewBox="-2 -2 {width + 4} {y}" role="group" aria-label="Decision tree">'
        + "".join(shapes)
        + "</svg>"
    )


def _height(text: str, letters: int) -> int:
    return len(wrap(text, letters)) * _LINE + 2 * _PAD


def _box(column: int, top: float, height: float, text: str, letters: int, kind: str, page: str = "") -> str:
    left, width = _COLUMNS[column]
    rows = wrap(text, letters)
    first = top + height / 2 - (len(rows) - 1) * _LINE / 2 + 5
    words = "".join(
        f'<text x="{left + 12}" y="{first + row * _LINE:g}">{escape(line)}</text>' for row, line in enumerate(rows)
    )
    drawn = f'<g class="{kind}"><rect x="{left}" y="{top:g}" width="{width}" height="{height:g}" rx="5"/>{words}</g>'
    return f'<a href="{page.replace(".md", ".html")}">{drawn}</a>' if page else drawn


def _line(column: int, start: float, end: float) -> str:
    left = sum(_COLUMNS[column])
    right = _COLUMNS[column + 1][0]
    middle = (left + right) / 2
    return f'<path d="M{left} {start:g} C{middle:g} {start:g} {middle:g} {end:g} {right} {end:g}"/>'
