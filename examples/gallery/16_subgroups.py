# %% [markdown]
# # Two scanners: a promise for each
#
# An average over two scanners may be kept by the good one alone. A subgroup of whole images is a region, too.

# %%
import numpy as np

import pixelbounds as pb
from pixelbounds.demo.synthetic import flawed_samples, synthetic_images

rng = np.random.default_rng(12)
truth = synthetic_images(700, 32, rng)
old = rng.uniform(size=700) < 0.3  # three images in ten come from an old scanner
quiet = flawed_samples(truth, 39, rng, sigma=0.08)
noisy = flawed_samples(truth, 39, rng, sigma=0.22)
band = pb.calibrated_quantiles(np.where(old[:, None, None, None], noisy, quiet), miscoverage=0.2, axis=1)
first, new = slice(0, 500), slice(500, 700)


def each(images):
    """The same promise for all images, and for those of either scanner."""
    return [
        pb.share(0.10, name="all images", within=np.ones(len(old[images]), bool)),
        pb.share(0.10, name="old scanner", within=old[images]),
        pb.share(0.10, name="new scanner", within=~old[images]),
    ]


plain = pb.calibrate(truth[first], band[first], risk_level=0.1, method=pb.Frontier(groups="band"))
seen = pb.evaluate(truth[new], plain.apply(band[new]), calibration=plain, promises=each(new))
for promise in seen.promises:
    print(f"{promise.name}: {promise.risk:.1%}")

# figure: One promise for all images: what either scanner misses on new images.
shown = pb.plot.promises(seen)

# %%
joint = pb.calibrate(truth[first], band[first], promises=each(first), method=pb.Frontier(groups="band"))
seen = pb.evaluate(truth[new], joint.apply(band[new]), calibration=joint, promises=each(new))
for promise in seen.promises:
    print(f"{promise.name}: {promise.risk:.1%}, promised {promise.at_most:.0%}")

# figure: A promise for each scanner, jointly, on the same images.
shown = pb.plot.promises(seen)
