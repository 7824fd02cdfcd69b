# %% [markdown]
# # An anytime calibration
#
# Images with truth arrive day by day, and the promise may be looked at after every one of them.
#
# Calling `calibrate` again with every few more images is a new try each time. `pb.AnytimeCalibration` pays for
# all looks at once, and its intervals only shorten.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pixelbounds as pb
from pixelbounds.demo.synthetic import flawed_samples, synthetic_images
from pixelbounds.report.style import BLUE, ORANGE

rng = np.random.default_rng(7)
truth = synthetic_images(460, 32, rng)
band = pb.calibrated_quantiles(flawed_samples(truth, 39, rng), miscoverage=0.2, axis=1)
later = slice(360, 460)  # images that are only judged

anytime = pb.AnytimeCalibration(truth[:40], band[:40], risk_level=0.1, method=pb.Frontier(groups="band"))
print("no test can certify before image", anytime.min_images)
days, lengths, risks = [], [], []
for start in range(40, 360, 10):
    anytime.add(truth[start : start + 10], band[start : start + 10])
    if anytime.certified:
        interval = anytime.certified.apply(band[later])
        days.append(anytime.images)
        lengths.append(interval.length.mean())
        risks.append(1 - interval.contains(truth[later]).mean())
print(f"first certified after {days[0]} images; length {lengths[0]:.3f} then, {lengths[-1]:.3f} after {days[-1]}")

# figure: Mean length and risk on other images at every look; all looks together hold with probability 90%.
figure, (above, below) = plt.subplots(2, 1, figsize=(4.6, 3.4), sharex=True, layout="constrained")
above.plot(days, lengths, "o-", color=BLUE)
above.set(ylabel="mean length")
below.plot(days, risks, "s-", color=ORANGE)
below.axhline(0.1, color="black", linewidth=0.8, linestyle="--", label="promised")
below.set(xlabel="images counted", ylabel="share outside", ylim=(0, 0.12))
below.yaxis.set_major_formatter("{x:.0%}")
legend = below.legend(loc="lower right")

# %%
print(anytime.certified.guarantee)
