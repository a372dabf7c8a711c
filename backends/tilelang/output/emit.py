"""A specialized program as a TileLang module: a factory for each kernel, which takes the sizes and gives the prim_func."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kir.analysis.access import Aliases
from kir.analysis.facts import Facts
from kir.analysis.target.legalize import launched_registers
from kir.analysis.tiles.seen_through import seen_through, without_idle_views
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.ir import nodes as n
from kir.ir.binding import Binding, Tensor
from kir.ir.build import int_value
from kir.ir.canonical import bound_names, content_hash
from kir.ir.printer import expr_text
from kir.ir.rules.generic import is_generic
from kir.ir.types import DTYPES, DType
from kir.ir.visit import walk
from kir.surface import Argument, Emitted, Entry, Option, SourceLine

from ..form.form import distributed_arrays, prepared
from ..form.origins import marked
from ..form.reducers import sums_of
from ..form.roles import cleared
from ..spelling.cuda_functions import functions
from ..spelling.expressions import Expressions, refuse
from ..spelling.names import PYTHON, TAKEN, fresh, spelled
from .counted_between_roles import counted_between_roles
from .operands_in_registers import operands_in_registers
from .statements import Line, Statements
from .tiles import Tiles

SIZE = "size."
"""The options of an entry that fix a size for one variant begin so."""


@dataclass(frozen=True)
class Written:
    """What one run of the emitter gives: the text unless there are refusals."""

    emitted: Emitted | None
    refusals: tuple[Diagnostic, ...]


def write(program: n.Program) -> Written:
    """`program` as TileLang source, with every refusal found on the way."""
    generic = is_generic(program)
    refusals = program_refusals(program)
    if refusals:
        return Written(None, tuple(refusals))
    try:
        said = prepared(without_idle_views(seen_through(marked(program))), generic)
    except KirError as refused:
        return Written(None, tuple(refused.diagnostics))
    said = replace(said, kernels=tuple(map(cleared, said.kernels)))
    chunks: list[list[Line]] = []
    entries: list[Entry] = []
    top = spelled(k.name for k in said.kernels)
    factories: dict[str, str] = {}
    imports: set[str] = set()
    whole = generic and (len(said.kernels) > 1 or bool(said.workspaces))
    parts: list[tuple[n.Kernel, Expressions, Statements]] = []
    for k in said.kernels:
        params = parameters(said, k) if not whole else [*said.params]
        locals_ = [*(a.name for a in k.grid), *bound_names(k.body), *(w.buffer.name for w in said.workspaces if whole)]
        names = {**top, **spelled([*(m.name for m in said.metas), *(p.name for p in params), *locals_], top.values(),
                                  PYTHON if generic else TAKEN)}
        to = Expressions(names, Facts.from_program(said), metas={m.name: m.kind for m in said.metas}, threads=int_value(k.threads) or 0,
                         fast=dict(k.attrs).get("tl_enable_fast_math") is True)
        tiles = Tiles(to, int_value(k.threads) or 0, aliases=Aliases(said))
        body = Statements(to, tiles, sums=sums_of(k.body), distributed=distributed_arrays(k.body), team=k.threads, launched=launched_registers(k) or 0,
                          known=Facts.in_kernel(said, k.name), sizes=frozenset(p.name for p in said.params if isinstance(p.of, DType)))
        parts.append((k, to, body))
        if whole and k is not said.kernels[-1]:
            continue
        wanted = said.name if len(said.kernels) == 1 and said.name != k.name else f"{(said if whole else k).name}_kernel"
        factories[k.name] = fresh(wanted, {*names.values(), *factories.values()})
        lines = _factory(said, parts, factories[k.name], params, generic)
        for one, to, body in parts:
            refusals += [replace(d, anchor=d.anchor or one.name) for d in body.refusals]
            imports |= to.imports
        chunks.append(lines)
        entries += [_entry(one, top[one.name], factories[k.name], [(names[p.name], p) for p in params]) for one, _, _ in parts]
        parts = []
    if refusals:
        return Written(None, tuple(refusals))
    rows: list[Line] = [*((f"import {x}", None) for x in sorted(imports)), *([("", None)] if imports else []),
                        ("import tilelang", None), ("import tilelang.language as T", None)]
    for chunk in chunks:
        rows += [("", None), ("", None), *chunk]
    source_map = tuple(SourceLine(i, path) for i, (_, path) in enumerate(rows, 1) if path is not None)
    order = {e.kernel: e for e in entries}
    launched = [step.kernel for step in program.plan if isinstance(step, n.Launch)] or [k.name for k in program.kernels]
    text = "\n".join(line for line, _ in rows) + "\n"
    bindings = () if generic else tuple((e.function, binding_text(program, e)) for e in entries)
    return Written(Emitted("tilelang", content_hash(program), text, source_map, tuple(order[name] for name in launched), bindings), ())


def _factory(p: n.Program, parts: Sequence[tuple[n.Kernel, Expressions, Statements]], factory: str, params: list[n.Param],
             generic: bool) -> list[Line]:
    """A factory, the prim_func in it, and one kernel after another in that."""
    first, to, body = parts[0]
    inner, metas = to.names[first.name], p.metas
    attrs = dict(first.attrs)
    sizes = [q for q in params if is_size(q)]
    configs = {name: attrs[name] for name in attrs if name.startswith("tl_")}
    given = [_meta(m, to) for m in sorted(metas, key=lambda m: m.default is not None or m.kind == "any")] if generic else [
        to.names[q.name] for q in sizes]
    head: list[Line] = [("@tilelang.jit" + (f"(pass_configs={{{_configs(configs)}}})" if configs else ""), None),
                        (f"def {factory}({', '.join(given)}):", None)]
    for q in sizes if generic else ():
        wide = "" if isinstance(q.of, DType) and q.of.name == "i32" else f", {to.dtype(q.of) if isinstance(q.of, DType) else ''}"
        body.put(f'{to.names[q.name]} = T.dynamic("{q.name}"{wide})', 1, None)
    body.put("@T.prim_func", 1, None)
    try:
        tensors = ", ".join(f"{to.names[q.name]}: {_annotation(q, to)}" for q in params if not is_size(q))
        body.put(f"def {inner}({tensors}):", 1, None)
        for w in p.workspaces if generic else ():
            shape = ", ".join(to.text(d) for d in w.buffer.shape)
            body.put(f"{to.names[w.buffer.name]} = T.alloc_global(({shape}{',' if len(w.buffer.shape) == 1 else ''}), {to.dtype(w.buffer.dtype)})", 2, None)
    except KirError as refused:
        body.refusals += [replace(d, anchor=first.name, origin=first.origin) for d in refused.diagnostics]
    for k, _, written in parts:
        _kernel(k, written, configs)
    body.put(f"return {inner}", 1, None) if len(parts) == 1 else parts[-1][2].put(f"return {inner}", 1, None)
    worked_out: list[Line] = [(f"    {name} = {text}", None) for _, each, _ in parts for name, text in each.derived.values()]
    return [*head, *dict.fromkeys(worked_out), *(line for _, _, written in parts for line in written.lines)]


def _kernel(k: n.Kernel, body: Statements, configs: Mapping[str, n.Attr]) -> None:
    """`with T.Kernel(..)` and what it does."""
    to, attrs = body.to, {name: value for name, value in k.attrs if name not in configs}
    try:
        extents = ", ".join(to.text(a.extent) for a in k.grid)
        axes = ", ".join(to.names[a.name] for a in k.grid)
        options = f", cluster_dims=({', '.join(map(str, k.cluster))})" if k.cluster and any(c != 1 for c in k.cluster) else ""
        shown = "" if not k.grid else f" as ({axes},)" if len(k.grid) == 1 else f" as ({axes})"
        body.put(f"with T.Kernel({extents}{', ' if extents else ''}threads={to.text(k.threads)}{options}){shown}:", 2, (k.name,))
        for line in [*_annotations(attrs, to), *_sources(k)]:
            body.put(line, 3, None)
    except KirError as refused:
        body.refusals += [replace(d, anchor=k.name, origin=k.origin) for d in refused.diagnostics]
    body.block(k.body, (k.name,), 3)


def _sources(k: n.Kernel) -> list[str]:
    """CUDA source in front of the kernel, of what it does that TileLang cannot say."""
    text = "\n".join([*functions(k), ""])  # TileLang's own directives follow
    return [f"T.import_source({text!r})"] if text else []


def _meta(m: n.Meta, to: Expressions) -> str:
    """A parameter of the factory, with its kind where a default does not say it."""
    kind = {"int": "int", "bool": "bool", "float": "float", "str": "str"}.get(m.kind, "")
    if m.default is None:
        return f"{to.names[m.name]}{f': {kind}' if kind else '=None' if m.kind == 'any' else ''}"
    shown = to.dtype(DTYPES[m.default]) if m.kind == "dtype" and isinstance(m.default, str) and m.default in DTYPES else repr(m.default)
    if isinstance(m.default, float) and not math.isfinite(m.default):
        shown = f'float("{m.default}")'
    return f"{to.names[m.name]}{f': {kind} = ' if kind else '='}{shown}"


def _configs(configs: dict[str, n.Attr]) -> str:
    return ", ".join(f"tilelang.PassConfigKey.{name.upper()}: {value!r}" for name, value in configs.items())


def _annotations(attrs: dict[str, n.Attr], to: Expressions) -> list[str]:
    """Statements for a kernel's attributes. Raises KirError KIR-B301 for one that TileLang cannot say."""
    out = []
    if "raster_panel" in attrs:
        order = str(attrs.pop("raster_order", "row"))
        when = f", enable={to.option(attrs.pop('raster_when'))}" if "raster_when" in attrs else ""
        out.append(f"T.use_swizzle({to.option(attrs.pop('raster_panel'))}{'' if order == 'row' else f', order={order!r}'}{when})")
    if "min_ctas" in attrs:
        out.append(f"T.annotate_min_blocks_per_sm({to.option(attrs.pop('min_ctas'))})")
    if "l2_hit_ratio" in attrs:
        pairs = [p.partition("=") for p in str(attrs.pop("l2_hit_ratio")).split(",")]
        out.append(f"T.annotate_l2_hit_ratio({{{', '.join(f'{to.names.get(name, name)}: {ratio}' for name, _, ratio in pairs)}}})")
    for name, word in _HINTS.items():
        if name in attrs:
            value = attrs.pop(name)
            out.append(f"{word}({'' if value is True else to.option(value)})")
    if attrs:
        raise refuse("KIR-B301", f"a kernel of TileLang has no option '{next(iter(attrs))}'", "the kernel without it")
    return out


