"""Statements of the host and of the kernel.

On the host a branch that the binding decides runs both ways and what it binds becomes a choice; in the kernel it becomes `static if`,
and numbers that both ways bind become registers. A statement of the kernel that is not understood becomes `opaque`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from kir.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, DType, dtype_of
from kir.ir.visit import walk

from ..triton.liveness import assigned_names
from ..triton.source import small_definitions
from . import arithmetic
from .arithmetic import convert
from .evaluate import annotated, binary, bound, evaluate, iterated
from .reader import Reader, Undecided
from .values import (
    Choice,
    Class,
    Function,
    Items,
    Memory,
    NotUnderstood,
    Num,
    Open,
    Place,
    Raised,
    Scope,
    TypeOf,
    Unknown,
    Value,
    describe,
    is_number,
)

MOST_CALLS = 40
MOST_ROUNDS = 256


class Found(Exception):
    """The function that is looked for has been reached; `scope` is what it sees."""

    def __init__(self, scope: Scope) -> None:
        super().__init__("found")
        self.scope = scope


@dataclass(frozen=True)
class Returned:
    """A function ends here with a value."""

    value: Value


@dataclass
class Frame:
    """A function while it runs; `target` is the function that is looked for in its body."""

    scope: Scope
    target: cst.FunctionDef | None = None


def called(r: Reader, fn: Function, args: list[Value], named: dict[str, Value]) -> Value:
    """A function of the source read in place."""
    r.depth += 1
    if r.depth > MOST_CALLS:
        r.depth -= 1
        raise NotUnderstood("functions that call one another too deeply")
    try:
        scope = Scope({}, fn.scope.module, fn.scope)
        references = _bind(r, fn, args, named, scope)
        if isinstance(fn.node, cst.Lambda):
            return evaluate(r, scope, fn.node.body)
        r.wanted = ""
        if r.device:
            for name, value in list(scope.names.items()):
                if isinstance(value, (Num, Place)) and name not in references:
                    scope.names[name] = _named_number(r, name, value)
        found = run_block(r, Frame(scope), fn.node.body.body)
        return found.value if isinstance(found, Returned) else None
    finally:
        r.depth -= 1


def _bind(r: Reader, fn: Function, args: list[Value], named: dict[str, Value], scope: Scope) -> set[str]:
    """Arguments to parameters; the names of those that are places to be written (`T.Ref`)."""
    params = fn.node.params
    names = [p.name.value for p in (*params.posonly_params, *params.params)]
    star = params.star_arg if isinstance(params.star_arg, cst.Param) else None
    if len(args) > len(names) and star is None:
        raise NotUnderstood("more arguments than the function takes")
    scope.names.update(zip(names, args))
    if star is not None:
        scope.names[star.name.value] = Items(tuple(args[len(names):]))
    allowed = {*names, *(p.name.value for p in params.kwonly_params)}
    for k, v in named.items():
        if k not in allowed:
            raise NotUnderstood(f"the function has no parameter '{k}'")
        scope.names[k] = v
    references = set()
    for p in (*params.posonly_params, *params.params, *params.kwonly_params):
        if p.name.value not in scope.names:
            if p.default is None:
                raise NotUnderstood(f"the function lacks its argument '{p.name.value}'")
            scope.names[p.name.value] = evaluate(r, fn.scope, p.default)
        if p.annotation is not None and fn.scope.module.code(p.annotation.annotation).rsplit(".", 1)[-1] in ("Ref", "Var"):
            references.add(p.name.value)
            value = scope.names[p.name.value]
            if isinstance(value, Place):
                scope.names[p.name.value] = Place(value.buffer, value.index, True)
    return references


def _named_number(r: Reader, name: str, value: Value) -> Value:
    """A number of the kernel under a name of its own."""
    if isinstance(value, Place) and (value.var or any(isinstance(i, n.Span) for i in value.index) or len(value.index) < len(value.buffer.shape)):
        return value
    if isinstance(value, Place) and not r.launched:
        return value
    return _let(r, name, r.run(value))


# ----------------------------------------------------------------------------------------------------------------------- blocks
def run_block(r: Reader, f: Frame, body: Sequence[cst.CSTNode]) -> Returned | None:
    """Statements in order; what a `return` among them gives. Raises Found where the function looked for is defined."""
    for k, s in enumerate(body):
        found = _run(r, f, s, body[k + 1:])
        if found is not None:
            return found
    return None


def _run(r: Reader, f: Frame, s: cst.CSTNode, rest: Sequence[cst.CSTNode]) -> Returned | None:
    """One statement. `rest` are those after it, which belong to a branch that another branch's `return` leaves."""
    match s:
        case cst.SimpleStatementLine():
            for small in s.body:
                found = _attempt(r, f, small, lambda small=small: _small(r, f, small))  # type: ignore[misc]
                if found is not None:
                    return found
            return None
        case cst.If():
            return _if(r, f, s, rest)
        case cst.FunctionDef():
            if s is f.target:
                raise Found(f.scope)
            f.scope.names[s.name.value] = Function(s, f.scope)
            return None
        case cst.ClassDef():
            f.scope.names[s.name.value] = Class(s, f.scope)
            return None
        case cst.EmptyLine():
            return None
        case cst.For() if not r.device or not r.launched:
            return _host_for(r, f, s, rest)
        case cst.While() if not r.device:
            return _host_while(r, f, s)
        case cst.Try():
            return run_block(r, f, s.body.body)
        case cst.With():
            from .control import with_statement

            return _attempt(r, f, s, lambda: with_statement(r, f, s))
        case cst.For():
            from .control import for_statement

            return _attempt(r, f, s, lambda: for_statement(r, f, s))
        case cst.While():
            from .control import while_statement

            return _attempt(r, f, s, lambda: while_statement(r, f, s))
        case _:
            return _attempt(r, f, s, lambda: _fail(f"a statement of the form {type(s).__name__}"))


