"""Whole packages: every kernel found, read, written again and compared; counted, with the reasons of what is left."""
from __future__ import annotations

from .count import Count, counted
from .equal import same_program
from .find import Place, files_of, place
from .one import mentions
from .run import of_surface, run

__all__ = ["Count", "Place", "counted", "files_of", "mentions", "of_surface", "place", "run", "same_program"]
