"""The parts of a tile's code, where it begins with one product, has a loop, and ends with another."""
from __future__ import annotations

from collections.abc import Iterable

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import buffers_named, names_read
from kir.rewrite.match import matched_as, values_for

from ..pipelining.overlap_tiles import Tile, calls, tile_at


@dataclass(frozen=True)
class Parts:
    """The code of a tile: values, fragments, waits for what is brought once, the first product, what is computed on it, the loop with what stands before it,
    what is given back behind that, the wait for a turn and what gives it on, the last product, the rest, and counts of slots that go on."""

    lets: n.Block
    made: n.Block
    once: n.Block
    first: Tile
    soft: n.Block
    middle: n.Block
    given: n.Block
    turn: n.Block
    last: Tile
    rest: n.Block
    counts: n.Block

    @property
    def head(self) -> n.Block:
        """What a tile begins with."""
        return (*self.once, *self.first.code, *self.soft)

    @property
    def tail(self) -> n.Block:
        """What it ends with."""
        return (*self.turn, *self.last.code, *self.rest)

    @property
    def grant(self) -> n.Block:
        """What lets the first warpgroup begin."""
        return self.middle[:-1]

    @property
    def onward(self) -> n.Block:
        """What gives a turn on to the next warpgroup, and from the last one to the first, in the loop."""
        loop = matched_as(self.middle[-1], n.For)
        return tuple(s for s in loop.body if calls(s, "named_barrier_arrive"))[:len(self.turn[1:])]

    @property
    def needed(self) -> n.Block:
        """The values that the head reads."""
        return read_by(self.lets, self.head)

    @property
    def begins(self) -> n.Block:
        """The fragments at their first values."""
        return tuple(n.Store(n.Region(s.buffer), s.init) for s in self.made if isinstance(s, n.Alloc) and s.init is not None)


def read_by(lets: n.Block, by: Iterable[n.Node]) -> n.Block:
    """The values that others read, and those that these read."""
    return values_for(lets, {x for s in by for x in names_read(s)})


def tile_of(loop: n.For) -> tuple[n.If | None, Parts] | None:
    """The parts of a tile's code in a loop over tiles, and the condition under which it stands, behind values, if there is one."""
    last = loop.body[-1] if loop.body else None
    if isinstance(last, n.If) and values_first(loop.body) == len(loop.body) - 1:
        inner = parts_of(last.then)
        return (last, inner) if inner is not None else None
    parts = parts_of(loop.body)
    return (None, parts) if parts is not None else None


def touched(block: Iterable[n.Stmt]) -> set[str]:
    """The buffers that statements name."""
    return {x for s in block for x in buffers_named(s)}


def up_to(block: n.Block, at: int, kind: type | tuple[type, ...], fn: tuple[str, ...] = ()) -> int:
    """The first place from `at` on where another statement stands; of calls, those named."""
    while at < len(block) and isinstance(s := block[at], kind) and (not fn or (isinstance(s, n.Eval) and s.call.fn in fn)):
        at += 1
    return at


def values_first(block: n.Block) -> int:
    """How many values of one element a block begins with."""
    return next((k for k, s in enumerate(block) if not (isinstance(s, n.Let) and isinstance(s.value.type, DType))), len(block))


def parts_of(body: n.Block) -> Parts | None:
    """The parts of a tile's code."""
    a = values_first(body)
    b = up_to(body, a, n.Alloc)
    c = up_to(body, b, n.Eval, ("mbar_wait",))
    first = tile_at(body, c)
    if first is None or not body[a:b] or not body[b:c]:
        return None
    d = c + len(first.code)
    e = up_to(body, d, (n.Let, n.Store))
    loop = e + 1 if e < len(body) and isinstance(body[e], n.If) else e
    if loop >= len(body) or not isinstance(body[loop], n.For):
        return None
    f = loop + 1
    g = up_to(body, f, n.Eval, ("mbar_arrive",))
    h = up_to(body, g, n.Eval, ("named_barrier_sync",))
    if h > g and h < len(body) and isinstance(body[h], n.If):
        h += 1
    last = tile_at(body, h)
    if last is None or g == f or h - g > 2:
        return None
    r = h + len(last.code)
    z = len(body)
    while z > r and isinstance(s := body[z - 1], n.Store) and s.at.buffer.space == "register" and not s.at.buffer.shape:
        z -= 1
    return Parts(body[:a], body[a:b], body[b:c], first, body[d:e], body[e:f], body[f:g], body[g:h], last, body[r:z], body[z:])
