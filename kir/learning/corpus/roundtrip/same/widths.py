"""Arrays as numbers of the fewest bits that two programs see in them."""
from __future__ import annotations

from collections.abc import Sequence

from kir.ir import nodes as n
from kir.ir.types import DTYPES, DType
from kir.ir.visit import walk
from kir.learning.corpus.roundtrip.same.memory import bits_of


def narrowest(*bodies: n.Block) -> list[dict[str, DType]]:
    """For each block its arrays, and those from outside, as unsigned numbers of the fewest bits that it, or of those from outside any, sees in them."""
    found: list[dict[str, int]] = []
    for body in bodies:
        views = {x.buffer.name: x for s in body for x in walk(s) if isinstance(x, n.View)}
        least: dict[str, int] = {x.name: x.dtype.bits for s in body for x in walk(s) if isinstance(x, n.Buffer) and x.name not in views and not (
            x.dtype.is_bool or x.dtype.is_symbolic)}
        for v in views.values():
            root = v
            while root.at.buffer.name in views:
                root = views[root.at.buffer.name]
            name = root.at.buffer.name
            if v.buffer.dtype.is_bool or root.at.buffer.dtype.is_bool:
                continue
            least[name] = min(least.get(name, v.buffer.dtype.bits), v.buffer.dtype.bits, root.at.buffer.dtype.bits)
        found.append(least)
    _paired(found, bodies)
    locals_ = [{x.buffer.name for s in body for x in walk(s) if isinstance(x, n.Alloc)} for body in bodies]
    outside: dict[str, int] = {}
    for least, own in zip(found, locals_, strict=True):
        for name, bits in least.items():
            if name not in own:
                outside[name] = min(bits, outside.get(name, bits))
    return [{name: DTYPES[f"u{bits}"] for name, bits in {**{k: v for k, v in least.items() if k in own}, **outside}.items() if f"u{bits}" in DTYPES}
            for least, own in zip(found, locals_, strict=True)]


def _paired(found: Sequence[dict[str, int]], bodies: Sequence[n.Block]) -> None:
    """Gives shared arrays of as many bytes, in their order, what is the fewest bits that either block sees in them."""
    arrays = [[x.buffer for s in body for x in walk(s) if isinstance(x, n.Alloc) and x.buffer.space == "shared"] for body in bodies]
    if len({len(own) for own in arrays}) > 1:
        return
    for each in zip(*arrays, strict=True):
        sizes = {bits_of(b) for b in each}
        if len(sizes) == 1 and None not in sizes and all(b.name in least for b, least in zip(each, found, strict=True)):
            bits = min(least[b.name] for b, least in zip(each, found, strict=True))
            for b, least in zip(each, found, strict=True):
                least[b.name] = bits
