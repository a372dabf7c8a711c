"""The threads of a CTA as a place in a program: the loop over them, what surrounds a statement inside it, and how they meet."""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.elements import split_affine
from kir.analysis.normal_form import is_pure
from kir.analysis.reductions import identity
from kir.analysis.uniform import depends, of_whole_groups, varying
from kir.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.printer import expr_text
from kir.ir.types import DType
from kir.ir.visit import buffers_named, walk
from kir.rewrite import Context, Path, Site, Verdict, proved, refuted
from kir.rewrite.edit import block_at, edit_block, enclosing, kernel_of, replace_stmts

REDUCTIONS = {"add": "sum", "max": "max", "min": "min"}
"""Reductions by the binary operation that folds them."""
IDEMPOTENT = frozenset({"max", "min"})


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
            if depends(of_whole_groups(e, team.thread.name, group) if group else e, known[p[2:]]):
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


def mentions(x: n.Node, buffer: str) -> bool:
    """Whether anything below refers to a buffer."""
    return buffer in buffers_named(x)


def uses(program: n.Program, path: Path, buffer: str) -> int:
    """How many places in the kernel of a path name a buffer, its declaration left out."""
    return sum(isinstance(x, n.Region) and x.buffer.name == buffer for x in walk(kernel_of(program, path)))


def folded(s: n.Stmt, acc: n.Buffer) -> tuple[str, n.Expr] | None:
    """(operation, operand) of a store that folds into a scalar a value which does not depend on it."""
    if not (isinstance(s, n.Store) and s.at == n.Region(acc) and s.mask is None and not s.clip):
        return None
    v, old = s.value, whole(acc)
    op, operand = "add", None
    if acc.dtype.is_integer and build.polynomial(v).get((old,)) == 1:
        operand = build.sub(v, old)
    elif isinstance(v, n.Binary) and v.op in REDUCTIONS:
        op, operand = v.op, v.b if v.a == old else v.a if v.b == old and acc.dtype.is_integer else None
    return None if operand is None or mentions(operand, acc.name) else (op, operand)


def accumulation(loop: n.Stmt, acc: n.Buffer) -> str | None:
    """The operation with which a serial loop from 0 does nothing but fold values into `acc`, which they do not depend on."""
    if not (isinstance(loop, n.For) and loop.kind == "serial" and build.is_const(loop.lo, 0) and build.is_const(loop.step, 1)):
        return None
    own = set(bound_names(loop.body))
    ops: set[str] = set()
    places = 0
    for x in walk(loop):
        match x:
            case n.Store() if x.at == n.Region(acc):
                step = folded(x, acc)
                if step is None:
                    return None
                ops.add(step[0])
                places += 2
            case n.Store():
                if x.at.buffer.name not in own:
                    return None
            case n.Copy() | n.Mma() | n.Eval() | n.Opaque() | n.Hole() | n.Jump() | n.While() | n.Roles() | n.View():
                return None
            case n.Call():
                if not is_pure(x):
                    return None
            case _:
                pass
    if len(ops) != 1 or sum(isinstance(x, n.Region) and x.buffer.name == acc.name for x in walk(loop)) != places:
        return None
    return ops.pop()


# ----------------------------------------------------------------------------------------------- reductions through shared memory

@dataclass(frozen=True)
class Exchange:
    """`slots[at] = value`, a rendezvous, and each thread's own fold of `count` slots from `base` on into `result`: a scalar of its own
    that is declared here when `fresh`, otherwise one that starts again from the identity (or, with `onto`, from what it holds)."""

    slots: n.Buffer
    at: n.Expr
    value: n.Buffer
    sync: str
    result: n.Buffer
    fresh: bool
    op: str
    base: n.Expr
    count: int
    onto: bool = False

    def statements(self, var: n.Var, trailing: bool) -> n.Block:
        """The statements; `trailing` adds a rendezvous after the fold, for slots that are written again in the next iteration."""
        sync = n.Eval(build.call(self.sync))
        slot = n.Store(build.region(self.slots, self.at), whole(self.value))
        return (slot, sync, *self.fold(var), *((sync,) if trailing else ()))

    def fold(self, var: n.Var) -> n.Block:
        """What follows the rendezvous."""
        start = identity(REDUCTIONS[self.op], self.result.dtype)
        place = n.Region(self.result)
        begin: n.Block = (n.Alloc(self.result, start),) if self.fresh else () if self.onto else (n.Store(place, start),)
        step = n.Store(place, build.binary(self.op, whole(self.result), n.Load(build.region(self.slots, build.add(self.base, var)))))
        return (*begin, n.For(var, build.const(0), build.const(self.count), build.const(1), (step,)))


