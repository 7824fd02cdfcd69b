# %% [markdown]
# # Images of many sizes
#
# Scans have the size that they have. Lists of arrays calibrate as they are, and every image counts the same.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pixelbounds as pb
from pixelbounds.demo.synthetic import flawed_samples, synthetic_images

rng = np.random.default_rng(9)
truth, bands = [], []
for _ in range(240):
    size = int(rng.integers(24, 57))
    image = synthetic_images(1, size, rng)
    truth.append(image[0])
    bands.append(pb.calibrated_quantiles(flawed_samples(image, 39, rng), miscoverage=0.2, axis=1))

calibration = pb.calibrate(truth[:180], bands[:180], risk_level=0.1, method=pb.Frontier(groups="band"))
interval = calibration.apply(bands[180:])
evaluation = pb.evaluate(truth[180:], interval, calibration=calibration)
print(f"images of {min(map(len, truth))} to {max(map(len, truth))} pixels across")
print(f"{evaluation.risk:.1%} outside in {len(truth) - 180} new images, promised 10%")

# %%
# figure: Three new images of different sizes, at one scale, and the length of their intervals.
figure, axes = plt.subplots(2, 3, figsize=(5.6, 3.3), layout="constrained")
for place, i in enumerate((0, 1, 2)):
    side = len(truth[180 + i])
    axes[0, place].imshow(truth[180 + i], "gray", vmin=0, vmax=1)
    shown = axes[1, place].imshow(interval.length[i], "cividis", vmin=0, vmax=0.5)
    axes[0, place].set_title(f"{side} x {side}")
    for one in axes[:, place]:
        one.set(xticks=[], yticks=[], xlim=(-0.5, 55.5), ylim=(55.5, -0.5))
        one.grid(visible=False)
        one.spines[:].set_visible(False)
axes[0, 0].set_ylabel("truth")
axes[1, 0].set_ylabel("length")
bar = figure.colorbar(shown, ax=axes[1], shrink=0.9, label="length")
