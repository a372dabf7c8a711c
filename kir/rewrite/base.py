"""What a pass is: a frozen dataclass whose fields are its parameters, with a pattern and a rewrite for each direction.

A subclass declares its class variables and four methods: `match` and `optimize` (forward), `match_inverse` and `deoptimize` (backward).
Everything else (finding sites, names and statement order lost on the way, checks, records) is done once, in `kir.rewrite.driver`.
`docs/extending/writing-a-pass.md` shows how.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, field, fields, replace
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, cast, get_args, get_origin, get_type_hints

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError, Origin, UsageError, did_you_mean, error, usage
from kir.ir import nodes as n
from kir.ir.canonical import alpha_equal
from kir.rewrite.anchor import anchor_text
from kir.rewrite.edit import Path, Place, node_at, places
from kir.rewrite.guard import can_be_checked, without_guard
from kir.rewrite.options import Option, options_text
from kir.rewrite.residue import NOTHING, Residue, is_same, moved, residue, restore
from kir.rewrite.verdict import ANYWHERE, Category, Context, Verdict, guard_of

_NONE: Mapping[str, Any] = MappingProxyType({})
_NO_HINTS: Mapping[Path, tuple[Path, ...]] = MappingProxyType({})
_MOST = 2 ** 31 - 1
"""The largest whole number that a parameter takes: extents and counts are i32 in the IR."""


@dataclass(frozen=True)
class Site:
    """A place where a pass applies: `path` in the program, `params` the pass with every parameter decided, `captures` what the
    pattern bound there (free for the pass to choose; not part of equality)."""

    path: Path
    params: Pass
    captures: Mapping[str, Any] = field(default_factory=lambda: _NONE, compare=False, repr=False)
    taken: tuple[n.Program, n.Program, Witness] | None = field(default=None, compare=False, repr=False)
    """For a backward site that has been tried: the program it is a site of, the simpler one, and the witness."""


@dataclass(frozen=True)
class Miss:
    """A near miss: the pattern began to match at a place, and why it does not."""

    reason: str


Found = Site | tuple[Site, ...] | Miss | None
"""What a pattern says of a place: a site, several (one for each choice of parameters), a near miss, or nothing."""


@dataclass(frozen=True)
class Rewritten:
    """The result of one direction: the new program, and the path in it where the *other* direction applies. `hints` say where
    statements went that matching old with new would not find: several paths for one that was copied, none for one that is gone."""

    program: n.Program
    path: Path
    hints: Mapping[Path, tuple[Path, ...]] = field(default_factory=lambda: _NO_HINTS, compare=False)


@dataclass(frozen=True)
class Witness:
    """What `backward` returns beside the simpler program: where and with which parameters `forward` restores the original."""

    params: Pass
    path: Path
    residue: Residue = NOTHING
    guard: n.Expr | None = None
    """The condition under which the launch plan took the original, if it was guarded."""
    there: tuple[Site, Rewritten] | None = field(default=None, compare=False, repr=False)
    """The site of `forward` in the simpler program, and how that was reached, where they were found on the way."""


@dataclass(frozen=True)
class Effect:
    """The predicted change (after minus before, of the forward direction): bytes of global traffic, flops, registers per thread,
    bytes of shared memory, CTAs per SM. None: not predicted."""

    global_bytes: int | None = None
    flops: int | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    occupancy: int | None = None

    def to_json(self) -> dict[str, int]:
        """What is predicted."""
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}


Evaluate = Callable[[n.Program, Site, Context], Verdict]


@dataclass(frozen=True)
class Precondition:
    """A condition of a pass's *forward* direction, evaluated on the simpler program at the site where forward applies. `kind`:
    without `validity` the result may be wrong; `profit` is advisory and never refuses. `sentence` states what must hold."""

    id: str
    kind: Literal["validity", "profit"]
    category: Category
    sentence: str
    evaluate: Evaluate

    def judge(self, program: n.Program, site: Site, context: Context, assume: frozenset[str], guard: frozenset[str]) -> Verdict:
        """The verdict, with an undecided one turned into `guarded` or `assumed` when its id is in `guard` or `assume`."""
        verdict = self.evaluate(program, site, context)
        if verdict.kind == "unknown" and self.id in guard and verdict.guard is not None and can_be_checked(verdict.guard, program):
            return replace(verdict, kind="guarded")
        if verdict.kind == "unknown" and self.id in assume:
            return replace(verdict, kind="assumed")
        return verdict

    def diagnostic(self, verdict: Verdict, **where: Any) -> Diagnostic:
        """The refusal that a verdict means."""
        attempt = verdict.attempt or (f"--assume {self.id}" if verdict.kind == "unknown" else "")
        attempt += f", or a check at launch: guard {self.id}" if verdict.kind == "unknown" and verdict.guard is not None else ""
        return Diagnostic(self.id, verdict.reason, witness=verdict.witness, needs=verdict.needs or self.sentence, attempt=attempt,
                          verdict=f"{verdict.kind} ({self.category})", severity="error" if self.kind == "validity" else "note", **where)


@dataclass(frozen=True)
class Pass:
    """Base of every pass. Its name is its module's (`stage_shared.py` is `stage-shared`)."""

    name: ClassVar[str] = ""
    intent: ClassVar[str] = ""
    """The abstract optimization, as in the catalogue."""
    catalogue: ClassVar[tuple[int, ...]] = ()
    """Row numbers of the catalogue that it covers."""
    claim: ClassVar[str] = ""
    """One sentence: what it does and why that helps."""
    numerics: ClassVar[str] = "bitwise"
    """`bitwise`, `reassociated(axis)`, `rounding-moved(point)` or `approximate(ulp)`."""
    requires: ClassVar[tuple[str, ...]] = ()
    provides: ClassVar[tuple[str, ...]] = ()
    conflicts: ClassVar[tuple[str, ...]] = ()
    """State features (`mma`, `pipelined`), derived from the IR, that must hold, come to hold, or must not hold before forward."""
    preconditions: ClassVar[tuple[Precondition, ...]] = ()
    least: ClassVar[Mapping[str, int]] = _NONE
    """The smallest value of a whole-number parameter, where that is not 0 (or its default, if that is below 0)."""
    walked: ClassVar[bool] = True
    """Whether a walk to naive undoes it; False where that leads to a form that only a surface asks for."""
    one_of_several: ClassVar[bool] = False
    """Whether undoing it takes one statement apart where another pass may take all of a block apart together, and no longer can then: where a walk does not
    come to its end, that is what it puts off first."""
    by_elements: ClassVar[bool] = False
    """Whether undoing it takes the tiles apart that a statement names: what could be written out there no longer can then, so a walk does that first."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in cls.__dict__:
            cls.name = cls.__module__.rpartition(".")[2].replace("_", "-")

    # ------------------------------------------------------------------------------------------- what a pass implements
    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """Whether `forward` with these parameters applies at `node`. Parameters left at an open default may be decided here: then
        there is a site for each choice, its `params` the pass with every parameter decided."""
        raise TypeError(f"{self.name} has no match")

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """Whether `backward` applies at `node`; the site's `params` are those found there. It may be optimistic: the framework
        keeps only sites whose `deoptimize` is restored by `optimize`."""
        raise TypeError(f"{self.name} has no match_inverse")

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The rewrite; called on `site.params`."""
        raise TypeError(f"{self.name} has no optimize")

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The inverse rewrite; called on `site.params`. Names and statement order need not be kept for `optimize`."""
        raise TypeError(f"{self.name} has no deoptimize")

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The predicted change of the forward direction at `site`, before it is run; by default none is claimed."""
        return Effect()

    # ------------------------------------------------------------------------------------ what a pass may widen, if it must
    def sites(self, program: n.Program) -> Iterator[Site]:
        """Candidates of the forward direction, in reading order."""
        for path, node in places(program):
            yield from found_sites(self.match(program, path, node))

    def inverse_sites(self, program: n.Program) -> Iterator[Site]:
        """Candidates of the backward direction, in reading order."""
        for path, node in places(program):
            yield from found_sites(self.match_inverse(program, path, node))

    # ------------------------------------------------------------------------------------------------- given to every pass
    def forward(self, program: n.Program, site: Site, residue: Residue | None = None) -> n.Program:
        """`optimize` at a site, and the residue put back: the exact inverse of `backward`."""
        return run_forward(program, site, residue or Residue()).program

    def backward(self, program: n.Program, site: Site) -> tuple[n.Program, Witness]:
        """`deoptimize` at a site, with the witness that `forward` needs. Raises KirError KIR-R006 when no witness restores it."""
        return run_backward(program, site)

    def options(self) -> dict[str, Option]:
        """The parameters that differ from their defaults."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.default is MISSING or getattr(self, f.name) != f.default}

    def __str__(self) -> str:
        return self.name + options_text(self.options())

    @classmethod
    def with_options(cls, options: Mapping[str, Any], places: Mapping[str, Origin] = _NONE) -> Self:
        """An instance from parsed options, which stand at `places`. Raises UsageError KIR-R002 for an unknown parameter, KIR-R003 for
        a wrong type, or a whole number that it cannot take."""
        if not options and (plain := cls.__dict__.get("_plain")) is not None:
            return cast(Self, plain)
        hints = parameter_types(cls) if options else _NONE
        values = {}
        for key, value in options.items():
            if key not in hints:
                hint = did_you_mean(key, hints)
                raise usage("KIR-R002", f"'{cls.name}' has no parameter '{key}'{f'; {hint}' if hint else ''}", origin=places.get(key),
                            needs=f"one of {', '.join(hints)}" if hints else "no parameter")
            try:
                values[key] = _converted(cls.name, key, value, hints[key])
                if hints[key] is int:
                    _bounded(cls, key, value)
            except UsageError as bad:
                raise UsageError(*(replace(d, origin=places.get(key)) for d in bad.diagnostics)) from None
        missing = [f.name for f in fields(cls) if f.default is MISSING and f.name not in values]
        if missing:
            raise usage("KIR-R003", f"'{cls.name}' needs a value for '{missing[0]}'", attempt=f"{cls.name}{{{missing[0]}=..}}")
        made = cls(**values)
        if not options:
            setattr(cls, "_plain", made)  # noqa: B010  # asked for at each look at a program; a class has its own, not its base's
        return made


def _bounded(cls: type[Pass], key: str, value: int) -> None:
    """Refuse a whole number that a parameter cannot take."""
    default = next(f.default for f in fields(cls) if f.name == key)
    least = cls.least.get(key, min(0, default) if isinstance(default, int) else 0)
    if not least <= value <= _MOST:
        raise usage("KIR-R003", f"'{cls.name}': {key}={value} is {'too small' if value < least else 'too large'}",
                    needs=f"a whole number from {least} on" if value < least else f"a whole number up to {_MOST}")


def found_sites(found: Found) -> tuple[Site, ...]:
    """The sites of a match."""
    return found if isinstance(found, tuple) else (found,) if isinstance(found, Site) else ()


def forward_site(program: n.Program, params: Pass, path: Path) -> Site:
    """The site of a pass at a path. Raises KirError KIR-R004 when the pattern does not match there."""
    found = params.match(program, path, node_at(program, path))
    for site in found_sites(found):
        if site.params == params:
            return site
    reason = found.reason if isinstance(found, Miss) else "the pattern does not match"
    raise error("KIR-R004", f"{params} does not apply here: {reason}", anchor=anchor_text(program, path))


def run_forward(program: n.Program, site: Site, left: Residue) -> Rewritten:
    """`optimize`, and the residue put back."""
    made = site.params.optimize(program, site)
    return Rewritten(restore(made.program, left), moved(made.path, left), made.hints) if left else made


def run_backward(program: n.Program, site: Site, source: tuple[n.Program, Path] | None = None) -> tuple[n.Program, Witness]:
    """`deoptimize`, and the witness from which `forward` restores `program`, labels included. `source` is the program of which `optimize` made this
    one, and where: if that is what comes out, forward makes this one of it again. Raises KirError KIR-R006."""
    if site.taken is not None and site.taken[0] is program:
        return site.taken[1:]
    bare = without_guard(program, str(site.path[0]))
    if bare is not None:
        core, guard, other = bare
        for same in found_sites(site.params.match_inverse(core, site.path, node_at(core, site.path))):
            if same.params == site.params:
                simpler, witness = run_backward(core, same)
                slow = replace(core, kernels=tuple(other if k.name == other.name else k for k in core.kernels))
                if alpha_equal(simpler, slow) and _guarded_by(simpler, witness) == guard:
                    return simpler, replace(witness, guard=guard, there=None)
    made = site.params.deoptimize(program, site)
    known = source is not None and made.path == source[1] and is_same(made.program, source[0])
    if known and source is not None:
        made = replace(made, program=source[0])  # what is worked out of it stays with it
    try:
        there = forward_site(made.program, site.params, made.path)
    except KirError as bad:
        reason = bad.diagnostics[0].message
        raise not_restored(program, site, reason) from bad
    if known:
        return made.program, Witness(site.params, made.path, there=(there, made))
    again = there.params.optimize(made.program, there)
    left = residue(again.program, program)
    if left is None:
        raise not_restored(program, site, "forward gives another program than this one")
    return made.program, Witness(site.params, made.path, left, there=(there, made))


def _guarded_by(simpler: n.Program, witness: Witness) -> n.Expr | None:
    """The guard that forward writes from a simpler program, where it may guard whatever it can: another one is of another step."""
    there = (witness.there or (forward_site(simpler, witness.params, witness.path),))[0]
    known = frozenset(p.id for p in there.params.preconditions)
    return guard_of(tuple((p.id, p.judge(simpler, there, ANYWHERE, frozenset(), known)) for p in there.params.preconditions))


def not_restored(program: n.Program, site: Site, reason: str) -> KirError:
    """The refusal of a step that the other direction would not undo exactly (KIR-R006)."""
    return error("KIR-R006", f"the inverse of {site.params} is not exact here: {reason}", anchor=anchor_text(program, site.path))


def parameter_types(cls: type[Pass]) -> Mapping[str, Any]:
    """The declared type of each parameter."""
    known: Mapping[str, Any] = _parameter_types(cls)  # type: ignore[arg-type]  # mypy takes a class for unhashable
    return known


@cache
def _parameter_types(cls: type[Pass]) -> Mapping[str, Any]:
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}


def _converted(pass_name: str, key: str, value: Any, hint: Any) -> Any:
    if get_origin(hint) is tuple and isinstance(value, (list, tuple)):
        return tuple(_converted(pass_name, key, v, get_args(hint)[0]) for v in value)
    choices = get_args(hint) if str(get_origin(hint)) == "typing.Literal" else ()
    if choices:
        if value not in choices:
            raise usage("KIR-R003", f"'{pass_name}': {key}={value} is none of {', '.join(map(str, choices))}")
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    shown = getattr(hint, "__name__", str(hint))
    raise usage("KIR-R003", f"'{pass_name}': {key}={value} is no {re.sub('[^a-z, .]', '', shown) or shown}")


__all__ = ["Context", "Effect", "Found", "Miss", "Option", "Pass", "Path", "Place", "Precondition", "Residue", "Rewritten", "Site",
           "Witness"]
