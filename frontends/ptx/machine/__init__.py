"""A kernel's instructions run once over registers that hold expressions, as `kir.surface.ptx` runs inline assembly; what differs stands here.

Order: known, places, machine, numbers, tensor_maps, accesses, together, products, run.
"""
