"""Sums and maxima over rows, threads and warps."""
