"""Statements: declarations, branches and returns. What is not understood becomes `opaque` at the innermost statement of the kernel."""

from __future__ import annotations

import re
from collections.abc import Callable

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, I32, dtype_of

from ..expressions.places import member
from ..names.class_instances import using_enum
from ..names.lookup import named_value
from ..source.source import Node, fragment_declaration, fragment_type
from ..source.syntax import contains, declared_name, text
from ..symbols.classes import Rec
from ..symbols.symbols import Enumerator, Function, Scope, Value
from ..types.c_types import VOID, Auto, CType, Named, Prim, Ptr, usual
from ..types.errors import NotUnderstood
from ..types.number_conversions import converted
from ..values.conversions import condition, convert, scalar
from ..values.loads import rvalue
from ..values.objects import assign, initialized, new_object, pinned, pinned_value
from ..values.reading import Frame, Reading
from ..values.values import Located, Members, Nothing, Pointer, Record, Scalar, Wide, constant
from . import declarations, loops
from .division_patterns import recognized
from .role_marks import MARK


def function(r: Reading, f: Function, scope: Scope) -> Value:
    """The body of a device function, read in place. Its result, Nothing for void."""
    body = f.body
    assert body is not None
    kind = f.node.child_by_field_name("type")
    result: CType | None = None
    trailing = next((c for c in f.declarator.named_children if c.type == "trailing_return_type"), None)
    reference = False
    if trailing is not None:
        result = r.types.base_type(trailing.named_children[0], scope)
        under = trailing.named_children[0].child_by_field_name("declarator")
        reference = under is not None and "reference" in under.type
    elif kind is not None:
        d = f.node.child_by_field_name("declarator")
        while d is not None and d.type not in ("function_declarator",):
            reference = reference or "reference" in d.type
            d = d.child_by_field_name("declarator") or next((c for c in d.named_children if c.type.endswith("declarator")), None)
        result = r.types.base_type(kind, scope)
        e = f.node.child_by_field_name("declarator")
        while e is not None and e.type == "pointer_declarator":
            result, e = Ptr(result), e.child_by_field_name("declarator")
    if reference:
        result = None
    return _run(r, body, scope, result)


def lambda_body(r: Reading, body: Node, scope: Scope) -> Value:
    """The body of a lambda."""
    return _run(r, body, scope, None)


_NO_END = re.compile(r"(?:__builtin_unreachable|__trap|assert)\s*\(\s*(?:false|0)?\s*\)")
"""What stands where a function is never left: its result is no matter."""


def _run(r: Reading, body: Node, scope: Scope, result: CType | None) -> Value:
    if isinstance(result, Auto):
        result = None
    frame = Frame(False, result, entry=r.m.block, position=len(r.m.block))
    block(r, body.named_children, scope.inner(), frame)
    if frame.slot is not None:
        return pinned_value(r, rvalue(r, frame.slot), "result") if isinstance(frame.slot, Located) else frame.slot
    if isinstance(frame.value, Scalar):
        return Scalar(recognized(frame.value.expr, r.m.lets))
    if frame.value is not None:
        return frame.value
    if result is not None and result != VOID:
        last = [text(c) for c in body.named_children if c.type != "comment"][-1:]
        if isinstance(result, Prim) and last and _NO_END.match(last[0]) is not None:
            return convert(r, Scalar(build.const(0)), result)
        raise NotUnderstood("a function that ends without a result")
    return Nothing()


# ------------------------------------------------------------------------------------------------------------------------ blocks


def block(r: Reading, nodes: list[Node], scope: Scope, frame: Frame) -> bool:
    """Statements in order; whether control never leaves them at their end."""
    unroll: Node | None = None
    for k, node in enumerate(nodes):
        if node.type in ("comment", ";", "attributed_declarator"):
            continue
        if node.type == "preproc_call":
            unroll = node
            continue
        if frame.kernel and r.depth == 0:
            ended = _guarded(r, node, scope, frame, nodes[k + 1 :], unroll)
        else:
            ended = statement(r, node, scope, frame, nodes[k + 1 :], unroll)
        unroll = None
        if ended:
            return True
    return False