def _fail(reason: str) -> None:
    raise NotUnderstood(reason)


def _attempt(r: Reader, f: Frame, s: cst.CSTNode, act: object) -> Returned | None:
    """A statement, with what follows when it cannot be decided or is not understood."""
    origin, taken = r.out.origin, set(r.out.taken)
    names = dict(f.scope.names)
    r.out.origin = f.scope.module.origin(s)
    try:
        with r.out.capture() as made:
            found: Returned | None = act()  # type: ignore[operator]  # a thunk
        r.out.block.extend(made)
        return found
    except Undecided as open_:
        _restore(r, f, names, taken)
        return _both_ways(r, f, open_.cond, lambda: _attempt(r, f, s, act), lambda: _attempt(r, f, s, act), s)
    except (NotUnderstood, KirError, RecursionError) as bad:
        reason = bad.reason if isinstance(bad, NotUnderstood) else bad.diagnostics[0].message if isinstance(bad, KirError) else "it is nested too deeply"
        _restore(r, f, names, taken)
        if r.launched:
            _opaque(r, f, s, reason)
        for name in assigned_names([s]) if isinstance(s, (cst.BaseStatement, cst.BaseSmallStatement)) else ():
            f.scope.names[name] = Unknown(reason)
        return None
    finally:
        r.out.origin = origin


def _restore(r: Reader, f: Frame, names: dict[str, Value], taken: set[str]) -> None:
    f.scope.names.clear()
    f.scope.names.update(names)
    r.out.taken = taken | set(r.metas)


