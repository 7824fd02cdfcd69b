"""Blocks of rows in threads, or by whatever runner is set: results do not depend on how rows are cut."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")
THREADS = max(1, min(8, os.cpu_count() or 1))

Runner = Callable[[Callable[[int, int], Any], int, int], Iterator[Any]]  # function, rows, block -> results in order
RUNNER: ContextVar[Runner | None] = ContextVar("RUNNER", default=None)  # `execution.running` sets it; None: threads


def over_rows(function: Callable[[int, int], T], rows: int, *, block: int) -> Iterator[T]:
    """Results of `function(start, stop)` over blocks of rows, in order, computed in threads or by the runner set.

    The function must depend on nothing but its rows and return what it found: it may run in another process.
    """
    return (RUNNER.get() or in_threads)(function, rows, block)


def in_threads(function: Callable[[int, int], T], rows: int, block: int) -> Iterator[T]:
    """The same, always in this process: for functions that fill arrays of the caller's."""
    cuts = cut_rows(rows, block)
    if len(cuts) < 2 or THREADS < 2 or RUNNER.get() is in_this_thread:
        yield from (function(*cut) for cut in cuts)
        return
    with ThreadPoolExecutor(THREADS) as pool:
        yield from pool.map(lambda cut: function(*cut), cuts)


def in_this_thread(function: Callable[[int, int], T], rows: int, block: int) -> Iterator[T]:
    """The same, one block after the other: the runner within a block."""
    return (function(*cut) for cut in cut_rows(rows, block))


def cut_rows(rows: int, block: int) -> list[tuple[int, int]]:
    """Blocks of rows, (start, stop) each."""
    return [(start, min(rows, start + block)) for start in range(0, rows, max(1, block))]


def block_of(row_size: int, rows: int) -> int:
    """Rows per block: about a quarter of a million entries, enough blocks to feed every thread; little data is one."""
    if rows * row_size <= 2**15:
        return max(1, rows)
    return max(1, min(2**18 // max(1, row_size), -(-rows // THREADS)))
