"""A patient at two sites is one unit: under a key it is found, and refused or joined."""

import numpy as np
from hospitals import BY_BAND, COUNTS, announced, data, in_one_place, parts_of, refuses, rounds

from pixelbounds import federated

KEY = bytes(range(32))
TRUTH, BAND = data()
# two slices a patient; patients 20 to 24 of the north, in the order of their names, are the first five of the south
UNITS = [np.arange(count) // 2 + first for count, first in zip(COUNTS, (0, 40, 20), strict=True)]
NAMED = np.array([f"patient {unit:02d}" for part in UNITS for unit in part])


def test_a_patient_at_two_sites_is_found_under_a_key_and_refused():
    told = announced(parts_of(TRUTH, BAND, NAMED, key=KEY))
    refuses(
        lambda: federated.begin(told, method=BY_BAND, risk_level=0.3, key=KEY),
        "9 units are at more than one site", "unit 20 of 'north' and unit 0 of 'south'", "shared_units='join'",
    )  # fmt: skip
    hidden = b"".join(message.to_bytes() for message in told)
    assert b"patient" not in hidden


def test_joined_patients_are_those_of_one_place():
    sites = parts_of(TRUTH, BAND, NAMED, key=KEY)
    found, _ = rounds(
        sites, federated.begin(announced(sites), method=BY_BAND, risk_level=0.3, shared_units="join", key=KEY)
    )
    first = dict.fromkeys(NAMED)  # numbered as they first appear, so that the split is the same
    order = {name: f"{number:03d}" for number, name in enumerate(first)}
    pooled = in_one_place(TRUTH, BAND, risk_level=0.3, method=BY_BAND, units=[order[name] for name in NAMED])
    assert found.to_bytes() == pooled.to_bytes()
    assert len(first) == 25 + 4 + 32 - 9


def test_without_a_key_a_patient_at_two_sites_is_not_found_and_that_is_said():
    sites = parts_of(TRUTH, BAND, NAMED)
    study = federated.begin(announced(sites), method=BY_BAND, risk_level=0.3)
    assert "units at two sites are not found" in repr(study)
    assert sum(site.text["units"] for site in study.sites) == 61  # nine patients count twice
    refuses(lambda: federated.begin(announced(sites), risk_level=0.3, shared_units="join"), "'join'", "key")
    refuses(lambda: federated.begin(announced(sites), risk_level=0.3, shared_units="split"), "shared_units", "join")


def test_the_same_images_under_two_names_are_refused():
    t, b, _ = parts_of(TRUTH, BAND)["north"]
    told = [federated.announce(t, b, site=site) for site in ("north", "west")]
    refuses(lambda: federated.begin(told, risk_level=0.3), "'north'", "'west'", "very same images")
