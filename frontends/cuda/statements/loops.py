"""Loops: one that counts becomes `for`, one whose counter doubles or halves a known number of times counts its steps, others are `while`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, DType, dtype_of
from kir.ir.visit import blocks_of, walk

from ..expressions.operators import numbers
from ..expressions.places import element
from ..names.mutation_analysis import mutated
from ..source.source import Node, fragment
from ..source.syntax import contains, declared_name, text
from ..symbols.symbols import Scope, Value
from ..types.c_types import Arr, Auto, Prim
from ..types.errors import NotUnderstood
from ..types.number_conversions import converted
from ..values.conversions import condition, scalar, type_text
from ..values.emitter import has_effect, reads_memory
from ..values.loads import rvalue
from ..values.objects import initialized, pinned, spilled
from ..values.reading import Frame, Reading
from ..values.values import Located, Members, Scalar, TypeName, Wide, constant
from .declarations import local_value

MAX_STEPS = 64
"""Steps of a loop whose counter is multiplied or shifted: more than the bits of an integer are none of these."""
MOST_TURNS = 16
"""Turns of a loop that are read one after the other, at most, where the loop as one is not understood."""
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!=", "==": "=="}


@dataclass
class Counter:
    """`for (T name = first; name sign last; name op= step)`."""

    name: str
    dtype: DType
    first: n.Expr
    sign: str
    last: n.Expr
    op: str
    step: n.Expr


def loop(r: Reading, node: Node, scope: Scope, frame: Frame, rest: list[Node], unroll: Node | None) -> bool:
    """A loop statement; True where what follows it has been read with it."""
    with _within(frame):
        match node.type:
            case "for_statement":
                _for(r, node, scope.inner(), frame, unroll)
            case "while_statement":
                _while(r, node, scope.inner(), frame)
            case "for_range_loop":
                _over(r, node, scope.inner(), frame, unroll)
            case _:
                _do(r, node, scope.inner(), frame)
    return _left(r, node, scope, frame, rest)


@contextmanager
def _within(frame: Frame) -> Iterator[None]:
    frame.loops += 1
    frame.dynamic += 1
    try:
        yield
    finally:
        frame.loops -= 1
        frame.dynamic -= 1


def once(r: Reading, node: Node, scope: Scope, frame: Frame, rest: list[Node], read: Callable[[], bool]) -> bool:
    """Statements that a break leaves, as a loop that is run once; True where what follows has been read with it."""
    frame.steps.append(None)
    with _within(frame), r.m.capture() as inner:
        if not read():
            r.m.emit(n.Jump("break"))
    frame.steps.pop()
    r.m.emit(n.While(build.const(True, BOOL), tuple(inner)))
    return _left(r, node, scope, frame, rest)


def _left(r: Reading, node: Node, scope: Scope, frame: Frame, rest: list[Node]) -> bool:
    """What follows a loop in which the function may have returned is run where it has not; True where it has been read with it."""
    if frame.kernel or frame.flag is None or not contains(node, "return_statement"):
        return False
    flag = condition(r, frame.flag)
    if frame.loops:
        r.m.emit(n.If(flag, (n.Jump("break"),)))
        return False
    frame.dynamic += 1
    with r.m.capture() as left:
        r.statements.go_on(r, rest, scope, frame)
    frame.dynamic -= 1
    if left:
        r.m.emit(n.If(build.invert(flag), tuple(left)))
    return True


def _for(r: Reading, node: Node, scope: Scope, frame: Frame, unroll: Node | None) -> None:
    init, cond, update, body = (node.child_by_field_name(k) for k in ("initializer", "condition", "update", "body"))
    assert body is not None
    counter = None
    if init is not None and cond is not None and update is not None:
        counter = _counter(r, init, cond, update, body, scope)
    if counter is None:
        if init is not None:
            r.statements.statement(r, init, scope, frame, []) if init.type == "declaration" else r.value(init, scope)
        _general(r, cond, update, body, scope, frame)
        return
    kind, attrs = _unrolling(r, unroll, scope)
    if counter.op in ("+", "-"):
        _counting(r, counter, body, scope, frame, kind, attrs)
    else:
        _scaling(r, counter, cond, update, body, scope, frame, kind, attrs)


def _over(r: Reading, node: Node, scope: Scope, frame: Frame, unroll: Node | None) -> None:
    """`for (T x : array)`: the elements of an array whose length is known, one after the other."""
    right, d, body = (node.child_by_field_name(k) for k in ("right", "declarator", "body"))
    name = declared_name(d) if d is not None else None
    if right is None or d is None or body is None or name is None or name.type != "identifier":
        raise NotUnderstood("a loop over a range in this form", node)
    held = _listed(r, right, node, d, scope) if right.type == "initializer_list" else r.value(right, scope)
    held = spilled(r, held) if isinstance(held, Wide) else held
    of = held.fields.get("#array") if isinstance(held, Members) else held
    whole = of.type if isinstance(of, (Located, TypeName)) else None
    if not isinstance(whole, Arr) or not whole.n:
        raise NotUnderstood(f"a loop over {type_text(held)}", right)
    kind, attrs = _unrolling(r, unroll, scope)
    type_, reference = r.types.declared_type(node, d, scope)
    var = n.Var(r.m.fresh("k"), I32)
    r.m.ranges[var.name] = (0, whole.n - 1)
    with r.m.capture() as before:
        each = element(r, held, Scalar(var), node)
        scope.values[text(name)] = each if reference else local_value(
            r, text(name), rvalue(r, each), type_, text(name) in mutated(r, body, scope), f"{text(name)}[]" in mutated(r, body, scope))
    r.m.emit(n.For(var, build.const(0), build.const(whole.n), build.const(1), (*before, *_body(r, body, scope, frame)), kind, attrs))


def _listed(r: Reading, right: Node, node: Node, d: Node, scope: Scope) -> Value:
    """`{a, b, c}` after the colon, as an array of what the loop's variable is."""
    items = [c for c in right.named_children if c.type != "comment"]
    kind, _ = r.types.declared_type(node, d, scope)
    if isinstance(kind, Auto) and items:
        kind = r.type_of(items[0], scope)
    return r.braced(right, Arr(kind, len(items)), scope)