def _guarded(r: Reading, node: Node, scope: Scope, frame: Frame, rest: list[Node], unroll: Node | None) -> bool:
    """A statement of the kernel itself: where it is not understood, it stays as text."""
    r.m.origin = scope.unit.origin(node)
    here = r.m.block
    mark = len(here)
    depth = len(r.m.blocks)
    try:
        return statement(r, node, scope, frame, rest, unroll)
    except NotUnderstood as bad:
        del r.m.blocks[depth:]
        del here[mark:]
        r.m.origin = scope.unit.origin(node)
        reason = bad.reason
        if bad.node is not None and bad.node.id != node.id:
            reason += _where(r, bad.node)
        kept(r, node, scope, reason)
        return False


def _where(r: Reading, node: Node) -> str:
    words = " ".join(text(node).split())
    return f": {words[:70]}" if len(words) > 1 else ""


def kept(r: Reading, node: Node, scope: Scope, reason: str) -> None:
    """A statement as opaque text. Variables that it declares get places of their own, so that what follows can be read."""
    if node.type == "declaration":
        for d in node.children_by_field_name("declarator"):
            name = declared_name(d)
            if name is None or name.type != "identifier":
                continue
            try:
                kind, _ = r.types.declared_type(node, d, scope)
                if not isinstance(kind, (Auto, Named, Ptr)):
                    scope.values[text(name)] = new_object(r, text(name), kind)
            except NotUnderstood:
                continue
    words = " ".join(scope.unit.source_of(node).split())
    r.m.emit(n.Opaque("cuda", words, reason))


def statement(r: Reading, node: Node, scope: Scope, frame: Frame, rest: list[Node], unroll: Node | None = None) -> bool:
    """One statement; True where what follows it in the block is never reached, or has been read with it."""
    with r.m.reading(scope.unit, node):
        return _statement(r, node, scope, frame, rest, unroll)


def _statement(r: Reading, node: Node, scope: Scope, frame: Frame, rest: list[Node], unroll: Node | None) -> bool:
    match node.type:
        case "expression_statement":
            if (made := _array_pointer(r, node, scope)) is not None:
                declarations.declaration(r, made, scope, node)
            elif node.named_children:
                r.value(node.named_children[0], scope)
            _unused_result(r)
        case "declaration":
            declarations.declaration(r, node, scope)
        case "compound_statement":
            if not leaves(node, frame):
                return block(r, node.named_children, scope.inner(), frame)
            return _through(r, lambda: block(r, node.named_children, scope.inner(), frame), scope, frame, rest)
        case "if_statement":
            return _if(r, node, scope, frame, rest)
        case "for_statement" | "while_statement" | "do_statement" | "for_range_loop":
            return loops.loop(r, node, scope, frame, rest, unroll)
        case "return_statement":
            return _return(r, node, scope, frame)
        case "break_statement":
            r.m.emit(n.Jump("break"))
            return True
        case "continue_statement":
            step = frame.steps[-1] if frame.steps else None
            if step is not None:
                r.value(step[0], step[1])
            r.m.emit(n.Jump("continue"))
            return True
        case "switch_statement":
            return _switch(r, node, scope, frame, rest)
        case "using_declaration" if using_enum(r, node, scope):
            pass
        case "union_specifier" if node.child_by_field_name("name") is None:
            made_union = new_object(r, "value", r.types.base_type(node, scope))
            if isinstance(made_union, Located) and isinstance(made_union.type, Rec):
                for m in made_union.type.instance.members():
                    scope.values[m.name] = member(r, made_union, m.name, node)
        case kind if kind in _DECLARING:
            r.index.one(node, scope, scope.unit, None)
        case "static_assert_declaration":
            _static_assert(r, node, scope)
        case "labeled_statement" | "goto_statement":
            raise NotUnderstood("a jump to a label", node)
        case "attributed_statement":
            hint = next((c for c in node.named_children if "unroll" in text(c) and c.type.startswith("attribute")), None)
            return statement(r, node.named_children[-1], scope, frame, rest, hint or unroll)
        case "ERROR":
            raise NotUnderstood("text that is no C++", node)
        case _:
            raise NotUnderstood(f"a {node.type.replace('_', ' ')}", node)
    return False


