"""Whether the iterations of a loop may run side by side, and in any order."""
from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from kir.analysis.access import Aliases
from kir.analysis.elements import element_region
from kir.analysis.facts import Facts
from kir.analysis.order import at_most, less
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.paths import block_paths, enclosing
from kir.ir.printer import region_text
from kir.ir.types import I32, DType, dtype_of, shape_of
from kir.ir.visit import children, names_read, statements, substitute, walk
from kir.rewrite import Path, Verdict, proved, refuted, unknown
from kir.rewrite.edit import node_at, replace_kernel

MOST_CASES = 1 << 14
"""Iterations that are tried one by one."""
OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
    "min": min, "max": max, "xor": operator.xor, "and": operator.and_, "or": operator.or_,
    "shl": operator.lshift, "shr": operator.rshift, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge}
"""Integer arithmetic, as Python has it."""


@dataclass(frozen=True)
class _Touches:
    """What a loop does to memory that outlives an iteration. Stores come with the path of their statement."""

    stores: tuple[tuple[Path, n.Store], ...]
    loads: tuple[n.Region, ...]
    atomics: tuple[n.Region, ...]
    tickets: frozenset[str]


def _touches(path: Path, loop: n.For) -> _Touches:
    own = set(bound_names(loop.body))
    stores: list[tuple[Path, n.Store]] = []
    loads: list[n.Region] = []
    atomics: list[n.Region] = []
    tickets: set[str] = set()
    for below, s in block_paths(loop.body, ("body",)):
        if isinstance(s, n.Store) and s.at.buffer.name not in own:
            stores.append(((*path, *below), s))
        if isinstance(s, n.Let) and isinstance(s.value, n.Call) and s.value.fn == "atomic_add":
            operand = s.value.args[1]
            if isinstance(operand, n.Expr) and (build.int_value(operand) or 0) > 0:
                tickets.update(s.names)
    for x in walk(loop):
        if isinstance(x, n.Load) and x.at.buffer.name not in own:
            loads.append(x.at)
        if isinstance(x, n.Call) and x.fn.startswith("atomic_"):
            atomics += [a for a in x.args if isinstance(a, n.Region)]
    return _Touches(tuple(stores), tuple(loads), tuple(atomics), frozenset(tickets))


def independent(program: n.Program, path: Path, loop: n.For, serial: bool = False) -> Verdict:
    """Whether no iteration of the loop at a path touches what another one writes (atomics apart). `serial`: they all stay in one thread, which has all elements
    of its arrays."""
    found = _touches(path, loop)
    written: dict[str, list[n.Region]] = {}
    tried: dict[str, bool] = {}

    def apart(name: str) -> bool:
        if name not in tried:
            tried[name] = _apart_by_trying(program, path, loop, name)
        return tried[name]
    for where, s in found.stores:
        if s.at.buffer.space == "register" and not (serial and s.at.index):
            return refuted(f"'{s.at.buffer.name}' is carried from one iteration to the next", f"each iteration writes {region_text(s.at)}",
                           needs="iterations that only write places of their own")
        if not (own_place(program, where, s.at, loop) or _ticket(s.at, loop, found.tickets) or apart(s.at.buffer.name)):
            return unknown(f"several iterations of the loop over '{loop.var.name}' may write one place of '{s.at.buffer.name}'",
                           needs="a place that moves with each iteration")
        others = written.setdefault(s.at.buffer.name, [])
        if s.at not in others and not _ticket(s.at, loop, found.tickets) and not separated((*others, s.at), loop.var, set(bound_names(loop.body))) and (
                not all(elsewhere(program, where, s.at, r, loop) for r in others)) and not apart(s.at.buffer.name):
            return unknown(f"two statements write '{s.at.buffer.name}' at different places", needs="one place for each iteration")
        others.append(s.at)
    for r in found.loads:
        if r.buffer.name in written and r not in written[r.buffer.name] and not separated(
                (*written[r.buffer.name], r), loop.var, set(bound_names(loop.body))) and not apart(r.buffer.name):
            return unknown(f"an iteration may read what another one writes: {region_text(r)}", needs="reads of the iteration's own places")
    for r in found.atomics:
        if r.buffer.name in written or any(x.buffer.name == r.buffer.name for x in found.loads):
            return unknown(f"'{r.buffer.name}' is updated together, and read or written besides", needs="updates alone")
    return proved("each iteration writes places of its own")


