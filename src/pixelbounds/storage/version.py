"""The version, which calibration files record; the build reads it from here."""

VERSION = "0.2.0"
