"""Filling one hole: ask, extract, check, and hand what is refused back for repair, up to a number of turns and within a budget."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.ir import nodes as n
from kir.ir.anchors import anchor_of
from kir.lineage.carrier.answer import Answer
from kir.lineage.carrier.checking import Checked, check
from kir.lineage.carrier.contract import Contract
from kir.lineage.carrier.filling import bind, fill
from kir.lineage.carrier.providers.budget import NO_COST, Meter, Spent
from kir.lineage.carrier.providers.provider import CarrierProvider, Message, Reply, Request
from kir.lineage.carrier.sessions import prompt
from kir.lineage.carrier.sessions.reply import extracted
from kir.rewrite.edit import Path, node_at

ORDER = ("read", "contract", "budget", "oracle", "accepted")


@dataclass(frozen=True)
class Attempt:
    """One turn: what came back, from whom, the verdict on it, and what it cost."""

    turn: int
    reply: str
    who: str
    verdict: Checked
    spent: Spent = NO_COST
    cached: bool = False
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"turn": self.turn, "who": self.who, "reply": self.reply, "verdict": self.verdict.to_json(), "spent": self.spent.to_json(),
                "cached": self.cached, "notes": list(self.notes)}


@dataclass(frozen=True)
class Outcome:
    """How it ended: `program` is filled when an answer was accepted; else `stopped` says why it ended, and `best` got furthest."""

    contract: Contract
    anchor: str
    provider: str
    templates: str
    attempts: tuple[Attempt, ...]
    program: n.Program | None = None
    stopped: tuple[Diagnostic, ...] = ()

    @property
    def accepted(self) -> Attempt | None:
        """The attempt whose answer is in the program."""
        return self.attempts[-1] if self.program is not None else None

    @property
    def best(self) -> Attempt | None:
        """The attempt that got furthest, the later of equals."""
        return max(self.attempts, key=lambda a: (ORDER.index(a.verdict.stage), a.verdict.runs, a.turn), default=None)

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        best = self.best
        return {"contract": self.contract.id, "contract_hash": self.contract.hash, "anchor": self.anchor, "provider": self.provider,
                "templates": self.templates, "filled": self.program is not None, "attempts": [a.to_json() for a in self.attempts],
                "best": best.turn if best is not None else None, "stopped": [d.to_json() for d in self.stopped]}

    def program_or_raise(self) -> n.Program:
        """The filled program. Raises KirError with why there is none."""
        if self.program is None:
            raise KirError(*self.stopped)
        return self.program


def run(contract: Contract, program: n.Program, path: Path, provider: CarrierProvider, meter: Meter, *, turns: int = 3,
        card: Mapping[str, str] | None = None, judge: Callable[[Contract, Answer], Checked] = check) -> Outcome:
    """Fill the hole at `path`: one question, and up to `turns` repairs. What a provider or a budget ends is an outcome too.

    Raises KirError only as `bind`, for a hole that no answer could fill."""
    bound = bind(contract, program, path)
    hole = node_at(program, path)
    assert isinstance(hole, n.Hole)
    anchor = anchor_of(program, path)
    before = prompt.system(contract, bound.dtype)
    messages = [Message("user", prompt.task(contract, program, hole, anchor, bound.dtype, card))]
    attempts: list[Attempt] = []

    def ended(filled: n.Program | None, *stopped: Diagnostic) -> Outcome:
        return Outcome(contract, anchor, provider.name, prompt.templates_hash(), tuple(attempts), filled, stopped)
    for turn in range(turns + 1):
        try:
            reply = provider.propose(Request(contract, before, tuple(messages), prompt.templates_hash(), turn), meter)
        except KirError as stop:
            return ended(None, *stop.diagnostics, *_last(attempts))
        verdict, filled = _judged(contract, program, path, reply, turn, judge)
        attempts.append(Attempt(turn, reply.text, reply.who, verdict, reply.spent, reply.cached, reply.notes))
        if filled is not None:
            return ended(filled)
        messages += [Message("assistant", reply.text or "(nothing)"), Message("user", prompt.repair(verdict, turns - turn))]
    said = f"none of {len(attempts)} answers to {contract.id} was accepted" if len(attempts) > 1 else f"the answer to {contract.id} was refused"
    return ended(None, Diagnostic("KIR-H403", said, anchor=anchor, subject=f"fill {contract.id}", needs=contract.spec.title), *_last(attempts))


def _judged(contract: Contract, program: n.Program, path: Path, reply: Reply, turn: int,
            judge: Callable[[Contract, Answer], Checked]) -> tuple[Checked, n.Program | None]:
    """The verdict on a reply, and the filled program. An answer that is right by itself and does not carry over to the hole is refused too."""
    try:
        answer = reply.answer or extracted(contract, reply.text, f"<reply {turn + 1}>")
    except KirError as unclear:
        return Checked(contract.id, Answer(reply.text, file=f"<reply {turn + 1}>"), "read", unclear.diagnostics), None
    verdict = judge(contract, answer)
    if not verdict.accepted:
        return verdict, None
    try:
        return verdict, fill(contract, program, path, verdict.program_or_raise())
    except KirError as misfit:
        return Checked(contract.id, answer, "contract", misfit.diagnostics, verdict.program, verdict.dtype, verdict.runs, verdict.hazard_runs), None


def _last(attempts: list[Attempt]) -> tuple[Diagnostic, ...]:
    """What the best attempt was refused for."""
    best = max(attempts, key=lambda a: (ORDER.index(a.verdict.stage), a.turn), default=None)
    return best.verdict.diagnostics if best is not None else ()