def last_write(program: n.Program, path: Path, loop: n.For) -> Verdict | None:
    """Why it may depend on the order of a loop's iterations whose value stays in global memory: two statements write it at different places, in iterations
    that are not known to be apart. None where no two do; what one statement writes twice is not looked for."""
    aliases, places = Aliases(program), dict.fromkeys(s.at for s in statements(loop.body) if isinstance(s, n.Store) and s.at.buffer.space == "global")
    one = [(a, b) for a, b in itertools.combinations(places, 2) if aliases.may_be_one(a.buffer.name, b.buffer.name)]
    if not one or (all(a.buffer.name == b.buffer.name for a, b in one) and independent(program, path, loop)):
        return None
    return unknown(f"two statements write '{one[0][0].buffer.name}' at different places: whose value stays may depend on which iteration comes last",
                   needs="iterations that are independent")


def order_free(program: n.Program, path: Path, loop: n.For, rounded: bool = False) -> Verdict:
    """Whether it does not matter in which order the iterations of a loop come; with `rounded` sums of floats may be rounded in any."""
    names = [name for s in statements(loop.body) if isinstance(s, n.Let) and any(
        isinstance(x, n.Call) and x.fn.startswith("atomic_") for x in walk(s.value)) for name in s.names]
    if names:
        return unknown(f"what '{names[0]}' is depends on which iteration comes first", needs="a result that does not depend on it")
    own = [a for p, s in block_paths(loop.body, (*path, "body")) if isinstance(s, n.Eval) for a in s.call.args
           if isinstance(a, n.Region) and own_place(program, p, a, loop)]
    exact = [x.args[0] for x in walk(loop) if isinstance(x, n.Call) and x.fn in ("atomic_max", "atomic_min")]
    floats = [r for r in _touches(path, loop).atomics if dtype_of(r.type).is_float and r not in own and r not in exact]
    if floats and not rounded:
        return unknown(f"sums in '{floats[0].buffer.name}' are rounded in the order in which they come", needs="a tolerance for it")
    return proved("nothing depends on the order")


def apart(program: n.Program, path: Path, loop: n.For, name: str) -> bool:
    """Whether no two iterations of a loop at a path touch one place of a buffer, which has no other name in it."""
    places = [*_places(path, loop, name)]
    own = len({r for _, r, _ in places}) == 1 and all(own_place(program, where, r, loop) for where, r, _ in places)
    return own or _apart_by_trying(program, path, loop, name)


def ctas_apart(program: n.Program, kernel: n.Kernel, name: str) -> bool:
    """Whether no two CTAs of a kernel touch one place of a buffer, which has no other name in it."""
    body = kernel.body
    for k in reversed(range(len(kernel.grid))):
        axis = kernel.grid[k]
        loop = n.For(n.Var(axis.name, I32), build.const(0), axis.extent, build.const(1), body)
        body = (loop,)
        made = replace(kernel, grid=(*kernel.grid[:k], n.Axis(f"%{axis.name}", build.const(1))), body=body)
        if not build.is_const(axis.extent, 1) and not apart(replace_kernel(program, kernel.name, made), (kernel.name, 0), loop, name):
            return False
    return True


