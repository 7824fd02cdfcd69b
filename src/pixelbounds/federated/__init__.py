"""Calibration across sites that keep their images: only tables of counts travel.

    site          announce(truth, band, site="north")      images, units, sizes            -> coordinator
    coordinator   study = begin(announcements, ...)        study.plan                      -> every site
    site          answer(plan, truth, band, site="north")  the tables that the plan wants  -> coordinator
    coordinator   study = merge(study, answers)            study.plan again, at last a Calibration

The calibration equals, byte for byte, that of all images in one place, but for the hashes of single images, which no
site sends: by `pixelbounds.calibrate` with its defaults where few units fit, with pb.Frontier("band") where more do,
since groups cannot be learned from sums. docs/federated.md says what tables reveal, and what a malicious site can do.

messages.py     bytes in, bytes out; fields.py checks them; engine.py carries them over NVFlare
questions.py    what may be asked, one class each, and how small counts are suppressed; arguments.py their arguments
site.py         announce, answer; sites.py sites in place of images; coordinator.py begin, merge
"""

from .coordinator import Study, begin, load_study, merge
from .messages import Message, load
from .site import announce, answer, make_key

__all__ = ["Message", "Study", "announce", "answer", "begin", "load", "load_study", "make_key", "merge"]
