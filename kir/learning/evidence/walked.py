"""A walked kernel in a compact form: its transitions with both programs, facts and verdicts, and what was turned down, without the gate's
records and the emitted code that a lineage holds."""
from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.learning.corpus.family import family_of
from kir.lineage.records.folder import Folder
from kir.lineage.records.record import Condition, Lineage, Record, Step
from kir.lineage.records.speedup import measured_speedups, speedups

SCHEMA: Literal["kir.walked/1"] = "kir.walked/1"
SHIPPED = "kir:"
"""How a place in KIR's own folders may start; experts are named without."""
MOST_REASON = 300
"""Characters kept of why a step was turned down."""


LEAST_AHEAD = 100
"""Texts from which it is worth while to parse them side by side."""


class Transition(Record):
    """A forward step: `before` is the simpler program, `after` the optimized one, each by content hash (`*_text`: the key of its text).
    `number` counts from the naive end. `speedups` are modelled, `measured` with the ends of their interval, both above 1 when faster."""

    number: int
    intent: str
    step: dict[str, Any]
    before: str
    after: str
    before_text: str
    after_text: str
    conditions: tuple[Condition, ...] = ()
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    numerics: str = ""
    effect: dict[str, float] = Field(default={})
    speedups: dict[str, float] = Field(default={})
    measured: dict[str, tuple[float, float, float]] = Field(default={})
    realized: bool = False
    compared: bool = False
    residue_bytes: int = 0

    @property
    def name(self) -> str:
        """The pass."""
        return str(self.step["pass"])

    @property
    def options(self) -> Mapping[str, Any]:
        """The pass's parameters that are not at their default."""
        return {k: tuple(v) if isinstance(v, list) else v for k, v in self.step.get("options", {}).items()}


class Rejected(Record):
    """A step back that was turned down: the stage at which it fell and why; `condition` is the id of the precondition that refused it."""

    intent: str
    name: str
    step: str
    stage: str
    reason: str
    condition: str = ""
    program: str = ""
    """Content hash of the program that it was tried on (the optimized side)."""
    program_text: str = ""


class Walked(Record):
    """A kernel and all that its walk showed. `ended` is `naive`, what ended the walk, or `failed` where there is no lineage."""

    schema_: Literal["kir.walked/1"] = Field(default=SCHEMA, alias="schema")
    kernel: str
    binding: str = ""
    package: str
    family: str
    surface: str = ""
    problem: str = ""
    gate: str = "cpu"
    targets: tuple[str, ...] = ()
    tools: dict[str, str] = Field(default={})
    read_as: str = ""
    ended: str
    reason: str = ""
    seal: str = ""
    programs: dict[str, str] = Field(default={})
    transitions: tuple[Transition, ...] = ()
    rejected: tuple[Rejected, ...] = ()

    model_config = Record.model_config | {"populate_by_name": True, "ignored_types": (cached_property,)}

    @property
    def key(self) -> str:
        """What it is told apart by: the kernel, and how its launch was recorded."""
        return f"{self.kernel}|{hashlib.sha256(self.binding.encode()).hexdigest()[:12]}"

    def text(self) -> str:
        """One line of JSON; the same walk gives the same line."""
        return json.dumps(self.model_dump(mode="json", by_alias=True, exclude_defaults=True) | {"schema": SCHEMA}, sort_keys=True, ensure_ascii=False)

    @property
    def digest(self) -> str:
        """SHA-256 of `text`."""
        return hashlib.sha256(self.text().encode()).hexdigest()

    def program(self, key: str) -> Program:
        """A program by the key of its text. Raises KeyError for one that is not here."""
        return parsed(self.programs[key])

    def chain(self) -> Iterator[tuple[Transition, Program, Program]]:
        """The transitions from the naive end, each with the program before and after."""
        for each in self.transitions:
            yield each, self.program(each.before_text), self.program(each.after_text)


_PROGRAMS: dict[str, Program] = {}
"""The programs of texts, each parsed once: a library is made from all programs of its evidence, and looks at each many times."""


def parsed(text: str) -> Program:
    """The program of a text. Raises KirError as `parse_program`."""
    found = _PROGRAMS.get(text)
    if found is None:
        found = _PROGRAMS[text] = parse_program(text)
    return found


def parsed_ahead(texts: Iterable[str], workers: int) -> None:
    """Parse texts in so many processes, before they are asked for."""
    asked = [text for text in dict.fromkeys(texts) if text not in _PROGRAMS]
    if workers > 1 and len(asked) > LEAST_AHEAD:
        with ProcessPoolExecutor(workers) as pool:
            _PROGRAMS.update(zip(asked, pool.map(parse_program, asked, chunksize=max(1, len(asked) // (4 * workers))), strict=True))


def walked(lineage: Lineage, folder: Folder, read_as: str = "") -> Walked:
    """A finished lineage in the compact form. Raises KirError KIR-S001, KIR-S002 where a program of it is gone or was changed."""
    header = lineage.header
    source = header.source.removeprefix(SHIPPED)
    programs = {state.text[:16]: folder.store.get(state.text) for state in lineage.states}
    rejected = tuple(_rejected(step) for step in lineage.rejected)
    for step in lineage.rejected:
        programs.setdefault(step.before.text[:16], folder.store.get(step.before.text))
    return Walked(kernel=source, binding=header.binding, package=package_of(source), family=family_of(_named(source)),
                  surface=header.surface, problem=header.problem, gate=header.gate, targets=header.targets, tools=header.tools, read_as=read_as,
                  ended=lineage.outcome.ended, reason="" if lineage.outcome.ended == "naive" else lineage.outcome.reason[:MOST_REASON], seal=lineage.seal,
                  programs=dict(sorted(programs.items())), transitions=tuple(_transition(n, s) for n, s in lineage.transitions()), rejected=rejected)


def package_of(source: str) -> str:
    """The package that a kernel comes from; `experts` for those that ship with KIR, and for a file of no package."""
    head, colon, _ = source.partition("::")[0].partition(":")
    return head if colon else "experts"


def _named(source: str) -> str:
    """A kernel's place in the form that the table of families reads; IR text is named by its file."""
    return source if "::" in source else f"{source}::"


def _transition(number: int, step: Step) -> Transition:
    assert step.after is not None
    realized = step.realization
    return Transition(number=number, intent=step.intent, step=step.witness, before=step.after.content, after=step.before.content,
                      before_text=step.after.text[:16], after_text=step.before.text[:16], conditions=step.conditions, requires=step.requires,
                      provides=step.provides, numerics=step.numerics, effect=step.effect, speedups=speedups(step), measured=measured_speedups(step),
                      realized=bool(realized and realized.realized), compared=bool(realized and realized.compiled), residue_bytes=step.residue_bytes)


def _rejected(step: Step) -> Rejected:
    found = re.match(r"(KIR-P\d+):", step.reason)
    name = step.backward.removeprefix("~").partition("@")[0].partition("{")[0]
    return Rejected(intent=step.intent, name=name, step=step.backward, stage=step.stage, reason=step.reason[:MOST_REASON],
                    condition=found[1] if found else "", program=step.before.content, program_text=step.before.text[:16])
