"""Surgical edits: what passes changed in a kernel, written into its source, and nothing else (law 8)."""
from __future__ import annotations

from .engine import SourceEdit, edit_source
from .history import History
from .splice import Splice, spliced

__all__ = ["History", "SourceEdit", "Splice", "edit_source", "spliced"]
