"""The result as people want it: an edit of their own file, a kernel on another surface, IR text; for all sizes that the input took; a table for several."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.canonical import content_hash
from kir.ir.nodes import Param, Program
from kir.ir.printer import program_text
from kir.ir.rules.verify import check
from kir.ir.types import DType
from kir.ir.visit import transform
from kir.learning.optimize.inputs import Subject
from kir.learning.optimize.search import Candidate
from kir.learning.optimize.words import renamed
from kir.rewrite.guard import can_be_checked, with_otherwise
from kir.surface import backend
from kir.surface.edits import SourceEdit, edit_source
from kir.surface.reading import kernel_of, located


@dataclass(frozen=True)
class Written:
    """A result as text: the form it has (`patch`, `kernel`, `kir`), and what a reader must know."""

    text: str
    form: str
    notes: tuple[str, ...] = ()
    edit: SourceEdit | None = None


def for_all_sizes(best: Candidate, given: Program, surface: str) -> tuple[Program, tuple[str, ...]]:
    """The result where its facts hold and the kernel as given elsewhere, in one launch plan, where the surface says both; else the result alone, with a
    sentence that says so."""
    if all(f in given.facts for f in best.program.facts):
        return best.program, ()
    try:
        both = with_otherwise(best.program, replace(given, params=_called_alike(given, best.program)))
        if refused := backend(surface).accepts(both):
            return best.program, (f"for sizes at which its facts hold only: beside it, {refused[0].message}",)
        return both, ("for other sizes the kernel as given is launched",)
    except KirError as bad:
        return best.program, (f"for sizes at which its facts hold only: {bad.diagnostics[0].message}",)


def _called_alike(given: Program, other: Program) -> tuple[Param, ...]:
    """Parameters of the kernel as given, its tensors aligned as the result asks."""
    known = {p.name: p for p in other.params}
    return tuple(known.get(p.name, p) if not isinstance(p.of, DType) else p for p in given.params)


def table(given: Program, entries: Sequence[tuple[Mapping[str, int], Candidate]], surface: str) -> Program:
    """One program for several shapes: at the sizes of an entry its own kernels, at all others the kernel as given. What two entries have in common is there
    once. Raises KirError KIR-U038 where one launch plan does not say that."""
    own: dict[str, tuple[Program, list[n.Expr]]] = {}
    for sizes, best in entries:
        found = own.setdefault(content_hash(best.program), (_named_apart(best.program, len(own)), []))
        found[1].append(_at(given, sizes, best.program))
    programs = [p for p, _ in own.values()]
    wide = {name: max((b for p in (given, *programs) for b in _buffers(p) if b.name == name), key=lambda b: b.align) for name in map(_name, _buffers(given))}

    def leave(_: n.Node, node: n.Node) -> n.Node:
        return replace(node, align=wide[node.name].align) if isinstance(node, n.Buffer) and node.space == "global" and node.name in wide else node

    parts = [transform(p, leave) for p in (*programs, given)]
    *fast, slow = (p for p in parts if isinstance(p, Program))
    for p in fast:
        others = p.functions and slow.functions and p.functions != slow.functions
        if others or [(x.name, x.role) for x in p.params] != [(x.name, x.role) for x in given.params]:
            raise error("KIR-U038", f"'{p.kernels[0].name}' takes other parameters than the kernel as given", needs="entries that are called as it is")
    arms = tuple((reduce(build.logical_or, guards), p.plan or tuple(n.Launch(k.name) for k in p.kernels))
                 for p, (_, guards) in zip(fast, own.values(), strict=True))
    every = (*fast, slow)
    rest = slow.plan or tuple(n.Launch(k.name) for k in slow.kernels)
    made = replace(slow, kernels=tuple(k for p in every for k in p.kernels), plan=(n.Dispatch(arms, rest),),
                   workspaces=tuple(w for p in every for w in p.workspaces), tensor_maps=tuple(m for p in every for m in p.tensor_maps),
                   functions=next((p.functions for p in every if p.functions), ()))
    check(made)
    if refused := backend(surface).accepts(made):
        raise error("KIR-U038", f"the table is nothing that {surface} says: {refused[0].message}", needs="one --shape at a time")
    return made


def _named_apart(program: Program, number: int) -> Program:
    """A program whose kernels, workspaces and maps have names that no other entry's have."""
    names = [*(k.name for k in program.kernels), *(w.buffer.name for w in program.workspaces), *(m.name for m in program.tensor_maps)]
    own = {name: f"{name}_at{number}" for name in names}

    def leave(_: n.Node, node: n.Node) -> n.Node:
        if isinstance(node, n.TensorMap):
            return replace(node, name=own[node.name])
        attrs = getattr(node, "attrs", ())
        return replace(node, attrs=tuple((k, own.get(v, v) if k == "descriptor" else v) for k, v in attrs)) if attrs else node  # type: ignore[type-var]  # whatever has attrs
    made = transform(renamed(program, own), leave)
    assert isinstance(made, Program)
    return made


def _at(given: Program, sizes: Mapping[str, int], program: Program) -> n.Expr:
    """Where an entry is launched: at its sizes, which its facts hold at. Raises KirError KIR-U038 for a fact that no launch knows."""
    known = {p.name: p.of for p in given.params if p.role == "size" and isinstance(p.of, DType)}
    parts = [build.compare("eq", n.Var(name, of), build.const(sizes[name], of)) for name, of in known.items() if name in sizes]
    facts = [f for f in program.facts if f not in given.facts]
    if not parts or any(not can_be_checked(f, given) for f in facts):
        raise error("KIR-U038", "no launch knows where an entry holds", needs="a kernel that is called with its sizes")
    return reduce(build.logical_and, [*parts, *facts])


def _buffers(program: Program) -> list[n.Buffer]:
    return [p.of for p in program.params if isinstance(p.of, n.Buffer)]


def _name(buffer: n.Buffer) -> str:
    return buffer.name


def edited(one: Subject, best: Candidate) -> SourceEdit:
    """The edit of the user's file that makes its kernel the result. Raises KirError KIR-C101 to KIR-C103, KIR-C105 where there is none."""
    if not one.file or one.binding is None:
        raise error("KIR-C105", "there is no source to edit", needs="FILE::KERNEL of a source file, and --bind BINDING.toml")
    path, name = located(one.file)
    binding = one.binding if isinstance(one.binding, Binding) else Binding.read(one.binding)
    _, ref = kernel_of(path, name)
    if best.surface != ref.surface:
        raise error("KIR-C102", f"the result is written for {best.surface}, and the file is {ref.surface}", attempt=f"--surface {ref.surface}, or -o OUT")
    return edit_source(ref.surface, path, ref.name, binding, one.program, best.program)


def written(one: Subject, best: Candidate, out: Path) -> Written:
    """What is written to `out`: a patch for `.patch`, IR text for `.kir`, else the kernel as its surface says it. Raises KirError."""
    if out.suffix == ".patch":
        edit = edited(one, best)
        return Written(edit.diff(), "patch", edit.passed_over, edit)
    program, notes = for_all_sizes(best, one.program, best.surface)
    if out.suffix == ".kir":
        return Written(program_text(program), "kir", notes)
    emitted = backend(best.surface).emit(program)
    return Written(emitted.text + (f"\n{emitted.launch}" if emitted.launch else ""), "kernel", notes)
