"""Control flow: basic blocks, what dominates what, and the loops and branches that they are structured into again.

Order: blocks, dominators, structure.
"""
