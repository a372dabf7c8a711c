"""IR -> source, build and launch, one sub-package per surface.

Order: _cpp_names, _process, _cubin, _ptxas, _serving, _wrap, cuda, tilelang, triton.
"""
