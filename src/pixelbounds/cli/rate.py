"""The rate of a progress bar."""

from __future__ import annotations

from rich.progress import ProgressColumn, Task
from rich.text import Text


class Rate(ProgressColumn):
    """How many a second, over the last half minute."""

    def __init__(self, of: str) -> None:
        super().__init__()
        self._of = of

    def render(self, task: Task) -> Text:
        """The rate, once it is known."""
        return Text(f"{self._of}" if task.speed is None else f"{task.speed:.3g} {self._of}/s")
