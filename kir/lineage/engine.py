"""The walk's tie to the rewriting framework: every registered pass, undone wherever it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.hardware.target import target
from kir.ir.canonical import content_hash
from kir.ir.measures.measure import measure
from kir.ir.measures.naive import is_naive
from kir.ir.nodes import Buffer, Let, Program
from kir.ir.printer import program_text
from kir.ir.visit import names_read, walk
from kir.lineage.candidates import LOWERS_NONE, Candidate, candidates, component, in_order
from kir.lineage.carrier import declared
from kir.lineage.records.record import Condition, Header, Violation
from kir.lineage.records.record import Step as Recorded
from kir.lineage.walk import Move
from kir.problem import load_problem
from kir.rewrite import Context, Pass, Site, Step, Verdict, apply
from kir.rewrite.anchor import anchor_text
from kir.rewrite.edit import node_at
from kir.rewrite.pipelines.pipeline import find_site
from kir.rewrite.registry import failed


@dataclass(frozen=True)
class _Place:
    """A candidate, where it stands in reading order, the component of the measure that it lowers first, and whether a carrier
    undoes all of it."""

    candidate: Candidate
    number: int
    component: float
    whole: bool


@dataclass
class _Known:
    """A program's candidates, and what applying each gave, by its text."""

    program: Program
    places: tuple[_Place, ...]
    moves: dict[str, Move | KirError] = field(default_factory=dict)


@dataclass(frozen=True)
class PassEngine:
    """All passes of the registry, or some ``only``. ``work_item`` and ``state`` are the problem's, for the predicate N; ``assume`` are precondition
    ids that count as assumed where they cannot be decided; ``context`` says what hardware is aimed at. What was found for a program
    is kept, as the walk comes to the same programs that its plan has been through. ``failures`` are passes whose own code failed: the
    walk goes on without them."""

    naive_arguments: Mapping[str, Any] = field(default_factory=dict)
    assume: frozenset[str] = frozenset()
    context: Context = field(default_factory=Context)
    only: Callable[[type[Pass]], bool] = field(default=lambda cls: True, repr=False, compare=False)
    _seen: dict[str, _Known] = field(default_factory=dict, repr=False, compare=False)
    failures: dict[str, Diagnostic] = field(default_factory=dict, repr=False, compare=False)
    _naive: dict[str, tuple[Violation, ...]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, header: Header) -> PassEngine:
        """The engine that a lineage's header asks for."""
        arguments: dict[str, Any] = {}
        if header.problem:
            problem = load_problem(header.problem)
            arguments = {"work_item": problem.work_item, "state": problem.state, "scatter": problem.spec.scatter}
        context = Context(target=target(header.targets[0])) if header.targets else Context()
        return cls(arguments, frozenset(header.assume), context)

    @cached_property
    def passes(self) -> tuple[type[Pass], ...]:
        """Every usable pass, what is peeled first in front."""
        return in_order(self.only)

    @cached_property
    def put_off_first(self) -> frozenset[str]:
        """The passes that a plan puts off before others."""
        return frozenset(cls.name for cls in self.passes if cls.one_of_several)

    def candidates(self, program: Program, delayed: Sequence[str] = ()) -> Iterator[Candidate]:
        """Every place from which some pass's forward direction restores the program exactly, passes ``delayed`` last.

        First comes what lowers the leftmost component of the measure, which goes from what only hardware explains to what any program
        has; then the order that the passes' declarations give. What carriers undo whole, others first undo step by step, as
        long as the CTA keeps its threads: one thread's serial code would take too long to run against a contract. What refuses stands
        behind all that lower something; it is found out as the candidates are asked for, so that the first costs one application.
        """
        known = self._known(program)
        late = {name: number for number, name in enumerate(delayed, start=1)}
        for turn in sorted({late.get(each.candidate.name, 0) for each in known.places}):
            group = [each for each in known.places if late.get(each.candidate.name, 0) == turn]
            rest = [each for each in group if each.component >= LOWERS_NONE]
            for each in sorted((each for each in group if each.component < LOWERS_NONE), key=lambda each: (each.component, each.number)):
                if not each.whole and self._refused(known, each.candidate):
                    rest.append(each)
                else:
                    yield each.candidate
            yield from (each.candidate for each in sorted(rest, key=lambda each: each.number))

    def _known(self, program: Program) -> _Known:
        """What is known of a program. Programs of the same text are one program here."""
        key = program_text(program)
        if key not in self._seen:
            carriers = {cls.name for cls in self.passes if declared(cls)}
            found: list[Candidate] = []
            for cls in self.passes:
                if cls.name in self.failures:
                    continue
                try:
                    found += candidates(program, cls)
                except Exception as fault:
                    self.failures[cls.name] = failed(cls, "in a walk, which went on without it", fault)
            places = tuple(_Place(each, number, component(program, each.handle.taken[1], each.name in carriers), each.name in carriers)
                           for number, each in enumerate(found))  # sites of the backward direction have been tried
            self._seen[key] = _Known(program, _written_out_first(program, places))
        return self._seen[key]

    def _refused(self, known: _Known, candidate: Candidate) -> bool:
        try:
            self.backward(known.program, candidate)
        except KirError:
            return True
        return False

    def backward(self, program: Program, candidate: Candidate) -> Move:
        """Take one pass back, with all checks of the framework. Raises :class:`KirError` as :func:`kir.rewrite.apply` does."""
        known = self._known(program)
        if candidate.text not in known.moves:
            try:
                known.moves[candidate.text] = self._moved(known.program, candidate)
            except KirError as fault:
                known.moves[candidate.text] = fault
        found = known.moves[candidate.text]
        if isinstance(found, KirError):
            raise found
        return found

    def _moved(self, program: Program, candidate: Candidate) -> Move:
        site: Site = candidate.handle
        item = site.params
        assume = self.assume & {each.id for each in item.preconditions}
        done = apply(program, item, site, "backward", assume=assume, context=self.context)
        witness = done.witness
        at = anchor_text(done.program, witness.path)
        step = Step.of(witness.params, at, assume=assume, residue=witness.residue, path=witness.path, hash=content_hash(done.program))
        return Move(
            program=done.program,
            forward=str(Step.of(witness.params, at, assume=assume)),
            witness=step.to_json(),
            residue_bytes=witness.residue.size,
            claim=item.claim,
            numerics=item.numerics,
            conditions=conditions_of(item, done.record.verdicts),
            requires=tuple(item.requires),
            provides=tuple(item.provides),
            effect={name: float(value) for name, value in done.record.effect.to_json().items()},
        )

    def forward(self, program: Program, step: Recorded) -> Program:
        """Apply a stored step's forward direction. Raises :class:`KirError` when it does not apply or is refused."""
        stored = Step.from_json(step.witness)
        item, site = find_site(program, stored)
        return apply(program, item, site, "forward", assume=stored.assume, guard=stored.guard, left=stored.residue, context=self.context).program

    def exact(self, step: Recorded) -> str:
        """The stored step as pipeline text, residue and place included."""
        return str(Step.from_json(step.witness))

    def content(self, program: Program) -> str:
        """The content hash."""
        return content_hash(program)

    def text(self, program: Program) -> str:
        """The printed program."""
        return program_text(program)

    def measure(self, program: Program) -> tuple[int, ...]:
        """The measure of law 9."""
        return tuple(measure(program))

    def size(self, program: Program) -> int:
        """IR nodes in the kernels and functions; a buffer counts where it is declared, not where it is used."""
        return sum(1 for part in (*program.kernels, *program.functions) for node in walk(part) if not isinstance(node, Buffer))

    def violations(self, program: Program) -> Sequence[Violation]:
        """What the predicate N finds."""
        key = program_text(program)
        if key not in self._naive:
            found: Iterable[Any] = is_naive(program, **self.naive_arguments)
            self._naive[key] = tuple(Violation(anchor=each.anchor, clause=each.clause, message=each.message) for each in found)
        return self._naive[key]


