"""Functions read in place of their calls."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from kir.base.diagnostic import KirError

from ..._python.liveness import Liveness
from ..._python.signature import parameters
from ..host.scope import unchanged_by_decorators
from ..values.control_flow import Returned
from ..values.values import Items, Jit, NotUnderstood, Value, is_number
from .naming import named
from .state import Frame, State

MAX_INLINE = 24


class Seen(Exception):
    """The call that is looked for, with what it gives."""

    def __init__(self, values: dict[str, Value]) -> None:
        super().__init__()
        self.values = values


def run_function(r: State, body: cst.BaseSuite) -> Value:
    """Read the body of the innermost frame's function; its result, None without one."""
    r.live.append(Liveness(body))
    try:
        flow = r.read_block(r, body.body)
    finally:
        r.live.pop()
    return flow.value if isinstance(flow, Returned) else None


def inline(r: State, fn: Jit, args: Sequence[Value], given: dict[str, Value], host: bool = False) -> Value:
    """A jit function called: its body is read in place; so is that of a `host` function of constexprs, which Triton runs as it is."""
    if len(r.frames) > MAX_INLINE or any(f.fn.node is fn.node for f in r.frames):
        raise NotUnderstood(f"'{fn.node.name.value}' calls itself")
    if not host and not unchanged_by_decorators(fn.node):
        raise NotUnderstood(f"'{fn.node.name.value}' has a decorator that may replace it")
    r.calls += 1
    frame = Frame(fn, r.root.scope(fn.module), number=r.calls)
    bind(r, frame, args, given)
    if r.watched is fn.node:
        raise Seen(dict(frame.env))
    r.frames.append(frame)
    try:
        return run_function(r, fn.node.body)
    except KirError as bad:
        raise NotUnderstood(f"in '{fn.node.name.value}': {bad.diagnostics[0].message}") from bad
    finally:
        r.frames.pop()


def bind(r: State, frame: Frame, args: Sequence[Value], given: dict[str, Value]) -> None:
    """Give the parameters of a frame's function their values, defaults included."""
    node = frame.fn.node
    params = parameters(node)
    names = [p.name.value for p in params]
    star = node.params.star_arg
    if star is not None and not isinstance(star, cst.MaybeSentinel) and isinstance(star, cst.Param):
        frame.env[star.name.value] = Items(tuple(args[len(node.params.params) :]))
        args = args[: len(node.params.params)]
    if len(args) > len(names) or any(k not in names for k in given):
        raise NotUnderstood(f"arguments of '{node.name.value}' do not fit")
    for name, value in (*zip(names, args), *given.items()):
        frame.env[name] = named(r, name, value) if not is_number(value) else value
    for p in params:
        if p.name.value not in frame.env:
            if p.default is None:
                raise NotUnderstood(f"'{node.name.value}' lacks its argument '{p.name.value}'")
            frame.env[p.name.value] = frame.scope.evaluate(p.default)
