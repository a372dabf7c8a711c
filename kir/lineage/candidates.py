"""Where passes can be undone from a program, and in which order that is tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import takewhile
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.base.fork_map import halved
from kir.ir.measures.measure import Measure, measure
from kir.ir.nodes import Program
from kir.lineage.carrier import declared
from kir.lineage.order import Declared, peel_ranks
from kir.rewrite import Pass, Site, each_site, pass_class, passes
from kir.rewrite.anchor import anchor_text
from kir.rewrite.driver import tried
from kir.rewrite.edit import Path, Place, node_at
from kir.rewrite.registry import failed, pass_names

COMPONENTS = Measure._fields
LOWERS_NONE = len(COMPONENTS)
LAST = "threads"
"""The component that is lowered last: a CTA keeps its threads while something is spread over them."""


@dataclass(frozen=True)
class Candidate:
    """A place where a pass can be undone: ``text`` is the backward step as pipeline text, unique within a program."""

    name: str
    intent: str
    anchor: str
    text: str
    handle: Any = field(compare=False, repr=False, default=None)
    judged: tuple[Any, ...] = field(compare=False, repr=False, default=())
    """What was found out about it when it was found, if anything."""

    def __getstate__(self) -> dict[str, Any]:
        """What another process is told: where the site is, not what was bound there (`Looks.site` finds that again)."""
        site: Site = self.handle
        return {**self.__dict__, "handle": (site.path, site.params)}

    def __setstate__(self, told: dict[str, Any]) -> None:
        self.__dict__.update(told, handle=Site(*told["handle"]))


@dataclass(frozen=True)
class Told:
    """What a pass declares: its features, whether it is looked for, and whether it asks a carrier."""

    features: Declared
    looked_for: bool
    carrier: bool


@dataclass(frozen=True)
class _Row:
    """What a look finds of one pass: the places, each with the component of the measure that it lowers first, or its failure."""

    told: Told
    found: tuple[tuple[float, Candidate], ...] = ()
    failure: Diagnostic | None = None


def in_order(only: Callable[[type[Pass]], bool] = lambda cls: True) -> tuple[type[Pass], ...]:
    """Every usable pass, or some ``only``, what is peeled first in front; ties in order of name."""
    found = tuple(each for each in passes() if each.walked and only(each))
    ranks = peel_ranks(Declared(each.name, each.requires, each.provides, each.conflicts) for each in found)
    return tuple(sorted(found, key=lambda each: (ranks[each.name], each.name)))


def component(program: Program, simpler: Program, whole: bool) -> float:
    """The first component of the measure that a step back lowers; past the last when it lowers none first."""
    if whole:
        return LOWERS_NONE - 0.5
    before, after = measure(program), measure(simpler)
    changed = next((index for index, (old, new) in enumerate(zip(before, after, strict=True)) if old != new), LOWERS_NONE)
    last = changed < LOWERS_NONE and COMPONENTS[changed] == LAST
    return changed if after < before and not last else LOWERS_NONE


def candidates(program: Program, cls: type[Pass]) -> Iterator[Candidate]:
    """Every place from which a pass's forward direction restores the program exactly."""
    named = _Names(program, cls)
    for site in each_site(cls.with_options({}), program, "backward"):
        yield named.candidate(site)


@dataclass(frozen=True)
class _Names:
    """The candidates of a pass in a program, each by a text of its own."""

    program: Program
    cls: type[Pass]
    given: Counter[str] = field(default_factory=Counter)

    def candidate(self, site: Site) -> Candidate:
        """The candidate for a site."""
        at = anchor_text(self.program, site.path)
        text = f"~{site.params}@{at}"
        self.given[text] += 1
        return Candidate(self.cls.name, self.cls.intent or self.cls.name, at, text if self.given[text] == 1 else f"{text}#{self.given[text]}", site)


