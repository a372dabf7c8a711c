"""CUDA functions in front of a kernel, for what no word of TileLang says: loads and copies of a thread under a cache policy, prefetches."""
from __future__ import annotations

from collections.abc import Iterator

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import walk
from kir.surface.ptx.registers.policies import IN_REGISTERS, WORDS, words

COPIED = (4, 8, 16)
"""Bytes that one instruction copies."""
_READ = frozenset(WORDS) - {"wb", "wt"}
_FROM, _TO = ("global", "register"), ("register", "global")
_HEAD = "__device__ __forceinline__"


def is_loaded(e: n.Load) -> bool:
    """Whether elements are read under a cache policy that a function in front of the kernel has, one at a time."""
    return bool(e.cache) and e.mask is None and not e.clip and e.at.buffer.space == "global" and _known(e.cache) is not None


def is_moved(s: n.Copy) -> bool:
    """Whether a thread's copy from or to global memory is one instruction that TileLang does not check against the edges of the tensor."""
    plain = s.via.partition("(")[0] == "vector" or (s.via == "plain" and bool(s.src.cache))
    return (plain and s.src.mask is None and not s.src.clip and s.mask is None and not s.clip and s.signal is None and not s.grouped
            and not s.attrs and (s.src.at.buffer.space, s.dst.buffer.space) in (_FROM, *([] if s.src.cache else [_TO]))
            and (not s.src.cache or _known(s.src.cache) is not None) and moved_bytes(s) in COPIED)


def begin(at: n.Region) -> n.Region:
    """The first element of a place."""
    return build.region(at.buffer, *(i.lo if isinstance(i, n.Span) else i for i in at.index or (build.const(0) for _ in at.buffer.shape)))


def moved_bytes(s: n.Copy) -> int | None:
    """How many bytes a copy along one dimension moves, where that is known, be the dtype one that the binding decides."""
    index = s.src.at.index or tuple(build.span(0, d) for d in s.src.at.buffer.shape)
    spans = [i for i in index if isinstance(i, n.Span)]
    if len(spans) != 1 or spans[0].step != 1 or index[-1] is not spans[0] or s.src.at.buffer.dtype != s.dst.buffer.dtype:
        return None
    extent, d = spans[0].extent, s.src.at.buffer.dtype
    if isinstance(extent, int):
        return None if d.is_symbolic or extent * d.bits % 8 else extent * d.bits // 8
    return _bits(extent, d)


def _bits(extent: n.Expr, d: DType) -> int | None:
    """Of `bits // dtype_bits(d)` elements the bytes."""
    if isinstance(extent, n.Binary) and extent.op == "floordiv" and extent.b == build.call("dtype_bits", term=d.name):
        bits = build.int_value(extent.a)
        return None if bits is None or bits % 8 else bits // 8
    return None


def loading(e: n.Load) -> str:
    """The function that reads one element so."""
    return f"kir_load_{e.cache}"


def moving(s: n.Copy) -> str:
    """The function that copies so."""
    return _named(s.src.cache, moved_bytes(s) or 0)


def _named(cache: str, size: int) -> str:
    return f"kir_copy{size}{'_' if cache else ''}{cache}"


def functions(k: n.Kernel) -> list[str]:
    """The functions that a kernel's statements call, in order of their names."""
    return [text for _, text in sorted(dict(_functions(k)).items())]


def _functions(k: n.Kernel) -> Iterator[tuple[str, str]]:
    copied = {id(x.src) for s in k.body for x in walk(s) if isinstance(x, n.Copy)}
    for x in (y for s in k.body for y in walk(s) if id(y) not in copied):
        match x:
            case n.Call(fn="prefetch"):
                level = dict(x.attrs).get("level", 2)
                yield f"kir_prefetch_l{level}", (f'{_HEAD} int kir_prefetch_l{level}(const void* at) {{ asm volatile("prefetch.global.L{level} [%0];" : : '
                                                 f'"l"(__cvta_generic_to_global(at)) : "memory"); return 0; }}')
            case n.Load() if is_loaded(x):
                yield loading(x), _load(x.cache)
            case n.Copy() if is_moved(x):
                yield moving(x), _copy(x.src.cache, moved_bytes(x) or 0)
            case _:
                pass


def _known(cache: str) -> tuple[str, str] | None:
    """The modifiers of a policy, and the priority that a register has to hold for it ("": none); None for one that loads have not."""
    found = words(cache)
    if not found or any(x in IN_REGISTERS for x in found[:-1]) or not set(found) <= _READ | set(IN_REGISTERS):
        return None
    priority = IN_REGISTERS[found[-1]][0] if found[-1] in IN_REGISTERS else ""
    return "".join(f".{WORDS[x]}" for x in found if x in WORDS and x != "volatile") + (".L2::cache_hint" if priority else ""), priority


def _asm(cache: str, kind: str, outs: str, places: str, count: int) -> str:
    """The instruction, with a register for its policy where it needs one."""
    modifiers, priority = _known(cache) or ("", "")
    parts = cache.split("_")
    volatile = ".volatile" if "volatile" in parts else ""
    ahead = (f'unsigned long long policy; asm("createpolicy.fractional.L2::{priority}.b64 %0, 1.0;" : "=l"(policy)); ' if priority else "")
    hint, operand = (f", %{count + 1}", ', "l"(policy)') if priority else ("", "")
    reads_only = "nc" in parts
    return (f'{ahead}asm{"" if reads_only else " volatile"}("ld{volatile}.global{modifiers}.{kind} {places}, [%{count}]{hint};" : {outs} : '
            f'"l"(__cvta_generic_to_global(from)){operand}{"" if reads_only else chr(32) + ": " + chr(34) + "memory" + chr(34)});')


def _load(cache: str) -> str:
    """One element of 1, 2, 4 or 8 bytes."""
    arms = []
    for size, word, letter, bits in ((8, "unsigned long long", "l", "b64"), (4, "unsigned", "r", "b32"), (2, "unsigned short", "h", "b16")):
        arms.append(f'if constexpr (sizeof(T) == {size}) {{ {word} bits; {_asm(cache, bits, f"{chr(34)}={letter}{chr(34)}(bits)", "%0", 1)} '
                    f"__builtin_memcpy(&value, &bits, {size}); }}")
    return (f"template <typename T> {_HEAD} T kir_load_{cache}(const T* from) {{ T value; static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8); "
            f"{' else '.join(arms)} return value; }}")


def _copy(cache: str, size: int) -> str:
    """4, 8 or 16 bytes."""
    count = size // 4
    fields = [f"bits.{x}" for x in "xyzw"[:count]] if count > 1 else ["bits"]
    outs = ", ".join(f'"=r"({f})' for f in fields)
    places = f"{{{', '.join(f'%{i}' for i in range(count))}}}" if count > 1 else "%0"
    kind = {4: "u32", 8: "v2.u32", 16: "v4.u32"}[size]
    word = {4: "unsigned", 8: "uint2", 16: "uint4"}[size]
    if not cache:
        read = f"{word} bits = *reinterpret_cast<const {word}*>(from);"
    else:
        read = f"{word} bits; {_asm(cache, kind, outs, places, count)}"
    return f"{_HEAD} void {_named(cache, size)}(void* to, const void* from) {{ {read} __builtin_memcpy(to, &bits, {size}); }}"
