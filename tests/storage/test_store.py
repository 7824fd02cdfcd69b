"""A store grows under one process at a time, and whatever a killed one left is begun anew, resumed, or refused."""

import multiprocessing
from contextlib import suppress

import numpy as np
import pytest
import zarr

from pixelbounds.images.ragged import read_ragged
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


# ---------------------------------------------------------------- images of different sizes

SIZES = np.array([(100 + 7 * i, 90) for i in range(30)])


def grow_sizes(path, stop_after=None):
    """A store of images of different sizes, with a number of each; the process stops after some blocks."""
    arrays = {"lower": (SIZES, "f4"), "trusted": (SIZES, "?"), "length": ((len(SIZES),), "f8")}
    with resumable(path, arrays, request={"of": "sizes"}) as store:
        made = store.unfinished()
        for count, block in enumerate(made):
            if count == stop_after:
                raise KeyError
            numbers = range(*store.cut(block))
            images = [np.full(SIZES[i], i, np.float32) for i in numbers]
            parts = {"lower": images, "trusted": [x > 3 for x in images], "length": np.array(numbers, float)}
            store.write(block, parts, np.full(len(images), DONE, np.uint8))
    return made


def whole(path):
    group = zarr.open_group(path, mode="r")
    names = "lower/values", "trusted/values", "length", "done"
    return {name: group[name][:].tobytes() for name in names}


@pytest.mark.parametrize("harm", [None, "cut", "remove"])
def test_images_of_different_sizes_resume_to_the_same_bits(tmp_path, harm):
    every = grow_sizes(tmp_path / "whole.zarr")
    assert len(every) > 3
    with suppress(KeyError):
        grow_sizes(tmp_path / "x.zarr", stop_after=3)
    chunk = part_of(tmp_path / "x.zarr") / "trusted" / "values" / "c" / "1"
    chunk.write_bytes(chunk.read_bytes()[:-3]) if harm == "cut" else chunk.unlink() if harm else None
    again = grow_sizes(tmp_path / "x.zarr")
    assert again == every[3:] if harm is None else set(every[3:]) < set(again) < set(every)
    assert whole(tmp_path / "x.zarr") == whole(tmp_path / "whole.zarr")
    found = read_ragged(tmp_path / "x.zarr")
    assert found["lower"].shapes == [tuple(x) for x in SIZES.tolist()]
    assert all((x == i).all() for i, x in enumerate(found["lower"]))
