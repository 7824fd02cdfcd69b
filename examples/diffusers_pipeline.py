"""A pipeline of diffusers, conditioned on what was observed, from networks to a calibration; `make adapters` runs this.

The pipeline is real, its networks are small and know nothing yet: put yours in their place. The promise holds all the
same, with intervals as long as such a network deserves.
"""

import numpy as np
import torch
from diffusers import DDIMScheduler, UNet2DModel, VQModel
from diffusers.pipelines.latent_diffusion.pipeline_latent_diffusion_superresolution import LDMSuperResolutionPipeline

import pixelbounds as pb
from pixelbounds.samplers.adapters import from_pipeline

rng = np.random.default_rng(0)
truth = rng.uniform(0.3, 0.7, (40, 3, 8, 8)).astype(np.float32)
observations = np.clip(truth + 0.1 * rng.standard_normal(truth.shape), 0, 1).astype(np.float32)


def pipeline_of(seed):
    """An observation of three channels beside latents of three, and an autoencoder that keeps the size."""
    torch.manual_seed(seed)
    blocks = {"down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2, "norm_num_groups": 4}
    unet = UNet2DModel(sample_size=8, in_channels=6, out_channels=3, block_out_channels=(8, 8), **blocks)
    vqvae = VQModel(block_out_channels=(8,), norm_num_groups=4, num_vq_embeddings=16)
    pipeline = LDMSuperResolutionPipeline(vqvae=vqvae, unet=unet, scheduler=DDIMScheduler(num_train_timesteps=10))
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def arguments(observation, count):
    """What a call of the pipeline takes for `count` images of one observation; it wants them between -1 and 1."""
    images = torch.as_tensor(2 * observation - 1).expand(count, -1, -1, -1)
    return {"image": images, "num_inference_steps": 2, "eta": 1.0}


def bands_of(seed):
    """Bands of the pipeline: its name is diffusers, and a digest of its weights and settings."""
    return pb.bands_from(from_pipeline(pipeline_of(seed), arguments), observations, samples=9, miscoverage=0.2)


band = bands_of(seed=0)
print(band)
calibration = pb.calibrate(truth[:30], band[:30], risk_level=0.3, method="rcps")
print(calibration.guarantee)
evaluation = pb.evaluate(truth[30:], calibration.apply(band[30:]), calibration=calibration)
print(f"{evaluation.risk:.1%} of the values of new images outside, promised 30%")
try:
    calibration.apply(bands_of(seed=1))
except ValueError as error:  # another network
    print(error)
