"""Programs of several kernels: each kernel as a program of its own, what became of it put back, and which of them together come first."""
from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from kir.base.diagnostic import KirError, error
from kir.ir import nodes as n
from kir.ir.visit import statements, transform, walk
from kir.learning.optimize.lift import FAULTS, Left, Lifted, Prefixes, lifted
from kir.learning.optimize.plan import Plan
from kir.learning.optimize.words import in_words_of, numbers_of
from kir.learning.tune.rank import promised
from kir.rewrite import Context, Step

T = TypeVar("T")
MOST = 64
"""Ways to combine kernels that are listed."""


def alone(program: n.Program, name: str) -> n.Program:
    """One kernel of a program, as a program: what it reads and writes are its parameters, also what others leave it in a workspace."""
    kernel = next(k for k in program.kernels if k.name == name)
    named = {x.name for x in walk(kernel) if isinstance(x, (n.Buffer, n.Var))}
    stored = {s.at.buffer.name for s in statements(kernel.body) if isinstance(s, n.Store)} | {
        s.dst.buffer.name for s in statements(kernel.body) if isinstance(s, n.Copy)}
    read = {x.at.buffer.name for x in walk(kernel) if isinstance(x, n.Load)}
    kept = tuple(p for p in program.params if p.name in named or p.role == "size")

    def role(buffer: str) -> Literal["in", "out", "inout"]:
        return "in" if buffer not in stored else "inout" if buffer in read else "out"

    passed = tuple(n.Param(w.buffer.name, role(w.buffer.name), w.buffer) for w in program.workspaces if w.buffer.name in named)
    return replace(program, params=(*kept, *passed), kernels=(kernel,), workspaces=(), plan=())


def put_back(program: n.Program, name: str, made: n.Program) -> n.Program:
    """The program with what `made` has in the place of the kernel `name`. Raises KirError KIR-U029 for what one launch plan cannot say: a kernel that is
    chosen by the sizes."""
    if any(isinstance(s, n.Dispatch) for s in made.plan):
        raise error("KIR-U029", f"the kernel '{name}' would be chosen by the sizes", needs="steps that hold at every size")
    others = {k.name for k in program.kernels} - {name}
    clash = others & {k.name for k in made.kernels}
    if clash:
        raise error("KIR-U029", f"a new kernel is named '{min(clash)}', as another one is", needs="steps that name their kernels otherwise")
    buffers = {p.name: p.of for p in made.params if isinstance(p.of, n.Buffer)}

    def leave(_: n.Node, new: n.Node) -> n.Node:
        return buffers[new.name] if isinstance(new, n.Buffer) and new.name in buffers and new.space == "global" else new

    kernels: list[n.Kernel] = []
    for k in program.kernels:
        if k.name == name:
            kernels += made.kernels
        else:
            other = transform(k, leave)
            assert isinstance(other, n.Kernel)
            kernels.append(other)
    params = tuple(replace(p, of=buffers.get(p.name, p.of)) for p in program.params)
    own = tuple(replace(w, buffer=buffers.get(w.buffer.name, w.buffer)) for w in program.workspaces)
    facts = (*program.facts, *(f for f in made.facts if f not in program.facts))
    known = {p.name for p in program.params} | {w.buffer.name for w in program.workspaces}
    new = tuple(p for p in made.params if p.name not in known)
    return replace(program, params=(*params, *new), kernels=tuple(kernels), facts=facts, workspaces=(*own, *made.workspaces),
                   tensor_maps=(*program.tensor_maps, *made.tensor_maps), functions=made.functions or program.functions, plan=())


def together(ranked: Mapping[str, Sequence[tuple[float, T]]]) -> Iterator[dict[str, T]]:
    """One choice for each name, those first whose sum is least."""
    names = [name for name, rows in ranked.items() if rows]
    first = (0,) * len(names)
    cost = sum(ranked[name][0][0] for name in names)
    heap, seen = [(cost, first)], {first}
    for _ in range(MOST):
        if not heap or not names:
            return
        cost, at = heapq.heappop(heap)
        yield {name: ranked[name][k][1] for name, k in zip(names, at, strict=True)}
        for i, name in enumerate(names):
            after = (*at[:i], at[i] + 1, *at[i + 1:])
            if after[i] < len(ranked[name]) and after not in seen:
                seen.add(after)
                heapq.heappush(heap, (cost - ranked[name][at[i]][0] + ranked[name][after[i]][0], after))


def taken(program: n.Program, plan: Plan, context: Context, prefixes: Prefixes) -> Lifted:
    """What a plan makes of a program: its promises made, its steps taken in the words that they were written in."""
    if plan.parts:
        now, steps, left, unproved = program, list[Step](), list[Left](), list[str]()
        for name, part in plan.parts:
            done = taken(alone(now, name), part, context, prefixes)
            now = put_back(now, name, done.program)
            steps, left, unproved = [*steps, *done.steps], [*left, *done.left], [*unproved, *done.unproved]
        return Lifted(now, tuple(steps), tuple(left), tuple(dict.fromkeys(unproved)))

    def kept(p: n.Program, whose: str) -> n.Program:
        numbers = numbers_of(plan.home, p) if plan.home is not None and whose == "home" else {}
        return promised(p, plan.facts, plan.align, numbers) if plan.promises == whose and (plan.facts or plan.align) else p

    if plan.home is None:
        return lifted(kept(kept(program, "own"), "home"), plan, context, prefixes, plan.most_left, True)
    words = in_words_of(plan.home, kept(program, "own"))
    done = lifted(kept(words.program, "home"), plan, context, prefixes, plan.most_left, True)
    return Lifted(words.back(done.program), done.steps, done.left, done.unproved)


def narrowed(start: n.Program, plans: Sequence[Plan], result: n.Program, take: Callable[[n.Program, Plan], Lifted]) -> n.Program:
    """The result of these plans, one on top of the other, with no more of their promises about sizes than it needs to be the same but for its facts."""
    def made(facts: Sequence[str]) -> n.Program | None:
        now = start
        try:
            for plan in plans:
                now = take(now, _promising(plan, facts)).program
        except (KirError, *FAULTS):
            return None
        return now if replace(now, facts=result.facts) == result else None

    asked = list(dict.fromkeys(f for plan in plans for f in _facts(plan)))
    if not asked:
        return result
    if (free := made(())) is not None:
        return free
    for fact in list(asked):
        if len(asked) > 1 and made([f for f in asked if f != fact]) is not None:
            asked.remove(fact)
    return made(asked) or result


def _facts(plan: Plan) -> Iterator[str]:
    yield from plan.facts
    for _, part in plan.parts:
        yield from _facts(part)


def _promising(plan: Plan, facts: Sequence[str]) -> Plan:
    """The plan with those of its promises alone that are among these."""
    parts = tuple((name, _promising(part, facts)) for name, part in plan.parts)
    return replace(plan, facts=tuple(f for f in plan.facts if f in facts), parts=parts)
