"""Calls: which function is meant, its template arguments deduced, and its body read in place."""

from __future__ import annotations

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32

from ..intrinsics import cuda_calls, cuda_math
from ..intrinsics.ptx_wrappers import counted_bits, part, rounded, wrapped
from ..names.lookup import of_declarations, of_values
from ..names.mutation_analysis import mutated
from ..names.overloads import defaulted, fitting, type_of_value
from ..source.source import Node
from ..source.syntax import declared_name, text
from ..symbols.classes import Member, Rec
from ..symbols.index import listed_params
from ..symbols.symbols import Alias, Bindings, Candidate, ClassTemplate, Function, Scope, Value
from ..types.c_types import ANY_POINTER, AUTO, Arr, Auto, CType, Named, Prim, Ptr, Vec
from ..types.errors import NotUnderstood, endless
from ..values import objects
from ..values.conversions import cast, convert, type_text, zero_of
from ..values.emitter import reads_memory
from ..values.loads import load, rvalue
from ..values.objects import assign, initialized, new_object, pinned_place, pinned_value
from ..values.pointers import MovingPointer
from ..values.reading import MAX_CALLS, Reading
from ..values.values import (
    Aimed,
    Builtin,
    Dims,
    Group,
    Lambda,
    Located,
    Mapped,
    Members,
    Nothing,
    Overloads,
    Pack,
    Pointer,
    Record,
    Scalar,
    Text,
    TypeName,
    Wide,
)
from .places import address, element, member, pointed

CASTS = frozenset({"static_cast", "reinterpret_cast", "const_cast", "dynamic_cast"})


def call(r: Reading, node: Node, scope: Scope) -> Value:
    """A call expression."""
    fn, listed = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    assert fn is not None and listed is not None
    if fn.type == "template_function" and (name := fn.child_by_field_name("name")) is not None and text(name) in CASTS:
        return _named_cast(r, fn, listed, scope)
    if fn.type == "template_function" and (meant := of_values(r, node, scope)) is not None:
        return r.value(meant, scope)
    if listed.type == "initializer_list":
        return r.braced(listed, r.types.base_type(fn, scope), scope)
    callee = _callee(r, fn, scope)
    args = arguments(r, listed, scope)
    with r.m.reading(scope.unit, node):
        return apply(r, callee, args, node)


def apply(r: Reading, callee: Value, args: list[Value], node: Node) -> Value:
    """A callee on arguments."""
    match callee:
        case TypeName():
            return construct(r, callee.type, args)
        case Overloads(functions=(), this=Lambda() as inner, name="operator()"):
            return _apply_lambda(r, inner, args, node, callee.args or ())
        case Overloads(functions=(), this=None) if callee.name:
            return cuda_calls.call(r, Builtin(callee.name, callee.args), args, node)
        case Overloads(functions=()):
            return cuda_calls.method(r, callee, args, node)
        case Overloads():
            found = fitting(r, callee.functions, callee.args, args, node)
            if found is not None and found.fn.params and callee.args is None and callee.this is None and _declared_for(callee, args):
                return cuda_calls.call(r, Builtin(callee.name, None), args, node)
            if found is not None and callee.this is None and cuda_calls.known(callee.name) and _twofold(args) and _stands_in(node, found.fn.node):
                return cuda_calls.call(r, Builtin(callee.name, None), args, node)
            if found is not None and callee.this is None and cuda_calls.known(callee.name) and _declared_nearer(r, found.fn, args):
                return cuda_calls.call(r, Builtin(callee.name, None), [_promoted(r, a) for a in args], node)
            if found is None:
                plain = callee.name.rpartition("::")[2]
                if cuda_calls.known(plain) and callee.this is None and (plain == callee.name or any(plain in f.scope.borrowed for f in callee.functions)):
                    return cuda_calls.call(r, Builtin(plain, callee.args), args, node)
                raise NotUnderstood(f"a call of '{callee.name}' with ({', '.join(type_text(a) for a in args)}), which no definition fits", node)
            return invoke(r, found, args, callee.this, node)
        case Lambda():
            return _apply_lambda(r, callee, args, node)
        case Builtin():
            return cuda_calls.call(r, callee, args, node)
        case Members() | Located() | Record() | Wide() if isinstance(callee.type, Rec):
            methods = callee.type.instance.methods("operator()")
            found = fitting(r, tuple(methods), None, args, node)
            if found is not None:
                return invoke(r, found, args, callee, node)
    raise NotUnderstood(f"a call of {type_text(callee)}", node)


