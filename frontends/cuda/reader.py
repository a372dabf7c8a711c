"""The reader: its parts joined."""

from __future__ import annotations

from . import calls, expressions, operators, statements
from .geometry import Geometry
from .library import Library
from .reading import Handlers, Reading
from .scopes import Index
from .source import Sources
from .types import Types

HANDLERS = Handlers(expressions, operators, calls, statements)


def reading(sources: Sources, index: Index, geometry: Geometry, absent: frozenset[str] | None = None) -> Reading:
    """A reading that begins, with the parts of the reader that it asks."""
    made = Reading(sources, index, geometry, HANDLERS, absent)
    made.types, made.library = Types(made), Library(made)
    return made
