"""Putting an answer into a hole: operands become the hole's regions, sizes the extents found there, local names fresh ones."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from kir.analysis.access import Aliases, may_overlap
from kir.analysis.facts import Facts
from kir.analysis.solver import decide
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError, UsageError, error
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.anchors import anchor_of
from kir.ir.canonical import bound_names, rename
from kir.ir.printer import expr_text
from kir.ir.rules.verify import verify
from kir.ir.types import I32, TileType, dtype_of
from kir.ir.visit import substitute, transform, walk
from kir.lineage.carrier.contract import Contract, contract_named
from kir.lineage.carrier.operands import dimensions, facts, in_dtype
from kir.rewrite.edit import Path, enclosing, fresh, kernel_of, names_in, node_at, places, replace_stmts

N = TypeVar("N", bound=n.Node)


@dataclass(frozen=True)
class Bound:
    """A hole matched with its contract: the region of each operand, the extent that each size stands for, and the dtype `T`."""

    regions: Mapping[str, n.Region]
    sizes: Mapping[str, n.Expr]
    dtype: str


def holes(program: n.Program) -> Iterator[tuple[Path, n.Hole]]:
    """The unfilled holes of a program with their paths, in reading order."""
    for path, node in places(program):
        if isinstance(node, n.Hole):
            yield path, node


def unfilled(program: n.Program) -> tuple[Diagnostic, ...]:
    """A diagnostic KIR-H104 for each hole of a program."""
    return tuple(Diagnostic("KIR-H104", f"the hole '{h.name}' is not filled: it takes an answer to {h.contract}", h.origin,
                            anchor_of(program, path), attempt="kir carrier fill") for path, h in holes(program))


def misfits(program: n.Program) -> tuple[Diagnostic, ...]:
    """What is wrong with the holes of a program: one that names no registered contract (KIR-H103, which may be known elsewhere), and
    whatever `bind` says of the others. A hole that does not fit raises KirError: no answer could fill it."""
    found: list[Diagnostic] = []
    for path, h in holes(program):
        try:
            contract = contract_named(h.contract)
        except UsageError as unknown:
            found += [replace(d, anchor=anchor_of(program, path), origin=h.origin) for d in unknown.diagnostics]
            continue
        bind(contract, program, path)
    return tuple(found)


def must_be_filled(program: n.Program) -> None:
    """Raises KirError KIR-H104 with a diagnostic for each unfilled hole."""
    if found := unfilled(program):
        raise KirError(*found)


def bind(contract: Contract, program: n.Program, path: Path) -> Bound:
    """The operands of the hole at `path`. Raises KirError: KIR-H105 (operands do not fit), KIR-H106 (the contract's facts are not known to
    hold there), KIR-H107 (an output may be one with another operand), KIR-H108 (the hole stands at another level)."""
    hole = node_at(program, path)
    where = anchor_of(program, path)
    if not isinstance(hole, n.Hole) or hole.contract != contract.id:
        said = f"the hole '{hole.name}' names contract '{hole.contract}'" if isinstance(hole, n.Hole) else "there is no hole here"
        raise error("KIR-H105", f"{said}, not '{contract.id}'", origin=hole.origin, anchor=where)
    _level(contract, program, path, hole, where)
    regions: dict[str, n.Region] = {}
    for word, operands, given in (("reads", contract.reads, hole.reads), ("writes", contract.writes, hole.writes)):
        if len(operands) != len(given):
            raise error("KIR-H105", f"the hole '{hole.name}' {word} {len(given)} places; {contract.id} {word} {len(operands)}", origin=hole.origin,
                        anchor=where, needs=", ".join(t.name for t in operands))
        for t, r in zip(operands, given, strict=True):
            if regions.setdefault(t.name, r) != r:
                raise error("KIR-H105", f"the inout operand '{t.name}' is read at one place and written at another", origin=hole.origin, anchor=where)
    bound = _matched(contract, regions, hole, where)
    known = Facts.at(program, path)
    for text, fact in zip(contract.spec.facts, facts(contract, bound.sizes), strict=True):
        answer = decide(fact, known)
        if answer.kind != "always":
            raise error("KIR-H106", f"{contract.id} holds where {text}; here that is {expr_text(fact)}, which is not known", origin=hole.origin,
                        anchor=where, witness=(f"at {answer.shown()}",) if answer.witness else (), needs=f"fact {expr_text(fact)}")
    _distinct(contract, program, bound, known, hole, where)
    return bound


def _level(contract: Contract, program: n.Program, path: Path, hole: n.Hole, where: str) -> None:
    kernel = kernel_of(program, path)
    if contract.spec.level == "program":
        if kernel.body != (hole,) or kernel.cluster or kernel.attrs:
            raise error("KIR-H108", f"{contract.id} stands for kernels: its hole is all of a kernel", origin=hole.origin, anchor=where,
                        needs=f"kernel {kernel.name} grid () threads 1, with nothing but the hole")
        _instances(kernel, hole, where)
        return
    for _, outer in enclosing(program, path):
        if isinstance(outer, n.Roles) or (isinstance(outer, n.For) and outer.kind in ("thread", "warp", "warpgroup")):
            raise error("KIR-H108", f"{contract.id} stands for what a CTA does, and the hole is inside a smaller team", origin=hole.origin, anchor=where)
    if build.int_value(kernel.threads) != contract.spec.threads:
        raise error("KIR-H108", f"the CTA has {expr_text(kernel.threads)} threads", origin=hole.origin, anchor=where,
                    needs=f"threads {contract.spec.threads}, for which {contract.id} is written")


def _instances(kernel: n.Kernel, hole: n.Hole, where: str) -> None:
    """Each CTA of the hole's kernel is an instance of its own: what it writes are slices whose places are the grid axes themselves, and what it only
    reads are slices at places that may follow from them."""
    for a in kernel.grid:
        var = n.Var(a.name, I32)
        for r in (*hole.reads, *hole.writes):
            whole = r in hole.writes
            plain = [i for i in r.index if i == var or (not whole and isinstance(i, n.Expr) and any(x == var for x in walk(i)))]
            if sum(x == var for x in walk(r)) != sum(x == var for i in plain for x in walk(i)) or (not plain and whole):
                raise error("KIR-H108", f"the instances along '{a.name}' do not each have a slice of '{r.buffer.name}' of their own",
                            origin=hole.origin, anchor=where, needs=f"places that '{a.name}' alone tells apart, in one dimension")


def _matched(contract: Contract, regions: Mapping[str, n.Region], hole: n.Hole, where: str) -> Bound:
    sizes: dict[str, n.Expr] = {}
    dtype = ""
    wanted = dimensions(contract)
    found: list[tuple[str, str, n.Expr, n.Expr]] = []
    for t in contract.spec.tensors:
        r = regions[t.name]
        given = r.buffer.dtype.name
        if t.dtype == "T":
            dtype = dtype or given
        expected = dtype if t.dtype == "T" else t.dtype
        shape = r.type.shape if isinstance(r.type, TileType) else ()
        scattered = any(isinstance(i, n.Expr) and isinstance(i.type, TileType) for i in r.index)
        if given != expected or len(shape) != len(t.shape) or scattered or (t.dtype == "T" and given not in contract.spec.dtypes):
            raise error("KIR-H105", f"the operand '{t.name}' is {t.dtype}[{', '.join(t.shape)}]; the hole gives {given} of rank {len(shape)}",
                        origin=hole.origin, anchor=where)
        for text, d, symbolic in zip(t.shape, shape, wanted[t.name], strict=True):
            extent = build.const(d, I32) if isinstance(d, int) else d
            if text in contract.sizes and text not in sizes:
                sizes[text] = extent
            found.append((t.name, text, symbolic, extent))
    for name, text, symbolic, extent in found:
        if build.sub(build.cast(substitute(symbolic, sizes), I32), build.cast(extent, I32)) != build.const(0, I32):
            raise error("KIR-H105", f"dimension {text} of '{name}' is {expr_text(substitute(symbolic, sizes))} by the other operands, and "
                        f"{expr_text(extent)} here", origin=hole.origin, anchor=where)
    return Bound(regions, {k: build.cast(v, I32) for k, v in sizes.items()}, dtype)


def _distinct(contract: Contract, program: n.Program, bound: Bound, known: Facts, hole: n.Hole, where: str) -> None:
    aliases = Aliases(program)
    outputs = [t.name for t in contract.writes]
    for a in outputs:
        for b, r in bound.regions.items():
            mine = bound.regions[a]
            if a == b or not aliases.may_be_one(mine.buffer.name, r.buffer.name):
                continue
            if mine.buffer.name != r.buffer.name or may_overlap(mine, r, known):
                raise error("KIR-H107", f"the output '{a}' and the operand '{b}' may be the same memory", origin=hole.origin, anchor=where,
                            needs="places that do not overlap")


def fill(contract: Contract, program: n.Program, path: Path, answer: n.Program, verified: bool = True) -> n.Program:
    """`program` with the hole at `path` replaced by `answer`, a program that conforms to the contract (`Checked.program`).

    An answer in the contract's first dtype fills holes of the others too. The same hole and answers that are equal up to local names give
    programs that are equal up to local names. Raises KirError as `bind`, KIR-H105 for an answer in a dtype that is not the hole's, KIR-H150
    for an access of the answer that has no counterpart in the hole's regions, and what the verifier finds in the result (unless the caller
    sees to that)."""
    bound = bind(contract, program, path)
    answer = in_dtype(contract, answer, bound.dtype)
    given = {p.name: p.of.dtype.name for p in answer.params if isinstance(p.of, n.Buffer)}
    for t in contract.spec.tensors:
        if t.dtype == "T" and given[t.name] != bound.dtype:
            raise error("KIR-H105", f"the answer is for {given[t.name]}, and the hole's operands are {bound.dtype}", anchor=anchor_of(program, path))
    _must_compose(answer, bound)
    out = _as_kernels(program, path, answer, bound) if contract.spec.level == "program" else _as_statements(program, path, answer, bound)
    if verified and (found := [d for d in verify(out) if d.severity == "error"]):
        raise KirError(*(replace(d, subject=d.subject or f"fill {contract.id}") for d in found))
    return out


def _as_statements(program: n.Program, path: Path, answer: n.Program, bound: Bound) -> n.Program:
    kernel = kernel_of(program, path)
    taken = names_in(program, kernel) | {k.name for k in program.kernels}
    functions = _fresh_functions(answer, taken)
    body = answer.kernels[0].body
    local = {old: fresh(old, taken) for old in dict.fromkeys(bound_names(body)) if old not in bound.sizes}
    made = _placed(rename(answer.kernels[0], local), bound, functions)
    added = tuple(_placed(replace(f, name=functions[f.name]), bound, functions) for f in answer.functions)
    return replace_stmts(replace(program, functions=(*program.functions, *added)), path, made.body)


def _as_kernels(program: n.Program, path: Path, answer: n.Program, bound: Bound) -> n.Program:
    host = kernel_of(program, path)
    others = [k for k in program.kernels if k is not host]
    names = {p.name for p in program.params} | {w.buffer.name for w in program.workspaces} | {t.name for t in program.tensor_maps}
    code = {k.name for k in others} | {f.name for f in program.functions}
    functions = _fresh_functions(answer, code)
    kernels = {k.name: host.name if len(answer.kernels) == 1 else fresh(k.name, code) for k in answer.kernels}
    spaces = {w.buffer.name: fresh(w.buffer.name, names) for w in answer.workspaces}
    maps = {t.name: fresh(t.name, names) for t in answer.tensor_maps}
    inner: list[n.Kernel] = []
    laid_out = any(w.buffer.strides or w.buffer.layout for w in answer.workspaces)
    if host.grid and (laid_out or any(len(k.grid) + len(host.grid) > 3 for k in answer.kernels)):
        raise error("KIR-H108", f"the answer cannot be repeated over {', '.join(a.name for a in host.grid)}", anchor=anchor_of(program, path),
                    needs="row-major workspaces, and at most three grid axes together")
    for k in answer.kernels:
        taken = set(names) | code | {a.name for a in host.grid}
        local = {old: fresh(old, taken) for old in dict.fromkeys((*(a.name for a in k.grid), *bound_names(k.body)))}
        made = _placed(rename(replace(k, name=kernels[k.name]), {**spaces, **local}), bound, functions, maps)
        inner.append(_repeated(made, host.grid, set(spaces.values())))
    workspaces = tuple(_repeated(_placed(rename(w, spaces), bound, functions), host.grid, set(spaces.values())) for w in answer.workspaces)
    tensor_maps = tuple(_mapped(replace(t, name=maps[t.name]), bound, spaces, len(host.grid)) for t in answer.tensor_maps)
    added = tuple(_placed(rename(replace(f, name=functions[f.name]), spaces), bound, functions) for f in answer.functions)
    plan = answer.plan or tuple(n.Launch(k.name) for k in answer.kernels)
    at = program.kernels.index(host)
    steps = _steps(program.plan, host.name, _relaunched(plan, kernels, bound)) if program.plan or answer.plan else ()
    if answer.plan and not program.plan:
        whole = tuple(n.Launch(k.name) for k in program.kernels)
        steps = _steps(whole, host.name, _relaunched(plan, kernels, bound))
    return replace(program, workspaces=(*program.workspaces, *workspaces), tensor_maps=(*program.tensor_maps, *tensor_maps),
                   functions=(*program.functions, *added), kernels=(*program.kernels[:at], *inner, *program.kernels[at + 1:]), plan=steps)


def _repeated(item: N, axes: tuple[n.Axis, ...], spaces: set[str]) -> N:
    """A kernel or workspace of an answer, once for each instance: axes follow the kernel's own, and workspaces have dimensions for them
    before their own, the last axis outermost."""
    if not axes:
        return item
    places = tuple(n.Var(a.name, I32) for a in reversed(axes))

    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Buffer() if new.name in spaces:
                return replace(new, shape=(*(a.extent for a in reversed(axes)), *new.shape))
            case n.Region() if new.buffer.name in spaces:
                assert isinstance(old, n.Region)
                own = new.index or tuple(build.span(0, e) for e in old.buffer.shape)
                return build.region(new.buffer, *places, *own)
            case n.Kernel():
                return replace(new, grid=(*new.grid, *axes), cluster=(*new.cluster, *(1 for _ in axes)) if new.cluster else ())
            case _:
                return new
    out: N = transform(item, leave)
    return out


def _fresh_functions(answer: n.Program, taken: set[str]) -> dict[str, str]:
    return {f.name: fresh(f.name, taken) for f in answer.functions}


def _steps(plan: Sequence[n.Launch | n.Dispatch], name: str, instead: tuple[n.Launch | n.Dispatch, ...]) -> tuple[n.Launch | n.Dispatch, ...]:
    """A plan with each launch of a kernel replaced."""
    out: list[n.Launch | n.Dispatch] = []
    for s in plan:
        if isinstance(s, n.Launch):
            out += instead if s.kernel == name else (s,)
        else:
            out.append(replace(s, arms=tuple((g, _steps(arm, name, instead)) for g, arm in s.arms), orelse=_steps(s.orelse, name, instead)))
    return tuple(out)


def _relaunched(plan: Sequence[n.Launch | n.Dispatch], kernels: Mapping[str, str], bound: Bound) -> tuple[n.Launch | n.Dispatch, ...]:
    out: list[n.Launch | n.Dispatch] = []
    for s in plan:
        if isinstance(s, n.Launch):
            out.append(replace(s, kernel=kernels[s.kernel]))
        else:
            out.append(replace(s, arms=tuple((substitute(g, bound.sizes), _relaunched(arm, kernels, bound)) for g, arm in s.arms),
                               orelse=_relaunched(s.orelse, kernels, bound)))
    return tuple(out)


def _mapped(t: n.TensorMap, bound: Bound, spaces: Mapping[str, str], axes: int) -> n.TensorMap:
    """A tensor map over the host's memory: boxes are one wide along the dimensions that tell instances apart."""
    if t.of not in bound.regions:
        return replace(t, of=spaces.get(t.of, t.of), box=((1,) * axes if t.of in spaces else ()) + t.box)
    region = bound.regions[t.of]
    spans = [isinstance(i, n.Span) for i in region.index]
    if any(s and not _spans_whole(i, e) for s, i, e in zip(spans, region.index, region.buffer.shape, strict=False)):
        raise error("KIR-H150", f"the tensor map '{t.name}' describes '{t.of}', which is only a part of '{region.buffer.name}' here", anchor=t.name)
    if not region.index or all(spans):
        return replace(t, of=region.buffer.name)
    if dict(t.attrs).keys() - {"swizzle", "fill"}:
        raise error("KIR-H150", f"the tensor map '{t.name}' is over more than boxes, and '{t.of}' is a slice of '{region.buffer.name}' here", anchor=t.name)
    own = iter(t.box)
    return replace(t, of=region.buffer.name, box=tuple(next(own) if s else 1 for s in spans))


