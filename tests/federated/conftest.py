"""Studies at every question, for tests of what is refused."""

import pytest
from hospitals import BY_BAND, announced, answers_of, data, parts_of, regions_of, studies_of, with_regions

import pixelbounds as pb
from pixelbounds import federated


@pytest.fixture(scope="session")
def worlds():
    """Sites, and by question the study that asks it and what the sites answer."""
    truth, band = data()
    promises = [pb.share(0.3), pb.share(0.4, name="edges"), pb.tail(0.5, above=0.5, name="rare"),
                pb.share(0.4, name="weights"), pb.share(0.4, cap=0.8, name="women")]  # fmt: skip
    plain, unlimited = parts_of(truth, band), parts_of(*data("centred"), limits=None)
    positive, regional = parts_of(*data("positive")), with_regions(parts_of(truth, band), regions_of(truth))
    one = {"risk_level": 0.2, "method": BY_BAND}
    out = {}
    for name, sites, how in (
        ("plain", plain, {**one, "bound": "hoeffding_bentkus"}),
        ("unlimited", unlimited, one),
        ("positive", positive, one),
        ("regions", regional, {"promises": promises, "failure_prob": 0.2, "method": pb.Frontier("band", 2)}),
    ):
        studies = studies_of(sites, federated.begin(announced(sites), **how))
        out[name] = sites, {asked: (study, answers_of(sites, study.plan)) for asked, study in studies.items()}
    return out
