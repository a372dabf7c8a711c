"""Classes under template arguments: members, methods and layout; sizes of types, which know them."""

from __future__ import annotations

from dataclasses import field
from typing import Protocol

from kir.base.dataclass import dataclass
from kir.ir.types import U8, U16, U32, U64, DType

from ..source.source import Node
from ..source.syntax import text
from ..types.c_types import Arr, CType, Named, Prim, Ptr, Vec
from ..types.errors import NotUnderstood
from .symbols import ClassTemplate, Decl, Function, Scope, Variable


class MemberTypes(Protocol):
    """What an instance asks of the reading of types."""

    def declared_type(self, node: Node, d: Node | None, scope: Scope) -> tuple[CType, bool]:
        """The type of a declarator of a declaration, and whether it is a reference."""
        ...

    def constant_text(self, node: Node, scope: Scope) -> int | None:
        """The number in `alignas(16)`, None when there is none."""
        ...


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
class Together:
    """Members of a union or struct without a name inside a class, by their names; `overlaid`: a union, all of which begins at one place."""

    overlaid: bool
    parts: tuple[Together | str, ...]

    def names(self) -> list[str]:
        """All of them."""
        return [name for p in self.parts for name in (p.names() if isinstance(p, Together) else [p])]


@dataclass(frozen=True)
class Conversion:
    """`operator T()`; `pointer` says that it is `operator T*()`."""

    function: Function
    result: Node
    pointer: bool = False


