"""What inputs a program is tested on may be, and when two programs gave the same.

Order: kinds, sets, ways, places, magnitudes, extremes, turns, scalars, scaled, offsets, close, nonfinite.
"""
