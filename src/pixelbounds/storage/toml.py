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


# ---------------------------------------------------------------- errors of a model


def explained(model: Any, error: ValidationError, source: str, text: str = "") -> str:
    """What pydantic found wrong with a source, a line for each error: where, what, and what to give."""
    return "\n".join(_explain(model, source, text, one) for one in error.errors())


def _explain(model: Any, source: str, text: str, error: Any) -> str:
    missing = error["type"] == "missing"
    keys, table, key = _walk(model, error["loc"][:-1] if missing else error["loc"])
    if missing:
        key = error["loc"][-1]
        keys = (*keys, key)
    place = _place(source, text, keys)
    tables = ".".join(x for x in keys if isinstance(x, str) and x != key)
    name = " ".join([f"[{tables}]"] * bool(tables) + [key] * bool(key))
    if error["type"] == "extra_forbidden":
        near = get_close_matches(str(keys[-1]), _names(table), 1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"{place}: {name} is not known; {hint}known are {', '.join(_names(table))}"
    if missing:
        inner = _table_in(_field(table, key).annotation)
        if inner is not None:
            needed = [field.alias or x for x, field in inner.model_fields.items() if field.is_required()]
            return f"{source}: the section [{key}] is missing; add it{', with ' * bool(needed)}{', '.join(needed)}"
        return f"{place}: {name} is missing; give {_described(table, key)}"
    if error["type"] != "value_error":
        message = error["msg"].replace("Input should be", "it should be")
        return f"{place}: {name} is {error['input']!r}: {message}; give {_described(table, key)}"
    message = str(error["ctx"]["error"])
    if key:
        return f"{place}: {name} is {error['input']!r}: {message}; give {_described(table, key)}"
    word = message.split(" ", 1)[0]  # of a check of a whole table: the key that is wrong
    if word not in _names(table):
        inside = (x for x in _names(table) if word in _names(_table_in(_field(table, x).annotation)))
        keys = (*keys, *([owner] if (owner := next(inside, "")) else []))
    where = ".".join(x for x in keys if isinstance(x, str))
    return f"{_place(source, text, (*keys, word))}: {f'[{where}] ' if where else ''}{message}"


def _walk(model: Any, loc: tuple[Any, ...]) -> tuple[tuple[str | int, ...], Any, str]:
    """The keys of a place that pydantic names, the model of the table there, and the key in it, "" for the table."""
    keys: list[str | int] = []
    table, key = model, ""
    for part in loc:
        keys.append(part)
        if isinstance(part, int):
            continue
        field = _field(table, part)
        inner = None if field is None else _table_in(field.annotation)
        if inner is None:
            return tuple(keys), table, part
        table = inner
    return tuple(keys), table, key


def _field(table: Any, name: str) -> Any:
    fields = () if table is None else table.model_fields.items()
    return next((field for key, field in fields if name in (key, field.alias)), None)


def _table_in(annotation: Any) -> Any:
    """The model of a field that is a table or an array of tables; None for a value."""
    kinds = (annotation, *get_args(annotation))
    return next((x for x in kinds if isinstance(x, type) and issubclass(x, BaseModel)), None)


def _names(table: Any) -> list[str]:
    return [] if table is None else [field.alias or name for name, field in table.model_fields.items()]


def _described(table: Any, key: str) -> str:
    field = _field(table, key)
    return (field and field.description) or "another value"
