"""Running passes: finding sites, applying in either direction with every check, and the record of what was done.

Forward and backward share one rule: the preconditions belong to the forward direction, and are judged on the simpler program at the site
where forward applies. A backward step therefore proves, with its inverse restored exactly, that its transition is sound.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

from kir.analysis.target.footprint import footprint
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError, usage
from kir.ir import nodes as n
from kir.ir.canonical import alpha_equal, content_hash
from kir.ir.changes.anchor_map import AnchorMap, anchor_map
from kir.ir.rules.verify import verify
from kir.rewrite.anchor import anchor_text
from kir.rewrite.base import Effect, Miss, Pass, Rewritten, Site, Witness, forward_site, found_sites, not_restored, run_backward, run_forward
from kir.rewrite.declarations import declared_first
from kir.rewrite.edit import Path, node_at, places
from kir.rewrite.guard import with_guard
from kir.rewrite.residue import NOTHING, Residue
from kir.rewrite.step import Direction, Step
from kir.rewrite.verdict import ANYWHERE, Context, Verdict, Verdicts, guard_of


@dataclass(frozen=True)
class Record:
    """What one application did, as data: the step that repeats it exactly, the anchor acted on, content hashes on both sides, and
    the verdict of each precondition by id. `waived` are ids that were refused and forced."""

    step: Step
    anchor: str
    before: str
    after: str
    verdicts: tuple[tuple[str, Verdict], ...]
    waived: tuple[str, ...]
    numerics: str
    effect: Effect

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"step": self.step.to_json(), "anchor": self.anchor, "before": self.before, "after": self.after,
                "verdicts": {id_: v.to_json() for id_, v in self.verdicts}, "waived": list(self.waived), "numerics": self.numerics,
                "effect": self.effect.to_json(), "residue_bytes": self.step.residue.size}


@dataclass(frozen=True)
class Applied:
    """The result of `apply` on `before`. `witness` leads back: after a backward step it restores the original through `forward`,
    after a forward step it names the site (in `program`) where `backward` applies. `back` is what `backward` made of a forward step's result when that was
    checked, the program and the witness: none of a backward, a guarded or a forced step."""

    before: n.Program
    program: n.Program
    witness: Witness
    told: Callable[[], Record] = field(compare=False, repr=False)
    hints: Mapping[Path, tuple[Path, ...]] = field(default_factory=dict, compare=False, repr=False)
    back: tuple[n.Program, Witness] | None = field(default=None, compare=False, repr=False)

    @cached_property
    def record(self) -> Record:
        """What was done, as data; put together on first use."""
        return self.told()

    @cached_property
    def anchor_map(self) -> AnchorMap:
        """Where each statement of the program before went; computed on first use."""
        return anchor_map(self.before, self.program, self.hints, str(self.record.step))


def sites(item: Pass, program: n.Program, direction: Direction = "forward") -> tuple[Site, ...]:
    """Where a pass applies. Backward, only places from which `forward` restores the program exactly."""
    return tuple(each_site(item, program, direction))


def each_site(item: Pass, program: n.Program, direction: Direction = "forward") -> Iterator[Site]:
    """`sites` one after the other: who wants the first few need not have the others tried."""
    if direction == "forward":
        yield from item.sites(program)
    else:
        yield from (t for s in item.inverse_sites(program) if (t := tried(program, s)) is not None)


def misses(item: Pass, program: n.Program, direction: Direction = "forward") -> tuple[tuple[Path, str], ...]:
    """Near misses: places where the pattern began to match, and why it does not."""
    out = []
    for path, node in places(program):
        found = item.match(program, path, node) if direction == "forward" else item.match_inverse(program, path, node)
        if isinstance(found, Miss):
            out.append((path, found.reason))
    return tuple(out)


def looked(item: Pass, program: n.Program, direction: Direction = "forward") -> tuple[tuple[Site, ...], tuple[tuple[Path, str], ...]]:
    """`sites` and `misses` at once: each place is matched once, where the pass finds its sites as all do."""
    forward = direction == "forward"
    if (type(item).sites if forward else type(item).inverse_sites) is not (Pass.sites if forward else Pass.inverse_sites):
        return sites(item, program, direction), misses(item, program, direction)
    applies, near = list[Site](), list[tuple[Path, str]]()
    for path, node in places(program):
        found = item.match(program, path, node) if forward else item.match_inverse(program, path, node)
        if isinstance(found, Miss):
            near.append((path, found.reason))
        else:
            applies += found_sites(found)
    return tuple(t for s in applies if (t := s if forward else tried(program, s)) is not None), tuple(near)


def tried(program: n.Program, site: Site) -> Site | None:
    """A candidate for the backward direction with its outcome, or None when forward would not restore the program from there."""
    try:
        return replace(site, taken=(program, *run_backward(program, site)))
    except KirError as bad:
        if all(d.id in ("KIR-R004", "KIR-R006") for d in bad.diagnostics):  # R004: what it would undo is not all there
            return None
        raise


def rejection_reason(program: n.Program, site: Site) -> str:
    """Why `apply` refuses a forward site though its preconditions hold; "" where it does not. The site is tried: what the pass makes may have another
    form than its pattern can tell, which `backward` does not find again."""
    try:
        made = run_forward(program, site, NOTHING)
        check(made.program, site.params)
        undone(program, made, site.params, site.path)
    except KirError as bad:
        return bad.diagnostics[0].message
    return ""


@dataclass(frozen=True)
class Offered:
    """What a pass offers of a program, forward: the sites that `apply` takes, those that a precondition refuses with all verdicts, and those that the
    pattern took and a trial did not, with the reason."""

    sites: tuple[Site, ...]
    refused: tuple[tuple[Site, Verdicts], ...]
    near: tuple[tuple[Site, str], ...]


def offered(item: Pass, program: n.Program, context: Context = ANYWHERE, most: int | None = None) -> Offered:
    """The sites of a pass, judged and tried: each either applies, or it is said why not. With `most`, only so many are looked at."""
    taken, refused, near = list[Site](), list[tuple[Site, Verdicts]](), list[tuple[Site, str]]()
    for site in islice(item.sites(program), most):
        verdicts = judge(program, site, context)
        if refuses(site.params, verdicts):
            refused.append((site, verdicts))
        elif why := rejection_reason(program, site):
            near.append((site, why))
        else:
            taken.append(site)
    return Offered(tuple(taken), tuple(refused), tuple(near))


def refuses(item: Pass, verdicts: Verdicts) -> tuple[str, ...]:
    """The ids of validity preconditions that do not hold."""
    validity = {p.id for p in item.preconditions if p.kind == "validity"}
    return tuple(id_ for id_, v in verdicts if not v and id_ in validity)


def undone(before: n.Program, made: Rewritten, params: Pass, at: Path | None = None) -> tuple[n.Program, Witness]:
    """What `backward` makes of a forward step's result at the place that `optimize` named. Raises KirError KIR-R006 when it does not
    find the same parameters there, or another program than `before` (up to local names, and to where memory is declared in a block). `at` says that
    `made` is what `optimize` makes of `before` there, with no residue: where `backward` gives that very program and place, forward is not run again."""
    found = params.match_inverse(made.program, made.path, node_at(made.program, made.path))
    others = []
    for site in found_sites(found):
        if site.params == params:
            back, witness = run_backward(made.program, site, (before, at) if at is not None else None)
            if back is before or alpha_equal(back, before) or alpha_equal(declared_first(back), declared_first(before)):
                return back, witness
            raise not_restored(made.program, site, "backward gives another program than forward came from")
        others.append(str(site.params))
    why = f": {found.reason}" if isinstance(found, Miss) else f": it reads {' or '.join(others[:2])} there" if others else ""
    raise not_restored(made.program, Site(made.path, params), f"its own pattern does not find it again{why}")


def judge(program: n.Program, site: Site, context: Context = ANYWHERE, assume: Iterable[str] = (),
          guard: Iterable[str] = ()) -> tuple[tuple[str, Verdict], ...]:
    """The verdict of each precondition at a forward site."""
    assumed, checked = frozenset(assume), frozenset(guard)
    return tuple((p.id, p.judge(program, site, context, assumed, checked)) for p in site.params.preconditions)


def apply(program: n.Program, item: Pass, site: Site, direction: Direction = "forward", *, assume: Iterable[str] = (),
          guard: Iterable[str] = (), force: bool = False,
          left: Residue = NOTHING, context: Context = ANYWHERE, verified: bool = True) -> Applied:
    """Apply a pass at a site, with every check.

    Raises KirError with the ids of the refused preconditions (all of them), KIR-R006 for a step that the other direction would not
    undo exactly, and what the verifier finds in the result; UsageError KIR-R009 for an assumed id that the pass does not declare.
    `force` waives validity preconditions; what it then waives goes unverified, and a forward step need not be invertible. Without `verified`
    the caller asks the verifier, once after many steps.
    """
    assumed, checked = frozenset(assume), frozenset(guard)
    known = {p.id for p in item.preconditions}
    if strange := (assumed | checked) - known:
        raise usage("KIR-R009", f"'{item.name}' has no precondition {min(strange)}",
                    needs=f"one of {', '.join(sorted(known))}" if known else "none: it has no precondition")
    if direction == "forward":
        forward_program, there = program, site
        made = run_forward(program, site, left)
        after, witness, hints = made.program, Witness(site.params, made.path), {} if left.order else made.hints
    else:
        after, witness = run_backward(program, site)
        there, taken = witness.there or (forward_site(after, site.params, witness.path), site.params.deoptimize(program, site))
        forward_program, hints = after, taken.hints
        left = witness.residue
        checked = frozenset(known) if witness.guard is not None else frozenset()
    verdicts = judge(forward_program, there, context, assumed, checked)
    waived = _refuse(forward_program, there, verdicts, force, direction)
    condition, back = guard_of(verdicts), None
    if direction == "backward" and condition != witness.guard:
        raise not_restored(program, site, "the launch plan has another guard than forward would write")
    if not waived:
        if verified:
            check(after, there.params)
        if direction == "forward":
            back = undone(program, Rewritten(after, witness.path), there.params, None if left else site.path)
    if direction == "forward" and condition is not None:
        after = with_guard(program, after, str(witness.path[0]), condition)
        check(after, there.params)
        back = None
    told = partial(_record, program, after, item, site, direction, verdicts, waived, assumed, force, left, (forward_program, there), context)
    return Applied(program, after, witness, told, hints, back)


def _record(program: n.Program, after: n.Program, item: Pass, site: Site, direction: Direction, verdicts: Verdicts, waived: tuple[str, ...],
            assumed: frozenset[str], force: bool, left: Residue, forward: tuple[n.Program, Site], context: Context) -> Record:
    before_hash, (simpler, there) = content_hash(program), forward
    step = Step.of(site.params, anchor_text(program, site.path), direction, assume=assumed, force=force,
                   guard=frozenset(id_ for id_, v in verdicts if v.kind == "guarded") if direction == "forward" else frozenset(),
                   residue=left if direction == "forward" else Residue(), path=site.path, hash=before_hash)
    faster = after if direction == "forward" else program
    effect = completed(there.params.effect(simpler, there), simpler, faster, str(there.path[0]), context)
    return Record(step, step.at, before_hash, content_hash(after), verdicts, waived, item.numerics, effect)


def completed(said: Effect, simpler: n.Program, faster: n.Program, kernel: str, context: Context) -> Effect:
    """A pass's own prediction, with what it leaves open read off the footprints of both programs (occupancy needs a target)."""
    found = [footprint(p, k) for p in (simpler, faster) for k in p.kernels if k.name == kernel]
    if len(found) != 2:
        return said
    hardware = context.target.architecture if context.target is not None else None

    def change(a: int | None, b: int | None) -> int | None:
        return None if a is None or b is None else b - a
    before, after = found
    ctas = (None, None) if hardware is None else (before.ctas_per_sm(hardware), after.ctas_per_sm(hardware))
    return replace(said, registers=change(before.registers, after.registers) if said.registers is None else said.registers,
                   shared_bytes=change(before.shared_bytes, after.shared_bytes) if said.shared_bytes is None else said.shared_bytes,
                   occupancy=change(*ctas) if said.occupancy is None else said.occupancy)


