"""Verdicts: the five ways in which a precondition comes out, and how a condition on integers is decided."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from kir.analysis.facts import Facts
from kir.analysis.solver import decide
from kir.base.dataclass import dataclass
from kir.hardware.target import Target
from kir.ir.build import logical_and
from kir.ir.nodes import Expr
from kir.ir.printer import expr_text

VerdictKind = Literal["proved", "guarded", "assumed", "refuted", "unknown"]
Category = Literal["dtype", "layout", "storage", "pipeline", "hardware", "shape", "aliasing", "numerics"]


@dataclass(frozen=True)
class Verdict:
    """How a precondition came out. `reason` says how it was decided; a refutation carries its `witness` in the user's terms; `guard`
    is the run-time condition of a guarded one (or of one that could be); `needs` and `attempt` say what
    would make it hold; `scope` for which sizes. `at` are the values of the witness by name, where it is made of such: at those it fails,
    whatever it does at others. `rule` names the hardware's or a compiler's rule that a refusal rests on where no run can show it."""

    kind: VerdictKind
    reason: str = ""
    witness: tuple[str, ...] = ()
    guard: Expr | None = None
    needs: str = ""
    attempt: str = ""
    scope: str = "all sizes under the facts"
    at: tuple[tuple[str, int], ...] = ()
    rule: str = ""

    def __bool__(self) -> bool:
        """Whether a pass may run on it."""
        return self.kind in ("proved", "guarded", "assumed")

    @property
    def by_size(self) -> bool:
        """Whether it is undecided for all sizes together, and decided for each: it holds where `guard` does, and fails at `at`."""
        return self.kind == "unknown" and self.guard is not None and bool(self.at)

    def to_json(self) -> dict[str, Any]:
        """The fields that are not at their default."""
        out: dict[str, Any] = {"kind": self.kind}
        for name in ("reason", "needs", "attempt"):
            if text := getattr(self, name):
                out[name] = text
        if self.witness:
            out["witness"] = list(self.witness)
        if self.guard is not None:
            out["guard"] = expr_text(self.guard)
        if self.scope != Verdict.scope:
            out["scope"] = self.scope
        if self.rule:
            out["rule"] = self.rule
        return out


Verdicts = tuple[tuple[str, Verdict], ...]
"""Verdicts of preconditions, each with its id."""


def guard_of(verdicts: Verdicts) -> Expr | None:
    """The condition that a launch must check: that of every guarded precondition."""
    out: Expr | None = None
    for _, v in verdicts:
        if v.kind == "guarded" and v.guard is not None:
            out = v.guard if out is None else logical_and(out, v.guard)
    return out


def proved(reason: str, scope: str = Verdict.scope) -> Verdict:
    """It holds."""
    return Verdict("proved", reason, scope=scope)


def refuted(reason: str, *witness: str, needs: str = "", attempt: str = "", rule: str = "") -> Verdict:
    """It does not hold; `witness` shows it on concrete values, or it breaks a `rule` of the hardware or of a compiler that no run shows."""
    return Verdict("refuted", reason, witness, needs=needs, attempt=attempt, rule=rule)


def unknown(reason: str, needs: str = "", attempt: str = "", guard: Expr | None = None) -> Verdict:
    """It could not be decided; it holds where `guard` does, which a launch could check if asked to."""
    return Verdict("unknown", reason, guard=guard, needs=needs, attempt=attempt)


def guarded(reason: str, guard: Expr) -> Verdict:
    """It holds where `guard` does, which the launch plan always checks."""
    return Verdict("guarded", reason, guard=guard)


@dataclass(frozen=True)
class Context:
    """What an evaluation may look at beside the program: the hardware aimed at (None: not known)."""

    target: Target | None = None


ANYWHERE = Context()
"""No hardware named."""

def decided(claim: Expr, known: Facts, yes: str, no: str, needs: str = "", attempt: str = "") -> Verdict:
    """The verdict of a condition on integers: proved with the method, refuted where it holds for no values, else unknown; what shows
    that it does not always hold is the witness. `yes` and `no` are the sentences for either outcome."""
    answer = decide(claim, known)
    needs = needs or expr_text(claim)
    witness = (f"at {answer.shown()}",) if answer.witness else ()
    match answer.kind:
        case "always":
            return Verdict("proved", f"{yes} ({answer.how})")
        case "never":
            return Verdict("refuted", no, witness, needs=needs, attempt=attempt, at=answer.witness)
        case "sometimes":
            return Verdict("unknown", f"{no} for some sizes", witness, known.expanded(claim), needs, attempt, at=answer.witness)
        case _:
            return Verdict("unknown", f"it is not known whether {yes} ({answer.how})", (), known.expanded(claim), needs, attempt)


def unless(claim: Expr, known: Facts, otherwise: Verdict, clearly: Expr | None = None) -> Verdict:
    """A verdict that is not known, of a condition that surely holds where a claim on integers does: the claim is what a launch could check, and values
    for which it fails are the witness; `clearly`, a weaker claim, those for which it fails by far, if there are such. Proved where the claim always
    holds."""
    answer = decide(claim, known)
    if answer.kind == "always":
        return Verdict("proved", f"{expr_text(claim)} ({answer.how})")
    if clearly is not None and answer.kind == "sometimes" and (far := decide(clearly, known)).witness:
        answer = replace(answer, witness=far.witness)
    shown = (*otherwise.witness, f"at {answer.shown()}") if answer.witness else otherwise.witness
    return replace(otherwise, witness=shown, at=answer.witness, guard=None if answer.kind == "never" else known.expanded(claim))
