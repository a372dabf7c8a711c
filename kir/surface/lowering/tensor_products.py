"""Products into tensor memory (tcgen05) for a whole CTA that waits for them: what is asked for, issued, waited for, loaded and given back.

A fragment that such products add to lies in tensor memory, row i in lane i. One thread issues a product for each step of k and commits them to an
mbarrier, for which all threads wait. Before a statement that reads the fragment each thread loads its row to the registers that stand for it.
"""
from __future__ import annotations

from collections.abc import Iterator

from kir.analysis.target.tensor_memory import DEPTH, THREADS, accumulator_refusal, allocated, product_refusal
from kir.analysis.tiles.fragments import Digit, Spread
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.types import I32, MBARRIER, U32, shape_of
from kir.ir.visit import walk
from kir.surface.lowering.registers.state import Held, State, refuse, register, shape_known
from kir.surface.lowering.roles import axis_of_k, placed, stepped

WARP = 32


TOUCHED = n.Region(n.Buffer("tensor memory", I32, (), "shared"))
"""What stands for all of it where touches are compared: threads meet between any two products, so that none waits for a phase that is two behind."""


def alloc(state: State, s: n.Alloc) -> None:
    """A fragment in tensor memory: the registers that its rows are loaded to, and whether anything was added yet. Raises KirError KIR-B030."""
    if reason := accumulator_refusal(state.kernel, s.buffer):
        raise refuse(reason, "a fragment that products by tcgen05 alone add to")
    shape = shape_known(n.Region(s.buffer))
    if state.team != state.threads or state.threads != THREADS or len(shape) != 2 or shape[0] != THREADS:
        raise refuse(f"'{s.buffer.name}' of {' x '.join(map(str, shape))} in tensor memory, read by {state.team} threads", f"{THREADS} rows and threads")
    spread = Spread(shape, (Digit(THREADS, 0, 1),), (Digit(shape[1], 1, 1),))
    held = Held(register(s.buffer.name, s.buffer.dtype, spread), spread)
    begun = state.begun[s.buffer.name] = n.Buffer(state.fresh("begun"), I32, (), "register")
    state.put(n.Alloc(held.buffer, label=s.label), n.Alloc(begun, const(0)))
    state.held[s.buffer.name], state.fragments[s.buffer.name] = held, s.buffer


