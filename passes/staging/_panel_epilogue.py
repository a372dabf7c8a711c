"""A result that leaves through shared memory in panels of columns: staged and copied panel by panel, in rounds if not all fit at once.

Each warpgroup stages rows of its own, so that it waits for itself alone.
"""
from __future__ import annotations

from dataclasses import replace

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.visit import names_read, statements
from kir.rewrite import Path
from kir.rewrite.edit import enclosing, fresh, kernel_of, names_in, replace_kernel, replace_stmts
from kir.rewrite.match import block_and_index, counting, fresh_var, from_zero
from kir.rewrite.match.local_buffers import mentions, own_parts
from kir.rewrite.match.slices import NoSlice, part, part_of_region, whole, whole_of_region


@dataclass(frozen=True)
class Share:
    """The rows of a staging buffer that a team has: `rows` of its own, as the `group`-th of `groups` teams."""

    group: n.Expr
    rows: int
    groups: int

    def shape(self, count: int, panel: int, apart: bool) -> tuple[int, ...]:
        """The extents of the buffer: panels of all rows, or (`apart`) panels for each team."""
        return (self.groups, count, self.rows, panel) if apart else (count, self.rows * self.groups, panel)

    def index(self, p: n.Expr, panel: int, apart: bool) -> tuple[n.Expr | n.Span, ...]:
        """The place of the team's rows of panel `p`."""
        if apart:
            return (self.group, p, build.span(0, self.rows), build.span(0, panel))
        return (p, build.span(build.mul(self.group, self.rows), self.rows), build.span(0, panel))


def share(program: n.Program, path: Path, rows: int) -> Share | None:
    """The share of the team that executes the statement at `path`; None for a warp or thread."""
    found = Share(build.const(0), rows, 1)
    for _, s in enclosing(program, path):
        if isinstance(s, n.For) and s.kind in ("warp", "thread"):
            return None
        if isinstance(s, n.For) and s.kind == "warpgroup":
            groups = int_value(s.hi)
            if groups is None:
                return None
            found = Share(s.var, rows, groups)
    return found