def _twofold(args: list[Value]) -> bool:
    """Whether a number has a type that is one of two in C++ (`__half` and torch's) and one here: a function of one of them may call CUDA's of the other."""
    kinds = [type_of_value(a) for a in args]
    return any(isinstance(k, Prim) and k.dtype.name in ("f16", "bf16") for k in kinds)


def _stands_in(node: Node, whole: Node) -> bool:
    at: Node | None = node
    while at is not None and at != whole:
        at = at.parent
    return at is not None


def _declared_for(callee: Overloads, args: list[Value]) -> bool:
    """Whether CUDA declares a function for exactly such numbers, which the file's own templates stand beside: it is then the better match."""
    kinds = {str(type_of_value(a)) for a in args}
    kind = type_of_value(args[0]) if len(kinds) == 1 else None
    beside = all(f.scope.parent is None for f in callee.functions)  # those of a namespace hide it
    return beside and isinstance(kind, Prim) and kind.dtype.name in _DECLARED and cuda_calls.known(callee.name)


def _declared_nearer(r: Reading, f: Function, args: list[Value]) -> bool:
    """Whether a file's own function beside CUDA's (`__shfl_up_sync` of a half) would turn a number that CUDA declares one for into another kind of number:
    CUDA's is then the better match."""
    if f.params or f.scope.parent is not None:
        return False
    for q, v in zip(f.parameters(), args, strict=False):
        to, have = r.types.declared_type(q, q.child_by_field_name("declarator"), f.scope)[0], type_of_value(v)
        if isinstance(to, Prim) and isinstance(have, Prim) and to != have and (to.dtype.is_float or have.dtype.is_float) and (
                have.dtype.name in _DECLARED or have.dtype.is_integer):
            return True
    return False


def _promoted(r: Reading, v: Value) -> Value:
    """A number as C++ hands it to a function of wider ones: one of fewer bits than an `int` as that."""
    kind = type_of_value(v)
    return convert(r, v, Prim(I32)) if isinstance(kind, Prim) and kind.dtype.is_integer and kind.dtype.bits < 32 else v


_DECLARED = frozenset({"i32", "u32", "i64", "u64", "f32", "f64"})
"""Numbers that CUDA's own functions are overloaded for."""


def _callee(r: Reading, fn: Node, scope: Scope) -> Value:
    if fn.type in ("primitive_type", "sized_type_specifier", "template_type", "decltype", "dependent_type"):
        return TypeName(r.types.base_type(fn, scope))
    if fn.type in ("identifier", "type_identifier"):
        found = scope.find(text(fn))
        if isinstance(found, list):
            types = [d for d in found if not isinstance(d, Function)]
            functions = tuple(d for d in found if isinstance(d, Function))
            if functions:
                return Overloads(functions, None, _object_of(functions, scope), text(fn))

            if types and isinstance(types[0], (ClassTemplate, Alias)):
                made = r.types.declared_as_type(types[0], scope)
                if made is not None:
                    return TypeName(made)
                return _to_be_deduced(r, text(fn), types[0])
            return of_declarations(r, found, text(fn), fn)
        if found is not None:
            return found
        spaces = [d for s in r.index.every_namespace() for d in s.decls.get(text(fn), ()) if isinstance(d, Function) and d.body is not None]
        if not cuda_calls.known(text(fn)) and spaces:
            return Overloads(tuple(spaces), None, None, text(fn))
        return r.library.value(text(fn), fn)
    made_value = r.value(fn, scope)
    if isinstance(made_value, Overloads) and made_value.this is None and made_value.functions:
        return Overloads(made_value.functions, made_value.args, _object_of(made_value.functions, scope), made_value.name)
    return made_value


def _to_be_deduced(r: Reading, name: str, d: object) -> Value:
    raise NotUnderstood(f"the class template '{name}' without arguments")


def _object_of(functions: tuple[Function, ...], scope: Scope) -> Value | None:
    """The object of a method that is called by its plain name."""
    if functions and functions[0].owner is not None and not functions[0].static:
        return next((s.this for s in scope.around() if s.this is not None), None)
    return None


