"""Sampling from and into files that are wrong, damaged or shared: said, not traced, and nothing is left over."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sampling_world import OPTIONS, M, N, call, harm, same  # noqa: E402

from pixelbounds.samplers.runs import open_run  # noqa: E402
from pixelbounds.workflows import SampleOptions, sample_to  # noqa: E402

torch.set_num_threads(1)


def test_another_configuration_is_refused_with_what_differs(world, score, whole):
    words = ("sample", score, world / "y.npy", "--out", whole.path, "--samples", M, "--steps", 4, "--held-out", 1)
    result = call(*words, "--keep-samples")
    assert result.exit_code == 0, result.output
    for more, said in {
        ("--seed", 3, "--keep-samples"): "seed is 0 there and 3 here",
        ("--sigma0", 0.2, "--keep-samples"): "sigma_0 is 0.3 there and 0.2 here",
        ("--sampler", "reverse_sde", "--keep-samples"): "sampler is 'heun' there and 'reverse_sde' here",
        ("--images", "0:5", "--keep-samples"): "images is 6 there and 5 here",
    }.items():
        result = call(*words, *more)
        assert result.exit_code == 2
        assert said in " ".join(result.output.split())
    assert open_run(whole.path).done.all()


@pytest.mark.parametrize(
    "change, code, words",
    [
        ({"network": "none.safetensors"}, 2, "does not exist"),
        ({"observations": "none.npy"}, 2, "does not exist"),
        ({"--sigma0": 1.5}, 2, "outside (sigma_min, sigma_max]"),
        ({"--sigma0": 0.01}, 2, "outside (sigma_min, sigma_max]"),
        ({"--samples": 18}, 1, "draw at least 19"),
        ({"--sampler": "huen"}, 2, "did you mean 'heun'"),
        ({"--seed": -1}, 2, "seed is -1"),
        ({"--batch": 0}, 2, "batch is 0"),
        ({"--images": "9:12"}, 2, "chooses none of 6 images"),
        ({"--images": "some"}, 2, "is no range"),
        ({"--device": "tpu"}, 2, "must be cpu"),
        ({"observations": "nan.npy"}, 2, "observation 4 holds NaN"),
        ({"observations": "odd.npy"}, 2, "multiples of 2"),
        ({"observations": "colour.npy"}, 2, "this network takes (n, h, w)"),
        ({"observations": "whole.npy"}, 2, "save the images as float32"),
        ({"observations": "scaled.npy"}, 2, "further beyond the limits (0, 1) than noise of sigma_0 = 0.3 goes"),
        ({"observations": "far.npy"}, 2, "observation 5 spans"),
        ({"--sampler": "euler_maruyama", "--steps": 1}, 2, "1 steps over [0, 1] leave none below sigma_0 = 0.3"),
        ({"network": "truncated.safetensors"}, 2, "truncated"),
        ({"network": "y.npy"}, 2, "is not a pixelbounds diffusion network"),
        ({"--out": "x.npy"}, 2, "no zarr store"),
    ],
)
def test_wrong_input_is_a_message_and_leaves_no_store(world, score, tmp_path, change, code, words):
    y = np.load(world / "y.npy")
    nan = y.copy()
    nan[4, 2, 2] = np.nan
    far = y.copy()
    far[5, 1, 1] = -2.41  # 8 sigma_0 and a thousandth of the limits is -2.401
    for name, x in {
        "nan": nan, "odd": y[:, :7], "colour": np.stack([y] * 3, 1), "whole": y.astype(np.int64), "y": y, "x": y,
        "scaled": 255 * y, "far": far,
    }.items():  # fmt: skip
        np.save(tmp_path / f"{name}.npy", x)
    (tmp_path / "truncated.safetensors").write_bytes(score.read_bytes()[:-100])
    options = {"--out": "run.zarr", "--samples": M, "--steps": 2} | {k: v for k, v in change.items() if k[0] == "-"}
    options["--out"] = tmp_path / options["--out"]
    network = tmp_path / change["network"] if "network" in change else score
    result = call(
        "sample",
        network,
        tmp_path / change.get("observations", "y.npy"),
        *[x for pair in options.items() for x in pair],
    )
    assert result.exit_code == code, result.output
    output = " ".join(result.output.replace("│", " ").split())
    assert words in output, output
    assert "Traceback" not in output
    assert not (tmp_path / "run.zarr").exists()


@pytest.mark.filterwarnings("ignore:.*quantiles")
@pytest.mark.parametrize(
    "given",
    [
        {"steps": 4},
        {"sampler": "nonsense", "steps": -3},
        {"miscoverage": 0.5},
        {"held_out": 2, "keep_samples": True},
        {"sampler": "heun", "miscoverage": 0.1, "held_out": 0, "keep_samples": False},
        {"samples": M},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["regressor", "conffusion"])
def test_options_of_the_sampler_are_refused_where_none_samples(world, tmp_path, kind, given):
    if kind == "regressor" and "samples" in given:
        pytest.skip("passes with dropout")
    path, y = world / kind / f"{kind}.safetensors", np.load(world / "y.npy")
    with pytest.raises(ValueError, match=f"is a {kind} network, which draws no samples; leave --") as refused:
        sample_to(path, y, tmp_path / "run.zarr", SampleOptions(batch=40, **given))
    assert all(f"--{name.replace('_', '-')}" in str(refused.value) for name in given)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- limits


def in_hounsfield(folder, world):
    np.save(folder / "hu.npy", 400 * np.load(world / "y.npy") - 160)
    return folder / "hu.npy"


def test_other_limits_than_the_networks_are_refused(world, score, whole, tmp_path):
    words = ("sample", score, in_hounsfield(tmp_path, world), "--out", tmp_path / "run.zarr", "--samples", M)
    result = call(*words, "--limits", -1000, 1000)
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert "limits are (-1000, 1000), but" in said
    assert "was trained on images in (0, 1); rescale the observations to those, sigma_0 in proportion" in said
    result = call(*words)
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert "further beyond the limits (0, 1)" in said
    assert "rescale the observations to these limits, and give the deviation of their noise in the same units" in said
    assert "--limits" not in said  # that would be refused
    assert not (tmp_path / "run.zarr").exists()
    with pytest.raises(ValueError, match=r"trained on images in \(0, 1\)"):
        sample_to(score, np.load(world / "y.npy"), tmp_path / "run.zarr", replace(OPTIONS, limits=(-1.0, 1.0)))
    again = sample_to(score, np.load(world / "y.npy"), tmp_path / "run.zarr", replace(OPTIONS, limits=(0, 1)))
    same(again, whole)  # to say the same is no error


@pytest.mark.parametrize("how", ["truncate", "flip", "remove"])
def test_a_damaged_image_is_named_and_can_be_drawn_again(world, score, whole, tmp_path, how):
    y = np.load(world / "y.npy")
    shutil.copytree(whole.path, tmp_path / "run.zarr")
    harm(tmp_path / "run.zarr" / "upper" / "c.3.0.0", how)
    with pytest.raises(ValueError, match=r"upper of image 3 in .* is damaged"):
        open_run(tmp_path / "run.zarr").band()
    assert open_run(tmp_path / "run.zarr").band("naive").shape == (N, 8, 8)  # the rest can be used
    with pytest.raises(ValueError, match="--repair"):
        sample_to(score, y, tmp_path / "run.zarr", OPTIONS)
    repair = SampleOptions(**{**vars(OPTIONS), "repair": True})
    same(sample_to(score, y, tmp_path / "run.zarr", repair), whole)
