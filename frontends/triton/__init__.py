"""The Triton frontend: kernels read from Python source, never imported."""

from __future__ import annotations

from .frontend import FRONTEND

__all__ = ["FRONTEND"]
