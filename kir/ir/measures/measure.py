"""The measure of law 9: every deoptimizing step strictly decreases it, so lineages end without a step limit.

`measure` is a tuple of natural numbers, compared from the left (lexicographic order on tuples of a fixed length is well-founded). It
goes from what only hardware explains to what any program has, so that a step may pay for the removal of a feature with anything that
stands further right: undoing an asynchronous copy may add a barrier, undoing an mma may add loops.
"""
from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field
from functools import partial
from typing import NamedTuple

from kir.base.dataclass import dataclass
from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.anchors import child_blocks
from kir.ir.measures.purposes import further_purposes, padded
from kir.ir.types import TileType, Type, dtype_of
from kir.ir.visit import buffers_named, children, names_read, once, walk


class Measure(NamedTuple):
    """Counts, in the order in which they are compared."""

    generic: int
    """Meta parameters, static branches and loops."""
    launch: int
    """Kernels, workspaces, arms of the launch plan, CTAs of a cluster (bits), launch options."""
    roles: int
    """Sub-teams with code of their own, and those with registers of their own."""
    lanewise: int
    """Kernels that are written for each thread alone (a loop over threads somewhere)."""
    asynchrony: int
    """Asynchronous copies (TMA 3, bulk 2, cp.async 1), signals, pending mma, calls on mbarriers and groups, tensor maps, mbarriers."""
    stages: int
    """Stages of pipelined loops."""
    tensor: int
    """Matrix instructions: tcgen05 5, wgmma 4, mma.sync 3, an mma of unsaid kind 2, one by scalars 1."""
    lanes: int
    """Exchanges between lanes (copies via ldmatrix and stmatrix too), loops over warps and warpgroups."""
    synchronization: int
    """Barriers (that with which each iteration of a loop begins, and does not end, counts twice), fences and atomics, and twice each further array of
    shared memory that threads write before one barrier."""
    shared: int
    """Buffers and views in shared and cluster memory, and twice each further purpose of one: that it is written anew, after a barrier or by whole tiles;
    and those with columns that nobody uses."""
    layouts: int
    """Local buffers with a layout, strides or alignment of their own; vector copies."""
    coupling: int
    """Pairs of local buffers that one loop carries (what loop fission takes apart), or that a scan by a function of several values carries; and stores that
    make another tile of a fragment."""
    vectors: int
    """Stores of one thread of many that write several elements of its own or of shared memory at once, and values beyond the first that one store
    folds into a scalar, all of which are computed from the same memory."""
    tiles: int
    """Size of what is held as whole tiles: bits of the number of elements, over definitions, copies, mma, joined rows, stores to global memory, and twice over
    tiles that are reshaped. A copy of a piece, in an unrolled loop over the pieces, counts as more than one of the whole."""
    threads: int
    """Loops over threads, and bits of the number of threads of a CTA."""
    names: int
    """Definitions: lets, allocations and views."""
    reductions: int
    """Reductions, scans, sorts and the like of whole tiles."""
    slices: int
    """Fragments, and bits of the number of elements of each store of a tile to memory of the CTA's own, or that such memory is declared with."""
    prefixes: int
    """Local buffers that a loop carries along while it stores to global memory (what makes its iterations depend on one another)."""
    hoisted: int
    """How far definitions and copies stand outside the deepest loop."""
    fused: int
    """Operations inside the values stored to global memory."""
    annotations: int
    """Kinds of loops other than serial, options of loops and copies, cache policies."""
    coalesced: int
    """Accesses to global memory whose last index moves with neighboring threads."""
    division: int
    """Integer divisions, remainders, minima and maxima (the arithmetic of tile orders)."""
    masks: int
    """Masked and clipped accesses."""
    numerics: int
    """Approximate functions, and powers of two that stand for exponentials."""
    carried: int
    """Local buffers that a loop carries from one iteration to the next: it writes them, and uses them before. Loops that begin and end with barriers."""
    statements: int
    """Statements, and how many stand behind an arrival at an mbarrier in its block: what is given back before the rest is done."""
    nodes: int
    """Nodes, and loops that some threads of a CTA alone run."""