def _opaque(r: Reader, f: Frame, s: cst.CSTNode, reason: str) -> None:
    """The statement kept as text, with the buffers that it names as read and written."""
    from ..triton.inference import nodes_below

    touched: dict[str, None] = {}
    known = True
    for x in nodes_below(s):
        if isinstance(x, cst.Name):
            value = _seen(f.scope, x.value)
            if isinstance(value, (Memory, Place)):
                touched[value.buffer.name] = None
            elif isinstance(value, Function):
                known = False
    where = tuple(touched) if known else ("*",)
    text = f.scope.module.code(s).strip()
    r.out.emit(n.Opaque("tilelang", text, reason, where, where))


def _seen(scope: Scope | None, name: str) -> Value | None:
    while scope is not None:
        if name in scope.names:
            return scope.names[name]
        scope = scope.parent
    return None


# --------------------------------------------------------------------------------------------------------------------- branches
def _if(r: Reader, f: Frame, s: cst.If, rest: Sequence[cst.CSTNode]) -> Returned | None:
    names, taken = dict(f.scope.names), set(r.out.taken)
    origin = r.out.origin
    r.out.origin = f.scope.module.origin(s)
    try:
        with r.out.capture() as made:
            cond = r.truth(evaluate(r, f.scope, s.test))
        r.out.block.extend(made)
    except Undecided as open_:
        _restore(r, f, names, taken)
        return _both_ways(r, f, open_.cond, lambda: _if(r, f, s, rest), lambda: _if(r, f, s, rest), s)
    except (NotUnderstood, KirError) as bad:
        reason = bad.reason if isinstance(bad, NotUnderstood) else bad.diagnostics[0].message
        _restore(r, f, names, taken)
        if r.launched:
            _opaque(r, f, s, reason)
            for name in assigned_names([s]):
                f.scope.names[name] = Unknown(reason)
            return None
        cond = r.meta(_asked_name(r, f, s), "bool")
    finally:
        r.out.origin = origin
    orelse: Sequence[cst.CSTNode] = () if s.orelse is None else [s.orelse] if isinstance(s.orelse, cst.If) else s.orelse.body.body
    if isinstance(cond, bool):
        return run_block(r, f, s.body.body if cond else orelse)
    if r.launched and not r.is_static(cond):
        return _dynamic_if(r, f, s, cond, orelse)
    if _defines(s.body.body, f.target):
        r.assume(cond)
        _settle_meta(r, cond, True)
        return run_block(r, f, s.body.body)
    if _defines(orelse, f.target):
        r.assume(build.invert(cond))
        _settle_meta(r, cond, False)
        return run_block(r, f, orelse)
    done: list[bool] = []

    def then() -> Returned | None:
        found = run_block(r, f, s.body.body)
        if found is None and (ends_in_return(orelse) or ends_in_return(s.body.body)):
            done.append(True)
            return run_block(r, f, rest) or Returned(None)
        return found

    def otherwise() -> Returned | None:
        found = run_block(r, f, orelse)
        if found is None and (ends_in_return(orelse) or ends_in_return(s.body.body)):
            done.append(True)
            return run_block(r, f, rest) or Returned(None)
        return found

    return _both_ways(r, f, cond, then, otherwise, s)


def _asked_name(r: Reader, f: Frame, s: cst.If) -> str:
    """A name for a question of the host that is not understood: its own words."""
    text = "".join(c if c.isalnum() else "_" for c in f.scope.module.code(s.test))[:40].strip("_")
    return text if text and not text[0].isdigit() else f"when_{text}"


def _settle_meta(r: Reader, cond: n.Expr, holds: bool) -> None:
    """A meta that decides whether the kernel is made at all: its default is the way that makes it."""
    if isinstance(cond, n.Unary) and cond.op == "not":
        _settle_meta(r, cond.x, not holds)
    if isinstance(cond, n.Var) and cond.name in r.metas and r.metas[cond.name].kind == "bool":
        r.metas[cond.name] = n.Meta(cond.name, "bool", holds)
        r.given[cond.name] = holds


