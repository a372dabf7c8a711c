"""One kernel as a program: parameters as tensors and scalars, the body as one loop over the threads of a CTA."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from math import prod

from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.rebuild.promote import promoted
from kir.ir.types import DTYPES, I32, I64, U8, DType, variable
from kir.ir.visit import buffers_named, transform, walk

from .launch.geometry import BLOCK, Geometry, callers, words_of
from .launch.launch_bounds import cluster_of, launch_bounds
from .names.mutation_analysis import mutated
from .output.cleanup import cleaned
from .output.counted_loops import counted
from .output.first_guesses import guessed
from .output.fragments import joined
from .output.ladders import rolled
from .output.loop_distribution import distributed, guarded
from .output.restarts import bordered, restarted
from .output.vectorization import piecewise, vectorized
from .output.warp_roles import with_roles
from .reader import reading
from .source.source import Sources, fragment_type
from .source.syntax import declared_name, text
from .statements import statements
from .statements.role_marks import may_have_roles, unmarked
from .symbols.classes import Rec, leaf, pointers_in, size_of, words
from .symbols.index import Index
from .symbols.symbols import Bindings, Function, Scope, Value
from .types.c_types import VOID, Arr, CType, Named, Prim, Ptr, Vec
from .types.errors import NotUnderstood
from .values.descriptors import TENSOR_MAP
from .values.memory import Finish, Place, Rows, Store, start
from .values.objects import initialized, new_object
from .values.reading import Frame, Reading
from .values.shared_pool_views import pieces, settle
from .values.values import Located, Mapped, Members, Nothing, Pointer, Scalar, Wide, constant

MOST_NESTED = 400
"""Blocks within one another from which a kernel is not read."""

MOST_NUMBERS = 64
"""Numbers of an array inside a struct that a kernel takes by value."""
_CAST = re.compile(r"(?:reinterpret_cast|static_cast)\s*<(?P<type>[^*()]+?)\*[^()]*>\s*\(\s*(?:\w+(?:\.|->))*(?P<name>\w+)|"
                   r"\((?P<kind>[\w:<>, ]+?)\s*\*+\s*\)\s*\(?\s*(?:\w+(?:\.|->))*(?P<other>\w+)")
"""A cast of a pointer by its name."""


_OF_THE_HOST = (Named("cudaStream_t"), Named("cudaEvent_t"))
"""Members of records that only the host uses."""


class Parameters:
    """The parameters of a kernel: what the program declares, and what the reader binds."""

    def __init__(self, r: Reading, of: Function | None = None, scope: Scope | None = None) -> None:
        self.r = r
        self.of, self.scope = of, scope or Scope(None, r.sources.units[0])
        self.params: list[n.Param] = []
        self.extents: list[n.Param] = []
        self.maps: list[n.TensorMap] = []
        self.boxed: dict[str, n.Buffer] = {}
        """Tensors that tensor maps describe, by their names."""
        self.plain: dict[str, str] = {}
        """The names that members of classes have there, by those of their parameters."""
        self.untyped: set[str] = set()
        """Parameters whose numbers neither the source nor the binding says: bytes."""

    def add(self, name: str, t: CType, restrict: bool) -> Value:
        """A parameter of a type. Raises NotUnderstood for one that the IR has no form for."""
        r = self.r
        match t:
            case Prim():
                self.params.append(n.Param(name, "scalar", t.dtype))
                return Scalar(n.Var(name, t.dtype))
            case Ptr() if t.to == TENSOR_MAP:
                return self._map(name)
            case Named() if t == TENSOR_MAP:
                return self._map(name)
            case Ptr():
                return self._tensor(name, t, restrict)
            case Vec():
                made = Members(Rec(None))  # type: ignore[arg-type]  # a vector has components and no class
                parts: list[n.Expr] = []
                for k, letter in zip(range(t.n), "xyzw", strict=False):
                    v = self.add(r.m.own(f"{name}.{letter}"), Prim(t.dtype), restrict)
                    assert isinstance(v, Scalar)
                    parts.append(v.expr)
                    made.fields[letter] = v
                    _ = k

                return Wide(build.call("vec", *parts), t)
            case Rec():
                members = Members(t)
                for m in t.instance.members():
                    own = r.m.own(f"{name}.{m.name}")
                    self.plain[own] = m.name
                    members.fields[m.name] = Nothing() if m.type in _OF_THE_HOST else self.add(own, m.type, restrict)
                return members
            case Arr():
                return self._array(name, t, restrict)
        raise NotUnderstood(f"the parameter '{name}' of type {t}")

    def _array(self, name: str, t: Arr, restrict: bool) -> Value:
        """An array inside a struct: a parameter for each of its numbers, and a private array that holds them; one of pointers is a tensor with a row for
        each."""
        if isinstance(t.of, Ptr):
            return Located(start(self._pointers(name, [(0, 8, t.of)], restrict)), t)
        found = leaf(t)
        if found is None or found[1] > MOST_NUMBERS:
            raise NotUnderstood(f"the parameter '{name}', an array of {t.of} inside a struct")
        dtype, count = found
        each = [self.add(self.r.m.own(f"{name}.{k}"), Prim(dtype), restrict) for k in range(count)]
        made = new_object(self.r, name.split(".")[-1], t)
        assert isinstance(made, Located)
        store = made.place.store
        row = (build.int_value(store.row) or 1) // dtype.bytes
        for k, v in enumerate(each):
            assert isinstance(v, Scalar)
            outer = tuple(build.const(k // row // prod(store.dims[j + 1:]) % d) for j, d in enumerate(store.dims))
            self.r.m.emit(n.Store(Place(store, outer, build.const(k % row * dtype.bytes)).region(dtype, None), v.expr))
        return made

    def _pointers(self, name: str, listed: list[tuple[int, int, Ptr]], restrict: bool, store: Store | None = None) -> Store:
        """Memory with pointers in it, each `listed` by its first byte, how many bytes lie between two of them, and its type: a tensor with a row for each
        pointer, one after the other, by a number of elements that the launch says."""
        rows = []
        for offset, size, t in listed:
            own = self.r.m.own(f"{name}.rows" if len(listed) == 1 else f"{name}.{offset}.rows")
            to = Ptr(self._used_as(name, self.plain.get(name, name)), volatile=t.volatile) if t.to == VOID else t
            of = self.add(own, to, restrict)
            assert isinstance(of, Pointer)
            step = n.Var(self.r.m.own(f"{own}.step"), I64)
            self.params.append(n.Param(step.name, "scalar", I64))
            rows.append(Rows(offset, size, of.place.store, step))
        store = store or Store(name, "global", I64, (), build.const(8, I64))
        store.rows = tuple(rows)
        return store

    def _map(self, name: str) -> Value:
        """A tensor map, as the binding describes it; the tensor is a parameter of the program, be it none of the kernel."""
        m = self.r.maps.get(name)
        if m is None:
            raise NotUnderstood(f"the tensor map '{name}', of which only the binding says what it describes: [maps.{name}] of = .., box = ..")
        made = n.TensorMap(m.name or name, m.of, tuple(m.box), n.attrs(**{**m.attrs, **({"swizzle": m.swizzle} if m.swizzle else {})}))
        self.maps.append(made)
        return Mapped(made, self._described(m.of))

    def _described(self, of: str) -> n.Buffer:
        """The tensor that maps describe, with an extent for each of its axes."""
        if of not in self.boxed:
            dtype, rank = self.r.tensors.get(of, (None, 0))
            found = next((p for p in self.params if p.name == of and isinstance(p.of, n.Buffer)), None)
            if dtype is None or (found is not None and isinstance(found.of, n.Buffer) and found.of.dtype != dtype):
                raise NotUnderstood(f"tensor maps of '{of}', whose shape and dtype no binding says: [tensors.{of}]")
            axes = [n.Var(self.r.m.own(f"{of}.extent_{k}"), I64) for k in range(rank)]
            self.boxed[of] = n.Buffer(of, dtype, tuple(axes), "global")
            self.r.m.taken.add(of)
            if found is None:
                self.params.append(n.Param(of, "in", self.boxed[of]))
            self.extents += [n.Param(a.name, "size", I64, attrs=n.attrs(implicit=True)) for a in axes]
        return self.boxed[of]

    def finished(self, body: n.Block) -> n.Block:
        """The body with pointers to tensors that maps describe as flat views of them, and `void*` as what alone is made of it."""
        body = self._typed(body)
        promised = {s.name: s.promised for s in self.r.stores if s.promised > 0}
        self.params = [replace(p, attrs=n.attrs(**dict(p.attrs), aligned=promised[p.name])) if p.name in promised else p for p in self.params]
        views: list[n.Stmt] = []
        used = {x.buffer for s in body for x in walk(s) if isinstance(x, n.Region)}
        flat: dict[str, n.Buffer] = {}
        for k, p in enumerate(self.params):
            if p.name not in self.boxed or not isinstance(p.of, n.Buffer) or p.of == self.boxed[p.name]:
                continue
            boxed = self.boxed[p.name]
            self.params[k] = replace(p, of=boxed)
            self.extents = [e for e in self.extents if e.name != self.r.m.own(f"{p.name}.extent")]
            if p.of in used:
                count: n.Expr = build.const(1, I64)
                for d in boxed.shape:
                    count = build.mul(count, d)
                flat[p.name] = n.Buffer(self.r.m.fresh(f"{p.name}_flat"), boxed.dtype, (count,), "global")
                views.append(n.View(flat[p.name], n.Region(boxed)))

        def leave(old: n.Node, new: n.Node) -> n.Node:
            return flat[new.name] if isinstance(new, n.Buffer) and new.name in flat and new != self.boxed[new.name] else new

        return (*views, *(transform(s, leave) for s in body)) if flat else body

    def _typed(self, body: n.Block) -> n.Block:
        """The body with each parameter without a type of which one view is all that is used as that view's numbers."""
        for k, p in enumerate(self.params):
            if p.name not in self.untyped or not isinstance(p.of, n.Buffer):
                continue
            views = [s for s in body if isinstance(s, n.View) and s.at.buffer.name == p.name]
            named = sum(isinstance(x, n.Region) and x.buffer.name == p.name for s in body for x in walk(s))
            if len(views) != 1 or named != 1 or views[0].at.index:
                continue
            shown, own = views[0].buffer, replace(p.of, dtype=views[0].buffer.dtype)
            self.params[k] = replace(p, of=own)

            def leave(old: n.Node, new: n.Node, shown: n.Buffer = shown, own: n.Buffer = own) -> n.Node:
                return own if isinstance(new, n.Buffer) and new.name == shown.name else new
            body = tuple(transform(s, leave) for s in body if s is not views[0])
        return body

    def _used_as(self, name: str, plain: str | None = None) -> CType:
        """What a `void*` points to: the type that the kernel first casts it to, bytes where it names none. `plain`: one of the pointers under that name,
        which whoever the kernel hands them to may cast: bytes where not all are cast alike."""
        if self.of is None or self.of.body is None:
            return Prim(U8)
        found: list[CType] = []
        for m in _CAST.finditer(text(self.of.body) if plain is None else self.of.unit.text.decode(errors="replace")):
            if (plain or name) in (m["name"], m["other"]):
                try:
                    made = self.r.types.base_type(fragment_type((m["type"] or m["kind"]).replace("const", " ").replace("volatile", " ").strip()), self.scope)
                except (NotUnderstood, ValueError):
                    continue
                if leaf(made) is not None:
                    found.append(made)
        return Prim(U8) if not found or (plain is not None and len({leaf(t) for t in found}) > 1) else found[0]

    def _tensor(self, name: str, t: Ptr, restrict: bool) -> Value:
        r = self.r
        if t.to == VOID:
            t = Ptr(self._used_as(name), volatile=t.volatile)
            if t.to == Prim(U8) and r.tensors.get(name, (None, 0))[0] is None:
                self.untyped.add(name)
        if isinstance(t.to, Ptr):
            return Pointer(start(self._pointers(name, [(0, 8, t.to)], restrict)), t)
        found = leaf(t.to)
        row: tuple[DType, int] | None = found
        held = pointers_in(t.to) if found is None else []
        if len({kind for _, kind, _ in held}) == 1 and sum(count for _, _, count in held) * 8 == size_of(t.to):
            return Pointer(start(self._pointers(name, [(0, 8, held[0][1])], restrict)), t)
        if found is None and isinstance(t.to, Rec) and all(count == 1 for _, _, count in held):
            row = words(t.to)
        if row is None and isinstance(t.to, Rec):
            raise NotUnderstood(f"the parameter '{name}', which points to records of several dtypes")
        if row is None:
            raise NotUnderstood(f"the parameter '{name}', which points to {t.to}")
        dtype = row[0]
        extent = n.Var(r.m.own(f"{name}.extent"), I64)
        buffer = n.Buffer(name, dtype, (extent,), "global")
        store = Store(name, "global", dtype, (), build.mul(extent, dtype.bytes), tensor=buffer, promised=0)
        r.stores.append(store)
        self.params.append(n.Param(name, "in", buffer, attrs=n.attrs(restrict=True) if restrict else ()))
        self.extents.append(n.Param(extent.name, "size", I64, attrs=n.attrs(implicit=True)))
        if held:
            self._pointers(name, [(offset, size_of(t.to), kind) for offset, kind, _ in held], restrict, store)
        return Pointer(Place(store, (), build.const(0, I64), t.volatile), t)


