"""A specialized program as a Triton module: one jit function per kernel and per combine function."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.ir import nodes as n
from kir.ir.binding import Binding, Setting, Tensor
from kir.ir.build import int_value
from kir.ir.canonical import bound_names, content_hash
from kir.ir.names import unlike
from kir.ir.printer import expr_text
from kir.ir.rebuild.plans import guards_of, launches
from kir.ir.rules.generic import is_generic
from kir.ir.types import DType
from kir.ir.visit import walk
from kir.surface import Argument, Emitted, Entry, SourceLine

from ..._wrap import wrapped
from ..generic.program import can_write, write_generic
from ..tiles.expressions import BODIES, DTYPES, Expressions, refuse
from ..tiles.marks import Marks
from ..tiles.memory import Memory
from ..tiles.names import TAKEN, spelled
from ..tiles.scalar_fragments import with_scalars
from ..tiles.statements import Line, Statements, common_stages
from .naming import named

WARP = 32
DIVISOR = 16
"""Alignment in bytes of pointers, and the divisor of sizes, that Triton's compiler can make use of."""
_KERNEL_OPTIONS = {"maxnreg": "maxnreg", "num_ctas": "num_ctas"}


@dataclass(frozen=True)
class Written:
    """What one run of the emitter gives: the text unless there are refusals."""

    emitted: Emitted | None
    refusals: tuple[Diagnostic, ...]


def write(program: n.Program, readable: bool = False) -> Written:
    """`program` as Triton source, with every refusal found on the way; where it is to be `readable`, what is said more than once has a name."""
    if is_generic(program) and can_write(program):
        return Written(*write_generic(program))
    refusals = list(program_refusals(program))
    if refusals:
        return Written(None, tuple(refusals))
    own, program = program, replace(program, kernels=tuple(map(with_scalars, program.kernels)))
    functions = {f.name: f for f in program.functions}
    top = spelled([*functions, *(k.name for k in program.kernels)], BODIES)
    facts = Facts.from_program(program)
    chunks: list[list[Line]] = []
    entries: list[Entry] = []
    uses_libdevice, combines = False, set[str]()
    for f in program.functions:
        names = {**top, **spelled([*(x.name for x in f.params), *bound_names(f.body)], top.values())}
        memory = Memory()
        to = Expressions(names, facts, functions, memory)
        body = Statements(to, memory, 1, in_function=True)
        body.block(f.body, (f.name,), 1)
        refusals += body.refusals
        head = [("@triton.jit", None), (f"def {top[f.name]}({', '.join(names[x.name] for x in f.params)}):", None)]
        chunks.append([*head, *body.lines])
        uses_libdevice = uses_libdevice or to.uses_libdevice
        combines |= set(to.combines.values())
    for k in program.kernels:
        params = _parameters(program, k)
        locals_ = [a.name for a in k.grid] + list(bound_names(k.body))
        names = {**top, **spelled([*(p.name for p in params), *locals_], top.values())}
        memory = Memory(hosted=bool(dict(k.attrs).get("host_descriptors")),
                        marks=Marks() if readable and not any(isinstance(x, n.Opaque) for s in k.body for x in walk(s)) else None)
        known = Facts.in_kernel(program, k.name)
        to = Expressions(names, known, functions, memory)
        for axis in k.grid:
            to.facts = to.facts.ranging(n.Var(axis.name, axis.extent.type), n.Const(0, _integer(axis.extent)), axis.extent)
        body = Statements(to, memory, common_stages(k), workspaces=frozenset(w.buffer.name for w in program.workspaces))
        body.block(k.body, (k.name,), 1)
        refusals += [replace(d, anchor=d.anchor or k.name) for d in body.refusals]
        given = memory.given("\n".join(line for line, _ in body.lines), to)
        spoken = {p.name: given[p.name][0] if p.name in given else names[p.name] for p in params}
        head = [("@triton.jit", None), (f"def {top[k.name]}({', '.join(spoken.values())}):", None)]
        lines = [*(grid := _grid_lines(k, to, names)), *((f"    {line}", None) for line in memory.descriptor_lines(to, given)), *body.lines]
        if memory.marks is not None:
            lines = [(x, path) for line, path in named(lines, memory.marks, {*names.values(), *TAKEN, *memory.descriptors}, len(grid)) for x in wrapped(line)]
        chunks.append([*head, *lines])
        uses_libdevice = uses_libdevice or to.uses_libdevice
        combines |= set(to.combines.values())
        try:
            entries.append(entry(program, k, top[k.name], [(spoken[p.name], p) for p in params], known, {x: (b, box) for x, (_, b, box) in given.items()}))
        except KirError as refused:
            refusals += [replace(d, anchor=k.name, origin=k.origin) for d in refused.diagnostics]
    if refusals:
        return Written(None, tuple(refusals))
    chunks[:0] = [[("@triton.jit", None), (f"def {name}(a, b):", None), (f"    return {BODIES[name]}", None)] for name in sorted(combines)]
    header = ["import triton", "import triton.language as tl", *(["from triton.language.extra import libdevice"] if uses_libdevice else [])]
    every: list[Line] = [(line, None) for line in header]
    for chunk in chunks:
        every += [("", None), ("", None), *chunk]
    source_map = tuple(SourceLine(i, path) for i, (_, path) in enumerate(every, 1) if path is not None)
    order = {k.kernel: k for k in entries}
    launched = [step.kernel for step in launches(program)]
    text = "\n".join(line for line, _ in every) + "\n"
    bindings = tuple((e.function, binding_text(program, e)) for e in entries)
    return Written(Emitted("triton", content_hash(own), text, source_map, tuple(order[name] for name in launched), bindings), ())


