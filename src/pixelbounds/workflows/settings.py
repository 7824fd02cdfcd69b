"""A training run as a TOML file: sections, their checks, and errors that name the file, the line and the remedy.

Paths are relative to the folder of the file. Channels and size of the network follow the images.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ..diffusion.batches import AUGMENTATIONS
from ..diffusion.network import CONFIGURATIONS, NetworkConfig, configuration
from ..diffusion.sde import VESDE
from ..diffusion.trainer import Settings as TrainingSettings
from ..storage.files import strict_toml


class SettingsError(ValueError):
    """A configuration that cannot be run; the message names file, line, field and remedy."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Data(_Section):
    """[data]: where the images are, and which of them are kept aside."""

    path: str = Field(description="an .npy, .npz or .zarr file, a folder or zip of pictures, NIfTI or DICOM")
    key: str | None = Field(None, description="the name of the array inside an .npz or .zarr file")
    limits: list[float] = Field(
        [0.0, 1.0], min_length=2, max_length=2, description="least and greatest pixel value, e.g. [0.0, 1.0]"
    )
    held_out: float = Field(0.0, ge=0, lt=1, description="the share of images (or units) not trained on, e.g. 0.1")
    units: str | None = Field(
        None, description="one number per image that says its scan or patient: a key of the .npz, or an .npy file"
    )
    validation: float | str = Field(
        0.1,
        description="the share of the other images (or units) that choose when to stop, e.g. 0.1, a file of such "
        "images, or 0.0 for none",
    )
    seed: int = Field(0, ge=0, description="chooses the images that are held out, and those of validation")

    @field_validator("validation")
    @classmethod
    def _share(cls, validation: float | str) -> float | str:
        if not isinstance(validation, str) and not 0 <= validation < 1:
            raise ValueError("a share lies in [0, 1)")
        return validation

    @field_validator("limits")
    @classmethod
    def _ordered(cls, limits: list[float]) -> list[float]:
        if len(limits) == 2 and not limits[0] < limits[1]:
            raise ValueError(f"{limits} does not ascend; give the least and the greatest pixel value")
        if not all(map(isfinite, limits)):
            raise ValueError(f"{limits} has no end; give the least and the greatest pixel value")
        return limits


class Network(_Section):
    """[network]: a named configuration, and what differs from it."""

    name: str = Field("small", description=f"one of {', '.join(CONFIGURATIONS)}")
    base: int | None = Field(None, description="channels of the first level, a multiple of 4")
    multipliers: list[int] | None = Field(None, min_length=1, description="channels per level, in units of base")
    blocks: int | None = Field(None, description="residual blocks per level")
    attention: list[int] | None = Field(None, description="sizes of the maps that get attention, e.g. [16]")
    dropout: float | None = Field(None, description="the share of features that are dropped, e.g. 0.1")
    fourier_scale: float | None = Field(None, gt=0, description="scale of the noise embedding, 16 as published")
    patch: int | None = Field(None, gt=0, description="pixels a side of the squares that are seen as one, e.g. 2")

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        return _choice(name, CONFIGURATIONS)

    @model_validator(mode="after")
    def _buildable(self) -> Network:
        levels = len(self.multipliers or CONFIGURATIONS[self.name]["multipliers"])
        self.config(1, (self.patch or 1) * 2 ** (levels - 1))
        return self

    def config(self, channels: int, size: int) -> NetworkConfig:
        """The configuration for images of so many channels, size x size."""
        changes = {name: x for name, x in self.model_dump(exclude={"name"}).items() if x is not None}
        return configuration(self.name, channels=channels, size=size, **changes)


class Process(_Section):
    """[process]: noise levels of the diffusion, and that of the observations."""

    sigma_min: float = Field(0.01, gt=0, description="the least noise level; 0.01 in practice")
    sigma_max: float = Field(1.0, gt=0, description="the greatest noise level: 1 for CT in [0, 1], 90 for faces")
    sigma_0: float | None = Field(None, description="deviation (not variance) of the noise of the observations")


