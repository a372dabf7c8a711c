"""What a lineage stores: a versioned schema, and a chain in which each step's hash covers all that came before it.

Steps are kept in the order in which the walk took them, from the expert K* back to the naive K0; replay goes through the
accepted ones in reverse. Programs are named by content hash (:func:`kir.ir.canonical.content_hash`, blind to local names)
and by the hash of their printed text, under which the lineage's store keeps them. Nothing in the chain depends on the
clock, so that the same walk gives the same file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kir.base.diagnostic import KirError, Origin, did_you_mean, error
from kir.lineage.records.locate import span_of
from kir.surface import UNCOMPILED

SCHEMA: Literal["kir.lineage/1"] = "kir.lineage/1"
"""The schema this KIR reads and writes."""

Status = Literal["accepted", "rejected"]
Ended = Literal["naive", "stuck", "budget"]


class Record(BaseModel):
    """Base of every record: immutable, and a field that is not declared is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class State(Record):
    """A program of the chain. ``content`` is its content hash, ``text`` the key of its printed text in the store, ``nodes`` its
    size in IR nodes, ``measure`` the well-founded measure of law 9, ``modelled`` seconds by target, of the problem's timed shape,
    ``measured`` the same by device, as median and the ends of its 95 % interval (only where a GPU ran it: these depend on the day)."""

    content: str
    text: str
    nodes: int = Field(ge=0)
    measure: tuple[int, ...]
    modelled: dict[str, float] = {}
    measured: dict[str, tuple[float, float, float]] = {}


class Condition(Record):
    """A precondition of the forward step, with the verdict that was found and what it rests on."""

    id: str
    kind: Literal["validity", "profit"]
    category: str
    sentence: str
    verdict: Literal["proved", "guarded", "assumed", "refuted", "unknown"]
    scope: str = ""
    detail: str = ""


class Realization(Record):
    """Whether a step changed what the compiler makes of the program, for each target that both sides were compiled for."""

    realized: bool
    reason: str
    differences: dict[str, str] = {}

    @property
    def compiled(self) -> bool:
        """Whether there was compiled code to compare: where there was none, nothing is known of the step."""
        return self.realized or not self.reason.startswith(UNCOMPILED)


class Step(Record):
    """One attempted deoptimization.

    ``forward`` is the optimizing step as pipeline text, with the witness's parameters and the anchor in the program that it acts on
    (that is, in ``after``); ``witness`` is the same step as JSON with the residue that restores names and statement order, of
    ``residue_bytes`` bytes. A rejected step says why in ``reason`` and at which ``stage`` it fell; its ``after`` is there when there
    was a program.
    """

    index: int = Field(ge=0)
    status: Status
    stage: Literal["applied", "precondition", "rewrite", "measure", "repeat", "compile", "correctness", "gate"]
    reason: str = ""
    intent: str
    claim: str = ""
    forward: str
    backward: str
    anchor: str
    numerics: str = ""
    before: State
    after: State | None = None
    witness: dict[str, Any] = {}
    residue_bytes: int = Field(default=0, ge=0)
    conditions: tuple[Condition, ...] = ()
    requires: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    effect: dict[str, float] = {}
    realization: Realization | None = None
    gate: dict[str, Any] = {}
    emitted: str = ""
    previous: str = ""
    hash: str = ""


class Header(Record):
    """What was asked: everything that decides the walk's course. ``tools`` are the versions of all that compiled and checked."""

    schema_: Literal["kir.lineage/1"] = Field(default=SCHEMA, alias="schema")
    expert: str
    source: str
    surface: str
    binding: str = ""
    problem: str = ""
    gate: Literal["cpu", "gpu"] = "cpu"
    targets: tuple[str, ...] = ()
    assume: tuple[str, ...] = ()
    budget: dict[str, float] = {}
    tools: dict[str, str] = {}

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Violation(Record):
    """A clause of the predicate N that a node of the last program still violates."""

    anchor: str
    clause: str
    message: str


class Outcome(Record):
    """Why the walk ended, what the last program lacks to be naive, and the pipeline that leads from it to the expert."""

    ended: Ended
    reason: str
    violations: tuple[Violation, ...] = ()
    pipeline: str = ""
    realized: int = 0
    residue_bytes: int = 0
    expert_bytes: int = 0


class Lineage(Record):
    """The whole file. ``seal`` closes the chain over the outcome."""

    header: Header
    start: State
    start_gate: dict[str, Any] = {}
    start_emitted: str = ""
    steps: tuple[Step, ...]
    outcome: Outcome
    seal: str

    @property
    def accepted(self) -> tuple[Step, ...]:
        """The steps of the chain, from the expert back."""
        return tuple(step for step in self.steps if step.status == "accepted")

    @property
    def rejected(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.status == "rejected")

    @property
    def states(self) -> tuple[State, ...]:
        """K* first, then what each accepted step led to."""
        return (self.start, *(step.after for step in self.accepted if step.after is not None))

    def transitions(self) -> tuple[tuple[int, Step], ...]:
        """The forward transitions t1 .. tn, numbered from the naive end, each with its (backward) step."""
        return tuple(enumerate(reversed(self.accepted), start=1))


