"""Promises in words, as commands take them.

    share LEVEL [within REGION] [cap SHARE] [counting units|images|pixels] [as NAME]
    tail LEVEL above SHARE [within REGION] [as NAME]

REGION is `body`, `edges` or `edges TOP` (of the truth), a file with a mask, weights or a subgroup, or FILE=LABEL and
FILE=LABEL,LABEL for a label map; `dilated PIXELS` may follow it. Shares are numbers, 0.05, or 5%. What holds a space is
quoted. What follows the level may come in any order, and a word that is not known is an error that names it. In `plan`,
before there are images, `in SHARE` says how many of them will have the region.

A file that ends in .toml holds a list of such lines, promises = ["share 0.05", ...]; files that these name lie beside
it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

from ..calibration.promises import WAYS_TO_WEIGH, Promise, check_name
from ..storage.files import strict_toml

BUILT_IN = ("body", "edges")  # regions of the truth
_CLAUSES = {
    "share": ("within", "dilated", "cap", "weighting", "in", "as"),
    "tail": ("above", "within", "dilated", "in", "as"),
}
_TOP = 0.05  # of the edges, unless told
_EXAMPLES = {
    "share": "share 0.10 within labels.nii.gz=2 as heart",
    "tail": "tail 0.05 above 0.10",
}


@dataclass(frozen=True)
class Region:
    """Where a promise is counted: the "body" or the sharpest `top` of the "edges" of the truth, or some labels of a
    "file"; `dilated` by so many pixels.
    """

    place: str
    path: Path | None = None
    labels: tuple[int, ...] = ()
    top: float = _TOP
    dilated: float = 0.0


@dataclass(frozen=True)
class PromiseText:
    """A promise as it was said, its region not yet read."""

    text: str
    kind: str
    at_most: float
    above: float | None = None
    region: Region | None = None
    cap: float | None = None
    weighting: str | None = None
    name: str | None = None
    prevalence: float | None = None  # the share of images that have the region, in a plan

    def promise(self, within: Any = None) -> Promise:
        """The promise about a region; a name is that of a region of ours unless told."""
        name = self.name
        if name is None and self.region is not None and self.region.path is None:
            name = self.region.place
        return Promise(self.kind, self.at_most, self.above, within, self.cap, name, self.weighting)


def promise_texts(words: Sequence[str], *, planned: bool = False) -> tuple[PromiseText, ...]:
    """The promises of all words, each a promise or a .toml file of several; `planned` before there are images."""
    found: list[PromiseText] = []
    for text in words:
        found += _of_file(Path(text)) if text.endswith(".toml") else [promise_of_words(text)]
    told = next((one for one in found if one.prevalence is not None), None)
    if told is not None and not planned:
        raise ValueError(
            f'the promise "{told.text}" says how many images have its region, which is for plan alone: leave '
            f"'in {told.prevalence:g}' out, the images tell it themselves"
        )
    return tuple(found)


def _of_file(path: Path) -> list[PromiseText]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; give a TOML file of promises, or a promise in words")
    try:
        held = strict_toml(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    lines = held.get("promises")
    if held.keys() != {"promises"} or not isinstance(lines, list) or not all(isinstance(x, str) for x in lines):
        raise ValueError(
            f"{path} holds {', '.join(held) or 'nothing'}; a file of promises holds one list of lines, such as "
            'promises = ["share 0.05", "tail 0.05 above 0.10"]'
        )
    if not lines:
        raise ValueError(f'{path} holds no promise; write at least one, such as promises = ["share 0.05"]')
    return [promise_of_words(line, path.parent) for line in lines]


# ---------------------------------------------------------------- one promise


class _Refusal(Protocol):
    def __call__(self, why: str, kind: str = ...) -> ValueError: ...


def promise_of_words(text: str, folder: Path | None = None) -> PromiseText:
    """One promise; relative paths are of a folder, where one is given.

    >>> said = promise_of_words("share 10% within labels.nii.gz=2,3 as lung")
    >>> said.at_most, said.region.path.name, said.region.labels, said.name
    (0.1, 'labels.nii.gz', (2, 3), 'lung')
    >>> promise_of_words("share 0.05 abov 0.1")
    Traceback (most recent call last):
    ...
    ValueError: the promise "share 0.05 abov 0.1" was not understood: 'abov' is no word of a share, did you mean \
