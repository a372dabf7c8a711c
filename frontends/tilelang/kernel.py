"""From a function of TileLang, with the factory around it, to a generic program: sizes, metas, tensors, launch, body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import libcst as cst

from kir.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import statements, walk

from ..triton.source import Module, Project, decorator_name
from .evaluate import evaluate
from .execute import Found, parameter, run_block, run_one
from .fills import in_their_branch, with_fills, with_known_effects, with_ready_barriers, without_unread
from .kinds import kinds, perhaps_none
from .layouts import laid_out
from .operators import guarded
from .reader import Part, Reader, Refused, Undecided, said
from .teams import Placing
from .values import Frame, Memory, NotUnderstood, Num, Open, Raised, Scope, TensorType, Text, TypeOf, Value, describe, is_known
from .variables import accessed
from .words_notes import configured


def read_kernel(
    project: Project, module: Module, node: cst.FunctionDef, name: str, given: Mapping[str, Value] | None = None, sizes: Iterable[str] = (),
    questions: dict[str, str] | None = None,
) -> n.Program:
    """The generic program of a function. `given` are values of metas that a binding gives (None: there is no binding), `sizes` what it counts
    among the sizes; `questions` is filled with what is asked of the binding, by name. What is not understood is in it as `opaque`
    statements. Raises KirError KIR-F401 (two layouts for one buffer) and KIR-F402 (these values make another kernel)."""
    r = Reader(project, module, given or {}, given is not None, sizes)
    r.out.taken |= {p.name.value for p in node.params.params}
    owners = module.owners.get(id(node), ())
    try:
        scope = _factories(r, module, node, owners)
        _read(r, module, node, scope)
    except Refused as bad:
        raise bad.error from bad
    except Raised as bad:
        from kir.diagnostic import error

        said = " ".join(bad.text.split())
        raise error("KIR-F402", f"the factory of '{node.name.value}' makes no kernel for these values" + (f": '{said[:160]}'" if said else ""),
                    origin=bad.origin or module.origin(node), witness=bad.given,
                    needs="values for which its own checks hold") from None
    except (NotUnderstood, KirError, Undecided) as why:
        told = why.diagnostics[0].message if isinstance(why, KirError) else _open(why)
        reason = why.reason if isinstance(why, NotUnderstood) else told
        del r.out.block[:], r.parts[:]
        r.out.emit(n.Opaque("tilelang", module.code(node).strip(), reason, origin=module.origin(node)))
        r.params = []
    _remaining_metas(r, module, owners or (node,))
    if questions is not None:
        questions.update(r.questions)
    return _program(r, module, node, name)


def _open(why: Exception) -> str:
    """What the binding must decide before a kernel is one."""
    try:
        return f"it is another kernel where {said(why.cond)} holds, which the binding decides" if isinstance(why, Undecided) else ""
    except NotUnderstood:
        return "it is another kernel where a condition holds that the binding decides"


def _factories(r: Reader, module: Module, node: cst.FunctionDef, owners: tuple[cst.FunctionDef, ...]) -> Scope:
    """What the function sees: each function around it run up to where the next is defined."""
    scope = Scope({}, module)
    for k, f in enumerate(owners):
        for key, kind in kinds(f).items():
            r.kinds.setdefault(key, kind)
        r.optional |= perhaps_none(f)
        target = owners[k + 1] if k + 1 < len(owners) else node
        scope = Scope({}, module, scope)
        for p in (*f.params.posonly_params, *f.params.params, *f.params.kwonly_params):
            scope.names[p.name.value] = of_kind(r, parameter(r, p, scope))
        if k == 0:
            _configured(r, f, scope)
        try:
            run_block(r, Frame(scope, target), f.body.body)
        except Found as found:
            scope = found.scope
            continue
        if r.bound:
            raise Raised
        raise NotUnderstood(f"'{target.name.value}' is not reached in '{f.name.value}'")
    return scope


def of_kind(r: Reader, v: Value) -> Value:
    """A parameter of the factory with the kind that its default or its use tells."""
    if not isinstance(v, Open) or v.kind or v.of is not None:
        return v
    default = r.defaults.get(v.name)
    found = r.kinds.get(v.name, "")
    if isinstance(default, bool) and found != "int":
        found = "bool"
    elif isinstance(default, float):
        found = "float"
    elif isinstance(default, TypeOf):
        found = "dtype"
    elif isinstance(default, str) and found != "dtype":
        found = "str"
    elif default is None and v.name in r.defaults and not (found in ("int", "dtype") and v.name not in r.optional):
        found = "any"
    elif not found:
        found = "int" if isinstance(default, int) else "any"
    r.kinds[v.name] = found
    if found == "str":
        r.meta(v.name, "str")
        return Text(v.name)
    return Open(v.name, None, found)


def _configured(r: Reader, f: cst.FunctionDef, scope: Scope) -> None:
    """`pass_configs` of `tilelang.jit` as attributes of the kernel."""
    for d in f.decorators:
        if decorator_name(d) != "jit" or not isinstance(d.decorator, cst.Call):
            continue
        for a in d.decorator.args:
            if a.keyword is None or a.keyword.value != "pass_configs":
                continue
            try:
                found = r.decided(evaluate(r, scope, a.value))
            except (NotUnderstood, Undecided):
                continue
            configured(r, found)


def is_eager(node: cst.FunctionDef) -> bool:
    """Whether a kernel is its own factory: under no `T.prim_func`."""
    return not any(decorator_name(d) == "prim_func" for d in node.decorators)


def _read(r: Reader, module: Module, node: cst.FunctionDef, scope: Scope) -> None:
    """The parameters and the body of the function."""
    own = Scope({}, module, scope)
    r.device = True
    eager = is_eager(node)
    if eager:
        for key, kind in kinds(node).items():
            r.kinds.setdefault(key, kind)
        r.optional |= perhaps_none(node)
    for p in (*node.params.posonly_params, *node.params.params, *node.params.kwonly_params):
        if p.annotation is None:
            own.names[p.name.value] = of_kind(r, parameter(r, p, own))
            continue
        try:
            stated = r.decided(evaluate(r, own, p.annotation.annotation))
        except Undecided as open_:
            raise NotUnderstood(f"the type of '{p.name.value}' depends on a condition that the binding decides") from open_
        if eager and not isinstance(stated, TensorType):
            own.names[p.name.value] = of_kind(r, parameter(r, p, own))
        else:
            own.names[p.name.value] = declared(r, p.name.value, stated)
    _eager(r, node, own)
    if not r.launched and not r.parts:
        raise NotUnderstood(r.unread or "there is no T.Kernel in it")


def _eager(r: Reader, node: cst.FunctionDef, own: Scope) -> None:
    """The body of an eager kernel in order: `A: T.Tensor(shape, dtype)` says what a parameter is, with what was worked out before it. The
    kernel takes its tensors in the order of the function's parameters, then those that it makes."""
    order = {p.name.value: k for k, p in enumerate((*node.params.posonly_params, *node.params.params, *node.params.kwonly_params))}
    body, frame = node.body.body, Frame(own, None, frozenset(order))
    for k, s in enumerate(body):
        small = s.body[0] if isinstance(s, cst.SimpleStatementLine) and len(s.body) == 1 else None
        if isinstance(small, cst.AnnAssign) and small.value is None and isinstance(small.target, cst.Name) and small.target.value in order:
            declared_here(r, frame, small.target.value, small.annotation.annotation)
        elif run_one(r, frame, s, body[k + 1:]) is not None:
            break
    r.params.sort(key=lambda q: order.get(q.name, len(order)))


