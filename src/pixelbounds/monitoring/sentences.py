"""What a monitor says, in words: each sentence is true of the test behind it."""

from __future__ import annotations

from ..calibration.words import level_in_words, plural, share_in_words

_RARE = 1e-4  # smaller p-values are not distinguished


def quiet_in_words(seen: str) -> str:
    """What a monitor says that has seen nothing wrong; `seen` says of how much.

    >>> quiet_in_words("120 images with truth").split(":")[0]
    'No alarm'
    """
    return (
        f"No alarm: {seen} give no sufficient evidence that a promise is broken or that the source has changed. That "
        "all is well is not shown by this."
    )


def broken_in_words(named: str) -> str:
    """What a monitor says where the truth shows that promises are broken; `named` says which."""
    return f"ALARM, promises broken: {named}. The source has changed, or the calibration was among the unlucky ones."


def changed_in_words(named: str) -> str:
    """What a monitor says where bands alone show that the source has changed; `named` says what of it."""
    return (
        f"ALARM, source changed: {named}. New images are not exchangeable with those of the calibration, so nothing is "
        "promised for them; only truth can show whether intervals miss more than before."
    )


def late_in_words(images: int, noun: str) -> str:
    """What a monitor says of further images of units that were counted before.

    >>> late_in_words(3, "patient")
    '3 images were left out, each of a patient that was counted before: give all images of a patient in one call.'
    """
    which = "1 image was left out," if images == 1 else f"{images} images were left out, each"
    return f"{which} of a {noun} that was counted before: give all images of a {noun} in one call."


def false_alarms_in_words(false_alarm: float) -> str:
    """What an alarm, or that there is none, is worth."""
    return (
        "While images (units) are independent, come from the calibration's source and every promise is kept, this "
        f"monitor ever raises an alarm with probability at most {level_in_words(false_alarm)}, however long it runs "
        "and however often it is checked."
    )


def together_in_words(false_alarm: float) -> str:
    """What the common view of several sites' monitors is worth."""
    return (
        "While every promise is kept everywhere and sites see different patients, this view ever raises an alarm with "
        f"probability at most {level_in_words(false_alarm)}, whenever sites report and however often it is checked."
    )


def recently_in_words(what: str, count: int, noun: str, p_value: float) -> str:
    """How often the last few new images would look so by chance.

    >>> recently_in_words("bands {are} wider", 40, "image", 0.0199)
    'bands of the last 40 images are wider than at calibration, as on 1.99% of days when nothing has changed'
    """
    some = f"of the last {count} {plural(noun)}" if count > 1 else f"of the last {noun}"
    words = what.replace("{are}", f"{some} are").replace("{fall}", f"{some} fall")
    share = share_in_words(p_value, up=True) if p_value >= _RARE else f"fewer than {share_in_words(_RARE)}"
    return f"{words} than at calibration, as on {share} of days when nothing has changed"
