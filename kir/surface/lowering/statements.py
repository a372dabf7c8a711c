"""Statements of a team as statements of its threads, one at a time and without choices: each becomes loops over the registers it needs."""
from __future__ import annotations

from dataclasses import replace

from kir.base.diagnostic import KirError
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const, int_value
from kir.ir.types import I32, TileType, UnitType
from kir.ir.visit import substitute, walk
from kir.surface.lowering import roles, tensor_products
from kir.surface.lowering.registers.barriers import Nest
from kir.surface.lowering.registers.elements import within_reach
from kir.surface.lowering.registers.state import State, refuse
from kir.surface.lowering.tiles import memory, products, scattered, warpgroups
from kir.surface.lowering.tiles.values import hoisted, let, ready, single


def block(state: State, body: n.Block) -> None:
    """The statements of a block, in order. A refusal names the statement by its mark."""
    for run, boxes in warpgroups.runs(body):
        s = run[0]
        state.busy.clear()
        state.mark = s.origin
        try:
            if boxes:
                warpgroups.boxes(state, run)
            else:
                statement(state, s)
        except KirError as refused:
            raise KirError(*(d if d.origin else replace(d, origin=s.origin) for d in refused.diagnostics)) from refused
        if isinstance(s, n.Let):
            state.facts = state.facts.after((s,))


def statement(state: State, s: n.Stmt) -> None:
    """One statement. Raises KirError KIR-B030 where it has no form for threads."""
    if state.in_tensor:
        tensor_products.read(state, s)
    if roles.is_issued(s):
        roles.issue(state, s)
        return
    match s:
        case n.Let():
            let(state, s)
        case n.Alloc() if s.buffer.name in state.in_tensor:
            tensor_products.alloc(state, s)
        case n.Alloc():
            memory.alloc(state, s)
        case n.View() if s.buffer.space == "shared" and s.axes and s.fill is None:
            state.views[s.buffer.name] = s
        case n.View():
            if s.buffer.space != "global" or (s.axes and not _only_in_boxes(state.kernel, s.buffer.name)):
                raise refuse(f"the view '{s.buffer.name}' is used by tiles", "accesses to what it views")
            state.put(s)
        case n.Store():
            memory.store(state, s)
        case n.Copy():
            memory.copy(state, s)
        case n.Mma() if s.via == "wgmma":
            roles.product(state, s)
        case n.Mma() if s.via == "tcgen05":
            tensor_products.product(state, s)
        case n.Mma():
            products.product(state, replace(s, a=hoisted(state, s.a), b=hoisted(state, s.b)))
        case n.Eval():
            _eval(state, s)
        case n.For():
            _for(state, s)
        case n.If():
            cond = hoisted(state, s.cond)
            state.touch_all(cond)
            touches = frozenset(state.touches)
            state.touches.clear()
            parts = []
            mark = state.mark
            for body, known in ((s.then, state.facts.knowing(cond)), (s.orelse, state.facts)):
                with state.inside() as items:
                    state.facts = known
                    block(state, body)
                parts.append(tuple(items))
            state.items.append(Nest(replace(s, cond=cond, then=(), orelse=(), origin=mark), (parts[0], parts[1]), touches, _apart(state, cond)))
        case n.While():
            if any(isinstance(x, n.Expr) and isinstance(x.type, TileType) for x in walk(s.cond)):
                raise refuse("a loop whose condition computes with tiles", "a scalar that is set in the loop")
            state.touch_all(s.cond)
            touches = frozenset(state.touches)
            state.touches.clear()
            mark = state.mark
            with state.inside(loop=True) as items:
                block(state, s.body)
            state.items.append(Nest(replace(s, body=(), origin=mark), (tuple(items),), touches, _apart(state, s.cond)))
        case n.Jump():
            state.put(s)
        case n.Roles():
            raise refuse("roles that something follows, or that stand in a loop or branch", "roles at the end of the kernel")
        case n.Opaque() | n.Hole():
            named = {x if isinstance(x, str) else x.buffer.name for x in (*s.reads, *s.writes)}
            if distributed := sorted(named & set(state.held)):
                raise refuse(f"{type(s).__name__.lower()} code works on '{distributed[0]}', of which each thread has a part", "shared memory for it")
            state.put(s)
        case _:
            raise refuse(f"{type(s).__name__.lower()} has no form for threads")


