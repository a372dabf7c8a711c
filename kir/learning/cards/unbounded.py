"""Accesses that may lack a bound: ended with their buffer, or, where one runs over a flat view of a tensor, each of its indices with its own dimension."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce

from kir.base.diagnostic import Diagnostic
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import Monomial, int_value
from kir.ir.types import dtype_of
from kir.ir.visit import regions, transform, walk
from kir.learning.cards.missing import named
from kir.rewrite.anchor import anchor_text
from kir.rewrite.edit import Path, kernel_of, node_at, places, replace_stmts

FILLS = (0.0, float("-inf"))
"""What a value outside its buffer may be taken for: the neutral element of a sum, and of a maximum."""


def bounded(program: n.Program, findings: Sequence[Diagnostic]) -> Iterator[tuple[n.Program, str]]:
    """The accesses of a statement that is named, ended with their tensor or its dimensions; where none is, of each statement with flat accesses; then all of
    them. The statements are those that left their buffer, and those whose flat accesses met others where they should have ended."""
    found = dict.fromkeys(path for each in findings for path in named(program, each) if each.id in ("KIR-I010", "KIR-I014"))
    out = {path for each in findings if each.id == "KIR-I010" for path in named(program, each)}
    simple = [path for path in found if not isinstance(node_at(program, path), n.For | n.If | n.While | n.Kernel)]
    flat = [path for path in (simple or [at for at, s in places(program) if isinstance(s, n.Store | n.Copy | n.Let)]) if _flat(program, path)]
    for paths in ([path] for path in flat):
        yield from _ended(program, paths, True)
    for path in simple:
        yield from _ended(program, [path], False) if path in out else ()
    if len(flat) > 1:
        yield from _ended(program, flat, True)
    if len(out) > 1:
        yield from _ended(program, [path for path in simple if path in out], False)


def _flat(program: n.Program, path: Path) -> bool:
    views = _views(program, path)
    return any(r.buffer.name in views for r in regions(node_at(program, path)))


def _views(program: n.Program, path: Path) -> dict[str, n.Buffer]:
    """The tensors of which a kernel has flat views, by the names of these."""
    return {s.buffer.name: s.at.buffer for s in walk(kernel_of(program, path)) if isinstance(s, n.View) and not s.axes and not s.at.index
            and s.buffer.space == "global" and len(s.buffer.shape) == 1 and len(s.at.buffer.shape) > 1}


def _ended(program: n.Program, paths: Sequence[Path], apart: bool) -> Iterator[tuple[n.Program, str]]:
    """A program with the accesses of some statements ended: each dimension (`apart`) or as they are."""
    for fill in FILLS:
        made = program
        for path in paths:
            s = _with_ends(node_at(made, path), fill, _views(made, path) if apart else {})
            if s is None:
                return
            made = replace_stmts(made, path, (s,))
        where = " and ".join(anchor_text(program, path) for path in paths)
        yield made, f"the accesses of {where} end with {'the dimensions of their tensors' if apart else 'their buffers'}"


def _with_ends(s: n.Node, fill: float, views: dict[str, n.Buffer]) -> n.Stmt | None:
    """A statement with its global accesses clipped; with `views`, those of flat views alone, by the dimensions of their tensors. None where one has no such."""
    def ended(_: n.Node, new: n.Node) -> n.Node:
        if not isinstance(new, n.Load | n.Store | n.Copy):
            return new
        at = new.dst if isinstance(new, n.Copy) else new.at
        if views and at.buffer.name in views:
            at = _by_dimensions(at, views[at.buffer.name])
        elif views or at.buffer.space != "global" or new.clip or not at.index:
            return new
        if isinstance(new, n.Load):
            dtype = dtype_of(new.type)
            return replace(new, at=at, clip=True, other=new.other or build.const(fill if dtype.is_float else 0, dtype))
        return replace(new, at=at, clip=True) if isinstance(new, n.Store) else replace(new, dst=at, clip=True)
    try:
        made = transform(s, ended)
    except _NotApart:
        return None
    return made if isinstance(made, n.Stmt) and made != s else None


class _NotApart(Exception):
    """An index that does not come apart into those of the dimensions."""


def _by_dimensions(r: n.Region, tensor: n.Buffer) -> n.Region:
    """An access of a flat view as one of its tensor: what of the index is a multiple of the size of a row counts rows. Raises _NotApart."""
    index, lengths = r.index[0], []
    lo = index.lo if isinstance(index, n.Span) else index
    rest, out = dict(build.polynomial(lo)), list[n.Expr]()
    for i in range(1, len(tensor.shape)):
        lengths = [*build.polynomial(reduce(build.mul, tensor.shape[i:])).items()]
        if len(lengths) != 1:
            raise _NotApart
        (factors, by), = lengths
        taken = {_without(m, factors): k // by for m, k in rest.items() if not Counter(factors) - Counter(m) and k % by == 0}
        rest = {m: k for m, k in rest.items() if Counter(factors) - Counter(m) or k % by}
        out.append(build.from_polynomial(taken, dtype_of(lo.type)))
    last = build.from_polynomial(rest, dtype_of(lo.type))
    if int_value(last) is not None and not out:
        raise _NotApart
    return build.region(tensor, *out, replace(index, lo=last) if isinstance(index, n.Span) else last)


def _without(m: Monomial, factors: Monomial) -> Monomial:
    left = list(m)
    for f in factors:
        left.remove(f)
    return tuple(left)
