"""A training run as a TOML file: its sections and their checks. `storage.toml.read_toml` reads it.

Paths are relative to the folder of the file. Channels and size of the network follow the images.
"""

from __future__ import annotations

from dataclasses import fields
from difflib import get_close_matches
from math import isfinite
from typing import Any, Literal, get_type_hints

from pydantic import Field, create_model, field_validator, model_validator

from ..diffusion.architecture import CONFIGURATIONS, NetworkConfig, configuration
from ..diffusion.batches import AUGMENTATIONS
from ..diffusion.schedule import Settings
from ..diffusion.sde import VESDE
from ..storage.toml import TomlSection


class Data(TomlSection):
    """[data]: where the images are, and which of them are kept aside."""

    path: str = Field(description="an .npy, .npz or .zarr file, a folder or zip of pictures, NIfTI or DICOM")
    key: str | None = Field(None, description="the name of the array inside an .npz or .zarr file")
    limits: list[float] = Field(
        [0.0, 1.0], min_length=2, max_length=2, description="least and greatest pixel value, e.g. [0.0, 1.0]"
    )
    window: list[float] | None = Field(
        None, min_length=2, max_length=2, description="width and level of NIfTI and DICOM values, e.g. [400.0, 40.0]"
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


class Network(TomlSection):
    """[network]: a named configuration, and what differs from it."""

    name: str = Field("lean", description=f"one of {', '.join(CONFIGURATIONS)}")
    base: int | None = Field(None, description="channels of the first level, a multiple of 4")
    multipliers: list[int] | None = Field(None, min_length=1, description="channels per level, in units of base")
    blocks: int | None = Field(None, description="residual blocks per level")
    attention: list[int] | None = Field(None, description="sizes of the maps that get attention, e.g. [16]")
    dropout: float | None = Field(None, description="the share of features that are dropped, e.g. 0.1")
    fourier_scale: float | None = Field(None, gt=0, description="scale of the noise embedding, 16 as published")
    patch: int | None = Field(None, gt=0, description="pixels a side of the squares that are seen as one, e.g. 2")

    @field_validator("name")
    @classmethod
    def _named(cls, name: str) -> str:
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


class Process(TomlSection):
    """[process]: noise levels of the diffusion, and that of the observations."""

    sigma_min: float = Field(0.01, gt=0, description="the least noise level; 0.01 in practice")
    sigma_max: float = Field(1.0, gt=0, description="the greatest noise level: 1 for CT in [0, 1], 90 for faces")
    sigma_0: float | None = Field(None, description="deviation (not variance) of the noise of the observations")


def _loop() -> Any:
    """The keys of [training] that the training loop takes: fields, types and descriptions of its `Settings`."""
    types = get_type_hints(Settings)
    keys = {x.name: (types[x.name], Field(x.default, description=x.metadata["description"])) for x in fields(Settings)}
    return create_model("_Loop", __base__=TomlSection, **keys | {"augment": (str, _AUGMENT)})  # type: ignore[call-overload]


_AUGMENT = Field("rotations", description=f"one of {', '.join(AUGMENTATIONS)}")


class Training(_loop()):  # type: ignore[misc]
    """[training]: what is trained, how long and how."""

    kind: Literal["score", "regressor", "conffusion"] = Field("score", description="what is trained")
    start: str | None = Field(None, alias="from", description="the trained score network that conffusion starts from")
    miscoverage: float = Field(0.1, gt=0, lt=1, description="the quantiles of a regressor or conffusion, e.g. 0.1")
    weighting: Literal["paper", "edm"] = Field("edm", description="weights of noise levels in the loss of a score")
    data_deviation: float = Field(0.5, gt=0, description="deviation of the pixels, which scales a regressor")
    device: str | None = Field(None, description="'cpu' or 'cuda'; by default a GPU if there is one")

    @field_validator("augment")
    @classmethod
    def _augmentation(cls, name: str) -> str:
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

    def settings(self) -> Settings:
        """What the training loop takes."""
        values = {x.name: getattr(self, x.name) for x in fields(Settings)}
        return Settings(**values | {"augment": AUGMENTATIONS[self.augment]})


class Output(TomlSection):
    """[output]: where the run is kept."""

    folder: str = Field(description="the folder of states, log and network, e.g. 'runs/faces'")


class TrainSettings(TomlSection):
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


def _choice(value: str, names: Any) -> str:
    if value not in names:
        near = get_close_matches(value, names, 1)
        raise ValueError(f"did you mean {near[0]!r}?" if near else "there is no such name")
    return value
