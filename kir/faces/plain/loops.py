"""Loops in plain words: those of one round leave, those that only cut another into tiles are one with it, and none goes round where nothing happens.

A program in the CTA's own words is meant (serial loops, scalars, stores); what stands in a loop that is none of these stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from kir.analysis.facts import Facts
from kir.analysis.normal.normal_form import is_pure
from kir.analysis.order import at_most
from kir.analysis.simplify import is_true, simplified, simplify
from kir.base.dataclass import dataclass
from kir.faces.plain.values import reads_memory
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.rebuild.plans import conjuncts
from kir.ir.types import BOOL, I32, DType
from kir.ir.visit import names_read, substitute, transform, walk

MOST = 4096
"""Rounds of a loop that are gone through to see in which of them something happens."""
LETTERS = 3
"""Names of counters up to so many letters say what they count in a tile, which is not what they count in all."""


@dataclass(frozen=True)
class Effect:
    """Something that a body does beyond its own registers, and what must hold for it."""

    guards: tuple[n.Expr, ...]


def is_serial(s: n.Stmt) -> bool:
    """Whether it is a loop one round after the other, upward by one from 0, which nothing leaves early."""
    return (isinstance(s, n.For) and s.kind == "serial" and not s.attrs and build.is_const(s.step, 1) and build.int_value(s.lo) == 0
            and not any(isinstance(x, n.Jump) for x in walk(s)))


def without_return(body: n.Block) -> n.Block:
    """A kernel's body in which what follows `if c: return` stands where c does not hold."""
    for k, s in enumerate(body):
        if isinstance(s, n.If) and s.then == (n.Jump("return"),) and not s.orelse and not s.static and body[k + 1:]:
            rest = without_return(body[k + 1:])
            return (*body[:k], replace(s, cond=_opposite(s.cond), then=rest))
    return body


def _opposite(e: n.Expr) -> n.Expr:
    other = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
    if isinstance(e, n.Binary) and e.op in other and isinstance(e.a.type, DType) and not e.a.type.is_float:
        return build.compare(other[e.op], e.a, e.b)
    return build.invert(e)


def once(s: n.For, known: Facts) -> n.Block:
    """What stands in a loop, where that has one round; else the loop."""
    lo, hi = known.domain(s.lo).value, known.domain(s.hi).value
    if not is_serial(s) or lo is None or hi is None or hi != lo + 1:
        return (s,)
    return tuple(substitute(x, {s.var.name: s.lo}) for x in s.body)


def one_branch(body: n.Block) -> n.Block:
    """A block in which branches on one condition that stand beside each other are one, and a branch that is all of a branch is one with it."""
    out: list[n.Stmt] = []
    for s in body:
        before = out[-1] if out else None
        if isinstance(s, n.If) and is_true(s.cond):
            out.extend(s.then)
            continue
        if isinstance(s, n.If) and not s.static and not s.orelse:
            if len(s.then) == 1 and isinstance(inner := s.then[0], n.If) and not inner.orelse and not inner.static and _is_safe(inner.cond):
                s = replace(s, cond=build.logical_and(s.cond, inner.cond), then=inner.then)
            if isinstance(before, n.If) and not before.orelse and not before.static and before.cond == s.cond and not reads_memory(s.cond):
                out[-1] = replace(before, then=(*before.then, *s.then))
                continue
        out.append(s)
    return tuple(out)


def _is_safe(e: n.Expr) -> bool:
    return not reads_memory(e) and not any(isinstance(x, n.Binary) and x.op in build.DIVISIONS and build.int_value(x.b) in (None, 0) for x in walk(e))


# ------------------------------------------------------------------------------------------------------------------ fewer rounds

