"""Files of networks: what is saved comes back, and what is not one is refused by name."""

import pytest

torch = pytest.importorskip("torch")

import gaussian_world as world  # noqa: E402
from gaussian_world import awake  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from pixelbounds.diffusion import checkpoint  # noqa: E402
from pixelbounds.diffusion.checkpoint import load_network, save_network, save_state  # noqa: E402
from pixelbounds.diffusion.regression import n_conffusion, regressor  # noqa: E402
from pixelbounds.diffusion.sde import VESDE  # noqa: E402
from pixelbounds.storage.files import seal  # noqa: E402

torch.set_num_threads(1)
SDE = VESDE(sigma_min=0.01, sigma_max=1.0)
MAKERS = {
    "score": world.network,
    "regressor": lambda: regressor(world.config(dropout=0.1)),
    "conffusion": lambda: n_conffusion(world.network()),
}


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "net.safetensors"
    save_network(path, awake(world.network()), SDE, "score")
    return path


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_network_comes_back_as_it_was(tmp_path, kind, dtype):
    network = awake(MAKERS[kind]()).to(memory_format=torch.channels_last)  # as it is loaded
    path = tmp_path / "net.safetensors"
    save_network(path, network, SDE, kind, {"sigma_0": 0.4}, dtype=dtype)
    loaded, sde, meta = load_network(path, kind=kind)
    assert (sde, meta["kind"], meta["extra"]) == (SDE, kind, {"sigma_0": 0.4})
    assert not loaded.training
    x, sigma = torch.from_numpy(world.draw(3, 0))[:, None], torch.tensor([0.02, 0.3, 1.0])
    with torch.inference_mode():
        here, there = network(x, sigma), loaded(x, sigma)
    if dtype == torch.float32:
        assert torch.equal(here, there)
    else:
        assert float((here - there).abs().max() / here.abs().max()) < 5e-3
        for name, buffer in network.named_buffers():  # frequencies are not rounded
            assert torch.equal(buffer, loaded.get_buffer(name))


def test_foreign_files_are_refused(tmp_path, saved):
    foreign = tmp_path / "other.safetensors"
    save_file({"a": torch.zeros(2)}, foreign)
    with pytest.raises(ValueError, match="is not a pixelbounds diffusion network"):
        load_network(foreign)
    for content in (b"\x89PNG\r\n and more of a picture", saved.read_bytes()[:100], saved.read_bytes()[:-1]):
        foreign.write_bytes(content)
        with pytest.raises(ValueError, match="is not a pixelbounds diffusion network"):
            load_network(foreign)
    save_state(tmp_path, {"a": torch.zeros(1)}, {"step": 1})
    with pytest.raises(ValueError, match="holds a training state, not a diffusion network"):
        load_network(tmp_path / "state.safetensors")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_network(tmp_path / "nothing.safetensors")
    with pytest.raises(IsADirectoryError, match=r"is a folder; give the path of a diffusion network, a \.safetensors"):
        load_network(tmp_path)
    with pytest.raises(ValueError, match="holds a score network, not a regressor network"):
        load_network(saved, kind="regressor")


def altered(path, change):
    """Write the file again with its meta changed."""
    tensors, meta = checkpoint.read(path, "diffusion network")
    change(meta)
    path.write_bytes(seal(meta, {name: x.numpy() for name, x in tensors.items()}))


HOSTILE = {  # edited and sealed again
    "wide": lambda meta: meta["config"].update(base=2**20),
    "deep": lambda meta: meta["config"].update(blocks=10**9),
    "many levels": lambda meta: meta["config"].update(multipliers=[1] * 60, size=2**60),
    "another design": lambda meta: meta["config"].update(design="lean"),
    "words": lambda meta: meta["config"].update(dropout="much", fourier_scale="wide"),
    "no configuration": lambda meta: meta.pop("config"),
    "no kind": lambda meta: meta.pop("kind"),
    "another kind": lambda meta: meta.update(kind="regressor"),
    "heads": lambda meta: meta.update(kind="regressor", heads=2**40, data_deviation=1.0),
    "no process": lambda meta: meta.pop("sde"),
    "process of words": lambda meta: meta.update(sde={"sigma_min": "small", "sigma_max": []}),
}


@pytest.mark.parametrize("change", HOSTILE)
def test_an_edited_file_is_refused_before_anything_is_built(saved, change, monkeypatch):
    """Nothing of the size that it declares is ever made."""
    altered(saved, HOSTILE[change])
    monkeypatch.setattr(torch.nn.Module, "load_state_dict", lambda *_: pytest.fail("a network was built"))
    with pytest.raises(ValueError, match=r"net\.safetensors"):
        load_network(saved)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3])
def test_weights_are_finite_numbers(saved, value):
    tensors, meta = checkpoint.read(saved, "diffusion network")
    name = "last.bias"
    tensors[name] = torch.full_like(tensors[name], value, dtype=torch.int32 if value == 3 else torch.float32)
    saved.write_bytes(seal(meta, {name: x.numpy() for name, x in tensors.items()}))
    with pytest.raises(ValueError, match="NaN or infinite"):
        load_network(saved)
