"""Killed workers and drivers, damaged and missing chunks, full disks: nothing finished is lost, no bit changes."""

import os
import signal
import subprocess
import sys
import time

import dask.array as da
import numpy as np
import pytest
import zarr
from stores import CHOICES, N, store, world
from typer.testing import CliRunner
from waiting import wait_until, whole_files

import pixelbounds as pb
from pixelbounds import execution, samplers
from pixelbounds.cli import app
from pixelbounds.storage.chunks import BadChunk

pytest_plugins = ["clusters"]
RISK = "--risk-level", "0.1", "--failure-prob", "0.2"


def ends(path):
    """All that a store of bands or intervals holds."""
    group = zarr.open_group(path, mode="r")
    return {name: group[name][:].tobytes() for name in ("lower", "upper")}


def marks_of(path):
    """The marks of finished blocks in a store, with when each was written.

    Files on their way are left out: workers outlive a driver that was killed and still finish what they began.
    """
    folder = path / "done" / "c"
    return {name: (folder / name).stat().st_mtime_ns for name in whole_files(folder)}


# ---------------------------------------------------------------- processes that die


def test_a_worker_killed_in_the_middle(tmp_path, arrays, wanted, client):
    slow = da.from_array(store(tmp_path, "s.zarr", arrays[1], (1,)), chunks=(1, -1, -1, -1))
    slow = slow.map_blocks(lambda x: (time.sleep(0.02), x)[1], dtype=np.float32)  # as a network disk would be
    killed = []

    def kill(done, total):
        if 0 < done < total and not killed:
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    with execution.running(client, memory="300K", progress=kill):  # blocks of few images
        band, there = samplers.bands_to(slow, tmp_path / "b.zarr", 0.1)
        assert killed
        assert killed[0] not in client.run(os.getpid).values()
        found = pb.calibrate(store(tmp_path, "t.zarr", arrays[0], (7,)), band, **CHOICES)
    assert there.all()
    assert band.lower.nchunks > 8
    assert found.to_bytes() == wanted[0].to_bytes()


def drive(*words):
    """A command in a process of its own."""
    command = [sys.executable, "-m", "pixelbounds.cli", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def killed_in_the_middle(part, *words):
    """Start a command, kill it when some blocks are finished, and return the marks that were there."""
    process = drive(*words)
    wait_until(lambda: len(marks_of(part)) >= 5, process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return marks_of(part)


def killed_and_started_again(target, *words):
    """Kill a command in the middle and run it again: it goes on, and what was finished is not made again."""
    part = target.with_name(f"{target.name}.part")
    before = killed_in_the_middle(part, *words)
    marks = np.asarray(zarr.open_group(part, mode="r")["done"][:])
    assert 0 < marks.sum() < len(marks)
    assert not target.exists()
    process = drive(*words)
    text, _ = process.communicate()
    assert process.returncode == 0, text
    assert marks_of(target).items() > before.items()
    assert not list(target.rglob("*.partial"))
    assert not part.exists()


def test_the_driver_of_a_cluster_killed_and_started_again(tmp_path, cluster):
    truth, samples = world(120, size=24)
    store(tmp_path, "truth.zarr", truth, (20,))
    store(tmp_path, "samples.zarr", samples, (1,), compressors=None)
    cal, bands = tmp_path / "cal.safetensors", tmp_path / "bands.zarr"
    words = "calibrate", tmp_path / "truth.zarr", tmp_path / "samples.zarr", *RISK, "--out", cal, "--groups", "band"
    more = "--bands-out", bands, "--memory", "300K", "--scheduler", cluster.scheduler_address
    killed_and_started_again(bands, *words, *more)
    band = pb.calibrated_quantiles(samples, 0.1)
    assert ends(bands) == {x: getattr(band, x).tobytes() for x in ("lower", "upper")}
    assert cal.read_bytes() == pb.calibrate(truth, band, **CHOICES, method=pb.Frontier(groups="band")).to_bytes()


def test_applying_killed_and_started_again(tmp_path, wanted):
    _, samples = world(120)
    store(tmp_path, "samples.zarr", samples, (1,), compressors=None)
    cal, out = tmp_path / "cal.safetensors", tmp_path / "i.zarr"
    wanted[0].save(cal)
    killed_and_started_again(out, "apply", cal, tmp_path / "samples.zarr", "--out", out, "--memory", "300K")
    interval = wanted[0].apply(pb.calibrated_quantiles(samples, 0.1))
    assert ends(out) == {x: getattr(interval, x).tobytes() for x in ("lower", "upper")}


def interrupt(done, total):
    if done > total / 2:
        raise KeyboardInterrupt


def test_a_finished_block_that_was_damaged_since_is_made_again(tmp_path, arrays, wanted):
    samples = store(tmp_path, "s.zarr", arrays[1], (1,))
    with pytest.raises(KeyboardInterrupt), execution.running(memory="300K", threads=1, progress=interrupt):
        samplers.bands_to(samples, tmp_path / "b.zarr", 0.1)
    part = tmp_path / "b.zarr.part"
    cut_short(part / "lower" / "c" / "0" / "0" / "0")
    (part / "upper" / "c" / "1" / "0" / "0").unlink()
    band, _ = samplers.bands_to(samples, tmp_path / "b.zarr", 0.1)
    np.testing.assert_array_equal(band.lower[:], wanted[1].lower)
    np.testing.assert_array_equal(band.upper[:], wanted[1].upper)


# ---------------------------------------------------------------- chunks

HOW = {"plain": {"compressors": None}, "zstd": {}, "v2": {"zarr_format": 2}}


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-7])


