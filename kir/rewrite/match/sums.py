"""Whether the iterations of a loop only add to sums and raise maxima by what does not depend on the others, so that they may come in any order."""
from __future__ import annotations

from collections.abc import Iterable, Iterator

from kir.analysis import Aliases
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.visit import names_read, statements, walk
from kir.rewrite import Verdict, proved, refuted, unknown

from .materialize import buffers_read, buffers_written, is_pure

OPERATIONS = {"add": True, "max": False, "min": False}
"""What may be folded in any order, and whether floats are rounded in the order in which they come."""
BITWISE = frozenset({"and", "or", "xor"})
PRIVATE = frozenset({"register", "fragment"})


@dataclass(frozen=True)
class Sums:
    """The verdict, and the statement that it is of; where it is proved, whether sums of floats are rounded in another order."""

    verdict: Verdict
    rounded: bool = False


def sums(program: n.Program, loop: n.For) -> Sums:
    """What is known of the order of a loop's iterations. Statements inside of loops and branches count by themselves: a sum of sums is one."""
    aliases, own = Aliases(program), {s.buffer.name for s in statements(loop.body) if isinstance(s, n.Alloc)}
    written = buffers_written(loop.body) - own
    folds: dict[str, str] = {}
    rounded = False

    def changed(of: Iterable[n.Expr]) -> set[str]:
        """What some expressions read of what other iterations write, under whatever name."""
        return {b for x in of for b in buffers_read(x) for k in written if (b != k or not _apart(loop, b)) and aliases.may_be_one(b, k)}
    for s in _each(loop.body, own):
        found = _folded(s)
        if _is_own(s, own):
            added = [x for x in walk(s) if isinstance(x, n.Expr)]
        elif isinstance(s, n.For | n.If):
            added = [s.lo, s.hi, s.step] if isinstance(s, n.For) else [s.cond]
        elif found is not None:
            op, at, added = found
            same = [k for k, by in folds.items() if by != op and aliases.may_be_one(k, at.buffer.name)]
            if same or folds.setdefault(at.buffer.name, op) != op:
                return Sums(unknown(f"'{at.buffer.name}' is folded by two operations", "sums and maxima alone"))
            rounded |= at.buffer.dtype.is_float and OPERATIONS.get(op, False)
        else:
            return Sums(_more(s, loop, changed(x for x in walk(s) if isinstance(x, n.Expr))))
        if clash := changed(added):
            said, needs = f"an iteration reads '{min(clash)}', which the ones before it have changed", "iterations that do not see one another's results"
            if all(x.at.buffer.space in PRIVATE for e in added for x in walk(e) if isinstance(x, n.Load) and x.at.buffer.name in clash):
                return Sums(unknown(said, needs))  # a maximum that rescales, or what rounding lost, may be any
            return Sums(refuted(said, f"iteration 1 reads '{min(clash)}'", needs=needs))
    return Sums(proved("each iteration adds to sums and raises maxima by what does not depend on the others"), rounded)


def in_order(program: n.Program, loop: n.For, found: Verdict) -> Verdict:
    """A verdict on iterations that stay in one thread: not refuted where all that they have in common are sums and maxima, which another order only rounds
    otherwise."""
    if found.kind != "refuted" or not sums(program, loop).verdict:
        return found
    return unknown(f"{found.reason}, as a sum or maximum, which comes together in another order", found.needs)


def _each(block: n.Block, own: set[str]) -> Iterator[n.Stmt]:
    """Statements, and those inside of branches, and of loops that do not only change what an iteration has for itself."""
    for s in block:
        yield s
        if isinstance(s, n.For) and not _is_own(s, own):
            yield from _each(s.body, own)
        elif isinstance(s, n.If):
            yield from _each((*s.then, *s.orelse), own)


def _is_own(s: n.Stmt, own: set[str]) -> bool:
    """Whether a statement only changes what an iteration has for itself."""
    if isinstance(s, n.Alloc) or (isinstance(s, n.Let) and is_pure(s.value)):
        return True
    if isinstance(s, n.Copy) and (s.via != "plain" or s.signal is not None or s.grouped):
        return False
    if isinstance(s, n.For) and any(isinstance(x, n.Jump) and x.kind == "return" for x in walk(s)):
        return False
    return isinstance(s, n.Store | n.Mma | n.Copy | n.For) and buffers_written((s,)) <= own


def _more(s: n.Stmt, loop: n.For, clash: set[str]) -> Verdict:
    """Of a statement that does something else: what it stores of others' results at a place that moves is another value in another order."""
    more = "an iteration does more than add to sums and raise maxima"
    if clash and isinstance(s, n.Store) and s.at.buffer.space not in PRIVATE and loop.var.name in names_read(s.at):
        return refuted(more, s.label or type(s).__name__.lower(), needs="sums and maxima alone")
    return unknown(more, "sums and maxima alone")


def _apart(loop: n.For, buffer: str) -> bool:
    """Whether each iteration names one place of a buffer, and another one than the others."""
    at = {x for s in loop.body for x in walk(s) if isinstance(x, n.Region) and x.buffer.name == buffer}
    moving = {loop.var.name, *bound_names(loop.body)}
    return len(at) == 1 and any(isinstance(i, n.Expr) and i.type == loop.var.type and not names_read(build.sub(i, loop.var)) & moving
                                for i in next(iter(at)).index)


def _folded(s: n.Stmt) -> tuple[str, n.Region, list[n.Expr]] | None:
    """The operation and the place of a statement that adds to a sum, or raises a maximum, and what it reads beside; None for another statement."""
    if isinstance(s, n.Mma):
        return None if s.pending else ("add", s.acc, [s.a, s.b, *_places(s.acc)])
    if not (isinstance(s, n.Store) and s.mask is None and isinstance(s.value, n.Binary) and s.value.a == n.Load(s.at)):
        return None
    if s.value.op not in OPERATIONS and not (s.value.op in BITWISE and not s.at.buffer.dtype.is_float):
        return None
    return s.value.op, s.at, [s.value.b, *_places(s.at)]


def _places(at: n.Region) -> list[n.Expr]:
    """The expressions of an index."""
    return [x for i in at.index for x in ((i.lo, i.extent, i.step) if isinstance(i, n.Span) else (i,)) if isinstance(x, n.Expr)]
