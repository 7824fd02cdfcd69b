"""The paper's experiments: one TOML file each, one command each, `pixelbounds reproduce NAME`.

plan.py       a TOML file -> Plan: task, draws, grids, and how the networks are trained and sampled
material.py   a folder, .npz or .zarr of ready arrays -> Material: truth, and the bands of every notion of uncertainty
pipeline.py   images -> material, through training and sampling
rows.py       the rows of Table 1 and ours: which band, which method, which bound
fitting.py    one split of the calibration images: paths that are fitted once and certified with several bounds
draws.py      one draw of calibration and validation images -> what each row gives
ledger.py     finished draws on disk: never computed twice
results.py    all draws -> one JSON with configuration, seed, commit, versions
tables.py     that JSON -> summaries, paired differences, Markdown and LaTeX
charts.py     that JSON -> figures; pictures.py: material -> figures that show images; drawing.py: what they share
page.py       JSONs of several experiments -> docs/results.md
reproduce.py  all of it, from a name to tables and figures

Tables and figures are made from the JSON alone, figures that show images from the material too.
"""

from .experiment import EXPERIMENTS, Plan, load_plan
from .material import Material, load_material

__all__ = ["EXPERIMENTS", "Material", "Plan", "load_material", "load_plan"]
