"""The way back from statements to an answer: at level `cta`, what stands for a hole as a program over the contract's operands.

So may `backward` of a carrier pass recognize an algorithm: it outlines the statements, and `satisfies` asks the contract's oracle what they
do, whatever they look like.
"""
from __future__ import annotations

from kir.base.diagnostic import error
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.anchors import anchor_of
from kir.ir.rules.verify import verify
from kir.ir.types import DTYPES, I32
from kir.ir.visit import transform
from kir.lineage.carrier.answer import Answer
from kir.lineage.carrier.checking import Checked, check_program
from kir.lineage.carrier.contract import Contract
from kir.lineage.carrier.filling import Bound, bind
from kir.lineage.carrier.operands import dimensions, facts, size_vars
from kir.rewrite.edit import Path, block_at, replace_stmts


def outline(contract: Contract, program: n.Program, path: Path, count: int, hole: n.Hole) -> n.Program:
    """The `count` statements from `path` on as a program over the operands, where `hole` is the hole that would stand for them: the inverse
    of `fill` at level `cta`. Raises KirError as `bind`, and KIR-H151 when they use anything but the hole's places and sizes."""
    bound = bind(contract, replace_stmts(program, path, (hole,), count), path)
    body = block_at(program, path)[int(path[-1]):int(path[-1]) + count]
    kernel = n.Kernel("main", (), build.const(contract.spec.threads), body)
    return _over_operands(contract, program, kernel, bound, anchor_of(program, path))


def satisfies(contract: Contract, program: n.Program) -> Checked:
    """Whether an outlined program does what the contract wants: types, effects and the oracle, on every input of the contract. What a
    budget says is no matter of recognition."""
    return check_program(contract, program, Answer("", file="<outlined>"), budget=False)


def _over_operands(contract: Contract, program: n.Program, kernel: n.Kernel, bound: Bound, where: str) -> n.Program:
    variables = size_vars(contract)
    back = {e.name: variables[size] for size, e in bound.sizes.items() if isinstance(e, n.Var)}
    shapes = dimensions(contract)
    buffers = {t.name: n.Buffer(t.name, DTYPES[bound.dtype if t.dtype == "T" else t.dtype], shapes[t.name], "global")
               for t in contract.spec.tensors}

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Var) and new.name in back:
            return back[new.name]
        if isinstance(old, n.Region) and isinstance(new, n.Region):
            for name, outer in bound.regions.items():
                if outer.buffer.name == old.buffer.name and (inner := decomposed(outer, old)) is not None:
                    lifted: n.Region = transform(n.Region(buffers[name], inner), leave)
                    return lifted
        return new
    params = (*(n.Param(name, "size", I32) for name in contract.sizes),
              *(n.Param(t.name, t.role, buffers[t.name]) for t in contract.spec.tensors))
    functions = tuple(transform(f, leave) for f in program.functions)
    made: n.Kernel = transform(kernel, leave)
    out = n.Program(contract.spec.name.replace("-", "_"), params=params, facts=facts(contract, variables), functions=functions, kernels=(made,))
    found = [d for d in verify(out) if d.severity == "error"]
    if found:
        raise error("KIR-H151", f"this is not over the places of the hole alone: {found[0].message}", origin=found[0].origin, anchor=where,
                    needs=f"accesses of {', '.join(t.name for t in contract.spec.tensors)}, and of memory of its own")
    return out


def decomposed(outer: n.Region, inner: n.Region) -> tuple[n.Expr | n.Span, ...] | None:
    """The index within an operand that is the region `outer` of the place `inner` of the same memory; None when it is no place of it."""
    if not outer.index or inner == outer:
        return inner.index if not outer.index else ()
    if len(inner.index) != len(outer.index):
        return None
    out: list[n.Expr | n.Span] = []
    for o, i in zip(outer.index, inner.index, strict=True):
        if not isinstance(o, n.Span):
            if o != i:
                return None
            continue
        if o.step != 1:
            return None
        if isinstance(i, n.Span):
            out.append(n.Span(_minus(i.lo, o.lo), i.extent, i.step))
        else:
            out.append(_minus(i, o.lo))
    return tuple(out)


def _minus(a: n.Expr, b: n.Expr) -> n.Expr:
    return a if build.is_const(b, 0) else build.sub(a, build.cast(b, I32)) if a.type == I32 else build.sub(a, b)
