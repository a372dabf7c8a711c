"""Lets the roles of a CTA, or all of a kernel without roles, do nothing but their stores, where nothing of their work is kept.

pipeline: `branch-spared{when="i * 64 < count"}@main/teams`

```diff
 kir 1
 program sums
   size N: i32
   in X: f16[N, 64] align 16
   in rows: i32[1]
   out Y: f16[N, 64] align 16
   map X_map of X box [64, 64]
 kernel main grid (i: ceildiv(N, 64)) threads 256
   let count = rows[0]
   shared Xs: f16[64, 64] align 128
   shared full: mbarrier
   mbar_init(&full, 1)
   fence_mbar_init()
   @teams roles
     role producer warps 0..4
-      mbar_arrive_expect(&full, 8192)
-      copy load(X[i * 64 +: 64, 0 +: 64] else 0.0:f16 clip) -> Xs via tma signal full {descriptor=X_map}
+      if i * 64 < count
+        mbar_arrive_expect(&full, 8192)
+        copy load(X[i * 64 +: 64, 0 +: 64] else 0.0:f16 clip) -> Xs via tma signal full {descriptor=X_map}
     role consumer warps 4..8
-      mbar_wait(&full, 0)
-      Y[i * 64 +: 64, 0 +: 64] = select(expand(iota(64), axis=1) + i * 64 < count, Xs, 0.0:f16) clip
+      if i * 64 < count
+        mbar_wait(&full, 0)
+        Y[i * 64 +: 64, 0 +: 64] = select(expand(iota(64), axis=1) + i * 64 < count, Xs, 0.0:f16) clip
+      else
+        Y[i * 64 +: 64, 0 +: 64] = 0.0:f16 clip
```
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases
from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import rename
from kir.ir.paths import child_blocks
from kir.ir.types import BOOL
from kir.ir.visit import buffers_named, names_read, statements, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, unknown
from kir.rewrite.edit import fresh, kernel_of, names_in, node_at, replace_kernel
from kir.rewrite.match import block_and_index, edited, matched, matched_as, params_as
from kir.rewrite.match.materialize import buffers_written
from kir.rewrite.view import expression_at, text_of

from ..loops.early_exit import opposite
from ..loops.spare_loop import fails
from ..pipelining._rings import roles_at
from ._persistent_roles import inside

OWN = ("mbar_", "named_barrier_", "wgmma_", "fence_async", "bulk_", "warp_sync")
"""Calls among the roles of a CTA: where all leave them out, none waits."""


class _Kept(Exception):
    """Something is stored that is not known to be a constant; why."""


def _whole(program: n.Program, site: Site) -> tuple[n.Roles | n.Kernel, n.Expr]:
    """The roles, or the kernel that has none, without the branch, and its condition."""
    node = node_at(program, site.path)
    assert isinstance(node, n.Roles | n.Kernel)
    return node, matched(params_as(site, BranchSpared).condition(program, _inside(site.path, node)))


def _inside(path: Path, node: n.Roles | n.Kernel) -> Path:
    """Where the names that a condition reads are known: at the roles, or where a kernel's work begins."""
    return (*path, min(_work(node), len(node.body) - 1)) if isinstance(node, n.Kernel) else path


def _work(kernel: n.Kernel) -> int:
    """Where the work of a kernel without roles begins: behind the values that it begins with."""
    return next((k for k, s in enumerate(kernel.body) if not isinstance(s, n.Let)), len(kernel.body))


def _parts(path: Path, node: n.Roles | n.Kernel) -> list[tuple[Path, n.Block, int]]:
    """The code of each role, or that of a kernel without roles: where it stands, and the number of its first statement there."""
    if isinstance(node, n.Kernel):
        return [(path, node.body[_work(node):], _work(node))]
    return [(*_within(path, number, role), 0) for number, role in enumerate(node.roles)]


def _changes(program: n.Program, path: Path, cond: n.Expr) -> str:
    """Memory that a condition depends on and that is no tensor which is only read, or nothing."""
    kernel = kernel_of(program, path)
    given = {p.name for p in program.params}
    fixed = given - Aliases(program).aliased(given, buffers_written(kernel.body))
    lets = {name: s.value for s in kernel.body if isinstance(s, n.Let) for name in s.names}
    parts, seen = [cond], set[str]()
    while parts:
        e = parts.pop()
        for name in sorted(buffers_named(e) - fixed):
            return name
        more = (names_read(e) & lets.keys()) - seen
        seen |= more
        parts += [lets[x] for x in more]
    return ""


