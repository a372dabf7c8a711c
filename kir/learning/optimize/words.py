"""A kernel in the words of another: what does the same in both gets the same name, so that steps written for one are found on the other.

Statements are aligned in reading order by what they are (a loop, a sum into a register, a store to global memory); names that stand in the same
place of aligned statements stand for one another, the most frequent pairs first.
"""
from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.canonical import bound_names, outer_names, rename
from kir.ir.visit import names_read, statements, transform, walk
from kir.rewrite import Step
from kir.rewrite.options import Option

LOG2_E = math.log2(math.e)
SURE = 1 << 10
"""Votes for axes that do the same in both kernels: more than their places in indices give, which differ where tensors are laid out otherwise."""


@dataclass(frozen=True)
class InWords:
    """A program under another's names, and the way back: `names` of parameters and kernels, new -> own."""

    program: n.Program
    names: Mapping[str, str]

    def back(self, program: n.Program) -> n.Program:
        """A program that was made from this one, with its own parameters and kernels named as they were."""
        return renamed(program, self.names) if self.names else program

_Numbered = dict[tuple[tuple[bool, ...], int], n.Axis]
"""Axes by what they do (`_roles`), those that do the same by number."""


def in_words_of(source: n.Program, program: n.Program) -> InWords:
    """`program` with the names of `source` for what stands in the same places; names of its own for the rest. A grid of single threads has its axes in the
    order of that of `source`: steps know an axis by its number, and who launches columns first computes the same."""
    if len(source.kernels) != len(program.kernels):
        return InWords(program, {})
    program = replace(program, kernels=tuple(_ordered_as(*pair) for pair in zip(source.kernels, program.kernels, strict=True)))
    votes: Counter[tuple[str, str]] = Counter()
    kernels: dict[str, str] = {}
    for theirs, mine in zip(source.kernels, program.kernels, strict=True):
        kernels[mine.name] = theirs.name
        if len(theirs.grid) == len(mine.grid):
            sure = SURE if _by_role(theirs, mine) else 1
            for x, y in zip(theirs.grid, mine.grid, strict=True):
                votes.update({(x.name, y.name): sure})
                votes.update(zip(_words(x.extent), _words(y.extent), strict=False))
        for a, b in _aligned(tuple(statements(theirs.body)), tuple(statements(mine.body))):
            votes.update(_pairs(a, b))
    outer = {p.name: p for p in program.params}
    theirs_outer = {p.name: p for p in source.params}
    for theirs_name, own_name in list(votes):
        there, here = (x[name].of if name in x else None for x, name in ((theirs_outer, theirs_name), (outer, own_name)))
        if isinstance(there, n.Buffer) and isinstance(here, n.Buffer) and len(there.shape) == len(here.shape):
            order = _order_of_axes((source, there), (program, here), votes)
            votes.update(pair for at, e in zip(order, here.shape, strict=True) for pair in zip(_words(there.shape[at]), _words(e), strict=False))
    names: dict[str, str] = {}
    for (theirs_name, own_name), _ in sorted(votes.items(), key=lambda kv: (-kv[1], kv[0])):
        if own_name in names or theirs_name in names.values():
            continue
        if (own_name in outer) != (theirs_name in theirs_outer):
            continue
        if own_name in outer and isinstance(outer[own_name].of, n.Buffer) != isinstance(theirs_outer[theirs_name].of, n.Buffer):
            continue
        names[own_name] = theirs_name
    made, applied = _renamed(program, {**names, **kernels})
    own = {*outer, *(k.name for k in program.kernels)}
    return InWords(made, {new: old for old, new in applied.items() if old in own and new != old})


