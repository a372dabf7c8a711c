"""Divides what a role computes among its warpgroups: each has a block of rows, waits for the stages by itself and gives them back by itself.

pipeline: `cooperative-consumers@main/teams`

```diff
 kir 1
 program product
   in A: f16[128, K]
   in B: f16[K, 64]
   out C: f32[128, 64]
   size K: i32
   fact K % 8 == 0
   map A_map of A box [128, 64] {swizzle=128}
   map B_map of B box [64, 64] {swizzle=128}
 kernel main grid (i: 1) threads 384
   shared As: f16[128, 64] layout swizzle(3, 4, 3) align 1024
   shared Bs: f16[64, 64] layout swizzle(3, 4, 3) align 1024
   shared full: mbarrier[1]
   shared empty: mbarrier[1]
   mbar_init(&full[0], 1)
-  mbar_init(&empty[0], 1)
+  mbar_init(&empty[0], 2)
   fence_mbar_init()
   @teams roles
     role producer warps 0..4
       for k in 0..ceildiv(K, 64)
         mbar_wait(&empty[0], (k + 1) % 2)
         mbar_arrive_expect(&full[0], 24576)
         copy load(A[0 +: 128, k * 64 +: 64] else 0.0:f16 clip) -> As via tma signal full[0] {descriptor=A_map}
         copy load(B[k * 64 +: 64, 0 +: 64] else 0.0:f16 clip) -> Bs via tma signal full[0] {descriptor=B_map}
     role consumer warps 4..12
-      fragment acc: f32[128, 64] = 0.0
-      for j in 0..ceildiv(K, 64)
-        mbar_wait(&full[0], j % 2)
-        mma acc += As * Bs via wgmma
-        mbar_arrive(&empty[0])
-      C[0 +: 128, 0 +: 64] = acc
+      for wg in 0..2 parallel warpgroup
+        fragment acc: f32[64, 64] = 0.0
+        for j in 0..ceildiv(K, 64)
+          mbar_wait(&full[0], j % 2)
+          mma acc += As[wg * 64 +: 64, 0 +: 64] * Bs via wgmma
+          mbar_arrive(&empty[0])
+        C[wg * 64 +: 64, 0 +: 64] = acc
```
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, ClassVar, cast

from kir.base.dataclass import dataclass
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.paths import child_blocks, with_block
from kir.ir.types import TileType, dtype_of, shape_of
from kir.ir.visit import names_read, rebuild, statements, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.edit import kernel_of, names_in, node_at, replace_kernel
from kir.rewrite.match import counting, fresh_var, matched, matched_as, names_at, params_as
from kir.rewrite.match.local_buffers import sizes
from kir.rewrite.match.slices import NoSlice, part, part_of_region, whole, whole_of_region

from ._rings import NoRing
from ._transposed_operands import by_panel, by_view

WARPS = 4
"""Warps of a warpgroup."""
MBARRIER_CALLS = frozenset({"mbar_wait", "mbar_arrive", "mbar_arrive_expect", "mbar_expect"})


def _role(program: n.Program, path: Path, name: str) -> tuple[int, n.Role] | None:
    node = node_at(program, path)
    if not isinstance(node, n.Roles):
        return None
    return next(((i, r) for i, r in enumerate(node.roles) if r.name == name), None)


def _groups(role: n.Role) -> int:
    return (role.hi - role.lo) // WARPS


def _rows_divide(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, CooperativeConsumers)
    found = matched(_role(program, site.path, item.role))
    _, role = found
    groups = _groups(role)
    by_wgmma = {s.acc.buffer.name for s in statements(role.body) if isinstance(s, n.Mma) and s.via == "wgmma"}
    for s in statements(role.body):
        if isinstance(s, n.Alloc) and s.buffer.space == "fragment":
            rows, least = (sizes(s.buffer) or (0,))[0], 64 if s.buffer.name in by_wgmma else 1
            if rows % (groups * least):
                return refuted(f"{rows} rows of '{s.buffer.name}' are not whole blocks{' of 64' if least == 64 else ''} for {groups} warpgroups",
                               f"row {rows // (groups * least) * groups * least} belongs to none", needs=f"a multiple of {groups * least} rows")
    return proved(f"each of {groups} warpgroups has as many rows, and no row needs another")


@dataclass(frozen=True)
class CooperativeConsumers(Pass):
    """`role` is the name of the role."""

    intent: ClassVar[str] = "cooperative-consumers"
    catalogue: ClassVar[tuple[int, ...]] = (29,)
    claim: ClassVar[str] = "Warpgroups wait for stages and not for each other, so that one computes while another stores."
    requires: ClassVar[tuple[str, ...]] = ("roles",)
    provides: ClassVar[tuple[str, ...]] = ("warp-loop",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P755", "validity", "shape", "the rows divide among the warpgroups in whole instructions", _rows_divide),)

    role: str = "consumer"

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At roles of which one has several warpgroups that compute rows together."""
        found = _role(program, path, self.role)
        if not isinstance(node, n.Roles) or found is None:
            return Miss(f"there is no role '{self.role}'") if isinstance(node, n.Roles) else None
        _, role = found
        if (role.hi - role.lo) % WARPS:
            return Miss(f"'{role.name}' is not of whole warpgroups")
        if any(isinstance(s, n.For) and s.kind in ("warpgroup", "warp", "thread") for s in statements(role.body)):
            return Miss(f"'{role.name}' is divided already")
        try:
            self._divided(program, path)
        except (NoSlice, NoRing) as why:
            return Miss(str(why))
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A loop over the warpgroups, each with its rows."""
        return Rewritten(self._divided(program, site.path), site.path)

    def _divided(self, program: n.Program, path: Path) -> n.Program:
        kernel, found = kernel_of(program, path), matched(_role(program, path, self.role))
        at, role = found
        groups = _groups(role)
        wg = fresh_var("wg", names_in(program, kernel))
        body = by_panel(_by_rows(role.body, wg, groups, _fragments(role.body, groups, True), True), wg)
        split = counting(wg, groups, body, "warpgroup")
        return _with_role(program, path, at, (split,), _arrived(role.body), groups - 1)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At roles of which one is a loop over its warpgroups."""
        if not isinstance(node, n.Roles):
            return None
        out: list[Site] = []
        reason: Miss | None = None
        for role in node.roles:
            split = role.body[0] if len(role.body) == 1 else None
            if not isinstance(split, n.For) or split.kind != "warpgroup" or int_value(split.hi) != _groups(role):
                continue
            item = CooperativeConsumers(role.name)
            try:
                item._joined(program, path)
            except (NoSlice, NoRing) as why:
                reason = Miss(str(why))
                continue
            out.append(Site(path, item))
        return tuple(out) or reason

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The role as one team."""
        return Rewritten(self._joined(program, site.path), site.path)

    def _joined(self, program: n.Program, path: Path) -> n.Program:
        found = matched(_role(program, path, self.role))
        at, role = found
        split = matched_as(role.body[0], n.For)
        groups = _groups(role)
        seen = by_view(split.body, split.var, groups, names_at(program, path))
        body = _by_rows(seen, split.var, groups, _fragments(split.body, groups, False), False)
        if any(split.var.name in names_read(s) for s in body):
            raise NoSlice("what a warpgroup does depends on its number in another way")
        return _with_role(program, path, at, body, _arrived(split.body), 1 - groups)


def _fragments(block: n.Block, groups: int, divide: bool) -> dict[str, n.Buffer]:
    """The fragments of a role with another number of rows. Raises NoSlice."""
    out = {}
    for s in statements(block):
        if isinstance(s, n.Alloc):
            b, shape = s.buffer, sizes(s.buffer)
            if b.space != "fragment" or not shape or len(shape) > 2 or b.layout is not None:
                raise NoSlice(f"'{b.name}' has no rows in registers, or a layout of its own")
            rows = shape[0] // groups if divide else shape[0] * groups
            out[b.name] = replace(b, shape=(build.const(rows), *b.shape[1:]))
    return out


def _arrived(block: n.Block) -> set[str]:
    """The mbarriers that a role arrives on."""
    return {x.args[0].buffer.name for s in statements(block) if isinstance(s, n.Eval) for x in (s.call,)
            if x.fn == "mbar_arrive" and isinstance(x.args[0], n.Region)}


def _with_role(program: n.Program, path: Path, at: int, body: n.Block, bars: set[str], more: int) -> n.Program:
    """The program with a role's code, and `more` arrivals counted by those mbarriers. Raises NoRing."""
    kernel, i = kernel_of(program, path), int(path[1])
    roles = matched_as(kernel.body[i], n.Roles)

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Call) and new.fn == "mbar_init" and isinstance(r := new.args[0], n.Region) and r.buffer.name in bars:
            count = int_value(new.args[1]) if isinstance(new.args[1], n.Expr) else None
            if count is None or count + more < 1:
                raise NoRing("an mbarrier does not count an arrival of each warpgroup")
            return build.call("mbar_init", r, build.const(count + more))
        return new
    front = tuple(transform(s, leave) for s in kernel.body[:i])
    made = replace(roles, roles=(*roles.roles[:at], replace(roles.roles[at], body=body), *roles.roles[at + 1:]))
    return replace_kernel(program, kernel.name, replace(kernel, body=(*front, made, *kernel.body[i + 1:])))


