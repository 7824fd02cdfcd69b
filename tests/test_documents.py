"""Documents say what is so: figures are those of benchmarks/results, and files and names are those that exist."""

import re
from importlib import import_module
from pathlib import Path

import pytest
from house import definitions

from benchmarks import pages
from reproduce.results_page import write_pages

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "pixelbounds"
GENERATED = {"faces64.md", "ct64.md", "chest128.md", "phantom.md"}  # what kept results say, in the words of their time
PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md"]
PAGES += [
    page.relative_to(ROOT).as_posix() for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in GENERATED
]
FOLDERS = r"(?:[\w.-]+/)"
FILES = rf"{FOLDERS}*[\w.-]+\.(?:py|md|css|js)|{FOLDERS}+[\w-]+\.toml|{FOLDERS}+"
FILES_NAMED = re.compile(rf"`({FILES})(?::([\w.]+))?`")
NAMES_IMPORTED = re.compile(r"from (pixelbounds[\w.]*) import ([\w, ]+)")
NAMES_DOTTED = re.compile(r"(?<![\w/.-])pixelbounds((?:\.[A-Za-z_]\w*)+)(?![\w/])")


@pytest.mark.parametrize("name", pages.MODULES)
def test_a_page_shows_the_measured_figures(name):
    page, text = pages.with_figures(name)
    assert page.read_text() == text


def test_the_pages_of_results_are_those_of_the_kept_results(tmp_path):
    for page in write_pages(pages.RESULTS, tmp_path):
        assert page.read_text() == (ROOT / "docs" / page.relative_to(tmp_path)).read_text()


# ---------------------------------------------------------------- words

MOST_WORDS = 1_200  # of a page for users
MOST_IN_ALL = 25_000  # of all pages for users, the full argument in docs/theory apart
FEWER = {"docs/results.md": 800}
APART = ("docs/research/", "docs/api/", "docs/architecture.md", "docs/paper_map.md")  # notes; for who reads the code
PRIVATE = (  # what newcomers do not understand, and once stood here
    "not told", "unless told", "what is told", "one walk", "has made of", "gone on with", "goes on where", "lottery",
    "may be unlucky", "of the split and of all fitting", "as of few images", "is told", "was told", "mend or",
    "going on from", "the walk from",
)  # fmt: skip


def words_in(text):
    """Words that a reader sees: with a letter, outside hidden comments."""
    return [word for word in re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).split() if re.search(r"[A-Za-z]", word)]


def pages_for_users():
    """Pages of the documentation, but notes and what is for readers of the code."""
    pages = (page.relative_to(ROOT).as_posix() for page in sorted((ROOT / "docs").rglob("*.md")))
    return [page for page in pages if not page.startswith(APART)]


def test_the_readme_is_one_screen():
    assert len((ROOT / "README.md").read_text().split()) <= 700


@pytest.mark.parametrize("page", pages_for_users())
def test_a_page_has_at_most_1200_words(page):
    count = len(words_in((ROOT / page).read_text()))
    limit = FEWER.get(page, MOST_WORDS)
    assert count <= limit, f"{page} has {count} words of {limit}; cut, split, or move measurements to docs/research"


def test_all_pages_for_users_have_at_most_25000_words():
    pages = [page for page in pages_for_users() if not page.startswith("docs/theory/")]
    counts = {page: len(words_in((ROOT / page).read_text())) for page in pages}
    longest = sorted(counts, key=counts.__getitem__)[-5:]
    assert sum(counts.values()) <= MOST_IN_ALL, f"{sum(counts.values())} words; the longest are {', '.join(longest)}"


def test_pages_docstrings_and_messages_have_no_private_phrases():
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    files += [*sorted(SOURCE.rglob("*.py")), *sorted(SOURCE.rglob("*.html"))]
    files += [
        file for folder in ("examples", "reproduce", "benchmarks") for file in sorted((ROOT / folder).rglob("*.py"))
    ]
    wrong = []
    for file in files:
        text = " ".join(re.sub(r"[\s#\"]+", " ", file.read_text()).lower().split())
        wrong += [f"{file.relative_to(ROOT)} says {phrase!r}" for phrase in PRIVATE if phrase in text]
    assert not wrong, "write it in plain technical English (STYLE.md, habit 11):\n" + "\n".join(wrong)


