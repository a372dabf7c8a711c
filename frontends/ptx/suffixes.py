"""Which files the frontend reads; a module of its own, because it is asked before the frontend is imported, which takes a while."""
from __future__ import annotations

SUFFIXES = (".ptx",)
