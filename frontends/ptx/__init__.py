"""The PTX frontend: kernels as compilers wrote them (nvcc, Triton, TileLang), structured again and read at the level of threads.

Order: suffixes, source, uses, flow, registers, machine, output, kernel, frontend.
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
