"""The TileLang frontend: kernels and their factories read from Python source, never imported."""

from __future__ import annotations

from .frontend import FRONTEND

__all__ = ["FRONTEND"]
