"""Reads the body of one kernel: the state of the reading, names, and conversions between values."""

from __future__ import annotations

from math import prod

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Map
from kir.ir.types import BOOL, I32, I64, U32, DType, dtype_of
from kir.ptx import pack_bits, unpack_bits
from kir.ptx.bits import joined, piece, slice_of

from . import calls, expressions
from .c_types import VOID, Arr, Auto, CType, Named, Prim, Ptr, Rec, Vec, leaf, size_of
from .carving import Parts, pointed
from .classes import is_static
from .declared import Alias, ClassTemplate, Enumerator, EnumType, Function, Scope, Variable, text
from .emitter import Emitter, lanes, reads_memory
from .errors import NotUnderstood
from .geometry import Geometry
from .library import Library
from .memory import Place, Store, declare, start
from .numbers import converted, divided, index64
from .pointers import Apart, MovingPointer, PointerVariable
from .scopes import Index
from .source import Node, Sources
from .types import Types
from .values import (
    Chosen,
    Located,
    Mapped,
    Members,
    Nothing,
    Null,
    Overloads,
    Pointer,
    Record,
    Remote,
    Scalar,
    TypeName,
    Value,
    Wide,
    Word,
    constant,
    integer,
)  # fmt: skip


class Reader:
    """The reading of one kernel under known template arguments."""

    def __init__(self, sources: Sources, index: Index, geometry: Geometry, absent: frozenset[str] | None = None) -> None:
        self.sources, self.index, self.geometry = sources, index, geometry
        self.m = Emitter()
        self.m.taken |= set(geometry.words.values())
        self.types = Types(self)
        self.library = Library(self)
        self.stores: list[Store] = []
        self.shared: list[Store] = []
        self.pool: Store | None = None
        self.parts = Parts()
        self.pool_bytes: n.Expr = n.Var(geometry.words["shared_bytes"], I32)
        self.hint = ""
        self.hint_align = 0
        """Bytes that the part of a pool which is being declared is said to start at a multiple of; 0 where nothing says so."""
        self.spinning = False
        self.arrays: dict[str, tuple[int, ...]] = {}
        self.maps: dict[str, Map] = {}
        self.starts: dict[int, tuple[Value, list[n.Stmt]]] = {}
        """Variables that still hold the number which they were declared with, by their object: the number, and the block."""
        self.words: dict[int, tuple[Value, list[n.Stmt]]] = {}
        """Integer variables that hold bits of an address, by their object: the value, and the block that set it."""
        self.tensors: dict[str, tuple[DType, int]] = {}
        self.cluster: tuple[int, ...] = ()
        self.depth = 0
        self.absent = absent
        self.mutable: dict[int, frozenset[str]] = {}
        self.missing: list[str] = [name for u in sources.units for name, _ in u.missing]
        self.static_shared: dict[int, Value] = {}
        self.constants: dict[int, Value] = {}
        self.metas: dict[str, Value] = {}

    def value(self, node: Node, scope: Scope) -> Value:
        """The value of an expression, a place where it has an address."""
        return expressions.value(self, node, scope)

    def type_of(self, node: Node, scope: Scope) -> CType:
        """The type of an expression, without its effects."""
        return expressions.type_of(self, node, scope)

    def braced(self, node: Node, t: CType, scope: Scope) -> Value:
        """`{a, b, ..}` as a value of a type."""
        return expressions.braced(self, node, t, scope)

    def construct(self, t: CType, args: list[Value]) -> Value:
        """`T(args)`."""
        return calls.construct(self, t, args)

    def conversion(self, v: Value, to: Prim | None) -> Value | None:
        """What a class's conversion operator makes of an object; None when it has none for that type."""
        return calls.conversion(self, v, to)

    def by_name(self, name: str) -> list[Function]:
        """All functions of a name, wherever they are declared."""
        return self.index.functions.get(name, [])

    def namespaces(self) -> list[Scope]:
        """All namespaces of the translation unit: where a name is looked for that the scopes around do not know."""
        return self.index.every_namespace()

    def missing_note(self) -> str:
        """Includes that were not found, for messages about unknown names."""
        return f" (not found: {', '.join(self.missing[:3])})" if self.missing else ""

    # ------------------------------------------------------------------------------------------------------------------- names
    def named_value(self, node: Node, scope: Scope) -> Value | list[object]:
        """What a plain or qualified name stands for; a list of declarations for types and functions."""
        if node.type == "qualified_identifier":
            inner = self.scope_of(node, scope)
            name = node.child_by_field_name("name")
            assert name is not None
            if isinstance(inner, Scope):
                if name.type == "qualified_identifier":
                    return self.named_value(name, inner)
                shown = name.child_by_field_name("name") if name.type in ("template_function", "template_type") else name
                found = inner.own(text(shown or name))
                if found is not None:
                    return found
            return self.library.qualified_value(node, scope)
        found = scope.find(text(node))
        if found is not None:
            return found
        return self.library.value(text(node), node)

    def scope_of(self, node: Node, scope: Scope) -> Scope | None:
        """The namespace or class that a qualified name starts in; None for one of a library."""
        left = node.child_by_field_name("scope")
        if left is None:
            return self.index.root
        if left.type in ("namespace_identifier", "identifier", "type_identifier"):
            found = scope.find(text(left))
            if isinstance(found, TypeName):
                return found.type.instance.scope if isinstance(found.type, Rec) else None
            for d in found if isinstance(found, list) else ():
                if isinstance(d, Scope):
                    return d
                if isinstance(d, EnumType):
                    return d.scope
                made = self.types.declared_as_type(d, scope)
                if isinstance(made, Rec):
                    return made.instance.scope
            return None
        if left.type in ("template_type", "dependent_type", "decltype"):
            try:
                made = self.types.base_type(left, scope)
            except NotUnderstood:
                if left.type == "template_type":
                    return None
                raise
            return made.instance.scope if isinstance(made, Rec) else None
        return None

    def of_declarations(self, found: list[object], name: str, node: Node, args: tuple[Value, ...] | None = None) -> Value:
        """The value of declared names: functions, constants, types."""
        functions = tuple(d for d in found if isinstance(d, Function))
        if functions:
            return Overloads(functions, args, None, name)
        d = found[0]
        match d:
            case Variable():
                return self.variable(d, node, args)
            case Enumerator():
                return self.enumerator(d)
            case ClassTemplate() | Alias() | EnumType():
                made = self.types.declared_as_type(d, d.scope)
                if made is not None:
                    return TypeName(made)
        raise NotUnderstood(f"'{name}' as a value", node)

    def enumerator(self, e: Enumerator) -> Value:
        """The value of an enumerator."""
        if e.init is not None:
            return self.rvalue(self.value(e.init, e.scope))
        if e.after is None:
            return integer(0)
        before = self.rvalue(self.enumerator(e.after))
        assert isinstance(before, Scalar)
        return Scalar(build.add(before.expr, 1))

    def variable(self, d: Variable, node: Node, args: tuple[Value, ...] | None) -> Value:
        """A constant of a namespace or class. Raises NotUnderstood for one that is no constant."""
        if d.params and args is None:
            raise NotUnderstood(f"the template '{d.name}' without arguments", node)
        if not d.params and id(d) in self.constants:
            return self.constants[id(d)]
        words = {text(c) for c in d.node.children if c.type in ("type_qualifier", "storage_class_specifier")}
        if not words & {"const", "constexpr"} and not (is_static(d) and d.init is not None):
            raise NotUnderstood(f"the variable '{d.name}' of the device, which lives longer than the kernel", node)
        if d.init is None or d.reading:
            raise NotUnderstood(f"the constant '{d.name}', whose value is not given here", node)
        scope = d.scope.inner(**self.types.bound(d.params, args or (), d.scope, node)) if d.params else d.scope
        if self.depth >= calls.MAX_CALLS:
            raise calls.endless(f"the templates that '{d.name}' is a constant of", scope.unit.origin(d.node))
        d.reading = True
        self.depth += 1
        try:
            kind, _ = self.types.declared_type(d.node, d.declarator, scope)
            value = self.rvalue(self.value(d.init, scope)) if d.init.type != "initializer_list" else self.braced(d.init, kind, scope)
            made = value if isinstance(kind, (Auto, Arr)) else self.convert(value, kind)
        except RecursionError:
            raise calls.endless(f"the templates that '{d.name}' is a constant of", scope.unit.origin(d.node)) from None
        finally:
            d.reading = False
            self.depth -= 1
        if not d.params:
            self.constants[id(d)] = made
        return made

    def constant_text(self, node: Node, scope: Scope) -> int | None:
        """The number in `alignas(16)`, None when there is none."""
        for c in node.named_children:
            if c.type == "alignas_qualifier":
                return self.constant_text(c, scope)
            try:
                found = constant(self.rvalue(self.value(c, scope)))
            except NotUnderstood:
                continue
            if found is not None:
                return found
        return None

    # ----------------------------------------------------------------------------------------------------------------- objects
    def object(self, name: str, t: CType, space: str = "register") -> Value:
        """A variable of a type, declared in the block at hand and not initialized."""
        if isinstance(t, Ptr):
            offset = declare(self.m, f"{name}_at", Prim(I64), "register")
            self.stores.append(offset)
            self.m.emit(n.Alloc(offset.view(I64)))
            return self._pointer_variable(name, t, offset)
        if leaf(t) is not None:
            store = declare(self.m, name, t, "shared" if space == "shared" else "register")
            given = self.arrays.get(name, ())
            if given and given[: len(store.dims)] == store.dims and prod(given) * store.declared.bytes == size_of(t):
                store.logical, store.dims, store.row = given, (), build.const(size_of(t))
            if space == "shared" and self.arrays.get(name) == () and size_of(t) == store.declared.bytes:
                store.single = True
            self.stores.append(store)
            if space == "shared":
                self.shared.append(store)
            else:
                self.m.emit(n.Alloc(store.view(store.declared)))
            return Located(start(store), t)
        if isinstance(t, Rec):
            if t.instance.node.type == "union_specifier":
                raise NotUnderstood(f"the union '{t}', whose members are of several types")
            made = Members(t)
            for member in t.instance.members():
                if member.reference:
                    raise NotUnderstood(f"'{t}' has a reference as a member")
                made.fields[member.name] = self.object(f"{name}_{member.name}", member.type, space)
            return made
        if isinstance(t, Arr):
            return self._array_of_records(name, t, space)
        raise NotUnderstood(f"a variable of type {t}")

    def _array_of_records(self, name: str, t: Arr, space: str) -> Value:
        """An array of classes of several dtypes: an array for each member."""
        inner: CType = t
        dims = []
        while isinstance(inner, Arr):
            dims.append(inner.n)
            inner = inner.of
        if not isinstance(inner, Rec):
            raise NotUnderstood(f"an array of {inner}")
        made = Members(inner)
        for member in inner.instance.members():
            kind = member.type
            for d in reversed(dims):
                kind = Arr(kind, d)
            made.fields[member.name] = self.object(f"{name}_{member.name}", kind, space)
        made.fields["#array"] = TypeName(t)
        return made

    def _pointer_variable(self, name: str, t: Ptr, offset: Store) -> Value:
        return MovingPointer(PointerVariable(name, t, offset), t)

    def initialized(self, name: str, v: Value, t: CType) -> Value:
        """A variable of a type with a value."""
        if isinstance(t, Prim):
            v = self.convert(v, t)
            assert isinstance(v, Scalar)
            store = declare(self.m, name, t, "register")
            self.stores.append(store)
            self.m.emit(n.Alloc(store.used(t.dtype), v.expr))
            if constant(v) is not None:
                self.starts[id(store)] = (v, self.m.block)
            return Located(start(store), t)
        made = self.object(name, t)
        self.assign(made, v)
        return made

    # ------------------------------------------------------------------------------------------------------- reading and writing
    def rvalue(self, v: Value) -> Value:
        """The value of a place; arrays become pointers to their first element."""
        if isinstance(v, MovingPointer):
            return v.variable.remote or v.variable.current()
        if isinstance(v, Apart):
            return Scalar(n.Load(v.at))
        if not isinstance(v, Located):
            return v
        kept = self.words.get(id(v.place.store))
        if kept is not None:
            if not any(kept[1] is b for b in self.m.blocks):
                raise NotUnderstood(f"the bits of an address in '{v.place.store.name}', which another block has set")
            return kept[0]
        t = v.type
        if isinstance(t, Arr):
            return Pointer(v.place.inside(), Ptr(t.of))
        return self.load(v.place, t)

    def load(self, at: Place, t: CType) -> Value:
        """The value of a type at a place."""
        match t:
            case Prim() if (narrow := at.store.narrower(t.dtype)) is not None:
                return Scalar(pack_bits(n.Load(at.region(narrow, t.dtype.bits // narrow.bits)), t.dtype))
            case Prim() if (own := at.store.alike(t.dtype)) is not None:
                return Scalar(build.cast(n.Load(at.region(own, None)), t.dtype, "bits"))
            case Prim():
                return Scalar(n.Load(at.region(t.dtype, None)))
            case Ptr() | Named():
                raise NotUnderstood(f"a {t} kept in memory")
        if isinstance(t, Rec) and at.store.is_global and leaf(t) is None:
            layout = t.instance.layout()
            return Record({m.name: self.load(at.moved(layout.offsets[m.name]), m.type) for m in t.instance.members()}, t)
        found = leaf(t)
        if found is None:
            raise NotUnderstood(f"a {t} in memory")
        size = size_of(t)
        dtype = at.store.moving(found[0], size)
        return Wide(n.Load(at.region(dtype, size // dtype.bytes)), t)

    def assign(self, to: Value, v: Value) -> None:
        """Write a value to a place of a known type."""
        match to:
            case Apart():
                made = self.convert(v, Prim(to.at.buffer.dtype))
                assert isinstance(made, Scalar)
                self.m.emit(n.Store(to.at, made.expr))
            case Located(type=Prim() as kind) if isinstance(v, (Word, Remote)):
                before = self.words.get(id(to.place.store))
                if before is not None and before[1] is not self.m.block:
                    raise NotUnderstood(f"the bits of an address in '{to.place.store.name}', which a branch or a loop changes")
                self.words[id(to.place.store)] = (self.convert(v, kind), self.m.block)
            case Located(type=Prim() as kind):
                made = self.convert(v, kind)
                self.words.pop(id(to.place.store), None)
                self.starts.pop(id(to.place.store), None)
                assert isinstance(made, Scalar)
                narrow = to.place.store.narrower(kind.dtype)
                if narrow is not None:
                    self.m.emit(n.Store(to.place.region(narrow, kind.dtype.bits // narrow.bits), unpack_bits(made.expr, narrow)))
                    return
                own = to.place.store.alike(kind.dtype)
                value = made.expr if own is None else build.cast(made.expr, own, "bits")
                self.m.emit(n.Store(to.place.region(own or kind.dtype, None), value))
            case MovingPointer():
                self._set_pointer(to.variable, self.rvalue(v))
            case Members():
                self._assign_members(to, v)
            case Located():
                self._store_wide(to, self.convert(v, to.type))
            case _:
                raise NotUnderstood("an assignment to something that is no place")

    def _store_wide(self, to: Located, v: Value) -> None:
        if isinstance(v, Record) and isinstance(to.type, Rec):
            layout = to.type.instance.layout()
            for m in to.type.instance.members():
                self.assign(Located(to.place.moved(layout.offsets[m.name]), m.type), v.fields[m.name])
            return
        if not isinstance(v, Wide):
            raise NotUnderstood(f"a {to.type} from {type(v).__name__.lower()}")
        dtype = dtype_of(v.tile.type)
        size = size_of(to.type)
        at = to.place.region(dtype, size // dtype.bytes)
        value = v.tile
        if not at.buffer.shape and lanes(value.type) == 1:
            value = build.call("pick", value, build.const(0))
        self.m.emit(n.Store(at, value))

    def _assign_members(self, to: Members, v: Value) -> None:
        v = self.convert(v, to.type)
        if isinstance(v, (Members, Record)):
            for name, place in to.fields.items():
                if name != "#array":
                    self.assign(place, v.fields[name])
            return
        raise NotUnderstood(f"a {to.type} from {type(v).__name__.lower()}")

    def _set_pointer(self, to: PointerVariable, v: Value) -> None:
        if isinstance(v, Remote) and to.base is None:
            to.remote = Remote(v.at, to.type)
            return
        if isinstance(v, Null):
            v = Pointer(to.base, to.type) if to.base is not None else v
        if not isinstance(v, Pointer):
            raise NotUnderstood(f"the pointer '{to.name}' from {type(v).__name__.lower()}")
        if to.base is None:
            to.base = Place(v.place.store, v.place.outer, v.place.byte)
        elif to.base.store is not v.place.store or to.base.outer != v.place.outer:
            raise NotUnderstood(f"the pointer '{to.name}', which points into one of several arrays")
        at = divided(index64(v.place.byte), to.base.store.unit)
        if at is None:
            raise NotUnderstood(f"the pointer '{to.name}', which points between the elements of '{to.base.store.name}'")
        self.m.emit(n.Store(n.Region(to.offset.used(I64)), at))

    def peer_of(self, b: n.Buffer) -> n.Buffer | None:
        """The view that shows a shared buffer in every CTA of the cluster; None where the cluster is not known."""
        s = next((s for s in self.stores if s.space == "shared" and s.view(b.dtype) == b), None)
        if not self.cluster or s is None:
            return None
        s.peer = s.peer or self.m.fresh(f"{s.name}_peers")
        return n.Buffer(s.peer, b.dtype, (build.const(prod(self.cluster)), *b.shape), "cluster")

    def spilled(self, v: Wide, name: str = "moved") -> Located:
        """A value put in memory of its own, so that its parts have addresses."""
        made = self.object(name, v.type)
        assert isinstance(made, Located)
        self._store_wide(made, v)
        return made

    def begun(self, v: Value) -> Value | None:
        """The number that a variable still holds since it was declared in this block; None where that is not known."""
        found = self.starts.get(id(v.place.store)) if isinstance(v, Located) and type(v) is Located else None
        return found[0] if found is not None and found[1] is self.m.block else None

    # ------------------------------------------------------------------------------------------------------------- conversions
    def convert(self, v: Value, to: CType) -> Value:
        """A value as another type, as C++ converts it. Raises NotUnderstood where there is no such conversion."""
        if isinstance(to, Auto):
            return self.rvalue(v)
        if isinstance(v, (Members, Record)) and isinstance(to, Rec) and v.type == to:
            return v
        v = self.rvalue(v)
        if isinstance(v, Mapped) and (isinstance(to, (Named, Ptr)) or (isinstance(to, Prim) and to.dtype.is_integer and to.dtype.bits == 64)):
            return v
        match to:
            case Prim():
                return self._to_number(v, to)
            case Ptr():
                return self._to_pointer(v, to)
            case Vec() | Rec() if isinstance(v, (Wide, Record, Members)) and v.type == to:
                return v
            case Vec() if isinstance(v, Wide) and isinstance(v.type, Vec) and v.type.n == to.n and v.type.dtype == to.dtype:
                return Wide(v.tile, to)
            case Vec() if isinstance(v, Wide) and size_of(v.type) == size_of(to) and isinstance(v.type, Rec):
                return Wide(v.tile, to)
            case Vec() if isinstance(v, Scalar) and to.name == "dim3":
                one = build.const(1, U32)
                return Wide(build.call("vec", converted(v.expr, U32), one, one), to)
            case Rec():
                return self.construct(to, [v])
            case Arr() if isinstance(v, (Wide, Pointer)):
                return v
            case Named():
                return v
        if to == VOID:
            return Nothing()
        raise NotUnderstood(f"a conversion of {self.shown(v)} to {to}")

    def shown(self, v: Value) -> str:
        """A value's type in words."""
        return str(getattr(v, "type", type(v).__name__.lower()))

    def _to_number(self, v: Value, to: Prim) -> Value:
        match v:
            case Scalar():
                return Scalar(converted(v.expr, to.dtype))
            case Remote() if to.dtype.is_integer and to.dtype.bits >= 32:
                return Remote(v.at, to)
            case Word() if (to.dtype.is_integer and to.dtype.bits == 64) or (to.dtype.bits == 32 and v.rest < 1 << 32):
                return v
            case Pointer() if to.dtype == BOOL:
                return Scalar(self.present(v))
            case Null() if to.dtype == BOOL:
                return Scalar(build.const(False, BOOL))
            case Pointer() if to.dtype.is_integer and to.dtype.bits >= 32:
                return Pointer(v.place, Ptr(VOID))
            case Wide() if isinstance(v.type, (Vec, Rec)) and lanes(v.tile.type) == 1 and dtype_of(v.tile.type) == to.dtype:
                return Scalar(build.call("pick", v.tile, build.const(0)))
            case Members() | Record() | Wide() if isinstance(v.type, Rec):
                found = self.conversion(v, to)
                if found is not None:
                    return found
        raise NotUnderstood(f"a conversion of {self.shown(v)} to {to}")

    def present(self, p: Pointer) -> n.Expr:
        """Whether a pointer is not null: parameters may be absent under a binding, everything else is there."""
        s = p.place.store
        if s.tensor is None or not s.is_global:
            return build.const(True, BOOL)
        if self.absent is not None:
            return build.const(s.tensor.name not in self.absent, BOOL)
        return build.invert(build.call("absent", param=s.tensor.name))

    def _to_pointer(self, v: Value, to: Ptr) -> Value:
        match v:
            case Pointer():
                place = pointed(self, v.place, to.to)
                if not isinstance(to.to, Arr):
                    while len(place.outer) < len(place.store.dims):
                        place = place.inside()
                return Pointer(place, to)
            case Null():
                return v
            case Remote():
                return Remote(v.at, to)
            case Scalar() if constant(v) == 0:
                return Null()
            case Chosen():
                return Chosen(v.cond, self._to_pointer(v.then, to), self._to_pointer(v.orelse, to))
        raise NotUnderstood(f"a pointer made of {self.shown(v)}")

    def scalar(self, v: Value, node: Node | None = None) -> n.Expr:
        """The expression of a number."""
        v = self.rvalue(v)
        if isinstance(v, Scalar):
            return v.expr
        if isinstance(v, (Members, Record, Wide)) and isinstance(v.type, Rec):
            found = self.conversion(v, None)
            if isinstance(found, Scalar):
                return found.expr
        raise NotUnderstood(f"{self.shown(v)} where a number is needed", node)

    def condition(self, v: Value, node: Node | None = None) -> n.Expr:
        """The expression of a condition."""
        made = self.convert(v, Prim(BOOL))
        assert isinstance(made, Scalar)
        return made.expr

    def tile(self, v: Value, dtype: DType, count: int) -> n.Expr:
        """A value of `count` elements of a dtype as one tile of it."""
        v = self.rvalue(v)
        if isinstance(v, Scalar) and count == 1:
            return v.expr
        if not isinstance(v, Wide):
            raise NotUnderstood(f"{self.shown(v)} where {count} numbers of {dtype} are needed")
        own = dtype_of(v.tile.type)
        if own == dtype:
            return v.tile
        if own.bits == dtype.bits:
            return build.cast(v.tile, dtype, "bits")
        if own.bits < dtype.bits:
            ratio = dtype.bits // own.bits
            packed = [pack_bits(slice_of(v.tile, k * ratio, ratio), dtype) for k in range(count)]
            return build.call("vec", *packed)
        return joined([unpack_bits(piece(v.tile, k), dtype) for k in range(count * dtype.bits // own.bits)])

    def pinned(self, e: n.Expr, name: str = "kept") -> n.Expr:
        """A value that later writes do not change."""
        return self.m.let(name, e) if reads_memory(e) else e

    def pinned_value(self, v: Value, name: str) -> Value:
        """`pinned`, of any value."""
        match v:
            case Scalar():
                return Scalar(self.pinned(v.expr, name))
            case Wide():
                return Wide(self.m.let(name, v.tile), v.type)
            case Pointer():
                unit = v.place.store.unit
                at = divided(v.place.byte, unit)
                byte = self.pinned(v.place.byte, f"{name}_at") if at is None else build.mul(self.pinned(at, f"{name}_at"), unit)
                return Pointer(Place(v.place.store, tuple(self.pinned(e) for e in v.place.outer), byte), v.type)
            case _:
                return v
