"""Code blocks of a page, as a reader meets them: all of one page share a namespace and a folder that is empty at first.

A block of Python is run; one with prompts is a doctest. A block `text` after another holds what that printed, and
is compared; `...` stands for anything. Lines of a shell that begin with `pixelbounds` are read by the commands, and
run where the page has the comment `commands are run`. Comments say what blocks need:

<!-- before: code that is run at this place -->       readers of the site find it folded
<!-- unseen: code that is run at this place -->       nobody sees it
<!-- not run: why -->       right before a block: its Python is compiled only, its commands are read only

`python -m pages.blocks PAGE` writes the blocks `text` of a page anew.
"""

import contextlib
import doctest
import io
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pages.stories import in_empty_folder

_BLOCK = re.compile(
    r"<!-- (?:before|unseen):(?P<before>.*?)-->"
    r"|(?:<!-- not run:(?P<not_run>(?:(?!-->).)*)-->\n\n?)?"
    r"^(?P<indent> *)```(?P<kind>\w*)[^\n]*\n(?P<text>(?:(?!\n *```).)*?)\n? *```$"
    r"(?:\n+```text\n(?P<printed>.*?)\n```$)?",
    re.DOTALL | re.MULTILINE,
)
HIDDEN = "before"  # kind of code that readers do not see
_LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_RUN = "<!-- commands are run -->"  # of a page


@dataclass(frozen=True)
class Block:
    """Code of a page: its kind, text and line, why it is not run, and what it should print."""

    kind: str
    text: str
    line: int
    not_run: str = ""
    printed: str | None = None

    @property
    def commands(self) -> list[list[str]]:
        """The words of each line that calls `pixelbounds`."""
        lines = re.sub(r"\\\n\s*", "", self.text).split("\n")
        called = [line.strip() for line in lines if line.strip().startswith("pixelbounds ")]
        return [shlex.split(line.rstrip("&"), comments=True)[1:] for line in called]


def blocks_of(text: str) -> list[Block]:
    """The blocks of code of a page, in order; blocks `text` belong to the one before."""
    blocks = []
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("text" if match["before"] is None else "before"))
        if match["before"] is not None:
            blocks.append(Block(HIDDEN, match["before"].strip(), line + 1))
        else:
            content = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
            blocks.append(Block(match["kind"], content, line, (match["not_run"] or "").strip(), match["printed"]))
    return blocks


def printed_by(page: Path) -> dict[int, tuple[str | None, str]]:
    """Run a page: what each block should print, where it says so, and what it printed, by its line.

    An error names the page and the line.
    """
    text = page.read_text()
    space: dict[str, Any] = {"__name__": "__main__"}
    out = {}
    with in_empty_folder():
        for block in blocks_of(text):
            where = f"{page.name}, line {block.line}"
            said = io.StringIO()
            try:
                with contextlib.redirect_stdout(said):
                    _run(block, where, space, commands=_RUN in text)
            except Exception as error:
                raise RuntimeError(f"{where}: {type(error).__name__}: {error}") from error
            out[block.line] = (block.printed, said.getvalue().rstrip())
    return out


def _run(block: Block, where: str, space: dict[str, Any], *, commands: bool) -> None:
    if block.kind == "python" and block.text.lstrip().startswith(">>>"):
        _doctest(block, where, space)
    elif block.kind in ("python", HIDDEN):
        code = compile(block.text, where, "exec")
        if not block.not_run:
            exec(code, space)
    elif block.kind in ("", "sh", "bash"):
        for words in block.commands:
            check_command(words)
            if commands and not block.not_run:
                print(run_command(words))


def _doctest(block: Block, where: str, space: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text + "\n", space, where, where, 0)
    test.globs = space
    report = io.StringIO()
    runner = doctest.DocTestRunner()
    runner.run(test, out=report.write, clear_globs=False)
    if runner.failures:
        raise AssertionError(report.getvalue())


# ---------------------------------------------------------------- commands


def check_command(words: list[str]) -> None:
    """Read a command's words as the command does, and run nothing: unknown options and missing ones are errors."""
    from typer.main import get_command

    from pixelbounds.cli import app

    command: Any = get_command(app)
    rest = list(words)
    parent = None
    while hasattr(command, "commands"):
        name = rest.pop(0) if rest else ""
        if name not in command.commands:
            raise ValueError(f"pixelbounds {' '.join(words)}: there is no command {name!r}")
        parent = command.context_class(command, info_name=command.name, parent=parent)
        command = command.commands[name]
    command.make_context(command.name, rest, parent=parent)


def run_command(words: list[str]) -> str:
    """What a command says, run in this process; another exit code than 0 is an error."""
    from typer.testing import CliRunner

    from pixelbounds.cli import app

    done = CliRunner().invoke(app, words, terminal_width=120)
    if done.exit_code:
        raise RuntimeError(
            f"pixelbounds {' '.join(words)} ended with {done.exit_code}: {done.output} {done.exception!r}"
        )


def same(wanted: str, printed: str) -> bool:
    """Whether a block printed what its page says, but for spaces; `...` stands for anything."""
    return doctest.OutputChecker().check_output(wanted + "\n", printed + "\n", _LOOSE)


def rewrite(page: Path) -> None:
    """Write what blocks print into the blocks `text` of a page, where these hold no `...`."""
    text = page.read_text()
    for wanted, printed in printed_by(page).values():
        if wanted is not None and "..." not in wanted and not same(wanted, printed):
            text = text.replace(f"```text\n{wanted}\n```", f"```text\n{printed}\n```", 1)
    page.write_text(text)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        rewrite(Path(name))
