# %% [markdown]
# # Your own sampler
#
# Any function from an observation to samples can be plugged in; seeds, memory and checks are taken care of.
#
# A sampler is a function `(observation, samples, seed) -> samples`. This one denoises by borrowing small patches of
# some training images, and adds what is left of the noise. No theory supports it, and the guarantee needs none.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pixelbounds as pb
from pixelbounds.demo.synthetic import synthetic_images

rng = np.random.default_rng(5)
SIGMA = 0.12
training = synthetic_images(60, 32, rng)
patches = np.lib.stride_tricks.sliding_window_view(training, (3, 3), axis=(1, 2)).reshape(-1, 9)
patches = patches[rng.choice(len(patches), 300, replace=False)]
centres = patches[:, 4]


def borrowed(observation, samples, seed):
    """For every pixel, values of the middle of patches that look like its own neighbourhood."""
    own = np.random.default_rng(seed)
    padded = np.pad(observation, 1, mode="reflect")
    around = np.lib.stride_tricks.sliding_window_view(padded, (3, 3)).reshape(-1, 9)
    distance = (around**2).sum(1)[:, None] - 2 * around @ patches.T + (patches**2).sum(1)
    weight = np.exp(-0.5 * (distance - distance.min(1, keepdims=True)) / SIGMA**2).cumsum(1)
    weight /= weight[:, -1:]
    for _ in range(samples):
        place = (own.uniform(size=(len(weight), 1)) > weight).sum(1)
        yield centres[np.minimum(place, len(centres) - 1)].reshape(observation.shape)


# %% [markdown]
# `bands_from` draws, reduces the samples to a band as they come, and gives every image a seed of its own. With
# `out="run.zarr"` it would be a run on disk that resumes where it stopped.

# %%
truth = synthetic_images(180, 32, rng)
observations = truth + SIGMA * rng.standard_normal(truth.shape).astype(np.float32)
band = pb.bands_from(borrowed, observations, samples=19, miscoverage=0.2, seed=0)
print(band)

calibration = pb.calibrate(truth[:130], band[:130], risk_level=0.1)
interval = calibration.apply(band[130:])
evaluation = pb.evaluate(truth[130:], interval, calibration=calibration)
print(f"{evaluation.risk:.1%} outside, mean length {evaluation.mean_length:.3f}")

# figure: A noisy observation and its intervals.
figure, axes = plt.subplots(1, 4, figsize=(7.2, 2.0), layout="constrained")
axes[0].imshow(observations[130], "gray", vmin=0, vmax=1)
axes[0].set(title="observation", xticks=[], yticks=[])
axes[0].grid(visible=False)
shown = pb.plot.intervals(interval, 0, axes=axes[1:])

# %% [markdown]
# Errors name the image, here one whose samples are not finite.

# %%
try:
    pb.bands_from(
        lambda observation, samples, seed: np.full((samples, 32, 32), np.nan),
        observations[:2],
        samples=19,
        miscoverage=0.2,
    )
except ValueError as error:
    print(error)
