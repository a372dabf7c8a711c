"""The TileLang frontend: kernels and their factories read from Python source, never imported.

Order: suffixes, syntax, values, state, expressions, sources, intrinsics, statements, teams, launch, output, frontend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .suffixes import SUFFIXES

if TYPE_CHECKING:
    from .frontend import FRONTEND

__all__ = ["FRONTEND", "SUFFIXES"]


def __getattr__(name: str) -> Any:
    """The frontend, imported when it is first asked for."""
    if name != "FRONTEND":
        raise AttributeError(name)
    from .frontend import FRONTEND as made

    return made
