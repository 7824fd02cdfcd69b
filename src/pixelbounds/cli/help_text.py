"""What help says beside options: the first commands, exit codes, and paragraphs as wide as the terminal."""

from __future__ import annotations

import inspect

EXITS = (
    "Exit codes: 0 done, 1 no guarantee can be given, 2 wrong usage or input, 3 this machine cannot do it, 4 a fault "
    "of pixelbounds, 5 an alarm of a monitor, 130 stopped by Ctrl-C, 141 the reader of the output has gone."
)
BEGIN = """Guaranteed error bars for every pixel of a restored image.

  pixelbounds demo        the whole idea on phantoms, and a page to look at
  pixelbounds calibrate   true images and bands in, a calibration with a guarantee out
  pixelbounds apply       a calibration and new bands in, intervals out
  pixelbounds evaluate    intervals and true images in: do they keep the promise?

All commands: pixelbounds --help. Options and examples of one: pixelbounds calibrate --help."""


def flowing(text: str) -> str:
    r"""Paragraphs as one line each, for help as wide as the terminal.

    >>> flowing("One line\nand another.\n\n    A paragraph.")
    'One line and another.\n\nA paragraph.'
    """
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))
