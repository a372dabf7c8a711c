"""Statements as CUDA C++: what stands outside the split into threads is done by all of them alike, or by the first."""
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.base.instructions import instruction
from kir.ir import nodes as n
from kir.ir.build import int_value, is_const
from kir.ir.rebuild.padded_rows import with_padding
from kir.ir.types import I32, TileType, TupleType, dtype_of, shape_of
from kir.ir.visit import children, walk
from kir.surface import StatementPath

from ..expressions import roles
from ..expressions.expressions import unrolled, widened
from ..expressions.memory import bytes_of, strides_of
from ..instructions import hopper
from ..instructions.calls import ATOMICS, LOWERED, InstructionCalls, Team
from ..instructions.im2col import counted, shown_by
from ..spelling import ptx_functions
from ..spelling.literals import c_type, flat, offset_of, refuse, sizes_of
from .moved import reads_what_it_writes
from .overlap import computed_before, size_of

STATIC_SHARED = 48 * 1024
"""Bytes of shared memory that a kernel may declare statically (CUDA C++ Programming Guide)."""
POOL_STEP = 128
"""Bytes that the arrays of a pool start at multiples of, at least."""
ROLE_BARRIERS, GROUP_BARRIERS = 12, 8
"""Numbers of the named barriers at which the threads of a role, and of a warpgroup of a role, meet."""


def _under_condition(e: n.Node, under: bool) -> Iterator[n.Call]:
    """The scalar calls that lanes of a warp make together and that C++ would make under a condition, inner ones first."""
    lazy = isinstance(e, n.Select) or (isinstance(e, n.Binary) and e.op in ("and", "or") and dtype_of(e.type).is_bool)
    for i, x in enumerate(children(e)):
        if isinstance(x, (n.Expr, n.Region)):
            yield from _under_condition(x, under or (lazy and i > 0))
    if under and isinstance(e, n.Call) and e.of is None and not shape_of(e.type) and instruction(e.fn).level == "warp" and e.fn not in ("mma_sync", "ldmatrix"):
        yield e


