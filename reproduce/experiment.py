"""An experiment as a TOML file.

`[task]`, `[draws]`, `[krcps]`, `[frontier]`, `[scans]` and `[curves]` say what is computed from ready arrays; together
with the digest of the arrays they identify a finished draw. The other sections say how the arrays came about, and are
what `python -m reproduce NAME --data ...` trains and samples by. The standard library reads and checks it, since draws
also run on GPU machines, which have little else.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from importlib.resources import files
from math import inf
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from pixelbounds.bands import calibrated_ranks

EXPERIMENTS = ("phantom", "faces64", "ct64", "chest128", "faces128", "chest512", "celeba", "abdomen")
IDENTITY = ("task", "draws", "krcps", "frontier", "scans", "curves")  # what a finished draw depends on
PixelCount = int | Literal["all"]


def _value(
    default: Any = MISSING, *, above: float = -inf, at_least: float = -inf, below: float = inf, at_most: float = inf
) -> Any:
    """A field and the range of its number."""
    return field(default=default, metadata={"range": (above, at_least, below, at_most)})


def _share(default: Any = MISSING) -> Any:
    return _value(default, above=0, below=1)


@dataclass(frozen=True, kw_only=True)
class TaskSection:
    """[task]: what is promised."""

    risk_level: float = _share()
    failure_prob: float = _share()
    miscoverage: float = _share()
    samples: int = _value(above=1)


@dataclass(frozen=True, kw_only=True)
class DrawsSection:
    """[draws]: random calibration and validation images, over and over."""

    count: int = _value(above=0)
    calibration: int = _value(above=1)
    validation: int = _value(above=0)
    seed: int = _value(0, at_least=0)


@dataclass(frozen=True, kw_only=True)
class KRCPSSection:
    """[krcps]: the grid of the paper."""

    n_opt: tuple[int, ...]
    d_opt: tuple[PixelCount, ...]
    k: tuple[int, ...]
    gammas: tuple[float, float, int] = (0.3, 0.7, 16)

    @property
    def gamma_values(self) -> list[float]:
        """The gammas, equally spaced."""
        return [float(g) for g in np.linspace(*self.gammas)]


@dataclass(frozen=True, kw_only=True)
class FrontierSection:
    """[frontier]: fitting images, groups as `pb.Frontier` takes them, and what learned groups may see besides."""

    n_opt: int = _value(above=0)
    groups: Literal["band", "learned"] | None = None
    features: tuple[str, ...] = ("mean", "deviation", "observation", "qr_lower", "qr_upper")


@dataclass(frozen=True, kw_only=True)
class ScansSection:
    """[scans]: rows in which the unit is the scan; few of them need a higher risk level, or a cap on what images count.

    `unit` is what a unit is called; with a cap an image that misses more of its pixels counts as one that misses `cap`.
    """

    risk_levels: tuple[float, ...]
    unit: str = "scan"
    cap: float | None = _value(None, above=0, at_most=1)


@dataclass(frozen=True, kw_only=True)
class CurvesSection:
    """[curves]: mean length against calibration images, and against K and n_opt."""

    calibration: tuple[int, ...]
    k: tuple[int, ...]
    n_opt: tuple[int, ...]
    learned_k: tuple[int, ...]
    draws: int = _value(at_least=0)


@dataclass(frozen=True, kw_only=True)
class TargetSection:
    """[target]: what the frontier with betting is to reach against the best K-RCPS with Hoeffding-Bentkus."""

    shorter: float = _share()
    controlled: float = _value(0.9, above=0, at_most=1)  # share of the draws whose risk is at most the risk level


@dataclass(frozen=True, kw_only=True)
class DataSection:
    """[data]: the images, and how many are kept for fine-tuning and held out; the rest is trained on."""

    source: str
    reader: Literal["celeba", "abdomen", "phantom", "any"]
    size: int = _value(above=0)
    limits: tuple[float, float]
    key: str | None = None
    units: str | None = None
    train: int = _value(0, at_least=0)  # phantoms to train on; of other images, all that are left
    tune: int = _value(above=0)
    held_out: int = _value(above=1)
    seed: int = 0
    stop: bool = False  # whether the images to fine-tune on choose when the other networks stop


@dataclass(frozen=True, kw_only=True)
class SamplingSection:
    """[sampling]: how posterior samples are drawn; their number is that of [task].

    `networks` counts score networks of other seeds whose mean score is followed. `printed_steps` draws samples by
    Algorithm 3 as printed too, for rows of their own.
    """

    sampler: str
    networks: int = _value(1, above=0)
    steps: int | None = None
    printed_steps: int | None = None
    seed: int = 0
    batch: int | None = None


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """All sections of an experiment."""

    name: str
    title: str
    published: Literal["celeba", "abdomen"]
    pictures: bool = False
    rehearsal: bool = False  # networks need not learn anything
    differences: dict[str, str] = field(default_factory=dict)  # from the paper, for the page: what, and why
    notes: tuple[str, ...] = ()  # further sentences for the page, such as what was tried
    target: TargetSection | None = None
    task: TaskSection
    draws: DrawsSection
    krcps: KRCPSSection
    frontier: FrontierSection
    scans: ScansSection | None = None
    curves: CurvesSection
    data: DataSection
    network: dict[str, Any]
    process: dict[str, Any]
    training: dict[str, dict[str, Any]]
    sampling: SamplingSection

    def __post_init__(self) -> None:
        calibrated_ranks(self.task.samples, self.task.miscoverage)
        for name, n in {"krcps": max(self.krcps.n_opt), "frontier": self.frontier.n_opt}.items():
            if n >= self.draws.calibration:
                raise ValueError(f"[{name}] n_opt is {n}, but there are {self.draws.calibration} calibration images")
        if self.scans is not None and self.scans.cap is not None and self.scans.cap <= max(self.scans.risk_levels):
            raise ValueError(f"[scans] cap is {self.scans.cap}; it must be above each of {self.scans.risk_levels}")
        unknown = set(self.training) - {"score", "regressor", "conffusion"}
        if unknown:
            raise ValueError(f"[training] knows score, regressor and conffusion, not {', '.join(sorted(unknown))}")

    def as_dict(self) -> dict[str, Any]:
        """All values, ready for JSON."""
        return dict(json.loads(json.dumps(asdict(self))))

    def changed(self, **sections: Any) -> Experiment:
        """The experiment with some values of some sections replaced, checked again."""
        values = self.as_dict()
        for name, section in sections.items():
            values[name] = {**values[name], **section} if isinstance(section, dict) and values[name] else section
        return _section(Experiment, values)

    def identity(self) -> dict[str, Any]:
        """What the numbers of a draw depend on, apart from the material; not how many draws there are."""
        values = {name: section for name, section in self.as_dict().items() if name in IDENTITY}
        del values["draws"]["count"]
        del values["curves"]["draws"]
        return values

    def fingerprint(self, digest: str, source: str) -> str:
        """A short name for this identity on a material, computed by a source."""
        text = json.dumps({"plan": self.identity(), "material": digest, "source": source}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_experiment(source: str | Path) -> Experiment:
    """An experiment by its name, or of a TOML file of your own.

    >>> load_experiment("ct64").task.risk_level
    0.05
    """
    if str(source) in EXPERIMENTS:
        name = f"{source}.toml"
        text = (files(__package__) / "plans" / name).read_text()
    else:
        path = Path(source)
        if path.suffix != ".toml" or not path.is_file():
            raise ValueError(f"{str(source)!r} is no experiment ({', '.join(EXPERIMENTS)}) and no TOML file; give one")
        name = str(path)
        text = path.read_text()
    try:
        return _section(Experiment, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name} is not TOML: {error}; mend that line") from error
    except ValueError as error:
        raise ValueError(f"{name} is no experiment: {error}") from error


def _section(kind: Any, table: Any, where: str = "plan") -> Any:
    """A dataclass from a table that has its keys and no others, of their types and within their ranges."""
    if not isinstance(table, Mapping):
        raise ValueError(f"{where} must be a table")
    types = get_type_hints(kind)
    needed = {x.name for x in fields(kind) if x.default is MISSING and x.default_factory is MISSING}
    if not needed <= table.keys() <= types.keys():
        raise ValueError(
            f"{where} lacks {sorted(needed - table.keys())}, has unknown {sorted(table.keys() - types.keys())}"
        )
    values = {name: _typed(types[name], value, f"{where}.{name}") for name, value in table.items()}
    for one in fields(kind):
        value = values.get(one.name)
        above, at_least, below, at_most = one.metadata.get("range", (-inf, -inf, inf, inf))
        if value is not None and one.metadata and not (above < value < below and at_least <= value <= at_most):
            raise ValueError(f"{where}.{one.name} is {value}, out of range")
    return kind(**values)


def _typed(kind: Any, value: Any, where: str) -> Any:
    """A value of TOML or JSON as a type; arrays become tuples."""
    origin, inside = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _section(kind, value, where)
    if kind is Any or (origin is Literal and value in inside) or (kind is type(None) and value is None):
        return value
    if kind is float and type(value) is int:
        return float(value)
    if origin is dict and isinstance(value, Mapping):
        return {key: _typed(inside[1], part, f"{where}.{key}") for key, part in value.items()}
    if origin is tuple and isinstance(value, list | tuple):
        kinds = inside[:1] * len(value) if inside[-1] is ... else inside
        if len(kinds) == len(value):
            return tuple(_typed(one, part, where) for one, part in zip(kinds, value, strict=True))
    if inside and origin not in (dict, tuple, Literal):  # one of several
        for one in inside:
            try:
                return _typed(one, value, where)
            except ValueError:
                continue
    if not inside and type(value) is kind:
        return value
    raise ValueError(f"{where} is {value!r}; it must be {getattr(kind, '__name__', kind)}")


def miniature(experiment: Experiment) -> Experiment:
    """The same experiment in miniature, to see that all of it runs before it is run for days."""
    few = {"calibration": 28, "validation": 10, "count": 2}
    tiny: dict[str, Any] = {"steps": 2, "batch": 4, "warmup": 1, "checkpoint_every": 1000, "log_every": 2}
    training = {
        kind: {**{name: x for name, x in values.items() if name != "seconds"}, **tiny}
        for kind, values in experiment.training.items()
    }
    return experiment.changed(
        rehearsal=True,
        task={"samples": 9, "miscoverage": 0.2, "risk_level": 0.3},
        draws=few,
        krcps={"n_opt": [6, 8], "d_opt": [20, "all"], "k": [2, 4], "gammas": (0.3, 0.7, 3)},
        frontier={"n_opt": 6},
        scans=None if experiment.scans is None else {"risk_levels": [0.2, 0.4], "cap": experiment.scans.cap and 0.8},
        curves={
            "calibration": [22, 28],
            "k": [2, 4],
            "n_opt": [6, 8],
            "learned_k": [4],
            "draws": min(1, experiment.curves.draws),
        },
        data={"size": 16, "train": 24, "tune": 8, "held_out": 40},
        network={**experiment.network, "name": "tiny", "base": 4, "multipliers": [1, 2], "blocks": 1, "attention": []},
        training=training,
        sampling={
            "sampler": experiment.sampling.sampler,
            "networks": min(experiment.sampling.networks, 2),
            "steps": 2 if experiment.sampling.sampler == "heun" else 4,
            "printed_steps": experiment.sampling.printed_steps and 4,
            "batch": 64,
        },
    )
