"""Loops that count in a variable of their own, which others follow (`for (long i = k; k < n; k += s, i = k)`, as the loop macros of packages write them)
or step beside (`for (int a = a0, b = b0; a <= end; a += 32, b += 32 * n)`), and that halve a power of two until
nothing is left (`while (i != 0) .. i /= 2`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import I32, TileType, dtype_of
from kir.ir.visit import blocks_of, buffers_named, names_read, statements, transform, walk

from .cleanup import names_changed


def counted(body: n.Block, fresh: Callable[[str], str], positive: frozenset[str] = frozenset()) -> n.Block:
    """The block, and those inside, with each such `while` as a `for`. `positive` are names of what is at least one: the sizes of a launch; `fresh` gives
    names."""
    return _counted(body, _Around(_known_positive(body, positive), frozenset(), frozenset(), fresh))


@dataclass(frozen=True)
class _Around:
    """What is known where a block stands: names of what is at least one, of variables that 1 can be shifted by, and of registers that nothing reads after
    the block."""

    positive: frozenset[str]
    small: frozenset[str]
    last: frozenset[str]
    fresh: Callable[[str], str]


def _counted(body: n.Block, around: _Around) -> n.Block:
    out, held, later = list[n.Stmt](), around.last, [buffers_named(s) for s in body]
    for k, s in enumerate(body):
        out.append(_inside(s, replace(around, last=held.difference(*later[k + 1:]))))
        held |= {s.buffer.name} if isinstance(s, n.Alloc) and not s.buffer.shape else frozenset()
    around, k = replace(around, last=held), 0
    while k < len(out):
        found = _counting(out, k, around) or _halving(out, k, around.small)
        if found is None:
            k += 1
            continue
        gone = [j for j in range(k) if isinstance(a := out[j], n.Alloc) and a.buffer.name in found.names]
        out[k] = found.loop
        out = [s for j, s in enumerate(out) if j not in gone]
        k -= len(gone)
        k += 1
    return tuple(out)


def _known_positive(body: n.Block, positive: frozenset[str]) -> frozenset[str]:
    """These names, and those that are given products of them."""
    for s in statements(body):
        if isinstance(s, n.Let) and len(s.names) == 1 and not isinstance(s.value.type, TileType) and _is_positive(s.value, positive):
            positive |= {*s.names}
    return positive


def _inside(s: n.Stmt, around: _Around) -> n.Stmt:
    match s:
        case n.For() | n.While():
            small = around.small | {s.var.name} if isinstance(s, n.For) and _is_small(s) else around.small
            made = _counted(s.body, replace(around, small=small, last=frozenset()))
            return s if made == s.body else replace(s, body=made)
        case n.If():
            then, orelse = _counted(s.then, around), _counted(s.orelse, around)
            return s if (then, orelse) == (s.then, s.orelse) else replace(s, then=then, orelse=orelse)
        case _:
            return s


@dataclass(frozen=True)
class _Found:
    """The loop, and the registers that its variable stands for."""

    loop: n.For
    names: frozenset[str]


def _counting(block: list[n.Stmt], k: int, around: _Around) -> _Found | None:
    s, positive = block[k], around.positive
    bounds = _bounds(s.cond) if isinstance(s, n.While) else None
    if bounds is None or not isinstance(s, n.While):
        return None
    counter, ends = bounds
    at = _tail(s.body, counter)
    rest, steps, followers = s.body[:at], dict[n.Buffer, n.Expr](), list[n.Buffer]()
    for x in s.body[at:]:
        assert isinstance(x, n.Store)
        if (added := _added(x, x.at.buffer)) is not None:
            steps[x.at.buffer] = added
        elif counter in steps and x.at.buffer.dtype == counter.dtype:
            followers.append(x.at.buffer)
        else:
            return None
    names = frozenset(b.name for b in (*steps, *followers))
    if counter not in steps or len(names) != len(s.body) - at:
        return None
    changed = {*names, *(name for x in rest for name in names_changed(x)), *bound_names(rest)}
    known = (*steps.values(), *ends)
    if not _is_positive(steps[counter], positive) or any((names_read(e) | buffers_named(e)) & changed or _reads_memory(e) for e in known):
        return None
    if any(names_changed(x) & names for x in rest) or _goes_on(rest):
        return None
    begun = _begun(block[:k], counter, [*steps], followers)
    goes_on = begun is None and counter.name in around.last and len(names) == 1  # it counts on from where it stands, for the last time
    begun = {counter: n.Load(n.Region(counter))} if goes_on else begun
    if begun is None or any(names & (names_read(x) | buffers_named(x)) for x in block[k + 1:]):
        return None
    end = reduce(lambda a, b: build.binary("min", a, b), ends)
    var = n.Var(around.fresh(counter.name) if goes_on else counter.name, counter.dtype)
    values: dict[str, n.Expr] = dict.fromkeys((counter.name, *(b.name for b in followers)), var)
    loop = n.For(var, begun[counter], end, steps[counter], (), label=s.label, origin=s.origin)
    if len(steps) > 1:  # it counts its rounds
        if counter.dtype.name != "i32" or build.int_value(steps[counter]) is None or any((names_read(e) | buffers_named(e)) & changed for e in begun.values()):
            return None
        made_of = {b: build.add(begun[b], build.mul(var if b.dtype == var.type else build.cast(var, b.dtype), step)) for b, step in steps.items()}
        values = {**{b.name: made_of[counter] for b in followers}, **{b.name: e for b, e in made_of.items()}}
        loop = replace(loop, lo=build.const(0), hi=build.ceildiv(build.sub(end, begun[counter]), steps[counter]), step=build.const(1))

    def leave(old: n.Node, new: n.Node) -> n.Node:
        return values[new.at.buffer.name] if isinstance(new, n.Load) and _scalar(new) is not None and new.at.buffer.name in names else new
    made = tuple(transform(x, leave) for x in rest)
    if any(names & buffers_named(x) for x in made):
        return None
    return _Found(replace(loop, body=made), frozenset() if goes_on else names)


def _goes_on(body: n.Block) -> bool:
    """Whether a loop's body may go on with the next turn before its end."""
    return any((isinstance(s, n.Jump) and s.kind == "continue") or (not isinstance(s, n.For | n.While) and any(map(_goes_on, blocks_of(s)))) for s in body)


