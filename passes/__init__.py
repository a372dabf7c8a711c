"""The shipped passes, one file per intent; the registry lists the modules of this package.

Order: algorithms, fusion, grid, bounds, layout, loops, lowering, numerics, pipelining, redundancy, scans, reductions, scheduling, staging,
surfaces, synchronization, tensor_core, threads, folds, storage, transfers, vector.
"""
