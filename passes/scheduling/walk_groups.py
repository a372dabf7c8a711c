"""Launches as many CTAs as fit on the device, each of which walks over the tiles of groups of uneven length, one group after another.

Before, each group has as many tiles as the longest could have, and those beyond its length compute and store nothing. Afterwards the tiles that there are
count on from group to group, and CTA p takes every tile of which the number is p modulo the number of CTAs: no CTA looks for its group more than once,
and no host needs to know how long groups are. Given an `order`, a kernel without roles counts nothing: the first tile of a group is its number.

pipeline: `walk-groups{ctas=3}@main`

```diff
 kir 1
 program sums
   size G: i32
   size M: i32
   size L: i32
   in X: f16[G, 2, M, L] align 16
   in counts: i32[G]
   inout Y: f32[G, 2, M]
   fact L % 8 == 0
   map X_map of X box [1, 1, 2, 64]
-kernel main grid (i: ceildiv(M, 2), j: 2, g: G) threads 256
-  let rows = counts[g]
+kernel main grid (pid: 3) threads 256
   shared Xs: f16[2, 64] align 128
   shared full: mbarrier[1]
   shared empty: mbarrier[1]
   mbar_init(&full[0], 1)
   mbar_init(&empty[0], 1)
   fence_mbar_init()
   roles
     role producer warps 0..4
-      for k in 0..ceildiv(L, 64)
-        mbar_wait(&empty[0], (k + 1) % 2)
-        mbar_arrive_expect(&full[0], 256)
-        copy load(X[g, j, i * 2 +: 2, k * 64 +: 64] else 0.0:f16 clip) -> Xs via tma signal full[0] {descriptor=X_map}
+      register before: i32 = 0
+      register done: i32 = 0
+      for g in 0..G
+        let rows = counts[g]
+        let seen = before
+        let height = ceildiv(rows, 2)
+        for t in (pid - seen) % 3..height * 2 step 3
+          let i = t % height
+          let j = t // height
+          let count = done
+          for k in 0..ceildiv(L, 64)
+            mbar_wait(&empty[0], (ceildiv(L, 64) * count + k + 1) % 2)
+            mbar_arrive_expect(&full[0], 256)
+            copy load(X[g, j, i * 2 +: 2, k * 64 +: 64] else 0.0:f16 clip) -> Xs via tma signal full[0] {descriptor=X_map}
+          done = count + 1
+        before = height * 2 + seen
     role consumer warps 4..8
-      fragment acc: f32[2] = 0.0
-      for c in 0..ceildiv(L, 64)
-        mbar_wait(&full[0], c % 2)
-        acc = acc + reduce(cast(Xs, f32), axis=1, op=sum)
-        mbar_arrive(&empty[0])
-      Y[g, j, i * 2 +: 2] = acc where iota(2) + i * 2 < rows & iota(2) + i * 2 < M clip
+      register before_1: i32 = 0
+      register done_1: i32 = 0
+      for g_1 in 0..G
+        let rows_1 = counts[g_1]
+        let seen_1 = before_1
+        let height_1 = ceildiv(rows_1, 2)
+        for t_1 in (pid - seen_1) % 3..height_1 * 2 step 3
+          let i_1 = t_1 % height_1
+          let j_1 = t_1 // height_1
+          let count_1 = done_1
+          fragment acc: f32[2] = 0.0
+          for c in 0..ceildiv(L, 64)
+            mbar_wait(&full[0], (c + ceildiv(L, 64) * count_1) % 2)
+            acc = acc + reduce(cast(Xs, f32), axis=1, op=sum)
+            mbar_arrive(&empty[0])
+          Y[g_1, j_1, i_1 * 2 +: 2] = acc where i_1 * 2 + iota(2) < rows_1 & i_1 * 2 + iota(2) < M clip
+          done_1 = count_1 + 1
+        before_1 = height_1 * 2 + seen_1
```
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.paths import child_blocks
from kir.ir.printer import expr_text
from kir.ir.types import I32, DType, TileType, dtype_of
from kir.ir.visit import buffers_named, names_read, statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import fresh, kernel_of, names_in, replace_kernel
from kir.rewrite.match import counting, fresh_var, matched, matched_as, params_as, values_for
from kir.rewrite.match.materialize import buffers_written
from kir.rewrite.view import expression_at, text_of

from ..grid.tile import conjuncts
from ..pipelining._rings import NoRing, Rings, roles_at
from ._persistent_roles import around, counted_on, every_tile_ends, inside, leading, merged, names_read_in, renamed, trips
from .linear_grid import quotient_of


def _ends(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel, item = kernel_of(program, site.path), params_as(site, WalkGroups)
    natural = _natural(kernel)
    along, (_, extent) = kernel.grid[0].name, matched(_tiled(kernel))
    for s, conditions in _guards(kernel.body):
        if not any(_below(c, along, extent, build.var(item.length), natural) for c in conditions):
            return unknown(f"'{_target(s)}' is stored where nothing says that it lies within {item.length} of its group",
                           needs=f"a mask of its place against {item.length}")
    return proved(f"a tile stores only what lies within {item.length} of its group")


def _all_there(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel = kernel_of(program, site.path)
    natural, (most, extent) = _natural(kernel), matched(_tiled(kernel))
    for s, conditions in _guards(kernel.body):
        if not any(_below(c, kernel.grid[0].name, extent, most, natural) for c in conditions):
            return unknown(f"a group may be longer than the grid reaches, and '{_target(s)}' is stored there too",
                           needs=f"a mask of its place against {expr_text(most)}")
    return proved(f"a tile stores only what lies within the grid, which has {extent} elements a tile")


def _natural(kernel: n.Kernel) -> set[str]:
    """The axes and counters of a kernel, none of which is negative."""
    return {a.name for a in kernel.grid} | {s.var.name for s in statements(kernel.body) if isinstance(s, n.For) and (build.int_value(s.lo) or 0) >= 0
                                            and build.int_value(s.lo) is not None and (build.int_value(s.step) or 0) > 0}


def _independent(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel = kernel_of(program, site.path)
    written = buffers_written(kernel.body)
    for x in walk(kernel):
        if isinstance(x, n.Call) and any(isinstance(a, n.Region) and a.buffer.space == "global" for a in x.args):
            return unknown(f"'{x.fn}' on global memory may tie tiles together", needs="tiles that do not wait for one another")
        if isinstance(x, n.Load) and x.at.buffer.space == "global" and x.at.buffer.name in written:
            return unknown(f"a tile reads '{x.at.buffer.name}' where another may have written", needs="independent tiles")
    return proved("no tile reads what another writes")


def _in_step(program: n.Program, site: Site, context: Context) -> Verdict:
    kernel = kernel_of(program, site.path)
    found = roles_at(kernel)
    if found is None:
        return proved("the kernel has no roles")
    counts = set(trips(kernel, found[1]).values())
    dependent = {a.name for a in kernel.grid} | {x for s in kernel.body[:-1] if isinstance(s, n.Let) for x in s.names}
    if any(names_read(e) & dependent for e in counts):
        return refuted("a role takes as many slots as its tile says", "the next tile begins in another slot", needs="as many iterations for each tile")
    if len(counts) > 1:
        return refuted("roles take different numbers of slots for a tile", "in the second tile they wait for different slots",
                       needs="as many iterations in each role")
    return proved("each role takes the same slots for each tile")


@dataclass(frozen=True)
class WalkGroups(Pass):
    """`ctas` is the number of CTAs launched, `length` the value that says how many elements of a group there are. The tiles of a group are counted along
    its length first, in panels of `panel` tiles (0: all of them). `order` is about how many tiles along lie in the groups before, and says which CTA has
    a group's first: any number is right, and one that is near keeps CTAs busy alike."""

    intent: ClassVar[str] = "persistent"
    catalogue: ClassVar[tuple[int, ...]] = (30,)
    claim: ClassVar[str] = "Only tiles that there are cost time, and CTAs are busy alike however uneven the groups are."
    conflicts: ClassVar[tuple[str, ...]] = ("persistent",)
    provides: ClassVar[tuple[str, ...]] = ("persistent",)
    least: ClassVar[Mapping[str, int]] = {"ctas": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P302", "validity", "storage", "nothing is stored beyond the length of a group", _ends),
        Precondition("KIR-P303", "validity", "shape", "nothing is stored beyond the grid", _all_there),
        Precondition("KIR-P304", "validity", "aliasing", "tiles are independent of one another", _independent),
        Precondition("KIR-P305", "validity", "pipeline", "no tile leaves the kernel early", every_tile_ends),
        Precondition("KIR-P306", "validity", "pipeline", "roles take as many slots of their rings for each tile", _in_step),
    )

    length: str = "rows"
    ctas: int = 132
    panel: int = 0
    order: str = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel with a grid of tiles along a group, tiles across, and groups."""
        if not isinstance(node, n.Kernel):
            return None
        if len(node.grid) != 3 or node.cluster:
            return Miss("the grid has not three axes, or CTAs form clusters")
        if self.panel < 0 or _tiled(node) is None or any(dtype_of(a.extent.type) != I32 for a in node.grid):
            return Miss("no panel, a first axis that counts no tiles, or axes that are not counted in 32 bits")
        try:
            if self.length not in {x for s in _parts(node)[1] for x in s.names}:
                return Miss(f"'{self.length}' is no value of a group before the roles")
            order = self._ordered(program, path, node) if self.order else None
            if self.order and (order is None or roles_at(node)):
                return Miss("the order is no number of a group, or a ring's slots are counted from group to group")
            self._walking(program, path, node)
        except NoRing as why:
            return Miss(str(why))
        return Site(path, replace(self, order=text_of(order)) if order else self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over groups and one over the tiles of each that are the CTA's, in each role."""
        kernel = kernel_of(program, site.path)
        return Rewritten(replace_kernel(program, kernel.name, self._walking(program, site.path, kernel)), site.path)

    def _ordered(self, program: n.Program, path: Path, kernel: n.Kernel) -> n.Expr | None:
        """The order over the values of a group."""
        of_group = tuple(n.Var(x, s.value.type) for s in _parts(kernel)[1] for x in s.names)
        e = expression_at(program, path, self.order, (*of_group, build.var(kernel.grid[2].name)))
        loads = e is None or any(isinstance(x, n.Load) for x in walk(e))
        return None if loads or e is None or e.type != I32 or names_read(e) & {a.name for a in kernel.grid[:2]} else e

    def _walking(self, program: n.Program, path: Path, kernel: n.Kernel) -> n.Kernel:
        (_, extent), (_, across, group) = matched(_tiled(kernel)), kernel.grid
        given = _teams(kernel)
        rings, slots = (Rings.of(kernel), trips(kernel, given)) if roles_at(kernel) else (None, {})
        front, of_group, of_tile = _parts(kernel)
        taken = names_in(program, kernel)
        pid, order = fresh_var("pid", taken), self._ordered(program, path, kernel) if self.order else None
        roles = []
        for k, r in enumerate(given.roles):
            body, split = inside(r.body)
            of_tile_used = values_for(of_tile, names_read_in(body))
            lets = values_for(of_group, names_read_in((*of_tile_used, *body)) | {self.length} | (names_read(order) if order else set()))
            again = {x: fresh(x, taken) if k else x for x in (*bound_names((*lets, *of_tile_used)), *(a.name for a in kernel.grid))}
            number, count, seen = fresh_var("t", taken), fresh_var("count", taken), fresh_var("seen", taken)
            if k in slots and rings is not None:
                body = counted_on(body, rings, build.mul(count, slots[k]), count)
            before, done = (n.Buffer(fresh(x, taken), I32, (), "register") for x in ("before", "done"))
            walked = _Walk(before, done, build.var(again[group.name]), pid, number, count, seen, fresh_var("height", taken), self.ctas, self.panel,
                           build.var(again[kernel.grid[0].name]), build.var(again[across.name]),
                           tuple(fresh_var(x, taken) for x in ("width", "panel", "tall")) if self.panel else (), order)
            inner = tuple(renamed(s, again) for s in (*of_tile_used, *body))
            outer = tuple(renamed(s, again) for s in lets)
            rows = build.var(again[self.length])
            block = walked.around(tuple(matched_as(s, n.Let) for s in outer), rows, extent, across.extent, group.extent, inner)
            roles.append(replace(r, body=around(split, block)))
        made = (replace(given, roles=tuple(roles)),) if rings is not None else roles[0].body
        return replace(kernel, grid=(n.Axis(pid.name, build.const(self.ctas)),), body=(*front, *made))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that is such a walk, or each of whose roles is."""
        if not isinstance(node, n.Kernel) or len(node.grid) != 1 or node.cluster:
            return None
        try:
            kernel, item = _standing(program, node)
        except NoRing as why:
            return Miss(str(why))
        return Site(path, item, {"kernel": kernel})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """One CTA for each tile that the longest group could have, of each group."""
        kernel: n.Kernel = site.captures["kernel"]
        return Rewritten(replace_kernel(program, kernel.name, kernel), site.path)


@dataclass(frozen=True)
class _Walk:
    """What a role's walk is made of: registers that count the tiles of the groups before and those that it did, the group, the CTA, the number of a tile in
    its group, how many were done before it, the tiles before the group, the tiles along it, and the tile's two coordinates."""

    before: n.Buffer
    done: n.Buffer
    group: n.Var
    pid: n.Var
    number: n.Var
    count: n.Var
    seen: n.Var
    height: n.Var
    ctas: int
    panel: int
    along: n.Var
    across: n.Var
    parts: tuple[n.Var, ...] = ()
    order: n.Expr | None = None

    def around(self, lets: tuple[n.Let, ...], rows: n.Expr, extent: int, columns: n.Expr, groups: n.Expr, body: n.Block) -> n.Block:
        """The walk around what is done for one tile."""
        if self.order is not None:
            own = build.mod(build.mul(self.seen, columns), self.ctas)
            start = build.mod(build.sub(build.add(self.pid, self.ctas), own), self.ctas)
            tiles = n.For(self.number, start, build.mul(self.height, columns), build.const(self.ctas), (*self.coordinates(columns), *body))
            along = build.ceildiv(build.maximum(rows, 0), extent)
            return (counting(self.group, groups, (*lets, n.Let((self.seen.name,), self.order), n.Let((self.height.name,), along), tiles)),)
        held, did = n.Region(self.before), n.Region(self.done)
        one = (*self.coordinates(columns), n.Let((self.count.name,), n.Load(did)), *body, n.Store(did, build.add(self.count, 1)))
        tiles = n.For(self.number, build.mod(build.sub(self.pid, self.seen), self.ctas), build.mul(self.height, columns), build.const(self.ctas), one)
        inner = (*lets, n.Let((self.seen.name,), n.Load(held)), n.Let((self.height.name,), build.ceildiv(rows, extent)), tiles,
                 n.Store(held, build.add(self.seen, build.mul(self.height, columns))))
        return (n.Alloc(self.before, build.const(0)), n.Alloc(self.done, build.const(0)), counting(self.group, groups, inner))

    def coordinates(self, columns: n.Expr) -> n.Block:
        """The coordinates of a tile."""
        if not self.panel:
            return (n.Let((self.along.name,), build.mod(self.number, self.height)), n.Let((self.across.name,), build.floordiv(self.number, self.height)))
        width, panel, tall = self.parts
        start = build.mul(panel, self.panel)
        within, high = build.mod(self.number, width), build.minimum(build.sub(self.height, start), self.panel)
        return (n.Let((width.name,), build.mul(columns, self.panel)), n.Let((panel.name,), build.floordiv(self.number, width)),
                n.Let((tall.name,), high if self.order is None else build.maximum(high, 1)),
                n.Let((self.along.name,), build.add(start, build.mod(within, tall))), n.Let((self.across.name,), build.floordiv(within, tall)))


