"""Join trained score networks into an ensemble, one file that `sample` takes like any network."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..storage.version import VERSION

if TYPE_CHECKING:
    from ..diffusion.sde import VESDE

_SHARED = ("limits", "sigma_0", "sigma_top")  # what files of like networks say alike


def combine_networks(
    networks: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    symmetries: str = "none",
    replace: bool = False,
) -> Path:
    """Write the ensemble of some score networks, or of one network and its mirrored or turned images, to one file.

    Members have one configuration, one process, and were trained on images of the same limits for the same noise. The
    file keeps the digest of each.
    """
    from ..diffusion.checkpoint import load_network, save_network
    from ..diffusion.members import Ensemble

    target = Path(out)
    if target.exists() and not replace:
        raise FileExistsError(f"{target} exists; choose another name, or replace it with --force")
    paths = [Path(network) for network in networks]
    digests: dict[str, Path] = {}
    members: list[Any] = []
    first: tuple[VESDE, dict[str, Any]] | None = None
    for path in paths:
        network, sde, meta = load_network(path, kind="score")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest in digests:
            raise ValueError(f"{path} and {digests[digest]} are the same network; give each once")
        if isinstance(network, Ensemble):
            raise ValueError(f"{path} is an ensemble already; give the networks that it was made of")
        settings = {name: meta["extra"].get(name) for name in _SHARED}
        first = (sde, settings) if first is None else first
        if (sde, settings) != first:
            raise ValueError(
                f"{path} was trained for {_words(sde, settings)}, {paths[0]} for {_words(*first)}; "
                "join networks of one kind"
            )
        digests[digest] = path
        members.append(network)
    if first is None:
        raise ValueError("no network is given; give at least one")
    ensemble = Ensemble(members, symmetries).eval()
    extra = {**first[1], "networks": list(digests), "version": VERSION}
    save_network(target, ensemble, first[0], "score", extra)
    return target


def _words(sde: VESDE, settings: dict[str, Any]) -> str:
    levels = {"noise levels": (sde.sigma_min, sde.sigma_max)}
    return ", ".join(f"{name} {value}" for name, value in (levels | settings).items())
