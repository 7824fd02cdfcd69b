"""Files of networks and of training runs, sealed: no code runs when one is read, and a damaged one is an error.

A training run keeps two states, the newest and the one before; where the newest cannot be read the other serves, and
because training is a function of its state, a few steps are repeated and nothing else is lost.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..storage.files import replace_file, seal, unseal
from .architecture import NetworkConfig
from .lean import LeanUNet, network_of
from .members import Ensemble
from .network import NCSNpp
from .regression import QuantileNetwork
from .sde import VESDE

_FORMAT = 2
_NETWORK, _STATE = "diffusion network", "training state"
_KINDS = ("score", "regressor", "conffusion")


# ---------------------------------------------------------------- files


def write(path: str | Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write tensors and what is said about them under this name, all or nothing."""
    path = Path(path)
    arrays = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    finite = meta.get("what") != _STATE  # the least loss of a run without a look is infinite
    replace_file(path, seal({**meta, "format": _FORMAT}, arrays, finite=finite))


def file_bytes(path: str | Path, what: str = _NETWORK) -> bytes:
    """The bytes of a file, which must be there."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the path of a {what}, a .safetensors file")
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; give the path of a {what} that was saved")
    return path.read_bytes()


def read(path: str | Path, what: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and meta of a file of this package; a file that is damaged or something else is a ValueError."""
    data = file_bytes(path, what)
    again = f"use another copy of the {len(data)} bytes"
    remedy = f"give a saved {what}, or another copy"
    meta, arrays = unseal(data, str(path), what=what, remedy=remedy, again=again, finite=what != _STATE)
    if meta["format"] != _FORMAT:
        raise ValueError(f"{path} has format {meta['format']}, this version reads {_FORMAT}; update pixelbounds")
    if meta.get("what") != what:
        raise ValueError(f"{path} holds a {meta.get('what')}, not a {what}")
    return {name: torch.from_numpy(np.array(x)) for name, x in arrays.items()}, meta


# ---------------------------------------------------------------- networks


