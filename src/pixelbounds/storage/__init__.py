"""Files and stores that are whole or not there: nothing here knows what an image is.

files.py    write files and folders aside and rename them, hold what one process writes, seal text and arrays
chunks.py   chunks of arrays in files: read whole or refused by name; which codecs are allowed
store.py    the one resumable store: blocks, marks, request, digests of what was read; images of different sizes, too
version.py  the version, which files record
"""