def _work(kernel: n.Kernel) -> n.Block:
    """What a kernel does for a tile: its roles, or what follows the values that it begins with."""
    if roles_at(kernel):
        return kernel.body[-1:]
    first = next((i for i, s in enumerate(kernel.body) if not isinstance(s, n.Let) or isinstance(s.value.type, TileType)), len(kernel.body) - 1)
    return kernel.body[first:]


def _teams(kernel: n.Kernel, last: int = 0) -> n.Roles:
    """A kernel's roles; without them all of its work, or so many of its last statements, as one."""
    found = roles_at(kernel)
    return found[1] if found else n.Roles((n.Role("all", 0, 0, kernel.body[-last:] if last else _work(kernel)),))


def _guards(block: n.Block) -> Iterator[tuple[n.Stmt, tuple[n.Expr, ...]]]:
    """As `_guarded`, of each of several statements."""
    for s in block:
        yield from _guarded(s)


def _parts(kernel: n.Kernel) -> tuple[n.Block, tuple[n.Let, ...], tuple[n.Let, ...]]:
    """What a kernel does before its roles: for all tiles, for those of a group, and for each. Raises NoRing."""
    tile, group = {a.name for a in kernel.grid[:2]}, {kernel.grid[2].name}
    front, of_group, of_tile = list[n.Stmt](), list[n.Let](), list[n.Let]()
    written = buffers_written(kernel.body)
    for s in kernel.body[:-len(_work(kernel))]:
        read = names_read(s)
        if not read & (tile | group):
            front.append(s)
            continue
        if not isinstance(s, n.Let) or not isinstance(s.value.type, DType) or any(
                isinstance(x, n.Load) and (x.at.buffer.space != "global" or x.at.buffer.name in written) for x in walk(s.value)):
            raise NoRing("something but a value depends on the tile before the roles")
        (of_tile if read & tile else of_group).append(s)
        (tile if read & tile else group).update(s.names)
    return tuple(front), tuple(of_group), tuple(of_tile)


