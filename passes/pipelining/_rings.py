"""Rings of staged tiles between roles: slots that signaling copies fill, an mbarrier for each slot that is full, and one for each that is
free again.

A loop of a role that counts from 0 by 1 takes slot `k % stages` in its iteration k, in round `k // stages`. A slot is full for the reader in
round r when the phase r of its mbarrier is over, and free for the writer when the phase r - 1 of the other one is: parities r % 2 and
(r + 1) % 2. A ring of one stage leaves out what is then 0.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.paths import child_blocks, with_block
from kir.ir.types import MBARRIER
from kir.ir.visit import statements, transform, walk
from kir.rewrite.match import counting, is_counted, matched_as
from kir.rewrite.match.local_buffers import mentions, own_parts


class NoRing(Exception):
    """Roles that do not pass tiles through a ring in the way described above."""


def roles_at(kernel: n.Kernel) -> tuple[int, n.Roles] | None:
    """The roles that a kernel ends in, and where they stand."""
    if kernel.body and isinstance(last := kernel.body[-1], n.Roles):
        return len(kernel.body) - 1, last
    return None


@dataclass(frozen=True)
class Rings:
    """The rings of a kernel: buffers that signaling copies fill, and their mbarriers; `stages` is the number of slots. `peers` are the names that
    the mbarriers of all CTAs of a cluster have (`peers[rank, slot]`). `once` are the mbarriers without slots, of what is brought once."""

    filled: Mapping[str, n.Buffer]
    bars: Mapping[str, n.Buffer]
    stages: int
    peers: frozenset[str] = frozenset()
    once: frozenset[str] = frozenset()

    @classmethod
    def of(cls, kernel: n.Kernel) -> Rings:
        """Those of a kernel with roles. Raises NoRing."""
        every = list(statements(kernel.body))
        every_bar = {s.buffer.name: s.buffer for s in kernel.body if isinstance(s, n.Alloc) and s.buffer.dtype == MBARRIER}
        once = frozenset(x for x, b in every_bar.items() if not b.shape)
        bars = {x: b for x, b in every_bar.items() if x not in once}
        filled = {s.dst.buffer.name: s.dst.buffer for s in every if isinstance(s, n.Copy) and s.signal is not None and s.signal.buffer.name not in once}
        sizes = {int_value(b.shape[0]) if len(b.shape) == 1 else None for b in bars.values()}
        stages = next(iter(sizes)) if len(sizes) == 1 else None
        if not filled or stages is None:
            raise NoRing("no copies signal mbarriers, or rings have different numbers of slots")
        if any(b.name not in {s.buffer.name for s in kernel.body if isinstance(s, n.Alloc)} for b in filled.values()):
            raise NoRing("a ring is declared inside a role")
        views = frozenset(s.buffer.name for s in kernel.body if isinstance(s, n.View) and s.buffer.space == "cluster" and s.at.buffer.name in bars)
        return cls(filled, bars, stages, views, once)

    @property
    def names(self) -> set[str]:
        """Of the buffers and the mbarriers."""
        return {*self.filled, *self.bars}


def counted(s: n.Stmt) -> bool:
    """Whether a statement is a serial loop from 0 by 1."""
    return is_counted(s)


def ring_loops(block: n.Block, names: set[str]) -> Iterator[n.For]:
    """The counted loops of a role whose own statements are those of the mbarriers; outside of them nothing touches the rings. Raises NoRing."""
    for s in block:
        if not any(mentions(s, x) for x in names):
            continue
        if isinstance(s, n.For) and counted(s) and any(isinstance(x, n.Eval) and x.call.fn.startswith("mbar_") for x in s.body):
            yield s
            continue
        if any(any(mentions(x, y) for y in names) for x in own_parts(s)):
            raise NoRing(f"a ring is used outside of a counted loop, at {s.label or type(s).__name__.lower()}")
        for _, inner in child_blocks(s):
            yield from ring_loops(inner, names)


def in_ring_loops(block: n.Block, names: set[str], change: Callable[[n.For], n.For]) -> n.Block:
    """A role's code with each of those loops changed."""
    loops = {id(x) for x in ring_loops(block, names)}

    def below(inner: n.Block) -> n.Block:
        out: list[n.Stmt] = []
        for s in inner:
            if isinstance(s, n.For) and id(s) in loops:
                out.append(change(s))
                continue
            for steps, body in child_blocks(s):
                s = with_block(s, steps, below(body))
            out.append(s)
        return tuple(out)
    return below(block)


