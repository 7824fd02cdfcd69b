"""Valid files of networks and of training runs, and what a user does with each (`specimens`)."""

from dataclasses import asdict


def make_networks(folder):
    """Networks of each kind; weights are as after training."""
    import gaussian_world as world
    import torch

    from pixelbounds.diffusion.checkpoint import save_network, save_state
    from pixelbounds.diffusion.regression import n_conffusion, regressor
    from pixelbounds.diffusion.sde import VESDE

    small = {"base": 8, "multipliers": (1,), "blocks": 1}
    sde = VESDE(sigma_min=0.01, sigma_max=1.0)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        made = {
            "score": world.network(**small),
            "regressor": regressor(world.config(**small)),
            "conffusion": n_conffusion(world.network(**small)),
        }
    for kind, network in made.items():
        save_network(folder / "network" / f"{kind}.safetensors", network.eval(), sde, kind, {"sigma_0": 0.4})
    state = {name: x for name, x in made["score"].state_dict().items() if x.numel() < 2000}
    save_state(folder / "state", state, {"step": 3, "seconds": 1.5, "config": asdict(made["score"].config)})


def use_network(data, name, rng, world):
    """Load it, and let it look at one image."""
    import torch

    from pixelbounds.diffusion.checkpoint import load_network

    file = world.scratch / "network.safetensors"
    file.write_bytes(data)
    network, _, meta = load_network(file)
    size, channels = network.config.size, network.config.channels
    if size * size * channels <= 2**12:
        with torch.inference_mode():
            network(torch.zeros(1, channels, size, size), torch.full((1,), 0.5))
    assert meta["kind"] in ("score", "regressor", "conffusion"), f"a network of kind {meta['kind']!r} was loaded"


def use_state(data, name, rng, world):
    """Read the state of a training run."""
    from pixelbounds.diffusion.checkpoint import load_state

    (world.scratch / "state.safetensors").write_bytes(data)
    load_state(world.scratch)
