"""Copies a tile to shared memory in the background: the CTA goes on, and waits for the copy where the tile is first used.

`async-copy` does this for the copies of a loop; here it is a copy, or several side by side, that stand for themselves.

pipeline: `async-group@main/fill`

```diff
 kir 1
 program scaled
   in X: f32[M, 128]
   in S: f32[M]
   out Y: f32[M, 128]
   size M: i32
 kernel main grid (i: M) threads 32
   shared row: f32[128]
-  @fill copy X[i, 0 +: 128] -> row via vector(4)
+  @fill copy X[i, 0 +: 128] -> row via cp_async grouped {vector=4}
+  async_commit()
   let scale = exp(S[i])
+  async_wait(0)
   Y[i, 0 +: 128] = row[iota(128) * 5 % 128] * scale
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.analysis import Aliases
from kir.analysis.target.legalize import copy_refusal
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import region_text
from kir.ir.visit import statements
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.edit import block_at, edit_block, enclosing, kernel_of
from kir.rewrite.match import block_and_index, edited, matched_as, params_as
from kir.rewrite.match.local_buffers import kind_of_copy, mentions, team_level, width_of
from kir.rewrite.match.materialize import buffers_written

GROUPS = frozenset({"async_commit", "async_wait"})


def _is_plain(s: n.Stmt) -> bool:
    """Whether a statement is a copy from global to shared memory that is complete where it stands."""
    return (isinstance(s, n.Copy) and kind_of_copy(s) in ("plain", "vector") and s.signal is None and bool(s.dst.type != s.dst.buffer.dtype)
            and (s.src.at.buffer.space, s.dst.buffer.space) == ("global", "shared"))


def _is_grouped(s: n.Stmt) -> bool:
    return isinstance(s, n.Copy) and s.via == "cp_async" and s.grouped and s.signal is None


def _asynchronous(s: n.Stmt) -> n.Copy:
    assert isinstance(s, n.Copy)
    width = width_of(s)
    return replace(s, via="cp_async", grouped=True, attrs=n.attrs(**{**dict(s.attrs), "vector": width}) if width > 1 else s.attrs)


def _synchronous(s: n.Stmt) -> n.Copy:
    assert isinstance(s, n.Copy)
    width = dict(s.attrs).get("vector", 1)
    return replace(s, via=f"vector({width})" if width != 1 else "plain", grouped=False, attrs=tuple((k, v) for k, v in s.attrs if k != "vector"))


def _call(fn: str, *args: n.Expr) -> n.Eval:
    return n.Eval(build.call(fn, *args))


def _is(s: n.Stmt, fn: str) -> bool:
    return isinstance(s, n.Eval) and s.call.of is None and s.call.fn == fn


def _count(s: n.Stmt) -> int | None:
    """The number of groups that a wait leaves in flight; None for another statement."""
    left = s.call.args[0] if isinstance(s, n.Eval) and _is(s, "async_wait") else None
    return build.int_value(left) if isinstance(left, n.Expr) else None


def _touches(s: n.Stmt, names: set[str]) -> bool:
    return any(mentions(s, name) for name in names)


@dataclass(frozen=True)
class _Use:
    """Where what was copied is first touched: the block of that statement, by the path of what leads to it from the copies (the copies
    themselves, or the branch around them), and its number there. `cond` is the condition of the branch."""

    line: Path
    first: int
    cond: n.Expr | None


def _first_use(program: n.Program, path: Path, names: set[str], after: int) -> _Use | Miss:
    """The first use of buffers, after `after` statements from `path` on; in the same block, or in that around a branch."""
    block = block_at(program, path)
    found = next((k for k in range(int(path[-1]) + after, len(block)) if _touches(block[k], names)), None)
    if found is not None:
        return _Use(path, found, None)
    around = [(p, s) for p, s in enclosing(program, path) if isinstance(s, n.Stmt)]
    where, branch = around[-1] if around else (path, None)
    if not isinstance(branch, n.If) or branch.static:
        return Miss("what is copied is not used after it, as far as the block goes")
    outer = block_at(program, where)
    found = next((k for k in range(int(where[-1]) + 1, len(outer)) if _touches(outer[k], names)), None)
    if found is None:
        return Miss("what is copied is not used after it, as far as the block goes")
    return _Use(where, found, branch.cond if path[-2] == "then" else build.unary("not", branch.cond))


@dataclass(frozen=True)
class _Line:
    """What a group is in flight over: the statements from behind the copies (or the branch around them) to the first use of what they bring."""

    use: _Use
    start: int
    stmts: n.Block
    older: int
    """Groups in flight where the copies stand."""


def _line(program: n.Program, path: Path, names: set[str], size: int) -> _Line | Miss:
    """The line of the `size` statements from `path` on. It is none where groups cannot be counted from its text: one is committed or waited
    for elsewhere in the kernel, under a condition, or is in flight at the end of the block."""
    use = _first_use(program, path, names, size)
    if isinstance(use, Miss):
        return use
    block = block_at(program, use.line)
    at = int(use.line[-1])
    start = at + (size if use.cond is None else 1)
    own = {id(s) for s in block_at(program, path)[int(path[-1]):int(path[-1]) + size]}
    counted = {id(s) for s in block} | own | {id(s.then[0]) for s in block if isinstance(s, n.If) and _guarded(s, use.cond)}
    if any(isinstance(s, n.Eval) and s.call.fn in GROUPS and id(s) not in counted for s in statements(kernel_of(program, path).body)):
        return Miss("other groups are committed or waited for elsewhere")
    older, end = _pending(block[:at]), _pending(block)
    if older is None or end is None:
        return Miss("a wait is for an unknown number of groups")
    if end:
        return Miss("a group is in flight where the block ends")
    stmts = block[start:use.first]
    if use.cond is not None and any(isinstance(s, n.Eval) and s.call.fn in GROUPS and _count(s) != 0 for s in stmts):
        return Miss("a group that is committed under a condition is not waited for by count")
    return _Line(use, start, stmts, older)


def _pending(block: n.Block) -> int | None:
    """Groups committed and not waited for in a block; None where a wait is for an unknown number."""
    pending = 0
    for s in block:
        if _is(s, "async_commit"):
            pending += 1
        elif _is(s, "async_wait"):
            left = _count(s)
            if left is None:
                return None
            pending = min(pending, left)
    return pending


def _guarded(s: n.Stmt, cond: n.Expr | None) -> bool:
    """Whether a statement waits for everything if a condition holds, and does nothing else."""
    return cond is not None and isinstance(s, n.If) and s.cond == cond and not s.orelse and len(s.then) == 1 and _count(s.then[0]) == 0


def _chunks(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, AsyncGroup)
    for s in item.copies_at(program, site.path):
        if s.mask is not None or s.src.mask is not None:
            return unknown("a mask may cut a chunk", needs="a bound instead of a mask")
        if reason := copy_refusal(_asynchronous(s), "cta"):
            return refuted(reason, f"the copy to '{s.dst.buffer.name}'", needs="rows of whole chunks, and zeros outside")
    return proved("each copy is made of chunks of 4, 8 or 16 bytes, with zeros where nothing is read")


def _immutable(program: n.Program, site: Site, context: Context) -> Verdict:
    item = params_as(site, AsyncGroup)
    copies, aliases = item.copies_at(program, site.path), Aliases(program)
    line = matched_as(item.line(program, site.path), _Line)
    inner = () if line.use.cond is None else block_at(program, site.path)[int(site.path[-1]) + item.copies:]
    for s in (*inner, *line.stmts[:len(line.stmts) - item.ahead]):
        written = buffers_written((s,))
        if "*" in written:
            return refuted("opaque text while the copy is in flight may write anything", s.label or "opaque")
        for c in copies:
            clash = next((w for w in sorted(written) if aliases.may_be_one(w, c.src.at.buffer.name)), None)
            if clash is not None:
                return refuted(f"'{clash}' is written while the copy of {region_text(c.src.at)} may still read it",
                               f"{s.label or clash} comes before the wait", needs="the write after the wait")
    return proved("nothing that is copied is written before the wait")


@dataclass(frozen=True)
class AsyncGroup(Pass):
    """`copies` neighboring copies form the group. The wait stands `ahead` statements before the first that uses what they bring; with
    `guarded` it is under the condition of the branch that the copies are in."""

    intent: ClassVar[str] = "async-copy"
    catalogue: ClassVar[tuple[int, ...]] = (17,)
    claim: ClassVar[str] = "A copy to shared memory runs in the background, under whatever does not need it yet."
    requires: ClassVar[tuple[str, ...]] = ("shared",)
    provides: ClassVar[tuple[str, ...]] = ("cp_async",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P906", "validity", "layout", "copies are made of chunks of 4, 8 or 16 bytes and fill with zeros", _chunks),
        Precondition("KIR-P907", "validity", "aliasing", "what is copied is not written before the wait", _immutable),
    )

    copies: int = 1
    ahead: int = 0
    guarded: bool = False

    def copies_at(self, program: n.Program, path: Path) -> tuple[n.Copy, ...]:
        """The copies of the group."""
        i = int(path[-1])
        return tuple(s for s in block_at(program, path)[i:i + self.copies] if isinstance(s, n.Copy))

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the first of the copies."""
        if not isinstance(node, n.Copy) or not _is_plain(node):
            return None
        group = self.copies_at(program, path)
        if self.copies < 1 or len(group) != self.copies or not all(_is_plain(s) for s in group):
            return Miss(f"there are no {self.copies} copies to shared memory side by side")
        if team_level(program, path) != "cta":
            return Miss("only a part of the CTA gets here")
        line = self.line(program, path)
        if isinstance(line, Miss):
            return line
        if self.guarded and line.use.cond is None:
            return Miss("there is no branch around the copies that the use is not in")
        if not 0 <= self.ahead <= len(line.stmts):
            return Miss("the wait would stand before the copies")
        if (self.ahead or self.guarded) and not self._waited(line)[1]:
            return Miss("another wait is one for this group too")
        return Site(path, self)

    def line(self, program: n.Program, path: Path) -> _Line | Miss:
        """What the group would be in flight over."""
        return _line(program, path, {s.dst.buffer.name for s in self.copies_at(program, path)}, self.copies)

    def _waited(self, line: _Line) -> tuple[n.Block, bool]:
        """The statements up to the use with the waits that the group needs, and whether one of these is its own. A wait that may leave all later groups
        in flight leaves this one too; one that may not waits for this one."""
        later, out = 0, list[n.Stmt]()
        cut = len(line.stmts) - self.ahead
        for k, s in enumerate(line.stmts[:cut]):
            left = _count(s)
            if left is not None and left < later:
                return (*out, *line.stmts[k:]), False
            later += _is(s, "async_commit")
            out.append(s if left is None else _call("async_wait", build.const(left + 1)))
        wait: n.Stmt = _call("async_wait", build.const(later))
        if self.guarded:
            assert line.use.cond is not None
            wait = n.If(line.use.cond, (wait,))
        return (*out, wait, *line.stmts[cut:]), True

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The copies as a group, and its wait."""
        line = matched_as(self.line(program, site.path), _Line)
        issued = (*(_asynchronous(s) for s in self.copies_at(program, site.path)), _call("async_commit"))
        waited = self._waited(line)[0]
        made = edit_block(program, line.use.line, lambda b: (*b[:line.start], *waited, *b[line.use.first:]))
        return edited(made, site.path, issued, 0, self.copies)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the first of the copies of a group that is the oldest one at its wait."""
        if not isinstance(node, n.Copy) or not _is_grouped(node):
            return None
        block, i = block_and_index(program, path)
        end = next((k for k in range(i, len(block)) if not _is_grouped(block[k])), len(block))
        if end == len(block) or not _is(block[end], "async_commit"):
            return Miss("the copies are not committed where they stand")
        if (i and _is_grouped(block[i - 1])) or team_level(program, path) != "cta":
            return Miss("the copies are a part of their group" if i and _is_grouped(block[i - 1]) else "only a part of the CTA gets here")
        line = _line(program, path, {s.dst.buffer.name for s in block[i:end] if isinstance(s, n.Copy)}, end - i + 1)
        if isinstance(line, Miss):
            return line
        later, out = 0, list[n.Stmt]()
        for s in line.stmts:
            left = 0 if _guarded(s, line.use.cond) else _count(s)
            if left is not None and left <= later:
                break
            later += _is(s, "async_commit")
            out.append(s if left is None else _call("async_wait", build.const(left - 1)))
        else:
            return Miss("what is copied is used before it is waited for")
        own = left == later
        if own and line.older:
            return Miss("an older group is waited for with this one")
        rest = line.stmts[len(out) + own:]
        made = AsyncGroup(end - i, len(rest) if own else 0, own and isinstance(s, n.If))
        return Site(path, made, {"line": line, "stmts": (*out, *rest)})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The copies complete where they stand; their commit and their wait are left out."""
        line, i = site.captures["line"], int(site.path[-1])
        stmts = site.captures["stmts"]
        made = edit_block(program, line.use.line, lambda b: (*b[:line.start], *stmts, *b[line.use.first:]))
        return Rewritten(edit_block(made, site.path, lambda b: (
            *b[:i], *(_synchronous(s) for s in b[i:i + self.copies]), *b[i + self.copies + 1:])), site.path)