class Training(_Section):
    """[training]: what is trained, how long and how."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)

    kind: Literal["score", "regressor", "conffusion"] = Field("score", description="what is trained")
    start: str | None = Field(None, alias="from", description="the trained score network that conffusion starts from")
    miscoverage: float = Field(0.1, gt=0, lt=1, description="the quantiles of a regressor or conffusion, e.g. 0.1")
    weighting: Literal["paper", "edm"] = Field("edm", description="of noise levels in the loss of a score network")
    data_deviation: float = Field(0.5, gt=0, description="deviation of the pixels, which scales a regressor")
    device: str | None = Field(None, description="'cpu' or 'cuda'; a GPU if there is one, unless told")
    steps: int | None = Field(None, gt=0, description="steps of the optimizer, e.g. 100_000")
    seconds: float | None = Field(None, gt=0, description="seconds after which to stop, e.g. 3600")
    batch: int = Field(64, gt=0, description="images per step, over all GPUs")
    learning_rate: float = Field(2e-4, gt=0, description="of AdamW, e.g. 2e-4")
    warmup: int = Field(500, ge=0, description="steps over which the rate rises, a tenth of the run at most")
    cosine: bool = Field(True, description="let the rate fall to 0 at the end")
    weight_decay: float = Field(0.0, ge=0, description="of AdamW")
    clip: float = Field(1.0, gt=0, description="greatest norm of a gradient")
    ema: float = Field(0.999, ge=0, lt=1, description="memory of the averaged weights, e.g. 0.999")
    sigma_top: float | None = Field(None, gt=0, description="greatest noise level trained on, a little above sigma_0")
    augment: str = Field("rotations", description=f"one of {', '.join(AUGMENTATIONS)}")
    seed: int = Field(0, ge=0, description="of weights, batches and noise")
    patience: int | None = Field(20, gt=0, description="looks at the validation images without a gain that end the run")
    look_every: int | None = Field(None, gt=0, description="steps between these looks; rarer and rarer unless told")
    log_every: int = Field(50, gt=0, description="steps between lines of the log")
    checkpoint_every: int = Field(1000, gt=0, description="steps between states on disk")
    compile: bool = Field(False, description="use torch.compile")
    half: bool | None = Field(None, description="bfloat16; on a GPU unless told")
    channels_last: bool | None = Field(None, description="memory layout; on a GPU unless told")

    @field_validator("augment")
    @classmethod
    def _known(cls, name: str) -> str:
        return _choice(name, AUGMENTATIONS)

    @model_validator(mode="after")
    def _whole(self) -> Training:
        if self.kind == "conffusion" and self.start is None:
            raise ValueError('kind is "conffusion", which starts from a score network; add from = "score.safetensors"')
        if self.kind != "conffusion" and self.start is not None:
            raise ValueError(
                f'from is given, but a {self.kind} network starts anew; remove it or set kind = "conffusion"'
            )
        if self.kind != "score" and "weighting" in self.model_fields_set:
            raise ValueError(f'weighting is for score networks, and kind is "{self.kind}"; remove it')
        self.settings()
        return self

    def settings(self) -> TrainingSettings:
        """What the training loop takes."""
        own = {name: getattr(self, name) for name in TrainingSettings.__dataclass_fields__}
        return TrainingSettings(**(own | {"augment": AUGMENTATIONS[self.augment]}))


class Output(_Section):
    """[output]: where the run is kept."""

    folder: str = Field(description="the folder of states, log and network, e.g. 'runs/faces'")


class TrainSettings(_Section):
    """All sections of a training run."""

    data: Data
    network: Network = Field(default_factory=lambda: Network.model_validate({}))
    process: Process = Field(default_factory=lambda: Process.model_validate({}))
    training: Training
    output: Output

    @model_validator(mode="after")
    def _fits(self) -> TrainSettings:
        if self.training.kind != "conffusion":  # that has the process of its score network, known when it is read
            sde = VESDE(self.process.sigma_min, self.process.sigma_max)
            check_levels(sde, self.process.sigma_0, self.training.sigma_top)
        return self


def check_levels(sde: VESDE, sigma_0: float | None, sigma_top: float | None) -> None:
    """The level of the observations lies within the process, and training reaches up to it."""
    if sigma_0 is not None:
        sde.check_level(sigma_0)
    if sigma_top is not None:
        sde.check_level(sigma_top, "sigma_top")
        if sigma_0 is not None and sigma_top < sigma_0:
            raise ValueError(
                f"sigma_top is {sigma_top}, below sigma_0 = {sigma_0}; sampling starts at sigma_0: raise it"
            )


# ---------------------------------------------------------------- files


class Configuration:
    """A TOML file that was read and checked; `error` makes errors that name its lines."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.text = self.path.read_bytes().decode()
        except OSError as error:
            raise SettingsError(f"{path}: {error.strerror}; give the path of a TOML file") from error
        except UnicodeDecodeError as error:
            raise SettingsError(f"{path} is no UTF-8 text; give a TOML file") from error
        try:
            values = strict_toml(self.text)
        except ValueError as error:
            raise SettingsError(f"{path}: {error}") from error
        try:
            self.settings = TrainSettings.model_validate(values)
        except ValidationError as error:
            raise SettingsError("\n".join(self._explain(one) for one in error.errors())) from error

    def error(self, section: str, key: str | None, message: str) -> SettingsError:
        """An error about one field, with its line."""
        return SettingsError(f"{self._place(section, key)}: {message}")

    def resolve(self, path: str) -> Path:
        """A path of the file, relative to the folder of the file."""
        return self.path.parent / Path(path).expanduser()

    def _place(self, *keys: str | None) -> str:
        line = line_of(self.text, tuple(key for key in keys if key is not None))
        return f"{self.path}, line {line}" if line else str(self.path)

    def _explain(self, error: Any) -> str:
        keys = [key for key in error["loc"] if isinstance(key, str)]
        section, key = keys[0] if keys else None, keys[1] if len(keys) > 1 else None
        name = f"[{section}] {key}" if key else f"[{section}]"
        if error["type"] == "extra_forbidden":
            known = _names(TrainSettings if key is None else _model(str(section)))
            near = get_close_matches(keys[-1], known, 1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            return f"{self._place(*keys)}: {name} is not known; {hint}known are {', '.join(known)}"
        if error["type"] == "missing":
            if key is None:
                return f"{self.path}: the section [{section}] is missing; add it, with {_needed(str(section))}"
            return f"{self._place(section)}: {name} is missing; give {_described(str(section), key)}"
        if error["type"] == "value_error" and key is None:  # a check of a whole section names its field first
            message = str(error["ctx"]["error"])
            word = message.split(" ", 1)[0]
            places = [section] if section else list(TrainSettings.model_fields)
            owner = next((x for x in places if word in _names(_model(str(x)))), section)
            return f"{self._place(owner, word)}: [{owner}] {message}"
        message = str(error["ctx"]["error"]) if error["type"] == "value_error" else error["msg"]
        message = message.replace("Input should be", "it should be")
        remedy = f"; give {_described(str(section), key)}" if key else ""
        return f"{self._place(*keys)}: {name} is {error['input']!r}: {message}{remedy}"


def line_of(text: str, keys: tuple[str, ...]) -> int | None:
    r"""The line, counted from 1, that sets a key of a TOML text, or else the nearest section around it.

    >>> line_of("[data]\npath = 'x'\n", ("data", "path"))
    2
    """
    section: tuple[str, ...] = ()
    best, line = 0, None
    for number, content in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[+\s*([^\[\]=]+?)\s*\]", content)
        entry = re.match(r"""\s*([\w.\-"' ]+?)\s*=""", content)
        if header:
            found = section = _parts(header[1])
        elif entry:
            found = section + _parts(entry[1])
        else:
            continue
        if found == keys[: len(found)] and len(found) > best:
            best, line = len(found), number
    return line


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _choice(value: str, known: Any) -> str:
    if value not in known:
        near = get_close_matches(value, known, 1)
        raise ValueError(f"did you mean {near[0]!r}?" if near else "there is no such name")
    return value


def _model(section: str) -> Any:
    return TrainSettings.model_fields[section].annotation if section in TrainSettings.model_fields else TrainSettings


def _names(model: Any) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _described(section: str, key: str) -> str:
    fields = _model(section).model_fields
    return next((field.description or name for name, field in fields.items() if key in (name, field.alias)), "a value")


def _needed(section: str) -> str:
    needed = [name for name, field in _model(section).model_fields.items() if field.is_required()]
    return ", ".join(needed or ["steps or seconds"])
