"""What inputs a program is tested on may be, and when two programs gave the same.

Order: sets, ways, places, extremes, turns, scaled, close.
"""