_HINTS = {"producer_registers": "T.annotate_producer_reg_dealloc", "consumer_registers": "T.annotate_consumer_reg_alloc",
          "no_set_max_nreg": "T.no_set_max_nreg"}
"""Attributes of a kernel that a statement of its own says."""


def _annotation(q: n.Param, to: Expressions) -> str:
    if isinstance(q.of, DType):
        return "T." + to.dtype(q.of).strip('"')
    shape = ", ".join(to.text(d) for d in q.of.shape)
    shown = f"({shape}{',' if len(q.of.shape) == 1 else ''})"
    if q.of.layout is not None:
        raise refuse("KIR-B302", f"'{q.name}' has a layout, and global memory is addressed by strides in TileLang")
    if q.of.strides is None:
        return f"T.Tensor({shown}, {to.dtype(q.of.dtype)})"
    strides = ", ".join(to.text(d) for d in q.of.strides)
    return f"T.StridedTensor({shown}, ({strides}{',' if len(q.of.strides) == 1 else ''}), {to.dtype(q.of.dtype)})"


def is_size(q: n.Param) -> bool:
    """Whether a parameter belongs to the factory: an integer that shapes may depend on."""
    return isinstance(q.of, DType) and (q.role == "size" or q.value is not None) and q.of.is_integer


