"""Data beside the page: small pages, files that are theirs, nothing left of an earlier page."""

import json
import re

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
