"""Parameters of passes drawn at random: numbers that the program itself is cut by and their neighbors, its names, the values of a choice."""
from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, get_args, get_origin

from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.visit import walk
from kir.rewrite.base import Pass, parameter_types

FEW = (0, 1, 2, 3, 4, 5, 6, 8)
MANY = (7, 12, 16, 24, 32, 48, 64, 96, 100, 128, 132, 256)
USUAL = 0.4
"""How often a parameter stays at its default."""


def seeded(*about: object) -> random.Random:
    """A generator that is the same wherever it is asked for about the same."""
    return random.Random("\x1f".join(map(str, about)))


def drawn(cls: type[Pass], program: n.Program, count: int, seed: int) -> Iterator[Pass]:
    """The pass with its defaults, and `count` times with parameters drawn for a program; each of them once."""
    names, numbers = _names(program), _numbers(program)
    rng = seeded(cls.name, seed)
    seen: set[str] = set()
    for k in range(count + 1):
        options = {} if k == 0 else _options(cls, names, numbers, rng)
        try:
            item = cls.with_options(options)
        except KirError:
            continue
        if str(item) not in seen:
            seen.add(str(item))
            yield item


def _options(cls: type[Pass], names: Sequence[str], numbers: Sequence[int], rng: random.Random) -> Mapping[str, Any]:
    hints = parameter_types(cls)
    out = {}
    for f in fields(cls):
        if f.default is MISSING or rng.random() >= USUAL:
            out[f.name] = _value(hints[f.name], f.name, names, numbers, rng)
    return out


def _value(hint: Any, name: str, names: Sequence[str], numbers: Sequence[int], rng: random.Random) -> Any:
    if hint is bool:
        return rng.random() < 0.5
    if hint is int:
        return rng.choice(FEW if name in ("axis", "at", "until", "hoist", "ahead", "pending", "stages") else (*FEW, *MANY, *numbers))
    if hint is float:
        return rng.choice((0.5, 1.0, 1.4426950408889634, 2.0))
    if hint is str:
        return rng.choice(names)
    if get_origin(hint) is tuple:
        return tuple(_value(get_args(hint)[0], name, names, numbers, rng) for _ in range(rng.randint(0, 3)))
    return rng.choice(get_args(hint))


def _names(program: n.Program) -> list[str]:
    """Names of a program: parameters, kernels, axes, what is bound."""
    out = ["", "main", *(p.name for p in program.params)]
    for k in program.kernels:
        out += [k.name, *(a.name for a in k.grid), *bound_names(k.body)]
    return list(dict.fromkeys(out))


def _numbers(program: n.Program) -> list[int]:
    """Whole numbers that stand in a program, up to what a tile has."""
    found = {x.value for x in walk(program) if isinstance(x, n.Const) and isinstance(x.value, int) and not isinstance(x.value, bool)}
    return sorted(v for v in found if 1 < v <= 1024)
