"""Measured effects: pairs of programs and the step between them, compiled on any machine, timed on a device.

``python -m benchmarks.effects jobs`` lists the groups; ``make --out DIR`` compiles and measures them, ``--only prepare`` compiles alone and
``measure DIR --out FILE`` times what was prepared; ``write FILE.. `` turns rows into the tables of benchmarks/data/effects.
"""
