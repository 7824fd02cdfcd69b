"""`pixelbounds federated`: the same rounds on files."""

import json
from pathlib import Path

import numpy as np
from hospitals import COUNTS, NAMES, data, in_one_place, parts_of
from typer.testing import CliRunner

import pixelbounds as pb
from pixelbounds.cli import app


def run(*words, code=0):
    result = CliRunner().invoke(app, ["federated", *map(str, words)], terminal_width=200)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if "--json" in words else result.output


def test_promises_in_words_reach_the_calibration_of_one_place(tmp_path):
    truth, band = data()
    bright = truth > 0.5
    told = []
    at = np.cumsum((0, *COUNTS))
    words = {}
    for i, (name, (t, b, _)) in enumerate(parts_of(truth, band).items()):
        own = bright[at[i] : at[i + 1]]
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "truth.npy", t)
        np.savez(tmp_path / name / "bands.npz", lower=b.lower, upper=b.upper)
        np.save(tmp_path / name / "labels.npy", own.astype(np.uint8) * 2)
        regions = "--region", f"{tmp_path / name / 'labels.npy'}:2,name=bright", "--region", "edges:0.3"
        words[name] = (tmp_path / name / "truth.npy", tmp_path / name / "bands.npz", "--site", name, *regions)
        told.append(tmp_path / name / "0.safetensors")
        run("announce", *words[name], "--out", told[-1])
    promises = "--promise", "share:0.3,name=bright", "--promise", "tail:0.5,above=0.4,name=edges"
    how = "--failure-prob", "0.2", "--method", "rcps", "--out", tmp_path / "study"
    within = run("begin", *told, "--promise", "share:0.3,within=edges", *how, code=2)
    assert "regions are at the sites" in within
    found = run("begin", *told, *promises, *how, "--json")
    while "guarantee" not in found:
        sent = [tmp_path / name / f"{found['round']}.safetensors" for name in NAMES]
        for name, out in zip(NAMES, sent, strict=True):
            run("answer", found["file"], *words[name], "--out", out)
        found = run("merge", tmp_path / "study", *sent, "--json")
    asked = [
        pb.share(0.3, within=bright, name="bright"),
        pb.tail(0.5, above=0.4, within=pb.regions.edges(truth, top=0.3), name="edges"),
    ]
    pooled = in_one_place(truth, band, promises=asked, failure_prob=0.2, method="rcps")
    assert Path(found["file"]).read_bytes() == pooled.to_bytes()
    assert run("merge", tmp_path / "study", *sent, "--json") == found  # a merge can be done again
    assert "exists" in run("begin", *told, "--risk-level", "0.2", "--out", tmp_path / "study", code=2)
    others = *words["east"][:3], "north", *words["east"][4:], "--out", tmp_path / "x.safetensors"
    other = run("answer", tmp_path / "study/plan-1.safetensors", *others, code=2)
    assert "images 50, but this site has 7" in " ".join(other.split())
    assert not (tmp_path / "x.safetensors").exists()
    assert [promise["name"] for promise in found["promises"]] == ["bright", "edges"]
    for region, why in (
        ("labels.npy", "no name"),
        ("body,cap=0.3", "cap is not known"),
        ("edges,name=", "not key=value"),
    ):
        assert why in run("announce", *words["east"], "--region", region, "--out", tmp_path / "x.safetensors", code=2)


def test_samples_become_bands_once(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.uniform(0.3, 0.7, (40, 6, 6)).astype(np.float32)
    samples = (truth[:, None] + 0.1 * rng.standard_normal((40, 19, 6, 6))).astype(np.float32)
    np.save(tmp_path / "truth.npy", truth)
    np.save(tmp_path / "samples.npy", samples)
    words = tmp_path / "truth.npy", tmp_path / "samples.npy", "--site", "north", "--out", tmp_path / "0.safetensors"
    assert "--bands-out" in run("announce", *words, code=2)
    run("announce", *words, "--bands-out", tmp_path / "bands.zarr")
    run("begin", tmp_path / "0.safetensors", "--method", "rcps", "--risk-level", "0.3", "--out", tmp_path / "study")
    run("answer", tmp_path / "study/plan-1.safetensors", words[0], tmp_path / "bands.zarr", "--site", "north",
        "--out", tmp_path / "1.safetensors")  # fmt: skip
    told = run("merge", tmp_path / "study", tmp_path / "1.safetensors", "--json")
    band = pb.calibrated_quantiles(samples, 0.1)
    assert Path(told["file"]).read_bytes() == in_one_place(truth, band, risk_level=0.3, method="rcps").to_bytes()


def files_of(folder, truth, band, units):
    """Two sites as files: truth, bands and units of each, by name."""
    for name, at in {"north": slice(0, 50), "south": slice(57, 120)}.items():
        (folder / name).mkdir()
        np.save(folder / name / "truth.npy", truth[at])
        np.savez(folder / name / "bands.npz", lower=band.lower[at], upper=band.upper[at])
        (folder / name / "units.txt").write_text("\n".join(units[at]))
        yield name, (folder / name / "truth.npy", folder / name / "bands.npz", "--site", name,
                     "--units", folder / name / "units.txt", "--least-count", 2)  # fmt: skip


def test_the_commands_of_a_study_with_a_key_small_counts_and_shared_patients(tmp_path):
    units = np.array([f"patient {unit // 2 % 30:02d}" for unit in range(sum(COUNTS))])
    sites = dict(files_of(tmp_path, *data(), units))
    key = ("--unit-key", tmp_path / "units.key")
    assert "Give every site a copy" in run("key", "--out", key[1])
    assert "exists" in run("key", "--out", key[1], code=2)
    sent = [tmp_path / name / "0.safetensors" for name in sites]
    for out, words in zip(sent, sites.values(), strict=True):
        assert run("announce", *words, "--out", out, *key, "--json")["unit_key"]
    begin = ("begin", *sent, "--risk-level", "0.3", "--method", "rcps", "--unit-name", "patient")
    assert "25 units are at more than one site" in run(*begin, "--out", tmp_path / "no", code=2)
    assert not (tmp_path / "no").exists()
    plan = run(*begin, "--out", tmp_path / "study", "--shared-units", "join", "--json")["file"]
    for name, words in sites.items():
        answer = ("answer", plan, *words, "--out", tmp_path / name / "1.safetensors")
        assert "misses rounded up to multiples of 2" in run(*answer)
        assert "limits" in run(*answer, "--limits", "0", "2", "--force", code=2)
    merge = ("merge", tmp_path / "study", *(tmp_path / name / "1.safetensors" for name in sites))
    said = run(*merge)
    for words in ("of a future patient, averaged over its images", "at most 30%;", "that certified"):
        assert words in " ".join(said.split())
    assert run(*merge, "--json")["record"]["settings"] == {"least_count": {"north": 2, "south": 2}}
