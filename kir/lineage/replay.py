"""The way forward: rebuild every state from the naive program, and compare each with the hash that the lineage names."""

from __future__ import annotations

from collections.abc import Callable

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError, Origin
from kir.ir.nodes import Program
from kir.lineage.records.folder import Folder
from kir.lineage.records.locate import span_of
from kir.lineage.records.record import Lineage, Step
from kir.lineage.walk import Engine, Judge, rebuilt


@dataclass(frozen=True)
class Rebuilt:
    """One transition replayed: its number from the naive end, the step, the hash it must give and the one it gave.

    ``exact`` also compares the printed text, names and labels included. ``error`` is there when the step did not apply.
    """

    number: int
    step: Step
    expected: str
    found: str
    exact: bool
    error: Diagnostic | None = None
    gate: str = ""

    @property
    def ok(self) -> bool:
        return self.found == self.expected and not self.gate


@dataclass(frozen=True)
class Replayed:
    """The outcome of a replay: the transitions in order, up to the first that failed, and what is wrong."""

    transitions: tuple[Rebuilt, ...]
    diagnostics: tuple[Diagnostic, ...]
    expert: Program

    @property
    def ok(self) -> bool:
        return not self.diagnostics


def replay(lineage: Lineage, folder: Folder, engine: Engine, judge: Judge | None = None, progress: Callable[[Rebuilt], None] | None = None) -> Replayed:
    """Replay every accepted step forward. With a ``judge``, each rebuilt state is gated again.

    A difference is no exception but a diagnostic (KIR-S012, KIR-S017) at the step's place in ``lineage.json``; the replay ends at
    the first hash that differs. Raises :class:`KirError` when a stored program is missing or was changed.
    """
    states = lineage.states
    program = folder.program(states[-1])
    place = _Places(folder)
    if (found := engine.content(program)) != states[-1].content:
        fault = place.fault(lineage, None, f"the stored naive program hashes to {found[:16]}", states[-1].content, found)
        return Replayed((), (fault,), program)
    done: list[Rebuilt] = []
    faults: list[Diagnostic] = []
    for number, (step, outcome) in enumerate(rebuilt(engine, program, lineage.accepted), start=1):
        expected = step.before.content
        if isinstance(outcome, KirError):
            first = outcome.diagnostics[0]
            done.append(Rebuilt(number, step, expected, "", False, first))
            faults += [place.fault(lineage, step, f"transition {number} ({step.forward}) does not apply", expected, first.message), first]
            break
        program = outcome
        found = engine.content(program)
        exact = engine.text(program) == folder.store.get(step.before.text)
        refused = ""
        if judge is not None and found == expected and not (judgement := judge.gate(program)).accepted:
            refused = f"{judgement.stage}: {judgement.reason}"
            message = f"transition {number} ({step.forward}) gives the stored program, but the gate refuses it: {refused}"
            faults.append(Diagnostic("KIR-S017", message, origin=place.of(lineage, step)))
        done.append(Rebuilt(number, step, expected, found, exact, None, refused))
        if progress is not None:
            progress(done[-1])
        if found != expected:
            faults.append(place.fault(lineage, step, f"transition {number} ({step.forward}) gives another program", expected, found))
            break
    return Replayed(tuple(done), tuple(faults), program)


@dataclass(frozen=True)
class _Places:
    """Where steps stand in ``lineage.json``."""

    folder: Folder

    def of(self, lineage: Lineage, step: Step | None) -> Origin | None:
        if not self.folder.file.is_file():
            return None
        text = self.folder.file.read_text(encoding="utf-8")
        path: list[str | int] = ["steps", lineage.steps.index(step), "forward"] if step is not None else ["outcome"]
        return Origin.of(str(self.folder.file), text, *span_of(text, path))

    def fault(self, lineage: Lineage, step: Step | None, message: str, expected: str, found: str) -> Diagnostic:
        witness = (f"the lineage names {expected[:16]}", f"the replay gave {found[:16] if len(found) == 64 else found}")
        subject = step.forward if step is not None else ""
        return Diagnostic("KIR-S012", message, origin=self.of(lineage, step), subject=subject, witness=witness)
