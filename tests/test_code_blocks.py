"""Code of the documents: every block of Python is run, every command is read by the real one, output is compared."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from orthanc import MISSING, PLUGIN

from pages.blocks import blocks_of, check_command, printed_by, same

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
KEPT_BACK = {  # why blocks may not be run
    "diffusers is not installed here",
    "draws or trains for a while",
    "needs a cluster",
    "the published data sets are not here",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_code_of_a_page_runs_and_prints_what_it_says(page):
    if page.name == "hospital_day.md" and (MISSING or not PLUGIN.exists() or find_spec("dicomweb_client") is None):
        pytest.skip("it needs an archive: apt-get install orthanc orthanc-dicomweb dcmtk; pip install dicomweb-client")
    blocks = blocks_of(page.read_text())
    assert page.read_text().count("```python") == sum(block.kind == "python" for block in blocks)
    assert {block.not_run for block in blocks if block.not_run} <= KEPT_BACK
    for line, (wanted, printed) in printed_by(page).items():
        assert wanted is None or same(wanted, printed), f"{page.name}, line {line} prints\n{printed}\nnot\n{wanted}"


# ---------------------------------------------------------------- what the executor sees


def a_page(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    return page


def test_blocks_share_a_namespace_and_what_is_hidden_comes_first(tmp_path):
    text = "<!-- before: x = 2 -->\n```python\nprint(x)\n```\n\n```text\n2\n```\n```python\n>>> x + 1\n3\n\n```\n"
    assert list(printed_by(a_page(tmp_path, text)).values()) == [(None, ""), ("2", "2"), (None, "")]


@pytest.mark.parametrize(
    "text, words",
    [
        ("```python\n1 / 0\n```", "page.md, line 1: ZeroDivisionError"),
        ("```python\n>>> 1 + 1\n3\n```", "Expected"),
        ("<!-- not run: draws or trains for a while -->\n```python\nx = = 1\n```", "SyntaxError"),
        ("```sh\npixelbounds calibrat a b\n```", "no command 'calibrat'"),
        ("```sh\npixelbounds plan --risk-levl 0.1\n```", "risk-levl"),
        ("```\npixelbounds monitor drift\n```", "[Mm]issing .*"),
    ],
)
def test_a_wrong_block_is_an_error_that_names_the_line(tmp_path, text, words):
    with pytest.raises(RuntimeError, match=words):
        printed_by(a_page(tmp_path, text))


def test_other_output_than_a_page_says_is_seen():
    assert same("a ...\nb", "a   long line\nb")
    assert not same("a\nb", "a\nc")


def test_every_command_is_read_and_none_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_command(["plan", "--risk-level", "0.1"])
    check_command(["calibrate", "truth.npy", "samples.npy", "--risk-level", "0.1", "--out", "cal.safetensors"])
    assert not list(tmp_path.iterdir())
