"""The rules of the house, as functions of a source folder: each returns what breaks it, one sentence for each place.

A sentence names the file and the remedy. `python tests/support/house.py src/pixelbounds` prints them all, for any tree.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOMS = (  # a room imports only rooms above it
    "storage",
    "kernels",
    "images",
    "bands",
    "calibration",
    "evaluation",
    "monitoring",
    "execution",
    "problems",
    "diffusion",
    "samplers",
    "formats",
    "federated",
    "report",
    "workflows",
    "demo",
    "cli",
)
ALONE = ("storage", "kernels")  # they import nothing of the package
MOST_LINES = 400
NO_NAMES = {"utils", "util", "helpers", "common", "misc"}
UNNAMED = {"__init__", "__main__"}
FRONT = ""  # the room of the package's own __init__.py

Rule = Callable[[Path], list[str]]


@dataclass(frozen=True, order=True)
class Import:
    """One imported module of the package, as a dotted path below it: "calibration.data", or "" for the front."""

    module: str
    line: int

    @property
    def room(self) -> str:
        """The room that is entered."""
        return self.module.split(".")[0]


@cache
def nodes_of(text: str) -> tuple[ast.AST, ...]:
    """All that a source text says, parsed once however many rules ask."""
    return tuple(ast.walk(ast.parse(text)))


def files_of(source: Path) -> list[Path]:
    """Every Python file below a folder, in the order of their names."""
    return sorted(source.rglob("*.py"))


def short(file: Path, source: Path) -> str:
    """A file's path below the source, as messages name it."""
    return file.relative_to(source).as_posix()


def room_of(file: Path, source: Path) -> str:
    """The room that a file lies in."""
    room = file.relative_to(source).parts[0].removesuffix(".py")
    return FRONT if room == "__init__" else room


def entries_of(source: Path) -> list[str]:
    """Rooms as the listing shows them: folders with Python files, and files other than __init__.py."""
    return sorted({room_of(file, source) for file in files_of(source)} - {FRONT})


def module_of(file: Path, source: Path) -> str:
    """Dotted path of a file below the package; a folder's __init__.py has that of its folder."""
    parts = file.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules_of(source: Path) -> dict[str, Path]:
    """Every module of the package and its file."""
    return {module_of(file, source): file for file in files_of(source)}


@cache
def imports_of(file: Path, source: Path) -> list[Import]:
    """What a file imports of its package, relative or by the package's name, at its top or in a function."""
    known = modules_of(source)
    package = source.name
    found = set()
    for node in nodes_of(file.read_text()):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, file, source)
            targets = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and called(node) in ("import_module", "__import__"):
            targets = [word.value for word in node.args[:1] if isinstance(word, ast.Constant)]
        for target in targets:
            if target.split(".")[0] == package:
                found.add(Import(nearest(target, package, known), node.lineno))
    return sorted(found)