def _named_cast(r: Reading, fn: Node, listed: Node, scope: Scope) -> Value:
    targs = fn.child_by_field_name("arguments")
    if targs is None or not targs.named_children or len(listed.named_children) != 1:
        raise NotUnderstood("a cast of unusual form", fn)
    to = targs.named_children[0]
    v = r.value(listed.named_children[0], scope)
    d = to.child_by_field_name("declarator") if to.type == "type_descriptor" else None
    kind = r.types.base_type(to, scope)
    if listed.named_children[0].type == "this" and isinstance(v, Located) and isinstance(v.type, Rec) and isinstance(kind, Ptr) and isinstance(
            kind.to, Rec) and v.type.instance.is_a(kind.to.instance):
        return Pointer(v.place, Ptr(v.type))  # as what it is or derives from
    if d is not None and any("reference" in c.type for c in (d, *_below(d))):
        if isinstance(v, (Members, Located)) and v.type == kind:
            return v
        where = address(r, v, fn)
        return pointed(r, convert(r, where, Ptr(kind)), fn)
    return cast(r, kind, v)


def arguments(r: Reading, listed: Node, scope: Scope) -> list[Value]:
    """The arguments of a call, from left to right; earlier values are kept where later ones have effects on what they read."""
    out: list[Value] = []
    block = r.m.block
    for a in listed.named_children:
        if a.type == "comment":
            continue
        position = len(block)
        if a.type == "parameter_pack_expansion":
            out += expanded(r, a.named_children[0], scope)
        elif a.type == "initializer_list":
            items = [rvalue(r, r.value(c, scope)) for c in a.named_children if c.type != "comment"]
            out.append(Pack(tuple(items)))
        else:
            out.append(r.value(a, scope))
        if r.m.block is block and r.m.effects_since(position):
            for k, v in enumerate(out[:-1]):
                if isinstance(v, Scalar) and reads_memory(v.expr):
                    out[k] = Scalar(r.m.let_at(position, "before", v.expr))
    return out


def expanded(r: Reading, pattern: Node, scope: Scope) -> list[Value]:
    """A pattern with each element of the packs that it names."""
    names = {text(c) for c in _below(pattern) if c.type in ("identifier", "type_identifier")}
    packs = {x: v for x in names if isinstance(v := scope.find(x), Pack)}
    if not packs:
        raise NotUnderstood("an expansion without a pack", pattern)
    count = len(next(iter(packs.values())).items)
    return [r.value(pattern, scope.inner(**{k: p.items[i] for k, p in packs.items()})) for i in range(count)]


def _below(node: Node) -> list[Node]:
    out, stack = [], [node]
    while stack:
        top = stack.pop()
        out.append(top)
        stack += top.named_children
    return out


# --------------------------------------------------------------------------------------------------------------------- invoking


def invoke(r: Reading, c: Candidate, args: list[Value], this: Value | None, node: Node) -> Value:
    """The result of a function whose body is read in place."""
    f = c.fn
    if defaulted(f):
        return Nothing()
    if len(args) == 1 and (to := _bit_cast(r, f, c.bindings)) is not None:
        v = rvalue(r, args[0])
        if isinstance(v, Scalar) and v.dtype.bits == to.dtype.bits:
            return Scalar(build.cast(v.expr, to.dtype, "bits"))
    if this is None and (instruction := wrapped(r, f, c.bindings, args) or part(r, f, c.bindings, args) or rounded(r, f, args) or counted_bits(
            r, f, c.bindings, args)) is not None:
        return instruction
    if r.depth >= MAX_CALLS:
        raise endless(f"the calls of '{f.name}'", f.unit.origin(f.node))
    scope = Scope(f.scope, f.unit, f.name, values=dict(c.bindings), templates=tuple(map(_argument, c.bindings.values())))
    if this is not None and not f.static:
        this = objects.spilled(r, this) if isinstance(this, Wide) else this
        scope.this = this
        _bring_members(scope, this)
    r.depth += 1
    try:
        bind(r, f.parameters(), args, scope, f.body)
        return r.statements.function(r, f, scope)
    except RecursionError:
        raise endless(f"the calls of '{f.name}'", f.unit.origin(f.node)) from None
    finally:
        r.depth -= 1


