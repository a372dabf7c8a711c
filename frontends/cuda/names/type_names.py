"""Type names and declarators of the source as types; templates instantiated, and their arguments deduced."""

from __future__ import annotations

from functools import partial

from kir.ir import nodes as n

from ..intrinsics import cuda_calls
from ..source.source import Node
from ..source.syntax import text
from ..symbols.classes import Rec
from ..symbols.symbols import Alias, Bindings, ClassTemplate, EnumType, Function, Scope, Specialization, TParam, Value, Variable
from ..types.c_types import AUTO, Arr, CType, Named, Prim, Ptr, named_type
from ..types.errors import Incomplete, NotUnderstood
from ..values.conversions import convert
from ..values.loads import rvalue
from ..values.reading import Reading
from ..values.values import Builtin, Lambda, Members, Overloads, Pack, Pointer, Scalar, TypeName, constant, integer
from .class_instances import instantiate
from .lookup import named_value, of_declarations, scope_of, seen_from

MAX_NESTING = 128
"""How deep templates may instantiate one another (a recursion without end is refused)."""


class Types:
    """Reads types for a `Reading`."""

    def __init__(self, r: Reading) -> None:
        self.r = r
        self.depth = 0

    # -------------------------------------------------------------------------------------------------------------- type names
    def base_type(self, node: Node, scope: Scope) -> CType:
        """The type that a type specifier names."""
        match node.type:
            case "primitive_type" | "sized_type_specifier" | "type_identifier" | "identifier" | "namespace_identifier":
                return self.named(text(node), scope, node)
            case "template_type" | "template_function":
                name, listed = node.child_by_field_name("name"), node.child_by_field_name("arguments")
                if name is None or listed is None:
                    raise NotUnderstood(f"the type {text(node)}", node)
                return self.of_template(text(name), self.arguments(listed, scope), scope, node)
            case "qualified_identifier":
                return self.qualified(node, scope)
            case "type_descriptor":
                kind, d = node.child_by_field_name("type"), node.child_by_field_name("declarator")
                if kind is None:
                    raise NotUnderstood(f"the type {text(node)}", node)
                return self.shaped(self.base_type(kind, scope), d, scope, *_qualifiers(node))[0]
            case "placeholder_type_specifier" | "auto":
                return AUTO
            case "dependent_type" | "dependent_name":
                return self.base_type(node.named_children[0], scope)
            case "struct_specifier" | "class_specifier" | "enum_specifier" | "union_specifier":
                name = node.child_by_field_name("name")
                if name is not None:
                    return self.base_type(name, scope)
                if node.type in ("struct_specifier", "union_specifier", "class_specifier"):
                    made = ClassTemplate("(anonymous)", (), node, scope, scope.unit)
                    return instantiate(self.r, made, node, scope, {}, ())
                return self.named("int", scope, node)
            case "decltype":
                inner = node.named_children[0]
                if inner.type == "auto":
                    return AUTO
                return self.r.type_of(inner, scope)
            case _:
                raise NotUnderstood(f"the type {text(node)[:60]}", node)

    def named(self, name: str, scope: Scope, node: Node) -> CType:
        """A type by its plain name."""
        found = scope.find(name)
        if isinstance(found, TypeName):
            return found.type
        if isinstance(found, list):
            for d in found:
                made = self.declared_as_type(d, scope)
                if made is not None:
                    return made
        known = named_type(name) or self.r.library.type(name, ())
        if known is not None:
            return known
        if len(plain := [w for w in name.split() if w not in ("const", "volatile")]) < len(name.split()):
            return self.named(" ".join(plain), scope, node)
        words = " ".join(sorted(name.split(), key=lambda w: w != "unsigned"))
        known = named_type(words)
        if known is not None:
            return known
        raise NotUnderstood(f"the type '{name}', which is not declared{self.r.missing_note()}", node)

    def declared_as_type(self, d: object, scope: Scope) -> CType | None:
        """The type that a declaration without arguments names."""
        match d:
            case ClassTemplate():
                return self.of_class(d, (), scope) if all(p.default is not None or p.pack for p in d.params) else None
            case Alias() if not d.params:
                return self.shaped(self.base_type(d.type, d.scope), d.declarator, d.scope, False)[0]
            case EnumType():
                return self.base_type(d.base, d.scope) if d.base is not None else named_type("int")
            case _:
                return None

    def qualified(self, node: Node, scope: Scope) -> CType:
        """`a::b`."""
        name = node.child_by_field_name("name")
        if name is None:
            raise NotUnderstood(f"the type {text(node)}", node)
        inner = scope_of(self.r, node, scope)
        if isinstance(inner, Scope):
            if name.type in ("qualified_identifier",):
                return self.qualified(name, seen_from(scope, inner))
            if name.type == "template_type":
                base, listed = name.child_by_field_name("name"), name.child_by_field_name("arguments")
                assert base is not None and listed is not None
                return self.of_template(text(base), self.arguments(listed, scope), inner, node, own=True)
            found = inner.own(text(name))
            if isinstance(found, TypeName):
                return found.type
            for d in found if isinstance(found, list) else ():
                made = self.declared_as_type(d, inner)
                if made is not None:
                    return made
            try:  # a namespace that a file adds to may be the library's
                return self.r.library.qualified_type(node, scope)
            except NotUnderstood:
                raise NotUnderstood(f"the type {text(node)}, which is not declared", node) from None
        return self.r.library.qualified_type(node, scope)

    def of_template(self, name: str, args: tuple[Value, ...], scope: Scope, node: Node, own: bool = False) -> CType:
        """A class or alias template under arguments."""
        found = scope.own(name) if own else scope.find(name)
        if isinstance(found, Overloads) and not found.functions and (whole := self.stood_for(found.name, args, scope, node)) is not None:
            return whole
        if isinstance(found, TypeName) and isinstance(found.type, Rec) and found.type.instance.template.name == name:
            return self.of_class(found.type.instance.template, args, scope)
        for d in found if isinstance(found, list) else ():
            if isinstance(d, ClassTemplate):
                return self.of_class(d, args, scope)
            if isinstance(d, Alias) and d.params is not None:
                inner = d.scope.inner(**self.bound(d.params, args, d.scope, node))
                return self.shaped(self.base_type(d.type, inner), d.declarator, inner, False)[0]
        known = self.r.library.type(name, args)
        if known is not None:
            return known
        if isinstance(found, TypeName):
            return found.type
        raise NotUnderstood(f"the template '{name}', which is not declared{self.r.missing_note()}", node)

    def stood_for(self, name: str, args: tuple[Value, ...], scope: Scope, node: Node) -> CType | None:
        """A class or alias template that a template's parameter stands for, under arguments; None where none of that name is declared around."""
        at = next((at for at in scope.around() if isinstance(d := at.own(name), list) and any(isinstance(x, (ClassTemplate, Alias)) for x in d)), None)
        return None if at is None else self.of_template(name, args, at, node, own=True)

    def arguments(self, listed: Node, scope: Scope) -> tuple[Value, ...]:
        """Template arguments."""
        out: list[Value] = []
        for a in listed.named_children:
            if a.type == "comment":
                continue
            if a.type == "parameter_pack_expansion":
                inner = self.r.value(a.named_children[0], scope) if a.named_children[0].type != "type_descriptor" else self.argument(
                    a.named_children[0], scope)
                out += inner.items if isinstance(inner, Pack) else (inner,)
                continue
            made = self.argument(a, scope)
            out += made.items if isinstance(made, Pack) else (made,)
        return tuple(out)

    def argument(self, a: Node, scope: Scope) -> Value:
        """One template argument: a type, or a value known at compile time."""
        if a.type == "type_descriptor" and a.child_by_field_name("declarator") is None:
            kind = a.child_by_field_name("type")
            if kind is not None and kind.type in ("type_identifier", "qualified_identifier"):
                found = scope.find(text(kind)) if kind.type == "type_identifier" else named_value(self.r, kind, scope)
                if isinstance(found, (Scalar, Pack, Overloads, Builtin)):
                    return found
                if isinstance(found, list) and not any(isinstance(d, (ClassTemplate, Alias, EnumType)) for d in found):
                    return rvalue(self.r, of_declarations(self.r, found, text(kind), kind))
                if isinstance(found, list) and any(isinstance(d, ClassTemplate) and d.params for d in found) and not _has_arguments(kind):
                    return Overloads((), (), None, text(kind))
                if found is None and kind.type == "type_identifier" and cuda_calls.known(text(kind)):
                    return Builtin(text(kind))
        if a.type == "type_descriptor":
            kind = a.child_by_field_name("type")
            name = kind.child_by_field_name("name") if kind is not None and kind.type == "template_type" else None
            found = scope.find(text(name)) if name is not None else None
            if isinstance(found, list) and found and all(isinstance(d, Function) for d in found) and kind is not None and name is not None:
                listed = kind.child_by_field_name("arguments")
                given = self.arguments(listed, scope) if listed is not None else ()
                return Overloads(tuple(d for d in found if isinstance(d, Function)), given, None, text(name))
            if isinstance(found, list) and found and all(isinstance(d, Variable) for d in found) and kind is not None and name is not None:
                listed = kind.child_by_field_name("arguments")
                return rvalue(self.r, of_declarations(self.r, found, text(name), kind, self.arguments(listed, scope) if listed is not None else ()))
            try:
                return TypeName(self.base_type(a, scope))
            except Incomplete as bad:
                return TypeName(Named(f"{bad.name}, which is only declared", bad.what))
        return rvalue(self.r, self.r.value(a, scope))

    # --------------------------------------------------------------------------------------------------------------- templates
    def bound(self, params: tuple[TParam, ...], args: tuple[Value, ...], scope: Scope, node: Node, known: Bindings | None = None) -> Bindings:
        """Template parameters with their arguments, deduced values and defaults."""
        out: Bindings = dict(known or {})
        inner = scope.inner()
        inner.values = out
        rest = list(args)
        for p in params:
            if p.pack:
                if rest or p.name not in out:
                    out[p.name] = Pack(tuple(rest))
                rest = []
            elif rest:
                out[p.name] = self.fitted(p, rest.pop(0), inner)
            elif p.name in out:
                continue
            elif p.default is not None:
                made = Overloads((), (), None, text(p.default)) if p.kind == "template" else TypeName(self.base_type(p.default, inner)) if (
                    p.kind == "type") else rvalue(self.r, self.r.value(p.default, inner))
                out[p.name] = self.fitted(p, made, inner)
            else:
                raise NotUnderstood(f"no argument for the template parameter '{p.name}'", node)
        if rest:
            raise NotUnderstood(f"{len(args)} template arguments for {len(params)} parameters", node)
        return out

    def fitted(self, p: TParam, v: Value, scope: Scope) -> Value:
        """An argument converted to the type of its parameter."""
        if p.kind == "value" and p.type is not None and isinstance(v, Scalar):
            kind = self.base_type(p.type, scope)
            if isinstance(kind, Prim):
                return convert(self.r, v, kind)
        if p.kind == "type" and not isinstance(v, TypeName):
            raise NotUnderstood(f"the template parameter '{p.name}' is a type")
        return v

    def of_class(self, t: ClassTemplate, args: tuple[Value, ...], scope: Scope) -> CType:
        """A class under arguments: the specialization that fits best."""
        if not t.params:
            known = named_type(t.name) if t.node is None or t.node.child_by_field_name("body") is None else None
            return known if known is not None else self.instance(t, t.node, t.scope, {}, ())  # `struct __half;` declares the library's
        key = (len(t.special), *map(argument_key, args))
        if key in t.chosen:
            return t.chosen[key]
        made = self._fitting(t, args, scope)
        if self.depth == 0:  # and is whole: none of those that wait for one another
            t.chosen[key] = made
        return made

    def _fitting(self, t: ClassTemplate, args: tuple[Value, ...], scope: Scope) -> CType:
        values = self.bound(t.params, args, t.scope, t.node or scope.unit.root)
        full: list[Value] = []
        for p in t.params:
            v = values[p.name]
            full += v.items if isinstance(v, Pack) else [v]
        best: tuple[int, Specialization, Bindings] | None = None
        for s in t.special:
            found = self.match(s, tuple(full))
            if found is not None and (best is None or len(s.params) < best[0]):
                best = (len(s.params), s, found)
        if best is not None:
            return self.instance(t, best[1].node, best[1].scope, best[2], tuple(full))
        return self.instance(t, t.node, t.scope, values, tuple(full))

    def instance(self, t: ClassTemplate, node: Node | None, scope: Scope, values: Bindings, args: tuple[Value, ...]) -> CType:
        """The instance, made once."""
        key = (node.id if node is not None else 0, tuple(argument_key(a) for a in args))
        if key not in t.instances:
            if self.depth >= MAX_NESTING:
                raise NotUnderstood(f"the template '{t.name}' instantiates itself without end")
            self.depth += 1
            try:
                made = instantiate(self.r, t, node, scope, dict(values), tuple(argument_key(a)[1] for a in args), partial(t.instances.__setitem__, key))
                t.instances[key] = made
            except NotUnderstood:
                t.instances.pop(key, None)
                raise
            finally:
                self.depth -= 1
        return t.instances[key]

    def match(self, s: Specialization, args: tuple[Value, ...]) -> Bindings | None:
        """Bindings under which a specialization's arguments are the given ones."""
        if len(s.arguments) != len(args):
            return None
        found: Bindings = {}
        names = {p.name: p for p in s.params}
        for pattern, given in zip(s.arguments, args, strict=True):
            if not self.fits(pattern, given, names, found, s.scope):
                return None
        return found if all(p.name in found for p in s.params) else None

    def fits(self, pattern: Node, given: Value, names: dict[str, TParam], found: Bindings, scope: Scope) -> bool:
        """Whether a template argument has the form of a pattern; parameters are bound in `found`."""
        if isinstance(given, TypeName):
            return self.fits_type(pattern, None, given.type, names, found, scope)
        if text(pattern) in names:
            return _bind(found, text(pattern), given)
        try:
            want = self.argument(pattern, scope)
        except NotUnderstood:
            return False
        if constant(want) is not None and constant(given) is not None:
            return constant(want) == constant(given)
        return argument_key(want) == argument_key(given)

    def fits_type(self, node: Node, d: Node | None, t: CType, names: dict[str, TParam], found: Bindings, scope: Scope) -> bool:
        """Whether a type has the form of a type specifier with a declarator; parameters in it are bound in `found`."""
        while d is not None and d.type not in ("identifier", "field_identifier"):
            inner = _inner(d)
            if d.type in ("pointer_declarator", "abstract_pointer_declarator"):
                return self._under_pointers(node, d, t, names, found, scope)
            if d.type in _ARRAYS:
                sizes = [d.child_by_field_name("size")]
                while inner is not None and inner.type in _ARRAYS:
                    sizes.append(inner.child_by_field_name("size"))
                    inner = _inner(inner)
                for size in reversed(sizes):  # what stands nearest to the name is outermost
                    if isinstance(t, Arr):
                        if size is not None and text(size) in names and not _bind(found, text(size), integer(t.n)):
                            return False
                        t = t.of
                    elif isinstance(t, Ptr):
                        t = t.to
                    else:
                        return False
            d = inner
        match node.type:
            case "type_descriptor":
                kind = node.child_by_field_name("type")
                return kind is not None and self.fits_type(kind, node.child_by_field_name("declarator"), t, names, found, scope)
            case "type_identifier" | "identifier" if text(node) in names:
                return _bind(found, text(node), TypeName(t))
            case "template_type" | "template_function" if isinstance(t, Rec | Named):
                return self._fits_template(node, t, names, found, scope)
            case "qualified_identifier" if isinstance(t, Rec | Named) and (name := node.child_by_field_name("name")) is not None and (
                    name.type == "template_type"):
                inner_scope = scope_of(self.r, node, scope) if isinstance(t, Rec) else None
                return self._fits_template(name, t, names, found, inner_scope.inner(**found) if isinstance(inner_scope, Scope) else scope)
            case "placeholder_type_specifier":
                return True
            case _:
                inner_scope = scope.inner(**found)
                try:
                    return bool(self.base_type(node, inner_scope) == t)
                except NotUnderstood:
                    return False

    def _under_pointers(self, node: Node, d: Node, t: CType, names: dict[str, TParam], found: Bindings, scope: Scope) -> bool:
        inner = d.child_by_field_name("declarator") or next((c for c in d.named_children if c.type.endswith("declarator")), None)
        if isinstance(t, Ptr):
            return self.fits_type(node, inner, t.to, names, found, scope)
        return isinstance(t, Arr) and self.fits_type(node, inner, t.of, names, found, scope)

    def _fits_template(self, node: Node, t: CType, names: dict[str, TParam], found: Bindings, scope: Scope) -> bool:
        name, listed = node.child_by_field_name("name"), node.child_by_field_name("arguments")
        if isinstance(t, Named) and name is not None and listed is not None and t.name.endswith(text(name)):
            pairs = zip(listed.named_children, t.args, strict=False)
            return all(self.fits(p, a, names, found, scope) for p, a in pairs)  # type: ignore[arg-type]  # arguments are values
        if not isinstance(t, Rec) or name is None or listed is None:
            return False
        instance = t.instance
        if instance.template.name != text(name):
            alias = self._alias(node, scope)
            if alias is not None:
                return self._fits_alias(alias, listed, t, names, found, scope)
            return any(self._fits_template(node, Rec(b), names, found, scope) for b in instance.bases)
        given = [instance_argument(a) for a in instance.arguments]
        patterns = listed.named_children
        if patterns and patterns[-1].type == "parameter_pack_expansion":
            pack = text(patterns[-1].named_children[0])
            head = patterns[:-1]
            found[pack] = Pack(tuple(given[len(head) :]))
            return all(self.fits(p, a, names, found, scope) for p, a in zip(head, given, strict=False))
        return len(patterns) <= len(given) and all(self.fits(p, a, names, found, scope) for p, a in zip(patterns, given, strict=False))

    def _alias(self, node: Node, scope: Scope) -> Alias | None:
        """The alias template that a type names."""
        name = node.child_by_field_name("name")
        declared = scope.find(text(name)) if name is not None else None
        return next((d for d in declared if isinstance(d, Alias) and d.params), None) if isinstance(declared, list) else None

    def _fits_alias(self, alias: Alias, listed: Node, t: Rec, names: dict[str, TParam], found: Bindings, scope: Scope) -> bool:
        """Whether a class is what an alias template stands for, under arguments of that form; those that the class does not tell are not looked at."""
        own: Bindings = {}
        if not self.fits_type(alias.type, alias.declarator, t, {p.name: p for p in alias.params or ()}, own, alias.scope):
            return False
        pairs = zip(alias.params or (), listed.named_children, strict=False)
        return all(self.fits(a, own[p.name], names, found, scope) for p, a in pairs if p.name in own)

    # -------------------------------------------------------------------------------------------------------------- declarators
    def shaped(self, t: CType, d: Node | None, scope: Scope, const: bool, volatile: bool = False) -> tuple[CType, bool]:
        """A type under a declarator, and whether it is a reference."""
        reference = False
        while d is not None and d.type not in ("identifier", "field_identifier", "type_identifier"):
            match d.type:
                case "pointer_declarator" | "abstract_pointer_declarator" | "pointer_type_declarator":
                    t = t if t == Named("function") or t == AUTO else Ptr(t, const, volatile)
                    const = volatile = False
                case "reference_declarator" | "abstract_reference_declarator":
                    reference = True
                case "array_declarator" | "abstract_array_declarator" | "array_type_declarator":
                    size = d.child_by_field_name("size")
                    if size is None:
                        t = Arr(t, 0)
                    else:
                        value = constant(rvalue(self.r, self.r.value(size, scope)))
                        if value is None:
                            raise NotUnderstood(f"an array whose size {text(size)} is not known when it is compiled", d)
                        t = Arr(t, value)
                case "function_declarator" | "abstract_function_declarator":
                    t = Named("function")
                case _:
                    pass
            d = d.child_by_field_name("declarator") or next((c for c in d.named_children if c.type.endswith("declarator") or c.type in (
                "identifier", "field_identifier")), None)
        return t, reference

    def declared_type(self, node: Node, d: Node | None, scope: Scope) -> tuple[CType, bool]:
        """The type of a declarator of a declaration or parameter, and whether it is a reference."""
        kind = node.child_by_field_name("type")
        if kind is None:
            raise NotUnderstood("a declaration without a type", node)
        if d is not None and d.type == "init_declarator":
            d = d.child_by_field_name("declarator")
        t, reference = self.shaped(self.base_type(kind, scope), d, scope, *_qualifiers(node))
        if isinstance(t, Arr) and not reference and node.type in ("parameter_declaration", "optional_parameter_declaration"):
            t = Ptr(t.of)  # as C++ takes it ([dcl.fct])
        return t, reference

    def constant_text(self, node: Node, scope: Scope) -> int | None:
        """The number in `alignas(16)`, None when there is none."""
        for c in node.named_children:
            if c.type == "alignas_qualifier":
                return self.constant_text(c, scope)
            try:
                found = constant(rvalue(self.r, self.r.value(c, scope)))
            except NotUnderstood:
                continue
            if found is not None:
                return found
        return None


