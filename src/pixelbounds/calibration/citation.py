"""What to cite for a calibration: the paper, and the method, bound and sampler that were used (works.bib)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files

_PAPER, _JOINT = "teneggi2023trust", "angelopoulos2021learn"
_WORKS = {  # of names in a calibration
    "rcps": ("bates2021distribution",),
    "betting": ("waudbysmith2024estimating",), "anytime": ("waudbysmith2024estimating",),
    "hoeffding_bentkus": ("bates2021distribution", "hoeffding1963probability", "bentkus2004hoeffding"),
    "hoeffding": ("hoeffding1963probability",), "bentkus": ("bentkus2004hoeffding",),
    "empirical_bernstein": ("maurer2009empirical",), "conformal": ("angelopoulos2024conformal",),
    "heun": ("song2021score", "karras2022elucidating"), "reverse_sde": ("song2021score",),
    "predictor_corrector": ("song2021score",), "euler_maruyama": ("song2021score",),
    "mmps": ("rozet2024learning",), "pigdm": ("song2023pseudoinverse",), "dps": ("chung2023diffusion",),
}  # fmt: skip


def citation(names: Iterable[str], several: bool) -> str:
    """BibTeX of the paper and of the methods, bounds and samplers in these names; `several`: of joint promises, too."""
    words = re.findall(r"\w+", " ".join(names))
    keys = {_PAPER, *(key for word in words for key in _WORKS.get(word, ()))} | ({_JOINT} if several else set())
    works = files(__package__).joinpath("works.bib").read_text("utf-8").strip().split("\n\n")
    return "\n\n".join(work for work in works if work.partition("{")[2].partition(",")[0] in keys)
