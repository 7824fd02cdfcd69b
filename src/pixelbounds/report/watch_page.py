"""The page of a monitor: evidence over time, risk with its confidence sequence, what bands are like, what changed."""

from __future__ import annotations

import os
from base64 import b64encode
from datetime import UTC, datetime
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ..calibration.sentence import level_in_words
from ..images.library import Array
from ..monitoring.history import columns_of_gauge, columns_of_promise
from ..monitoring.watch import Monitor
from ..storage.files import replace_file
from ..storage.version import VERSION
from .style import BLACK, BLUE, QUIET, RED
from .svg import inline_chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMES = {
    "width": "mean width of bands",
    "length": "mean length of intervals, at the widening of the reference",
    "level": "mean level of bands",
    "limits": "share of ends at the limits",
    "groups": "distance of group shares from those of fitting images",
}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src '{{ style_hash }}'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="pixelbounds {{ version }}">
<title>{{ title }}</title>
<style>{{ style }}</style>
</head>
<body>
<header>
  <p class="kicker">pixelbounds · after deployment</p>
  <h1><bdi>{{ title }}</bdi></h1>
</header>
<main>
<section>
  <h2>Is the promise still kept?</h2>
  <p class="{{ "warn" if status.alarm else "lead" }}">{{ status.sentence }}</p>
  {% for note in status.notes %}<p class="small">{{ note }}</p>{% endfor %}
  <p class="small">{{ span }} What was promised: {{ guarantee }}</p>
</section>
<section>
  <h2>With truth: {{ status.images }} images</h2>
  <p class="small">Evidence is what a bet on "the risk is above its level" has made of 1; the mean of all at {{ goal }}
  raises the alarm. Risk is the mean over all {{ each }} so far; the band holds what was to be expected of them at all
  times with probability 95%, each promise by itself. Grey points are means since the call before.</p>
  <div class="columns">{% for chart in promises %}<figure>{{ chart }}</figure>{% endfor %}</div>
  <ul>{% for promise in status.promises %}
  <li>{{ promise.words }}{% if promise.broken %}: <b>broken</b>{% endif %}</li>
  {% endfor %}</ul>
</section>
<section>
  <h2>Without truth: {{ status.looked }} images</h2>
  <p class="small">What bands are like among those of the calibration. This tests whether images come from the same
  source, and says nothing about risk.</p>
  <div class="columns">{% for chart in gauges %}<figure>{{ chart }}</figure>{% endfor %}</div>
  {% if status.lately %}<h3>What changed, lately</h3>
  <ul>{% for words in status.lately %}<li>{{ words }}</li>{% endfor %}</ul>
  <p class="small">{{ status.statistics|length }} things are looked at, each by itself.</p>{% else %}
  <p>Nothing that is rare at one look.</p>{% endif %}
</section>
</main>
</body>
</html>
"""


def write_watch_page(path: str | os.PathLike[str], monitor: Monitor, title: str = "Monitor") -> Path:
    """Write the page of a monitor and return its path; the same monitor gives the same page."""
    target = Path(path)
    if target.is_dir() or not target.absolute().parent.is_dir():
        raise ValueError(f"{str(target)!r} cannot be written; give the name of a file in a folder that is there")
    status = monitor.status()
    style = files(__package__).joinpath("page.css").read_text("utf-8")
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text = page.from_string(_PAGE).render(
        title=title, status=status, version=VERSION, guarantee=monitor.calibration.guarantee, style=Markup(style),
        style_hash="sha256-" + b64encode(sha256(style.encode()).digest()).decode(), span=_span(monitor.history),
        objective=f"{1 / monitor.chances[0]:.4g}", each=status.counted_in, promises=_promise_charts(monitor),
        gauges=_gauge_charts(monitor),
    )  # fmt: skip
    replace_file(target, text.encode("utf-8", "replace"))
    return target


def _span(history: Array) -> str:
    times = history[history[:, 0] > 0, 0]
    if not len(times):
        return ""
    first, last = (datetime.fromtimestamp(float(x), UTC).strftime("%Y-%m-%d") for x in (times[0], times[-1]))
    return f"From {first} to {last}."


def _promise_charts(monitor: Monitor) -> list[Markup]:
    found = []
    objective = np.log10(1 / monitor.chances[0])
    for i, account in enumerate(monitor.accounts):
        columns = columns_of_promise(monitor.history, i)
        name = account.promise.name
        at = monitor.history[:, 1]
        label = f"evidence that {name} is broken"
        found.append(inline_chart(f"worth-{i}", label, _draw_worth, at, columns[4], objective, f"{name}: evidence"))
        found.append(inline_chart(f"risk-{i}", f"risk of {name}", _draw_risk, at, columns, account.promise))
    return found


def _gauge_charts(monitor: Monitor) -> list[Markup]:
    found = []
    e_values = []
    promises = len(monitor.accounts)
    for i, gauge in enumerate(monitor.gauges):
        columns = columns_of_gauge(monitor.history, promises, i)
        name = _NAMES[gauge.name]
        usual = float(gauge.urn.values.mean())
        at = monitor.history[:, 2]
        found.append(inline_chart(f"mean-{i}", name, _draw_mean, at, columns, usual, name))
        e_values.append(columns[2])
    if e_values:
        objective = np.log10(len(e_values) / monitor.chances[1])
        at = monitor.history[:, 2]
        label = "evidence of a change"
        found.append(inline_chart("ranks", label, _draw_worth, at, np.stack(e_values, axis=1), objective, label))
    return found


# ---------------------------------------------------------------- charts


def _draw_worth(axes: Axes, at: Array, log_worth: Array, objective: float, name: str) -> None:
    axes.axhline(objective, color=RED, dashes=(3.5, 2), linewidth=0.9)
    axes.plot(at, log_worth / np.log(10), color=BLUE)
    _finish(axes, f"{name}, power of 10 (red: alarm)")


def _draw_risk(axes: Axes, at: Array, columns: Array, promise: Any) -> None:
    top, bottom, low, high, _ = columns
    seen = bottom > 0
    axes.axhline(promise.at_most, color=BLACK, linewidth=0.6)
    axes.fill_between(at[seen], low[seen], high[seen], color=BLUE, alpha=0.2, linewidth=0)
    axes.plot(at[seen], top[seen] / bottom[seen], color=BLUE)
    more = np.diff(bottom, prepend=0.0)
    fresh = more > 0
    axes.plot(at[fresh], np.diff(top, prepend=0.0)[fresh] / more[fresh], ".-", color=QUIET, linewidth=0.5)
    axes.set_ylim(0, None)
    _finish(axes, f"{promise.name}: risk, at most {level_in_words(promise.at_most)} promised")


def _draw_mean(axes: Axes, at: Array, columns: Array, usual: float, name: str) -> None:
    rounds, total, _ = columns
    more = np.diff(rounds, prepend=0.0)
    fresh = more > 0
    axes.axhline(usual, color=BLACK, linewidth=0.6)
    axes.plot(at[fresh], np.diff(total, prepend=0.0)[fresh] / more[fresh], ".-", color=BLUE, linewidth=0.8)
    _finish(axes, f"{name} (black: calibration)")


def _finish(axes: Axes, title: str) -> None:
    axes.set_title("".join(c if c.isprintable() else "?" for c in title), loc="left")
    axes.set_xlabel("images")
    axes.locator_params(axis="y", nbins=5)