def shrunk(s: n.For, known: Facts) -> n.Block:
    """A loop that goes round only where something happens: no further than all that its body does is guarded by."""
    if not is_serial(s) or (effects := _all_effects(s.body)) is None:
        return (s,)
    top = build.int_value(s.hi)
    if top is not None and 0 < top <= MOST:
        rounds = sorted({v for effect in effects for v in range(top) if _happens(effect, s.var, v)})
        if not rounds:
            return ()
        first, last = rounds[0], rounds[-1]
        if last - first + 1 < top and last - first + 1 == len(rounds):
            if first == last:
                return tuple(substitute(x, {s.var.name: build.const(first, s.var.of)}) for x in s.body)  # type: ignore[arg-type]  # a scalar
            return (moved(replace(s, hi=build.const(last + 1, I32)), first),) if s.var.of == I32 else (s,)
    within = known.ranging(s.var, s.lo, s.hi, s.step)
    ends = [_ends(effect, s, within) for effect in effects]
    common = [e for e in ends[0] if all(e in others for others in ends[1:])] if ends else []
    for e in common:
        if e != s.hi and at_most(e, s.hi, known):
            return (replace(s, hi=e),)
    return (s,)


def moved(s: n.For, by: int) -> n.For:
    """A loop whose first round is that of `by`, counted from 0."""
    var = s.var
    there = build.add(var, by)
    return replace(s, hi=build.sub(s.hi, by), body=tuple(substitute(x, {var.name: there}) for x in s.body))


def ends_of(body: n.Block, var: n.Var, hi: n.Expr, known: Facts) -> list[n.Expr]:
    """Expressions below which a counter of a body must be for anything to happen."""
    loop = n.For(var, build.const(0, I32), hi, build.const(1, I32), body)
    if (effects := _all_effects(body)) is None or not effects:
        return []
    ends = [_ends(effect, loop, known.ranging(var, loop.lo, hi, loop.step)) for effect in effects]
    return [e for e in ends[0] if all(e in others for others in ends[1:])]


def _happens(effect: Effect, var: n.Var, value: int) -> bool:
    at = {var.name: build.const(value, var.of)}  # type: ignore[arg-type]  # a scalar
    return all(build.known_value(g, at) != 0 for g in effect.guards if names_read(g) == {var.name})


def _ends(effect: Effect, s: n.For, known: Facts) -> list[n.Expr]:
    inside = {s.var.name, *bound_names(s.body)}
    found: list[n.Expr] = []
    for g in effect.guards:
        if not isinstance(g, n.Binary) or g.op not in ("lt", "le", "gt", "ge") or g.a.type != s.var.of or g.type != BOOL:
            continue
        small, large, gap = (g.a, g.b, g.op == "le") if g.op in ("lt", "le") else (g.b, g.a, g.op == "ge")
        if small != s.var and not (known.is_exact(small) and known.is_exact(large)):
            continue
        rest = dict(build.polynomial(small))
        for m, c in build.polynomial(large).items():
            rest[m] = rest.get(m, 0) - c
        if rest.pop((s.var,), 0) != 1:
            continue
        rest = {m: -c for m, c in rest.items() if c}
        rest[()] = rest.get((), 0) + int(gap)
        end = build.from_polynomial(rest, s.var.of)  # type: ignore[arg-type]  # a scalar
        if inside.isdisjoint(names_read(end)) and not reads_memory(end):
            found.append(end)
    return found


def _all_effects(body: n.Block) -> list[Effect] | None:
    try:
        return list(_effects(body, (), set()))
    except _Unknown:
        return None


class _Unknown(Exception):
    """A statement of which it is not known what it does."""


def _effects(body: n.Block, guards: tuple[n.Expr, ...], own: set[str]) -> Iterator[Effect]:
    for s in body:
        match s:
            case n.Let():
                if not is_pure(s.value):
                    yield Effect(guards)
            case n.Alloc():
                own.add(s.buffer.name)
            case n.View():
                pass
            case n.Store():
                if s.at.buffer.name not in own:
                    yield Effect((*guards, *(conjuncts(s.mask) if s.mask is not None else ()), *_clipped(s)))
            case n.Eval():
                yield Effect(guards)
            case n.For():
                if s.kind != "serial":
                    raise _Unknown
                yield from _effects(s.body, guards, own)
            case n.If():
                yield from _effects(s.then, (*guards, *conjuncts(s.cond)), own)
                yield from _effects(s.orelse, guards, own)
            case _:
                raise _Unknown


