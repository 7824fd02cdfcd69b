"""Arrays, zarr, pictures, NIfTI, DICOM: one way to open, one to write.

opener.py      whatever lies at a path -> Images; which names may be written
arrays.py      .npy, .npz, .zarr: arrays by name, and how files are read
inputs.py      truth, bands, intervals and units in files
maps.py        intervals into files: .zarr, .npz, and maps in the space of the images; what goes along of people
scans.py       what every reader returns and every writer takes: images, units, windows, the space they lie in
pictures.py    folders and zips of pictures
nifti.py       volumes as slices, and back
dicom.py       series as slices; segmentations.py: DICOM segmentations as labels
dicom_maps.py  maps as secondary captures, Parametric Maps and segmentations; dicom_report.py: a report of them
dicomweb.py    series of an archive, and maps into it
label_maps.py  label maps and masks beside the images
"""

from .maps import write_interval
from .opener import open_images
from .scans import ABDOMEN, Geometry, Images, Scan, Window

__all__ = [
    "ABDOMEN",
    "Geometry",
    "Images",
    "Scan",
    "Window",
    "open_images",
    "write_interval",
]
