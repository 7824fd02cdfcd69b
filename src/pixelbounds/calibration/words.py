"""Numbers and nouns in words, and what to cite (works.bib).

Levels are rounded up, probabilities of success down: no rounding promises more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from importlib.resources import files

from ..images.library import channel_axis

_DIGITS = 6
_PAPER, _JOINT = "teneggi2023trust", "angelopoulos2021learn"
_WORKS = {  # of names in a calibration
    "rcps": ("bates2021distribution",),
    "betting": ("waudbysmith2024estimating",), "anytime": ("waudbysmith2024estimating",),
    "hoeffding_bentkus": ("bates2021distribution", "hoeffding1963probability", "bentkus2004hoeffding"),
    "hoeffding": ("hoeffding1963probability",), "bentkus": ("bentkus2004hoeffding",),
    "empirical_bernstein": ("maurer2009empirical",), "conformal": ("angelopoulos2024conformal",),
    "heun": ("song2021score", "karras2022elucidating"), "reverse_sde": ("song2021score",),
    "euler_maruyama": ("song2021score",),
    "mmps": ("rozet2024learning",), "pigdm": ("song2023pseudoinverse",), "dps": ("chung2023diffusion",),
}  # fmt: skip


def level_in_words(share: float) -> str:
    """A level that is not exceeded; what is cut off is rounded up.

    >>> level_in_words(0.1), level_in_words(0.025), level_in_words(1 / 3), level_in_words(1e-9)
    ('10%', '2.5%', '33.3334%', '0.0000001%')
    """
    return _percent(_up(share))


def confidence_in_words(failure_prob: float) -> str:
    """The probability of success, rounded down.

    >>> confidence_in_words(0.1), confidence_in_words(1e-8), confidence_in_words(1 / 3)
    ('90%', '99.999999%', '66.6666%')
    """
    return _percent(1 - _up(failure_prob))


def share_in_words(share: float, *, up: bool = False) -> str:
    """An observed share to three digits, rounded down, or up.

    >>> share_in_words(0.04456), share_in_words(0.04456, up=True)
    ('4.45%', '4.46%')
    """
    return _percent(Context(3, ROUND_CEILING if up else ROUND_FLOOR).create_decimal(repr(float(share))))


def number_in_words(level: float) -> str:
    """A level that is no share, rounded up.

    >>> number_in_words(0.3), number_in_words(1 / 3)
    ('0.3', '0.333334')
    """
    return _digits(_up(level))


def cap_in_words(cap: float) -> str:
    """The share for which an image counts at most, rounded down: that says less, never more.

    >>> cap_in_words(0.25), cap_in_words(1 / 3)
    ('25%', '33.3333%')
    """
    return _percent(Context(_DIGITS, ROUND_FLOOR).create_decimal(repr(float(cap))))


def article(noun: str) -> str:
    """The indefinite article.

    >>> article("image"), article("scan")
    ('an', 'a')
    """
    return "an" if noun[:1].lower() in "aeio" else "a"


def plural(noun: str) -> str:
    """More than one.

    >>> plural("scan"), plural("body"), plural("series")
    ('scans', 'bodies', 'series')
    """
    if noun.endswith("s"):
        return noun
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else f"{noun}s"


def number_of(n: int, noun: str) -> str:
    """How many there are.

    >>> number_of(1, "image"), number_of(2, "image")
    ('1 image', '2 images')
    """
    return f"{n} {noun if n == 1 else plural(noun)}"


def entries_in_words(pixels: tuple[int, ...]) -> str:
    """What is counted of an image of this shape; () where images differ in size, so that channels are not known."""
    if channel_axis(pixels) is not None:
        return "values (each channel of a pixel is one)"
    if len(pixels) == 1:
        return "values"
    return "pixels" if len(pixels) == 2 else "values (each voxel, or channel of a pixel, is one)"


def _up(number: float) -> Decimal:
    return Context(_DIGITS, ROUND_CEILING).create_decimal(repr(float(number)))


def _percent(share: Decimal) -> str:
    return f"{_digits(100 * share)}%"


def _digits(number: Decimal) -> str:
    """Without an exponent and without zeros at the end."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def citation(names: Iterable[str], several: bool) -> str:
    """BibTeX of the paper and of the methods, bounds and samplers in these names; `several`: of joint promises, too."""
    words = re.findall(r"\w+", " ".join(names))
    keys = {_PAPER, *(key for word in words for key in _WORKS.get(word, ()))} | ({_JOINT} if several else set())
    works = files(__package__).joinpath("works.bib").read_text("utf-8").strip().split("\n\n")
    return "\n\n".join(work for work in works if work.partition("{")[2].partition(",")[0] in keys)