def elsewhere(program: n.Program, where: Path, a: n.Region, b: n.Region, loop: n.For) -> bool:
    """Whether no iteration reaches with one place, or any element of it, what any iteration reaches with another."""
    other = n.Var("%other", loop.var.of)
    known = Facts.at(program, where).ranging(other, loop.lo, loop.hi, loop.step)
    inner = set(bound_names(loop.body))
    everywhere = _in_any_iteration(program, where, loop)
    (a, known), (b, known) = (first := _one_of(a, "%a", known)), _one_of(b, "%b", first[1])
    for i, j in zip(a.index, b.index, strict=True):
        if isinstance(i, n.Expr) and isinstance(j, n.Expr) and isinstance(i.type, DType) and i.type == j.type and in_other_blocks(
                known.expanded(i), known.expanded(j), known, {loop.var.name, *inner}):
            return True
        if isinstance(i, n.Expr) and isinstance(j, n.Expr) and i.type == j.type == I32 and (
                _before(i, j, everywhere, {loop.var.name, *inner}) or _before(j, i, everywhere, {loop.var.name, *inner})):
            return True
        if isinstance(i, n.Expr) and isinstance(j, n.Expr) and isinstance(i.type, DType) and i.type == j.type and (
                not (names_read(i) | names_read(j)) & inner) and (
                _never_zero(known.expanded(build.sub(i, moved := substitute(j, {loop.var.name: other}))), known)
                or in_other_blocks(i, moved, known)):
            return True
    return False


def _in_any_iteration(program: n.Program, where: Path, loop: n.For) -> Facts:
    """What is known of a loop's counters at any place inside it, whatever branches say."""
    at = next((where[:k] for k in range(len(where), 0, -1) if isinstance(where[k - 1], int) and node_at(program, where[:k]) == loop), None)
    counters = [loop, *(s for s in statements(loop.body) if isinstance(s, n.For))]
    known = Facts.at(program, at) if at is not None else Facts.from_program(program)
    for s in counters if len({s.var.name for s in counters}) == len(counters) else ():
        known = known.ranging(s.var, s.lo, s.hi, s.step)
    return known


def _before(x: n.Expr, y: n.Expr, known: Facts, moving: Collection[str]) -> bool:
    """Whether one index, whatever the `moving` names are, is less than something that none of them changes, and the other is never less than that: the two
    halves of a row."""
    own = _moving(y, moving)
    fixed = build.sub(y, own)
    low = known.domain(known.expanded(own)).lo
    return own != y and low is not None and low >= 0 and less(x, fixed, known)


def _one_of(r: n.Region, name: str, known: Facts) -> tuple[n.Region, Facts]:
    """An element of a place, by numbers in the extents of its tile, and what is known of these."""
    names: list[n.Expr] = []
    for k, d in enumerate(shape_of(r.type)):
        v = n.Var(f"{name}{k}", I32)
        known = known.ranging(v, build.const(0), build.const(d) if isinstance(d, int) else d, build.const(1))
        names.append(v)
    return (element_region(r, names) if names else r), known


def _never_zero(e: n.Expr, known: Facts) -> bool:
    """Whether a number is never 0: by its range, or since all but a part of it is a multiple of something of which that part never is one."""
    found = known.domain(e)
    if (found.lo is not None and found.lo > 0) or (found.hi is not None and found.hi < 0) or (found.modulus and found.residue % found.modulus):
        return True
    terms = build.polynomial(e)
    for by in sorted({abs(c) for m, c in terms.items() if m and abs(c) > 1}):
        rest = known.domain(build.from_polynomial({m: c for m, c in terms.items() if not m or c % by}, dtype_of(e.type)))
        if rest.lo is not None and rest.hi is not None and rest.hi // by == (rest.lo - 1) // by:
            return True
    return False


def in_other_blocks(x: n.Expr, y: n.Expr, known: Facts, moving: Collection[str] = ()) -> bool:
    """Whether two indices, each a remainder by one number and something, are in different blocks of that many, whatever the remainders are of; neither the
    number nor what is added may change with the `moving` names."""
    ours, theirs = only_term(x, "mod"), only_term(y, "mod")
    if ours is not None and theirs is not None and moving and any(
            names_read(e) & set(moving) or any(isinstance(v, (n.Load, n.Call)) for v in walk(e)) for e in (ours[0].b, theirs[0].b, ours[1], theirs[1])):
        return False
    if ours is None or theirs is None or ours[0].b != theirs[0].b or not less(build.const(0, dtype_of(x.type)), ours[0].b, known):
        return False
    return at_most(ours[0].b, build.sub(ours[1], theirs[1]), known) or at_most(ours[0].b, build.sub(theirs[1], ours[1]), known)


