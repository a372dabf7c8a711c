"""The threads of a CTA as a place in a program: the loop over them, what surrounds a statement inside it, and how they meet."""
from __future__ import annotations

from kir.analysis.facts import Facts
from kir.analysis.uniform import depends, of_whole_groups, varying
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.visit import walk
from kir.rewrite import Context, Path, Site, Verdict, proved, refuted
from kir.rewrite.edit import enclosing, kernel_of


@dataclass(frozen=True)
class ThreadTeam:
    """The loop at `path` over all threads of a CTA, each once; `threads` of them."""

    path: Path
    loop: n.For
    threads: int

    @property
    def thread(self) -> n.Var:
        """The number of the thread, from 0."""
        return self.loop.var


def whole_team(program: n.Program, path: Path, s: n.Stmt) -> ThreadTeam | None:
    """The team of a statement that is a loop over all threads of its CTA."""
    if not (isinstance(s, n.For) and s.kind == "thread" and build.is_const(s.lo, 0) and build.is_const(s.step, 1)):
        return None
    threads = build.int_value(s.hi)
    if threads is None or build.int_value(kernel_of(program, path).threads) != threads:
        return None
    return ThreadTeam(path, s, threads)


def team_at(program: n.Program, path: Path) -> ThreadTeam | None:
    """The team whose loop, one of a kernel's own statements, is around a path; None when there is none of all threads."""
    if len(path) < 4:
        return None
    return whole_team(program, path[:2], kernel_of(program, path).body[int(path[1])])


def is_in_loop(program: n.Program, path: Path) -> bool:
    """Whether a statement inside a thread loop is executed several times by a thread."""
    return any(isinstance(s, n.While) or (isinstance(s, n.For) and s.kind != "thread") for p, s in enclosing(program, path) if len(p) > 2)


def everyone_arrives(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether all threads of the CTA come to the site together, so that a barrier may stand there."""
    return _meeting(program, site.path, 0)


def warps_arrive(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether all lanes of a warp come to the site together."""
    return _meeting(program, site.path, 32)


def _meeting(program: n.Program, path: Path, group: int) -> Verdict:
    team = team_at(program, path)
    assert team is not None
    known = varying(team.loop)
    who = "lanes of a warp" if group else "threads"
    for p, s in enclosing(program, path):
        if len(p) <= 2 or not isinstance(s, (n.If, n.For, n.While)):
            continue
        parts = (s.lo, s.hi, s.step) if isinstance(s, n.For) else (s.cond,)
        for e in parts:
            if depends(of_whole_groups(Facts.at(program, p).expanded(e), team.thread.name, group) if group else e, known[p[2:]]):
                return refuted(f"some {who} do not come here", f"whether a thread comes here depends on {expr_text(e)}",
                               needs=f"control flow that all {who} agree on")
        if isinstance(s, n.While) or any(isinstance(x, n.Jump) for x in walk(s)):
            return refuted(f"some {who} may leave early", "a loop around has an exit of its own")
    return proved(f"no branch or loop bound around depends on the {'lane' if group else 'thread'}")


def barrier() -> n.Stmt:
    """All threads of the CTA wait for each other."""
    return n.Eval(build.call("barrier"))


def warp_sync() -> n.Stmt:
    """The lanes of a warp wait for each other."""
    return n.Eval(build.call("warp_sync"))


def is_call(s: n.Stmt | None, fn: str) -> bool:
    """Whether a statement is a call without operands."""
    return isinstance(s, n.Eval) and s.call.fn == fn and not s.call.args


def whole(b: n.Buffer) -> n.Expr:
    """The value of a scalar buffer."""
    return n.Load(n.Region(b))


def is_scalar(s: n.Stmt | None) -> bool:
    """Whether a statement declares a private scalar."""
    return isinstance(s, n.Alloc) and s.buffer.space == "register" and not s.buffer.shape