def _tiled(kernel: n.Kernel) -> tuple[n.Expr, int] | None:
    """The elements that a kernel's first axis counts tiles of, and how many a tile has."""
    tiles = kernel.grid[0].extent
    each = build.int_value(tiles.b) if isinstance(tiles, n.Binary) and tiles.op == "ceildiv" else None
    return (tiles.a, each) if isinstance(tiles, n.Binary) and each is not None else None


def _target(s: n.Stmt) -> str:
    return s.at.buffer.name if isinstance(s, n.Store) else s.dst.buffer.name if isinstance(s, n.Copy) else "?"


def _guarded(block: n.Roles | n.Stmt, under: tuple[n.Expr, ...] = ()) -> Iterator[tuple[n.Stmt, tuple[n.Expr, ...]]]:
    """The statements that write to global memory, each with the conditions under which it does."""
    for steps, inner in child_blocks(block):
        here = under
        if isinstance(block, n.If):
            here = (*under, *conjuncts(block.cond)) if steps[0] == "then" else under
        for s in inner:
            yield from _guarded(s, here)
    match block:
        case n.Store(mask=mask, at=at) | n.Copy(mask=mask, dst=at) if at.buffer.space == "global":
            yield block, (*under, *(conjuncts(_element(mask)) if mask is not None else ()))
        case _:
            pass


