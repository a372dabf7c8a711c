"""Hazards of a program decided for every size: two arbitrary threads, two arbitrary CTAs, and z3 for what remains.

Order: terms, question, values, sites, places, walk, intervals, covered, flight, counting, order, rings, named, overlap, decide.
"""
