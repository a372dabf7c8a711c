"""Applies an elementwise function to a result while it is still in registers, instead of in a kernel of its own.

pipeline: `fuse-epilogue@epilogue`

```diff
 kir 1
 program scaled_rows
   in X: f32[M, N]
   in B: f32[N]
   out Y: f16[M, N]
   size M: i32
   size N: i32
-  workspace raw: f32[M, N]
 kernel main grid (row: M) threads 128
   for j in 0..N
     register acc: f32 = X[row, j]
-    raw[row, j] = acc
-kernel epilogue grid (i_1: N, i: M) threads 1
-  Y[i, i_1] = cast(raw[i, i_1] + B[i_1], f16)
+    Y[row, j] = cast(acc + B[j], f16)
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from kir.analysis.access import Aliases, buffers_written
from kir.analysis.clipping import hangs_over, ranges_of, zero
from kir.analysis.elements import NotElementwise, element, element_region, tile, tile_region
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32, TileType, dtype_of, shape_of
from kir.ir.visit import names_read, substitute, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import fresh, kernel_of, places, replace_stmts
from kir.rewrite.match import is_read, names_at, node_as


def _consumer(program: n.Program, kernel: n.Kernel) -> tuple[n.Store, n.Workspace] | str:
    """The store of a kernel that maps one workspace, element by element, and that workspace; or why it is no such kernel."""
    if len(kernel.body) != 1 or not isinstance(s := kernel.body[0], n.Store) or not build.is_const(kernel.threads, 1):
        return ""
    axes = {a.name for a in kernel.grid}
    for w in program.workspaces:
        reads = {x.at for x in walk(s.value) if isinstance(x, n.Load) and x.at.buffer == w.buffer}
        if not reads:
            continue
        if len(reads) > 1:
            return f"'{w.buffer.name}' is read at several places"
        [place] = reads
        named = [i.name for i in place.index if isinstance(i, n.Var)]
        if len(named) != len(place.index) or set(named) != axes or len(set(named)) != len(named):
            return f"'{w.buffer.name}' is not read element by element"
        if any(a.extent != dict(zip(named, w.buffer.shape, strict=True))[a.name] for a in kernel.grid):
            return "the grid does not cover the workspace"
        return s, w
    return ""


def _producer(program: n.Program, w: n.Workspace) -> tuple[Path, n.Store] | str:
    """The one store of a workspace."""
    found = _writers(program, w.buffer.name)
    if len(found) != 1:
        return f"{len(found)} statements write '{w.buffer.name}'"
    path, s = found[0]
    return (path, s) if isinstance(s, n.Store) and s.at.buffer.name == w.buffer.name else f"'{w.buffer.name}' is not filled by a store"


def _writers(program: n.Program, name: str) -> list[tuple[Path, n.Stmt]]:
    """The statements that write, or may write, a buffer under any of its names."""
    memory = Aliases(program)
    return [(path, s) for path, s in places(program) if isinstance(s, n.Stmt) and not isinstance(s, (n.For, n.While, n.If, n.Roles))
            and any(memory.may_be_one(name, other) for other in buffers_written((s,)))]


def _only_reader(program: n.Program, site: Site, context: Context) -> Verdict:
    found = _consumer(program, kernel_of(program, site.path))
    assert not isinstance(found, str)
    name = found[1].buffer.name
    readers = [k.name for k in program.kernels if is_read(k, name)]
    if readers != [site.path[0]]:
        return refuted(f"'{name}' has other readers", *(f"kernel '{k}' reads it" for k in readers if k != site.path[0]))
    return proved(f"only this kernel reads '{name}'")


def _in_order(program: n.Program, site: Site, context: Context) -> Verdict:
    found = _consumer(program, kernel_of(program, site.path))
    assert not isinstance(found, str)
    producer = _producer(program, found[1])
    assert not isinstance(producer, str)
    order = [k.name for k in program.kernels]
    first, second = order.index(str(producer[0][0])), order.index(str(site.path[0]))
    between = program.kernels[first + 1:second]
    target = found[0].at.buffer.name
    used = {x.at.buffer.name for k in program.kernels[first:second] for x in walk(k) if isinstance(x, (n.Load, n.Store))}
    reads = {x.at.buffer.name for x in walk(found[0].value) if isinstance(x, n.Load)} - {found[1].buffer.name}
    written = {x.at.buffer.name for k in program.kernels[first:second] for x in walk(k) if isinstance(x, n.Store)}
    if first > second or target in used or reads & written:
        return refuted("what the epilogue reads or writes is touched between its place and the producer's",
                       *(f"kernel '{k.name}'" for k in between or (program.kernels[first],)))
    return proved("nothing touches the epilogue's operands and result before it runs")


@dataclass(frozen=True)
class FuseEpilogue(Pass):
    """`kernel` is the name of the elementwise kernel, `workspace` that of the memory between the two."""

    intent: ClassVar[str] = "fuse-epilogue"
    catalogue: ClassVar[tuple[int, ...]] = (56, 55)
    claim: ClassVar[str] = "The result is transformed in registers: one launch and one round trip through memory less."
    provides: ClassVar[tuple[str, ...]] = ("epilogue",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P560", "validity", "storage", "nothing else reads what lies between the two kernels", _only_reader),
        Precondition("KIR-P561", "validity", "pipeline", "nothing touches the epilogue's operands and result before it", _in_order),
    )

    kernel: str = "epilogue"
    workspace: str = "raw"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At an elementwise kernel over a workspace that one store fills."""
        if not isinstance(node, n.Kernel) or program.plan:
            return None
        found = _consumer(program, node)
        if isinstance(found, str):
            return Miss(found) if found else None
        producer = _producer(program, found[1])
        if isinstance(producer, str):
            return Miss(producer)
        if not is_local(producer[1].value) or producer[1].mask is not None:
            return Miss("the producer does not store a local result as it is")
        params = FuseEpilogue(node.name, found[1].buffer.name)
        try:
            _fused(producer[1], found[0], found[1])
        except NotElementwise as bad:
            return Miss(str(bad))
        return Site(path, params)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The producer stores the transformed value."""
        found = _consumer(program, kernel_of(program, site.path))
        assert not isinstance(found, str)
        producer = _producer(program, found[1])
        assert not isinstance(producer, str)
        path, store = producer
        made = replace_stmts(program, path, (_fused(store, found[0], found[1]),))
        made = replace(made, kernels=tuple(k for k in made.kernels if k.name != self.kernel),
                       workspaces=tuple(w for w in made.workspaces if w.buffer.name != self.workspace))
        return Rewritten(made, path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a store of a value that is computed from one local result."""
        if not (isinstance(node, n.Store) and node.at.buffer.space == "global" and node.mask is None) or program.plan:
            return None
        if len(node.at.buffer.shape) > 3:
            return Miss("a grid has at most three axes")
        taken = names_at(program, path) | {k.name for k in program.kernels}
        params = FuseEpilogue(fresh(self.kernel, set(taken)), fresh(self.workspace, set(taken)))
        try:
            split = params._split(program, path, node)
        except NotElementwise as bad:
            return Miss(str(bad))
        return Site(path, params, {"split": split})

    def _split(self, program: n.Program, path: Path, s: n.Store) -> tuple[n.Store, n.Kernel, n.Workspace]:
        source = _local_source(s.value)
        c = s.at.buffer
        raw = n.Buffer(self.workspace, dtype_of(source.type), c.shape, "global")
        taken = names_at(program, path) | {self.kernel, self.workspace}
        grid = [n.Axis(fresh("i", taken), d) for d in c.shape]
        values: dict[str, n.Expr] = {}
        index: list[n.Expr] = []
        for i, axis in zip(s.at.index, grid, strict=True):
            at = build.var(axis.name)
            if isinstance(i, n.Span):
                sym = n.Var(f"%{len(index)}", I32)
                values[sym.name] = build.sub(at, i.lo)
                index.append(sym)
            elif isinstance(i, n.Var):
                values[i.name] = at
            else:
                raise NotElementwise("the place of the store is no plain index")
        place = n.Region(raw, tuple(build.var(a.name) for a in grid))
        if isinstance(source.type, TileType) and len(source.type.shape) != len(index):
            raise NotElementwise("the local result has other axes than the store")
        own = element(source, index) if isinstance(source.type, TileType) else source
        scalar = element(s.value, index) if isinstance(s.value.type, TileType) else s.value
        mapped: n.Expr = substitute(transform(scalar, lambda old, new: n.Load(place) if new == own else new), values)
        left = names_read(mapped) - {a.name for a in grid} - {p.name for p in program.params}
        ends = {a.name: a.extent for a in grid}

        def plain(old: n.Node, new: n.Node) -> n.Node:
            inside = isinstance(new, n.Load) and new.clip and new.mask is None and not hangs_over(new.at, ends, program.facts)
            return n.Load(new.at) if isinstance(new, n.Load) and inside else new
        mapped = transform(mapped, plain)
        known = {p.name for p in program.params} | {w.buffer.name for w in program.workspaces}
        if strange := sorted(({x.at.buffer.name for x in walk(mapped) if isinstance(x, n.Load)} | {c.name}) - known - {raw.name}):
            raise NotElementwise(f"'{strange[0]}' is a name of this kernel's own")
        if len(_writers(program, c.name)) > 1:
            raise NotElementwise(f"'{c.name}' is written by other statements too, which the new kernel would write over")
        if missing := _left_out(s, kernel_of(program, path)):
            raise NotElementwise(f"the store leaves a part of axis {missing - 1} of '{c.name}' out, which the new kernel would read")
        if left or any(isinstance(x, n.Load) and x.at.buffer.space != "global" for x in walk(mapped)):
            raise NotElementwise(f"the value also depends on '{sorted(left)[0]}'" if left else "the value depends on several local results")
        kernel = n.Kernel(self.kernel, tuple(reversed(grid)), build.const(1), (n.Store(n.Region(c, place.index), mapped),))
        return replace(s, at=build.region(raw, *s.at.index), value=source), kernel, n.Workspace(raw)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The producer stores the local result; a kernel of its own transforms it."""
        node = node_as(program, site.path, n.Store)
        store, kernel, workspace = self._split(program, site.path, node)
        made = replace_stmts(program, site.path, (store,))
        order = [k.name for k in made.kernels].index(str(site.path[0])) + 1
        kernels = (*made.kernels[:order], kernel, *made.kernels[order:])
        return Rewritten(replace(made, kernels=kernels, workspaces=(*made.workspaces, workspace)), (self.kernel,))


def _left_out(s: n.Store, kernel: n.Kernel) -> int:
    """The first axis (from 1 on) of which a store surely leaves something out; 0 where none is known."""
    ends = ranges_of(kernel)
    for k, (i, d) in enumerate(zip(s.at.index, s.at.buffer.shape, strict=True), 1):
        size = build.int_value(d)
        if isinstance(i, n.Span):
            first = build.int_value(i.lo)
            if first is not None and isinstance(i.extent, int) and (first > 0 or (size is not None and i.extent < size)):
                return k
        elif isinstance(i, n.Var) and i.name in ends:
            end = build.int_value(ends[i.name])
            if end is not None and size is not None and end < size:
                return k
    return 0


def is_local(e: n.Expr) -> bool:
    """Whether an expression is a result as it stands in registers: an accumulator or a named tile."""
    return (isinstance(e, n.Load) and e.at.buffer.space in ("register", "fragment")) or (isinstance(e, n.Var) and isinstance(e.type, TileType))


def _local_source(e: n.Expr) -> n.Expr:
    """The one local value that an epilogue is computed from: an accumulator, a named tile, or a product of the kernel itself."""
    found = {x for x in walk(e) if isinstance(x, n.Expr) and is_local(x)}
    if len(found) != 1 or e in found:
        raise NotElementwise("the value is no function of one local result")
    return found.pop()


def _clipped(old: n.Node, new: n.Node) -> n.Node:
    if isinstance(new, n.Load) and new.mask is None and not new.clip and new.at.buffer.space == "global":
        return build.load(new.at, None, zero(new.at), clip=True)
    return new


def _fused(store: n.Store, consumer: n.Store, w: n.Workspace) -> n.Store:
    """The producer's store with the consumer's function applied."""
    shape = shape_of(store.at.type)
    axes = [(n.Var(f"%{k}", I32), d) for k, d in enumerate(shape)]
    index = [v for v, _ in axes]
    place = element_region(store.at, index)
    read = next(x for x in walk(consumer.value) if isinstance(x, n.Load) and x.at.buffer == w.buffer)
    values = {i.name: at for i, at in zip(read.at.index, place.index, strict=True) if isinstance(i, n.Var) and isinstance(at, n.Expr)}
    value = element(store.value, index) if isinstance(store.value.type, TileType) else store.value
    held = n.Var("%held", read.type)
    scalar: Any = substitute(transform(consumer.value, lambda old, new: held if new == read else new), values)
    if store.clip:  # the producer reaches over the edge, where the kernel of its own never read
        scalar = transform(scalar, _clipped)
    scalar = substitute(scalar, {held.name: value})
    at = tile_region(substitute(consumer.at, values), axes)
    if at is None or at[1] != list(range(len(axes))):
        raise NotElementwise("the result's place has no form as a tile of the producer")
    return replace(store, at=at[0], value=tile(scalar, axes), label=store.label)

