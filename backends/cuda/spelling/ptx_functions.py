"""Device functions that are one PTX instruction each, written when a program uses them: rows of the instruction table that CUDA has no call
for, and accesses with a cache policy."""
from __future__ import annotations

from collections.abc import Mapping

from kir.ir import nodes as n
from kir.ir.types import DType
from kir.surface.ptx.registers.policies import IN_REGISTERS, modifiers, words
from kir.surface.ptx.registers.policies import WORDS as POLICIES
from kir.surface.ptx.writing import LETTERS, Ptx

from .literals import TYPES, refuse

Function = tuple[str, str]
"""The name of a device function, and its text."""
WORDS: Mapping[int, tuple[str, str, str]] = {
    1: ("unsigned short", "b8", "h"), 2: ("unsigned short", "b16", "h"), 4: ("unsigned", "b32", "r"), 8: ("unsigned long long", "b64", "l"),
}
"""Scalars moved as bits, by bytes: C++ type, PTX type, constraint."""


def word(d: DType) -> tuple[str, str, str]:
    """How a scalar is moved: as what it is, where asm has registers of its type, else as bits."""
    kind, ptx, letter = WORDS[d.bytes]
    return (TYPES[d.name], f"{'f' if d.is_float else 'b'}{d.bits}", LETTERS[d.name]) if d.bits >= 32 else (kind, ptx, letter)



VECTORS: Mapping[int, tuple[str, str]] = {8: ("uint2", "v2.u32"), 16: ("uint4", "v4.u32")}
"""Vectors by bytes: C++ type and PTX type."""
LOADS = frozenset({"nc", "ca", "cg", "cs", "lu", "cv", "volatile", "evict_first", "evict_last", "evict_normal", "evict_unchanged",
                   "no_allocate", "l2_64", "l2_128", "l2_256", *IN_REGISTERS})
STORES = frozenset({"wb", "wt", "cg", "cs", "volatile", "evict_first", "evict_last", "evict_normal", "evict_unchanged", "no_allocate", *IN_REGISTERS})


def element(p: Ptx) -> Function:
    """An instruction on scalars."""
    types = [TYPES[d.name] for d in p.operands]
    names = "abcdef"[:len(types)]
    inputs = ", ".join(_input(d, name) for d, name in zip(p.operands, names, strict=True))
    out = TYPES[p.result.name]
    bare = "tf32" in p.opcode
    kind, letter = ("unsigned", "r") if bare else ("unsigned short" if p.result.bits == 16 else out, LETTERS[p.result.name])
    result = "out" if kind == out else "__uint_as_float(out)" if bare else f"reinterpret_cast<const {out}&>(out)"
    text = (f"__device__ __forceinline__ {out} {p.name}({', '.join(f'{t} {x}' for t, x in zip(types, names, strict=True))}) {{\n"
            f"  {kind} out;\n  asm(\"{p.text('%')}\" : \"={letter}\"(out) : {inputs});\n  return {result};\n}}\n")
    return p.name, text


def _input(d: DType, name: str) -> str:
    return f'"{LETTERS[d.name]}"({f"reinterpret_cast<const unsigned short&>({name})" if d.is_float and d.bits == 16 else name})'


def _policy(cache: str, allowed: frozenset[str]) -> str:
    found, text = words(cache), modifiers(cache)
    if found is None or text is None or not set(found) <= allowed:
        raise refuse("KIR-B008", f"there is no cache policy '{cache}' for this access", f"one of {', '.join(sorted(allowed))}")
    return text.replace(".volatile", "")


def _in_register(cache: str, operands: int) -> tuple[str, str, str]:
    """For a policy that a register holds: what makes it, the further operand of the instruction, and what that stands for."""
    priority = next((IN_REGISTERS[x][0] for x in words(cache) or () if x in IN_REGISTERS), "")
    if not priority:
        return "", "", ""
    return (f'unsigned long long policy;\n  asm("createpolicy.fractional.L2::{priority}.b64 %0, 1.0;" : "=l"(policy));\n  ', f", %{operands}", ', "l"(policy)')