def _unrolling(r: Reading, unroll: Node | None, scope: Scope) -> tuple[str, n.Attrs]:
    """The kind of a loop under its pragma."""
    if unroll is None:
        return "serial", ()
    words = text(unroll).split("unroll", 1)[1].strip().removesuffix("]]").strip()
    if words.startswith("(") and words.endswith(")"):
        words = words[1:-1].strip()
    if not words:
        return "unroll", ()
    factor: int | None = None
    if words.isdigit():
        factor = int(words)
    else:
        factor = constant(rvalue(r, r.value(fragment(words), scope)))
    if factor is None:
        raise NotUnderstood(f"an unroll factor that is not known: {words}", unroll)
    return ("serial", ()) if factor <= 1 else ("unroll", n.attrs(factor=factor))


def _counter(r: Reading, init: Node, cond: Node, update: Node, body: Node, scope: Scope) -> Counter | None:
    """The counter of a loop in the usual form whose body leaves it alone; None for other loops."""
    if init.type != "declaration":
        return None
    declarators = init.children_by_field_name("declarator")
    if len(declarators) != 1 or declarators[0].type != "init_declarator" or cond.type not in ("binary_expression", "identifier"):
        return None
    name_node, first = declared_name(declarators[0]), declarators[0].child_by_field_name("value")
    if name_node is None or first is None or first.type in ("argument_list", "initializer_list"):
        return None
    name = text(name_node)
    stepped = _step(update, name)
    if stepped is None or name in mutated(r, body, scope):
        return None
    left: Node | None
    right: Node | None
    if (parts := _conjuncts(cond)) is not None:
        return _first_of([_counter(r, init, each, update, body, scope) for each in parts])
    if cond.type == "identifier":  # until it is zero
        left, right, way = cond, fragment("0"), "!="
    else:
        left, sign, right = cond.child_by_field_name("left"), cond.child_by_field_name("operator"), cond.child_by_field_name("right")
        assert left is not None and sign is not None and right is not None
        way = text(sign)
        if text(left) != name:
            left, right, way = right, left, FLIPPED.get(way, "")
    assert left is not None and right is not None
    if text(left) != name or way not in FLIPPED or way == "==":
        return None
    op, step_node = stepped
    changed = mutated(r, body, scope)
    for part in (right, step_node):
        if part is not None and _names(part) & (changed | {name}):
            return None
    kind, _ = r.types.declared_type(init, declarators[0], scope)
    v = rvalue(r, r.value(first, scope))
    dtype = kind.dtype if isinstance(kind, Prim) else v.dtype if isinstance(v, Scalar) else None
    if dtype is None or not dtype.is_integer or not isinstance(v, Scalar):
        return None
    mark = len(r.m.block)
    last = scalar(r, r.value(right, scope))
    if dtype_of(last.type).is_float:  # the counter is what is converted
        return None
    step = scalar(r, r.value(step_node, scope)) if step_node is not None else build.const(1)
    if way == "!=" and op in ("+", "-"):
        by = build.int_value(step)
        up = (op == "+") == (by is not None and by > 0)
        if by is None or not _meets(r, converted(v.expr, dtype), converted(last, dtype), abs(by), up):
            return None  # one that may step over its end does not stop there
        way = "<" if up else ">"
    if any(isinstance(x, n.Load) and x.at.buffer.space not in ("register", "fragment") for e in (last, step) for x in walk(e)) and _writes(body):
        last, step = pinned(r, last, "end"), pinned(r, step, "step")
        if mark >= 0 and _may_change(right):
            return None
    return Counter(name, dtype, converted(v.expr, dtype), way, last, op, step)