def _clipped(s: n.Store) -> Iterator[n.Expr]:
    if s.clip:
        for i, extent in zip(s.at.index, s.at.buffer.shape, strict=False):
            if isinstance(i, n.Expr) and isinstance(i.type, DType) and i.type == extent.type:
                yield n.Binary("lt", i, extent)


# ------------------------------------------------------------------------------------------------------------------- tiles again whole

def joined(s: n.For, known: Facts, fresh: Callable[[str], str]) -> n.For:
    """A loop of tiles and the loop over what is in one, as one loop over everything, where nothing else tells one from the other."""
    if not is_serial(s) or len(s.body) != 1 or not is_serial(inner := s.body[0]) or not isinstance(inner, n.For):
        return s
    made = whole(s.var, inner, s.hi, inner.body, known, fresh)
    if made is None:
        return s
    var, hi, body = made
    return replace(s, var=var, hi=hi, body=body)


def whole(outer: n.Var, inner: n.For, count: n.Expr, body: n.Block, known: Facts, fresh: Callable[[str], str]) -> tuple[n.Var, n.Expr, n.Block] | None:
    """One counter for `outer * c + inner`, how far it goes, and the body in it; None where the body asks for either of them apart."""
    if outer.name in names_read(inner.hi) or inner.var.of != outer.of:
        return None
    c = build.cast(inner.hi, outer.of) if isinstance(outer.of, DType) else inner.hi
    if not _beside(body, outer, inner.var, build.int_value(c)):
        return None
    total = simplify(build.mul(count, c), known)
    var = n.Var(fresh(inner.var.name if len(inner.var.name) > LETTERS else "turn"), outer.of)
    made = tuple(substitute(_to_the_place(x, outer, inner.var, c, known), {inner.var.name: build.sub(var, build.mul(outer, c))}) for x in body)
    if any(outer.name in names_read(x) for x in made):
        facts = known.ranging(var, build.const(0, I32), total)
        made = tuple(simplified(x, facts) for x in made)
        if any(outer.name in names_read(x) for x in made):
            return None
    for end in ends_of(made, var, total, known):
        if _covers(count, c, end) or at_most(end, total, known):
            return var, end, made
    return (var, total, made) if known.is_exact(total) or _stays_below(count, c) else None


def _beside(body: n.Block, outer: n.Var, inner: n.Var, c: int | None) -> bool:
    """Whether some place is a sum of both counters, the outer one as often as there are rounds of the inner one; nothing else can be one counter."""
    for s in body:
        for x in walk(s):
            compared = isinstance(x, n.Binary) and x.op in n.COMPARISONS
            if not (compared or isinstance(x, n.Region)) or not {outer.name, inner.name} <= names_read(x):
                continue
            for i in x.index if isinstance(x, n.Region) else (x.a, x.b) if isinstance(x, n.Binary) else ():
                terms = build.polynomial(i) if isinstance(i, n.Expr) else {}
                if isinstance(i, n.Expr) and {outer.name, inner.name} <= names_read(i) and (c is None or not terms.get((inner,)) or (
                        terms.get((outer,)) == c * terms[(inner,)])):
                    return True
    return not any(inner.name in names_read(s) for s in body)


def _to_the_place(s: n.Stmt, outer: n.Var, inner: n.Var, c: n.Expr, known: Facts) -> n.Stmt:
    """A statement in which what is asked of a tile is asked of each place in it, where both are the same: a tile that begins below a multiple of its extent
    ends there or below."""
    by = build.int_value(c)

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if not (isinstance(new, n.Binary) and new.op == "lt" and new.a.type == inner.of and outer.name in names_read(new.a) and isinstance(new.type, DType)):
            return new
        if by is None or {inner.name, outer.name} & names_read(new.b) or inner.name in names_read(new.a):
            return new
        return build.compare("lt", build.add(new.a, inner), new.b) if known.divides(by, new.a) and known.divides(by, new.b) else new
    made = transform(s, leave, lambda x: outer.name in names_read(x))
    assert isinstance(made, n.Stmt)
    return made


