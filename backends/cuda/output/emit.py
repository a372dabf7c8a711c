"""A specialized thread-level program as CUDA C++: one `__global__` function per kernel, and the device functions that it uses."""
from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from importlib import resources

from kir.analysis.facts import Facts
from kir.analysis.target.legalize import launched_registers
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.ir import nodes as n
from kir.ir.binding import Binding, Map, Tensor
from kir.ir.build import int_value
from kir.ir.canonical import bound_names, content_hash
from kir.ir.names import own_words
from kir.ir.printer import expr_text
from kir.ir.rebuild.padded_rows import rows_in_memory
from kir.ir.rebuild.plans import guards_of, has_dispatch, launches, plan_of
from kir.ir.types import DType, TileType, dtype_of
from kir.ir.visit import walk
from kir.surface import NVCC_UNROLLS, Argument, Emitted, Entry, SourceLine

from ..._cpp_names import RESERVED
from ..expressions.expressions import PRODUCT, Expressions, Writer
from ..expressions.memory import Memory, bytes_of
from ..instructions import blackwell
from ..instructions.calls import Team
from ..instructions.hopper import generated
from ..spelling.literals import TYPES, c_type, refuse
from .assumed_alignment import assumed_alignment
from .statements import POOL_STEP, STATIC_SHARED, Statements
from .unit import launch, unit

Line = tuple[str, tuple[int | str, ...] | None]
"""A line of the text, and the path of the statement that it is written for."""
@dataclass(frozen=True)
class Written:
    """What one run of the emitter gives: the text unless there are refusals."""

    emitted: Emitted | None
    refusals: tuple[Diagnostic, ...]


class _Header(dict[str, tuple[str, tuple[str, ...]]]):
    """Functions by name, those of device.cuh in `fixed`; those of wgmma, tcgen05 and TMA, one for each shape or rank, are made when they are asked for."""

    fixed: tuple[str, ...] = ()

    def __missing__(self, name: str) -> tuple[str, tuple[str, ...]]:
        made = generated(name) or blackwell.generated(name)
        if made is None:
            raise KeyError(name)
        self[name] = made
        return made


@cache
def header() -> _Header:
    """The functions of device.cuh: text, and the functions that it needs."""
    text = (resources.files(__package__) / "device.cuh").read_text()
    out = _Header()
    for piece in re.split(r"^//@ ", text, flags=re.MULTILINE)[1:]:
        head, _, body = piece.partition("\n")
        name, _, needs = head.partition(" needs ")
        out[name] = (body.strip() + "\n", tuple(needs.split()))
    out.fixed = tuple(out)
    return out


def names_for(names: list[str], taken: set[str]) -> dict[str, str]:
    """A C++ name for each IR name."""
    out: dict[str, str] = {}
    used = {*RESERVED, *header(), *taken}
    for name in names:
        if name in out:
            continue
        base = re.sub(r"\W", "_", name)
        base = f"k{base}" if base[:1].isdigit() or base.startswith("__") else base
        while base in used:
            base += "_"
        used.add(base)
        out[name] = base
    return out


