"""Put networks' outputs on phantoms, and the score network, into the package: python -m reproduce.gpu.package FOLDER.

FOLDER is `work` of `python -m reproduce phantom --train --out DIR`: arrays as `material/NAME.npy`, what is told of
them in `material/figures.json`, and the network as `score/score.safetensors`.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np

from pixelbounds.demo import packaged
from pixelbounds.storage.files import replace_file
from reproduce.phantom_arrays import FILE, pack_arrays

ASKED = ("samples", "steps", "miscoverage", "sigma_0")  # what the demo must do with new phantoms
COUNT = 640  # more would not fit into a wheel of 5 MB


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
    replace_file(FILE, pack_arrays(arrays, figures))
    asked = {name: figures[name] for name in ASKED}
    data = packaged.pack_bands(arrays["lower"], arrays["upper"], arrays["fresh"][packaged.CALIBRATION :], asked)
    replace_file(packaged.bands_file(), data)
    shutil.copyfile(folder / "score" / "score.safetensors", packaged.network_file())
    size = packaged.network_file().stat().st_size
    print(f"{len(data) / 1e6:.2f} MB of bands of {len(made)} phantoms, {size / 1e6:.2f} MB of network in {target}")


if __name__ == "__main__":
    main()
