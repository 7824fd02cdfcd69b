"""What is told while work goes on: how much is done, and lines for the user."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]  # called with what is done and the total
Tell = Callable[[str], None]  # called with a line for the user


def silent(done: int, total: int) -> None:
    """Tell nobody."""
