"""Folds into a scalar, and reductions in which threads exchange values through shared memory."""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.elements import split_affine
from kir.analysis.loops.reductions import identity
from kir.analysis.normal.normal_form import is_pure
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.visit import walk
from kir.rewrite import Path
from kir.rewrite.edit import block_at, kernel_of
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.match.thread_team import is_call, is_scalar, whole

REDUCTIONS = {"add": "sum", "max": "max", "min": "min"}
"""Reductions by the binary operation that folds them."""

IDEMPOTENT = frozenset({"max", "min"})


def folded(s: n.Stmt, acc: n.Buffer, fused: bool = False) -> tuple[str, n.Expr] | None:
    """(operation, operand) of a store that folds into a scalar a value which does not depend on it; `fused`: also a product that is rounded together with
    its sum."""
    if not (isinstance(s, n.Store) and s.at == n.Region(acc) and s.mask is None and not s.clip):
        return None
    v, old = s.value, whole(acc)
    op, operand = "add", None
    if acc.dtype.is_integer and build.polynomial(v).get((old,)) == 1:
        operand = build.sub(v, old)
    elif fused and isinstance(v, n.Call) and v.fn == "fma" and not v.attrs and v.args[2:] == (old,):
        operand = n.Binary("mul", *(a for a in v.args[:2] if isinstance(a, n.Expr)))
    elif isinstance(v, n.Binary) and v.op in REDUCTIONS:
        op, operand = v.op, v.b if v.a == old else v.a if v.b == old and acc.dtype.is_integer else None
    return None if operand is None or mentions(operand, acc.name) else (op, operand)


def accumulation(loop: n.Stmt, acc: n.Buffer, fused: bool = False) -> str | None:
    """The operation with which a serial loop from 0 does nothing but fold values (`fused`: also products rounded with their sum) into `acc`, which they do not
    depend on."""
    if not (isinstance(loop, n.For) and loop.kind == "serial" and build.is_const(loop.lo, 0) and build.is_const(loop.step, 1)):
        return None
    own = set(bound_names(loop.body))
    ops: set[str] = set()
    places = 0
    for x in walk(loop):
        match x:
            case n.Store() if x.at == n.Region(acc):
                step = folded(x, acc, fused)
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


@dataclass(frozen=True)
class Exchange:
    """`slots[at] = value`, a rendezvous, and each thread's own fold of `count` slots from `base` on into `result`: a scalar of its own
    that is declared here when `fresh`, otherwise one that starts again from the identity (or, with `onto`, from what it holds; with `first`, from the
    first slot)."""

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
    first: bool = False

    def statements(self, var: n.Var, trailing: bool) -> n.Block:
        """The statements; `trailing` adds a rendezvous after the fold, for slots that are written again in the next iteration."""
        sync = n.Eval(build.call(self.sync))
        slot = n.Store(build.region(self.slots, self.at), whole(self.value))
        return (slot, sync, *self.fold(var), *((sync,) if trailing else ()))

    def fold(self, var: n.Var) -> n.Block:
        """What follows the rendezvous."""
        start: n.Expr = identity(REDUCTIONS[self.op], self.result.dtype)
        if self.first:
            start = n.Load(build.region(self.slots, self.base))
        place, rest = n.Region(self.result), int(self.first)
        begin: n.Block = (n.Alloc(self.result, start),) if self.fresh else () if self.onto else (n.Store(place, start),)
        step = n.Store(place, build.binary(self.op, whole(self.result), n.Load(build.region(self.slots, build.add(build.add(self.base, var), rest)))))
        return (*begin, n.For(var, build.const(0), build.const(self.count - rest), build.const(1), (step,)))


def fold_at(block: n.Block, i: int, from_first: bool = False) -> tuple[Exchange, int] | None:
    """An exchange's fold that begins at statement `i`, and how many statements it has; `at`, `value` and `sync` are left open. `from_first`: also one that
    begins with the first slot."""
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
    ahead = begun.at if from_first and isinstance(begun, n.Load) and begun.mask is None and not begun.clip and not begun.cache else None
    if count is None or (begun != wanted and ahead is None) or not (isinstance(source, n.Load) and source.at.buffer.space == "shared" and len(
            source.at.index) == 1 and source.mask is None and not source.clip and not source.cache):
        return None
    index = source.at.index[0]
    parts = split_affine(index, loop.var) if isinstance(index, n.Expr) else None
    if parts is None or not build.is_const(parts[1], 1):
        return None
    base = parts[0]
    if ahead is not None:
        base, count = build.sub(base, 1), count + 1
        if ahead != build.region(source.at.buffer, base):
            return None
    return Exchange(source.at.buffer, build.const(0), result, "", result, fresh, op, base, count, onto, ahead is not None), start + 1


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
