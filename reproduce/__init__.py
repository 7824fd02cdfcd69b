"""The paper's experiments: one TOML file each, one command each, `python -m reproduce NAME`.

experiment.py      a TOML file -> Experiment: task, draws, grids, and how the networks are trained and sampled
material.py        a folder, .npz or .zarr of ready arrays -> Material: truth, and the bands of every uncertainty
celeba.py          CelebA as published -> images; abdomen.py: AbdomenCT-1K
pipeline.py        images -> material, through training and sampling
rows.py            the rows of Table 1 and ours: which band, which method, which bound
fits.py            one split of the calibration images: paths fitted once and certified with several bounds
draws.py           one draw of calibration and validation images -> the result of each row
ledger.py          finished draws on disk: never computed twice
results.py         all draws -> one JSON with configuration, seed, commit, versions
summaries.py       that JSON -> summaries, paired differences, Markdown and LaTeX
result_figures.py  that JSON -> figures; image_figures.py: material -> figures that show images
results_page.py    JSONs of several experiments -> docs/results/
campaign.py        all of it, from a name to tables and figures

Tables and figures are made from the JSON alone, figures that show images from the material too.
"""
