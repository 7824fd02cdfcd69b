"""A store grows under one process at a time, and whatever a killed one left is begun anew, resumed, or refused."""

import multiprocessing
from contextlib import suppress

import numpy as np
import pytest
import zarr

from pixelbounds.storage.files import exclusive
from pixelbounds.storage.store import DONE, part_of, resumable

ARRAYS = {"lower": ((8, 4, 4), "f4"), "upper": ((8, 4, 4), "f4")}


def grow(path, request="a", **more):
    """Make a store of eight images in two blocks."""
    about = {"pixelbounds": {"kind": "bands"}}
    with resumable(path, ARRAYS, rows=4, about=about, request={"of": request}, **more) as store:
        for block in store.unfinished():
            x = np.full((4, 4, 4), block, np.float32)
            store.write(block, {"lower": x, "upper": x}, np.full(4, DONE, np.uint8))


def names(folder):
    return sorted(x.name for x in folder.iterdir())


def _racer(folder, rounds, barrier, told):
    for i in range(rounds):
        barrier.wait()
        try:
            grow(folder / f"{i}.zarr")
            told.put((i, "done"))
        except (BlockingIOError, FileExistsError) as error:
            told.put((i, type(error).__name__))
        except BaseException as error:
            told.put((i, f"odd: {type(error).__name__} {error}"))


def test_of_two_processes_that_start_together_one_makes_the_store(tmp_path):
    rounds = 12
    context = multiprocessing.get_context("fork")
    barrier, told = context.Barrier(2), context.Queue()
    racers = [context.Process(target=_racer, args=(tmp_path, rounds, barrier, told)) for _ in range(2)]
    for racer in racers:
        racer.start()
    found = [told.get(timeout=60) for _ in range(2 * rounds)]
    for racer in racers:
        racer.join()
    assert not [what for _, what in found if what.startswith("odd")]
    assert {i for i, what in found if what == "done"} == set(range(rounds))
    assert names(tmp_path) == sorted(f"{i}.zarr" for i in range(rounds))  # no part is stuck
    for i in range(rounds):
        assert (zarr.open_group(tmp_path / f"{i}.zarr", mode="r")["upper"][:, 0, 0] == np.repeat([0, 1], 4)).all()


def test_a_part_whose_maker_was_killed_is_made_again(tmp_path):
    part = part_of(tmp_path / "x.zarr")
    (part / ".new" / "lower").mkdir(parents=True)
    (part / "upper").mkdir()
    grow(tmp_path / "x.zarr")
    assert names(tmp_path) == ["x.zarr"]
    assert ".new" not in names(tmp_path / "x.zarr")


@pytest.mark.parametrize("anew", [False, True])
def test_a_part_that_is_no_store_is_told_and_left(tmp_path, anew):
    part = part_of(tmp_path / "x.zarr")
    part.mkdir()
    (part / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="no store that can be resumed; remove it"):
        grow(tmp_path / "x.zarr", anew=anew)
    assert (part / "thesis.txt").read_text() == "mine"


def test_a_part_of_another_request_is_told_or_made_anew(tmp_path):
    with suppress(KeyError), resumable(tmp_path / "x.zarr", ARRAYS, rows=4, request={"of": "b"}) as store:
        x = np.ones((4, 4, 4), np.float32)
        store.write(0, {"lower": x, "upper": x}, np.full(4, DONE, np.uint8))
        raise KeyError
    with pytest.raises(
        ValueError,
        match=r"other inputs or options \(of is 'b' there and 'a' here\); run that command again, say --force",
    ):
        grow(tmp_path / "x.zarr")
    assert names(tmp_path) == ["x.zarr.part"]
    grow(tmp_path / "x.zarr", anew=True)
    assert (zarr.open_group(tmp_path / "x.zarr", mode="r")["upper"][:4] == 0).all()


def test_a_name_that_is_taken_is_replaced_only_where_asked(tmp_path):
    grow(tmp_path / "x.zarr")
    with pytest.raises(FileExistsError, match=r"x\.zarr exists"):
        grow(tmp_path / "x.zarr", "b")
    assert names(tmp_path) == ["x.zarr"]
    made = zarr.open_group(tmp_path / "x.zarr", mode="r").attrs["made"]
    for name in (".x.zarr.old", ".x.zarr.1.old"):  # of processes that were killed
        (tmp_path / name).mkdir()
    (tmp_path / ".x.zarr.2.old").write_text("a file, which no folder replaces")
    grow(tmp_path / "x.zarr", "b", replace=True)
    assert zarr.open_group(tmp_path / "x.zarr", mode="r").attrs["made"] != made
    assert names(tmp_path) == ["x.zarr"]


def test_a_store_that_another_process_reads_and_writes_is_not_replaced(tmp_path):
    grow(tmp_path / "x.zarr")
    with exclusive(tmp_path / "x.zarr"), pytest.raises(BlockingIOError, match="another process"):
        grow(tmp_path / "x.zarr", "b", replace=True)
    grow(tmp_path / "x.zarr", "b", replace=True)
    assert names(tmp_path) == ["x.zarr"]
