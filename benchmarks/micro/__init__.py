"""Micro-benchmarks of a GPU: what the constants of the cost model (`kir.gate.cost`, `kir.hardware.target.Device`) are measured with.

Order: source, suite, run.
"""
