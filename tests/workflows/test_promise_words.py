"""Promises in words: what they mean, and what is said of words that mean nothing."""

import pytest
from refusals import refuses

from pixelbounds.workflows.promise_words import Region, promise_of_words, promise_texts


@pytest.mark.parametrize("text, wanted", [
    ("share 0.05", ("share", 0.05, None, None, None, None, None)),
    ("Share 5% cap 25% as brain", ("share", 0.05, None, None, 0.25, None, "brain")),
    ("tail 0.05 within body above 10%", ("tail", 0.05, 0.1, Region("body"), None, None, None)),
    ("share 0.1 as 'left lung' counting pixels", ("share", 0.1, None, None, None, "pixels", "left lung")),
    ("share 3.3% within edges dilated 2", ("share", 0.033, None, Region("edges", dilated=2.0), None, None, None)),
    ("tail 0.2 in 8% above 0", ("tail", 0.2, 0.0, None, None, None, None)),
    ("share 0.1 within edges 0.2 as e", ("share", 0.1, None, Region("edges", top=0.2), None, None, "e")),
])  # fmt: skip
def test_words_say_what_must_hold(text, wanted):
    said = promise_of_words(text)
    assert (said.kind, said.at_most, said.above, said.region, said.cap, said.weighting, said.name) == wanted


def test_a_file_may_have_labels_and_any_name(tmp_path):
    (tmp_path / "a=b.npy").touch()
    for text, name, labels in (
        ("share 0.1 within m.nii.gz=2,30", "m.nii.gz", (2, 30)),
        ("share 0.1 within 'my map.npy=1'", "my map.npy", (1,)),
        ("share 0.1 within a=b.npy", "a=b.npy", ()),
        ("share 0.1 within a=b.npy=4", "a=b.npy", (4,)),
    ):
        region = promise_of_words(text, tmp_path).region
        assert (region.path, region.labels) == (tmp_path / name, labels)


@pytest.mark.parametrize("text, words", [
    ("", ("is empty",)),
    ("shere 0.05", ("'shere'", "did you mean 'share'")),
    ("0.05 share", ("'share' comes first, then its level",)),
    ("share", ("the level of the share is missing",)),
    ("share within body 0.05", ("'within' stands where the level of the share is expected",)),
    ("share 5", ("5 percent is 0.05, or 5%",)),
    ("share 0.05 0.1", ("the number 0.1 stands alone",)),
    ("share 0.05 witin body", ("'witin'", "did you mean 'within'")),
    ("share 0.05 above 0.1", ("'above'", "it belongs to a tail")),
    ("share 0.05 within bdy", ("there is no file 'bdy'", "did you mean 'body'")),
    ("share 0.05 within m.npy=heart", ("'heart' is no label of 'm.npy'", "=2,3")),
    ("share 0.05 within", ("nothing follows 'within'",)),
    ("share 0.05 within body within body", ("'within' comes twice",)),
    ("share 0.05 dilated 3", ("'dilated' grows a region",)),
    ("share 0.05 as left lung", ("'lung' follows the name 'left'", "as 'left lung'")),
    ("share 0.05 as 'left", ("a quote is opened",)),
    ("share 0.05 counting pixel", ("'pixel' is no way to count", "did you mean 'pixels'")),
    ("share 0.3 cap 0.2", ("cap is 0.2",)),
    ("share 0.05 tail 0.1", ("'tail' begins another promise",)),
    ("tail 0.05", ("above which share",)),
    ("tail 0.05 cap 0.5 above 0.1", ("'cap'", "it belongs to a share", "tail 0.05 above 0.10")),
    ("share nan", ("'nan' stands where",)),
])  # fmt: skip
def test_what_is_not_understood_is_named_with_an_example(text, words):
    refuses(lambda: promise_of_words(text), f'the promise "{text}" was not understood', *words, "write, for example")


def test_a_file_of_promises_holds_the_same_words(tmp_path):
    file = tmp_path / "wanted.toml"
    file.write_text('# for the clinic\npromises = [\n  "share 0.05",\n  "share 0.1 within organs.npy=2 as heart",\n]\n')
    said = promise_texts(["tail 0.1 above 0.2", str(file)])
    assert [one.kind for one in said] == ["tail", "share", "share"]
    assert said[2].region == Region("file", tmp_path / "organs.npy", (2,))
    for text, words in (
        ("promises = 'share 0.05'", ("one list of lines",)),
        ("promises = []", ("holds no promise",)),
        ("promise = ['share 0.05']", ("holds promise", "promises = [")),
        ("promises = [", ("not TOML", "mend that line")),
        ("promises = ['shar 0.05']", ("did you mean 'share'",)),
    ):
        file.write_text(text)
        refuses(lambda: promise_texts([str(file)]), *words)
    refuses(lambda: promise_texts(["share 0.1 in 0.08"]), "for plan alone", "leave 'in 0.08' out")
    assert promise_texts(["share 0.1 in 0.08"], planned=True)[0].prevalence == 0.08
    refuses(lambda: promise_texts([str(tmp_path / "none.toml")]), "does not exist", error=FileNotFoundError)
