"""A kernel's launch, found where its caller makes it: what host code says of a kernel's arguments, as a binding.

Order: values, record, assembled, whole, reach, extents, axes, questions, recorded, remembered.
"""
