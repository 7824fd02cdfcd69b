"""The pipeline runs one way: a room imports only rooms above it."""

import ast
from pathlib import Path

ROOMS = """
files sealed kernels selection ragged tables arrays data problems diffusion bands families pairs losses confidence
groups program paths version calibration certify choice split calibrate federated evaluation evaluate execution
synthetic settings store jobs experiments report demo planning outputs opening inputs widening bounding cli
""".split()  # noqa: SIM905
SOURCE = Path(__file__).parents[1] / "src" / "pixelbounds"


def rooms_imported(file: Path) -> set[str]:
    depth = len(file.relative_to(SOURCE).parts)  # "from ..x" of a file in a folder leaves that folder
    imported = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            imported |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
    return imported


def test_a_room_imports_only_rooms_above_it():
    for file in SOURCE.rglob("*.py"):
        room = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room != "__init__":
            assert rooms_imported(file) <= set(ROOMS[: ROOMS.index(room)]), file
