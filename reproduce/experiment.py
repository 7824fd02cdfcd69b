"""An experiment as a TOML file.

`[task]`, `[draws]`, `[krcps]`, `[frontier]`, `[scans]` and `[curves]` say what is computed from ready arrays; together
with the digest of the arrays they identify a finished draw. The other sections say how the arrays came about, and are
what `python -m reproduce NAME --data ...` trains and samples by.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pixelbounds.bands import calibrated_ranks

EXPERIMENTS = ("phantom", "faces64", "ct64", "chest128", "faces128", "chest512", "celeba", "abdomen")
IDENTITY = ("task", "draws", "krcps", "frontier", "scans", "curves")  # what a finished draw depends on
PixelCount = int | Literal["all"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskSection(_Section):
    """[task]: what is promised."""

    risk_level: float = Field(gt=0, lt=1)
    failure_prob: float = Field(gt=0, lt=1)
    miscoverage: float = Field(gt=0, lt=1)
    samples: int = Field(gt=1)


class DrawsSection(_Section):
    """[draws]: random calibration and validation images, over and over."""

    count: int = Field(gt=0)
    calibration: int = Field(gt=1)
    validation: int = Field(gt=0)
    seed: int = Field(0, ge=0)


class KRCPSSection(_Section):
    """[krcps]: the grid of the paper."""

    n_opt: list[int] = Field(min_length=1)
    d_opt: list[PixelCount] = Field(min_length=1)
    k: list[int] = Field(min_length=1)
    gammas: tuple[float, float, int] = (0.3, 0.7, 16)

    @property
    def gamma_values(self) -> list[float]:
        """The gammas, equally spaced."""
        return [float(g) for g in np.linspace(*self.gammas)]


class FrontierSection(_Section):
    """[frontier]: fitting images, groups as `pb.Frontier` takes them, and what learned groups may see besides."""

    n_opt: int = Field(gt=0)
    groups: Literal["band", "learned"] | None = None
    features: list[str] = ["mean", "deviation", "observation", "qr_lower", "qr_upper"]


class ScansSection(_Section):
    """[scans]: rows in which the unit is the scan; few of them need a higher risk level, or a cap on what images count.

    `unit` is what a unit is called; with a cap an image that misses more of its pixels counts as one that misses `cap`.
    """

    risk_levels: list[float] = Field(min_length=1)
    unit: str = "scan"
    cap: float | None = Field(None, gt=0, le=1)


class CurvesSection(_Section):
    """[curves]: mean length against calibration images, and against K and n_opt."""

    calibration: list[int] = Field(min_length=1)
    k: list[int] = Field(min_length=1)
    n_opt: list[int] = Field(min_length=1)
    learned_k: list[int] = Field(min_length=1)
    draws: int = Field(ge=0)


class TargetSection(_Section):
    """[target]: what the frontier with betting is to reach against the best K-RCPS with Hoeffding-Bentkus."""

    shorter: float = Field(gt=0, lt=1)
    controlled: float = Field(0.9, gt=0, le=1, description="share of the draws whose risk is at most the risk level")


class DataSection(_Section):
    """[data]: the images, and how many are kept for fine-tuning and held out; the rest is trained on."""

    source: str
    reader: Literal["celeba", "abdomen", "phantom", "any"]
    size: int = Field(gt=0)
    limits: tuple[float, float]
    key: str | None = None
    units: str | None = None
    train: int = Field(0, ge=0, description="phantoms to train on; of other images, all that are left")
    tune: int = Field(gt=0)
    held_out: int = Field(gt=1)
    seed: int = 0
    stop: bool = Field(False, description="whether the images to fine-tune on choose when the other networks stop")


class SamplingSection(_Section):
    """[sampling]: how posterior samples are drawn; their number is that of [task].

    `networks` counts score networks of other seeds whose mean score is followed. `printed_steps` draws samples by
    Algorithm 3 as printed too, for rows of their own.
    """

    sampler: str
    networks: int = Field(1, gt=0)
    steps: int | None = None
    printed_steps: int | None = None
    seed: int = 0
    batch: int | None = None


class Experiment(_Section):
    """All sections of an experiment."""

    name: str
    title: str
    published: Literal["celeba", "abdomen"]
    pictures: bool = False
    rehearsal: bool = False  # networks need not learn anything
    differences: dict[str, str] = {}  # from the paper, for the page: what, and why
    notes: list[str] = []  # further sentences for the page, such as what was tried
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

    @model_validator(mode="after")
    def _fits(self) -> Experiment:
        calibrated_ranks(self.task.samples, self.task.miscoverage)
        for name, n in {"krcps": max(self.krcps.n_opt), "frontier": self.frontier.n_opt}.items():
            if n >= self.draws.calibration:
                raise ValueError(f"[{name}] n_opt is {n}, but there are {self.draws.calibration} calibration images")
        if self.scans is not None and self.scans.cap is not None and self.scans.cap <= max(self.scans.risk_levels):
            raise ValueError(f"[scans] cap is {self.scans.cap}; it must be above each of {self.scans.risk_levels}")
        unknown = set(self.training) - {"score", "regressor", "conffusion"}
        if unknown:
            raise ValueError(f"[training] knows score, regressor and conffusion, not {', '.join(sorted(unknown))}")
        return self

    def changed(self, **sections: Any) -> Experiment:
        """The experiment with some values of some sections replaced, checked again."""
        values = self.model_dump()
        for name, section in sections.items():
            values[name] = {**values[name], **section} if isinstance(section, dict) and values[name] else section
        return Experiment.model_validate(values)

    def identity(self) -> dict[str, Any]:
        """What the numbers of a draw depend on, apart from the material; not how many draws there are."""
        values = self.model_dump(mode="json", include=set(IDENTITY))
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
        return Experiment.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name} is not TOML: {error}; mend that line") from error
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'plan'}: {e['msg']}" for e in error.errors())
        raise ValueError(f"{name} is no experiment: {wrong}") from error


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
        curves={"calibration": [22, 28], "k": [2, 4], "n_opt": [6, 8], "learned_k": [4], "draws": 1},
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
