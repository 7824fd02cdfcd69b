# %% [markdown]
# # Few patients: what a cap buys
#
# With some fifty patients a bound must leave room for one whose every pixel is missed; a cap limits how much a patient
# counts.
#
# No bound can exclude what it has not seen. Among 58 patients without a bad one there may be a patient in a hundred
# whose image is missed altogether, and 5% on average must include that. If a patient counts for at most 25%, that
# room shrinks to a quarter. What is promised is then less, and the sentence says so.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pixelbounds as pb
from pixelbounds.demo.synthetic import flawed_samples, synthetic_images
from pixelbounds.report.style import BLUE, ORANGE

numbers = [40, 58, 80, 120, 200, 400, 800]
certified = {}
for name, promise in (("no cap", pb.share(0.05)), ("cap 0.25", pb.share(0.05, cap=0.25))):
    needs = pb.plan(promises=[promise], method="rcps", images=numbers).promises[0]
    certified[name] = [np.nan if risk is None else risk for risk in needs.certified]
print("58 patients certify 5% if they miss at most:", {name: f"{risks[1]:.1%}" for name, risks in certified.items()})

# figure: The greatest mean share of missed pixels with which 5% can still be certified, by the number of patients.
figure, axes = plt.subplots(figsize=(4.4, 2.6), layout="constrained")
axes.semilogx(numbers, certified["no cap"], "s-", color=ORANGE, label="no cap")
axes.semilogx(numbers, certified["cap 0.25"], "o-", color=BLUE, label="cap 0.25")
axes.axhline(0.05, color="black", linewidth=0.8, linestyle="--", label="promised")
axes.set(xlabel="patients", ylabel="share that may be missed", xticks=[40, 80, 200, 400, 800])
axes.set_xticklabels(["40", "80", "200", "400", "800"])
axes.minorticks_off()
axes.yaxis.set_major_formatter("{x:.0%}")
legend = axes.legend(loc="lower right")

# %% [markdown]
# In lengths of intervals, with 58 patients:

# %%
rng = np.random.default_rng(1)
truth = synthetic_images(158, 48, rng)
band = pb.calibrated_quantiles(flawed_samples(truth, 39, rng), miscoverage=0.2, axis=1)
intervals = {}
for name, promise in (("no cap", pb.share(0.05)), ("cap 0.25", pb.share(0.05, cap=0.25))):
    calibration = pb.calibrate(truth[:58], band[:58], promises=[promise], method="rcps")
    intervals[name] = calibration.apply(band[58:])
    print(f"{name}: mean length {intervals[name].length.mean():.3f}")
print(calibration.guarantee)

# figure: Lengths of the intervals of one new image without a cap (left) and with one (right).
figure, axes = plt.subplots(1, 2, figsize=(5.0, 2.4), layout="constrained")
for place, (name, interval) in zip(axes, intervals.items(), strict=True):
    shown = place.imshow(interval.length[0], "cividis", vmin=0, vmax=1)
    place.set(title=name, xticks=[], yticks=[])
    place.grid(visible=False)
bar = figure.colorbar(shown, ax=axes, shrink=0.8, label="length of the interval")