def fold_at(block: n.Block, i: int) -> tuple[Exchange, int] | None:
    """An exchange's fold that begins at statement `i`, and how many statements it has; `at`, `value` and `sync` are left open."""
    first = block[i] if i < len(block) else None
    fresh, onto, start = False, False, 1
    match first:
        case n.Alloc() if is_scalar(first) and first.init is not None:
            result, fresh = first.buffer, True
        case n.Store() if not first.at.index and first.mask is None and first.at.buffer.space == "register":
            result = first.at.buffer
        case n.For(body=(n.Store() as only,)) if only.at.buffer.space == "register":
            result, onto, start = only.at.buffer, True, 0
        case _:
            return None
    loop = block[i + start] if i + start < len(block) else None
    if not isinstance(loop, n.For) or accumulation(loop, result) is None or len(loop.body) != 1:
        return None
    step, count = folded(loop.body[0], result), build.int_value(loop.hi)
    if step is None:
        return None
    op, source = step
    wanted = identity(REDUCTIONS[op], result.dtype)
    begun = first.init if isinstance(first, n.Alloc) else first.value if isinstance(first, n.Store) else wanted
    if count is None or begun != wanted or not (isinstance(source, n.Load) and source.at.buffer.space == "shared" and len(
            source.at.index) == 1 and source.mask is None and not source.clip and not source.cache):
        return None
    index = source.at.index[0]
    parts = split_affine(index, loop.var) if isinstance(index, n.Expr) else None
    if parts is None or not build.is_const(parts[1], 1):
        return None
    return Exchange(source.at.buffer, build.const(0), result, "", result, fresh, op, parts[0], count, onto), start + 1


def exchange_at(block: n.Block, i: int, trailing: bool) -> tuple[Exchange, int] | None:
    """The exchange that begins with the store at statement `i`, and how many statements it has."""
    s, sync = block[i], block[i + 1] if i + 1 < len(block) else None
    name = next((fn for fn in ("barrier", "warp_sync") if is_call(sync, fn)), None)
    if name is None or not (isinstance(s, n.Store) and s.at.buffer.space == "shared" and len(s.at.index) == 1 and s.mask is None
                            and not s.clip and not s.cache and isinstance(s.value, n.Load) and isinstance(s.at.index[0], n.Expr)):
        return None
    value = s.value.at.buffer
    found = fold_at(block, i + 2)
    if found is None or s.value != whole(value) or value.space != "register":
        return None
    made, size = found
    if made.slots != s.at.buffer or made.onto or (not made.fresh and made.result != value):
        return None
    size += 2
    if trailing:
        if i + size >= len(block) or not is_call(block[i + size], name):
            return None
        size += 1
    return replace(made, at=s.at.index[0], value=value, sync=name), size


def with_shared(program: n.Program, team: ThreadTeam, buffer: n.Buffer) -> n.Program:
    """`program` with a buffer of the CTA declared just before the thread loop, which moves on by one statement."""
    return edit_block(program, team.path, lambda b: (*b[:int(team.path[1])], n.Alloc(buffer), *b[int(team.path[1]):]))


def without_shared(program: n.Program, kernel: str, buffer: str) -> tuple[n.Program, int]:
    """`program` without the declaration of a buffer of the CTA, and at which statement of the kernel that stood."""
    body = kernel_of(program, (kernel,)).body
    i = next(i for i, s in enumerate(body) if isinstance(s, n.Alloc) and s.buffer.name == buffer)
    return replace_stmts(program, (kernel, i), ()), i


def shifted(path: Path, at: int, by: int) -> Path:
    """A path after `by` statements came (or, negative, went) at statement `at` of its kernel."""
    return (path[0], int(path[1]) + by, *path[2:]) if int(path[1]) >= at else path


def declaration(program: n.Program, path: Path, buffer: str) -> n.Alloc | None:
    """The statement of the kernel itself that declares a buffer of the CTA."""
    found = [s for s in kernel_of(program, path).body if isinstance(s, n.Alloc) and s.buffer.name == buffer]
    return found[0] if len(found) == 1 else None


def slot_array(name: str, dtype: DType, count: int) -> n.Buffer:
    """Shared memory with a slot for each of `count` writers."""
    return n.Buffer(name, dtype, (build.const(count),), "shared")


def is_read_later(program: n.Program, path: Path, count: int, buffer: str) -> bool:
    """Whether a private scalar is read after the `count` statements from a path on, or could be in a later iteration of a loop around."""
    block, i = block_at(program, path), int(path[-1])
    if _reads(block[i + count:], buffer):
        return True
    if any(isinstance(s, n.Alloc) and s.buffer.name == buffer for s in block[:i]):
        return False
    return _reads(kernel_of(program, path).body, buffer) > _reads(block[i:i + count], buffer)


def _reads(block: n.Block, buffer: str) -> int:
    return sum(isinstance(x, n.Load) and x.at.buffer.name == buffer for s in block for x in walk(s))
