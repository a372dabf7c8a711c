"""A walk over tiles by each role of a kernel: rings go on from tile to tile, so their slots and phases count iterations over all tiles.

A role's code for one tile stands in a loop `for i in 0..number of tiles of this CTA`, inside a loop over its warpgroups where it has one.
Values of the CTA that depend on the tile are computed by each role for itself. Slots and phases count `i * trips` iterations more.
CTAs of a cluster walk in step: all of them take as many tiles, and they meet after the last.
"""
from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.paths import child_blocks, with_block
from kir.ir.types import I32, DType, dtype_of
from kir.ir.visit import names_read, statements, substitute, transform, walk
from kir.rewrite import Context, Site, Verdict, proved, refuted
from kir.rewrite.edit import fresh, kernel_of, names_in
from kir.rewrite.match import fresh_var, matched_as, values_for
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.match.materialize import buffers_written

from ..pipelining._rings import NoRing, Rings, counted, roles_at


@dataclass(frozen=True)
class Walk:
    """What a kernel's roles do for one tile: `lets` are the values that depend on the tile, `front` the rest before the roles."""

    lets: tuple[n.Let, ...]
    front: n.Block
    roles: n.Roles


def every_tile_ends(program: n.Program, site: Site, context: Context) -> Verdict:
    """A precondition: no tile ends the CTA, which has others to compute."""
    if any(isinstance(s, n.Jump) and s.kind == "return" for s in walk(kernel_of(program, site.path))):
        return refuted("a tile that returns early would end the walk over the others", "tile 0 returns, and tile 132 is never computed")
    return proved("every tile runs to its end")


def of_tile(kernel: n.Kernel, tile: str) -> Walk:
    """The parts of a kernel of one tile a CTA. What depends on the tile before the roles is worked out by each role, from what nobody writes. Raises NoRing."""
    found = roles_at(kernel)
    if found is None:
        raise NoRing("the kernel does not end in roles")
    dependent, lets, front = {tile}, [], []
    for s in kernel.body[:-1]:
        if names_read(s) & dependent:
            if not isinstance(s, n.Let) or not _fixed(s, buffers_written(kernel.body)):
                raise NoRing("something but a value depends on the tile before the roles")
            dependent |= set(s.names)
            lets.append(s)
        else:
            front.append(s)
    return Walk(tuple(lets), tuple(front), found[1])


def _fixed(s: n.Let, written: set[str]) -> bool:
    """Whether a value is the same whenever it is worked out: it reads at most tensors that are not written."""
    return all(x.at.buffer.space == "global" and x.at.buffer.name not in written for x in walk(s) if isinstance(x, n.Load))


def trips(kernel: n.Kernel, roles: n.Roles, carried: bool = False, apart: bool = False) -> dict[int, n.Expr]:
    """For each role that uses rings, how many slots it takes for a tile; where they are added up (`carried`), all of a tile's code may stand under one
    condition, the same in each role, or, where each has values of its own (`apart`), one in each. Raises NoRing."""
    names = set(Rings.of(kernel).bars)
    out: dict[int, n.Expr] = {}
    conditions = set[n.Expr | None]()
    for i, r in enumerate(roles.roles):
        loops = _counting(r.body, names)
        if len(loops) > 1:
            raise NoRing(f"'{r.name}' takes slots in several loops")
        if loops:
            out[i] = loops[0].hi
            conditions.add(_condition(r.body, loops[0], carried))
    if len(conditions) > 1 and not apart:
        raise NoRing("roles take slots under different conditions")
    return out


def _condition(block: n.Block, loop: n.For, carried: bool) -> n.Expr | None:
    """The condition under which all of a tile's code stands, with the loop in it. Raises NoRing for a loop under any other."""
    for s in block:
        if s is loop or not any(x is loop for x in statements((s,))):
            continue
        if isinstance(s, n.For):
            return _condition(s.body, loop, carried)
        others = [x for x in block if not isinstance(x, n.Let)]
        if isinstance(s, n.If) and carried and others == [s] and any(x is loop for x in s.then):
            return s.cond
        raise NoRing("a ring goes on in some tiles alone, under a condition")
    return None


def _counting(block: n.Block, names: set[str]) -> list[n.For]:
    """The counted loops of a role that wait on the mbarriers of rings."""
    return [s for s in statements(block) if isinstance(s, n.For) and counted(s) and any(
        isinstance(x, n.Eval) and x.call.fn == "mbar_wait" and any(mentions(x, y) for y in names) for x in s.body)]


