"""Folders are whole or not there, whatever is in the way."""

from contextlib import suppress

from pixelbounds.storage.files import aside, swap_folder


def folder(path, text):
    path.mkdir()
    (path / "content").write_text(text)
    return path


def test_a_finished_folder_replaces_an_earlier_one(tmp_path):
    path = tmp_path / "store.zarr"
    for text in ("first", "second"):
        swap_folder(folder(tmp_path / "new", text), path)
        assert (path / "content").read_text() == text
        assert [x.name for x in tmp_path.iterdir()] == ["store.zarr"]


def test_what_a_killed_process_left_is_no_obstacle(tmp_path):
    path = folder(tmp_path / "store.zarr", "first")
    folder(tmp_path / ".store.zarr.old", "older")
    swap_folder(folder(tmp_path / "new", "second"), path)
    assert (path / "content").read_text() == "second"
    assert [x.name for x in tmp_path.iterdir()] == ["store.zarr"]


def test_a_folder_aside_is_gone_after_success_and_failure(tmp_path):
    with aside(tmp_path / "x.zarr") as place:
        (place / "file").write_text("x")
        assert place.parent == tmp_path
    with suppress(KeyError), aside(tmp_path / "x.zarr") as place:
        (place / "file").write_text("x")
        raise KeyError
    assert not list(tmp_path.iterdir())