def read_kernel(
    sources: Sources, index: Index, fn: Function, bindings: Bindings | None, block: dict[str, int], absent: frozenset[str] | None, shared: int | None,
    binding: Binding | None = None,
) -> n.Program:
    """The program of a kernel. `bindings` are its template arguments (None: it is a template and stays one), `block` the extents of the CTA
    that are known, `absent` the pointers that a call leaves out (None: not decided), `shared` the bytes of dynamic shared memory; `binding` says
    what shapes flat arrays of the source are meant to have, and what tensor maps describe. Raises RecursionError for blocks that are nested too deeply."""
    depth = 0
    for mark in re.findall(r"[{}]", text(fn.node)):  # what looks for what a loop changes looks through all loops in it
        depth += 1 if mark == "{" else -1
        if depth > MOST_NESTED:
            raise RecursionError("blocks nested too deeply")
    words = words_of(fn)
    x, y, z = (build.const(block[b]) if b in block else n.Var(words[b], I32) for b in BLOCK)
    geometry = Geometry((x, y, z), words)
    r = reading(sources, index, geometry, absent)
    if binding is not None:
        r.arrays, r.maps = {k: tuple(v) for k, v in binding.arrays.items()}, binding.maps
        r.alignments = {k: t.align for k, t in binding.tensors.items()}
        r.tensors = {k: (DTYPES[t.dtype], len(t.shape)) for k, t in binding.tensors.items() if t.dtype in DTYPES}
    r.cluster = cluster_of(fn)
    if shared is not None:
        r.pool_bytes = build.const(shared)
    r.m.reserve(callers(fn))
    known = [b for b in BLOCK if b in block]
    if len(known) == 3:
        r.m.ranges[words["t"]] = (0, block["threads_x"] * block["threads_y"] * block["threads_z"] - 1)
    else:
        r.m.ranges[words["t"]] = (0, 1023)
    r.m.ranges |= {geometry.place(k).name: (0, (1 << 31) - 2) for k in range(3)} | {geometry.extent(k).name: (1, (1 << 31) - 1) for k in range(3)}
    r.m.ranges |= {words[b]: (1, 1024) for b in BLOCK if b not in block}
    scope = Scope(fn.scope, fn.unit, fn.name, values=dict(bindings or {}))
    p = Parameters(r, fn, scope)
    body: tuple[n.Stmt, ...]
    if bindings is None:
        reason = "a template, read when its arguments are named: FILE::KERNEL<..>, or [metas] of a binding"
        body = (n.Opaque("cuda", " ".join(fn.unit.source_of(fn.node).split()), reason, origin=fn.unit.origin(fn.node)),)
        body = (n.For(geometry.number, build.const(0), _threads(geometry), build.const(1), body, "thread"),)
        _declare_only(p, fn, scope)
    else:
        body = p.finished(_body(r, p, fn, scope, geometry))
    return _program(r, p, fn, body, bindings)


