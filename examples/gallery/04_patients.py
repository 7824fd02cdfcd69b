# %% [markdown]
# # Patients as units, and what happens without
#
# Slices of one patient are alike. Counted as independent images they promise what they cannot keep.
#
# A bound counts independent observations. Ten slices of one patient are not ten of them: if the patient is hard, all
# ten slices are. Here is a world of patients in which that can be counted, because the true risk is known.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np

import pixelbounds as pb
from pixelbounds.report.style import BLUE, ORANGE

SLICES, PIXELS = 10, (6, 6)


def some_patients(count, rng):
    """Truth, band and patient of each slice: every patient is as hard as it is, in all of its slices."""
    hardness = np.exp(rng.normal(0.0, 0.7, count)).repeat(SLICES)
    centre = rng.uniform(0.4, 0.6, (count * SLICES, *PIXELS))
    error = 0.04 * hardness[:, None, None] * rng.standard_normal(centre.shape)
    truth = np.clip(centre + error, 0, 1)
    return truth, pb.Band(centre - 0.05, centre + 0.05), np.arange(count).repeat(SLICES)


truth_later, band_later, _ = some_patients(1500, np.random.default_rng(99))  # all that will ever come, nearly

# %% [markdown]
# Fifty hospitals calibrate with 60 patients each, once with slices as independent images and once with patients as
# units. Both promise that at most 10% is outside, with probability 90%.

# %%
risks = {"slices as images": [], "patients as units": []}
warnings.simplefilter("ignore")
for hospital in range(50):
    truth, band, patient = some_patients(60, np.random.default_rng(hospital))
    for name, units in (("slices as images", None), ("patients as units", patient)):
        made = pb.calibrate(
            truth, band, risk_level=0.1, method="rcps", units=pb.Units(units, name="patient"), seed=hospital
        )
        interval = made.apply(band_later)
        risks[name].append(1 - interval.contains(truth_later).mean())
for name, seen in risks.items():
    print(f"{name}: {np.mean(np.array(seen) > 0.1):.0%} of 50 hospitals break the promise; at most 10% may")

# figure: True risk of fifty calibrations, each promised to be at most 10% with probability 90%.
figure, axes = plt.subplots(figsize=(4.8, 2.6), layout="constrained")
bins = np.linspace(0.0, 0.16, 33)
axes.hist(risks["slices as images"], bins, color=ORANGE, alpha=0.75, label="slices as images")
axes.hist(risks["patients as units"], bins, color=BLUE, alpha=0.75, label="patients as units")
axes.axvline(0.1, color="black", linewidth=0.8, linestyle="--", label="promised")
axes.set(xlabel="true share of pixels outside", ylabel="calibrations")
axes.xaxis.set_major_formatter("{x:.0%}")
legend = axes.legend()

# %% [markdown]
# The sentence says which of the two it is about.

# %%
print(made.guarantee)
