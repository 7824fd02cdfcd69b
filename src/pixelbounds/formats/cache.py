"""A large array that is made once, part by part, and kept as zarr: whole under its name, or still aside.

Parts (scans, blocks of pictures) are written into NAME.part and marked when finished; a later call goes on with what is
missing. Only the finished store gets its name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from ..execution.progress import Progress, silent
from ..images import Array
from .scans import Told

_ATTRIBUTE = "pixelbounds"


def cached(
    path: Path,
    about: Mapping[str, Any],
    counts: Sequence[int],
    pixels: tuple[int, ...],
    dtype: str,
    read: Callable[[int], Array],
    progress: Progress = silent,
) -> Any:
    """The zarr array (sum(counts), *pixels) at a path, made of `read(part)` of shape (counts[part], *pixels).

    `about` is JSON that says what the images are; a store that was made of something else is refused.
    """
    if path.exists():
        return _opened(path, about)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".part")
    with _alone(path.with_name(path.name + ".lock")):
        if path.exists():  # another process finished it meanwhile
            return _opened(path, about)
        group = _begun(aside, about, counts, pixels, dtype)
        done = np.asarray(group["done"][:])
        ends = np.cumsum(counts)
        for part, end in enumerate(ends):
            if not done[part]:
                images = read(part)
                if images.shape != (counts[part], *pixels):
                    raise Told(f"part {part} of {path} has shape {images.shape}, not {(counts[part], *pixels)}")
                group["images"][int(end) - counts[part] : int(end)] = images
                group["done"][part] = 1
            progress(part + 1, len(counts))
        os.rename(aside, path)
    return _opened(path, about)


def _begun(aside: Path, about: Mapping[str, Any], counts: Sequence[int], pixels: tuple[int, ...], dtype: str) -> Any:
    """The unfinished store of the same images, or a new one."""
    try:
        group = zarr.open_group(aside, mode="r+")
        if group.attrs[_ATTRIBUTE] == dict(about) and "done" in group and "images" in group:
            return group
    except Exception:  # none there, or one cut off while it was created: zarr raises what it likes
        pass
    shutil.rmtree(aside, ignore_errors=True)
    group = zarr.create_group(aside, attributes={_ATTRIBUTE: dict(about)})
    group.create_array(
        "images",
        shape=(sum(counts), *pixels),
        chunks=(1, *pixels),
        dtype=dtype,
        compressors=(ZstdCodec(level=3), Crc32cCodec()),
        fill_value=np.nan if np.dtype(dtype).kind == "f" else 0,
    )
    group.create_array("done", shape=(len(counts),), chunks=(1,), dtype="uint8", fill_value=0)
    return group


def _opened(path: Path, about: Mapping[str, Any]) -> Any:
    try:
        group = zarr.open_group(path, mode="r")
        stored: Any = group.attrs[_ATTRIBUTE]
        images = group["images"]
    except Exception as error:  # no store, or a damaged one
        raise Told(f"{path} is no cache that can be read ({error}); delete it, or name another") from error
    wrong = [name for name in {**stored, **about} if stored.get(name) != about.get(name)]
    if wrong:
        raise Told(f"{path} was made of other images or settings ({', '.join(wrong)}); delete it, or name another")
    return images


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold a lock file until the block, or the process, ends."""
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # pragma: no cover - Windows
            pass
        except OSError as error:
            raise BlockingIOError(f"{lock.stem} is being made by another process; wait for it or end it") from error
        yield
        lock.unlink(missing_ok=True)
    finally:
        os.close(handle)