def _declare_only(p: Parameters, fn: Function, scope: Scope) -> None:
    """The parameters of a template whose arguments are open: those with a type that depends on them have a symbolic dtype."""
    types = {t.name for t in fn.params or () if t.kind == "type"}
    for q in fn.parameters():
        d, kind = q.child_by_field_name("declarator"), q.child_by_field_name("type")
        name = declared_name(d) if d is not None else None
        if name is None or kind is None:
            continue
        pointer = d is not None and d.type == "pointer_declarator"
        try:
            t, _ = p.r.types.declared_type(q, d, scope)
            p.add(text(name), t, False)
        except NotUnderstood:
            if text(kind) in types:
                dtype = variable(text(kind))
                if pointer:
                    extent = n.Var(p.r.m.own(f"{text(name)}.extent"), I64)
                    p.params.append(n.Param(text(name), "inout", n.Buffer(text(name), dtype, (extent,), "global")))
                    p.extents.append(n.Param(extent.name, "size", I64, attrs=n.attrs(implicit=True)))
                else:
                    p.params.append(n.Param(text(name), "scalar", dtype))


def _threads(g: Geometry) -> n.Expr:
    x, y, z = g.block
    return build.mul(build.mul(x, y), z)


def _body(r: Reading, p: Parameters, fn: Function, scope: Scope, geometry: Geometry) -> tuple[n.Stmt, ...]:
    frame = Frame(True)
    assert fn.body is not None
    with r.m.capture() as made:
        try:
            _bind(r, p, fn, scope)
            statements.block(r, fn.body.named_children, scope.inner(), frame)
            settle(r)
        except NotUnderstood as bad:
            made.clear()
            made.append(n.Opaque("cuda", " ".join(fn.unit.source_of(fn.node).split()), bad.reason, origin=fn.unit.origin(fn.node)))
    while made and isinstance(made[-1], n.Jump) and made[-1].kind == "return":
        made.pop()
    loop = n.For(geometry.number, build.const(0), _threads(geometry), build.const(1), tuple(made), "thread", origin=fn.unit.origin(fn.node))
    try:
        allocs: list[n.Stmt] = [n.Alloc(s.view(s.declared), origin=s.origin) for s in r.shared if s is not r.pool or not r.parts.reaching or s.uses]
        allocs += pieces(r)
    except NotUnderstood as bad:
        kept = n.Opaque("cuda", " ".join(fn.unit.source_of(fn.node).split()), bad.reason, origin=fn.unit.origin(fn.node))
        return (replace(loop, body=(kept,)),)
    allocs, made = _initialized(allocs, made, geometry)
    loop = replace(loop, body=tuple(made))
    alone = build.is_const(_threads(geometry), 1) and not any(_together(x) for s in made for x in walk(s))
    try:
        body = cleaned(Finish(r.stores, prod(r.cluster)).apply([*allocs, *(made if alone else [loop])]))
        apart = piecewise(body)
        body = vectorized(body)
    except NotUnderstood as bad:
        kept = n.Opaque("cuda", " ".join(fn.unit.source_of(fn.node).split()), bad.reason, origin=fn.unit.origin(fn.node))
        return (replace(loop, body=(kept,)),)
    if any(isinstance(x, n.Opaque) for s in body for x in walk(s)):
        return unmarked(joined(body))
    body = _settled(joined(body), r, apart)
    body = bordered(guessed(_settled(rolled(guarded(distributed(vectorized(body), r.m.fresh)), r.m.fresh), r, apart)), frozenset())
    body = tuple(s for s in body if not isinstance(s, n.Alloc) or any(s.buffer.name in buffers_named(x) for x in body if x is not s))
    if not may_have_roles(body):
        return unmarked(body)

    return with_roles(body, r.m.fresh)


