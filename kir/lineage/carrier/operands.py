"""A contract's operands and facts as expressions over its sizes."""
from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from kir.ir import nodes as n
from kir.ir.types import DTYPES, I32
from kir.ir.visit import once, substitute
from kir.lineage.carrier.contract import Contract


def size_vars(contract: Contract) -> dict[str, n.Expr]:
    """The contract's sizes as variables of i32."""
    return {name: n.Var(name, I32) for name in contract.sizes}


def dimensions(contract: Contract) -> Mapping[str, tuple[n.Expr, ...]]:
    """The shape of each operand."""
    return dict(_dimensions(tuple((t.name, t.shape) for t in contract.spec.tensors), contract.sizes))


def facts(contract: Contract, sizes: Mapping[str, n.Expr]) -> tuple[n.Expr, ...]:
    """What the contract grants, with its sizes replaced."""
    return tuple(substitute(f, sizes) for f in _facts(contract.spec.facts, contract.sizes))


def in_dtype(contract: Contract, program: n.Program, dtype: str) -> n.Program:
    """`program` with its storage of the contract's dtype `T` made `dtype`, if it is written for the contract's first (only then is storage
    told from what is computed in); otherwise as it is."""
    has = {p.name: p.of.dtype for p in program.params if isinstance(p.of, n.Buffer)}
    own = next((has[t.name] for t in contract.spec.tensors if t.dtype == "T" and t.name in has), None)
    if own is None or dtype in ("", own.name) or own.name != contract.spec.dtypes[0]:
        return program
    from kir.problem.problem import with_storage
    return once(program, f"_stored_as_{dtype}", lambda: with_storage(program, own, DTYPES[dtype]))


@lru_cache(maxsize=64)
def _dimensions(shapes: tuple[tuple[str, tuple[str, ...]], ...], sizes: tuple[str, ...]) -> tuple[tuple[str, tuple[n.Expr, ...]], ...]:
    from kir.ir.binding import expressions
    keys = {f"{name}.{i}": d for name, shape in shapes for i, d in enumerate(shape)}
    made = expressions(keys, {s: n.Var(s, I32) for s in sizes}, "dimension")
    return tuple((name, tuple(made[f"{name}.{i}"] for i in range(len(shape)))) for name, shape in shapes)


@lru_cache(maxsize=64)
def _facts(texts: tuple[str, ...], sizes: tuple[str, ...]) -> tuple[n.Expr, ...]:
    from kir.ir.binding import fact_expressions
    return fact_expressions(list(texts), {s: n.Var(s, I32) for s in sizes})
