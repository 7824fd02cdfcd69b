# %% [markdown]
# # Bad images: a promise about the tail
#
# An average is kept by many good images and a few bad ones; a tail promise says how many may be bad.
#
# In this world one image in eight comes from a scanner that is noisier than the model believes. On average 10% of the
# pixels may be missed, and those images miss far more.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pixelbounds as pb
from pixelbounds.demo.synthetic import flawed_samples, synthetic_images
from pixelbounds.report.style import BLUE, ORANGE

rng = np.random.default_rng(2)
truth = synthetic_images(600, 32, rng)
usual = flawed_samples(truth, 39, rng, sigma=0.1)
hard = flawed_samples(truth, 39, rng, sigma=0.35)
samples = np.where((rng.uniform(size=600) < 1 / 8)[:, None, None, None], hard, usual)
band = pb.calibrated_quantiles(samples, miscoverage=0.2, axis=1)

average = [pb.share(0.10)]
with_tail = [pb.share(0.10), pb.tail(0.05, above=0.20)]
missed, lengths = {}, {}
for name, promises in (("average alone", average), ("average and tail", with_tail)):
    calibration = pb.calibrate(truth[:400], band[:400], promises=promises, method=pb.Frontier(groups="band"))
    interval = calibration.apply(band[400:])
    missed[name] = 1 - interval.contains(truth[400:]).mean(axis=(1, 2))
    lengths[name] = interval.length.mean()
    bad = np.mean(missed[name] > 0.2)
    print(f"{name}: {missed[name].mean():.1%} outside on average, mean length {lengths[name]:.3f}")
    print(f"    {bad:.1%} of new images miss more than 20%")
print(calibration.guarantee)

# %%
# figure: Share of missed pixels of 200 new images, in order. A tail promise lets at most one in twenty lie above 20%.
figure, axes = plt.subplots(figsize=(4.6, 2.7), layout="constrained")
place = np.linspace(0, 1, 200)
axes.plot(place, np.sort(missed["average alone"]), color=ORANGE, label="average alone")
axes.plot(place, np.sort(missed["average and tail"]), color=BLUE, linestyle="-.", label="average and tail")
axes.axhline(0.2, color="black", linewidth=0.8, linestyle="--")
axes.axvline(0.95, color="black", linewidth=0.8, linestyle=":")
axes.set(xlabel="share of new images", ylabel="share of its pixels outside")
axes.xaxis.set_major_formatter("{x:.0%}")
axes.yaxis.set_major_formatter("{x:.0%}")
legend = axes.legend()
