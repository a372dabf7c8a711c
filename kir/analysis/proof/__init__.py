"""Hazards of a program decided for every size: two arbitrary threads, two arbitrary CTAs, and z3 for what remains.

Order: asking, values, sites, places, indices, warps, walk, intervals, covered, stored, flight, counting, order, rings, named, overlap, decide.
"""
