"""The way forward from parameters alone: every stored step with its residue (names, order of statements, labels) left out.

A step's place is its anchor; where that names what only a residue would have named, the stored path; where nothing stands there either, the one place at
which the pass applies with these parameters. What comes out means the same as the expert (law 2b), and is often the same program up to names.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from kir.analysis import Aliases, Facts
from kir.analysis.access import independent
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.ir.visit import transform
from kir.lineage.engine import PassEngine
from kir.lineage.records.folder import Folder
from kir.lineage.records.record import Lineage
from kir.lineage.records.record import Step as Recorded
from kir.rewrite import Pass, Site, Step, apply
from kir.rewrite.driver import forward_site
from kir.rewrite.edit import block_at
from kir.rewrite.match import matched_as
from kir.rewrite.pipelines.pipeline import find_site
from kir.rewrite.registry import pass_class
from kir.rewrite.residue import NOTHING, Residue, residue, restore

How = Literal["anchor", "path", "only place"]


@dataclass(frozen=True)
class Placed:
    """A step that was taken: its number from the naive end, how its place was found, and whether the state has the hash that the lineage names."""

    number: int
    step: Recorded
    how: How
    same: bool


@dataclass(frozen=True)
class Recovered:
    """How far the steps led, and the program there; `fault` says which one did not apply, and why; `ordered`: whether the program is the expert up to names
    and the order of statements that do not depend on one another."""

    steps: tuple[Placed, ...]
    program: Program
    fault: KirError | None = None
    ordered: bool = False

    @property
    def whole(self) -> bool:
        """Whether every step applied."""
        return self.fault is None

    @property
    def same(self) -> bool:
        """Whether the expert itself is recovered, up to names and labels."""
        return self.whole and bool(self.steps) and self.steps[-1].same

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What is wrong."""
        return self.fault.diagnostics if self.fault is not None else ()


def recover(lineage: Lineage, folder: Folder, engine: PassEngine) -> Recovered:
    """Take every accepted step forward without its residue. Raises KirError where the stored naive program is missing or was changed."""
    program = folder.program(lineage.states[-1])
    done: list[Placed] = []
    for number, recorded in enumerate(reversed(lineage.accepted), start=1):
        stored = Step.from_json(recorded.witness)
        try:
            how, item, site = _placed(program, stored)
            program = apply(program, item, site, "forward", assume=stored.assume, context=engine.context).program
        except KirError as fault:
            return Recovered(tuple(done), program, fault)
        done.append(Placed(number, recorded, how, content_hash(program) == recorded.before.content))
    return Recovered(tuple(done), program, ordered=bool(done) and (done[-1].same or same_in_any_order(program, folder.program(lineage.states[0]))))


def same_in_any_order(made: Program, wanted: Program) -> bool:
    """Whether two programs are one up to names and the order of statements of which either may come first: none of two that change places names, reads or
    writes what the other gives a name or writes, and neither of them synchronizes. Copies of one commit group may be begun in either order."""
    left = residue(made, wanted)
    for count, (path, permutation) in enumerate(left.order if left is not None else ()):
        assert left is not None
        path, program = (path[0] or made.kernels[0].name, *path[1:]), restore(made, Residue(order=left.order[:count]))
        known, aliases, moved = Facts.at(program, path), Aliases(program), tuple(map(_begun, block_at(program, path)[int(path[-1]):]))
        if not all(independent((moved[a],), (moved[b],), known, aliases) for at, b in enumerate(permutation) for a in permutation[at + 1:] if a < b):
            return False
    return left is not None


def _begun(s: n.Stmt) -> n.Stmt:
    """A statement whose copies of a commit group are done at once: the commit, of which nothing is changed here, says when they are waited for."""
    return matched_as(transform(s, lambda _, x: replace(x, via="plain", grouped=False) if isinstance(x, n.Copy) and x.grouped else x), n.Stmt)


def _placed(program: Program, stored: Step) -> tuple[How, Pass, Site]:
    """Where a step applies. Raises KirError, of the anchor, where no place is found."""
    try:
        return "anchor", *find_site(program, replace(stored, residue=NOTHING, path=None, hash=""))
    except KirError as nowhere:
        first = nowhere
    item = pass_class(stored.name).with_options(stored.options)
    if stored.path is not None:
        try:
            return "path", item, forward_site(program, item, stored.path)
        except KirError as fault:
            if any(d.id != "KIR-R004" for d in fault.diagnostics):
                raise
    every = tuple(item.sites(program))
    for place in ([s for s in every if all(getattr(s.params, k) == getattr(item, k) for k in stored.options)], every):
        if len(place) == 1:
            return "only place", item, place[0]
    raise first


def recovered_json(found: Recovered) -> dict[str, Any]:
    """As JSON."""
    return {"steps": [{"number": p.number, "step": p.step.forward, "place": p.how, "same": p.same} for p in found.steps], "whole": found.whole,
            "same": found.same, "ordered": found.ordered}


def recovered_text(lineage: Lineage, found: Recovered) -> str:
    """In words."""
    total = len(lineage.accepted)
    if not found.whole:
        return f"{len(found.steps)} of {total} steps applied from their parameters alone"
    ways = ", ".join(f"{sum(p.how == how for p in found.steps)} by {how}" for how in ("anchor", "path", "only place") if any(p.how == how for p in found.steps))
    outcome = ("the expert itself is recovered, up to names" if found.same else "the expert itself is recovered, up to names and the order of statements that "
               "do not depend on one another" if found.ordered else "another program than the expert, which the gate may judge")
    return f"{total} of {total} steps applied from their parameters alone (places: {ways}); {outcome}"