_ARRAYS = ("array_declarator", "abstract_array_declarator")


def _inner(d: Node) -> Node | None:
    """The declarator within another one."""
    return d.child_by_field_name("declarator") or next((c for c in d.named_children if c.type.endswith("declarator") or c.type == "identifier"), None)


def _qualifiers(node: Node) -> tuple[bool, bool]:
    """Whether a declaration says `const` (or `constexpr`) of its type, and whether it says `volatile`."""
    words = {text(c) for c in node.children if c.type == "type_qualifier"}
    return bool(words & {"const", "constexpr"}), "volatile" in words


def instance_argument(a: object) -> Value:
    """A template argument of an instance, as a value."""
    if isinstance(a, n.Expr):
        return Scalar(a)
    if isinstance(a, int):
        return integer(a)
    return TypeName(a)  # type: ignore[arg-type]  # a type


def argument_key(v: Value) -> tuple[str, object]:
    """What makes template arguments the same."""
    match v:
        case TypeName():
            return "type", v.type
        case Scalar():
            value = constant(v)
            return "value", v.expr if value is None else value
        case Overloads():
            return "function", (v.name, *(argument_key(a) for a in v.args or ()))
        case Members():
            return "object", id(v)
        case Pointer():
            return "pointer", id(v.place.store)
        case Builtin():
            return "function", (v.name, *(argument_key(a) for a in v.args or ()))
        case Lambda():
            return "lambda", v.node.id
        case Pack():
            return "pack", tuple(argument_key(a) for a in v.items)
        case _:
            return type(v).__name__, id(v)


def _has_arguments(name: Node) -> bool:
    """Whether what stands last in a name is a template with its arguments."""
    last = name
    while last.type == "qualified_identifier" and (inner := last.child_by_field_name("name")) is not None:
        last = inner
    return last.type in ("template_type", "template_function")


def _bind(found: Bindings, name: str, v: Value) -> bool:
    if name in found and argument_key(found[name]) != argument_key(v):
        a, b = found[name], v
        return isinstance(a, Scalar) and isinstance(b, Scalar) and constant(a) == constant(b) is not None
    found[name] = v
    return True

