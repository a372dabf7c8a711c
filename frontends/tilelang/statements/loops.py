"""Loops: of the kernel, with TileLang's kinds of them; those of the host are left to `host_loops`."""

from __future__ import annotations

import libcst as cst

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, I64, DType, dtype_of

from ..._python.signature import nodes_below
from ..expressions.iteration import bound, iterated
from ..state.evaluate import evaluate
from ..state.execute import attempt, run_block
from ..state.handlers import Rest
from ..state.layouts import loop_layout
from ..state.reader import Reader, Undecided
from ..syntax.control_flow import ends_in_return
from ..values.arithmetic import convert
from ..values.names import LANES
from ..values.values import Choice, Frame, Items, Loop, NotUnderstood, Num, Open, Returned, Scope, Value, describe
from .host_loops import host_for, host_while

KINDS = {"serial": "serial", "Serial": "serial", "range": "serial", "unroll": "unroll", "Unroll": "unroll", "vectorized": "vectorize",
         "Vectorized": "vectorize", "grid": "serial", "Parallel": LANES, "parallel": LANES, "Pipelined": "pipelined"}


def for_statement(r: Reader, f: Frame, s: cst.For, rest: Rest) -> Returned | None:
    """A `for`, of the host or of the kernel."""
    if not r.device or not r.launched:
        return host_for(r, f, s, rest)
    return attempt(r, f, s, lambda: _for(r, f, s))


def while_statement(r: Reader, f: Frame, s: cst.While, rest: Rest) -> Returned | None:
    """A `while`, of the host or of the kernel."""
    if not r.device:
        return host_while(r, f, s)
    return attempt(r, f, s, lambda: _while(r, f, s))


def _for(r: Reader, f: Frame, s: cst.For) -> Returned | None:
    """A loop of the kernel."""
    found = r.decided(evaluate(r, f.scope, s.iter))
    if isinstance(found, Num) and isinstance(s.iter, cst.Call) and isinstance(s.target, cst.Name):  # for tx in T.thread_binding(..)
        f.scope.names[s.target.value] = found
        return run_block(r, f, s.body.body)
    if isinstance(found, Open):
        found = Items(iterated(r, found))
    if isinstance(found, Items):
        return _rounds(r, f, s, found.items)
    if not isinstance(found, Loop):
        raise NotUnderstood(f"a loop over {describe(found)}")
    if found.kind == "range" and _picks_of_lists(f, s) and all(r.known_int(a) is not None for a in found.args):
        return _rounds(r, f, s, iterated(r, found))  # of a function of the host: a number of the kernel picks nothing of a list
    if found.kind == "Persistent":
        return _persistent(r, f, s, found)
    kind = KINDS[found.kind]
    if found.kind in ("Parallel", "parallel", "grid"):
        return _nest(r, f, s, found, kind)
    named = dict(found.named)
    lo, hi, step = _range(r, found)
    attrs: dict[str, n.Attr] = {}
    if kind == "pipelined":
        _pipeline(r, found, named, attrs)
    factor = r.settled(named.get("unroll_factor"))
    if kind == "unroll" and factor is not None:
        if isinstance(factor, Choice):  # another factor, or none, where a condition of the host holds
            raise Undecided(factor.cond)
        attrs["factor"] = r.option(factor)
    name = s.target.value if isinstance(s.target, cst.Name) else "i"
    if not isinstance(s.target, cst.Name):
        raise NotUnderstood("a loop over several names")
    if (down := build.int_value(step)) is not None and down < 0:
        _counting_down(r, f, s, name, (lo, hi, -down), kind, n.attrs(**attrs))
        return None
    var = n.Var(r.out.fresh(name if name != "_" else "i"), dtype_of(lo.type))
    if not build.is_const(lo, 0) and isinstance(lo, n.Const) and build.is_const(step, 1):
        r.begins[var.name] = lo, hi
    body = _body(r, f, s, {name: Num(var)}, {var.name: hi} if build.is_const(lo, 0) and build.is_const(step, 1) else {})
    r.out.emit(n.For(var, lo, hi, step, body, kind, n.attrs(**attrs)))
    return None