def _ordered_as(source: n.Kernel, kernel: n.Kernel) -> n.Kernel:
    """A kernel with its grid in the order of another's: by what the axes do in both (queries of attention are axes that its keys have not), those that do the
    same by where they stand among the indices of what is stored, counted from the last; by that place alone where the axes do not do the same."""
    if int_value(source.threads) != 1 or int_value(kernel.threads) != 1 or len(kernel.grid) < 2:
        return kernel
    if (same := _same(source, kernel)) is not None:
        asked, own = same
        return replace(kernel, grid=tuple(own[at] for at, _ in sorted(asked.items(), key=lambda row: source.grid.index(row[1]))))
    theirs, mine = _places(source), _places(kernel)
    order = {theirs[a.name]: number for number, a in enumerate(source.grid) if a.name in theirs}
    if len(order) < len(source.grid) or not all(mine.get(a.name) in order for a in kernel.grid):
        return kernel
    return replace(kernel, grid=tuple(sorted(kernel.grid, key=lambda a: order[mine[a.name]])))


def _same(source: n.Kernel, kernel: n.Kernel) -> tuple[_Numbered, _Numbered] | None:
    """The axes of two grids that do the same, under the same keys; where they do not all do the same, as heads that have keys in common do not, those by which
    loops are as long as they are go together, and so do the others. None where neither is so."""
    for part in (slice(None), slice(-1, None)):
        asked, own = _numbered(source, part), _numbered(kernel, part)
        if own and asked.keys() == own.keys() and (part == slice(None) or any(role[-1] for role, _ in own)):
            return asked, own
    return None


def _numbered(kernel: n.Kernel, part: slice) -> _Numbered:
    """The axes of a grid by what they do, or a part of that; those that do the same numbered by where they stand in what is stored; none where one is not
    stored by."""
    places, roles, count, out = _places(kernel), _roles(kernel), Counter[tuple[bool, ...]](), {}
    for a in sorted(kernel.grid, key=lambda a: places.get(a.name, 0)):
        role = roles[a.name][part]
        out[role, count[role]] = a
        count[role] += 1
    return out if all(a.name in places for a in kernel.grid) else {}


def _order_of_axes(source: tuple[n.Program, n.Buffer], own: tuple[n.Program, n.Buffer], votes: Counter[tuple[str, str]]) -> tuple[int, ...]:
    """For each axis of a tensor the axis of another one of as many: that which an axis of the grid indexes that surely does the same, the others in order."""
    theirs, mine = (next((at.index for k in program.kernels for s in statements(k.body) for at in _global(s) if at.buffer.name == buffer.name), ())
                    for program, buffer in (source, own))
    plain = tuple(range(len(own[1].shape)))
    if not len(theirs) == len(mine) == len(plain):
        return plain
    found = {b: a for b in plain for a in plain if any(votes[x, y] >= SURE for x in _words(theirs[a]) for y in _words(mine[b]))}
    left = iter([a for a in plain if a not in found.values()])
    order = tuple(found[b] if b in found else next(left, b) for b in plain)
    return order if sorted(order) == list(plain) else plain


def _by_role(source: n.Kernel, kernel: n.Kernel) -> bool:
    """Whether the axes of two grids do the same, one after the other."""
    if (same := _same(source, kernel)) is None:
        return False
    asked, own = same
    return [at for a in source.grid for at in asked if asked[at] == a] == [at for a in kernel.grid for at in own if own[at] == a]


def _roles(kernel: n.Kernel) -> dict[str, tuple[bool, ...]]:
    """Of each axis whether something that is stored to global memory has it among its indices, whether all that is loaded from there has, and whether a loop is
    as long as it says (tokens of a chunk, unlike its heads)."""
    body = tuple(statements(kernel.body))
    reached = [(isinstance(s, n.Store) and at is s.at, {x.name for index in at.index for x in walk(index) if isinstance(x, n.Var)})
               for s in body for at in _global(s)]
    lengths = {name for s in body if isinstance(s, n.For) for name in names_read(s.hi)}
    for s in reversed(body):
        lengths |= names_read(s.value) if isinstance(s, n.Let) and lengths & {*s.names} else set()
    return {a.name: (any(a.name in some for stored, some in reached if stored), all(a.name in some for stored, some in reached if not stored),
                     a.name in lengths) for a in kernel.grid}


def _global(s: n.Stmt) -> Iterator[n.Region]:
    """What of global memory a statement, and what stands within it, stores and loads."""
    if isinstance(s, n.Store) and s.at.buffer.space == "global":
        yield s.at
    yield from (x.at for x in walk(s) if isinstance(x, n.Load) and x.at.buffer.space == "global")