def _together(x: n.Node) -> bool:
    """Whether the lanes of a warp do it together, be the warp of one thread."""
    return isinstance(x, n.Call) and x.of is None and x.fn in table() and table()[x.fn].level in ("warp", "warpgroup")


def _settled(body: n.Block, r: Reading, apart: frozenset[str]) -> n.Block:
    """A body with its variables as values where they are such, and its pieces joined; loops are looked for again where that shows more of them."""
    g = r.geometry
    sizes = frozenset(w for k, w in g.words.items() if k in BLOCK or k.startswith("grid_"))
    extents = frozenset(x.name for x in (*g.block, *map(g.extent, range(3))) if isinstance(x, n.Var))
    found = counted(cleaned(body, apart), r.m.fresh, sizes | extents)
    while True:
        made = joined(cleaned(promoted(restarted(found, r.m.fresh), frozenset(r.m.taken)), apart))
        found = counted(made, r.m.fresh, sizes | extents)
        if found == made:
            return made


def _initialized(allocs: list[n.Stmt], body: list[n.Stmt], geometry: Geometry) -> tuple[list[n.Stmt], list[n.Stmt]]:
    """Shared arrays that all threads fill with one number first, and then wait, begin with that number."""
    made = {s.buffer.name: s for s in allocs if isinstance(s, n.Alloc)}
    rest = list(body)
    while len(rest) >= 2:
        first, second = rest[:2]
        if not (isinstance(first, n.For) and isinstance(second, n.Eval) and second.call.fn == "barrier" and len(first.body) == 1):
            break
        store = first.body[0]
        if not (isinstance(store, n.Store) and store.mask is None and isinstance(store.value, n.Const) and store.at.buffer.name in made):
            break
        alloc = made[store.at.buffer.name]
        shape = alloc.buffer.shape or (build.const(1),)
        whole = first.lo == geometry.number and first.hi == shape[-1] and first.step == _threads(geometry) and len(shape) == 1
        if not whole or store.at.index != (first.var,)[:len(alloc.buffer.shape)] or alloc.init is not None or first.kind != "serial":
            break
        made[store.at.buffer.name] = replace(alloc, init=store.value)
        rest = rest[2:]
    return [made[s.buffer.name] if isinstance(s, n.Alloc) else s for s in allocs], rest


