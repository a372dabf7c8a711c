"""What the figures of the page are said for: sizes, and the device that is modelled."""

from __future__ import annotations

from collections.abc import Mapping

from kir.base.dataclass import dataclass
from kir.base.diagnostic import usage
from kir.hardware.target import Target, target
from kir.ir.build import const
from kir.ir.nodes import Const, Expr, Program
from kir.ir.printer import expr_text
from kir.ir.types import DType
from kir.ir.visit import substitute
from kir.learning.optimize.inputs import usual_sizes
from kir.problem import load_problem


@dataclass(frozen=True)
class Settings:
    """Sizes by name, and the device."""

    sizes: Mapping[str, int]
    device: Target

    @property
    def text(self) -> str:
        """The sizes as a person types them: `M=4096,N=4096`."""
        return ",".join(f"{name}={value}" for name, value in self.sizes.items())


def settings(program: Program, problem: str = "", at: str = "", device: str = "", called: Mapping[str, int] | None = None,
             subject: str = "kir explore") -> Settings:
    """What is asked for: sizes as text, else those of the problem's first timed shape, else those that it is `called` with, where they are more than a test's,
    else usual ones that the program's facts allow. Raises UsageError
    KIR-C002 for a text that gives no sizes, not all of them, or such as the program is not for, KIR-C005 for an unknown device, and KirError as a problem
    does."""
    most = {p.name: p.of.range[1] for p in program.params if p.role == "size" and p.value is None and isinstance(p.of, DType)}
    wanted = [*most]
    found = asked_sizes(at, subject) if at else _of_problem(problem, program) if problem else usual_sizes(program, called)
    missing = [name for name in wanted if name not in found]
    if missing:
        raise usage("KIR-C002", f"no size for '{missing[0]}'", subject=subject, needs=",".join(f"{name}=.." for name in wanted))
    if (bad := [name for name in wanted if found[name] < (0 if f"{name} >= 0" in map(expr_text, program.facts) else 1)]):
        raise usage("KIR-C002", f"size '{bad[0]}' is {found[bad[0]]}", subject=subject, needs="sizes of 1 and more")
    if (bad := [name for name in wanted if found[name] > most[name]]):
        raise usage("KIR-C002", f"size '{bad[0]}' is {found[bad[0]]}", subject=subject, needs=f"at most {most[bad[0]]}, as its dtype holds")
    if at and (unknown := [name for name in found if name not in most]):
        raise usage("KIR-C002", f"there is no size '{unknown[0]}'", subject=subject, needs=",".join(f"{name}=.." for name in wanted))
    if at and (broken := [fact for fact in program.facts if not _holds(program, fact, found)]):
        raise usage("KIR-C002", f"the program is not for {at}", subject=subject, needs=" and ".join(map(expr_text, broken)))
    return Settings({name: found[name] for name in wanted}, target(device or "h200"))


def asked_sizes(text: str, subject: str) -> dict[str, int]:
    """Sizes as a person types them, `M=4096,N=4096`. Raises UsageError KIR-C002 for a text that gives none."""
    parts = dict(part.partition("=")[::2] for part in text.split(",") if part.strip())
    if not parts or not all(value.strip().isdigit() for value in parts.values()):
        raise usage("KIR-C002", f"'{text}' gives no sizes", subject=subject, needs="M=..,N=..")
    return {name.strip(): int(value) for name, value in parts.items()}


def _of_problem(name: str, program: Program) -> dict[str, int]:
    problem = load_problem(name)
    shape = next(iter(problem.tagged("timed")), problem.shapes[0])
    return {k: int(v) for k, v in {**problem.scalars(shape), **problem.sizes_of(program, shape)}.items() if not isinstance(v, float)}


def _holds(program: Program, fact: Expr, sizes: Mapping[str, int]) -> bool:
    """Whether sizes may keep a fact."""
    known = {p.name: const(sizes[p.name], p.of) for p in program.params if p.name in sizes and isinstance(p.of, DType)}
    found: Expr = substitute(fact, known)
    return not isinstance(found, Const) or bool(found.value)
