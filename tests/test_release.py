"""A release: the wheel, installed into an environment that holds what it requires and nothing else, does its work.

Nothing is downloaded: the environment links to the packages that are installed here, those that the wheel requires and
those that these require, so an import that needs an extra fails as it would for a user.
"""

import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pixelbounds.storage.version import VERSION

pytest.importorskip("build")

ROOT = Path(__file__).parents[1]
EXTRAS = ("torch", "nibabel", "pydicom", "cvxpy", "distributed", "mkdocs", "pytest")

USE = """
import sys, importlib.util
import numpy as np
import pixelbounds as pb
assert not [name for name in {extras} if importlib.util.find_spec(name)], "an extra is installed here"
assert pb.__version__ == "{version}" and "{venv}" in pb.__file__, pb.__file__
for name in pb.__all__:
    getattr(pb, name)
rng = np.random.default_rng(0)
centre = rng.uniform(0.3, 0.7, (60, 8, 8))
truth = centre + 0.05 * rng.standard_normal(centre.shape)
band = pb.Band(centre - 0.05, centre + 0.05)
cal = pb.calibrate(truth[:50], band[:50], risk_level=0.2, method="rcps")
cal.save("cal.safetensors")
interval = pb.load_calibration("cal.safetensors").apply(band[50:])
print(pb.evaluate(truth[50:], interval).risk)
np.savez("bands.npz", lower=band.lower[50:], upper=band.upper[50:])
"""

SAMPLE = """
import numpy as np, torch
import pixelbounds
from pixelbounds.demo.packaged import SIGMA_0, network_file, observe, some_phantoms
from pixelbounds.diffusion import sample
from pixelbounds.diffusion.checkpoint import load_network
assert "{venv}" in pixelbounds.__file__ and "{venv}" in str(network_file())
network, sde, _ = load_network(network_file(), kind="score")
truth = some_phantoms(1).images
noisy = torch.from_numpy(observe(truth))[:, None]
(drawn,) = sample(network, noisy, SIGMA_0, sde, samples=2, steps=4, seed=0)
error = float(np.sqrt(np.mean((drawn.numpy().mean(axis=0) - truth) ** 2)))
assert error < SIGMA_0 / 2, error
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and sdist."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return wheel, sdist


def test_the_wheel_is_small_and_holds_the_package_alone(built):
    assert built[0].stat().st_size < 5e6
    with zipfile.ZipFile(built[0]) as wheel:
        assert {name.split("/")[0].split("-")[0] for name in wheel.namelist()} == {"pixelbounds"}


def required(requirements):
    """Distributions of some requirements, with all that these require, by name."""
    found, waiting = {}, [Requirement(line) for line in requirements]
    while waiting:
        one = waiting.pop()
        name = one.name.lower().replace("_", "-")
        seen = name in found
        found[name] = metadata.distribution(name)
        if not seen or one.extras:
            waiting += [other for line in found[name].requires or [] if holds(other := Requirement(line), one.extras)]
    return found


def holds(requirement, extras):
    """Whether a requirement is meant here, with some extras of the package that has it."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def link(distributions, folder):
    """Make distributions that are installed here importable there."""
    for one in distributions.values():
        for top in {Path(file).parts[0] for file in one.files or [] if ".." not in Path(file).parts}:
            place = folder / top
            if not place.exists() and top != "__pycache__":
                place.symlink_to(Path(one.locate_file(top)))


@pytest.fixture(scope="module")
def empty(built, tmp_path_factory):
    """An environment with the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("user") / "venv"
    venv.create(folder, with_pip=False)
    (place,) = (folder / "lib").glob("python*/site-packages")
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", built[0]]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    told = next(place.glob("pixelbounds-*.dist-info"))
    lines = metadata.Distribution.at(told).requires
    core = [line for line in lines if holds(Requirement(line), ())]
    link(required(core), place)
    return folder, lines


def run(folder, script):
    """What a script of a user prints, in an environment that sees nothing of this one."""
    text = script.format(extras=EXTRAS, venv=folder, version=VERSION)
    process = subprocess.run(
        [folder / "bin" / "python", "-I", "-c", text], capture_output=True, text=True, cwd=folder.parent
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_the_wheel_alone_calibrates_and_its_command_works(empty):
    folder, _ = empty
    assert 0 <= float(run(folder, USE)) < 0.3
    command = [folder / "bin" / "pixelbounds", "apply", "cal.safetensors", "bands.npz", "--out", "out.npz", "--json"]
    process = subprocess.run(command, capture_output=True, text=True, cwd=folder.parent, env={"PATH": "/usr/bin"})
    assert process.returncode == 0, process.stderr
    assert (folder.parent / "out.npz").exists()


def test_with_torch_the_packaged_network_draws(empty):
    folder, lines = empty
    (place,) = (folder / "lib").glob("python*/site-packages")
    link(required([line for line in lines if holds(Requirement(line), ("diffusion",))]), place)
    run(folder, SAMPLE)


def test_wheel_and_sdist_are_whole(built):
    wheel, sdist = built
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in ("py.typed", "demo/embedded/score.safetensors", "report/page.html", "report/house.mplstyle"):
        assert f"pixelbounds/{name}" in names
    assert not [name for name in names if not name.startswith("pixelbounds")]
    with tarfile.open(sdist) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    assert {"README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "mkdocs.yml", "pages/hooks.py"} <= inside


def test_the_metadata_are_complete(built):
    with zipfile.ZipFile(built[0]) as wheel:
        (place,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
        told = metadata.PathDistribution(zipfile.Path(wheel, f"{Path(place).parent}/")).metadata
    assert told["Version"] == VERSION
    assert told["License-Expression"] == "MIT"
    assert told["Author"]
    assert "Typing :: Typed" in told.get_all("Classifier")
    assert f"version: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {VERSION} " in (ROOT / "CHANGELOG.md").read_text()
