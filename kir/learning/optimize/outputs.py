"""The result as people want it: an edit of their own file, a kernel on another surface, IR text; for all sizes that the input took."""
from __future__ import annotations

import ast
import contextlib
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
from kir.ir.printer import expr_text, program_text
from kir.ir.types import DType
from kir.learning.optimize.hosts import cuda, scratch, tilelang
from kir.learning.optimize.hosts.python import ALLOCATOR, BESIDE, DESCRIBED, POSITIVE, as_tuple, beside, followed, granted, narrower, python_expression
from kir.learning.optimize.hosts.read_back import NotSaid, for_readers
from kir.learning.optimize.inputs import Subject
from kir.learning.optimize.search import Candidate
from kir.problem import Shape
from kir.rewrite.guard import by_sizes, with_otherwise
from kir.surface import Emitted, backend
from kir.surface.edits import SourceEdit, edit_source
from kir.surface.edits.splice import unified
from kir.surface.reading import kernel_of, located, read_text

OTHERS = {"cuda": cuda.beside, "tilelang": tilelang.beside}
"""Surfaces whose kernels are not edited: what launches or makes them chooses."""


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


def for_shapes(found: Sequence[tuple[Shape, Candidate | None]], given: Program, surface: str) -> tuple[Program, tuple[str, ...]]:
    """The table of several shapes: at the sizes of each what is fastest there, elsewhere the kernel as given, in one launch plan; and what a reader must
    know. A program that is the fastest at several shapes stands there once. Raises KirError KIR-R015 where one launch plan cannot say it, KIR-U038 where
    nothing is faster at any."""
    names = [p.name for p in given.params if p.role == "size"]
    at: dict[str, tuple[Program, list[n.Expr]]] = {}
    for shape, best in found:
        if best is not None:
            types = {p.name: p.of for p in best.program.params if isinstance(p.of, DType)}
            here = [build.compare("eq", build.var(x, types[x]), build.const(shape.sizes[x], types[x])) for x in names if x in types and x in shape.sizes]
            at.setdefault(content_hash(best.program), (best.program, []))[1].append(reduce(lambda a, b: build.binary("and", a, b), here))
    if not at:
        raise error("KIR-U038", "at none of the shapes is anything faster, so there is no table")
    strict = {name: max((q for program, _ in at.values() for q in program.params if q.name == name), key=lambda q: getattr(q.of, "align", 0) or 0)
              for name in (p.name for p in given.params)}
    versions = [(reduce(lambda a, b: build.binary("or", a, b), where), replace(program, params=tuple(strict.get(p.name, p) for p in program.params)))
                for program, where in at.values()]
    both = by_sizes(versions, replace(given, params=_called_alike(given, versions[0][1])))
    if refused := backend(surface).accepts(both):
        raise error("KIR-R015", f"one launch plan cannot say the table: {refused[0].message}", needs="one --shape")
    slower = [shape.name for shape, best in found if best is None]
    return both, ("for other sizes the kernel as given is launched", *([f"nothing is faster at {', '.join(slower)}: there too"] if slower else []))


def _called_alike(given: Program, other: Program) -> tuple[Param, ...]:
    """Parameters of the kernel as given, its tensors aligned as the result asks."""
    known = {p.name: p for p in other.params}
    return tuple(known.get(p.name, p) if not isinstance(p.of, DType) else p for p in given.params)


def edited(one: Subject, best: Candidate) -> SourceEdit:
    """The edit of the user's file that makes its kernel the result. Raises KirError KIR-C101 to KIR-C103, KIR-C105 where there is none: host code that was read
    for the launch is edited with the kernel where that changes, and would else launch it as before; a kernel that it launches with more than the one
    that was read stays, and the new one is put beside it."""
    if not one.file or one.binding is None:
        raise error("KIR-C105", "there is no source to edit", needs="FILE::KERNEL of a source file, and --bind BINDING.toml")
    path, name = located(one.file)
    binding = one.binding if isinstance(one.binding, Binding) else Binding.read(one.binding)
    _, ref = kernel_of(path, name)
    if best.surface != ref.surface:
        raise error("KIR-C102", f"the result is written for {best.surface}, and the file is {ref.surface}", attempt=f"--surface {ref.surface}, or -o OUT")
    if ref.surface in OTHERS:
        return OTHERS[ref.surface](path, ref.name, binding, best.program)
    if not isinstance(one.binding, Binding) or ref.surface != "triton":
        return edit_source(ref.surface, path, ref.name, binding, one.program, best.program)
    try:
        return _in_its_place(edit_source(ref.surface, path, ref.name, binding, one.program, best.program), best.program)
    except KirError as bad:
        first = bad.diagnostics[0]
        try:
            return beside(path, ref.name, binding, best.program)
        except NotSaid as reason:
            raise error(first.id, f"{first.message}; and no launch in {path.name} can choose: {reason}", needs=first.needs,
                        attempt=first.attempt or "-o OUT.py, a kernel beside it") from None


