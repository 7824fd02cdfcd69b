"""Edited and resealed files of every kind, by the thousand, in child processes: `python tests/support/fuzz.py --help`.

Allowed is success with a sane result, and an error that the command line turns into exit code 1 or 2. Everything else
is a fault: a signal, more than 10 seconds, memory beyond all proportion, or an error of another kind. A child says
which case it begins before it begins it, so a fault belongs to a case even where the child does not live to tell.

A case is a kind, a seed and a number: `python tests/support/fuzz.py --only plan:0:417` shows what one does.
"""

import argparse
import json
import os
import queue
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

HANG = 10.0  # seconds that a case may take
START = 240.0  # seconds that a child may take to load what it needs
ROOM = 2 * 2**30  # bytes of address space beyond those of a child that has tried every kind
BATCH = 100
SHARES = {
    "calibration": 0.38, "apply": 0.02, "plan": 0.18, "answer": 0.1, "announcement": 0.06,
    "study": 0.04, "network": 0.03, "state": 0.03, "monitor": 0.04, "grown": 0.06, "table": 0.03, "run": 0.03,
}  # fmt: skip


@dataclass
class Found:
    """What a run of cases found: counts of outcomes by kind, faults, seconds of all children by kind."""

    outcomes: Counter = field(default_factory=Counter)  # (kind, outcome) -> cases
    seconds: Counter = field(default_factory=Counter)  # kind -> seconds
    faults: list = field(default_factory=list)  # (case, what happened)

    @property
    def cases(self):
        """How many cases ended, however."""
        return sum(self.outcomes.values())

    def table(self):
        """Counts by kind, for people."""
        lines = [f"{'kind':14}{'cases':>9}{'done':>9}{'refused':>9}{'faults':>8}{'per second':>12}"]
        for kind in [k for k in SHARES if any(kind == k for kind, _ in self.outcomes)]:
            done, refused, faults = (self.outcomes[kind, what] for what in ("done", "refused", "fault"))
            rate = (done + refused + faults) / max(self.seconds[kind], 1e-9)
            lines.append(f"{kind:14}{done + refused + faults:9}{done:9}{refused:9}{faults:8}{rate:12.0f}")
        return "\n".join(lines)


# ---------------------------------------------------------------- a child


def run_case(world, kind, seed, number):
    """One case: "done" or "refused", and how; anything else is an exception, or the end of the process."""
    import numpy as np
    from edits import any_of, edited
    from specimens import PLAIN, USES

    from pixelbounds.cli.command import NO_GUARANTEE, WRONG_INPUT, code_of

    rng = np.random.default_rng([seed, list(SHARES).index(kind), number])
    name = any_of(sorted(world.files[kind]), rng)
    plain = PLAIN.get(kind)
    data = world.files[kind][name]
    data = edited(data, any_of(world.all, rng), rng) if plain is None else plain(data, rng)
    try:
        USES[kind](data, name, rng, world)
    except Exception as error:
        if code_of(error) not in (NO_GUARANTEE, WRONG_INPUT):
            raise
        return "refused", f"{type(error).__name__}: {str(error)[:300]}"
    return "done", ""


def unedited(world, kinds):
    """Use every valid file as it is: they must all succeed, and what is compiled on first use is compiled."""
    import numpy as np
    from specimens import USES

    for kind in kinds:
        for name, data in world.files[kind].items():
            if kind == "apply" and name != "rcps":  # the bands in the file fit this one
                continue
            try:
                USES[kind](data, name, np.random.default_rng(1), world)
            except ValueError as error:
                raise RuntimeError(f"the valid {kind} {name!r} is refused: {error}") from error


def planted(fault):
    """A fault of a kind, to see that it is found."""
    if fault == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    if fault == "hang":
        time.sleep(3600)
    raise RuntimeError("a fault was planted")


def child(folder, kinds, faults):
    """Take batches "kind seed first count" from standard input, tell of each case that it begins and how it ended."""
    import faulthandler

    channel = os.dup(1)
    os.dup2(2, 1)  # whatever prints must not mix with what is told
    faulthandler.enable()
    warnings.simplefilter("ignore")
    os.environ["OMP_NUM_THREADS"] = "1"

    def tell(*words):
        os.write(channel, (json.dumps(words) + "\n").encode())

    import numpy as np
    from specimens import World

    np.seterr(all="ignore")
    if {"network", "state"} & set(kinds):
        import torch

        torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as scratch:
        unedited(World(folder, scratch, misuse=0), kinds)
        world = World(folder, scratch)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        tell("ready")
        for line in sys.stdin:
            kind, seed, first, count = line.split()
            for number in range(int(first), int(first) + int(count)):
                tell("begin", kind, int(seed), number)
                try:
                    if number in faults:
                        planted(faults[number])
                    outcome = run_case(world, kind, int(seed), number)
                except Exception:
                    outcome = "fault", traceback.format_exc()[-3000:]
                tell("end", kind, *outcome)
            tell("ready")