def _argument(v: Value) -> object:
    """What tells a template argument from another one."""
    match v:
        case Scalar(expr=n.Const(value=value)):
            return value
        case TypeName(type=kind):
            return str(kind)
        case Overloads(functions=functions):
            return tuple(f.node.id for f in functions)
        case Builtin(name=name):
            return name
        case Lambda(node=node):
            return node.id
        case Pack(items=items):
            return tuple(map(_argument, items))
        case _:
            return None


def _bit_cast(r: Reading, f: Function, bindings: Bindings) -> Prim | None:
    """The result of a function that does nothing but copy the bytes of its argument into a number of another type."""
    kept = [c for c in f.body.named_children if c.type not in ("static_assert_declaration", "comment")] if f.body is not None else []
    if [c.type for c in kept] != ["declaration", "expression_statement", "return_statement"]:
        return None
    names = [declared_name(d) for d in kept[0].children_by_field_name("declarator")]
    params = [declared_name(d) for p in f.parameters() if (d := p.child_by_field_name("declarator")) is not None]
    copied = next(iter(kept[1].named_children), kept[1])  # `;` alone has none
    fn, listed = copied.child_by_field_name("function"), copied.child_by_field_name("arguments")
    if len(names) != 1 or len(params) != 1 or names[0] is None or params[0] is None or fn is None or listed is None:
        return None
    to, source = text(names[0]), text(params[0])
    given = [text(a).replace(" ", "") for a in listed.named_children]
    if text(fn).split("::")[-1] != "memcpy" or given[:2] != [f"&{to}", f"&{source}"] or text(kept[2]).replace(" ", "") != f"return{to};":
        return None
    kind, _ = r.types.declared_type(kept[0], kept[0].children_by_field_name("declarator")[0], f.scope.inner(**bindings))
    return kind if isinstance(kind, Prim) else None


def _bring_members(scope: Scope, this: Value) -> None:
    """Data members by their plain names."""
    if isinstance(this, (Members, Record)):
        scope.values.update({k: v for k, v in this.fields.items() if k != "#array" and k not in scope.values})
    elif isinstance(this, Located) and isinstance(this.type, Rec):
        layout = this.type.instance.layout()
        for m in this.type.instance.members():
            scope.values.setdefault(m.name, Located(this.place.moved(layout.offsets[m.name]), m.type))


def bind(r: Reading, params: list[Node], args: list[Value], scope: Scope, body: Node | None) -> None:
    """Parameters of a function or lambda with their arguments."""
    changed = mutated(r, body, scope) if body is not None else frozenset()
    for k, p in enumerate(params):
        d = p.child_by_field_name("declarator")
        name_node = declared_name(d) if d is not None else None
        name = text(name_node) if name_node is not None else f"#{k}"
        if p.type == "variadic_parameter_declaration":
            inner = next((c for c in d.named_children if c.type == "identifier"), None) if d is not None else None
            if inner is None and d is not None:
                below = [c for x in d.named_children for c in x.named_children if c.type == "identifier"]
                inner = below[0] if below else None
            scope.values[text(inner) if inner is not None else name] = Pack(tuple(args[k:]))
            return
        if k < len(args):
            v = args[k]
        else:
            default = p.child_by_field_name("default_value")
            if default is None:
                raise NotUnderstood(f"no argument for '{name}'", p)
            v = r.value(default, scope)
        kind, reference = r.types.declared_type(p, d, scope)
        through = f"{name}[]" in changed and not isinstance(kind, Ptr)
        scope.values[name] = _bound(r, name, v, kind, reference, name in changed or through)