class _HasRows(NoSlice):
    """A tile with a name is read row by row."""

    def __init__(self, name: str) -> None:
        super().__init__("a value that is not computed row by row")
        self.name = name


def _by_rows(block: n.Block, wg: n.Var, groups: int, made: Mapping[str, n.Buffer], divide: bool) -> n.Block:
    """A role's statements for one warpgroup's rows, or back for all. Which of its named tiles have rows, their uses tell. Raises NoSlice."""
    rows = set[str]()
    while True:
        try:
            return _Rows(wg, groups, made, divide, frozenset(rows)).block(block)
        except _HasRows as found:
            if found.name in rows:
                raise
            rows.add(found.name)


@dataclass(frozen=True)
class _Rows:
    """Rewrites a role's statements for one warpgroup's rows (`divide`), or back for all rows. `made` are the fragments as they become, `rows` the names
    of tiles that have rows though they come from no fragment, `named` the tiles with rows that have names, as they become."""

    wg: n.Var
    groups: int
    made: Mapping[str, n.Buffer]
    divide: bool
    rows: frozenset[str] = frozenset()
    named: dict[str, n.Var] = field(default_factory=dict)

    def block(self, block: n.Block) -> n.Block:
        return tuple(self.stmt(s) for s in block)

    def stmt(self, s: n.Stmt) -> n.Stmt:
        match s:
            case n.Alloc():
                return replace(s, buffer=self.made[s.buffer.name], init=self._tile(s.init) if s.init is not None and shape_of(s.init.type) else s.init)
            case n.Mma():
                if s.acc.buffer.name not in self.made or s.acc.index or self._uses(s.b):
                    raise NoSlice("a product into a part of a fragment, or of a fragment")
                a = s.a if not self._uses(s.a) else self.value(s.a, 0)
                return replace(s, acc=n.Region(self.made[s.acc.buffer.name]), a=self._part(a, s.acc.buffer) if a is s.a else a)
            case n.Store() if s.at.buffer.name in self.made:
                if s.at.index or s.mask is not None:
                    raise NoSlice("a store to a part of a fragment")
                return replace(s, at=n.Region(self.made[s.at.buffer.name]), value=self._tile(s.value))
            case n.Store() if s.at.buffer.space == "global" and len(shape_of(s.at.type)) == 2:
                if not self._uses(s.value):
                    raise NoSlice("a store that does not come from the fragments")
                rows = self._extent(shape_of(s.at.type)[0])
                mine, every = (rows, rows * self.groups) if self.divide else (rows // self.groups, rows)
                at = (part_of_region(s.at, 0, self._first(mine), mine) if self.divide else whole_of_region(s.at, 0, self._first(mine), every))
                return replace(s, at=at, value=self.value(s.value, 0), mask=None if s.mask is None else self.value(s.mask, 0))
            case n.Eval() if s.call.fn in MBARRIER_CALLS:
                return s
            case n.Let() if len(s.names) == 1 and isinstance(s.value.type, TileType) and (s.names[0] in self.rows or self._uses(s.value)):
                made = replace(s, value=self.value(s.value, 0))
                self.named[s.names[0]] = n.Var(s.names[0], made.value.type)
                return made
            case n.View() | n.Let() if not self._uses(s):
                return s
            case n.For() | n.If() if not (isinstance(s, n.For) and s.kind not in ("serial", "unroll")):
                for steps, inner in child_blocks(s):
                    s = with_block(s, steps, self.block(inner))
                return s
            case _:
                raise NoSlice(f"a {type(s).__name__.lower()} that is not done row by row")

    def _uses(self, e: n.Node) -> bool:
        """Whether a value has rows: it is computed from the fragments."""
        return any((isinstance(x, n.Region) and x.buffer.name in self.made) or (isinstance(x, n.Var) and x.name in self.named) for x in walk(e))

    def _extent(self, d: object) -> int:
        """An extent of rows as it becomes. Raises NoSlice."""
        if not isinstance(d, int) or (self.divide and d % self.groups):
            raise NoSlice("rows that are not counted")
        return d // self.groups if self.divide else d * self.groups

    def _first(self, rows: int) -> n.Expr:
        return build.mul(self.wg, rows)

    def _part(self, e: n.Expr, acc: n.Buffer) -> n.Expr:
        rows = int_value(self.made[acc.name].shape[0]) or 0
        return part(e, 0, self._first(rows), rows) if self.divide else whole(e, 0, self._first(rows // self.groups), rows)

    def _tile(self, e: n.Expr) -> n.Expr:
        """A value for a fragment; a scalar is the same for all of its rows."""
        return self.value(e, 0) if isinstance(e.type, TileType) else self.value(e, -1)

    def value(self, e: n.Expr, axis: int) -> n.Expr:
        """A value whose rows lie along an axis (negative: it has none). Raises NoSlice."""
        shape = shape_of(e.type)
        if axis < 0 or shape[axis] == 1:
            if self._uses(e):
                raise NoSlice("rows that meet the rows of others")
            return e  # the same for all rows
        if (offset := _counted(e)) is not None and len(shape) == 1:
            rows = self._extent(shape[0])
            first = self._first(rows if self.divide else rows // self.groups)
            return build.add(build.call("iota", build.const(rows)), build.add(offset, first) if self.divide else build.sub(offset, first))
        match e:
            case n.Var() if e.name in self.named:
                return self.named[e.name]
            case n.Var() if isinstance(e.type, TileType):
                raise _HasRows(e.name)
            case n.Load() if e.at.buffer.name in self.made and not e.at.index and e.mask is None and axis == 0:
                return n.Load(n.Region(self.made[e.at.buffer.name]))
            case n.Load() if e.at.buffer.space == "global" and e.mask is None:
                rows = self._extent(shape[axis])
                return part(e, axis, self._first(rows), rows) if self.divide else whole(e, axis, self._first(rows // self.groups), rows)
            case n.Call(fn="expand") if isinstance(x := e.args[0], n.Expr):
                new = int(dict(e.attrs)["axis"])
                return build.expand(self.value(x, axis - (new < axis)), new)
            case n.Call(fn="broadcast") if isinstance(x := e.args[0], n.Expr):
                stretched = TileType(dtype_of(e.type), (*shape[:axis], self._extent(shape[axis]), *shape[axis + 1:]))
                return build.broadcast(self.value(x, axis - (len(shape) - len(shape_of(x.type)))), stretched)
            case n.Call(fn="reduce") if isinstance(x := e.args[0], n.Expr) and not dict(e.attrs).get("keep"):
                gone = int(dict(e.attrs)["axis"])
                return build.call_with("reduce", (self.value(x, axis + (gone <= axis)), *e.args[1:]), e.attrs)
            case n.Unary() | n.Binary() | n.Select() | n.Cast():
                pass
            case n.Call() if e.of is None and instruction(e.fn).level == "element":
                pass
            case _:
                raise NoSlice("a value that is not computed row by row")
        changes: dict[str, Any] = {}

        def own(x: n.Expr) -> n.Expr:
            return self.value(x, axis - (len(shape) - len(shape_of(x.type))))
        for name in e.compared_fields:
            value = getattr(e, name)
            if isinstance(value, tuple):
                changes[name] = tuple(own(x) if isinstance(x, n.Expr) else x for x in value)
            elif isinstance(value, n.Expr):
                changes[name] = own(value)
        return cast(n.Expr, rebuild(e, changes))


def _counted(e: n.Expr) -> n.Expr | None:
    """The scalar that is added to whole numbers from 0 on, where a value is that."""
    match e:
        case n.Call(fn="iota"):
            return build.const(0)
        case n.Binary(op="add") if not shape_of(e.b.type) and (left := _counted(e.a)) is not None:
            return build.add(left, e.b)
        case n.Binary(op="add") if not shape_of(e.a.type) and (right := _counted(e.b)) is not None:
            return build.add(e.a, right)
        case n.Binary(op="sub") if not shape_of(e.b.type) and (left := _counted(e.a)) is not None:
            return build.sub(left, e.b)
        case _:
            return None