# ------------------------------------------------------------------------------------------------------------------ regions

def _placed(item: N, bound: Bound, functions: Mapping[str, str], maps: Mapping[str, str] | None = None) -> N:
    """`item` over the host's memory: regions composed, sizes replaced, functions and tensor maps renamed."""
    renamed = {**functions, **(maps or {})}

    def leave(old: n.Node, new: n.Node) -> n.Node:
        match new:
            case n.Var() if new.name in bound.sizes:
                return bound.sizes[new.name]
            case n.Region() if new.buffer.name in bound.regions:
                return composed(bound.regions[new.buffer.name], new)
            case n.Call() if new.of is not None and new.fn in functions:
                new = replace(new, fn=functions[new.fn])
            case _:
                pass
        old_attrs: n.Attrs = getattr(new, "attrs", ())
        named = tuple((key, renamed.get(v, v) if isinstance(v, str) else v) for key, v in old_attrs)
        return replace(new, attrs=named) if named != old_attrs else new  # type: ignore[type-var]  # every concrete node is a dataclass
    out: N = transform(item, leave)
    return out


def composed(outer: n.Region, inner: n.Region) -> n.Region:
    """The place `inner` of an operand, where the operand is the region `outer`."""
    if not outer.index:
        return n.Region(outer.buffer, inner.index)
    if not inner.index:
        return outer
    rest = iter(inner.index)
    out: list[n.Expr | n.Span] = []
    for o in outer.index:
        out.append(_within(o, next(rest)) if isinstance(o, n.Span) else o)
    return build.region(outer.buffer, *out)


