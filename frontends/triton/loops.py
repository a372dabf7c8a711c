"""Loops: which names live in buffers while a loop runs, and the loop itself."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import libcst as cst

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, I64, DType, dtype_of, shape_of

from . import joins, operators
from .emit import buffer_read, mentions, whole
from .induction import closed_forms
from .liveness import assigned_names, target_names
from .statements import NEXT, STOP, Flow, Returned, Retyped, block, condition, contains_return
from .values import (
    BlockPointer,
    Builtin,
    Choice,
    Items,
    NotUnderstood,
    Pointer,
    Run,
    Static,
    Undefined,
    Unknown,
    Value,
    describe,
    is_known,
    is_number,
)

if TYPE_CHECKING:
    from .reader import Arguments, Reader

MAX_ATTEMPTS = 6
MAX_UNROLLED = 64
RECENT = 12


def loop(r: Reader, s: cst.For | cst.While) -> Flow:
    """A for or while loop."""
    if s.orelse is not None:
        raise NotUnderstood("an else after a loop")
    if len(r.frames) > 1 and contains_return(s):
        raise NotUnderstood("a return from inside a loop of an inlined function")
    if isinstance(s, cst.While):
        return while_loop(r, s)
    if not isinstance(s.target, cst.Name):
        raise NotUnderstood("a loop over tuples")
    iterated = r.eval(s.iter) if not isinstance(s.iter, cst.Call) else None
    if iterated is not None:
        return unrolled(r, s, r.items(iterated))
    assert isinstance(s.iter, cst.Call)
    fn = r.eval(s.iter.func)
    if not isinstance(fn, Builtin):
        items = r.eval(s.iter)
        return unrolled(r, s, r.items(items))
    word = fn.name.rsplit(".", 1)[-1]
    if word not in ("range", "static_range"):
        raise NotUnderstood(f"a loop over {fn.name}")
    from .reader import Arguments

    args = Arguments(
        [r.eval(a.value) for a in s.iter.args if a.keyword is None],
        {a.keyword.value: r.eval(a.value) for a in s.iter.args if a.keyword is not None},
    )
    return counted(r, s, args, word == "static_range")


def unrolled(r: Reader, s: cst.For, items: Sequence[Value]) -> Flow:
    """A loop over known values, read once for each."""
    assert isinstance(s.target, cst.Name)
    for item in items:
        r.frame.env[s.target.value] = item
        flow = block(r, s.body.body)
        if flow is not NEXT:
            if flow is STOP and r.out.block and isinstance(r.out.block[-1], n.Jump) and r.out.block[-1].kind != "return":
                raise NotUnderstood("break or continue in an unrolled loop")
            return flow
    return NEXT


def counted(r: Reader, s: cst.For, args: Arguments, static: bool) -> Flow:
    """`range`, `tl.range` or `tl.static_range`."""
    lo, hi, step = (
        (0, args.get(0, "end"), 1)
        if len(args.args) == 1 and "arg2" not in args.named
        else (args.get(0, "arg1", 0), args.get(1, "arg2", args.get(0, "arg1")), args.get(2, "step", 1))
    )
    if len(args.args) == 1:
        lo, hi = 0, args.args[0]
    if static and all(isinstance(x, int) for x in (lo, hi, step)):
        assert isinstance(lo, int) and isinstance(hi, int) and isinstance(step, int)
        numbers = range(lo, hi, step)
        if len(numbers) <= MAX_UNROLLED:
            return unrolled(r, s, list(numbers))
    ends: list[n.Expr] = []
    for x in (lo, hi, step):
        x = r.over((x,), lambda v: v)
        if not (isinstance(x, Run) or is_number(x)):
            raise NotUnderstood(f"a loop bound that is {describe(x)}")
        ends.append(operators.run(x))
    dtypes = [dtype_of(e.type) for e in ends]
    dtype = I64 if any(d.bits == 64 for d in dtypes) else I32
    ends = [build.cast(e, dtype) for e in ends]
    if any(shape_of(e.type) for e in ends):
        ends = [build.call("pick", e, *(build.const(0) for _ in shape_of(e.type))) if shape_of(e.type) else e for e in ends]
    down = build.int_value(ends[2])
    assert isinstance(s.target, cst.Name)
    name = s.target.value
    kind, attrs = options(r, args, static)
    if down is not None and down < 0:
        trips = build.ceildiv(build.sub(ends[0], ends[1]), -down)
        var = n.Var(r.out.fresh(f"{name}_trip"), dtype)
        value: n.Expr = build.add(ends[0], build.mul(var, down))
        bounds: tuple[n.Expr, n.Expr, n.Expr] = (build.const(0, dtype), trips, build.const(1, dtype))
    else:
        var = n.Var(r.out.fresh(name), dtype)
        value = var
        lo_e, hi_e = (e if _stable(e) else r.out.let(f"{name}_{word}", e) for e, word in ((ends[0], "lo"), (ends[1], "hi")))
        bounds = (lo_e, hi_e, ends[2] if _stable(ends[2]) else r.out.let(f"{name}_step", ends[2]))

    def head() -> None:
        r.frame.cells.pop(name, None)
        r.frame.env[name] = Static(value) if kind == "static" else Run(value)

    body, buffers = carried(r, s, head, None)
    made, finals = closed_forms(var, bounds[0], bounds[1], bounds[2], body, buffers)
    r.out.emit(n.For(var, *bounds, tuple(made), kind, attrs))
    for buffer, final in finals.items():
        # The buffer gets its value after the loop, for the rare reader there; an unused one is dropped with the dead code.
        r.out.emit(n.Store(n.Region(_buffer(r, buffer)), final))
    if name in r.live[-1].after.get(id(s), frozenset()):
        last = (
            build.add(bounds[0], build.mul(build.sub(build.ceildiv(build.sub(bounds[1], bounds[0]), bounds[2]), 1), bounds[2]))
            if down is None or down > 0
            else None
        )
        r.frame.env[name] = Run(last) if last is not None else Unknown(f"'{name}' after its loop")
    else:
        r.frame.env.pop(name, None)
    return NEXT


def _buffer(r: Reader, name: str) -> n.Buffer:
    for level in reversed(r.out.blocks):
        for s in reversed(level):
            if isinstance(s, n.Alloc) and s.buffer.name == name:
                return s.buffer
    raise NotUnderstood(f"the buffer '{name}' is not declared")


def _stable(e: n.Expr) -> bool:
    from kir.ir.visit import walk

    return not any(isinstance(x, n.Load) for x in walk(e))


def options(r: Reader, args: Arguments, static: bool) -> tuple[str, n.Attrs]:
    """Kind and attributes of a loop from the options of `tl.range`."""
    if static:
        return "static", ()
    found: dict[str, n.Attr] = {}
    kind = "serial"
    for key in ("num_stages", "loop_unroll_factor", "disallow_acc_multi_buffer", "flatten", "warp_specialize", "disable_licm"):
        value = args.named.get(key)
        if value is None:
            continue
        if isinstance(value, Static) and isinstance(value.expr, n.Var):
            given: n.Attr = value.expr.name
        elif is_known(value):
            given = value  # type: ignore[assignment]  # a literal that is not None
        else:
            raise NotUnderstood(f"option '{key}' of a loop depends on the binding")
        if key == "num_stages":
            if given not in (0, 1):
                kind = "pipelined"
                found["stages"] = given
        elif key == "loop_unroll_factor":
            if given != 1:
                found["factor"] = given
                kind = "unroll" if kind == "serial" else kind
        elif given is not False:
            found[key] = given
    return kind, n.attrs(**found)


def while_loop(r: Reader, s: cst.While) -> Flow:
    """A while loop; its test may use the names that live in buffers."""
    tests: list[Any] = []

    def head() -> None:
        tests.clear()
        with r.out.capture() as emitted:
            value = condition(r, s.test)
        tests.append((value, list(emitted)))

    body, _ = carried(r, s, head, s.test)
    value, emitted = tests[0]
    if is_known(value):
        cond: n.Expr = build.const(bool(value), BOOL)
    elif isinstance(value, (Run, Static)):
        cond = value.expr
    else:
        raise NotUnderstood(f"a while on {describe(value)}")
    if emitted:
        body = [*emitted, n.If(build.invert(cond), (n.Jump("break"),)), *body]
        cond = build.const(True, BOOL)
    if shape_of(cond.type):
        cond = build.call("pick", cond, *(build.const(0) for _ in shape_of(cond.type)))
    r.out.emit(n.While(cond, tuple(body)))
    return NEXT


# --------------------------------------------------------------------------------------------------------- names in buffers


def carried(r: Reader, s: cst.For | cst.While, head: Any, test: cst.BaseExpression | None) -> tuple[list[n.Stmt], set[str]]:
    """Read the body of a loop with the names that it carries in buffers, and which buffers those are. The loop is read
    again when a name turns out to have another
    type than before the loop, or to be bound only in it."""
    live = r.live[-1]
    assigned = assigned_names(s.body.body)
    upward, after = live.head.get(id(s), frozenset()), live.after.get(id(s), frozenset())
    loop_name = target_names(s.target) if isinstance(s, cst.For) else set()
    names = sorted((assigned & (upward | after)) - loop_name)
    hints: dict[str, Value] = {}
    for _ in range(MAX_ATTEMPTS):
        saved = _snapshot(r)
        opened, late, fixed = _open(r, [x for x in names if x not in r.frame.cells], hints)
        r.retyped.clear()
        try:
            with r.out.capture() as body:
                head()
                flow = block(r, s.body.body)
            if isinstance(flow, Returned):
                raise NotUnderstood("a return from inside a loop")
        except Retyped:
            mine = {k: v for k, v in r.retyped.items() if k in opened}
            if not mine:
                raise
            for k, v in mine.items():
                if k in hints and _same_type(hints[k], v):
                    raise NotUnderstood(f"'{k}' changes its type in the loop") from None
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
        buffers = {b.name for x in opened if x in r.frame.cells for e in _cell_reads(r.frame.cells[x]) if (b := buffer_read(e)) is not None}
        _close(r, opened)
        for x in assigned - set(names) - loop_name:
            if x not in r.frame.cells:
                r.frame.env.pop(x, None)
        return body, buffers
    raise NotUnderstood("the types of this loop's names do not settle")


def _same_type(a: Value, b: Value) -> bool:
    if isinstance(a, Run) and isinstance(b, Run):
        return a.expr.type == b.expr.type
    return type(a) is type(b)


def _prototype(v: Value) -> Value:
    return v


def _snapshot(r: Reader) -> tuple[Any, ...]:
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
    )


def _restore(r: Reader, saved: tuple[Any, ...]) -> None:
    del r.out.blocks[saved[8] :]
    r.out.block[:] = saved[0]
    r.frame.env, r.frame.cells = dict(saved[1]), dict(saved[2])
    r.out.taken, r.out.owners, r.out.mutable, r.weak = set(saved[3]), dict(saved[4]), set(saved[5]), set(saved[6])
    r.out.taken |= set(r.dtype_terms.values())
    r.opaque = list(saved[7])
    r.paths.known = list(saved[9])
    r.functions = dict(saved[10])


def _open(r: Reader, names: Sequence[str], hints: dict[str, Value]) -> tuple[list[str], list[str], dict[str, Value]]:
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


def _cell(r: Reader, name: str, old: Value, hint: Value | None) -> Value | None:
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
            if isinstance(old, Pointer) and old.base != shape_like.base:
                raise NotUnderstood(f"'{name}' points into two buffers")
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
            return Items(tuple(parts))
        case Choice():
            if isinstance(old, Choice) and old.cond == shape_like.cond:
                arms: list[Value] = []
                for part in (old.a, old.b):
                    made_part = part if part is None or isinstance(part, Undefined) else _cell(r, name, part, None)
                    if made_part is None and part is not None:
                        return None
                    arms.append(made_part)
                return Choice(old.cond, arms[0], arms[1])
            return None
        case _:
            return None


def _number_cell(r: Reader, name: str, old: Value, like: n.Expr) -> Run:
    dtype: DType = dtype_of(like.type)
    shape = shape_of(like.type)
    own = buffer_read(old.expr) if isinstance(old, Run) else None
    if (
        isinstance(old, Run)
        and own is not None
        and r.out.owners.get(own.name) == name
        and own.name not in r.out.mutable
        and own.dtype == dtype
        and old.expr.type == like.type
        and _declared_here(r, own)
    ):
        r.out.mutable.add(own.name)
        return Run(whole(own))
    buffer = r.out.buffer(name, dtype, shape)
    r.out.owners[buffer.name] = name
    r.out.mutable.add(buffer.name)
    init: n.Expr | None = None
    if isinstance(old, Run) or is_number(old):
        init = operators.run(old, dtype) if not isinstance(old, Run) or old.dtype != dtype else old.expr
        if init.type != like.type:
            init = build.broadcast(init, like.type)
        init = _inlined(r, name, init)
    r.out.emit(n.Alloc(buffer, init))
    return Run(whole(buffer))


def _declared_here(r: Reader, buffer: n.Buffer) -> bool:
    return any(isinstance(s, n.Alloc) and s.buffer.name == buffer.name for s in r.out.block)


def _inlined(r: Reader, name: str, init: n.Expr) -> n.Expr:
    """The definition of a let made shortly before, in place of its name, when nothing else uses it (`acc = tl.zeros(..)`)."""
    if not isinstance(init, n.Var):
        return init
    recent = r.out.block[-RECENT:]
    for k, s in enumerate(reversed(recent)):
        if isinstance(s, n.Let) and s.names == (init.name,):
            later = recent[len(recent) - k :]
            if not _stable(s.value) or any(mentions(x, {init.name}) for x in later):
                return init
            for f in r.frames:
                for other, value in f.env.items():
                    if (other != name or f is not r.frame) and any(mentions(e, {init.name}) for e in _cell_reads(value)):
                        return init
            del r.out.block[len(r.out.block) - 1 - k]
            return s.value
    return init


def _close(r: Reader, opened: Sequence[str]) -> None:
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