def _conjuncts(cond: Node) -> list[Node] | None:
    """The sides of `a && b && c`; None for another condition."""
    op = cond.child_by_field_name("operator")
    if cond.type != "binary_expression" or op is None or text(op) not in ("&&", "and"):
        return None
    sides = [each for side in ("left", "right") if (each := cond.child_by_field_name(side)) is not None]
    return [x for each in sides for x in _conjuncts(each) or [each]]


def _first_of(counters: list[Counter | None]) -> Counter | None:
    """The counter that ends where the first of several ends, which their ends say without looking at memory; None where they do not count alike."""
    found = [c for c in counters if c is not None and c.op in ("+", "-")]
    up = {"<": True, "<=": True, ">": False, ">=": False}
    ways = {up.get(c.sign) for c in found}
    if not found or len(found) < len(counters) or len(ways) != 1 or None in ways:
        return None
    first, lasts = found[0], []
    if (True in ways and first.op != "+") or (False in ways and (first.op != "-" or first.dtype.kind == "uint")):
        return None
    for c in found:
        if (dtype_of(c.last.type) != c.dtype and build.int_value(c.last) is None) or any(isinstance(x, (n.Load, n.Call)) for x in walk(c.last)):
            return None
        lasts.append(build.add(converted(c.last, c.dtype), {"<=": 1, ">=": -1}.get(c.sign, 0)))
    last = lasts[0]
    for each in lasts[1:]:
        last = build.binary("min" if first.op == "+" else "max", last, each)
    return Counter(first.name, first.dtype, first.first, "<" if first.op == "+" else ">", last, first.op, first.step)


def _meets(r: Reading, first: n.Expr, last: n.Expr, step: int, up: bool) -> bool:
    """Whether a counter that goes on until it is equal to its end is so after some rounds, none or more: what lies between is known not to be negative
    (sizes of a launch are at least one), and the step divides it."""
    low, high = (first, last) if up else (last, first)
    if isinstance(low, n.Const) and isinstance(high, n.Const) and step:
        return int(high.value) >= int(low.value) and (int(high.value) - int(low.value)) % step == 0
    if step != 1:
        return False
    below, above = r.m.range_of(low), r.m.range_of(high)
    if below is not None and above is not None and below[1] <= above[0]:
        return True
    between = build.polynomial(build.sub(high, low))
    sizes = [c for monomial, c in between.items() if len(monomial) == 1 and isinstance(monomial[0], n.Var) and c > 0 and
             monomial[0].name not in r.m.ranges and monomial[0].name not in r.m.lets]
    return len(sizes) == sum(1 for monomial in between if monomial) and bool(sizes) and between.get((), 0) >= -1


def _may_change(node: Node) -> bool:
    return node.type in ("subscript_expression", "pointer_expression")


def _writes(body: Node) -> bool:
    """Whether a body may write memory: it calls something, or assigns to more than names."""
    stack = [body]
    while stack:
        top = stack.pop()
        if top.type == "call_expression":
            return True
        left = top.child_by_field_name("left") if top.type == "assignment_expression" else top.child_by_field_name(
            "argument") if top.type == "update_expression" else None
        if left is not None and left.type != "identifier":
            return True
        stack += top.named_children
    return False