def _written_out_first(program: Program, places: tuple[_Place, ...]) -> tuple[_Place, ...]:
    """The places with those that write a name out ahead of what takes the tile apart that the name is of."""
    ahead: dict[str, float] = {}
    for each in places:
        site: Site = each.candidate.handle
        if type(site.params).by_elements and each.component < LOWERS_NONE:
            for name in names_read(node_at(program, site.path)):
                ahead[name] = min(each.component - 0.5, ahead.get(name, LOWERS_NONE))

    def turn(each: _Place) -> float:
        node = node_at(program, each.candidate.handle.path)
        return min((ahead.get(name, LOWERS_NONE) for name in node.names), default=LOWERS_NONE) if isinstance(node, Let) else LOWERS_NONE
    return tuple(replace(each, component=min(each.component, turn(each))) if each.component < LOWERS_NONE else each for each in places) if ahead else places


def conditions_of(item: Pass, verdicts: Iterable[tuple[str, Verdict]]) -> tuple[Condition, ...]:
    """The preconditions of a pass as a lineage records them: each verdict (condition id, verdict) with the condition's kind, category and sentence."""
    by_id = {each.id: each for each in item.preconditions}
    return tuple(
        Condition(
            id=identifier,
            kind=by_id[identifier].kind,
            category=by_id[identifier].category,
            sentence=by_id[identifier].sentence,
            verdict=verdict.kind,
            scope=verdict.scope,
            detail="; ".join((*([verdict.reason] if verdict.reason else []), *verdict.witness)),
        )
        for identifier, verdict in verdicts
    )
