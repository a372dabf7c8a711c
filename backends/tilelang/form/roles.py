"""Roles as TileLang has them: branches for ranges of threads, in which each thread says by itself that it is done.

A loop over the warpgroups of a role is a role for each of them. What a team does once, an arrival at a barrier, each of its threads does, so that the barrier
counts as many more; an arrival that expects bytes is an expectation with each copy, which `T.tma_copy` has of its own, and the arrivals after the last.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value, is_const
from kir.ir.canonical import bound_names, rename
from kir.ir.types import I32, dtype_of, shape_of
from kir.ir.visit import blocks_of, buffers_named, substitute, transform, walk
from kir.rewrite.edit import fresh
from kir.rewrite.match import fresh_names
from kir.rewrite.match.local_buffers import is_left

from ..spelling.expressions import refuse
from .unit_dimensions import within

GROUP, WARP = 4, 32
FREE = 8
"""The first named barrier that TileLang's compiler leaves alone: it numbers its own from below."""


def by_threads(k: n.Kernel) -> n.Kernel:
    """A kernel that ends in roles, in that form; another as it is. Raises KirError KIR-B303 for barriers that no number of arrivals is known of."""
    k = _completed(k)
    if not (k.body and isinstance(k.body[-1], n.Roles)) or not any(True for r in k.body[-1].roles for _ in _arrived(r.body)):
        return k
    k, taken = _in_rows(k), {a.name for a in k.grid} | set(bound_names(k.body))
    last = k.body[-1]
    assert isinstance(last, n.Roles)
    last = _apart(last, taken)
    teams: dict[str, set[int]] = {}
    roles = []
    for r in last.roles:
        threads = (r.hi - r.lo) * WARP
        for name in _arrived(r.body):
            teams.setdefault(name, set()).add(threads)
        roles.append(replace(r, name=f"warps_{r.lo}_{r.hi}", body=_said(r.body, threads, taken)))
    waits = [x for r in last.roles for s in r.body for x in walk(s) if isinstance(x, n.Call) and x.fn == "bulk_wait"]
    if any(isinstance(a, n.Expr) and not is_const(a, 0) for x in waits for a in x.args):
        raise refuse("KIR-B303", "a wait for all groups of copies but some, which TileLang counts otherwise", "a wait for all of them")
    if uneven := [name for name, sizes in teams.items() if len(sizes) > 1]:
        raise refuse("KIR-B303", f"teams of several sizes arrive at '{uneven[0]}'", "teams of one size")
    return replace(k, body=(*_counted(k.body[:-1], {name: sizes.pop() for name, sizes in teams.items()}), replace(last, roles=tuple(roles))))


def _completed(k: n.Kernel) -> n.Kernel:
    """The kernel with boxes that are there where they are brought, and products of a whole CTA that are done where they stand, as TileLang's own: of memory
    that its compiler lays out, it chooses the instructions too."""
    if not any(isinstance(s, n.Alloc) and is_left(s.buffer) for s in k.body):
        return k
    roles = isinstance(k.body[-1], n.Roles)

    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Copy(via="tma", signal=None, grouped=False) if is_left(new.dst.buffer):
                return replace(new, via="plain")
            case n.Mma(via="wgmma", pending=False) if not roles and any(isinstance(x, n.Buffer) and is_left(x) for x in walk(new)):
                return replace(new, via="auto")
            case _:
                return new
    made: n.Kernel = transform(k, leave)
    return made


def _in_rows(k: n.Kernel) -> n.Kernel:
    """The kernel with barriers that stand alone as rows of one."""
    alone = {x.buffer.name for x in k.body if isinstance(x, n.Alloc) and x.buffer.dtype.name == "mbarrier" and not x.buffer.shape}

    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Buffer() if new.name in alone and not new.shape:
                return replace(new, shape=(const(1),))
            case n.Region() if new.buffer.name in alone and not new.index:
                return n.Region(new.buffer, (const(0),))
            case _:
                return new
    made: n.Kernel = transform(k, leave) if alone else k
    return made


