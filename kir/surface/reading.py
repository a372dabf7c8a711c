"""Reading a program: IR text, or a kernel of a source file with its binding, as written, specialized, and in normal form.

What specializes and normalizes is imported on use: it is a third of the start-up time of a command that only reads IR text.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, overload

import kir.skills
from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError, did_you_mean, error, usage
from kir.base.notices import tell
from kir.base.registry import registry
from kir.hardware import machine
from kir.ir.nodes import For, Opaque, Program, Var
from kir.ir.parser import parse_program
from kir.ir.rules.generic import is_generic
from kir.ir.rules.verify import check
from kir.ir.types import I32, DType
from kir.ir.visit import statements
from kir.surface import Frontend, KernelRef, frontend, held_within, reads

if TYPE_CHECKING:
    from kir.ir.binding import Binding
    from kir.surface.launches.assembled import Found


@dataclass(frozen=True)
class Reading:
    """A kernel as it is written: the program, its ``surface``, the ``kernel``'s name ("" for IR text), and the binding that it is read under."""

    program: Program
    surface: str
    kernel: str
    binding: Binding | None = None

    def specialized(self) -> Program:
        """The program under its binding; as written without one. Raises :class:`KirError` as the binding and `specialize` do."""
        if self.binding is None:
            return self.program
        from kir.analysis.heuristics import settled
        from kir.ir.bindings.specialize import specialize

        return specialize(self.program, settled(self.binding))


@dataclass(frozen=True)
class Expert:
    """K* and where it came from: ``name`` for people, ``source`` as given, ``surface``, the binding's text, which of its facts nothing says,
    the tensors that its launch passes one and the same for, and the program as it was ``written``, before its normal form."""

    program: Program
    name: str
    source: str
    surface: str
    binding: str = ""
    unsaid: frozenset[str] = frozenset()
    joined: frozenset[tuple[str, ...]] = frozenset()
    written: Program | None = None


def read_text(path: Path) -> str:
    """The text of a source file, its line ends as they are everywhere else. Raises :class:`UsageError` (KIR-S018) for one that is not there,
    with near names, and for one that is no text."""
    try:
        return _readable(path).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as fault:
        raise usage("KIR-S018", f"{path} is no text: its byte {fault.start} is not UTF-8", needs="IR text, or a source file, in UTF-8") from fault


def _readable(path: Path) -> bytes:
    """What a file holds. Raises :class:`UsageError` (KIR-S018) for one that is not there, or may not be read."""
    path = shipped(path)
    try:
        return path.read_bytes()
    except FileNotFoundError as fault:
        near = _near(path)
        raise usage("KIR-S018", f"there is no file {path}{f'; {near}' if near else ''}") from fault
    except IsADirectoryError as fault:
        raise usage("KIR-S018", f"{path} is a folder", needs="a file in it") from fault
    except OSError as fault:
        raise usage("KIR-S018", f"{path} cannot be read: {(fault.strerror or type(fault).__name__).lower()}") from fault


def shipped(path: Path) -> Path:
    """A path as it is; ``skills/..`` outside of a checkout is the folder that is installed with KIR."""
    if path.parts[:1] == ("skills",) and not path.exists():
        inside = Path(next(iter(kir.skills.__path__))).joinpath(*path.parts[1:])
        return inside if inside.exists() else path
    return path


def _near(path: Path) -> str:
    """Files beside a missing one that it may have been: by their names without the ending, where that is the same."""
    try:
        beside = [each.name for each in path.parent.iterdir()]
    except OSError:
        return ""
    alike = [Path(name).stem for name in beside if Path(name).suffix == path.suffix and name != path.suffix]
    hint = did_you_mean(path.stem, alike) if path.suffix else ""
    return re.sub(r"'([^']*)'", rf"'\1{path.suffix}'", hint) if hint else did_you_mean(path.name, [name for name in beside if Path(name).stem == path.stem])


def located(text: str) -> tuple[Path, str]:
    """File and kernel of ``FILE[::KERNEL]``; a FILE of the form ``package:path`` lies in an installed package, which is not imported.

    Raises :class:`UsageError` (KIR-S018) when there is no such package or file.
    """
    place, _, kernel = text.partition("::")
    package, colon, inside = place.partition(":")
    if colon and not Path(place).exists():
        folder = machine.package_folder(package)
        if folder is None:
            raise usage("KIR-S018", f"the package '{package}' is not installed", attempt=f"pip install --no-deps {package}")
        place = str(folder / inside)
    path = shipped(Path(place))
    _readable(path)
    return path, kernel


