"""Calibration across sites that keep their images: only tables of counts travel.

    site          announce(truth, band, site="north")      images, units, sizes            -> coordinator
    coordinator   study = begin(announcements, ...)        study.plan                      -> every site
    site          answer(plan, truth, band, site="north")  the tables that the plan wants  -> coordinator
    coordinator   study = merge(study, answers)            study.plan again, at last a Calibration

The calibration equals, byte for byte, that of all images in one place. docs/federated.md says what tables reveal.

messages.py       files that are sent: sealed, told apart by kind and digest
site.py           announce, answer
coordinator.py    begin, merge
"""

from .coordinator import Study, begin, load_study, merge
from .messages import Message, load
from .site import announce, answer

__all__ = ["Message", "Study", "announce", "answer", "begin", "load", "load_study", "merge"]