@dataclass(eq=False)
class ClassInstance:
    """A class under arguments. `scope` holds its template bindings and what it declares."""

    name: str
    template: ClassTemplate
    node: Node
    scope: Scope
    types: MemberTypes
    arguments: tuple[object, ...] = ()
    _members: list[Member] | None = None
    _layout: Layout | None = None
    bases: list[ClassInstance] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    """Further names of members."""
    together: list[Together] = field(default_factory=list)

    def member(self, name: str) -> list[Decl] | None:
        """Static members, methods and types of this name, of the class or a base; a data member is found through an object."""
        found = [d for d in self.scope.decls.get(name, ()) if not (isinstance(d, Variable) and not is_static(d))]
        if found:
            return found
        for b in self.bases:
            if (inner := b.scope.own(name)) is not None and isinstance(inner, list):
                return inner
        return None

    def is_a(self, other: ClassInstance) -> bool:
        """Whether it is another class, or derives from it."""
        return self is other or any(b.is_a(other) for b in self.bases)

    def methods(self, name: str) -> list[Function]:
        """Methods of a name, of the class or else of its bases."""
        found = [d for d in self.scope.decls.get(name, ()) if isinstance(d, Function) and not d.friend]
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
                inner = cast.child_by_field_name("declarator") if cast is not None else None
                if result is not None:
                    out.append(Conversion(d, result, inner is not None and inner.type == "abstract_pointer_declarator"))
        return out

    @property
    def constructors(self) -> list[Function]:
        return [d for d in self.scope.decls.get(self.template.name, ()) if isinstance(d, Function)]

    def begins(self) -> bool:
        """Whether an object that is given no value still begins with one somewhere: by a constructor, or by the initializer of a member."""
        return bool(self.constructors) or any(b.begins() for b in self.bases) or any(
            m.init is not None or (isinstance(m.type, Rec) and m.type.instance.begins()) for m in self.members())

    def members(self) -> list[Member]:
        """Data members in order, those of bases first."""
        if self._members is None:
            out = [m for b in self.bases for m in b.members()]
            for name, decls in self.scope.decls.items():
                for d in decls:
                    if isinstance(d, Variable) and not is_static(d):
                        kind, reference = self.types.declared_type(d.node, d.declarator, self.scope)
                        out.append(Member(name, kind, d.init, reference))
            self._members = out
        return self._members

    def layout(self) -> Layout:
        """Where members stand."""
        if self._layout is None:
            kept = {name: g for g in self.together for name in g.names()}
            members = {m.name: m for m in self.members()}
            listed: list[Together | str] = []
            for name in members:
                whole: Together | str = kept.get(name, name)
                if whole not in listed:
                    listed.append(whole)
            offsets: dict[str, int] = {}
            leaves: list[tuple[DType, int] | None] = []
            end, align = self._placed(Together(self.node.type == "union_specifier", tuple(listed)), 0, members, offsets, leaves)
            align = max(align, self._declared_align())
            total = max(1, -(-end // align) * align)
            one: tuple[DType, int] | None = None
            known = [x for x in leaves if x is not None]
            if known and len(known) == len(leaves):
                overlaid = self.node.type == "union_specifier" or any(g.overlaid for g in self.together)
                dtypes = {d for d, _ in known}
                if overlaid and len(dtypes) == 1 and total % known[0][0].bytes == 0:
                    one = (known[0][0], total // known[0][0].bytes)
                elif overlaid:
                    one = next(((d, c) for d, c in known if c * d.bytes == total), None)
                elif len(dtypes) == 1 and sum(c for _, c in known) * known[0][0].bytes == total:
                    one = (known[0][0], total // known[0][0].bytes)
            self._layout = Layout(total, align, offsets, one)
        return self._layout

    def first_named(self) -> list[str]:
        """The members that a list of values fills: of a union its first."""
        def of(g: Together) -> list[str]:
            parts = g.parts[:1] if g.overlaid else g.parts
            return [name for p in parts for name in (of(p) if isinstance(p, Together) else [p])]
        kept = {name: g for g in self.together for name in g.names()}
        listed: list[Together | str] = []
        for m in self.members():
            if (whole := kept.get(m.name, m.name)) not in listed:
                listed.append(whole)
        return of(Together(self.node.type == "union_specifier", tuple(listed)))

    def _placed(self, of: Together, start: int, members: dict[str, Member], offsets: dict[str, int], leaves: list[tuple[DType, int] | None]) -> tuple[int, int]:
        """The end of what is placed from a byte on, and its alignment; offsets of the members and what they are made of are added."""
        align = max([1, *(align_of(members[x].type) for x in of.names())])
        at = end = -(-start // align) * align if start else 0
        for p in of.parts:
            begin = start if of.overlaid else at
            if isinstance(p, Together):
                at, _ = self._placed(p, begin, members, offsets, leaves)
            else:
                m = members[p]
                step = align_of(m.type)
                offsets[p] = -(-begin // step) * step
                at = offsets[p] + (8 if isinstance(m.type, Ptr) or m.reference else size_of(m.type))
                leaves.append(None if m.reference else leaf(m.type))
            end = max(end, at)
        return end, align

    def _declared_align(self) -> int:
        for c in self.node.children:
            if c.type in ("alignas_qualifier", "type_qualifier"):
                value = self.types.constant_text(c, self.scope)
                if value:
                    return value
        return 1


def is_static(d: Variable) -> bool:
    """Whether a member belongs to the class and not to its objects."""
    words = {text(c) for c in d.node.children if c.type in ("storage_class_specifier", "type_qualifier")}
    return "static" in words


@dataclass(frozen=True)
class Rec(CType):
    """An instance of a class or struct."""

    instance: ClassInstance

    def __str__(self) -> str:
        return self.instance.name

    __repr__ = __str__

    def __hash__(self) -> int:
        return id(self.instance)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rec) and other.instance is self.instance


def size_of(t: CType) -> int:
    """Bytes of a value. Raises NotUnderstood for what has no size here."""
    match t:
        case Prim():
            return t.dtype.bytes
        case Vec():
            return t.dtype.bytes * t.n
        case Ptr() | Named("cudaStream_t") | Named("cudaEvent_t"):
            return 8
        case Arr():
            return t.n * size_of(t.of)
        case Rec():
            return t.instance.layout().size
        case _:
            raise NotUnderstood(f"the size of {t}")


def align_of(t: CType) -> int:
    """Alignment in bytes, as CUDA gives it (B.3 of the programming guide: vectors of 3 are aligned to one element)."""
    match t:
        case Prim():
            return t.dtype.bytes
        case Vec():
            return min(16, t.dtype.bytes * t.n) if t.n in (2, 4) else t.dtype.bytes
        case Ptr() | Named("cudaStream_t") | Named("cudaEvent_t"):
            return 8
        case Arr():
            return align_of(t.of)
        case Rec():
            return t.instance.layout().align
        case _:
            return 1


def leaf(t: CType) -> tuple[DType, int] | None:
    """(dtype, count) of a type that is nothing but `count` numbers of one dtype in a row; None for other types."""
    match t:
        case Prim():
            return t.dtype, 1
        case Vec():
            return t.dtype, t.n
        case Arr():
            inner = leaf(t.of)
            return None if inner is None else (inner[0], inner[1] * t.n)
        case Rec():
            return t.instance.layout().leaf
        case _:
            return None


def words(t: CType) -> tuple[DType, int] | None:
    """(dtype, count) of the unsigned words that a record of several dtypes is made of: as wide as its narrowest number. None for one of nothing but
    pointers, or with something else."""
    numbers = _numbers(t)
    if not numbers:
        return None
    narrowest = min(d.bits for d in numbers)
    dtype = next((d for d in (U8, U16, U32, U64) if d.bits == narrowest), None)
    return (dtype, size_of(t) // dtype.bytes) if dtype is not None and size_of(t) % dtype.bytes == 0 else None


def _numbers(t: CType) -> list[DType] | None:
    match t:
        case Prim() | Vec():
            return [t.dtype]
        case Ptr():
            return []
        case Arr():
            return _numbers(t.of)
        case Rec():
            parts = [None if m.reference else _numbers(m.type) for m in t.instance.members()]
            return None if any(p is None for p in parts) else [d for p in parts for d in p or ()]
        case _:
            return None


def pointers_in(t: CType) -> list[tuple[int, Ptr, int]]:
    """The pointers that a record holds: by the byte where each stands, its type, and of how many in a row it is the first."""
    if not isinstance(t, Rec):
        return []
    out: list[tuple[int, Ptr, int]] = []
    offsets = t.instance.layout().offsets
    for m in t.instance.members():
        match m.type:
            case Ptr():
                out.append((offsets[m.name], m.type, 1))
            case Arr(of=Ptr() as kind):
                out.append((offsets[m.name], kind, m.type.n))
            case Rec():
                out += [(offsets[m.name] + offset, kind, count) for offset, kind, count in pointers_in(m.type)]
            case _:
                pass
    return out