def _only_in_boxes(k: n.Kernel, name: str) -> bool:
    """Whether memory is used by copies of the tensor memory accelerator alone, or not at all."""
    def used(x: n.Node) -> int:
        return sum(isinstance(y, n.Region) and y.buffer.name == name for y in walk(x))
    return used(k) == sum(used(x) for x in walk(k) if isinstance(x, n.Copy) and x.via == "tma")


def _eval(state: State, s: n.Eval) -> None:
    c = ready(state, s.call)
    if c.of is None and c.fn.startswith("atomic_"):
        scattered.atomic(state, None, c, s.label)
        return
    if c.of is None and c.fn == "barrier":
        return
    if c.of is None and c.fn in ("prefetch", "register_fence"):
        return
    if c.of is None and c.fn in ("assume", "assertion") and any(isinstance(a.type, TileType) for a in c.args if isinstance(a, n.Expr)):
        return
    if c.of is None and c.fn in roles.WAITS and not (instruction(c.fn).level == "warpgroup" and state.team != warpgroups.WARPGROUP):
        roles.meets(state, s)
        state.put(replace(s, call=c))
        return
    if c.of is None and c.fn == "async_wait":
        for name in state.in_flight:
            state.touch(n.Region(n.Buffer(name, I32, (), "shared")), "write")
    if any(isinstance(a, n.Expr) and isinstance(a.type, TileType) for a in c.args):
        raise refuse(f"'{c.fn}' of a tile")
    if c.of is not None and not isinstance(c.of, UnitType):
        raise refuse(f"the result of '{c.fn}' is not used")
    if c.of is None and instruction(c.fn).level in ("warp", "warpgroup") and state.team == state.threads and state.threads != 32:
        raise refuse(f"'{c.fn}' by a whole CTA", "a loop over warps")
    state.touch_all(c)
    state.put(replace(s, call=c))


# ---------------------------------------------------------------------------------------------------------------------- control

def _for(state: State, s: n.For) -> None:
    if s.kind == "thread":
        _threads(state, s)
        return
    if s.kind in ("warp", "warpgroup"):
        _warps(state, s)
        return
    lo, hi, step = (hoisted(state, e) for e in (s.lo, s.hi, s.step))
    for e in (lo, hi, step):
        state.touch_all(e)
    touches = frozenset(state.touches)
    state.touches.clear()
    known = state.facts.ranging(s.var, lo, hi, step)
    mark = state.mark
    with within_reach(state, () if state.alone else _single_elements(state, s)), state.inside(loop=True) as items:
        state.facts = known
        block(state, s.body)
    kind, options = s.kind, s.attrs
    if kind == "pipelined":
        kind, options = "serial", ()
    state.items.append(Nest(replace(s, lo=lo, hi=hi, step=step, kind=kind, attrs=options, body=(), origin=mark),
                            (tuple(items),), touches, _apart(state, lo, hi, step)))
    state.forget()


def _apart(state: State, *head: n.Expr) -> bool:
    """Whether the head of a loop or branch may differ between the warps, or warpgroups, of the loop that it stands in."""
    return any(_names(e) & state.apart for e in head)


def _names(e: n.Expr) -> set[str]:
    return {x.name for x in walk(e) if isinstance(x, (n.Var, n.Buffer))}