'above'? That belongs to a tail; write, for example, "share 0.10 within labels.nii.gz=2 as heart"
    """

    def wrong(why: str, kind: str = "share") -> ValueError:
        return ValueError(
            f'the promise "{text}" was not understood: {why}; write, for example, "{_EXAMPLES.get(kind, "")}"'
        )

    words = _split(text, wrong)
    if not words:
        raise wrong("it is empty")
    kind = _kind(words, wrong)
    if len(words) < 2:
        raise wrong(f"the level of the {kind} is missing", kind)
    at_most = _share(words[1], f"the level of the {kind}", wrong, kind)
    given = _clauses(words[2:], kind, wrong)
    region = _region(given, folder, wrong, kind)
    try:
        said = PromiseText(
            text, kind, at_most, given.get("above"), region, given.get("cap"), given.get("weighting"), given.get("as"),
            given.get("in"),
        )  # fmt: skip
        said.promise()
    except ValueError as error:
        raise wrong(str(error), kind) from error
    if kind == "tail" and said.above is None:
        raise wrong("it does not say above which share of missed pixels an image is bad", kind)
    return said


def region_of_words(text: str) -> tuple[str, Region]:
    """The name of a region and the region, REGION [dilated PIXELS] [as NAME], where no promise stands beside it.

    >>> region_of_words("labels.nii.gz=2 as heart")[0], region_of_words("edges 0.1")[1].top
    ('heart', 0.1)
    """

    def wrong(why: str, kind: str = "share") -> ValueError:
        return ValueError(
            f'the region "{text}" was not understood: {why}; write, for example, "labels.nii.gz=2 as heart"'
        )

    words = _split(text, wrong)
    if not words:
        raise wrong("it is empty")
    given = _clauses(["within", *words], "share", wrong)
    strange = given.keys() - {"within", "top", "dilated", "as"}
    if strange:
        raise wrong(f"{min(strange)!r} belongs to a promise, which the coordinator makes")
    region = _region(given, None, wrong, "share")
    assert region is not None  # there is a within
    name = given.get("as") or (region.place if region.path is None else None)
    if name is None:
        raise wrong("it has no name, under which promises are about it")
    try:
        return check_name(name), region
    except ValueError as error:
        raise wrong(str(error)) from error


def _split(text: str, wrong: _Refusal) -> list[str]:
    """Words, those in quotes as one; a backslash is a letter like others."""
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split = True
    lexer.escape = lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError as error:
        raise wrong("a quote is opened and not closed") from error


def _kind(words: list[str], wrong: _Refusal) -> str:
    first = words[0].lower()
    if first in _CLAUSES:
        return first
    later = next((x.lower() for x in words if x.lower() in _CLAUSES), None)
    if later is not None:
        raise wrong(f"{later!r} comes first, then its level", later)
    near = get_close_matches(first, _CLAUSES, 1, cutoff=0.5)
    hint = f", did you mean {near[0]!r}?" if near else ""
    raise wrong(f"{words[0]!r} is no kind of promise{hint} It begins with share or tail", *near)


def _clauses(words: list[str], kind: str, wrong: _Refusal) -> dict[str, Any]:
    """What follows the level, by its first word."""
    given: dict[str, Any] = {}
    rest = list(words)
    readers: dict[str, Callable[[str], Any]] = {
        "above": lambda x: _share(x, "above", wrong, kind),
        "cap": lambda x: _share(x, "cap", wrong, kind),
        "in": lambda x: _share(x, "the share of images with the region", wrong, kind),
        "dilated": lambda x: _number(x, "dilated", wrong, kind),
        "weighting": lambda x: _counting(x, wrong, kind),
        "within": str,
        "as": str,
    }
    while rest:
        word = rest.pop(0)
        clause = word.lower()
        if clause not in _CLAUSES[kind]:
            raise wrong(_unknown(word, kind, given), kind)
        if clause in given:
            raise wrong(f"{clause!r} comes twice", kind)
        if not rest:
            raise wrong(f"nothing follows {clause!r}", kind)
        given[clause] = readers[clause](rest.pop(0))
        if clause == "within" and given[clause].lower() == "edges" and rest and _as_number(rest[0]) is not None:
            given["top"] = _share(rest.pop(0), "the share of edges", wrong, kind)
    return given


def _unknown(word: str, kind: str, given: dict[str, Any]) -> str:
    """Why a word cannot stand where it does."""
    if "as" in given:
        return f"{word!r} follows the name {given['as']!r}: quote a name of several words, as '{given['as']} {word}'"
    if word.lower() in _CLAUSES:
        return f"{word!r} begins another promise: give each of them an option of its own"
    if _as_number(word) is not None:
        return f"the number {word} stands alone: say what it is, {' or '.join(_CLAUSES[kind])}"
    every = [*_CLAUSES[kind], *(x for clauses in _CLAUSES.values() for x in clauses if x not in _CLAUSES[kind])]
    near = get_close_matches(word.lower(), every, 1, cutoff=0.6)
    said = f"{word!r} is no word of a {kind}"
    if not near:
        return f"{said}, which knows {', '.join(_CLAUSES[kind])}"
    if near[0] in _CLAUSES[kind]:
        return f"{said}, did you mean {near[0]!r}?"
    other = next(x for x, clauses in _CLAUSES.items() if near[0] in clauses)
    hint = "" if near[0] == word.lower() else f", did you mean {near[0]!r}?"
    return f"{said}{hint} That belongs to a {other}" if hint else f"{said}: it belongs to a {other}"


def _region(given: dict[str, Any], folder: Path | None, wrong: _Refusal, kind: str) -> Region | None:
    text, dilated = given.get("within"), given.get("dilated", 0.0)
    if text is None:
        if "dilated" in given:
            raise wrong("'dilated' grows a region, and none is given with 'within'", kind)
        return None
    if dilated < 0:
        raise wrong(f"a region grows by 0 pixels or more, not by {dilated:g}", kind)
    if text.lower() in BUILT_IN:
        return Region(text.lower(), top=given.get("top", _TOP), dilated=dilated)
    path, labels = _file_and_labels(text, folder or Path(), wrong, kind)
    return Region("file", path, labels, dilated=dilated)


def _file_and_labels(text: str, folder: Path, wrong: _Refusal, kind: str) -> tuple[Path, tuple[int, ...]]:
    """FILE, or FILE=2,3; a file whose own name has a = in it is found by that name."""
    file, sign, after = text.rpartition("=")
    whole = folder / Path(text).expanduser()
    if not sign or whole.exists():
        near = get_close_matches(text.lower(), BUILT_IN, 1, cutoff=0.7)
        if near and not whole.exists():
            raise wrong(f"there is no file {text!r}, did you mean {near[0]!r}?", kind)
        return whole, ()
    if not file or not re.fullmatch(r"-?\d{1,9}(,-?\d{1,9})*", after):
        raise wrong(f"{after!r} is no label of {file!r}: labels are whole numbers, =2 or =2,3", kind)
    return folder / Path(file).expanduser(), tuple(int(x) for x in after.split(","))


# ---------------------------------------------------------------- numbers


def _as_number(word: str) -> float | None:
    """A number, or a percentage."""
    try:
        number = Decimal(word.removesuffix("%"))
    except InvalidOperation:
        return None
    return float(number / 100 if word.endswith("%") else number) if number.is_finite() else None


def _number(word: str, what: str, wrong: _Refusal, kind: str) -> float:
    number = _as_number(word)
    if number is None:
        raise wrong(f"{word!r} stands where the number of {what!r} is expected", kind)
    return number


def _share(word: str, what: str, wrong: _Refusal, kind: str) -> float:
    number = _as_number(word)
    if number is None:
        raise wrong(f"{word!r} stands where {what} is expected, a number such as 0.05", kind)
    if not 0 <= number <= 1:
        hint = f": {number:g} percent is {number / 100:g}, or {number:g}%" if 1 < number < 100 else ""
        raise wrong(f"{what} is {word}, and a share lies between 0 and 1{hint}", kind)
    return number


def _counting(word: str, wrong: _Refusal, kind: str) -> str:
    if word.lower() in WAYS_TO_WEIGH:
        return word.lower()
    near = get_close_matches(word.lower(), WAYS_TO_WEIGH, 1, cutoff=0.5)
    hint = f", did you mean {near[0]!r}?" if near else ","
    raise wrong(f"{word!r} is no way to count{hint} known are {', '.join(WAYS_TO_WEIGH)}", kind)
