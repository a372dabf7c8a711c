"""The CUDA frontend: kernels read from C++ source, never compiled or run."""

from __future__ import annotations

from .frontend import FRONTEND

__all__ = ["FRONTEND"]
