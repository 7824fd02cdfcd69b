"""Images as arrays: the first axis counts n images, what follows are pixels of any shape.

A `Band` is what a model says before calibration (a lower and an upper image, perhaps a centre); an `Interval` is what a
calibration returns. Both hold arrays as the user gave them, which are read block by block.

ragged.py     images of different sizes, in memory and on disk
foreign.py    arrays from elsewhere: masked, labelled (xarray), with units; what becomes of them
library.py    arrays of any library, of one size or many, in blocks; how passes over blocks run
checks.py     checks at the door: numbers, names and limits; shapes and values of images
source.py     how a band was made; measure.py: what numbers stand for
ends.py       Band and Interval, whose values are checked as they are read
regions.py    regions that a promise can be about: body, edges, labels, and what lies near them
"""