def _counting_down(r: Reader, f: Frame, s: cst.For, name: str, ends: tuple[n.Expr, n.Expr, int], kind: str, attrs: n.Attrs) -> None:
    """`range(hi, lo, -step)`: its rounds are counted from 0, and the name is worked out from their number."""
    first, last, step = ends
    count = build.maximum(build.ceildiv(build.sub(first, last), step), 0)
    var = n.Var(r.out.fresh("round"), dtype_of(first.type))
    with r.out.capture() as made:
        value = r.out.let(name if name != "_" else "i", build.sub(first, build.mul(var, step)))
    body = _body(r, f, s, {name: Num(value)}, {var.name: count})
    r.out.emit(n.For(var, build.const(0, dtype_of(first.type)), count, build.const(1, dtype_of(first.type)), (*made, *body), kind, attrs))


def _body(r: Reader, f: Frame, s: cst.For, names: dict[str, Value], inside: dict[str, n.Expr]) -> n.Block:
    if ends_in_return(s.body.body):
        raise NotUnderstood("a return from inside a loop")
    before = dict(f.scope.names)
    f.scope.names.update(names)
    r.inside.update(inside)
    with r.out.capture() as made:
        run_block(r, f, s.body.body)
    f.scope.names.clear()
    f.scope.names.update(before)
    return tuple(made)


def _picks_of_lists(f: Frame, s: cst.For) -> bool:
    """Whether a loop's counter is in an index into a list of the host, and each round goes to its end."""
    counter = s.target.value if isinstance(s.target, cst.Name) else ""
    below = list(nodes_below(s.body))
    return not any(isinstance(x, (cst.Break, cst.Continue)) for x in below) and any(
        isinstance(x, cst.Subscript) and isinstance(x.value, cst.Name) and isinstance(_held(f.scope, x.value.value), Items)
        and any(isinstance(y, cst.Name) and y.value == counter for part in x.slice for y in nodes_below(part)) for x in below)


def _held(scope: Scope | None, name: str) -> Value:
    while scope is not None:
        if name in scope.names:
            return scope.names[name]
        scope = scope.parent
    return None


def _rounds(r: Reader, f: Frame, s: cst.For, items: tuple[Value, ...]) -> Returned | None:
    """A loop over a list of the host: its rounds one after another."""
    for item in items:
        f.scope.names.update(bound(r, s.target, item))
        found = run_block(r, f, s.body.body, None)
        if found is not None:
            return found
    return None


def _range(r: Reader, loop: Loop) -> tuple[n.Expr, n.Expr, n.Expr]:
    """Start, end and step of a loop, in one integer dtype."""
    named = dict(loop.named)
    args = [r.settled(a) for a in loop.args if True]
    for word in ("start", "stop", "step")[len(args):]:
        if word in named:
            args.append(named[word])
    if loop.kind == "Pipelined":
        args = args[:2]
    args = [a for a in args if a is not None]
    if not 1 <= len(args) <= 3:
        raise NotUnderstood(f"a loop with {len(args)} ends")
    ends = [_end(r, a) for a in args]
    lo, hi = (build.const(0), ends[0]) if len(ends) == 1 else (ends[0], ends[1])
    step = ends[2] if len(ends) > 2 else build.const(1)
    dtype: DType = I64 if any(dtype_of(e.type) == I64 for e in (lo, hi, step)) else I32
    return convert(lo, dtype), convert(hi, dtype), convert(step, dtype)


def _pipeline(r: Reader, loop: Loop, named: dict[str, Value], attrs: dict[str, n.Attr]) -> None:
    attrs["stages"] = r.option(named.get("num_stages", loop.args[2] if len(loop.args) > 2 else 0))
    for word in ("order", "stage", "group"):
        value = r.settled(named.get(word))
        if isinstance(value, Items) and value.items:
            attrs[word] = _numbers(r, value, word)


def _numbers(r: Reader, v: Items, word: str) -> str:
    """A list of numbers as text, `0,1`; a list of lists as `0;1,2`."""
    if all(isinstance(x, Items) for x in v.items):
        return ";".join(_numbers(r, x, word) for x in v.items if isinstance(x, Items))
    numbers = [r.known_int(x) for x in v.items]
    if any(x is None for x in numbers):
        raise NotUnderstood(f"'{word}' of a pipeline that is not known")
    return ",".join(map(str, numbers))


