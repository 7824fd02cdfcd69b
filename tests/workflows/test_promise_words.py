"""Promises as text and as TOML tables: what they mean, and what is said of text that means nothing."""

from pathlib import Path

import pytest
from refusals import refuses

from pixelbounds.workflows.promise_words import Region, promise_texts, region_texts


def read(text):
    return promise_texts([text], planned=True)[0]


@pytest.mark.parametrize("text, wanted", [
    ("share:0.05", ("share", 0.05, None, None, None, None, None)),
    ("share:0.05,cap=0.25,name=brain", ("share", 0.05, None, None, 0.25, None, "brain")),
    ("tail:0.05, within=body, above=0.1", ("tail", 0.05, 0.1, Region("body"), None, None, "body")),
    ("share:0.1,name=left lung,weighting=pixels", ("share", 0.1, None, None, None, "pixels", "left lung")),
    ("share:0.033,within=edges,dilated=2", ("share", 0.033, None, Region("edges", dilated=2), None, None, "edges")),
    ("tail:0.2,prevalence=0.08,above=0", ("tail", 0.2, 0.0, None, None, None, None)),
    ("share:0.1,within=edges:0.2,name=e", ("share", 0.1, None, Region("edges", top=0.2), None, None, "e")),
    ("share:0.1,within=m.npy", ("share", 0.1, None, Region("file", Path("m.npy")), None, None, None)),
    ("share:0.1,within=my map.npy:2+30", ("share", 0.1, None, Region("file", Path("my map.npy"), (2, 30)), None, None,
                                          None)),
    ("share:0.1,within=C:\\m.npy:2", ("share", 0.1, None, Region("file", Path("C:\\m.npy"), (2,)), None, None, None)),
])  # fmt: skip
def test_text_says_what_must_hold(text, wanted):
    one = read(text)
    assert (one.kind, one.level, one.above, one.region, one.cap, one.weighting, one.called) == wanted
    promise = one.promise()
    assert (promise.kind, promise.at_most, promise.cap, promise.name) == (one.kind, one.level, one.cap, one.called)


REFUSED = {
    "": ("kind is ''", "'share' or 'tail'"),
    "shere:0.05": ("kind is 'shere'", "'share' or 'tail'"),
    "share 0.05": ("kind is 'share 0.05'", "share:0.05"),
    "share": ("level is missing", "0.05"),
    "share:within=body": ("level is 'within=body'", "number"),
    "share:5": ("level is '5'", "less than 1"),
    "share:nan": ("level is 'nan'",),
    "share:0.05,0.1": ("'0.1' is not key=value",),
    "share:0.05,within=": ("'within=' is not key=value",),
    "share:0.05,witin=body": ("witin is not known", "did you mean 'within'"),
    "share:0.05,within=body,within=body": ("'within' comes twice",),
    "share:0.05,above=0.1": ("above belongs to a tail",),
    "share:0.05,within=edges:5": ("within is edges:5", "at most 1"),
    "share:0.05,dilated=3": ("dilated is given without within",),
    "share:0.05,within=body,dilated=-1": ("dilated is '-1'",),
    "share:0.05,weighting=pixel": ("weighting is 'pixel'", "'units', 'images' or 'pixels'"),
    "share:0.3,cap=0.2": ("cap is 0.2",),
    'share:0.3,name=a"b': ("name is ", "a few words"),
    "tail:0.05": ("above is missing",),
    "tail:0.05,cap=0.5,above=0.1": ("cap belongs to a share",),
}


@pytest.mark.parametrize("text", REFUSED)
def test_text_that_is_not_understood_is_refused_with_an_example(text):
    refuses(lambda: read(text), f'the promise "{text}"', *REFUSED[text], "for example", "share:0.10,within=")


TABLE = '[[promise]]\nkind = "share"\nlevel = 0.05\n'
TABLES = {
    "": "the section [promise] is missing",
    "promise = []": "line 1: [promise] is []",
    TABLE + 'with = "body"': "line 4: [promise] with is not known; did you mean 'within'",
    TABLE + TABLE + "cap = 2": "line 7: [promise] cap is 2: it should be less than or equal to 1",
    TABLE + '[[promise]]\nkind = "tail"\nlevel = 0.1': "line 4: [promise] above is missing",
    TABLE.replace("0.05", '"5%"'): "line 3: [promise] level is '5%': it should be a valid number",
    "[[promise]": "is not TOML",
}


def test_a_file_of_promises_has_the_same_keys(tmp_path):
    file = tmp_path / "wanted.toml"
    file.write_text(f'# for the clinic\n{TABLE}{TABLE}within = "organs.npy:2"\nname = "heart, left"\n')
    one, two, three = promise_texts(["tail:0.1,above=0.2", str(file)])
    assert (one.kind, two.level, three.name) == ("tail", 0.05, "heart, left")
    assert three.region == Region("file", tmp_path / "organs.npy", (2,))
    for text, message in TABLES.items():
        file.write_text(text)
        refuses(lambda: promise_texts([str(file)]), str(file), message)
    refuses(lambda: promise_texts(["share:0.1,prevalence=0.08"]), "prevalence=0.08 is for plan alone")
    refuses(lambda: promise_texts([str(tmp_path / "none.toml")]), "none.toml: No such file")


def test_regions_have_names():
    assert region_texts(["body", "m.npy:2,name=heart,dilated=1"]) == {
        "body": Region("body"), "heart": Region("file", Path("m.npy"), (2,), dilated=1)
    }  # fmt: skip
    for texts, message in (
        (["m.npy"], "has no name"),
        (["body", "edges,name=body"], "two regions are called 'body'"),
        (["body,cap=0.3"], "cap is not known"),
        ([""], "has no name"),
    ):
        refuses(lambda texts=texts: region_texts(texts), message)
