"""Three sites over NVFlare, in its simulator: a job folder in, the calibration of one place out, byte for byte.

The simulator starts a server and a process for each site, which speak on loopback (15 s alone on two cores). Skipped
where NVFlare is missing.
"""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hospitals import NAMES, announced, data, in_one_place, parts_of, regions_of, with_regions
from refusals import refuses
from typer.testing import CliRunner

import pixelbounds as pb
from pixelbounds.cli import app

pytest.importorskip("nvflare", reason="NVFlare is not installed: pip install 'pixelbounds[federated]'")

ALLOWED = ["pixelbounds.federated.engine.", "pixelbounds.workflows.federated.SiteImages"]  # as docs/federated.md says
PROMISES = {  # as text, and with the region in one place
    "share:0.3": lambda regions: pb.share(0.3),
    "tail:0.6,above=0.5": lambda regions: pb.tail(0.6, above=0.5),
    "share:0.4,name=edges": lambda regions: pb.share(0.4, within=regions["edges"], name="edges"),
    "tail:0.5,above=0.5,name=rare": lambda regions: pb.tail(0.5, above=0.5, within=regions["rare"], name="rare"),
    "share:0.5,name=rare": lambda regions: pb.share(0.5, within=regions["rare"], name="rare"),
    "share:0.4,cap=0.8,name=women": lambda regions: pb.share(0.4, cap=0.8, within=regions["women"], name="women"),
    "share:0.45,name=weights": lambda regions: pb.share(0.45, within=regions["weights"], name="weights"),
}


def write_site(folder, local, name, truth, band, regions):
    """Images of a site, and the file in which it says where they are."""
    folder.mkdir()
    np.save(folder / "truth.npy", truth)
    np.savez(folder / "bands.npz", lower=band.lower, upper=band.upper)
    for region, values in regions.items():
        np.save(folder / f"{region}.npy", values)
    words = [f"{folder / region}.npy,name={region}" for region in regions]
    said = {"truth": str(folder / "truth.npy"), "bands": str(folder / "bands.npz"), "region": words}
    (local / f"pixelbounds-{name}.toml").write_text("".join(f"{x} = {json.dumps(y)}\n" for x, y in said.items()))


def simulated(job, workspace):
    """Run a job with all sites in NVFlare's simulator: what it wrote, and the folder of the server's run."""
    words = ["-w", workspace, "-c", ",".join(NAMES), "-t", str(len(NAMES))]
    command = [sys.executable, "-m", "nvflare.private.fed.app.simulator.simulator", *words, job]
    done = subprocess.run(map(str, command), capture_output=True, text=True, timeout=120, cwd=workspace)
    return done.stdout + done.stderr, workspace / "server" / "simulate_job"


def written_job(folder, *words):
    result = CliRunner().invoke(app, ["federated", "job", *(w for x in NAMES for w in ("--site", x)), *words])
    assert result.exit_code == 0, result.output
    return folder


def test_a_job_reaches_the_calibration_of_one_place_with_seven_promises(tmp_path):
    truth, band = data()
    regions = regions_of(truth)
    local = tmp_path / "workspace" / "local"
    local.mkdir(parents=True)
    (local / "resources.json").write_text(json.dumps({"format_version": 2, "class_allow_list": ALLOWED}))
    for name, (t, b, given) in with_regions(parts_of(truth, band), regions).items():
        write_site(tmp_path / name, local, name, t, b, given["regions"])
    promises = [word for text in PROMISES for word in ("--promise", text)]
    job = written_job(tmp_path / "study", "--failure-prob", "0.2", *promises, "--out", str(tmp_path / "study"))
    log, run = simulated(job, tmp_path / "workspace")
    assert (run / "calibration.safetensors").is_file(), log[-3000:]
    pooled = in_one_place(truth, band, promises=[make(regions) for make in PROMISES.values()], failure_prob=0.2)
    assert (run / "calibration.safetensors").read_bytes() == pooled.to_bytes()
    assert len(pooled.promises) == 7


def test_the_page_names_the_classes_that_a_site_allows():
    page = (Path(__file__).parents[2] / "docs" / "federated.md").read_text()
    assert json.dumps({"class_allow_list": ALLOWED}) in page


def test_a_message_of_another_site_or_none_ends_the_study():
    """NVFlare knows who sent a reply; what the message says must be the same."""
    from nvflare.apis.fl_constant import ReturnCode
    from nvflare.apis.shareable import make_reply

    from pixelbounds.federated.engine import StudyController

    messages = dict(zip(NAMES, announced(parts_of(*data())), strict=True))

    def asked(replies):
        def broadcast(task, *_, **__):
            for name, (code, message) in replies.items():
                result = make_reply(code)
                result["message"] = message.to_bytes()
                task.result_received_cb(SimpleNamespace(client=SimpleNamespace(name=name), result=result), None)

        controller = StudyController(list(NAMES), {})
        controller.broadcast_and_wait = broadcast
        return lambda: controller._ask("announce", b"", None, None)

    good = {name: (ReturnCode.OK, message) for name, message in messages.items()}
    assert [message.text["site"] for message in asked(good)()] == list(NAMES)
    refuses(asked({**good, "east": good["south"]}), "site 'east' sent a message of site 'south'")
    failed = (ReturnCode.EXECUTION_EXCEPTION, messages["east"])
    refuses(asked({**good, "east": failed}), "'east' did not announce", "EXECUTION_EXCEPTION", error=RuntimeError)
    silent = {name: good[name] for name in ("north", "south")}
    refuses(asked(silent), "'east'", "no reply", error=RuntimeError)


def test_what_a_job_cannot_hold_is_refused(tmp_path):
    def refused(*words):
        result = CliRunner().invoke(app, ["federated", "job", *words, "--risk-level", "0.2"], terminal_width=200)
        assert result.exit_code == 2
        return " ".join(result.output.split())

    out = ("--out", str(tmp_path / "job"))
    assert "names a site twice" in refused("--site", "north", "--site", "north", *out)
    assert "KRCPS" in refused("--site", "north", "--method", "krcps", *out)
    assert "exists" in refused("--site", "north", "--out", str(tmp_path))
    assert not (tmp_path / "job").exists()
