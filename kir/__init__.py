"""KIR: a compiler-style rewrite framework for GPU kernels.

Order: base, hardware, ir, analysis, interp, problem, rewrite, surface, gate, lineage, learning, faces.
"""

__version__ = "0.1.0"
