"""What a translation unit declares, found by name: namespaces, functions, classes, aliases, constants. Bodies stay unread until used."""

from __future__ import annotations

from dataclasses import replace

from ..source.source import Node, Unit
from ..source.syntax import declared_name, function_declarator, initial_value, text
from ..types.errors import NotUnderstood
from .symbols import Alias, ClassTemplate, Enumerator, EnumType, Function, Scope, Specialization, TParam, Variable, parameters_of


def template_params(node: Node) -> tuple[TParam, ...]:
    """The parameters of a `template <..>`."""
    return listed_params(node.child_by_field_name("parameters"))


def listed_params(listed: Node | None) -> tuple[TParam, ...]:
    """Template parameters in their brackets."""
    out: list[TParam] = []
    for p in listed.named_children if listed is not None else ():
        match p.type:
            case "type_parameter_declaration" | "optional_type_parameter_declaration" | "variadic_type_parameter_declaration":
                name = p.child_by_field_name("name") or next((c for c in p.named_children if c.type == "type_identifier"), None)
                default = p.child_by_field_name("default_type")
                out.append(TParam(text(name) if name else f"#{len(out)}", "type", default, None, p.type.startswith("variadic")))
            case "parameter_declaration" | "optional_parameter_declaration" | "variadic_parameter_declaration":
                d = p.child_by_field_name("declarator")
                name = declared_name(d) if d is not None else None
                if d is not None and d.type == "variadic_declarator":
                    name = next((c for c in d.named_children if c.type == "identifier"), None)
                default = p.child_by_field_name("default_value")
                kind = p.child_by_field_name("type")
                out.append(TParam(text(name) if name else f"#{len(out)}", "value", default, kind, p.type.startswith("variadic"),
                                  d is not None and d.type == "function_declarator"))
            case "template_template_parameter_declaration":
                inner = next((c for c in p.named_children if c.type.endswith("type_parameter_declaration")), None)
                name = next((c for c in inner.named_children if c.type == "type_identifier"), None) if inner is not None else None
                out.append(TParam(text(name) if name else f"#{len(out)}", "template", inner.child_by_field_name("default_type") if inner is not None else None))
            case _:
                pass
    return tuple(out)


def _plain(words: str) -> str:
    return "".join(words.split())


def _kinds(node: Node) -> tuple[str, ...]:
    """The types of a function's parameters as words, without the class that a definition outside of it must name."""
    return tuple(_plain(text(p.child_by_field_name("type") or p)).rpartition(">::")[2] for p in parameters_of(function_declarator(node)))


