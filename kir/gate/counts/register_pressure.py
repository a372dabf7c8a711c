"""How many registers the values of a kernel take at once: tiles named by `let` that are read later, divided among the threads of their team."""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import DType, TileType, dtype_of, shape_of
from kir.ir.visit import substitute, walk

WORD = 4
"""Bytes of a register."""
WRITTEN_OUT = 16
"""Rounds up to which nvcc writes out a loop whose number it knows, where an array's places follow from it."""


Places = tuple[tuple[int, int], ...]
"""Registers a thread at a place, and how often a CTA comes by: no place of these has both less than another's."""


def live_registers(block: n.Block, threads: int, values: Mapping[str, n.Expr], whole: bool = False) -> Places:
    """The registers a thread that arrays, fragments and named tiles take where they are most, at these sizes (`values`), from where each is named to where it
    is last read; and how often a CTA comes by there: several places, where others that have fewer are passed more often. Tiles of indices
    and of conditions are computed again where they are read, and count nothing. `whole`: the surface's compiler loads a tile whole before it goes on, so that
    one without a name takes registers as well."""
    found = sorted(set(_held(block, max(1, threads), values, (0, 1), whole, operand_fragments(block) | local_arrays(block))), reverse=True)
    out: list[tuple[int, int]] = []
    for held, times in found:
        if not out or times > out[-1][1]:
            out.append((held, times))
    return tuple(out)


def _held(block: n.Block, threads: int, values: Mapping[str, n.Expr], around: tuple[int, int], whole: bool, without: frozenset[str]) -> list[tuple[int, int]]:
    sizes = {name: size for s in block if isinstance(s, n.Let) for name, size in _words(s, threads, values)}
    kept = _in_registers(block) if sizes or whole else frozenset()
    sizes = {name: size for name, size in sizes.items() if name in kept}
    arrays = {s.buffer.name: _array(s, threads, values) for s in block if isinstance(s, n.Alloc) and s.buffer.name not in without}
    sizes |= {name: size for name, size in arrays.items() if size}
    last = {x.name: i for i, s in enumerate(block) for x in walk(s) if isinstance(x, n.Var | n.Buffer) and x.name in sizes}
    live: set[str] = set()
    most, times = around
    out = [around]
    for i, s in enumerate(block):
        live |= {s.buffer.name} & sizes.keys() if isinstance(s, n.Alloc) else set()
        held = most + sum(sizes[name] for name in live)
        out.append((held + (_loaded(s, threads, values, kept) if whole else 0), times))
        for inner, team, trips in _inner(s, threads, values):
            out += _held(inner, max(1, team), values, (held, times * trips), whole, without)
        live = {name for name in live if last.get(name, -1) > i}
        if isinstance(s, n.Let):
            live |= {name for name in s.names if last.get(name, -1) > i}
            if len(s.names) == 1 and isinstance(s.value.type, DType) and s.value.type.is_integer:  # bounds of loops are named so
                values = {**values, s.names[0]: substitute(s.value, values)}
    return out


def _in_registers(block: n.Block) -> frozenset[str]:
    """The names that anything but matrix products reads, and those that are computed: products take what was loaded from shared memory."""
    made = frozenset(s.names[0] for s in block if isinstance(s, n.Let) and len(s.names) == 1 and not isinstance(_straight(s.value), n.Load))
    reads = Counter(x.name for s in block for x in walk(s) if isinstance(x, n.Var))
    reads.subtract(e.name for s in block for m in walk(s) if isinstance(m, n.Mma) for e in map(_straight, (m.a, m.b)) if isinstance(e, n.Var))
    return made | frozenset(name for name, times in reads.items() if times > 0)


def operand_fragments(block: n.Block) -> frozenset[str]:
    """Fragments that nothing but matrix products reads: they are where those take operands from, in shared memory."""
    mmas = [m for s in block for m in walk(s) if isinstance(m, n.Mma)]
    products = Counter(e.at.buffer.name for m in mmas for e in map(_straight, (m.a, m.b)) if isinstance(e, n.Load) and e.at.buffer.space == "fragment")
    reads = Counter(x.at.buffer.name for s in block for x in walk(s) if isinstance(x, n.Load))
    written = {m.acc.buffer.name for m in mmas}
    return frozenset(name for name, times in products.items() if reads[name] == times and name not in written)


def local_arrays(block: n.Block) -> frozenset[str]:
    """Arrays of a thread that lie in its local memory: registers have no index, so that an array of which one is taken that only a run knows is none of them
    (CUDA programming guide, "Local Memory"). Variables of loops that are written out are known, and what is named after them alone."""
    found: set[str] = set()
    _placed(block, frozenset(), frozenset(), found)
    return frozenset(found)


