"""`calibrate --promise` and `evaluate --promise` on files: the bytes of the Python call, wherever regions lie."""

import json

import numpy as np
import pytest
import zarr
from commands import call, done, flat
from medical import write_nifti
from PIL import Image

import pixelbounds as pb
from pixelbounds.formats import open_images

N, SIZE = 120, 8
WORDS = "--failure-prob", 0.2, "--units", "each", "--groups", "band"
HOW = {"failure_prob": 0.2, "method": pb.Frontier("band")}


def draw(rng, n=N):
    """Truth, band, a label map (2: a hard organ in three of four images), and a subgroup."""
    centre = rng.uniform(0.3, 0.7, (n, SIZE, SIZE)).astype(np.float32)
    labels = np.zeros(centre.shape, np.int16)
    labels[:, :3, :4] = 2
    labels[:, 5:, 5:] = 3
    labels[::4] = 0
    deviation = np.where(labels == 2, 0.08, 0.04)
    truth = np.clip(centre + deviation * rng.standard_normal(centre.shape), 0, 1).astype(np.float32)
    return truth, centre - np.float32(0.05), centre + np.float32(0.05), labels, rng.random(n) < 0.7


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("promised")
    rng = np.random.default_rng(0)
    for name in ("", "new_"):
        truth, lower, upper, labels, subgroup = draw(rng)
        np.save(folder / f"{name}truth.npy", truth)
        np.savez(folder / f"{name}band.npz", lower=lower, upper=upper)
        np.save(folder / f"{name}labels.npy", labels)
        np.save(folder / f"{name}women.npy", subgroup)
    return folder


def loaded(files, name=""):
    truth, labels, women = (np.load(files / f"{name}{x}.npy") for x in ("truth", "labels", "women"))
    with np.load(files / f"{name}band.npz") as band:
        return truth, pb.Band(band["lower"], band["upper"]), labels, women


def python_promises(truth, labels, women):
    organ = labels == 2
    return [
        pb.share(0.15),
        pb.share(0.3, within=organ, name="heart"),
        pb.tail(0.3, above=0.3, within=organ, name="heart"),
        pb.share(0.25, within=np.isin(labels, (2, 3)), weighting="pixels", name="both"),
        pb.share(0.2, within=pb.regions.body(truth), name="body"),
        pb.share(0.3, within=pb.regions.dilate(pb.regions.edges(truth, 0.1), 1), cap=0.5, name="edges"),
        pb.share(0.2, within=women, name="women"),
    ]


def said(files, name=""):
    at = files / f"{name}labels.npy"
    return [
        "share:0.15", f"share:0.3,within={at}:2,name=heart", f"tail:0.3,within={at}:2,above=0.3,name=heart",
        f"share:0.25,weighting=pixels,within={at}:2+3,name=both", "share:0.2,within=body",
        "share:0.3,within=edges:0.1,cap=0.5,dilated=1", f"share:0.2,within={files / f'{name}women.npy'},name=women",
    ]  # fmt: skip


def as_table(text):
    """A promise as a table of a TOML file."""
    head, *pairs = text.split(",")
    kind, level = head.split(":")
    given = {"kind": kind, "level": float(level), **dict(pair.split("=") for pair in pairs)}
    numbers = {key: float(x) for key, x in given.items() if key in ("above", "cap", "dilated")}
    lines = (f"{key} = {json.dumps(value)}" for key, value in {**given, **numbers}.items())
    return "\n".join(["[[promise]]", *lines])


def options(words):
    return [x for text in words for x in ("--promise", text)]


@pytest.fixture(scope="module")
def calibrated(files):
    words = options(said(files))
    facts = done("calibrate", files / "truth.npy", files / "band.npz", *words, *WORDS, "--out", files / "c.safetensors")
    return facts, pb.load_calibration(files / "c.safetensors")


def test_words_give_the_bytes_of_the_python_call(files, calibrated):
    facts, found = calibrated
    truth, band, labels, women = loaded(files)
    wanted = pb.calibrate(truth, band, promises=python_promises(truth, labels, women), **HOW)
    assert found.to_bytes() == wanted.to_bytes()
    assert [one["name"] for one in facts["promises"]] == [one.name for one in wanted.promises]
    assert facts["promises"][1]["certifying"] == wanted.promises[1].certifying < wanted.promises[0].certifying


def test_the_terminal_shows_a_table_and_a_file_of_promises_is_the_same(files, calibrated, tmp_path):
    (tmp_path / "all.toml").write_text("\n".join(map(as_table, said(files))))
    out = tmp_path / "c.safetensors"
    result = call(
        "calibrate", files / "truth.npy", files / "band.npz", "--promises", tmp_path / "all.toml", *WORDS, "--out", out
    )
    assert result.exit_code == 0, result.output
    assert out.read_bytes() == (files / "c.safetensors").read_bytes()
    text = flat(result.stdout)
    assert "promise at most seen at calibration certified by" in text
    heart = calibrated[1].promises[1]
    assert f"heart 30% {heart.risk:.2%} {heart.certifying}" in text
    assert "images that miss more than 30%, heart 30%" in text
    assert "edges, cap 50% 30%" in text