def _defines(body: Sequence[cst.CSTNode], target: cst.FunctionDef | None) -> bool:
    """Whether a function is defined in a block, at any depth of branches."""
    if target is None:
        return False
    for s in body:
        if s is target:
            return True
        if isinstance(s, cst.If):
            orelse = () if s.orelse is None else [s.orelse] if isinstance(s.orelse, cst.If) else s.orelse.body.body
            if _defines(s.body.body, target) or _defines(orelse, target):
                return True
        if isinstance(s, (cst.With, cst.For, cst.Try)) and _defines(s.body.body, target):
            return True
    return False


def ends_in_return(body: Sequence[cst.CSTNode]) -> bool:
    """Whether some way through a block returns."""
    for s in body:
        if isinstance(s, cst.SimpleStatementLine) and any(isinstance(x, cst.Return) for x in s.body):
            return True
        if isinstance(s, cst.If):
            orelse = () if s.orelse is None else [s.orelse] if isinstance(s.orelse, cst.If) else s.orelse.body.body
            if ends_in_return(s.body.body) or ends_in_return(orelse):
                return True
    return False


def _dynamic_if(r: Reader, f: Frame, s: cst.If, cond: n.Expr, orelse: Sequence[cst.CSTNode]) -> Returned | None:
    """A branch of the kernel: what it binds ends with it."""
    if ends_in_return(s.body.body) or ends_in_return(orelse):
        raise_here = "a function that returns from a branch of the kernel"
        _opaque(r, f, s, raise_here)
        return None
    blocks = []
    for body in (s.body.body, orelse):
        names = dict(f.scope.names)
        with r.out.capture() as made:
            run_block(r, f, body)
        blocks.append(tuple(made))
        f.scope.names.clear()
        f.scope.names.update(names)
    r.out.emit(n.If(cond, blocks[0], blocks[1], origin=f.scope.module.origin(s)))
    return None


def _both_ways(r: Reader, f: Frame, cond: n.Expr, then: object, orelse: object, s: cst.CSTNode) -> Returned | None:
    """Both outcomes of a static condition: in the kernel as a `static if`, on the host as choices."""
    before = dict(f.scope.names)
    results: list[Returned | None] = []
    ends: list[dict[str, Value]] = []
    blocks: list[list[n.Stmt]] = []
    raised = []
    for holds, act in ((True, then), (False, orelse)):
        f.scope.names.clear()
        f.scope.names.update(before)
        with r.out.capture() as made, r.assuming(cond, holds):
            try:
                results.append(act())  # type: ignore[operator]  # a thunk
                raised.append(False)
            except Raised:
                results.append(None)
                raised.append(True)
        ends.append(dict(f.scope.names))
        blocks.append(made)
    if all(raised):
        raise Raised
    f.scope.names.clear()
    if any(raised):
        kept = 1 if raised[0] else 0
        f.scope.names.update(ends[kept])
        r.out.block.extend(blocks[kept])
        r.assume(cond if kept == 0 else build.invert(cond))
        return results[kept]
    merged = _joined(r, cond, before, ends, blocks)
    f.scope.names.update(merged)
    result = None
    if any(x is not None for x in results):
        if any(x is None for x in results):
            raise NotUnderstood("a function that returns only where a condition of the host holds")
        a, b = (x.value if x is not None else None for x in results)
        result = Returned(_phi(r, "result", cond, a, b, blocks))
    if blocks[0] or blocks[1]:
        r.out.emit(n.If(cond, tuple(blocks[0]), tuple(blocks[1]), True, origin=f.scope.module.origin(s)))
    return result


def _joined(r: Reader, cond: n.Expr, before: dict[str, Value], ends: list[dict[str, Value]], blocks: list[list[n.Stmt]]) -> dict[str, Value]:
    out: dict[str, Value] = {}
    for name in dict.fromkeys([*ends[0], *ends[1]]):
        if name in ends[0] and name in ends[1]:
            out[name] = _phi(r, name, cond, ends[0][name], ends[1][name], blocks)
        else:
            present = 0 if name in ends[0] else 1
            missing = Unknown(f"'{name}' is only bound where a condition of the host {'holds' if present == 0 else 'does not hold'}")
            value = ends[present][name]
            value = _hoisted(r, name, value, blocks[present])
            out[name] = Choice(cond, value, missing) if present == 0 else Choice(cond, missing, value)
    return out


