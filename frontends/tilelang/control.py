"""`with T.Kernel(..)`, the loops of TileLang, and `while`."""

from __future__ import annotations

import libcst as cst

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, I64, DType, dtype_of

from . import arithmetic
from .arithmetic import convert
from .evaluate import bound, evaluate
from .execute import index_of, run_block, truth_of
from .grid_barrier import divided
from .reader import Part, Reader
from .values import Builtin, Frame, Function, Items, Launch, Loop, NotUnderstood, Num, Open, Returned, Value, describe

LANES = "lanes"
"""The kind of loop that `T.Parallel` is until it becomes tile statements or a loop over threads."""
KINDS = {"serial": "serial", "Serial": "serial", "range": "serial", "unroll": "unroll", "Unroll": "unroll", "vectorized": "vectorize",
         "Vectorized": "vectorize", "grid": "serial", "Parallel": LANES, "parallel": LANES, "Pipelined": "pipelined"}


def with_statement(r: Reader, f: Frame, s: cst.With) -> Returned | None:
    """`with T.Kernel(..) as (..):` begins the kernel; `with T.ws(0):` is one warpgroup's part; `with T.If(..):` is a branch."""
    if len(s.items) > 1:
        first, inner = s.items[0].with_changes(comma=cst.MaybeSentinel.DEFAULT), s.with_changes(items=s.items[1:])
        return with_statement(r, f, s.with_changes(items=[first], body=cst.IndentedBlock([inner])))
    item = s.items[0]
    value = evaluate(r, f.scope, item.item)
    if isinstance(value, Loop) and value.kind == "If":
        _branch(r, f, s, value)
        return None
    if isinstance(value, Launch):
        if r.launched:
            raise NotUnderstood("a kernel inside a kernel")
        return _kernel(r, f, s, value)
    if isinstance(value, Loop) and value.kind == "attr":
        return _reducing(r, f, s, value)
    if isinstance(value, Loop) and value.kind == "ws":
        groups = [r.known_int(a) for a in value.args]
        if any(g is None for g in groups):
            raise NotUnderstood("warpgroups that the binding decides")
        cond: n.Expr | None = None
        for g in groups:
            one = build.compare("eq", build.binary("floordiv", thread(r), build.const(128)), g or 0)
            cond = one if cond is None else build.logical_or(cond, one)
        assert cond is not None
        with r.out.capture() as made:
            run_block(r, f, s.body.body)
        r.out.emit(n.If(cond, tuple(made)))
        return None
    if isinstance(value, Builtin) or (isinstance(value, Open) and value.kind == "asked"):
        raise NotUnderstood(f"'with {describe(value)}'")
    raise NotUnderstood("a 'with' that is no kernel")


def _branch(r: Reader, f: Frame, s: cst.With, given: Loop) -> None:
    """`with T.If(c):` around `with T.Then():` and `with T.Else():`, as macros write branches. What they bind ends with them."""
    found = r.truth(given.args[0]) if len(given.args) == 1 else None
    if found is None:
        raise NotUnderstood("'T.If' of other than one condition")
    cond = arithmetic.literal(found) if isinstance(found, bool) else found
    blocks: dict[str, n.Block] = {"Then": (), "Else": ()}
    for part in s.body.body:
        items = part.items if isinstance(part, cst.With) else ()
        word = evaluate(r, f.scope, items[0].item) if items else None
        if not (isinstance(part, cst.With) and isinstance(word, Loop) and word.kind in blocks):
            raise NotUnderstood("what stands in 'T.If' is neither 'T.Then' nor 'T.Else'")
        before = dict(f.scope.names)
        with r.out.capture() as made:
            if len(items) > 1:
                run_block(r, f, [part.with_changes(items=items[1:])])
            else:
                run_block(r, f, part.body.body)
        f.scope.names.clear()
        f.scope.names.update(before)
        blocks[word.kind] = tuple(made)
    r.out.emit(n.If(cond, blocks["Then"], blocks["Else"], r.is_static(cond) and not r.of_sizes(cond)))


def _kernel(r: Reader, f: Frame, s: cst.With, launch: Launch) -> Returned | None:
    """One kernel of the function. Where conditions decide which it is, its statements stand in their branch."""
    common, target = dict(r.attrs), s.items[0].asname
    try:
        _launch(r, f, launch, target.name if target is not None else None)
    except NotUnderstood as bad:
        r.unread = r.unread or bad.reason
        raise
    r.launched = True
    if r.assumed:
        if r.parts:
            raise NotUnderstood("several kernels, of which the binding decides one")
        return run_block(r, f, s.body.body)
    with r.out.capture() as made:
        found = run_block(r, f, s.body.body)
    for part in divided(tuple(made)):
        r.parts.append(Part(r.grid, r.threads, r.cluster, r.attrs, part))
    r.launched, r.attrs = False, common
    r.grid, r.threads, r.thread_shape, r.cluster = (), build.const(128), (), ()
    return found


