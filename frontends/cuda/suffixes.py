"""Which files the frontend reads; a module of its own, because it is asked before the frontend is imported, which takes a while."""
from __future__ import annotations

SUFFIXES = (".cu", ".cuh", ".cuda", ".h", ".hpp", ".cpp", ".cc", ".inl")
WITHIN = {".py": "__global__"}
"""Other files that have text of the surface in their strings, each with a word of a kernel in it."""