def parameters(p: n.Program, k: n.Kernel) -> list[n.Param]:
    """The parameters of a kernel's function: all of a program that has one kernel, else those used; workspaces after them."""
    every = [*p.params, *(n.Param(w.buffer.name, "inout", w.buffer) for w in p.workspaces)]
    if len(p.kernels) == 1:
        return every
    used = {x.name for s in (*k.body, *k.grid) for x in walk(s) if isinstance(x, (n.Var, n.Buffer))}
    shapes = [q.of for q in every if q.name in used and isinstance(q.of, n.Buffer)]
    used |= {x.name for b in shapes for x in walk(b) if isinstance(x, n.Var)}
    return [q for q in every if q.name in used]


def _entry(k: n.Kernel, function: str, factory: str, params: list[tuple[str, n.Param]]) -> Entry:
    """How a kernel is launched: arguments, grid, threads (the compiler may add some)."""
    arguments = []
    for name, q in params:
        kind, dtype = ("pointer", q.of.dtype.name) if isinstance(q.of, n.Buffer) else ("scalar", q.of.name)
        arguments.append(Argument(name, kind, dtype, 1, q.name))  # type: ignore[arg-type]  # one of the two
    return Entry(k.name, function, tuple(arguments), tuple(a.extent for a in k.grid), int_value(k.threads) or 0, (("factory", factory),))


