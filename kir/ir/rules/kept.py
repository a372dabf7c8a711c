"""What the verifier need not look at again. A pass leaves most statements as they are: one that was found sound is sound in another program too, where
the names that it uses mean the same, those that it defines are free, and the same team executes it."""
from __future__ import annotations

from collections.abc import ItemsView, Iterator

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.paths import child_blocks
from kir.ir.rules.checks import Scope
from kir.ir.types import TupleType, Type
from kir.ir.visit import once, walk

Around = tuple[object, ...]
"""What is the same for a whole program or team: its metas and inputs; the team's level, threads and whether a loop stands between."""


@dataclass(frozen=True)
class Needs:
    """Names that a statement and those inside it take from outside, with what they must be, and names that they define."""

    values: ItemsView[str, Type]
    buffers: ItemsView[str, n.Buffer]
    defined: frozenset[str]


def sound_again(s: n.Stmt, scope: Scope, around: Around) -> bool:
    """Whether a statement is known to be sound here. The scope is then as after it."""
    own = s.__dict__
    kept = own.get("_verified")
    if kept is None:
        return False
    was, constants, added = kept
    if (was is not around and was != around) or (constants is not scope.constants and constants != scope.constants):
        return False
    needs: Needs | None = own["_needs"] if "_needs" in own else of(s)
    if needs is None or not scope.ever.isdisjoint(needs.defined):
        return False
    values, buffers = scope.values, scope.buffers
    if not (needs.values <= values.items() and needs.buffers <= buffers.items()):
        return False
    scope.ever |= needs.defined
    if added:
        scope.constants |= added
    match s:
        case n.Let():
            kinds = s.value.type.elements if isinstance(s.value.type, TupleType) else (s.value.type,)
            values.update(zip(s.names, kinds, strict=True))
        case n.Alloc() | n.View():
            buffers[s.buffer.name] = s.buffer
    return True


def keep(s: n.Stmt, scope: Scope, around: Around, constants: frozenset[str]) -> None:
    """A statement was found sound, where these names were constants."""
    s.__dict__["_verified"] = around, constants, scope.constants - constants if scope.constants is not constants else None


def of(s: n.Stmt) -> Needs | None:
    """What a statement needs and defines; None where that is not known from its nodes."""
    return once(s, "_needs", lambda: _needs(s))


def _needs(s: n.Stmt) -> Needs | None:
    values: dict[str, Type] = {}
    buffers: dict[str, n.Buffer] = {}
    if isinstance(s, n.Opaque) or not all(_agreed(values, buffers, x) for e in _own(s) for x in walk(e)):
        return None
    defined = set(_defined(s))
    for _, block in child_blocks(s):
        for inner in block:
            below = of(inner)
            if below is None:
                return None
            for name, kind in below.values:
                if values.setdefault(name, kind) != kind:
                    return None
            for name, buffer in below.buffers:
                if buffers.setdefault(name, buffer) != buffer:
                    return None
            defined |= below.defined
    return Needs({name: kind for name, kind in values.items() if name not in defined}.items(),
                 {name: buffer for name, buffer in buffers.items() if name not in defined}.items(), frozenset(defined))


def _agreed(values: dict[str, Type], buffers: dict[str, n.Buffer], x: n.Node) -> bool:
    """A use of a name is noted; false where the name is used as something else too."""
    if isinstance(x, n.Var):
        return values.setdefault(x.name, x.of) == x.of
    return not isinstance(x, n.Region) or buffers.setdefault(x.buffer.name, x.buffer) == x.buffer


def _own(s: n.Stmt) -> tuple[n.Node, ...]:
    """What a statement consists of, but for the statements inside it."""
    match s:
        case n.For():
            return s.lo, s.hi, s.step
        case n.If() | n.While():
            return (s.cond,)
        case n.Roles():
            return ()
        case _:
            return (s,)


def _defined(s: n.Stmt) -> Iterator[str]:
    match s:
        case n.Let():
            yield from s.names
        case n.Alloc():
            yield s.buffer.name
        case n.View():
            yield s.buffer.name
            yield from s.axes
        case n.For():
            yield s.var.name
