"""KIR: a compiler-style rewrite framework for GPU kernels."""

__version__ = "0.1.0"
