"""Ways to wait for what other processes do, on machines of any speed."""

import os
import time

PATIENCE = 300  # seconds


def wait_until(ready, process=None):
    """Return as soon as `ready()`; `process`, if given, must not end before."""
    deadline = time.monotonic() + PATIENCE
    while not ready():
        assert process is None or process.poll() is None, f"ended too early: {process.communicate()}"
        assert time.monotonic() < deadline, f"nothing happened within {PATIENCE} s"
        time.sleep(0.005)


def whole_files(folder):
    """The names of the files in a folder that others may be writing, making or removing; none where it is not there.

    Files on their way are left out.
    """
    try:
        return [name for name in os.listdir(folder) if not name.endswith(".partial")]
    except FileNotFoundError:
        return []
