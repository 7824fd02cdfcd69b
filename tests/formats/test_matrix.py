"""dtype x layout x container x command: what is taken, refused and said, and the tables of docs/research/dtypes.md.

`python tests/formats/test_matrix.py` writes the tables anew. A cell says one thing for every command and layout: all of
them must agree, and what is taken must have the scale that the cell says.
"""

import re
import tempfile
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pixelbounds as pb
from pixelbounds.formats.arrays import Reading
from pixelbounds.images.ragged import write_ragged
from pixelbounds.workflows import HeldOutFiles, Request, apply_files, calibrate_files, evaluate_files
from pixelbounds.workflows.monitor import update_state

pytest.importorskip("nibabel")
pytest.importorskip("pydicom")
zarr = pytest.importorskip("zarr")

PAGE = Path(__file__).parents[2] / "docs" / "research" / "dtypes.md"
BEGIN, END = "<!-- tests/formats/test_matrix.py -->", "<!-- end of tables -->"
DTYPES = ("bool", "uint8", "int16", "uint16", "float16", "float32", "float64", "complex64")
LAYOUTS = ("(n, h, w)", "(n, c, h, w)", "(n, h, w, c)", "of different sizes")
TRUTH = ("Python", ".npy", ".npz", ".zarr", "pictures", "NIfTI", "DICOM")
BANDS = ("Python", ".npz", ".zarr", "folder of .npy", "folder of pictures", "folder of NIfTI")
WINDOWED = {"NIfTI", "DICOM", "folder of NIfTI"}
TAKEN = {"bool": "0 and 1", "uint8": "spans the limits"}
N, WINDOW = 24, (255.0, 127.5)
RISK = {"risk_level": 0.3, "failure_prob": 0.2, "bound": "hoeffding", "method": "rcps"}
ASKED, OUT, KEY = Request(**RISK), "new.safetensors", {".npz": "truth", ".zarr": "truth"}
WORDS = {"its window", *TAKEN.values()}


def images(layout, seed=0):
    """Truth in [0, 1] and the ends of a band, float32; what 8 bits hold exactly."""
    rng = np.random.default_rng(seed)
    shape = {"(n, c, h, w)": (N, 3, 8, 8), "(n, h, w, c)": (N, 8, 8, 3)}.get(layout, (N, 8, 8))
    truth = rng.integers(60, 196, shape)
    centre = truth + rng.integers(-12, 13, shape)
    made = [np.float32(x / 255) for x in (truth, centre - 8, centre + 8)]
    return [[x[i][: 5 + i % 3] for i in range(N)] if layout == LAYOUTS[3] else x for x in made]


def each(x, change):
    return [change(one) for one in x] if isinstance(x, list) else change(x)


def typed(x, dtype, *, windowed):
    """Images in another dtype: 8 bits, and what a window maps, span 0 and 255, other whole numbers 0 and 1000."""
    scale = 255 if windowed else {"bool": 1, "uint8": 255, "int16": 1000, "uint16": 1000}.get(dtype, 1)
    whole = np.dtype(dtype).kind in "iu"
    cut = (lambda one: one > 0.5) if dtype == "bool" else lambda one: np.rint(one * scale) if whole else one * scale
    return each(x, lambda one: cut(one).astype(dtype))


def can_hold(container, layout, dtype):
    """Whether a container can hold such images at all."""
    if container == "DICOM":
        return layout == LAYOUTS[0] and dtype in ("int16", "uint16")
    if "NIfTI" in container:
        return layout == LAYOUTS[0] and dtype not in ("bool", "float16")
    if "pictures" in container:
        return layout in LAYOUTS[:2] and (dtype == "uint8" or (dtype == "bool" and layout == LAYOUTS[0]))
    return layout != LAYOUTS[3] or container in ("Python", ".zarr")


def save(path, container, layout, dtype, **parts):
    """Write images by name; the path to give."""
    parts = {name: typed(x, dtype, windowed=container in WINDOWED) for name, x in parts.items()}
    (only, *more) = parts.values()
    if container == ".npy":
        np.save(path.with_suffix(".npy"), only)
        return path.with_suffix(".npy")
    if container == ".npz":
        np.savez(path.with_suffix(".npz"), **parts)
        return path.with_suffix(".npz")
    if container == ".zarr":
        target = path.with_suffix(".zarr")
        if layout == LAYOUTS[3]:
            write_ragged(target, parts)
        else:
            zarr.create_group(target)
            for name, x in parts.items():
                zarr.open_group(target).create_array(name, data=x)
        return target
    for name, x in parts.items():
        write_folder(path / name if more else path, container, layout, x)
    return path.with_suffix(".nii") if container == "NIfTI" else path


def write_folder(path, container, layout, x):
    from medical import LPS, nibabel, write_dicom

    path.parent.mkdir(parents=True, exist_ok=True)
    if container == "folder of .npy":
        np.save(path.with_suffix(".npy"), x)
    elif "NIfTI" in container:
        volume = nibabel.Nifti1Image(np.asarray(x).transpose(2, 1, 0), LPS)
        nibabel.save(volume, path.with_suffix(".nii"))
    elif container == "DICOM":
        write_dicom(path, x.astype(np.float64), intercept=0.0)
    else:
        path.mkdir(parents=True)
        for i, one in enumerate(x):
            last = np.moveaxis(one, 0, -1) if layout == LAYOUTS[1] else one
            Image.fromarray(last).save(path / f"{i:02}.png")


