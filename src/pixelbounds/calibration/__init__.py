"""From pairs of truth and band to a promise: the pipeline of the paper, in its order.

families      how a band widens: set and score                     losses        what a miss costs
confidence    upper bounds on a risk                               pairs         truth and band, and what is counted
split         units: which fit, which certify                      groups/       which ends widen together
paths/        groups to a monotone path of widenings               choice        which groups, on the fitting images
certify       tables of losses, and how far the risk is certified  result        what a user keeps
front_door    `calibrate`: all of it                               needs         how many images a promise takes
"""