def deepened(s: n.For, rings: Rings, made: Rings) -> n.For:
    """A loop over rings of one stage as one over rings of several (and back, from several to one). Raises NoRing."""
    k = s.var

    def place(r: n.Region) -> n.Region:
        old, new = rings.stages, made.stages
        b = made.filled.get(r.buffer.name) or made.bars[r.buffer.name]
        index = list(r.index)
        if r.buffer.name in rings.bars:
            if len(index) != 1 or index[0] != slot(k, old):
                raise NoRing(f"an mbarrier that is not that of iteration {k.name}'s slot")
            return build.region(b, slot(k, new))
        if old > 1:
            if not index or index[0] != slot(k, old):
                raise NoRing(f"'{b.name}' is used beside the slot of iteration {k.name}")
            index = index[1:]
            return _plain(b, index) if new == 1 else build.region(b, slot(k, new), *index)
        return build.region(b, slot(k, new), *(index or [build.span(0, d) for d in r.buffer.shape]))

    def leave(x: n.Node, y: n.Node) -> n.Node:
        if isinstance(x, n.Region) and x.buffer.name in rings.names:
            return place(x)
        if isinstance(x, n.Call) and x.fn == "mbar_wait":
            assert isinstance(y, n.Call)
            parity = matched_as(x.args[1], n.Expr)
            return build.call_with("mbar_wait", (y.args[0], phase(k, made.stages, offset_of(parity, k, rings.stages))), y.attrs)
        return y
    out: n.For = transform(s, leave, lambda x: not isinstance(x, n.Buffer))
    return out


def _plain(b: n.Buffer, index: list[n.Expr | n.Span]) -> n.Region:
    """A region, the whole of a buffer without an index."""
    whole = [build.span(0, d) for d in b.shape]
    return n.Region(b) if index == whole else build.region(b, *index)


def slot(k: n.Expr, stages: int) -> n.Expr:
    """The slot of iteration k."""
    return build.const(0) if stages == 1 else build.mod(k, build.const(stages))


def phase(k: n.Expr, stages: int, offset: int) -> n.Expr:
    """The parity to wait for in iteration k: of its round, plus an offset."""
    return build.mod(build.add(k if stages == 1 else build.floordiv(k, build.const(stages)), offset), 2)


def offset_of(parity: n.Expr, k: n.Expr, stages: int) -> int:
    """The offset with which a parity is that of iteration k. Raises NoRing."""
    for offset in (0, 1):
        if parity == phase(k, stages, offset):
            return offset
    raise NoRing("a wait for a phase that is not the round of its iteration")


def started(bars: Mapping[str, int], buffers: Mapping[str, n.Buffer], stages: int, name: str) -> n.Block:
    """The initialization of mbarriers, each with the arrivals that it counts, and the fence after it."""
    var = n.Var(name, build.const(0).dtype)
    inits: n.Block = tuple(n.Eval(build.call("mbar_init", build.region(buffers[x], slot_number(var, stages)), build.const(count)))
                  for x, count in bars.items())
    if stages > 1:
        loop = counting(var, stages, inits, "unroll", n.attrs(factor=stages))
        inits = (loop,)
    return (*inits, n.Eval(build.call("fence_mbar_init")))


def slot_number(var: n.Expr, stages: int) -> n.Expr:
    """The slot that is initialized."""
    return build.const(0) if stages == 1 else var


def init_at(kernel: n.Kernel, rings: Rings) -> tuple[int, int, dict[str, int], str | None]:
    """Where the initialization stands in a kernel's body, how many statements it is, the arrivals that each mbarrier counts, and the
    label of its loop. Raises NoRing where it is another than `started` writes."""
    def is_init(x: n.Node) -> bool:
        return isinstance(x, n.Call) and x.fn == "mbar_init" and isinstance(r := x.args[0], n.Region) and r.buffer.name not in rings.once
    first = next((i for i, s in enumerate(kernel.body) if not isinstance(s, n.Roles) and any(map(is_init, walk(s)))), None)
    if first is None:
        raise NoRing("mbarriers are not initialized")
    found = [x for s in kernel.body[:-1] for x in walk(s) if isinstance(x, n.Call) and is_init(x)]
    counts: dict[str, int] = {}
    for x in found:
        r, count = x.args
        assert isinstance(r, n.Region) and isinstance(count, n.Expr)
        value = int_value(count)
        if value is None:
            raise NoRing("an mbarrier that counts an unknown number of arrivals")
        counts[r.buffer.name] = value
    head = kernel.body[first]
    name = head.var.name if isinstance(head, n.For) else "s"
    expected = started(counts, rings.bars, rings.stages, name)
    if kernel.body[first:first + len(expected)] != expected or set(counts) != set(rings.bars):
        raise NoRing("mbarriers are initialized in another way")
    return first, len(expected), counts, head.label


def with_slots(b: n.Buffer, stages: int) -> n.Buffer:
    """A ring of a buffer."""
    return replace(b, shape=(build.const(stages), *b.shape))