def _bounds(cond: n.Expr) -> tuple[n.Buffer, list[n.Expr]] | None:
    """The scalar that a condition bounds from above, and the ends before which it must stay: several where as many bounds hold together."""
    parts = [cond]
    while (both := next((x for x in parts if isinstance(x, n.Binary) and x.op == "and"), None)) is not None:
        k = parts.index(both)
        parts[k:k + 1] = [both.a, both.b]
    counter = next((b for x in parts if isinstance(x, n.Binary) and (b := _scalar(x.a)) is not None), None)
    ends: list[n.Expr] = []
    for x in parts:
        if counter is None or not isinstance(x, n.Binary) or x.op not in ("lt", "le") or (x.op == "le" and counter.dtype.name != "i32"):
            return None
        if len(parts) > 1 and not x.a.type == x.b.type == counter.dtype:
            return None
        more = build.sub(x.a, n.Load(n.Region(counter))) if _scalar(x.a) != counter else None
        if more is not None and (counter.dtype != I32 or x.a.type != I32 or counter.name in buffers_named(more)):
            return None
        end = x.b if more is None else build.sub(x.b, more)
        ends.append(build.add(end, 1) if x.op == "le" else end)
    return (counter, ends) if counter is not None else None


def _is_small(s: n.For) -> bool:
    """Whether a loop's variable is a number by which 1 can be shifted."""
    lo, hi = build.int_value(s.lo), build.int_value(s.hi)
    return lo is not None and hi is not None and lo >= 0 and hi <= 24


def _halving(block: list[n.Stmt], k: int, small: frozenset[str]) -> _Found | None:
    """A loop that halves a scalar, a power of two at first, as long as it is not 0: it counts the halvings. Powers shift by what is `small`."""
    s = block[k]
    counter = _scalar(s.cond.a) if isinstance(s, n.While) and isinstance(s.cond, n.Binary) and (
        (s.cond.op in ("ne", "gt") and build.is_const(s.cond.b, 0)) or (s.cond.op == "ge" and build.is_const(s.cond.b, 1))) else None
    if counter is None or not isinstance(s, n.While) or not s.body or not counter.dtype.is_integer or not _halves(s.body[-1], counter):
        return None
    rest, name = s.body[:-1], counter.name
    begun = _begun(block[:k], counter, [counter], [])
    first = _power(begun[counter]) if begun is not None else None
    if first is None or _goes_on(rest) or any(name in names_changed(x) for x in rest):
        return None
    known = names_read(first[1])
    if any(name in names_read(x) | buffers_named(x) for x in block[k + 1:]) or not known <= small or known & {*bound_names(rest), *names_changed(s)}:
        return None
    var = n.Var(name, I32)
    rounds = build.add(first[1], 1)
    value = build.binary("shr", build.const(1 << first[0]), var) if isinstance(first[1], n.Const) else build.binary(
        "shl", build.const(1), build.sub(first[1], var))
    made = tuple(transform(x, lambda _, new: build.cast(value, counter.dtype) if isinstance(new, n.Load) and _scalar(new) == counter else new) for x in rest)
    if any(name in buffers_named(x) for x in made):
        return None
    return _Found(n.For(var, build.const(0), rounds, build.const(1), made, label=s.label, origin=s.origin), frozenset({name}))


