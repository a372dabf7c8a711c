"""Trying what passes say of themselves: what they offer is applied, what they refuse is forced and run, and a step is tried on variations of a program.

A forced program never leaves this package: it is run in the interpreter, and what was seen of it is what comes out.

Order: draws, subjects, trials, record, attempts, sampling, vary, around.
"""
