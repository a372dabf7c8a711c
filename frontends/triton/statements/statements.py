"""Statements: assignments, branches, returns. Loops are in `loops`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import libcst as cst

from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n

from ..._python.liveness import assigned_in_order, assigned_names, target_names
from ..state import joins
from ..state.arithmetic import arithmetic
from ..state.naming import named
from ..state.objects import assign_part, is_being_made
from ..state.state import State
from ..values.control_flow import NEXT, STOP, Flow, Returned, contains_return, orelse_of
from ..values.values import Choice, Items, NotUnderstood, Refused, Run, Static, Undefined, Unknown, Value, describe, is_known, items_of
from .expressions import condition, evaluate
from .loops import loop
from .mutable_names import Retyped, accumulate_in_place, store_cell

AUGMENTED = {
    "AddAssign": "add",
    "SubtractAssign": "sub",
    "MultiplyAssign": "mul",
    "DivideAssign": "div",
    "FloorDivideAssign": "floordiv",
    "ModuloAssign": "mod",
    "BitAndAssign": "and",
    "BitOrAssign": "or",
    "BitXorAssign": "xor",
    "LeftShiftAssign": "shl",
    "RightShiftAssign": "shr",
    "PowerAssign": "pow",
}


def block(r: State, body: Sequence[cst.CSTNode]) -> Flow:
    """Read statements in order."""
    for i, s in enumerate(body):
        if isinstance(s, cst.If) and (len(r.frames) > 1 or r.returns) and contains_return(s):
            return returning_if(r, s, body[i + 1 :])
        flow = guarded(r, s)
        if flow is not NEXT:
            return flow
    return NEXT


def guarded(r: State, s: cst.CSTNode) -> Flow:
    """Read a statement of the kernel itself; what is not understood becomes opaque and its names unknown."""
    if len(r.frames) > 1:
        return statement(r, s)
    parts = s.body if isinstance(s, cst.SimpleStatementLine) else (s,)
    around = r.out.origin
    try:
        return _guarded_parts(r, parts)
    finally:
        r.out.origin = around


def _guarded_parts(r: State, parts: Sequence[cst.CSTNode]) -> Flow:
    flow: Flow = NEXT
    for part in parts:
        mark, frame = len(r.out.block), r.frame
        saved = (dict(frame.env), dict(frame.cells), list(r.paths.known), len(r.out.blocks))
        r.out.origin = r.frame.fn.module.origin(part)
        try:
            flow = statement(r, part)
        except Retyped:
            raise
        except (NotUnderstood, KirError) as bad:
            reason = bad.reason if isinstance(bad, NotUnderstood) else bad.diagnostics[0].message
            del r.out.blocks[saved[3] :]
            del r.out.block[mark:]
            frame.env, frame.cells, r.paths.known = saved[0], saved[1], saved[2]
            if isinstance(bad, Refused) and r.paths.known:
                raise  # of two static arms the one that leads here is never taken
            opaque(r, part, reason)
        if flow is not NEXT:
            return flow
    return NEXT


def opaque(r: State, s: cst.CSTNode, reason: str) -> None:
    """Keep a statement verbatim; the names it binds become unknown."""
    text = r.frame.fn.module.code(s).strip()
    r.out.emit(n.Opaque("triton", text, reason, origin=r.out.origin))
    r.opaque.append(reason)
    for name in assigned_names([s]):
        r.frame.cells.pop(name, None)
        r.frame.env[name] = Unknown(f"it uses '{name}', which is not understood")


def statement(r: State, s: cst.CSTNode) -> Flow:
    """Read one statement. Raises NotUnderstood."""
    match s:
        case cst.SimpleStatementLine() | cst.SimpleStatementSuite():
            for part in s.body:
                flow = statement(r, part)
                if flow is not NEXT:
                    return flow
            return NEXT
        case cst.Assign():
            value = evaluate(r, s.value)
            for t in s.targets:
                assign(r, t.target, value)
        case cst.AnnAssign():
            if s.value is not None:
                assign(r, s.target, evaluate(r, s.value))
        case cst.AugAssign():
            op = AUGMENTED.get(type(s.operator).__name__)
            if op is None:
                raise NotUnderstood(f"operator {type(s.operator).__name__}")
            assign(r, s.target, arithmetic(r, op, evaluate(r, s.target), evaluate(r, s.value)))
        case cst.Expr():
            if not isinstance(s.value, (cst.SimpleString, cst.ConcatenatedString, cst.Ellipsis)):
                evaluate(r, s.value)
        case cst.If():
            return branch(r, s)
        case cst.For() | cst.While():
            return loop(r, s)
        case cst.Return():
            if len(r.frames) > 1 or r.returns:
                return Returned(None if s.value is None else evaluate(r, s.value))
            if s.value is not None and not (isinstance(s.value, cst.Name) and s.value.value == "None"):
                return Returned(evaluate(r, s.value))
            r.out.emit(n.Jump("return"))
            return STOP
        case cst.Break() | cst.Continue():
            r.out.emit(n.Jump("break" if isinstance(s, cst.Break) else "continue"))
            return STOP
        case cst.Pass() | cst.Assert() | cst.Import() | cst.ImportFrom() | cst.Global() | cst.EmptyLine():
            return NEXT
        case cst.Raise():
            raise Refused("statement Raise")
        case _:
            raise NotUnderstood(f"statement {type(s).__name__}")
    return NEXT


# ------------------------------------------------------------------------------------------------------------- assignments


def assign(r: State, target: cst.BaseExpression, value: Value) -> None:
    """Bind a target."""
    if isinstance(target, cst.Name):
        assign_name(r, target.value, value)
    elif isinstance(target, (cst.Tuple, cst.List)):
        if isinstance(value, Unknown):
            raise NotUnderstood(value.reason)
        items = items_of(_of_length(value, len(target.elements)))
        if len(items) < len(target.elements):
            raise NotUnderstood(f"{len(items)} values for {len(target.elements)} names")
        items = items[: len(target.elements)]  # Triton's compiler leaves what is over
        if any(name in r.frame.cells for name in target_names(target)):
            items = tuple(named(r, "x", v) for v in items)
        for t, v in zip(target.elements, items, strict=True):
            assign(r, t.value, v)
    elif isinstance(target, cst.Attribute) and isinstance(target.value, cst.Name) and is_being_made(r, target.value.value):
        assign_part(r, target.value.value, target.attr.value, value)
    else:
        raise NotUnderstood("an assignment to something that is no name")


def _of_length(value: Value, length: int) -> Value:
    """Of a choice between tuples those of so many elements: Triton refuses the kernel where it comes to another."""
    if isinstance(value, Choice):
        arms = [_of_length(v, length) for v in (value.a, value.b)]
        fitting = [v for v in arms if isinstance(v, Items) and len(v.items) == length]
        if len(fitting) == 1:
            return fitting[0]
    return value


def assign_name(r: State, name: str, value: Value) -> None:
    """Bind a name: a store when it lives in a buffer, a let otherwise."""
    if isinstance(value, Unknown):
        raise NotUnderstood(value.reason)
    frame = r.frame
    if name in frame.cells:
        frame.cells[name] = store_cell(r, name, frame.cells[name], value)
        return
    if isinstance(value, Run) and accumulate_in_place(r, name, frame.env.get(name), value):
        return
    frame.env[name] = named(r, name, value)


# ----------------------------------------------------------------------------------------------------------------- branches


def branch(r: State, s: cst.If) -> Flow:
    """An if without returns from an inlined function."""
    test = condition(r, s.test)
    if isinstance(test, Choice):
        raise NotUnderstood("a test of unusual kind")
    if not is_known(test) and isinstance(test, Static):
        decided = r.paths.decide(test.expr)
        test = test if decided is None else decided
    if is_known(test):
        return block(r, s.body.body if test else orelse_of(s))
    static = isinstance(test, Static)
    assert isinstance(test, (Static, Run))
    if isinstance(test, Run) and test.shape:
        if all(d == 1 for d in test.shape):
            test = Run(build.call("pick", test.expr, *(build.const(0) for _ in test.shape)))
        else:
            raise NotUnderstood("a branch on a tile")
    return arms(r, s, test.expr, static)


def arms(r: State, s: cst.If, cond: n.Expr, static: bool) -> Flow:
    """Both arms of an if, and the names after it. Of two static arms one that Triton refuses is never taken."""
    frame = r.frame
    before, cells = dict(frame.env), dict(frame.cells)
    results: list[tuple[Flow, dict[str, Value], list[n.Stmt]]] = []
    for outcome, body in ((True, s.body.body), (False, orelse_of(s))):
        frame.env, frame.cells = dict(before), dict(cells)
        try:
            with r.out.capture() as made:
                if static:
                    with r.paths.under(cond, outcome):
                        flow = block(r, body)
                else:
                    flow = block(r, body)
        except Refused:
            if not static or len(results) == outcome == 0:
                raise
            continue
        results.append((flow, frame.env, made))
    if len(results) == 1:
        ((flow, frame.env, made),), frame.cells = results, cells
        for each in made:
            r.out.emit(each)
        return flow
    frame.env, frame.cells = dict(before), cells
    (flow_a, env_a, block_a), (flow_b, env_b, block_b) = results
    live = r.live[-1].after.get(id(s), frozenset())
    if flow_a is not NEXT or flow_b is not NEXT:
        if flow_a is not NEXT and flow_b is not NEXT:
            joins.emit_if(r, cond, block_a, block_b, static)
            if isinstance(flow_a, Returned) or isinstance(flow_b, Returned):
                raise NotUnderstood("a kernel that returns a value from a branch")
            return STOP
        survivor, block_ = (env_b, block_b) if flow_a is not NEXT else (env_a, block_a)
        for name in assigned_in_order([s]):
            if name in live and name not in cells and name in survivor:
                frame.env[name] = joins.export(r, (survivor[name], block_), name)
        joins.emit_if(r, cond, block_a, block_b, static)
        return NEXT
    for name in assigned_in_order([s]):
        if name not in live or name in cells:
            continue
        va, vb = env_a.get(name, Undefined()), env_b.get(name, Undefined())
        try:
            frame.env[name] = joins.merge(r, cond, (va, block_a), (vb, block_b), static, name)
        except NotUnderstood as bad:
            frame.env[name] = Unknown(bad.reason)
    for name in assigned_names(s.body.body) | assigned_names(orelse_of(s)):
        if name not in live and name not in cells:
            frame.env.pop(name, None)
    joins.emit_if(r, cond, block_a, block_b, static)
    return NEXT


def returning_if(r: State, s: cst.If, rest: Sequence[cst.CSTNode]) -> Flow:
    """An if that returns from an inlined function: what follows it belongs to the arms that fall through."""
    test = condition(r, s.test)
    if isinstance(test, Static):
        decided = r.paths.decide(test.expr)
        test = test if decided is None else decided
    if is_known(test):
        return block(r, [*(s.body.body if test else orelse_of(s)), *rest])
    frame = r.frame
    before, cells = dict(frame.env), dict(frame.cells)
    flows: list[Flow] = []

    def arm(body: Sequence[cst.CSTNode]) -> Callable[[], Value]:
        def go() -> Value:
            frame.env, frame.cells = dict(before), dict(cells)
            flow = block(r, [*body, *rest])
            flows.append(flow)
            return flow.value if isinstance(flow, Returned) else None

        return go

    if isinstance(test, Static):
        value = joins.static_branch(r, test.expr, arm(s.body.body), arm(orelse_of(s)), "result")
    elif isinstance(test, Run):
        value = joins.choose(r, test, arm(s.body.body), arm(orelse_of(s)), "result")
    else:
        raise NotUnderstood(f"a branch on {describe(test)}")
    return Returned(value)