def load_expert(text: str, binding: Path | Binding | None = None, paired: bool = True) -> Expert:
    """The expert named by ``FILE[::KERNEL]`` under a binding: parsed, specialized and brought to normal form, with flat accesses raised to regions. Unless
    they are to be `paired`, asynchronous operations may lack what waits for them.

    Raises :class:`KirError`: KIR-S018 (no such file or kernel), KIR-S016 (a generic program and no binding), and what the
    frontend, the binding and the passes raise.
    """
    from kir.analysis.normal.regions import raised

    path, asked = located(text)
    generic = read_source(text, binding)
    read = as_launched(text, generic) if binding is None else generic
    name = (asked if asked.isidentifier() else read.kernel or read.program.name).strip("_")
    source = text if Path(text.partition("::")[0]).suffix != ".kir" else path.name
    written = specialized_form(read, manifest(text) if binding is None else (), text, paired)
    program = raised(written)
    held = _binding_text(binding) if isinstance(binding, Path) else read.binding.text() if read.binding is not None else ""
    if read.binding is None:
        return Expert(program, name, source, own_surface(program, read.surface), held, written=written)
    called = {k: t.name or k for k, t in read.binding.tensors.items()}
    pairs = frozenset((called.get(a, a), called.get(b, b), *part) for a, b, *part in read.binding.joined)
    unsaid = read.binding.unsaid | (_cut(generic.program, read.binding) if binding is None else frozenset())
    return Expert(program, name, source, own_surface(program, read.surface), held, unsaid, pairs, written)


def _cut(generic: Program, binding: Binding) -> frozenset[str]:
    """What nothing says of sizes that a kernel takes in 64 bits, which are numbers of 32 here."""
    wide = {p.name for p in generic.params if p.role == "scalar" and isinstance(p.of, DType) and p.of.is_integer and p.of.bits == 64}
    return frozenset(f"{size} < 2^31" for size in {str(binding.scalars.get(name, name)) for name in wide} & {*binding.sizes})


def as_launched(text: str, read: Reading) -> Reading:
    """A generic kernel without a binding, under the one that is kept for it or that its host code gives; as it is where neither is. Raises KirError
    KIR-S061 for one that leaves questions open."""
    if read.surface == "kir" or read.binding is not None or not is_generic(read.program):
        return read
    binding, told = launched(text)
    if binding is None:
        return read
    for each in told:
        tell(each)
    return read_source(text, binding)


def launched(text: str) -> tuple[Binding | None, tuple[Diagnostic, ...]]:
    """The binding of the kernel of ``FILE[::KERNEL]`` that nobody names, with a note of where it is from; (None, ()) where nothing launches it. Raises
    KirError KIR-S061 for questions that stay open."""
    found, told = as_found(text)
    return (found.binding, told) if found is not None else (None, ())


def as_found(text: str) -> tuple[Found | None, tuple[Diagnostic, ...]]:
    """What is known of the launch of the kernel of ``FILE[::KERNEL]``: the binding that is kept for it, else what the host code around it says. Raises
    KirError KIR-S061 for questions that stay open, and KIR-F011 where that is as the facts exclude one another."""
    from kir.ir.binding import Binding
    from kir.surface.finding import launches_of, notice, under
    from kir.surface.launches.assembled import Found
    from kir.surface.launches.remembered import remembered

    path, kernel = located(text)
    reader, ref = kernel_of(path, kernel)
    name = kernel or ref.name
    kept = remembered(path, ref.name)
    if kept is not None:
        return Found(Binding.read(kept), _short(kept)), (Diagnostic("KIR-S060", f"{name} is read under {_short(kept)}", severity="note"),)
    found = launches_of(reader, path, name)
    if not found:
        return None, ()
    first, command = found[0], f"kir bind {quote(text)} --ask"
    if first.open:
        _agree(first.binding)
        why = _not_run(text, first.open) or _goes_wrong(first, under(reader, path, name))
        raise error("KIR-S061", f"{first.place} launches {name}, and leaves open: {_some(first.open)}",
                    needs="an answer for each, once",
                    attempt=f"{command} asks for them and keeps the answers; with --yes it takes those that it proposes", notes=why)
    return first, (notice(first, found[1:], name, command),)


def _agree(binding: Binding) -> None:
    """Raises KirError KIR-F011 for a fact that contradicts those before it."""
    from kir.ir.binding import fact_expressions
    from kir.ir.bindings.binding_facts import check_facts

    try:
        facts = fact_expressions(binding.facts, {name: Var(name, I32) for name in binding.sizes})
    except KirError:  # of what is open
        return
    check_facts(binding, facts)


def _not_run(text: str, missing: Sequence[str]) -> tuple[str, ...]:
    """Why shapes that nothing says were not found by running the kernel: what of it is not read."""
    if not any(field.startswith("tensors.") for field in missing):
        return ()
    program = read_source(text).program
    kept = [s for k in program.kernels for s in statements(k.body) if isinstance(s, Opaque) and not s.reason.startswith("a template")]
    return tuple(f"shapes are not found by runs: {_short_place(s)} is kept as text: {s.reason}" for s in kept[:1])


