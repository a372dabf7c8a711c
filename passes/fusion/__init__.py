"""Loops, kernels and epilogues made one."""
