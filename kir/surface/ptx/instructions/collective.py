"""What warps, CTAs and clusters do together in PTX: exchange between lanes, barriers, fences (ISA 9.7.12, 9.7.13)."""
from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL
from kir.surface.ptx.form.bits import KINDS, UNSIGNED, Kind, called
from kir.surface.ptx.form.operands import Pointer
from kir.surface.ptx.form.syntax import Instruction, Memory, Name, Operand, Pair, Place, Vector
from kir.surface.ptx.registers.reader import PREDICATE, Handler, Reader

FULL = 0xFFFFFFFF


def _mask(r: Reader, o: Operand) -> dict[str, n.Attr]:
    """The lanes that take part, as an attribute (nothing for all of them)."""
    if not isinstance(o, (Memory, Vector, Pair)):
        got = r.value(o, KINDS["u32"])
        if isinstance(got, n.Const):
            return {} if int(got.value) == FULL else {"mask": int(got.value)}
    raise r.refuse("a mask of lanes that is not known at compile time")


def _shuffle(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    if not m.flag("sync"):
        raise r.refuse("a shuffle without .sync")
    how = m.one("bfly", "up", "down", "idx")
    kind = m.kind("b32", "u32", "s32", "f32")
    m.done()
    if isinstance(i.operands[0], Pair):
        raise r.refuse("a shuffle that says whether its source is in range")
    clamp = r.constant(i.operands[3])
    width = 32 - (clamp >> 8 & 31)
    if clamp & 31 != (0 if how == "up" else 31) or width & (width - 1):
        raise r.refuse(f"a shuffle with segments and bounds {clamp:#x}")
    value, by = _raw(r, i.operands[1], kind), r.value(i.operands[2], KINDS["s32"])
    options: dict[str, n.Attr] = {**({"width": width} if width != 32 else {}), **_mask(r, i.operands[4])}
    row = {"bfly": "shfl_xor", "up": "shfl_up", "down": "shfl_down", "idx": "shfl_idx"}[how]
    r.write(i.operands[0], r.bind_effect("x", called(row, options, value, by)))


def _raw(r: Reader, o: Operand, kind: Kind) -> n.Expr:
    """An operand whose type does not matter, as what it is."""
    got = r.value(o, Kind(UNSIGNED[kind.bits]))
    return got.x if isinstance(got, n.Cast) and got.rounding == "bits" else got


def _vote(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    if not m.flag("sync"):
        raise r.refuse("a vote without .sync")
    how = m.one("any", "all", "ballot", "uni")
    m.kind("pred", "b32")
    m.done()
    if how == "uni":
        raise r.refuse("a vote on equality")
    row = {"any": "vote_any", "all": "vote_all", "ballot": "ballot"}[how]
    made = called(row, _mask(r, i.operands[2]), r.value(i.operands[1], PREDICATE))
    r.write(i.operands[0], r.bind_effect("votes", made))


def _match(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    m.flag("sync")
    if not m.flag("any"):
        raise r.refuse("match.all")
    kind = m.kind("b32", "b64")
    m.done()
    made = called("match_any", _mask(r, i.operands[2]), r.value(i.operands[1], kind))
    r.write(i.operands[0], r.bind_effect("same", made))


def _active(r: Reader, i: Instruction) -> None:
    r.write(i.operands[0], r.bind_effect("active", build.call("active_mask")))


def _redux(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    m.flag("sync")
    op = m.one("add", "min", "max", "and", "or", "xor")
    if m.flag("abs") or m.flag("NaN") or "f32" in m.left:
        raise r.refuse("a reduction of floats over the lanes of a warp")
    kind = m.kind("u32", "s32", "b32")
    m.done()
    made = called("warp_reduce", {"op": op, **_mask(r, i.operands[2])}, r.value(i.operands[1], kind))
    r.write(i.operands[0], r.bind_effect("x", made))


# ---------------------------------------------------------------------------------------------------------- synchronization
def _barrier(r: Reader, i: Instruction) -> None:
    m, args = r.modifiers(), i.operands
    if m.flag("cluster"):
        how = m.one("arrive", "wait")
        for x in ("release", "acquire", "aligned"):
            m.flag(x)
        m.done()
        r.effect(n.Eval(build.call(f"cluster_{how}")))
        return
    if m.flag("warp"):
        if not m.flag("sync") or _mask(r, args[0]):
            raise r.refuse("a part of a warp that waits for itself")
        r.effect(n.Eval(build.call("warp_sync")))
        return
    how = m.one("sync", "arrive", "red")
    m.flag("aligned")
    m.flag("cta")
    m.done()
    if how == "red":
        raise r.refuse("a barrier that reduces")
    number = r.value(args[0], KINDS["s32"])
    if build.is_const(number, 0) and len(args) == 1 and how == "sync":
        r.effect(n.Eval(build.call("barrier")))
    elif len(args) != 2:
        raise r.refuse("a named barrier of all threads", "the number of threads")
    else:
        r.effect(n.Eval(build.call(f"named_barrier_{how}", number, r.value(args[1], KINDS["s32"]))))


def _fence(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    if i.parts[0] == "membar":
        scope = m.one("cta", "gl", "sys")
        m.done()
        r.effect(n.Eval(build.call("fence", scope={"gl": "gpu"}.get(scope, scope))))
        return
    if m.flag("proxy"):
        if not m.flag("async"):
            raise r.refuse("a fence of another proxy than async")
        m.one("global", "shared::cta", "shared::cluster")
        m.done()
        r.effect(n.Eval(build.call("fence_async")))
    elif m.flag("mbarrier_init"):
        m.flag("release")
        m.flag("cluster")
        m.done()
        r.effect(n.Eval(build.call("fence_mbar_init")))
    else:
        m.one("acq_rel", "sc", "acquire", "release")
        scope = m.one("cta", "cluster", "gpu", "sys")
        m.done()
        if scope == "cluster":
            raise r.refuse("a fence of a cluster")
        r.effect(n.Eval(build.call("fence", scope=scope)))


def _mbarrier(r: Reader, i: Instruction) -> None:
    m, args = r.modifiers(), i.operands
    how = m.one("init", "arrive", "expect_tx", "try_wait", "test_wait", "inval", "arrive_drop", "complete_tx", "pending_count")
    expects = m.flag("expect_tx")
    if how in ("try_wait", "test_wait") and r.spinning:
        waited(r, i)
        r.result(i.operands[0], build.const(True, BOOL))
        return
    if how in ("try_wait", "test_wait"):
        raise r.refuse("one try of an mbarrier", "a loop in the asm that jumps back until the phase is complete")
    if how in ("inval", "arrive_drop", "complete_tx", "pending_count") or m.flag("noComplete"):
        raise r.refuse(f"mbarrier.{how}")
    remote = m.flag("shared::cluster") and how == "arrive"
    for x in ("release", "relaxed", "cta", "cluster", "shared", "shared::cta", "b64", "shared::cluster"):
        m.flag(x)
    m.done()
    if how == "init":
        r.effect(n.Eval(build.call("mbar_init", r.mbarrier(args[0]), r.value(args[1], KINDS["s32"]))))
    elif how == "expect_tx":
        r.effect(n.Eval(build.call("mbar_expect", r.mbarrier(args[0]), r.value(args[1], KINDS["s32"]))))
    else:
        at = 0 if isinstance(args[0], Memory) else 1
        if not expects and len(args) > at + 1 and r.constant(args[at + 1]) != 1:
            raise r.refuse("several arrivals at once")
        place = r.mbarrier(args[at], remote)
        if expects:
            r.effect(n.Eval(build.call("mbar_arrive_expect", place, r.value(args[at + 1], KINDS["s32"]))))
        else:
            r.effect(n.Eval(build.call("mbar_arrive", place)))


def waited(r: Reader, i: Instruction) -> None:
    """An mbarrier that a loop tries until its phase is complete; `i` is the try."""
    if "parity" not in i.parts:
        raise r.refuse("an mbarrier that is waited for by its state", ".parity")
    r.effect(n.Eval(build.call("mbar_wait", r.mbarrier(i.operands[1]), r.value(i.operands[2], KINDS["s32"]))))


def _peer(r: Reader, i: Instruction) -> None:
    """mapa: the same place in the CTA of a rank."""
    m = r.modifiers()
    m.flag("shared::cluster")
    m.kind("u32", "u64")
    m.done()
    source = i.operands[1]
    held = r.held(source) if isinstance(source, (Name, Place)) else None
    if not isinstance(held, Pointer) or held.at.buffer.space != "shared":
        raise r.fail("KIR-F306", "mapa takes the address of a place in shared memory")
    peer = r.peers(held.at.buffer) if r.peers is not None else None
    if peer is None:
        raise r.refuse("memory of another CTA in a kernel whose cluster is not known", "__cluster_dims__")
    rank = r.value(i.operands[2], KINDS["s32"])
    r.write(i.operands[0], Pointer(n.Region(peer, (rank, *held.at.index)), held.bytes))


def _dependency(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    how = m.one("wait", "launch_dependents")
    m.done()
    if not how:
        raise r.fail("KIR-F302", "griddepcontrol takes .wait or .launch_dependents")
    r.effect(n.Eval(build.call("grid_dependency_wait" if how == "wait" else "grid_dependency_launch")))


def _registers(r: Reader, i: Instruction) -> None:
    m = r.modifiers()
    how = m.one("inc", "dec")
    for x in ("sync", "aligned", "u32"):
        m.flag(x)
    m.done()
    count = r.constant(i.operands[0])
    if count % 8 or not 24 <= count <= 256 or not how:
        raise r.fail("KIR-F302", f"setmaxnreg takes a multiple of 8 from 24 to 256, not {count}")
    r.effect(n.Eval(build.call("set_registers", build.const(count), grow=how == "inc")))


def _sleep(r: Reader, i: Instruction) -> None:
    r.effect(n.Eval(build.call("nanosleep", r.value(i.operands[0], KINDS["u32"]))))


def _exit(r: Reader, i: Instruction) -> None:
    r.modifiers().done()
    r.effect(n.Jump("return"))


def _trap(r: Reader, i: Instruction) -> None:
    r.effect(n.Eval(build.call("trap")))


HANDLERS: dict[str, Handler] = {
    "shfl": _shuffle, "vote": _vote, "match": _match, "activemask": _active, "redux": _redux,
    "bar": _barrier, "barrier": _barrier, "fence": _fence, "membar": _fence, "mbarrier": _mbarrier,
    "griddepcontrol": _dependency, "setmaxnreg": _registers, "nanosleep": _sleep, "trap": _trap, "exit": _exit, "mapa": _peer}