def _within(outer: n.Span, inner: n.Expr | n.Span) -> n.Expr | n.Span:
    """An index of an operand as an index of the memory that it is a range of."""
    step = build.const(outer.step, I32) if isinstance(outer.step, int) else outer.step
    if isinstance(inner, n.Span):
        own = build.const(inner.step, I32) if isinstance(inner.step, int) else inner.step
        stride = _times(own, step)
        known = build.int_value(stride)
        return build.span(_plus(outer.lo, _times(inner.lo, step)), inner.extent, stride if known is None else known)
    return _plus(outer.lo, _times(inner, step))


def _times(a: n.Expr, b: n.Expr) -> n.Expr:
    return a if build.is_const(b, 1) else build.mul(*_alike(a, b))


def _plus(a: n.Expr, b: n.Expr) -> n.Expr:
    return b if build.is_const(a, 0) else build.add(*_alike(a, b))


def _alike(a: n.Expr, b: n.Expr) -> tuple[n.Expr, n.Expr]:
    """Both in the wider of their integer dtypes."""
    wider = max(dtype_of(a.type), dtype_of(b.type), key=lambda t: t.bits)
    return build.cast(a, wider), build.cast(b, wider)


def _spans_whole(i: n.Expr | n.Span, extent: n.Expr) -> bool:
    length = build.const(i.extent, I32) if isinstance(i, n.Span) and isinstance(i.extent, int) else i.extent if isinstance(i, n.Span) else None
    return isinstance(i, n.Span) and build.is_const(i.lo, 0) and i.step == 1 and length == extent