def test_promises_are_judged_by_the_same_ones_on_new_images(files, calibrated, tmp_path):
    new = files / "new_truth.npy", files / "new_band.npz"
    judge = "--calibration", files / "c.safetensors", "--units", "each"
    words = options(said(files, "new_"))
    facts = done("evaluate", *new, *judge, *words)
    truth, band, labels, women = loaded(files, "new_")
    interval = calibrated[1].apply(band)
    wanted = pb.evaluate(truth, interval, calibration=calibrated[1], promises=python_promises(truth, labels, women))
    assert facts["evaluation"]["promises"] == wanted.to_dict()["promises"]
    assert facts["verdict"] == "within the level of every promise"
    alone = done("evaluate", *new, *judge)
    assert alone["verdict"] == "not compared with the level"
    assert any("--promise" in note for note in alone["cautions"])
    shifted = np.where(labels == 2, np.clip(truth + 0.3, 0, 1), truth)
    np.save(tmp_path / "shifted.npy", shifted)
    broken = call("evaluate", tmp_path / "shifted.npy", new[1], *judge, *words)
    assert broken.exit_code == 1
    assert "What was seen is above the level of" in flat(broken.stdout)
    assert "heart 30.00%" in flat(broken.stdout)
    done("apply", files / "c.safetensors", new[1], "--out", tmp_path / "i.zarr")
    later = call("evaluate", tmp_path / "shifted.npy", tmp_path / "i.zarr", *options(said(files, "new_")[:3]))
    assert later.exit_code == 0  # other promises than those that were certified
    assert "those compared here are others" in flat(later.stdout)
    others = call("evaluate", *new, *judge, "--promise", "share:0.15")
    assert others.exit_code == 2
    assert "these are others; give the same promises" in flat(others.output)


def test_regions_lie_in_any_format_and_images_that_are_skipped_are_dropped(files, tmp_path):
    truth, band, labels, _ = loaded(files)
    wanted = pb.calibrate(truth, band, promises=[pb.share(0.3, within=labels == 2, name="heart")], **HOW).to_bytes()
    write_nifti(tmp_path / "labels.nii.gz", labels.astype(np.float32), "RAS")
    np.savez(tmp_path / "labels.npz", other=truth, heart=(labels == 2).astype(np.uint8))
    zarr.create_array(tmp_path / "labels.zarr", data=labels, chunks=(6, SIZE, SIZE))
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for i, x in enumerate(labels):
        Image.fromarray((x == 2).astype(np.uint8) * 255).save(pictures / f"{i:03}.png")
    pair = files / "truth.npy", files / "band.npz"

    def found(where, *words):
        out = tmp_path / "c.safetensors"
        more = ("--force", *WORDS, "--out", out)
        return call(
            "calibrate", *pair, "--promise", f"share:0.3,within={tmp_path / where},name=heart", *words, *more
        ), out

    for where in ("labels.nii.gz:2", "labels.npz/heart", "labels.zarr:2", "pictures"):
        result, out = found(where)
        assert result.exit_code == 0, result.output
        assert out.read_bytes() == wanted, where
    for where, words in (
        ("labels.zarr", ("holds 2, so it is no mask", "labels.zarr:2")),
        ("labels.npz/lung", ("and no 'lung'",)),
        ("labels.npz", ("say which", "labels.npz/other")),
        ("none.npy:2", ("does not exist", "a label map or a mask")),
    ):
        result, _ = found(where)
        assert result.exit_code == 2, where
        assert all(word in flat(result.stderr) for word in words), result.stderr
    np.save(tmp_path / "small.npy", labels[:, :4])
    result, _ = found("small.npy:2")
    assert "small.npy: map has shape (120, 4, 8) but truth has shape (120, 8, 8)" in flat(result.stderr)
    (tmp_path / "labels.zarr" / "c" / "2" / "0" / "0").unlink()  # images 12 to 17
    result, _ = found("labels.zarr:2")
    assert "--skip-bad" in flat(result.stderr)
    result, out = found("labels.zarr:2", "--skip-bad")
    assert result.exit_code == 0, result.output
    kept = np.r_[0:12, 18:N]
    fewer = pb.calibrate(
        truth[kept], band[kept], promises=[pb.share(0.3, within=labels[kept] == 2, name="heart")], **HOW
    )
    cal = pb.load_calibration(out)
    assert cal.record.skipped == 6
    assert (cal.widening == fewer.widening).all()
    assert cal.promises == fewer.promises


def test_files_of_a_map_belong_to_those_of_the_images_by_name(files, tmp_path):
    truth, band, labels, _ = loaded(files)
    for name in ("truth", "labels"):
        (tmp_path / name).mkdir()
    for i in range(4):
        cut = slice(30 * i, 30 * i + 30)
        write_nifti(tmp_path / "truth" / f"case{i}.nii.gz", truth[cut])
        write_nifti(tmp_path / "labels" / f"case{i}.nii.gz", labels[cut].astype(np.float32))
    np.savez(tmp_path / "band.npz", lower=band.lower, upper=band.upper)
    words = "--raw", "--method", "rcps", "--failure-prob", 0.5, "--units", "each", "--out", tmp_path / "c.safetensors"

    def run():
        promise = "--promise", f"share:0.3,within={tmp_path / 'labels'}:2,name=heart"
        return call("calibrate", tmp_path / "truth", tmp_path / "band.npz", *promise, *words, "--force")

    assert run().exit_code == 0
    organ = pb.share(0.3, within=labels == 2, name="heart")
    stored = open_images(tmp_path / "truth", window=None).pixels  # rounded as the files are
    wanted = pb.calibrate(stored, band, promises=[organ], method="rcps", failure_prob=0.5)
    assert pb.load_calibration(tmp_path / "c.safetensors").promises == wanted.promises
    (tmp_path / "labels" / "case3.nii.gz").rename(tmp_path / "labels" / "other.nii.gz")
    result = run()
    assert result.exit_code == 2
    assert "labels has no file for 'case3'" in flat(result.stderr)
