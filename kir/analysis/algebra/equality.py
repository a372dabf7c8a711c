"""Whether two programs compute the same over the reals, at given sizes, for all inputs."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from kir.analysis.algebra.execution import Run
from kir.analysis.algebra.memory import Array
from kir.analysis.algebra.normal import Normal
from kir.analysis.algebra.terms import Term, Terms, Undecided, Value
from kir.analysis.target.metas import at_defaults
from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.printer import expr_text
from kir.ir.types import DType
from kir.ir.visit import substitute

MOST_OPERATIONS = 1_500_000


@dataclass(frozen=True)
class Answer:
    """`proved`: equal for all inputs at the sizes, over the reals; else not decided, and `why`. `elements` were compared, `alike` of them the same term."""

    status: Literal["proved", "not decided"]
    why: str = ""
    elements: int = 0
    alike: int = 0


def equal_over_reals(a: n.Program, b: n.Program, sizes: Mapping[str, int], most: int = MOST_OPERATIONS, called: Mapping[str, str] | None = None) -> Answer:
    """Whether the outputs of two programs are equal as functions of real inputs, for all inputs at `sizes` (integers by name). `most` bounds the work;
    `called` says what `b` calls tensors to which `a` gives other names."""
    if (broken := next((f for p in (a, b) for f in p.facts if _is_false(f, p, sizes)), None)) is not None:
        return Answer("not decided", f"the fact {expr_text(broken)} does not hold there")
    terms, normal = Terms(most), Normal(2 * most)
    try:
        first, second = Run(at_defaults(a), sizes, terms, called or {}).outputs(), Run(at_defaults(b), sizes, terms, {}).outputs()
        if {k: v.shape for k, v in first.items()} != {k: v.shape for k, v in second.items()}:
            return Answer("not decided", "the outputs have other names or shapes")
        return _compared(first, second, terms, normal)
    except Undecided as bad:
        return Answer("not decided", str(bad))
    except RecursionError:
        return Answer("not decided", "an expression is too deep")


def _compared(first: Mapping[str, Array], second: Mapping[str, Array], terms: Terms, normal: Normal) -> Answer:
    count = alike = 0
    for name, x in first.items():
        for at in np.ndindex(*x.shape):
            p: Value = x[at]
            q: Value = second[name][at]
            count += 1
            if p is None or q is None:
                return Answer("not decided", f"{name}{list(at)} is not written", count, alike)
            if p is q or (not isinstance(p, Term) and not isinstance(q, Term) and p == q):
                alike += 1
            elif not normal.equal(terms.of(p), terms.of(q)):
                return Answer("not decided", f"{name}{list(at)} has two forms", count, alike)
    if not count:
        return Answer("not decided", "no output has an element there")
    return Answer("proved", "", count, alike)


def _is_false(fact: n.Expr, program: n.Program, sizes: Mapping[str, int]) -> bool:
    known = {p.name: const(sizes[p.name], p.of) for p in program.params if p.name in sizes and isinstance(p.of, DType)}
    found = substitute(fact, known)
    return isinstance(found, n.Const) and not found.value