def _below(cond: n.Expr, along: str, extent: int, length: n.Expr, natural: set[str]) -> bool:
    """Whether the tile begins below the length where a condition holds: of a place in the tile, or of its end."""
    cond = _element(cond)
    if not (isinstance(cond, n.Binary) and cond.op in ("lt", "le")) or _element(cond.b) != length:
        return False
    least = _beyond(cond.a, along, extent, natural)
    return least is not None and least + (cond.op == "lt") >= 1


def _beyond(e: n.Expr, along: str, extent: int, natural: set[str]) -> int | None:
    """How far a place lies at least beyond the beginning of its tile; None where that is not known."""
    by, least = _moves(e, along, natural) or (None, 0)
    return least if by == extent else None


def _moves(e: n.Expr, along: str, natural: set[str]) -> tuple[int, int] | None:
    """By how many places a sum moves with each tile, and what the rest of it is at least; None where that is not known."""
    e = _element(e)
    if isinstance(e, n.Call) and e.fn == "iota":
        return 0, 0
    if isinstance(e, n.Binary) and e.op == "add" and not isinstance(e.type, DType):
        a, b = _moves(e.a, along, natural), _moves(e.b, along, natural)
        return None if a is None or b is None else (a[0] + b[0], a[1] + b[1])
    if not isinstance(e.type, DType):
        return None
    by, least = 0, 0
    for monomial, c in build.polynomial(e).items():
        if not monomial:
            least += c
        elif monomial == (build.var(along),):
            by += c
        elif c < 0 or not all(isinstance(a, n.Var) and a.name in natural for a in monomial):
            return None
    return by, least


