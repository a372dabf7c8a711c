"""Calls of instructions as statements: barriers, asynchronous groups, messages, matrix fragments, products."""
from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import TileType, UnitType, dtype_of

from ..expressions.expressions import Expressions, lane_mask
from ..expressions.memory import Memory
from ..spelling import ptx_functions
from ..spelling.literals import c_type, refuse, sizes_of
from . import blackwell, hopper

ATOMICS = {"atomic_add": "atomicAdd", "atomic_max": "atomicMax", "atomic_min": "atomicMin", "atomic_and": "atomicAnd",
            "atomic_or": "atomicOr", "atomic_xor": "atomicXor", "atomic_exch": "atomicExch", "atomic_cas": "atomicCAS"}
_VECTORS = {("f16", 2): "__half2", ("bf16", 2): "__nv_bfloat162", ("f32", 2): "float2", ("f32", 4): "float4"}
"""Vectors that are added atomically, element by element."""
_PRODUCTS = {("m16n8k16", "f16", "f32"): "mma_m16n8k16_f16", ("m16n8k16", "bf16", "f32"): "mma_m16n8k16_bf16",
             ("m16n8k16", "f16", "f16"): "mma_m16n8k16_f16_f16", ("m16n8k8", "f32", "f32"): "mma_m16n8k8_tf32",
             ("m16n8k32", "i8", "i32"): "mma_m16n8k32_i8", ("m16n8k32", "u8", "i32"): "mma_m16n8k32_u8"}
"""Functions of the device header for mma.sync: by shape, operand and accumulator dtype."""
LOWERED = "the pass that lowers tiles to threads"
_FENCES = {"cta": "__threadfence_block()", "gpu": "__threadfence()", "sys": "__threadfence_system()"}


@dataclass(frozen=True)
class Team:
    """Who runs a block: `threads` of them, one thread being 1; `sync` is the barrier of the split that made it ("" outside any); `first`
    is the number of its first thread in the CTA (of the first of its siblings, where there are several)."""

    threads: int
    sync: str = ""
    first: int = 0
    whole: str = "__syncthreads()"


