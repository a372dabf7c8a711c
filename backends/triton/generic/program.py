"""Generic programs (metas and dtypes still open) as Triton: what a frontend read from a kernel is written as a kernel again.

Every conversion is written out, except where Triton's own rules for operands of two dtypes say the same. Pointers are flat: an access is
the pointer plus an index. Parameters come first, then the metas as constexpr.
"""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.branch_definitions import both_arms
from kir.analysis.facts import Facts
from kir.base.diagnostic import Diagnostic
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, content_hash
from kir.ir.printer import expr_text
from kir.ir.rebuild.callers import called
from kir.ir.types import I32, DType
from kir.ir.visit import blocks_of, walk
from kir.surface import Emitted, SourceLine

from ..tiles.expressions import BODIES, DTYPES
from ..tiles.names import KEPT, spelled
from ..tiles.statements import Line
from .dtype_terms import Terms, address_of, block_of, is_all_memory, is_derived, is_descriptor, is_readable, roots_of
from .expressions import GenericExpressions
from .statements import GenericMemory, GenericStatements

_LAUNCH = ("num_warps", "num_stages")


def can_write(p: n.Program) -> bool:
    """Whether a generic program has the form in which this surface's frontend reads one: flat pointers, descriptors, scalars."""
    implicit = {q.name for q in p.params if dict(q.attrs).get("implicit")}
    return len(p.kernels) == 1 and not p.workspaces and not p.tensor_maps and all(
        not isinstance(q.of, n.Buffer) or is_readable(q, p) for q in p.params) and all(
        isinstance(a.extent, n.Var) and a.extent.name in implicit for a in p.kernels[0].grid)


def write_generic(p: n.Program) -> tuple[Emitted | None, tuple[Diagnostic, ...]]:
    """The kernel of a generic program as a Triton module, or the refusals."""
    digest = content_hash(p)
    p = _callable(both_arms(p))
    (k,) = p.kernels
    metas = _metas(p)
    top = spelled([*(f.name for f in p.functions), k.name])
    outer = [*(q.name for q in p.params), *(m.name for m in p.metas)]
    refusals: list[Diagnostic] = []
    chunks: list[list[Line]] = []
    libdevice, combines = False, set[str]()
    for f in p.functions:
        names = {**top, **spelled([*(x.name for x in f.params), *bound_names(f.body)], [*top.values(), *outer])}
        roots = {x.of.name: f"{names[x.name]}.dtype" for x in f.params if isinstance(x, n.Var) and isinstance(x.of, DType)}
        body = _body(p, names, roots, frozenset(), in_function=True)
        body.block(f.body, (f.name,), 1)
        refusals += body.refusals
        chunks.append([("@triton.jit", None), (f"def {top[f.name]}({', '.join(names[x.name] for x in f.params)}):", None), *body.lines])
        libdevice = libdevice or body.expressions.uses_libdevice
        combines |= set(body.open.combines.values())
    taken = [*top.values(), *outer, *(a.name for a in k.grid)]
    names = {**top, **{x: x for x in outer}, **spelled(bound_names(k.body), taken)}
    # What is said of a place is said of the address only if where memory begins is known to be a multiple as well.
    names |= {q.name: "tl.multiple_of(tl.cast(0, tl.int64).to(tl.pointer_type(tl.uint8)), 16)" for q in p.params if is_all_memory(q)}
    names |= {q.name: f"tl.cast({address_of(q)}, tl.int64)" for q in p.params if address_of(q)}
    names |= {a.name: f"tl.program_id({i})" for i, a in enumerate(k.grid)}
    names |= {a.extent.name: f"tl.num_programs({i})" for i, a in enumerate(k.grid) if isinstance(a.extent, n.Var)}
    for q in p.params:
        if isinstance(q.of, n.Buffer) and is_descriptor(q.of):
            if q.of.space != "fragment":
                names |= {x: f"{q.name}.block_shape[{i}]" for i, x in enumerate(block_of(q))}
            names |= {d.name: f"{q.name}.shape[{i}]" for i, d in enumerate(q.of.shape) if isinstance(d, n.Var)}
    body = _body(p, names, roots_of(p), frozenset(m.name for m in p.metas), in_function=False)
    body.block(k.body, (k.name,), 1)
    refusals += [replace(d, anchor=d.anchor or k.name) for d in body.refusals]
    if refusals:
        return None, tuple(refusals)
    libdevice = libdevice or body.expressions.uses_libdevice
    combines |= set(body.open.combines.values())
    mathematics = any("math.log2(" in line or "math.sqrt(" in line for chunk in (*chunks, body.lines) for line, _ in chunk)
    used = {x.name for s in k.body for x in walk(s) if isinstance(x, n.Buffer)}
    extents = [x for q in p.params if isinstance(q.of, n.Buffer) and q.of.space == "fragment" for x in block_of(q)]
    shared = frozenset(x for x in extents if extents.count(x) > 1 or not any(x == f"{q.name}_shape_{k}" for q in p.params for k in range(len(extents))))
    signature = [*(_parameter(q, q.name in used, shared) for q in p.params
                 if not dict(q.attrs).get("implicit") and not is_all_memory(q) and not address_of(q)), *metas]
    head: list[Line] = [("@triton.jit", None), (f"def {top[k.name]}(", None), *((f"    {x},", None) for x in signature), ("):", None)]
    chunks.append([*head, *body.lines])
    for name in sorted(combines):
        chunks.insert(0, [("@triton.jit", None), (f"def {name}(a, b):", None), (f"    return {BODIES[name]}", None)])
    header = [*(["import math", ""] if mathematics else []), "import triton", "import triton.language as tl"]
    if libdevice:
        header.append("from triton.language.extra import libdevice")
    lines: list[Line] = [(line, None) for line in header]
    for chunk in chunks:
        lines += [("", None), ("", None), *chunk]
    source_map = tuple(SourceLine(i, path) for i, (_, path) in enumerate(lines, 1) if path is not None)
    return Emitted("triton", digest, "\n".join(line for line, _ in lines) + "\n", source_map, ()), ()


