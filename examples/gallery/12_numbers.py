# %% [markdown]
# # Numbers instead of pixels
#
# The mean of an organ in Hounsfield units, with an interval of its own.
#
# Errors of pixels average out, or do not, so intervals of pixels say little about a mean. Take the number of every
# sample instead, and calibrate the band of these numbers.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pixelbounds as pb
from pixelbounds.demo.canvas import Organ
from pixelbounds.demo.phantom import phantoms
from pixelbounds.demo.synthetic import flawed_samples
from pixelbounds.report.style import BLACK, BLUE, ORANGE

made = phantoms(300, 32, seed=11)
rng = np.random.default_rng(0)
samples = flawed_samples(made.images, 39, rng)
samples += rng.normal(0, 0.05, (300, 39, 1, 1))  # the model is unsure of the level, too

mask = made.organs == Organ.LIVER  # stands in for a segmentation that is known for new images, too
some = mask.sum(axis=(1, 2)) >= 5


def liver_mean(image, mask):
    """Mean of the liver in Hounsfield units; images show the window from -160 to 240 HU as 0 to 1."""
    return 400 * image[mask].mean() - 160


band = pb.functional_band(samples[some], liver_mean, 0.2, known=[mask[some]])
value = pb.functional_values(made.images[some], liver_mean, known=[mask[some]])
first, new = slice(0, -60), slice(-60, None)
calibration = pb.calibrate(value[first], band[first], risk_level=0.1, method="rcps", limits=None)
interval = calibration.apply(band[new])
inside = interval.contains(value[new])[:, 0]
print(f"{(~inside).sum()} of {len(inside)} new livers outside; mean length {interval.length.mean():.0f} HU")
print(calibration.guarantee)

# %%
# figure: Mean of the liver of 60 new phantoms: intervals, the truth within (black) and outside (orange).
order = np.argsort(value[new][:, 0])
place = np.arange(len(order))
figure, axes = plt.subplots(figsize=(6.4, 2.6), layout="constrained")
axes.vlines(place, interval.lower[order, 0], interval.upper[order, 0], color=BLUE, linewidth=2, alpha=0.6)
colours = np.where(inside[order], BLACK, ORANGE)
axes.scatter(place, value[new][order, 0], c=colours, s=9, zorder=3)
labels = axes.set(xlabel="phantom, in order of its true mean", ylabel="mean of the liver (HU)")