@dataclass
class InstructionCalls:
    """Writes calls of the instruction table that stand as statements. `pool` gives the offset of each shared array in dynamic shared memory;
    empty when all are static. `results` are the references that a function with several results writes them to, `constant` names memory that
    is only read. `rolled`: serial loops stay loops, and nvcc does not write some of their rounds out. `launched`: registers of each thread at
    launch, 0 where that is not known."""

    to: Expressions
    memory: Memory
    threads: int
    pool: Mapping[str, int]
    results: tuple[str, ...] = ()
    constant: set[str] = field(default_factory=set)
    program: n.Program | None = None
    refusals: list[Diagnostic] = field(default_factory=list)
    rolled: bool = True
    launched: int = 0

    def _eval(self, e: n.Call, team: Team) -> None:
        w, to = self.to.writer, self.to
        attrs, args = dict(e.attrs), [a for a in e.args if isinstance(a, n.Expr)]
        if e.of is not None:
            if not isinstance(e.of, UnitType):
                raise refuse("KIR-B002", f"the result of '{e.fn}' is not used")
            w.put(f"{to.names[e.fn]}({', '.join(map(to.scalar, args))});")
            return
        if (line := hopper.call(to, self.memory, e) or blackwell.call(to, self.memory, e)) is not None:
            if team.threads > 1:
                raise refuse("KIR-B002", f"'{e.fn}' stands outside the split into threads", LOWERED)
            w.put(line)
            return
        match e.fn:
            case "barrier":
                if team.sync:
                    w.put(f"{team.sync};")
            case "warp_sync":
                own = to.scalar(args[0]) if args else lane_mask(attrs) if "group" in attrs else ""
                w.put(f"__syncwarp({own});")
            case "fence":
                scope = str(attrs.get("scope", "gpu"))
                if scope not in _FENCES:
                    raise refuse("KIR-B008", f"the CUDA backend has no fence of scope '{scope}'")
                w.put(f"{_FENCES[scope]};")
            case "async_commit":
                w.put(f"{to.header('copy_async_commit')}();")
            case "async_wait":
                pending = int_value(args[0])
                if pending is None:
                    raise refuse("KIR-B002", "cp.async.wait_group takes a number known at compile time")
                w.put(f"{to.header('copy_async_wait')}<{pending}>();")
            case "named_barrier_sync" | "named_barrier_arrive":
                w.put(f"{to.header(e.fn)}({to.scalar(args[0])}, {to.scalar(args[1])});")
            case "set_registers":
                count = int_value(args[0])
                if count is None:
                    raise refuse("KIR-B002", "setmaxnreg takes a number known at compile time")
                w.put(f"{to.header('set_registers_up' if attrs.get('grow') else 'set_registers_down')}<{count}>();")
            case "nanosleep":
                w.put(f"__nanosleep({to.scalar(args[0])});")
            case "prefetch" if isinstance(e.args[0], n.Region) and e.args[0].buffer.space == "global":
                at = ("0",) * len(sizes_of(e.args[0].type))
                function = to.header(f"prefetch_l{attrs.get('level', 2)}")
                w.put(f"{function}(&{self.memory.element(to, e.args[0], at)});")
            case "atomic_store":
                self._ordered(e, "")
            case "trap":
                w.put("__trap();")
            case "print":
                w.put(f"printf({', '.join([json.dumps(str(attrs.get('format', ''))), *map(to.scalar, args)])});")
            case "stmatrix" if isinstance(e.args[0], n.Region):
                self._store_matrix(e)
            case "assume":
                w.put(f"__builtin_assume({to.scalar(args[0])});")
            case "assertion":
                w.put(f"assert({to.scalar(args[0])});")
            case _ if e.fn in ATOMICS:
                self._effect(e, "")
            case _:
                raise refuse("KIR-B008", f"the CUDA backend has no spelling for '{e.fn}'")

    def _ordered(self, e: n.Call, result: str) -> None:
        """An atomic load or store of one element."""
        to, region = self.to, e.args[0]
        assert isinstance(region, n.Region)
        d = region.buffer.dtype
        function, place = to.function(ptx_functions.ordered(e.fn, d, dict(e.attrs))), self.memory.element(to, region, ())
        if result:
            got = ptx_functions.from_word(d, f"{function}(&{place})", to.header("bit_cast") if d.bits < 32 else "")
            to.writer.put(f"const {c_type(d)} {result} = {got};")
            return
        value = e.args[1]
        assert isinstance(value, n.Expr)
        moved = ptx_functions.as_word(d, to.scalar(value), to.header("bit_cast") if d.bits < 32 else "")
        to.writer.put(f"{function}(&{place}, {moved});")

    def _effect(self, e: n.Call, result: str) -> None:
        """A call at the root of a let or statement whose result (if it is named) is kept."""
        to, w, attrs = self.to, self.to.writer, dict(e.attrs)
        if e.fn == "atomic_load":
            self._ordered(e, result)
            return
        if e.fn == "ldmatrix":
            region, num = e.args[0], int(attrs.get("num", 4))
            assert isinstance(region, n.Region)
            function = to.header(f"load_matrix_{num}" + ("_trans" if attrs.get("trans") else ""))
            w.put(f"alignas(16) {c_type(region.buffer.dtype)} {result}[{2 * num}];")
            first = ("0",) * len(sizes_of(region.type))
            w.put(f"{function}(reinterpret_cast<unsigned*>({result}), &{self.memory.element(to, region, first)});")
            return
        if e.fn == "mma_sync":
            self._mma_sync(e, result)
            return
        region, operands = e.args[0], [a for a in e.args[1:] if isinstance(a, n.Expr)]
        assert isinstance(region, n.Region)
        plain = str(attrs.get("order", "relaxed")) == "relaxed" and str(attrs.get("scope", "gpu")) in ("gpu", "cta")
        sizes = sizes_of(region.type)
        whole = e.fn == "atomic_add" and not result and len(operands) == 1 and len(sizes) == 1
        vector = _VECTORS.get((dtype_of(region.type).name, int(sizes[0]))) if whole else None
        if vector is not None and plain:
            name, count = w.fresh("m"), sizes[0]
            w.put(f"alignas(16) {c_type(region.buffer.dtype)} {name}[{count}];")
            to.fill(name, operands[0], (count,))
            w.put(f"atomicAdd(reinterpret_cast<{vector}*>(&{self.memory.element(to, region, ('0',))}), *reinterpret_cast<const {vector}*>({name}));")
            return
        if result and (sizes or isinstance(e.type, TileType)):
            raise refuse("KIR-B002", "an atomic operation on a tile of which the old values are kept", "a loop over its elements")
        tried = e.fn in ("atomic_max", "atomic_min") and dtype_of(region.type).is_float
        if tried and plain and dtype_of(region.type).name != "f32":
            raise refuse("KIR-B008", f"CUDA has no {ATOMICS[e.fn]} of {dtype_of(region.type)}", "the atomic on f32 or on integers")
        wanted = 2 if e.fn == "atomic_cas" else 1
        for x in operands:
            to.prepare(x)
        at = w.loops(sizes)
        place, given = f"&{self.memory.element(to, region, at)}", [to.element(x, at) for x in operands[:wanted]]
        other = plain and dtype_of(region.type).name == "i64" and e.fn not in ("atomic_max", "atomic_min")
        if other:  # CUDA has these for unsigned 64-bit numbers only, whose bits are the same
            place, given = f"reinterpret_cast<unsigned long long*>({place})", [f"static_cast<unsigned long long>({x})" for x in given]
        function = to.header(e.fn) if plain and tried else ATOMICS[e.fn] if plain else to.function(
            ptx_functions.atomic(e.fn, dtype_of(region.type), attrs, bool(result)))
        call = f"{function}({place}, {', '.join(given)})"
        if len(operands) > wanted:
            if result:
                raise refuse("KIR-B002", "an atomic operation with a mask has no result where the mask is false", "a branch around it")
            call = f"if ({to.element(operands[wanted], at, 3)}) {call}"
        call = f"static_cast<long long>({call})" if other and result else call
        w.put(f"const {c_type(dtype_of(e.type))} {result} = {call};" if result else f"{call};")
        w.close(len(sizes))

    def _store_matrix(self, e: n.Call) -> None:
        """stmatrix: each lane names a row, and gives its elements of all matrices."""
        to, w, region, value = self.to, self.to.writer, e.args[0], e.args[1]
        assert isinstance(region, n.Region) and isinstance(value, n.Expr)
        count = math.prod(sizes_of(value.type))
        to.header("shared_address")
        function = to.function(ptx_functions.store_matrix(count // 2, bool(dict(e.attrs).get("trans"))))
        name = w.fresh("m")
        w.put(f"alignas(16) {c_type(dtype_of(value.type))} {name}[{count}];")
        to.fill(name, value, sizes_of(value.type))
        place = self.memory.element(to, region, ("0",) * len(sizes_of(region.type)))
        w.put(f"{function}(&{place}, reinterpret_cast<const unsigned*>({name}));")

    def _mma_sync(self, e: n.Call, result: str) -> None:
        to, w = self.to, self.to.writer
        a, b, c = (x for x in e.args if isinstance(x, n.Expr))
        shape, dtype, out = str(dict(e.attrs).get("shape", "m16n8k16")), dtype_of(a.type).name, dtype_of(c.type)
        function = _PRODUCTS.get((shape, dtype, out.name))
        made = ptx_functions.product(shape, dtype_of(a.type), out) if function is None else None
        if function is None and made is None:
            raise refuse("KIR-B008", f"the CUDA backend has no mma_sync of shape {shape} on {dtype} into {out}")
        names = []
        for x in (a, b, c):
            name = w.fresh("m")
            w.put(f"alignas(16) {c_type(dtype_of(x.type))} {name}[{math.prod(sizes_of(x.type))}];")
            to.fill(name, x, sizes_of(x.type))
            names.append(name)
        if dtype == "f32":
            for name, x in zip(names[:2], (a, b), strict=True):
                at = w.loops(sizes_of(x.type))
                w.put(f"{name}[{at[0]}] = {to.header('round_to_tf32')}({name}[{at[0]}]);")
                w.close()
        packed = [f"reinterpret_cast<const unsigned*>({name})" for name in names[:2]]
        last, into = (names[2], result) if out.bits == 32 else (f"reinterpret_cast<const unsigned*>({names[2]})",
                                                               f"reinterpret_cast<unsigned*>({result})")
        w.put(f"alignas(16) {c_type(out)} {result}[4];" if out.bits != 32 else f"{c_type(out)} {result}[4];")
        called = to.header(function) if function is not None else to.function(made) if made is not None else ""
        w.put(f"{called}({into}, {packed[0]}, {packed[1]}, {last});")