_DECLARING = frozenset(
    {"alias_declaration", "type_definition", "using_declaration", "class_specifier", "struct_specifier", "union_specifier", "enum_specifier",
     "namespace_alias_definition"}
)  # fmt: skip


def _array_pointer(r: Reading, node: Node, scope: Scope) -> Node | None:
    """`T (*p)[N] = q;` as the declaration that it is where T is a type: the grammar takes it for an assignment to an element of what `T(*p)` gives."""
    held = node.named_children[0] if node.named_children else None
    left = held.child_by_field_name("left") if held is not None and held.type == "assignment_expression" else None
    if left is None or left.type != "subscript_expression":
        return None
    while left is not None and left.type == "subscript_expression":
        left = left.child_by_field_name("argument")
    fn, args = (left.child_by_field_name(k) if left is not None else None for k in ("function", "arguments"))
    if fn is None or args is None or [(c.type, text(c)[0]) for c in args.named_children] != [("pointer_expression", "*")]:
        return None
    try:
        if fn.type != "primitive_type":
            r.types.base_type(fragment_type(text(fn)), scope)
        return fragment_declaration(text(node))
    except (NotUnderstood, ValueError):
        return None


def _unused_result(r: Reading) -> None:
    """An atomic operation whose old value nobody can name is made for its effect alone."""
    last = r.m.block[-1] if r.m.block else None
    if isinstance(last, n.Let) and last.names[0].startswith("old") and isinstance(last.value, n.Call) and last.value.fn.startswith("atomic_"):
        r.m.block[-1] = n.Eval(last.value, last.label, last.origin)


def _static_assert(r: Reading, node: Node, scope: Scope) -> None:
    cond = node.child_by_field_name("condition")
    if cond is None:
        return
    found = constant(rvalue(r, r.value(cond, scope)))
    if found == 0:
        raise NotUnderstood(f"a static assertion that does not hold: {text(cond)}", node)


# ---------------------------------------------------------------------------------------------------------------------- branches


def _if(r: Reading, node: Node, scope: Scope, frame: Frame, rest: list[Node]) -> bool:
    head, then, orelse = (node.child_by_field_name(k) for k in ("condition", "consequence", "alternative"))
    if head is None or then is None:
        raise NotUnderstood("a branch of unusual form", node)
    if orelse is not None and orelse.type == "else_clause":
        orelse = orelse.named_children[-1] if orelse.named_children else None
    inner = scope.inner()
    init, shown = head.child_by_field_name("initializer"), head.child_by_field_name("value")
    if init is not None:
        statement(r, init.named_children[0] if init.type == "init_statement" else init, inner, frame, [])
    if shown is None:
        raise NotUnderstood("a branch of unusual form", node)
    if shown.type == "declaration":
        name = declared_name(shown.children_by_field_name("declarator")[0])
        if name is None:
            raise NotUnderstood("a branch of unusual form", node)
        declarations.declaration(r, shown, inner)
        cond = condition(r, inner.values[text(name)])
    else:
        cond = condition(r, r.value(shown, inner), shown)
    if isinstance(cond, n.Const):
        taken = then if cond.value else orelse
        return statement(r, taken, inner.inner(), frame, rest) if taken is not None else False
    static = any(c.type == "constexpr" or text(c) == "constexpr" for c in node.children[:3])
    if static and not _is_question(cond):
        raise NotUnderstood(f"a constexpr condition that is not known: {text(shown)}", node)
    returns = leaves(then, frame) or (orelse is not None and leaves(orelse, frame))

    def part(taken: Node | None) -> bool:
        def read() -> bool:
            return statement(r, taken, inner.inner(), frame, []) if taken is not None else False
        return _through(r, read, scope, frame, rest) if returns else read()

    frame.dynamic += 1
    with r.m.capture() as first, r.m.where(cond):
        ended = part(then)
    with r.m.capture() as second, r.m.where(cond, False):
        also = part(orelse)
    frame.dynamic -= 1
    if first or second:
        if not first:
            cond, first, second = build.invert(cond), second, first
        r.m.emit(n.If(cond, tuple(first), tuple(second), static=_is_question(cond), label=_role(r, shown, inner)))
    return ended and also