def _bound(r: Reading, name: str, v: Value, kind: CType, reference: bool, changed: bool) -> Value:
    if isinstance(v, (Lambda, Group, Overloads, Builtin, Dims, Text, TypeName, Mapped)):
        return v
    if isinstance(kind, Named) and not isinstance(v, Located):
        return v
    if isinstance(v, Members) and isinstance(kind, Ptr) and kind.to == v.type:
        return Aimed(v.type, v.fields)
    if isinstance(v, Pack) and isinstance(kind, Vec | Rec | Prim):
        v = construct(r, kind, list(v.items))
    if isinstance(v, Members) and isinstance(whole := v.fields.get("#array"), TypeName) and whole.type == kind:
        return v  # an array of records, as an array for each member
    if reference and isinstance(v, (Located, Members)):
        if isinstance(kind, Auto) or v.type == kind or (isinstance(v.type, Rec) and isinstance(kind, Rec) and v.type.instance.is_a(kind.instance)):
            return pinned_place(r, v, name)
        if isinstance(v.type, Vec) and isinstance(kind, Vec):
            return pinned_place(r, v, name)
    if isinstance(kind, Rec) and isinstance(v, (Members, Record)) and v.type == kind and not changed:
        return v
    if isinstance(v, MovingPointer) and v.variable.base is None and isinstance(kind, Ptr | Auto) and not changed:
        return v  # set on another branch, as the function is told: what it points to is asked for where it is used
    made = convert(r, v, kind) if not isinstance(kind, Auto) else rvalue(r, v)
    shown = name.strip("#") or "x"
    if changed and not reference:
        t = made.type if isinstance(made, (Scalar, Wide, Record, Members, Pointer)) else kind
        return initialized(r, shown, made, t if isinstance(kind, Auto) else kind)
    return pinned_value(r, made, shown)


def _apply_lambda(r: Reading, f: Lambda, args: list[Value], node: Node, explicit: tuple[Value, ...] = ()) -> Value:
    """A lambda on arguments, `explicit` ones for its own template parameters."""
    if r.depth >= MAX_CALLS:
        raise endless("the calls of a lambda", f.unit.origin(f.node))
    declarator, body = f.node.child_by_field_name("declarator"), f.node.child_by_field_name("body")
    listed = declarator.child_by_field_name("parameters") if declarator is not None else None
    kinds = ("parameter_declaration", "optional_parameter_declaration", "variadic_parameter_declaration")
    params = [p for p in listed.named_children if p.type in kinds] if listed is not None else []
    own = next((c for c in f.node.named_children if c.type == "template_parameter_list"), None)
    scope = f.scope.inner(**(r.types.bound(listed_params(own), explicit, f.scope, node) if own is not None and explicit else {}))
    r.depth += 1
    try:
        bind(r, params, args, scope, body)
        assert body is not None
        return r.statements.lambda_body(r, body, scope)
    finally:
        r.depth -= 1


# ----------------------------------------------------------------------------------------------------------------------- objects


def construct(r: Reading, t: CType, args: list[Value]) -> Value:
    """`T(args)`."""
    if len(args) == 1 and isinstance(args[0], Pack):
        args = list(args[0].items)
    if not isinstance(t, Rec):
        if not args:
            return zero_of(r, t)
        if len(args) == 1:
            return cast(r, t, args[0])
        if isinstance(t, Vec):
            return cuda_math.vector_of(r, t, args)
        if isinstance(t, Arr) and len(args) <= t.n:
            listed = new_object(r, "values", t)
            assert r.index.root is not None
            for k in range(t.n):
                each = construct(r, t.of, [args[k]]) if k < len(args) else zero_of(r, t.of)
                assign(r, element(r, listed, Scalar(build.const(k)), r.index.root.unit.root), each)
            return load(r, listed.place, t) if isinstance(listed, Located) else listed
        raise NotUnderstood(f"a {t} from {len(args)} values")
    if len(args) == 1:
        same = rvalue(r, args[0]) if isinstance(args[0], Located) and args[0].type == t else args[0]
        if isinstance(same, (Members, Record, Wide)) and same.type == t:
            return same
        if isinstance(same, (Members, Record, Located)) and isinstance(same.type, Rec):
            found = conversion(r, same, None, t)
            if found is not None:
                return found
    made = new_object(r, t.instance.template.name.strip("()"), t)
    initialize(r, made, t, args)
    return made


