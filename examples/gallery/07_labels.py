# %% [markdown]
# # Labels that are known at test time
#
# A segmentation of the reconstruction, however wrong, lets a hard organ widen by itself, and the rest stays short.
#
# A promise about a region needs the region on calibration images only. If a segmentation of new images is at hand as
# well (a network's, full of faults), groups can lie within its labels. The promise does not depend on how good it is;
# the length does.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pixelbounds as pb
from pixelbounds.demo.synthetic import flawed_samples, synthetic_images

rng = np.random.default_rng(4)
truth = synthetic_images(500, 32, rng)
row, column = np.mgrid[0:32, 0:32]
centre = rng.integers(9, 23, (500, 2))
organ = np.hypot(row - centre[:, :1, None], column - centre[:, 1:, None]) < 6  # the true organ of each image
samples = flawed_samples(truth, 39, rng, sigma=0.1)
speckle = 0.25 * rng.standard_normal(truth.shape)  # in the organ the truth has a texture that the model does not know
truth = np.clip(truth + np.where(organ, speckle, 0), 0, 1).astype(np.float32)
band = pb.calibrated_quantiles(samples, miscoverage=0.2, axis=1)

drawn = centre + rng.integers(-2, 3, (500, 2))  # a segmentation that is off by up to two pixels
guess = (np.hypot(row - drawn[:, :1, None], column - drawn[:, 1:, None]) < 6).astype(int)
print(f"overlap of guess and organ: {2 * (organ & (guess == 1)).sum() / (organ.sum() + guess.sum()):.2f} (Dice)")

# %%
promises = [pb.share(0.10), pb.share(0.10, within=organ[:300], name="organ")]
method = pb.Frontier(groups="band")
plain = pb.calibrate(truth[:300], band[:300], promises=promises, method=method)
labelled = pb.calibrate(truth[:300], band[:300], promises=promises, labels=guess[:300], method=method)
intervals = {"without labels": plain.apply(band[300:]), "with labels": labelled.apply(band[300:], labels=guess[300:])}
for name, interval in intervals.items():
    outside = ~interval.contains(truth[300:])
    print(f"{name}: {outside.mean():.1%} outside, {outside[organ[300:]].mean():.1%} in the organ,", end=" ")
    print(f"mean length {interval.length.mean():.3f}")

# %%
# figure: Lengths for one new image. The line is the true organ, which nobody knows at test time.
figure, axes = plt.subplots(1, 2, figsize=(5.2, 2.5), layout="constrained")
most = max(interval.length[3].max() for interval in intervals.values())
for place, (name, interval) in zip(axes, intervals.items(), strict=True):
    shown = place.imshow(interval.length[3], "cividis", vmin=0, vmax=most)
    place.contour(organ[303], [0.5], colors="white", linewidths=1)
    place.set(title=name, xticks=[], yticks=[])
    place.grid(visible=False)
bar = figure.colorbar(shown, ax=axes, shrink=0.8, label="length of the interval")