def leaves(node: Node, frame: Frame) -> bool:
    """Whether a statement of a function that is read in place may leave it. In a loop it does so by a jump, which needs no care."""
    return not frame.kernel and not frame.loops and contains(node, "return_statement")


def _through(r: Reading, read: Callable[[], bool], scope: Scope, frame: Frame, rest: list[Node]) -> bool:
    """A statement that may leave the function, and where it does not, all that follows it: so nothing is left to read after it."""
    frame.after.append((rest, scope))
    ended = read()
    frame.after.pop()
    return ended or go_on(r, rest, scope, frame)


def go_on(r: Reading, rest: list[Node], scope: Scope, frame: Frame) -> bool:
    """The rest of a block, and of those around it to the end of the function."""
    if not block(r, rest, scope, frame) and frame.after:
        outer = frame.after.pop()
        go_on(r, *outer, frame)
        frame.after.append(outer)
    return True


def _role(r: Reading, cond: Node, scope: Scope) -> str | None:
    """The mark of a branch that one enumerator is compared for: `role == Role::producer`."""
    if cond.type != "binary_expression" or (op := cond.child_by_field_name("operator")) is None or text(op) != "==":
        return None
    sides = [x for k in ("left", "right") if (x := cond.child_by_field_name(k)) is not None and x.type == "qualified_identifier"]
    found = named_value(r, sides[0], scope) if len(sides) == 1 else None
    return f"{MARK}{text(sides[0]).split('::')[-1]}" if isinstance(found, list) and found and isinstance(found[0], Enumerator) else None


def _is_question(cond: n.Expr) -> bool:
    inner = cond.x if isinstance(cond, n.Unary) else cond
    return isinstance(inner, n.Call) and inner.fn == "absent"


def _return(r: Reading, node: Node, scope: Scope, frame: Frame) -> bool:
    inner = [c for c in node.named_children if c.type != "comment"]
    if frame.kernel:
        r.m.emit(n.Jump("return"))
        return True
    value: Value = Nothing()
    if inner:
        if inner[0].type == "initializer_list":
            if frame.result is None:
                raise NotUnderstood("a list of values as the result of an auto function", node)
            value = r.braced(inner[0], frame.result, scope)
        else:
            value = r.value(inner[0], scope)
        if frame.result is not None and frame.result != VOID:
            value = convert(r, value, frame.result)
    if frame.dynamic == 0 and frame.slot is None:
        frame.value = value if frame.result is None else pinned_value(r, value, "result") if isinstance(value, Pointer) else value
        return True
    if not isinstance(value, Nothing):
        if frame.slot is None:
            v = rvalue(r, value) if not isinstance(value, Members) else value
            if not isinstance(v, (Scalar, Wide, Record, Members)):
                raise NotUnderstood("a result that is no value, under a condition", node)
            frame.slot = at_entry(r, frame, lambda: new_object(r, "result", v.type))
        assign(r, frame.slot, value)
    if frame.loops:
        if frame.flag is None:
            frame.flag = at_entry(r, frame, lambda: initialized(r, "returned", Scalar(build.const(False, BOOL)), Prim(BOOL)))
        assign(r, frame.flag, Scalar(build.const(True, BOOL)))
        r.m.emit(n.Jump("break"))
    return True


def at_entry(r: Reading, frame: Frame, make: object) -> Value:
    """An object declared where the function began."""
    made: list[n.Stmt] = []
    r.m.blocks.append(made)
    try:
        v: Value = make()  # type: ignore[operator]  # a function of no arguments
    finally:
        r.m.blocks.pop()
    frame.entry[frame.position : frame.position] = made
    return v


