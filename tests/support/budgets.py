"""Budgets that only go down: lines per room, the largest signature, files that a call visits.

`budgets.toml` beside this file has a limit and the lowest value reached for each. A test compares what is measured with
the limits, and docs/architecture.md is generated from the same table. `python tests/support/budgets.py --write` lowers
what was undercut and writes the page. A limit more than 2% above the lowest value needs `buys`, a line that says what
the lines buy.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import subprocess
import sys
import tokenize
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_suffix(".toml")
PAGE = ROOT / "docs" / "architecture.md"
SOURCE = ROOT / "src" / "pixelbounds"
BEGIN, END = "<!-- budgets: python tests/support/budgets.py --write -->", "<!-- end of budgets -->"
HEADROOM = 1.02
_NOTHING = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def lines_of(*folders: str) -> int:
    """Lines of all Python files below some folders of the repository."""
    return sum(len(file.read_text().splitlines()) for folder in folders for file in _files(folder))


def code_lines_of(folder: str) -> int:
    """Lines without blanks, comments and docstrings."""
    return sum(len(_code_lines(file.read_text())) for file in _files(folder))


def _files(folder: str) -> list[Path]:
    path = ROOT / folder
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def _code_lines(text: str) -> set[int]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, documented) and ast.get_docstring(node)]
    docstrings = {line for node in nodes for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = {line for t in tokens if t.type not in _NOTHING for line in range(t.start[0], t.end[0] + 1)}
    return code - docstrings


@cache
def functions() -> list[tuple[str, ast.FunctionDef]]:
    """Every function of the package, with the place where it is defined."""
    made = []
    for file in _files("src/pixelbounds"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef):
                made.append((f"{file.relative_to(SOURCE).as_posix()}:{node.name}", node))
    return made


def arguments_of(node: ast.FunctionDef) -> int:
    """Arguments of a function, without self."""
    names = [x.arg for x in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len(names) - (bool(names) and names[0] in ("self", "cls"))


def body_lines(node: ast.FunctionDef) -> int:
    """Lines of a function after its docstring."""
    first = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
    return node.end_lineno - first[0].lineno + 1


def visited(call: str) -> int:
    """Files of the package that a call enters, as benchmarks.visits counts them."""
    command = [sys.executable, "-m", "benchmarks.visits", "--only", call]
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if process.returncode:
        raise RuntimeError(process.stderr)
    return len(json.loads(process.stdout))


def measure(budget: dict) -> int:
    """What a budget comes to now."""
    kind, of = budget["kind"], budget["of"]
    if kind == "visits":
        return visited(of)
    if kind == "signature":
        return max(arguments_of(node) for place, node in functions() if not place.startswith("cli/"))
    if kind == "function":
        return max(body_lines(node) for _, node in functions())
    if kind == "words":
        return len((ROOT / of).read_text().split())
    return code_lines_of(of) if kind == "code" else lines_of(*of.split())


def table() -> list[dict]:
    """All budgets."""
    return tomllib.loads(TABLE.read_text())["budget"]


def broken(budget: dict, value: int) -> str:
    """What is wrong with a budget, or nothing."""
    name, limit, lowest = budget["name"], budget["limit"], budget["lowest"]
    if value > limit:
        return f"{name}: {value}, more than the limit {limit}; delete before you add"
    if limit > max(lowest * HEADROOM, lowest + 1) and not budget.get("buys"):
        return f"{name}: the limit {limit} is above the lowest value {lowest}; lower it, or say in `buys` what it buys"
    return ""


def as_page(budgets: list[dict]) -> str:
    """The table of docs/architecture.md."""
    rows = [f"| {b['name']} | {b['limit']:,} | {b['lowest']:,} | {b.get('buys', '')} |" for b in budgets]
    return "\n".join([BEGIN, "| what | limit | lowest reached | what a rise buys |", "|---|---|---|---|", *rows, END])


def page_with(text: str, budgets: list[dict]) -> str:
    """The page with its table written anew."""
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return before + as_page(budgets) + after


def write() -> None:
    """Lower what was undercut, and write table and page."""
    budgets = table()
    lines = [line for line in TABLE.read_text().splitlines() if line.startswith("#")]
    for budget in budgets:
        value = measure(budget)
        budget["lowest"] = min(budget["lowest"], value)
        if not budget.get("buys"):
            budget["limit"] = min(budget["limit"], max(int(budget["lowest"] * HEADROOM), budget["lowest"]))
        lines += ["", "[[budget]]", *(f"{key} = {json.dumps(x, ensure_ascii=False)}" for key, x in budget.items())]
        print(f"{budget['name']}: {value}, limit {budget['limit']}")
    TABLE.write_text("\n".join(lines) + "\n")
    PAGE.write_text(page_with(PAGE.read_text(), budgets))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="lower what was undercut, and write the page")
    if parser.parse_args().write:
        write()
    else:
        for one in table():
            measured = measure(one)
            print(f"{one['name']}: {measured} (limit {one['limit']}) {broken(one, measured)}")
