"""One execution of a kernel with symbols for what is not known: every access with the conditions under which it happens."""
from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

from kir.analysis.facts import descends
from kir.analysis.proof import places, sites
from kir.analysis.proof.asking.question import Holding, Ranging
from kir.analysis.proof.sites import Access, Barrier, Branch, Claim, Flight, Gap, Item, Kind, Loop, Place, Split, Sync, Team, of_peers
from kir.analysis.proof.values import (
    FALSE,
    TRUE,
    Env,
    Index,
    Val,
    Values,
    added,
    as_before,
    both,
    by_turns,
    compared,
    defined_by,
    either,
    element_type,
    extent,
    merged,
    opposite,
    outer,
    root,
    scaled,
    wide,
    within,
)
from kir.analysis.proof.warps.lanes import Lanes
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.anchors import anchors
from kir.ir.build import const, int_value
from kir.ir.paths import Path
from kir.ir.rebuild.plans import launches
from kir.ir.types import BOOL, I64, DType, TupleType, dtype_of, shape_of
from kir.ir.visit import statements, walk

LEVELS = frozenset({"thread", "warp", "warpgroup"})
MOST_TRIPS = 32
"""Trips of a loop over a constant range whose stores to private memory are told apart after it."""


class Walk:
    """The walk over one kernel. `unsure` names private buffers that may lose what was defined in them; it grows until nothing is added."""

    def __init__(self, program: n.Program, kernel: n.Kernel, unsure: frozenset[str] = frozenset()) -> None:
        self.program, self.kernel, self.unsure = program, kernel, unsure
        self.values = Values(places.read_only(program, kernel))
        self.lanes = Lanes(self.values)
        self.claims: list[Claim] = []
        self.kept: list[tuple[str, Claim]] = []
        self.gaps: list[Gap] = []
        self.anchors = {id(s): a for a, _, s in anchors(program)}
        self.owned: list[set[str]] = [set()]
        self.level, self.thread = 0, ""
        self.asynchronous = False
        self.nested = False
        self.filled = {p.name for p in program.params if p.role == "inout"} | {w.buffer.name for w in program.workspaces if w.init is not None}
        self.written: dict[str, list[Access]] = {}
        self.items = self._of_kernel()

    def _of_kernel(self) -> tuple[Item, ...]:
        env, holding = Env(), []
        for p in self.program.params:
            if isinstance(p.of, DType) and p.value is not None:
                env = env.naming(p.name, self.values.value(p.value, env))
        for axis in self.kernel.grid:
            var = n.Var(axis.name, dtype_of(axis.extent.type))
            holding.append(Ranging(var, const(0, var.of) if isinstance(var.of, DType) else const(0), self.values.value(axis.extent, env).scalar[0]))
            env = replace(env, scope=(*env.scope, var))
        if self.kernel.cluster and any(map(of_peers, walk(self.kernel))):  # of CTAs that have to do with no other one nothing else holds
            self.gap(("race", "wait", "ring", "undefined"), "CTAs of a cluster exchange values, or wait for one another", None)
        if any(step.kernel == self.kernel.name and dict(step.attrs).get("pdl") for step in launches(self.program)):
            self.gap(("race", "undefined"), "it may run beside the launch before it", None)
        items, _, _ = self.block(self.kernel.body, (self.kernel.name,), env, tuple(holding))
        return items

    def gap(self, kinds: tuple[Kind, ...], why: str, s: n.Stmt | None) -> None:
        """Notes what is not followed."""
        self.gaps.append(Gap(kinds, why, self.anchors.get(id(s), self.kernel.name) if s is not None else self.kernel.name))

    # ------------------------------------------------------------------------------------------------------------- statements
    def block(self, block: n.Block, path: Path, env: Env, holding: tuple[Holding, ...]) -> tuple[tuple[Item, ...], Env, bool]:
        """The items of a block, what is known after it, and whether its end is never reached."""
        items: list[Item] = []
        for k, s in enumerate(block):
            place = Place(s, self.anchors.get(id(s), self.kernel.name), (*path, k), holding, env.scope, self.thread)
            more, env, gone, told = self.statement(s, place, env)
            items += more
            holding = (*holding, *told)
            if gone:
                return tuple(items), env, True
        return tuple(items), env, False

    def statement(self, s: n.Stmt, place: Place, env: Env) -> tuple[list[Item], Env, bool, tuple[Holding, ...]]:
        """The items of a statement, what is known after it, whether nothing comes after it, and what holds for what comes."""
        match s:
            case n.Let():
                items = self.reads(s.value, place, env)
                return items, self._let(s, place, env, items), False, ()
            case n.Alloc():
                return self.reads(s.init, place, env) if s.init is not None else [], self._alloc(s, env), False, ()
            case n.View():
                return [], replace(env, views={**env.views, s.buffer.name: s}, memory={k: v for k, v in env.memory.items() if k != s.buffer.name}), False, ()
            case n.Store():
                return (*self._store(s, place, env), False, ())
            case n.Copy():
                return (*self._copy(s, place, env), False, ())
            case n.Mma():
                return (*self._mma(s, place, env), False, ())
            case n.Eval():
                return [*self.reads(s.call, place, env), *self.call(s.call, place, env)], self._after(s.call, env), False, ()
            case n.For():
                return (*self._for(s, place, env), False, ())
            case n.If():
                return self._if(s, place, env)
            case n.While():
                return (*self._while(s, place, env), False, ())
            case n.Jump(kind=kind):
                self.lanes.jump(kind)
                return [i for v in s.values for i in self.reads(v, place, env)], env, True, ()
            case n.Roles():
                self.asynchronous = True
                return [self._role(r, k, place, env) for k, r in enumerate(s.roles)], self._forgotten(s, env), False, ()
            case _:
                what = f"it is kept as text: {s.reason}" if isinstance(s, n.Opaque) else "it is a hole"
                self.gap(sites.KINDS, what, s)
                return [], replace(env, memory={}), False, ()

    def _role(self, r: n.Role, k: int, place: Place, env: Env) -> Team:
        self.owned.append(set())
        self.level += 1
        items, _, _ = self.block(r.body, (*place.path, "roles", k, "body"), replace(env, memory={}), place.holding)
        self.level -= 1
        self.owned.pop()
        return Team(place, r.name, items)

    def _let(self, s: n.Let, place: Place, env: Env, items: list[Item]) -> Env:
        value = s.value
        if isinstance(value, n.Call) and (value.of is not None or not instruction(value.fn).is_pure):
            items += self.call(value, place, env)
        if len(s.names) == 1:
            return env.naming(s.names[0], self.values.value(value, env))
        for name, t in zip(s.names, value.type.elements if isinstance(value.type, TupleType) else (), strict=False):
            env = env.naming(name, self.values.unknown(env, shape_of(t), element_type(t)))
        return env

    def _alloc(self, s: n.Alloc, env: Env) -> Env:
        b = s.buffer
        env = replace(env, views={k: v for k, v in env.views.items() if k != b.name})
        if s.init is not None:
            self.filled.add(b.name)
        if b.space not in sites.PRIVATE or b.dtype.kind == "token":
            return env
        self.owned[-1].add(b.name)
        shape = tuple(d.dimension for d in b.shape)
        if s.init is not None:
            init = self.values.value(s.init, env)
            return env.holding(b.name, Val(shape, init.stretched))
        return env.holding(b.name, self.values.unknown(env, shape, b.dtype, lambda i: FALSE))

    # --------------------------------------------------------------------------------------------------------------- accesses
    def reads(self, e: n.Node, place: Place, env: Env, late: Flight | None = None) -> list[Item]:
        """The loads of an expression, and the claims that it makes of indices."""
        items: list[Item] = []
        for x in walk(e):
            if isinstance(x, n.Load):
                if x.cache in sites.READ_ONLY_CACHES and places.may_be_written(self.program, self.kernel, x.at.buffer.name):
                    self.gap(("race",), f"'{x.at.buffer.name}' is read through the read-only cache and may be written in the same kernel", place.stmt)
                items += self.access(sites.verb("read", x, place, self.gap), x.at, place, env, x.mask, x.clip, late=late)
            elif isinstance(x, n.Call) and x.of is None and x.fn in ("pick", "gather") and len(x.args) > 1:
                self._picked(x, place, env)
            elif isinstance(x, n.Address):
                self.gap(("bounds", "race", "undefined"), "an address is taken", place.stmt)
            if isinstance(x, n.Call):
                self.lanes.note(x, place)
        return [*items, Sync(place, sites.SHUFFLE)] if self.values.exchanges(e) else items

    def _picked(self, x: n.Call, place: Place, env: Env) -> None:
        source = shape_of(x.args[0].type)
        axis = int(dict(x.attrs).get("axis", 0))
        extents = source if x.fn == "pick" else (source[axis],)
        for index, d in zip(x.args[1:], extents, strict=False):
            if isinstance(index, n.Expr):
                v = self.values.value(index, env)
                own = tuple(self.values.variable("e") for _ in v.shape)
                ranges = tuple(Ranging(a, const(0), extent(b)) for a, b in zip(own, v.shape, strict=True))
                self.claims.append(Claim("bounds", place, f"an index of {x.fn}", within(v.at(own)[0], d), ranges))

    def access(self, verb: str, r: n.Region, place: Place, env: Env, mask: n.Expr | None = None, clip: bool = False, value: Val | None = None,
               late: Flight | None = None) -> list[Item]:
        """An access to a region, with claims on its index, its mask and, of what is written, its value."""
        shape = shape_of(r.type) if r.index or r.buffer.shape else ()
        elements = tuple((self.values.variable("e"), d) for d in shape)
        own: Index = tuple(v for v, _ in elements)
        ranges = tuple(Ranging(v, const(0), extent(d)) for v, d in elements)
        index, defined = self.values.place(r, env)(own)
        cond, cond_ok = (TRUE, TRUE) if mask is None else self.values.value(mask, env).stretched(own)
        self.claim("undefined", place, f"an index of '{r.buffer.name}'", either(opposite(cond), defined), ranges)
        self.claim("undefined", place, f"the mask of '{r.buffer.name}'", cond_ok, ranges)
        name, buffer, clipped = r.buffer.name, r.buffer, clip
        inside = [within(i, d) for i, d in zip(index, buffer.shape, strict=True)]
        if not clip:
            held: tuple[Holding, ...] = (*ranges, *([cond] if cond != TRUE else []))
            for i, test in enumerate(inside):
                self.claim("bounds", place, f"{verb} of '{name}', axis {i}" if len(inside) > 1 else f"{verb} of '{name}'", test, held)
            for test, more in places.at_once(self.values, r, env, mask) if self.lanes.alone(place) else ():
                self.claim("alignment", place, f"{verb} of neighbors of '{name}'", test, (*more, *held[len(ranges):]))
        elif verb == "read" or clip:
            cond = both(cond, *inside)
        if name in env.memory and name in self.owned[-1]:
            return []
        return self._shared(verb, place, buffer, index, elements, cond, clipped, value, late, env)

    def _shared(self, verb: str, place: Place, buffer: n.Buffer, index: Index, elements: tuple[tuple[n.Var, int | n.Expr], ...], cond: n.Expr,
                clip: bool, value: Val | None, late: Flight | None, env: Env) -> list[Item]:
        """An access to memory that others may touch, followed through views."""
        plain, ranges = True, tuple(Ranging(v, const(0), extent(d)) for v, d in elements)
        while buffer.name in env.views:
            view = env.views[buffer.name]
            line = None if view.axes else places.in_line(self.values, view, index, env)
            if line is not None:
                buffer, index = line
            elif not view.axes:
                plain = False
                if not places.stays(view, self.program, self.kernel):
                    self.gap(("race", "wait", "ring", "undefined"), f"where the view '{buffer.name}' lies", place.stmt)
                break
            else:
                buffer, index = view.at.buffer, places.through(self.values, view, index, env)
            inside = [within(i, d) for i, d in zip(index, buffer.shape, strict=True)]
            if view.fill is None and not clip:
                held: tuple[Holding, ...] = (*ranges, *([cond] if cond != TRUE else []))
                for test in inside:
                    self.claim("bounds", place, f"{verb} of '{buffer.name}' through a view", test, held)
            else:
                cond = both(cond, *inside)
        made = Access(verb, place, buffer, root(buffer.name, env.views), index, elements, cond, clip, value, late, plain)  # type: ignore[arg-type]  # one of three words
        if made.verb != "read":
            self.written.setdefault(made.root, []).append(made)
        return [made]

    def claim(self, kind: Kind, place: Place, what: str, condition: n.Expr, more: tuple[Holding, ...] = ()) -> None:
        """Notes what must hold."""
        if condition != TRUE:
            self.claims.append(Claim(kind, place, what, condition, more))

    # -------------------------------------------------------------------------------------------------------------- statements
    def _store(self, s: n.Store, place: Place, env: Env) -> tuple[list[Item], Env]:
        items = [i for e in (s.at, s.value, s.mask) if e is not None for i in self.reads(e, place, env)]
        value = self.values.value(s.value, env)
        mask = self.values.value(s.mask, env) if s.mask is not None else None
        items += self.access(sites.verb("write", s, place, self.gap), s.at, place, env, s.mask, s.clip, value)
        return items, self._kept(s.at, value, mask, s.clip, place, env)

    def _kept(self, r: n.Region, value: Val, mask: Val | None, clip: bool, place: Place, env: Env) -> Env:
        """What memory holds after a store; that the value is defined is a claim where it leaves the registers, and what the walk relies on in them."""
        name = r.buffer.name
        own = tuple(self.values.variable("e") for _ in shape_of(r.type))
        held: list[Holding] = [Ranging(v, const(0), extent(d)) for v, d in zip(own, shape_of(r.type), strict=True)]
        if mask is not None:
            held.append(mask.stretched(own)[0])
        if clip:
            index, _ = self.values.place(r, env)(own)
            held += [within(i, d) for i, d in zip(index, r.buffer.shape, strict=True)]
        ok = value.stretched(own)[1]
        behind = root(name, env.views)
        if name in env.memory and name in self.owned[-1]:
            if ok != TRUE:
                self.kept.append((name, Claim("undefined", place, f"what is stored in '{name}'", ok, tuple(held))))
            return env.holding(name, self.values.stored(env.memory[name], r, value, mask, env))
        if name in env.memory:
            env = env.holding(name, self.values.unknown(env, env.memory[name].shape, r.buffer.dtype, lambda i: FALSE))
        if ok != TRUE:
            claim = Claim("undefined", place, f"what is stored in '{name}'", ok, tuple(held))
            if places.space(behind, self.program) == "global":
                self.claims.append(claim)
            else:
                self.kept.append((behind, claim))
        return env

    def _copy(self, s: n.Copy, place: Place, env: Env) -> tuple[list[Item], Env]:
        late = self._flight(s, env)
        mask = s.mask if s.src.mask is None else s.src.mask if s.mask is None else build.logical_and(s.mask, s.src.mask)
        items = self.reads(s.dst, place, env)
        items += [i for e in (s.src.at, s.src.mask, s.src.other, s.mask) if e is not None for i in self.reads(e, place, env)]
        items += self.access("read", s.src.at, place, env, mask, s.src.clip, late=late)
        value = self.values.value(s.src, env)
        items += self.access("write", s.dst, place, env, s.mask, s.clip, value, late)
        for what, condition, held in places.copy_aligned(self.values, s, env):
            if condition is None:
                self.gap(("alignment",), what, s)
            else:
                self.claim("alignment", place, what, condition, held)
        return items, self._kept(s.dst, value, self.values.value(s.mask, env) if s.mask is not None else None, s.clip, place, env)

    def _flight(self, s: n.Copy, env: Env) -> Flight | None:
        """How a copy acts after its statement; gaps for what a tensor map moves otherwise than the copy says."""
        bulk = s.via in ("bulk", "tma")
        shared = s.dst if s.dst.buffer.space == "shared" else s.src.at
        attrs = dict(s.attrs)
        if "descriptor" in attrs:
            of = next((t for t in self.program.tensor_maps if t.name == attrs["descriptor"]), None)
            shape = [d for d in shape_of(shared.type) if d != 1]
            if of is None or [d for d in of.box if d != 1] != shape:
                self.gap(("ring", "race", "wait", "undefined"), "its tensor map moves another box", s)
            else:
                bits = {0: 0, 32: 1, 64: 2, 128: 3}.get(int(dict(of.attrs).get("swizzle", 0)))
                layout = shared.buffer.layout
                if (bits, 4, 3) != (layout.args if layout is not None and layout.name == "swizzle" else (0, 4, 3)):
                    self.gap(("race", "undefined"), "its tensor map orders bytes otherwise than the memory", s)
        if "multicast" in attrs:
            self.gap(("race", "ring", "wait", "undefined", "barrier"), "it is sent to several CTAs", s)
        if s.signal is not None:
            self.asynchronous = True
            slot = self.values.place(s.signal, env)(())[0]
            shape = list(shape_of(s.dst.type))
            if not bulk or any(not isinstance(d, int) for d in shape) or len(slot) > 1:
                self.gap(("ring", "wait", "race", "undefined", "barrier"), "how many bytes or arrivals it brings is not known", s)
                return Flight("cp_async")
            size = s.dst.buffer.dtype.bytes * prod([int(d) for d in shape if isinstance(d, int)])
            return Flight("signal", root(s.signal.buffer.name, env.views), slot[0] if slot else const(0), size)
        if s.grouped:
            self.asynchronous = True
            return Flight("bulk" if bulk else "cp_async")
        return None

    def _mma(self, s: n.Mma, place: Place, env: Env) -> tuple[list[Item], Env]:
        items = self.reads(s.acc, place, env)
        self.asynchronous |= s.pending
        items += [i for e in (s.a, s.b) for i in self.reads(e, place, env, Flight("wgmma") if s.pending else None)]
        items += self.access("update", s.acc, place, env)
        acc = self.values.value(build.load(s.acc), env)
        parts = [self.values.value(e, env) for e in (s.a, s.b)]
        shape = shape_of(s.acc.type)

        def ok(i: Index) -> n.Expr:
            told = [acc.at(i)[1]]
            for k, v in enumerate(parts):
                inner = self.values.variable("any")
                index = (*i[:-1], inner) if k == 0 else (*i[:-2], inner, i[-1])
                inside = within(inner, v.shape[-1 if k == 0 else -2])
                defined = v.stretched(index)[1]
                told.append(TRUE if defined == TRUE else either(opposite(inside), defined))
            return both(*told)
        return items, self._kept(s.acc, self.values.unknown(env, shape, s.acc.buffer.dtype, ok), None, False, place, env)

    def call(self, c: n.Call, place: Place, env: Env) -> list[Item]:
        """A call for its effect."""
        places_ = [a for a in c.args if isinstance(a, n.Region)]
        if c.of is not None:
            self.gap(sites.KINDS, f"it calls '{c.fn}'", place.stmt)
            return []
        if c.fn.startswith("tcgen05_"):
            self.gap(sites.KINDS, "tensor memory is not followed", place.stmt)
            return [i for r in places_ if r.buffer.space != "register" for i in self.access("update", r, place, env)]
        if c.fn == "barrier":
            return [Barrier(place)] if self.level else []
        if c.fn in sites.NAMED:  # its order is left out: more is taken to run at once than does
            self.asynchronous = True
            which, threads = (self.values.value(a, env).scalar[0] if isinstance(a, n.Expr) else const(0) for a in c.args[:2])
            return [Sync(place, c.fn, slot=which, number=threads)]
        if c.fn in sites.OTHERS:
            self.gap(("race", "ring", "wait", "undefined", "barrier"), f"'{c.fn}' orders it", place.stmt)
            return []
        if c.fn in sites.RINGS:
            return self._on_mbarrier(c, place, env)
        if c.fn in sites.GROUPS:
            self.asynchronous = True
            number = self.values.value(c.args[0], env).scalar[0] if c.args and isinstance(c.args[0], n.Expr) else None
            if c.fn.endswith("_wait") and (number is None or int_value(number) is None):
                self.gap(("wait", "race", "undefined"), "how many groups it leaves pending is not a number", place.stmt)
                return []
            return [Sync(place, c.fn, number=number, read=bool(dict(c.attrs).get("read", False)))]
        if c.fn == "wgmma":
            return self._wgmma(c, places_, place, env)
        if c.fn in sites.QUIET:
            return [Sync(place, c.fn, number=const(lanes))] if c.fn == sites.WARP_SYNC and (lanes := self.lanes.whole(c)) else []
        items: list[Item] = []
        if c.fn.startswith("atomic_"):
            mask = c.args[-1] if len(c.args) == 3 and c.fn != "atomic_cas" else None
            if str(dict(c.attrs).get("order", "relaxed")) not in ("relaxed",) or c.fn in ("atomic_cas", "atomic_exch", "atomic_load", "atomic_store"):
                self.gap(("race", "wait"), f"'{c.fn}' may order what others do", place.stmt)
            for r in places_:
                items += self.access("update", r, place, env, mask if isinstance(mask, n.Expr) else None)
                self._cleared(r, env)
                self.claim("undefined", place, f"an update of '{r.buffer.name}'", n.Var(f"%defined {root(r.buffer.name, env.views)}", BOOL))
            return items
        if c.fn == "ldmatrix":
            for r in places_:
                items += self.access("read", r, place, env)
                self.claim("undefined", place, f"what '{c.fn}' reads", n.Var(f"%defined {root(r.buffer.name, env.views)}", BOOL))
                told = places.aligned(self.values, r, 16, env, False)
                for condition, held in told or ():
                    self.claim("alignment", place, f"a row of '{r.buffer.name}'", condition, held)
                if told is None:
                    self.gap(("alignment",), f"the rows of '{c.fn}'", place.stmt)
            return items
        self.gap(("race", "wait", "ring", "undefined", "alignment"), f"'{c.fn}' is not followed", place.stmt)
        for r in places_:
            items += self.access("update", r, place, env)
        return items

    def _after(self, c: n.Call, env: Env) -> Env:
        """What private memory holds after a call: the accumulators of a product hold something else, defined where they were."""
        acc = c.args[0] if c.fn in ("wgmma", "tcgen05_ld") and c.of is None and c.args else None
        if isinstance(acc, n.Region) and acc.buffer.name in env.memory and c.fn == "tcgen05_ld":  # what it loads is not followed, as is said of the call
            return env.holding(acc.buffer.name, self.values.unknown(env, env.memory[acc.buffer.name].shape, acc.buffer.dtype))
        if not isinstance(acc, n.Region) or acc.buffer.name not in env.memory or acc.index:
            return env
        old = env.memory[acc.buffer.name]
        return env.holding(acc.buffer.name, self.values.unknown(env, old.shape, acc.buffer.dtype, lambda i: old.at(i)[1]))

    def _on_mbarrier(self, c: n.Call, place: Place, env: Env) -> list[Item]:
        """A use of mbarriers."""
        self.asynchronous = True
        r = c.args[0]
        assert isinstance(r, n.Region)
        index, ok = self.values.place(r, env)(())
        number, number_ok = self.values.value(c.args[1], env).scalar if len(c.args) > 1 and isinstance(c.args[1], n.Expr) else (None, TRUE)
        self.claim("undefined", place, f"what '{c.fn}' is told", both(ok, number_ok))
        for i, d in zip(index, r.buffer.shape, strict=False):
            self.claim("bounds", place, f"{c.fn} of '{r.buffer.name}'", within(i, d))
        narrowed = number is not None and any(isinstance(x, n.Cast) and x.x.type == I64 for x in walk(number))
        if len(index) > 1 or len(index) != len(r.buffer.shape) or r.buffer.name in env.views or dict(c.attrs) or narrowed:
            self.gap(("race", "ring", "wait", "undefined", "barrier"), f"which mbarriers '{c.fn}' acts on", place.stmt)
            return []
        return [Sync(place, c.fn, r.buffer.name, index[0] if index else const(0), number)]

    def _wgmma(self, c: n.Call, regions: list[n.Region], place: Place, env: Env) -> list[Item]:
        """A product in flight of a warpgroup's threads: `acc += a * b`."""
        self.asynchronous = True
        items: list[Item] = []
        for r in regions[1:]:
            items += self.access("read", r, place, env, late=Flight("wgmma"))
            if r.buffer.name not in env.memory:
                self.claim("undefined", place, f"an operand of '{c.fn}'", n.Var(f"%defined {root(r.buffer.name, env.views)}", BOOL))
        acc = regions[0]
        items += self.access("update", acc, place, env)
        if acc.buffer.name not in env.memory or acc.index:
            self._cleared(acc, env)
        return items

    def _cleared(self, r: n.Region, env: Env) -> None:
        if r.buffer.name in env.memory:
            self.gap(("undefined",), f"an update of '{r.buffer.name}'", None)

    # ------------------------------------------------------------------------------------------------------------ control flow
    def _if(self, s: n.If, place: Place, env: Env) -> tuple[list[Item], Env, bool, tuple[Holding, ...]]:
        items: list[Item] = self.reads(s.cond, place, env)
        cond, ok = self.values.value(s.cond, env).scalar
        self.claim("undefined", place, "a condition", ok)
        kept = self.lanes.enter(cond)
        then, after, gone = self.block(s.then, (*place.path, "then"), env, (*place.holding, cond))
        other, otherwise, left = self.block(s.orelse, (*place.path, "orelse"), env, (*place.holding, opposite(cond)))
        items.append(Branch(place, cond, (then, other)))
        self.lanes.leave(kept, gone or left)
        if gone and left:
            return items, env, True, ()
        if gone:
            return items, outer(otherwise, env), False, (opposite(cond),)
        if left:
            return items, outer(after, env), False, (cond,)
        return items, merged(cond, after, otherwise, env), False, ()

    def _for(self, s: n.For, place: Place, env: Env) -> tuple[list[Item], Env]:
        items = [i for e in (s.lo, s.hi, s.step) for i in self.reads(e, place, env)]
        (lo, lo_ok), (hi, hi_ok), (step, step_ok) = (self.values.value(e, env).scalar for e in (s.lo, s.hi, s.step))
        self.claim("undefined", place, "a bound of the loop", both(lo_ok, hi_ok, step_ok))
        if s.kind in LEVELS:
            return [*items, *self._split(s, place, env, lo, hi)], self._forgotten(s, env)
        if (trip := places.few_trips(s, lo, hi, env)) is not None:
            return self._unrolled(s, place, env, trip, items)
        dtype = dtype_of(s.var.type)
        count = self.values.variable(s.var.name, dtype)
        value = added(lo, scaled(count, step if (each := int_value(step)) is None else each))
        runs = compared("gt" if descends(step) else "lt", value, hi)
        known = int_value(step)
        if known == 1 and int_value(lo) == 0:
            ranging: tuple[Holding, ...] = (Ranging(count, const(0, dtype), hi if hi.type == dtype else build.cast(hi, dtype)),)
        else:
            ranging = (build.compare("ge", count, const(0, dtype)), runs)
        if known == 0 or (known is None and not descends(step)):
            ranging = (build.compare("ge", count, const(0, dtype)), runs)
            self.claim("bounds", place, "the step of the loop", compared("ge", step, const(1, dtype_of(step.type))))
        head = self._head(s, count, env)
        inner = replace(head, names={**head.names, s.var.name: Val((), lambda i: (value, TRUE))}, scope=(*env.scope, count))
        body, after = self._trip(s, place, inner, (*place.holding, *ranging), runs)
        trips = build.sub(wide(hi), wide(lo)) if known is not None and known > 0 else None
        items.append(Loop(place, count, runs, body, build.ceildiv(trips, known) if trips is not None and known is not None and known > 1 else trips))
        return items, self._exit(s, env, head, after, count, lo, hi, known)

    def _unrolled(self, s: n.For, place: Place, env: Env, trips: range, items: list[Item]) -> tuple[list[Item], Env]:
        """A short loop that touches registers alone, trip by trip."""
        for k in trips:
            named = env.naming(s.var.name, Val((), lambda i, k=k: (const(k, dtype_of(s.var.type)), TRUE)))  # type: ignore[misc]  # bound at once
            more, after, _ = self.block(s.body, (*place.path, "body"), named, place.holding)
            items, env = [*items, *more], outer(after, env)
        return items, env

    def _while(self, s: n.While, place: Place, env: Env) -> tuple[list[Item], Env]:
        count = self.values.variable("round")
        head = self._head(s, count, env)
        inner = replace(head, scope=(*env.scope, count))
        head_reads = self.reads(s.cond, place, inner)
        cond, ok = self.values.value(s.cond, inner).scalar
        self.claim("undefined", place, "a condition", ok)
        body, after = self._trip(s, place, inner, (*place.holding, build.compare("ge", count, const(0)), cond), cond)
        return [Loop(place, count, None, (*head_reads, *body))], self._exit(s, env, head, after, count, const(0), const(0), None)

    def _trip(self, s: n.For | n.While, place: Place, env: Env, holding: tuple[Holding, ...], runs: n.Expr) -> tuple[tuple[Item, ...], Env]:
        """Any trip of a loop. Of one that lanes may leave before others the walk is taken twice: lanes may be missing from its begin."""
        kept, jumped, path = self.lanes.enter(runs), self.lanes.jumped, (*place.path, "body")
        missing = isinstance(s, n.While) and self.lanes.parts(runs)
        if self.thread and not missing and any(isinstance(x, n.Jump) for x in statements(s.body)):
            self.lanes.jumped = False
            noted = self.claims, self.kept, self.gaps, self.written, self.lanes.exchanges
            self.claims, self.kept, self.gaps, self.written, self.lanes.exchanges = [], [], [], {k: [*v] for k, v in self.written.items()}, []
            self.block(s.body, path, env, holding)
            self.claims, self.kept, self.gaps, self.written, self.lanes.exchanges = noted
            missing, self.lanes.jumped = self.lanes.jumped, jumped or self.lanes.jumped
        if missing:
            self.lanes.left_behind()
        body, after, _ = self.block(s.body, path, env, holding)
        self.lanes.leave(kept)
        return body, after

    def _head(self, s: n.Stmt, count: n.Var, env: Env) -> Env:
        """What is known at the start of any trip: what the loop changes holds something, which is defined where it was before, as long as no trip
        stores what is not."""
        scoped = replace(env, scope=(*env.scope, count))
        memory = dict(env.memory)
        for name in places.changed(s, env):
            old = env.memory[name]
            buffer, ok = places.declared(name, self.program, self.kernel), partial(as_before, None if name in self.unsure else old)
            memory[name] = self.values.unknown(scoped, old.shape, buffer, ok)
            if isinstance(s, (n.For, n.While)) and not old.shape and (by := places.counted(s, name)):
                now = added(old.scalar[0], scaled(build.cast(count, buffer), by))
                memory[name] = Val((), lambda i, now=now, ok=ok: (now, ok(i)))  # type: ignore[misc]  # bound at once
            elif isinstance(s, (n.For, n.While)) and not old.shape and (total := places.alternating(s, name, old.scalar[0])) is not None:
                memory[name] = by_turns(old.scalar[0], total, build.cast(count, buffer), ok)
        return replace(env, memory=memory)

    def _exit(self, s: n.For | n.While, env: Env, head: Env, after: Env, count: n.Var, lo: n.Expr, hi: n.Expr, step: int | None) -> Env:
        """What is known after a loop: of private memory what some trip of a constant range has defined is."""
        begin, last = int_value(lo), int_value(hi)
        trips = len(range(begin, last, step)) if begin is not None and last is not None and step else 0
        jumps = any(isinstance(x, n.Jump) for x in statements(s.body))
        memory = dict(env.memory)
        for name in places.changed(s, env):
            old = head.memory[name]
            shape, dtype = old.shape, places.declared(name, self.program, self.kernel)
            ok = defined_by(old, after.memory[name], count, trips) if 0 < trips <= MOST_TRIPS and not jumps and name in after.memory else (
                lambda i, old=old: old.at(i)[1])
            memory[name] = self.values.unknown(env, shape, dtype, ok)
            if not shape and not jumps and (total := places.alternating(s, name, first := env.memory[name].scalar[0])) is not None:
                memory[name] = by_turns(first, total, const(trips, dtype) if trips else memory[name].scalar[0], ok)
        return replace(env, memory=memory)

    def _split(self, s: n.For, place: Place, env: Env, lo: n.Expr, hi: n.Expr) -> list[Item]:
        self.nested |= self.level > 0 and bool(self.thread)
        if int_value(s.step) != 1:
            self.gap(("race", "barrier"), "a team splits by a step", s)
        self.level += 1
        self.owned.append(set())
        var = n.Var(s.var.name, dtype_of(s.var.type))
        changed = places.changed(s, env)
        visible = replace(env, memory={k: v for k, v in env.memory.items() if k not in changed}, scope=(*env.scope, var),
                          names={k: v for k, v in env.names.items() if k != var.name})
        thread, self.thread, lanes = self.thread, var.name, self.lanes.split(var if s.kind == "thread" else None, int_value(lo) == 0, int_value(hi) or 0)
        items, _, _ = self.block(s.body, (*place.path, "body"), visible, (*place.holding, Ranging(var, lo, hi)))
        self.thread = thread
        self.lanes.joined(lanes)
        self.owned.pop()
        self.level -= 1
        return [Split(place, s, var, items)]

    def _forgotten(self, s: n.Stmt, env: Env) -> Env:
        """After sub-teams: of what they change nothing is known."""
        memory = dict(env.memory)
        for name in places.changed(s, env):
            memory[name] = self.values.unknown(env, memory[name].shape, places.declared(name, self.program, self.kernel), lambda i: FALSE)
        return replace(env, memory=memory)
