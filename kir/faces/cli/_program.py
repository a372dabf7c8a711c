"""Programs that a command is given, IR text as it stands or a kernel of a source file in its normal form; and as it writes them for a surface."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kir.base.diagnostic import Diagnostic
    from kir.ir.binding import Binding
    from kir.ir.nodes import Program
    from kir.rewrite import Trace


def read(file: str, bind: Path | Binding | None = None, problem: str = "", paired: bool = True) -> Program:
    """The program of ``FILE.kir`` (as written, when no binding is given) or ``FILE::KERNEL``; where a problem is named and no binding is
    given, under the shipped binding of that kernel for the problem, if there is one. Unless they are to be `paired`, asynchronous operations may lack what
    waits for them.

    Raises what the parser, the verifier, the frontend, the binding and the normal form raise.
    """
    from kir.surface.reading import binding_of, load_expert, read_text

    if file.endswith(".kir") and bind is None:
        from kir.ir.parser import parse_program
        from kir.ir.rules.verify import check

        program = parse_program(read_text(Path(file)), file)
        check(program, paired=paired)
        return program
    return load_expert(file, binding_of(file, bind, problem), paired).program


def read_with(file: str, bind: Path | Binding | None = None, problem: str = "") -> tuple[Program, frozenset[str], str]:
    """The program of `read`, with one tensor where its launch passes one for several, its facts that nothing says, and its surface."""
    program, unsaid, surface, _ = read_written(file, bind, problem)
    return program, unsaid, surface


def read_written(file: str, bind: Path | Binding | None = None, problem: str = "") -> tuple[Program, frozenset[str], str, Program | None]:
    """What `read_with` gives, and the program as it was written, before its normal form; IR text has no other."""
    from kir.gate.proved.unsaid import as_one
    from kir.surface.reading import binding_of, load_expert

    if file.endswith(".kir") and bind is None:
        return read(file), frozenset(), "kir", None
    expert = load_expert(file, binding_of(file, bind, problem))
    return as_one(expert.program, expert.joined), expert.unsaid, expert.surface, expert.written


def against_function(file: str, bind: Path | None, function: str) -> tuple[str, Binding]:
    """The problem that a PyTorch function makes of a kernel (the path of its file), and the binding under which the kernel has the problem's names.

    Raises what reading the kernel raises, and KIR-S063 for a function that is not there or does not fit.
    """
    from kir.surface.oracles import oracle, problem_of
    from kir.surface.reading import as_found, load_expert, located, read_binding

    found = as_found(file)[0] if bind is None else None
    program = load_expert(file, bind).program
    if found is None and bind is None:
        from kir.base.diagnostic import usage

        raise usage("KIR-S063", f"{file} has no binding whose tensors could have the names of a problem", needs="a kernel of a surface")
    binding = found.binding if found is not None else read_binding(bind or Path())
    path, named = problem_of(oracle(function, located(file)[0].parent), program, binding, (found.examples if found else None) or {},
                             (found.numbers if found else None) or {})
    return str(path), named


def for_problem(file: str, bind: Path | None, problem: str, against: str = "", numbers: Sequence[str] = ()) -> tuple[str, Path | Binding | None]:
    """The problem to judge a kernel by (its name or path), and the binding to read it under: with the names of the problem's tensors where nobody named a
    binding, and with scalars as `numbers` (``NAME=VALUE``) have them.

    Raises what reading the kernel raises, KIR-S063 for a function that does not fit, and :class:`UsageError` KIR-C002 for a scalar that the problem does
    not have and nobody gives.
    """
    from kir.base.diagnostic import usage
    from kir.surface.oracles import in_names_of
    from kir.surface.reading import as_found, binding_of, load_expert, read_binding

    if against:
        if problem:
            raise usage("KIR-C002", "--against MODULE:FUNCTION and --problem both say what is right", needs="one of the two")
        problem, under = against_function(file, bind, against)
        return problem, _with_numbers(under, numbers, load_expert(file, under).program) if numbers else under
    chosen: Path | Binding | None = binding_of(file, bind, problem)
    if file.endswith(".kir") or not (problem or numbers):
        if numbers:
            raise usage("KIR-C002", "--set gives scalars of a kernel that has a binding", needs="a kernel of a surface")
        return problem, chosen
    held = read_binding(chosen) if isinstance(chosen, Path) else chosen
    if held is None:
        found = as_found(file)[0]
        held = found.binding if found is not None else None
        if held is not None and problem:
            problem, held = in_names_of(held, load_expert(file, held).program, problem)
    if held is None:
        return problem, chosen
    if numbers:
        chosen = held = _with_numbers(held, numbers, load_expert(file, held).program)
    if problem:
        scalars_given(load_expert(file, held).program, problem)
    return problem, chosen if chosen is not None else held


def quoted_bind(file: str) -> str:
    """The command that writes down what is assumed of a kernel."""
    from shlex import quote

    return f"kir bind {quote(file)} --ask"


def _with_numbers(binding: Binding, numbers: Sequence[str], program: Program) -> Binding:
    """The binding with scalars as NAME=VALUE has them. Raises UsageError KIR-C002 for one that the kernel does not have."""
    from kir.base.diagnostic import did_you_mean, usage
    from kir.ir.types import DType

    own = [p.name for p in program.params if isinstance(p.of, DType) and p.role == "scalar"]
    given: dict[str, str | int | float] = {}
    for text in numbers:
        name, _, value = text.partition("=")
        try:
            given[name] = float(value) if any(c in value for c in ".en") else int(value)
        except ValueError:
            raise usage("KIR-C002", f"--set {text}: not NAME=NUMBER",
                        needs=f"one of {', '.join(own)}, and a number" if own else "no --set: it has none") from None
        if name not in own:
            raise usage("KIR-C002", f"--set {text}: '{program.name}' has no scalar '{name}' that is open", attempt=did_you_mean(name, own),
                        needs=f"one of {', '.join(own)}" if own else "no --set: it has none")
    return binding.changed(scalars={**binding.scalars, **given})


def scalars_given(program: Program, problem: str, given: Collection[str] = ()) -> None:
    """Raises UsageError KIR-C002 for a scalar of a program that neither a case of the problem has, nor the command line gives."""
    from kir.base.diagnostic import usage
    from kir.ir.types import DType
    from kir.problem import load_problem

    known = load_problem(problem)
    there = {*known.spec.scalars, *known.shapes[0].sizes, *given} if known.shapes else set(given)
    missing = [p for p in program.params if isinstance(p.of, DType) and p.role == "scalar" and p.value is None and p.name not in there]
    if missing:
        p = missing[0]
        value = "1.0" if isinstance(p.of, DType) and p.of.is_float else "1"
        raise usage("KIR-C002", f"problem '{known.name}' does not say what the scalar '{p.name}' of '{program.name}' is",
                    needs="the value at which the kernel computes the problem", attempt=f"--problem {problem} --set {p.name}={value}")


def written(done: Trace, surface: str, max_undo: int | None = None) -> tuple[Trace, str, tuple[Diagnostic, ...]]:
    """A program as a surface says it: the trace with what was undone for it, the text with the host's code after it, and a note for each
    step back. Raises KirError for holes, and for what the surface cannot say."""
    from kir.base.diagnostic import Diagnostic
    from kir.ir.rules.generic import is_generic
    from kir.lineage.carrier import must_be_filled
    from kir.surface import backend

    must_be_filled(done.program)
    by = backend(surface)
    notes: tuple[Diagnostic, ...] = ()
    if by.accepts(done.program) and not is_generic(done.program):
        from kir.analysis import normalize
        from kir.lineage.legalize_for_surface import brought
        from kir.rewrite import Trace

        after, notes = brought(Trace(normalize(done.program)), by, max_undo)
        done = after
    emitted = by.emit(done.program)
    if emitted.unlaunched:
        notes = (*notes, Diagnostic("KIR-B007", f"without host code that launches it: {emitted.unlaunched}", severity="note"))
    return done, emitted.whole(), notes
