"""What a loop carries: names that its iterations rebind live in buffers."""
from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import libcst as cst

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I64, DType, dtype_of, shape_of
from kir.ir.visit import walk

from ..._python.liveness import assigned_in_order, target_names
from ..state import joins
from ..state.state import State
from ..values import operators
from ..values.control_flow import Returned
from ..values.emitter import buffer_read, mentions, whole
from ..values.values import BlockPointer, Choice, Items, NotUnderstood, Pointer, Run, Static, Undefined, Unknown, Value, describe, is_number
from .mutable_names import Retyped

MAX_ATTEMPTS = 16


RECENT = 12


def stable(e: n.Expr) -> bool:
    """Whether an expression means the same wherever it is written."""
    return not any(isinstance(x, n.Load) or (isinstance(x, n.Call) and not all(isinstance(a, n.Expr) for a in x.args)) for x in walk(e))


def carried(r: State, s: cst.For | cst.While, head: Any, test: cst.BaseExpression | None) -> tuple[list[n.Stmt], set[str], set[str]]:
    """Read the body of a loop with the names that it carries in buffers, which buffers those are, and which of them names hold that are read after it. The
    loop is read again when a name turns out to have another
    type than before the loop, or to be bound only in it."""
    live = r.live[-1]
    assigned = assigned_in_order(s.body.body)
    upward, after = live.head.get(id(s), frozenset()), live.after.get(id(s), frozenset())
    loop_name = target_names(s.target) if isinstance(s, cst.For) else set()
    names = [x for x in assigned if x in upward | after and x not in loop_name]
    hints: dict[str, Value] = {}
    for _ in range(MAX_ATTEMPTS):
        saved = _snapshot(r)
        opened, late, fixed = _open(r, [x for x in names if x not in r.frame.cells], hints)
        r.retyped.clear()
        try:
            with r.out.capture() as body:
                head()
                flow = r.read_block(r, s.body.body)
            if isinstance(flow, Returned):
                raise NotUnderstood("a return from inside a loop")
        except Retyped:
            mine = {k: v for k, v in r.retyped.items() if k in opened}
            turns = {x.expr.name for name in loop_name if isinstance(x := r.frame.env.get(name), (Run, Static)) and isinstance(x.expr, n.Var)}
            if not mine:
                raise
            for k, v in mine.items():
                if k in hints and _same_type(hints[k], v):
                    raise NotUnderstood(f"'{k}' changes its type in the loop") from None
                if _extents(v) & turns or _extents(v) - saved[3]:
                    raise NotUnderstood(f"'{k}' is a tile whose extents change from round to round") from None
                hints[k] = v
            _restore(r, saved)
            continue
        found = {x: r.frame.env[x] for x in late if x in r.frame.env and not isinstance(r.frame.env[x], (Undefined, Unknown))}
        new = {k: v for k, v in found.items() if k not in hints and k in after}
        if new:
            hints.update({k: _prototype(v) for k, v in new.items()})
            _restore(r, saved)
            continue
        for x, old in fixed.items():
            if r.frame.env.get(x, old) != old:
                raise NotUnderstood(f"'{x}' is {describe(old)}, and changes in a loop")
        for x in late:
            r.frame.env[x] = Unknown(f"'{x}' is bound only inside a loop")
        held = {x: {b.name for e in _cell_reads(r.frame.cells[x]) if (b := buffer_read(e)) is not None} for x in names if x in r.frame.cells}
        buffers = set[str]().union(*(held[x] for x in opened if x in held))
        lasting = set[str]().union(*(held[x] for x in held if x in after))
        _close(r, opened)
        for x in (x for x in assigned if x not in names and x not in loop_name):
            if x not in r.frame.cells:
                r.frame.env.pop(x, None)
        return body, buffers, lasting
    raise NotUnderstood("the types of this loop's names do not settle")


def _extents(v: Value) -> set[str]:
    """The names in the extents of a tile."""
    shape = shape_of(v.expr.type) if isinstance(v, Run) else ()
    return {x.name for d in shape if isinstance(d, n.Expr) for x in walk(d) if isinstance(x, n.Var)}


def _same_type(a: Value, b: Value) -> bool:
    if isinstance(a, Run) and isinstance(b, Run):
        return a.expr.type == b.expr.type
    return type(a) is type(b)


def _prototype(v: Value) -> Value:
    return v


def _snapshot(r: State) -> tuple[Any, ...]:
    return (
        list(r.out.block),
        dict(r.frame.env),
        dict(r.frame.cells),
        set(r.out.taken),
        dict(r.out.owners),
        set(r.out.mutable),
        set(r.weak),
        list(r.opaque),
        len(r.out.blocks),
        copy.copy(r.paths.known),
        dict(r.functions),
        dict(r.combines),
    )


