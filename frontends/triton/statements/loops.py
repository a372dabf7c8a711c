"""Loops: which names live in buffers while a loop runs, and the loop itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, I64, dtype_of, shape_of

from ..state import joins
from ..state.state import State
from ..values import operators
from ..values.arguments import Arguments
from ..values.control_flow import NEXT, STOP, Flow, contains_return
from ..values.values import Builtin, NotUnderstood, Run, Static, Unknown, Value, describe, is_known, is_number, items_of
from .closed_forms import closed_forms
from .expressions import condition, evaluate
from .loop_carried import carried, stable

MAX_UNROLLED = 64
MOST_ROUNDS = 1 << 14
"""Rounds that a kernel's loops over known values have in all, one within another."""
MOST_WITHIN = 16
"""Loops within one another: each is read twice, to find what it carries."""


def loop(r: State, s: cst.For | cst.While) -> Flow:
    """A for or while loop."""
    if r.within == 0 and _deepest(s) > MOST_WITHIN:
        raise NotUnderstood(f"more than {MOST_WITHIN} loops within one another")
    r.within += 1
    try:
        return _loop(r, s)
    finally:
        r.within -= 1


class _Nest(cst.CSTVisitor):
    """How deep loops stand within one another."""

    def __init__(self) -> None:
        super().__init__()
        self.deep = self.most = 0

    def visit_For(self, node: cst.For | cst.While) -> None:
        self.deep += 1
        self.most = max(self.most, self.deep)

    def leave_For(self, original_node: cst.For | cst.While) -> None:
        self.deep -= 1

    visit_While, leave_While = visit_For, leave_For


def _deepest(s: cst.For | cst.While) -> int:
    nest = _Nest()
    s.visit(nest)
    return nest.most


def _loop(r: State, s: cst.For | cst.While) -> Flow:
    if s.orelse is not None:
        raise NotUnderstood("an else after a loop")
    if len(r.frames) > 1 and contains_return(s):
        raise NotUnderstood("a return from inside a loop of an inlined function")
    if isinstance(s, cst.While):
        return while_loop(r, s)
    if not isinstance(s.target, cst.Name):
        raise NotUnderstood("a loop over tuples")
    iterated = evaluate(r, s.iter) if not isinstance(s.iter, cst.Call) else None
    if iterated is not None:
        return unrolled(r, s, items_of(iterated))
    assert isinstance(s.iter, cst.Call)
    fn = evaluate(r, s.iter.func)
    if not isinstance(fn, Builtin):
        items = evaluate(r, s.iter)
        return unrolled(r, s, items_of(items))
    word = fn.name.rsplit(".", 1)[-1]
    if word not in ("range", "static_range"):
        raise NotUnderstood(f"a loop over {fn.name}")
    args = Arguments(
        [evaluate(r, a.value) for a in s.iter.args if a.keyword is None],
        {a.keyword.value: evaluate(r, a.value) for a in s.iter.args if a.keyword is not None},
    )
    return counted(r, s, args, word == "static_range")


def unrolled(r: State, s: cst.For, items: Sequence[Value]) -> Flow:
    """A loop over known values, read once for each."""
    assert isinstance(s.target, cst.Name)
    for item in items:
        r.rounds += 1
        if r.rounds > MOST_ROUNDS:
            raise NotUnderstood(f"loops over known values that have more than {MOST_ROUNDS} rounds in all")
        r.frame.env[s.target.value] = item
        flow = r.read_block(r, s.body.body)
        if flow is not NEXT:
            if flow is STOP and r.out.block and isinstance(r.out.block[-1], n.Jump) and r.out.block[-1].kind != "return":
                raise NotUnderstood("break or continue in an unrolled loop")
            return flow
    return NEXT


def counted(r: State, s: cst.For, args: Arguments, static: bool) -> Flow:
    """`range`, `tl.range` or `tl.static_range`."""
    lo, hi, step = (
        (0, args.get(0, "end"), 1)
        if len(args.args) == 1 and "arg2" not in args.named
        else (args.get(0, "arg1", 0), args.get(1, "arg2", args.get(0, "arg1")), args.get(2, "step", 1))
    )
    if len(args.args) == 1:
        lo, hi = 0, args.args[0]
    if static and all(isinstance(x, int) for x in (lo, hi, step)) and step != 0:
        assert isinstance(lo, int) and isinstance(hi, int) and isinstance(step, int)
        numbers = range(lo, hi, step)
        if not numbers[MAX_UNROLLED:]:
            return unrolled(r, s, list(numbers))
    ends: list[n.Expr] = []
    for x in (lo, hi, step):
        x = joins.over(r, (x,), lambda v: v)
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
        lo_e, hi_e = (e if stable(e) else r.out.let(f"{name}_{word}", e) for e, word in ((ends[0], "lo"), (ends[1], "hi")))
        bounds = (lo_e, hi_e, ends[2] if stable(ends[2]) else r.out.let(f"{name}_step", ends[2]))

    def head() -> None:
        r.frame.cells.pop(name, None)
        r.frame.env[name] = Static(value) if kind == "static" else Run(value)

    r.pending += bounds
    try:
        body, buffers, lasting = carried(r, s, head, None)
    finally:
        del r.pending[-len(bounds):]
    made, finals = closed_forms(var, bounds[0], bounds[1], bounds[2], body, buffers, r.counts)
    r.out.emit(n.For(var, *bounds, tuple(made), kind, attrs))
    for buffer, final in ((x, finals[x]) for x in finals if x in lasting):  # its value after the loop, for the rare reader there
        r.out.emit(n.Store(n.Region(_buffer(r, buffer)), final))
    if name in r.live[-1].after.get(id(s), frozenset()):
        last = (
            build.add(bounds[0], build.mul(build.sub(build.ceildiv(build.sub(bounds[1], bounds[0]), bounds[2]), 1), bounds[2]))
            if down is None or down > 0  # a step of 0 is refused when the program is verified
            else None
        )
        r.frame.env[name] = Run(last) if last is not None else Unknown(f"'{name}' after its loop")
    else:
        r.frame.env.pop(name, None)
    return NEXT


def _buffer(r: State, name: str) -> n.Buffer:
    for level in reversed(r.out.blocks):
        for s in reversed(level):
            if isinstance(s, n.Alloc) and s.buffer.name == name:
                return s.buffer
    raise NotUnderstood(f"the buffer '{name}' is not declared")


def options(r: State, args: Arguments, static: bool) -> tuple[str, n.Attrs]:
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


def while_loop(r: State, s: cst.While) -> Flow:
    """A while loop; its test may use the names that live in buffers."""
    tests: list[Any] = []

    def head() -> None:
        tests.clear()
        with r.out.capture() as emitted:
            value = condition(r, s.test)
        tests.append((value, list(emitted)))

    body, _, _ = carried(r, s, head, s.test)
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