def chunk(folder, name, image, how):
    zeros = "0." * (2 if name == "samples" else 1) + "0"
    return folder / f"{name}.zarr" / (f"{image}.{zeros}" if how == "v2" else f"c/{image}/{zeros.replace('.', '/')}")


@pytest.fixture(params=HOW)
def damaged(request, tmp_path, arrays):
    """Truth and samples of which one chunk is cut short and one is gone: images 31 and 17; the way they are packed."""
    how = request.param
    store(tmp_path, "truth.zarr", arrays[0], (1,), **HOW[how])
    store(tmp_path, "samples.zarr", arrays[1], (1,), **HOW[how])
    cut_short(chunk(tmp_path, "samples", 31, how))
    chunk(tmp_path, "truth", 17, how).unlink()
    return tmp_path, how


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_damaged_chunk_is_named_and_a_missing_one_too(damaged, client, where):
    folder, how = damaged
    truth, samples = (zarr.open_array(folder / f"{name}.zarr", mode="r") for name in ("truth", "samples"))
    truth = execution.guarded(truth)
    with (
        pytest.raises(BadChunk, match=f"{chunk(folder, 'samples', 31, how)} is damaged"),
        execution.running(client if where == "there" else None),
    ):
        samplers.bands_to(execution.guarded(samples), folder / "b.zarr", 0.1)
    with (
        pytest.raises(BadChunk, match=f"{chunk(folder, 'truth', 17, how)} is missing"),
        execution.running(client if where == "there" else None),
    ):
        pb.calibrate(truth, pb.Band(truth, truth), risk_level=0.1, method="rcps")


def test_the_commands_name_it_or_skip_it(damaged, arrays, wanted):
    folder, how = damaged
    words = ["calibrate", folder / "truth.zarr", folder / "samples.zarr", *RISK, "--out", folder / "cal.safetensors"]
    words = [*map(str, words), "--bands-out", str(folder / "bands.zarr")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert str(chunk(folder, "truth", 17, how)) in result.stderr.replace("\n", "")
    result = CliRunner().invoke(app, [*words, "--skip-bad"])
    assert result.exit_code == 0, result.stderr
    assert "2 images in bad chunks: 17, 31" in result.stdout
    found, good = pb.load_calibration(folder / "cal.safetensors"), np.setdiff1d(np.arange(N), [17, 31])
    few = pb.calibrate(arrays[0][good], wanted[1][good], **CHOICES)
    assert found.record.settings == {"skipped": [17, 31]}
    assert found.record.images == N - 2
    assert found.record.digest == few.record.digest
    np.testing.assert_array_equal(found.widening, few.widening)
    assert "2 could not and were left out: nothing is promised for such" in found.guarantee
