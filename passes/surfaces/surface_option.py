"""Asks the surface's compiler to do its work in another way: an option of the kernel, a loop or a copy that changes how, and not what.

pipeline: `surface-option{option=tl_disable_warp_specialized value="true"}@main`

```diff
 kir 1
 program doubled
   in X: f32[M, 128]
   out Y: f32[M, 128]
   size M: i32
-kernel main grid (row: M) threads 128
+kernel main grid (row: M) threads 128 {tl_disable_warp_specialized=true}
   shared kept: f32[128]
   copy X[row, 0 +: 128] -> kept
   Y[row, 0 +: 128] = kept * 2.0
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kir.base.dataclass import dataclass
from kir.base.instructions import instruction
from kir.ir import nodes as n
from kir.ir.types import DType, TileType, dtype_of
from kir.ir.visit import statements, walk
from kir.rewrite import Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site
from kir.rewrite.edit import node_at, replace_kernel
from kir.rewrite.match import edited

OF_KERNELS = frozenset({
    "tl_aggressive_shared_memory_merge", "tl_disable_data_race_check", "tl_disable_loop_unswitching", "tl_disable_shared_memory_reuse",
    "tl_disable_shuffle_elect", "tl_disable_tma_lower", "tl_disable_vectorize_256", "tl_disable_warp_specialized", "tl_disable_wgmma",
    "tl_enable_aggressive_shared_memory_merge", "tl_enable_async_copy", "tl_enable_auto_schedule", "tl_enable_auto_warp_specialization",
    "tl_enable_lower_ldgstg", "tl_enable_lower_ldgstg_predicated", "tl_ptxas_register_usage_level"})
"""Options of TileLang that choose instructions, schedules and memory; results are the same with and without them (`tilelang/transform/pass_config.py`
of 0.1.15 says so). Not among them: what leaves out barriers or bounds."""
OWN_BARRIERS = "tl_disable_thread_storage_sync"
"""Leaves out the barriers that TileLang would add, some of them in branches that not every thread takes: for code of single threads, which says its own."""
FAST_MATH = "tl_enable_fast_math"
"""Changes results where functions are approximated, and nothing where there are none: quotients are said to be exact (`T.ieee_fdiv`)."""
RESOURCES = {"maxnreg": (16, 255), "min_ctas": (1, 32)}
"""Registers that a thread may have, and CTAs that a multiprocessor is to hold, from and to: the compiler keeps elsewhere what does not fit."""
HOST_DESCRIPTORS = "host_descriptors"
"""Tensor descriptors that the host of a Triton kernel makes, once a launch, in the place of each CTA that makes them anew: 1
(`triton.tools.tensor_descriptor`)."""
OF_COPIES = frozenset({"coalesced_width", "disable_tma", "eviction_policy"})
OF_LOOPS = frozenset({"disallow_acc_multi_buffer", "flatten", "warp_specialize"})
"""Options of Triton that choose how a loop is pipelined, whether with the loops inside as one, and by which warps (`triton.language.range` of 3.6)."""
EXACT = frozenset({"abs", "fma", "to_tf32", "round_even", "trunc", "floor", "ceil", "isnan", "isinf"})
APPROXIMATED = frozenset({"exp2_approx", "div_approx"})
"""What fast math makes of functions; without attributes these are the same under it."""


@dataclass(frozen=True)
class SurfaceOption(Pass):
    """`option` is the name, `value` its text."""

    intent: ClassVar[str] = "surface-option"
    catalogue: ClassVar[tuple[int, ...]] = (69,)
    claim: ClassVar[str] = "The compiler's choices are right on the whole, and the author knows better here."
    preconditions: ClassVar[tuple[Precondition, ...]] = ()

    option: str = ""
    value: str = ""

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel, a loop or a copy that has no such option yet; which is given."""
        if not self.option or not isinstance(node, (n.Kernel, n.For, n.Copy)):
            return None
        reason = refused(node, self.option) or _out_of_range(self.option, self.value)
        if reason or self.option in dict(node.attrs):
            return Miss(reason or f"it has the option {self.option} already")
        return Site(path, self)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel, a loop or a copy with an option that changes how it is compiled, and not what it computes."""
        if not isinstance(node, (n.Kernel, n.For, n.Copy)) or not node.attrs:
            return None
        of_kernels = OF_KERNELS | {FAST_MATH, OWN_BARRIERS, HOST_DESCRIPTORS, *RESOURCES}
        known = OF_COPIES if isinstance(node, n.Copy) else OF_LOOPS if isinstance(node, n.For) else of_kernels
        reasons = [(name, refused(node, name)) for name, _ in node.attrs if name in known]
        found = tuple(Site(path, SurfaceOption(name, _text(dict(node.attrs)[name]))) for name, reason in reasons if not reason)
        return found or (Miss(reasons[0][1]) if reasons else None)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """The option."""
        node = node_at(program, site.path)
        assert isinstance(node, (n.Kernel, n.For, n.Copy))
        return self._with(program, site, n.attrs(**{**dict(node.attrs), self.option: _value(self.value)}))

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The compiler's own choice."""
        node = node_at(program, site.path)
        assert isinstance(node, (n.Kernel, n.For, n.Copy))
        return self._with(program, site, tuple((k, v) for k, v in node.attrs if k != self.option))

    def _with(self, program: n.Program, site: Site, attrs: n.Attrs) -> Rewritten:
        node = node_at(program, site.path)
        if isinstance(node, n.Kernel):
            return Rewritten(replace_kernel(program, node.name, replace(node, attrs=attrs)), site.path)
        assert isinstance(node, (n.For, n.Copy))
        return edited(program, site.path, (replace(node, attrs=attrs),))


