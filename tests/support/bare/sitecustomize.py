"""A machine with little but torch, numpy, numba, safetensors and Pillow: what it lacks cannot be imported.

For a process that has this folder first on its path, and for those that it starts.
"""

import sys
from importlib.abc import MetaPathFinder

LACKING = {"scipy", "pydantic", "lightgbm", "zarr", "dask", "matplotlib", "typer", "rich", "jinja2"}


class _Lacking(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in LACKING:
            raise ModuleNotFoundError(f"{name} is not on a GPU machine", name=name)


sys.meta_path.insert(0, _Lacking())
