"""All draws of an experiment as one JSON: configuration, seed, commits, versions, machine, and every record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pixelbounds.storage.files import replace_file

from .experiment import Experiment
from .ledger import Ledger, PartsDone, Teller, cores
from .material import BANDS, Material
from .rows import BAND_NAMES

RESULTS_FORMAT = 2


def run_experiment(
    experiment: Experiment,
    material: Material,
    out: str | Path,
    *,
    fresh: bool = False,
    workers: int | None = 1,
    tell: Teller = lambda line: None,
    progress: PartsDone = lambda done, total, next_: None,
) -> Path:
    """Compute what is missing of an experiment and write `results.json`; returns its path.

    `workers` processes share the work where the material can be loaded by its source; None is one per core.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    for band in BANDS:
        if material.missing(band):
            tell(f"no rows for {BAND_NAMES[band]}: the material lacks {', '.join(material.missing(band))}")
    parts = Ledger(experiment, material, out).complete(fresh=fresh, workers=workers, tell=tell, progress=progress)
    records = [{"draw": part["draw"], **record} for part in parts for record in part["records"]]
    found = {
        "format": RESULTS_FORMAT,
        "experiment": experiment.name,
        "configuration": experiment.as_dict(),
        "seed": experiment.draws.seed,
        "material": {
            "digest": material.digest,
            "images": len(material),
            "units": int(material.unit.max()) + 1,
            "pixels": list(material.truth.shape[1:]),
            "arrays": sorted(material.arrays),
            "figures": dict(material.figures),
        },
        "made": _together([part["made"] for part in parts]),
        "machine": _machine(),
        "records": [r for r in records if "row" in r],
        "curves": [r for r in records if "curve" in r],
    }
    path = out / "results.json"
    replace_file(path, _text(found).encode())
    return path


def _text(found: dict[str, Any]) -> str:
    """JSON with one record per line, so that a difference between two files can be read."""
    text = json.dumps({name: x for name, x in found.items() if name not in ("records", "curves")}, indent=1)
    for name in ("records", "curves"):
        lines = ",\n  ".join(json.dumps({k: _short(x) for k, x in record.items()}) for record in found[name])
        text = f'{text[:-2]},\n "{name}": [\n  {lines}\n ]\n}}'
    return text + "\n"


def _short(x: Any) -> Any:
    return round(x, 8) if isinstance(x, float) else x


def load_results(path: str | Path) -> dict[str, Any]:
    """The JSON that `run` wrote."""
    path = Path(path)
    path = path / "results.json" if path.is_dir() else path
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise FileNotFoundError(f"{path} cannot be read; run `python -m reproduce NAME` first") from error
    except ValueError as error:
        raise ValueError(f"{path} is no JSON ({error}); run `python -m reproduce NAME` again") from error
    if not isinstance(found, dict) or found.get("format") != RESULTS_FORMAT:
        version = f"of this version (format {RESULTS_FORMAT})"
        raise ValueError(f"{path} is no results.json {version}; reproduce the experiment again")
    return found


def _together(made: list[dict[str, Any]]) -> dict[str, Any]:
    """Commits and versions of all parts; usually one of each."""
    versions = [m["versions"] for m in made]
    names = sorted({name for v in versions for name in v})
    return {
        "commits": sorted({m["commit"] for m in made}),
        "versions": {name: sorted({v.get(name, "unknown") for v in versions}) for name in names},
    }


def _machine() -> dict[str, Any]:
    cpu = ""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        cpu = next((x.split(":")[1].strip() for x in info.read_text().splitlines() if "model name" in x), "")
    return {"cpu": cpu, "cores": cores()}