def fixed(e: Entry, sizes: Mapping[str, int]) -> tuple[tuple[str, Option], ...]:
    """The options of an entry that is compiled for given sizes."""
    kept = tuple((k, v) for k, v in e.options if not k.startswith(SIZE))
    return (*kept, *((SIZE + a.name, sizes[a.source]) for a in e.arguments if a.kind == "scalar" and a.dtype[0] in "iu" and a.source in sizes))


def binding_text(p: n.Program, e: Entry) -> str:
    """What the frontend needs to read an emitted kernel back as the program (TOML)."""
    sizes = [q.name for q in p.params if q.role == "size" and q.value is None]
    called = {a.source: a.name for a in e.arguments}
    scalars = {called.get(q.name, q.name): expr_text(q.value) for q in p.params if q.value is not None and isinstance(q.of, DType)}
    scalars |= {called[x]: x for x in sizes if called.get(x, x) != x}
    tensors = {}
    for q in (*p.params, *(n.Param(w.buffer.name, "inout", w.buffer) for w in p.workspaces)):
        if isinstance(q.of, n.Buffer) and any(a.source == q.name for a in e.arguments):
            strides = None if q.of.strides is None else [expr_text(d) for d in q.of.strides]
            shape: list[str | int] = [expr_text(d) for d in q.of.shape]
            name = next(a.name for a in e.arguments if a.source == q.name)
            tensors[name] = Tensor(shape=shape, dtype=q.of.dtype.name, strides=list(strides) if strides is not None else None,
                                   name=q.name if q.name != name else "", role=q.role, align=q.of.align)
    made = Binding(kernel=e.function, sizes=sizes, facts=[expr_text(f) for f in p.facts], scalars=dict(scalars), tensors=tensors)
    return made.text()


def program_refusals(p: n.Program) -> list[Diagnostic]:
    """What concerns the program as a whole."""
    out = []
    if any(isinstance(step, n.Dispatch) for step in p.plan):
        out.append(Diagnostic("KIR-B007", "the launch plan takes one of several kernels at run time", subject=p.name,
                              needs="one arm: emit each as a program of its own"))
    if p.tensor_maps:
        out.append(Diagnostic("KIR-B002", f"TileLang makes its tensor maps itself ('{p.tensor_maps[0].name}')", subject=p.name,
                              needs="copies without a map"))
    if p.structs:
        out.append(Diagnostic("KIR-B002", f"TileLang has no struct ('{p.structs[0].name}')", subject=p.name))
    if p.functions:
        out.append(Diagnostic("KIR-B002", f"TileLang has no device functions of its own ('{p.functions[0].name}')", subject=p.name))
    if not p.kernels:
        out.append(Diagnostic("KIR-B002", "the program has no kernel", subject=p.name))
    for k in p.kernels:
        if len(k.grid) > 3:
            out.append(Diagnostic("KIR-B007", f"a grid of {len(k.grid)} axes: a launch has three", subject=p.name, anchor=k.name,
                                  needs="linear-grid, or fewer axes"))
        if int_value(k.threads) is None and not is_generic(p):
            out.append(Diagnostic("KIR-B007", "the number of threads is not known when it is compiled", subject=p.name, anchor=k.name))
        out += (*counted_between_roles(k), *operands_in_registers(k))
    return out
