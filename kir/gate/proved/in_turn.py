"""What threads of one Triton program store and others load: Triton puts no barrier between accesses to global memory, but where `tl.debug_barrier` says so."""
from __future__ import annotations

from collections.abc import Iterator

from kir.analysis.access import Aliases
from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.ir import nodes as n
from kir.ir.anchors import anchors
from kir.ir.types import TileType
from kir.ir.visit import walk

BETWEEN = "Triton puts no barrier between accesses to global memory, and no tl.debug_barrier() stands between"


@dataclass(frozen=True)
class Crossing:
    """A load of elements that were stored in another order, with no barrier since: the anchors of the load and of the store, and the tensor."""

    kernel: str
    load: str
    store: str
    tensor: str


def crossings(program: n.Program) -> tuple[Crossing, ...]:
    """Loads whose elements a statement before them stores at other places, of each kernel. What is stored and loaded by the same places is each
    thread's own; a barrier orders all before it."""
    given = {p.name for p in program.params} | {w.buffer.name for w in program.workspaces}
    aliases, names = Aliases(program), {id(s): a for a, _, s in anchors(program)}
    found = [Crossing(k.name, names.get(id(load), ""), names.get(id(store), ""), at.buffer.name) for k in program.kernels
             for load, store, at in _block(k.body, [], aliases, given)]
    return tuple(dict.fromkeys(found))


Stored = list[tuple[n.Stmt, n.Region]]


def _block(body: n.Block, stored: Stored, aliases: Aliases, given: set[str]) -> Iterator[tuple[n.Stmt, n.Stmt, n.Region]]:
    """Crossings of a block, whose stores since the last barrier are added to `stored`."""
    for s in body:
        match s:
            case n.Eval() if s.call.fn == "barrier":
                stored.clear()
            case n.For() | n.While():
                if isinstance(s, n.For) and s.kind in ("thread", "warp", "warpgroup"):
                    continue
                for _ in range(2):  # what a trip stores, the next one loads
                    yield from _block(s.body, stored, aliases, given)
            case n.If():
                other = [*stored]
                yield from _block(s.then, stored, aliases, given)
                yield from _block(s.orelse, other, aliases, given)
                stored += [x for x in other if x not in stored]
            case n.Let() | n.Store() | n.Copy() | n.Eval() | n.Mma():
                for x in walk(s):
                    if isinstance(x, n.Load) and x.at.buffer.name in given:
                        yield from ((s, before, x.at) for before, at in stored if aliases.may_be_one(x.at.buffer.name, at.buffer.name)
                                    and not _own(x.at, at))
                place = s.at if isinstance(s, n.Store) else s.dst if isinstance(s, n.Copy) else None
                if place is not None and place.buffer.name in given:
                    stored.append((s, place))


def _own(load: n.Region, store: n.Region) -> bool:
    """Whether both go through their elements in one order: places that differ by what is the same for all of a tile are each thread's own, or of others that
    it does not meet. One element is stored by one thread, which is all that stores what it makes of it."""
    def moving(i: n.Expr | n.Span) -> object:
        return ("span", i.extent, i.step) if isinstance(i, n.Span) else i if isinstance(i.type, TileType) else "one"
    return load.type == store.type and [moving(i) for i in load.index] == [moving(i) for i in store.index]


def require_in_turn(program: n.Program, surface: str) -> None:
    """Raises KirError KIR-G142 where threads of a Triton program load what others have stored, and nothing orders them."""
    if surface == "triton" and (found := crossings(program)):
        raise error("KIR-G142", f"'{program.name}' reads '{found[0].tensor}' by other threads than wrote it: {BETWEEN}", anchor=found[0].load,
                    witness=(found[0].store,), needs="tl.debug_barrier() between the store and the load, or the value itself instead of a load")


__all__ = ["BETWEEN", "Crossing", "crossings", "require_in_turn"]
