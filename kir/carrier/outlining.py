"""The way back from a program to what stands in for a hole: statements, or kernels, as a program over the contract's operands.

This is how `backward` of a carrier pass recognizes an algorithm: it outlines the region, and `satisfies` asks the contract's oracle what
it does, whatever it looks like.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kir.carrier.answer import Answer
from kir.carrier.checking import Checked, check_program, dimensions, size_vars
from kir.carrier.contract import Contract
from kir.carrier.filling import Bound, bind
from kir.diagnostic import error
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.anchors import anchor_of
from kir.ir.binding import fact_expressions
from kir.ir.types import DTYPES, I32
from kir.ir.verify import verify
from kir.ir.visit import regions, transform
from kir.rewrite.edit import Path, block_at, kernel_of, replace_kernel, replace_stmts


def outline(contract: Contract, program: n.Program, path: Path, count: int, hole: n.Hole) -> n.Program:
    """The `count` statements from `path` on as a program over the operands, where `hole` is the hole that would stand for them: the inverse
    of `fill` at level `cta`. Raises KirError as `bind`, and KIR-H151 when they use anything but the hole's places and sizes."""
    bound = bind(contract, replace_stmts(program, path, (hole,), count), path)
    body = block_at(program, path)[int(path[-1]):int(path[-1]) + count]
    kernel = n.Kernel("main", (), build.const(contract.spec.threads), body)
    return _over_operands(contract, program, (kernel,), (), (), bound, anchor_of(program, path))


def outline_kernels(contract: Contract, program: n.Program, kernels: Sequence[str], hole: n.Hole) -> n.Program:
    """These kernels of a program, with the workspaces and functions that they use, as a program over the operands: the inverse of `fill` at
    level `program`. Raises KirError as `outline`."""
    first = kernel_of(program, (kernels[0],))
    host = replace_kernel(program, first.name, replace(first, grid=(), threads=build.const(1), cluster=(), attrs=(), body=(hole,)))
    bound = bind(contract, host, (first.name, 0))
    kept = tuple(k for k in program.kernels if k.name in kernels)
    used = {r.buffer.name for k in kept for r in regions(k)}
    spaces = tuple(w for w in program.workspaces if w.buffer.name in used)
    maps = tuple(t for t in program.tensor_maps)
    return _over_operands(contract, program, kept, spaces, maps, bound, first.name)


def satisfies(contract: Contract, program: n.Program) -> Checked:
    """Whether an outlined program does what the contract wants: types, effects and the oracle, on every input of the contract. What a
    budget says is no matter of recognition."""
    return check_program(contract, program, Answer("", file="<outlined>"), budget=False)


def _over_operands(contract: Contract, program: n.Program, kernels: tuple[n.Kernel, ...], spaces: tuple[n.Workspace, ...],
                   maps: tuple[n.TensorMap, ...], bound: Bound, where: str) -> n.Program:
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
    facts = fact_expressions(list(contract.spec.facts), variables)
    functions = tuple(transform(f, leave) for f in program.functions)
    out = n.Program(contract.spec.name.replace("-", "_"), (), params, facts, (), tuple(transform(w, leave) for w in spaces), maps, functions,
                    tuple(transform(k, leave) for k in kernels))
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
