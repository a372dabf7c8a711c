"""Values of the scalars of a program that is judged by another one: a factor, a floor, a flag that a kernel leaves out shows at no single value."""
from __future__ import annotations

from collections.abc import Mapping

from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.types import DType
from kir.ir.visit import substitute
from kir.problem.draws import generator

SCALARS = "scalars "
"""A distribution of this name and a number: usual inputs, and scalars of other values."""
USUAL: tuple[float, int] = (0.5, 1)
"""Of a float and of a whole number."""
TURNS: tuple[tuple[float, int], ...] = ((1.75, 2), (0.125, 0), (-0.75, 3))
"""The same, for all scalars at once in the first turns."""
FLOATS, WHOLE = (1.75, 0.125, -0.75, 3.0, 0.0, 1.0, 0.01), (0, 1, 2, 3, 5, 8, -1, 16)
"""What each has in the turns after them, as it comes."""
MOST_TURNS = 6


def scalars_of(program: n.Program) -> dict[str, DType]:
    """The scalars that a caller gives."""
    return {p.name: p.of for p in program.params if p.role == "scalar" and p.value is None and isinstance(p.of, DType)}


def turns_of_scalars(program: n.Program) -> list[str]:
    """Distributions with other values of a program's scalars; none where it has none."""
    return [f"{SCALARS}{turn}" for turn in range(MOST_TURNS)] if scalars_of(program) else []


def given(program: n.Program, base: str) -> dict[str, int | float]:
    """The values of a program's scalars in a distribution."""
    out: dict[str, int | float] = {}
    for name, of in scalars_of(program).items():
        real, whole = USUAL
        if base.startswith(SCALARS):
            turn, random = int(base.removeprefix(SCALARS)), generator(base, name)
            real, whole = TURNS[turn] if turn < len(TURNS) else (FLOATS[random.integers(len(FLOATS))], WHOLE[random.integers(len(WHOLE))])
        out[name] = real if of.is_float else whole % 2 if of.is_bool else max(whole, 0) if of.range[0] == 0 else whole
    return out


def keeps(program: n.Program, values: Mapping[str, int | float]) -> bool:
    """Whether no fact of a program excludes sizes and scalars."""
    known = {p.name: const(values[p.name], p.of) for p in program.params if isinstance(p.of, DType) and p.name in values}
    return not any(isinstance(f := substitute(fact, known), n.Const) and not f.value for fact in program.facts)


__all__ = ["SCALARS", "given", "keeps", "scalars_of", "turns_of_scalars"]
