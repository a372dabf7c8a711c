"""The calls of each package's kernels, with their oracles."""
