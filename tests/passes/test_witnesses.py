"""A refusal that names sizes fails at them: each such witness of the case files is run, forced, at the sizes that it names."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kir.base.diagnostic import KirError
from kir.ir.types import DType
from kir.rewrite.conformance.case import Case
from kir.rewrite.driver import judge
from kir.rewrite.pipelines.pipeline import find_site
from tests.passes.test_cases import FILES, cases

MOST = 4096
"""Sizes above this are not run."""


def witnesses() -> Iterator[tuple[str, Case, dict[str, int]]]:
    """Cases of one forward step that are refused, with the sizes at which the refusal says that they fail."""
    for name in FILES:
        for case in cases(name):
            steps = case.pipeline.steps
            if case.after is not None or len(steps) != 1 or steps[0].direction != "forward" or not case.caught_by:
                continue
            try:
                _, site = find_site(case.before, steps[0])
                verdict = dict(judge(case.before, site, case.context)).get(case.id)
            except KirError:
                continue
            sizes = {p.name for p in case.before.params if p.role == "size" and isinstance(p.of, DType)}
            at = {k: v for k, v in verdict.at if k in sizes} if verdict is not None else {}
            if at and max(at.values()) <= MOST:
                yield f"{name}: {case.name}", case, {**dict(case.sizes), **at}


def test_a_refusal_fails_where_it_says() -> None:
    caught = {name: replace(case, sizes=tuple(sizes.items())).catch() for name, case, sizes in witnesses()}
    assert len(caught) >= 15
    assert [name for name, found in caught.items() if found == ()] == []
