"""Files and stores that are whole or not there: nothing here knows what an image is.

files.py      write aside and rename, hold a folder alone
sealed.py     text and arrays in one safetensors file with a checksum
chunks.py     chunks of arrays in files: read whole, or refused by name
plain.py      chunks that lie as in memory, read and written without zarr
growth.py     a store that is written block by block and goes on where it stopped
version.py    the version, which files record
"""
