"""TOML files: read strictly, checked against a model, with errors that name file, line, key and remedy.

    class Data(TomlSection):
        path: str = Field(description="a file of images")

    class Run(TomlSection):
        data: Data

    file = read_toml("run.toml", Run)
    file.content.data.path

A check of a whole table raises a ValueError whose first word is the key that is wrong: the error then names its line.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from .files import check_regular

T = TypeVar("T")


class TomlSection(BaseModel):
    """A table of a TOML file: no unknown keys, no conversion of types, frozen."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


class TomlError(ValueError):
    """A TOML file that cannot be used; the message names file, line, key and remedy."""


@dataclass(frozen=True)
class TomlFile(Generic[T]):
    """A TOML file that was read: its path, its text, and what it says."""

    path: Path
    text: str
    content: T

    def error(self, message: object, *keys: str | int) -> TomlError:
        """An error about one key, given with the tables around it."""
        return TomlError(f"{_place(self.path, self.text, keys)}: {message}")

    @contextmanager
    def errors_at(self, *keys: str) -> Iterator[None]:
        """Errors inside are about this key."""
        try:
            yield
        except (ValueError, OSError) as error:
            raise self.error(error, *keys) from error

    def resolve(self, path: str) -> Path:
        """A path in the file, relative to the folder of the file."""
        return self.path.parent / Path(path).expanduser()


def read_toml(path: str | os.PathLike[str], model: type[T] | Callable[[dict[str, Any]], T]) -> TomlFile[T]:
    """Read a TOML file into a pydantic model, or through a function of its table; all errors are `TomlError`."""
    path = Path(path)
    check_regular(path)
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise TomlError(f"{path}: {error.strerror}; give the path of a TOML file") from error
    except UnicodeDecodeError as error:
        raise TomlError(f"{path} is not UTF-8 text; give a TOML file") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TomlError(f"{path} is not TOML: {error}; correct that line") from error
    except (RecursionError, ValueError) as error:  # nested tables without end, numbers of thousands of digits
        raise TomlError(f"{path} is not TOML that can be read: {error}") from error
    checks_itself = isinstance(model, type) and issubclass(model, BaseModel)
    try:
        return TomlFile(path, text, model.model_validate(table) if checks_itself else model(table))  # type: ignore
    except ValidationError as error:
        raise TomlError(explained(model, error, str(path), text)) from error
    except (TypeError, ValueError) as error:
        raise TomlError(f"{_place(path, text, (str(error).split(' ')[0],))}: {error}") from error


def line_of(text: str, keys: tuple[str | int, ...]) -> int | None:
    r"""The line, counted from 1, that sets a key of a TOML text, or else the nearest table around it.

    A number among the keys counts the tables of an array, `[[name]]`.

    >>> line_of("[data]\npath = 'x'\n", ("data", "path"))
    2
    >>> line_of("[[promise]]\nkind = 'share'\n[[promise]]\nkind = 'tail'\n", ("promise", 1, "kind"))
    4
    """
    names = tuple(key for key in keys if isinstance(key, str))
    wanted = next((key for key in keys if isinstance(key, int)), None)
    section: tuple[str, ...] = ()
    index, count, best, line = None, -1, 0, None
    for number, content in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*(\[+)\s*([^\[\]=]+?)\s*\]", content)
        entry = re.match(r"""\s*([\w.\-"' ]+?)\s*=""", content)
        if header:
            setting = section = _parts(header[2])
            count += header[1] == "[["
            index = count if header[1] == "[[" else None
        elif entry:
            setting = section + _parts(entry[1])
        else:
            continue
        another = None not in (index, wanted) and index != wanted
        if not another and setting == names[: len(setting)] and len(setting) > best:
            best, line = len(setting), number
    return line


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _place(source: object, text: str, keys: tuple[str | int, ...]) -> str:
    line = line_of(text, keys)
    return f"{source}, line {line}" if line else str(source)


def explained(model: Any, error: ValidationError, source: str, text: str = "") -> str:
    """What pydantic found wrong with a source, a line for each error: where, what, and what to give."""
    return "\n".join(_explain(model, source, text, one) for one in error.errors())


def _explain(model: Any, source: str, text: str, error: Any) -> str:
    """One error: `table` is the model of the innermost table that pydantic names, `key` the key in it, "" for all."""
    keys: list[str | int] = []
    table, key = model, ""
    missing = error["type"] == "missing"
    for part in error["loc"]:
        keys.append(part)
        if isinstance(part, int):
            continue
        field = _fields(table).get(part)
        inner = field and _table_in(field.annotation)
        if inner is None or (missing and len(keys) == len(error["loc"])):
            key = part
            break
        table = inner
    fields = _fields(table)
    place = _place(source, text, tuple(keys))
    tables = ".".join(x for x in keys if isinstance(x, str) and x != key)
    name = " ".join([f"[{tables}]"] * bool(tables) + [key] * bool(key))
    wanted = (key in fields and fields[key].description) or "another value"
    if error["type"] == "extra_forbidden":
        near = get_close_matches(key, fields, 1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"{place}: {name} is not known; {hint}known are {', '.join(fields)}"
    if missing and (inner := _table_in(fields[key].annotation)):
        needed = [x for x, field in _fields(inner).items() if field.is_required()]
        return f"{source}: the section [{key}] is missing; add it{', with ' * bool(needed)}{', '.join(needed)}"
    if missing:
        return f"{place}: {name} is missing; give {wanted}"
    checked = error["type"] == "value_error"
    message = str(error["ctx"]["error"]) if checked else error["msg"].replace("Input should be", "it should be")
    if key or not checked:
        return f"{place}: {name} is {error['input']!r}: {message}; give {wanted}"
    word = message.split(" ", 1)[0]  # of a check of a whole table: the key that is wrong
    if word not in fields:
        keys += [x for x, field in fields.items() if word in _fields(_table_in(field.annotation))][:1]
    where = ".".join(x for x in keys if isinstance(x, str))
    return f"{_place(source, text, (*keys, word))}: {f'[{where}] ' if where else ''}{message}"


def _fields(table: Any) -> dict[str, Any]:
    return {} if table is None else {field.alias or name: field for name, field in table.model_fields.items()}


def _table_in(annotation: Any) -> Any:
    """The model of a field that is a table or an array of tables; None for a value."""
    kinds = (annotation, *get_args(annotation))
    return next((x for x in kinds if isinstance(x, type) and issubclass(x, BaseModel)), None)
