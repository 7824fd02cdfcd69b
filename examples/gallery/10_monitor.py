# %% [markdown]
# # A monitor that raises an alarm
#
# After 150 images the scanner gets noisier and nobody says so. The monitor does.
#
# A promise ends where the source changes. `pb.Monitor` tests each promise: while it is kept, the e-value reaches
# 100 with probability at most 1%, however long one watches.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pixelbounds as pb
from pixelbounds.demo.synthetic import flawed_samples, synthetic_images
from pixelbounds.report.style import BLUE, ORANGE

rng = np.random.default_rng(6)


def scans(count, sigma):
    """True images and bands; sigma is the noise of the scanner."""
    truth = synthetic_images(count, 32, rng)
    return truth, pb.calibrated_quantiles(flawed_samples(truth, 39, rng, sigma=sigma), miscoverage=0.2, axis=1)


truth, band = scans(400, 0.15)
calibration = pb.calibrate(truth, band, risk_level=0.1, method=pb.Frontier(groups="band"))
monitor = pb.Monitor(calibration, false_alarm=0.01)

seen, alarm = [], None
for day in range(60):  # five images a day, whose truth comes later
    truth, band = scans(5, 0.15 if day < 30 else 0.18)
    status = monitor.update(truth, band)
    missed = 1 - calibration.apply(band).contains(truth).mean()
    seen.append((5 * (day + 1), missed, status.promises[0].e_value))
    if status.alarm and alarm is None:
        alarm = 5 * (day + 1)
        print(f"alarm after image {alarm}; the scanner changed after image 150")
        print(status)

# %%
# figure: Above, missed pixels of each day; below, the e-value against the promise, with the line of an alarm.
images, missed, e_value = np.array(seen).T
figure, (above, below) = plt.subplots(2, 1, figsize=(5.0, 3.6), sharex=True, layout="constrained")
above.plot(images, missed, "o", color=ORANGE, markersize=3)
above.axhline(0.1, color="black", linewidth=0.8, label="promised on average")
above.set(ylabel="share outside")
above.yaxis.set_major_formatter("{x:.0%}")
above.legend(loc="upper left")
below.semilogy(images, np.maximum(e_value, 1e-3), color=BLUE)
below.axhline(1 / monitor.shares[0], color="black", linewidth=0.8, linestyle="--")
below.set(xlabel="images with truth", ylabel="e-value")
for place in (above, below):
    place.axvline(150, color="black", linewidth=0.8, linestyle=":")

# %% [markdown]
# Without truth the bands alone can be checked (`monitor.check_drift(band)`): that tests whether they are like those of
# the calibration, not whether they miss. [More](../monitoring.md)
