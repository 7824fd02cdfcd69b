# %% [markdown]
# # An inverse problem: CT from few views
#
# Twelve views of a small phantom do not determine it. The intervals say where it matters, with a promise.
#
# `pixelbounds.problems` has operators with exact adjoints. The sampler here is the exact posterior of a Gaussian
# prior that was fitted to other phantoms: fast, and wrong, since anatomy is not Gaussian. [Networks](../problems.md)
# do better; the way is the same.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pixelbounds as pb
from pixelbounds.demo.phantom import phantoms
from pixelbounds.problems import ct

SIZE, NOISE, KEPT = 32, 0.005, 120
made = phantoms(540, SIZE, seed=8).images
training, truth = made[:320].reshape(320, -1), made[320:]
problem = ct(12, SIZE, NOISE)
sinograms = problem(truth, 0)
print(problem, "sees", sinograms[0].size, "numbers of", truth[0].size, "pixels")

# %% [markdown]
# The prior: a mean and the principal directions of training phantoms. The posterior of their weights given a sinogram
# is Gaussian, too.

# %%
mean = training.mean(0)
scale, directions = np.linalg.svd(training - mean, full_matrices=False)[1:]
deviation = scale[:KEPT] / np.sqrt(len(training))
basis = directions[:KEPT] * deviation[:, None]  # (kept, pixels), standard normal weights
seen = problem.forward(basis.reshape(-1, SIZE, SIZE).astype(np.float32)).reshape(KEPT, -1)
covariance = np.linalg.inv(np.eye(KEPT) + seen @ seen.T / NOISE**2)
root = np.linalg.cholesky(covariance)
offset = problem.forward(mean.reshape(1, SIZE, SIZE).astype(np.float32)).ravel()


def posterior(sinogram, samples, seed):
    """Samples of a phantom, given its sinogram."""
    weights = covariance @ (seen @ (sinogram.ravel() - offset)) / NOISE**2
    drawn = weights + np.random.default_rng(seed).standard_normal((samples, KEPT)) @ root.T
    return (mean + drawn @ basis).reshape(samples, SIZE, SIZE)


band = pb.bands_from(posterior, sinograms, samples=39, miscoverage=0.2, seed=0)
calibration = pb.calibrate(truth[:160], band[:160], risk_level=0.1, method=pb.Frontier(groups="band"))
interval = calibration.apply(band[160:])
raw = 1 - pb.Interval(band.lower, band.upper).contains(truth).mean()
print(f"outside the Gaussian's own band: {raw:.1%}")
print(f"outside the intervals of new phantoms: {1 - interval.contains(truth[160:]).mean():.1%}, promised 10%")

# %%
# figure: A sinogram of twelve views, the phantom, and its intervals.
figure, axes = plt.subplots(1, 5, figsize=(8.2, 1.9), layout="constrained")
axes[0].imshow(sinograms[160], "gray", aspect="auto")
axes[0].set(title="sinogram", xlabel="detector bin", ylabel="view")
axes[0].grid(visible=False)
shown = pb.plot.intervals(interval, 0, truth=truth[160:], axes=axes[1:])