def declared_here(r: Reader, f: Frame, name: str, annotation: cst.BaseExpression) -> None:
    """A parameter of an eager kernel, where its body says what it is."""
    try:
        stated = r.decided(evaluate(r, f.scope, annotation))
        f.scope.names[name] = declared(r, name, stated)
    except Undecided as open_:
        raise NotUnderstood(f"the type of '{name}' depends on a condition that the binding decides") from open_


def declared(r: Reader, name: str, kind: Value) -> Value:
    """A parameter of the kernel: a tensor or a number."""
    own = name
    if isinstance(kind, TensorType):
        shape = tuple(_extent(r, d) for d in kind.shape)
        strides = None if kind.strides is None else tuple(_extent(r, d) for d in kind.strides)
        if strides is not None and strides == _row_major(shape):
            strides = None
        buffer = n.Buffer(own, r.dtype(kind.dtype), shape, "global", None, strides)
        r.params.append(n.Param(own, "in", buffer))
        return Memory(buffer)
    dtype = r.dtype(kind) if isinstance(kind, (TypeOf, str, Open)) else None
    if dtype is None:
        raise NotUnderstood(f"the parameter '{name}' is {describe(kind)}")
    r.params.append(n.Param(own, "scalar", dtype))
    return Num(n.Var(own, dtype))


def _extent(r: Reader, v: Value) -> n.Expr:
    e = r.integer(v)
    return build.const(int(e.value)) if isinstance(e, n.Const) else e


def _row_major(shape: tuple[n.Expr, ...]) -> tuple[n.Expr, ...]:
    out: list[n.Expr] = []
    step: n.Expr = build.const(1)
    for d in reversed(shape):
        out.append(step)
        step = build.mul(step, d)
    return tuple(reversed(out))