def _goes_wrong(found: Found, made: Callable[[Binding], Program]) -> tuple[str, ...]:
    """The hazard for which no run of a kernel came to its end, so that what it reaches is not known."""
    from kir.surface.launches.extents import hazard, open_shapes

    said = hazard(found.binding, made) if set(found.open) == {f"tensors.{x}.shape" for x in open_shapes(found.binding)} else ""
    return (f"shapes are not found by runs, which go wrong: at {said}",) if said else ()


def _short_place(s: Opaque) -> str:
    return f"line {s.origin.line}" if s.origin is not None else "a statement"


def manifest(text: str, problem: str = "") -> tuple[Path, ...]:
    """The shipped bindings (``skills/bindings``) of the kernel of ``FILE[::KERNEL]``: those of a problem, where one is named. None for IR
    text, which has its own. Raises as :func:`located` and the frontends do."""
    path, kernel = located(text)
    if path.suffix == ".kir":
        return ()
    name = kernel_of(path, kernel)[1].name
    folder = Path(next(iter(kir.skills.__path__))) / "bindings"
    found = []
    for file in sorted(folder.glob("*.toml")):
        told = tomllib.loads(file.read_text(encoding="utf-8"))
        if told.get("kernel") == name and problem in ("", told.get("problem", "")):
            found.append(file)
    return tuple(found)


@overload
def binding_of(text: str, binding: Path | None, problem: str = "") -> Path | None:
    """Of a file."""


@overload
def binding_of(text: str, binding: Path | Binding | None, problem: str = "") -> Path | Binding | None:
    """Of a file, or as it is."""


def binding_of(text: str, binding: Path | Binding | None, problem: str = "") -> Path | Binding | None:
    """The binding that a command was given; without one, the only shipped binding of this kernel for the problem."""
    if binding is not None or not problem:
        return binding
    found = manifest(text, problem)
    return found[0] if len(found) == 1 else None


def promised(program: Program, facts: Sequence[str]) -> Program:
    """The program with further facts about its sizes, which its callers promise. Raises :class:`KirError` as a binding's facts do."""
    if not facts:
        return program
    from kir.ir.binding import fact_expressions

    sizes = {p.name: Var(p.name, p.of) for p in program.params if p.role == "size" and isinstance(p.of, DType)}
    made = replace(program, facts=(*program.facts, *(f for f in fact_expressions(list(facts), sizes) if f not in program.facts)))
    check(made)
    return made


def own_surface(program: Program, surface: str) -> str:
    """The surface that a program is emitted on when none is asked for: IR text in the thread dialect says what CUDA says, and all its
    states must be compared there; other IR text goes to whatever backend accepts it (`kir`)."""
    threads = any(isinstance(s, For) and s.kind == "thread" for k in program.kernels for s in statements(k.body))
    return "cuda" if surface == "kir" and threads and "cuda" in {entry.name for entry in registry("kir.backends")} else surface


