"""Images as arrays: the first axis counts n images, what follows are pixels of any shape.

Images of different sizes are a `Ragged`, a list of arrays, which is read one image at a time. A `Band` is what a model
says before calibration (a lower and an upper image, perhaps a centre); an `Interval` is what a calibration returns.
Both hold NumPy arrays, torch tensors, zarr or Dask arrays as the user gave them; the rooms below read them block by
block through `rows_of`.

library.py    arrays of any library, whole or in blocks of images
checks.py     checks at the door: numbers, names and limits; shapes and values of images
ends.py       Band and Interval, whose values are checked as they are read
"""

from .checks import (
    Limits,
    NoGuarantee,
    check_choice,
    check_count,
    check_generator,
    check_limits,
    check_number,
    check_open_unit,
    check_ordered,
    check_same_shape,
    check_values,
    own_limits,
)
from .ends import Band, Interval, one_band, outward, trusted_band
from .library import READER, Array, as_array, library_of, like, over_images, rows_of, sizes_of, spatial_axes, to_numpy
from .ragged import Ragged

__all__ = [
    "READER",
    "Array",
    "Band",
    "Interval",
    "Limits",
    "NoGuarantee",
    "Ragged",
    "as_array",
    "check_choice",
    "check_count",
    "check_generator",
    "check_limits",
    "check_number",
    "check_open_unit",
    "check_ordered",
    "check_same_shape",
    "check_values",
    "library_of",
    "like",
    "one_band",
    "outward",
    "over_images",
    "own_limits",
    "rows_of",
    "sizes_of",
    "spatial_axes",
    "to_numpy",
    "trusted_band",
]