def _places(kernel: n.Kernel) -> dict[str, int]:
    """Where stores to global memory have the names of a kernel among their indices, counted from the last."""
    out: dict[str, int] = {}
    for s in statements(kernel.body):
        if isinstance(s, n.Store) and s.at.buffer.space == "global":
            for at, index in enumerate(s.at.index):
                for x in walk(index):
                    if isinstance(x, n.Var):
                        out.setdefault(x.name, at - len(s.at.index))
    return out


def numbers_of(source: n.Program, program: n.Program) -> dict[str, int]:
    """Sizes of `source` that are numbers in `program`, which is in its words: extents of grids, ends of loops and extents of tensors in the same places."""
    out: dict[str, int] = {}

    def seen(theirs: n.Expr, mine: n.Expr) -> None:
        if isinstance(theirs, n.Var) and (value := int_value(mine)) is not None:
            out.setdefault(theirs.name, value)

    for a, b in zip(source.kernels, program.kernels, strict=False):
        for x, y in zip(a.grid, b.grid, strict=False):
            seen(x.extent, y.extent)
        loops = {s.var.name: s.hi for s in statements(b.body) if isinstance(s, n.For)}
        for s in statements(a.body):
            if isinstance(s, n.For) and s.var.name in loops:
                seen(s.hi, loops[s.var.name])
    held = {p.name: p.of for p in program.params if isinstance(p.of, n.Buffer)}
    for p in source.params:
        if isinstance(p.of, n.Buffer) and p.name in held and len(held[p.name].shape) == len(p.of.shape):
            for d, e in zip(p.of.shape, held[p.name].shape, strict=True):
                seen(d, e)
    return out


def in_factors_of(steps: Sequence[Step], source: n.Program, program: n.Program) -> tuple[Step, ...]:
    """Steps that were written for `source`, with what it multiplies by replaced by what `program` does (1 / sqrt(64) by 1 / sqrt(192)), as it is and folded
    into a power of two; as they are where the two do not have as many such numbers."""
    theirs, mine = _factors(source), _factors(program)
    pairs = dict(zip(theirs, mine, strict=True)) if len(theirs) == len(mine) else {}
    others = {a: b for a, b in pairs.items() if a != b}
    numbers = {**{_rounded(a * LOG2_E): _rounded(b * LOG2_E) for a, b in others.items()}, **{_rounded(a): b for a, b in others.items()}}
    texts = {**{repr(a): repr(b) for a, b in numbers.items()}, **{repr(a): repr(b) for a, b in others.items()}}
    written = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, sorted(texts, key=len, reverse=True)))})(?![\w.])") if texts else None

    def own(value: Option) -> Option:
        if isinstance(value, float):
            return numbers.get(_rounded(value), value)
        if isinstance(value, str) and written is not None:
            return written.sub(lambda m: texts[m[1]], value)
        return tuple(own(x) for x in value) if isinstance(value, tuple) and any(isinstance(x, str) for x in value) else value  # type: ignore[return-value]  # of one kind

    return tuple(replace(s, options={k: own(v) for k, v in s.options.items()}) for s in steps) if numbers else tuple(steps)


def _factors(program: n.Program) -> list[float]:
    """The different numbers that a program multiplies or divides by, in reading order."""
    found = (c.value for k in program.kernels for x in walk(k) if isinstance(x, n.Binary) and x.op in ("mul", "div") for c in (x.a, x.b)
             if isinstance(c, n.Const) and isinstance(c.value, float) and math.isfinite(c.value) and abs(c.value) not in (0.0, 1.0))
    return list(dict.fromkeys(found))


def _rounded(x: float) -> float:
    """The nearest number of f32, in the fewest digits that mean it."""
    return float(str(np.float32(x)))


def renamed(program: n.Program, names: Mapping[str, str]) -> n.Program:
    """A program with locals, parameters and kernels under other names; what would clash moves out of the way."""
    return _renamed(program, names)[0]


