"""Copies a tensor to memory of the launch whose rows are longer, so that each begins where copies in hardware may begin.

pipeline: `pad-rows{tensor=X}@main`

```diff
 kir 1
 program rows
   size M: i32
   size N: i32
   in X: f16[M, N]
   out Y: f32[M]
+  workspace X_padded: f16[M, ceildiv(N, 64) * 64]
+kernel pad_X grid (row: M, part: ceildiv(ceildiv(N, 64) * 64, 2048)) threads 256
+  X_padded[row, part * 2048 +: 2048] = load(X[row, part * 2048 +: 2048] else 0.0:f16 clip) clip
 kernel main grid (i: M) threads 32
   register acc: f32 = 0.0
   for k in 0..ceildiv(N, 64)
-    acc = acc + reduce(cast(load(X[i, k * 64 +: 64] else 0.0:f16 clip), f32), axis=0, op=sum)
+    acc = acc + reduce(cast(load(X_padded[i, k * 64 +: 64] else 0.0:f16 clip), f32), axis=0, op=sum)
   Y[i] = acc
```

What is read past the end of a row was what a clipped load says, and is zero now. An output is written to longer rows, and copied back after.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.types import dtype_of
from kir.ir.visit import substitute_buffers, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import kernel_of
from kir.rewrite.match import matched, matched_as, params_as
from kir.rewrite.match.local_buffers import mentions

PART, THREADS = 2048, 256
"""Elements of a row that a CTA of the copying kernels takes, and its threads."""
CHUNK = 16
"""Bytes that rows begin at multiples of for copies in hardware (CUDA driver API, cuTensorMapEncodeTiled)."""


def _tensor(program: n.Program, name: str) -> n.Param | None:
    return next((p for p in program.params if isinstance(p.of, n.Buffer) and p.of.name == name), None)


def _loads(kernel: n.Kernel, name: str) -> Iterator[n.Load]:
    return (x for x in walk(kernel) if isinstance(x, n.Load) and x.at.buffer.name == name)


def _zeros(program: n.Program, site: Site, context: Context) -> Verdict:
    item, kernel = _item(site), kernel_of(program, site.path)
    for x in _loads(kernel, item.tensor):
        if x.clip and x.other is not None and not (isinstance(x.other, n.Const) and not x.other.value):
            return refuted(f"past the end of a row of '{item.tensor}' a load gives another value than zero", "the first element past the end is 0 then",
                           needs="loads that give 0 there")
    return proved("what is read past the end of a row is zero, or nothing")


def _worth(program: n.Program, site: Site, context: Context) -> Verdict:
    param = matched(_tensor(program, _item(site).tensor))
    assert isinstance(param.of, n.Buffer)
    each = CHUNK // param.of.dtype.bytes
    if Facts.at(program, site.path).divides(each, param.of.shape[-1]):
        return refuted(f"rows of '{param.of.name}' are multiples of {CHUNK} bytes already", "the copy gains nothing", needs="rows of another length")
    return proved(f"a row of '{param.of.name}' may begin anywhere")


def _item(site: Site) -> PadRows:
    return params_as(site, PadRows)


@dataclass(frozen=True)
class PadRows(Pass):
    """`tensor` is the parameter, `multiple` what the elements of a row become a multiple of."""

    intent: ClassVar[str] = "pad-operand"
    catalogue: ClassVar[tuple[int, ...]] = (10, 53)
    claim: ClassVar[str] = "One pass over the memory pays for copies in hardware in all that follow."
    least: ClassVar[Mapping[str, int]] = {"multiple": 1}
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P889", "validity", "layout", "what is read past the end of a row is zero", _zeros),
        Precondition("KIR-P890", "profit", "layout", "rows do not begin where copies in hardware may begin", _worth))

    tensor: str = ""
    multiple: int = 64

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At the one kernel that reads, or writes, a tensor of dense rows."""
        if not isinstance(node, n.Kernel) or not self.tensor:
            return None
        param = _tensor(program, self.tensor)
        if param is None or not isinstance(param.of, n.Buffer) or param.role not in ("in", "out"):
            return Miss(f"'{self.tensor}' is no tensor that is only read or only written")
        b = param.of
        if len(b.shape) != 2 or b.strides is not None or b.layout is not None or self.multiple < 2:
            return Miss(f"'{b.name}' is no matrix of dense rows")
        if not mentions(node, b.name) or any(mentions(k, b.name) for k in program.kernels if k.name != node.name):
            return Miss(f"'{node.name}' is not the one kernel that uses '{b.name}'")
        if any(t.of == b.name for t in program.tensor_maps) or any(isinstance(x, (n.Address, n.View)) and x.at.buffer.name == b.name for x in walk(node)):
            return Miss(f"'{b.name}' has a descriptor, or its address is taken")
        if any(isinstance(x, n.Call) and any(isinstance(a, n.Region) and a.buffer.name == b.name for a in x.args) for x in walk(node)):
            return Miss(f"'{b.name}' is updated in place")
        if any(isinstance(s, n.Dispatch) for s in program.plan) or any(s.attrs for s in program.plan if isinstance(s, n.Launch)):
            return Miss("the launch plan chooses between kernels")
        names = {k.name for k in program.kernels} | {w.buffer.name for w in program.workspaces} | {f.name for f in program.functions}
        if names & {self._copying(param), f"{b.name}_padded"}:
            return Miss(f"'{b.name}' is padded already")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Memory with longer rows, the kernel on it, and a kernel that copies."""
        kernel, param = kernel_of(program, site.path), matched(_tensor(program, self.tensor))
        assert isinstance(param.of, n.Buffer)
        b = param.of
        rows, width = b.shape
        longer = build.mul(build.ceildiv(width, self.multiple), self.multiple)
        wide = replace(b, name=f"{b.name}_padded", shape=(rows, longer), align=0)
        source, to = (b, wide) if param.role == "in" else (wide, b)
        row, part = (n.Var(x, dtype_of(width.type)) for x in ("row", "part"))
        here = (row, build.span(build.mul(part, PART), PART))
        zero = n.Const(0.0 if b.dtype.is_float else 0, b.dtype)
        copied = n.Store(build.region(to, *here), n.Load(build.region(source, *here), other=zero, clip=True), clip=True)
        grid = (n.Axis(row.name, rows), n.Axis(part.name, build.ceildiv(longer if param.role == "in" else width, PART)))
        beside = n.Kernel(self._copying(param), grid, build.const(THREADS), (copied,))
        mine = matched_as(substitute_buffers(kernel, {b.name: wide}), n.Kernel)
        pair = (beside, mine) if param.role == "in" else (mine, beside)
        kernels = tuple(x for k in program.kernels for x in (pair if k.name == kernel.name else (k,)))
        plan = tuple(x for s in program.plan for x in (
            tuple(n.Launch(k.name) for k in pair) if isinstance(s, n.Launch) and s.kernel == kernel.name else (s,)))
        made = replace(program, kernels=kernels, plan=plan, workspaces=(*program.workspaces, n.Workspace(wide)))
        return Rewritten(made, site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a kernel that works on memory with longer rows, which another kernel copies to or from a tensor."""
        if not isinstance(node, n.Kernel):
            return None
        out = []
        for p in program.params:
            if not (isinstance(p.of, n.Buffer) and p.role in ("in", "out")):
                continue
            wide = next((w.buffer for w in program.workspaces if w.buffer.name == f"{p.of.name}_padded"), None)
            multiple = _multiple(wide.shape[-1]) if wide is not None and len(wide.shape) == 2 else None
            if wide is not None and multiple is not None and mentions(node, wide.name) and node.name != self._copying(p) and any(
                    k.name == self._copying(p) for k in program.kernels):
                out.append(Site(path, PadRows(p.of.name, multiple)))
        return tuple(out)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The kernel on the tensor itself."""
        kernel, param = kernel_of(program, site.path), matched(_tensor(program, self.tensor))
        assert isinstance(param.of, n.Buffer)
        name = self._copying(param)
        mine = matched_as(substitute_buffers(kernel, {f"{self.tensor}_padded": param.of}), n.Kernel)
        kernels = tuple(mine if k.name == kernel.name else k for k in program.kernels if k.name != name)
        plan = tuple(s for s in program.plan if not (isinstance(s, n.Launch) and s.kernel == name))
        spaces = tuple(w for w in program.workspaces if w.buffer.name != f"{self.tensor}_padded")
        return Rewritten(replace(program, kernels=kernels, plan=plan, workspaces=spaces), site.path)

    def _copying(self, param: n.Param) -> str:
        """The name of the kernel that copies."""
        return f"{'pad' if param.role == 'in' else 'unpad'}_{param.name}"

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The tensor is read and written once more."""
        return Effect()


def _multiple(e: n.Expr) -> int | None:
    """What an extent was rounded up to a multiple of."""
    for x in walk(e):
        if isinstance(x, n.Binary) and x.op == "ceildiv" and (each := int_value(x.b)) is not None and e == build.mul(x, each):
            return each
    return None