def walking(program: n.Program, kernel: n.Kernel, tile: n.Axis, ctas: n.Expr, named: bool, carried: bool = False, snake: bool = False) -> n.Kernel:
    """The kernel with a loop over tiles in each role; with `named`, their number is a value before the roles; with `carried`, each role adds up the slots
    that it took; with `snake`, every second round goes backward over the CTAs. Raises NoRing."""
    parts, rings = of_tile(kernel, tile.name), Rings.of(kernel)
    slots = trips(kernel, parts.roles, carried)
    _given_back(parts.roles, rings)
    taken = names_in(program, kernel)
    dtype = dtype_of(tile.extent.type)
    pid = fresh_var("pid", taken, dtype)
    if snake and kernel.cluster:
        raise NoRing("clusters that would go backward")
    count = _snake_count(tile.extent, pid, ctas) if snake else _count(tile.extent, pid, ctas, max(kernel.cluster, default=1))
    lets: n.Block = ()
    if named:
        name = fresh("tiles", taken)
        lets, count = (n.Let((name,), count),), n.Var(name, dtype)
    roles = []
    first = True
    for k, r in enumerate(parts.roles.roles):
        i = fresh_var("i", taken, dtype)
        body, split = inside(r.body)
        body, met = _meeting(body)
        kept = values_for(parts.lets, names_read_in(body))
        held: n.Block = ()
        if k in slots and carried:
            held, body = _carrying(body, rings, slots[k], i, taken)
        elif k in slots:
            body = counted_on(body, rings, build.mul(i, slots[k]), i)
        place = _place(build.mod(i, 2), pid, ctas) if snake else pid
        block: n.Block = tuple(substitute(s, {tile.name: build.add(build.mul(i, ctas), place)}) for s in (*kept, *body))
        if not first:
            again = {x: fresh(x, taken) for x in bound_names(kept)}
            block = tuple(renamed(s, again) for s in block)
        first = first and not kept
        roles.append(replace(r, body=around(split, (*held, n.For(i, build.const(0, dtype), count, build.const(1, dtype), block), *met))))
    made = n.Roles(tuple(roles), parts.roles.label, parts.roles.origin)
    return replace(kernel, grid=(n.Axis(pid.name, ctas),), body=(*lets, *parts.front, made))


def _carrying(body: n.Block, rings: Rings, slots: n.Expr, tile: n.Var, taken: set[str]) -> tuple[n.Block, n.Block]:
    """The registers in which a role adds up its slots and the tiles for which something was brought, and its code for a tile. What stands under a condition
    takes none where that does not hold. Raises NoRing."""
    if len(body) == 1 and isinstance(branch := body[0], n.If):
        held, then = _carrying(branch.then, rings, slots, tile, taken)
        return held, (replace(branch, then=then),)
    once = any(mentions(s, x) for s in body for x in rings.once)
    sums = [(n.Buffer(fresh(a, taken), I32, (), "register"), fresh_var(b, taken), by)
            for a, b, by in (("done", "before", slots), ("brought", "turn", build.const(1)))[:2 if once else 1]]
    lets = tuple(n.Let((var.name,), n.Load(n.Region(reg))) for reg, var, _ in sums)
    stores = tuple(n.Store(n.Region(reg), build.add(var, by)) for reg, var, by in sums)
    return tuple(n.Alloc(reg, build.const(0)) for reg, _, _ in sums), (*lets, *counted_on(body, rings, sums[0][1], sums[-1][1]), *stores)


def renamed(s: n.Stmt, names: dict[str, str]) -> n.Stmt:
    """A statement with other names."""
    made = matched_as(rename(s, names), n.Stmt)
    return made


def names_read_in(block: n.Block) -> set[str]:
    """Names that a block reads."""
    return {x for s in block for x in names_read(s)}


def inside(body: n.Block) -> tuple[n.Block, n.For | None]:
    """The code of a role, or of each of its warpgroups; and the loop over those."""
    if len(body) == 1 and isinstance(split := body[0], n.For) and split.kind == "warpgroup":
        return split.body, split
    return body, None


def _meeting(body: n.Block) -> tuple[n.Block, n.Block]:
    """A role's code, and the barrier of its cluster at the end."""
    count = next((i for i, s in enumerate(reversed(body)) if not (isinstance(s, n.Eval) and s.call.fn in ("cluster_arrive", "cluster_wait"))), len(body))
    return body[:len(body) - count], body[len(body) - count:]


