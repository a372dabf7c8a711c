"""Rules of a program's header and launch plan: names, parameters and their ABI, workspaces, tensor maps, kernels, plan."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kir.base.diagnostic import Diagnostic, did_you_mean
from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text, is_name, type_text
from kir.ir.rules.wellformed import Expressions, fits
from kir.ir.types import DType

META_KINDS = ("int", "float", "bool", "str", "dtype", "fn", "any")
_WRITTEN_AS_CALLS = frozenset({"min", "max", "ceildiv", "tdiv", "trem", "select", "cast", "load", "addr"})


def header(p: n.Program, expressions: Expressions) -> Iterator[Diagnostic]:
    """What is wrong outside the bodies of kernels and functions (scopes are checked by `verify`)."""
    yield from _names(p)
    for m in p.metas:
        if m.kind not in META_KINDS:
            yield _at(m.name, "KIR-V024", f"there is no kind of meta '{m.kind}'", attempt=did_you_mean(m.kind, META_KINDS))
    for q in p.params:
        yield from _param(q, p)
    for f in p.facts:
        if not (isinstance(f.type, DType) and f.type.may_decide):
            yield _at(p.name, "KIR-V021", f"the fact {expr_text(f)} is {type_text(f.type)}", needs="one bool")
    for w in p.workspaces:
        if w.buffer.space != "global":
            yield _at(w.buffer.name, "KIR-V021", f"the workspace '{w.buffer.name}' is in {w.buffer.space} memory", needs="global memory")
        if w.init is not None:
            yield from expressions.check(w.init)
            if not fits(w.init.type, n.Region(w.buffer).type):
                yield _at(w.buffer.name, "KIR-V009", f"the workspace '{w.buffer.name}' begins as {type_text(w.init.type)}",
                          needs=w.buffer.dtype.name)
    for t in p.tensor_maps:
        yield from _tensor_map(t, p)
    for k in p.kernels:
        yield from _kernel(k)
    yield from _plan(p.plan, p)


def _at(anchor: str, id: str, message: str, needs: str = "", attempt: str = "") -> Diagnostic:
    return Diagnostic(id, message, anchor=anchor, needs=needs, attempt=attempt)


def _names(p: n.Program) -> Iterator[Diagnostic]:
    data = Counter([m.name for m in p.metas] + [q.name for q in p.params] + [w.buffer.name for w in p.workspaces]
                   + [t.name for t in p.tensor_maps])
    code = Counter([k.name for k in p.kernels] + [f.name for f in p.functions])
    for names, what in ((data, "parameters, metas, workspaces and tensor maps"), (code, "kernels and functions")):
        for name, count in names.items():
            if count > 1:
                yield _at(name, "KIR-V004", f"'{name}' is defined twice among {what}", needs="names that differ")
            if not is_name(name):
                yield _at(name, "KIR-V004", f"'{name}' is no name", needs="letters, digits and underscores")
    for f in p.functions:
        if f.name in table() or f.name in _WRITTEN_AS_CALLS:
            yield _at(f.name, "KIR-V004", f"the device function '{f.name}' has the name of an instruction", needs="another name")


def _param(q: n.Param, p: n.Program) -> Iterator[Diagnostic]:
    if q.role in ("size", "scalar"):
        if not isinstance(q.of, DType):
            yield _at(q.name, "KIR-V021", f"the {q.role} '{q.name}' is a tensor", needs="a dtype")
        elif q.role == "size" and not q.of.is_integer:
            yield _at(q.name, "KIR-V021", f"the size '{q.name}' is {q.of}", needs="an integer dtype")
        elif q.value is not None and q.value.type != q.of:
            yield _at(q.name, "KIR-V021", f"'{q.name}' is {q.of}, and equals {type_text(q.value.type)}", needs="one dtype")
        return
    if not isinstance(q.of, n.Buffer):
        yield _at(q.name, "KIR-V021", f"the tensor '{q.name}' is a scalar", needs="a buffer")
        return
    if q.of.name != q.name:
        yield _at(q.name, "KIR-V021", f"the buffer of the parameter '{q.name}' is named '{q.of.name}'", needs="one name")
    metas = {m.name for m in p.metas}
    given = q.of.space == "fragment" and q.role == "in" and all(
        d.name in metas if isinstance(d, n.Var) else isinstance(d, n.Const) for d in q.of.shape)
    if q.of.space not in ("global", "constant") and not given:
        yield _at(q.name, "KIR-V021", f"the tensor '{q.name}' is in {q.of.space} memory",
                  needs="global or constant memory; a tile of metas, which a helper is given, in a fragment")
    if q.of.strides is not None and len(q.of.strides) != len(q.of.shape):
        yield _at(q.name, "KIR-V021", f"'{q.name}' has {len(q.of.shape)} dimensions and {len(q.of.strides)} strides")
    alias = dict(q.attrs).get("alias")
    if alias is not None and alias not in {x.name for x in p.params if isinstance(x.of, n.Buffer)}:
        yield _at(q.name, "KIR-V021", f"'{q.name}' aliases '{alias}', which is no tensor parameter")


def _tensor_map(t: n.TensorMap, p: n.Program) -> Iterator[Diagnostic]:
    tensors = {q.name: q.of for q in p.params if isinstance(q.of, n.Buffer)} | {w.buffer.name: w.buffer for w in p.workspaces}
    base = tensors.get(t.of)
    if base is None:
        yield _at(t.name, "KIR-V021", f"the tensor map '{t.name}' is of '{t.of}', which is no tensor here",
                  attempt=did_you_mean(t.of, tensors))
        return
    options = dict(t.attrs)
    rank = len(base.shape) + 2 - sum(x if isinstance(x := options.get(end, 1), int) else 1 for end in ("merge", "merge_last"))
    if options.get("mode", "tiled") == "tiled" and len(t.box) != rank:
        yield _at(t.name, "KIR-V021", f"the box of '{t.name}' has {len(t.box)} dimensions, and '{t.of}' has {rank}")
    elif options.get("mode") == "im2col" and len(t.box) != 2:
        yield _at(t.name, "KIR-V021", f"the box of '{t.name}' has {len(t.box)} dimensions", needs="pixels and channels (im2col)")
    if len(t.box) > 5 or any(not 1 <= b <= 256 for b in t.box):
        yield _at(t.name, "KIR-V021", f"the box of '{t.name}' is {list(t.box)}",
                  needs="up to 5 dimensions of 1 to 256 (CUDA driver API, cuTensorMapEncodeTiled)")
    swizzle = options.get("swizzle", 0)
    if swizzle not in (0, 32, 64, 128):
        yield _at(t.name, "KIR-V021", f"the swizzle of '{t.name}' is {swizzle}", needs="0, 32, 64 or 128 bytes")
    elif swizzle and t.box and t.box[-1] * base.dtype.bits // 8 > int(swizzle):
        yield _at(t.name, "KIR-V021", f"a row of the box of '{t.name}' has {t.box[-1] * base.dtype.bits // 8} bytes",
                  needs=f"at most the swizzle's {swizzle}")


def _kernel(k: n.Kernel) -> Iterator[Diagnostic]:
    if len(k.grid) > 3:
        yield _at(k.name, "KIR-V021", f"the grid of '{k.name}' has {len(k.grid)} axes", needs="at most three")
    for what, e in (("threads", k.threads), *((f"extent of {a.name}", a.extent) for a in k.grid)):
        if not (isinstance(e.type, DType) and e.type.may_index):
            yield _at(k.name, "KIR-V021", f"the {what} of '{k.name}' is {type_text(e.type)}", needs="an integer")
    threads = build.int_value(k.threads)
    if threads is not None and not 1 <= threads <= 1024:
        yield _at(k.name, "KIR-V021", f"'{k.name}' has {threads} threads", needs="1 to 1024")
    if k.cluster and (len(k.cluster) > 3 or any(c < 1 for c in k.cluster)):
        yield _at(k.name, "KIR-V021", f"the cluster of '{k.name}' is {list(k.cluster)}", needs="up to three extents of 1 or more")


def _plan(steps: tuple[n.Launch | n.Dispatch, ...], p: n.Program) -> Iterator[Diagnostic]:
    kernels = {k.name for k in p.kernels}
    for s in steps:
        if isinstance(s, n.Launch):
            if s.kernel not in kernels:
                yield _at(s.kernel, "KIR-V018", f"the launch plan runs '{s.kernel}', which is no kernel here",
                          attempt=did_you_mean(s.kernel, kernels))
            continue
        for guard, arm in s.arms:
            if not (isinstance(guard.type, DType) and guard.type.may_decide):
                yield _at(p.name, "KIR-V018", f"the guard {expr_text(guard)} is {type_text(guard.type)}", needs="one bool")
            yield from _plan(arm, p)
        yield from _plan(s.orelse, p)
