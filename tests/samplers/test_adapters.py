"""Samplers of other libraries, with the real library where it can be imported."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pixelbounds.samplers import bands_from  # noqa: E402
from pixelbounds.samplers.adapters import from_azula, from_deepinv, from_monai, from_pipeline  # noqa: E402

torch.set_num_threads(1)
WHY = "not installed here; an environment of its own has it"
Y = np.random.default_rng(0).uniform(0.3, 0.7, (2, 1, 8, 8)).astype(np.float32)


def keeps_seed(sampler, shape=(1, 8, 8)):
    """Samples differ, repeat with their seed, and leave torch's generator alone."""
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    first, again, other = (np.stack([np.asarray(x) for x in sampler(Y[0], 5, seed)]) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), wanted)
    assert first.shape == (5, *shape)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert len(np.unique(first.reshape(5, -1), axis=0)) == 5
    band = bands_from(sampler, Y, samples=19, name="theirs")
    assert band.shape == (2, *shape)
    return first


def test_azula_is_near_the_posterior_of_a_gaussian_prior():
    denoise = pytest.importorskip("azula.denoise", reason=f"azula is {WHY}")
    from importlib import import_module

    mmps = import_module("azula.guidance.mmps").MMPSDenoiser
    ddim = import_module("azula.sample").DDIMSampler
    schedule = import_module("azula.noise").VESchedule(1e-2, 1e1)
    isotropic = import_module("azula.linalg.covariance").IsotropicCovariance
    prior = denoise.GaussianDenoiser(torch.zeros(()), isotropic(torch.tensor(1.0)), schedule)

    def build(y, steps=60):
        guided = mmps(prior, torch.as_tensor(y)[None], lambda x: x, isotropic(torch.tensor(0.25)))
        return ddim(guided, eta=1.0, steps=steps, silent=True)

    keeps_seed(from_azula(lambda y: build(y, steps=3), (1, 8, 8)))
    draws = np.stack([x.numpy() for x in from_azula(build, (1, 8, 8), batch=200)(Y[0], 200, 0)])
    np.testing.assert_allclose(draws.mean(0).mean(), 0.8 * Y[0].mean(), atol=0.02)
    assert draws.std(0).mean() == pytest.approx(np.sqrt(0.2), rel=0.1)  # DDIM is of first order


def test_monai_samples_with_and_without_conditioning():
    pytest.importorskip("monai", reason=f"monai is {WHY}")
    from importlib import import_module

    unet = import_module("monai.networks.nets").DiffusionModelUNet
    scheduler = import_module("monai.networks.schedulers").DDPMScheduler(num_train_timesteps=10)
    scheduler.set_timesteps(num_inference_steps=3)
    inferer = import_module("monai.inferers").DiffusionInferer(scheduler)
    small = {"spatial_dims": 2, "out_channels": 1, "channels": (8, 8), "attention_levels": (False, False)}
    small |= {"num_res_blocks": 1, "norm_num_groups": 4}
    torch.manual_seed(0)
    keeps_seed(from_monai(inferer, unet(in_channels=1, **small).eval(), (1, 8, 8)))
    guided = unet(in_channels=2, **small).eval()
    keeps_seed(from_monai(inferer, guided, (1, 8, 8), condition=lambda y: torch.as_tensor(y)[None], batch=3))


def test_a_pipeline_of_diffusers():
    pytest.importorskip("diffusers", reason=f"diffusers is {WHY}")
    from importlib import import_module

    diffusers = import_module("diffusers")
    blocks = {"down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2, "norm_num_groups": 4}
    torch.manual_seed(0)
    unet = diffusers.UNet2DModel(
        sample_size=8, in_channels=1, out_channels=1, block_out_channels=(8, 8), layers_per_block=1, **blocks
    )
    pipeline = diffusers.DDPMPipeline(unet, diffusers.DDPMScheduler(num_train_timesteps=10))
    pipeline.set_progress_bar_config(disable=True)
    keeps_seed(from_pipeline(pipeline, lambda y, count: {"batch_size": count, "num_inference_steps": 2}))
    with pytest.raises(ValueError, match="raised ValueError at image 0: the pipeline gave 1 images where 8"):
        bands_from(from_pipeline(pipeline, lambda y, count: {"num_inference_steps": 1}), Y, samples=19)


def test_the_example_of_a_pipeline_calibrates_and_another_network_is_refused():
    pytest.importorskip("diffusers", reason=f"diffusers is {WHY}")
    example = Path(__file__).parents[2] / "examples" / "diffusers_pipeline.py"
    said = [subprocess.run([sys.executable, example], capture_output=True, text=True, check=True) for _ in range(2)]
    assert said[0].stdout == said[1].stdout  # the same network has one name, whatever process it is in
    assert "this band was made in another way" in said[0].stdout


def test_deepinv_gives_one_sample_a_call():
    from importlib import import_module

    try:
        deepinv = import_module("deepinv")
    except (ImportError, RuntimeError) as error:  # a torchvision of another build raises as it is loaded
        pytest.skip(f"deepinv is {WHY}, or its torchvision cannot be loaded: {error}")
    physics = deepinv.physics.Denoising(deepinv.physics.GaussianNoise(0.2))
    keeps_seed(
        from_deepinv(
            deepinv.sampling.DPS(deepinv.models.DRUNet(1, 1, nc=[8, 8, 8, 8], nb=1, pretrained=None), max_iter=3),
            physics,
        )
    )
