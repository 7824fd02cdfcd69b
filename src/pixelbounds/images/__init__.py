"""Images as arrays: the first axis counts n images, what follows are pixels of any shape.

A `Band` is what a model says before calibration (a lower and an upper image, perhaps a centre); an `Interval` is what a
calibration returns. Both hold arrays as the user gave them, which are read block by block.

ragged.py     images of different sizes, in memory and on disk
library.py    arrays of any library, of one size or many, in blocks; how passes over blocks run
checks.py     checks at the door: numbers, names and limits; shapes and values of images
ends.py       Band and Interval, whose values are checked as they are read
"""

from .checks import (
    ImageError,
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
    check_units,
    check_values,
    numbered,
    own_limits,
)
from .ends import Band, Interval, check_features, check_range, one_band, outward, trusted_band
from .library import (
    Array,
    Runner,
    alike,
    as_array,
    block_of,
    current_runner,
    cut_rows,
    differ_in_size,
    in_file,
    in_memory,
    in_threads,
    itemsize,
    library_of,
    like,
    over_images,
    places_for,
    rows_of,
    set_runner,
    singly,
    size_of,
    sizes_of,
    spatial_axes,
    to_numpy,
)
from .ragged import Ragged

__all__ = [
    "Array",
    "Band",
    "ImageError",
    "Interval",
    "Limits",
    "NoGuarantee",
    "Ragged",
    "Runner",
    "alike",
    "as_array",
    "block_of",
    "check_choice",
    "check_count",
    "check_features",
    "check_generator",
    "check_limits",
    "check_number",
    "check_open_unit",
    "check_ordered",
    "check_range",
    "check_same_shape",
    "check_units",
    "check_values",
    "current_runner",
    "cut_rows",
    "differ_in_size",
    "in_file",
    "in_memory",
    "in_threads",
    "itemsize",
    "library_of",
    "like",
    "numbered",
    "one_band",
    "outward",
    "over_images",
    "own_limits",
    "places_for",
    "rows_of",
    "set_runner",
    "singly",
    "size_of",
    "sizes_of",
    "spatial_axes",
    "to_numpy",
    "trusted_band",
]