def save_network(
    path: str | Path,
    network: nn.Module,
    sde: VESDE,
    kind: str,
    extra: dict[str, Any] | None = None,
    *,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Save a network, or an ensemble of them, with the process it was trained for; `extra` is kept as JSON.

    dtype float16 halves the file. Only what was trained is rounded: the frequencies of the noise embedding are buffers
    and stay in float32, because a small error in one turns the phase at large |log sigma|.
    """
    members = network.members if isinstance(network, Ensemble) else [network]
    wanted = (NCSNpp, LeanUNet) if kind == "score" else QuantileNetwork
    if kind not in _KINDS or not all(isinstance(member, wanted) for member in members):
        raise ValueError(
            f"kind is {kind!r}, but a {type(network).__name__} is no {kind} network; an NCSNpp, a LeanUNet or an "
            "Ensemble of them is saved as score, a QuantileNetwork as regressor or conffusion"
        )
    trained = {name for name, _ in network.named_parameters()}  # an average of weights takes no gradient
    tensors = {}
    for name, tensor in network.state_dict().items():
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} holds NaN or infinite values: the training diverged; lower the learning rate")
        rounded = tensor.to(dtype) if name in trained and tensor.is_floating_point() else tensor
        if not bool(torch.isfinite(rounded).all()):
            raise ValueError(f"{name} does not fit into {dtype}; save with dtype=torch.float32")
        tensors[name] = rounded
    meta: dict[str, Any] = {"what": _NETWORK, "kind": kind, "config": asdict(network.config), "sde": asdict(sde)}
    if isinstance(network, QuantileNetwork):
        meta |= network.to_dict()
    if isinstance(network, Ensemble):
        meta["members"] = len(network.members)
    write(path, tensors, {**meta, "extra": extra or {}})


def load_network(
    path: str | Path, *, kind: str | None = None, device: Any = "cpu"
) -> tuple[nn.Module, VESDE, dict[str, Any]]:
    """The network in evaluation mode, in float32, its process and all that was kept with it; checks `kind` if given."""
    tensors, meta = read(path, _NETWORK)
    if meta.get("kind") not in _KINDS or not isinstance(meta.get("extra"), dict):
        raise ValueError(f"{path} has kind {meta.get('kind')!r} and extra {meta.get('extra')!r}; use another copy")
    if kind is not None and meta["kind"] != kind:
        raise ValueError(f"{path} holds a {meta['kind']} network, not a {kind} network")
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{path}: {name} holds {tensor.dtype}, NaN or infinite values; use another copy")
    try:
        config = NetworkConfig(**meta["config"])
        _check_size(config, _members(meta), tensors)
        with torch.device("meta"):  # shapes alone, which take no memory
            shapes = _built(config, meta).state_dict()
        sde = VESDE(**meta["sde"])
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError, RuntimeError) as error:
        raise ValueError(f"{path} has a configuration that this version cannot build: {error}") from error
    _check_tensors(shapes, tensors, str(path))
    network = _built(config, meta)
    network.load_state_dict(tensors)
    return network.to(device, memory_format=torch.channels_last).eval(), sde, meta


def check_device(device: str | None) -> str:
    """A device that torch can use; None: a GPU if there is one."""
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise ValueError(f"device is {device!r}; it must be cpu, cuda or cuda:0") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is {device!r}, but torch sees no GPU; use cpu, or install torch for your CUDA")
    return device


def _built(config: NetworkConfig, meta: dict[str, Any]) -> nn.Module:
    """A network as a file describes it, untrained."""
    if "members" in meta:
        return Ensemble([network_of(config) for _ in range(_members(meta))])
    network = network_of(config)
    if meta["kind"] == "score":
        return network
    deviation = inf if meta["data_deviation"] is None else meta["data_deviation"]
    return QuantileNetwork(network, meta["heads"], data_deviation=deviation)


def _members(meta: dict[str, Any]) -> int:
    """How many networks a file says to hold."""
    count = meta.get("members", 1)
    if meta.get("symmetries", "none") != "none":
        raise ValueError("it averages over symmetries, which this version does not; make the ensemble again")
    if type(count) is not int or count < 1 or ("members" in meta and meta["kind"] != "score"):
        raise ValueError(f"it has {count!r} members of kind {meta['kind']}; an ensemble has score networks")
    return count


def _check_size(config: NetworkConfig, members: int, tensors: dict[str, Tensor]) -> None:
    """A configuration describes no more layers, and no wider ones, than a file has tensors for."""
    each = 6 if config.design == "lean" else 10  # tensors of a block, at least; every level has its blocks twice
    layers = 2 * each * config.blocks * len(config.multipliers) * members
    widest = max(4 * config.base, config.base * max(config.multipliers), config.channels, config.out_channels or 1)
    most = max((extent for tensor in tensors.values() for extent in tensor.shape), default=0)
    if layers > len(tensors) or widest > most:
        raise ValueError(
            f"it describes {layers} tensors and more, up to {widest} wide, but does not fit the network that the file "
            f"holds: {len(tensors)} tensors, up to {most} wide"
        )


def _check_tensors(network: Mapping[str, Tensor], stored: Mapping[str, Tensor], source: str) -> None:
    """Stored tensors have the names and shapes of a network's; anything else is a ValueError that names the first."""
    for name in [*network, *stored]:
        there, here = (tuple(x[name].shape) if name in x else "missing" for x in (stored, network))
        if there != here or there == "missing":
            raise ValueError(
                f"{source} does not fit the network: {name} is {there} in the file and {here} in the network; use the "
                "configuration it was saved with"
            )


# ---------------------------------------------------------------- training states


def state_files(folder: str | Path) -> tuple[Path, Path]:
    """Where a run keeps its newest state and the one before."""
    return Path(folder) / "state.safetensors", Path(folder) / "state.previous.safetensors"


def save_state(folder: str | Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write a training state and keep the one before it, unless that one can no longer be read."""
    newest, previous = state_files(folder)
    aside = newest.with_name("state.next.safetensors")
    write(aside, tensors, {**meta, "what": _STATE})
    with suppress(FileNotFoundError, ValueError):  # where it cannot be read `previous` may be the only good one
        read(newest, _STATE)
        os.replace(newest, previous)
    os.replace(aside, newest)


def load_state(folder: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest readable state, or None where there is none yet; an unreadable newest one is passed over aloud."""
    failures = []
    for path in state_files(folder):
        if path.exists():
            try:
                state = read(path, _STATE)
            except ValueError as error:
                failures.append(str(error))
                continue
            if failures:
                warnings.warn(f"{failures[0]}; resuming from {path}", stacklevel=2)
            return state
    if failures:
        raise ValueError("no state can be read: " + "; ".join(failures) + f"; remove {folder} to start again")
    return None
