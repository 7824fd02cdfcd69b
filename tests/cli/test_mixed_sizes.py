"""Images of different sizes through the commands: the same as from Python, in threads and on a cluster."""

import numpy as np
import pytest
import zarr
from commands import call, done, flat, leftovers

import pixelbounds as pb
from pixelbounds.images.ends import one_band
from pixelbounds.images.ragged import read_ragged, write_ragged

pytest_plugins = ["clusters"]

SHAPES = ((6, 9), (11, 5), (8, 8), (3, 20))
N, M = 160, 19
RISK = ("--risk-level", 0.1, "--failure-prob", 0.2, "--groups", "band")


def mixed(seed=0):
    """Truth (h, w) and samples (m, h, w) of images of changing shapes."""
    rng, truth, samples = np.random.default_rng(seed), [], []
    for i in range(N):
        shape = SHAPES[i % len(SHAPES)]
        level, deviation = rng.uniform(0.1, 0.9, shape), np.exp(rng.normal(-3, 0.6, shape))
        truth.append(np.clip(level + deviation * rng.standard_normal(shape), 0, 1).astype(np.float32))
        samples.append((level + 0.5 * deviation * rng.standard_normal((M, *shape))).astype(np.float32))
    return truth, samples


def band_of(samples):
    return one_band([pb.calibrated_quantiles(x[None], 0.1) for x in samples])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Truth, samples and bands, to calibrate on and (`new`) to apply to."""
    folder = tmp_path_factory.mktemp("files")
    for name, seed in {"": 0, "new_": 1}.items():
        truth, samples = mixed(seed)
        band = band_of(samples)
        write_ragged(folder / f"{name}truth.zarr", {"truth": truth})
        write_ragged(folder / f"{name}samples.zarr", {"samples": samples})
        write_ragged(folder / f"{name}set.zarr", {"truth": truth, "lower": band.lower, "upper": band.upper})
        write_ragged(folder / f"{name}band.zarr", {"lower": band.lower, "upper": band.upper})
        zarr.open_group(folder / f"{name}band.zarr").attrs["source"] = band.source.state()
    return folder


@pytest.fixture(scope="module")
def wanted():
    """What Python gives for the samples: calibration, intervals of new bands, their evaluation."""
    (truth, samples), (new_truth, new_samples) = mixed(0), mixed(1)
    cal = pb.calibrate(truth, band_of(samples), risk_level=0.1, failure_prob=0.2, method=pb.Frontier(groups="band"))
    interval = cal.apply(band_of(new_samples))
    return cal, interval, pb.evaluate(new_truth, interval, calibration=cal)


def same(path, interval):
    found = read_ragged(path)
    for end in ("lower", "upper"):
        for a, b in zip(found[end], getattr(interval, end), strict=True):
            np.testing.assert_array_equal(a, b)
    return True


def test_samples_to_evaluation(files, tmp_path, wanted):
    cal, interval, ev = wanted
    out, intervals = tmp_path / "cal.safetensors", tmp_path / "intervals.zarr"
    said = done("calibrate", files / "truth.zarr", files / "samples.zarr", *RISK, "--out", out)
    assert out.read_bytes() == cal.to_bytes()
    assert said["guarantee"] == cal.guarantee
    applied = done("apply", out, files / "new_samples.zarr", "--out", intervals)
    assert applied["shape"] == [N]
    assert applied["mean_length"] == pytest.approx(ev.mean_length, rel=1e-6)
    assert same(intervals, interval)
    about = zarr.open_group(intervals, mode="r").attrs["pixelbounds"]
    assert about["guarantee"] == cal.guarantee
    stored = done("evaluate", files / "new_truth.zarr", intervals)
    made = done("evaluate", files / "new_truth.zarr", files / "new_samples.zarr", "--calibration", out)
    assert stored["evaluation"] == made["evaluation"] | {"apart_from": None}
    assert made["evaluation"] == ev.to_dict()
    assert stored["risk_level"] == 0.1
    text = call("apply", out, files / "new_samples.zarr", "--out", intervals, "--force")
    assert f"{N} of different sizes" in flat(text.output)
    assert same(intervals, interval)
    assert not leftovers(tmp_path)


def test_truth_and_bands_in_one_store(files, tmp_path, wanted):
    out = tmp_path / "cal.safetensors"
    done("calibrate", files / "set.zarr", files / "set.zarr", *RISK, "--out", out)
    truth, samples = mixed(0)
    band = band_of(samples)
    plain = pb.calibrate(
        truth, pb.Band(band.lower, band.upper), risk_level=0.1, failure_prob=0.2, method=pb.Frontier(groups="band")
    )
    assert out.read_bytes() == plain.to_bytes()  # such a store does not say how its band was made
    done("apply", out, files / "new_set.zarr", "--out", tmp_path / "intervals.zarr")
    assert same(tmp_path / "intervals.zarr", wanted[1])
    said = done("evaluate", files / "new_set.zarr", files / "new_set.zarr", "--calibration", out)
    assert said["evaluation"] == wanted[2].to_dict()


def test_report_and_rounds_between_sites(files, tmp_path, wanted):
    wanted[0].save(tmp_path / "cal.safetensors")
    refused = call("apply", tmp_path / "cal.safetensors", files / "new_set.zarr", "--out", tmp_path / "no.zarr")
    assert "samples: 19 at calibration, unknown here" in flat(refused.stderr)
    words = "report", files / "new_set.zarr", files / "new_band.zarr", "--calibration", tmp_path / "cal.safetensors"
    said = done(*words, "--out", tmp_path / "page.html", "--examples", 3)
    assert said["evaluation"] == wanted[2].to_dict()
    sites, study = {"north": "", "south": "new_"}, tmp_path / "study"

    def aggregate(*words, round):
        out = {site: tmp_path / f"{site}-{round}.safetensors" for site in sites}
        for site, name in sites.items():
            store = files / f"{name}set.zarr"
            done("federated", *words, store, store, "--site", site, "--out", out[site])
        return out.values()

    how = "--risk-level", 0.1, "--failure-prob", 0.2
    said = done("federated", "begin", *aggregate("announce", round=0), *how, "--out", study)
    while "round" in said:
        plan = study / f"plan-{said['round']}.safetensors"
        said = done("federated", "merge", study, *aggregate("answer", plan, round=said["round"]))
    both = [[*a, *b] for a, b in zip(mixed(0), mixed(1), strict=True)]
    band = band_of(both[1])
    cal = pb.calibrate(
        both[0], pb.Band(band.lower, band.upper), risk_level=0.1, failure_prob=0.2, method=pb.Frontier(groups="band")
    )
    assert (study / "calibration.safetensors").read_bytes() == cal.without_hashes().to_bytes()


def test_little_memory_and_a_cluster_change_no_bit(files, tmp_path, wanted, cluster):
    for name, more in {"here": ("--memory", "2M"), "there": ("--scheduler", cluster.scheduler_address)}.items():
        more = *more, "--scratch", tmp_path
        out, intervals = tmp_path / f"{name}.safetensors", tmp_path / f"{name}.zarr"
        done("calibrate", files / "truth.zarr", files / "samples.zarr", *RISK, "--out", out, *more)
        assert out.read_bytes() == wanted[0].to_bytes()
        done("apply", out, files / "new_samples.zarr", "--out", intervals, *more)
        assert same(intervals, wanted[1])
        said = done("evaluate", files / "new_truth.zarr", files / "new_samples.zarr", "--calibration", out, *more)
        assert said["evaluation"] == wanted[2].to_dict()
    assert not leftovers(tmp_path)


def refused(*words):
    result = call(*words)
    assert result.exit_code == 2, result.output
    return flat(result.output)