def _placed(block: n.Block, arrays: frozenset[str], known: frozenset[str], found: set[str]) -> None:
    for s in block:
        if isinstance(s, n.Alloc) and s.buffer.space == "register" and s.buffer.shape:
            arrays |= {s.buffer.name}
        here = (s.lo, s.hi, s.step) if isinstance(s, n.For) else (s.cond,) if isinstance(s, n.If | n.While) else () if isinstance(s, n.Roles) else (s,)
        for x in (x for e in here for x in walk(e)):
            if isinstance(x, n.Region) and x.buffer.name in arrays and not isinstance(x.type, TileType) and not all(_known(i, known) for i in x.index):
                found.add(x.buffer.name)
        if isinstance(s, n.Let) and _known(s.value, known):
            known |= frozenset(s.names)
        written_out = isinstance(s, n.For) and s.kind in ("unroll", "static", "vectorize") and not dict(s.attrs).get("factor", 0)
        for inner, _, _ in _inner(s, 1, {}):
            own = frozenset({s.var.name}) if isinstance(s, n.For) and (written_out or _few(s)) else frozenset()
            _placed(inner, arrays, known | own, found)


def _known(i: object, known: frozenset[str]) -> bool:
    """Whether a place is known when the code is made."""
    return all(x.name in known if isinstance(x, n.Var) else not isinstance(x, n.Load) for x in walk(i)) if isinstance(i, n.Node) else True


def _few(s: n.For) -> bool:
    """Whether a compiler writes a loop out by itself, or as its factor says."""
    lo, hi, step = (int_value(x) for x in (s.lo, s.hi, s.step))
    rounds = -(-(hi - lo) // step) if lo is not None and hi is not None and step else 0
    return 0 < rounds <= max(WRITTEN_OUT, int(dict(s.attrs).get("factor", 0) or 0))


def _straight(e: n.Expr) -> n.Expr:
    """An operand without what only turns it around."""
    while isinstance(e, n.Call) and e.fn == "trans" and isinstance(e.args[0], n.Expr):
        e = e.args[0]
    return e


def _inner(s: n.Stmt, threads: int, values: Mapping[str, n.Expr]) -> list[tuple[n.Block, int, int]]:
    """The blocks of a statement, the threads that run each together, and how often (once, where that is not known)."""
    match s:
        case n.For():
            lo, hi, step = (int_value(substitute(x, values)) for x in (s.lo, s.hi, s.step))
            trips = 1 if lo is None or hi is None or not step else max(0, -(-(hi - lo) // step))
            team = {"thread": 1, "warp": 32, "warpgroup": 128}.get(s.kind)
            return [(s.body, threads, trips) if team is None else (s.body, team, 1)] if trips else []
        case n.While():
            return [(s.body, threads, 1)]
        case n.If():
            return [(s.then, threads, 1), (s.orelse, threads, 1)]
        case n.Roles():
            return [(role.body, (role.hi - role.lo) * 32, 1) for role in s.roles]
    return []


def _loaded(s: n.Stmt, threads: int, values: Mapping[str, n.Expr], kept: frozenset[str]) -> int:
    """The registers a thread of the tiles that a statement loads from global memory, or computes for a product; what products load comes to shared memory."""
    if isinstance(s, n.Mma):
        made = (e for e in map(_straight, (s.a, s.b)) if not isinstance(e, n.Var | n.Load))
        return sum(_of_tile(e, threads, values) for e in made)
    if not isinstance(s, n.Let | n.Store) or (isinstance(s, n.Let) and not kept.intersection(s.names)):
        return 0
    tiles = {x.at: x for x in walk(s) if isinstance(x, n.Load) and x.at.buffer.space == "global" and isinstance(x.type, TileType)}
    return sum(_of_tile(x, threads, values) for x in tiles.values())


def _of_tile(e: n.Expr, threads: int, values: Mapping[str, n.Expr]) -> int:
    extents = [int_value(substitute(d, values)) if isinstance(d, n.Expr) else int(d) for d in shape_of(e.type)]
    return math.prod(d or 1 for d in extents) * dtype_of(e.type).bytes // (WORD * threads)


def _array(s: n.Alloc, threads: int, values: Mapping[str, n.Expr]) -> int:
    """The registers a thread of an array or a fragment."""
    if s.buffer.space not in ("fragment", "register"):
        return 0
    extents = [d if isinstance(d, int) else int_value(substitute(d, values)) for d in s.buffer.shape]
    return -(-math.prod(d or 1 for d in extents) * s.buffer.dtype.bytes // (WORD * threads))


def _words(s: n.Let, threads: int, values: Mapping[str, n.Expr]) -> list[tuple[str, int]]:
    """The registers a thread of each float tile that a `let` names."""
    t = s.value.type
    if len(s.names) != 1 or not isinstance(t, TileType) or not t.dtype.is_float:
        return []
    extents = [d if isinstance(d, int) else int_value(substitute(d, values)) for d in t.shape]
    known = [d for d in extents if d is not None]
    return [(s.names[0], math.prod(known) * t.dtype.bytes // (WORD * threads))] if len(known) == len(extents) else []
