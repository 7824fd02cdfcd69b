"""What the makers of a material say of it, in the words that docs/results and docs/research/gpu.md read."""

from __future__ import annotations

from typing import Any

import numpy as np

from pixelbounds.bands import calibrated_ranks

from .measures import before_control, covered, psnr, surely_covered

Array = np.ndarray
Figures = dict[str, Any]
OURS = 0.1  # miscoverage
PAPER = {"ct64": 0.2, "chest512": 0.2, "chest16": 0.2} | dict.fromkeys(
    ("faces64", "chest128", "faces128", "faces16"), 0.1
)


def told(calls: list[Figures], arrays: dict[str, Array]) -> Figures:
    """Networks, and bands before any risk control, of the calls that made the arrays; `calls` has all that they say."""
    by_way = {call["way"]: call for call in calls}
    ours = by_way["ours"]
    found: Figures = {key: ours[key] for key in ("set", "commit", "torch", "device", "sigma_0")}
    images = ours["images"]
    found |= {
        "miscoverage": PAPER[ours["set"]],
        "images": {"train": images["train"], "tune": images["validation"], "held_out": images["measured"]},
        "score": _trained(ours, "score") | {"parameters": ours["parameters"]},
        "sampling": _sampling(ours, arrays),
    }
    if "paper" in by_way:
        found["printed"] = _trained(by_way["paper"], "score") | {"sampling": _drawn(by_way["paper"])}
    if "baselines" in by_way:
        found |= _baselines(by_way["baselines"], arrays)
    if "organs" in by_way:
        found["segmentation"] = {name: by_way["organs"][name] for name in ("steps", "seconds", "dice")}
    return found | {"calls": [_short(call) for call in calls]}


def _trained(call: Figures, kind: str) -> Figures:
    """Networks of a kind, and their steps and seconds together."""
    runs = [run for run in call["training"] if run["kind"] == kind]
    steps, seconds = (sum(run[name] for run in runs) for name in ("steps", "seconds"))
    return {"networks": len(runs), "step": steps, "seconds": seconds}


def _drawn(call: Figures) -> Figures:
    """The draw that the arrays are of: the last one of all images."""
    drawn = [each for each in call["bands"] if each["images"] == call["images"]["measured"]][-1]
    m = drawn["samples"]
    seconds = drawn["seconds"] * (m + 1) / m  # with the fresh one
    told = {"samples": drawn["images"] * (m + 1), "seconds_after_the_first_batch": round(seconds, 1)}
    return told | {"psnr_mean": drawn["psnr"], "m": m}


def _sampling(call: Figures, arrays: dict[str, Array]) -> Figures:
    drawn, a = _drawn(call), PAPER[call["set"]]
    ranks = calibrated_ranks(drawn["m"], a)
    lower, upper, fresh = (arrays[name].astype(np.float32) for name in ("lower", "upper", "fresh"))
    inside = covered(fresh, lower, upper)
    surely = surely_covered(arrays["fresh"], arrays["lower"], arrays["upper"])
    return drawn | {
        "psnr_noisy": psnr(arrays["observation"], arrays["truth"]),
        "psnr_mean": psnr(arrays["mean"], arrays["truth"]),
        "coverage_of_fresh_draw": float(inside.mean()),
        "coverage_error": float(inside.std(ddof=1) / len(inside) ** 0.5),
        "coverage_before_rounding_at_least": float(surely.mean()),
        "exact_coverage": (ranks[1] - ranks[0]) / (drawn["m"] + 1),
        "naive": before_control(arrays["truth"], arrays["naive_lower"], arrays["naive_upper"]),
        **before_control(arrays["truth"], lower, upper),
    }


def _baselines(call: Figures, arrays: dict[str, Array]) -> Figures:
    truth, deviation = arrays["truth"], arrays["dropout_deviation"].astype(np.float32)
    return {
        "regressor": _trained(call, "regressor"),
        "regressor_band": before_control(truth, arrays["qr_lower"], arrays["qr_upper"])
        | {"psnr_estimate": psnr(arrays["qr_estimate"], truth)},
        "dropout": {"psnr_mean": psnr(arrays["dropout_mean"], truth), "mean_deviation": float(deviation.mean())},
        "conffusion": _trained(call, "conffusion"),
        "conffusion_band": before_control(truth, arrays["conffusion_lower"], arrays["conffusion_upper"]),
    }


def _short(call: Figures) -> Figures:
    """A call's figures without the curves of its training."""
    runs = [{key: value for key, value in run.items() if key != "curve"} for run in call["training"]]
    return call | {"training": runs}
