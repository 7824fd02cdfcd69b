"""From pairs of truth and band to a promise: the pipeline of the paper, in its order; imports follow it.

families.py           how a band widens: set and score as a dual pair
block.py              a few images at hand: what is known of them, which ends widen together, and how they widen
bounds.py             upper confidence bounds on a risk, and what few units certify
promises.py           share, tail, loss: risks, where they are counted, and their levels
target.py             promises, failure probability and bound; units; the test of one promise
data.py               truth and band, validated once, read as statistics of blocks; S_opt and S_rcps
groups/               which ends of which pixels widen together
paths/                groups to a monotone path of widenings; what every image misses along it
choice.py             the groups, or the band, with the shortest intervals on S_opt
methods.py            RCPS, KRCPS, Frontier: the split, and the path from S_opt
losses.py             losses of a user's own
certify.py            losses of S_rcps along the path, and the fixed-sequence test of all promises
calibration.py        `calibrate`: these stages, one after the other; and what a user keeps

calibration_file.py   a calibration read from its file
provenance.py         images that calibrated, recognised by their hashes
sample_size.py        how many images a promise takes, before any is collected
masks.py, trust.py    segmentations; masks of pixels that are right
text.py, words.py     a calibration in words: the one description of which sentence, tables, card and page are made
"""
