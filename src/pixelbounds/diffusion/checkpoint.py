"""Files of networks and of training runs, sealed: no code runs when one is read, and a damaged one is told.

A training run keeps two states, the newest and the one before; where the newest cannot be read the other serves, and
because training is a function of its state, a few steps are repeated and nothing else is lost.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..storage.files import replace_file, seal, unseal
from .architecture import NetworkConfig
from .designs import network_of
from .lean import LeanUNet
from .members import Ensemble
from .network import NCSNpp
from .regression import QuantileNetwork
from .sde import VESDE

_FORMAT = 2
_NETWORK, _STATE = "diffusion network", "training state"
_NETWORKS = (NCSNpp, LeanUNet)
_KINDS = ("score", "regressor", "conffusion")


# ---------------------------------------------------------------- files


def write(path: str | Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write tensors and what is said about them under this name, all or nothing."""
    path = Path(path)
    arrays = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    finite = meta.get("what") != _STATE  # the least loss of a run without a look is infinite
    replace_file(path, seal({**meta, "format": _FORMAT}, arrays, finite=finite))


def read(path: str | Path, what: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and meta of a file of this package; a file that is damaged or something else is a ValueError."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the path of a {what}, a .safetensors file")
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; give the path of a {what} that was saved")
    data = path.read_bytes()
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
    if kind not in _KINDS:
        raise ValueError(f"kind is {kind!r}; choose one of {', '.join(_KINDS)}")
    if dtype not in (torch.float16, torch.float32):
        raise ValueError(f"dtype is {dtype}; weights are stored in float16 or float32")
    scores = isinstance(network, _NETWORKS) or (isinstance(network, Ensemble) and _of_networks(network))
    if (kind == "score") != scores:
        kinds = (
            "a network of `network_of`, or an Ensemble, is saved as score, a QuantileNetwork as regressor or conffusion"
        )
        raise ValueError(f"a {type(network).__name__} is no {kind} network; {kinds}, and nothing else is")
    trained = {name for name, _ in network.named_parameters()}  # an average of weights takes no gradient
    tensors = {}
    for name, tensor in network.state_dict().items():
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} holds NaN or infinite values: the training diverged; lower the learning rate")
        rounded = tensor.to(dtype) if name in trained and tensor.is_floating_point() else tensor
        if not bool(torch.isfinite(rounded).all()):
            raise ValueError(f"{name} does not fit into {dtype}; save with dtype=torch.float32")
        tensors[name] = rounded
    meta: dict[str, Any] = {"what": _NETWORK, "kind": kind, "config": network.config.to_dict(), "sde": asdict(sde)}
    if isinstance(network, QuantileNetwork):
        meta |= network.to_dict()
    if isinstance(network, Ensemble):
        meta |= {"members": len(network.members), "symmetries": network.symmetries}
    write(path, tensors, {**meta, "extra": extra or {}})


def _of_networks(ensemble: Ensemble) -> bool:
    return all(isinstance(member, _NETWORKS) for member in ensemble.members)


def load_network(
    path: str | Path, *, kind: str | None = None, device: Any = "cpu"
) -> tuple[nn.Module, VESDE, dict[str, Any]]:
    """The network in evaluation mode, in float32, its process and all that was kept with it; checks `kind` if given."""
    tensors, meta = read(path, _NETWORK)
    if meta.get("kind") not in _KINDS or not isinstance(meta.get("extra"), dict):
        raise ValueError(
            f"{path} says of itself kind {meta.get('kind')!r} and extra {meta.get('extra')!r}; use another copy"
        )
    if kind is not None and meta["kind"] != kind:
        raise ValueError(f"{path} holds a {meta['kind']} network, not a {kind} network")
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{path}: {name} holds {tensor.dtype}, NaN or infinite values; use another copy")
    try:
        config = NetworkConfig.from_dict(meta["config"])
        _check_size(config, _members(meta), tensors)
        with torch.device("meta"):  # shapes alone, which take no memory
            shapes = _built(config, meta).state_dict()
        sde = VESDE(**meta["sde"])
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError, RuntimeError) as error:
        raise ValueError(f"{path} has a configuration that this version cannot build: {error}") from error
    check_tensors(shapes, tensors, str(path))
    network = _built(config, meta)
    load_tensors(network, tensors, str(path))
    return network.to(device, memory_format=torch.channels_last).eval(), sde, meta


def _built(config: NetworkConfig, meta: dict[str, Any]) -> nn.Module:
    """A network as a file describes it, untrained."""
    if "members" in meta:
        return Ensemble([network_of(config) for _ in range(_members(meta))], meta["symmetries"])
    network = network_of(config)
    if meta["kind"] == "score":
        return network
    deviation = inf if meta["data_deviation"] is None else meta["data_deviation"]
    return QuantileNetwork(network, meta["heads"], data_deviation=deviation)


def _members(meta: dict[str, Any]) -> int:
    """How many networks a file says to hold."""
    count = meta.get("members", 1)
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


def check_tensors(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor], source: str) -> None:
    """Tensors have the names and shapes of a network's own; anything else is a ValueError that names the first."""
    for name in [*own, *tensors]:
        here, there = own.get(name), tensors.get(name)
        if here is None or there is None or here.shape != there.shape:
            shapes = [None if x is None else tuple(x.shape) for x in (there, here)]
            raise ValueError(
                f"{source} does not fit the network: {name} is {shapes[0] or 'missing'} in the file and "
                f"{shapes[1] or 'missing'} in the network; use the configuration it was saved with"
            )


def load_tensors(network: nn.Module, tensors: dict[str, Tensor], source: str) -> None:
    """Put tensors into a network of the same names and shapes; anything else is a ValueError."""
    check_tensors(network.state_dict(), tensors, source)
    network.load_state_dict(tensors)


# ---------------------------------------------------------------- training states


def state_files(folder: str | Path) -> tuple[Path, Path]:
    """Where a run keeps its newest state and the one before."""
    return Path(folder) / "state.safetensors", Path(folder) / "state.previous.safetensors"


def save_state(folder: str | Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write a training state and keep the one before it, unless that one can no longer be read."""
    newest, previous = state_files(folder)
    aside = newest.with_name("state.next.safetensors")
    write(aside, tensors, {**meta, "what": _STATE})
    if newest.exists() and _readable(newest):  # else `previous` may be the only good one
        os.replace(newest, previous)
    os.replace(aside, newest)


def _readable(path: Path) -> bool:
    try:
        read(path, _STATE)
    except ValueError:
        return False
    return True


def load_state(folder: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest readable state, or None where there is none yet; an unreadable newest one is passed over aloud."""
    newest, previous = state_files(folder)
    failures = []
    for path in (newest, previous):
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
        raise ValueError("no state can be read: " + "; ".join(failures) + f"; remove {folder} to start anew")
    return None
