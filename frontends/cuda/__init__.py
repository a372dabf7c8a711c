"""The CUDA frontend: kernels read from C++ source, never compiled or run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .frontend import FRONTEND

SUFFIXES = (".cu", ".cuh", ".cuda", ".h", ".hpp", ".cpp", ".cc", ".inl")
"""Of the files that it reads. Asked before the frontend is imported, which takes a while."""

__all__ = ["FRONTEND", "SUFFIXES"]


def __getattr__(name: str) -> Any:
    """The frontend, imported when it is first asked for."""
    if name != "FRONTEND":
        raise AttributeError(name)
    from .frontend import FRONTEND as made

    return made