def write(program: n.Program) -> Written:
    """`program` as CUDA C++, with every refusal found on the way."""
    refusals = list(_program_refusals(program))
    if refusals:
        return Written(None, tuple(refusals))
    facts = Facts.from_program(program)
    functions = {f.name: f for f in _used(program)}
    top = names_for(list(functions), set())
    wanted = [f"{program.name}_{k.name}" if k.name in RESERVED else k.name for k in program.kernels]
    kernels = names_for(wanted, set(top.values()))
    globals_ = dict(zip((k.name for k in program.kernels), kernels.values(), strict=True))
    lines: list[Line] = []
    used: set[str] = set()
    made: dict[str, str] = {}
    entries = []
    local_names: dict[str, dict[str, str]] = {}
    for f in functions.values():
        local = names_for([*(x.name for x in f.params), *bound_names(f.body)], set(top.values()))
        part = _Part(program, facts, functions, {**top, **local})
        lines += part.function(f, top[f.name])
        refusals += part.refusals
        used |= part.used
        made |= part.written
    for k in program.kernels:
        params = _parameters(program)
        own = [*(p.name for p in params), *(m.name for m in program.tensor_maps), *(a.name for a in k.grid), *bound_names(k.body)]
        local = names_for(own, {*top.values(), *globals_.values()})
        part = _Part(program, Facts.in_kernel(program, k.name), functions, {**top, **local})
        local_names[k.name] = local
        try:
            text, entry = part.kernel(k, globals_[k.name], params)
            lines += text
            entries.append(entry)
        except KirError as refused:
            refusals += [replace(d, anchor=k.name, origin=k.origin) for d in refused.diagnostics]
        refusals += part.refusals
        used |= part.used
        made |= part.written
    if refusals:
        return Written(None, tuple(refusals))
    texts = [header()[name][0] for name in _closed(used)] + [made[name] for name in sorted(made)]
    text_of, before = unit(program.name, _includes(program), texts, [row for row, _ in lines])
    order = [step.kernel for step in launches(program)]
    overlapping = {s.kernel for s in launches(program) if dict(s.attrs).get("pdl")}
    by_name = {e.kernel: replace(e, options=(*e.options, ("pdl", True))) if e.kernel in overlapping else e for e in entries}
    source_map = tuple(SourceLine(i + before, path) for i, (_, path) in enumerate(lines, 1) if path is not None)
    launched = tuple(by_name[name] for name in order)
    started, unlaunched = "", "a kernel begins before the one before it ends" if overlapping else ""
    if not overlapping:
        given = [a for a in launched[0].arguments if a.kind != "map"]
        tensors = {p.name: p.of for p in _parameters(program) if isinstance(p.of, n.Buffer)}
        try:
            started = launch(top_name(program), launched, {p.name: a.name for p, a in zip(_parameters(program), given, strict=True)}, plan_of(program),
                             {m.name: (m, tensors[m.of]) for m in program.tensor_maps})
        except KirError as refused:
            if not (has_dispatch(program) or program.tensor_maps):
                raise
            unlaunched = refused.diagnostics[0].message  # a choice that C++ cannot say is left to the caller
    newer = any("__CUDA_ARCH__ >= 900" in text for text in texts)
    bindings = tuple((e.function, binding_text(program, e, local_names[e.kernel], newer)) for e in by_name.values())
    return Written(Emitted("cuda", content_hash(program), text_of, source_map, launched, bindings, started, unlaunched), ())


def top_name(program: n.Program) -> str:
    """The program's name as part of a C++ name."""
    return re.sub(r"\W", "_", program.name)


def binding_text(p: n.Program, e: Entry, names: dict[str, str], newer: bool = False) -> str:
    """What the frontend needs to read an emitted kernel back as the program: sizes, facts, tensors, grid, block, and (where the unit says
    something else to `newer` architectures) the target (TOML)."""
    def texts(expressions: tuple[n.Expr, ...]) -> list[str | int]:
        return [expr_text(x) for x in expressions]

    sizes = [q.name for q in p.params if q.role == "size" and q.value is None]
    called = {a.source: a.name for a in e.arguments}
    scalars = {called.get(q.name, q.name): expr_text(q.value) for q in p.params if q.value is not None and isinstance(q.of, DType)}
    scalars |= {called[x]: x for x in sizes if called.get(x, x) != x}
    kernel = next(k for k in p.kernels if k.name == e.kernel)
    dynamic = dict(e.options).get("dynamic_shared")
    arrays = {names.get(s.buffer.name, s.buffer.name): _shape_in_text(s.buffer, dynamic is not None) for s in walk(kernel)
              if isinstance(s, n.Alloc) and (s.buffer.space == "shared" or (s.buffer.space == "register" and len(s.buffer.shape) > 1)) and (
                  len(s.buffer.shape) != 1 or dynamic is not None)}
    maps = {}
    for m in p.tensor_maps:
        if any(a.kind == "map" and a.source == m.name for a in e.arguments):
            own, rest = names[m.name], dict(m.attrs)
            swizzle = int(rest.pop("swizzle")) if rest.get("swizzle") else 0
            maps[own] = Map(of=names[m.of], box=list(m.box), swizzle=swizzle, name=m.name if own != m.name else "", attrs=rest)
    flat = {s.at.buffer.name for s in walk(kernel) if isinstance(s, n.View) and not s.axes and not s.at.index}
    tensors = {}
    for a, q in zip(e.arguments, _parameters(p), strict=False):
        if isinstance(q.of, n.Buffer):
            strides = None if q.of.strides is None else texts(q.of.strides)
            tensors[a.name] = Tensor(shape=texts(q.of.shape), dtype=q.of.dtype.name, strides=strides, role=q.role, align=q.of.align,
                                     name=q.name if a.name != q.name else "", exact=len(q.of.shape) > 1 and q.name not in flat)
    words = own_words(called.values(), ("threads_x", "shared_bytes"))
    metas: dict[str, int | float | bool | str] = {words["threads_x"]: e.threads}
    if isinstance(dynamic, int):
        metas[words["shared_bytes"]] = dynamic
    made = Binding(kernel=e.function, sizes=sizes, facts=[expr_text(f) for f in (*p.facts, *guards_of(p, e.kernel))], grid=texts(e.grid) or ["1"],
                   scalars=dict(scalars),
                   metas=metas, tensors=tensors, arrays=arrays, maps=maps, options={"target": "sm_90a"} if newer else {})
    return made.text()


