"""A text of PTX: its version and target, what it declares, and its kernels."""
