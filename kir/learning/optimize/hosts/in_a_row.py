"""Kernels that one function of a CUDA file launches in a row, as one program: what one leaves another reads."""
from __future__ import annotations

import re
from dataclasses import replace

from kir.base.diagnostic import error
from kir.base.notices import notices
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.names import unlike
from kir.ir.visit import buffers_named, substitute, substitute_buffers
from kir.learning.optimize.hosts.cuda_text import blanked, closing, definition_in, launch_in
from kir.learning.optimize.hosts.read_back import NotSaid, source_of
from kir.surface.reading import load_expert, located

NAME = re.compile(r"&?\s*([A-Za-z_]\w*)")


def in_a_row(file: str) -> n.Program | None:
    """The kernels that `FILE::FUNCTION` launches, each once, one after another, with the function's own names of their tensors; None where it names no such
    function. Raises KirError KIR-U039 where a launch is not as plain as that, and what reading a kernel raises."""
    place, function = located(file)
    if place.suffix not in (".cu", ".cuh") or not function:
        return None
    text = source_of(place)
    shown = blanked(text)
    found = re.search(rf"\b{re.escape(function)}\s*\(", shown)
    close = closing(shown, found.end() - 1) if found is not None else 0
    opened = re.match(r"[\s\w]*\{", shown[close:]) if found is not None else None
    if opened is None:
        return None
    end = closing(shown, close + opened.end() - 1)
    launches = [m for m in re.finditer(r"(?<![\w:.>])((?:\w+::)*\w+)\s*(<[^<>;(){}]*>)?\s*<<<", shown) if close < m.start() < end]
    names = [m[1].rpartition("::")[2] for m in launches]
    if len(names) < 2 or len(set(names)) < len(names):
        return None
    made = n.Program(function)
    try:
        for m, kernel in zip(launches, names, strict=True):
            with notices():
                one = load_expert(f"{place}::{kernel}", None).program
            given = dict(zip(definition_in(shown, text, kernel).params, launch_in(shown, text, m).given, strict=True))
            made = _joined(made, one, given)
    except (NotSaid, ValueError) as bad:
        raise error("KIR-U039", f"the kernels that '{function}' launches are not read as one program: {bad}",
                    needs="launches in a row whose tensors are plain names", attempt=f"one of them alone: {place}::{names[0]}") from bad
    return made


def _joined(before: n.Program, one: n.Program, given: dict[str, str]) -> n.Program:
    """A program and a kernel behind it, whose parameters have the names that the launch gives."""
    kernel, params = one.kernels[0], {p.name: p for p in before.params}
    taken = {x for k in before.kernels for x in (*bound_names(k.body), *buffers_named(k))} | set(params)
    views = list[n.Stmt]()
    for p in one.params:
        plain = NAME.fullmatch(given.get(p.name, p.name).strip())
        if plain is None:
            raise NotSaid(f"'{given[p.name]}' is no name")
        name = plain[1]
        if not isinstance(p.of, n.Buffer):
            kernel = substitute(kernel, {p.name: n.Var(name, p.of)}) if name != p.name else kernel
            params.setdefault(name, replace(p, name=name))
            continue
        own, there = replace(p.of, name=name), params.get(name)
        role = p.role
        if there is not None and isinstance(there.of, n.Buffer):
            if there.of.dtype != own.dtype:
                raise NotSaid(f"'{name}' has two dtypes")
            role = there.role if there.role != "in" or p.role == "in" else "inout"
            if there.of.shape != own.shape:  # the same memory, by another shape
                own = replace(own, name=unlike(f"{name}_flat", taken), align=0)
                views.append(n.View(own, n.Region(there.of)))
            own, of = own, there.of
        else:
            of = own
        kernel = substitute_buffers(kernel, {p.name: own})
        params[name] = n.Param(name, role, of)
    if kernel.name in {k.name for k in before.kernels}:
        raise NotSaid("a kernel is launched twice")
    kernel = replace(kernel, body=(*views, *kernel.body))
    sizes = [p for p in params.values() if p.role == "size"]
    facts = tuple(dict.fromkeys((*before.facts, *one.facts)))
    return replace(before, params=(*sizes, *(p for p in params.values() if p.role != "size")), kernels=(*before.kernels, kernel), facts=facts)


__all__ = ["in_a_row"]
