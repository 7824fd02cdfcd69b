"""The folder listing is the architecture: what holds it up, and that each rule catches what breaks it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import budgets
import mutants
import pytest
from house import MOST_LINES, ROOMS, RULES, called_by_name, imported_roots

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "pixelbounds"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps(rule):
    broken = rule(SOURCE)
    assert not broken, f"{rule.__doc__}\n" + "\n".join(broken)


# ---------------------------------------------------------------- each rule catches what breaks it


BROKEN = {  # rule -> files of a small house that breaks it, and words of its complaints
    "known_rooms": ({"attic/box.py": ""}, "attic at the top"),
    "imports_go_up": (
        {
            "images/ends.py": "def f():\n    from ..calibration.data import CalibrationData\n",
            "calibration/data.py": "", "kernels/features.py": "import house.storage.files", "storage/files.py": "",
        },
        "images/ends.py:2 imports calibration.data", "kernels/features.py:1",
    ),
    "no_cycles": (
        {"images/a.py": "from .b import x", "images/b.py": "def x():\n    from . import a\n"},
        "images/a.py -> images/b.py -> images/a.py",
    ),
    "file_names_once": ({"images/plan.py": "", "cli/plan.py": ""}, "cli/plan.py and images/plan.py have one name"),
    "files_say_what_they_hold": (
        {"images/widening.py": "", "images/utils.py": ""}, "images/widening.py", "images/utils.py",
    ),
    "public_names_once": (
        {"images/a.py": "LIMIT: int = 1", "cli/b.py": "if True:\n    LIMIT = 2"},
        "LIMIT is defined in cli/b.py:2 and images/a.py:1",
    ),
    "no_hidden_channels": (
        dict.fromkeys(("images/a.py", "cli/b.py"), "from contextvars import ContextVar"),
        "cli/b.py and images/a.py use context variables",
    ),
    "short_files": ({"images/a.py": "\n" * (MOST_LINES + 1)}, "images/a.py has 401 lines"),
}  # fmt: skip


def a_house(folder, files):
    """Every room with nothing in it, and some files."""
    empty = {f"{room}/__init__.py": "" for room in ROOMS}
    for name, text in {"__init__.py": "", **empty, **files}.items():
        file = folder / "house" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder / "house"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_catches_what_breaks_it(rule, tmp_path):
    files, *words = BROKEN[rule.__name__]
    assert not rule(a_house(tmp_path / "sound", {}))
    complaints = "\n".join(rule(a_house(tmp_path / "broken", files)))
    assert all(word in complaints for word in words), complaints


@pytest.mark.parametrize(
    "line",
    [
        "from ..cli import main",
        "from .. import cli",
        "from house.cli import main",
        "import house.cli.options as o",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..cli import main",
        "import importlib\nimportlib.import_module('house.cli.options')",
    ],
)
def test_every_way_of_importing_is_seen(line, tmp_path):
    files = {"images/ends.py": line, "cli/__init__.py": "def main(): ...", "cli/options.py": ""}
    rule = next(rule for rule in RULES if rule.__name__ == "imports_go_up")
    assert "images/ends.py" in " ".join(rule(a_house(tmp_path, files)))


def test_a_command_and_its_function_share_a_name(tmp_path):
    rule = next(rule for rule in RULES if rule.__name__ == "file_names_once")
    assert not rule(a_house(tmp_path, {"cli/apply.py": "", "workflows/apply.py": ""}))


# ---------------------------------------------------------------- the tests: a mirror of the package, and properties


TESTS = ROOT / "tests"


def test_tests_lie_in_the_room_that_they_test_or_with_the_properties():
    folders = {file.parent.name for file in TESTS.rglob("test_*.py") if file.parent != TESTS}
    strange = sorted(folders - set(ROOMS) - {"properties", "reproduce"})
    assert not strange, (
        f"tests/{', tests/'.join(strange)}: no room of the package; move these tests to the room's folder"
    )


def test_every_deliberate_fault_still_finds_its_text():
    wrong = mutants.broken_texts()
    assert not wrong, "mend tests/support/mutants.toml: " + "; ".join(wrong)


def test_test_files_are_short_and_their_names_used_once():
    files = sorted(TESTS.rglob("*.py"))
    long = [file.relative_to(TESTS).as_posix() for file in files if len(file.read_text().splitlines()) > MOST_LINES]
    assert not long, f"more than {MOST_LINES} lines: {long}; split them by subject"
    names = [file.name for file in files if file.name != "conftest.py"]
    twice = sorted({name for name in names if names.count(name) > 1})
    assert not twice, f"{', '.join(twice)}: pytest imports test files by name; give each a name of its own"


# ---------------------------------------------------------------- what loading and a call cost


def test_diffusion_needs_torch_numpy_and_safetensors_alone():
    script = """
