"""The part of docs/mutants.md about mutants that compute the wrong thing."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One mutant as it came out. `truth` has `trial` ("" where nothing tells it apart), `why`, `factor`; `gate` has `ok`, `reason`, `worst`; either may be
    `broken` instead. `cause` says why a mutant that is told apart was not refused."""

    program: str
    kind: str
    rule: str
    anchor: str
    how: str
    truth: dict[str, Any]
    gate: dict[str, Any]
    cause: str

    @property
    def is_told(self) -> bool:
        """Whether the run over large shapes tells it apart."""
        return bool(self.truth.get("trial"))

    @property
    def is_refused(self) -> bool:
        """Whether the gate refuses it."""
        return self.gate.get("ok") is False

    @property
    def said(self) -> str:
        """The outcome in a few words."""
        truth = self.truth.get("broken") or (f"told apart at {self.truth['trial']}, {self.truth['factor']:.3g}" if self.is_told else "equivalent")
        gate = self.gate.get("broken") or ("refused" if self.is_refused else f"ACCEPTED, {self.gate['worst']:.2g} of its bound")
        return f"{truth}; {gate} ({self.truth['seconds']} + {self.gate['seconds']} s)"
