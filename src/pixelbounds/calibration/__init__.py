"""From pairs of truth and band to a promise: the pipeline of the paper, in its order.

families.py      how a band widens: set and score as a dual pair
losses.py        what a miss costs
confidence.py    upper bounds on a risk
promises.py      what is promised: share and tail, where they are counted, and their levels
block.py         a few images at hand: what is known of them, and how they widen
data.py         truth and band, checked at the door, read block by block, and what is counted of them
image_hashes.py        digests of images, by which they are known again
loss_table.py      arrival times along a path, and the tables of losses that they make
groups/          which ends of which pixels widen together
paths/           groups to a monotone path of widenings
procedures.py    rcps, krcps, frontier: groups and path from the fitting images
split.py         units, which of them fit and which certify
certify.py       how far along the path the risk is certified
joint_test.py    the same for several promises at once
sentence.py      what is promised, in words that say no more than was certified
result.py        what a user keeps
calibrate.py    `calibrate`: checks, then all of the above
sample_size.py         how many images a promise takes, before any is collected
"""
