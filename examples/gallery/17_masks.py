# %% [markdown]
# # A segmentation with a guarantee
#
# A network returns the probability that a pixel belongs to an organ. Two masks bound the organ: the outer one misses
# little of it, the inner one contains little else, and both are promised.
#
# The organs are those of phantoms; the network is simulated, and is worse in some images than in others.

# %%
import numpy as np
from matplotlib import pyplot
from scipy.ndimage import gaussian_filter

import pixelbounds as pb
from pixelbounds.demo.canvas import Organ
from pixelbounds.demo.phantom import phantoms

made = phantoms(480, 48, seed=3)
classes = {"liver": int(Organ.LIVER), "kidneys": int(Organ.KIDNEY)}
rng = np.random.default_rng(0)
masks = pb.class_masks(made.organs, classes)
noise = gaussian_filter(rng.standard_normal(masks.shape), (0, 0, 2, 2)) * 11 * rng.uniform(0.5, 1.5, (480, 1, 1, 1))
p = (1 / (1 + np.exp(5 - 10 * gaussian_filter(masks, (0, 0, 1, 1)) - noise))).astype(np.float32)
first, new = slice(0, 360), slice(360, 480)

# %% [markdown]
# Of each organ at most 10% may lie outside its outer mask, and of each background at most 5% inside its inner mask.

# %%
asked = {"missed": 0.10, "false": 0.05, "names": tuple(classes)}
cal = pb.calibrate_masks(masks[first], pb.segmentation_band(p[first]), **asked)
interval = cal.apply(pb.segmentation_band(p[new]))
for c, name in enumerate(classes):
    true = masks[new][:, c] > 0
    missed = (true & ~interval.outer[:, c]).sum() / true.sum()
    print(f"{name}: {missed:.1%} missed, {(interval.inner[:, c] & ~true).sum() / (~true).sum():.1%} false,")
    between = (interval.outer[:, c] & ~interval.inner[:, c]).mean()
    print(f"    {between:.1%} of the image lies between the masks")

# %% [markdown]
# The margin about a predicted mask is the usual way to be safe. With the same promises it leaves more undecided, as it
# cannot know where the network hesitates.

# %%
margin = pb.margin_band(p >= 0.5, spacing=(1, 1))
widened = pb.calibrate_masks(masks[first], margin[first], **asked).apply(margin[new])
for name, masks_of in (("probabilities", interval), ("margin", widened)):
    print(f"{name}: {(masks_of.outer & ~masks_of.inner).mean():.1%} between the masks")

# figure: Probability of the liver, the true mask, and both masks: within the inner one and beyond the outer one all is
#   decided.
both = 0.5 * interval.outer[0, 0] + 0.5 * interval.inner[0, 0]
panels = {"probability": p[new][0, 0], "truth": masks[new][0, 0], "outer (gray), inner (white)": both}
figure, axes = pyplot.subplots(1, 3, figsize=(6.8, 2.4))
for place, (title, pixels) in zip(axes, panels.items(), strict=True):
    place.imshow(pixels, "gray", vmin=0, vmax=1)
    place.set(title=title, xticks=[], yticks=[])
    place.grid(visible=False)