def _is_dense(r: n.Region) -> bool:
    """Whether the elements of a region lie side by side in memory: single indices, then one range, then whole dimensions."""
    if r.buffer.strides is not None or r.buffer.layout is not None:
        return False
    kinds = ["whole" if _spans_whole(i, e) else "range" if isinstance(i, n.Span) and i.step == 1 else "one" if not isinstance(i, n.Span) else "step"
             for i, e in zip(r.index, r.buffer.shape, strict=False)]
    rest = kinds[next((k for k, kind in enumerate(kinds) if kind != "one"), len(kinds)):]
    return "step" not in kinds and all(kind == "whole" for kind in rest[1:])


def _must_compose(answer: n.Program, bound: Bound) -> None:
    """Raises KirError KIR-H150 for what an answer does with an operand that cannot be said of the region it is here."""
    for part in (*answer.kernels, *answer.functions):
        for x in walk(part):
            match x:
                case n.Load() | n.Store() if x.clip:
                    at, needs_whole, what = x.at, True, "clips accesses to"
                case n.Copy() if x.clip:
                    at, needs_whole, what = x.dst, True, "clips a copy to"
                case n.View() if not x.axes:
                    at, needs_whole, what = x.at, False, "reinterprets the bytes of"
                case n.Address():
                    at, needs_whole, what = x.at, False, "takes an address in"
                case _:
                    continue
            region = bound.regions.get(at.buffer.name)
            if region is None or not region.index:
                continue
            ranges = [(i, e) for i, e in zip(region.index, region.buffer.shape, strict=True) if isinstance(i, n.Span)]
            if not (all(_spans_whole(i, e) for i, e in ranges) if needs_whole else _is_dense(region)):
                raise error("KIR-H150", f"the answer {what} '{at.buffer.name}', which is a part of '{region.buffer.name}' here",
                            origin=x.origin if isinstance(x, n.Stmt) else None, anchor=answer.kernels[0].name,
                            needs="masks instead of clip" if needs_whole else "indices instead of addresses")
