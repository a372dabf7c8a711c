"""Facts that nothing says, under which alone a kernel stays inside its tensors: they are not the kernel's to claim."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kir.base.diagnostic import error
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.problem import Problem


def require_said(program: n.Program, unsaid: Iterable[str], problem: Problem | None, against: n.Program | None, attempt: str = "") -> None:
    """Raises KirError KIR-G137 where the problem has shapes that only such facts leave out, or the other program does without them: a kernel that lacks a
    mask is right at the sizes at which it needs none."""
    facts = {_plain(f): f for f in unsaid}
    own = [f for f in program.facts if _plain(expr_text(f)) in facts]
    if against is not None:
        others = {_plain(expr_text(f)) for f in against.facts}
        own = [f for f in own if _plain(expr_text(f)) not in others] if problem is None else own
    witness: tuple[str, ...] = ()
    if problem is not None:
        taken = problem.shapes_for(program)
        left = [s for s in problem.shapes_for(replace(program, facts=tuple(f for f in program.facts if f not in own))) if s not in taken]
        witness = tuple(", ".join(f"{k} = {v}" for k, v in s.sizes.items()) for s in left[:1])
    if own and (witness or problem is None):
        said = " and ".join(expr_text(f) for f in own)
        raise error("KIR-G137", f"'{program.name}' is inside its tensors only where {said}, which nothing says", witness=witness, attempt=attempt,
                    needs=f"a kernel for {'all shapes of the problem' if problem is not None else 'all sizes of the other one'}, or a test in its host code "
                    "or a fact in its binding that leaves these out")


def _plain(text: str) -> str:
    return "".join(text.split())


__all__ = ["require_said"]