def _restore(r: State, saved: tuple[Any, ...]) -> None:
    del r.out.blocks[saved[8] :]
    r.out.block[:] = saved[0]
    r.frame.env, r.frame.cells = dict(saved[1]), dict(saved[2])
    r.out.taken, r.out.owners, r.out.mutable, r.weak = set(saved[3]), dict(saved[4]), set(saved[5]), set(saved[6])
    r.out.taken |= set(r.dtype_terms.values())
    r.opaque = list(saved[7])
    r.paths.known = list(saved[9])
    r.functions, r.combines = dict(saved[10]), dict(saved[11])


def _open(r: State, names: Sequence[str], hints: dict[str, Value]) -> tuple[list[str], list[str], dict[str, Value]]:
    """Give names buffers; those without a value before the loop stay `late` until their type is known, and what no buffer can hold is
    `fixed`: it must not change."""
    opened, late = [], []
    fixed: dict[str, Value] = {}
    for name in names:
        old = r.frame.env.get(name, Undefined())
        if isinstance(old, Unknown):
            continue
        hint = hints.get(name)
        if isinstance(old, Undefined) and hint is None:
            late.append(name)
            continue
        cell = _cell(r, name, old, hint)
        if cell is None:
            if isinstance(old, Undefined):
                late.append(name)
            else:
                fixed[name] = old
            continue
        r.frame.cells[name] = cell
        r.frame.env.pop(name, None)
        opened.append(name)
    return opened, late, fixed


def _cell(r: State, name: str, old: Value, hint: Value | None) -> Value | None:
    """The buffers of a name that starts as `old` and is to hold values like `hint`."""
    shape_like = hint if hint is not None else old
    match shape_like:
        case Run():
            return _number_cell(r, name, old, shape_like.expr)
        case bool() | int() | float() | Static():
            if isinstance(shape_like, Static) and dtype_of(shape_like.expr.type).is_symbolic:
                return None
            made = _number_cell(r, name, old, operators.run(shape_like))
            buffer = buffer_read(made.expr)
            assert buffer is not None
            r.weak.add(buffer.name)
            return made
        case Pointer():
            offset = build.cast(operators.flat(shape_like), I64)
            if (isinstance(old, Pointer) and old.base != shape_like.base) or _either(old):
                return between(r, name, old, shape_like)
            start: Value = Run(build.cast(operators.flat(old), I64)) if isinstance(old, Pointer) else Undefined()
            return Pointer(shape_like.base, (_number_cell(r, name, start, offset).expr,))
        case BlockPointer():
            if isinstance(old, BlockPointer):
                cells = tuple(_number_cell(r, f"{name}_{k}", Run(o), o).expr for k, o in enumerate(old.offsets))
                return BlockPointer(old.base, old.shape, old.strides, cells, old.block)
            return None
        case Items():
            olds = old.items if isinstance(old, Items) else (Undefined(),) * len(shape_like.items)
            if len(olds) != len(shape_like.items):
                return None
            parts = [_cell(r, name, o, h if hint is not None else None) for o, h in zip(olds, shape_like.items, strict=True)]
            if any(p is None for p in parts):
                return None
            return replace(shape_like, items=tuple(parts))
        case Choice() if hint is not None and _either(hint) and (isinstance(old, Pointer) or _either(old)):
            return between(r, name, old, hint)
        case Choice():
            if isinstance(old, Choice) and old.cond == shape_like.cond:
                arms: list[Value] = []
                for part in (old.a, old.b):
                    made_part = part if part is None or isinstance(part, Undefined) else _cell(r, name, part, None)
                    if made_part is None and part is not None:
                        return None
                    arms.append(made_part)
                return replace(old, a=arms[0], b=arms[1])
            return None
        case _:
            return None


def _either(v: Value) -> bool:
    """Whether a value is one of two pointers, as the kernel works it out."""
    return isinstance(v, Choice) and not v.static and isinstance(v.a, Pointer) and isinstance(v.b, Pointer)


