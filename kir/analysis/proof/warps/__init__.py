"""Lanes of a warp: where some of them may be missing, and that all come to what they do together.

Order: lanes.
"""
