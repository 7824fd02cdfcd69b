"""Files and stores that are whole or not there: nothing here knows what an image is.

files.py      write aside and rename, hold what one process writes, seal text and arrays under a checksum
folders.py    write a folder aside and swap it for the one of its name
chunks.py     chunks of arrays in files: read whole or refused by name, written aside
expansion.py  how much a packed chunk unpacks to, told before
digests.py    of what was read
growth.py     a store that is written block by block and goes on where it stopped
version.py    the version, which files record
"""