def _remaining_metas(r: Reader, module: Module, owners: tuple[cst.FunctionDef, ...]) -> None:
    """Parameters of the factory that nothing uses, and those whose values were given, are metas all the same."""
    typed = {s.target.value for f in owners for line in f.body.body if isinstance(line, cst.SimpleStatementLine) for s in line.body
             if isinstance(s, cst.AnnAssign) and s.value is None and isinstance(s.target, cst.Name)}
    for f in owners:
        for p in (*f.params.posonly_params, *f.params.params, *f.params.kwonly_params):
            name = p.name.value
            if any(q.name == name for q in (*r.params, *r.sizes.values())) or name in typed or f"{name}_0" in r.given:
                continue
            if name in r.given:
                _given_meta(r, name)
            elif name not in r.metas and name not in r.objects and r.kinds.get(name, ""):
                r.meta(name, r.kinds[name])
    for name in list(r.asked):
        _given_meta(r, name)
    stated = [p.name.value for f in owners for p in (*f.params.posonly_params, *f.params.params, *f.params.kwonly_params)]
    order = {name: k for k, name in enumerate(stated)}
    r.metas = dict(sorted(r.metas.items(), key=lambda item: order.get(item[0], len(order))))


def _given_meta(r: Reader, name: str) -> None:
    if name in r.metas:
        return
    value = r.given[name]
    if isinstance(value, TypeOf):
        r.metas[name] = n.Meta(name, "dtype", value.dtype.name)
        return
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float" if isinstance(value, float) else "any"
    r.metas[name] = n.Meta(name, kind, value if is_known(value) else None)  # type: ignore[arg-type]  # a literal


# ------------------------------------------------------------------------------------------------------------------ the program
def _program(r: Reader, module: Module, node: cst.FunctionDef, name: str) -> n.Program:
    def opaque(s: n.Stmt, reason: str) -> n.Stmt:
        return n.Opaque("tilelang", source_of(module, s), reason, ("*",), ("*",), origin=s.origin)

    kernels = []
    for k, part in enumerate(r.parts or (Part(r.grid, r.threads, r.cluster, r.attrs, ()),)):
        block = (*r.out.block, *part.block)
        body = laid_out(r, in_their_branch(without_unread(block, frozenset(r.joined)), frozenset(r.hoisted)))
        placing = Placing(part.threads, r.thread, r.thread_name, frozenset(r.reducers), r.out.fresh, opaque, lambda e: guarded(r, e),
                          part.attrs.get("tl_disable_thread_storage_sync") is not True)
        body = with_known_effects(with_ready_barriers(with_fills(placing.body(body))), frozenset(q.name for q in r.params))
        kernels.append(n.Kernel(f"{name}_{k + 1}" if k else name, part.grid, part.threads, body, part.cluster, n.attrs(**part.attrs),
                                origin=module.origin(node)))
    body = tuple(s for k in kernels for s in k.body)
    params = _roles(r, body)
    used = _used(kernels, params)
    sizes = tuple(p for p in r.sizes.values() if p.name in used)
    return n.Program(name, tuple(r.metas.values()), (*sizes, *params), workspaces=tuple(r.workspaces), kernels=tuple(kernels))


def source_of(module: Module, s: n.Stmt) -> str:
    """The text of a statement, from where it stands."""
    if s.origin is None:
        return "?"
    lines = module.text.splitlines()[s.origin.line - 1: s.origin.end_line]
    return "\n".join(lines).strip() or "?"


def _roles(r: Reader, body: n.Block) -> tuple[n.Param, ...]:
    """The parameters with the roles that the body gives them."""
    read, written = accessed(body)
    views = {s.buffer.name: s.at.buffer.name for s in statements(body) if isinstance(s, n.View)}

    def base(x: str) -> str:
        while x in views:
            x = views[x]
        return x

    read, written = {base(x) for x in read}, {base(x) for x in written}
    if any(isinstance(s, n.Opaque) and "*" in s.writes for s in statements(body)):
        written |= {q.name for q in r.params}
        read |= written
    out = []
    for q in r.params:
        if isinstance(q.of, n.Buffer):
            q = replace(q, role="inout" if q.name in read and q.name in written else "out" if q.name in written else "in")
        out.append(q)
    return tuple(out)


def _used(kernels: Iterable[n.Kernel], params: tuple[n.Param, ...]) -> set[str]:
    """Names that the program mentions anywhere."""
    parts: list[n.Node] = [x for k in kernels for x in (*k.body, k.threads, *(a.extent for a in k.grid))]
    for q in params:
        if isinstance(q.of, n.Buffer):
            parts += [*q.of.shape, *(q.of.strides or ())]
    return {x.name for p in parts for x in walk(p) if isinstance(x, n.Var)}