def _phi(r: Reader, name: str, cond: n.Expr, a: Value, b: Value, blocks: list[list[n.Stmt]]) -> Value:
    """What a name stands for after a static branch. A number that is worked out inside is kept in a register."""
    from .reader import same

    if same(a, b):
        return a
    if isinstance(a, Items) and isinstance(b, Items) and len(a.items) == len(b.items):
        return Items(tuple(_phi(r, f"{name}_{k}", cond, x, y, blocks) for k, (x, y) in enumerate(zip(a.items, b.items, strict=True))))
    inside = any(_local(r, v, block) for v, block in zip((a, b), blocks, strict=True))
    numbers = all(is_number(v) or isinstance(v, (Num, Place, Memory)) for v in (a, b))
    if r.launched and numbers and inside and not any(isinstance(v, Memory) and not v.var for v in (a, b)):
        left, right = arithmetic.paired(a, b, r.run)
        buffer = n.Buffer(r.out.fresh(name), dtype_of(left.type), (), "register")
        r.out.emit(n.Alloc(buffer))
        for block, e in zip(blocks, (left, right), strict=True):
            block.append(n.Store(n.Region(buffer), e, origin=r.out.origin))
        return Num(n.Load(n.Region(buffer)))
    return r.merged(cond, _hoisted(r, name, a, blocks[0]), _hoisted(r, name, b, blocks[1]))


def _local(r: Reader, v: Value, block: list[n.Stmt]) -> bool:
    """Whether a value names something that a block declares, or reads memory."""
    if isinstance(v, (Place, Memory)):
        return True
    if not isinstance(v, Num):
        return False
    own = {x for s in block for x in (s.names if isinstance(s, n.Let) else ())}
    return any(isinstance(x, n.Load) or (isinstance(x, n.Var) and x.name in own) for x in walk(v.expr))


def _hoisted(r: Reader, name: str, v: Value, block: list[n.Stmt]) -> Value:
    """A buffer that a static branch declares, declared before it: what comes after may name it. A number likewise, in a register."""
    if isinstance(v, (Memory, Place)):
        for i, s in enumerate(block):
            if isinstance(s, n.Alloc) and s.buffer.name == v.buffer.name and s.init is None:
                del block[i]
                r.out.emit(s)
                break
            if isinstance(s, n.View) and s.buffer.name == v.buffer.name:
                del block[i]
                r.out.emit(s)
                break
        return v
    if isinstance(v, Items):
        return Items(tuple(_hoisted(r, name, x, block) for x in v.items))
    if isinstance(v, Choice):
        return Choice(v.cond, _hoisted(r, name, v.a, block), _hoisted(r, name, v.b, block))
    if r.launched and isinstance(v, Num) and _local(r, v, block):
        buffer = n.Buffer(r.out.fresh(name), dtype_of(v.expr.type), (), "register")
        r.out.emit(n.Alloc(buffer))
        block.append(n.Store(n.Region(buffer), v.expr, origin=r.out.origin))
        return Num(n.Load(n.Region(buffer)))
    return v


# ------------------------------------------------------------------------------------------------------------- host's own loops
def _host_for(r: Reader, f: Frame, s: cst.For, rest: Sequence[cst.CSTNode]) -> Returned | None:
    try:
        items = iterated(r, evaluate(r, f.scope, s.iter))
    except NotUnderstood as bad:
        _ask_for(r, f, s, bad.reason)
        return None
    return _rounds(r, f, _Rest(s, items, tuple(rest) if ends_in_return(s.body.body) else None))


