"""Asynchronous operations and what waits for them: a copy into a group needs a commit and a wait, a signal somebody who waits, a barrier
somebody who initializes it. The other side of what is missing, the first read of what the operation brings, is named beside it."""
from __future__ import annotations

from collections.abc import Collection, Container, Iterator

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.anchors import anchors
from kir.ir.paths import Path, child_blocks
from kir.ir.visit import statements, walk


@dataclass(frozen=True)
class Unpaired:
    """A statement whose counterpart the kernel lacks; ``witness`` names the operation and who needs what it brings."""

    path: Path
    stmt: n.Stmt
    why: str
    witness: tuple[str, ...] = ()


def unpaired(program: n.Program, k: n.Kernel, functions: Container[str]) -> Iterator[Unpaired]:
    """What a kernel leaves unpaired, each kind once. Nothing is said of a kernel with source that is not understood, or that calls one
    of the device ``functions``, which may hold the counterpart."""
    whole = [_said(s) for s in k.body]
    if any(each.unknown for each in whole) or not any(each.asks for each in whole):
        return
    calls = frozenset[str]().union(*(each.calls for each in whole))
    if any(fn in functions for fn in calls):
        return
    waited, made = (frozenset[str]().union(*names) for names in zip(*((each.waits, each.makes) for each in whole), strict=True))
    reported: set[str] = set()
    for path, s in _asking(k.body, (k.name,)):
        for why in _missing(s, calls, waited, made):
            if why not in reported:
                reported.add(why)
                yield Unpaired(path, s, why, _sides(program, tuple(statements(k.body)), s))


def _asking(block: n.Block, prefix: Path) -> Iterator[tuple[Path, n.Stmt]]:
    """The statements of a block and below, in reading order, but for those in which nothing asks for a counterpart."""
    for i, s in enumerate(block):
        if _said(s).asks:
            yield (*prefix, i), s
            for steps, inner in child_blocks(s):
                yield from _asking(inner, (*prefix, i, *steps))


@dataclass(frozen=True)
class Said:
    """What a statement and those inside it say of asynchronous operations: whether source that is not understood is among them, what they call, whether
    one of them asks for a counterpart, and the names of barriers that they wait for and initialize."""

    unknown: bool
    calls: frozenset[str]
    asks: bool
    waits: frozenset[str]
    makes: frozenset[str]


def _said(s: n.Stmt) -> Said:
    """Worked out once for each statement: most of a program is as it was before a pass."""
    found: Said | None = s.__dict__.get("_said")
    if found is None:
        found = s.__dict__["_said"] = _said_anew(s)
    return found


def _said_anew(s: n.Stmt) -> Said:
    calls = {x.fn for x in walk(s) if isinstance(x, n.Call)} if isinstance(s, (n.Eval, n.Let)) else set[str]()
    waits, makes = set(_named_by(s, "mbar_wait")), set(_named_by(s, "mbar_init"))
    unknown, asks = isinstance(s, (n.Opaque, n.Hole)), any(_missing(s, _NOTHING, _NOTHING, _NOTHING))
    for _, block in child_blocks(s):
        for x in map(_said, block):
            if x is _SILENT:
                continue
            unknown, asks = unknown or x.unknown, asks or x.asks
            if x.calls:
                calls |= x.calls
            if x.waits or x.makes:
                waits |= x.waits
                makes |= x.makes
    made = Said(unknown, frozenset(calls), asks, frozenset(waits), frozenset(makes))
    return _SILENT if made == _SILENT else made


_NOTHING = frozenset[str]()
_SILENT = Said(False, _NOTHING, False, _NOTHING, _NOTHING)


def _named_by(s: n.Stmt, fn: str) -> frozenset[str]:
    """Buffers that a call of `fn` names."""
    return frozenset(a.buffer.name for a in s.call.args if isinstance(a, n.Region)) if isinstance(s, n.Eval) and s.call.fn == fn else _NOTHING


def _missing(s: n.Stmt, calls: Collection[str], waited: Collection[str], made: Collection[str]) -> Iterator[str]:
    if isinstance(s, n.Copy) and s.grouped:
        family = "async" if s.via.startswith("cp_async") else "bulk"
        for needed in (f"{family}_commit", f"{family}_wait"):
            if needed not in calls:
                yield f"a grouped copy via {s.via.partition('(')[0]}, and no {needed} in this kernel"
    if isinstance(s, n.Copy) and s.signal is not None:
        name = s.signal.buffer.name
        if name not in waited and s.signal.buffer.space == "shared":
            yield f"a copy signals '{name}', and nothing in this kernel waits for it"
    if (isinstance(s, n.Mma) and s.pending) or (isinstance(s, n.Eval) and s.call.fn == "wgmma"):
        for needed in ("wgmma_commit", "wgmma_wait"):
            if needed not in calls:
                yield f"a pending mma, and no {needed} in this kernel"
    if isinstance(s, n.Eval) and s.call.fn == "mbar_wait":
        for a in s.call.args:
            if isinstance(a, n.Region) and a.buffer.space == "shared" and a.buffer.name not in made:
                yield f"'{a.buffer.name}' is waited for, and no mbar_init in this kernel initializes it"


def _sides(program: n.Program, body: tuple[n.Stmt, ...], s: n.Stmt) -> tuple[str, ...]:
    """The operation, and the first statement that uses what it writes."""
    match s:
        case n.Copy():
            name, verb = s.dst.buffer.name, "write"
        case n.Mma():
            name, verb = s.acc.buffer.name, "write"
        case n.Eval() if s.call.args and isinstance(s.call.args[0], n.Region):
            name, verb = s.call.args[0].buffer.name, "write" if s.call.fn == "wgmma" else "wait"
        case _:
            return ()
    named = {id(each): text for text, _, each in anchors(program)}
    user = next((x for x in body if x is not s and _reads(x, name)), None)
    sides = [_side(f"{verb} of '{name}'", s, named)]
    return tuple(sides if user is None else [*sides, _side(f"read of '{name}'", user, named)])


def _reads(s: n.Stmt, name: str) -> bool:
    """Whether a statement itself, not one inside it, reads a buffer."""
    parts = [getattr(s, f) for f in s.compared_fields if f not in ("body", "then", "orelse", "roles", "dst", "signal", "acc")]
    for part in parts:
        for x in walk(part) if isinstance(part, n.Node) else ():
            if isinstance(x, n.Load) and x.at.buffer.name == name:
                return True
            if isinstance(x, n.Call) and any(isinstance(a, n.Region) and a.buffer.name == name for a in x.args):
                return True
    return False


def _side(what: str, s: n.Stmt, named: dict[int, str]) -> str:
    place = f" ({s.origin.file}:{s.origin.line})" if s.origin is not None else ""
    return f"{what} at {named.get(id(s), '?')}{place}"
