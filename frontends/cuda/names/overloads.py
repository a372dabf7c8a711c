"""Which function a call means: template arguments deduced, and the candidate whose conversions cost least (C++ [over.match], [temp.deduct])."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kir.ir import nodes as n
from kir.ir.types import I8, U32

from ..source.source import Node
from ..source.syntax import text
from ..symbols.classes import Rec, leaf
from ..symbols.symbols import Bindings, Candidate, Function, TParam, Value
from ..types.c_types import VOID, Arr, Auto, CType, Named, Prim, Ptr, Vec
from ..types.errors import NotUnderstood
from ..values.descriptors import TENSOR_MAP
from ..values.pointers import Handle
from ..values.reading import Reading
from ..values.values import (
    Aimed,
    Chosen,
    Dims,
    Group,
    Lambda,
    Located,
    Mapped,
    Members,
    Null,
    Pack,
    Pointer,
    Record,
    Remote,
    Scalar,
    Text,
    TypeName,
    Wide,
    Word,
    constant,
)


def type_of_value(v: Value) -> CType:
    """The type that overloads see."""
    match v:
        case Aimed():
            return Ptr(v.type)
        case Members() if isinstance(whole := v.fields.get("#array"), TypeName):
            return whole.type
        case Scalar() | Wide() | Record() | Members() | Located() | Pointer():
            return v.type
        case Handle():
            return v.type
        case Dims():
            return Vec(U32, 3, "uint3" if v.name.endswith("Idx") else "dim3")
        case Null():
            return Named("nullptr_t")
        case Text():
            return Ptr(Prim(I8))
        case Lambda():
            return Named("lambda")
        case Group():
            return Named(f"cooperative_groups::{v.kind}")
        case Chosen():
            return type_of_value(v.then)
        case Mapped():
            return Ptr(TENSOR_MAP)
        case Word() | Remote():
            return v.type
        case _:
            return Named(type(v).__name__.lower())


def fitting(r: Reading, functions: tuple[Function, ...], explicit: tuple[Value, ...] | None, args: list[Value], node: Node) -> Candidate | None:
    """The definition that fits the arguments best, None when none does. Raises NotUnderstood when two fit equally well."""
    said = (r.converting, explicit is not None, *map(_given, explicit or ()), *map(_seen, args))
    key = (*map(id, functions), *said)
    if None in said:
        return _fitting(r, functions, explicit, args, node)
    if key not in r.fitted:
        r.fitted[key] = (functions, _fitting(r, functions, explicit, args, node))
    made = r.fitted[key][1]
    return None if made is None else replace(made, bindings=dict(made.bindings))


def _given(v: Value) -> object:
    """A template argument that is a type or a number; None for others."""
    return v if isinstance(v, TypeName) or (isinstance(v, Scalar) and isinstance(v.expr, n.Const)) else None


def _seen(v: Value) -> object:
    """All that the choice of an overload sees of a value; None where it looks further."""
    match v:
        case Scalar():
            return Scalar, v.type, constant(v)
        case Members() if "#array" in v.fields:
            return None
        case Wide() | Record() | Members() | Located() | Pointer():
            return type(v), v.type
        case _:
            return None


def _fitting(r: Reading, functions: tuple[Function, ...], explicit: tuple[Value, ...] | None, args: list[Value], node: Node) -> Candidate | None:
    found: list[Candidate] = []
    for each in functions:
        f = each if each.body is not None or defaulted(each) else r.index.defined(each)
        if f is None:
            continue
        made = _candidate(r, f, explicit, args, node)
        if made is not None:
            found.append(made)
    if not found:
        return None
    best = min(c.cost for c in found)
    return next(c for c in found if c.cost == best)


def defaulted(f: Function) -> bool:
    """Whether a function is declared `= default`."""
    return any(c.type == "default_method_clause" for c in f.node.children)


def _candidate(r: Reading, f: Function, explicit: tuple[Value, ...] | None, args: list[Value], node: Node) -> Candidate | None:
    params = f.parameters()
    pack = bool(params) and params[-1].type == "variadic_parameter_declaration"
    needed = sum(p.type == "parameter_declaration" for p in params)
    if len(args) < needed or (len(args) > len(params) and not pack):
        return None
    bindings: Bindings = {}
    cost = 0
    try:
        if f.params:
            if f.arguments is not None:
                names = {p.name: p for p in f.params}
                given = explicit or ()
                if not all(r.types.fits(p, g, names, bindings, f.scope) for p, g in zip(f.arguments, given, strict=False)):
                    return None
            else:
                inner = f.scope.inner()
                inner.values = bindings
                rest = list(explicit or ())
                for p in f.params:
                    if p.pack and rest:
                        bindings[p.name] = Pack(tuple(rest))
                        rest = []
                    elif rest:
                        bindings[p.name] = r.types.fitted(p, rest.pop(0), inner)
                if rest:
                    return None
                names = {p.name: p for p in f.params if p.name not in bindings}
                _deduce(r, f, params, args, names, bindings, pack)
                bindings = r.types.bound(f.params, (), f.scope, node, bindings)
            cost += 2 + len(f.params) + 16 * sum(_takes_any(p, f.params) for p in params[:len(args)])
        elif explicit and f.arguments is None:
            return None
        if f.params is not None and not f.params and f.arguments is not None and explicit is not None:
            # A full specialization: its arguments are given in its name.
            names = {}
            if not all(r.types.fits(p, g, names, bindings, f.scope) for p, g in zip(f.arguments, explicit, strict=False)):
                return None
            if len(explicit) > len(f.arguments) and not _gives(r, f, explicit[len(f.arguments)]):
                return None
        scope = f.scope.inner(**bindings)
        kind_node = f.node.child_by_field_name("type")
        if kind_node is not None and "enable_if" in text(kind_node):
            r.types.base_type(kind_node, scope)  # refuses where its condition does not hold
        for q, v in zip(params, args, strict=False):
            if q.type == "variadic_parameter_declaration":
                break
            kind, reference = r.types.declared_type(q, q.child_by_field_name("declarator"), scope)
            step = _conversion_cost(r, v, kind, reference, q)
            if step is None:
                return None
            cost += step * 100
    except NotUnderstood:
        return None
    return Candidate(f, bindings, cost)


def _takes_any(p: Node, params: tuple[TParam, ...]) -> bool:
    """Whether a parameter's type is a template's parameter as it is, which fits whatever another definition says more of."""
    kind, d = p.child_by_field_name("type"), p.child_by_field_name("declarator")
    while d is not None and d.type.endswith("reference_declarator"):
        d = next(iter(d.named_children), None)
    return kind is not None and any(q.name == text(kind) for q in params) and (d is None or d.type == "identifier")


def _gives(r: Reading, f: Function, wanted: Value) -> bool:
    """Whether a full specialization, which leaves its last argument to its result, gives a value of that type."""
    kind = f.node.child_by_field_name("type")
    return not isinstance(wanted, TypeName) or kind is None or r.types.base_type(kind, f.scope) == wanted.type


def _deduce(r: Reading, f: Function, params: list[Node], args: list[Value], names: Mapping[str, TParam], found: Bindings, pack: bool) -> None:
    every = {p.name: p for p in f.params or ()}
    for k, p in enumerate(params):
        d, kind = p.child_by_field_name("declarator"), p.child_by_field_name("type")
        if p.type == "variadic_parameter_declaration":
            if kind is not None and text(kind) in every:
                found[text(kind)] = Pack(tuple(TypeName(_decayed(type_of_value(a), None)) for a in args[k:]))
            return
        if k >= len(args) or kind is None or isinstance(args[k], Pack):
            continue
        t = _decayed(type_of_value(args[k]), d)
        trial = dict(found)
        if r.types.fits_type(kind, d, t, every, trial, f.scope):
            found.update(trial)
        elif isinstance(t, Prim) or not _mentions(kind, every):
            continue
        else:
            for name, v in trial.items():
                found.setdefault(name, v)


def _mentions(kind: Node, names: Mapping[str, TParam]) -> bool:
    return any(word in names for word in text(kind).replace("<", " ").replace(">", " ").replace(",", " ").replace("::", " ").split())


def _decayed(t: CType, d: Node | None) -> CType:
    reference = False
    while d is not None and not reference:  # also inside: `T (&x)[N]`
        reference = "reference" in d.type
        d = d.child_by_field_name("declarator") or next((c for c in d.named_children if c.type.endswith("declarator")), None)
    return Ptr(t.of) if isinstance(t, Arr) and not reference else t


def _conversion_cost(r: Reading, v: Value, to: CType, reference: bool, p: Node) -> int | None:
    """0 for the same type, more for conversions, None where there is none."""
    if isinstance(v, Pack):  # a list in braces
        if isinstance(to, Named) and to.name == "initializer_list":
            return 1
        return 4 if isinstance(to, Rec) or (isinstance(to, Vec) and len(v.items) == to.n) or (isinstance(to, Prim) and len(v.items) <= 1) else None
    have = type_of_value(v)
    if isinstance(to, Auto) or have == to:
        return 0
    if isinstance(v, Members) and isinstance(to, Ptr) and to.to == v.type:  # `this`
        return 0
    if isinstance(v, Mapped):
        return 0 if to == TENSOR_MAP or (isinstance(to, Ptr) and to.to == TENSOR_MAP) else 2 if isinstance(to, Ptr) and to.to == VOID else None
    if isinstance(have, Arr) and isinstance(to, Ptr):
        return 0 if have.of == to.to or to.to == VOID else _same_bits(have.of, to.to)
    if isinstance(have, Named) or isinstance(to, Named):
        if isinstance(have, Named) and have.name == "nullptr_t" and isinstance(to, Ptr):
            return 1
        if isinstance(have, Named) and isinstance(to, Named):
            return 0 if to.name.split("::")[-1] == have.name.split("::")[-1] else None
        return 0 if isinstance(to, Named) and isinstance(have, Vec) and to.name == have.name else None
    match have, to:
        case Prim(), Prim():
            a, b = have.dtype, to.dtype
            if reference and not any(text(c) == "const" for c in p.children) and isinstance(v, Located):
                return None
            if a.is_float and b.is_float:
                return 1 if b.bits > a.bits else 3
            if not a.is_float and not b.is_float:
                return 1 if b.bits >= a.bits else 2
            return 3
        case Ptr(), Ptr():
            if have.to == to.to:
                return 0
            return 2 if to.to == VOID else None
        case Ptr(), Prim() if have.to == VOID and to.dtype.is_integer and to.dtype.bits >= 32:
            return 1  # an address that the program keeps in an integer
        case Ptr(), Prim():
            return 5 if to.dtype.is_bool else None
        case Vec(), Vec():
            return 0 if (have.dtype, have.n) == (to.dtype, to.n) else None
        case _, Rec():
            if isinstance(have, Rec) and any(b is to.instance for b in have.instance.bases):
                return 1
            if isinstance(have, Rec):
                return 4 if (not reference or any(text(c) == "const" for c in p.children)) and _is_made_of(r, v, to, p) else None
            return 4 if to.instance.constructors else None
        case Rec(), Prim():
            return 4 if any(k.startswith("operator ") for k in have.instance.scope.decls) else None
        case Prim(), Ptr():
            return 5 if isinstance(v, Scalar) and str(v.expr) and _is_zero(v) else None
        case _:
            return None


def _is_made_of(r: Reading, v: Value, to: Rec, node: Node) -> bool:
    """Whether a constructor that is not `explicit` makes an object of one of another class; only one such conversion is made of a value."""
    if r.converting:
        return False
    usable = tuple(f for f in to.instance.constructors if not any(c.type == "explicit_function_specifier" for c in f.node.children))
    r.converting = True
    try:
        return bool(usable) and _fitting(r, usable, None, [v], node) is not None
    finally:
        r.converting = False


def _is_zero(v: Scalar) -> bool:
    return constant(v) == 0


def _same_bits(a: CType, b: CType) -> int | None:
    return 0 if leaf(a) is not None and leaf(a) == leaf(b) else None