@dataclass(frozen=True)
class _Rest:
    """The rounds of a loop of the host that are left; `after` are the statements behind a loop that may return from its function."""

    loop: cst.For
    items: tuple[Value, ...]
    after: tuple[cst.CSTNode, ...] | None

    def left(self, r: Reader, f: Frame) -> Returned | None:
        """What comes behind the loop."""
        return None if self.after is None else run_block(r, f, self.after) or Returned(None)


def _rounds(r: Reader, f: Frame, todo: _Rest) -> Returned | None:
    """The rounds of a loop, one after another; each way through a branch goes on with the rest of the loop unless it leaves it."""
    if not todo.items:
        return todo.left(r, f)
    f.scope.names.update(bound(r, todo.loop.target, todo.items[0]))
    return _run_with_rest(r, f, [*todo.loop.body.body], _Rest(todo.loop, todo.items[1:], todo.after))


def _run_with_rest(r: Reader, f: Frame, body: Sequence[cst.CSTNode], todo: _Rest) -> Returned | None:
    for k, s in enumerate(body):
        if isinstance(s, cst.If):
            return _if_in_loop(r, f, s, body[k + 1:], todo)
        found = _run(r, f, s, ())
        if found is not None:
            return found
    return _rounds(r, f, todo)


def _if_in_loop(r: Reader, f: Frame, s: cst.If, later: Sequence[cst.CSTNode], todo: _Rest) -> Returned | None:
    cond = r.truth(evaluate(r, f.scope, s.test))
    orelse: Sequence[cst.CSTNode] = () if s.orelse is None else [s.orelse] if isinstance(s.orelse, cst.If) else s.orelse.body.body

    def way(body: Sequence[cst.CSTNode]) -> Returned | None:
        last = body[-1] if body else None
        small = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else None
        if isinstance(small, cst.Break):
            return run_block(r, f, body[:-1]) or todo.left(r, f)
        if isinstance(small, cst.Continue):
            return run_block(r, f, body[:-1]) or _rounds(r, f, todo)
        return run_block(r, f, body) or _run_with_rest(r, f, later, todo)

    if isinstance(cond, bool):
        return way(s.body.body if cond else orelse)
    return _both_ways(r, f, cond, lambda: way(s.body.body), lambda: way(orelse), s)


def _host_while(r: Reader, f: Frame, s: cst.While) -> Returned | None:
    for _ in range(MOST_ROUNDS):
        try:
            cond = r.truth(evaluate(r, f.scope, s.test))
        except NotUnderstood as bad:
            _ask_for(r, f, s, bad.reason)
            return None
        if not isinstance(cond, bool):
            _ask_for(r, f, s, "a loop of the host that the binding decides")
            return None
        if not cond:
            return None
        found = run_block(r, f, s.body.body)
        if found is not None:
            return found
    raise NotUnderstood("a loop of the host that does not end")


def _ask_for(r: Reader, f: Frame, s: cst.BaseCompoundStatement, reason: str) -> None:
    """What a loop of the host binds, left to the binding: each name is a meta."""
    for name in sorted(assigned_names([s])):
        f.scope.names[name] = r.given.get(name, Open(name))


