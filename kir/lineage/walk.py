"""The backward walk: propose deoptimizations, apply, gate, keep or record as rejected, until the program is naive.

The walk is bounded (every kept step strictly decreases a well-founded measure, and a budget caps attempts, steps and seconds)
and deterministic: with the same input it proposes in the same order, and judging in parallel changes nothing but the time
taken. While the gate judges a step, the walk goes on as if it had passed; when it has not, what was built on it is dropped.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import field
from typing import Any, Literal, Protocol

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError, error
from kir.base.working import ending, late
from kir.ir.nodes import Program
from kir.lineage.candidates import Candidate
from kir.lineage.records.record import Condition, Ended, Outcome, Realization, State, Step, Violation


@dataclass(frozen=True)
class Move:
    """What taking a pass back gave: the simpler program, and the forward step that restores the one before.

    ``witness`` is JSON that, with ``forward``, restores it exactly; ``residue_bytes`` counts names and statement order in it.
    """

    program: Program
    forward: str
    witness: Mapping[str, Any]
    residue_bytes: int
    claim: str = ""
    numerics: str = ""
    conditions: tuple[Condition, ...] = ()
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    effect: Mapping[str, float] = field(default_factory=dict)


class Engine(Protocol):
    """The rewriting framework, as the walk needs it."""

    def candidates(self, program: Program, delayed: Sequence[str] = ()) -> Iterable[Candidate]:
        """Every place where a registered pass can be undone, what to peel first in front, passes ``delayed`` last. May be lazy."""
        ...

    def backward(self, program: Program, candidate: Candidate) -> Move:
        """Take one pass back. Raises :class:`KirError` when the pass refuses."""
        ...

    def forward(self, program: Program, step: Step) -> Program:
        """Apply a stored step's forward direction, with its witness. Raises :class:`KirError` when it does not apply."""
        ...

    def exact(self, step: Step) -> str:
        """The stored step's forward direction as pipeline text that restores names and order too."""
        ...

    def content(self, program: Program) -> str:
        """The content hash."""
        ...

    def text(self, program: Program) -> str:
        """The printed program, which parses back."""
        ...

    def measure(self, program: Program) -> tuple[int, ...]:
        """The well-founded measure of law 9, compared as a tuple."""
        ...

    def size(self, program: Program) -> int:
        """IR nodes in the kernels."""
        ...

    def violations(self, program: Program) -> Sequence[Violation]:
        """What the predicate N finds; empty for a naive program."""
        ...


Stage = Literal["compile", "correctness", "gate"]


@dataclass(frozen=True)
class Judgement:
    """The gate's word on one program: ``record`` is its whole verdict as JSON, ``emitted`` the source that was compiled,
    ``modelled`` seconds by target, ``measured`` by device (median, low, high); ``artifact`` is what :meth:`Judge.realized` compares, compiled on
    ``surface`` from ``program``."""

    accepted: bool
    stage: Stage
    reason: str
    record: Mapping[str, Any]
    emitted: str = ""
    modelled: Mapping[str, float] = field(default_factory=dict)
    artifact: Any = field(compare=False, repr=False, default=None)
    measured: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    program: Program | None = field(default=None, compare=False, repr=False)
    surface: str = ""


class Judge(Protocol):
    """The gate, as the walk needs it. Both may be called from several threads."""

    def gate(self, program: Program) -> Judgement:
        """Compile, check and model one program. A refusal is a judgement, not an error."""
        ...

    def realized(self, before: Judgement, after: Judgement) -> Realization:
        """Whether what was compiled differs between the expert's side (``before``) and the simpler side (``after``)."""
        ...


@dataclass(frozen=True)
class Budget:
    """Where a walk ends at the latest: ``steps`` kept, ``attempts`` judged by the gate, ``seconds`` of wall time (0: no limit)."""

    steps: int = 400
    attempts: int = 1000
    seconds: float = 0.0

    def to_json(self) -> dict[str, float]:
        """The parts that decide the walk's course (seconds do not: a walk that runs out of them can be taken up again)."""
        return {"steps": self.steps, "attempts": self.attempts}