def canonical(value: BaseModel | Mapping[str, Any], *, without: Iterable[str] = ()) -> bytes:
    """The bytes that are hashed: JSON with sorted keys, no spaces, and the given top-level fields left out."""
    data = value.model_dump(mode="json", by_alias=True) if isinstance(value, BaseModel) else dict(value)
    for name in without:
        data.pop(name, None)
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def ordered(value: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with its keys in order, at every depth, so that what was read back prints as what was first written."""
    made: dict[str, Any] = json.loads(json.dumps(value, sort_keys=True, allow_nan=False))
    return made


def genesis(header: Header, start: State, start_gate: Mapping[str, Any], start_emitted: str) -> str:
    """The first link: a hash of what was asked and of the expert's own record."""
    rest = {"start": start.model_dump(mode="json"), "gate": dict(start_gate), "emitted": start_emitted}
    return hashlib.sha256(canonical(header) + b"\n" + canonical(rest)).hexdigest()


def link(step: Step, previous: str) -> Step:
    """The step with its place in the chain: ``previous``, and its own hash over that and all its other fields."""
    loose = {"witness": ordered(step.witness), "gate": ordered(step.gate), "effect": ordered(step.effect)}
    placed = step.model_copy(update={**loose, "previous": previous, "hash": ""})
    return placed.model_copy(update={"hash": hashlib.sha256(canonical(placed, without=("hash",))).hexdigest()})


def seal(outcome: Outcome, previous: str) -> str:
    """The last link, over the outcome."""
    return hashlib.sha256(previous.encode() + b"\n" + canonical(outcome)).hexdigest()


def chained(header: Header, start: State, start_gate: Mapping[str, Any], start_emitted: str, steps: Sequence[Step], outcome: Outcome) -> Lineage:
    """A lineage of steps that need not be linked yet."""
    previous = genesis(header, start, start_gate, start_emitted)
    linked: list[Step] = []
    for step in steps:
        linked.append(link(step, previous))
        previous = linked[-1].hash
    return Lineage(
        header=header,
        start=start,
        start_gate=ordered(start_gate),
        start_emitted=start_emitted,
        steps=tuple(linked),
        outcome=outcome,
        seal=seal(outcome, previous),
    )


def dump(lineage: Lineage) -> str:
    """The text of ``lineage.json``."""
    return json.dumps(lineage.model_dump(mode="json", by_alias=True), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def load(text: str, file: str) -> Lineage:
    """The lineage in ``text``, its schema checked but not its chain (:func:`verify_chain` does that).

    Raises :class:`KirError` (KIR-S010), at the field of ``file``, for what is no lineage of this schema.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as fault:
        place = Origin(file, fault.lineno, fault.colno, fault.lineno, fault.colno + 1)
        raise error("KIR-S010", f"this is not JSON: {fault.msg}", origin=place) from fault
    found = value.get("header", {}).get("schema") if isinstance(value, dict) and isinstance(value.get("header"), dict) else None
    if found != SCHEMA:
        said = f"its schema is {found!r}" if found else "it names no schema"
        raise error("KIR-S010", f"this is no lineage that this KIR reads: {said}", origin=Origin(file, 1, 1, 1, 1), needs=f"schema {SCHEMA}")
    try:
        return Lineage.model_validate(value)
    except ValidationError as fault:
        raise schema_fault("KIR-S010", fault, text, file, Lineage) from fault


def schema_fault(id: str, fault: ValidationError, text: str, file: str, model: type[BaseModel]) -> KirError:
    """The first complaint of pydantic as one located error, with the nearest field for one that is not known."""
    first = min(fault.errors(), key=lambda each: each["type"] != "extra_forbidden")
    path: list[str | int] = list(first["loc"])
    name = ".".join(map(str, path))
    if first["type"] == "extra_forbidden":
        hint = did_you_mean(str(path[-1]), _fields_at(model, path[:-1]))
        message = f"there is no field '{name}'{f'; {hint}' if hint else ''}"
    elif first["type"] == "missing":
        message = f"the field '{name}' is missing"
    else:
        message = f"the field '{name}' is wrong: {first['msg'][:1].lower()}{first['msg'][1:]}"
    return error(id, message, origin=Origin.of(file, text, *span_of(text, path)))


def _fields_at(model: type[BaseModel], path: Sequence[str | int]) -> tuple[str, ...]:
    """Names of the fields of the model that a path of keys and indices leads to."""
    current: type[BaseModel] = model
    for key in path:
        if isinstance(key, str) and key in current.model_fields:
            current = _model_in(current.model_fields[key].annotation) or current
    return tuple(field.alias or name for name, field in current.model_fields.items())


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if (found := _model_in(inner)) is not None:
            return found
    return None


def verify_chain(lineage: Lineage, text: str, file: str) -> None:
    """Check every link and the seal.

    Raises :class:`KirError` (KIR-S011) at the first step whose record is not the one that was written, with both hashes.
    """
    previous = genesis(lineage.header, lineage.start, lineage.start_gate, lineage.start_emitted)
    for position, step in enumerate(lineage.steps):
        made = link(step, previous)
        if step.previous != previous and position == 0:
            raise _broken(text, file, ["header"], "the header or the expert's record was changed", previous, step.previous)
        if step.previous != previous or made.hash != step.hash:
            what = f"the record of step {step.index} ({step.backward}) was changed"
            raise _broken(text, file, ["steps", position], what, made.hash, step.hash)
        previous = made.hash
    if (made_seal := seal(lineage.outcome, previous)) != lineage.seal:
        what = "the outcome was changed" if lineage.steps else "the header, the expert's record or the outcome was changed"
        raise _broken(text, file, ["outcome"], what, made_seal, lineage.seal)


def _broken(text: str, file: str, path: Sequence[str | int], what: str, computed: str, stored: str) -> KirError:
    start, _ = span_of(text, path)
    return error(
        "KIR-S011",
        what,
        origin=Origin.of(file, text, start, start + 1),
        witness=(f"its content hashes to {computed[:16]}", f"the file says {stored[:16]}"),
        needs="the file as it was written: nothing that follows this place can be trusted",
    )