# --------------------------------------------------------------------------------------------------------------- small statements
def _small(r: Reader, f: Frame, s: cst.BaseSmallStatement) -> Returned | None:
    match s:
        case cst.Return(value=value):
            return Returned(None if value is None else _held(r, evaluate(r, f.scope, value)))
        case cst.Assign(targets=targets, value=value):
            target = targets[0].target
            r.wanted, r.born = target.value if isinstance(target, cst.Name) else "", set()
            made = evaluate(r, f.scope, value)
            for t in targets:
                assign(r, f, t.target, made)
        case cst.AnnAssign(target=target, value=value) if value is not None:
            made = evaluate(r, f.scope, value)
            if r.launched and isinstance(made, (int, float)) and not isinstance(made, bool):
                made = _annotated_number(r, f, s, made)
            assign(r, f, target, made)
        case cst.AugAssign(target=target, operator=operator, value=value):
            _augmented(r, f, target, arithmetic.BINARY[type(operator)], evaluate(r, f.scope, value))
        case cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString() | cst.Ellipsis()) | cst.Pass() | cst.Global() | cst.Nonlocal():
            pass
        case cst.Expr(value=value):
            made = evaluate(r, f.scope, value)
            if isinstance(made, Num) and isinstance(made.expr, n.Call) and made.expr.fn.startswith("atomic_"):
                r.out.emit(n.Eval(made.expr))
        case cst.Assert():
            _assert(r, f, s)
        case cst.Raise():
            raise Raised
        case cst.Import() | cst.ImportFrom():
            from .lookup import _value

            for name, d in small_definitions(f.scope.module, s):
                try:
                    f.scope.names[name] = _value(r, f.scope.module, d)
                except NotUnderstood as bad:
                    f.scope.names[name] = Unknown(bad.reason)
        case cst.Break() | cst.Continue() if r.launched:
            r.out.emit(n.Jump("break" if isinstance(s, cst.Break) else "continue"))
        case cst.AnnAssign():
            pass
        case _:
            raise NotUnderstood(f"a statement of the form {type(s).__name__}")
    return None


def _held(r: Reader, v: Value) -> Value:
    """What a macro returns: numbers as they are now."""
    if isinstance(v, Memory) and v.var:
        return _let(r, v.buffer.name, r.run(v))
    if isinstance(v, Items):
        return Items(tuple(_held(r, x) for x in v.items))
    return v


def _annotated_number(r: Reader, f: Frame, s: cst.AnnAssign, made: int | float) -> Value:
    dtype = r.settled(evaluate(r, f.scope, s.annotation.annotation))
    if isinstance(dtype, TypeOf):
        e = arithmetic.valued(made, dtype.dtype)
        return Num(e) if e is not None else made
    return made


def _assert(r: Reader, f: Frame, s: cst.Assert) -> None:
    """On the host an assertion says what the binding must keep; in the kernel it is one."""
    try:
        found = r.truth(evaluate(r, f.scope, s.test))
    except NotUnderstood:
        if r.launched:
            raise
        return
    if found is False:
        raise Raised
    if isinstance(found, bool):
        return
    if r.launched and not r.is_static(found):
        r.out.emit(n.Eval(build.call("assertion", found)))


def assign(r: Reader, f: Frame, target: cst.BaseExpression, value: Value) -> None:
    """`target = value`."""
    match target:
        case cst.Name(value=name):
            _assign_name(r, f, name, value)
        case cst.Tuple() | cst.List():
            value = r.decided(value)
            for t, v in bound_pairs(r, target, value):
                assign(r, f, t, v)
        case cst.Subscript():
            from .evaluate import _indices, subscript

            owner = r.decided(evaluate(r, f.scope, target.value))
            where = subscript(r, owner, _indices(r, f.scope, target.slice))
            store(r, where, value)
        case _:
            raise NotUnderstood("an assignment to an attribute")


def bound_pairs(r: Reader, target: cst.Tuple | cst.List, value: Value) -> list[tuple[cst.BaseExpression, Value]]:
    """The targets of a tuple with their values."""
    if isinstance(value, Open):
        return [(cst.Name(k), v) for k, v in bound(r, target, value)]
    if isinstance(value, Num) and len(target.elements) == 1:
        return [(target.elements[0].value, value)]
    if not isinstance(value, Items) or len(value.items) != len(target.elements):
        raise NotUnderstood(f"{describe(value)} taken apart into {len(target.elements)} names")
    return [(t.value, v) for t, v in zip(target.elements, value.items, strict=True)]