def _element(e: n.Expr) -> n.Expr:
    """What an element of a stretched value is."""
    while isinstance(e, n.Call) and e.fn in ("broadcast", "expand") and isinstance(e.args[0], n.Expr):
        e = e.args[0]
    return e


def _standing(program: n.Program, kernel: n.Kernel) -> tuple[n.Kernel, WalkGroups]:
    """The kernel of one tile a CTA that such a walk is over, and what the pass is told for it. Raises NoRing."""
    ordered = _ordered_walk(kernel)
    given, ctas = _teams(kernel, last=1 if ordered else 3), build.int_value(kernel.grid[0].extent)
    rings, slots = (Rings.of(kernel), trips(kernel, given)) if roles_at(kernel) else (None, {})
    roles, lets = list[n.Role](), (list[n.Let](), list[n.Let]())
    first: _Read | None = None
    for k, r in enumerate(given.roles):
        body, split = inside(r.body)
        mine = _read(kernel, body, ctas or 0)
        first = mine if first is None else first
        w, base = mine.walk, first.walk
        if (mine.extent, mine.columns, mine.groups, w.panel) != (first.extent, first.columns, first.groups, base.panel):
            raise NoRing("roles walk over different tiles")
        plain = counted_on(mine.body, rings, build.mul(w.count, slots[k]), w.count, back=True) if k in slots and rings is not None else mine.body
        own, rest = leading(plain)
        again = {a.name: b.name for a, b in ((w.group, base.group), (w.along, base.along), (w.across, base.across))}
        for kind, values in enumerate((mine.lets, own)):
            merged_, more = merged(lets[kind], tuple(matched_as(renamed(s, again), n.Let) for s in values))
            lets[kind][:] = merged_
            again |= more
        if again.get(mine.rows.name, mine.rows.name) != first.rows.name:
            raise NoRing("roles walk over groups of different lengths")
        block = tuple(renamed(s, again) for s in rest)
        gone = {w.before.name, w.done.name, w.number.name, w.count.name, w.seen.name, w.height.name, w.pid.name, *(x.name for x in w.parts)}
        if any(gone & (names_read(s) | buffers_named(s)) for s in (*own, *block)):
            raise NoRing(f"what '{r.name}' does depends on how many tiles it did before")
        roles.append(replace(r, body=around(split, block)))
    front = kernel.body[:-1 if rings is not None or ordered else -3]
    if first is None or any(first.walk.pid.name in names_read(s) for s in front):
        raise NoRing("the number of the CTA is used for more than its tiles")
    bounds = (_element(c.b) for r in roles for x in r.body for _, conditions in _guarded(x) for c in map(_element, conditions) if isinstance(c, n.Binary))
    most = next((e for e in bounds if names_read(e) <= {p.name for p in program.params} and not buffers_named(e)), None)
    if most is None:
        raise NoRing("nothing that is stored has a place below what the host knows")
    w = first.walk
    grid = (n.Axis(w.along.name, build.ceildiv(most, first.extent)), n.Axis(w.across.name, first.columns), n.Axis(w.group.name, first.groups))
    made = (replace(given, roles=tuple(roles)),) if rings is not None else roles[0].body
    item = WalkGroups(first.rows.name, ctas or 0, w.panel, text_of(w.order) if w.order else "")
    return replace(kernel, grid=grid, body=(*lets[0], *lets[1], *front, *made)), item


