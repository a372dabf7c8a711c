"""Guarded steps: where a precondition can be checked at launch, both versions of the kernel travel and the launch plan chooses."""
from __future__ import annotations

from collections.abc import Sequence
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


def with_guard(before: n.Program, after: n.Program, kernel: str, guard: n.Expr, other: str = "") -> n.Program:
    """`after`, launched where `guard` holds, with the kernel of `before` for the rest, as `other` (left open: as `fallback_name` says). Raises KirError
    KIR-R015 when the step changed more than that kernel."""
    names, other = [k.name for k in before.kernels], other or fallback_name(kernel)
    alone = replace(before, kernels=(), plan=()) == replace(after, kernels=(), plan=()) and before.plan == after.plan
    if not alone or names != [k.name for k in after.kernels] or other in names:
        raise error("KIR-R015", f"the step changes more than kernel '{kernel}', so that no launch can choose between both versions")
    old = next(k for k in before.kernels if k.name == kernel)
    kernels: list[n.Kernel] = []
    for k in after.kernels:
        kernels.append(k)
        if k.name == kernel:
            kernels.append(replace(old, name=other, label=None))
    plan = after.plan or tuple(n.Launch(x) for x in names)
    return replace(after, kernels=tuple(kernels), plan=_guarded(plan, kernel, guard, other))


def _guarded(plan: Plan, kernel: str, guard: n.Expr, other: str) -> Plan:
    out: list[n.Launch | n.Dispatch] = []
    for step in plan:
        if isinstance(step, n.Dispatch):
            arms = tuple((g, _guarded(arm, kernel, guard, other)) for g, arm in step.arms)
            out.append(n.Dispatch(arms, _guarded(step.orelse, kernel, guard, other)))
        elif step.kernel == kernel:
            out.append(n.Dispatch(((guard, (step,)),), (replace(step, kernel=other),)))
        else:
            out.append(step)
    return tuple(out)


def with_otherwise(fast: n.Program, slow: n.Program) -> n.Program:
    """`fast` wherever its own facts hold, and `slow` for the rest: the facts that `slow` does not need become the guard of the launch plan.

    Both have the same parameters. The kernels of `slow` take names of their own. Raises KirError KIR-R015 when a parameter differs, or a
    fact is nothing that a launch knows."""
    extra = tuple(f for f in fast.facts if f not in slow.facts)
    if not extra:
        _alongside(fast, slow)
        return fast
    return by_sizes([(_all(extra), fast)], slow)


def by_sizes(versions: Sequence[tuple[n.Expr, n.Program]], rest: n.Program) -> n.Program:
    """Of several programs with the same parameters the first whose condition holds at launch, and `rest` where none does; the facts of each but the
    last are part of its condition. Kernels of the second and later ones take names of their own. Raises KirError KIR-R015 when a parameter differs, a
    condition is nothing that a launch knows, or two need different maps, workspaces or functions."""
    first = versions[0][1]
    kernels, arms, taken = list[n.Kernel](), list[tuple[n.Expr, Plan]](), set[str]()
    buffers = {p.of.name: p.of for p in first.params if isinstance(p.of, n.Buffer)}
    for number, (guard, each) in enumerate(versions, 1):
        if each is not first and (each.tensor_maps, each.workspaces, each.functions) != (first.tensor_maps, first.workspaces, first.functions):
            raise error("KIR-R015", f"'{each.name}' cannot stand beside itself: the versions need different maps, workspaces or functions")
        _alongside(first, replace(each, tensor_maps=(), workspaces=(), functions=()))
        extra = tuple(f for f in each.facts if f not in rest.facts)
        condition = _all((guard, *(f for f in extra if f not in _conjuncts(guard))))
        if not can_be_checked(condition, first):
            unknown = next(f for f in (*extra, guard) if not can_be_checked(f, first))
            raise error("KIR-R015", f"no launch can check {expr_text(unknown)}")
        names = {k.name: k.name if number == 1 else _free(f"{k.name}_{number}", taken) for k in each.kernels}
        kernels += _named(each, names, buffers)
        taken |= set(names.values())
        arms.append((condition, _relaunched(each.plan or tuple(n.Launch(k.name) for k in each.kernels), names)))
    _alongside(first, rest)
    names = {k.name: _free(fallback_name(k.name), taken) for k in rest.kernels}
    orelse = _relaunched(rest.plan or tuple(n.Launch(k.name) for k in rest.kernels), names)
    return replace(first, facts=rest.facts, kernels=(*kernels, *_named(rest, names, buffers)), plan=(n.Dispatch(tuple(arms), orelse),))


