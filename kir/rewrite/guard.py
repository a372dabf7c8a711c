"""Guarded steps: where a precondition can be checked at launch, both versions of the kernel travel and the launch plan chooses."""
from __future__ import annotations

from dataclasses import replace

from kir.base.diagnostic import error
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.types import DType
from kir.ir.visit import names_read, transform

Plan = tuple[n.Launch | n.Dispatch, ...]


def can_be_checked(guard: n.Expr, program: n.Program) -> bool:
    """Whether a condition is one that the host knows at launch: over sizes and scalar parameters only."""
    return names_read(guard) <= {p.name for p in program.params if isinstance(p.of, DType)}


def fallback_name(kernel: str) -> str:
    """What the unchanged kernel is called beside the changed one."""
    return f"{kernel}_otherwise"


def with_guard(before: n.Program, after: n.Program, kernel: str, guard: n.Expr) -> n.Program:
    """`after`, launched where `guard` holds, with the kernel of `before` for the rest. Raises KirError KIR-R015 when the step changed
    more than that kernel."""
    names = [k.name for k in before.kernels]
    alone = replace(before, kernels=(), plan=()) == replace(after, kernels=(), plan=()) and before.plan == after.plan
    if not alone or names != [k.name for k in after.kernels] or fallback_name(kernel) in names:
        raise error("KIR-R015", f"the step changes more than kernel '{kernel}', so that no launch can choose between both versions")
    old = next(k for k in before.kernels if k.name == kernel)
    kernels: list[n.Kernel] = []
    for k in after.kernels:
        kernels.append(k)
        if k.name == kernel:
            kernels.append(replace(old, name=fallback_name(kernel), label=None))
    plan = after.plan or tuple(n.Launch(x) for x in names)
    return replace(after, kernels=tuple(kernels), plan=_guarded(plan, kernel, guard))


def _guarded(plan: Plan, kernel: str, guard: n.Expr) -> Plan:
    out: list[n.Launch | n.Dispatch] = []
    for step in plan:
        if isinstance(step, n.Dispatch):
            arms = tuple((g, _guarded(arm, kernel, guard)) for g, arm in step.arms)
            out.append(n.Dispatch(arms, _guarded(step.orelse, kernel, guard)))
        elif step.kernel == kernel:
            out.append(n.Dispatch(((guard, (step,)),), (replace(step, kernel=fallback_name(kernel)),)))
        else:
            out.append(step)
    return tuple(out)


def with_otherwise(fast: n.Program, slow: n.Program) -> n.Program:
    """`fast` wherever its own facts hold, and `slow` for the rest: the facts that `slow` does not need become the guard of the launch plan.

    Both have the same parameters. The kernels of `slow` take names of their own. Raises KirError KIR-R015 when a parameter differs, or a
    fact is nothing that a launch knows."""
    if [(p.name, p.role) for p in fast.params] != [(p.name, p.role) for p in slow.params] or slow.tensor_maps or slow.workspaces or slow.functions:
        raise error("KIR-R015", f"'{slow.name}' cannot stand beside '{fast.name}': one launch gives both the same parameters",
                    needs="a program with the same parameters, without maps, workspaces and functions of its own")
    extra = tuple(f for f in fast.facts if f not in slow.facts)
    if unknown := [f for f in extra if not can_be_checked(f, fast)]:
        raise error("KIR-R015", f"no launch can check {expr_text(unknown[0])}")
    if not extra:
        return fast
    taken = {k.name for k in fast.kernels}
    names = {k.name: next(x for x in (fallback_name(k.name), *(f"{fallback_name(k.name)}_{i}" for i in range(len(taken) + 1))) if x not in taken)
             for k in slow.kernels}
    buffers = {p.of.name: p.of for p in fast.params if isinstance(p.of, n.Buffer)}

    def leave(_: n.Node, node: n.Node) -> n.Node:
        return buffers.get(node.name, node) if isinstance(node, n.Buffer) and node.space == "global" else node

    renamed = transform(slow, leave)
    assert isinstance(renamed, n.Program)
    kernels = tuple(replace(k, name=names[k.name], label=None) for k in renamed.kernels)
    guard = extra[0]
    for f in extra[1:]:
        guard = build.binary("and", guard, f)
    rest = _relaunched(slow.plan or tuple(n.Launch(k.name) for k in slow.kernels), names)
    plan = (n.Dispatch(((guard, fast.plan or tuple(n.Launch(k.name) for k in fast.kernels)),), rest),)
    return replace(fast, facts=slow.facts, kernels=(*fast.kernels, *kernels), plan=plan)


def _relaunched(plan: Plan, names: dict[str, str]) -> Plan:
    return tuple(replace(s, kernel=names[s.kernel]) if isinstance(s, n.Launch) else
                 n.Dispatch(tuple((g, _relaunched(arm, names)) for g, arm in s.arms), _relaunched(s.orelse, names)) for s in plan)


def without_guard(program: n.Program, kernel: str) -> tuple[n.Program, n.Expr, n.Kernel] | None:
    """The program with only the guarded version of a kernel, the guard, and the other version under the kernel's own name; None when
    the kernel is not guarded in the way that `with_guard` writes."""
    other = next((k for k in program.kernels if k.name == fallback_name(kernel)), None)
    guards: set[n.Expr] = set()
    if other is None:
        return None
    plan = _plain(program.plan, kernel, guards)
    if len(guards) != 1 or any(fallback_name(kernel) in _launched((step,)) for step in plan):
        return None
    kernels = tuple(k for k in program.kernels if k is not other)
    if plan == tuple(n.Launch(k.name) for k in kernels):
        plan = ()
    return replace(program, kernels=kernels, plan=plan), guards.pop(), replace(other, name=kernel)


def _plain(plan: Plan, kernel: str, guards: set[n.Expr]) -> Plan:
    out: list[n.Launch | n.Dispatch] = []
    for step in plan:
        if not isinstance(step, n.Dispatch):
            out.append(step)
            continue
        if len(step.arms) == 1:
            (guard, arm), = step.arms
            if len(arm) == 1 and isinstance(arm[0], n.Launch) and arm[0].kernel == kernel and \
                    step.orelse == (replace(arm[0], kernel=fallback_name(kernel)),):
                guards.add(guard)
                out.append(arm[0])
                continue
        out.append(n.Dispatch(tuple((g, _plain(arm, kernel, guards)) for g, arm in step.arms), _plain(step.orelse, kernel, guards)))
    return tuple(out)


def _launched(plan: Plan) -> set[str]:
    out: set[str] = set()
    for step in plan:
        out |= {step.kernel} if isinstance(step, n.Launch) else _launched(step.orelse).union(*(_launched(arm) for _, arm in step.arms))
    return out
