"""Launch plans: every launch in order, which of them a call makes, and what holds whenever a kernel runs."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kir.base.diagnostic import error
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.visit import substitute

Plan = Sequence[n.Launch | n.Dispatch]


def plan_of(program: n.Program) -> Plan:
    """The plan, written out where it is left empty: every kernel in order."""
    return program.plan or tuple(n.Launch(k.name) for k in program.kernels)


def launches(program: n.Program) -> tuple[n.Launch, ...]:
    """Every launch of the plan, those of all arms included, in the order of its text."""
    return tuple(step for step, _ in _walked(plan_of(program), ()))


def made(program: n.Program, sizes: Mapping[str, n.Expr]) -> tuple[bool, ...]:
    """Which of `launches` a call makes whose sizes and scalars are these constants. Raises KirError KIR-G103 for a guard that they do not decide."""
    return tuple(_taken(plan_of(program), sizes))


def has_dispatch(program: n.Program) -> bool:
    """Whether the plan takes one of several launches at run time."""
    return any(isinstance(step, n.Dispatch) for step in program.plan)


def guards_of(program: n.Program, kernel: str) -> tuple[n.Expr, ...]:
    """Conditions that hold whenever a kernel is launched: those of arms that every launch of it stands in."""
    paths = [guards for step, guards in _walked(plan_of(program), ()) if step.kernel == kernel]
    return tuple(g for g in paths[0] if all(g in other for other in paths[1:])) if paths else ()


def _walked(plan: Plan, guards: tuple[n.Expr, ...]) -> Iterator[tuple[n.Launch, tuple[n.Expr, ...]]]:
    for step in plan:
        if isinstance(step, n.Launch):
            yield step, guards
            continue
        for guard, arm in step.arms:
            yield from _walked(arm, (*guards, *conjuncts(guard)))
        yield from _walked(step.orelse, guards)


def conjuncts(e: n.Expr) -> tuple[n.Expr, ...]:
    """The conditions that a conjunction is made of."""
    return (*conjuncts(e.a), *conjuncts(e.b)) if isinstance(e, n.Binary) and e.op == "and" else (e,)


def _taken(plan: Plan, sizes: Mapping[str, n.Expr], here: bool = True) -> Iterator[bool]:
    for step in plan:
        if isinstance(step, n.Launch):
            yield here
            continue
        open_ = here
        for guard, arm in step.arms:
            holds = open_ and _decided(guard, sizes)
            yield from _taken(arm, sizes, holds)
            open_ = open_ and not holds
        yield from _taken(step.orelse, sizes, open_)


def _decided(guard: n.Expr, sizes: Mapping[str, n.Expr]) -> bool:
    value = substitute(guard, sizes)
    if not isinstance(value, n.Const):
        raise error("KIR-G103", f"the guard {expr_text(guard)} is not decided by the sizes of a call", needs="a guard over sizes and scalars")
    return bool(value.value)