def initialize(r: Reading, made: Value, t: Rec, args: list[Value]) -> None:
    """Run the constructor of a class on an object; members with initializers of their own come first."""
    instance = t.instance
    constructors = instance.constructors
    node = instance.node
    chosen = fitting(r, tuple(constructors), None, args, node) if constructors else None
    if chosen is None and args:
        members = instance.members()
        if constructors or len(args) > len(members):
            raise NotUnderstood(f"no constructor of {t} takes ({', '.join(type_text(a) for a in args)})")
        for m, a in zip(members, args, strict=False):
            if m.reference and isinstance(made, Members):
                made.fields[m.name] = pinned_place(r, a, m.name) if isinstance(a, Located | Members) else a
                continue
            assign(r, member(r, made, m.name, node), a)
        for m in members[len(args) :]:
            begin(r, made, t, m, True)
        return
    listed = next((c for c in chosen.fn.node.children if c.type == "field_initializer_list"), None) if chosen is not None else None
    set_here = {text(f.named_children[0]): f for f in listed.named_children if f.named_children} if listed is not None else {}

    inherited = set()
    if any(name.split("<")[0] == instance.template.name for name in set_here):
        inherited = {m.name for m in instance.members()}  # another constructor of the class begins them all
    for b in () if inherited else instance.bases:
        inherited |= {m.name for m in b.members()}
        if not any(name.split("<")[0] == b.template.name for name in set_here):
            initialize(r, made, Rec(b), [])
    for m in instance.members():
        if m.name not in set_here and m.name not in inherited:
            begin(r, made, t, m)
    if chosen is None:
        return
    f = chosen.fn
    scope = Scope(f.scope, f.unit, f.name, values=dict(chosen.bindings))
    scope.this = made
    r.depth += 1
    try:
        outer = scope.inner()
        bind(r, f.parameters(), args, outer, f.body)
        _bring_members(scope, made)
        for name, init in set_here.items():
            values = init.named_children[1] if len(init.named_children) > 1 else None
            items = [r.value(c, outer) for c in values.named_children if c.type != "comment"] if values is not None else []
            own = next((m for m in instance.members() if m.name == name), None)
            if own is not None and own.reference and isinstance(made, Members) and len(items) == 1:
                made.fields[name] = items[0]
                continue
            if own is None and name.split("<")[0] == instance.template.name:  # another constructor of the class
                initialize(r, made, t, items)
                continue
            if own is None:
                base = next((b for b in instance.bases if b.template.name == name.split("<")[0]), None)
                if base is None:
                    raise NotUnderstood(f"the initializer of '{name}'", init)
                initialize(r, made, Rec(base), items)
                continue
            at = member(r, made, name, init)
            kind = at.type if isinstance(at, (Located, Members)) else AUTO
            assign(r, at, construct(r, kind, items) if not (len(items) == 1 and not isinstance(kind, Rec)) else items[0])
        _bring_members(scope, made)
        if f.body is not None:
            r.statements.function(r, f, outer)
    finally:
        r.depth -= 1


def begin(r: Reading, made: Value, t: Rec, m: Member, zero: bool = False) -> None:
    """A member that nobody gives a value, as its class says it begins: with its initializer, its constructor, or zero where `zero` asks for a value."""
    if m.init is not None:
        scope = Scope(t.instance.scope, t.instance.scope.unit, m.name, this=made)
        _bring_members(scope, made)
        given = r.braced(m.init, m.type, scope) if m.init.type == "initializer_list" else r.value(m.init, scope)
        assign(r, member(r, made, m.name, t.instance.node), given)
    elif isinstance(m.type, Rec) and m.type.instance.begins():
        initialize(r, member(r, made, m.name, t.instance.node), m.type, [])
    elif zero and not m.reference:
        assign(r, member(r, made, m.name, t.instance.node), zero_of(r, m.type))


def spilled(r: Reading, v: Wide) -> Located:
    """A value put in memory of its own."""
    return objects.spilled(r, v)


def conversion(r: Reading, v: Value, to: CType | None, other: CType | None = None) -> Value | None:
    """What a conversion operator makes of an object: of one number any other, of a pointer (`to` is one) the first that makes one, as it is for ANY_POINTER."""
    if not isinstance(v, (Members, Record, Located, Wide)) or not isinstance(v.type, Rec):
        return None
    for f in v.type.instance.conversions():
        kind = r.types.base_type(f.result, v.type.instance.scope)
        if f.pointer or isinstance(to, Ptr):
            fits = f.pointer and isinstance(to, Ptr)
        else:
            fits = (other is not None and kind == other) or (other is None and (to is None or kind == to or isinstance(kind, Prim)))
        if fits:
            made = invoke(r, Candidate(f.function, {}, 0), [], v, f.function.node)
            return convert(r, made, to) if to is not None and to != ANY_POINTER else made
    return None


def has_method(t: Rec, name: str) -> bool:
    """Whether a class defines a method that is not defaulted."""
    return any(f.body is not None for f in t.instance.methods(name))