def _shape_in_text(b: n.Buffer, in_pool: bool) -> list[int]:
    """What the frontend is told of the axes of an array, which the text declares flat: with its axes in another order in memory, or rows that begin within
    one another, it has no axes but one, since `s[cur + t * 2]` names no row and column."""
    rows = rows_in_memory(b) if b.space == "shared" else ()
    if rows is None:
        return [bytes_of(b) // b.dtype.bytes]
    return list(rows) if rows and not in_pool else [int_value(d) or 1 for d in b.shape]


def _used(program: n.Program) -> list[n.Function]:
    """The device functions that kernels call, and those that they call in turn (combine functions are written where they are used)."""
    by_name, wanted = {f.name: f for f in program.functions}, set[str]()
    waiting: list[n.Node] = list(program.kernels)
    while waiting:
        for x in walk(waiting.pop()):
            if isinstance(x, n.Call) and x.of is not None and x.fn in by_name and x.fn not in wanted:
                wanted.add(x.fn)
                waiting.append(by_name[x.fn])
    return [f for f in program.functions if f.name in wanted]


_HEADERS = (("cuda_fp16.h", frozenset({"f16"})), ("cuda_bf16.h", frozenset({"bf16"})), ("cuda_fp8.h", frozenset({"f8e4m3", "f8e5m2"})))
"""Headers of the toolkit, and the dtypes that need them."""


def _includes(p: n.Program) -> list[str]:
    dtypes = {b.dtype.name for b in walk(p) if isinstance(b, n.Buffer)} | {x.dtype.name for x in walk(p) if isinstance(x, n.Cast)}
    dtypes |= {dtype_of(x.type).name for x in walk(p) if isinstance(x, n.Call) and isinstance(x.type, (DType, TileType))}
    out = ["cassert", "cmath", "cstring"]
    if any(isinstance(x, n.Call) and x.fn == "print" for x in walk(p)):
        out.insert(2, "cstdio")
    if p.tensor_maps:
        out.append("cuda.h")
    return out + [file for file, names in _HEADERS if names & dtypes]


def _closed(used: set[str]) -> list[str]:
    """Used functions of the header with those they need, in the header's order; then those that are made, by name, whatever was asked for before."""
    every = set(used)
    for name in used:
        every |= set(header()[name][1])
    return [*(name for name in header().fixed if name in every), *sorted(every - set(header().fixed))]


def _program_refusals(p: n.Program) -> list[Diagnostic]:
    out = []
    symbolic = [q.name for q in p.params if (q.of if isinstance(q.of, DType) else q.of.dtype).is_symbolic]
    if p.metas or symbolic:
        names = ", ".join([*(m.name for m in p.metas), *symbolic][:4])
        out.append(Diagnostic("KIR-B001", f"the program is generic in {names}", subject=p.name, needs="a binding: `specialize` it first"))
    if p.structs:
        out.append(Diagnostic("KIR-B002", f"the CUDA backend does not write structs ('{p.structs[0].name}')", subject=p.name))
    if not p.kernels:
        out.append(Diagnostic("KIR-B002", "the program has no kernel", subject=p.name))
    return out


def _parameters(p: n.Program) -> list[n.Param]:
    """The program's parameters in ABI order, then its workspaces."""
    return [*p.params, *(n.Param(w.buffer.name, "inout", w.buffer) for w in p.workspaces)]


@dataclass
class _Part:
    """One function being written."""

    program: n.Program
    facts: Facts
    functions: dict[str, n.Function]
    names: dict[str, str]

    def __post_init__(self) -> None:
        self.refusals: list[Diagnostic] = []
        self.used: set[str] = set()
        self.written: dict[str, str] = {}

    def function(self, f: n.Function, name: str) -> list[Line]:
        """A device function of scalars; several results are written to references."""
        writer, memory = Writer(frozenset(self.names.values())), Memory()
        to = Expressions(self.names, self.facts, writer, memory, self.functions)
        several = tuple(writer.fresh("result") for _ in f.results) if len(f.results) > 1 else ()
        body = Statements(to, memory, 1, {}, results=several)
        try:
            kinds = [x.of for x in f.params if isinstance(x, n.Var)]
            if len(kinds) != len(f.params) or not all(isinstance(t, DType) for t in (*kinds, *f.results)):
                raise refuse("KIR-B002", f"function '{f.name}' has parameters that are no scalars")
            result = c_type(f.results[0]) if len(f.results) == 1 and isinstance(f.results[0], DType) else "void"
            given = [f"{c_type(x.of)} {self.names[x.name]}" for x in f.params if isinstance(x, n.Var) and isinstance(x.of, DType)]
            given += [f"{c_type(t)}& {name}" for t, name in zip(f.results, several, strict=False) if isinstance(t, DType)]
            params = ", ".join(given)
        except KirError as refused:
            self.refusals += [replace(d, anchor=f.name) for d in refused.diagnostics]
            return []
        body.block(f.body, (f.name,), Team(1))
        self.refusals += body.refusals
        self.used |= to.used
        self.written |= to.written
        return [("", None), (f"__device__ __forceinline__ {result} {name}({params}) {{", None), *writer.lines, ("}", None)]

    def kernel(self, k: n.Kernel, name: str, params: list[n.Param]) -> tuple[list[Line], Entry]:
        """A kernel and its launch. Raises KirError KIR-B007 for a launch that CUDA cannot make."""
        threads = int_value(k.threads)
        if threads is None or not 1 <= threads <= 1024:
            raise refuse("KIR-B007", "a CTA has 1 to 1024 threads, known when it is compiled")
        shared = [s.buffer for s in walk(k) if isinstance(s, n.Alloc) and s.buffer.space == "shared"]
        pool = _pool(shared)
        writer, memory = Writer(frozenset(self.names.values()), alone=threads == 1), Memory()
        to = Expressions(self.names, self.facts, writer, memory, self.functions)
        if pool:
            writer.put("extern __shared__ __align__(1024) unsigned char shared_pool[];")
        grid = _grid(k, to, writer)
        for axis in k.grid:
            assert isinstance(axis.extent.type, DType)
            to.facts = to.facts.ranging(n.Var(axis.name, axis.extent.type), n.Const(0, axis.extent.type), axis.extent)
        read_only = {p.name for p in self.program.params if p.role == "in"}
        body = Statements(to, memory, threads, pool, program=self.program, constant=read_only, rolled=not dict(k.attrs).get(NVCC_UNROLLS),
                          launched=launched_registers(k) or 0)
        body.block(k.body, (k.name,), Team(threads))
        self.refusals += body.refusals
        self.used |= to.used
        self.written |= to.written
        attrs = dict(k.attrs)
        if "raster_panel" in attrs:
            raise refuse("KIR-B007", "a launch of CUDA has no option that hands out CTAs in panels", "the panels computed in the kernel (raster-l2)")
        if {"maxnreg", "min_ctas"} <= attrs.keys():
            raise refuse("KIR-B007", "nvcc takes a kernel's registers, or how many CTAs of it are resident, and not both", "one of maxnreg and min_ctas")
        ctas = f", {attrs['min_ctas']}" if "min_ctas" in attrs else ""
        bounds = f"__maxnreg__({attrs['maxnreg']})" if "maxnreg" in attrs else f"__launch_bounds__({threads}{ctas})"
        cluster = (*k.cluster, 1, 1)[:3] if any(c != 1 for c in k.cluster) else ()
        if cluster and len(k.grid) > 3:
            raise refuse("KIR-B007", "a cluster of a grid whose axes are numbered in one line", "a grid of up to three axes")
        bounds += f" __cluster_dims__({', '.join(map(str, cluster))})" if cluster else ""
        maps = self._maps(k)
        listed = ",\n".join([*(f"    {self._parameter(p)}" for p in params), *(f"    const __grid_constant__ CUtensorMap {self.names[m.name]}" for m in maps)])
        rows = ["", f'extern "C" __global__ void {bounds}', *f"{name}(\n{listed}) {{".splitlines()]
        dynamic = max((offset + bytes_of(b) for b in shared for offset in (pool.get(b.name, 0),)), default=0) if pool else 0
        options: tuple[tuple[str, int | str], ...] = (("dynamic_shared", dynamic),) if dynamic else ()
        options += (("cluster", "x".join(map(str, cluster))),) if cluster else ()
        arguments = (*(self._argument(p, k) for p in params), *(Argument(self.names[m.name], "map", self._dtype_of(m), of=m.name) for m in maps))
        entry = Entry(k.name, name, arguments, grid, threads, options)
        return [*((row, None) for row in rows), *_used_or_said(writer.lines), ("}", None)], entry

    def _maps(self, k: n.Kernel) -> list[n.TensorMap]:
        """The tensor maps that a kernel's copies go by, or that it fetches, in the program's order."""
        used = {str(dict(x.attrs).get("descriptor", "")) for x in walk(k) if isinstance(x, (n.Copy, n.Call))}
        return [m for m in self.program.tensor_maps if m.name in used]

    def _dtype_of(self, m: n.TensorMap) -> str:
        """The dtype of the tensor that a map describes."""
        return next(p.of.dtype.name for p in _parameters(self.program) if isinstance(p.of, n.Buffer) and p.name == m.of)

    def _parameter(self, p: n.Param) -> str:
        name = self.names[p.name]
        if not isinstance(p.of, n.Buffer):
            return f"const {c_type(p.of)} {name}"
        restrict = " __restrict__" if dict(p.attrs).get("restrict") else ""
        return f"{'const ' if p.role == 'in' else ''}{c_type(p.of.dtype)}*{restrict} {name}"

    def _argument(self, p: n.Param, k: n.Kernel) -> Argument:
        name = self.names[p.name]
        if isinstance(p.of, n.Buffer):
            return Argument(name, "pointer", p.of.dtype.name, assumed_alignment(k, p.of), p.name)
        return Argument(name, "scalar", p.of.name, of=p.name)


def _used_or_said(lines: list[Line]) -> list[Line]:
    """Lines in which a constant that nothing reads (an axis of the grid, say) is declared so."""
    count = Counter(word for text, _ in lines for word in re.findall(r"\w+", text))
    out: list[Line] = []
    for text, path in lines:
        found = re.match(r"( *)const [\w ]+ (\w+) = ", text)
        out.append((f"{found[1]}[[maybe_unused]] {text.lstrip()}" if found and count[found[2]] == 1 else text, path))
    return out


def _pool(shared: list[n.Buffer]) -> dict[str, int]:
    """Offsets in dynamic shared memory, where the arrays together are more than may be declared statically."""
    if sum(bytes_of(b) for b in shared) <= STATIC_SHARED:
        return {}
    out, at = {}, 0
    for b in shared:
        step = max(POOL_STEP, b.align)
        at = -(-at // step) * step
        out[b.name] = at
        at += bytes_of(b)
    return out


def _grid(k: n.Kernel, to: Expressions, writer: Writer) -> tuple[n.Expr, ...]:
    """The CTA's place: x, y and z, or one linear axis taken apart where there are more than three."""
    names = to.names
    if len(k.grid) <= 3:
        for a, axis in zip(k.grid, "xyz", strict=False):
            assert isinstance(a.extent.type, DType)
            writer.put(f"const {TYPES[a.extent.type.name]} {names[a.name]} = blockIdx.{axis};")
        return tuple(a.extent for a in k.grid)
    rest = writer.fresh("linear")
    writer.put(f"unsigned {rest} = blockIdx.x;")
    product: n.Expr | None = None
    for i, a in enumerate(k.grid):
        assert isinstance(a.extent.type, DType)
        kind = TYPES[a.extent.type.name]
        if i + 1 < len(k.grid):
            extent = to.scalar(a.extent, PRODUCT + 1)
            writer.put(f"const {kind} {names[a.name]} = {rest} % {extent};")
            writer.put(f"{rest} /= {extent};")
        else:
            writer.put(f"const {kind} {names[a.name]} = {rest};")
        product = a.extent if product is None else n.Binary("mul", product, a.extent)
    return () if product is None else (product,)


