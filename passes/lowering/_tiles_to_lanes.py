"""Tile statements of a CTA as the code of one of its threads.

`Lanes.block` gives, for statements of the CTA or of its warps, those that thread `t` executes: fragments are its register arrays, loops
over warps its own warp's iteration, copies and stores its share. Nothing is chosen here: every number comes from the statement and from
how its fragments are held. Barriers are put in before (`_barrier_placement`); matrix instructions are in `_matrix_instructions`.
"""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.elements import NotElementwise, element, tile
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import region_text
from kir.ir.types import I32, shape_of
from kir.ir.visit import substitute, transform, walk
from kir.rewrite.match.local_buffers import width_of

from ._fragment_inference import NotLowered, Team, extents
from ._fragment_layout import Exprs, Holding, Linear, Matrix, Operand, whole, with_warp
from ._lane_state import LaneState, piece
from ._matrix_instructions import load_matrix, product


@dataclass
class Lanes(LaneState):
    """The code of thread `t` of `threads`."""

    # -------------------------------------------------------------------------------------------------------------- blocks
    def block(self, block: n.Block, team: Team) -> n.Block:
        """What a thread executes for a block of its team."""
        return tuple(x for s in block for x in self.statement(s, team))

    def statement(self, s: n.Stmt, team: Team) -> n.Block:
        """What a thread executes for a statement. Raises NotLowered."""
        match s:
            case n.Alloc():
                return self.alloc(s)
            case n.Let():
                self.uniform(s.value, "a tile has no name of its own here")
                return (s,)
            case n.For() if s.kind == "warp":
                body = self.block(s.body, Team(team.threads, s.var))
                return tuple(x for b in body if isinstance(x := with_warp(b, s.var.name, self.t, self.threads), n.Stmt))
            case n.For() if s.kind == "thread":
                if build.int_value(s.hi) != self.threads or team.warp is not None:
                    raise NotLowered("a loop over some of the threads")
                body = substitute(replace(s, hi=build.const(0)), {s.var.name: self.t}).body
                return tuple(body)
            case n.For() if s.kind in ("serial", "unroll", "vectorize"):
                return (replace(s, body=self.block(s.body, team)),)
            case n.If() if not s.static:
                self.uniform(s.cond, "a branch for some elements")
                return (replace(s, then=self.block(s.then, team), orelse=self.block(s.orelse, team)),)
            case n.Copy() if s.via == "ldmatrix":
                return load_matrix(self, s, team)
            case n.Copy():
                return self.copy(s, team)
            case n.Store():
                return self.store(s, team)
            case n.Mma():
                return product(self, s, team)
            case n.Eval() if s.call.fn in ("barrier", "async_commit", "async_wait", "warp_sync", "fence"):
                return (s,)
            case _:
                raise NotLowered(f"a {type(s).__name__.lower()} of a team has no form for one thread here")

    def uniform(self, e: n.Expr, why: str) -> None:
        """Refuses a value that is not one scalar for the whole team."""
        if shape_of(e.type) or any(isinstance(x, n.Buffer) and x.name in self.held for x in walk(e)):
            raise NotLowered(why)

    def alloc(self, s: n.Alloc) -> n.Block:
        """A fragment as an array of registers."""
        if s.buffer.space == "register":
            return (s,)
        if s.buffer.space != "fragment":
            raise NotLowered(f"'{s.buffer.name}' is declared inside a loop or branch")
        if s.init is not None and shape_of(s.init.type):
            raise NotLowered(f"'{s.buffer.name}' starts as a tile")
        return (replace(s, buffer=self.registers[s.buffer.name]),)

    # ------------------------------------------------------------------------------------------------------------ elements
    def element(self, e: n.Expr, place: Exprs, at: Exprs, slot: int, held: Holding, team: Team) -> n.Expr:
        """The element of a tile value at a place, fragments held as `held` read from the thread's registers."""
        marks: dict[str, n.Buffer] = {}

        def mark(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Load) and new.at.buffer.name in self.held:
                own = self.local(new.at, team)
                if own.holding != held:
                    raise NotLowered(f"'{new.at.buffer.name}' is held by other threads than what it meets")
                name = f"%held{len(marks)}"
                b = n.Buffer(name, new.at.buffer.dtype, tuple(build.const(d) for d in held.shape), "register")
                marks[name] = self.registers[new.at.buffer.name]
                return n.Load(n.Region(b))
            return new

        def unmark(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Region) and new.buffer.name in marks:
                if new.index != place:
                    raise NotLowered(f"another element of '{marks[new.buffer.name].name}' than the thread's own")
                return build.region(marks[new.buffer.name], *held.index(at, slot))
            return new
        try:
            found = element(transform(e, mark), place)
        except NotElementwise as bad:
            raise NotLowered(f"'{bad}' of a whole tile") from bad
        made: n.Expr = transform(found, unmark)
        return made

    # ---------------------------------------------------------------------------------------------------------- statements
    def copy(self, s: n.Copy, team: Team) -> n.Block:
        """A copy as the thread's share: registers of a fragment, or chunks distributed linearly."""
        if s.mask is not None or s.src.mask is not None or s.signal is not None:
            raise NotLowered("a masked or signalling copy")
        fragment = next((r for r in (s.dst, s.src.at) if r.buffer.space == "fragment"), None)
        if fragment is not None:
            return self.store(n.Store(s.dst, s.src, None, s.clip, label=s.label), team)
        kind, width = s.via.partition("(")[0], width_of(s)
        if kind not in ("plain", "vector", "cp_async"):
            raise NotLowered(f"a copy via {s.via}")
        shape = extents(shape_of(s.dst.type), region_text(s.dst))
        held = self.share(shape, width, team) if self.threads > 1 else whole(shape) if width == 1 else self.share(shape, width, team)
        t, via = self.rank(team), f"vector({width})" if kind == "vector" else kind
        other = tuple((k, v) for k, v in s.attrs if k != "vector")

        def body(at: Exprs) -> n.Block:
            first = held.chunk_at(t, at) if isinstance(held, Linear) else at
            src = replace(s.src, at=piece(s.src.at, first, width))
            return (replace(s, src=src, dst=piece(s.dst, first, width), via=via, attrs=other),)
        return self.nest(held, body)

    def store(self, s: n.Store, team: Team) -> n.Block:
        """An elementwise value, each thread its own elements."""
        target = s.at.buffer.name in self.held
        reads = [x.at for x in walk(s.value) if isinstance(x, n.Load) and x.at.buffer.name in self.held]
        shape = extents(shape_of(s.at.type), region_text(s.at))
        if not shape:
            self.uniform(s.value, "a scalar of a fragment")
            if s.at.buffer.space != "register":
                raise NotLowered("one element written by a whole team")
            return (s,)
        held = self.local(s.at if target else reads[0], team).holding if target or reads else self.share(
            shape, 1, team) if self.threads > 1 else whole(shape)
        if held.shape != shape:
            raise NotLowered(f"{region_text(s.at)} is no tile of the shape of what it holds")
        if s.mask is not None:
            raise NotLowered("a masked store")
        t = self.t if isinstance(held, Matrix | Operand) else self.rank(team)

        def body(at: Exprs) -> n.Block:
            return tuple(self._group(s, held, t, at, slot, team, target) for slot in range(0, held.slots, held.width))
        return self.nest(held, body)

    def _group(self, s: n.Store, held: Holding, t: n.Expr, at: Exprs, slot: int, team: Team, target: bool) -> n.Stmt:
        """The statement for `width` neighboring slots."""
        place = held.place(t, at, slot)
        s = s if slot == 0 else replace(s, label=None)
        if held.width == 1:
            value = self.element(s.value, place, at, slot, held, team)
            where = build.region(self.registers[s.at.buffer.name], *held.index(at, slot)) if target else piece(s.at, place)
            return replace(s, at=where, value=value)
        j = n.Var("%j", I32)
        value = self.element(s.value, place, at, slot, held, team)
        across = self._vector(s.value, held, t, at, slot, team, j)
        where = build.region(self.registers[s.at.buffer.name], *held.index(at, slot, held.width)) if target else piece(
            s.at, place, held.width)
        return replace(s, at=where, value=tile(across, [(j, held.width)], keep_shape=False) if across is not None else value)

    def _vector(self, e: n.Expr, held: Holding, t: n.Expr, at: Exprs, slot: int, team: Team, j: n.Var) -> n.Expr:
        """The element at the slot's place moved by `j` along the last axis."""
        place = held.place(t, at, slot)
        moved = (*place[:-1], build.add(place[-1], j))
        marks: dict[str, n.Buffer] = {}

        def mark(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Load) and new.at.buffer.name in self.held:
                name = f"%held{len(marks)}"
                marks[name] = self.registers[new.at.buffer.name]
                return n.Load(n.Region(n.Buffer(name, new.at.buffer.dtype, tuple(build.const(d) for d in held.shape), "register")))
            return new

        def unmark(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Region) and new.buffer.name in marks:
                index = held.index(at, slot)
                return build.region(marks[new.buffer.name], *index[:-1], build.add(j, slot))
            return new
        made: n.Expr = transform(element(transform(e, mark), moved), unmark)
        return made