def _differing(var: str, body: n.Block) -> frozenset[str]:
    """The names in a loop over warps whose values may differ between them."""
    inner = [x for b in body for x in walk(b)]
    out = {var} | {x.buffer.name for x in inner if isinstance(x, n.Alloc) and x.buffer.space in ("fragment", "register")}
    while True:
        more = {name for x in inner if isinstance(x, n.Let) and _names(x.value) & out for name in x.names}
        more |= {x.var.name for x in inner if isinstance(x, n.For) and (_names(x.lo) | _names(x.hi) | _names(x.step)) & out}
        if more <= out:
            return frozenset(out)
        out |= more


def _single_elements(state: State, s: n.For) -> list[str]:
    """Fragments of which a loop reads single elements, and that it leaves as they are: what its rounds read need not be moved in each."""
    read, written = dict[str, None](), set[str]()
    for x in (x for b in s.body for x in walk(b)):
        found = single(x) if isinstance(x, n.Load) else None
        if isinstance(x, n.Load) and found is not None and x.at.buffer.name in state.held:
            read[x.at.buffer.name] = None
        match x:
            case n.Store():
                written.add(x.at.buffer.name)
            case n.Copy():
                written.add(x.dst.buffer.name)
            case n.Mma():
                written.add(x.acc.buffer.name)
            case n.Alloc():
                written.add(x.buffer.name)
            case n.Call():
                written |= {a.buffer.name for a in x.args if isinstance(a, n.Region)}
            case _:
                pass
    return [name for name in read if name not in written]


def _threads(state: State, s: n.For) -> None:
    """Code of threads already: as it stands, for the threads that it is for."""
    extent = int_value(s.hi)
    if extent is None or int_value(s.lo) != 0 or int_value(s.step) != 1:
        raise refuse("a loop over threads that does not count from 0 to a known number")
    if state.team != state.threads:
        raise refuse("a loop over the threads of a warp", "lanes of a loop over all threads")
    names = set(state.held) & {x.name for b in s.body for x in walk(b) if isinstance(x, n.Buffer)}
    if names:
        raise refuse(f"threads use single elements of the fragment '{min(names)}'", "the whole fragment, or registers")
    body = tuple(substitute(b, {s.var.name: state.thread}) for b in s.body)
    waits = any(isinstance(x, n.Call) and x.fn in ("barrier", "named_barrier_sync") for b in body for x in walk(b))
    for b in body:
        state.touch_all(b)
    if extent == state.threads:
        state.put(*body)
    elif extent < state.threads and not waits:
        state.put(n.If(build.compare("lt", state.thread, extent), body))
    elif not waits:
        var = n.Var(state.fresh("item"), I32)
        again = tuple(substitute(b, {s.var.name: var}) for b in s.body)
        loop = n.For(var, state.thread, const(extent), const(state.threads), again)
        state.put(loop)
    else:
        raise refuse(f"{extent} threads with barriers among them, in a CTA of {state.threads}", f"{state.threads} threads")
    state.forget()


def _warps(state: State, s: n.For) -> None:
    """Sub-teams: every statement is distributed over the threads of one."""
    size, extent = {"warp": 32, "warpgroup": 128}[s.kind], int_value(s.hi)
    if extent is None or int_value(s.lo) != 0 or int_value(s.step) != 1 or extent * size != state.threads or state.team != state.threads:
        raise refuse(f"a loop over {s.kind}s that is not 0..{state.threads // size}", f"all {s.kind}s of the CTA")
    number = build.floordiv(state.thread, size)
    if size == state.threads:
        number = const(0)
    state.put(n.Let((s.var.name,), number))
    outer = state.warp
    with state.inside() as items:
        state.team, state.warp, state.apart = size, {s.var.name: number}, _differing(s.var.name, s.body)
        state.facts = state.facts.ranging(s.var, s.lo, s.hi, s.step)
        block(state, s.body)
    state.team, state.warp, state.apart = state.threads, outer, frozenset()
    state.items.extend(items)
    state.forget()