class Index:
    """The declarations of a translation unit."""

    def __init__(self) -> None:
        self.root: Scope | None = None
        self.namespaces: dict[int, dict[str, Scope]] = {}
        self.functions: dict[str, list[Function]] = {}
        self.outside: dict[tuple[int, str], list[tuple[Node, Unit]]] = {}
        """Definitions of members that stand outside of their class, by the class (its node) and the member's name."""
        self._bodies: list[tuple[Node, Scope, Unit]] = []
        self._methods: dict[str, list[Function]] = {}
        self._kinds: dict[int, tuple[str, ...]] = {}
        self._waiting: list[tuple[Node, Node, Node, Scope, Unit]] = []
        """Such definitions in the order of the files, until one is asked for: a file that a class includes at its end comes before the class."""

    def add(self, unit: Unit) -> None:
        """Index a file."""
        if self.root is None:
            self.root = Scope(None, unit)
        self._block(unit.root, self.root, unit)

    def namespace(self, parent: Scope, name: str, unit: Unit) -> Scope:
        """A namespace, made when it is first opened."""
        known = self.namespaces.setdefault(id(parent), {})
        if name not in known:
            known[name] = Scope(parent, unit, name)
            if name:
                parent.declare(name, known[name])
            else:
                parent.using.append(known[name])
        return known[name]

    def _block(self, node: Node, scope: Scope, unit: Unit) -> None:
        for child in node.named_children:
            self.one(child, scope, unit, None)

    def one(self, node: Node, scope: Scope, unit: Unit, params: tuple[TParam, ...] | None) -> None:
        """Index one declaration."""
        match node.type:
            case "namespace_definition":
                name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
                inner = scope
                names = [] if name is None else [text(name)] if name.type != "nested_namespace_specifier" else text(name).split("::")
                for part in names or [""]:
                    inner = self.namespace(inner, part.strip().removeprefix("inline "), unit)
                if any(c.type == "inline" for c in node.children) and inner.parent is not None:
                    inner.parent.using.append(inner)
                if body is not None:
                    self._block(body, inner, unit)
            case "linkage_specification":
                body = node.child_by_field_name("body")
                if body is not None and body.type == "declaration_list":
                    self._block(body, scope, unit)
                elif body is not None:
                    self.one(body, scope, unit, params)
            case "template_declaration":
                listed = (*(params or ()), *template_params(node))
                for child in node.named_children:
                    if child.type not in ("template_parameter_list", "requires_clause"):
                        self.one(child, scope, unit, listed)
            case "function_definition":
                self._function(node, scope, unit, params)
            case "friend_declaration":
                for child in node.named_children:
                    if child.type == "function_definition":
                        self._function(child, scope, unit, params, friend=True)
            case "class_specifier" | "struct_specifier" | "union_specifier":
                self.a_class(node, scope, unit, params)
            case "declaration" | "field_declaration":
                self._declaration(node, scope, unit, params)
            case "alias_declaration":
                name, kind = node.child_by_field_name("name"), node.child_by_field_name("type")
                if name is not None and kind is not None:
                    scope.declare(text(name), Alias(text(name), params, kind, None, scope, unit))
            case "type_definition":
                self._typedef(node, scope, unit)
            case "enum_specifier":
                self.an_enum(node, scope, unit)
            case "using_declaration":
                self._using(node, scope)
            case "namespace_alias_definition":
                parts = list(node.named_children)
                if len(parts) == 2:
                    target = self.resolve_namespace(text(parts[1]), scope)
                    if target is not None:
                        scope.declare(text(parts[0]), target)
                    else:
                        scope.declare(text(parts[0]), text(parts[1]))
            case _:
                pass

    def _function(self, node: Node, scope: Scope, unit: Unit, params: tuple[TParam, ...] | None, friend: bool = False) -> None:
        try:
            declarator = function_declarator(node)
        except NotUnderstood:
            return
        cast = node.child_by_field_name("declarator")
        if cast is not None and cast.type == "operator_cast":
            scope.declare("operator <cast>", Function("operator <cast>", node, params, scope, unit))
            return
        name = declared_name(declarator)
        if name is None:
            return
        inner, shown = scope, name
        while shown.type == "qualified_identifier":
            left, right = shown.child_by_field_name("scope"), shown.child_by_field_name("name")
            if right is None:
                return
            if left is not None and left.type == "namespace_identifier":
                found = self.resolve_namespace(text(left), inner)
                if found is None:
                    self._waiting.append((node, left, right, inner, unit))
                    return
                inner = found
            elif left is not None:
                self._waiting.append((node, left, right, inner, unit))
                return
            shown = right
        arguments: tuple[Node, ...] | None = None
        if shown.type == "template_function":
            listed = shown.child_by_field_name("arguments")
            arguments = tuple(listed.named_children) if listed is not None else ()
            shown = shown.child_by_field_name("name") or shown
        words = {text(c) for c in node.children if c.type == "storage_class_specifier"}
        made = Function(text(shown), node, params, inner, unit, "__thread" in words, "static" in words, arguments=arguments, friend=friend)
        inner.declare(made.name, made)
        self.functions.setdefault(made.name, []).append(made)

    def _outside(self, node: Node, left: Node, right: Node, scope: Scope, unit: Unit) -> None:
        """`void C<..>::f(..) {..}`, kept for the class that the arguments name."""
        name = left.child_by_field_name("name") if left.type == "template_type" else left
        template = self.template_named(text(name), scope) if name is not None else None
        if template is None or right.type not in ("identifier", "field_identifier", "operator_name", "destructor_name"):
            return
        listed = left.child_by_field_name("arguments") if left.type == "template_type" else None
        words = [_plain(text(a)) for a in listed.named_children] if listed is not None else []
        special = next((s for s in template.special if [_plain(text(a)) for a in s.arguments] == words), None)
        owner = special.node if special is not None else template.node
        if owner is not None and (special is not None or words == [p.name for p in template.params]):
            self.outside.setdefault((owner.id, text(right)), []).append((node, unit))

    def defined(self, f: Function) -> Function | None:
        """A member that is declared in its class and defined outside of it, with its definition; None where there is none."""
        around: Node | None = f.node
        while around is not None and around.type not in ("class_specifier", "struct_specifier", "union_specifier"):
            around = around.parent
        if around is None:
            return None
        while self._waiting:
            self._outside(*self._waiting.pop(0))
        others = self.outside.get((around.id, f.name), ())
        wanted = self._kinds_of(f.node) if others else ()
        found = next(((node, unit) for node, unit in others if self._kinds_of(node) == wanted), None)
        return None if found is None else replace(f, node=found[0], unit=found[1])

    def _kinds_of(self, node: Node) -> tuple[str, ...]:
        """`_kinds`, found once for each function."""
        if node.id not in self._kinds:
            self._kinds[node.id] = _kinds(node)
        return self._kinds[node.id]

    def methods(self, name: str) -> list[Function]:
        """What classes declare under a name, whichever class it is: for what a call may change."""
        while self._bodies:
            body, scope, unit = self._bodies.pop()
            for c in body.named_children:
                while c.type == "template_declaration" and c.named_children:
                    c = c.named_children[-1]
                d: Node | None = c.child_by_field_name("declarator") if c.type in ("function_definition", "field_declaration", "declaration") else None
                while d is not None and d.type in ("reference_declarator", "pointer_declarator"):
                    d = next((x for x in d.named_children if x.type.endswith("declarator")), None)
                shown = declared_name(d) if d is not None and d.type == "function_declarator" else None
                if shown is not None:
                    self._methods.setdefault(text(shown), []).append(Function(text(shown), c, None, scope, unit))
        return self._methods.get(name, [])

    def a_class(self, node: Node, scope: Scope, unit: Unit, params: tuple[TParam, ...] | None) -> None:
        """A class, class template or specialization."""
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if body is not None:
            self._bodies.append((body, scope, unit))
        if name is None:
            return
        if name.type == "template_type":
            listed, base = name.child_by_field_name("arguments"), name.child_by_field_name("name")
            if base is None or listed is None or body is None:
                return
            template = self.template_named(text(base), scope)
            if template is not None:
                template.special.append(Specialization(params or (), tuple(listed.named_children), node, scope, unit))
            return
        if name.type == "qualified_identifier":
            return
        known = next((d for d in scope.decls.get(text(name), ()) if isinstance(d, ClassTemplate)), None)
        if known is None:
            scope.declare(text(name), ClassTemplate(text(name), params or (), node if body is not None else None, scope, unit))
        elif body is not None:
            defaults = {p.name: p.default for p in known.params}
            known.node, known.unit = node, unit
            known.params = tuple(
                TParam(p.name, p.kind, p.default or (list(defaults.values())[k] if k < len(defaults) else None), p.type, p.pack)
                for k, p in enumerate(params or ())
            )

    def template_named(self, name: str, scope: Scope) -> ClassTemplate | None:
        """The class template of a name in scope."""
        found = scope.find(name)
        if isinstance(found, list):
            return next((d for d in found if isinstance(d, ClassTemplate)), None)
        return None

    def _declaration(self, node: Node, scope: Scope, unit: Unit, params: tuple[TParam, ...] | None) -> None:
        kind = node.child_by_field_name("type")
        if kind is not None and kind.type in ("class_specifier", "struct_specifier", "union_specifier"):
            self.a_class(kind, scope, unit, params)
        if kind is not None and kind.type == "enum_specifier":
            self.an_enum(kind, scope, unit)
        for d in node.children_by_field_name("declarator"):
            init = initial_value(node, d)
            name = declared_name(d)
            if name is None or name.type not in ("identifier", "field_identifier", "template_function", "operator_name"):
                continue
            inner = d.child_by_field_name("declarator") if d.type == "init_declarator" else d
            while inner is not None and inner.type in ("reference_declarator", "pointer_declarator"):
                inner = next((c for c in inner.named_children if c.type.endswith("declarator")), None)
            if inner is not None and inner.type == "function_declarator":
                words = {text(c) for c in node.children if c.type == "storage_class_specifier"}
                scope.declare(text(name), Function(text(name), node, params, scope, unit, "__thread" in words))
                continue
            scope.declare(text(name), Variable(text(name), node, d, init, scope, unit, params))

    def _typedef(self, node: Node, scope: Scope, unit: Unit) -> None:
        kind = node.child_by_field_name("type")
        if kind is None:
            return
        body = kind.child_by_field_name("body")
        for d in node.children_by_field_name("declarator"):
            name = declared_name(d)
            if name is None:
                continue
            if body is not None and kind.type in ("struct_specifier", "class_specifier", "union_specifier"):
                if kind.child_by_field_name("name") is not None:
                    self.a_class(kind, scope, unit, None)
                else:
                    scope.declare(text(name), ClassTemplate(text(name), (), kind, scope, unit))
                    continue
            if body is not None and kind.type == "enum_specifier":
                self.an_enum(kind, scope, unit)
                scope.declare(text(name), EnumType(text(name), None, scope))
                continue
            scope.declare(text(name), Alias(text(name), None, kind, d, scope, unit))

    def an_enum(self, node: Node, scope: Scope, unit: Unit) -> None:
        """An enumeration: its values stand in the scope around too, unless it is a class."""
        name, body, base = node.child_by_field_name("name"), node.child_by_field_name("body"), node.child_by_field_name("base")
        inner = Scope(scope, unit, text(name) if name is not None else "")
        if name is not None:
            scope.declare(text(name), EnumType(text(name), base, inner))
        scoped = any(c.type in ("class", "struct") for c in node.children)
        last: Enumerator | None = None
        for e in body.named_children if body is not None else ():
            if e.type != "enumerator":
                continue
            label = e.child_by_field_name("name")
            last = Enumerator(e.child_by_field_name("value"), last, scope)
            if label is not None:
                inner.declare(text(label), last)
                if not scoped:
                    scope.declare(text(label), last)

    def _using(self, node: Node, scope: Scope) -> None:
        words = [text(c) for c in node.children]
        target = node.named_children[0] if node.named_children else None
        if target is None:
            return
        if "namespace" in words:
            found = self.resolve_namespace(text(target), scope)
            if found is not None:
                scope.using.append(found)
            return
        *path, last = text(target).split("::")
        found = self.resolve_namespace("::".join(path), scope) if path else None
        if found is not None and last in found.decls:
            for d in found.decls[last]:
                scope.declare(last, d)
        elif path in (["std"], [""], ["", "std"]):
            scope.borrowed.add(last)

    def every_namespace(self) -> list[Scope]:
        """All namespaces that have names."""
        return [s for known in self.namespaces.values() for s in known.values()]

    def resolve_namespace(self, name: str, scope: Scope) -> Scope | None:
        """A namespace by its (qualified) name, seen from a scope."""
        parts = [p.strip() for p in name.split("::") if p.strip()]
        if not parts:
            return self.root
        found: object = scope.find(parts[0])
        for k, _ in enumerate(parts):
            inner = next((d for d in found if isinstance(d, Scope)), None) if isinstance(found, list) else None
            if inner is None:
                return None
            if k + 1 == len(parts):
                return inner
            found = inner.own(parts[k + 1])
        return None
