"""Calibration, evaluation and examples to something a person reads: one HTML page, or figures for a paper.

The page is a single file. It asks for nothing from outside, opens from disk, and shows what is guaranteed, how the
intervals did on images with a known truth, and every pixel of the examples.
"""

from .example import Example, Row, examples_of
from .figures import save_figures
from .page import write_report

__all__ = ["Example", "Row", "examples_of", "save_figures", "write_report"]
