"""Put networks' outputs on phantoms, and the score network, into the package: python -m reproduce.gpu.package FOLDER.

FOLDER is `work` of `python -m reproduce phantom --train --out DIR`: arrays as `material/NAME.npy`, their figures
in `material/figures.json`, and the network as `score/score.safetensors`.
"""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pixelbounds.demo import packaged
from pixelbounds.storage.files import replace_file
from reproduce.phantom_arrays import FILE, FILTERS, pack_arrays

ASKED = ("samples", "steps", "miscoverage", "sigma_0")  # what the demo must do with new phantoms
COUNT = 640  # more would not fit into a wheel of 5 MB


def pack_bands(lower: np.ndarray, upper: np.ndarray, fresh: np.ndarray, about: Mapping[str, Any]) -> bytes:
    """Bands (n, h, w) and further samples of the last phantoms, (few, h, w), as differences from what is alike."""
    down, up = packaged.band_codes(lower, upper)
    sample = np.rint(np.clip(fresh, 0, 1).astype(np.float64) * packaged.COARSE).astype(np.int16)
    width, last = up - down, slice(len(lower) - len(fresh), None)
    parts = [
        (width - packaged.neighbours(width)).reshape(-1),
        (down - packaged.neighbours(down)).reshape(-1)[packaged.width_order(width)],
        (sample - (down + up)[last] // 4).reshape(-1)[packaged.width_order(width[last])],
    ]
    header = {"shape": lower.shape, "fresh": len(fresh), "figures": dict(about)}
    planes = b"".join(part.astype(np.uint8).tobytes() for part in parts)
    return lzma.compress(json.dumps(header).encode() + b"\n" + planes, filters=FILTERS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    arrays = {file.stem: np.load(file, allow_pickle=False) for file in (folder / "material").glob("*.npy")}
    told = json.loads((folder / "material" / "figures.json").read_text())
    figures = told | {name: told["score"][name] for name in ASKED}
    arrays = {name: x[:COUNT] for name, x in arrays.items()}
    made = packaged.some_phantoms(len(arrays["truth"]))
    if np.abs(made.images - arrays["truth"]).max() > 1e-6:
        raise SystemExit(f"{folder} was made of other phantoms than the package's; see pixelbounds.demo.packaged")
    if np.abs(packaged.observe(made.images)[:COUNT] - arrays["observation"]).max() > 1e-5:
        raise SystemExit(f"{folder} was made of other noise than the package's; see pixelbounds.demo.packaged")
    target = packaged.network_file().parent
    target.mkdir(exist_ok=True)
    asked = {name: figures[name] for name in ASKED}
    data = pack_bands(arrays["lower"], arrays["upper"], arrays["fresh"][packaged.CALIBRATION :], asked)
    replace_file(target / "bands.xz", data)
    replace_file(FILE, pack_arrays(arrays, figures, packaged.unpack_bands(data)[0]))
    shutil.copyfile(folder / "score" / "score.safetensors", packaged.network_file())
    size = packaged.network_file().stat().st_size
    print(f"{len(data) / 1e6:.2f} MB of bands of {len(made)} phantoms, {size / 1e6:.2f} MB of network in {target}")


if __name__ == "__main__":
    main()