@dataclass(frozen=True)
class Looks:
    """One look after another at programs that differ in a step: what is tried at each is kept for the next. ``only`` are the passes that
    are looked for; ``failures`` are those whose own code failed: the others are looked for without them."""

    only: Callable[[type[Pass]], bool] = lambda cls: True
    failures: dict[str, Diagnostic] = field(default_factory=dict, repr=False, compare=False)
    told: dict[str, Told] = field(default_factory=dict, repr=False, compare=False)
    """What the passes declare, once two processes have looked."""
    _tried: dict[tuple[Pass, int], tuple[Place, float]] = field(default_factory=dict, repr=False, compare=False)
    """The nodes at which a pass, with its parameters, could be undone, and the component of the measure that this lowered first."""

    @cached_property
    def passes(self) -> tuple[type[Pass], ...]:
        """Every usable pass, what is peeled first in front."""
        return in_order(self.only)

    def which(self, wanted: Callable[[Told], bool]) -> Iterator[type[Pass]]:
        """The usable passes that declare what is wanted, in order of name."""
        if self.told:
            yield from (pass_class(name) for name, told in self.told.items() if wanted(told))
        else:
            yield from (cls for cls in passes() if wanted(self._told(cls)))

    def untried(self, program: Program, near: Iterable[Path] = (), most: int | None = None,
                judge: Callable[[Site], Any] | None = None) -> Iterator[Candidate]:
        """The places where a pass can be undone that lower the measure: first what lowers its leftmost component; then in the order
        of the passes. Which of them a precondition refuses is not found out. What could be undone at a statement in a program before, and
        lowered the measure there, is not tried again where the same statement is found to match: to undo it may then fail, or lower
        nothing. `most`: so many places are tried anew of each pass, those that are nearest to the paths `near`. With a `judge` two processes
        share the first look, where none of the passes may be imported yet; each candidate then has its word."""
        wanted = [tuple(map(str, path)) for path in near]
        found: list[tuple[float, int, Candidate]] = []
        if judge is not None and not self.told and "passes" not in self.__dict__:
            rows = [row for row in halved(pass_names(), lambda name: self._row(name, program, wanted, most, judge)) if row is not None]
            self.told.update((row.told.features.name, row.told) for row in rows)
            ranks = peel_ranks(row.told.features for row in rows if row.told.looked_for)
            for row in sorted((row for row in rows if row.told.looked_for), key=lambda row: (ranks[row.told.features.name], row.told.features.name)):
                found += [(lowered, len(found) + number, each) for number, (lowered, each) in enumerate(row.found)]
                for lowered, each in row.found:
                    node = node_at(program, each.handle.path)
                    self._tried[each.handle.params, id(node)] = node, lowered
                if row.failure is not None:
                    self.failures[row.told.features.name] = row.failure
        else:
            for cls in self.passes:
                seen = self._looked(cls, program, wanted, most) if cls.name not in self.failures else None
                if seen is not None and seen.failure is not None:
                    self.failures[cls.name] = seen.failure
                elif seen is not None:
                    found += [(lowered, len(found) + number, each) for number, (lowered, each) in enumerate(seen.found)]
        yield from (each for _, _, each in sorted(found, key=lambda each: each[:2]))

    def site(self, program: Program, candidate: Candidate) -> Site:
        """The site of a candidate of a program, with what the pattern binds there."""
        site: Site = candidate.handle
        if not candidate.judged or site.taken is not None:
            return site
        found = type(site.params).with_options({}).inverse_sites(program)
        return next((each for each in found if each.path == site.path and each.params == site.params), site)

    def _told(self, cls: type[Pass]) -> Told:
        """What a pass declares."""
        return Told(Declared(cls.name, cls.requires, cls.provides, cls.conflicts), cls.walked and self.only(cls), bool(declared(cls)))

    def _row(self, name: str, program: Program, near: Sequence[Path], most: int | None, judge: Callable[[Site], Any]) -> _Row | None:
        """A look for one pass, by its name, with a judge's word on each place; None for a pass that cannot be used."""
        try:
            cls = pass_class(name)
        except KirError:
            return None
        row = self._looked(cls, program, near, most) if cls.walked and self.only(cls) else _Row(self._told(cls))
        return replace(row, found=tuple((lowered, replace(each, judged=(judge(each.handle),))) for lowered, each in row.found))

    def _looked(self, cls: type[Pass], program: Program, near: Sequence[Path], most: int | None) -> _Row:
        """A look for one pass."""
        try:
            return _Row(self._told(cls), tuple(self._carried(program, cls, near, most)))
        except Exception as fault:
            return _Row(self._told(cls), (), failed(cls, "in a walk, which went on without it", fault))

    def _carried(self, program: Program, cls: type[Pass], near: Sequence[Path], most: int | None) -> Iterator[tuple[float, Candidate]]:
        """A pass's candidates that lower the measure, each with the component that it lowers first."""
        named, found = _Names(program, cls), [(site, node_at(program, site.path)) for site in cls.with_options({}).inverse_sites(program)]
        known = [self._known(site, node) for site, node in found]
        anew = sorted((k for k, lowered in enumerate(known) if lowered is None), key=lambda k: -nearness(found[k][0].path, near))[:most]
        for k, (site, node) in enumerate(found):
            lowered = known[k]
            if lowered is None and k in anew:
                after = tried(program, site)
                if after is None or after.taken is None or measure(after.taken[1]) >= measure(program):
                    continue
                site, lowered = after, component(program, after.taken[1], bool(declared(cls)))
                self._tried[site.params, id(node)] = node, lowered
            if lowered is not None:
                yield lowered, named.candidate(site)

    def _known(self, site: Site, node: Place) -> float | None:
        """The component that a site was found to lower at a node."""
        same, lowered = self._tried.get((site.params, id(node)), (None, 0.0))
        return lowered if same is node else None


def nearness(path: Path, places: Sequence[Path]) -> int:
    """How many steps a path has in common with the one of some places (as texts) with which it has most."""
    own = tuple(map(str, path))
    return max((sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(own, place, strict=False))) for place in places), default=0)