@dataclass(frozen=True)
class _Read:
    """A role's walk as it was found: the values of a group, its length, the elements of a tile, the tiles across, the groups, and what is done for a
    tile."""

    walk: _Walk
    lets: tuple[n.Let, ...]
    rows: n.Var
    extent: int
    columns: n.Expr
    groups: n.Expr
    body: n.Block


def _ordered_walk(kernel: n.Kernel) -> bool:
    """Whether a kernel ends with a walk that counts nothing: its last loop ends with that over the tiles of a group."""
    last = kernel.body[-1]
    return isinstance(last, n.For) and isinstance(last.body[-1], n.For) and isinstance(last.body[-1].lo, n.Binary)


def _read(kernel: n.Kernel, block: n.Block, ctas: int) -> _Read:
    """A role's walk. Raises NoRing where it is another than `_Walk.around` writes."""
    other = NoRing("a role does something else than a walk over the tiles of groups")
    before = done = n.Buffer("", I32, (), "register")
    order: n.Expr | None = None
    after: n.Expr | None = None
    match block:
        case (n.For(var=group, hi=groups, body=(*lets, n.Let(names=(seen,), value=order), n.Let(names=(height,), value=along),
                                                 n.For(var=number, hi=tiled, body=tiles))),):
            pass
        case (n.Alloc(buffer=before), n.Alloc(buffer=done), n.For(var=group, hi=groups, body=(*lets, n.Let(names=(seen,)), n.Let(
                names=(height,), value=along), n.For(var=number, body=tiles), n.Store(value=after)))):
            pass
        case _:
            raise other
    extent = build.int_value(along.b) if isinstance(along, n.Binary) and along.op == "ceildiv" else None
    names = [s.names[0] for s in tiles[:6] if isinstance(s, n.Let)]
    rows = along.a if isinstance(along, n.Binary) else None
    rows = rows.a if order is not None and isinstance(rows, n.Binary) and rows.op == "max" else rows
    if not isinstance(rows, n.Var) or extent is None or len(names) < (3 if order is None else 2):
        raise other
    columns = quotient_of(tiled if after is None else build.sub(after, build.var(seen)), build.var(height))
    if columns is None:
        raise other
    for panel in sorted({0, *(c for s in tiles[:6] for x in walk(s) if isinstance(x, n.Const) and isinstance(c := x.value, int) and c > 0)}):
        own = (5 if panel else 2) + (order is None)
        if len(names) < own:
            continue
        *parts, x, y, count = (build.var(name) for name in (*names[:own], *(("",) if order is not None else ())))
        made = _Walk(before, done, group, build.var(kernel.grid[0].name), number, count, build.var(seen), build.var(height), ctas, panel, x, y, tuple(parts),
                     order)
        rest, values = tiles[own:None if order is not None else -1], tuple(matched_as(s, n.Let) for s in lets)
        if made.around(values, rows, extent, columns, groups, rest) == block:
            return _Read(made, values, rows, extent, columns, groups, rest)
    raise other