def _names(node: Node) -> set[str]:
    out, stack = set(), [node]
    while stack:
        top = stack.pop()
        if top.type == "identifier":
            out.add(text(top))
        stack += top.named_children
    return out


def _step(update: Node, name: str) -> tuple[str, Node | None] | None:
    """(operator, operand) of `i += s`, `++i`, `i = i + s`, `i >>= 1`."""
    if update.type == "update_expression":
        arg, op = update.child_by_field_name("argument"), update.child_by_field_name("operator")
        return (text(op)[0], None) if arg is not None and op is not None and text(arg) == name else None
    if update.type != "assignment_expression":
        return None
    left, op, right = (update.child_by_field_name(k) for k in ("left", "operator", "right"))
    assert left is not None and op is not None and right is not None
    if text(left) != name:
        return None
    if text(op) in ("+=", "-=", "*=", "/=", "<<=", ">>="):
        return text(op)[:-1], right
    if text(op) == "=" and right.type == "binary_expression":
        a, sign, b = (right.child_by_field_name(k) for k in ("left", "operator", "right"))
        assert a is not None and sign is not None and b is not None
        if text(a) == name and text(sign) in ("+", "-", "*", "/", "<<", ">>"):
            return text(sign), b
        if text(b) == name and text(sign) in ("+", "*"):
            return text(sign), a
    return None


