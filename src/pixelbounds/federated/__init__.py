"""Calibration across sites that keep their images: only tables of counts travel.

    site          announce(truth, band, site="north")      images, units, sizes            -> coordinator
    coordinator   study = begin(announcements, ...)        study.plan                      -> every site
    site          answer(plan, truth, band, site="north")  the tables that the plan wants  -> coordinator
    coordinator   study = merge(study, answers)            study.plan again, at last a Calibration

The calibration equals, byte for byte, that of all images in one place, but for the hashes of single images, which no
site sends: by `pixelbounds.calibrate` with its defaults where few units fit, with pb.Frontier("band") where more do,
since groups cannot be learned from sums. docs/federated.md says what tables reveal, and what a malicious site can do.

>>> import numpy as np
>>> import pixelbounds as pb
>>> rng = np.random.default_rng(0)
>>> centre = rng.uniform(0.3, 0.7, (200, 8, 8))
>>> truth, band = centre + 0.05 * rng.standard_normal(centre.shape), pb.Band(centre - 0.05, centre + 0.05)
>>> sites = {"north": slice(0, 120), "south": slice(120, 200)}
>>> sent = [pb.federated.announce(truth[at], band[at], site=site) for site, at in sites.items()]
>>> study = pb.federated.begin(sent, risk_level=0.1)
>>> while isinstance(study, pb.federated.Study):
...     answers = [pb.federated.answer(study.plan, truth[at], band[at], site=site) for site, at in sites.items()]
...     study = pb.federated.merge(study, answers)
>>> study.to_bytes() == pb.calibrate(truth, band, risk_level=0.1).without_hashes().to_bytes()
True

questions.py      what may be asked, one class each; arguments.py what they are given, suppression.py small counts
messages.py       bytes in, bytes out; fields.py and tables.py check them; engine.py carries them over NVFlare
site.py           announce, answer; site_regions.py, shared_units.py, announcements.py what sites say of their images
site_data.py      sites in place of images; coordinator.py begin, merge
"""

from .coordinator import Study, begin, load_study, merge
from .messages import Message, load
from .shared_units import make_key, write_key
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
    "write_key",
]
