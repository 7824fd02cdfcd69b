"""Benchmarks: `make bench`, or `python -m benchmarks NAME`. Ratios are measured within one run."""
