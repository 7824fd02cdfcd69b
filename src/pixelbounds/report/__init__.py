"""Calibration, evaluation and examples to something a person reads: one HTML page; figures draws `pixelbounds.plot`.

The page is a single file. It asks for nothing from outside, opens from disk, and shows what is guaranteed, how the
intervals did on images with a known truth, and every pixel of the examples.
"""

from .example import Example, Row, examples_of
from .page import write_report

__all__ = ["Example", "Row", "examples_of", "write_report"]