def between(r: State, name: str, old: Value, like: Value) -> Value:
    """The buffers of a pointer that moves between two tensors: which of them it points into, and how far into each. Raises NotUnderstood for more than two."""
    known = [p for v in (old, like) for p in ((v.a, v.b) if isinstance(v, Choice) else (v,)) if isinstance(p, Pointer)]
    bases = list(dict.fromkeys(p.base for p in known))
    if len(bases) != 2:
        raise NotUnderstood(f"'{name}' points into {len(bases)} buffers")
    first: Value = Run(build.const(old.base == bases[0], BOOL)) if isinstance(old, Pointer) else Run(old.cond) if isinstance(old, Choice) else Undefined()
    if isinstance(old, Choice) and isinstance(old.a, Pointer) and old.a.base != bases[0]:
        first = Run(build.invert(old.cond))
    began = {p.base: Run(build.cast(operators.flat(p), I64)) for p in ((old.a, old.b) if isinstance(old, Choice) else (old,)) if isinstance(p, Pointer)}
    like_of = {p.base: build.cast(operators.flat(p), I64) for p in known}
    which = _number_cell(r, f"{name}_in", first, build.const(True, BOOL))
    a, b = (Pointer(x, (_number_cell(r, name, began.get(x, 0), like_of[x]).expr,)) for x in bases)
    return Choice(which.expr, a, b, False)


def _number_cell(r: State, name: str, old: Value, like: n.Expr) -> Run:
    dtype: DType = dtype_of(like.type)
    shape = shape_of(like.type)
    own = buffer_read(old.expr) if isinstance(old, Run) else None
    if (
        isinstance(old, Run)
        and own is not None
        and r.out.owners.get(own.name) == r.owner(name)
        and own.name not in r.out.mutable
        and own.dtype == dtype
        and old.expr.type == like.type
        and _declared_here(r, own)
    ):
        r.out.mutable.add(own.name)
        return Run(whole(own))
    buffer = r.out.buffer(name, dtype, shape)
    r.out.owners[buffer.name] = r.owner(name)
    r.out.mutable.add(buffer.name)
    if isinstance(old, Choice):
        r.out.emit(n.Alloc(buffer))
        _begin(r, name, buffer, old, like)
        return Run(whole(buffer))
    r.out.emit(n.Alloc(buffer, _inlined(r, name, _as_begun(old, like)) if isinstance(old, Run) or is_number(old) else None))
    return Run(whole(buffer))


def _as_begun(old: Value, like: n.Expr) -> n.Expr:
    """A number as the first value of a name that is to hold values like `like`."""
    dtype = dtype_of(like.type)
    init = old.expr if isinstance(old, Run) and old.dtype == dtype else operators.run(old, dtype)
    return init if init.type == like.type else build.broadcast(init, like.type)


def _begin(r: State, name: str, buffer: n.Buffer, old: Value, like: n.Expr) -> None:
    """Fill a buffer with the first value of a name, which static conditions choose. Raises NotUnderstood for one that is no number."""
    match old:
        case Choice():
            with r.paths.under(old.cond, True), r.out.capture() as block_a:
                _begin(r, name, buffer, old.a, like)
            with r.paths.under(old.cond, False), r.out.capture() as block_b:
                _begin(r, name, buffer, old.b, like)
            joins.emit_if(r, old.cond, block_a, block_b, old.static)
        case Undefined() | None:
            pass
        case _ if isinstance(old, Run) or is_number(old):
            r.out.emit(n.Store(n.Region(buffer), _as_begun(old, like)))
        case _:
            raise NotUnderstood(f"'{name}' is {describe(old)} before the loop and a number in it")


def _declared_here(r: State, buffer: n.Buffer) -> bool:
    return any(isinstance(s, n.Alloc) and s.buffer.name == buffer.name for s in r.out.block)


def _inlined(r: State, name: str, init: n.Expr) -> n.Expr:
    """The definition of a let made shortly before, in place of its name, when nothing else uses it (`acc = tl.zeros(..)`)."""
    if not isinstance(init, n.Var):
        return init
    recent = r.out.block[-RECENT:]
    for k, s in enumerate(reversed(recent)):
        if isinstance(s, n.Let) and s.names == (init.name,):
            later = recent[len(recent) - k :]
            if not stable(s.value) or any(mentions(x, {init.name}) for x in (*later, *r.pending)):
                return init
            for f in r.frames:
                for other, value in f.env.items():
                    if (other != name or f is not r.frame) and any(mentions(e, {init.name}) for e in _cell_reads(value)):
                        return init
            del r.out.block[len(r.out.block) - 1 - k]
            return s.value
    return init


def _close(r: State, opened: Sequence[str]) -> None:
    """After the loop a name is bound to its buffer's final value."""
    for name in opened:
        cell = r.frame.cells.pop(name, None)
        if cell is None:
            continue
        for e in _cell_reads(cell):
            buffer = buffer_read(e)
            if buffer is not None:
                r.out.mutable.discard(buffer.name)
                r.weak.discard(buffer.name)
        r.frame.env[name] = cell


def _cell_reads(v: Value) -> list[n.Expr]:
    out: list[n.Expr] = []

    def note(e: n.Expr) -> n.Expr:
        out.append(e)
        return e

    joins.mapped(v, note)
    return out
