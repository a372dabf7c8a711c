"""The launches of CUDA kernels: those of one, all of a translation unit, and those that one call of a host function makes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from kir.ir import nodes as n
from kir.ir.visit import walk
from kir.surface.launches.record import HostLaunch
from kir.surface.launches.values import Unknown

from ..source.source import Node, Sources, Unit
from .dispatch import Written, host_instantiations
from .host_code import Follower
from .host_parts import Around, Passed, beside, defines, function_name, given, template_names
from .host_parts import functions as functions_of

MOST_LAUNCHES = 4_000
"""Launches of one translation unit that are kept, each with its values."""


def cuda_launches(sources: Sources, main: Unit, source: Path, kernel: str) -> list[HostLaunch]:
    """Every launch of a kernel that its own file and its folder show; those of a main program first, of one place in the text the first. A file of the
    folder that defines a kernel of the same name launches its own."""
    around = beside(source, kernel, {u.path.resolve() for u in sources.units})
    others = {str(u.path) for u in around if defines(u, kernel)}
    units = [*sources.units, *around]
    functions = _launching_functions(units, main)
    names, shared = sorted(functions, key=lambda name: (name != "main", bool(template_names(functions[name][1])))), Around(units)
    found: dict[str, HostLaunch] = {}
    for name in names:
        unit, node = functions[name]
        follower = Follower(functions, units, around=shared)
        follower.entry(unit, node)
        for each in follower.launches:
            if each.kernel == kernel and each.file not in others and (each.place not in found or _tells_more(each, found[each.place])):
                found[each.place] = _seen(each, found.get(each.place))
    return list(found.values())


def _seen(launch: HostLaunch, held: HostLaunch | None) -> HostLaunch:
    """A launch over sizes, with what a main program calls it with, where that is what was held of it."""
    if held is None or not _of_numbers(held):
        return launch
    pairs = [(launch.known.resolved(a), b) for a, b in zip(launch.arguments, held.arguments) if isinstance(a, n.Expr) and isinstance(b, n.Const)]
    return replace(launch, seen={a.name: int(b.value) for a, b in pairs if isinstance(a, n.Var)})


def _tells_more(launch: HostLaunch, held: HostLaunch) -> bool:
    """Whether a caller says more of a launch than what is held of it: template arguments that the function that launches takes itself, or sizes."""
    unknown, before = (sum(isinstance(v, Unknown) and not isinstance(v, Written) for v in (*x.templates, *x.block)) for x in (launch, held))
    return unknown < before or (unknown == before and _of_numbers(held) and not _of_numbers(launch))


def _of_numbers(launch: HostLaunch) -> bool:
    """Whether a launch has no size at all: a main program calls what launches it with numbers, which the function itself is for more than."""
    values = (*launch.arguments, *launch.grid)
    return not any(isinstance(x, n.Var) for v in values if isinstance(v, n.Expr) for x in walk(v))


def _launching_functions(units: Sequence[Unit], main: Unit) -> dict[str, tuple[Unit, Node]]:
    functions: dict[str, tuple[Unit, Node]] = {}
    for unit in units:
        if unit.launches or b"LaunchKernel" in unit.text or unit is main:
            for f in functions_of(unit.root):
                functions.setdefault(function_name(f), (unit, f))
    return functions


def every_launch(units: Sequence[Unit], main: Unit, others: Collection[tuple[str, str]] = ()) -> list[HostLaunch]:
    """Each launch in these files under each of the values that branches, dispatch macros and callers in them give it, the same only once; without those of
    `others`, a kernel's name and a file that has one of its own by that name."""
    functions = _launching_functions(units, main)
    follower = Follower(functions, units, every=True)
    wanted = [(functions[name], arguments) for name, arguments in host_instantiations(units) if name in functions]
    alone = sorted(functions.values(), key=lambda each: bool(template_names(each[1])))
    for (unit, node), arguments in [*wanted, *((each, None) for each in alone)]:
        follower.followed, known = 0, len(follower.launches)
        follower.entry(unit, node, templates=arguments)
        follower.launches[known:] = [each for each in follower.launches[known:] if (each.kernel, each.file) not in others]
        if arguments is None and template_names(node):  # types that nobody gives are guessed: only where no caller gives them
            called = {each.kernel for each in follower.launches[:known]}
            follower.launches[known:] = [each for each in follower.launches[known:] if each.kernel not in called]
        if len(follower.launches) > MOST_LAUNCHES:
            break
    return follower.launches[:MOST_LAUNCHES]


def cuda_calls(sources: Sources, main: Unit, source: Path, function: str, arguments: Sequence[Passed]) -> list[HostLaunch]:
    """The launches of every kernel that one call of a host function makes, with the arguments that it is given; [] where there is no such function."""
    units = [*sources.units]
    functions = {function_name(f): (unit, f) for unit in reversed(units) for f in functions_of(unit.root)}
    if function not in functions:
        return []
    follower = Follower(functions, units, True)
    follower.entry(*functions[function], [given(follower.known, each) for each in arguments])
    return follower.launches
