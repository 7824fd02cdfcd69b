"""Files that no checksum seals: tables (TOML) of problems, promises and training, and runs of samplers, folders.

A run is one file here, its folder as JSON; edits change its metadata, or cut, change and remove chunks.
"""

import base64
import json
import shutil

import numpy as np
from edits import ODD, any_of, damaged, edit_text

import pixelbounds as pb

SIZE, N, DRAWS = 8, 4, 19
TOML = {
    "problem ct": 'problem = "ct"\nviews = 6\nsize = 8\nsigma_0 = 0.01\nspan = 120.0\n',
    "problem blur": 'problem = "motion_blur"\nlength = 3.0\nangle = 30.0\nsigma_0 = 0.05\n',
    "problem deblur": 'problem = "deblur"\nwidth = 1.0\nsigma_0 = 0.05\n',
    "problem mri": 'problem = "mri"\nacceleration = 2.0\ncoils = 2\nsigma_0 = 0.05\n',
    "problem less": 'problem = "super_resolve"\nfactor = 2\nphotons = 100\n',
    "problem holes": 'problem = "inpaint"\nmissing = 0.5\nsigma_0 = 0.1\n',
    "promises": '[[promise]]\nkind = "share"\nlevel = 0.05\nwithin = "labels.npy:2+3"\nname = "lung"\n\n'
    '[[promise]]\nkind = "tail"\nlevel = 0.05\nabove = 0.1\n\n[[promise]]\nkind = "share"\nlevel = 0.1\n'
    'within = "edges:0.05"\ncap = 0.25\nweighting = "images"\ndilated = 2\n',
    "training": '[data]\npath = "x.npy"\nheld_out = 0.4\n\n[network]\nname = "small"\ndropout = 0.1\n\n[process]\n'
    'sigma_0 = 0.4\n\n[training]\nkind = "regressor"\nmiscoverage = 0.1\ndata_deviation = 0.3\nsteps = 50_000\n'
    'batch = 128\n\n[output]\nfolder = "out"\n',
}  # fmt: skip
STRANGE = [
    "nan", "inf", "-inf", "-1", "0", "1", "1e308", "1e-308", "9223372036854775807", "9" * 5000, "1e400", "true", '""',
    '"x"', '"\\u202e"', "[]", "{}", "[[]]", "1979-05-27", "07:32:00", "[" * 60_000 + "]" * 60_000, "{a=" * 3000 + "1",
    "'''", "2.5", "1000000000", '"share"', '"../../etc"', "0x7fffffffffffffff", '["share:0.1", 3]', "[1, 2, 3]",
]  # fmt: skip


def noisy(observation, samples, seed):
    """A sampler of the tests."""
    rng = np.random.default_rng(seed)
    return np.clip(observation + 0.1 * rng.standard_normal((samples, *observation.shape)), 0, 1)


def packed(folder):
    """A folder as the bytes of one file."""
    files = {str(x.relative_to(folder)): base64.b64encode(x.read_bytes()).decode() for x in folder.rglob("*")
             if x.is_file()}  # fmt: skip
    return json.dumps(dict(sorted(files.items()))).encode()


def unpacked(data, folder):
    """The folder that such bytes hold."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in json.loads(data).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(base64.b64decode(content))
    return folder


def make_tables(folder):
    """TOML files."""
    for name, text in TOML.items():
        (folder / f"{name}.toml").write_text(text)


def make_runs(folder):
    """Runs of a sampler of one's own, some of whose samples are kept in one of them."""
    observed = np.random.default_rng(0).random((N, SIZE, SIZE))
    for name, more in {"plain": {}, "kept": {"keep_samples": True}}.items():
        store = folder / f"{name}.zarr"
        pb.bands_from(noisy, observed, samples=DRAWS, seed=1, out=store, **more)
        (folder / f"{name}.run").write_bytes(packed(store))
        shutil.rmtree(store)


# ---------------------------------------------------------------- edits


def edited_table(data, rng):
    """A TOML file with a value, a key or a line changed, or its bytes."""
    if rng.random() < 0.1:
        return damaged(data, rng)
    lines = data.decode().splitlines()
    for _ in range(int(rng.integers(1, 3))):
        at = int(rng.integers(len(lines)))
        how = rng.integers(5)
        key, equals, value = lines[at].partition("=")
        if how < 3 and equals:
            lines[at] = f"{key}= {any_of(STRANGE, rng)}"
        elif how == 3:
            lines[at] = any_of(["", lines[at] * 2, f"x{lines[at]}", value, "[x]", "\ufeff", lines[-1]], rng)
        else:
            lines.insert(
                at, any_of([f"odd = {any_of(STRANGE, rng)}", *TOML[any_of(sorted(TOML), rng)].split("\n")], rng)
            )
    return "\n".join(lines).encode()


def edited_run(data, rng):
    """A run with one to three files changed: metadata edited in place, chunks cut, changed or gone."""
    files = json.loads(data)
    for _ in range(int(rng.integers(1, 4))):
        metadata = [name for name in files if name.endswith("zarr.json")]
        chunks = [name for name in files if not name.endswith(".json")]
        name = any_of(metadata if (rng.random() < 0.8 and metadata) or not chunks else chunks, rng)
        content = base64.b64decode(files[name])
        if rng.random() < 0.1:
            del files[name]
            if not files:
                break
        elif name.endswith(".json"):
            files[name] = base64.b64encode(_edited_json(content, rng)).decode()
        else:
            files[name] = base64.b64encode(damaged(content + b"\0" * 8, rng)).decode()
    return json.dumps(files).encode()


def _edited_json(content, rng):
    if rng.random() < 0.1:
        return damaged(content, rng)
    try:
        text = json.loads(content)
    except ValueError:
        return content
    if not isinstance(text, dict):
        return content
    edit_text(text, {"shape": any_of(ODD, rng), "x": [1]}, rng)
    return json.dumps(text).encode("utf-8", "replace")


# ---------------------------------------------------------------- what a user does


def use_table(data, name, rng, world):
    """Read it, and use the problem on an image."""
    from pixelbounds.problems.declared import read_problem
    from pixelbounds.storage.toml import read_toml
    from pixelbounds.workflows.promise_words import promise_texts

    file = world.scratch / "case.toml"
    file.write_bytes(data)
    if name == "promises":
        promise_texts([str(file)])
    elif name == "training":
        from pixelbounds.workflows.settings import TrainSettings

        read_toml(file, TrainSettings)
    else:
        problem = read_problem(file)
        image = np.full((1, SIZE, SIZE), 0.5)
        problem(image, 0)
        assert problem.adjoint(problem.forward(image)).shape == image.shape, "the adjoint is of another shape"


def use_run(data, name, rng, world):
    """Open it, read its band and calibrate with it."""
    from pixelbounds.samplers.runs import open_run
    from pixelbounds.workflows.calibrate import calibrate_files
    from pixelbounds.workflows.request import Request

    store = unpacked(data, world.scratch / "case.zarr")
    run = open_run(store)
    run.check()
    band = run.band()
    assert (np.asarray(band.lower[:]) <= np.asarray(band.upper[:])).all(), "a band is crossed, or NaN"
    np.save(world.scratch / "truth.npy", np.random.default_rng(0).random((N, SIZE, SIZE)))
    request = Request(risk_level=0.9, failure_prob=0.5, method="rcps")
    calibrate_files(world.scratch / "truth.npy", store, world.scratch / "run.safetensors", request, replace=True)