import sys
ABSENT = {"numba", "zarr", "scipy", "rich", "pydantic", "matplotlib", "dask", "lightgbm"}
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import importlib, pkgutil
import pixelbounds.diffusion
for file in pkgutil.iter_modules(pixelbounds.diffusion.__path__):
    importlib.import_module(f"pixelbounds.diffusion.{file.name}")
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    told = "a file that pixelbounds.diffusion loads imports more; import it in the function that needs it"
    assert process.returncode == 0, f"{told}\n{process.stderr}"


# ---------------------------------------------------------------- budgets


@pytest.mark.parametrize("budget", budgets.table(), ids=lambda budget: budget["name"])
def test_a_budget_is_kept(budget):
    assert not budgets.broken(budget, budgets.measure(budget))


def test_the_page_has_the_budgets_of_the_table():
    text = budgets.PAGE.read_text()
    assert text == budgets.page_with(text, budgets.table()), "write it: python tests/support/budgets.py --write"


@pytest.mark.parametrize(
    "change, value, words",
    [({}, 11, "more than the limit 10"), ({"lowest": 5}, 9, "`buys`"), ({"lowest": 5, "buys": "masks"}, 9, "")],
)
def test_a_limit_that_is_passed_or_raised_without_a_reason_is_refused(change, value, words):
    sentence = budgets.broken({"name": "lines", "limit": 10, "lowest": 10} | change, value)
    assert (words in sentence) if words else not sentence


# ---------------------------------------------------------------- dependencies as imported


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DISTRIBUTIONS = {  # imported under another name than installed
    "PIL": "pillow",
    "skimage": "scikit-image",
    "griffe": "mkdocstrings",
    "mkdocs": "mkdocs-material",
}


def names_of(requirements):
    return {re.match(r"[\w.-]+", requirement).group().lower().replace("_", "-") for requirement in requirements}


EXTRAS = {extra: names_of(requirements) for extra, requirements in PROJECT["optional-dependencies"].items()}
CORE = names_of(PROJECT["dependencies"])
FOR_US = EXTRAS["test"] | EXTRAS["dev"] | EXTRAS["docs"]
FOR_USERS = CORE.union(*(names for extra, names in EXTRAS.items() if extra not in ("test", "dev", "docs")))


def from_elsewhere(folder):
    """Distributions that the files below a folder import, and the files."""
    ours = {
        "pixelbounds",
        "benchmarks",
        "pages",
        "reproduce",
        "tests",
        *(file.stem for file in (ROOT / "tests").rglob("*.py")),
    }
    roots = imported_roots(ROOT / folder)
    outside = {root: files for root, files in roots.items() if root not in sys.stdlib_module_names | ours}
    return {DISTRIBUTIONS.get(root, root.replace("_", "-")): files for root, files in outside.items()}


def test_what_the_package_imports_is_declared():
    missing = {name: files for name, files in from_elsewhere("src").items() if name not in FOR_USERS}
    assert not missing, f"imported, but not declared in pyproject.toml (core or an extra): {missing}"


def test_what_is_declared_is_imported():
    unused = FOR_USERS - set(from_elsewhere("src")) - called_by_name(SOURCE)
    assert not unused, f"declared in pyproject.toml, but nowhere imported: drop {sorted(unused)} or move it to `dev`"


@pytest.mark.parametrize("folder", ["tests", "benchmarks", "pages", "reproduce", "examples"])
def test_what_tests_benchmarks_and_pages_import_is_declared(folder):
    installed = (ROOT / "Makefile").read_text().partition("\nadapters:")[2].partition("\nbench:")[0]
    declared = FOR_USERS | FOR_US | (set(installed.split()) if folder in ("reproduce", "examples") else set())
    missing = {name: files for name, files in from_elsewhere(folder).items() if name not in declared}
    assert not missing, (
        f"imported in {folder}, but not declared in pyproject.toml (for these: the extra test, dev or docs): {missing}"
    )


def test_the_lock_pins_every_declared_package():
    pinned = names_of(re.findall(r"^[\w.-]+(?===\d)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    missing = FOR_USERS.union(*EXTRAS.values()) - pinned
    assert not missing, f"not pinned in constraints.txt: {sorted(missing)}; write it anew with `make lock`"
