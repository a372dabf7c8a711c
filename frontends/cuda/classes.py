"""Instances of classes: members, methods and layout under template arguments."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from kir.dataclass import dataclass
from kir.ir.types import DType

from .c_types import CType, Ptr, Rec, align_of, leaf, size_of
from .declared import ClassTemplate, Decl, Function, Scope, Variable, text
from .errors import NotUnderstood
from .source import Node

if TYPE_CHECKING:
    from .reader import Reader


@dataclass(frozen=True)
class Layout:
    """Size and alignment in bytes, offsets of members, and (dtype, count) where the class is numbers of one dtype without gaps."""

    size: int
    align: int
    offsets: dict[str, int]
    leaf: tuple[DType, int] | None


@dataclass
class Member:
    """A data member."""

    name: str
    type: CType
    init: Node | None
    reference: bool = False


@dataclass(frozen=True)
class Conversion:
    """`operator T()`."""

    function: Function
    result: Node


@dataclass(eq=False)
class ClassInstance:
    """A class under arguments. `scope` holds its template bindings and what it declares."""

    name: str
    template: ClassTemplate
    node: Node
    scope: Scope
    reader: Reader
    arguments: tuple[object, ...] = ()
    _members: list[Member] | None = None
    _layout: Layout | None = None
    bases: list[ClassInstance] = field(default_factory=list)

    def member(self, name: str) -> list[Decl] | None:
        """Static members, methods and types of this name, of the class or a base; a data member is found through an object."""
        found = [d for d in self.scope.decls.get(name, ()) if not (isinstance(d, Variable) and not is_static(d))]
        if found:
            return found
        for b in self.bases:
            if (inner := b.scope.own(name)) is not None and isinstance(inner, list):
                return inner
        return None

    def methods(self, name: str) -> list[Function]:
        """Methods of a name, of the class or else of its bases."""
        found = [d for d in self.scope.decls.get(name, ()) if isinstance(d, Function)]
        for b in self.bases:
            if found:
                break
            found = b.methods(name)
        return found

    def conversions(self) -> list[Conversion]:
        """Conversion operators."""
        out = []
        for d in self.scope.decls.get("operator <cast>", ()):
            if isinstance(d, Function):
                cast = d.node.child_by_field_name("declarator")
                result = cast.child_by_field_name("type") if cast is not None else None
                if result is not None:
                    out.append(Conversion(d, result))
        return out

    @property
    def constructors(self) -> list[Function]:
        return [d for d in self.scope.decls.get(self.template.name, ()) if isinstance(d, Function)]

    def members(self) -> list[Member]:
        """Data members in order, those of bases first."""
        if self._members is None:
            out = [m for b in self.bases for m in b.members()]
            for name, decls in self.scope.decls.items():
                for d in decls:
                    if isinstance(d, Variable) and not is_static(d):
                        kind, reference = self.reader.types.declared_type(d.node, d.declarator, self.scope)
                        out.append(Member(name, kind, d.init, reference))
            self._members = out
        return self._members

    def layout(self) -> Layout:
        """Where members stand."""
        if self._layout is None:
            at, align, offsets = 0, 1, {}
            leaves: list[tuple[DType, int] | None] = []
            union = self.node.type == "union_specifier"
            for m in self.members():
                step = align_of(m.type)
                align = max(align, step)
                size = 8 if isinstance(m.type, Ptr) or m.reference else size_of(m.type)
                if union:
                    offsets[m.name] = 0
                    at = max(at, size)
                else:
                    at = -(-at // step) * step
                    offsets[m.name] = at
                    at += size
                leaves.append(None if m.reference else leaf(m.type))
            align = max(align, self._declared_align())
            total = max(1, -(-at // align) * align)
            one: tuple[DType, int] | None = None
            known = [x for x in leaves if x is not None]
            if known and len(known) == len(leaves):
                dtypes = {d for d, _ in known}
                if len(dtypes) == 1 and sum(c for _, c in known) * known[0][0].bytes == total and not union:
                    one = (known[0][0], total // known[0][0].bytes)
                elif union and all(c * d.bytes == total for d, c in known):
                    one = known[0]
            self._layout = Layout(total, align, offsets, one)
        return self._layout

    def _declared_align(self) -> int:
        for c in self.node.children:
            if c.type in ("alignas_qualifier", "type_qualifier"):
                value = self.reader.constant_text(c, self.scope)
                if value:
                    return value
        return 1


def is_static(d: Variable) -> bool:
    """Whether a member belongs to the class and not to its objects."""
    words = {text(c) for c in d.node.children if c.type in ("storage_class_specifier", "type_qualifier")}
    return "static" in words


def instantiate(reader: Reader, t: ClassTemplate, node: Node | None, parent: Scope, values: dict[str, object], arguments: tuple[object, ...]) -> Rec:
    """The class under template bindings."""
    if node is None:
        raise NotUnderstood(f"the class '{t.name}', which is only declared")
    scope = Scope(parent, t.unit, t.name, values=dict(values))  # type: ignore[arg-type]  # bindings are values
    shown = f"{t.name}<{', '.join(map(str, arguments))}>" if arguments else t.name
    made = ClassInstance(shown, t, node, scope, reader, arguments)
    scope.instance = made
    rec = Rec(made)
    from .values import TypeName

    scope.values[t.name] = TypeName(rec)
    for c in node.children:
        if c.type == "base_class_clause":
            for b in c.named_children:
                if b.type in ("type_identifier", "template_type", "qualified_identifier"):
                    base = reader.types.base_type(b, scope)
                    if not isinstance(base, Rec):
                        raise NotUnderstood(f"the base class {text(b)}", b)
                    made.bases.append(base.instance)
    body = node.child_by_field_name("body")
    if body is None:
        raise NotUnderstood(f"the class '{t.name}', which is only declared", node)
    for child in body.named_children:
        reader.index.one(child, scope, t.unit, None)
    for decls in scope.decls.values():
        for d in decls:
            if isinstance(d, Function):
                d.owner = made
    constructors = scope.decls.get(t.name, [])
    scope.decls[t.name] = [d for d in constructors if isinstance(d, Function)]
    return rec
