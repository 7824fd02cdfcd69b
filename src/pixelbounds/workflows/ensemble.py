"""Join trained score networks into an ensemble, one file that `sample` takes like any network."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..formats.arrays import FilePath
from ..formats.opener import check_target
from ..storage.version import VERSION

_SHARED = ("limits", "sigma_0", "sigma_top")  # what files of like networks say alike


def combine_networks(networks: Sequence[FilePath], out: FilePath, *, replace: bool = False) -> Path:
    """Write the ensemble of some score networks to one file.

    Members have one configuration, one process, and were trained on images of the same limits for the same noise. The
    file keeps the digest of each.
    """
    from ..diffusion.checkpoint import load_network, save_network
    from ..diffusion.members import Ensemble

    target = check_target(out, (".safetensors",), replace=replace, inputs=networks)
    paths = [Path(network) for network in networks]
    digests: dict[str, Path] = {}
    members: list[Any] = []
    first: dict[str, Any] = {}
    for path in paths:
        network, sde, meta = load_network(path, kind="score")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest in digests:
            raise ValueError(f"{path} and {digests[digest]} are the same network; give each once")
        if isinstance(network, Ensemble):
            raise ValueError(f"{path} is an ensemble already; give the networks that it was made of")
        like = {"noise levels": (sde.sigma_min, sde.sigma_max), **{name: meta["extra"].get(name) for name in _SHARED}}
        first = first or like
        if like != first:
            raise ValueError(
                f"{path} was trained for {_words(like)}, {paths[0]} for {_words(first)}; join networks of one kind"
            )
        digests[digest] = path
        members.append(network)
    if not members:
        raise ValueError("no network is given; give at least one")
    ensemble = Ensemble(members).eval()
    extra = {**{name: first[name] for name in _SHARED}, "networks": list(digests), "version": VERSION}
    save_network(target, ensemble, sde, "score", extra)
    return target


def _words(like: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in like.items())