def _reducing(r: Reader, f: Frame, s: cst.With, given: Loop) -> Returned | None:
    """`with T.attr(T.comm_reducer(..), "reduce_scope", ..):` what the all-reduce inside puts two numbers together with."""
    if len(given.args) < 2 or given.args[1] != "reduce_scope" or not isinstance(given.args[0], Function):
        raise NotUnderstood(f"an attribute '{given.args[1] if len(given.args) > 1 else ''}' of statements")
    r.combiner = given.args[0]
    try:
        return run_block(r, f, s.body.body)
    finally:
        r.combiner = None


def thread(r: Reader) -> n.Var:
    """The number of the thread in its CTA."""
    return n.Var(r.thread, I32)


def _launch(r: Reader, f: Frame, launch: Launch, target: cst.BaseExpression | None) -> None:
    named = dict(launch.named)
    extents = [r.dim(x) for x in launch.grid]
    names: list[str | None] = []
    if isinstance(target, (cst.Tuple, cst.List)):
        names = [x.value.value if isinstance(x.value, cst.Name) else None for x in target.elements]
    elif isinstance(target, cst.Name):
        names = [target.value]
    if len(names) > len(extents):
        raise NotUnderstood(f"{len(names)} names for a grid of {len(extents)} axes")
    if isinstance(target, cst.Name) and len(extents) > 1:
        raise NotUnderstood("one name for a grid of several axes")
    axes = []
    for k, extent in enumerate(extents):
        given = names[k] if k < len(names) else None
        axis = r.out.fresh(given if given and given != "_" else f"block_{'xyz'[k] if k < 3 else k}")
        axes.append(n.Axis(axis, extent))
        if given:
            f.scope.names[given] = Num(n.Var(axis, I32))
    if len(axes) > 3:
        raise NotUnderstood(f"a grid of {len(axes)} axes")
    r.grid = tuple(axes)
    threads = r.settled(named.pop("threads", None))
    if threads is not None:
        parts = threads.items if isinstance(threads, Items) else (threads,)
        out: n.Expr = build.const(1)
        r.thread_shape = tuple(r.dim(p) for p in parts)
        for extent in r.thread_shape:
            out = build.mul(out, extent)
        r.threads = out
    cluster = named.pop("cluster_dims", None)
    if cluster is not None:
        dims = cluster.items if isinstance(cluster, Items) else (cluster,)
        known = [r.known_int(d) for d in dims]
        if any(d is None for d in known):
            raise NotUnderstood("a cluster that the binding decides")
        r.cluster = tuple(d for d in known if d is not None)
    for key, value in named.items():
        if key == "prelude" and value is not None:
            raise NotUnderstood("a prelude of CUDA source")


def for_statement(r: Reader, f: Frame, s: cst.For) -> Returned | None:
    """A loop of the kernel."""
    found = r.decided(evaluate(r, f.scope, s.iter))
    if isinstance(found, Num) and isinstance(s.iter, cst.Call) and isinstance(s.target, cst.Name):  # for tx in T.thread_binding(..)
        f.scope.names[s.target.value] = found
        return run_block(r, f, s.body.body)
    if isinstance(found, Items):
        return _rounds(r, f, s, found.items)
    if not isinstance(found, Loop):
        raise NotUnderstood(f"a loop over {describe(found)}")
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
        known = r.known_int(factor)
        if known is None:
            raise NotUnderstood("a factor of unrolling that the binding decides")
        attrs["factor"] = known
    name = s.target.value if isinstance(s.target, cst.Name) else "i"
    if not isinstance(s.target, cst.Name):
        raise NotUnderstood("a loop over several names")
    if (down := build.int_value(step)) is not None and down < 0:
        _counting_down(r, f, s, name, (lo, hi, -down), kind, n.attrs(**attrs))
        return None
    var = n.Var(r.out.fresh(name if name != "_" else "i"), dtype_of(lo.type))
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
    from .branches import ends_in_return

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


def _rounds(r: Reader, f: Frame, s: cst.For, items: tuple[Value, ...]) -> Returned | None:
    """A loop over a list of the host: its rounds one after another."""
    for item in items:
        f.scope.names.update(bound(r, s.target, item))
        found = run_block(r, f, s.body.body)
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
    ends = [index_of(r, a) for a in args]
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
    from .layouts import loop_layout

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


def while_statement(r: Reader, f: Frame, s: cst.While) -> Returned | None:
    """A loop that runs while a condition holds."""
    cond = truth_of(r, f.scope, s.test)
    before = dict(f.scope.names)
    with r.out.capture() as made:
        run_block(r, f, s.body.body)
    f.scope.names.clear()
    f.scope.names.update(before)
    r.out.emit(n.While(cond, tuple(made)))
    return None
