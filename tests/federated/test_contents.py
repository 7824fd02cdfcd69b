"""What an announcement may say: types, ranges and tables, refused with the field and its value."""

import numpy as np
import pytest
from hospitals import data, edited, parts_of, refuses, said

import pixelbounds as pb
from pixelbounds import federated

KEY = bytes(32)


@pytest.fixture(scope="module")
def told():
    (t, b, _), (other, its, _), _ = parts_of(*data()).values()
    north = federated.announce(t, b, site="north", units=np.arange(50) // 2, key=KEY)
    return north, federated.announce(other, its, site="east", units=np.arange(7) + 100, key=KEY)


def tables(**new):
    return lambda text, tables: tables.update(new)


WRONG = {  # change, words of the refusal
    "fewer than no images": (said(images=-5), "images -5"),
    "more images than anyone has": (said(images=10**12), "images 1000000000000"),
    "images in words": (said(images="7"), "images '7'"),
    "parts of images": (said(images=1.5), "images 1.5"),
    "images that are yes": (said(images=True), "images True"),
    "no images": (said(images=0), "images 0"),
    "no pixels": (said(pixels=[0]), "pixels.0 0"),
    "pixels below 0": (said(pixels=[-1, 4]), "pixels.0 -1"),
    "more pixels than memory": (said(pixels=[10**9, 10**9]), "pixels"),
    "pixels in words": (said(pixels="ab"), "pixels 'ab'"),
    "limits that fall": (said(limits=[1, 0]), "limits [1, 0]"),
    "limits in words": (said(limits=["0", "1"]), "limits"),
    "one limit": (said(limits=[0]), "limits"),
    "a name with a path": (said(site="<b>/../../x"), "site '<b>/../../x'"),
    "a name with markup": (said(site="[red]north"), "site '[red]north'"),
    "no name": (said(site=None), "site None"),
    "a field that nobody knows": (said(more=1), "more 1"),
    "a field that is missing": (lambda text, tables: text.pop("centred"), "lacks centred"),
    "a centre that is a number": (said(centred=1), "centred 1"),
    "a least count of 0": (said(least_count=0), "least_count 0"),
    "units without a table": (lambda text, tables: tables.pop("unit_of"), "should have names, prints, unit_of"),
    "more units than images": (said(units=51), "51 units"),
    "fewer units than the table": (said(units=24), "(24, 16)"),
    "units out of range": (tables(unit_of=np.full(50, 10**9)), "unit_of from 1000000000"),
    "units below 0": (tables(unit_of=np.full(50, -7)), "unit_of from -7"),
    "units of some images": (tables(unit_of=np.zeros(3, int)), "unit_of of int64 (3,)"),
    "units without images": (tables(unit_of=np.zeros(50, int)), "have no image"),
    "sizes where all have one": (tables(sizes=np.ones(50, int)), "sizes"),
    "a digest of another shape": (tables(image_hashes=np.zeros(2, int)), "prints of int64 (2,)"),
    "a digest below 0": (tables(image_hashes=np.full(8, -1)), "prints from -1"),
    "a digest in parts": (tables(image_hashes=np.zeros(8)), "prints of float64"),
    "two units of one name": (tables(names=np.zeros((25, 16), int)), "one name"),
    "names that are no bytes": (tables(names=np.full((25, 16), 256)), "names from 256"),
}


@pytest.mark.parametrize("change, word", WRONG.values(), ids=WRONG)
def test_a_wrong_announcement_is_refused_by_field_and_value(told, change, word):
    wrong = edited(told[0], change, KEY)
    refuses(lambda: federated.begin([wrong, told[1]], risk_level=0.2, key=KEY), word)
    assert federated.begin(told, groups="band", risk_level=0.2, key=KEY).plan.tables


def test_sizes_of_a_ragged_site_are_checked(rng):
    images = [rng.uniform(0.4, 0.6, (4, n)).astype(np.float32) for n in (3, 4, 5)]
    bands = [pb.Band(x[None] - 0.1, x[None] + 0.1) for x in images]
    mixed = federated.announce(images, bands, site="west")
    for change, word in (
        (tables(sizes=np.zeros(3, int)), "sizes from 0"),
        (tables(sizes=np.ones(2, int)), "sizes of int64 (2,)"),
        (lambda text, tables: tables.pop("sizes"), "prints, sizes"),
    ):
        wrong = edited(mixed, change)
        refuses(lambda given=wrong: federated.begin([given], risk_level=0.2), "'west'", word)


def test_where_two_sites_disagree_neither_is_accused():
    sites = parts_of(*data())
    t, b, _ = sites["east"]
    north = federated.announce(*sites["north"][:2], site="north")
    wider = federated.announce(t, b, site="east", limits=(0, 2))
    for pair in ([north, wider], [wider, north]):
        refuses(lambda given=pair: federated.begin(given, risk_level=0.2), "limits", "'east'", "'north'",
                "cannot be known")  # fmt: skip
