"""A page: one template with its style and script inside, which a Content-Security-Policy names by their hashes."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from ..calibration.words import level_in_words, number_of, plural, share_in_words
from ..storage.files import replace_file
from ..storage.version import VERSION
from .cells import number, percent, span


def asset(name: str) -> str:
    """The text of a file of this folder."""
    return files(__package__).joinpath(name).read_text("utf-8")


def render_page(target: Path, template: str, *, script: str = "", **values: Any) -> Path:
    """Render a template of this folder; whatever a value holds becomes text, never markup."""
    environment = Environment(
        loader=FunctionLoader(asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {
        "percent": percent, "level": level_in_words, "number": number, "span": span, "number_of": number_of,
        "plural": plural, "share": share_in_words, "version": VERSION,
    }  # fmt: skip
    style = asset("page.css")
    text = environment.get_template(template).render(
        style=Markup(style), style_hash=_hash(style), script=Markup(script), script_hash=_hash(script), **values
    )
    replace_file(target, text.encode("utf-8", "replace"))  # names of files may hold bytes that are no text
    return target


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()