def _in_its_place(edit: SourceEdit, program: Program) -> SourceEdit:
    """An edit of a kernel and of host code that launches it. Raises KirError KIR-C102 where other launches would be wrong, and where the host code cannot
    follow."""
    if only := granted(edit):
        raise error("KIR-C102", f"the result is for {', '.join(only)}, and nothing says that the kernel in the file takes no others",
                    attempt="-o OUT.py, a kernel beside it; or --bind BINDING.toml, if it is launched with nothing else")
    if not (changed := launch_changes(edit)):
        return edit
    if (whole := followed(edit, program, changed)) is not None:
        return whole
    raise error("KIR-C102", f"the result is launched with {changed}, and no edit of the host code that launches the kernel says so",
                attempt="-o OUT, which has a launch")


def launch_changes(edit: SourceEdit) -> str:
    """What an edited kernel is launched with that it was not before; "" for nothing."""
    before, after = edit.binding, edit.new_binding
    grid = [f"grid ({', '.join(map(str, after.grid))})"] if after.grid != before.grid else []
    options = (f"{k}={v}" for k, v in after.options.items() if before.options.get(k) != v)
    return ", ".join([*grid, *options, *(f"no {k}" for k in before.options if k not in after.options)])


def written(one: Subject, found: Sequence[tuple[Shape, Candidate | None]], out: Path) -> Written:
    """What is written to `out`, for one shape or a table of several: a patch for `.patch`, IR text for `.kir`, else the kernel as its surface says it.
    Raises KirError."""
    best = next(c for _, c in found if c is not None)
    if out.suffix == ".patch":
        if len(found) > 1:
            raise error("KIR-C105", "a table of several shapes is no edit of one kernel", needs="one --shape, or -o OUT.py, OUT.cu or OUT.kir")
        edit = edited(one, best)
        return Written(edit.diff() + _of_the_binding(one, edit), "patch", told_of(edit, one, best), edit)
    program, notes = for_all_sizes(best, one.program, best.surface) if len(found) == 1 else for_shapes(found, one.program, best.surface)
    if out.suffix == ".kir":
        return Written(program_text(program), "kir", notes)
    emitted = for_readers(backend(best.surface), program)
    launch = emitted.launch
    if emitted.unlaunched:
        notes = (*notes, f"without host code that launches it: {emitted.unlaunched}")
    if best.surface == "cuda" and launch:
        with contextlib.suppress(NotSaid):
            launch = scratch.with_memory(program, emitted, cuda.C_TYPES, cuda.cpp_expression)
    if best.surface == "triton":
        try:
            launch = python_launch(program, emitted)
        except KeyError as bad:
            notes = (*notes, f"without host code that launches it: {bad.args[0]} is nothing that Python's side says")
    return Written(replace(emitted, launch=launch).whole(), "kernel", (*notes, *_of_the_launch(one), *_decorators(one)))


def _of_the_binding(one: Subject, edit: SourceEdit) -> str:
    """The change of the binding's file that goes with an edit; "" for none."""
    if not isinstance(one.binding, Path) or edit.new_binding == edit.binding:
        return ""
    return unified(read_text(one.binding), edit.new_binding.text(), one.binding.name)


def told_of(edit: SourceEdit, one: Subject, best: Candidate) -> tuple[str, ...]:
    """What a reader of an edit must know: what it passes over, and the sizes beyond which the edited kernel may not be launched any more."""
    if edit.level == BESIDE:
        return edit.passed_over
    extra, changed = [expr_text(f) for f in best.program.facts if f not in one.program.facts], launch_changes(edit)
    launch = [f"the edited kernel is launched with {changed}, as its binding says: host code must follow"] if changed else []
    only = narrower(edit) if Path(edit.file).suffix == ".py" else []
    bound = [f"the edited kernel is for {', '.join(only)}, as its binding says, and for nothing else"] if only else []
    return (*_reach(edit), *launch, *bound, *([f"the edited kernel is right only where {' and '.join(extra)}"] if extra else []))


