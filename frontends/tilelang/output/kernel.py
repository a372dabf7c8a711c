"""From a function of TileLang, with the factory around it, to a generic program: sizes, metas, tensors, launch, body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import libcst as cst

from kir.base.diagnostic import KirError, error
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.rules.verify import verify

from ..._python.project import Module, Project
from ..._python.signature import parameters
from ..launch.factories import is_eager, of_kind, run_factories
from ..launch.guessed import Asked
from ..launch.language import HANDLERS
from ..state.declarations import declared, declared_here
from ..state.evaluate import evaluate
from ..state.execute import run_one
from ..state.open_values import parameter
from ..state.reader import OWN, Another, Reader, Refused, Undecided, said
from ..syntax.parameter_kinds import kinds, perhaps_none
from ..values.values import Frame, NotUnderstood, Raised, Scope, TensorType, TypeOf, Value, is_known
from .program import program

Side = tuple[n.Expr, bool]
"""A condition that the binding decides, with an outcome."""
SIDES = 8
"""Kernels, at most, that one function is read as."""


def read_kernel(
    project: Project, module: Module, node: cst.FunctionDef, name: str, given: Mapping[str, Value] | None = None, sizes: Iterable[str] = (),
    questions: dict[str, str] | None = None, assumed: Sequence[Side] = (), undecided: list[n.Expr] | None = None, asked: Asked | None = None,
) -> n.Program:
    """The generic program of a function. `given` are values of metas that a binding gives (None: there is no binding), `sizes` what it counts
    among the sizes; `questions` is filled with what is asked of the binding, by name. `assumed` are conditions of the binding with their outcomes;
    `undecided` is given the one that makes it two kernels, `asked` what is asked besides. What is not understood is in it as `opaque` statements.
    Raises KirError KIR-F401 (two layouts for one buffer) and KIR-F402 (these values make another kernel)."""
    r = Reader(HANDLERS, project, module, given or {}, given is not None, sizes)
    r.out.taken |= {p.name.value for p in node.params.params}
    for cond, holds in assumed:
        r.assume(cond if holds else build.invert(cond))
    owners = module.owners.get(id(node), ())
    try:
        scope = run_factories(r, module, node, owners)
        _read(r, module, node, scope)
    except Refused as bad:
        raise bad.error from bad
    except Raised as bad:
        said = " ".join(bad.text.split())
        raise error("KIR-F402", f"the factory of '{node.name.value}' makes no kernel for these values" + (f": '{said[:160]}'" if said else ""),
                    origin=bad.origin or module.origin(node), witness=bad.given,
                    needs="values for which its own checks hold") from None
    except (NotUnderstood, KirError, Undecided, Another) as why:
        told = why.diagnostics[0].message if isinstance(why, KirError) else _open(why)
        reason = why.reason if isinstance(why, NotUnderstood) else told
        open_ = why if isinstance(why, (Undecided, Another)) else why.__cause__
        if undecided is not None and isinstance(open_, (Undecided, Another)):
            undecided.append(open_.cond)
        _not_understood(r, module, node, reason)
    _remaining_metas(r, module, owners or (node,))
    if questions is not None:
        questions.update(r.questions)
    if asked is not None:
        asked.needed += r.assumed
        asked.steps += r.steps
        asked.lists.update(r.lists)
        asked.choices.update(r.choices)
        asked.answered |= {k for k, key in r.questions.items() if key.startswith(OWN)}
        asked.metas.update(r.metas)
        own = {p.name.value for f in owners for p in parameters(f)}
        asked.answered |= {k for k in r.metas for x in r.metas if k.startswith(f"{x}_") and k not in own}
    made = program(r, module, node, name)
    if given is None and (wrong := verify(made)):  # what only values of the binding would make well-formed
        _not_understood(r, module, node, wrong[0].message)
        made = program(r, module, node, name)
    return made


def _not_understood(r: Reader, module: Module, node: cst.FunctionDef, reason: str) -> None:
    """All of the function as one statement that is not understood."""
    del r.out.block[:], r.parts[:]
    r.grid, r.threads, r.thread_shape, r.cluster = (), build.const(128), (), ()  # of a launch that may name what the function alone knows
    r.out.emit(n.Opaque("tilelang", module.code(node).strip(), reason, origin=module.origin(node)))
    r.params = []


def read_sides(project: Project, module: Module, node: cst.FunctionDef, name: str) -> list[tuple[tuple[Side, ...], n.Program]]:
    """The generic programs of a function, one for each outcome of the conditions of the binding that make it another kernel, each with what it
    assumes (nothing for a function that is one kernel, or more than are told apart: then it is kept as text). Raises KirError as `read_kernel` does."""
    whole: n.Program | None = None
    waiting: list[tuple[Side, ...]] = [()]
    out: list[tuple[tuple[Side, ...], n.Program]] = []
    last: KirError | None = None
    while waiting:
        assumed = waiting.pop(0)
        undecided: list[n.Expr] = []
        try:
            made = read_kernel(project, module, node, name, assumed=assumed, undecided=undecided)
        except KirError as bad:
            last = bad  # a side for which the factory makes no kernel
            continue
        whole = whole or made
        if undecided and undecided[0] not in [cond for cond, _ in assumed]:
            if len(out) + len(waiting) + 2 > SIDES:
                return [((), whole)]
            waiting += [(*assumed, (undecided[0], holds)) for holds in (True, False)]
            continue
        out.append((assumed, made))
    if not out and last is not None:
        raise last
    return out


def in_words(side: Side) -> str:
    """A condition of the binding with its outcome, in the notation of dtype terms."""
    cond, holds = side
    try:
        return said(cond if holds else build.invert(cond))
    except NotUnderstood:
        return f"{expr_text(cond)} {'holds' if holds else 'does not hold'}"


def _open(why: Exception) -> str:
    """What the binding must decide before a kernel is one."""
    try:
        return f"it is another kernel where {said(why.cond)} holds, which the binding decides" if isinstance(why, (Undecided, Another)) else ""
    except NotUnderstood:
        return "it is another kernel where a condition holds that the binding decides"


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
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float" if isinstance(value, float) else (
        "str" if isinstance(value, str) else "any")
    r.metas[name] = n.Meta(name, kind, value if is_known(value) else None)  # type: ignore[arg-type]  # a literal


# ------------------------------------------------------------------------------------------------------------------ the program


