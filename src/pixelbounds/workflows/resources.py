"""Where passes over images run and what they may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..formats.arrays import FilePath


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The options of `pixelbounds.execution.running`, which explains them."""

    scheduler: Any = None
    memory: int | str | None = None
    threads: int | None = None
    scratch: FilePath | None = None
