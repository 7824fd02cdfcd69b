"""What several tests share, and which of them `make test` leaves to `make check`."""

import os
import re
from importlib.util import find_spec
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # workers share the cores already; before torch and the BLAS are loaded
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
SLOW = {  # below the root: a folder, a file, or the start of a test's name; what `make check` adds
    "browsers": "tests/report/test_viewer tests/report/test_page.py",
    "documents": "tests/formats/test_matrix.py tests/test_code_blocks.py tests/test_documents.py tests/test_site.py",
    "processes": "tests/properties/test_faults.py tests/properties/test_fuzz.py tests/properties/test_hostile_files.py"
    " tests/properties/test_garbage.py tests/cli/test_monitor_command.py tests/cli/test_first_hour.py"
    " tests/federated/test_engine.py tests/formats/test_archive.py tests/cli/test_archive_command.py"
    " tests/cli/test_failures.py::test_an_interrupt tests/cli/test_failures.py::test_a_command_that_hangs"
    " tests/cli/test_options.py::test_a_closed_pipe tests/cli/test_array_files.py::test_standard_output"
    " tests/formats/test_dicom_maps.py::test_every_object_passes_dciodvfy"
    " tests/reproduce/test_device.py::test_a_session",
    "release": "tests/test_release.py tests/demo/test_demo.py src/pixelbounds/demo/packaged.py"
    " tests/test_house.py::test_a_budget_is_kept[files",
    "simulations": "tests/properties/test_attacks.py tests/properties/test_evaluation_intervals.py"
    " tests/calibration/test_mask_promises.py::test_missed tests/calibration/test_mask_promises.py::test_of_the_trusted"
    " tests/properties/test_federated_guarantees.py tests/properties/test_kernel_bounds.py"
    " tests/properties/test_guarantees.py::test_what_is_wrong_is_caught_in_whole_worlds[slices"
    " tests/properties/test_guarantees.py::test_risk_is_controlled_with_learned_groups",
    "training": "tests/diffusion tests/cli/test_train_command.py tests/workflows/test_train"
    " tests/workflows/test_sample tests/reproduce tests/samplers",
}
STARTS = tuple(start for row in SLOW.values() for start in row.split())
NEEDS_TORCH = re.compile(r"^(import torch|from (garbage|gaussian_world|gaussian_prior|small_training) )", re.MULTILINE)
QUICK_SECONDS = 12  # of processor time, children included: 3 s, and kernels that the first run compiles

# no doctests there, and several files of one name cannot be collected at once; sitecustomize would act on this process
collect_ignore_glob = ["*conftest.py", "*sitecustomize.py"]


def quick(config):
    """Whether this is `make test`."""
    return config.option.markexpr == "not slow"


def pytest_ignore_collect(collection_path, config):
    """`make test` reads no file that it does not run: most of them import torch."""
    if not quick(config):
        return None
    if collection_path.relative_to(ROOT).as_posix().startswith(STARTS):
        return True
    needs = collection_path.suffix == ".py" and find_spec("torch") is None
    return True if needs and NEEDS_TORCH.search(collection_path.read_text()) else None


def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid.startswith(STARTS) or "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """`make test` fails where a test takes long: processor time, which a busy machine does not stretch much."""
    begin = sum(os.times()[:4])
    result = yield
    seconds = sum(os.times()[:4]) - begin
    item.user_properties.append(("cpu", seconds))
    if quick(item.config) and seconds > QUICK_SECONDS:
        pytest.fail(f"{seconds:.0f} s of processor time: make it faster, or name it in SLOW of tests/conftest.py")
    return result


def pytest_terminal_summary(terminalreporter):
    """Write what statistical tests say of their power (`trials.check_failures`) to the file that is asked for."""
    rows = {}  # all parameters of a test together
    for report in terminalreporter.getreports("passed"):
        for failures, trials, promised, name, rate, likely in [
            x for key, x in report.user_properties if key == "power"
        ]:
            row = rows.setdefault((report.nodeid.split("[")[0].removeprefix("tests/"), promised, name), [0, 0, 0, 1, 1])
            row[:] = row[0] + 1, row[1] + failures, row[2] + trials, min(row[3], rate), min(row[4], likely)
    if "PIXELBOUNDS_POWER" in os.environ and rows:
        path = ROOT / os.environ["PIXELBOUNDS_POWER"]
        table = [
            f"| {test} | {checks} | {failures} of {trials} | {promised:g} | {name} | {rate:.2f} | {likely:.1%} |"
            for (test, promised, name), (checks, failures, trials, rate, likely) in sorted(rows.items())
        ]
        head = path.read_text().split("| test |")[0] if path.exists() else ""
        path.parent.mkdir(exist_ok=True)
        columns = (
            "| test | checks | failures | allowed | a wrong procedure | fails in | is refused with |\n|" + 7 * "---|"
        )
        path.write_text("\n".join([f"{head}{columns}", *table]) + "\n")


@pytest.fixture
def rng():
    return np.random.default_rng(0)
