"""Threads of other libraries: how they wait, set before these libraries are loaded."""

from __future__ import annotations

import os


def let_threads_sleep() -> None:
    """Make the threads of OpenMP sleep while they wait for each other; too late once torch is imported.

    By default they wait by running in circles, at every one of the hundreds of layers of a step. Where another
    program has one of the cores, the thread that is waited for does not run, while the others keep busy the core that
    it needs: a step then takes longer than with one thread (`python -m benchmarks.cpu_training`). Threads that sleep
    are a little slower where the machine is otherwise idle, and much faster where it is not.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