def _covers(count: n.Expr, c: n.Expr, end: n.Expr) -> bool:
    """Whether so many tiles reach the end: ceildiv(end, c) of them, however that is written."""
    terms = list(build.polynomial(build.mul(count, c)).items())
    if len(terms) == 1 and len(terms[0][0]) == 1 and isinstance(q := terms[0][0][0], n.Binary) and q.op == "ceildiv" and q.a == end:
        by = build.int_value(q.b)
        return by is not None and 0 < by <= terms[0][1]
    if not isinstance(count, n.Binary) or count.b != c or count.op not in ("ceildiv", "floordiv", "tdiv"):
        return False
    return count.a == (end if count.op == "ceildiv" else build.sub(build.add(end, c), 1))


def _stays_below(count: n.Expr, c: n.Expr) -> bool:
    return isinstance(count, n.Binary) and count.op == "floordiv" and count.b == c


def split(s: n.For, known: Facts, fresh: Callable[[str], str]) -> n.For:
    """A loop whose counter is only asked for its quotient and its remainder by a number, as a loop over each."""
    if not is_serial(s) or s.var.of != I32 or (made := parted(s.var, s.hi, s.body, known, fresh)) is None:
        return s
    (q, rounds), (r, each), body = made
    return replace(s, var=q, hi=rounds, body=(n.For(r, build.const(0, I32), each, build.const(1, I32), body),))


def parted(var: n.Var, hi: n.Expr, body: n.Block, known: Facts,
           fresh: Callable[[str], str]) -> tuple[tuple[n.Var, n.Expr], tuple[n.Var, n.Expr], n.Block] | None:
    """Two counters for one, its quotient and its remainder by what the body divides it by, each with how far it goes, and the body in them; None where it
    is asked for otherwise."""
    divisors = dict.fromkeys(x.b for s in body for x in walk(s) if isinstance(x, n.Binary) and x.op in ("floordiv", "mod") and var.name in names_read(x.a))
    inside = frozenset(bound_names(body))
    for b in divisors:
        if reads_memory(b) or not inside.isdisjoint(names_read(b)) or (rounds := _rounds(hi, b)) is None or rounds == build.const(1, I32):
            continue
        q, r = n.Var(fresh(var.name), I32), n.Var(fresh(var.name), I32)
        made = tuple(_replaced(s, {n.Binary("floordiv", var, b): q, n.Binary("mod", var, b): r}) for s in body)
        if any(var.name in names_read(s) for s in made):
            if build.int_value(b) is None:
                continue
            facts = known.ranging(q, build.const(0, I32), rounds).ranging(r, build.const(0, I32), b)
            made = tuple(_divided(substitute(s, {var.name: build.add(build.mul(q, b), r)}), facts) for s in body)
            if any({q.name, r.name} & names_read(x.a) for y in made for x in walk(y) if isinstance(x, n.Binary) and x.op in build.DIVISIONS):
                continue
        return (q, rounds), (r, b), made
    return None


def _rounds(hi: n.Expr, b: n.Expr) -> n.Expr | None:
    """How often a number goes into another one, where it does so exactly."""
    top, by = build.int_value(hi), build.int_value(b)
    if top is not None and by is not None:
        return build.const(top // by, I32) if 1 < by < top and top % by == 0 else None
    terms = list(build.polynomial(hi).items())
    whole_b = next(iter(build.polynomial(b).items()), None)
    if len(terms) != 1 or whole_b is None or len(build.polynomial(b)) != 1:
        return None
    atoms, (factors, by_c) = list(terms[0][0]), whole_b
    for f in factors:
        if f not in atoms:
            return None
        atoms.remove(f)
    return build.from_polynomial({tuple(atoms): terms[0][1] // by_c}, I32) if by_c > 0 and terms[0][1] % by_c == 0 else None


def _replaced(s: n.Stmt, values: dict[n.Expr, n.Var]) -> n.Stmt:
    made = transform(s, lambda old, new: values.get(new, new) if isinstance(new, n.Binary) else new)
    assert isinstance(made, n.Stmt)
    return made


def _divided(s: n.Stmt, known: Facts) -> n.Stmt:
    """A statement, with those inside it, simplified where it divides."""
    made = transform(s, lambda old, new: simplify(new, known) if isinstance(new, n.Binary) and new.op in build.DIVISIONS else new)
    assert isinstance(made, n.Stmt)
    return made