def _renamed(program: n.Program, names: Mapping[str, str]) -> tuple[n.Program, dict[str, str]]:
    """The same, and every name that was given: old -> new."""
    words = {k: v for k, v in names.items() if k not in {x.name for x in program.kernels}}
    kernels = {k.name: names.get(k.name, k.name) for k in program.kernels}
    words = _out_of_the_way(program, words)
    made = rename(program, words)

    def leave(_: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Kernel():
                return replace(new, name=kernels[new.name])
            case n.Launch():
                return replace(new, kernel=kernels[new.kernel])
            case _:
                return new
    out = transform(made, leave)
    assert isinstance(out, n.Program)
    params = tuple(replace(p, name=words.get(p.name, p.name)) for p in out.params)
    maps = tuple(replace(t, of=words.get(t.of, t.of)) for t in out.tensor_maps)
    return replace(out, params=params, tensor_maps=maps), {**words, **kernels}


def _out_of_the_way(program: n.Program, names: Mapping[str, str]) -> dict[str, str]:
    """The names, and others for those of the program that would clash with a new one."""
    present = outer_names(program) | {x for k in program.kernels for x in (*(a.name for a in k.grid), *bound_names(k.body))}
    out, taken = dict(names), present | set(names.values())
    for own in sorted(present):
        if own not in out and own in names.values():
            out[own] = next(x for i in range(1, len(taken) + 2) if (x := f"{own}_{i}") not in taken)
            taken.add(out[own])
    return out


def _aligned(a: tuple[n.Stmt, ...], b: tuple[n.Stmt, ...]) -> Iterator[tuple[n.Stmt, n.Stmt]]:
    matcher = difflib.SequenceMatcher(None, [*map(_kind, a)], [*map(_kind, b)], autojunk=False)
    for block in matcher.get_matching_blocks():
        yield from zip(a[block.a:block.a + block.size], b[block.b:block.b + block.size], strict=True)


def _kind(s: n.Stmt) -> str:
    match s:
        case n.For():
            return f"for {s.kind}"
        case n.Alloc():
            return f"alloc {s.buffer.space} {len(s.buffer.shape)}"
        case n.Store():
            into = "fold" if any(isinstance(x, n.Load) and x.at == s.at for x in walk(s.value)) else "set"
            return f"{into} {s.at.buffer.space} {len(s.at.index)} {getattr(s.value, 'op', '') or getattr(s.value, 'fn', '')}"
        case _:
            return type(s).__name__.lower()


def _pairs(a: n.Stmt, b: n.Stmt) -> Iterator[tuple[str, str]]:
    match a, b:
        case n.For(), n.For():
            yield a.var.name, b.var.name
            yield from zip(_words(a.hi), _words(b.hi), strict=False)
        case n.Alloc(), n.Alloc():
            yield a.buffer.name, b.buffer.name
        case n.Let(), n.Let() if len(a.names) == len(b.names):
            yield from zip(a.names, b.names, strict=True)
            yield from _values(a.value, b.value)
        case n.Store(), n.Store():
            yield a.at.buffer.name, b.at.buffer.name
            yield from _values(a.value, b.value)
        case _:
            return


def _values(a: n.Node, b: n.Node) -> Iterator[tuple[str, str]]:
    here, there = [*_words(a)], [*_words(b)]
    if len(here) == len(there):
        yield from zip(here, there, strict=True)
        return
    loads = [[x.at for x in walk(e) if isinstance(x, n.Load)] for e in (a, b)]
    if len(loads[0]) == len(loads[1]):
        for x, y in zip(*loads, strict=True):
            yield x.buffer.name, y.buffer.name
            most = min(len(x.index), len(y.index))  # of a tensor with more axes the last ones: before them stand batches
            for i, j in zip(x.index[len(x.index) - most:], y.index[len(y.index) - most:], strict=True):
                yield from zip(_words(i), _words(j), strict=False)


def _words(e: n.Node) -> Iterator[str]:
    """Names of buffers and variables of an expression, in reading order; the shapes of buffers are no part of it."""
    inside: set[int] = set()
    for x in walk(e):
        if id(x) in inside:
            continue
        if isinstance(x, n.Buffer):
            inside.update(id(y) for y in walk(x) if y is not x)
            yield x.name
        elif isinstance(x, n.Var):
            yield x.name
