"""What a kernel has flat: tensors of which it is told the number of elements alone get one size in place of those of their axes, arrays the rows
with which what is stored in them follows from where it is stored, or that counters name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from kir.analysis.loops.loop_nest import KINDS, Nest, by_place, counters
from kir.analysis.normal.regions import raised
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.build import polynomial
from kir.ir.types import I32
from kir.ir.visit import names_read, statements, substitute, walk
from kir.surface.launches.assembled import Found

_PRODUCT = re.compile(r"\w+(?: \* \w+)+")


def flattened(found: Found) -> Found:
    """With one size for the product of several that nothing else speaks of than shapes of as many elements: what `x.numel()` gives a kernel that is told no
    axis of `x`. It is called as the parameter that has it."""
    binding, examples = found.binding, found.examples
    for param, value in binding.scalars.items():
        parts = str(value).split(" * ")
        if not (_PRODUCT.fullmatch(str(value)) and len(set(parts)) == len(parts) and set(parts) <= set(binding.sizes)):
            continue
        if (made := _in_one(binding, param, parts)) is not None:
            binding = made
            if examples is not None:
                count = math.prod(examples.get(x, 0) for x in parts)
                examples = {**{k: v for k, v in examples.items() if k not in parts}, **({param: count} if 0 < count < 1 << 31 else {})}
    return found if binding is found.binding else replace(found, binding=binding, examples=examples)


def _in_one(binding: Binding, name: str, parts: list[str]) -> Binding | None:
    """The binding with a size for the product of others; None where something speaks of one of them alone."""
    if name in binding.sizes or any(name == (t.name or k) for k, t in binding.tensors.items()):
        return None
    product = re.compile(rf"(?:(?<=^)|(?<=[(,+]) ?|(?<=[(,+] )){re.escape(' * '.join(parts))}(?=$|[),]| [-+%]| //)")

    def said(text: str | int) -> str | int:
        return product.sub(lambda m: (" " if m[0].startswith(" ") else "") + name, text) if isinstance(text, str) else text
    least = {f"{x} >= 1" for x in parts}
    tensors = {k: replace(t, shape=_merged([said(d) for d in t.shape], name, parts)) if t.strides is None else t for k, t in binding.tensors.items()}
    made = binding.changed(
        sizes=[*dict.fromkeys(name if x in parts else x for x in binding.sizes)], grid=[said(x) for x in binding.grid],
        facts=[f"{name} >= 1", *(str(said(f)) for f in binding.facts if f not in least)], tensors=tensors,
        scalars={k: said(v) if isinstance(v, str) else v for k, v in binding.scalars.items()})
    spoken = re.compile("|".join(rf"\b{x}\b" for x in parts))
    told = (*made.grid, *made.facts, *made.scalars.values(), *(d for t in made.tensors.values() for d in (*t.shape, *(t.strides or ()))),
            *made.metas.values(), *made.heuristics.values(), *made.maps, *made.arrays)
    return None if any(spoken.search(x) for x in told if isinstance(x, str)) or made.maps or made.arrays else made


def _merged(shape: list[str | int], name: str, parts: list[str]) -> list[str | int]:
    """A shape of which the axes that are such a product are one."""
    held, count = [*map(str, shape)], len(parts)
    at = next((k for k in range(len(held) - count + 1) if held[k:k + count] == parts), None)
    return shape if at is None else [*shape[:at], name, *shape[at + count:]]


__all__ = ["flattened"]


def with_rows(binding: Binding, made: Callable[[Binding], n.Program]) -> Binding:
    """The binding with rows for each flat array of shared memory that one statement fills, where they say which element it is (`As[row * 8 + k]` of what lies
    at `[row, k]`), and for each of a thread's own of which two counters name the elements (`sums[i * 8 + j]`). `made` gives the program under a binding."""
    try:
        program = raised(made(binding))
    except KirError:
        return binding
    for b in _flat(program):
        fits = _follows if b.space == "shared" else _by_counters
        if b.name in binding.arrays or fits(program, b.name) is not False:
            continue
        count = build.int_value(b.shape[0]) or 0
        for row in (x for x in sorted(_strides(program, b.name)) if 1 < x < count and count % x == 0):
            shaped = binding.changed(arrays={**binding.arrays, b.name: [count // row, row]})
            try:
                found = fits(raised(made(shaped)), b.name)
            except KirError:
                continue
            if found:
                binding = shaped
                break
    return binding


def _flat(program: n.Program) -> Iterator[n.Buffer]:
    """Arrays of one axis, shared or a thread's own."""
    for k in program.kernels:
        for s in statements(k.body):
            if isinstance(s, n.Alloc) and s.buffer.space in ("shared", "register") and len(s.buffer.shape) == 1:
                yield s.buffer


def _fill(program: n.Program, name: str) -> Nest | None:
    """The one store to an array, with the loops around it; None where there are several, or it is another statement."""
    found: list[Nest] = []
    others = 0

    def visit(block: n.Block, around: tuple[tuple[str, n.Var, int | n.Expr], ...], named: Mapping[str, n.Expr]) -> None:
        nonlocal others
        for s in block:
            match s:
                case n.Let(names=(one,)):
                    named = {**named, one: _written_out(s.value, named)}
                case n.For():
                    known = s.kind in KINDS and s.var.of == I32
                    visit(s.body, (*around, (s.kind, s.var, build.int_value(s.hi) or s.hi)) if known else around, named)
                case n.Store() if s.at.buffer.name == name:
                    index = [_written_out(i, named) for i in s.at.index if isinstance(i, n.Expr)]
                    turns = tuple(x for x in around if any(x[1].name in names_read(i) for i in index))
                    found.append(Nest(turns, n.Store(n.Region(s.at.buffer, tuple(index)), _written_out(s.value, named), s.mask, s.clip)))
                case n.If():
                    visit(s.then, around, named)
                    visit(s.orelse, around, named)
                case _:
                    others += isinstance(s, (n.Copy, n.View, n.Opaque)) and any(isinstance(x, n.Buffer) and x.name == name for x in walk(s))
    for k in program.kernels:
        visit(k.body, (), {})
    return found[0] if len(found) == 1 and not others and found[0].loops else None


def _written_out(e: n.Expr, named: Mapping[str, n.Expr]) -> n.Expr:
    """An expression without what its parts are called."""
    mine = {name: named[name] for name in names_read(e) & named.keys()}
    made: n.Expr = substitute(e, mine) if mine else e
    return made


def _follows(program: n.Program, name: str) -> bool | None:
    """Whether what is stored in an array follows from where it is stored; None where several statements store."""
    fill = _fill(program, name)
    return None if fill is None else by_place(fill, counters(len(fill.store.at.index), "at")) is not None


def _by_counters(program: n.Program, name: str) -> bool | None:
    """Whether each element of a thread's own array is named by counters alone, one for each axis; None where one is named otherwise than by a sum of them."""
    places = [x.index for k in program.kernels for x in walk(k) if isinstance(x, n.Region) and x.buffer.name == name and x.index]
    sums = [all(isinstance(i, n.Expr) and i.type == I32 and all(not m or (len(m) == 1 and isinstance(m[0], n.Var)) for m in polynomial(i)) for i in index)
            for index in places]
    if not all(sums) or not places:
        return None
    return all(isinstance(i, n.Var) for index in places for i in index)


def _strides(program: n.Program, name: str) -> set[int]:
    """Numbers that counters are multiplied with, or divided by, where an array is stored to or read."""
    fill = _fill(program, name)
    indices = [i for k in program.kernels for x in walk(k) if isinstance(x, n.Region) and x.buffer.name == name
               for i in x.index if isinstance(i, n.Expr) and i.type == I32]
    parts = [x for e in (*indices, *((fill.store.value, *fill.store.at.index) if fill is not None else ())) if isinstance(e, n.Expr) for x in walk(e)]
    found = {abs(c) for i in indices for m, c in polynomial(i).items() if m}
    return found | {int(x.b.value) for x in parts if isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and isinstance(x.b, n.Const)}