def _halves(s: n.Stmt, counter: n.Buffer) -> bool:
    """Whether a statement makes a scalar half of what it was."""
    if not isinstance(s, n.Store) or s.mask is not None or s.at != n.Region(counter) or not isinstance(v := s.value, n.Binary) or _scalar(v.a) != counter:
        return False
    return (v.op == "shr" and build.is_const(v.b, 1)) or (v.op in ("tdiv", "floordiv") and build.is_const(v.b, 2))


def _power(e: n.Expr) -> tuple[int, n.Expr] | None:
    """The exponent of a power of two, as a number where it is one and as an expression."""
    value = build.int_value(e)
    if value is not None:
        return (value.bit_length() - 1, build.const(value.bit_length() - 1)) if value > 0 and not value & (value - 1) else None
    if isinstance(e, n.Cast) and e.rounding == "rn" and dtype_of(e.x.type).is_integer and e.dtype.is_integer and e.dtype.bits >= 32:
        return _power(e.x)
    if not isinstance(e, n.Binary):
        return None
    by = build.int_value(e.b)
    if e.op == "shl" and (at := _power(e.a)) is not None and isinstance(at[1], n.Const):
        return -1, build.add(e.b, at[0])
    less = by if e.op == "shr" else by.bit_length() - 1 if e.op in ("floordiv", "tdiv") and by and not by & (by - 1) else None
    if less is None or less < 0 or (at := _power(e.a)) is None or at[0] >= 0 or not _adds(at[1], less):
        return None
    return -1, build.sub(at[1], less)


def _adds(e: n.Expr, least: int) -> bool:
    """Whether a number that is not negative has at least so much added."""
    return build.polynomial(e).get((), 0) >= least


def _tail(body: n.Block, counter: n.Buffer) -> int:
    """Where the statements begin with which a round ends, each of which adds to a scalar, or sets one to the counter."""
    at = len(body)
    while at and isinstance(x := body[at - 1], n.Store) and not x.at.index and not x.at.buffer.shape and x.at.buffer.space == "register" and x.mask is None:
        if not x.at.buffer.dtype.is_integer or (_added(x, x.at.buffer) is None and _scalar(x.value) != counter):
            break
        at -= 1
    return at


def _begun(before: list[n.Stmt], counter: n.Buffer, steps: list[n.Buffer], followers: list[n.Buffer]) -> dict[n.Buffer, n.Expr] | None:
    """What the counter and those that step beside it begin with, where they and the followers are declared so and nothing but declarations stands between."""
    first: dict[n.Buffer, n.Expr] = {}
    left = {b.name for b in (*steps, *followers)}
    names = frozenset(left)
    for s in reversed(before):
        if isinstance(s, n.Alloc) and s.buffer.name in left and s.init is not None:
            left.discard(s.buffer.name)
            if s.buffer in steps:
                if names & buffers_named(s.init) or _reads_memory(s.init):
                    return None
                first[s.buffer] = s.init
            elif _scalar(s.init) != counter:
                return None
            if not left:
                return first
        elif not isinstance(s, (n.Alloc, n.Let)) or names & (names_read(s) | buffers_named(s)):
            return None
    return None


def _scalar(e: n.Expr | None) -> n.Buffer | None:
    """The scalar register that an expression reads as it is."""
    plain = isinstance(e, n.Load) and not e.at.index and e.at.buffer.space == "register" and not e.at.buffer.shape and e.mask is None
    return e.at.buffer if plain and isinstance(e, n.Load) else None


def _added(s: n.Store, counter: n.Buffer) -> n.Expr | None:
    v = s.value
    if s.mask is not None or not isinstance(v, n.Binary) or v.op != "add":
        return None
    return v.b if _scalar(v.a) == counter else v.a if _scalar(v.b) == counter else None


def _reads_memory(e: n.Expr) -> bool:
    """Whether an expression reads more than registers that nothing here changes."""
    return any((isinstance(x, n.Load) and x.at.buffer.space not in ("register",)) or (isinstance(x, n.Call) and x.of is not None) for x in walk(e))


def _is_positive(e: n.Expr, positive: frozenset[str] = frozenset()) -> bool:
    """Whether a step leads up: a literal, what an unsigned number is (a step of 0 would never end), a product of what is positive."""
    value = build.int_value(e)
    if value is not None:
        return value > 0
    if dtype_of(e.type).kind == "uint" or (isinstance(e, n.Var) and e.name in positive):
        return True
    if isinstance(e, n.Binary) and e.op == "mul":  # a signed product that does not fit is undefined
        return _is_positive(e.a, positive) and _is_positive(e.b, positive)
    return isinstance(e, n.Cast) and dtype_of(e.x.type).is_integer and _is_positive(e.x, positive) and dtype_of(e.x.type).bits < dtype_of(e.type).bits
