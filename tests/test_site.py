"""The documentation site: it builds without a warning, loads nothing from elsewhere, and names all that is public."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib import pyplot

import pixelbounds as pb
from pages import docstrings, stories, trees

pytest.importorskip("material")

ROOT = Path(__file__).parents[1]
SLOW = {"inverse_problem", "own_sampler", "patients", "what_voids_it"}  # stories that `make docs` alone runs
LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "embed": "src",
    "object": "data",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; links, anchors and pages that nobody lists are warnings there, and these are errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    settings = {"NO_MKDOCS_2_WARNING": "1", "PIXELBOUNDS_SKIPPED_STORIES": ",".join(SLOW)}
    process = subprocess.run(command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    return folder


class Loads(HTMLParser):
    """What a page loads by itself, and the identifiers of its parts."""

    def __init__(self):
        super().__init__()
        self.loaded = []
        self.parts = set()

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.parts.add(given.get("id"))
        self.loaded += [given[LOADED[tag]]] if given.get(LOADED.get(tag)) else []
        self.loaded += re.findall(r"url\(([^)]*)\)", given.get("style") or "")
        self.loaded += re.split(r"[ ,]+", given.get("srcset") or "")
        if tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(given["href"])


def from_elsewhere(page):
    """Addresses of other hosts that a page, a style or a script of it loads when it is opened."""
    text = page.read_text()
    if page.suffix == ".html":
        reader = Loads()
        reader.feed(text)
        found = reader.loaded + re.findall(
            r"@import[^;]*|url\([^)]*\)", "".join(re.findall(r"<style.*?</style>", text, re.S))
        )
    else:
        found = re.findall(r"@import[^;]*|url\([^)]*\)", text)
    return [address for address in found if re.search(r"(?:https?:)?//\w", address) and "data:" not in address]


def test_no_page_loads_anything_from_elsewhere(site):
    pages = [page for page in site.rglob("*") if page.suffix in (".html", ".css")]
    assert len(pages) > 40
    assert not {page.name: found for page in pages if (found := from_elsewhere(page))}


def test_what_a_page_loads_from_elsewhere_is_seen(tmp_path):
    page = tmp_path / "page.html"
    for line in (
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/css">',
        '<img src="https://example.org/a.png">',
        "<style>@font-face { src: url(https://fonts.example/a.woff) }</style>",
        '<p style="background: url(https://example.org/a.png)">',
    ):
        page.write_text(line)
        assert from_elsewhere(page), line
    page.write_text('<a href="https://example.org">a link is not loaded</a><img src="data:image/png;base64,AA//BB">')
    assert not from_elsewhere(page)


def test_every_public_name_is_on_a_page_of_the_api(site):
    parts = Loads()
    for page in (site / "api").glob("*.html"):
        parts.feed(page.read_text())
    absent = {name for name in pb.__all__ if name != "__version__" and not parts.parts & known_as(name)}
    assert not absent, f"{sorted(absent)}: add `::: pixelbounds.NAME` to a page in docs/api"


def known_as(name):
    """Identifiers of a public name: where it is reached, and where it is defined."""
    found = getattr(pb, name)
    home = getattr(found, "__module__", None)
    return {f"pixelbounds.{name}", f"{home}.{name}" if home else found.__name__}


def test_the_search_knows_every_page(site):
    entries = json.loads((site / "search/search_index.json").read_text())["docs"]
    known = {entry["location"].split("#")[0] for entry in entries}
    assert {"start.html", "which_promise.html", "guides/dicom.html", "changelog.html"} <= known
    assert (site / "search/search_index.js").exists()  # for pages that are opened from a disk


def test_a_page_opened_from_a_disk_finds_what_is_searched_for(site):
    import page_browser  # skips where there is no playwright

    if page_browser.CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    asked = []
    with page_browser.sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=page_browser.CHROMIUM, args=page_browser.FLAGS, timeout=120_000)
        page = browser.new_page(viewport={"width": 390, "height": 800})
        page.set_default_timeout(120_000)
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "guides/dicom.html").as_uri())
        wide = page.evaluate("document.documentElement.scrollWidth")
        page.click("label[for=__search] >> nth=0")
        page.locator("input.md-search__input").press_sequentially("anytime calibration")
        page.wait_for_selector(".md-search-result__item")
        found = page.inner_text(".md-search-result")
        browser.close()
    assert "anytime calibration" in found.lower()
    assert wide <= 390, f"the page is {wide} pixels wide on a phone of 390"
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]


# ---------------------------------------------------------------- Markdown of the house


def test_docstrings_of_two_columns_become_lists():
    text = "What it does.\n\na, b    two\n        things\nc       see docs/guarantee.md\n\n>>> 1 + 1\n2"
    assert docstrings.as_markdown(text) == (
        "What it does.\n\n- `a, b`: two things\n- `c`: see [guarantee](../guarantee.md)\n\n```pycon\n>>> 1 + 1\n2\n```"
    )


# ---------------------------------------------------------------- stories


def a_story(tmp_path, code):
    path = tmp_path / "01_small.py"
    path.write_text(f"# %% [markdown]\n# # Small\n#\n# What it shows.\n\n# %%\n{code}\n")
    return stories.read_story(path)


def test_a_story_becomes_a_page_and_a_notebook(tmp_path):
    pyplot.figure()  # what somebody else left open is not of the story
    code = "import matplotlib.pyplot as plt\nprint(1 + 1)\n# figure: A line.\nplt.plot([0, 1])"
    told = stories.run(a_story(tmp_path, code))
    page = stories.as_page(told)
    assert "```text\n2\n```" in page
    assert "![A line.](small_1.png)" in page
    made = json.loads(told.files["small.ipynb"])
    assert [cell["cell_type"] for cell in made["cells"]] == ["markdown", "code"]
    assert [one["output_type"] for one in made["cells"][1]["outputs"]] == ["stream", "display_data"]
    assert told.files["small_1.png"].startswith(b"\x89PNG")


def test_a_story_that_fails_or_draws_without_a_caption_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match=r"01_small\.py, cell 2: ZeroDivisionError"):
        stories.run(a_story(tmp_path, "1 / 0"))
    with pytest.raises(ValueError, match="draws 1 pictures and has 0 captions"):
        stories.run(a_story(tmp_path, "import matplotlib.pyplot as plt\nplt.plot([0, 1])"))


def test_the_gallery_has_stories_and_each_has_a_picture_and_a_notebook(site):
    told = stories.stories_in(ROOT / "examples/gallery")
    assert {story.name for story in told} > SLOW
    assert len(told) >= 10 + len(SLOW)
    for story in told:
        assert (site / f"gallery/{story.name}.html").exists()
        assert json.loads((site / f"gallery/{story.name}.ipynb").read_text())["nbformat"] == 4
        assert any(stories.captions(cell) for cell in story.cells), f"{story.path.name} shows no picture"
        assert (site / f"gallery/{story.name}_1.png").exists() or story.name in SLOW


# ---------------------------------------------------------------- decision trees


def test_a_tree_is_drawn_with_links_and_one_that_cannot_be_read_is_an_error():
    page = trees.with_trees("<!-- tree:\nWhat?\n    <b> => call(1) @ guides/region.md\n    no => nothing\n-->\n")
    assert '<a href="guides/region.html">' in page
    assert "&lt;b&gt;" in page
    assert page.count("<rect") == 5  # a question, two answers, two calls
    with pytest.raises(ValueError, match="answer => call"):
        trees.read("What?\n    yes\n")


@pytest.mark.parametrize("page", ["which_promise.md", "which_band.md"])
def test_trees_lead_to_pages_that_exist_and_say_what_the_list_says(page):
    text = (ROOT / "docs" / page).read_text()
    stories_of = {f"gallery/{story.name}.md" for story in stories.stories_in(ROOT / "examples/gallery")}
    questions = trees.read(trees.TREE.search(text)[1])
    for question, answers in questions:
        assert f"- **{question}**" in text
        for _, _, target in answers:
            assert not target or target in stories_of or (ROOT / "docs" / target).exists(), target