def staged(program: n.Program, path: Path, s: n.Store, panel: int, rounds: int, apart: bool) -> tuple[n.Program, Path]:
    """The program in which a store goes through shared memory, and the path of the loop that does it. Raises NoSlice."""
    kernel = kernel_of(program, path)
    taken = names_in(program, kernel)
    rows, columns = _extents(s.at)
    own = share(program, path, rows)
    if own is None:
        raise NoSlice("a single warp or thread stores here")
    count = max(1, columns // (panel * max(1, rounds)))
    b = n.Buffer(fresh(f"{s.at.buffer.name}s", taken), s.at.buffer.dtype, tuple(map(build.const, own.shape(count, panel, apart))), "shared")
    h, p, q = (fresh_var(x, taken) for x in ("h", "p", "q"))
    base: n.Expr = build.mul(h, panel * count) if rounds else build.const(0)
    staged_value = part(s.value, 1, build.add(base, build.mul(p, panel)), panel)
    filled = n.Store(build.region(b, *own.index(p, panel, apart)), staged_value, label=s.label, origin=s.origin)
    out = n.Copy(n.Load(build.region(b, *own.index(q, panel, apart))), part_of_region(s.at, 1, build.add(base, build.mul(q, panel)), panel), clip=s.clip)
    made: n.Block = (_unrolled(p, count, filled), _unrolled(q, count, out))
    if rounds:
        made = (_unrolled(h, rounds, *made),)
    after = replace_stmts(program, path, made)
    at = kernel_of(after, path)
    i = next((k + 1 for k, x in reversed(list(enumerate(at.body))) if isinstance(x, n.Alloc) and x.buffer.space == "shared"
              and x.buffer.dtype.kind != "token"), 0)
    after = replace_kernel(after, at.name, replace(at, body=(*at.body[:i], n.Alloc(b), *at.body[i:])))
    return after, (path[0], int(path[1]) + (i <= int(path[1])), *path[2:])


def _unrolled(v: n.Var, extent: int, *body: n.Stmt) -> n.For:
    return counting(v, extent, body, "unroll", n.attrs(factor=extent))


def _extents(r: n.Region) -> tuple[int, int]:
    spans: list[int | n.Expr | None] = [i.extent for i in r.index if isinstance(i, n.Span)] or [int_value(d) for d in r.buffer.shape]
    if len(spans) != 2 or not all(isinstance(d, int) for d in spans):
        raise NoSlice("the place has not two dimensions of known extents")
    return int(str(spans[0])), int(str(spans[1]))


@dataclass(frozen=True)
class Found:
    """A store that goes through panels: as it would be in one, how, and where its buffer is declared."""

    store: n.Store
    panel: int
    rounds: int
    apart: bool
    declared: int
    count: int
    """How many statements it is."""


def unstaged(program: n.Program, path: Path) -> Found:
    """The store that the statements from `path` on make. Raises NoSlice where they are not as `staged` writes them."""
    block, i = block_and_index(program, path)
    outer = block[i]
    if not isinstance(outer, n.For):
        raise NoSlice("no loop over panels")
    *_, (_, around) = enclosing(program, path)
    if isinstance(around, n.For) and len(around.body) == 2 and _trips(around):
        raise NoSlice("the loop is one of several rounds")
    inner = outer.body if len(outer.body) == 2 and _trips(outer) else block[i:i + 2]
    rounds = _trips(outer) if inner is outer.body else 0
    if len(inner) != 2 or not isinstance(fill := inner[0], n.For) or not isinstance(drain := inner[1], n.For):
        raise NoSlice("no loop that stages, with one after it that copies")
    count = _trips(fill)
    if not count or _trips(drain) != count or len(fill.body) != 1 or len(drain.body) != 1 or rounds is None:
        raise NoSlice("the loops are not over the same panels")
    s, c = fill.body[0], drain.body[0]
    if not (isinstance(s, n.Store) and isinstance(c, n.Copy)) or s.mask is not None or s.clip or c.via != "plain" or c.mask is not None \
            or c.attrs or c.signal is not None or c.grouped or s.at.buffer.space != "shared" or c.dst.buffer.space != "global":
        raise NoSlice("the loops do more than stage a panel and copy it")
    b = s.at.buffer
    panel = int_value(b.shape[-1])
    if b.layout is not None or b.align or b.strides is not None or panel is None or len(b.shape) not in (3, 4):
        raise NoSlice(f"'{b.name}' has a layout of its own, or no panels")
    kernel = kernel_of(program, path)
    declared = next((k for k, x in enumerate(kernel.body) if isinstance(x, n.Alloc) and x.buffer == b and x.init is None), None)
    users = [x for x in statements(kernel.body) if any(mentions(y, b.name) for y in own_parts(x)) and not isinstance(x, n.Alloc)]
    if declared is None or len(users) != 2:
        raise NoSlice(f"'{b.name}' is declared or used elsewhere")
    columns = panel * count * max(1, rounds)
    base: n.Expr = build.mul(outer.var, panel * count) if rounds else build.const(0)
    at = whole_of_region(c.dst, 1, build.add(base, build.mul(drain.var, panel)), columns)
    value = whole(s.value, 1, build.add(base, build.mul(fill.var, panel)), columns)
    made = n.Store(at, value, clip=c.clip, label=s.label or c.label or outer.label, origin=s.origin)
    if names_read(made) & {outer.var.name, fill.var.name, drain.var.name}:
        raise NoSlice("a panel depends on its number in another way")
    return Found(made, panel, rounds, len(b.shape) == 4, declared, 1 if inner is outer.body else 2)


def removed(program: n.Program, path: Path, found: Found) -> tuple[n.Program, Path]:
    """The program with that store, and its path."""
    after = replace_stmts(program, path, (found.store,), found.count)
    kernel = kernel_of(after, path)
    body = (*kernel.body[:found.declared], *kernel.body[found.declared + 1:])
    return replace_kernel(after, kernel.name, replace(kernel, body=body)), (path[0], int(path[1]) - (found.declared < int(path[1])), *path[2:])


def _trips(s: n.For) -> int | None:
    return int_value(s.hi) if s.kind == "unroll" and from_zero(s) and s.attrs == n.attrs(
        factor=int_value(s.hi) or 0) else None


__all__ = ["Found", "Share", "removed", "share", "staged", "unstaged"]
