"""CUDA source that a kernel's functions are written in: where it stands, and what a call of one of them does.

Order: texts, moves, splice, calls.
"""