def check(program: n.Program, item: Pass) -> None:
    """The verifier's word on a result. Raises KirError, each finding with the pass as its subject."""
    found = [d for d in verify(program) if d.severity == "error"]
    if found:
        raise KirError(*(replace(d, subject=d.subject or str(item)) for d in found))


def _refuse(program: n.Program, site: Site, verdicts: Verdicts, force: bool, direction: Direction) -> tuple[str, ...]:
    """Ids of refused validity preconditions when forced; raises them otherwise."""
    by_id = {p.id: p for p in site.params.preconditions}
    refused = [(by_id[id_], v) for id_, v in verdicts if not v and by_id[id_].kind == "validity"]
    if not refused or force:
        return tuple(p.id for p, _ in refused)
    node = node_at(program, site.path)
    where: dict[str, Any] = {"origin": node.origin, "anchor": anchor_text(program, site.path),
                             "subject": ("~" if direction == "backward" else "") + str(site.params)}
    raise KirError(*(p.diagnostic(v, **where) for p, v in refused))


def notes(item: Pass, verdicts: tuple[tuple[str, Verdict], ...]) -> tuple[Diagnostic, ...]:
    """Advisory findings: profit preconditions that do not hold."""
    by_id = {p.id: p for p in item.preconditions}
    return tuple(by_id[id_].diagnostic(v, subject=str(item)) for id_, v in verdicts if not v and by_id[id_].kind == "profit")


__all__ = [
    "Applied",
    "Offered",
    "Record",
    "Verdicts",
    "apply",
    "check",
    "completed",
    "forward_site",
    "guard_of",
    "judge",
    "looked",
    "misses",
    "notes",
    "offered",
    "refuses",
    "rejection_reason",
    "run_backward",
    "run_forward",
    "sites",
    "tried",
    "undone",
]