def _nest(r: Reader, f: Frame, s: cst.For, loop: Loop, kind: str) -> Returned | None:
    """`T.Parallel(m, n)`, `T.grid(m, n)`: a loop for each axis, the body in the innermost."""
    extents = [r.dim(a) for a in loop.args]
    targets = [x.value for x in s.target.elements] if isinstance(s.target, (cst.Tuple, cst.List)) else [s.target]
    if len(targets) != len(extents) or not all(isinstance(t, cst.Name) for t in targets):
        raise NotUnderstood(f"{len(targets)} names for {len(extents)} axes")
    names: dict[str, Value] = {}
    inside: dict[str, n.Expr] = {}
    axes = []
    for t, extent in zip(targets, extents, strict=True):
        assert isinstance(t, cst.Name)
        var = n.Var(r.out.fresh(t.value if t.value != "_" else "i"), I32)
        names[t.value] = Num(var)
        inside[var.name] = extent
        axes.append((var, extent))
    attrs = loop_layout(r, dict(loop.named))
    body = _body(r, f, s, names, inside)
    for var, extent in reversed(axes):
        body = (n.For(var, build.const(0), extent, build.const(1), body, kind, attrs if var is axes[0][0] else (), origin=r.out.origin),)
    for made in body:
        r.out.emit(made)
    return None


def _persistent(r: Reader, f: Frame, s: cst.For, loop: Loop) -> Returned | None:
    """`T.Persistent(domain, waves, index, group)`: CTA `index` takes the tiles index, index + waves, ..; they are counted with panels of
    `group` along the last axis outermost, then the other axes, then within a panel."""
    named = dict(loop.named)
    args = list(loop.args)
    for word in ("domain", "wave_size", "index", "group_size")[len(args):]:
        if word in named:
            args.append(named[word])
    domain = r.decided(args[0]) if args else None
    if not isinstance(domain, Items) or len(args) < 3:
        raise NotUnderstood("a persistent loop without a domain, waves and an index")
    extents = [r.dim(x) for x in domain.items]
    wave, index = r.dim(args[1]), r.dim(args[2])
    group = r.dim(args[3]) if len(args) > 3 and args[3] is not None else build.const(8)
    group = build.maximum(build.minimum(group, extents[-1]), 1)
    targets = [x.value for x in s.target.elements] if isinstance(s.target, (cst.Tuple, cst.List)) else [s.target]
    if len(targets) != len(extents) or not all(isinstance(t, cst.Name) for t in targets):
        raise NotUnderstood(f"{len(targets)} names for a persistent loop over {len(extents)} axes")
    total = build.ceildiv(extents[-1], group)
    for e in (*extents[:-1], group):
        total = build.mul(total, e)
    w = n.Var(r.out.fresh("wave"), I32)
    before = dict(f.scope.names)
    with r.out.capture() as made:
        rest: n.Expr = r.out.let("tile", build.add(build.mul(w, wave), index))
        coordinates: list[n.Expr] = []
        for e in (group, *reversed(extents[:-1])):
            coordinates.append(build.mod(rest, e))
            rest = build.floordiv(rest, e)
        last = build.add(build.mul(rest, group), coordinates[0])
        for t, e in zip(targets, (*reversed(coordinates[1:]), last), strict=True):
            assert isinstance(t, cst.Name)
            f.scope.names[t.value] = Num(r.out.let(t.value, e))
        inside = build.compare("lt", last, extents[-1])
        with r.out.capture() as inner:
            run_block(r, f, s.body.body)
        r.out.emit(n.If(inside, tuple(inner)))
    f.scope.names.clear()
    f.scope.names.update(before)
    r.out.emit(n.For(w, build.const(0), build.ceildiv(total, wave), build.const(1), tuple(made)))
    return None


def _while(r: Reader, f: Frame, s: cst.While) -> Returned | None:
    """A loop that runs while a condition holds."""
    cond = _condition(r, f.scope, s.test)
    before = dict(f.scope.names)
    with r.out.capture() as made:
        run_block(r, f, s.body.body)
    f.scope.names.clear()
    f.scope.names.update(before)
    r.out.emit(n.While(cond, tuple(made)))
    return None


def _condition(r: Reader, scope: Scope, e: cst.BaseExpression) -> n.Expr:
    """A condition as an expression of the kernel."""
    found = r.truth(evaluate(r, scope, e))
    return build.const(found, BOOL) if isinstance(found, bool) else found


def _end(r: Reader, v: Value) -> n.Expr:
    """A bound of a loop: i32 unless it is wider."""
    e = r.integer(v)
    return convert(e, I32) if dtype_of(e.type).is_bool else e
