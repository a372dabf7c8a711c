"""A rewriting framework and a gate in miniature: an optimization is an attribute of the kernel, taking it back removes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kir.base.diagnostic import error
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program, attrs
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.lineage.candidates import Candidate
from kir.lineage.records.folder import Folder
from kir.lineage.records.record import Condition, Header, Lineage, Realization, Step, Violation, chained
from kir.lineage.walk import Budget, Engine, Judge, Judgement, Move, Walk, Walked

TEXT = """kir 1
program toy
  out C: f32[4]
kernel main grid (i: 4) threads 1 {a=1, b=2, c=3}
  @put C[i] = 1.0
"""

HEADER = Header(expert="toy", source="toy.kir", surface="kir", problem="toy", targets=("sm_80",))


def expert(text: str = TEXT) -> Program:
    return parse_program(text, "toy.kir")


def names(program: Program) -> list[str]:
    return [name for name, _ in program.kernels[0].attrs]


class ToyEngine:
    """Passes are called as the attribute they set. ``refused`` are names whose backward direction always refuses."""

    def __init__(self, order: Sequence[str] = "abc", refused: Sequence[str] = (), broken_forward: str = "") -> None:
        self.order, self.refused, self.broken_forward = order, refused, broken_forward
        self.asked: list[str] = []

    def candidates(self, program: Program, delayed: Sequence[str] = ()) -> Sequence[Candidate]:
        there = names(program)
        order = [name for name in self.order if name not in delayed] + list(delayed)
        return [Candidate(name, f"set {name}", "main", f"unset-{name}@main") for name in order if name in there]

    def backward(self, program: Program, candidate: Candidate) -> Move:
        self.asked.append(candidate.text)
        if candidate.name in self.refused:
            raise error("KIR-P999", f"{candidate.name} may not go")
        kernel = program.kernels[0]
        kept = dict(kernel.attrs)
        value = kept.pop(candidate.name)
        made = replace(program, kernels=(replace(kernel, attrs=attrs(**kept)),))
        condition = Condition(id="KIR-P990", kind="validity", category="shape", sentence="The kernel is there.", verdict="proved")
        return Move(
            made,
            f"set-{candidate.name}{{value={value}}}@main",
            {"value": value},
            3,
            "It is there.",
            "bitwise",
            (condition,),
            (),
            (candidate.name,),
            {"bytes": -4.0},
        )

    def forward(self, program: Program, step: Step) -> Program:
        name = step.forward.removeprefix("set-").partition("{")[0]
        if name == self.broken_forward:
            raise error("KIR-R999", f"set-{name} does not apply")
        kernel = program.kernels[0]
        return replace(program, kernels=(replace(kernel, attrs=attrs(**{**dict(kernel.attrs), name: step.witness["value"]})),))

    def exact(self, step: Step) -> str:
        return step.forward

    def content(self, program: Program) -> str:
        return content_hash(program)

    def text(self, program: Program) -> str:
        return program_text(program)

    def measure(self, program: Program) -> tuple[int, ...]:
        return (len(names(program)), 7)

    def size(self, program: Program) -> int:
        return 5 + len(names(program))

    def violations(self, program: Program) -> Sequence[Violation]:
        return [Violation(anchor="main", clause="attributes", message=f"{name} is set") for name in names(program)]


class ToyJudge:
    """Accepts what ``rule`` accepts; a step is realized unless the compiler "ignores" its attribute."""

    def __init__(self, rule: Callable[[list[str]], bool] = lambda names: True, ignored: str = "") -> None:
        self.rule, self.ignored = rule, ignored
        self.calls: list[str] = []

    def gate(self, program: Program) -> Judgement:
        there = names(program)
        self.calls.append("".join(there))
        record = {"correctness": {"worst": 0.25}}
        if not self.rule(there):
            return Judgement(False, "correctness", "the outputs differ", record)
        artifact = [name for name in there if name != self.ignored]
        return Judgement(True, "gate", "", record, f"# {there}\n", {"sm_80": 1e-6 * (4 - len(there))}, artifact)

    def realized(self, before: Judgement, after: Judgement) -> Realization:
        changed: Mapping[str, str] = {} if before.artifact == after.artifact else {"ptx": f"{len(before.artifact)} to {len(after.artifact)} attributes"}
        return Realization(realized=bool(changed), reason="" if changed else "the compiler gives the same code", differences=dict(changed))


def walked(folder: Path, engine: Engine, judge: Judge, *, workers: int = 1, budget: Budget | None = None) -> Walked:
    """A walk in a folder, from the toy program."""
    place = Folder(folder)
    place.begin(HEADER)
    start = expert()
    return Walk(start, engine, judge, place, budget or Budget(), workers=workers).run(judge.gate(start))


def finished(folder: Path, outcome: Walked) -> Lineage:
    """The lineage of a walk, stored."""
    made = chained(HEADER, outcome.start, outcome.judgement.record, outcome.judgement.emitted, outcome.steps, outcome.outcome)
    Folder(folder).finish(made)
    return made