def binding_text(p: n.Program, e: Entry) -> str:
    """What the frontend needs to read an emitted kernel back as the program: sizes, tensors, grid, launch options (TOML)."""
    sizes = [q.name for q in p.params if q.role == "size" and q.value is None]
    spelled = {a.source: a.name for a in e.arguments}
    scalars = {spelled.get(q.name, q.name): expr_text(q.value) for q in p.params if q.value is not None and isinstance(q.of, DType)}
    scalars |= {spelled[x]: x for x in sizes if spelled.get(x, x) != x}
    dtypes = {spelled.get(q.name, q.name): q.of.name for q in p.params if q.role == "scalar" and q.value is None and isinstance(q.of, DType)}
    tensors, shown = {}, {a.source: a.shown for a in e.arguments if a.shown is not None}
    for q in (*p.params, *(n.Param(w.buffer.name, "inout", w.buffer) for w in p.workspaces)):
        if isinstance(q.of, n.Buffer) and q.name in spelled:
            name = spelled[q.name]
            strides = None if q.of.strides is None else _texts(q.of.strides)
            tensors[name] = Tensor(shape=_texts(shown.get(q.name, q.of).shape), dtype=q.of.dtype.name, strides=strides, name=q.name if q.name != name else "",
                                   role=q.role, align=q.of.align)
    alone = {"threads": 1} if any(k.name == e.kernel and int_value(k.threads) == 1 for k in p.kernels) else {}
    blocks: dict[str, Setting] = {f"{a.name}_block_{i}": extent for a in e.arguments for i, extent in enumerate(a.box)}
    made = Binding(kernel=e.function, sizes=sizes, metas=blocks, facts=[expr_text(f) for f in (*p.facts, *guards_of(p, e.kernel))],
                   grid=_texts(e.grid) or ["1"], scalars=dict(scalars),
                   dtypes=dtypes, tensors=tensors, options={**dict(e.options), **alone})
    return made.text()


def _texts(expressions: tuple[n.Expr, ...]) -> list[str | int]:
    return [expr_text(e) for e in expressions]


def _integer(e: n.Expr) -> DType:
    assert isinstance(e.type, DType)
    return e.type


def program_refusals(p: n.Program) -> list[Diagnostic]:
    """What concerns the program as a whole."""
    out = []
    symbolic = [q.name for q in p.params if (q.of if isinstance(q.of, DType) else q.of.dtype).is_symbolic]
    if p.metas or symbolic:
        names = ", ".join([*(m.name for m in p.metas), *symbolic][:4])
        out.append(Diagnostic("KIR-B001", f"the program is generic in {names}", subject=p.name, needs="a binding: `specialize` it first"))
    if p.tensor_maps:
        out.append(Diagnostic("KIR-B002", f"Triton makes its tensor maps itself ('{p.tensor_maps[0].name}')", subject=p.name,
                              needs="copies via tma without a map"))
    if p.structs:
        out.append(Diagnostic("KIR-B002", f"Triton has no struct ('{p.structs[0].name}')", subject=p.name))
    if not p.kernels:
        out.append(Diagnostic("KIR-B002", "the program has no kernel", subject=p.name))
    return out


