"""The CUDA frontend: kernels read from C++ source, never compiled or run.

Order: suffixes, types, source, symbols, launch, values, intrinsics, names, expressions, statements, output, reader, kernel, frontend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .suffixes import SUFFIXES, WITHIN

if TYPE_CHECKING:
    from .frontend import FRONTEND

__all__ = ["FRONTEND", "SUFFIXES", "WITHIN"]


def __getattr__(name: str) -> Any:
    """The frontend, imported when it is first asked for."""
    if name != "FRONTEND":
        raise AttributeError(name)
    from .frontend import FRONTEND as made

    return made
