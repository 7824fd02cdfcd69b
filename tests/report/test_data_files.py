"""Data beside the page: small pages, files that are theirs, nothing left of an earlier page."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from report_world import HOSTILE, pictures_of, world

from pixelbounds.report import page_examples


@pytest.fixture
def write(tmp_path, monkeypatch):
    def written(name, most=1000, **changes):
        monkeypatch.setattr(page_examples, "MOST_INSIDE", most)
        monkeypatch.setattr(page_examples, "STRIPS_INSIDE", 1)
        return world().write(tmp_path / name, **changes)

    return written


def names_in(page):
    return set(re.findall(r"\d{4}-(?:image|pictures)-[0-9a-f]{16}", page.read_text()))


def test_a_page_names_its_files_and_theirs_is_the_data(write):
    page = write("a.html")
    folder = page.with_name("a_files")
    assert {path.stem for path in folder.iterdir()} == names_in(page)
    assert "'strict-dynamic'" in page.read_text()
    assert "unsafe" not in page.read_text()
    assert 'id="example-0"' not in page.read_text()
    for path in folder.iterdir():
        call = path.read_text()
        assert call.startswith(f'pixelbounds("{path.stem}", ')
        data = json.loads(json.loads(call[len(f'pixelbounds("{path.stem}", ') : -3]))
        assert ("lower" in data) == ("image" in path.stem)
    assert HOSTILE in json.loads(json.loads(next(folder.glob("0001-pictures-*")).read_text()[46:-3]))[0][2]


def test_the_same_arguments_give_the_same_files(write):
    first, second = write("a.html"), write("b.html")
    assert names_in(first) == names_in(second)
    assert first.read_text().replace("a_files", "b_files") == second.read_text()


def test_an_earlier_page_leaves_nothing_behind_and_what_is_not_ours_stays(write):
    page = write("a.html")
    folder = page.with_name("a_files")
    before = names_in(page)
    (folder / "notes.txt").write_text("mine")
    write("a.html", examples=[pictures_of((7, 9)), *world().examples[:1]])
    assert {path.stem for path in folder.iterdir()} == names_in(page) | {"notes"}
    assert names_in(page) != before
    write("a.html", most=10**8)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert "'strict-dynamic'" not in page.read_text()
    (folder / "notes.txt").unlink()
    write("a.html")
    write("a.html", most=10**8)
    assert not folder.exists()


def test_a_file_in_the_place_of_the_folder_is_refused(write, tmp_path):
    (tmp_path / "a_files").write_text("mine")
    with pytest.raises(ValueError, match=r"a_files' is a file, and the page needs a folder of that name"):
        write("a.html")
    assert not (tmp_path / "a.html").exists()


def test_an_image_beside_the_page_keeps_as_many_samples_as_fit(write):
    drawn = np.random.default_rng(0).uniform(size=(40, 128, 128)).astype(np.float32)
    page = write("a.html", examples=[replace(pictures_of((128, 128)), samples=drawn)], comparison=[])
    (file,) = page.with_name("a_files").iterdir()
    (example,) = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.S)[1])["examples"]
    assert example["samples"] >= 8
    assert example["file"] == file.stem
    assert file.stat().st_size < 520_000