def measure(program: n.Program) -> Measure:
    """The measure of a program; linear in its size, and cached on the node."""
    cached = program.__dict__.get("_measure")
    if not isinstance(cached, Measure):
        cached = program.__dict__["_measure"] = _measure(program)
    return cached


def _measure(program: n.Program) -> Measure:
    counts = dict.fromkeys(Measure._fields, 0)
    counts["generic"] = len(program.metas)
    counts["launch"] = len(program.kernels) + len(program.workspaces) + _arms(program.plan)
    counts["asynchrony"] = len(program.tensor_maps)
    for k in program.kernels:
        counts["launch"] += len(k.attrs) + math.prod(k.cluster).bit_length() * bool(k.cluster)
        counts["threads"] += (build.int_value(k.threads) or 1).bit_length() - 1
        first = _first_over_threads(k.body)
        counts["lanewise"] += bool(first)
        counts["shared"] += 2 * once(k, "_further_purposes", partial(further_purposes, k.body)) + once(k, "_padded", partial(padded, k.body))
        _Counter(first or _of_grid(k), 0).block(counts, k.body, _depth(k.body))
    for f in program.functions:
        _Counter("", 0).block(counts, f.body, _depth(f.body))
    return Measure(**counts)


def decreases(before: n.Program, after: n.Program) -> bool:
    """Whether a step from `before` to `after` is a deoptimization by the measure."""
    return measure(after) < measure(before)


def deciding(before: Measure, after: Measure) -> str:
    """The first component in which two measures differ, "" when they are equal."""
    return next((f for f, a, b in zip(Measure._fields, before, after, strict=True) if a != b), "")


def _arms(plan: tuple[n.Launch | n.Dispatch, ...]) -> int:
    total = 0
    for s in plan:
        if isinstance(s, n.Dispatch):
            total += len(s.arms) + sum(_arms(arm) for _, arm in s.arms) + _arms(s.orelse)
        else:
            total += len(s.attrs)
    return total


def _depth(block: n.Block) -> int:
    """How many loops stand in one another."""
    return max((once(s, "_loops_deep", partial(_loops_deep, s)) for s in block), default=0)


def _loops_deep(s: n.Stmt) -> int:
    return isinstance(s, (n.For, n.While)) + max((_depth(b) for _, b in child_blocks(s)), default=0)


def _first_over_threads(block: n.Block) -> str:
    """The variable of the first loop over threads in a block; none if there is none."""
    return next((name for s in block if (name := once(s, "_over_threads", partial(_over_threads, s)))), "")


def _over_threads(s: n.Stmt) -> str:
    if isinstance(s, n.For) and s.kind == "thread":
        return s.var.name
    return next((name for _, b in child_blocks(s) if (name := _first_over_threads(b))), "")


def _of_grid(k: n.Kernel) -> str:
    """The variable that neighboring threads differ in where no loop over threads says so: the first grid axis; none of one thread."""
    return k.grid[0].name if k.grid and not build.is_const(k.threads, 1) else ""


def _bits(t: Type) -> int:
    """Bits of the number of elements of a tile; a symbolic extent counts as much as 2^16 elements."""
    if not isinstance(t, TileType):
        return 0
    return max(1, sum(d.bit_length() - 1 if isinstance(d, int) and d > 0 else 16 if not isinstance(d, int) else 0 for d in t.shape))


_BARRIER = (n.Eval(n.Call("barrier", ())),)
_TILE_CALLS = frozenset({"reduce", "scan", "sort", "histogram"})
_ASYNC_COPIES = {"cp_async": 1, "bulk": 2, "tma": 3}
_MMA = {"tcgen05": 5, "wgmma": 4, "mma_sync": 3, "auto": 2, "fma": 1}


class _Counted(NamedTuple):
    """What a statement adds with its blocks, and the local buffers that it writes and does not declare."""

    counts: dict[str, int]
    written: frozenset[str]
    prefixed: bool
    """Whether it stores to global memory."""


