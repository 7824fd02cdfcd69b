# %% [markdown]
# # Three methods, one promise
#
# RCPS widens all pixels alike, K-RCPS by groups along a line, the frontier first where a unit of length removes most
# misses.
#
# All three give the same promise. They differ in what it costs, which is length.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pixelbounds as pb
from pixelbounds.demo.synthetic import flawed_samples, synthetic_images

rng = np.random.default_rng(10)
truth = synthetic_images(420, 40, rng)
band = pb.calibrated_quantiles(flawed_samples(truth, 39, rng), miscoverage=0.2, axis=1)
made = {
    method: pb.calibrate(truth[:320], band[:320], risk_level=0.1, method=method)
    for method in ("rcps", "krcps", "frontier")
}
intervals = {method: calibration.apply(band[320:]) for method, calibration in made.items()}
for method, interval in intervals.items():
    outside = 1 - interval.contains(truth[320:]).mean()
    print(f"{method:9s} mean length {interval.length.mean():.3f}, {outside:.1%} of new pixels outside")

# %%
# figure: Lengths for one new image, by method.
figure, axes = plt.subplots(1, 3, figsize=(6.4, 2.2), layout="constrained")
for place, (method, interval) in zip(axes, intervals.items(), strict=True):
    shown = place.imshow(interval.length[0], "cividis", vmin=0, vmax=0.6)
    place.set(title=method, xticks=[], yticks=[])
    place.grid(visible=False)
bar = figure.colorbar(shown, ax=axes, shrink=0.9, label="length")

# %% [markdown]
# The curve of a calibration: what was seen and bounded along its path, and where the test from the wide end stopped.

# %%
# figure: The path of the frontier: risk seen, bound, and the point that was certified.
shown = pb.plot.calibration(made["frontier"])

# %%
# figure: Where the new images miss, by the strength of the edge at a pixel.
evaluation = pb.evaluate(truth[320:], intervals["frontier"], calibration=made["frontier"])
shown = pb.plot.strata(evaluation, by="edge")