def _alone(program: n.Program, site: Site, context: Context) -> Verdict:
    node, _ = _whole(program, site)
    if isinstance(node, n.Roles):
        block, index = block_and_index(program, site.path)
        if block is not kernel_of(program, site.path).body or index != len(block) - 1:
            return unknown("something follows the roles, or they stand in something else", needs="roles that end the kernel")
    for s in statements((node,) if isinstance(node, n.Roles) else node.body[_work(node):]):
        calls = [x for x in walk(s) if isinstance(x, n.Call) and any(isinstance(a, n.Region) for a in x.args)] + ([s.call] if isinstance(s, n.Eval) else [])
        if any(not c.fn.startswith(OWN) or any(isinstance(a, n.Region) and a.buffer.space != "shared" for a in c.args) for c in calls):
            return unknown(f"'{calls[0].fn}' may be waited for elsewhere", needs="barriers of the CTA's own")
        if isinstance(s, n.Copy) and (s.dst.buffer.space == "cluster" or "multicast" in dict(s.attrs)):
            return unknown("another CTA waits for a copy", needs="copies for the CTA alone")
        if isinstance(s, n.Jump | n.Opaque):
            return unknown(f"a {type(s).__name__.lower()} among the roles", needs="roles that run to their end")
    return proved("nobody else waits for these roles")


def _constant(program: n.Program, site: Site, context: Context) -> Verdict:
    node, cond = _whole(program, site)
    try:
        for path, block, first in _parts(site.path, node):
            _left(program, path, block, cond, first)
    except _Kept as bad:
        return unknown(str(bad), needs=f"a constant where {text_of(cond)} does not hold")
    return proved(f"where {text_of(cond)} does not hold, constants are stored")


def _left(program: n.Program, path: Path, block: n.Block, cond: n.Expr, first: int = 0) -> n.Block:
    """What a block of a role, whose first statement has that number where it stands, stores where the condition does not hold. Raises _Kept."""
    out = list[n.Stmt]()
    own = {name for s in block if isinstance(s, n.Let) for name in s.names} | {s.buffer.name for s in block if isinstance(s, n.Alloc | n.View)}
    for index, s in enumerate(block, first):
        made: n.Stmt | None = None
        if isinstance(s, n.Store) and s.at.buffer.space == "global":
            made = replace(s, value=_settled(program, (*path, index), s.value, cond, s.at.buffer.name))
        elif isinstance(s, n.Copy) and s.dst.buffer.space == "global":
            made = n.Store(s.dst, _held(program, s.src.at.buffer, cond), s.mask, s.clip, label=s.label)
        elif isinstance(s, n.For) and (body := _left(program, (*path, index, "body"), s.body, cond)):
            made = replace(s, body=body)
        elif isinstance(s, n.If | n.While | n.Roles) and _outside(s):
            raise _Kept(f"it depends on more than that what is stored to '{_outside(s)}'")
        if made is not None:
            if (names_read(made) | buffers_named(made)) & own:
                raise _Kept("where it is stored is worked out in the role")
            out.append(made)
    return tuple(out)


def _outside(s: n.Stmt) -> str:
    """A tensor that a statement writes, or nothing."""
    written = (x.at if isinstance(x, n.Store) else x.dst for x in statements((s,)) if isinstance(x, n.Store | n.Copy))
    return next((r.buffer.name for r in written if r.buffer.space == "global"), "")


def _held(program: n.Program, b: n.Buffer, cond: n.Expr) -> n.Expr:
    """The constant that a buffer in shared memory holds where the condition does not hold. Raises _Kept."""
    found = set[n.Expr]()
    for kernel in program.kernels:
        if any(isinstance(s, n.View) and s.at.buffer.name == b.name for s in statements(kernel.body)):
            raise _Kept(f"'{b.name}' has views")
        for path, s in _placed((kernel.name,), kernel.body):
            if (isinstance(s, n.Copy) and s.dst.buffer.name == b.name) or (isinstance(s, n.Alloc) and s.buffer.name == b.name and s.init is not None):
                raise _Kept(f"'{b.name}' is filled in another way, too")
            if isinstance(s, n.Store) and s.at.buffer.name == b.name:
                found.add(_settled(program, path, s.value, cond, b.name))
    if len(found) != 1:
        raise _Kept(f"'{b.name}' holds no one constant")
    return found.pop()


def _placed(path: Path, block: n.Block) -> Iterator[tuple[Path, n.Stmt]]:
    for index, s in enumerate(block):
        yield (*path, index), s
        for steps, inner in child_blocks(s):
            yield from _placed((*path, index, *steps), inner)