# ---------------------------------------------------------------- what is linked


def test_the_readme_leads_to_what_is_trusted():
    assert "(SECURITY.md)" in (ROOT / "README.md").read_text()
    said = (ROOT / "SECURITY.md").read_text()
    for word in ("Dask scheduler", "NUMBA_CACHE_DIR", "How to report", "unpickled", "--identifiers keep"):
        assert word in said, word


# ---------------------------------------------------------------- files and names


def home_of(path):
    """Where a path that a page names lies: below the repository, the source or the tests."""
    return next((base / path for base in (ROOT, SOURCE, ROOT / "tests") if (base / path).exists()), None)


def is_defined(name, file):
    """Whether a function, class or constant is defined at the top of a file, or a method or field in its class."""
    first, _, rest = name.partition(".")
    text = file.read_text()
    if first not in dict(definitions(file)) and not re.search(rf"^{first}\b.*=", text, re.MULTILINE):
        return False
    return not rest or re.search(rf"^    (def )?{rest}\b", text, re.MULTILINE) is not None


def exists(dotted):
    """Whether a dotted name below the package is a module, or a name in one."""
    parts = dotted.strip(".").split(".")
    found = import_module("pixelbounds")
    for place, part in enumerate(parts):
        if not hasattr(found, part):
            try:
                import_module(".".join(["pixelbounds", *parts[: place + 1]]))
            except ImportError:
                return False
        found = getattr(found, part)
    return True


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md", "docs/paper_map.md"])
def test_a_page_about_the_code_names_files(page):
    assert len(FILES_NAMED.findall((ROOT / page).read_text())) > 20


def named_in(text):
    """Files that a text names in backticks, and the name in each, if any; a bare name after a file is one in it."""
    for cell in re.split(r"[|\n]", text):
        file = None
        for token in re.findall(r"`[^`]+`", cell):
            match = FILES_NAMED.fullmatch(token)
            if match:
                file = match[1]
                yield match[1], match[2]
            elif file and file.endswith(".py") and re.fullmatch(r"`\w+`", token):
                yield file, token.strip("`")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_files_and_functions_that_exist(page):
    text = (ROOT / page).read_text()
    named = set(named_in(text)) if page == "docs/paper_map.md" else set(FILES_NAMED.findall(text))
    wrong = []
    for path, name in sorted(named, key=str):
        file = home_of(path)
        if file is None:
            wrong.append(f"{path} does not exist")
        elif name and not is_defined(name, file):
            wrong.append(f"{path} does not define {name}")
    assert not wrong, f"{page}: {'; '.join(wrong)}"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_parts_of_the_package_that_exist(page):
    text = (ROOT / page).read_text()
    named = NAMES_DOTTED.findall(text)
    for module, names in NAMES_IMPORTED.findall(text):
        below = module.removeprefix("pixelbounds")
        named += [f"{below}.{name.split(' as ')[0].strip()}" for name in names.split(",")]
    wrong = sorted({f"pixelbounds{name}" for name in named if not exists(name)})
    assert not wrong, f"{page} names {', '.join(wrong)}, which the package does not have"


def test_the_source_names_files_and_parts_that_exist():
    """In docstrings, comments and errors, which outlive what they name."""
    wrong = []
    for file in sorted(SOURCE.rglob("*.py")):
        where = file.relative_to(SOURCE).as_posix()
        for line, text in enumerate(file.read_text().splitlines(), start=1):
            parts = [f"pixelbounds{name}" for name in NAMES_DOTTED.findall(text) if not exists(name)]
            files = re.findall(r"(?<![\w/.-])(?:\w+/)*\w+\.py\b", text)
            absent = [name for name in files if not (file.parent / name).exists() and home_of(name) is None]
            pages = [name for name in re.findall(r"\bdocs/[\w/]+\.md\b", text) if not (ROOT / name).exists()]
            wrong += [f"{where}:{line} names {name}" for name in parts + absent + pages]
    assert not wrong, "these do not exist any more; name what they have become:\n" + "\n".join(wrong)
