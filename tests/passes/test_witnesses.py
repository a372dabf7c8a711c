"""A refusal that names sizes fails at them: each such witness of the case files is run, forced, at the sizes that it names."""
from __future__ import annotations

from dataclasses import replace

import pytest

from kir.base.diagnostic import KirError
from kir.ir.types import DType
from kir.rewrite.conformance.case import Case, read_cases
from kir.rewrite.driver import judge
from kir.rewrite.pipelines.pipeline import find_site
from tests.passes.test_cases import FOLDER

MOST = 4096
"""Sizes above this are not run."""


def named() -> list[tuple[str, Case, dict[str, int]]]:
    """Cases of one forward step that are refused, with the sizes at which the refusal says that they fail."""
    found = []
    for file in sorted(FOLDER.glob("*.toml")):
        for case in read_cases(file):
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
                found.append((f"{file.stem}: {case.name}", case, {**dict(case.sizes), **at}))
    return found


WITNESSES = named()


def test_there_are_such_refusals() -> None:
    assert len(WITNESSES) >= 15


@pytest.mark.parametrize(("case", "sizes"), [pytest.param(case, sizes, id=name) for name, case, sizes in WITNESSES])
def test_a_refusal_fails_where_it_says(case: Case, sizes: dict[str, int]) -> None:
    assert replace(case, sizes=tuple(sizes.items())).catch() != ()
