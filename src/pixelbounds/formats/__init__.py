"""Arrays, zarr, pictures, NIfTI, DICOM: one way to open, one to write.

opener.py      whatever lies at a path -> Images; an interval back into the same space
scans.py       what every reader returns and every writer takes: images, units, windows, the space they lie in
arrays.py      .npy, .npz, .zarr             pictures.py    folders and zips of pictures
nifti.py       volumes as slices, and back   dicom.py       series as slices; captures.py: maps as secondary captures
maps.py        intervals into files          runs.py        what `pixelbounds sample` wrote
stores.py      arrays by name at a path      inputs.py      truth, bands, intervals, units and labels in files
outputs.py     names that may be written     cache.py       a large array that is made once
"""

from .opener import open_images, write_interval
from .scans import ABDOMEN, Geometry, Images, Progress, Scan, Window, split_units

__all__ = [
    "ABDOMEN",
    "Geometry",
    "Images",
    "Progress",
    "Scan",
    "Window",
    "open_images",
    "split_units",
    "write_interval",
]