def _bind(r: Reading, p: Parameters, fn: Function, scope: Scope) -> None:
    changed = mutated(r, fn.body, scope)
    for k, q in enumerate(fn.parameters()):
        d = q.child_by_field_name("declarator")
        name_node = declared_name(d) if d is not None else None
        name = text(name_node) if name_node is not None else r.m.own(f"unnamed.{k}")
        t, _ = r.types.declared_type(q, d, scope)
        restrict = "__restrict__" in text(q) or "restrict" in text(q)
        v = p.add(name, t, restrict)
        if name in changed and isinstance(v, (Scalar, Pointer)):
            v = initialized(r, name, v, t)
        if isinstance(v, Members) and fn.body is not None:
            set_ = rf"\b{re.escape(name)}\s*\.\s*(\w+)\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)"
            for own in sorted(set(re.findall(set_, text(fn.body)))):
                if isinstance(held := v.fields.get(own), Scalar):  # its own copy of the record, which it changes
                    v.fields[own] = initialized(r, own, held, held.type)
        scope.values[name] = v


def _program(r: Reading, p: Parameters, fn: Function, body: tuple[n.Stmt, ...], bindings: Bindings | None) -> n.Program:
    read, written = _accesses(body)
    declared = [*p.params, *(n.Param(s.name, "in", s.tensor) for s in r.devices.values() if s.tensor is not None)]
    params = [_role(q, q.name in read, q.name in written) for q in declared]
    g = r.geometry
    metas = [n.Meta(g.words[b], "int", None if b == "threads_x" else 1) for b in BLOCK]
    if r.pool is not None or isinstance(r.pool_bytes, n.Const):
        metas.append(n.Meta(g.words["shared_bytes"], "int"))
    for t in fn.params or ():
        default = None
        given = (bindings or {}).get(t.name)
        if given is not None and (value := constant(given)) is not None:
            default = value
        truth = t.type is not None and text(t.type) == "bool"
        kind = "dtype" if t.kind == "type" else "int" if t.kind == "value" and not (truth or t.function) else "any"
        if bindings is not None:
            metas.append(n.Meta(t.name, "any" if kind == "dtype" else kind, default))
        else:
            metas.append(n.Meta(t.name, kind))
    axes = max([0, *g.grid_axes, *g.grid_extents]) + 1
    sizes = [n.Param(g.extent(k).name, "size", I32, attrs=n.attrs(implicit=True)) for k in range(axes)]
    kernel = n.Kernel(
        fn.name, tuple(n.Axis(g.place(k).name, g.extent(k)) for k in range(axes)), _threads(g), body, r.cluster,
        attrs=launch_bounds(fn), origin=fn.unit.origin(fn.node),
    )  # fmt: skip
    return n.Program(fn.name, tuple(metas), (*params, *p.extents, *sizes), tensor_maps=tuple(p.maps), kernels=(kernel,))


