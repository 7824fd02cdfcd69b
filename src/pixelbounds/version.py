"""The version that calibration files record."""

from importlib.metadata import version

VERSION = version("pixelbounds")
