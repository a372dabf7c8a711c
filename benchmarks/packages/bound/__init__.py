"""Kernels beside what KIR writes of them, launched as their own host code says."""
