"""Figures of the library of skills (`python -m benchmarks.skills`)."""
