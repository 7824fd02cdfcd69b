# %% [markdown]
# # Your own network, in colour
#
# A network of torch, trained on arrays, with its dropout left on: bands, a promise about pixels, and another network
# that is refused.
#
# The images are synthetic, three channels each, and noisy. A small network learns to remove the noise.

# %%
import numpy as np
import torch
from torch import nn

import pixelbounds as pb
from pixelbounds.demo.synthetic import synthetic_images

rng = np.random.default_rng(18)
colours = rng.uniform(0, 1, (2, 480, 3, 1, 1)).astype(np.float32)
shapes = synthetic_images(480, 16, rng)[:, None]
truth = colours[0] * shapes + colours[1] * (1 - shapes)  # (n, 3, h, w)
noisy = truth + 0.1 * rng.standard_normal(truth.shape).astype(np.float32)
training, old, new = slice(0, 200), slice(200, 360), slice(360, 480)

torch.manual_seed(0)
torch.set_num_threads(1)
network = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Dropout2d(0.2), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
    nn.Dropout2d(0.2), nn.Conv2d(16, 3, 3, padding=1),
)  # fmt: skip
optimizer = torch.optim.Adam(network.parameters(), 3e-3)
for _ in range(150):
    some = rng.choice(200, 16)
    loss = nn.functional.mse_loss(network(torch.as_tensor(noisy[some])), torch.as_tensor(truth[some]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# %% [markdown]
# Every pass with dropout is a sample. `bands_from` gives each image a seed, and the band says which network drew it:
# the name of the function, and a digest of the weights that it uses.


# %%
def dropout(observation, samples, seed):
    torch.manual_seed(seed)
    with torch.no_grad():
        return network(torch.as_tensor(observation).expand(samples, -1, -1, -1))


band = pb.bands_from(dropout, noisy[old], samples=19, miscoverage=0.2)
print(band.source)

# %% [markdown]
# A share counts values, of which a colour pixel has three. `any_channel` counts pixels: one is missed where any of its
# channels is.

# %%
pixels = [pb.loss(0.1, pb.losses.any_channel())]
calibration = pb.calibrate(truth[old], band, promises=pixels, method=pb.Frontier(groups="band"))
print(calibration.guarantee)

new_band = pb.bands_from(dropout, noisy[new], samples=19, miscoverage=0.2)
interval = calibration.apply(new_band)
seen = pb.evaluate(truth[new], interval, calibration=calibration, promises=pixels)
print(seen.promise_table())

# figure: One new image in colour: the truth, both ends of its intervals, and their length, the mean over channels.
shown = pb.plot.intervals(interval, 0, truth=truth[new])

# %% [markdown]
# Channels may come last as well: they are found by their number, and the intervals are the same.


# %%
def channels_last(x):
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


other = pb.calibrate(
    channels_last(truth[old]), band.map(channels_last), promises=pixels, method=pb.Frontier(groups="band")
)
same = other.apply(new_band.map(channels_last))
print(np.array_equal(same.lower, channels_last(interval.lower)))

# %% [markdown]
# The network is a part of what a band is. After more training it is another one, and the calibration says so.

# %%
with torch.no_grad():
    network[0].weight += 0.01
try:
    calibration.apply(pb.bands_from(dropout, noisy[new], samples=19, miscoverage=0.2))
except ValueError as error:
    print(error)