def _apart(s: n.Roles, taken: set[str]) -> n.Roles:
    """The roles, each of one team."""
    out: list[n.Role] = []
    for r in s.roles:
        loop = r.body[0] if len(r.body) == 1 else None
        if not (isinstance(loop, n.For) and loop.kind == "warpgroup") or int_value(loop.lo) != 0 or int_value(loop.hi) != (r.hi - r.lo) // GROUP:
            out.append(r)
            continue
        for i in range((r.hi - r.lo) // GROUP):
            body = tuple(substitute(x, {loop.var.name: const(i)}) for x in loop.body)
            if i:
                names = fresh_names(body, taken)
                body = tuple(rename(x, names) for x in body)
            lo = r.lo + i * GROUP
            out.append(replace(r, lo=lo, hi=lo + GROUP, body=body))
    return replace(s, roles=tuple(out))


def _arrived(block: n.Block) -> Iterator[str]:
    """Barriers that a team arrives at."""
    for s in _of_team(block):
        if isinstance(s, n.Eval) and s.call.fn in ("mbar_arrive", "mbar_arrive_expect"):
            at = s.call.args[0]
            assert isinstance(at, n.Region)
            yield at.buffer.name


def _of_team(block: n.Block) -> Iterator[n.Stmt]:
    """Statements outside of code of single threads."""
    for s in block:
        yield s
        match s:
            case n.For(kind="thread"):
                pass
            case n.For() | n.While():
                yield from _of_team(s.body)
            case n.If():
                yield from _of_team((*s.then, *s.orelse))
            case _:
                pass


def cleared(k: n.Kernel) -> n.Kernel:
    """A kernel in whose roles sums by warpgroups begin at zero as `clear_accum` says it."""
    last = k.body[-1] if k.body else None
    return replace(k, body=(*k.body[:-1], replace(last, roles=tuple(replace(r, body=_begun(r.body)) for r in last.roles)))) if isinstance(last, n.Roles) else k


def _begun(block: n.Block) -> n.Block:
    """A block in which a sum by warpgroups that begins at zero is set to it where its first product stands, which does so of its own (`clear_accum`)."""
    out: list[n.Stmt] = [within(s, _begun) if blocks_of(s) else s for s in block]
    for i, s in enumerate(out):
        if not (isinstance(s, n.Alloc) and s.buffer.space == "fragment" and isinstance(s.init, n.Const) and not s.init.value):
            continue
        first = next((j for j in range(i + 1, len(out)) if s.buffer.name in buffers_named(out[j])), None)
        product = out[first] if first is not None else None
        if first is not None and isinstance(product, n.Mma) and product.via == "wgmma" and product.acc == n.Region(s.buffer):
            out[i] = replace(s, init=None)
            out.insert(first - 1 if _is(out[first - 1], "wgmma_fence") else first, n.Store(product.acc, s.init, origin=s.origin))
    return tuple(out)


def _said(block: n.Block, threads: int, taken: set[str]) -> n.Block:
    """A block in which each thread of the team arrives."""
    out: list[n.Stmt] = []
    rest = list(block)
    while rest:
        s = rest.pop(0)
        match s:
            case n.Eval(call=n.Call(fn="mbar_arrive")):
                out.append(_each(s, threads, taken))
            case n.Eval(call=n.Call(fn="mbar_arrive_expect", args=(n.Region() as bar, n.Expr() as size))):
                copies = []
                while rest and (found := _filling(rest[0], bar)) is not None:
                    copies.append((rest.pop(0), found))
                if sum(found for _, found in copies) != int_value(size):
                    raise refuse("KIR-B303", f"'{bar.buffer.name}' expects other bytes than the copies after it bring", "copies right after the expectation")
                for x, _ in copies:
                    out += _expected(x, bar)
                out.append(_each(n.Eval(build.call("mbar_arrive", bar)), threads, taken))
            case n.For(kind="unroll") if rest and _is(rest[0], "bulk_commit") and all(isinstance(x, n.Copy) and x.via == "tma" and x.grouped for x in s.body):
                done = rest.pop(0)  # each copy is a group of its own
                out.append(replace(s, body=tuple(y for x in s.body for y in (x, done))))
            case n.Mma(via="wgmma"):
                s = s if s.attrs else replace(s, attrs=n.attrs(policy="FullRow"))  # each warpgroup has rows of its own
                out += () if out and _is(out[-1], "wgmma_fence") else _done("wgmma_fence")
                out.append(replace(s, pending=True))
                out += () if s.pending else (*_done("wgmma_commit"), *_done("wgmma_wait", const(0)))
            case n.Eval(call=n.Call(fn="named_barrier_sync" | "named_barrier_arrive", args=(n.Expr() as number, *more))):
                out.append(replace(s, call=replace(s.call, args=(_free(number), *more))))
            case n.For() if s.kind != "thread":
                out.append(replace(s, body=_said(s.body, threads, taken)))
            case n.While():
                out.append(replace(s, body=_said(s.body, threads, taken)))
            case n.If(then=(n.Eval(call=n.Call(fn="mbar_arrive")),), orelse=()):
                out.append(_each(s, threads, taken))
            case n.If():
                out.append(replace(s, then=_said(s.then, threads, taken), orelse=_said(s.orelse, threads, taken)))
            case _:
                out.append(s)
    return tuple(out)


def _free(number: n.Expr) -> n.Expr:
    """The number of a named barrier among those that are free."""
    value = int_value(number)
    if value is None or not 0 < value < FREE:
        raise refuse("KIR-B303", f"a named barrier whose number is not from 1 to {FREE - 1}", "a literal number")
    return const(value + FREE)


def _is(s: n.Stmt, fn: str) -> bool:
    return isinstance(s, n.Eval) and s.call.fn == fn


def _done(fn: str, *args: n.Expr) -> n.Block:
    return (n.Eval(build.call(fn, *args)),)


def _each(s: n.Stmt, threads: int, taken: set[str]) -> n.Stmt:
    """Each thread's own arrival."""
    return n.For(n.Var(fresh("t", taken), I32), const(0), const(threads), const(1), (s,), "thread")


def _filling(s: n.Stmt, bar: n.Region) -> int | None:
    """Bytes that copies which signal a barrier bring; None for other statements."""
    match s:
        case n.Copy(via="tma") if s.signal == bar:
            return _bytes(s)
        case n.For(kind="unroll" | "serial") if all(isinstance(x, n.Copy) and x.via == "tma" and x.signal == bar for x in s.body):
            count = int_value(s.hi)
            return None if count is None or int_value(s.lo) != 0 else count * sum(_bytes(x) for x in s.body if isinstance(x, n.Copy))
        case _:
            return None


def _bytes(s: n.Copy) -> int:
    count = dtype_of(s.dst.type).bytes
    for d in shape_of(s.dst.type):
        value = d if isinstance(d, int) else int_value(d)
        count *= value or 0
    return count


def _expected(s: n.Stmt, bar: n.Region) -> Sequence[n.Stmt]:
    """A copy, or each of a loop, after its expectation."""
    if isinstance(s, n.Copy):
        return n.Eval(build.call("mbar_expect", bar, const(_bytes(s)))), s
    assert isinstance(s, n.For)
    return (replace(s, body=tuple(y for x in s.body for y in _expected(x, bar))),)


def _counted(block: n.Block, threads: dict[str, int]) -> n.Block:
    """Declarations in which each barrier is initialized right after its own, with the arrivals of all threads of its teams."""
    counts: dict[str, int] = {}
    rest: list[n.Stmt] = []
    for s in block:
        body = s.body if isinstance(s, n.For) else (s,)
        inits = [x.call.args for x in body if isinstance(x, n.Eval) and x.call.fn == "mbar_init"]
        if inits and len(inits) == len(body):
            for at, count in inits:
                value = int_value(count) if isinstance(count, n.Expr) else None
                if not isinstance(at, n.Region) or value is None or at.buffer.name in counts:
                    raise refuse("KIR-B303", "barriers whose arrivals are not one number each", "one `mbar_init` for each, in a loop over them")
                counts[at.buffer.name] = value
        else:
            rest.append(s)
    out: list[n.Stmt] = []
    for s in rest:
        out.append(s)
        if isinstance(s, n.Alloc) and s.buffer.name in counts:
            out += _initialized(s.buffer, counts[s.buffer.name] * threads.get(s.buffer.name, 1))
    return tuple(out)


def _initialized(b: n.Buffer, count: int) -> n.Block:
    number = int_value(b.shape[0])
    if len(b.shape) != 1 or number is None:
        raise refuse("KIR-B303", f"'{b.name}' is no row of barriers", "one axis")
    return tuple(n.Eval(build.call("mbar_init", build.region(b, i), const(count))) for i in range(number))