def only_term(e: n.Expr, op: str) -> tuple[n.Binary, n.Expr] | None:
    """The only term of a sum that is a result of an operator, once, and the rest of the sum."""
    found = [m[0] for m, by in build.polynomial(e).items() if by == 1 and len(m) == 1 and isinstance(m[0], n.Binary) and m[0].op == op]
    return (found[0], build.sub(e, found[0])) if len(found) == 1 else None


def separated(places: Sequence[n.Region], var: n.Var, inner: Collection[str]) -> bool:
    """Whether none of these places of one buffer for a value of a variable is any of them for another: along some dimension all lie alike, and the
    variable moves them further than they reach. `inner` are names that may have another value then."""
    return any(all(r.index[d] == places[0].index[d] for r in places) and _carries(places[0].index[d], var, inner)
               for d in range(min(len(r.index) for r in places)))


def _carries(i: n.Expr | n.Span, var: n.Var, inner: Collection[str]) -> bool:
    """Whether an index is moved by a variable, and by nothing else that moves, further than it reaches."""
    reach, lo = (i.extent, i.lo) if isinstance(i, n.Span) else (1, i)
    if not isinstance(reach, int) or (isinstance(i, n.Span) and i.step not in (1, build.const(1))) or not isinstance(lo.type, DType):
        return False
    terms = build.polynomial(lo)
    others = [a for m in terms for a in m if m != (var,)]
    fixed = not any(names_read(a) & {var.name, *inner} or any(isinstance(x, (n.Load, n.Call)) for x in walk(a)) for a in others)
    return fixed and abs(terms.get((var,), 0)) >= max(reach, 1)


def own_place(program: n.Program, where: Path, r: n.Region, loop: n.For) -> bool:
    """Whether a place, with each of its elements, differs from iteration to iteration: in some dimension the loop's variable moves it further than
    everything that is bound inside the loop can."""
    known = Facts.at(program, where)
    one, more = _one_of(r, "%e", known)
    inner = set(bound_names(loop.body))
    return _has_own(r, loop, inner, known) or (one != r and _has_own(one, loop, {*inner, *(x.name for x in walk(one) if isinstance(x, n.Var)
                                                                                           and x.name.startswith("%e"))}, more))


def _has_own(r: n.Region, loop: n.For, inner: set[str], known: Facts) -> bool:
    r, counts = _counted(r, loop)
    inner = inner | counts
    whole = replace(r, index=tuple(known.expanded(i) if isinstance(i, n.Expr) and names_read(i) & inner else i for i in r.index))
    return separated((r,), loop.var, inner) or any(
        _moves(x, loop, inner, known) for x in (
            r, *([whole] if whole != r else []), *_numbered(r, loop, inner, known), *_numbered(whole, loop, inner, known), *_widened(r, loop, inner)))


def _widened(r: n.Region, loop: n.For, inner: set[str]) -> Iterator[n.Region]:
    """The places by numbers of which an index is the conversion to more bits, plus what is the same in every iteration: two that differ in one differ."""
    for i in r.index:
        moving = {m: c for m, c in build.polynomial(i).items() if any(names_read(a) & {*inner, loop.var.name} for a in m)} if isinstance(i, n.Expr) else {}
        if len(moving) == 1 and len(only := next(iter(moving))) == 1 and isinstance(cast := only[0], n.Cast) and dtype_of(cast.type).is_integer and (
                dtype_of(cast.x.type).is_integer and dtype_of(cast.type).bits >= dtype_of(cast.x.type).bits):
            yield n.Region(r.buffer, (cast.x,))


def _counted(r: n.Region, loop: n.For) -> tuple[n.Region, set[str]]:
    """A place with the variables of loops that begin where the loop's own one says as that beginning and so many steps, and the names of how many."""
    at: dict[str, n.Expr] = {}
    for x in walk(loop):
        if isinstance(x, n.For) and x is not loop and loop.var.name in names_read(x.lo) and x.lo.type == x.step.type == x.var.of:
            at[x.var.name] = build.add(x.lo, build.mul(n.Var(f"%{x.var.name}", x.var.of), x.step))
    index = tuple(substitute(i, at) if isinstance(i, n.Expr) else i for i in r.index)
    return (replace(r, index=index), {f"%{name}" for name in at}) if at else (r, set())