def load(cache: str, size: int, of: DType | None = None) -> Function:
    """A load of `size` bytes from global memory under a policy: an element of a dtype, or a vector."""
    policy, volatile = _policy(cache, LOADS), ".volatile" if "volatile" in cache else ""
    name = f"load_{cache}_{f'v{size * 8}' if of is None else of.name if of.bits >= 32 else f'b{of.bits}'}"
    ordered = 'asm volatile' if "nc" not in cache.split("_") else "asm"
    clobber = ' : "memory"' if ordered != "asm" else ""
    if of is None and size in VECTORS:
        kind, ptx = VECTORS[size]
        fields = "xyzw"[:size // 4]
        outs = ", ".join(f'"=r"(out.{f})' for f in fields)
        places = ", ".join(f"%{i}" for i in range(len(fields)))
        ahead, hint, given = _in_register(cache, len(fields) + 1)
        body = f'{ahead}{ordered}("ld{volatile}.global{policy}.{ptx} {{{places}}}, [%{len(fields)}]{hint};" : {outs} : "l"(p){given}{clobber});'
    else:
        kind, ptx, letter = WORDS[size] if of is None else word(of)
        ahead, hint, given = _in_register(cache, 2)
        body = f'{ahead}{ordered}("ld{volatile}.global{policy}.{ptx} %0, [%1]{hint};" : "={letter}"(out) : "l"(p){given}{clobber});'
    return name, f"__device__ __forceinline__ {kind} {name}(const void* p) {{\n  {kind} out;\n  {body}\n  return out;\n}}\n"


def store(cache: str, size: int, of: DType | None = None) -> Function:
    """A store of `size` bytes to global memory under a policy: an element of a dtype, or a vector."""
    policy, volatile = _policy(cache, STORES), ".volatile" if "volatile" in cache else ""
    name = f"store_{cache}_{f'v{size * 8}' if of is None else of.name if of.bits >= 32 else f'b{of.bits}'}"
    if of is None and size in VECTORS:
        kind, ptx = VECTORS[size]
        fields = "xyzw"[:size // 4]
        places = ", ".join(f"%{i + 1}" for i in range(len(fields)))
        values = ", ".join(f'"r"(x.{f})' for f in fields)
        ahead, hint, given = _in_register(cache, len(fields) + 1)
        body = f'{ahead}asm volatile("st{volatile}.global{policy}.{ptx} [%0], {{{places}}}{hint};" ::"l"(p), {values}{given} : "memory");'
    else:
        kind, ptx, letter = WORDS[size] if of is None else word(of)
        ahead, hint, given = _in_register(cache, 2)
        body = f'{ahead}asm volatile("st{volatile}.global{policy}.{ptx} [%0], %1{hint};" ::"l"(p), "{letter}"(x){given} : "memory");'
    return name, f"__device__ __forceinline__ void {name}(void* p, {kind} x) {{\n  {body}\n}}\n"


def ordered(fn: str, d: DType, attrs: Mapping[str, n.Attr]) -> Function:
    """An atomic load or store of one element."""
    order, scope = str(attrs.get("order", "relaxed")), str(attrs.get("scope", "gpu"))
    opcode = "ld" if fn == "atomic_load" else "st"
    if order not in (("relaxed", "acquire") if opcode == "ld" else ("relaxed", "release")) or d.bytes not in WORDS:
        raise refuse("KIR-B008", f"there is no {fn} of {d} with order {order}")
    kind, ptx, letter = word(d)
    name = f"{fn}_{order}_{scope}_{ptx if d.bits < 32 else d.name}"
    if opcode == "ld":
        return name, (f"__device__ __forceinline__ {kind} {name}(const void* p) {{\n  {kind} out;\n"
                      f'  asm volatile("ld.{order}.{scope}.{ptx} %0, [%1];" : "={letter}"(out) : "l"(p) : "memory");\n  return out;\n}}\n')
    return name, (f"__device__ __forceinline__ void {name}(void* p, {kind} x) {{\n"
                  f'  asm volatile("st.{order}.{scope}.{ptx} [%0], %1;" ::"l"(p), "{letter}"(x) : "memory");\n}}\n')


def atomic(fn: str, d: DType, attrs: Mapping[str, n.Attr], result: bool) -> Function:
    """An atomic operation on one element whose order is not relaxed, or whose scope CUDA has no function for."""
    order, scope, op = str(attrs.get("order", "relaxed")), str(attrs.get("scope", "gpu")), fn.removeprefix("atomic_")
    if d.bits < 32 or (d.is_float and op not in ("add", "exch", "cas")):
        raise refuse("KIR-B008", f"there is no {fn} of {d} with order {order}")
    kind, bits, letter = word(d)
    typed = f"{'f' if d.is_float else 's' if d.name == 'i32' else 'u'}{d.bits}" if op == "add" else f"{'s' if d.kind == 'int' else 'u'}{d.bits}"
    ptx = typed if op in ("add", "min", "max") else f"b{bits[1:]}"
    opcode = "atom" if result or order not in ("relaxed", "release") else "red"
    operands = ("x", "y") if op == "cas" else ("x",)
    name = f"{fn}_{order}_{scope}_{d.name}{'' if result else '_unit'}"
    given = ", ".join(f'"{letter}"({x})' for x in operands)
    places = ", ".join(f"%{k + (2 if opcode == 'atom' else 1)}" for k, _ in enumerate(operands))
    out, named, back = (f"  {kind} out;\n", f'"={letter}"(out)', "  return out;\n" if result else "") if opcode == "atom" else ("", "", "")
    at = "%0, [%1]" if opcode == "atom" else "[%0]"
    return name, (f"__device__ __forceinline__ {kind if result else 'void'} {name}(void* p, {', '.join(f'{kind} {x}' for x in operands)}) {{\n{out}"
                  f'  asm volatile("{opcode}.{order}.{scope}.{op}.{ptx} {at}, {places};" : {named} : "l"(p), {given} : "memory");\n{back}}}\n')


def product(shape: str, operand: DType, result: DType) -> Function | None:
    """mma.sync of a shape that the device header has no function for; None for one that there is not (PTX ISA, mma)."""
    words = {"f16": "f16", "bf16": "bf16", "i8": "s8", "u8": "u8"}.get(operand.name)
    k = int(shape.removeprefix("m16n8k")) if shape.startswith("m16n8k") else 0
    accepted = {"f16": ("f32", "f16"), "bf16": ("f32",), "i8": ("i32",), "u8": ("i32",)}.get(operand.name, ())
    if words is None or result.name not in accepted or k * operand.bits not in (128, 256):
        return None
    a, b, c = 16 * k * operand.bits // 1024, 8 * k * operand.bits // 1024, 4 * result.bits // 32
    out = {"f32": "f32", "f16": "f16", "i32": "s32"}[result.name]
    kind, letter = {"f32": ("float", "f"), "f16": ("unsigned", "r"), "i32": ("int", "r")}[result.name]
    groups, at = [], 0
    for count in (c, a, b, c):
        groups.append("{" + ", ".join(f"%{at + i}" for i in range(count)) + "}")
        at += count
    inputs = [f'"{x}"({name}[{i}])' for name, x, count in (("a", "r", a), ("b", "r", b), ("c", letter, c)) for i in range(count)]
    name = f"mma_{shape}_{operand.name}_{result.name}"
    outputs = ", ".join(f'"={letter}"(d[{i}])' for i in range(c))
    return name, (f"__device__ __forceinline__ void {name}({kind}* d, const unsigned* a, const unsigned* b, const {kind}* c) {{\n"
                  f'  asm volatile("mma.sync.aligned.{shape}.row.col.{out}.{words}.{words}.{out} {", ".join(groups)};"\n'
                  f"               : {outputs}\n               : {', '.join(inputs)});\n}}\n")


def store_matrix(num: int, trans: bool) -> Function:
    """stmatrix of `num` 8 x 8 matrices."""
    if num not in (1, 2, 4):
        raise refuse("KIR-B008", f"stmatrix stores 1, 2 or 4 matrices, not {num}")
    name = f"store_matrix_{num}{'_trans' if trans else ''}"
    places = ", ".join(f"%{i + 1}" for i in range(num))
    values = ", ".join(f'"r"(x[{i}])' for i in range(num))
    return name, (f"__device__ __forceinline__ void {name}(void* row, const unsigned* x) {{\n"
                  f'  asm volatile("stmatrix.sync.aligned.m8n8.x{num}{".trans" if trans else ""}.shared.b16 [%0], {{{places}}};"\n'
                  f'               ::"r"(shared_address(row)), {values} : "memory");\n}}\n')


def copy_async(cache: str) -> Function:
    """cp.async under a policy; like `copy_async` of the header."""
    found = words(cache)
    if found is None or not set(found) <= {"ca", "cg", "l2_64", "l2_128", "l2_256"}:
        raise refuse("KIR-B008", f"cp.async has no cache policy '{cache}'", "ca, cg, l2_64, l2_128, l2_256")
    level = next((w for w in found if w in ("ca", "cg")), "")
    prefetch = "".join(f".{POLICIES[w]}" for w in found if w.startswith("l2"))
    name = f"copy_async_{cache}"
    text = ["template <int Bytes>", f"__device__ __forceinline__ void {name}(void* to, const void* from, bool inside) {{"]
    for test, size in (("if constexpr (Bytes == 16)", "16"), ("else", '"n"(Bytes)')):
        how = level or ("cg" if size == "16" else "ca")
        if how == "cg" and size != "16":
            text.append('  else {\n    static_assert(Bytes == 16, "cp.async.cg copies 16 bytes");\n  }')
            continue
        places = "16, %2" if size == "16" else "%2, %3"
        given = '"r"(inside ? Bytes : 0)' if size == "16" else f'{size}, "r"(inside ? Bytes : 0)'
        text.append(f'  {test} {{\n    asm volatile("cp.async.{how}.shared.global{prefetch} [%0], [%1], {places};" ::"r"(shared_address(to)),'
                    f' "l"(from), {given} : "memory");\n  }}')
    return name, "\n".join([*text, "}", ""])


def as_word(d: DType, value: str, bit_cast: str) -> str:
    """A value of a dtype as it is moved."""
    if d.bits == 8 and d.is_float:
        return f"{bit_cast}<unsigned char>({value})"
    return value if d.bits >= 32 or d.bits == 8 else f"{bit_cast}<{word(d)[0]}>({value})"


def from_word(d: DType, value: str, bit_cast: str) -> str:
    """What was moved as a value of its dtype."""
    if d.bits == 8:
        byte = f"static_cast<unsigned char>({value})"
        return f"{bit_cast}<{TYPES[d.name]}>({byte})" if d.is_float else f"static_cast<{TYPES[d.name]}>({byte})"
    return value if d.bits >= 32 else f"{bit_cast}<{TYPES[d.name]}>({value})"