def _counting(r: Reading, c: Counter, body: Node, scope: Scope, frame: Frame, kind: str, attrs: n.Attrs) -> None:
    step = build.int_value(c.step)
    if step == 0:
        raise error("KIR-V009", f"the loop over '{c.name}' has step 0", origin=r.m.place(), needs="a step up or down")
    if step is not None and step < 0:
        c = Counter(c.name, c.dtype, c.first, c.sign, c.last, "-" if c.op == "+" else "+", build.const(-step))
        step = -step
    d = c.dtype
    compared = dtype_of(numbers(r, "+", n.Const(0, d), c.last).type)
    last = converted(c.last, d)
    fits = compared == d or build.int_value(c.last) is not None or (
        compared.bits == d.bits and r.m.is_nonnegative(c.last)) or (d.bits < compared.bits and dtype_of(c.last.type).bits <= d.bits)
    mixed = dtype_of(c.last.type)
    narrow = d.name == "i32" and mixed.name == "u32"
    if not fits and not narrow and not (d.bits < 64 and mixed.is_integer):
        raise NotUnderstood("a loop whose counter is compared with a wider number")
    if c.op == "+":
        if c.sign in (">", ">="):
            raise NotUnderstood("a loop that counts away from its end")
        if c.sign == "<=":
            last = build.add(last, 1)
        lo, hi, by = c.first, last, converted(c.step, d)
        narrowed = _as_i32(r, lo, hi, by, d)
        var = n.Var(r.m.fresh(c.name), I32 if narrowed is not None else d)
        if narrowed is not None:
            lo, hi, by = narrowed
        first_, last_, step_ = (build.int_value(e) for e in (lo, hi, by))
        if first_ is not None and last_ is not None and step_ is not None and last_ - first_ <= step_ and not _jumps(body):
            if last_ > first_:
                scope.values[c.name] = Scalar(converted(lo, d))
                r.statements.statement(r, body, scope, frame, [])
            return
        low, high = r.m.range_of(lo), r.m.range_of(hi)
        if first_ is not None and last_ is not None and step_ and last_ > first_:
            r.m.ranges[var.name] = (first_, first_ + (last_ - first_ - 1) // step_ * step_)
        elif low is not None:
            r.m.ranges[var.name] = (low[0], max(low[0], high[1] - 1) if high is not None else dtype_of(var.of).range[1] - 1)
        scope.values[c.name] = Scalar(converted(var, d))
        turns = range(first_, last_, step_) if first_ is not None and last_ is not None and step_ and not _jumps(body) else range(0)
        try:
            inner = _body(r, body, scope, frame)
        except NotUnderstood:
            if not 0 < len(turns) <= MOST_TURNS:
                raise
            for k in turns:  # each with the counter's number, by which members of an object are chosen
                scope.values[c.name] = Scalar(build.const(k, d))
                r.statements.statement(r, body, scope, frame, [])
            return
        r.m.emit(n.For(var, lo, hi, by, inner, kind, attrs))
        return
    if c.sign in ("<", "<="):
        raise NotUnderstood("a loop that counts away from its end")
    by = converted(c.step, d)
    least = last if c.sign == ">=" else build.add(last, 1)
    if d.kind == "uint" and build.is_const(least, 0):
        raise NotUnderstood("a loop that ends when an unsigned number is negative")
    top = build.add(c.first, 1)
    if d.kind == "uint" and not (isinstance(top, n.Const) and isinstance(least, n.Const)):
        top = build.binary("max", top, least)  # a loop that never runs: the difference would wrap
    span = build.sub(top, least)
    count = span if step == 1 else build.binary("ceildiv", span, by)
    var = n.Var(r.m.fresh(c.name), d)
    most = build.int_value(count)
    r.m.ranges[var.name] = (0, max(0, most - 1) if most is not None else d.range[1] - 1)
    scope.values[c.name] = Scalar(build.sub(c.first, build.mul(var, by)))
    inner = _body(r, body, scope, frame)
    r.m.emit(n.For(var, build.const(0, d), count, build.const(1, d), inner, kind, attrs))


def _jumps(body: Node) -> bool:
    return any(contains(body, kind) for kind in ("break_statement", "continue_statement", "return_statement"))


def _as_i32(r: Reading, lo: n.Expr, hi: n.Expr, by: n.Expr, d: DType) -> tuple[n.Expr, n.Expr, n.Expr] | None:
    """Bounds of an unsigned or wide loop in i32, where they are known to fit."""
    if d == I32:
        return lo, hi, by
    ranges = [r.m.range_of(e) for e in (lo, hi, by)]
    if any(x is None or x[0] < 0 or x[1] >= 1 << 30 for x in ranges):
        return None
    return converted(lo, I32), converted(hi, I32), converted(by, I32)


def _scaling(r: Reading, c: Counter, cond: Node | None, update: Node | None, body: Node, scope: Scope, frame: Frame, kind: str, attrs: n.Attrs) -> None:
    """`o = 16; o > 0; o >>= 1`: known first and last values give the number of steps, and `o` is `16 >> s`."""
    first, last, by = build.int_value(c.first), build.int_value(c.last), build.int_value(c.step)
    doubled = 1 << by if by is not None and 0 <= by < c.dtype.bits else None
    shift = {"<<": doubled, ">>": doubled, "*": by, "/": by}[c.op]
    if first is None or last is None or shift is None or shift < 2 or shift & (shift - 1) or first < 0:
        v = initialized(r, c.name, Scalar(c.first), Prim(c.dtype))
        scope.values[c.name] = v
        _general(r, cond, update, body, scope, frame)
        return
    compare = {"<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__, "!=": int.__ne__}[c.sign]
    value, count = first, 0
    while compare(value, last):
        count += 1
        if count > MAX_STEPS:
            raise NotUnderstood("a loop that does not end")
        value = value // shift if c.op in (">>", "/") else c.dtype.wrap(value * shift)
    bits = shift.bit_length() - 1
    var = n.Var(r.m.fresh("s"), I32)
    r.m.ranges[var.name] = (0, max(0, count - 1))
    amount = build.mul(var, bits)
    e = build.binary("shr" if c.op in (">>", "/") else "shl", build.const(first), amount)
    named = e
    r.m.ranges[var.name] = (0, max(0, count - 1))
    scope.values[c.name] = Scalar(converted(named, c.dtype))
    inner = _body(r, body, scope, frame)
    r.m.emit(n.For(var, build.const(0), build.const(count), build.const(1), inner, kind, attrs))


def _body(r: Reading, body: Node, scope: Scope, frame: Frame) -> n.Block:
    frame.steps.append(None)
    origin = r.m.origin
    with r.m.capture() as inner:
        r.statements.block(r, [body], scope, frame) if body.type != "compound_statement" else r.statements.block(r, body.named_children, scope.inner(), frame)
    frame.steps.pop()
    r.m.origin = origin
    return _without_last_continue(tuple(inner))


def _without_last_continue(block: n.Block) -> n.Block:
    if block and isinstance(block[-1], n.Jump) and block[-1].kind == "continue":
        return block[:-1]
    return block


def _general(r: Reading, cond: Node | None, update: Node | None, body: Node, scope: Scope, frame: Frame) -> None:
    """Any loop: the condition first, the step last (and before every `continue`)."""
    idle = update is None and body.type == "compound_statement" and not [c for c in body.named_children if c.type != "comment"]
    outer, r.spinning = r.spinning, idle or (update is None and body.type == "expression_statement" and not body.named_children)
    with r.m.capture() as before:
        test: n.Expr = condition(r, r.value(cond, scope), cond) if cond is not None else build.const(True, BOOL)
    r.spinning = outer
    if any(isinstance(s, n.Eval) and s.call.fn == "mbar_wait" for s in before) and _is_false(test, before):
        for s in before:
            if isinstance(s, (n.Let, n.Eval)):
                r.m.emit(s)
        return
    frame.steps.append((update, scope) if update is not None else None)
    origin = r.m.origin
    with r.m.capture() as inner:
        ended = r.statements.block(r, body.named_children if body.type == "compound_statement" else [body], scope.inner(), frame)
        if update is not None and not ended:
            r.value(update, scope)
    r.m.origin = origin
    frame.steps.pop()
    if before:
        stop = n.If(build.invert(test), (n.Jump("break"),))
        r.m.emit(n.While(build.const(True, BOOL), (*before, stop, *inner)))
    else:
        r.m.emit(n.While(test, tuple(inner)))


def _is_false(test: n.Expr, before: list[n.Stmt]) -> bool:
    """Whether a condition is the literal false, given the numbers that the statements before it leave in variables of their own."""
    values: dict[str, n.Const] = {}
    for s in before:
        if isinstance(s, n.Store) and not s.at.index and isinstance(s.value, n.Const):
            values[s.at.buffer.name] = s.value
        elif not isinstance(s, (n.Alloc, n.Eval)) and not (isinstance(s, n.Let) and not has_effect(s.value) and not reads_memory(s.value)):
            return False

    def folded(e: n.Expr) -> int | float | bool | None:
        match e:
            case n.Const():
                return e.value
            case n.Load() if e.at.buffer.name in values:
                return values[e.at.buffer.name].value
            case n.Unary(op="not") if (x := folded(e.x)) is not None:
                return not x
            case n.Binary(op="ne" | "eq") if (a := folded(e.a)) is not None and (b := folded(e.b)) is not None:
                return (a == b) == (e.op == "eq")
            case n.Select() if (c := folded(e.cond)) is not None:
                return folded(e.a if c else e.b)
            case _:
                return None
    return folded(test) is False


def _while(r: Reading, node: Node, scope: Scope, frame: Frame) -> None:
    head, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
    assert head is not None and body is not None
    shown = head.child_by_field_name("value")
    if shown is None or shown.type == "declaration":
        raise NotUnderstood("a declaration as the condition of a loop", node)
    _general(r, shown, None, body, scope, frame)


def _leaves(s: n.Stmt) -> bool:
    """Whether a statement has a jump out of the loop around it: a break of a loop within is none."""
    if isinstance(s, n.Jump):
        return True
    inner = [x for block in blocks_of(s) for x in block]
    if isinstance(s, (n.For, n.While)):
        return any(isinstance(x, n.Jump) and x.kind == "return" for y in inner for x in walk(y))
    return any(map(_leaves, inner))


def _do(r: Reading, node: Node, scope: Scope, frame: Frame) -> None:
    head, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
    assert head is not None and body is not None
    if contains(body, "continue_statement"):
        raise NotUnderstood("a continue inside do .. while", node)
    inner_scope = scope.inner()
    frame.steps.append(None)
    with r.m.capture() as inner:
        ended = r.statements.block(r, body.named_children if body.type == "compound_statement" else [body], inner_scope, frame)
        shown = head.named_children[0] if head.type in ("parenthesized_expression", "condition_clause") else head
        test = condition(r, r.value(shown, scope), shown)
    frame.steps.pop()
    if ended or build.is_const(test, False):
        if any(_leaves(s) for s in inner):
            raise NotUnderstood("a break inside do .. while(false)", node)
        for s in inner:
            r.m.emit(s)
        return
    if not build.is_const(test, True):
        inner.append(n.If(build.invert(test), (n.Jump("break"),)))
    r.m.emit(n.While(build.const(True, BOOL), tuple(inner)))
