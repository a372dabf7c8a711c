"""A walk whose way is known: a pipeline was run from the naive program to the expert, and each of its steps is undone in turn.

Nothing is searched. The states are those that the pipeline went through, to the letter; all else is as in any walk: each step back is tried with every
check of the framework, each state is gated, and a state that is refused ends the walk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.ir.nodes import Program
from kir.ir.printer import program_text
from kir.lineage.candidates import Candidate
from kir.lineage.engine import PassEngine, conditions_of
from kir.lineage.records.record import Header
from kir.lineage.walk import Move
from kir.rewrite import Trace, apply
from kir.rewrite.pipelines.pipeline import TraceStep
from kir.rewrite.residue import NOTHING


@dataclass(frozen=True)
class AlongEngine(PassEngine):
    """Passes undone in the order in which ``trace`` applied them, the last first: a program of the trace has one candidate."""

    trace: Trace | None = field(default=None, repr=False, compare=False)

    @classmethod
    def along(cls, header: Header, trace: Trace) -> AlongEngine:
        """The engine of a walk from a trace's program to its base. Raises KirError KIR-S032 for a trace with a step that no lineage has: one that was
        forced, or undoes a pass."""
        for number, each in enumerate(trace.steps, start=1):
            step = each.record.step
            if step.force or step.direction == "backward":
                raise error("KIR-S032", f"step {number} of the pipeline {'was forced' if step.force else 'undoes a pass'}", subject=_plain(each),
                            needs="steps forward whose conditions hold: a lineage's transitions are those")
        asked = PassEngine.of(header)
        return cls(asked.naive_arguments, asked.assume, asked.context, trace=trace)

    @property
    def end(self) -> str:
        """The content of the program that the pipeline began with."""
        assert self.trace is not None
        return self.content(self.trace.base)

    @cached_property
    def _steps(self) -> dict[str, TraceStep]:
        """The step that gave each program, by the program's text."""
        assert self.trace is not None
        return {program_text(each.after): each for each in self.trace.steps}

    def candidates(self, program: Program, delayed: Sequence[str] = ()) -> Iterator[Candidate]:
        """The step that gave the program, to be undone."""
        step = self._steps.get(program_text(program))
        if step is not None:
            item = step.witness.params
            yield Candidate(item.name, item.intent or item.name, step.back.at, f"~{item}@{step.back.at}", step)

    def backward(self, program: Program, candidate: Candidate) -> Move:
        """Undo the step. Raises :class:`KirError` KIR-R004 where the pass keeps what that leads to out of walks, and as :func:`kir.rewrite.apply`
        does."""
        step: TraceStep = candidate.handle
        forward, params = step.record.step, step.witness.params
        site = next((each for each in params.inverse_sites(step.after) if (each.path, each.params) == (step.witness.path, params)), None)
        if site is None:
            raise error("KIR-R004", f"{params.name} is not undone here, though it could be: no compiler is given the state that it leads to",
                        anchor=step.back.at, needs="another step before it, or other parameters")
        apply(step.after, params, site, "backward", assume=step.back.assume, context=self.context)
        return Move(
            program=step.before,
            forward=_plain(step),
            witness=forward.to_json(),
            residue_bytes=forward.residue.size,
            claim=params.claim,
            numerics=params.numerics,
            conditions=conditions_of(params, step.record.verdicts),
            requires=tuple(params.requires),
            provides=tuple(params.provides),
            effect={name: float(value) for name, value in step.record.effect.to_json().items()},
        )


def _plain(step: TraceStep) -> str:
    """A step as people write it: without the exact place."""
    return str(replace(step.record.step, residue=NOTHING, path=None, hash=""))