def _parameters(p: n.Program, k: n.Kernel) -> list[n.Param]:
    """The parameters of a kernel's function: all of a program that has one kernel, else those used; workspaces after them."""
    workspaces = [n.Param(w.buffer.name, "inout", w.buffer) for w in p.workspaces]
    every = [*p.params, *workspaces]
    if len(p.kernels) == 1:
        return every
    used = {x.name for s in (*k.body, *k.grid) for x in walk(s) if isinstance(x, (n.Var, n.Buffer))}
    shapes = [q.of for q in every if q.name in used and isinstance(q.of, n.Buffer)]
    used |= {x.name for b in shapes for x in walk(b) if isinstance(x, n.Var)}
    return [q for q in every if q.name in used]


def _grid_lines(k: n.Kernel, to: Expressions, names: dict[str, str]) -> list[Line]:
    """The CTA's place in the grid: an axis each, or one linear axis taken apart where there are more than three."""
    if len(k.grid) <= 3:
        return [(f"    {names[a.name]} = tl.program_id({i})", None) for i, a in enumerate(k.grid)]
    linear = unlike("pid", set(names.values()))
    out: list[Line] = [(f"    {linear} = tl.program_id(0)", None)]
    rest = linear
    for a in k.grid[:-1]:
        extent = to.text(a.extent, 8)
        out += [(f"    {names[a.name]} = {rest} % {extent}", None)]
        rest = f"({rest} // {extent})" if rest == linear else f"({rest[1:-1]} // {extent})"
    return [*out, (f"    {names[k.grid[-1].name]} = {rest[1:-1]}", None)]


def entry(p: n.Program, k: n.Kernel, function: str, params: list[tuple[str, n.Param]], facts: Facts,
          boxes: Mapping[str, tuple[n.Buffer, tuple[int, ...]]] | None = None) -> Entry:
    """How a kernel is launched: arguments in order, of tensors with `boxes` as descriptors of those, grid, options. Raises KirError KIR-B004 and KIR-B007."""
    threads = int_value(k.threads)
    warps = 1 if threads == 1 else (threads or 0) // WARP
    if threads is None or warps < 1 or warps & (warps - 1) or threads not in (1, warps * WARP) or warps > 32:
        raise refuse("KIR-B007", "Triton runs a power of two of whole warps in a CTA",
                     needs="32, 64, 128, .. threads, or 1 for a scalar program")
    if k.cluster and any(c != 1 for c in k.cluster):
        raise refuse("KIR-B007", "Triton code cannot shape a cluster", needs="num_ctas")
    if "raster_panel" in dict(k.attrs):
        raise refuse("KIR-B007", "Triton has no option that hands out CTAs in panels", needs="the panels computed in the kernel (raster-l2)")
    arguments, own = [], {w.buffer.name for w in p.workspaces}  # allocations of their own, which Triton's launcher finds aligned
    for name, q in params:
        dtype = q.of if isinstance(q.of, DType) else q.of.dtype
        if dtype.name not in DTYPES:
            raise refuse("KIR-B004", f"Triton has no dtype {dtype} (parameter '{q.name}')")
        if boxes and q.name in boxes:
            arguments.append(Argument(name, "map", dtype.name, 1, q.name, *boxes[q.name]))
        elif isinstance(q.of, n.Buffer):
            aligned = q.name in own or bool(q.of.align and q.of.align % DIVISOR == 0)
            arguments.append(Argument(name, "pointer", dtype.name, DIVISOR if aligned else 1, q.name))
        else:
            known = dtype.is_integer and facts.divides(DIVISOR, n.Var(q.name, dtype))
            arguments.append(Argument(name, "scalar", dtype.name, DIVISOR if known else 1, q.name))
    attrs = dict(k.attrs)
    options: dict[str, int | float | str | bool] = {"num_warps": warps, "num_stages": common_stages(k)}
    for name, value in attrs.items():
        if name in _KERNEL_OPTIONS:
            options[_KERNEL_OPTIONS[name]] = value
    grid = tuple(a.extent for a in k.grid)
    if len(grid) > 3:
        product = grid[0]
        for extent in grid[1:]:
            product = n.Binary("mul", product, extent)
        grid = (product,)
    return Entry(k.name, function, tuple(arguments), grid, warps * WARP, tuple(sorted(options.items())))
