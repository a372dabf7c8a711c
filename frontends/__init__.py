"""Source -> IR, one sub-package per surface.

Order: _python, cuda, ptx, tilelang, triton.
"""
