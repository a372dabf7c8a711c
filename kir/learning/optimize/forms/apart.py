"""What is done to a naive kernel first, so that what needs nothing of one another are axes and tiles: steps, and what they come to."""
from __future__ import annotations

from kir.ir import nodes as n
from kir.ir.visit import statements
from kir.learning.optimize.lift import Left, taken
from kir.learning.optimize.plan import Setting
from kir.rewrite import Step, pass_class


def apart(program: n.Program, setting: Setting) -> tuple[tuple[Step, ...], n.Program]:
    """Steps that make axes of coordinates that are divided out of a number, and of loops, and what they come to, as long as a kernel is one loop of which no
    iteration needs another."""
    steps, now = list[Step](), program
    if len(now.kernels) == 1 and len(now.kernels[0].grid) == 1:
        done = taken(now, step := Step("number-items", {}, now.kernels[0].name, "backward"), setting.context)
        if not isinstance(done, Left):
            steps, now = [step], done[-1].program
    while len(now.kernels) == 1 and len(now.kernels[0].body) == 1 and isinstance(now.kernels[0].body[0], n.For):
        step = Step.of(pass_class("walk-items").with_options({"axis": 0}), now.kernels[0].name, "backward")
        done = taken(now, step, setting.context)
        if isinstance(done, Left):
            break
        steps, now = [*steps, step], done[-1].program
    return tuple(steps), now


def by_rows(program: n.Program, setting: Setting) -> tuple[tuple[Step, ...], n.Program]:
    """Steps that see flat tensors by the coordinates of their places, and what they come to."""
    steps, now = list[Step](), program
    for p in now.params if len(now.kernels) == 1 else ():
        if isinstance(p.of, n.Buffer) and len(p.of.shape) == 1:
            done = taken(now, step := Step("view-rows", {"buffer": p.name}, now.kernels[0].name), setting.context)
            if not isinstance(done, Left):
                steps, now = [*steps, step], done[-1].program
    return tuple(steps), now


def masked(program: n.Program, setting: Setting) -> tuple[tuple[Step, ...], n.Program]:
    """Steps that make masks of branches, which tiles cannot take, and what they come to."""
    steps, now = list[Step](), program
    for _ in range(sum(isinstance(s, n.If) for k in now.kernels for s in statements(k.body))):
        done = taken(now, step := Step("predicate"), setting.context)
        if isinstance(done, Left):
            break
        steps, now = [*steps, step], done[-1].program
    return tuple(steps), now


__all__ = ["apart", "by_rows", "masked"]