def _numbered(r: n.Region, loop: n.For, inner: set[str], known: Facts) -> list[n.Region]:
    """The places by the numbers that a place tells: two that differ in one of them differ. What is the same in every iteration tells nothing."""
    moving = {loop.var.name, *inner}
    places = [part for i in r.index if isinstance(i, n.Expr) for part in dict.fromkeys((i, _moving(i, moving)))]
    index = [*r.index, *(x for part in places for x in _blocks(part, moving, known))]
    index += _quotients(index, known)
    told = numbers_told([*index, *(_moving(i, moving) for i in r.index if isinstance(i, n.Expr))], moving)
    return [n.Region(r.buffer, (x,)) for x in (*told, *_of_digits(r.index, known, moving))]


def _blocks(i: n.Expr, moving: Collection[str], known: Facts) -> Iterator[n.Expr]:
    """The number of which an index tells the multiple by a literal, or by a size, and what is less than that."""
    terms = build.polynomial(i) if isinstance(i.type, DType) else {}
    for by in sorted({abs(c) for m, c in terms.items() if m and abs(c) > 1 and any(names_read(a) & set(moving) for a in m)}):
        less_than = build.from_polynomial({m: c for m, c in terms.items() if c % by}, dtype_of(i.type))
        rest = known.domain(less_than)
        if rest.lo is not None and rest.hi is not None and rest.lo >= 0 and rest.hi < by and known.is_exact(i):
            yield less_than
            yield build.from_polynomial({m: c // by for m, c in terms.items() if not c % by}, dtype_of(i.type))
    for size in dict.fromkeys(a for m in terms if len(m) > 1 for a in m):
        if names_read(size) & set(moving) or any(isinstance(x, (n.Load, n.Call)) for x in walk(size)):
            continue
        inside = build.from_polynomial({m: c for m, c in terms.items() if size not in m}, dtype_of(i.type))
        number = build.from_polynomial({_without(m, size): c for m, c in terms.items() if size in m}, dtype_of(i.type))
        low = known.domain(inside).lo
        if low is not None and low >= 0 and less(inside, size, known) and (known.is_exact(i) or _within(number, size, known)):
            yield number


def _within(number: n.Expr, size: n.Expr, known: Facts) -> bool:
    """Whether as many blocks of a size as a number may be fit in what the size is a part of: `a % g` blocks of `c // g` elements each, in `c`."""
    return isinstance(number, n.Binary) and number.op == "mod" and isinstance(size, n.Binary) and size.op == "floordiv" and size.b == number.b and (
        at_most(build.const(1), size.b, known) and at_most(build.const(0), size.a, known))


def _without(m: build.Monomial, atom: n.Expr) -> build.Monomial:
    """A product without one of its factors."""
    k = m.index(atom)
    return (*m[:k], *m[k + 1:])


def _quotients(index: Sequence[n.Expr | n.Span], known: Facts) -> Iterator[n.Expr]:
    """The quotients `a // b` of which indices tell the remainder by `c` and, as `a // (b * c)`, the quotient."""
    for q, m in itertools.product(index, index):
        if isinstance(q, n.Binary) and q.op == "floordiv" and isinstance(m, n.Binary) and m.op == "mod" and isinstance(m.a, n.Binary) and m.a.op == "floordiv":
            whole = m.a.a == q.a and q.b.type == m.b.type == I32 and build.is_const(build.sub(build.mul(m.a.b, m.b), q.b), 0)
            if whole and at_most(build.const(1), m.b, known) and known.is_exact(q.b):
                yield m.a


def _of_digits(index: Sequence[n.Expr | n.Span], known: Facts, moving: Collection[str]) -> Iterator[n.Expr]:
    """The numbers of which indices tell all digits: the remainder by one size that none of the `moving` names changes, that of the quotient by the next one,
    and so on, and the last quotient. By what it is divided last may be too large for 32 bits: then the digits before tell the number by themselves."""
    told = {i for i in index if isinstance(i, n.Expr)}
    for e in dict.fromkeys(i.a for i in told if isinstance(i, n.Binary) and i.op == "mod" and i.type == I32):
        low = known.domain(known.expanded(e)).lo
        by: n.Expr = build.const(1)
        while low is not None and low >= 0:
            if by != build.const(1) and (build.binary("tdiv", e, by) in told or (known.is_exact(by) and build.floordiv(e, by) in told)):
                yield e
                break
            digit = next((i for i in told if isinstance(i, n.Binary) and i.op == "mod" and i.a == build.floordiv(e, by)), None)
            if digit is None or names_read(digit.b) & set(moving) or any(isinstance(x, (n.Load, n.Call)) for x in walk(digit.b)):
                break
            if not at_most(build.const(1), digit.b, known) or not known.is_exact(by):
                break
            by = build.mul(by, digit.b)


def _moving(i: n.Expr, names: Collection[str]) -> n.Expr:
    """An index without what some names, and loads and calls, have no part in."""
    if not isinstance(i.type, DType):
        return i
    terms = build.polynomial(i).items()
    return build.from_polynomial({m: c for m, c in terms if any(
        names_read(a) & set(names) or any(isinstance(x, (n.Load, n.Call)) for x in walk(a)) for a in m)}, i.type)


def numbers_told(index: Sequence[n.Expr | n.Span], moving: Collection[str]) -> list[n.Expr]:
    """The numbers of which indices tell both the quotient and the remainder by something that none of the `moving` names changes, and those of which
    these then tell both."""
    known = {i for i in index if isinstance(i, n.Expr)}
    parts = dict.fromkeys(x for i in index if isinstance(i, n.Expr) for x in walk(i) if isinstance(x, n.Binary) and x.op == "floordiv"
                          and not names_read(x.b) & set(moving) and not any(isinstance(y, (n.Load, n.Call)) for y in walk(x.b)))
    found: dict[n.Expr, None] = {}
    while more := [x.a for x in parts if x.a not in known and x in known and build.mod(x.a, x.b) in known]:
        known.update(more)
        found.update(dict.fromkeys(more))
    return list(found)


def _moves(r: n.Region, loop: n.For, inner: set[str], known: Facts) -> bool:
    for i in r.index:
        if not isinstance(i, n.Expr):
            continue
        step, linear = 0, True
        rest: dict[build.Monomial, int] = {}
        for monomial, c in build.polynomial(i).items():
            if monomial == (loop.var,) or (len(monomial) == 1 and _is_widened(monomial[0], loop.var)):
                step = c
            elif any(loop.var.name in names_read(a) for a in monomial):
                linear = False
            elif any(names_read(a) & inner or any(isinstance(x, n.Load) for x in walk(a)) for a in monomial):
                rest[monomial] = c
        past = (build.int_value(loop.hi) or 0) if build.is_const(loop.lo, 0) and build.is_const(loop.step, 1) else 0
        small = {m: c for m, c in rest.items() if abs(c) < abs(step)}
        reach = known.domain(build.from_polynomial(small, dtype_of(i.type)))
        across = reach.hi - reach.lo if reach.lo is not None and reach.hi is not None else None
        if linear and step and past and across is not None and across < abs(step) and (
                abs(step) * (past - 1) + across < math.gcd(*(c for m, c in rest.items() if m not in small))):
            return True  # what moves it less than one step stays within a step, and the rest is a multiple of more than both move it by in all
        spread = known.domain(build.from_polynomial(rest, dtype_of(i.type)))
        if linear and step and spread.lo is not None and spread.hi is not None and spread.hi - spread.lo < abs(step):
            return True
    return _apart_by_cases(r, loop, inner, known)


def _is_widened(e: n.Expr, var: n.Var) -> bool:
    """Whether a number is a variable in more bits, which hold all that it may be."""
    if not (isinstance(e, n.Cast) and e.x == var and isinstance(e.type, DType) and isinstance(var.of, DType) and e.type.is_integer and var.of.is_integer):
        return False
    (low, high), (least, most) = var.of.range, e.type.range
    return least <= low and high <= most


def _apart_by_cases(r: n.Region, loop: n.For, inner: set[str], known: Facts) -> bool:
    """Whether no two iterations of a loop reach one place, by trying them all: for places whose indices are an invariant part and a
    part that few values of the loop's variable and of what is bound inside decide."""
    moving: list[n.Expr] = []
    for i in r.index:
        if not isinstance(i, n.Expr) or any(isinstance(x, (n.Load, n.Call)) for x in walk(i)):
            return False
        rest = {m: c for m, c in build.polynomial(i).items() if any(names_read(a) & {*inner, loop.var.name} for a in m)}
        moving.append(build.from_polynomial(rest, dtype_of(i.type)))
    names = {loop.var.name: loop.var, **{x.name: x for e in moving for x in walk(e) if isinstance(x, n.Var)}}
    ranges = []
    for v in names.values():
        domain = known.domain(v)
        if domain.lo is None or domain.hi is None:
            return False
        ranges.append(range(domain.lo, domain.hi + 1))
    if any(r.stop <= r.start for r in ranges):
        return True  # no iteration reaches it
    if math.prod(r.stop - r.start for r in ranges) > MOST_CASES:  # a range of 64 bits has no length
        return False
    reached: dict[tuple[int | None, ...], int] = {}
    for values in itertools.product(*ranges):
        at = dict(zip(names, values, strict=True))
        place = tuple(number(e, at) for e in moving)
        if None in place or reached.setdefault(place, values[0]) != values[0]:
            return False
    return True


def _apart_by_trying(program: n.Program, path: Path, loop: n.For, name: str) -> bool:
    """Whether no iteration of a loop touches a place of a buffer that another one writes, by trying all values of the variables that places depend on,
    those of loops around it included, as far as the conditions on the way and the ends of loops admit them."""
    touched = [*_places(path, loop, name)]
    if len({len(r.index) for _, r, _ in touched}) != 1 or any(  # none, or one place as a whole beside one by its coordinates
            isinstance(i, n.Span) or any(isinstance(x, (n.Load, n.Call)) for x in walk(i)) for _, r, _ in touched for i in r.index):
        return False
    terms = [[build.polynomial(i) for i in r.index if isinstance(i, n.Expr)] for _, r, _ in touched]
    around = {s.var.name for _, s in enclosing(program, path) if isinstance(s, n.For)}
    fixed = [_alike(dim, {loop.var.name, *bound_names(loop.body), *around}) for dim in zip(*terms, strict=True)]
    moving = [tuple(build.from_polynomial({m: c for m, c in p.items() if m not in same}, dtype_of(i.type))
                    for p, same, i in zip(ps, fixed, r.index, strict=True) if isinstance(i, n.Expr)) for ps, (_, r, _) in zip(terms, touched, strict=True)]
    outer = {x.name: x for es in moving for e in es for x in walk(e) if isinstance(x, n.Var) and x.name in around}
    seen: dict[tuple[tuple[int, ...], tuple[int | None, ...]], tuple[int, bool]] = {}
    budget, done = MOST_CASES, set[object]()
    for (where, _, writes), place in sorted(zip(touched, moving, strict=True), key=lambda x: not x[0][2]):
        names = {loop.var.name: loop.var, **outer, **{x.name: x for e in place for x in walk(e) if isinstance(x, n.Var)}}
        conditions = _conditions(program, where, names, writes)
        if (place, tuple(conditions)) in done:
            continue
        done.add((place, tuple(conditions)))
        known = Facts.at(program, where)
        domains = [known.domain(v) for v in names.values()]
        ranges = [range(d.lo, d.hi + 1) for d in domains if d.lo is not None and d.hi is not None]
        budget -= math.prod(max(0, r.stop - r.start) for r in ranges)
        if len(ranges) < len(domains) or budget < 0:
            return False
        for values in itertools.product(*ranges):
            at = dict(zip(names, values, strict=True))
            if any(number(c, at) == 0 for c in conditions):
                continue
            found = tuple(number(e, at) for e in place)
            key = (tuple(at[x] for x in outer), found)
            if None in found or (key in seen and seen[key][0] != values[0] and (writes or seen[key][1])):
                return False
            if key not in seen or writes:
                seen[key] = values[0], writes or (key in seen and seen[key][1])
    return True


def _places(path: Path, loop: n.For, name: str) -> Iterator[tuple[Path, n.Region, bool]]:
    """Where a loop touches a buffer, with the path of the statement, and whether it writes."""
    for below, s in block_paths(loop.body, ("body",)):
        own = [x for x in children(s) if not isinstance(x, n.Stmt)]
        nodes = [x for e in own for x in walk(e)]
        read = {id(x.at) for x in nodes if isinstance(x, n.Load)}
        yield from (((*path, *below), x, id(x) not in read) for x in nodes if isinstance(x, n.Region) and x.buffer.name == name)


def _alike(dim: Sequence[Mapping[build.Monomial, int]], moving: set[str]) -> set[build.Monomial]:
    """The terms that an index has at every place, of names that do not move."""
    same = set(dim[0].items()).intersection(*(p.items() for p in dim[1:]))
    return {m for m, _ in same if not any(names_read(a) & moving for a in m)}


def _conditions(program: n.Program, where: Path, names: Mapping[str, n.Var], writes: bool) -> list[n.Expr]:
    """What holds at a statement by the branches and loops around it, and by the mask of a store that writes, of these names alone."""
    out: list[n.Expr] = []
    for p, s in enclosing(program, where):
        if isinstance(s, n.If):
            inside = where[len(p)]
            out += _conjuncts(s.cond) if inside == "then" else [build.unary("not", s.cond)]
        elif isinstance(s, n.For):
            out += [build.compare("le", s.lo, s.var), build.compare("lt", s.var, s.hi)]
    store = node_at(program, where)
    if writes and isinstance(store, n.Store) and store.mask is not None and isinstance(store.mask.type, DType):
        out += _conjuncts(store.mask)
    only: dict[str, n.Expr] = {a.name: build.const(0) for k in program.kernels if k.name == where[0] for a in k.grid if build.is_const(a.extent, 1)}
    out = [substitute(c, only) for c in out]
    return [c for c in out if names_read(c) <= set(names) and not any(isinstance(x, (n.Load, n.Call)) for x in walk(c))]


def _conjuncts(e: n.Expr) -> list[n.Expr]:
    return [*_conjuncts(e.a), *_conjuncts(e.b)] if isinstance(e, n.Binary) and e.op == "and" and dtype_of(e.type).is_bool else [e]


def number(e: n.Expr, values: Mapping[str, int]) -> int | None:
    """The value of integer arithmetic at values of its variables; None for what is not arithmetic, or would wrap."""
    match e:
        case n.Const():
            return int(e.value)
        case n.Var():
            return values.get(e.name)
        case n.Unary(op="neg"):
            x = number(e.x, values)
            return None if x is None else -x
        case n.Unary(op="not"):
            x = number(e.x, values)
            return None if x is None else int(not x)
        case n.Cast() if dtype_of(e.type).is_integer and dtype_of(e.x.type).is_integer:
            x, (low, high) = number(e.x, values), dtype_of(e.type).range
            return x if x is not None and low <= x <= high else None
        case n.Binary():
            a, b = number(e.a, values), number(e.b, values)
            low, high = dtype_of(e.type).range
            if a is None or b is None or (e.op in ("floordiv", "mod") and b <= 0) or e.op not in OPERATIONS or (
                    e.op in ("shl", "shr") and not 0 <= b < 64):
                return None
            found = int(OPERATIONS[e.op](a, b))
            return found if low <= found <= high else None
        case _:
            return None


def _ticket(r: n.Region, loop: n.For, tickets: frozenset[str]) -> bool:
    """Whether a place is given by a number that each iteration draws for itself."""
    inner = set(bound_names(loop.body)) | {loop.var.name}
    for i in r.index:
        if isinstance(i, n.Expr):
            drawn = [(m, c) for m, c in build.polynomial(i).items() if any(names_read(a) & inner for a in m)]
            if len(drawn) == 1 and len(drawn[0][0]) == 1 and isinstance(drawn[0][0][0], n.Var) and drawn[0][0][0].name in tickets:
                return True
    return False
