"""Edited and resealed files meet their readers in child processes: no signal, no hang, no fault of ours.

`make fuzz` runs 100,000 of them; here are a few of each kind. Faults that are planted must be found.
"""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from edits import contents, resealed
from fuzz import SHARES, batches, run
from specimens import make

CASES = 150


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    """A folder of valid files of every kind."""
    folder = tmp_path_factory.mktemp("valid")
    make(folder)
    return folder


def test_no_edited_file_is_more_than_refused(valid):
    found = run(valid, CASES, seed=0, children=1)
    assert not found.faults, "\n".join(f"{case}: {detail}" for case, detail in found.faults)
    assert found.cases == CASES
    for kind in ("calibration", "plan", "answer"):
        assert found.outcomes[kind, "refused"] > 5
        assert found.outcomes[kind, "done"] > 0  # some edits leave a file that can be


def test_planted_faults_are_found_and_belong_to_their_case(valid):
    faults = {1: "error", 2: "signal", 3: "hang"}
    found = run(valid, 4, seed=0, kinds=("calibration",), children=1, hang=4.0, faults=faults)
    assert found.cases == 4
    assert [case for case, _ in found.faults] == ["calibration:0:1", "calibration:0:2", "calibration:0:3"]
    error, killed, hanging = (detail for _, detail in found.faults)
    assert "a fault was planted" in error
    assert "SIGSEGV" in killed
    assert "no answer within 4 s" in hanging


def test_a_file_that_is_taken_apart_and_sealed_again_is_the_same(valid):
    files = sorted(Path(valid).rglob("*.safetensors"))
    assert len(files) > 100
    for file in files:
        assert resealed(*contents(file.read_bytes())) == file.read_bytes()


def test_batches_hold_every_case_once():
    seen = [
        (kind, at) for kind, _, first, count in batches(5000, 0, list(SHARES)) for at in range(first, first + count)
    ]
    assert len(seen) == len(set(seen)) == 5000
    assert {kind for kind, _ in seen} == set(SHARES)
