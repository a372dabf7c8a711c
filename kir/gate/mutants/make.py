"""Mutants of a program: the rules at every place, those that are well formed, and a fixed sample of them."""
from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.gate.mutants import carried, edges, terms
from kir.gate.mutants.sites import Change, Site, put, sites
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.rules.verify import verify

Finds = Callable[[Site], Iterator[Change]]


@dataclass(frozen=True)
class Rule:
    """A way to make a program wrong, at each place where it applies."""

    name: str
    finds: Finds

    @property
    def doc(self) -> str:
        """What it does, in a sentence."""
        return " ".join((self.finds.__doc__ or "").split())


@dataclass(frozen=True, eq=False)
class Mutant:
    """One change of a program: by which rule, where, and the changed program, made when it is asked for."""

    rule: str
    site: Site
    change: Change

    @property
    def anchor(self) -> str:
        """The statement that was changed."""
        return self.site.anchor

    @property
    def how(self) -> str:
        """What was done, in a few words."""
        return self.change.how

    @property
    def name(self) -> str:
        """Rule, place and change: stable as long as the program is."""
        return f"{self.rule} {self.anchor}: {self.how}"

    @cached_property
    def program(self) -> n.Program | None:
        """The changed program; None where the verifier, or the normal form of an expression, does not have it."""
        try:
            made: n.Program = put(self.site.program, self.site.address, self.change.new)
            return None if verify(made) else made
        except (KirError, TypeError, ValueError):
            return None


RULES: tuple[Rule, ...] = tuple(Rule(f.__name__.replace("_", "-"), f) for f in (*carried.RULES, *edges.RULES, *terms.RULES))
"""All rules, each named as its function."""


def candidates(program: n.Program, rules: Iterable[Rule] = RULES) -> Iterator[Mutant]:
    """Every change that a rule proposes, in reading order; some are not well formed, and some are the program itself."""
    chosen = tuple(rules)
    for site in sites(program):
        for rule in chosen:
            for change in rule.finds(site):
                yield Mutant(rule.name, site, change)


def mutants(program: n.Program, rules: Iterable[Rule] = RULES) -> Iterator[Mutant]:
    """The well-formed mutants, each another program than the original and than those before it."""
    yield from distinct(program, candidates(program, rules))


def distinct(program: n.Program, among: Iterable[Mutant]) -> Iterator[Mutant]:
    """Those of some mutants that are well formed and differ from the original and from one another."""
    seen = {content_hash(program)}
    for m in among:
        if m.program is not None and (key := content_hash(m.program)) not in seen:
            seen.add(key)
            yield m


def spread(program: n.Program, most: int, rules: Sequence[Rule] = RULES) -> list[Mutant]:
    """At most so many mutants, spread over the rules by turns and over the places of a rule: the same ones each time, the first of many those of few.
    The turns begin with another rule for another program."""
    own = content_hash(program)
    by_rule: dict[str, list[Mutant]] = {r.name: [] for r in sorted(rules, key=lambda r: _digest(own + r.name))}
    for m in candidates(program, rules):
        by_rule[m.rule].append(m)
    queues = [sorted(q, key=lambda m: _digest(m.name)) for q in by_rule.values() if q]

    def turns() -> Iterator[Mutant]:
        for i in range(max(map(len, queues), default=0)):
            yield from (q[i] for q in queues if i < len(q))

    chosen: list[Mutant] = []
    for m in distinct(program, turns()):
        chosen.append(m)
        if len(chosen) >= most:
            break
    return chosen


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
