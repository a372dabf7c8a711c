"""The statements of a kernel under names that its surroundings give: for edits of existing source."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kir.analysis.facts import Facts
from kir.ir import nodes as n
from kir.ir.types import DType
from kir.surface import Body, BodyLine, Entry

from ..tiles.expressions import Expressions, refuse
from ..tiles.memory import Memory
from ..tiles.statements import Statements, common_stages
from .emit import entry, program_refusals

INDENT = "    "


def kernel_body(program: n.Program, names: Mapping[str, str]) -> Body:
    """The body of the program's one kernel; `names` spells everything that it mentions."""
    (k,) = program.kernels
    facts = Facts.from_program(program)
    memory = Memory()
    to = Expressions(names, facts, {f.name: f for f in program.functions}, memory)
    for axis in k.grid:
        assert isinstance(axis.extent.type, DType)
        to.facts = to.facts.ranging(n.Var(axis.name, axis.extent.type), n.Const(0, axis.extent.type), axis.extent)
    body = Statements(to, memory, common_stages(k))
    body.block(k.body, (k.name,), 1)
    lines = []
    for text, path in body.lines:
        shown = text.lstrip(" ")
        lines.append(BodyLine(shown, (len(text) - len(shown)) // len(INDENT) - 1, path))
    opening = tuple(memory.descriptor_lines(to))
    needs = frozenset({"tl", *(["libdevice"] if to.uses_libdevice else [])})
    refusals = tuple(replace(d, anchor=d.anchor or k.name) for d in (*program_refusals(program), *body.refusals))
    return Body(tuple(lines), opening, tuple(body.refused), refusals, needs)


def kernel_launch(program: n.Program) -> Entry:
    """How the one kernel of a program is launched; argument names are the program's."""
    if len(program.kernels) != 1:
        raise refuse("KIR-B007", f"the program has {len(program.kernels)} kernels", needs="one kernel")
    (k,) = program.kernels
    return entry(program, k, k.name, [(p.name, p) for p in program.params], Facts.from_program(program))
