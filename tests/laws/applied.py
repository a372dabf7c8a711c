"""What each pass does in each program that ships: where it applies, and what comes of it, worked out once for all laws of a program."""
from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pytest

from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.rewrite import Applied, Site, apply, each_site, passes
from kir.rewrite.pipelines.text import Direction
from tests.laws.walks import MOST, parts
from tests.programs import ROOT, SKILLS, normal

PASSES = {cls.name: cls for cls in passes()}
PARTS = parts(PASSES)
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")
FIRST = 2
"""Sites of which more than one law asks what the pass makes of them."""
FILES = sorted(str(p.relative_to(ROOT)) for folder in (SKILLS, ROOT / "tests") for p in folder.rglob("*.kir")
               if not (p.name == "naive.kir" and "carriers" in p.parts) and "lineages" not in p.parts and p.parent.name != "gated_delta_rule_d128")
"""Every program but the states of lineages, which are replayed; the naive one of a contract is that of its problem, and the answers of one contract
are the experts of its problem, without the grid axes (`tests/kir/lineage/carrier/test_shipped.py` compares them)."""


def each(files: list[str]) -> pytest.MarkDecorator:
    """A test of each file. All tests of one, in whatever module of this folder, come one after another: what one finds in it the next need not look for."""
    return pytest.mark.parametrize("file", files, scope="package")


def of(file: str) -> n.Program:
    """A shipped program in normal form."""
    return normal(ROOT / file)


class _Sites:
    """Sites in their order, looked for as they are asked for."""

    def __init__(self, waiting: Iterator[Site]) -> None:
        self.waiting, self.found = waiting, list[Site]()

    def until(self, count: int | None) -> tuple[Site, ...]:
        """So many of the first, or all."""
        while (count is None or len(self.found) < count) and (more := next(self.waiting, None)) is not None:
            self.found.append(more)
        return tuple(self.found[:count])


@lru_cache(maxsize=2 * len(PASSES))
def _sites(name: str, file: str, direction: Direction) -> _Sites:
    return _Sites(each_site(PASSES[name].with_options({}), of(file), direction))


def found(name: str, file: str, direction: Direction, count: int | None = MOST) -> tuple[Site, ...]:
    """The first sites of a pass in a program, without options; all for None."""
    return _sites(name, file, direction).until(count)


def applied(name: str, file: str, direction: Direction, k: int) -> Applied | KirError:
    """A pass applied at one of these sites, or why it refuses."""
    return _first_applied(name, file, direction, k) if k < FIRST else _newly_applied(name, file, direction, k)


def _newly_applied(name: str, file: str, direction: Direction, k: int) -> Applied | KirError:
    site = found(name, file, direction, k + 1)[k]
    try:
        return apply(of(file), site.params, site, direction)
    except KirError as refused:
        return refused


_first_applied = lru_cache(maxsize=2 * FIRST * len(PASSES))(_newly_applied)
