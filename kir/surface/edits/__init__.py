"""Surgical edits: what passes changed in a kernel, written into its source, and nothing else (law 8)."""
from __future__ import annotations

from kir.surface.edits.engine import SourceEdit, edit_source
from kir.surface.edits.history import History
from kir.surface.edits.splice import Splice, spliced

__all__ = ["History", "SourceEdit", "Splice", "edit_source", "spliced"]