def called(node: ast.Call) -> str:
    """The last word of what is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def absolute(node: ast.ImportFrom, file: Path, source: Path) -> str:
    """The dotted module that `from ... import` names, with its dots counted out."""
    if not node.level:
        return node.module or ""
    folders = [source.name, *file.relative_to(source).parts[:-1]]
    above = folders[: len(folders) - node.level + 1]
    return ".".join([*above, *([node.module] if node.module else [])])


def nearest(target: str, package: str, known: dict[str, Path]) -> str:
    """The module that a dotted target lies in: the target itself, or what holds that name."""
    below = target.removeprefix(package).removeprefix(".")
    while below not in known and below:
        below = below.rpartition(".")[0]
    return below


def imported_roots(folder: Path) -> dict[str, list[str]]:
    """First words of everything that is imported below a folder from elsewhere, and the files that import it."""
    found = defaultdict(set)
    for file in files_of(folder):
        for node in nodes_of(file.read_text()):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            for name in names:
                found[name.split(".")[0]].add(short(file, folder))
    return {root: sorted(files) for root, files in found.items()}


def called_by_name(folder: Path) -> set[str]:
    """Words by which a file may call a package that it does not import: strings and attributes, in small letters."""
    words = set()
    for file in files_of(folder):
        for node in nodes_of(file.read_text()):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.add(node.value.lower().replace("_", "-"))
            elif isinstance(node, ast.Attribute):
                words.add(node.attr.lower())
    return words


def definitions(file: Path) -> list[tuple[str, int]]:
    """Functions and classes at the top of a file, and its constants in capitals; each name once, with its line."""
    found: dict[str, int] = {}
    for node in _top(ast.parse(file.read_text()).body):
        names = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            named = [leaf.id for target in targets for leaf in ast.walk(target) if isinstance(leaf, ast.Name)]
            names = [name for name in named if re.fullmatch(r"_*[A-Z][A-Z0-9_]*", name)]
            if isinstance(node.value, ast.Call) and called(node.value) in ("TypeVar", "ParamSpec"):
                names = []  # a letter for type checkers, not a constant
        for name in names:
            found.setdefault(name, node.lineno)
    return list(found.items())


def _top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements at the top of a file, also those that depend on a condition."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                yield from _top(getattr(node, part, []))


# ---------------------------------------------------------------- the rules


def known_rooms(source: Path) -> list[str]:
    """The rooms are those of the design, none more and none less."""
    entries = set(entries_of(source))
    unknown = [
        f"{room} at the top of {source} is no room of the house; move it into one of {', '.join(ROOMS)}"
        for room in sorted(entries - set(ROOMS))
    ]
    missing = [
        f"the room {room} is missing in {source}; where it was given up, take it out of ROOMS in tests/support/house.py"
        for room in ROOMS
        if room not in entries
    ]
    return unknown + missing


def imports_go_up(source: Path) -> list[str]:
    """A room imports only rooms above it, also in functions and for type checkers; those of ALONE import none."""
    found = []
    for file in files_of(source):
        room = room_of(file, source)
        if room not in ROOMS:
            continue
        above = () if room in ALONE else ROOMS[: ROOMS.index(room)]
        for each in imports_of(file, source):
            where = f"{short(file, source)}:{each.line}"
            if each.room == FRONT:
                found.append(f"{where} imports the package's front door; import from the file that defines the name")
            elif each.room not in (room, *above):
                found.append(
                    f"{where} imports {each.module}, but {room} may import only {', '.join(above) or 'nothing'}; "
                    "move the name up into a room that both may import, or pass it as an argument"
                )
    return found


def no_cycles(source: Path) -> list[str]:
    """No two files import each other, directly or over others: not even within functions, within one room."""
    known = modules_of(source)
    needs: dict[str, set[str]] = {}
    for module, file in known.items():
        if module == FRONT:
            continue
        imported = {each.module for each in imports_of(file, source)} - {FRONT}
        folders = {parent for target in imported for parent in _parents(target)}  # their __init__ is loaded before them
        needs[module] = (imported | folders) - ({module} | _parents(module) - imported)
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        loop = " -> ".join(short(known[module], source) for module in reversed(error.args[1]))
        return [f"{loop}: files that import each other; move what both need into a third file"]
    return []


def _parents(module: str) -> set[str]:
    """The folders that a module lies in, below the package."""
    parts = module.split(".")
    return {".".join(parts[:length]) for length in range(1, len(parts))}


def file_names_once(source: Path) -> list[str]:
    """A file name is used once; a command shares its name in cli, in workflows and in the room that it is about."""
    places = defaultdict(list)
    for file in files_of(source):
        if file.stem not in UNNAMED:
            places[file.stem].append(short(file, source))
    found = []
    for name, where in places.items():
        command = {f"cli/{name}.py", f"workflows/{name}.py"}
        if len(where) > 1 and not (command <= set(where) and len(where) <= 3):
            found.append(f"{' and '.join(where)} have one name; name each by what it alone holds")
    return found


def files_say_what_they_hold(source: Path) -> list[str]:
    """No file is named by a verb in -ing, and none is a drawer for odds and ends."""
    return [
        f"{short(file, source)} is named by a verb in -ing, or a drawer for odds and ends; name it by what it holds"
        for file in files_of(source)
        if file.stem.endswith("ing") or NO_NAMES & {file.stem, *file.relative_to(source).parts[:-1]}
    ]


def public_names_once(source: Path) -> list[str]:
    """A public name is defined once in the package."""
    places = defaultdict(list)
    for file in files_of(source):
        for name, line in definitions(file):
            if not name.startswith("_"):
                places[name].append(f"{short(file, source)}:{line}")
    return [
        f"{name} is defined in {' and '.join(where)}; keep one and import it, rename, or begin it with an underscore"
        for name, where in sorted(places.items())
        if len(where) > 1
    ]


def no_hidden_channels(source: Path) -> list[str]:
    """Context variables live in one file at most."""
    files = [short(file, source) for file in files_of(source) if re.search(r"\bContextVar\b", file.read_text())]
    if len(files) <= 1:
        return []
    return [f"{' and '.join(files)} use context variables, more than one file; pass what they carry as an argument"]


def short_files(source: Path) -> list[str]:
    """No file is longer than 400 lines."""
    lengths = {short(file, source): len(file.read_text().splitlines()) for file in files_of(source)}
    return [
        f"{file} has {lines} lines, more than {MOST_LINES}; split it by subject"
        for file, lines in lengths.items()
        if lines > MOST_LINES
    ]


RULES: tuple[Rule, ...] = (
    known_rooms,
    imports_go_up,
    no_cycles,
    file_names_once,
    files_say_what_they_hold,
    public_names_once,
    no_hidden_channels,
    short_files,
)


if __name__ == "__main__":
    tree = Path(sys.argv[1])
    for rule in RULES:
        broken = rule(tree)
        print(f"{rule.__name__}: {len(broken)}")
        for sentence in broken:
            print(f"  {sentence}")
