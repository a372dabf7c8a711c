"""Versions of a kernel that a launch chooses where sizes are certain numbers, and that are the other version with the numbers in it: they do the same there, so
that what is shown of the other one is shown of them, and no test need be as large as the numbers are."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.canonical import alpha_equal
from kir.ir.rebuild.plans import conjuncts, launches
from kir.ir.types import DType
from kir.ir.visit import names_read, transform


def without_versions(program: n.Program) -> n.Program:
    """A program without the launches that it makes instead of others at numbers of sizes, and without their kernels, where each kernel is the other one with
    the numbers in the place of the sizes (`know-sizes` writes such). What differs in anything else stays."""
    plan = _without(program, program.plan)
    if plan == program.plan:
        return program
    launched = {step.kernel for step in launches(replace(program, plan=plan))}
    return replace(program, plan=plan, kernels=tuple(k for k in program.kernels if k.name in launched))


def _without(program: n.Program, plan: tuple[n.Launch | n.Dispatch, ...]) -> tuple[n.Launch | n.Dispatch, ...]:
    out: list[n.Launch | n.Dispatch] = []
    for step in plan:
        if isinstance(step, n.Launch):
            out.append(step)
            continue
        arms = tuple((guard, _without(program, arm)) for guard, arm in step.arms)
        orelse = _without(program, step.orelse)
        kept = tuple((guard, arm) for guard, arm in arms if not _same(program, guard, arm, orelse))
        if len(kept) < len(arms) == 1:  # of several arms a later one would be taken in the place of the first
            out += orelse
        else:
            out.append(n.Dispatch(arms, orelse))
    return tuple(out)


def _same(program: n.Program, guard: n.Expr, arm: tuple[n.Launch | n.Dispatch, ...], orelse: tuple[n.Launch | n.Dispatch, ...]) -> bool:
    """Whether an arm launches, one after the other, what the other arm launches, with the numbers that its guard says in the place of sizes."""
    numbers = _numbers(program, guard)
    if numbers is None or len(arm) != len(orelse):
        return False
    kernels = {k.name: k for k in program.kernels}
    return all(isinstance(a, n.Launch) and isinstance(b, n.Launch) and a.attrs == b.attrs and _equal(program, kernels[a.kernel], kernels[b.kernel], numbers)
               for a, b in zip(arm, orelse, strict=True))


def _numbers(program: n.Program, guard: n.Expr) -> dict[str, n.Const] | None:
    """The numbers of sizes that a condition says, where it says nothing else."""
    sizes = {p.name for p in program.params if p.role == "size" and isinstance(p.of, DType)}
    out: dict[str, n.Const] = {}
    for part in conjuncts(guard):
        if not (isinstance(part, n.Binary) and part.op == "eq" and isinstance(part.a, n.Var) and isinstance(part.b, n.Const)):
            return None
        if part.a.name not in sizes or part.a.name in out or int_value(part.b) is None:
            return None
        out[part.a.name] = part.b
    return out


def _equal(program: n.Program, mine: n.Kernel, other: n.Kernel, numbers: Mapping[str, n.Const]) -> bool:
    """Whether a kernel is another one with numbers in the place of sizes, but for the extents of tensors."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        return numbers.get(old.name, new) if type(old) is n.Var else new
    made = transform(other, leave, lambda x: not isinstance(x, n.Buffer) and not numbers.keys().isdisjoint(names_read(x)))
    assert isinstance(made, n.Kernel)
    alone = replace(program, plan=(), kernels=(mine,))
    return alpha_equal(alone, replace(alone, kernels=(replace(made, name=mine.name, label=mine.label),)))


__all__ = ["without_versions"]
