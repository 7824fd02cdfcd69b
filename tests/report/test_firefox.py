"""The page in Firefox, where it is installed: it opens from disk, and reads data inside it or beside it."""

import pytest
from firefox import FIREFOX, Firefox
from report_world import SIZE, world
from waiting import wait_until

from pixelbounds.report import page_examples

pytestmark = pytest.mark.skipif(FIREFOX is None, reason="no Firefox: apt-get install firefox-esr")


@pytest.fixture(scope="module")
def fox(tmp_path_factory):
    with Firefox(tmp_path_factory.mktemp("firefox")) as fox:
        yield fox


@pytest.mark.parametrize("beside", [False, True])
def test_firefox_reads_pixels_and_regions(fox, tmp_path, monkeypatch, beside):
    if beside:
        monkeypatch.setattr(page_examples, "MOST_INSIDE", 1000)
    path = world().write(tmp_path / "a.html")
    assert path.with_name("a_files").exists() == beside
    fox.open(path)
    at, example = SIZE // 2, world().examples[0]
    fox.press("#picture", "ArrowRight")
    assert fox.run("return document.querySelector('#where').textContent") == f"row {at}, column {at + 1}"
    lower, upper = fox.run("return document.querySelector('#interval').textContent").split(" to ")
    assert float(lower) == pytest.approx(example.lower[at, at + 1], abs=0.51e-4)
    assert float(upper) == pytest.approx(example.upper[at, at + 1], abs=0.51e-4)
    for key in ("r", "ArrowDown", "r", "v", "n"):
        fox.press("#picture", key)
    assert fox.run("return document.querySelector('#picture').dataset.region") == "2"
    wait_until(lambda: fox.run("return document.querySelector('#picture').dataset.image") == "1", fox.process)
    assert fox.run("return document.querySelector('#picture-2').dataset.layer") == "length"
    assert fox.run("return document.querySelector('#trouble').hidden")