def _short(path: Path) -> str:
    """A path as a user would type it here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def read_binding(path: Path) -> Binding:
    """The binding of a file. Raises :class:`KirError` as :meth:`Binding.read` does, and KIR-F011 for one of a problem that there is not."""
    from kir.ir.binding import Binding

    found = Binding.read(shipped(path))
    if found.problem:
        from kir.problem import problem_names  # what checks a problem's file takes long to import

        plain = found.problem.partition(":")[0]
        if plain not in problem_names() and not any((folder / found.problem).exists() for folder in (Path(), path.parent)):
            raise found.refusal(("problem",), "KIR-F011", f"there is no problem '{found.problem}'", attempt=did_you_mean(plain, problem_names()),
                                needs="a problem of KIR, or the path of one")
    return found


def _binding_text(path: Path) -> str:
    """The text of a binding; of one of its configurations, written anew."""
    from kir.ir.binding import Binding

    path = shipped(path)
    return read_text(path) if path.exists() else Binding.read(path).text()


def read_source(text: str, binding: Path | Binding | None = None) -> Reading:
    """The kernel of ``FILE[::KERNEL]`` as written, with its binding, whose file is read when the source has been found. A surface whose
    templates are read when their arguments are known (it offers ``instantiate``) is given the binding.

    Raises :class:`KirError`: KIR-S018 (no such file or kernel), and what the parser, the frontend and the binding raise.
    """
    path, kernel = located(text)
    if path.suffix == ".kir":
        program = parse_program(read_text(path), str(path))
        return Reading(program, "kir", "", _read_if(binding))
    found, ref = kernel_of(path, kernel)
    instantiate = getattr(found, "instantiate", None)
    if instantiate is not None:
        bound = _read_if(binding)
        return Reading(instantiate(path, kernel or ref.name, bound), ref.surface, ref.name, bound)
    program = found.parse(path, ref.name)
    return Reading(program, ref.surface, ref.name, _read_if(binding))


def _read_if(binding: Path | Binding | None) -> Binding | None:
    return read_binding(binding) if isinstance(binding, Path) else binding


def read_generic(text: str, binding: Path | None = None) -> tuple[Program, str, str]:
    """Program, surface and kernel of :func:`read_source`."""
    found = read_source(text, binding)
    return found.program, found.surface, found.kernel


def each_kernel(text: str) -> tuple[str, ...]:
    """``FILE::KERNEL`` for each kernel of a source FILE, where it has several and ``text`` names none; else ``text`` itself. Raises what
    :func:`kernel_of` does for a file without any."""
    path, kernel = located(text)
    if kernel or path.suffix == ".kir":
        return (text,)
    names: list[str] = []
    for reader in _readers(path):
        try:
            refs = reader.kernels(path)
        except KirError:
            if names:
                continue
            raise
        names += [_told_apart(ref, refs) for ref in refs]
    return tuple(f"{text}::{name}" for name in names) if len(names) > 1 else (text,)


def _readers(path: Path) -> Iterator[Frontend]:
    """The frontends that read a file: those of its language first, then such as read strings in it."""
    entries = [*registry("kir.frontends")]
    own = [entry for entry in entries if reads(entry.name, path.suffix)]
    yield from (frontend(entry.name) for entry in (*own, *(e for e in entries if e not in own and held_within(e.name, path))))


def kernel_of(path: Path, kernel: str) -> tuple[Frontend, KernelRef]:
    """The frontend that finds the kernel in a file, and where. Raises :class:`UsageError` (KIR-S018) with the nearest names."""
    names: list[str] = []
    wanted: list[str] = []
    plain = kernel.partition("<")[0].strip().split("::")[-1]
    for reader in _readers(path):
        wanted.append(f"{getattr(reader, 'finds', 'a kernel')} ({reader.surface})")
        try:
            refs = reader.kernels(path)
        except KirError:
            if names:  # the file's own kernels are others
                continue
            raise
        names += [_told_apart(ref, refs) for ref in refs]
        for ref in refs:
            if ref.name == plain or plain in ref.makers or (not kernel and len(refs) == 1):
                return reader, ref
    if not names:
        if path.suffix == ".kir":
            raise usage("KIR-S018", f"{path} is IR text, and this command takes a source file", needs="a kernel of a surface: FILE.py::KERNEL, FILE.cu")
        if not wanted:
            raise usage("KIR-S018", f"no frontend reads {f'files that end in {path.suffix}' if path.suffix else 'files without an ending'}: {path}",
                        needs="IR text (.kir), or a source file of one of them", attempt="kir plugins")
        raise usage("KIR-S018", f"no frontend finds a kernel in {path}", needs=" or ".join(wanted))
    hint = (did_you_mean(kernel, names) or f"it has {_some(names)}") if kernel else f"name one: {_some(names)}"
    raise usage(
        "KIR-S018",
        f"there is no kernel '{kernel}' in {path}{f'; {hint}' if hint else ''}" if kernel else f"{path} has several kernels; {hint}",
        attempt="" if kernel else f"{path}::{names[0]}",
    )


def _told_apart(ref: KernelRef, refs: Sequence[KernelRef]) -> str:
    """What a user calls a kernel: by the factory that makes it alone where several kernels of the file have its name."""
    return ref.makers[-1] if ref.makers and any(other.name == f"{ref.name.partition('__')[0]}__2" for other in refs) else ref.name


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:8])}{f', and {len(names) - 8} more' if len(names) > 8 else ''}"


def normal_form(read: Reading, known: Sequence[Path] = (), text: str = "") -> Program:
    """normalize(specialize(program)), with flat accesses raised to regions. Refuses what `specialized_form` does."""
    from kir.analysis.normal.regions import raised

    return raised(specialized_form(read, known, text))


def specialized_form(read: Reading, known: Sequence[Path] = (), text: str = "", paired: bool = True) -> Program:
    """The program specialized, as it was written. A refusal for want of a binding names the `known` ones, or the command that writes a skeleton for
    `text`."""
    program = read.specialized()
    if is_generic(program):
        told = f"kir bind {quote(text)} --ask, which asks for what is open; or -o {program.name}.toml, which writes a skeleton for --bind"
        skeleton = told if text and ".kir" not in text else ""
        shipped = " or ".join(f"--bind {quote(_short(each))}" for each in known)
        why = "its binding leaves something open" if read.binding is not None else "no launch of it was found in its file or folder"
        raise error("KIR-S016", f"{program.name} is generic, and {why}",
                    needs="a binding: what its sizes, dtypes and compile-time values are (kir explain your-own-kernel)",
                    attempt=shipped or skeleton)
    check(program, paired=paired)
    return program
