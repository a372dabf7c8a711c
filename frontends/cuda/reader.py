"""The reader: its parts joined."""

from __future__ import annotations

from .expressions import calls, expressions, operators
from .intrinsics.library_names import Library
from .launch.geometry import Geometry
from .names.type_names import Types
from .source.source import Sources
from .statements import statements
from .symbols.index import Index
from .values.reading import Handlers, Reading

HANDLERS = Handlers(expressions, operators, calls, statements)


def reading(sources: Sources, index: Index, geometry: Geometry, absent: frozenset[str] | None = None) -> Reading:
    """A reading that begins, with the parts of the reader that it asks."""
    made = Reading(sources, index, geometry, HANDLERS, absent)
    made.types, made.library = Types(made), Library(made)
    return made
