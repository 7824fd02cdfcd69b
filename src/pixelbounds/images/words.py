"""Numbers in words, the same wherever a person reads them."""

from __future__ import annotations


def level_in_words(share: float) -> str:
    """A level as it was asked for.

    >>> level_in_words(0.1), level_in_words(0.025)
    ('10%', '2.5%')
    """
    return f"{100 * share:.6g}%"


def size_in_words(size: float) -> str:
    """Bytes, to three digits.

    >>> size_in_words(999), size_in_words(4711), size_in_words(2e12)
    ('999 bytes', '4.71 kB', '2 TB')
    """
    if size < 1000:
        return f"{size:.0f} bytes"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000:
            return f"{size:.3g} {unit}"
    return f"{size / 1000:.3g} TB"