@dataclass(frozen=True)
class _Counter:
    """Counts statements where neighboring threads differ in the variable `fastest`, inside as many loops over `threads`."""

    fastest: str
    threads: int
    counts: dict[str, int] = field(default_factory=partial(defaultdict[str, int], int))

    def add(self, name: str, by: int = 1) -> None:
        self.counts[name] += by

    def block(self, counts: dict[str, int], block: n.Block, above: int) -> tuple[set[str], bool]:
        """Adds what a block counts, `above` loops outside of the deepest; gives the names of local buffers that it writes and does not declare, and
        whether it stores to global memory."""
        written, declared, prefixed = set[str](), set[str](), False
        for k, s in enumerate(block):
            counts["coupling"] += _overwrites(s, declared, block)
            counts["statements"] += (len(block) - k - 1) * (isinstance(s, n.Eval) and s.call.fn == "mbar_arrive")
            of = self.counted(s, above)
            for name, by in of.counts.items():
                counts[name] += by
            declared |= _declared(s)
            written |= of.written
            prefixed |= of.prefixed
        return written - declared, prefixed

    def counted(self, s: n.Stmt, above: int) -> _Counted:
        """What a statement counts with its blocks. It depends on nothing else, and most statements of a program are those of the one
        that it was made from: kept with the statement."""
        kept: dict[tuple[str, bool, int], _Counted] = once(s, "_measured", dict)
        key = (self.fastest, self.threads > 0, above)
        if key not in kept:
            kept[key] = _Counter(self.fastest, self.threads).whole(s, above)
        return kept[key]

    def whole(self, s: n.Stmt, above: int) -> _Counted:
        """Counts a statement with its blocks."""
        self.own(s, above)
        inner, prefixed = set[str](), isinstance(s, n.Store) and s.at.buffer.space == "global"
        below = _Counter(self.fastest, self.threads + (isinstance(s, n.For) and s.kind == "thread"))
        for _, body in child_blocks(s):
            written, stores = below.block(self.counts, body, above - isinstance(s, (n.For, n.While)))
            inner |= written
            prefixed |= stores
        if isinstance(s, n.While) or (isinstance(s, n.For) and s.kind not in ("thread", "warp", "warpgroup")):
            self.add("coupling", len(inner) * (len(inner) - 1) // 2)
            self.add("prefixes", len(inner) * prefixed)
            first = _first_uses_of(*(b for _, b in child_blocks(s)))
            self.add("carried", sum(first.get(name, False) for name in inner))
        return _Counted({name: by for name, by in self.counts.items() if by}, frozenset(_written(s) | inner), prefixed)

    def own(self, s: n.Stmt, above: int) -> None:
        """Counts a statement without its blocks."""
        self.add("statements")
        for x in _expressions(s):
            self.node(x)
        match s:
            case n.Let():
                self.add("names", len(s.names))
                self.add("hoisted", above)
                self.add("tiles", _bits(s.value.type))
            case n.Alloc() | n.View():
                self.add("names")
                self.add("hoisted", above)
                self.buffer(s.buffer)
                if isinstance(s, n.Alloc) and s.init is not None:
                    self.add("slices", _bits(s.init.type))
            case n.Store():
                if s.at.buffer.space == "global":
                    self.add("tiles", _bits(s.at.type))
                    self.add("fused", _operations(s.value))
                else:
                    self.add("vectors", (bool(self.threads) and isinstance(s.at.type, TileType)) + _folded_at_once(s))
                    self.add("slices", _bits(s.at.type))
                self.add("masks", s.clip + (s.mask is not None))
                self.add("annotations", bool(s.cache))
            case n.Copy():
                kind = s.via.partition("(")[0]
                self.add("asynchrony", _ASYNC_COPIES.get(kind, 0) + (s.signal is not None) + s.grouped)
                self.add("layouts", kind == "vector")
                self.add("lanes", kind in ("ldmatrix", "stmatrix"))
                self.add("tiles", _bits(s.dst.type))
                self.add("hoisted", above)
                self.add("masks", s.clip + (s.mask is not None))
                self.add("annotations", len(s.attrs))
            case n.Eval() if s.call.fn.startswith("atomic_"):
                self.add("tiles", sum(_bits(a.type) for a in s.call.args if isinstance(a, n.Region)))
            case n.Mma():
                self.add("tensor", _MMA.get(s.via, 2))
                self.add("asynchrony", s.pending)
                self.add("tiles", _bits(s.acc.type))
                self.add("annotations", len(s.attrs) + (s.precision != "ieee"))
            case n.For():
                if self.threads and s.kind != "thread" and s.body[:1] == _BARRIER:
                    self.add("carried" if s.body[-1:] == _BARRIER else "synchronization")
                if s.kind == "static":
                    self.add("generic")
                elif s.kind in ("warp", "warpgroup"):
                    self.add("lanes")
                elif s.kind == "thread":
                    self.add("threads")
                    self.add("shared", 2 * _further_purposes(s.body))
                    self.add("synchronization", 2 * _further_arrays(s.body))
                elif s.kind != "serial":
                    self.add("annotations")
                    self.add("tiles", _pieces(s))
                options = dict(s.attrs)
                stages = options.pop("stages", 0)
                self.add("stages", (1 if s.kind == "pipelined" else 0) + (int(stages) if isinstance(stages, int) else 0))
                self.add("annotations", len(options))
            case n.If():
                self.add("generic", s.static)
                if self.threads:
                    self.add("nodes", sum(isinstance(x, n.For) for x in (*s.then, *s.orelse)))
            case n.Roles():
                self.add("roles", len(s.roles) + sum(r.registers > 0 for r in s.roles))
            case _:
                pass

    def buffer(self, b: n.Buffer) -> None:
        """Counts a local buffer."""
        self.add("shared", b.space in ("shared", "cluster"))
        self.add("slices", b.space == "fragment")
        self.add("asynchrony", b.dtype.name == "mbarrier")
        self.add("layouts", (b.layout is not None) + (b.strides is not None) + (b.align != 0))
        if b.space != "global":
            self.add("tiles", _bits(n.Region(b).type))

    def node(self, x: n.Node) -> None:
        """Counts one node of an expression."""
        self.add("nodes")
        match x:
            case n.Load():
                self.add("masks", x.clip + (x.mask is not None))
                self.add("annotations", bool(x.cache))
            case n.Region():
                last = x.index[-1] if x.index else None
                place = last.lo if isinstance(last, n.Span) else last
                width = build.int_value(last.extent) if isinstance(last, n.Span) else 1
                if x.buffer.space == "global" and place is not None and any(
                        len(m) == 1 and c in (1, width) and self.moves(m[0]) for m, c in build.polynomial(place).items()):
                    self.add("coalesced")
            case n.Binary() if x.op in ("floordiv", "ceildiv", "mod", "tdiv", "trem", "min", "max") and dtype_of(x.type).is_integer:
                self.add("division")
            case n.Call():
                self.call(x)
            case _:
                pass

    def moves(self, a: n.Expr) -> bool:
        """Whether an index moves by one from a thread to the next: its number, or that modulo a row of threads."""
        if isinstance(a, n.Binary) and a.op == "mod":
            a = a.a
        return isinstance(a, n.Var) and a.name == self.fastest

    def call(self, x: n.Call) -> None:
        """Counts a call by the kind of its row."""
        if x.fn in ("join", "reshape"):
            self.add("tiles", _bits(x.type) * (2 if x.fn == "reshape" else 1))
        row = table().get(x.fn)
        if row is None:
            return
        self.add("numerics", x.fn.endswith("_approx") + x.fn.startswith("exp2"))
        if x.fn == "mma_sync":
            self.add("tensor", 3)
        elif row.effect == "async" or x.fn.startswith(("mbar_", "fence_async", "fence_mbar", "grid_dependency", "prefetch_descriptor")):
            self.add("asynchrony")
            self.add("annotations", x.fn == "bulk_wait" and bool(x.attrs))
        elif row.effect == "sync" or x.fn.startswith("atomic_"):
            self.add("synchronization")
        elif row.is_convergent:
            self.add("lanes")
        elif x.fn in _TILE_CALLS:
            self.add("reductions")
            self.add("coupling", len(x.args) * (len(x.args) - 1) // 2 if x.fn == "scan" else 0)
        elif x.fn == "split":
            self.add("vectors")


def _further_purposes(block: n.Block) -> int:
    """How often an array of shared memory that was read is written anew in a block, after a barrier."""
    if not any(_ends_at_barrier(s) for s in block):
        return 0
    found, read, met = 0, set[str](), set[str]()
    for s in block:
        if isinstance(s, n.Eval) and _ends_at_barrier(s):
            met |= read
            continue
        for name, only_stores in once(s, "_shared_uses", partial(_shared_uses, s)).items():
            if only_stores:
                found += name in met
                read.discard(name)
                met.discard(name)
            else:
                read.add(name)
                met.discard(name)
                if isinstance(s, n.For) and _ends_at_barrier(s):
                    met.add(name)
    return found


def _inside(s: n.Stmt) -> int:
    """`_further_arrays` of the blocks of a statement."""
    return sum(_further_arrays(b) for _, b in child_blocks(s))


def _further_arrays(block: n.Block) -> int:
    """How many arrays of shared memory beyond the first threads write between two barriers, in a block or below."""
    found, here = 0, set[str]()
    for s in block:
        meets, below, stored = once(s, "_written_together", partial(_written_together, s))
        if meets:
            found, here = found + max(0, len(here) - 1) + below, set()
        else:
            here |= stored
    return found


def _written_together(s: n.Stmt) -> tuple[bool, int, frozenset[str]]:
    """Whether threads synchronize in a statement; how many arrays beyond the first they write between two barriers inside it; the arrays that it writes."""
    inside = tuple(walk(s))
    meets = any(isinstance(x, n.Eval) and x.call.fn in ("barrier", "warp_sync") for x in inside)
    below = sum(_further_arrays(b) for _, b in child_blocks(s)) if meets else 0
    return meets, below, frozenset(x.at.buffer.name for x in inside if isinstance(x, n.Store) and x.at.buffer.space == "shared")


def _ends_at_barrier(s: n.Stmt) -> bool:
    """Whether a statement is a barrier, or a loop whose iterations end with one."""
    last = s.body[-1] if isinstance(s, n.For) and s.body else s
    return isinstance(last, n.Eval) and last.call.fn == "barrier"


def _shared_uses(s: n.Stmt) -> dict[str, bool]:
    """The arrays of shared memory that a statement touches, and whether all it does is to store to them."""
    places: dict[str, int] = {}
    for x in walk(s):
        if isinstance(x, n.Region) and x.buffer.space == "shared":
            places[x.buffer.name] = places.get(x.buffer.name, 0) + 1
        if isinstance(x, n.Store) and x.at.buffer.space == "shared":
            places[x.at.buffer.name] = places.get(x.at.buffer.name, 0) - 1
    return {name: left == 0 for name, left in places.items()}


def _pieces(s: n.For) -> int:
    """What an unrolled loop adds to the bits of the pieces that it copies to shared memory, so that they are more than those of the whole."""
    parts = build.int_value(s.hi)
    if s.kind != "unroll" or parts is None or not build.is_const(s.lo, 0):
        return 0
    return sum((parts - 1).bit_length() + 1 for x in s.body if isinstance(x, n.Copy) and x.dst.buffer.space == "shared" and _bits(x.dst.type))


def _first_uses_of(*blocks: n.Block) -> dict[str, bool]:
    """The buffers that blocks touch one after the other, and whether the first to touch each uses what it held."""
    found = dict[str, bool]()
    for block in blocks:
        for s in block:
            for name, used in once(s, "_first_uses", partial(_first_uses, s)).items():
                found.setdefault(name, used)
    return found


def _first_uses(s: n.Stmt) -> dict[str, bool]:
    """`_first_uses_of` a statement: a store or copy to a buffer uses what it held only where it reads it."""
    target = s.at if isinstance(s, n.Store) else s.dst if isinstance(s, n.Copy) else None
    own = [getattr(s, name) for name in s.compared_fields if name not in ("body", "then", "orelse", "roles", "buffer")]
    parts = [x for part in own if part is not target for x in (part if isinstance(part, tuple) else (part,)) if isinstance(x, n.Node)]
    found = dict.fromkeys((name for x in (*parts, *(target.index if target is not None else ())) for name in buffers_named(x)), True)
    if target is not None:
        found.setdefault(target.buffer.name, False)
    for name, used in _first_uses_of(*(b for _, b in child_blocks(s))).items():
        found.setdefault(name, used)
    return found


def _overwrites(s: n.Stmt, declared: set[str], block: n.Block) -> bool:
    """Whether a statement makes another tile of a fragment of its block, of what it held before; but for a sum that goes on, from a first value or from
    statement to statement. What is added to products once they are all summed up makes another tile."""
    if not (isinstance(s, n.Store) and s.at.buffer.space == "fragment" and not s.at.index and s.at.buffer.name in declared
            and s.at.buffer.name in buffers_named(s.value)):
        return False
    b = s.at.buffer
    begun = any(isinstance(x, n.Alloc) and x.buffer == b and x.init is not None for x in block) and not any(
        isinstance(x, n.For) and any(isinstance(y, n.Mma) and y.acc.buffer == b for y in walk(x)) for x in block)
    return not folds(b, s.value) or not (sum(_folding(x, b) for x in block) > 1 or begun)


def folds(b: n.Buffer, value: n.Expr) -> bool:
    """Whether a value is what a fragment holds with one more folded in: a sum, a maximum or a minimum that goes on."""
    return isinstance(value, n.Binary) and value.op in ("add", "max", "min") and value.a == n.Load(n.Region(b))


def _folding(s: n.Stmt, b: n.Buffer) -> bool:
    return isinstance(s, n.Store) and s.at == n.Region(b) and folds(b, s.value)


def _folded_at_once(s: n.Store) -> int:
    """How many values more than one a store folds into a scalar, when they are computed from the same memory; what a name stands for is not looked at, so
    that it counts the same when it is written out."""
    v = s.value
    if s.at.index or not (isinstance(v, n.Binary) and v.op in ("add", "max", "min") and v.a == n.Load(s.at) and isinstance(v.b, n.Binary) and v.b.op == v.op):
        return 0
    parts, waiting = list[n.Expr](), list[n.Expr]((v.b,))
    while waiting:
        x = waiting.pop()
        if isinstance(x, n.Binary) and x.op == v.op:
            waiting.extend((x.a, x.b))
        else:
            parts.append(x)
    sources = [named for e in parts if (named := buffers_named(e))]
    shared = frozenset.intersection(*map(frozenset, sources)) if sources else frozenset()
    return len(parts) - 1 if shared or (not sources and any(map(names_read, parts))) else 0


def _operations(e: n.Node) -> int:
    """Operations of a value, the arithmetic of places left out."""
    if isinstance(e, n.Region):
        return 0
    return isinstance(e, (n.Binary, n.Unary, n.Select, n.Cast, n.Call)) + sum(map(_operations, children(e)))


def _declared(s: n.Stmt) -> set[str]:
    return {s.buffer.name} if isinstance(s, (n.Alloc, n.View)) else set()


def _written(s: n.Stmt) -> set[str]:
    """The local buffer that a statement writes."""
    at = s.at if isinstance(s, n.Store) else s.dst if isinstance(s, n.Copy) else s.acc if isinstance(s, n.Mma) else None
    return {at.buffer.name} if at is not None and at.buffer.space != "global" else set()


def _expressions(s: n.Stmt) -> Iterator[n.Node]:
    """Every node of a statement's own expressions: not its blocks, nor the shapes of the buffers that it refers to."""
    stack: list[n.Node] = []
    for name in s.compared_fields:
        if name not in ("body", "then", "orelse", "roles", "buffer"):
            value = getattr(s, name)
            stack.extend(x for x in (value if isinstance(value, tuple) else (value,)) if isinstance(x, n.Node))
    while stack:
        x = stack.pop()
        if isinstance(x, n.Buffer):
            continue
        yield x
        for name in x.compared_fields:
            value = getattr(x, name)
            stack.extend(y for y in (value if isinstance(value, tuple) else (value,)) if isinstance(y, n.Node))
