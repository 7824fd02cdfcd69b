"""Calibration across sites that keep their images: only tables of counts travel.

    site          announce(truth, band, site="north")      images, units, sizes            -> coordinator
    coordinator   study = begin(announcements, ...)        study.plan                      -> every site
    site          answer(plan, truth, band, site="north")  the tables that the plan wants  -> coordinator
    coordinator   study = merge(study, answers)            study.plan again, at last a Calibration

The calibration equals, byte for byte, that of all images in one place, but for the prints of single images, which no
site tells: by `pixelbounds.calibrate` with its defaults where few units fit, with groups="band" where more do, since
groups are not learned of sums. docs/federated.md says what tables reveal, and what a malicious site can still do.

>>> import numpy as np
>>> import pixelbounds as pb
>>> rng = np.random.default_rng(0)
>>> centre = rng.uniform(0.3, 0.7, (200, 8, 8))
>>> truth, band = centre + 0.05 * rng.standard_normal(centre.shape), pb.Band(centre - 0.05, centre + 0.05)
>>> sites = {"north": slice(0, 120), "south": slice(120, 200)}
>>> told = [pb.federated.announce(truth[at], band[at], site=site) for site, at in sites.items()]
>>> study = pb.federated.begin(told, risk_level=0.1)
>>> while isinstance(study, pb.federated.Study):
...     answers = [pb.federated.answer(study.plan, truth[at], band[at], site=site) for site, at in sites.items()]
...     study = pb.federated.merge(study, answers)
>>> study.to_bytes() == pb.calibrate(truth, band, risk_level=0.1).without_hashes().to_bytes()
True

keys.py           the key that sites share: HMAC of messages, keyed hashes of units' names
contents.py       what each kind of message may say, field by field
messages.py       files that are sent: sealed, authenticated, told apart by kind and digest
questions.py      the ten questions, and what each may be given
answers.py        the tables that a question calls for, and what can be counted at all
suppression.py    small counts that a site does not tell
places.py         regions of the sites, under the names of promises
site.py           announce, answer
archive.py        sites in place of images
shared_units.py   units and images that are at two sites
coordinator.py    begin, merge
"""

from .coordinator import Study, begin, load_study, merge
from .keys import make_key, read_key, write_key
from .messages import Message, load
from .site import announce, answer

__all__ = [
    "Message",
    "Study",
    "announce",
    "answer",
    "begin",
    "load",
    "load_study",
    "make_key",
    "merge",
    "read_key",
    "write_key",
]
