# %% [markdown]
# # Promises for organs and edges
#
# One level for all pixels hides what happens in the kidneys and on edges; a promise about each brings it to light.
#
# The images are phantoms that look like abdominal CT, and know the organ of every pixel. Most pixels are easy, so an
# average over all of them is kept while some organs and edges miss far more.

# %%
import numpy as np

import pixelbounds as pb
from pixelbounds.demo.canvas import Organ
from pixelbounds.demo.phantom import phantoms
from pixelbounds.demo.synthetic import flawed_samples

made = phantoms(330, 40, seed=3)
truth = made.images
samples = flawed_samples(truth, 39, np.random.default_rng(0), sigma=0.1)
band = pb.calibrated_quantiles(samples, miscoverage=0.2, axis=1)
first, new = slice(0, 240), slice(240, 330)


def promises(images):
    """The same promises, with the regions of some images."""
    return [
        pb.share(0.05),
        pb.share(0.10, within=made.organs[images] == Organ.KIDNEY, name="kidneys"),
        pb.share(0.10, within=pb.regions.edges(truth[images], top=0.05), name="edges"),
    ]


# %% [markdown]
# First one level for all pixels, as is usual. New images show what it means elsewhere.

# %%
plain = pb.calibrate(truth[first], band[first], risk_level=0.05, method=pb.Frontier(groups="band"))
interval = plain.apply(band[new])
seen = pb.evaluate(truth[new], interval, calibration=plain, promises=promises(new))
for promise in seen.promises:
    print(f"{promise.name}: {promise.risk:.1%} outside")

# figure: One level of 5% for all pixels: what new images miss, with intervals; the marks are levels one might want.
shown = pb.plot.promises(seen)

# %% [markdown]
# Now the three together. The regions are needed for calibration images only; nothing has to be segmented later.
# Several promises need no correction for their number.

# %%
joint = pb.calibrate(truth[first], band[first], promises=promises(first), method=pb.Frontier(groups="band"))
interval_joint = joint.apply(band[new])
seen = pb.evaluate(truth[new], interval_joint, calibration=joint, promises=promises(new))
for promise in seen.promises:
    print(f"{promise.name}: {promise.risk:.1%} outside, promised {promise.at_most:.0%}")
print(
    f"mean length {interval.length.mean():.3f} with one level, {interval_joint.length.mean():.3f} with three promises"
)

# figure: Three promises together, on the same new images.
shown = pb.plot.promises(seen)

# %%
# figure: The same new image with one level for all pixels (left) and with the three promises (right).
import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 2, figsize=(5.2, 2.9), layout="constrained")
for place, ends in zip(axes, (interval, interval_joint), strict=True):
    pb.plot.misses(truth[new], ends, 1, axes=place)
