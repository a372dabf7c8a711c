"""Every barrier, shuffle mask and bounds mask of the scan and the radix select as written in CUDA is needed: drop or weaken any one, and
`kir run --check` sees it, with both accesses where two meet. (The GEMM's are in `test_gemm_mutants.py`.)"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kir.diagnostic import KirError
from kir.interp import Result, run
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.anchors import anchors
from kir.ir.paths import replace_at
from kir.ir.visit import transform, walk
from kir.lineage.source import load_expert
from kir.problem import load_problem
from tests.kir.interp.mutation import Mutant, mutants

SKILLS = Path(__file__).parents[2] / "skills"
SOURCES = {"scan": ("scan/scan.cu", "cuda_scan", "tail", "normal"), "topk": ("topk/topk_radix.cu", "cuda_topk_radix", "small", "ties")}
HALF = 0x0000FFFF
SAME_VALUE = {"unguard topk_radix/t/if"}
"""All threads of the CTA store the same zeros: weak, and reported as such."""
VALUES = {
    "scan": {"unguard scan/t/start_tile/s/if", "weaken scan/t/start_tile/s/if", "unguard scan/t/start_tile/if#1/then/s_2/if",
             "weaken scan/t/start_tile/if#1/then/s_2/if"},
    "topk": {"unguard topk_radix/t/j_1_tile/if/else/if"},
}
"""Not bounds of memory: they say which lanes or elements take part, and the sums or places are wrong without them."""


def program(name: str) -> n.Program:
    file, binding, _, _ = SOURCES[name]
    return load_expert(str(SKILLS / "experts" / file), SKILLS / "bindings" / f"{binding}.toml").program


def weakened(p: n.Program) -> Iterator[Mutant]:
    """Shuffles that name half of the warp; loads without their mask; bounds of branches and of a thread's share that let one more in."""
    for anchor, path, s in anchors(p):
        own = tuple(x for name in s.compared_fields if name not in ("body", "then", "orelse") and isinstance(x := getattr(s, name), n.Node))
        for x in (x for part in own for x in walk(part)):
            if isinstance(x, n.Call) and x.fn.startswith("shfl"):
                yield _with(p, path, s, f"half of the mask of {anchor}", x, replace(x, attrs=n.attrs(**{**dict(x.attrs), "mask": HALF})))
            if isinstance(x, n.Load) and (x.clip or x.mask is not None):
                yield _with(p, path, s, f"unmask {anchor}", x, n.Load(x.at, None, None, False, x.cache))
        if isinstance(s, n.For) and any(isinstance(x, n.Var) and x.name == "t" for x in walk(s.hi)):
            yield Mutant(f"weaken {anchor}", replace_at(p, path, (replace(s, hi=build.add(s.hi, 1)),)))
        if isinstance(s, n.If) and isinstance(cond := s.cond, n.Binary) and cond.op in ("lt", "ge"):
            more = build.compare("le", cond.a, cond.b) if cond.op == "lt" else build.compare("ge", cond.a, build.sub(cond.b, 1))
            yield Mutant(f"weaken {anchor}", replace_at(p, path, (replace(s, cond=more),)))


def _with(p: n.Program, path: tuple[int | str, ...], s: n.Stmt, name: str, old: n.Node, new: n.Node) -> Mutant:
    return Mutant(name, replace_at(p, path, (transform(s, lambda a, b: new if a == old else b, lambda x: not isinstance(x, n.Buffer)),)))


def checked(name: str, p: n.Program) -> tuple[Result | None, str]:
    """The checker's result, and who finds fault: an id, "values", or nobody."""
    problem, (_, _, shape, distribution) = load_problem(name), SOURCES[name]
    inputs = problem.inputs(problem.shape(shape), 0, distribution)
    try:
        result = run(p, inputs, problem.scalars(problem.shape(shape)), mode="check")
    except KirError as refused:
        return None, refused.diagnostics[0].id
    if result.errors:
        return result, result.errors[0].id
    return result, "" if problem.compare(result.outputs, inputs, shape).ok else "values"


@pytest.mark.parametrize("name", SOURCES)
def test_of_the_cuda_source(name: str) -> None:
    p = program(name)
    assert checked(name, p)[1] == ""
    every = {m.name: m for m in (*mutants(p), *weakened(p))}
    assert {k.partition(" ")[0] for k in every} >= {"drop", "unguard", "weaken"}
    found = {k: checked(name, m.program) for k, m in every.items()}
    assert {k for k, (_, who) in found.items() if not who} <= SAME_VALUE
    assert {k for k, (_, who) in found.items() if who == "values"} == VALUES[name]
    for k, (result, who) in found.items():
        if who in ("KIR-I014", "KIR-I018"):
            assert result is not None
            first = result.errors[0]
            assert len(first.accesses) == 2 and all(a.origin is not None for a in first.accesses), k
