"""What a binding made of a kernel: no tile, tensor or CTA of an impossible size."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kir.base.diagnostic import KirError, error
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.bindings.binding_values import MOST, MOST_THREADS
from kir.ir.visit import statements, walk

MOST_IN_TILE = 1 << 20
"""Elements of a tile of Triton's, which compiles none that is larger."""


def check_made(made: n.Program, binding: Binding, tiles: bool) -> None:
    """Raises KirError KIR-F013 for extents that cannot be under these values, at the value that is to blame; with `tiles`, those of Triton's tiles too:
    a power of two each, and 2^20 elements at most."""
    for k in made.kernels:
        threads = build.int_value(k.threads)
        if threads is not None and not 1 <= threads <= MOST_THREADS:
            raise _impossible(binding, f"gives a CTA of '{k.name}' {threads} threads", f"1 to {MOST_THREADS}", (threads,), None)
        for a in k.grid:
            extent = build.int_value(a.extent)
            if extent is not None and not 1 <= extent <= MOST:
                raise _impossible(binding, f"gives the grid of '{k.name}' {extent} CTAs along {a.name}", f"1 to {MOST}", (extent,), None)
    for p in made.params:
        if isinstance(p.of, n.Buffer):
            for extent in _impossible_extents(p.of.shape, 0):
                raise _impossible(binding, f"gives the tensor '{p.name}' {extent} elements along an axis", f"0 to {MOST}", (extent,), None)
    for s in (s for k in made.kernels for s in statements(k.body)):
        if isinstance(s, n.Alloc):
            for extent in _impossible_extents(s.buffer.shape, 1):
                raise _impossible(binding, f"gives '{s.buffer.name}' {extent} elements along an axis", f"1 to {MOST}", (extent,), s)
            sizes = [build.int_value(d) for d in s.buffer.shape]
            if math.prod(x or 1 for x in sizes) > MOST:
                raise _impossible(binding, f"gives '{s.buffer.name}' {math.prod(x or 1 for x in sizes)} elements", f"{MOST} or fewer",
                                  tuple(x or 1 for x in sizes), s)
        if tiles:
            for x in walk(s):
                if isinstance(x, n.Call) and x.fn == "iota" and isinstance(x.args[0], n.Expr) and (length := build.int_value(x.args[0])) is not None and (
                        length < 1 or length & (length - 1) or length > MOST_IN_TILE):
                    raise _impossible(binding, f"makes a range of {length} elements", f"a power of two from 1 to {MOST_IN_TILE}, as tl.arange has it",
                                      (length,), s)


def _impossible_extents(shape: tuple[n.Expr, ...], least: int) -> Iterator[int]:
    for d in shape:
        value = build.int_value(d)
        if value is not None and not least <= value <= MOST:
            yield value


def _impossible(binding: Binding, message: str, needs: str, values: tuple[int, ...], s: n.Stmt | None) -> KirError:
    """The refusal at the meta that has such a value; else at one that no extent can have, or of which it is a multiple."""
    metas = {k: v for k, v in binding.metas.items() if isinstance(v, int) and not isinstance(v, bool)}
    options = {k: v for k, v in binding.options.items() if isinstance(v, int) and not isinstance(v, bool)}
    for near in ("equal", "impossible", "divides"):
        for section, held in (("metas", metas), ("options", options)):
            for name, value in held.items():
                blamed = {"equal": value in values, "impossible": value <= 0 or value > MOST_IN_TILE,
                          "divides": value > 1 and any(x and x % value == 0 for x in values)}
                if blamed[near]:
                    used = (f"it is used at {s.origin}",) if s is not None and s.origin is not None else ()
                    return error("KIR-F013", f"{name} = {value} {message}", origin=binding.at(section, name), needs=needs, notes=used)
    return error("KIR-F013", f"the binding {message}", origin=(s.origin if s is not None else None) or binding.at("metas"), needs=needs)