def product(state: State, s: n.Mma) -> None:
    """`acc += a * b`, waited for. Raises KirError KIR-B030 for operands that it does not read."""
    name = s.acc.buffer.name
    if name not in state.begun or (reason := product_refusal(s, state.threads)):
        raise refuse(reason if name in state.begun else f"'{name}' is declared where products by tcgen05 do not add to it")
    (a, trans_a), (b, trans_b) = placed(state, s.a, rows=True), placed(state, s.b, rows=False)
    depth, columns = (int(str(shape_of(x.type)[-1])) for x in (s.a, s.b))
    options: dict[str, n.Attr] = {"shape": f"m{THREADS}n{columns}k{DEPTH}"}
    options |= {name: True for name, turned in (("trans_a", trans_a), ("trans_b", trans_b)) if turned}
    if not state.committed:
        state.committed = n.Buffer(state.fresh("committed"), MBARRIER, (const(1),), "shared"), n.Buffer(state.fresh("phase"), I32, (), "register")
        state.boxes.append(state.committed)
    bar, phase = state.committed
    kk, now, begun = n.Var(state.fresh("kk"), I32), build.load(n.Region(phase)), n.Region(state.begun[name])
    first = build.mul(kk, DEPTH)
    add = build.binary("or", build.load(begun), build.cast(build.compare("gt", kk, 0), I32))
    issued = n.Eval(build.call_with("tcgen05_mma", (_address(state, name, const(0)), stepped(a, axis_of_k(a, True, trans_a), first, DEPTH),
                                                    stepped(b, axis_of_k(b, False, trans_b), first, DEPTH), add), n.attrs(**options)), s.label)
    loop = n.For(kk, const(0), const(depth // DEPTH), const(1), (issued,), "unroll", n.attrs(factor=depth // DEPTH))
    once = (n.Eval(build.call("tcgen05_fence_after")), loop, n.Eval(build.call("tcgen05_commit", build.region(bar, 0))))
    for r in (a, b):
        state.touch(r, "read")
    state.touch(TOUCHED, "write")
    state.put(n.If(build.compare("eq", state.thread, 0), once), n.Eval(build.call("mbar_wait", build.region(bar, 0), now)),
              n.Store(n.Region(phase), build.binary("xor", now, const(1))), n.Store(begun, const(1)), n.Eval(build.call("tcgen05_fence_after")))
    state.forget(name)


def read(state: State, s: n.Stmt) -> None:
    """Loads what a statement itself, not one inside it, reads of fragments in tensor memory."""
    if isinstance(s, n.Mma) and s.acc.buffer.name in state.begun and s.via != "tcgen05":
        raise refuse(f"'{s.acc.buffer.name}' lies in tensor memory, and this product adds to registers")
    parts = [getattr(s, field) for field in s.compared_fields if field not in ("body", "then", "orelse", "roles")]
    names = {x.at.buffer.name for part in parts for y in (part if isinstance(part, tuple) else (part,)) if isinstance(y, n.Node)
             for x in walk(y) if isinstance(x, n.Load)} & set(state.begun)
    for name in sorted(names):
        held = state.held[name]
        columns = shape_known(n.Region(state.fragments[name]))[1]
        loads = []
        for at, count in _pieces(columns):
            to = build.region(held.buffer, build.span(const(at), count))
            row = build.cast(build.binary("shl", build.mul(build.floordiv(state.thread, WARP), WARP), const(16)), U32)
            loads.append(n.Eval(build.call("tcgen05_ld", to, build.add(_address(state, name, row), build.const(at, U32)))))
        i = n.Var(state.fresh("i"), I32)
        zeros = n.For(i, const(0), const(columns), const(1), (n.Store(build.region(held.buffer, i), build.const(0.0, held.buffer.dtype)),), "unroll",
                      n.attrs(factor=columns))
        state.touch(TOUCHED, "read")
        state.put(n.If(build.compare("eq", build.load(n.Region(state.begun[name])), 1), (*loads, n.Eval(build.call("tcgen05_wait_ld"))), (zeros,)),
                  n.Eval(build.call("tcgen05_fence_before")))


def _pieces(columns: int) -> Iterator[tuple[int, int]]:
    """Columns as loads of a power of two of them, 32 at most."""
    at = 0
    while at < columns:
        count = min(WARP, 1 << ((columns - at).bit_length() - 1))
        yield at, count
        at += count


def _address(state: State, name: str, row: n.Expr) -> n.Expr:
    """Of a fragment in tensor memory, `row` being a lane shifted to where an address has it."""
    first = build.add(n.Var(state.tensor_address, U32), build.const(state.in_tensor[name], U32)) if state.in_tensor[name] else n.Var(state.tensor_address, U32)
    return first if build.is_const(row, 0) else build.add(first, row)


def asked_for(state: State) -> n.Block:
    """The first warp asks for the columns of all fragments in tensor memory, before the CTA's first barrier."""
    if not state.begun:
        return ()
    slot = n.Buffer(state.fresh("columns"), U32, (const(1),), "shared")
    state.shared.append(n.Alloc(slot))
    state.slot = slot
    alone = (n.Eval(build.call("tcgen05_alloc", build.region(slot, 0), const(allocated(state.kernel)))), n.Eval(build.call("tcgen05_relinquish")))
    return (n.If(build.compare("lt", state.thread, WARP), alone), n.Eval(build.call("tcgen05_fence_before")))


def known(state: State) -> n.Block:
    """Their address, behind that barrier."""
    if state.slot is None:
        return ()
    return (n.Eval(build.call("tcgen05_fence_after")), n.Let((state.tensor_address,), build.load(build.region(state.slot, 0))))


def given_back(state: State) -> n.Block:
    """At the end the first warp gives them back, when all threads have read theirs."""
    if state.slot is None:
        return ()
    address = n.Var(state.tensor_address, U32)
    back = n.Eval(build.call("tcgen05_dealloc", address, const(allocated(state.kernel))))
    return (n.Eval(build.call("tcgen05_fence_before")), n.Eval(build.call("barrier")), n.If(build.compare("lt", state.thread, WARP), (back,)))
