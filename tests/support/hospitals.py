"""Three hospitals, their images, and the rounds of a study."""

import copy
import dataclasses
from itertools import pairwise

import numpy as np
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds import federated
from pixelbounds.federated.messages import message_of

BY_BAND = pb.Frontier("band")
NAMES, COUNTS = ("north", "east", "south"), (50, 7, 63)
CUTS = np.cumsum((0, *COUNTS))


def data(kind="plain", size=8):
    """Images of all sites in one place."""
    truth, band = heteroscedastic(sum(COUNTS), np.random.default_rng(3), size=size)
    if kind == "centred":
        band = pb.Band(band.lower, band.upper, (band.lower + band.upper) / 2, "test")
    if kind == "positive":
        band = pb.Band(np.maximum(band.lower, 0.05), np.maximum(band.upper, 0.06), family="multiplicative")
    return truth, band


def parts_of(truth, band, units=None, **same):
    """What each site has, and says of it."""
    cuts = [slice(a, b) for a, b in pairwise(CUTS)]
    return {
        name: (truth[at], band[at], {"site": name, **same} | ({} if units is None else {"units": units[at]}))
        for name, at in zip(NAMES, cuts, strict=True)
    }


def regions_of(truth):
    """Masks that overlap, one of them rare, weights, and a subgroup of whole images."""
    rare = np.zeros(truth.shape, bool)
    rare[::2, 2:5, 2:5] = True
    women = np.arange(len(truth)) % 3 > 0
    return {"edges": pb.regions.edges(truth, top=0.3), "rare": rare, "weights": np.abs(truth - 0.5), "women": women}


def with_regions(sites, regions):
    """Each site with its part of the regions."""
    parts = ({name: values[a:b] for name, values in regions.items()} for a, b in pairwise(CUTS))
    return {name: (t, b, how | {"regions": x}) for (name, (t, b, how)), x in zip(sites.items(), parts, strict=True)}


def in_one_place(*images, **how):
    """The calibration of pooled images, but for their prints: images of sites have none."""
    return pb.calibrate(*images, **how).without_hashes()


def announced(sites, unit_key=None):
    """What each site announces."""
    return [federated.announce(t, b, **how, unit_key=unit_key) for t, b, how in sites.values()]


def answers_of(sites, plan):
    """What each site answers, by its name."""
    return {name: federated.answer(plan, t, b, **how) for name, (t, b, how) in sites.items()}


def rounds(sites, begun, through=lambda message: message_of(message.to_bytes())):
    """Run a study to its end; every message travels as a file would. The calibration and the plans."""
    study, plans = begun, []
    while isinstance(study, federated.Study):
        plans.append(through(study.plan))
        answers = [through(answer) for answer in answers_of(sites, plans[-1]).values()]
        study = federated.merge(study, answers[::-1])  # in whatever order they arrive
    return study, plans


def studies_of(sites, begun):
    """Every study on the way, by the statistic that it asks for, the last where one is asked twice."""
    study, out = begun, {}
    while isinstance(study, federated.Study):
        out[study.plan.text["statistic"]] = study
        study = federated.merge(study, list(answers_of(sites, study.plan).values()))
    return out


def edited(message, change=lambda text, tables: None):
    """A message that someone changed and sealed again, as a file would bring it."""
    text = copy.deepcopy(dict(message.text))
    tables = {name: x.copy() for name, x in message.tables.items()}
    change(text, tables)
    return message_of(dataclasses.replace(message, text=text, tables=tables).to_bytes())


def table(name, change):
    """A change of one table."""
    return lambda text, tables: tables.update({name: change(tables[name])})


def said(**fields):
    """A change of what a message says."""
    return lambda text, tables: text.update(fields)