def quotient(e: n.Expr, by: int) -> n.Expr | None:
    """`e / by` where it divides each of its terms."""
    terms = build.polynomial(e)
    if any(c % by for c in terms.values()):
        return None
    return build.from_polynomial({m: c // by for m, c in terms.items()}, dtype_of(e.type))


def _count(tiles: n.Expr, pid: n.Var, ctas: n.Expr, size: int) -> n.Expr:
    """How many tiles a CTA takes: as many as the others of its cluster. Raises NoRing."""
    every, each = quotient(tiles, size), quotient(ctas, size)
    if size == 1 or every is None or each is None:
        return build.ceildiv(build.sub(tiles, pid), ctas)
    return build.ceildiv(build.sub(every, build.floordiv(pid, size)), each)


def _place(odd: n.Expr, pid: n.Var, ctas: n.Expr) -> n.Expr:
    """The place of a CTA in a round that goes forward or, where it is `odd`, backward."""
    return build.select(build.compare("eq", odd, 0), pid, build.sub(build.sub(ctas, 1), pid))


def _snake_count(tiles: n.Expr, pid: n.Var, ctas: n.Expr) -> n.Expr:
    """How many tiles a CTA takes where every second round goes backward: one of each whole round, and of the last one where its place is among what is left."""
    rounds = build.floordiv(tiles, ctas)
    more = build.compare("gt", build.mod(tiles, ctas), _place(build.mod(rounds, 2), pid, ctas))
    return build.add(rounds, build.select(more, build.const(1), build.const(0)))


def around(split: n.For | None, block: n.Block) -> n.Block:
    """A role's code again."""
    return block if split is None else (replace(split, body=block),)


def _given_back(roles: n.Roles, rings: Rings) -> None:
    """Raises NoRing where a tile would overwrite what the one before still reads: what is brought once must be waited for by who brings it."""
    for r in roles.roles:
        waited = False
        for x in walk(r):
            if isinstance(x, n.Call) and x.args and isinstance(bar := x.args[0], n.Region) and bar.buffer.name in rings.once:
                waited = waited or x.fn == "mbar_wait"
                if x.fn == "mbar_arrive_expect" and not waited:
                    raise NoRing(f"'{r.name}' would bring for the next tile what the one before may still read (bring-once{{back=true}})")


def counted_on(body: n.Block, rings: Rings, before: n.Expr, tile: n.Expr, back: bool = False) -> n.Block:
    """A role's code with its ring counted on from the slots that were taken `before`, and what it brings once from those of as many tiles; or `back`
    from there. Raises NoRing."""
    def below(block: n.Block, loops: tuple[str, ...]) -> n.Block:
        out: list[n.Stmt] = []
        for s in block:
            here = (*loops, s.var.name) if isinstance(s, n.For) else loops
            for steps, inner in child_blocks(s):
                s = with_block(s, steps, below(inner, here))
            out.append(_shifted(s, rings, before, tile, loops, back))
        return tuple(out)
    return below(body, ())


def _shifted(s: n.Stmt, rings: Rings, before: n.Expr, tile: n.Expr, loops: tuple[str, ...], back: bool) -> n.Stmt:
    """A statement, without those inside it, whose slots and phases are counted on. Raises NoRing."""
    stages = rings.stages

    def on(e: n.Expr) -> n.Expr:
        if any(c != 1 for m, c in build.polynomial(e).items() if any(isinstance(x, n.Var) and x.name in loops for x in m)):
            raise NoRing("a ring that does not go on by one slot an iteration")
        return build.sub(e, before) if back else build.add(e, before)

    def slot_of(e: n.Expr | n.Span) -> n.Expr | n.Span:
        if stages == 1:
            return e
        if not (isinstance(e, n.Binary) and e.op == "mod" and build.int_value(e.b) == stages):
            raise NoRing("a slot that is no count modulo the stages")
        return build.mod(on(e.a), e.b)

    def parity(e: n.Expr) -> n.Expr:
        if not (isinstance(e, n.Binary) and e.op == "mod" and build.is_const(e.b, 2)):
            raise NoRing("a phase that is no round modulo 2")
        if stages == 1:
            return build.mod(on(e.a), 2)
        rounds = [x for x in walk(e.a) if isinstance(x, n.Binary) and x.op == "floordiv" and build.int_value(x.b) == stages]
        if len(rounds) != 1:
            raise NoRing("a phase that is no round of the ring")
        made = build.floordiv(on(rounds[0].a), rounds[0].b)
        out: n.Expr = transform(e, lambda old, new: made if old == rounds[0] else new)
        return out

    def turn(e: n.Expr) -> n.Expr:
        """The phase of what is brought once a tile."""
        if not back and (first := build.int_value(e)) is not None:
            return build.mod(build.add(tile, first), 2)
        last = build.int_value(build.sub(e.a, tile)) if back and isinstance(e, n.Binary) and e.op == "mod" and build.is_const(e.b, 2) else None
        if last is None:
            raise NoRing("a phase that is no tile's turn")
        return build.const(last)

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(old, n.Region) and isinstance(new, n.Region) and old.buffer.name in rings.names and old.index:
            return build.region(new.buffer, slot_of(old.index[0]), *new.index[1:])
        if isinstance(old, n.Region) and isinstance(new, n.Region) and old.buffer.name in rings.peers and old.index:
            return build.region(new.buffer, new.index[0], slot_of(old.index[1]))
        if isinstance(old, n.Call) and old.fn == "mbar_wait" and isinstance(new, n.Call) and isinstance(e := old.args[1], n.Expr):
            once = isinstance(bar := old.args[0], n.Region) and bar.buffer.name in rings.once
            return build.call("mbar_wait", new.args[0], turn(e) if once else parity(e))
        return new
    if child_blocks(s):
        return s
    made = matched_as(transform(s, leave, lambda x: not isinstance(x, n.Buffer)), n.Stmt)
    return made


def standing(program: n.Program, kernel: n.Kernel) -> tuple[n.Kernel, n.Axis, n.Expr, bool, bool, bool]:
    """The kernel of one tile a CTA that such a walk is over, its grid axis, the number of CTAs that walked, whether the number of tiles has a name,
    whether roles add up the slots that they take, and whether every second round goes backward. Raises NoRing."""
    found = roles_at(kernel)
    if found is None or len(kernel.grid) != 1:
        raise NoRing("the kernel does not end in roles, or its grid has several axes")
    rings = Rings.of(kernel)
    slots = trips(kernel, found[1], carried=True, apart=True)
    dtype = dtype_of(kernel.grid[0].extent.type)
    pid, ctas = n.Var(kernel.grid[0].name, dtype), kernel.grid[0].extent
    tile = fresh_var("tile", names_in(program, kernel), dtype)
    front = kernel.body[:-1]
    size = max(kernel.cluster, default=1)
    named = next((s for s in front if isinstance(s, n.Let) and _total(s.value, pid, ctas, size) is not None), None)
    roles: list[n.Role] = []
    lets: list[n.Let] = []
    extent: n.Expr | None = None
    carried, snakes = set[bool](), set[bool]()
    fixed = {p.name for p in program.params} - buffers_written(kernel.body)
    for k, r in enumerate(found[1].roles):
        body, split = inside(r.body)
        body, met = _meeting(body)
        body, sums = _not_carried(body, slots.get(k))
        carried |= {bool(sums)} if k in slots else set()
        if len(body) != 1 or not isinstance(loop := body[0], n.For) or not counted(loop):
            raise NoRing(f"'{r.name}' does more than one loop over tiles")
        hi = named.value if named is not None and loop.hi == n.Var(named.names[0], dtype) else loop.hi
        snaked = _snaked(hi, pid, ctas) if size == 1 else None
        total = _total(hi, pid, ctas, size) if snaked is None else snaked
        snakes.add(snaked is not None)
        if total is None or (extent is not None and total != extent):
            raise NoRing(f"the loop of '{r.name}' is not over every tile of its CTA")
        extent = total
        number = build.sub(tile, build.mul(loop.var, ctas))
        if snaked is not None:
            turned = _place(build.mod(loop.var, 2), pid, ctas)
            plain: n.Block = tuple(_replaced(s, turned, number) for s in loop.body)
            if any(pid.name in names_read(s) for s in plain):
                raise NoRing(f"what '{r.name}' does depends on its CTA beside its tiles")
        else:
            plain = tuple(substitute(s, {pid.name: number}) for s in loop.body)
        if k in slots:
            plain = _counted_back(plain, rings, (sums or (build.mul(loop.var, slots[k]), loop.var)))
        own, rest = leading(plain, fixed)
        lets, again = merged(lets, own)
        block = tuple(renamed(s, again) for s in rest)
        if any({loop.var.name, *(x.name for x in sums)} & names_read(s) for s in (*own, *block)):
            raise NoRing(f"what '{r.name}' does depends on how many tiles it did before")
        roles.append(replace(r, body=around(split, (*block, *met))))
    if extent is None:
        raise NoRing("no role walks over tiles")
    if len(carried) > 1:
        raise NoRing("some roles add up the slots that they take, others multiply")
    if True not in carried:
        trips(kernel, found[1], apart=True)
    axis, front = n.Axis(tile.name, extent), tuple(s for s in front if s is not named)
    if any(pid.name in names_read(s) for s in front):
        raise NoRing("the number of the CTA is used for more than its tiles")
    made = n.Roles(tuple(roles), found[1].label, found[1].origin)
    at = next(i for i, s in enumerate((*front, made)) if not isinstance(s, n.Let))
    return replace(kernel, grid=(axis,), body=(*front[:at], *lets, *front[at:], made)), axis, ctas, named is not None, carried == {True}, snakes == {True}


def _not_carried(body: n.Block, slots: n.Expr | None) -> tuple[n.Block, tuple[n.Var, ...]]:
    """A role's code without the registers in which it adds up the slots that it takes, and what those are called in a tile; as it is where there are none.
    Raises NoRing."""
    held = [s for s in body[:-1] if isinstance(s, n.Alloc)]
    if slots is None or not held or len(held) != len(body) - 1 or len(held) > 2 or not isinstance(loop := body[-1], n.For):
        return body, ()
    branch = loop.body[-1] if isinstance(loop.body[-1], n.If) else None
    inner = branch.then if branch is not None else loop.body
    found: list[n.Var] = []
    for s, by in zip(held, (slots, build.const(1)), strict=False):
        here = n.Region(s.buffer)
        lets = [x for x in inner if isinstance(x, n.Let) and x.value == n.Load(here)]
        if len(lets) != 1 or s.buffer.space != "register" or s.init != build.const(0):
            raise NoRing("a register that is no count of slots")
        found.append(build.var(lets[0].names[0]))
        last = n.Store(here, build.add(found[-1], by))
        if last not in inner[len(inner) - len(held):] or sum(x == here for y in loop.body for x in walk(y)) != 2:
            raise NoRing("a register to which other slots are added than a tile takes")
        inner = tuple(x for x in inner if x is not lets[0])
    inner = inner[:len(inner) - len(held)]
    return (replace(loop, body=inner if branch is None else (*loop.body[:-1], replace(branch, then=inner))),), tuple(found)


def _counted_back(body: n.Block, rings: Rings, sums: tuple[n.Expr, ...]) -> n.Block:
    """A role's code with its rings counted from 0 again. Raises NoRing."""
    return counted_on(body, rings, sums[0], sums[-1], back=True)


def _replaced(s: n.Stmt, old: n.Expr, new: n.Expr) -> n.Stmt:
    """A statement with one expression in the place of another."""
    made = matched_as(transform(s, lambda x, y: new if x == old else y), n.Stmt)
    return made


def _snaked(hi: n.Expr, pid: n.Var, ctas: n.Expr) -> n.Expr | None:
    """The number of all tiles, of which a CTA has `hi` where every second round goes backward."""
    tiles = {x.a for x in walk(hi) if isinstance(x, n.Binary) and x.op == "floordiv" and x.b == ctas}
    return next((x for x in tiles if pid.name not in names_read(x) and hi == _snake_count(x, pid, ctas)), None)


def _total(hi: n.Expr, pid: n.Var, ctas: n.Expr, size: int) -> n.Expr | None:
    """The number of all tiles, of which a CTA has `hi`."""
    if not (isinstance(hi, n.Binary) and hi.op == "ceildiv"):
        return None
    each = quotient(ctas, size)
    if size > 1 and each is not None and hi.b == each:
        total = build.mul(build.add(hi.a, build.floordiv(pid, size)), size)
    elif hi.b == ctas:
        total = build.add(hi.a, pid)
    else:
        return None
    return None if pid.name in names_read(total) else total


def leading(body: n.Block, fixed: Set[str] = frozenset()) -> tuple[tuple[n.Let, ...], n.Block]:
    """The scalar values that a block begins with, which read at most the tensors `fixed`, and the rest."""
    count = next((i for i, s in enumerate(body) if not (isinstance(s, n.Let) and len(s.names) == 1 and isinstance(s.value.type, DType)
                                                       and all(x.at.buffer.name in fixed for x in walk(s) if isinstance(x, n.Load)))), len(body))
    return tuple(s for s in body[:count] if isinstance(s, n.Let)), body[count:]


def merged(lets: list[n.Let], own: tuple[n.Let, ...]) -> tuple[list[n.Let], dict[str, str]]:
    """The values of all roles so far with those of another, and what the other's are called there."""
    out: list[n.Let] = list(lets)
    again: dict[str, str] = {}
    for s in own:
        value = matched_as(rename(s, again), n.Let)
        same = next((x for x in lets if x.value == value.value), None)
        if same is not None:
            again[s.names[0]] = same.names[0]
        else:
            out.append(value)
    return out, again
