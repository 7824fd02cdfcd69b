"""A patient at two sites is one unit: under a key it is found, and refused or joined."""

import os
import stat

import numpy as np
import pytest
from hospitals import BY_BAND, COUNTS, announced, data, in_one_place, parts_of, rounds
from refusals import refuses

from pixelbounds import federated
from pixelbounds.federated.site import name_hashes, read_key

KEY = bytes(range(32))
TRUTH, BAND = data()
# two slices a patient; patients 20 to 24 of the north, in the order of their names, are the first five of the south
UNITS = [np.arange(count) // 2 + first for count, first in zip(COUNTS, (0, 40, 20), strict=True)]
NAMED = np.array([f"patient {unit:02d}" for part in UNITS for unit in part])


def test_a_patient_at_two_sites_is_found_under_a_key_and_refused():
    told = announced(parts_of(TRUTH, BAND, NAMED), KEY)
    refuses(
        lambda: federated.begin(told, method=BY_BAND, risk_level=0.3),
        "9 units are at more than one site", "unit 20 of 'north' and unit 0 of 'south'", "shared_units='join'",
    )  # fmt: skip
    hidden = b"".join(message.to_bytes() for message in told)
    assert not any(secret in hidden for secret in (b"patient", KEY, KEY.hex().encode()))


def test_joined_patients_are_those_of_one_place():
    sites = parts_of(TRUTH, BAND, NAMED)
    begun = federated.begin(announced(sites, KEY), method=BY_BAND, risk_level=0.3, shared_units="join")
    found, _ = rounds(sites, begun)
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


def test_sites_must_hash_under_one_key():
    sites = parts_of(TRUTH, BAND, NAMED)
    first = announced(sites, KEY)[0]
    other = announced(sites, bytes(32))[1]
    refuses(lambda: federated.begin([first, other], risk_level=0.3), "unit_key", "'north'", "'east'")
    refuses(lambda: federated.begin([first, announced(sites)[1]], risk_level=0.3), "unit_key", "None at 'east'")


def test_a_key_file_is_new_private_and_read_again(tmp_path):
    path = tmp_path / "units.key"
    federated.make_key(path)
    federated.make_key(tmp_path / "other.key")
    key = read_key(path)
    assert key != read_key(tmp_path / "other.key")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert read_key(str(path)) == read_key(key) == key
    refuses(lambda: federated.make_key(path), "exists", error=FileExistsError)
    path.chmod(0o644)
    with pytest.warns(UserWarning, match="chmod 600"):
        assert read_key(path) == key
    path.chmod(0o600)
    for content in (b"not a key", b"0" * 10**6):
        path.write_bytes(content)
        refuses(lambda: read_key(path), "32 bytes", "federated key --out")
    refuses(lambda: read_key(tmp_path / "none"), "none", error=FileNotFoundError)
    for wrong in (b"short", bytes(65)):
        refuses(lambda given=wrong: read_key(given), "32 bytes")


def test_names_are_told_apart_by_hashes_that_need_the_key():
    mine, again = name_hashes(KEY, ["a", "b"]), name_hashes(KEY, ["b", " a "])
    np.testing.assert_array_equal(mine, again[::-1])
    assert not np.array_equal(mine, name_hashes(bytes(32), ["a", "b"]))
    assert len(np.unique(name_hashes(KEY, map(str, range(1000))), axis=0)) == 1000
