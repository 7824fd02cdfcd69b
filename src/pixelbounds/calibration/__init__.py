"""From pairs of truth and band to a promise: the pipeline of the paper, in its order; imports follow it.

block.py              a few images at hand: what is known of them, which ends widen together, and how they widen
families.py           how a band widens: set and score as a dual pair
bounds.py             upper confidence bounds on a risk
promises.py           share, tail, loss: risks, where they are counted, and their levels
target.py             promises, failure probability and bound; units; the test of one promise
data.py               truth and band, validated once, read as statistics of blocks
split.py              S_opt and S_rcps
groups/               which ends of which pixels widen together
paths/                groups to a monotone path of widenings
methods.py            RCPS, KRCPS, Frontier: groups and path from S_opt
losses.py             what a miss costs, and what S_rcps misses at every point of the path
certify.py            fixed-sequence test of all promises
calibration.py        what a user keeps
calibrate.py          `calibrate`: these stages, one after the other
sample_size.py        how many images a promise takes, before any is collected
provenance.py         hashes by which images are recognised, and what bands are like, for monitoring
text.py, words.py     a calibration in words: the one description of which sentence, tables, card and page are made
"""
