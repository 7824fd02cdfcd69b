"""What arrives after deployment: is the promise still kept, and can a new one be certified?

horizons.py      bettors who do not know how many images will come
evidence.py      what a growing calibration is about, and what its images have shown so far
grown.py         `GrowingCalibration`: certified at any time that one cares to look
grown_file.py    its file
shift.py         `recalibrate`: images of one source weighed as draws of another
"""