def _assign_name(r: Reader, f: Frame, name: str, value: Value) -> None:
    held = f.scope.names.get(name)
    value = r.settled(value)
    if isinstance(held, (Memory, Place)) and held.var and not (isinstance(value, Memory) and not _is_variable(value)) \
            and (is_number(value) or isinstance(value, (Num, Place, Memory, Open, Choice))) and not _fresh_variable(r, value):
        store(r, held if isinstance(held, Place) else Place(held.buffer, tuple(build.const(0) for _ in held.buffer.shape), True), value)
        return
    if isinstance(value, Open) and value.kind == "asked":
        value = r.given.get(name, Open(name))
    if r.launched and isinstance(value, Num):
        value = _let(r, name, value.expr)
    elif r.launched and isinstance(value, Place) and len(value.index) == len(value.buffer.shape) and not any(isinstance(i, n.Span) for i in value.index):
        value = _let(r, name, r.run(value))
    elif r.launched and isinstance(value, Memory) and _is_variable(value) and not _fresh_variable(r, value):
        value = _let(r, name, r.run(value))
    f.scope.names[name] = value


def _is_variable(v: Value) -> bool:
    return isinstance(v, Memory) and v.var


def _fresh_variable(r: Reader, v: Value) -> bool:
    """Whether a buffer was declared just now, by the value of this assignment."""
    return isinstance(v, Memory) and v.buffer.name in r.born


def _let(r: Reader, name: str, e: n.Expr) -> Value:
    if r.is_static(e):
        return Num(e)
    made = r.out.let(name if name != "_" else "tmp", e)
    if isinstance(made, n.Var) and isinstance(e.type, DType) and e.type.is_integer and not any(isinstance(x, (n.Load, n.Call)) for x in walk(e)):
        r.meanings[made.name] = r.meaning(e)
    return Num(made)


def store(r: Reader, where: Value, value: Value) -> None:
    """A number written to a place, converted to its dtype; outside of global memory nothing is written."""
    where = r.decided(where)
    if isinstance(where, Memory):
        where = Place(where.buffer, ())
    if not isinstance(where, Place):
        raise NotUnderstood(f"an assignment to an element of {describe(where)}")
    buffer = where.buffer
    if not where.var and len(where.index) != len(buffer.shape):
        raise NotUnderstood(f"an assignment to part of '{buffer.name}'")
    value = r.settled(value)
    e = arithmetic.valued(value, buffer.dtype) if is_number(value) else convert(r.run(value), buffer.dtype)
    assert e is not None
    index = where.index if buffer.shape else ()
    if any(isinstance(i, n.Span) for i in index):
        raise NotUnderstood("an assignment of one number to a region")
    r.out.emit(n.Store(build.region(buffer, *index), e, None, buffer.space == "global"))


def _augmented(r: Reader, f: Frame, target: cst.BaseExpression, op: str, value: Value) -> None:
    old = evaluate(r, f.scope, target)
    made = binary(r, op, old if not isinstance(old, Memory) or old.var else r.decided(old), value)
    if isinstance(target, cst.Name) and isinstance(old, Place) and old.var:
        store(r, old, made)
        return
    assign(r, f, target, made)


def parameter(r: Reader, p: cst.Param, scope: Scope) -> Value:
    """A parameter of a factory: open, with what its annotation and default say."""
    name = p.name.value
    if p.default is not None and name not in r.defaults:
        try:
            r.defaults[name] = evaluate(r, scope, p.default)
        except NotUnderstood:
            pass
    return annotated(r, name, p.annotation.annotation if p.annotation is not None else None, scope)


def truth_of(r: Reader, scope: Scope, e: cst.BaseExpression) -> n.Expr:
    """A condition as an expression of the kernel."""
    found = r.truth(evaluate(r, scope, e))
    return build.const(found, BOOL) if isinstance(found, bool) else found


def index_of(r: Reader, v: Value) -> n.Expr:
    """A bound of a loop: i32 unless it is wider."""
    e = r.integer(v)
    return convert(e, I32) if dtype_of(e.type).is_bool else e
