"""Accesses of a buffer by its name: its reads, its places, its declaration, and how often it is used."""
from __future__ import annotations

from collections.abc import Iterable, Iterator

from kir.ir import nodes as n
from kir.ir.visit import buffers_named, statements, walk


def _each(where: n.Node | Iterable[n.Node]) -> Iterator[n.Node]:
    for x in (where,) if isinstance(where, n.Node) else where:
        yield from walk(x)


def loads_of(where: n.Node | Iterable[n.Node], buffer: str) -> list[n.Load]:
    """The reads of a buffer below a node, or below several, in reading order.

        loads_of(store.value, "A")
        loads_of(block[i + 1:], b.name)
    """
    return [x for x in _each(where) if isinstance(x, n.Load) and x.at.buffer.name == buffer]


def regions_of(where: n.Node | Iterable[n.Node], buffer: str) -> list[n.Region]:
    """The places of a buffer that are named, for reading or writing, below a node, or below several.

        len(regions_of(kernel, "A")) == 2    # one store, and one load
        regions_of(block, b.name)
    """
    return [x for x in _each(where) if isinstance(x, n.Region) and x.buffer.name == buffer]


def is_read(where: n.Node | Iterable[n.Node], buffer: str) -> bool:
    """Whether a buffer is read below a node, or below several.

        is_read(loop, "A")
        is_read(block[i:], b.name)
    """
    return any(isinstance(x, n.Load) and x.at.buffer.name == buffer for x in _each(where))


def allocated(where: n.Kernel | n.Block, *spaces: str) -> list[n.Buffer]:
    """The buffers that a kernel, or a block, declares in these spaces (in all, without any), inner blocks included.

        allocated(kernel, "shared")
        allocated(loop.body, "register", "fragment")
    """
    block = where.body if isinstance(where, n.Kernel) else where
    return [s.buffer for s in statements(block) if isinstance(s, n.Alloc) and (not spaces or s.buffer.space in spaces)]


def span_of(block: n.Block, buffer: str) -> tuple[int, int] | None:
    """The first and the last statement of a block that names a buffer.

        span_of(kernel.body, "As") == (2, 5)
        span_of(block, "unused") is None
    """
    found = [i for i, s in enumerate(block) if buffer in buffers_named(s)]
    return (found[0], found[-1]) if found else None