def said(call):
    """What a call comes to: taken, with a number that depends on the scale, or what is said of a refusal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return True, call()
        except (TypeError, ValueError) as error:
            said = re.sub(r"/tmp\S+|[\w.]*(truth|lower)(\[\d+\])?(?= has dtype|\.astype)", "X", str(error))
            return False, said.splitlines()[0]


def of_truth(folder, container, layout, dtype):
    """The same truth at three commands, beside float bands; the calibration is of other images."""
    (truth, lower, upper), (others, *ends) = images(layout), images(layout, 1)
    cal, band = pb.calibrate(others, pb.Band(*ends), **RISK), pb.Band(lower, upper)
    if container == "Python":
        given = typed(truth, dtype, windowed=False)
        return {
            "calibrate": said(lambda: pb.calibrate(given, band, **RISK).risk),
            "evaluate": said(lambda: pb.evaluate(given, cal.apply(band)).risk),
            "monitor": said(lambda: pb.Monitor(cal).update(given, band).promises[0].risk),
        }
    how = Reading(window=WINDOW if container in WINDOWED else None, units="each", truth_key=KEY.get(container))
    ragged = layout == LAYOUTS[3]
    bands = save(folder / "bands", ".zarr" if ragged else ".npz", layout, "float32", lower=lower, upper=upper)
    path = save(folder / "truth", container, layout, dtype, truth=truth)
    calibration, state = folder / "cal.safetensors", folder / "monitor.safetensors"
    cal.save(calibration)
    held_out = HeldOutFiles(path, apply_files(calibration, bands, folder / "intervals.zarr").path)
    return {
        "calibrate": said(lambda: calibrate_files(path, bands, folder / OUT, ASKED, reading=how).calibration.risk),
        "evaluate": said(lambda: evaluate_files(held_out, reading=how).evaluation.risk),
        "monitor": said(
            lambda: update_state(state, path, bands, calibration=calibration, reading=how).promises[0].risk
        ),
    }


def of_bands(folder, container, layout, dtype):
    """The same band at two commands, beside float truth."""
    truth, lower, upper = images(layout)
    cal = pb.calibrate(truth, pb.Band(lower, upper), **RISK)
    if container == "Python":
        ends = [typed(x, dtype, windowed=False) for x in (lower, upper)]
        return {
            "calibrate": said(lambda: pb.calibrate(truth, pb.Band(*ends), **RISK).risk),
            "apply": said(lambda: mean_length(cal.apply(pb.Band(*ends)))),
        }
    how = Reading(window=WINDOW if container in WINDOWED else None, units="each", truth_key="truth")
    true = save(folder / "plain", ".zarr" if layout == LAYOUTS[3] else ".npy", layout, "float32", truth=truth)
    path = save(folder / "band", container, layout, dtype, lower=lower, upper=upper)
    calibration = folder / "cal.safetensors"
    cal.save(calibration)
    return {
        "calibrate": said(lambda: calibrate_files(true, path, folder / OUT, ASKED, reading=how).calibration.risk),
        "apply": said(lambda: apply_files(calibration, path, folder / "out.zarr", reading=how).mean_length),
    }


def mean_length(interval):
    return float(np.mean([np.mean(np.subtract(b, a)) for a, b in zip(interval.lower, interval.upper, strict=True)]))


@cache
def single_precision(of, layout):
    """What the same images come to as arrays of single precision."""
    return of(None, "Python", layout, "float32")


def checked_cell(of, container, dtype, folder):
    """What one cell says: what all layouts and commands agree on; numbers are those of single precision."""
    refusals, taken = set(), set()
    for layout in (x for x in LAYOUTS if can_hold(container, x, dtype)):
        place = folder / str(LAYOUTS.index(layout))
        place.mkdir(parents=True)
        plain = single_precision(of, layout)
        for command, (accepted, value) in of(place, container, layout, dtype).items():
            (taken if accepted else refusals).add((layout, command))
            if not accepted:
                refusals.add(value.replace(dtype, "..."))
            elif dtype != "bool":  # which is another image
                assert value == pytest.approx(plain[command][1], abs=0.05), (container, dtype, layout, command)
    words = {x for x in refusals if isinstance(x, str)}
    assert not (taken and refusals), (container, dtype, taken, refusals)
    assert len(words) <= 1, (container, dtype, words)
    if not taken and not refusals:
        return ""
    return words.pop() if words else "its window" if container in WINDOWED else TAKEN.get(dtype, "yes")


def as_text(cells):
    """The tables, and the refusals below them by their letters."""
    letters, parts = {}, [BEGIN]
    for title, containers in (("truth", TRUTH), ("band", BANDS)):
        parts += [f"| {title} | {' | '.join(containers)} |", "|---" * (len(containers) + 1) + "|"]
        for dtype in DTYPES:
            row = [cells[title, container, dtype] for container in containers]
            row = [letters.setdefault(x, f"({len(letters) + 1})") if " " in x and x not in WORDS else x for x in row]
            parts.append(f"| {dtype} | {' | '.join(row)} |")
        parts.append("")
    parts += [f"- {letter} refused: *{words}*" for words, letter in letters.items()]
    return "\n".join([*parts, END])


def cell_of(title, container, dtype, folder):
    return checked_cell(of_truth if title == "truth" else of_bands, container, dtype, folder)


CELLS = [(title, x, dtype) for title, xs in (("truth", TRUTH), ("band", BANDS)) for x in xs for dtype in DTYPES]


def test_every_command_and_layout_agrees_and_the_page_says_so(tmp_path):
    cells = {cell: cell_of(*cell, tmp_path / f"{i}") for i, cell in enumerate(CELLS)}
    assert as_text(cells) in PAGE.read_text(), "run python tests/formats/test_matrix.py"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        text = as_text({cell: cell_of(*cell, Path(made) / f"{i}") for i, cell in enumerate(CELLS)})
    page = PAGE.read_text()
    PAGE.write_text(page.split(BEGIN)[0] + text + page.split(END)[1])