def _reach(edit: SourceEdit) -> tuple[str, ...]:
    """What an edit passes over; why more is rewritten than changes in one sentence."""
    smaller = [text for text in edit.passed_over if text.partition(":")[0] in ("statement", "block")]
    told = [f"more is rewritten than changes (the {edit.level}): {smaller[-1].partition(': ')[2]}"] if smaller else []
    return (*told, *(text for text in edit.passed_over if text not in smaller))


def _of_the_launch(one: Subject) -> tuple[str, ...]:
    """What a text that is written anew takes for granted of a kernel of a file: compile-time values, and facts."""
    bound = one.binding if isinstance(one.binding, Binding) else Binding()
    values = (f"{k} = {v}" for k, v in bound.metas.items() if not k.startswith("threads_"))  # those of a CTA are its own
    only = [*values, *(f for f in bound.facts if not POSITIVE.fullmatch(f))]
    return (f"the text is for {', '.join(only)}: other launches need the kernel as it is",) if only else ()


def _decorators(one: Subject) -> tuple[str, ...]:
    """What stands on the kernel in the user's file and chooses its configuration there: the text that is written anew has one."""
    path, name = located(one.file) if one.file else (Path(), "")
    if path.suffix != ".py":
        return ()
    found = next((f for f in ast.walk(ast.parse(read_text(path))) if isinstance(f, ast.FunctionDef) and f.name == name), None)
    lost = [ast.unparse(d.func) for d in found.decorator_list if isinstance(d, ast.Call)] if found is not None else []
    lost = [x for x in lost if x.rpartition(".")[2] in ("autotune", "heuristics")]
    return tuple(f"@{x} of '{name}' is left out: this text has the configuration of the binding, or one for each --shape" for x in lost)


def _said(fact: n.Expr, names: Mapping[str, str]) -> str:
    """A fact as Python's side says it; "" for what it does not."""
    try:
        said = python_expression(fact, names)
    except KeyError:
        return ""
    return f"({said})" if " or " in said else said


def python_launch(program: Program, emitted: Emitted) -> str:
    """A function `launch` of a program's parameters, which launches a Triton text's kernels by its launch plan, with memory for workspaces, and refuses
    sizes that its facts leave out. Raises KeyError
    for what such a function does not say: tensor maps, and expressions that are no arithmetic of whole numbers."""
    entries, lines = {e.kernel: e for e in emitted.entries}, list[str]()
    names = {p.name: p.name.lstrip("%") for p in program.params}
    spaces = {w.buffer.name: w.buffer for w in program.workspaces}

    def launched(kernel: str, pad: str) -> None:
        e = entries[kernel]
        if strange := next((a for a in e.arguments if a.kind == "map" or a.source not in {**names, **spaces}), None):
            raise KeyError(f"'{strange.source}' of '{kernel}'")
        given = [*(names.get(a.source, a.source.lstrip("%")) for a in e.arguments), *(f"{k}={v!r}" for k, v in e.options)]
        lines.append(f"{pad}{e.function}[{as_tuple(python_expression(x, names) for x in e.grid)}]({', '.join(given)})")

    def planned(plan: Sequence[n.Launch | n.Dispatch], pad: str) -> None:
        for step in plan:
            if isinstance(step, n.Launch):
                launched(step.kernel, pad)
                continue
            for number, (guard, arm) in enumerate(step.arms):
                lines.append(f"{pad}{'elif' if number else 'if'} {python_expression(guard, names)}:")
                planned(arm, pad + "    ")
            if step.orelse:
                lines.append(f"{pad}else:")
                planned(step.orelse, pad + "    ")

    needed = [(fact, said) for f in program.facts if not POSITIVE.fullmatch(fact := expr_text(f)) and (said := _said(f, names))]
    if needed:
        lines.append(f"    if not ({' and '.join(said for _, said in needed)}):")
        lines.append(f"        raise ValueError({'this kernel is for ' + ' and '.join(fact for fact, _ in needed)!r})")
    tensor = next(names[p.name] for p in program.params if not isinstance(p.of, DType))
    for name, b in spaces.items():
        torch_dtype = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "i32": "int32", "i64": "int64"}[b.dtype.name]
        shape = ", ".join(python_expression(d, names) for d in b.shape)
        lines.append(f"    {name.lstrip('%')} = torch.empty(({shape},), dtype=torch.{torch_dtype}, device={tensor}.device)")
    described = DESCRIBED in emitted.text
    lines += [f"    {ALLOCATOR}"] if described else []
    planned(program.plan or [n.Launch(k.name) for k in program.kernels], "    ")
    text = "\n".join([f"def launch({', '.join(names.values())}):", *lines, ""])
    return f"\nimport torch\n\n\n{text}" if spaces or described else f"\n{text}"

