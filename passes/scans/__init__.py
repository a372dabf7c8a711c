"""Running sums over rows, threads and warps."""