class Journal(Protocol):
    """Where finished attempts go as they are decided, so that a killed walk can be taken up again."""

    def keep(self, program: Program) -> str:
        """Store a program's text and return its key."""
        ...

    def add(self, step: Step) -> None:
        """Put a decided step on disk."""
        ...

    def done(self) -> Sequence[Step]:
        """The steps of an earlier run of the same walk."""
        ...

    def program(self, state: State) -> Program:
        """A stored program."""
        ...


Progress = Callable[[str, int, int], None]
"""Called with a line of text, the number of steps kept and the number of attempts, after each decision."""


@dataclass
class _Pending:
    """An attempt that the gate is still judging, with what was refused before it in the same state."""

    refused: list[Step]
    step: Step
    before: Program
    after: Program
    future: Future[Judgement]


@dataclass
class Walked:
    """The outcome of a walk: all steps in order (not yet linked), the judgement on K*, and the last program."""

    steps: list[Step]
    start: State
    judgement: Judgement
    outcome: Outcome
    final: Program


class Walk:
    """One walk. Build it, then call :meth:`run` once. ``until`` is the content of the program at which it ends; without, the first naive one."""

    def __init__(
        self,
        start: Program,
        engine: Engine,
        judge: Judge,
        journal: Journal,
        budget: Budget,
        *,
        delayed: Sequence[str] = (),
        until: str = "",
        workers: int = 2,
        progress: Progress | None = None,
    ) -> None:
        self.start, self.engine, self.judge, self.journal, self.budget = start, engine, judge, journal, budget
        self.delayed, self.until, self.workers = tuple(delayed), until, max(1, workers)
        self.progress = progress or (lambda text, kept, attempts: None)
        self.steps: list[Step] = []
        self.seen: set[str] = set()
        self.failed: dict[str, int] = {}
        self.judged: dict[str, Judgement] = {}
        self.current = start
        self.deadline = time.monotonic() + budget.seconds if budget.seconds else None

    def run(self, judgement: Judgement) -> Walked:
        """Walk back from the start, whose ``judgement`` is given and must be an acceptance."""
        self.judged[self.engine.content(self.start)] = judgement
        self.seen.add(self.engine.content(self.start))
        first = self.state(self.start, judgement)
        self._resume(first)
        with ending(self.deadline), ThreadPoolExecutor(self.workers, thread_name_prefix="gate") as pool:
            ended, reason = self._loop(pool)
        return self.walked(first, judgement, ended, reason)

    def walked(self, first: State, judgement: Judgement, ended: Ended, reason: str) -> Walked:
        """What was found as far as the walk has come: after `run`, or in a call of `progress`."""
        kept = [step for step in self.steps if step.status == "accepted"]
        violations = tuple(self.engine.violations(self.current))
        if not violations:
            ended, reason = "naive", "the predicate N holds"
        outcome = Outcome(
            ended=ended,
            reason=reason,
            violations=violations,
            pipeline="; ".join(self.engine.exact(step) for step in reversed(kept)),
            realized=sum(1 for step in kept if step.realization and step.realization.realized),
            residue_bytes=sum(step.residue_bytes for step in kept),
            expert_bytes=len(self.engine.text(self.start).encode()),
        )
        return Walked(list(self.steps), first, judgement, outcome, self.current)

    def state(self, program: Program, judgement: Judgement | None = None) -> State:
        """The record of a program, whose text is kept."""
        return State(
            content=self.engine.content(program),
            text=self.journal.keep(program),
            nodes=self.engine.size(program),
            measure=self.engine.measure(program),
            modelled=dict(judgement.modelled) if judgement else {},
            measured=dict(judgement.measured) if judgement else {},
        )

    def _resume(self, first: State) -> None:
        """Go to where an earlier run of the same walk stopped. Raises :class:`KirError` KIR-S013 when it began with another program."""
        earlier = list(self.journal.done())
        if earlier and earlier[0].before.text != first.text:
            raise error("KIR-S013", "the journal begins with another program: the expert, or how it is read, has changed since",
                        witness=(f"{earlier[0].before.text[:16]} there, {first.text[:16]} now",), attempt="another folder, or --restart")
        for step in earlier:
            self._commit(step)
            if step.status == "accepted" and step.after is not None:
                self.current = self.journal.program(step.after)
        if self.steps:
            self._judged(self.current)
            self.progress(f"taken up after {len(self.steps)} attempts", *self._counts())

    def _commit(self, step: Step) -> None:
        self.steps.append(step)
        if step.status == "accepted" and step.after is not None:
            self.seen.add(step.after.content)
        elif step.stage in ("compile", "correctness", "gate"):
            self.failed[step.backward] = self.failed.get(step.backward, 0) + 1

    def _counts(self) -> tuple[int, int]:
        return sum(1 for step in self.steps if step.status == "accepted"), sum(1 for step in self.steps if step.gate)

    def _loop(self, pool: ThreadPoolExecutor) -> tuple[Ended, str]:
        pending: deque[_Pending] = deque()
        tip = self.current
        barred = self._barred_here()
        exhausted: list[Step] | None = None
        while True:
            kept, attempts = self._counts()
            over = self._over(kept + len(pending), attempts + len(pending))
            if not over and exhausted is None and len(pending) < self.workers:
                proposal = self._propose(tip, pending, barred)
                if isinstance(proposal, _Pending):
                    proposal.future = pool.submit(copy_context().run, self._judged, proposal.after)
                    pending.append(proposal)
                    tip, barred = proposal.after, set()
                    continue
                exhausted = proposal
            if pending:
                first = pending.popleft()
                if not first.future.result().accepted and late():  # it may have been ended before it could tell
                    return "budget", f"the budget of {self.budget.seconds:.3g} s is used up"
                if self._settle(first):
                    continue
                # The step failed: what was built on it is void, and the walk goes on from before it.
                for rest in pending:
                    rest.future.cancel()
                pending.clear()
                tip, barred, exhausted = self.current, self._barred_here(), None
                continue
            if over:
                return "budget", over
            for refused in exhausted or []:
                self._record(refused)
            return "stuck", self._stuck()

    def _stuck(self) -> str:
        """Why no step was left to take."""
        here = self.engine.content(self.current)
        refused = next((step for step in reversed(self.steps) if step.status == "rejected" and step.before.content == here), None)
        if self.until and refused is not None:
            return f"{refused.backward} leads to what is refused ({refused.stage}): {refused.reason}"
        return "no registered pass that decreases the measure can be undone"

    def _barred_here(self) -> set[str]:
        """Candidates already decided against in the current state."""
        here = self.engine.content(self.current)
        return {step.backward for step in self.steps if step.status == "rejected" and step.before.content == here}

    def _over(self, kept: int, attempts: int) -> str:
        if kept >= self.budget.steps:
            return f"the budget of {self.budget.steps} steps is used up"
        if attempts >= self.budget.attempts:
            return f"the budget of {self.budget.attempts} gated attempts is used up"
        if self.deadline is not None and time.monotonic() > self.deadline:
            return f"the budget of {self.budget.seconds:.3g} s is used up"
        return ""

    def _propose(self, tip: Program, pending: Sequence[_Pending], barred: set[str]) -> _Pending | list[Step]:
        """The next candidate of ``tip`` that can be applied, or all refusals when there is none."""
        refused: list[Step] = []
        if self.engine.content(tip) == self.until if self.until else not self.engine.violations(tip):
            return refused
        before = self.state(tip)
        seen = self.seen | {self.engine.content(each.after) for each in pending}
        for candidate in self._defer_failed(self.engine.candidates(tip, self.delayed)):
            if candidate.text in barred:
                continue
            outcome = self._attempt(tip, before, candidate, seen)
            if isinstance(outcome, Step):
                refused.append(outcome)
                continue
            step, program = outcome
            return _Pending(refused, step, tip, program, Future())
        return refused

    def _defer_failed(self, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
        """The candidates in order, those that the gate refused in an earlier state last."""
        unlucky: list[Candidate] = []
        for candidate in candidates:
            if candidate.text in self.failed:
                unlucky.append(candidate)
            else:
                yield candidate
        yield from sorted(unlucky, key=lambda each: self.failed[each.text])

    def _attempt(self, tip: Program, before: State, candidate: Candidate, seen: set[str]) -> Step | tuple[Step, Program]:
        """Apply one candidate: a rejected step, or an open one with its program."""
        step = Step(
            index=0,
            status="rejected",
            stage="rewrite",
            intent=candidate.intent,
            forward="",
            backward=candidate.text,
            anchor=candidate.anchor,
            before=before,
        )
        try:
            move = self.engine.backward(tip, candidate)
        except KirError as fault:
            first: Diagnostic = fault.diagnostics[0]
            stage = "precondition" if first.id.startswith("KIR-P") else "rewrite"
            return step.model_copy(update={"stage": stage, "reason": f"{first.id}: {first.message}"})
        after = self.state(move.program)
        step = step.model_copy(
            update={
                "forward": move.forward,
                "witness": dict(move.witness),
                "residue_bytes": move.residue_bytes,
                "claim": move.claim,
                "numerics": move.numerics,
                "conditions": move.conditions,
                "requires": move.requires,
                "provides": move.provides,
                "effect": dict(move.effect),
                "after": after,
            }
        )
        if not after.measure < before.measure:
            said = f"the measure does not decrease: {list(before.measure)} to {list(after.measure)}"
            return step.model_copy(update={"stage": "measure", "reason": said})
        if after.content in seen:
            return step.model_copy(update={"stage": "repeat", "reason": "it gives a program that was already visited"})
        return step, move.program

    def _judged(self, program: Program) -> Judgement:
        key = self.engine.content(program)
        if key not in self.judged:
            self.judged[key] = self.judge.gate(program)
        return self.judged[key]

    def _settle(self, pending: _Pending) -> bool:
        """Wait for the gate's word on the oldest open step, and record it."""
        for refused in pending.refused:
            self._record(refused)
        judgement = pending.future.result()
        step = pending.step
        assert step.after is not None
        after = step.after.model_copy(update={"modelled": dict(judgement.modelled), "measured": dict(judgement.measured)})
        step = step.model_copy(update={"after": after, "gate": dict(judgement.record), "emitted": judgement.emitted})
        if not judgement.accepted:
            self._record(step.model_copy(update={"stage": judgement.stage, "reason": judgement.reason}))
            return False
        realization = self.judge.realized(self._judged(pending.before), judgement)
        self.current = pending.after
        self._record(step.model_copy(update={"status": "accepted", "stage": "applied", "realization": realization}))
        return True

    def _record(self, step: Step) -> None:
        """Put a decided step on record. By now the gate has spoken on the program it starts from."""
        known = self.judged[step.before.content]
        before = step.before.model_copy(update={"modelled": dict(known.modelled), "measured": dict(known.measured)})
        placed = step.model_copy(update={"index": len(self.steps), "before": before})
        self.journal.add(placed)
        self._commit(placed)
        mark = "kept" if placed.status == "accepted" else "rejected"
        self.progress(f"{mark} {placed.backward}", *self._counts())


def rebuilt(engine: Engine, naive: Program, accepted: Sequence[Step]) -> Iterator[tuple[Step, Program | KirError]]:
    """Go forward from the naive program through the accepted steps (given from the expert back); ends at the first failure."""
    program = naive
    for step in reversed(accepted):
        try:
            program = engine.forward(program, step)
        except KirError as fault:
            yield step, fault
            return
        yield step, program
