"""Whole packages made faster: recorded calls ranked, searched under one budget, each result a patch; and an overlay.

Order: calls, owners, sample, twin, trial, overlay, run.
"""