class Child:
    """A child process, and what it told last."""

    def __init__(self, folder, kinds, faults):
        self.errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - lives as long as the child
        command = [sys.executable, __file__, "--child", str(folder), "--kinds", ",".join(kinds)]
        command += ["--planted", json.dumps(faults)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(json.loads(line))
        self.lines.put(None)

    def told(self, seconds):
        """The next line; None where the child ended, "hang" where nothing came in time."""
        try:
            return self.lines.get(timeout=seconds)
        except queue.Empty:
            return "hang"

    def aggregate(self, *words):
        """Give it a batch."""
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def end(self):
        """End it, and say how it ended and what it wrote to standard error last."""
        self.process.kill() if self.process.poll() is None else None
        self.process.stdin.close()
        code = self.process.wait()
        self.errors.seek(0)
        said = self.errors.read()[-3000:]
        self.errors.close()
        return code, said


# ---------------------------------------------------------------- the parent


def batches(cases, seed, kinds):
    """Batches (kind, seed, first, count) in which kinds take turns, as many of each as its share says."""
    total = sum(SHARES[kind] for kind in kinds)
    left = {kind: round(cases * SHARES[kind] / total) for kind in kinds}
    left[kinds[0]] += cases - sum(left.values())
    rounds = max(1, max(left.values()) // BATCH)
    first = dict.fromkeys(kinds, 0)
    for r in range(rounds):
        for kind in kinds:
            count = left[kind] * (r + 1) // rounds - first[kind]
            if count:
                yield kind, seed, first[kind], count
            first[kind] += count


def work(start, todo, found, lock, stop, hang):
    """Keep one child busy until nothing is left to do; a child that died or hangs is replaced."""
    running = None
    batch = None
    try:
        while True:
            if batch is None:
                with lock:
                    batch = None if stop() else next(todo, None)
                if batch is None:
                    return
            if running is None:
                running = start()
                if running.told(START) != ["ready"]:
                    code, said = running.end()
                    running = None
                    raise RuntimeError(f"a child did not start (exit code {code}): {said}")
            running.aggregate(*batch)
            batch, lived = follow(running, batch, found, lock, hang)
            if not lived:
                running = None
    finally:
        if running is not None:
            running.end()


def follow(running, batch, found, lock, hang):
    """Listen until a batch ends or breaks off: what is left of it, and whether the child lives."""
    kind, seed, first, count = batch
    now, began = None, time.monotonic()
    while True:
        told = running.told(hang)
        if told == ["ready"]:
            return None, True
        if isinstance(told, list) and told[0] == "begin":
            now, began = told[3], time.monotonic()
            continue
        outcome, detail = (told[2], told[3]) if isinstance(told, list) else ("fault", "")
        if not isinstance(told, list):
            code, said = running.end()
            ended = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            detail = f"no answer within {hang:g} s" if told == "hang" else f"the process ended with {ended}\n{said}"
        with lock:
            found.outcomes[kind, outcome] += 1
            found.seconds[kind] += time.monotonic() - began
            if outcome == "fault":
                found.faults.append((f"{kind}:{seed}:{now}", detail))
        if not isinstance(told, list):
            after = (first if now is None else now) + 1
            return ((kind, seed, after, first + count - after) if after < first + count else None), False


def run(folder, cases, seed=0, seconds=float("inf"), kinds=tuple(SHARES), *, children=2, hang=HANG, faults=None,
        progress=None):  # fmt: skip
    """Run cases of the valid files in a folder in children, at most so many seconds: what was found.

    `faults` are planted: what happens at which number.
    """
    found, lock, began = Found(), threading.Lock(), time.monotonic()
    todo = batches(cases, seed, list(kinds))
    failures = []

    def stop():
        if progress is not None:
            progress(found, time.monotonic() - began)
        return bool(failures) or time.monotonic() - began > seconds

    def guarded():
        try:
            work(lambda: Child(folder, kinds, faults or {}), todo, found, lock, stop, hang)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(children)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return found


def show_one(case):
    """Run one case here and show all of it."""
    from specimens import World, make

    kind, seed, number = case.split(":")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as scratch:
        make(Path(folder), [kind])
        print(run_case(World(folder, scratch), kind, int(seed), int(number)))


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3000.0, help="no batch is begun after so many")
    parser.add_argument("--children", type=int, default=2)
    parser.add_argument("--kinds", default=",".join(SHARES))
    parser.add_argument("--only", metavar="KIND:SEED:NUMBER", help="show one case, in this process")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--planted", default="{}", help=argparse.SUPPRESS)
    given = parser.parse_args()
    kinds = tuple(given.kinds.split(","))
    if given.child:
        child(given.child, kinds, {int(number): fault for number, fault in json.loads(given.planted).items()})
        return 0
    if given.only:
        show_one(given.only)
        return 0
    from specimens import make

    last = [0.0]

    def progress(found, seconds):
        if seconds - last[0] > 30:
            last[0] = seconds
            print(f"{seconds:6.0f} s: {found.cases} cases, {len(found.faults)} faults", flush=True)

    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), kinds)
        found = run(folder, given.cases, given.seed, given.seconds, kinds, children=given.children, progress=progress)
    for case, detail in found.faults[:200]:
        print(f"--- {case}\n{detail}")
    print(found.table())
    print(f"{found.cases} cases of seed {given.seed}, {len(found.faults)} faults, {time.monotonic() - began:.0f} s")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