def _callable(p: n.Program) -> n.Program:
    """The program with names for its callers that Triton allows."""
    local = {x for body in (*(k.body for k in p.kernels), *(f.body for f in p.functions)) for x in bound_names(body)}
    said = [{f"block_{i}": x for i, x in enumerate(block_of(q))} if isinstance(q.of, n.Buffer) and q.of.space == "global" and is_descriptor(q.of) else {}
            for q in p.params]
    p = replace(p, params=tuple(replace(q, attrs=n.attrs(**{**dict(q.attrs), **x})) if x else q for q, x in zip(p.params, said, strict=True)))
    return called(p, spelled([*(q.name for q in p.params), *(m.name for m in p.metas)], local, KEPT))


def _parameter(q: n.Param, used: bool, shared: frozenset[str]) -> str:
    """A run-time parameter. What Triton's own types do not say is said in words that it passes over: `integer`, of whatever width."""
    if isinstance(q.of, n.Buffer) and q.of.space == "fragment":
        named = shared.intersection(block_of(q)) or any(isinstance(d, n.Const) for d in q.of.shape)
        said = ", ".join(f"={expr_text(d)}" if isinstance(d, n.Const) else expr_text(d) for d in q.of.shape) if named else str(len(q.of.shape))
        return f'{q.name}: "tile[{said}]"'
    if isinstance(q.of, n.Buffer):
        return q.name if used or is_descriptor(q.of) else f'{q.name}: "pointer"'
    if q.of.is_symbolic:
        return f'{q.name}: "scalar"'
    return f'{q.name}: "integer"' if q.of == I32 else f"{q.name}: tl.{_dtype_word(q.of.name)}"


def _metas(p: n.Program) -> list[str]:
    """The metas as parameters, each with its kind: those without a default first."""
    used = {x.name for f in p.functions for s in f.body for x in walk(s) if isinstance(x, n.Var)}
    for s in (s for k in p.kernels for s in k.body):
        for x in walk(s):
            match x:
                case n.Var():
                    used.add(x.name)
                case n.For():
                    used |= {v for _, v in x.attrs if isinstance(v, str)}
                case n.Mma():
                    used.add(x.precision.removeprefix("%"))
                case _:
                    pass
    descriptors = {x for q in p.params if isinstance(q.of, n.Buffer) and is_descriptor(q.of) for x in block_of(q)}
    plain, defaulted = [], []
    for m in p.metas:
        if is_derived(m) or m.name in descriptors or (m.name in _LAUNCH and m.name not in used and m.default is not None):
            continue
        if m.default is None:
            plain.append(f'{m.name}: "constexpr[{m.kind}]"')
        else:
            shown = f"tl.{_dtype_word(m.default)}" if m.kind == "dtype" else repr(m.default)
            said = "tl.constexpr" if m.kind == "str" else f'"constexpr[{m.kind}]"'  # another annotation has Triton make a tensor of the default
            defaulted.append(f"{m.name}: {said} = {shown}")
    return [*plain, *defaulted]


def _dtype_word(name: object) -> str:
    return DTYPES[str(name)]


def _optional(p: n.Program) -> frozenset[str]:
    """Parameters that are used under static branches only, so that a caller may leave them out, and metas that may be None."""
    used: set[str] = set()

    def visit(block: n.Block) -> None:
        for s in block:
            if isinstance(s, n.If) and s.static:
                continue
            inner = blocks_of(s)
            heads = _heads(s) if inner else (s,)
            used.update(x.name for head in heads for x in walk(head) if isinstance(x, (n.Var, n.Buffer)))
            for each in inner:
                visit(each)
    for k in p.kernels:
        visit(k.body)
    left_out = {q.name for q in p.params if q.name not in used and not dict(q.attrs).get("implicit")}
    return frozenset(left_out | {m.name for m in p.metas if m.kind == "any"})


def _heads(s: n.Stmt) -> tuple[n.Node, ...]:
    """What a statement with blocks works out itself."""
    match s:
        case n.For():
            return s.lo, s.hi, s.step
        case n.If() | n.While():
            return (s.cond,)
        case _:
            return ()


def _body(p: n.Program, names: dict[str, str], roots: dict[str, str], metas: frozenset[str], in_function: bool) -> GenericStatements:
    facts = Facts.from_program(n.Program(p.name))
    memory = GenericMemory()
    expressions = GenericExpressions(names, facts, {f.name: f for f in p.functions}, memory)
    made = GenericStatements(expressions, memory, 1, in_function=in_function)
    expressions.metas = set(metas)
    expressions.counts = frozenset(x for k in p.kernels for a in k.grid for x in (a.name, *((a.extent.name,) if isinstance(a.extent, n.Var) else ())))
    expressions.kinds = {m.name: m.kind for m in p.metas}
    derived = {m.name: str(m.default) for m in p.metas if is_derived(m)}
    expressions.terms = Terms(roots, derived, made.define, optional=frozenset() if in_function else _optional(p))
    return made
