"""Where passes can be taken back from a program, and in which order that is tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from itertools import takewhile
from typing import Any

from kir.carrier import declared
from kir.dataclass import dataclass
from kir.diagnostic import Diagnostic
from kir.ir.measure import Measure, measure
from kir.ir.nodes import Program
from kir.lineage.order import Declared, peel_ranks
from kir.rewrite import Pass, Site, passes, sites
from kir.rewrite.anchor import anchor_text
from kir.rewrite.driver import tried
from kir.rewrite.edit import Path, Place, node_at
from kir.rewrite.registry import failed

COMPONENTS = Measure._fields
LOWERS_NONE = len(COMPONENTS)
LAST = "threads"
"""The component that is lowered last: a CTA keeps its threads while something is spread over them."""


@dataclass(frozen=True)
class Candidate:
    """A place where a pass can be taken back: ``text`` is the backward step as pipeline text, unique within a program."""

    name: str
    intent: str
    anchor: str
    text: str
    handle: Any = field(compare=False, repr=False, default=None)


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
    for site in sites(cls.with_options({}), program, "backward"):
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
    _tried: dict[tuple[Pass, int], tuple[Place, float]] = field(default_factory=dict, repr=False, compare=False)
    """The nodes at which a pass, with its parameters, could be taken back, and the component of the measure that this lowered first."""

    @cached_property
    def passes(self) -> tuple[type[Pass], ...]:
        """Every usable pass, what is peeled first in front."""
        return in_order(self.only)

    def untried(self, program: Program, near: Iterable[Path] = (), most: int | None = None) -> Iterator[Candidate]:
        """The places where a pass can be taken back that lower the measure: first what lowers its leftmost component; then in the order
        of the passes. Which of them a precondition refuses is not found out. What could be taken back at a statement in a program before, and
        lowered the measure there, is not tried again where the same statement is found to match: to take it back may then fail, or lower
        nothing. `most`: so many places are tried anew of each pass, those that are nearest to the paths `near`."""
        wanted = [tuple(map(str, path)) for path in near]
        found: list[tuple[float, int, Candidate]] = []
        for cls in self.passes:
            if cls.name not in self.failures:
                try:
                    found += [(component, len(found) + number, each) for number, (component, each) in enumerate(self._carried(program, cls, wanted, most))]
                except Exception as fault:
                    self.failures[cls.name] = failed(cls, "in a walk, which went on without it", fault)
        yield from (each for _, _, each in sorted(found, key=lambda each: each[:2]))

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