def refused(node: n.Kernel | n.For | n.Copy, option: str) -> str:
    """Why an option may not be set or left out here; "" where it may."""
    if isinstance(node, n.For):
        known = option in OF_LOOPS and node.kind in ("serial", "pipelined")
        return "" if known else f"{option} is no option of a serial loop that is known to change nothing but how it is run"
    if isinstance(node, n.Copy):
        return "" if option in OF_COPIES else f"{option} is no option of a copy that is known to change nothing but how it is done"
    if option == FAST_MATH:
        found = next((x for x in walk(node) if _is_approximated(x)), None)
        return f"fast math changes what {found.fn} gives" if isinstance(found, n.Call) else ""
    if option == OWN_BARRIERS:
        free = all(isinstance(s, n.Alloc | n.Let) or (isinstance(s, n.For) and s.kind == "thread") for s in node.body)
        return "" if free else "what the CTA does as a whole has no barriers of its own"
    if option == HOST_DESCRIPTORS:
        boxes = any(isinstance(x, n.Copy) and x.via == "tma" and "descriptor" not in dict(x.attrs) for x in statements(node.body))
        return "" if boxes else "no copy of it is of a box whose descriptor the surface makes"
    if option in RESOURCES:
        asks = any((isinstance(x, n.Eval) and x.call.fn == "set_registers") or (isinstance(x, n.Roles) and any(r.registers for r in x.roles))
                   for x in statements(node.body))
        return "its warps ask for registers themselves" if asks else ""
    return "" if option in OF_KERNELS else f"{option} is not known to leave results as they are"


def _out_of_range(option: str, value: str) -> str:
    """Why a number is none that an option takes; "" where it is, and for other options."""
    if option not in RESOURCES:
        return f"{option} is 1 or left out" if option == HOST_DESCRIPTORS and value != "1" else ""
    low, high = RESOURCES[option]
    return "" if value.isdigit() and low <= int(value) <= high else f"{option} is a number from {low} to {high}, not {value or 'nothing'}"


def _is_approximated(x: n.Node) -> bool:
    if isinstance(x, n.Call) and x.fn in APPROXIMATED and not x.attrs:
        return False
    return (isinstance(x, n.Call) and x.of is None and instruction(x.fn).level == "element" and x.fn not in EXACT
            and isinstance(x.type, (DType, TileType)) and dtype_of(x.type).is_float)


def _text(value: n.Attr) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(text: str) -> n.Attr:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdigit() else text
