# %% [markdown]
# # A first calibration
#
# Samples of a model that is too sure of itself become intervals with a promise, in four lines.
#
# You have true images, and for each of them some samples of what a model believes. The images here are synthetic, and
# the model is crude on purpose: it blurs, and its samples vary too little.

# %%
import numpy as np

import pixelbounds as pb
from pixelbounds.demo.synthetic import flawed_samples, synthetic_images

rng = np.random.default_rng(0)
truth = synthetic_images(400, 48, rng)  # (n, *pixels)
samples = flawed_samples(truth, 39, rng)  # (n, m, *pixels): 39 samples of each image

# figure: Two of the 39 samples of one image, their mean and their deviation.
shown = pb.plot.samples(samples[300:], image=0, count=2)

# %% [markdown]
# The samples give a band. The first 300 images calibrate it: a promise is chosen before they are looked at, and is
# certified on a part of them that shaped nothing.

# %%
band = pb.calibrated_quantiles(samples, miscoverage=0.2, axis=1)
calibration = pb.calibrate(truth[:300], band[:300], risk_level=0.1, failure_prob=0.1)
print(calibration.guarantee)

# %% [markdown]
# For new images there is a band and no truth. Applying the calibration widens the band where it must be.

# %%
interval = calibration.apply(band[300:])

# figure: One new image: the truth (which nobody knows), both ends of its intervals, and their length.
shown = pb.plot.intervals(interval, 0, truth=truth[300:])

# %% [markdown]
# Here the truth of the new images is known after all, so the promise can be looked at.

# %%
before = 1 - pb.Interval(band[300:].lower, band[300:].upper).contains(truth[300:]).mean()
evaluation = pb.evaluate(truth[300:], interval, calibration=calibration)
print(f"pixels outside: {before:.1%} before calibration, {evaluation.risk:.1%} after, promised 10%")

# figure: What the intervals of one new image miss.
shown = pb.plot.misses(truth[300:], interval, 0)
