"""What a command hands back to be printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Result:
    """The outcome of a command: shown as ``text`` (a string is printed as is), or with ``--json`` as ``json``.

    ``code`` is the exit code: 0 done, 1 refused or failed. ``diagnostics`` (warnings, or what a refusal consists of) go
    to standard error, or under ``"diagnostics"`` of the JSON object. ``version`` is that of the JSON object's schema.
    """

    json: Mapping[str, Any]
    text: RenderableType
    code: int = 0
    diagnostics: tuple[Diagnostic, ...] = ()
    version: int = 1


def counted(count: int, what: str) -> str:
    """How many there are of something, as a sentence says it: `1 kernel`, `2 kernels`."""
    return f"{count} {what}{'' if count == 1 else 's'}"