@dataclass
class Statements(InstructionCalls):
    """Writes blocks."""

    def block(self, block: n.Block, path: StatementPath, team: Team) -> None:
        """A block, whose statements are at (*path, 0), (*path, 1), .."""
        facts = self.to.facts
        before = computed_before(block)
        for i, s in enumerate(block):
            here = (*path, i)
            self.to.writer.path = here
            for b in before.get(i, ()):
                places = ", ".join(f'"+f"({self.to.names[b.name]}[{k}])' for k in range(size_of(b)))
                self.to.writer.put(f'asm volatile("" : {places});')
            self.to.replaced.clear()
            if s.label:
                self.to.writer.put(f"// @{s.label}")
            try:
                self._statement(s, here, team, last=i == len(block) - 1)
            except KirError as refused:
                anchor = "/".join(map(str, here[:-1] if s.label else here)) + (f"/{s.label}" if s.label else "")
                self.refusals += [replace(d, anchor=anchor, origin=s.origin) for d in refused.diagnostics]
            self.to.replaced.clear()
            if isinstance(s, n.Let):
                self.to.facts = self.to.facts.after((s,))
        self.to.facts = facts

    def _inner(self, body: n.Block, path: StatementPath, team: Team) -> None:
        self.to.writer.depth += 1
        self.block(body, path, team)
        self.to.writer.close()

    def _statement(self, s: n.Stmt, path: StatementPath, team: Team, last: bool) -> None:
        to, w = self.to, self.to.writer
        if team.threads > 1 and not isinstance(s, (n.For, n.If, n.While, n.Roles)):
            _must_be_scalar(s)
        match s:
            case n.Let():
                self._let(s)
            case n.Alloc():
                self._alloc(s, team)
            case n.Store():
                self._store(s, team)
            case n.Copy():
                self._copy(s)
            case n.Eval():
                self._eval(s.call, team)
            case n.For():
                self._for(s, path, team, last)
            case n.If():
                to.prepare(s.cond)
                w.put(f"if ({to.scalar(s.cond)}) {{")
                facts = to.facts
                to.facts = facts.knowing(s.cond)
                w.depth += 1
                self.block(s.then, (*path, "then"), team)
                to.facts = facts
                if s.orelse:
                    w.depth -= 1
                    w.put("} else {")
                    w.depth += 1
                    self.block(s.orelse, (*path, "orelse"), team)
                w.close()
            case n.While():
                w.put(f"while ({to.scalar(s.cond)}) {{")
                self._inner(s.body, (*path, "body"), team)
            case n.Jump():
                if len(s.values) > 1:
                    for name, value in zip(self.results, s.values, strict=True):
                        w.put(f"{name} = {to.scalar(value)};")
                    w.put("return;")
                    return
                w.put(s.kind + (f" {to.scalar(s.values[0])}" if s.values else "") + ";")
            case n.Roles():
                self._roles(s, path, team, last)
            case n.Mma():
                raise refuse("KIR-B002", "a tile product: the CUDA backend writes what one thread does", "mma_sync on fragments")
            case n.Opaque() if s.surface == "cuda":
                for line in s.text.splitlines():
                    w.put(line)
            case n.Opaque():
                raise refuse("KIR-B002", f"this is {s.surface} source text that KIR does not understand: {s.reason}")
            case n.Hole():
                raise refuse("KIR-B002", f"the hole '{s.name}' is not filled")
            case n.View() if s.at.buffer.space == "global" and self.program is not None and shown_by(s, self.program):
                pass
            case n.View() if s.buffer.space in ("shared", "global") and not s.axes and s.at.buffer.space == s.buffer.space:
                self._view(s)
            case n.View() if s.buffer.space == s.at.buffer.space == "register" and not s.axes and not s.at.index:
                self._bits(s)
            case n.View() if s.buffer.space == "cluster" and s.at.buffer.space == "shared" and not s.axes and not s.at.index:
                self.memory.peers[s.buffer.name] = s.at.buffer
            case n.View():
                raise refuse("KIR-B002", f"the view '{s.buffer.name}' is not written by the CUDA backend", "accesses to what it views")
            case _:
                raise refuse("KIR-B002", f"the CUDA backend does not write {type(s).__name__.lower()}")

    # ---------------------------------------------------------------------------------------------------------- values, memory
    def _let(self, s: n.Let) -> None:
        to, w = self.to, self.to.writer
        if len(s.names) != 1:
            self._let_several(s)
            return
        self._ahead(s)
        name, e = to.names[s.names[0]], s.value
        if (bits := widened(e)) is not None:
            to.narrow[s.names[0]] = bits
        if isinstance(e, n.Call) and e.of is None and (e.fn in ATOMICS or e.fn in ("ldmatrix", "mma_sync", "atomic_load")):
            self._effect(e, name)
            return
        shape = sizes_of(e.type)
        if not shape:
            to.prepare(e)
            w.put(f"const {c_type(dtype_of(e.type))} {name} = {to.scalar(e)};")
            return
        self.memory.load_vectors(to, e)
        w.put(f"{c_type(dtype_of(e.type))} {name}[{math.prod(shape)}];")
        to.fill(name, e, shape)

    def _ahead(self, s: n.Let | n.Store) -> None:
        """Does what lanes of a warp do together before the statement: C++ would do that only for lanes for which a condition around it holds."""
        to = self.to
        for call in _under_condition(s.value, isinstance(s, n.Store) and (s.clip or s.mask is not None)):
            if call not in to.replaced:
                name = to.writer.fresh("lane")
                to.prepare(call)
                to.writer.put(f"{c_type(dtype_of(call.type))} {name}[1];")
                to.writer.put(f"{name}[0] = {to.scalar(call)};")
                to.replaced[call] = name

    def _let_several(self, s: n.Let) -> None:
        """The results of a device function, which it writes to references."""
        to, w, e = self.to, self.to.writer, s.value
        if not (isinstance(e, n.Call) and isinstance(e.of, TupleType)):
            raise refuse("KIR-B002", "a value with several results", "one result each")
        names = [to.names[name] for name in s.names]
        for name, t in zip(names, e.of.elements, strict=True):
            w.put(f"{c_type(dtype_of(t))} {name};")
        w.put(f"{to.names[e.fn]}({', '.join([*(to.scalar(a) for a in e.args if isinstance(a, n.Expr)), *names])});")

    def _alloc(self, s: n.Alloc, team: Team) -> None:
        to, w, b = self.to, self.to.writer, s.buffer
        name = to.names[b.name]
        if b.space == "shared":
            self._shared(s)
            return
        if b.space == "fragment" and team.threads > 1:
            raise refuse("KIR-B002", f"the fragment '{b.name}' is spread over {team.threads} threads", LOWERED)
        if b.space not in ("register", "fragment") or (b.shape and team.threads > 1):
            raise refuse("KIR-B002", f"'{b.name}' is {b.space} memory of a team", "registers of a thread")
        extents = sizes_of(n.Region(b).type)
        self.memory.arrays[b.name] = extents
        if isinstance(s.init, n.Call) and s.init.of is None and s.init.fn in ("ldmatrix", "mma_sync"):
            self._effect(s.init, name)
            return
        if s.init is not None:
            to.prepare(s.init)
        if not extents:
            w.put(f"{c_type(b.dtype)} {name}" + (f" = {to.scalar(s.init)};" if s.init is not None else ";"))
            return
        size = math.prod(extents) * b.dtype.bytes
        aligned = next((f"alignas({k}) " for k in (16, 8, 4) if size % k == 0 and (k == 16 or k > b.dtype.bytes)), "")
        w.put(f"{aligned}{c_type(b.dtype)} {name}[{math.prod(extents)}];")
        if s.init is not None:
            to.fill(name, s.init, extents)

    def _view(self, s: n.View) -> None:
        """The bytes of memory from a place on, as another array; every array in shared memory is taken to start at 16 bytes."""
        to, b, base = self.to, s.buffer, s.at.buffer
        corner = n.Region(base, s.at.index or tuple(n.Const(0, I32) for _ in base.shape))
        offset = None if any(isinstance(i, n.Span) for i in corner.index) else offset_of(corner.index, strides_of(base))
        unit = max(16, b.align) if b.space == "shared" else max(b.align, b.dtype.bytes, base.dtype.bytes)
        if offset is None or not to.facts.divides(max(1, unit // base.dtype.bytes), offset):
            raise refuse("KIR-B002", f"the view '{b.name}' does not start at a multiple of {unit} bytes", "an aligned place")
        first = "0" if is_const(offset, 0) else to.scalar(offset)
        kind = c_type(b.dtype)
        own = base.align or self.memory.views.get(base.name) or unit
        self.memory.views[b.name] = max(x for x in (16, 8, 4, 2, 1) if x <= max(own, 1) and (
            x <= unit or to.facts.divides(max(1, x // base.dtype.bytes), offset)))
        if base.name in self.constant:
            self.constant.add(b.name)
            kind = f"const {kind}"
        to.writer.put(f"{kind}* const {to.names[b.name]} = reinterpret_cast<{kind}*>(&{to.names[base.name]}[{first}]);")

    def _bits(self, s: n.View) -> None:
        """A thread's own variable or array, as numbers of another dtype."""
        to, b, base = self.to, s.buffer, s.at.buffer
        kind, first = c_type(b.dtype), f"{to.names[base.name]}{'[0]' if base.shape else ''}"
        if not b.shape:
            to.writer.put(f"{kind}& {to.names[b.name]} = reinterpret_cast<{kind}&>({first});")
            return
        to.writer.put(f"{kind}* const {to.names[b.name]} = reinterpret_cast<{kind}*>(&{first});")
        self.memory.arrays[b.name] = sizes_of(n.Region(b).type)

    def _shared(self, s: n.Alloc) -> None:
        to, w, b = self.to, self.to.writer, s.buffer
        name, total = to.names[b.name], bytes_of(b)
        if b.name in self.pool:
            kind, place, aligned = c_type(b.dtype), f"shared_pool + {self.pool[b.name]}", b.align or b.dtype.bytes
            w.put(f"{kind}* const {name} = reinterpret_cast<{kind}*>({place});" if aligned == POOL_STEP else
                  f"{kind}* const {name} = static_cast<{kind}*>(__builtin_assume_aligned({place}, {aligned}));")
        else:
            whole = max(total // b.dtype.bytes, math.prod(with_padding(b)))
            w.put(f"__shared__ __align__({max(16, b.align)}) {c_type(b.dtype)} {name}[{whole}];")
        if s.init is not None:
            if shape_of(s.init.type):
                raise refuse("KIR-B002", f"'{b.name}' is filled with a tile", "a loop over threads")
            at, count = w.fresh("e"), total // b.dtype.bytes
            w.put(f"for (int {at} = threadIdx.x; {at} < {count}; {at} += {self.threads}) {name}[{at}] = {to.scalar(s.init)};")
            w.put("__syncthreads();")

    def _store(self, s: n.Store, team: Team) -> None:
        self._ahead(s)
        to, w, b = self.to, self.to.writer, s.at.buffer
        shape = sizes_of(s.at.type)
        shared_by_all = b.space in ("global", "shared") and team.threads > 1
        if shared_by_all:
            w.put("if (threadIdx.x == 0) {")
            w.depth += 1
        if isinstance(s.value, n.Call) and s.value.fn in ("mma_sync", "ldmatrix"):
            result = w.fresh("m")
            self._effect(s.value, result)
            to.replaced[s.value] = result
        self.memory.load_vectors(to, s.value)
        one = s.mask is None or not isinstance(s.mask.type, TileType)
        width = self.memory.vector_bytes(to, s.at, clip=s.clip) if shape and one else 0
        if width > b.dtype.bytes:
            name = w.fresh("v")
            w.put(f"alignas({width}) {c_type(b.dtype)} {name}[{math.prod(shape)}];")
            to.fill(name, s.value, shape)
            if s.mask is not None:
                w.put(f"if ({to.scalar(s.mask)}) {{")
                w.depth += 1
            self.memory.write(to, s.at, name, width, s.clip, s.cache)
            if s.mask is not None:
                w.close()
        else:
            to.prepare(s.value)
            if reads_what_it_writes(s.at, s.value) and sizes_of(s.value.type) == shape:
                to.replaced[s.value] = to.array(s.value)
            at = w.loops(shape)
            conditions = [self.memory.inside(to, s.at, at)] if s.clip else []
            conditions += [to.element(s.mask, at, 3)] if s.mask is not None else []
            head = f"if ({' && '.join(c for c in conditions if c)}) " if any(conditions) else ""
            place, value = self.memory.element(to, s.at, at), to.element(s.value, at)
            if s.cache == "volatile" and b.space == "global" and b.dtype.name not in ("f16", "bf16"):
                w.put(f"{head}*(volatile {c_type(b.dtype)}*)&{place} = {value};")
            elif s.cache:
                if b.space != "global" or b.dtype.bytes not in ptx_functions.WORDS:
                    raise refuse("KIR-B008", f"a cache policy for {b.space} memory of {b.dtype}", "elements of 2, 4 or 8 bytes in global memory")
                bits = ptx_functions.as_word(b.dtype, value, to.header("bit_cast") if b.dtype.bits < 32 else "")
                w.put(f"{head}{to.function(ptx_functions.store(s.cache, b.dtype.bytes, b.dtype))}(&{place}, {bits});")
            else:
                w.put(f"{head}{place} = {value};")
            w.close(len(shape))
        if shared_by_all:
            w.close()
            w.put("__syncthreads();")

    def _copy(self, s: n.Copy) -> None:
        to, w = self.to, self.to.writer
        src, dst = s.src.at, s.dst
        size, shape = dst.buffer.dtype.bytes, sizes_of(dst.type)
        if s.via == "tma" and self.program is not None:
            w.put(hopper.copy_tma(to, self.memory, s, self.program))
            return
        if s.signal is not None:
            raise refuse("KIR-B002", "the CUDA backend writes copies without mbarriers")
        if any(m is not None and shape_of(m.type) for m in (s.mask, s.src.mask)):
            raise refuse("KIR-B002", "the CUDA backend writes copies without masks of elements", "one condition for all of them")
        if s.mask is not None or (s.src.mask is not None and s.via != "cp_async"):
            self._masked_copy(s)
            return
        if s.via == "cp_async":
            width = self._async_width(s, shape, size)
            if s.src.cache:
                to.header("shared_address")
            name, count = to.function(ptx_functions.copy_async(s.src.cache)) if s.src.cache else to.header("copy_async"), width // size
            at = w.fresh("e")
            w.put(unrolled(shape[-1] // count))
            w.put(f"for (int {at} = 0; {at} < {shape[-1]}; {at} += {count}) {{")
            w.depth += 1
            where = (*("0",) * (len(shape) - 1), at)
            within = [self.memory.inside(to, src, where) if s.src.clip else "", to.scalar(s.src.mask, 3) if s.src.mask is not None else ""]
            condition = " && ".join(c for c in within if c)
            inside, source = w.fresh("inside") if condition else "true", f"&{self.memory.element(to, src, where)}"
            if condition:
                w.put(f"const bool {inside} = {condition};")
                source = f"{inside} ? {source} : {to.names[src.buffer.name]}"
            w.put(f"{name}<{width}>(&{self.memory.element(to, dst, where)}, {source}, {inside});")
            w.close()
            if not s.grouped:
                w.put(f"{to.header('copy_async_commit')}();")
                w.put(f"{to.header('copy_async_wait')}<0>();")
            return
        declared = 0
        if s.via.startswith("vector(") and s.via[7:-1].isdigit():
            declared = int(s.via[7:-1]) * size
        elif s.via not in ("plain",):
            raise refuse("KIR-B002", f"the CUDA backend does not write copies via {s.via}")
        reading = self.memory.vector_bytes(to, src, declared, s.src.clip)
        if reading > size:
            to.replaced[s.src] = self.memory.read(to, s.src, reading)
        writing = self.memory.vector_bytes(to, dst, declared, s.clip)
        if writing > size:
            name = to.replaced.get(s.src) or to.array(s.src)
            if s.src not in to.replaced and dst.buffer.dtype.bytes:
                aligned = w.fresh("v")
                w.put(f"alignas({writing}) {c_type(dst.buffer.dtype)} {aligned}[{math.prod(shape)}];")
                every = w.loops(shape)
                w.put(f"{aligned}[{flat(every, shape)}] = {name}[{flat(every, shape)}];")
                w.close(len(shape))
                name = aligned
            self.memory.write(to, dst, name, writing, s.clip)
            return
        self._store(n.Store(dst, s.src, None, s.clip), Team(1))

    def _masked_copy(self, s: n.Copy) -> None:
        """A copy under conditions of the thread: where that of the source does not hold, what stands there instead is written."""
        w, depth = self.to.writer, 0
        bare = replace(s, mask=None, src=replace(s.src, mask=None, other=None))
        if s.mask is not None:
            w.put(f"if ({self.to.scalar(s.mask)}) {{")
            w.depth, depth = w.depth + 1, 1
        if s.src.mask is None or s.via == "cp_async":
            self._copy(replace(s, mask=None))
        else:
            w.put(f"if ({self.to.scalar(s.src.mask)}) {{")
            w.depth += 1
            self._copy(bare)
            w.close()
            if s.src.other is not None:
                w.put("else {")
                w.depth += 1
                self._store(n.Store(s.dst, s.src.other, None, s.clip), Team(1))
                w.close()
        w.close(depth)

    def _async_width(self, s: n.Copy, shape: tuple[int, ...], size: int) -> int:
        other = s.src.other
        if (s.src.clip or s.src.mask is not None) and other is not None and not (
                isinstance(other, n.Const) and not other.value and not str(other.value).startswith("-")):
            raise refuse("KIR-B002", "cp.async fills with zeros what it does not copy", "else 0")
        if s.src.at.buffer.space != "global" or s.dst.buffer.space != "shared":
            raise refuse("KIR-B002", "cp.async copies from global to shared memory")
        for width in (16, 8, 4):
            if shape and shape[-1] * size % width == 0 and self.memory.vector_bytes(self.to, s.dst, width) >= width:
                whole = not s.src.clip or self.memory.vector_bytes(self.to, s.src.at, width, clip=True) >= width
                if whole:
                    return width
        raise refuse("KIR-B002", "cp.async copies 4, 8 or 16 bytes that are inside the buffer as a whole",
                     "a fact that the vector divides the row")

    # ---------------------------------------------------------------------------------------------------------------- control
    def _for(self, s: n.For, path: StatementPath, team: Team, last: bool) -> None:
        to, w = self.to, self.to.writer
        if s.kind in ("thread", "warp", "warpgroup"):
            self._split(s, path, team, last)
            return
        attrs, name, kind = dict(s.attrs), to.names[s.var.name], c_type(dtype_of(s.var.of))
        if s.kind == "pipelined":
            raise refuse("KIR-B002", "a pipelined loop: CUDA code copies ahead by statements of its own", "a ring of buffers")
        facts = to.facts
        to.facts = facts.ranging(s.var, s.lo, s.hi, s.step)
        gathers = counted(to, self.program, s) if self.program is not None else None
        for line in gathers.before if gathers else ():
            w.put(line)
        to.counted |= gathers.places if gathers else {}
        if s.kind == "serial" and not self.rolled:
            pass  # as in the file that it was read from
        elif s.kind == "serial":
            w.put("#pragma unroll 1")
        elif "factor" in attrs and s.kind == "unroll":
            w.put(f"#pragma unroll {attrs['factor']}")
        else:
            w.put("#pragma unroll")
        step = "++" + name if is_const(s.step, 1) else f"{name} += {to.scalar(s.step)}"
        w.put(f"for ({kind} {name} = {to.scalar(s.lo)}; {name} < {to.scalar(s.hi, 9)}; {step}) {{")
        w.depth += 1
        self.block(s.body, (*path, "body"), team)
        for line in gathers.after if gathers else ():
            w.put(line)
        w.close()
        to.facts = facts

    def _split(self, s: n.For, path: StatementPath, team: Team, last: bool) -> None:
        """A team split into threads, warps or warpgroups, joined again at the end of the loop."""
        to, w = self.to, self.to.writer
        extent, size = int_value(s.hi), {"thread": 1, "warp": 32, "warpgroup": 128}[s.kind]
        if extent is None or not is_const(s.lo, 0) or not is_const(s.step, 1):
            raise refuse("KIR-B002", f"the CUDA backend splits a team by 0..n with n known, not {s.kind}s of another range")
        waits = any(isinstance(x, n.Call) and x.fn in ("barrier", "named_barrier_sync") for b in s.body for x in walk(b))
        sync = "__syncwarp()" if team.threads == 32 and team.sync else team.whole
        start = f"(threadIdx.x - {team.first})" if team.first else "threadIdx.x"
        index = "threadIdx.x" if team.threads == self.threads else f"static_cast<int>{start if team.first else '(threadIdx.x)'} % {team.threads}"
        name = to.names[s.var.name]
        if extent * size > team.threads and size == 1 and not waits:
            w.put("#pragma unroll 1")
            w.put(f"for (int {name} = {index}; {name} < {extent}; {name} += {team.threads}) {{")
        elif extent * size == team.threads:
            w.put("{")
            number = index if size == 1 else f"{index} / {size}"
            w.put(f"  const int {name} = {f'__shfl_sync(0xffffffffu, {number}, 0)' if size == 128 else number};")  # so that ptxas keeps it once a warp
        elif extent * size < team.threads and not waits:
            w.put(f"if (const int {name} = {index if size == 1 else f'{index} / {size}'}; {name} < {extent}) {{")
        else:
            raise refuse("KIR-B002", f"{extent} {s.kind}s in a team of {team.threads} threads, with barriers among them",
                         f"{team.threads // size} {s.kind}s")
        facts = to.facts
        to.facts = facts.ranging(s.var, s.lo, s.hi, s.step)
        inner = Team(size, sync, team.first)
        if s.kind == "warpgroup" and team.whole != "__syncthreads()":
            own = f"{to.header('named_barrier_sync')}({GROUP_BARRIERS} + {name}, {size})"
            inner = Team(size, own, team.first, own)
        self._inner(s.body, (*path, "body"), inner)
        to.facts = facts
        if not last or (len(path) > 2 and team.whole == "__syncthreads()"):
            w.path = path
            w.put(f"{sync};")


    def _roles(self, s: n.Roles, path: StatementPath, team: Team, last: bool) -> None:
        """Warps that run code of their own, side by side; a barrier of the CTA where something follows."""
        to, w = self.to, self.to.writer
        if team.threads != self.threads:
            raise refuse("KIR-B002", "roles of a part of the CTA", "roles of the whole CTA")
        tests = roles.chosen(w, s, self.threads)
        for k, role in enumerate(s.roles):
            first, end = 32 * role.lo, 32 * role.hi
            if role.registers and (role.lo % 4 or role.hi % 4):
                raise refuse("KIR-B002", f"registers of '{role.name}', which shares a warpgroup with another role", "roles of whole warpgroups")
            if role.registers and not self.launched:
                raise refuse("KIR-B002", f"registers of '{role.name}', where how many a thread has at launch is no number", "threads and options as numbers")
            w.path = (*path, "roles", k)
            w.put(f"{'} else ' if k else ''}if ({tests[k]}) {{")
            w.depth += 1
            if role.registers:
                w.put(f"{to.header('set_registers_down' if role.registers < self.launched else 'set_registers_up')}<{role.registers}>();")
            barrier = f"{to.header('named_barrier_sync')}({ROLE_BARRIERS + k}, {end - first})"
            self.block(role.body, (*path, "roles", k), Team(end - first, "", first, barrier))
            w.depth -= 1
        w.put("}")
        if not last:
            w.put("__syncthreads();")


def _must_be_scalar(s: n.Stmt) -> None:
    """Refuses a statement of a team of many threads that computes with tiles."""
    for x in walk(s):
        if isinstance(x, n.Expr) and isinstance(x.type, TileType):
            raise refuse("KIR-B002", "a tile of several threads: the CUDA backend writes what one thread does", LOWERED)
        if isinstance(x, n.Call) and x.fn.startswith("atomic_"):
            raise refuse("KIR-B002", "an atomic operation outside the split into threads", "a loop over threads around it")