def _alongside(fast: n.Program, slow: n.Program) -> None:
    if [(p.name, p.role) for p in fast.params] != [(p.name, p.role) for p in slow.params] or slow.tensor_maps or slow.workspaces or slow.functions:
        raise error("KIR-R015", f"'{slow.name}' cannot stand beside '{fast.name}': one launch gives both the same parameters",
                    needs="a program with the same parameters, without maps, workspaces and functions of its own")


def _all(conditions: Sequence[n.Expr]) -> n.Expr:
    made = conditions[0]
    for f in conditions[1:]:
        made = build.binary("and", made, f)
    return made


def _conjuncts(e: n.Expr) -> tuple[n.Expr, ...]:
    return (*_conjuncts(e.a), *_conjuncts(e.b)) if isinstance(e, n.Binary) and e.op == "and" else (e,)


def _free(name: str, taken: set[str]) -> str:
    return next(x for x in (name, *(f"{name}_{i}" for i in range(len(taken) + 1))) if x not in taken)


def _named(program: n.Program, names: dict[str, str], buffers: dict[str, n.Buffer]) -> list[n.Kernel]:
    """A program's kernels under other names, over the buffers of another one."""
    def leave(_: n.Node, node: n.Node) -> n.Node:
        return buffers.get(node.name, node) if isinstance(node, n.Buffer) and node.space == "global" else node

    out = list[n.Kernel]()
    for k in program.kernels:
        made = transform(k, leave)
        assert isinstance(made, n.Kernel)
        out.append(made if names[k.name] == k.name else replace(made, name=names[k.name], label=None))
    return out


def _relaunched(plan: Plan, names: dict[str, str]) -> Plan:
    return tuple(replace(s, kernel=names[s.kernel]) if isinstance(s, n.Launch) else
                 n.Dispatch(tuple((g, _relaunched(arm, names)) for g, arm in s.arms), _relaunched(s.orelse, names)) for s in plan)


def without_guard(program: n.Program, kernel: str, name: str = "") -> tuple[n.Program, n.Expr, n.Kernel] | None:
    """The program with only the guarded version of a kernel, the guard, and the other version under the kernel's own name; None when
    the kernel is not guarded in the way that `with_guard` writes, with the other version as `name`."""
    name = name or fallback_name(kernel)
    other = next((k for k in program.kernels if k.name == name), None)
    guards: set[n.Expr] = set()
    if other is None:
        return None
    plan = _plain(program.plan, kernel, guards, name)
    if len(guards) != 1 or any(name in _launched((step,)) for step in plan):
        return None
    kernels = tuple(k for k in program.kernels if k is not other)
    if plan == tuple(n.Launch(k.name) for k in kernels):
        plan = ()
    return replace(program, kernels=kernels, plan=plan), guards.pop(), replace(other, name=kernel)


def _plain(plan: Plan, kernel: str, guards: set[n.Expr], other: str) -> Plan:
    out: list[n.Launch | n.Dispatch] = []
    for step in plan:
        if not isinstance(step, n.Dispatch):
            out.append(step)
            continue
        if len(step.arms) == 1:
            (guard, arm), = step.arms
            if len(arm) == 1 and isinstance(arm[0], n.Launch) and arm[0].kernel == kernel and \
                    step.orelse == (replace(arm[0], kernel=other),):
                guards.add(guard)
                out.append(arm[0])
                continue
        out.append(n.Dispatch(tuple((g, _plain(arm, kernel, guards, other)) for g, arm in step.arms), _plain(step.orelse, kernel, guards, other)))
    return tuple(out)


def _launched(plan: Plan) -> set[str]:
    out: set[str] = set()
    for step in plan:
        out |= {step.kernel} if isinstance(step, n.Launch) else _launched(step.orelse).union(*(_launched(arm) for _, arm in step.arms))
    return out
