# %% [markdown]
# # MR in NIfTI, in and out
#
# Volumes whose values have no unit: say which matter, calibrate by patient, and write maps that lie on the scan.
#
# These volumes are phantoms with values as an MR scanner gives them, from 50 to about 1850, in NIfTI files.

# %%
from pathlib import Path

import nibabel
import numpy as np

import pixelbounds as pb
from pixelbounds.demo.phantom import phantoms
from pixelbounds.formats import open_images, write_interval

rng = np.random.default_rng(19)
affine = np.array([[-0.8, 0, 0, 90], [0, -0.8, 0, 70], [0, 0, 5, -300], [0, 0, 0, 1]])


def write(path, slices):
    """Slices (n, h, w) as a volume of 16 bits."""
    path.parent.mkdir(exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(np.rint(slices).astype(np.int16).transpose(2, 1, 0), affine), path)


volumes = 50 + 1800 * phantoms(84, 32, seed=19, slices_per_patient=2).images.reshape(42, 2, 32, 32)
for number, volume in enumerate(volumes):
    folder = "new_" if number == 41 else ""
    write(Path(f"{folder}long", f"P{number:02}.nii.gz"), volume)
    write(Path(f"{folder}short", f"P{number:02}.nii.gz"), volume + 120 * rng.standard_normal(volume.shape))

# %% [markdown]
# NIfTI names no unit, and the usual window of abdominal CT would clip nearly all of this. So one must be given.

# %%
try:
    open_images("short")
except ValueError as error:
    print(error)

window = (1800, 950)  # width and level: 50 becomes 0, and 1850 becomes 1
truth, observed = open_images("long", window=window), open_images("short", window=window, clip=False)
print(truth)
print(truth.measure, f"{truth.measure.clipped:.2%} beyond it")


# %% [markdown]
# The model is a stand-in for yours: it smooths, and adds noise of one deviation. A unit is a volume, here a patient.


# %%
def denoise(observation, samples, seed):
    near = sum(np.roll(observation, by, axis) for axis in (0, 1) for by in (-1, 0, 1)) / 6
    return near + 0.05 * np.random.default_rng(seed).standard_normal((samples, *observation.shape))


band = pb.bands_from(denoise, observed.pixels, samples=19, miscoverage=0.2)
patients = pb.Units(truth.units, name="patient")
method = pb.Frontier(groups="band")
calibration = pb.calibrate(truth.pixels, band, risk_level=0.15, units=patients, measure=truth.measure, method=method)
print(calibration.guarantee)

# %% [markdown]
# A new volume becomes maps of its own shape, at its place, in its values. Each says which calibration made it.

# %%
scan = open_images("new_short", window=window, clip=False)
interval = calibration.apply(pb.bands_from(denoise, scan.pixels, samples=19, miscoverage=0.2))
write_interval("map.nii.gz", interval, like=scan, about=calibration)
print(*sorted(path.name for path in Path().glob("map_*")))
lower, upper = (nibabel.load(f"map_{end}.nii.gz") for end in ("lower", "upper"))
true = nibabel.load("new_long/P41.nii.gz")
print("at its place:", np.array_equal(lower.affine, true.affine), lower.shape == true.shape)
values = true.get_fdata()
outside = (values < lower.get_fdata()) | (values > upper.get_fdata())
print(f"{outside.mean():.1%} of the true voxels outside")
print(lower.header.extensions[0].get_content().decode()[:120])

# figure: A slice of the new volume: the truth (which nobody knows), both ends of its intervals, and their length.
shown = pb.plot.intervals(interval, 0, truth=open_images("new_long", window=window).pixels)
