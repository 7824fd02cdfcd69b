"""Every command through files of arrays: what it writes equals what Python gives, and it says so in few words."""

import json

import numpy as np
import pytest
import zarr
from commands import SIZE, N, call, done, flat, leftovers, spawn, world
from stores import write_run

import pixelbounds as pb

RISK = ("--risk-level", 0.1, "--failure-prob", 0.2)
BAND = ("--groups", "band")
RUN = 32  # images


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Truth, samples, bands and a run, to calibrate on and (`new`) to apply to."""
    folder = tmp_path_factory.mktemp("files")
    for name, seed in {"": 0, "new_": 1}.items():
        truth, samples = world(seed=seed)
        band = pb.calibrated_quantiles(samples, 0.1)
        np.save(folder / f"{name}truth.npy", truth)
        np.save(folder / f"{name}samples.npy", samples)
        np.savez(folder / f"{name}band.npz", lower=band.lower, upper=band.upper)
        group = zarr.create_group(folder / f"{name}band.zarr")
        for part in ("lower", "upper"):
            group.create_array(part, data=getattr(band, part), chunks=(16, SIZE, SIZE))
        (folder / f"{name}band").mkdir()
        np.save(folder / f"{name}band" / "lower.npy", band.lower)
        np.save(folder / f"{name}band" / "upper.npy", band.upper)
    done("calibrate", folder / "truth.npy", folder / "band.zarr", *RISK, *BAND, "--out", folder / "cal.safetensors")
    for name, seed in {"": 0, "new_": 1}.items():
        truth, samples = world(RUN, seed=seed)
        np.save(folder / f"{name}run_truth.npy", truth)
        run_of(folder / f"{name}run.zarr", samples)
    return folder


def run_of(path, samples, finished=RUN):
    """What `pixelbounds sample` leaves, of samples that are known."""
    about = {"kind": "score", "miscoverage": 0.1, "limits": [0.0, 1.0]}
    names = dict.fromkeys(("lower", "upper", "naive_lower", "naive_upper", "mean", "deviation"), ())
    band, naive = pb.calibrated_quantiles(samples, 0.1), pb.naive_quantiles(samples, 0.1)
    images = []
    for i, own in enumerate(samples[:finished]):
        parts = {"lower": band.lower[i], "upper": band.upper[i], "observation": own[0], "held_out": own[:2]}
        parts |= {"naive_lower": naive.lower[i], "naive_upper": naive.upper[i]}
        images.append({**parts, "mean": own.mean(0), "deviation": own.std(0)})
    write_run(path, about, range(RUN), (SIZE, SIZE), {**names, "held_out": (2,)}, images)


# ---------------------------------------------------------------- calibrate


@pytest.mark.parametrize("name", ["samples.npy", "band.npz", "band.zarr", "band"])
def test_the_file_equals_what_python_writes_byte_for_byte(files, tmp_path, name):
    out = tmp_path / "cal.safetensors"
    said = done("calibrate", files / "truth.npy", files / name, *RISK, *BAND, "--out", out)
    truth = np.load(files / "truth.npy")
    band = pb.calibrated_quantiles(np.load(files / "samples.npy"), 0.1)
    if name.startswith("band"):
        band = pb.Band(band.lower, band.upper)  # such files do not say how it was made
    wanted = pb.calibrate(truth, band, risk_level=0.1, failure_prob=0.2, method=pb.Frontier(groups="band"))
    assert out.read_bytes() == wanted.to_bytes()
    assert said["guarantee"] == wanted.guarantee
    assert said["risk"] == wanted.risk < 0.1


def test_every_choice_reaches_python(files, tmp_path):
    out, units = tmp_path / "cal.safetensors", np.repeat(np.arange(N // 2), 2)
    (tmp_path / "units.txt").write_text("\n".join(f"patient {x}" for x in units) + "\n")
    done(
        "calibrate", files / "truth.npy", files / "samples.npy", "--risk-level", 0.2, "--out", out,
        "--method", "krcps", "--bound", "hoeffding_bentkus", "--groups", "loss", "--k", 3, "--n-fit", 20,
        "--seed", 5, "--miscoverage", 0.2, "--units", tmp_path / "units.txt", "--limits", -0.5, 1.5,
    )  # fmt: skip
    band = pb.calibrated_quantiles(np.load(files / "samples.npy"), 0.2)
    wanted = pb.calibrate(
        np.load(files / "truth.npy"), band, risk_level=0.2, failure_prob=0.1, bound="hoeffding_bentkus",
        method=pb.KRCPS(groups="loss", k=3, n_fit=20), seed=5, units=units, limits=(-0.5, 1.5),
    )  # fmt: skip
    assert wanted.record.units > 0
    assert out.read_bytes() == wanted.to_bytes()


# ---------------------------------------------------------------- apply, evaluate


@pytest.mark.parametrize("name", ["new_band.npz", "new_band.zarr", "new_band"])
@pytest.mark.parametrize("out", ["i.zarr", "i.npz"])
def test_intervals_equal_python_s_whatever_the_files(files, tmp_path, name, out, monkeypatch):
    monkeypatch.setattr("pixelbounds.images.library._AT_ONCE", 7 * SIZE * SIZE * 4)  # 7 images at a time
    said = done("apply", files / "cal.safetensors", files / name, "--out", tmp_path / out)
    with np.load(files / "new_band.npz") as file:
        wanted = pb.load_calibration(files / "cal.safetensors").apply(pb.Band(file["lower"], file["upper"]))
    found = zarr.open(tmp_path / out) if out == "i.zarr" else np.load(tmp_path / out)
    for part in ("lower", "upper"):
        np.testing.assert_array_equal(found[part][:], getattr(wanted, part))
    assert said["mean_length"] == pytest.approx(float(wanted.length.mean()), rel=1e-6)
    assert not leftovers(tmp_path)


def test_samples_keep_the_miscoverage_of_the_calibration(files, tmp_path):
    cal = tmp_path / "cal.safetensors"
    done("calibrate", files / "truth.npy", files / "samples.npy", *RISK, *BAND, "--miscoverage", 0.3, "--out", cal)
    done("apply", cal, files / "new_samples.npy", "--out", tmp_path / "i.zarr")
    wanted = pb.load_calibration(cal).apply(pb.calibrated_quantiles(np.load(files / "new_samples.npy"), 0.3))
    np.testing.assert_array_equal(zarr.open(tmp_path / "i.zarr")["lower"][:], wanted.lower)
    result = call("apply", cal, files / "new_samples.npy", "--miscoverage", 0.2, "--out", tmp_path / "j.zarr")
    assert result.exit_code == 2
    assert "miscoverage: 3/10 at calibration, 1/5 here" in flat(result.stderr)
    assert not (tmp_path / "j.zarr").exists()


def test_evaluation_of_intervals_and_of_bands_agree(files, tmp_path, monkeypatch):
    truth, cal = files / "new_truth.npy", files / "cal.safetensors"
    done("apply", cal, files / "new_band.zarr", "--out", tmp_path / "i.zarr")
    done("apply", cal, files / "new_band.zarr", "--out", tmp_path / "i.npz")
    stored = done("evaluate", truth, tmp_path / "i.zarr")
    assert stored["risk_level"] == 0.1  # the store says what was promised
    bands = done("evaluate", truth, files / "new_band.zarr", "--calibration", cal)
    monkeypatch.setattr("pixelbounds.formats.inputs._IN_MEMORY", 0)
    assert done("evaluate", truth, files / "new_band.zarr", "--calibration", cal) == bands
    assert stored["evaluation"] == bands["evaluation"] | {"apart_from": None}  # only a calibration knows its images
    assert stored["cautions"][-1].startswith("Whether some of these images calibrated was not checked")
    assert done("evaluate", truth, tmp_path / "i.npz")["risk"] == bands["risk"]
    found = zarr.open(tmp_path / "i.zarr")
    made = pb.Interval(found["lower"][:], found["upper"][:])
    wanted = pb.evaluate(np.load(truth), made, calibration=pb.load_calibration(cal))
    assert bands["evaluation"] == json.loads(json.dumps(wanted.to_dict()))
    assert bands["verdict"] == "within the level"
    assert not bands["contradicted"]


# ---------------------------------------------------------------- report


def test_a_report_of_samples(files, tmp_path):
    cal, page = tmp_path / "cal.safetensors", tmp_path / "report.html"
    done("calibrate", files / "truth.npy", files / "samples.npy", *RISK, *BAND, "--out", cal)
    words = "report", files / "new_truth.npy", files / "new_samples.npy", "--calibration", cal, "--out", page
    said = done(*words, "--examples", 3, "--title", "A <b>title</b>")
    assert said["page"] == str(page)
    text = page.read_text()
    assert "A &lt;b&gt;title" in text
    assert "<b>title" not in text
    evaluated = done("evaluate", files / "new_truth.npy", files / "new_samples.npy", "--calibration", cal)
    assert said["evaluation"] == evaluated["evaluation"]
    result = call(*words, "--examples", 2, "--force")
    assert result.exit_code == 0
    assert str(page) in result.stdout
    assert call(*words).exit_code == 2  # it is there


# ---------------------------------------------------------------- what is said


def test_standard_output_holds_one_json_object_and_nothing_else(files, tmp_path):
    out = tmp_path / "cal.safetensors"
    words = "calibrate", files / "truth.npy", files / "samples.npy", *RISK, *BAND, "--out", out, "--json"
    process = spawn(*words)
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert text.count("\n") == 1
    assert json.loads(text)["file"] == str(out)
    result = call(*words)  # it is there now
    assert result.exit_code == 2
    said = result.stderr.removeprefix("pixelbounds: ").strip()
    assert "exists" in said
    assert json.loads(result.stdout) == {"error": said, "exit_code": 2}
