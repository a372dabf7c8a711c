"""Random programs through all that reads, rewrites, runs and writes programs, checked against each other.

Order: making, checking, shrinking, state, device.
"""
