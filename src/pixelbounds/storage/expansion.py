"""How much a packed chunk unpacks to, told before it is unpacked: a few bytes may stand for gigabytes.

Formats that tell their size in a header are asked; those that do not are unpacked a piece at a time, up to what is
allowed, and what comes out is thrown away. A codec that is not known here is taken at its word.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import Any

_BLOCK = 2**17  # bytes that a block of zstd holds at most
_PIECE = 2**20
_ZSTD = b"\x28\xb5\x2f\xfd"
_SKIPPED = range(0x184D2A50, 0x184D2A60)  # magic numbers of zstd's frames that hold no data
_STREAMS: dict[str, Any] = {
    "gzip": lambda: zlib.decompressobj(31),
    "zlib": lambda: zlib.decompressobj(15),
    "bz2": bz2.BZ2Decompressor,
    "lzma": lzma.LZMADecompressor,
}


def expands_beyond(codec: str, packed: bytes, most: int) -> bool:
    """Whether a packed chunk unpacks to more than so many bytes.

    >>> expands_beyond("gzip", __import__("gzip").compress(bytes(5000)), 4000)
    True
    """
    if codec == "zstd":
        return _zstd_size(packed) > most + _BLOCK
    if codec == "blosc":
        return int.from_bytes(packed[4:8], "little") > most
    if codec == "lz4":
        return int.from_bytes(packed[:4], "little") > most
    if codec in _STREAMS:
        return _streamed_beyond(codec, packed, most)
    return False


def _streamed_beyond(codec: str, packed: bytes, most: int) -> bool:
    total = 0
    rest = packed
    try:
        while rest and total <= most:  # streams may follow one another
            stream = _STREAMS[codec]()
            while not stream.eof and total <= most:
                piece = stream.decompress(rest, _PIECE)
                rest = getattr(stream, "unconsumed_tail", b"")  # the others keep what they did not use
                total += len(piece)
                if not piece and not rest and not stream.eof:
                    return total > most  # cut short
            rest = stream.unused_data
    except (zlib.error, OSError, EOFError, lzma.LZMAError):
        pass  # whoever unpacks it will say what is wrong
    return total > most


def _zstd_size(packed: bytes) -> int:
    """Bytes of all frames; a frame that does not tell is taken for full blocks."""
    total = at = 0
    while at + 5 <= len(packed):
        if int.from_bytes(packed[at : at + 4], "little") in _SKIPPED:
            at += 8 + int.from_bytes(packed[at + 4 : at + 8], "little")
            continue
        if packed[at : at + 4] != _ZSTD:
            break
        flags = packed[at + 4]
        single = flags >> 5 & 1
        size_bytes = (single, 2, 4, 8)[flags >> 6]
        checked = flags >> 2 & 1
        at += 5 + (not single) + (0, 1, 2, 4)[flags & 3]
        told = int.from_bytes(packed[at : at + size_bytes], "little") + (256 if size_bytes == 2 else 0)
        at += size_bytes
        last, blocks = False, 0
        while not last and at + 3 <= len(packed):
            head = int.from_bytes(packed[at : at + 3], "little")
            last = bool(head & 1)
            at += 3 + (1 if head >> 1 & 3 == 1 else head >> 3)  # a run of one byte, or what the block takes
            blocks += 1
        at += 4 * checked
        total += max(told, 0) if size_bytes else blocks * _BLOCK
    return total
