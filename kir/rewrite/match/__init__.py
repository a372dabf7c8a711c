"""Matching and rewriting for passes: places with edits, loops, accesses, capacity, names, and what several families of passes share.

Plugins may use it as well. Every module stands alone: import what is needed from it.
"""