def _settled(program: n.Program, path: Path, e: n.Expr, cond: n.Expr, name: str) -> n.Expr:
    """The constant that an expression is where the condition does not hold. Raises _Kept."""
    known = Facts.at(program, path).knowing(opposite(cond))
    lets = {x: s.value for s in statements(kernel_of(program, path).body) if isinstance(s, n.Let) and len(s.names) == 1 for x in s.names}

    def of(x: n.Expr) -> n.Expr:
        if isinstance(x, n.Const):
            return x
        if isinstance(x, n.Cast):
            return build.cast(of(x.x), x.dtype, x.rounding)
        if isinstance(x, n.Select) and fails(x.cond, known):
            return of(x.b)
        if isinstance(x, n.Var) and x.name in lets:
            return of(lets[x.name])
        raise _Kept(f"'{name}' gets what the roles work out")
    made = of(e)
    if not isinstance(made, n.Const):
        raise _Kept(f"'{name}' gets no constant")
    return made


@dataclass(frozen=True)
class BranchSpared(Pass):
    """`when` is the text of the condition under which what the roles work out is kept; where none is given, that of a loop which is cut short."""

    intent: ClassVar[str] = "mask"
    catalogue: ClassVar[tuple[int, ...]] = (54,)
    claim: ClassVar[str] = "CTAs past the end of a sequence cost no loads, no waits and no products."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P542", "validity", "pipeline", "nobody else waits for what the roles do", _alone),
        Precondition("KIR-P543", "validity", "storage", "constants are stored where the condition does not hold", _constant))

    when: str = ""

    def condition(self, program: n.Program, path: Path) -> n.Expr | None:
        """The condition under which the roles are needed."""
        found = expression_at(program, path, self.when)
        return found if found is not None and found.type == BOOL else None

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At roles, or at a kernel that has none; when they are needed is given, or said by a loop that is cut short."""
        if not isinstance(node, n.Roles | n.Kernel) or _branch(node) is not None or (isinstance(node, n.Kernel) and roles_at(node) is not None):
            return None
        short = (s.hi.cond for s in statements(node.body if isinstance(node, n.Kernel) else (node,)) if isinstance(s, n.For) and isinstance(s.hi, n.Select))
        when = self.when or next(map(text_of, short), "")
        cond = replace(self, when=when).condition(program, _inside(path, node)) if when else None
        if cond is None:
            return Miss("the condition is none here") if when else None
        changed = _changes(program, path, cond)
        return Miss(f"the condition depends on '{changed}', which may change") if changed else Site(path, BranchSpared(text_of(cond)))

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each role under the condition; otherwise its stores alone, of constants."""
        node, cond = _whole(program, site)
        made, taken = list[n.Block](), names_in(program, kernel_of(program, site.path))
        for path, block, first in _parts(site.path, node):
            try:
                left = _left(program, path, block, cond, first)
            except _Kept:  # the condition about constants refuses it, unless it is forced
                left = ()
            again = {x.var.name: fresh(x.var.name, taken) for x in statements(left) if isinstance(x, n.For)}
            left = tuple(matched_as(rename(x, again), n.Stmt) for x in left)
            made.append((n.If(cond, block, left),))
        return _with(program, site.path, node, made)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At roles that all stand under one condition, or a kernel whose work does."""
        if not isinstance(node, n.Roles | n.Kernel) or (isinstance(node, n.Kernel) and roles_at(node) is not None):
            return None
        cond = _branch(node)
        return None if cond is None else Site(path, BranchSpared(text_of(cond)))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The roles in any case."""
        node = node_at(program, site.path)
        assert isinstance(node, n.Roles | n.Kernel)
        return _with(program, site.path, node, [matched_as(block[0], n.If).then for _, block, _ in _parts(site.path, node)])


def _with(program: n.Program, path: Path, node: n.Roles | n.Kernel, made: list[n.Block]) -> Rewritten:
    """The program with other code in each role, or for the work of a kernel without roles."""
    if isinstance(node, n.Kernel):
        return Rewritten(replace_kernel(program, node.name, replace(node, body=(*node.body[:_work(node)], *made[0]))), path)
    return edited(program, path, (replace(node, roles=tuple(_around(r, body) for r, body in zip(node.roles, made, strict=True))),))


def _branch(node: n.Roles | n.Kernel) -> n.Expr | None:
    """The condition under which each of the roles stands, or all work of a kernel, with something else to do otherwise."""
    bodies = [node.body[_work(node):]] if isinstance(node, n.Kernel) else [inside(r.body)[0] for r in node.roles]
    conds = {b[0].cond if len(b) == 1 and isinstance(b[0], n.If) and (b[0].orelse or isinstance(node, n.Roles)) else None for b in bodies}
    return next(iter(conds)) if len(conds) == 1 else None


def _around(role: n.Role, body: n.Block) -> n.Role:
    """A role with another body, for each of its warpgroups if it has several."""
    split = inside(role.body)[1]
    return replace(role, body=body if split is None else (replace(split, body=body),))


def _within(path: Path, number: int, role: n.Role) -> tuple[Path, n.Block]:
    """Where the code of a role stands, and the code."""
    body, split = inside(role.body)
    return (*path, "roles", number, "body", *(() if split is None else (0, "body"))), body
