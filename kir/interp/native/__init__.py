"""Loops compiled with LLVM, statement by statement over all lanes as the NumPy interpreter runs them; in checking mode those in which there is nothing to find.

Order: scalars, signature, emitted, marks, undefined, emitter, compiled, loops.
"""
