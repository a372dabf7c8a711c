"""Expressions, places in memory, and roles of warps as CUDA C++."""
