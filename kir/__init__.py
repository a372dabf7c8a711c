"""KIR: a compiler-style rewrite framework for GPU kernels."""
