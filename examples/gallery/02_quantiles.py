# %% [markdown]
# # How many samples, and which quantiles?
#
# Plain quantiles of few samples cover too little; calibrated ones cover a future sample as often as they say.
#
# A band of the 5% and 95% quantiles ought to hold a further sample of the same law 90% of the time. With m samples
# plain quantiles fall short of that. Order statistics of the right ranks do not, whatever the law.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pixelbounds as pb
from pixelbounds.report.style import BLUE, ORANGE

rng = np.random.default_rng(0)
draws = rng.gamma(2.0, 1.0, (20, 160, 32, 32)).astype(np.float32)  # 20 images, 160 samples each, no law of the textbook
fresh = draws[:, 159]  # one sample that no band sees

numbers = [19, 27, 39, 59, 79, 119, 159]
coverage = {"naive": [], "calibrated": []}
for m in numbers:
    for name, quantiles in (("naive", pb.naive_quantiles), ("calibrated", pb.calibrated_quantiles)):
        band = quantiles(draws[:, :m], miscoverage=0.1, axis=1)
        coverage[name].append(((band.lower <= fresh) & (fresh <= band.upper)).mean())
for name, shares in coverage.items():
    print(f"{name:10s} with {numbers[0]} samples: {shares[0]:.1%}, with {numbers[-1]}: {shares[-1]:.1%}")

# figure: How often a band of m samples holds a further sample; 90% was asked.
figure, axes = plt.subplots(figsize=(4.2, 2.6), layout="constrained")
axes.plot(numbers, coverage["naive"], "s-", color=ORANGE, label="naive quantiles")
axes.plot(numbers, coverage["calibrated"], "o-", color=BLUE, label="calibrated quantiles")
axes.axhline(0.9, color="black", linewidth=0.8, linestyle="--", label="asked")
axes.set(xlabel="samples per image, m", ylabel="share of further samples held")
axes.yaxis.set_major_formatter("{x:.0%}")
legend = axes.legend()

# %% [markdown]
# The ranks are those of exact arithmetic. Where m is too small for what is asked there is no such band, and the error
# says how many samples it takes.

# %%
print("ranks among 39 samples:", pb.calibrated_ranks(39, 0.1))
print("least m for 10%:", pb.least_samples(0.1))
try:
    pb.calibrated_quantiles(draws[:, :10], miscoverage=0.1, axis=1)
except ValueError as error:
    print(error)

# %% [markdown]
# **m is part of what a band is.** More samples give a band whose ends wander less, so a calibration made with 19
# samples says nothing about bands of 119. It knows its own, and refuses others.

# %%
truth = rng.gamma(2.0, 1.0, (20, 32, 32)).astype(np.float32)
few = pb.calibrated_quantiles(draws[:, :19], miscoverage=0.1, axis=1)
many = pb.calibrated_quantiles(draws[:, :119], miscoverage=0.1, axis=1)
calibration = pb.calibrate(truth, few, risk_level=0.3, limits=(0, np.inf), method="rcps")
try:
    calibration.apply(many)
except ValueError as error:
    print(error)