def _accesses(body: tuple[n.Stmt, ...]) -> tuple[set[str], set[str]]:
    """Global buffers that are read, and those that are written; through views too."""
    read: set[str] = set()
    written: set[str] = set()
    under: dict[str, str] = {}
    for x in _nodes(body):
        match x:
            case n.View():
                under[x.buffer.name] = x.at.buffer.name
            case n.Store():
                written.add(x.at.buffer.name)
            case n.Copy():
                written.add(x.dst.buffer.name)
            case n.Load():
                read.add(x.at.buffer.name)
            case n.Call():
                regions = [a.buffer.name for a in x.args if isinstance(a, n.Region)]
                if x.fn.startswith("atomic_") or x.fn.startswith("st"):
                    written |= set(regions)
                read |= set(regions)
            case _:
                pass
    if any(isinstance(x, n.Opaque) for x in _nodes(body)):
        every = {x.buffer.name for x in _nodes(body) if isinstance(x, n.Region)}
        read |= every
    for name in list(read):
        read.add(under.get(name, name))
    for name in list(written):
        written.add(under.get(name, name))
    return read, written


def _nodes(body: tuple[n.Stmt, ...]) -> Iterator[n.Node]:
    for s in body:
        yield from walk(s)


def _role(q: n.Param, read: bool, written: bool) -> n.Param:
    if not isinstance(q.of, n.Buffer) or q.of.dtype.is_symbolic:
        return q
    role = "inout" if read and written else "out" if written else "in"
    return n.Param(q.name, role, q.of, q.value, q.attrs)  # type: ignore[arg-type]  # one of the roles