def _switch(r: Reading, node: Node, scope: Scope, frame: Frame, rest: list[Node]) -> bool:
    head, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
    assert head is not None and body is not None
    around, scope = scope, scope.inner()
    shown = head.child_by_field_name("value")
    if (first := head.child_by_field_name("initializer")) is not None:
        statement(r, first.named_children[0] if first.type == "init_statement" else first, scope, frame, [])
    if shown is not None and shown.type == "declaration" and (name := declared_name(shown.children_by_field_name("declarator")[0])) is not None:
        declarations.declaration(r, shown, scope)
        chosen: Value = scope.values[text(name)]
    else:
        chosen = r.value(shown or head, scope)
    selector = scalar(r, chosen, head)
    selector = pinned(r, converted(selector, usual(dtype_of(selector.type), I32)), "selector")
    groups: list[tuple[list[Node], bool, list[Node]]] = []
    labels: list[Node] = []
    otherwise = False
    for c in body.named_children:
        if c.type != "case_statement":
            continue
        label = c.child_by_field_name("value")
        inner = [x for x in c.named_children if (label is None or x.id != label.id) and x.type != "comment"]
        if len(inner) == 1 and inner[0].type == "compound_statement":
            inner = [x for x in inner[0].named_children if x.type != "comment"]
        labels += [] if label is None else [label]
        otherwise |= label is None
        if inner:
            groups.append((labels, otherwise, inner))
            labels, otherwise = [], False
    cases: list[tuple[list[Node], list[Node]]] = []
    default: list[Node] | None = None
    after: list[Node] = []
    for labels, otherwise, inner in reversed(groups):  # a case that does not end goes on into the next one
        after = [x for x in inner if x.text != b"[[fallthrough]];"] + ([] if inner[-1].type in ("break_statement", "return_statement") else after)
        if otherwise:
            default = after
        if labels:
            cases.insert(0, (labels, after))
    if any(_breaks(x) for _, inner in [*cases, ([], default or [])] for x in body_of(inner)):
        if contains(body, "continue_statement"):
            raise NotUnderstood("a break inside a case, and a continue", node)
        return loops.once(r, node, around, frame, rest, lambda: _arms(r, cases, default, selector, scope, frame, []))
    if not leaves(node, frame):
        return _arms(r, cases, default, selector, scope, frame, [])
    return _arms(r, cases, default, selector, scope, frame, rest, around)


def body_of(inner: list[Node]) -> list[Node]:
    """The statements of a case without the break at their end."""
    return inner[:-1] if inner and inner[-1].type == "break_statement" else inner


def _breaks(node: Node) -> bool:
    """Whether a statement breaks out of the switch that it stands in."""
    if node.type == "break_statement":
        return True
    return node.type not in ("for_statement", "while_statement", "do_statement", "for_range_loop", "switch_statement", "lambda_expression") and any(
        _breaks(c) for c in node.named_children)


def _arms(r: Reading, cases: list[tuple[list[Node], list[Node]]], default: list[Node] | None, selector: n.Expr, scope: Scope, frame: Frame,
          rest: list[Node], around: Scope | None = None) -> bool:
    """The cases of a switch, one in the other's else; with `around` each goes on with what follows the switch."""
    def part(inner: list[Node]) -> bool:
        def read() -> bool:
            return block(r, body_of(inner), scope.inner(), frame)
        return _through(r, read, around, frame, rest) if around is not None else read()

    def arm(k: int) -> bool:
        if k == len(cases):
            return part(default or [])
        conds = [build.compare("eq", selector, converted_like(r, scalar(r, r.value(x, scope), x), selector)) for x in cases[k][0]]
        cond = conds[0]
        for other in conds[1:]:
            cond = build.logical_or(cond, other)
        if isinstance(cond, n.Const):
            return part(cases[k][1]) if cond.value else arm(k + 1)
        frame.dynamic += 1
        with r.m.capture() as first:
            ended = part(cases[k][1])
        with r.m.capture() as second:
            also = arm(k + 1)
        frame.dynamic -= 1
        if first or second:
            if not first:
                cond, first, second = build.invert(cond), second, first
            r.m.emit(n.If(cond, tuple(first), tuple(second)))
        return ended and also

    return arm(0)


def converted_like(r: Reading, e: n.Expr, like: n.Expr) -> n.Expr:
    """An integer in the dtype of another."""
    return converted(e, dtype_of(like.type))
