"""`with T.Kernel(..)`, `T.If`, `T.ws`, `T.attr`: what a `with` begins."""

from __future__ import annotations

import libcst as cst

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32

from ..state.evaluate import evaluate
from ..state.execute import attempt, run_block
from ..state.handlers import Rest
from ..state.reader import Another, Reader
from ..state.reading_state import Part
from ..syntax.control_flow import branch_returns
from ..teams.grid_barrier import divided
from ..values import arithmetic
from ..values.values import Builtin, Choice, Frame, Function, Items, Launch, Loop, NotUnderstood, Num, Open, Returned, describe


def with_statement(r: Reader, f: Frame, s: cst.With, rest: Rest) -> Returned | None:
    """A `with`, kept as text where it is not understood."""
    if (rest is None or rest) and branch_returns(s.body.body):
        return attempt(r, f, s, lambda: _refused("a return in a branch inside a 'with', which something follows"))
    return attempt(r, f, s, lambda: _with(r, f, s))


def _refused(reason: str) -> None:
    raise NotUnderstood(reason)


def _with(r: Reader, f: Frame, s: cst.With) -> Returned | None:
    """`with T.Kernel(..) as (..):` begins the kernel; `with T.ws(0):` is one warpgroup's part; `with T.If(..):` is a branch."""
    if len(s.items) > 1:
        first, inner = s.items[0].with_changes(comma=cst.MaybeSentinel.DEFAULT), s.with_changes(items=s.items[1:])
        return _with(r, f, s.with_changes(items=[first], body=cst.IndentedBlock([inner])))
    item = s.items[0]
    value = r.settled(evaluate(r, f.scope, item.item))
    if isinstance(value, Choice) and any(isinstance(x, (Launch, Choice)) for x in (value.a, value.b)):
        raise Another(value.cond)  # a launch of one kind or of another
    if isinstance(value, Loop) and value.kind == "If":
        _branch(r, f, s, value)
        return None
    if isinstance(value, Launch):
        if r.launched and r.begun_in and not r.in_launch:
            raise Another(r.begun_in[0])  # one stands in a branch that has ended
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
    if r.branches and r.parts:
        raise Another(r.branches[0])
    r.launched = True
    if r.branches:
        r.begun_in, r.in_launch = list(r.branches), True
        try:
            return run_block(r, f, s.body.body)
        finally:
            r.in_launch = False
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
