"""Messages under a key: who does not have it can neither write nor change nor repeat one."""

import dataclasses
import os
import stat

import pytest
from hospitals import announced, answers_of, data, edited, parts_of, refuses, rounds, said, table

import pixelbounds as pb
from pixelbounds import federated
from pixelbounds.federated.keys import key_of
from pixelbounds.federated.messages import message_of

KEY, OTHER = bytes(range(32)), bytes(32)


@pytest.fixture(scope="module")
def world():
    sites = parts_of(*data(), key=KEY)
    return sites, federated.begin(announced(sites), risk_level=0.2, method="rcps", key=KEY)


def test_a_key_changes_nothing_but_who_is_believed(world):
    sites, study = world
    found, plans = rounds(sites, study)
    assert found.to_bytes() == rounds(parts_of(*data()), federated.begin(
        announced(parts_of(*data())), risk_level=0.2, method="rcps"))[0].to_bytes()  # fmt: skip
    assert all(plan.mac for plan in plans)
    assert "not authenticated" not in repr(plans[0])
    assert "not authenticated" in repr(announced(parts_of(*data()))[0])


def test_what_was_written_without_the_key_or_changed_since_is_refused(world):
    sites, study = world
    t, b, how = sites["north"]
    plan, answers = study.plan, answers_of(sites, study.plan)
    for wrong, word in {
        edited(plan): "not authenticated",
        edited(plan, key=OTHER): "not written with this key",
        dataclasses.replace(edited(plan, said(round=2)), mac=plan.mac): "changed since",
        dataclasses.replace(edited(plan, table("given.path.points", lambda x: x / 2)), mac=plan.mac): "changed since",
    }.items():
        refuses(lambda given=wrong: federated.answer(given, t, b, **how), word)
    for change in (said(site="east"), said(round=2), said(study="0" * 64), table("missed", lambda x: x * 0)):
        forged = dataclasses.replace(edited(answers["south"], change), mac=answers["south"].mac)
        given = {**answers, "south": forged}
        refuses(lambda given=given: federated.merge(study, list(given.values())), "not written with this key")
    refuses(lambda: federated.answer(plan, t, b, site="north"), "no key was given")
    refuses(lambda: federated.begin(announced(sites), risk_level=0.2), "no key was given")
    refuses(lambda: federated.begin(announced(sites), risk_level=0.2, key=OTHER), "not written with this key")
    refuses(lambda: federated.merge(study, list(answers.values()), key=OTHER), "another key")
    refuses(lambda: message_of(dataclasses.replace(plan, mac="short").to_bytes()), "HMAC")


def test_what_was_right_in_another_round_or_study_is_refused(world):
    """A replay: the HMAC is right, but study, round and the digest of the plan are under it, too."""
    sites, study = world
    answers = answers_of(sites, study.plan)
    other = federated.begin(announced(sites), risk_level=0.3, method="rcps", key=KEY)
    refuses(lambda: federated.merge(other, list(answers.values())), "another plan", "of another study")
    twice = federated.begin(announced(sites), method=pb.Frontier("band", 2), risk_level=0.2, key=KEY)
    first = answers_of(sites, twice.plan)
    second = federated.merge(twice, list(first.values()))
    refuses(lambda: federated.merge(second, list(first.values())), "'north' answers another plan", "round 1", "round 2")


def test_the_key_is_in_no_file(world, tmp_path):
    sites, study = world
    study.save(tmp_path / "study.safetensors")
    answers = answers_of(sites, study.plan)
    found = federated.merge(study, list(answers.values()))
    assert isinstance(found, pb.Calibration)
    contents = [message.to_bytes() for message in (*announced(sites), study.plan, *answers.values())]
    contents += [(tmp_path / "study.safetensors").read_bytes(), found.to_bytes()]
    assert not any(KEY in content or KEY.hex().encode() in content for content in contents)
    assert federated.load_study(tmp_path / "study.safetensors", key=KEY).plan.digest == study.plan.digest
    refuses(lambda: federated.load_study(tmp_path / "study.safetensors"), "no key was given")
    refuses(lambda: federated.load_study(tmp_path / "study.safetensors", key=OTHER), "not written with this key")


def test_a_key_file_is_new_private_and_read_again(tmp_path):
    path = tmp_path / "study.key"
    key = federated.make_key()
    assert key != federated.make_key()
    federated.write_key(path, key)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert key_of(path) == key_of(str(path)) == key_of(key) == key
    refuses(lambda: federated.write_key(path, key), "exists", error=FileExistsError)
    path.chmod(0o644)
    with pytest.warns(UserWarning, match="chmod 600"):
        assert federated.read_key(path) == key
    path.write_text("not a key")
    refuses(lambda: federated.read_key(path), "no key", "federated key --out")
    path.write_bytes(b"0" * 10**6)
    refuses(lambda: federated.read_key(path), "no key")
    refuses(lambda: federated.read_key(tmp_path / "none"), "no key file", error=FileNotFoundError)
    for wrong in (b"short", 7, KEY + b"1"):
        refuses(lambda given=wrong: key_of(given), "32 bytes")
