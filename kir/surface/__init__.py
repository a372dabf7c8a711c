"""Surfaces: what a frontend and a backend promise, and the records that pass between them and the gate.

A frontend module offers `FRONTEND`, a backend module `BACKEND`; both are found by the name of their surface through `kir.base.registry`.

Order: edits, lowering, ptx, launches, finding, reading, oracles.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, error
from kir.base.registry import registry
from kir.hardware.target import Target
from kir.ir.nodes import Buffer, Expr, Program

StatementPath = tuple[int | str, ...]
"""A structural path as in `kir.ir.anchors`: kernel name, then statement indices and block names in turn."""
Option = int | float | str | bool
UNCOMPILED = "not compiled"
"""How a reason begins where nothing is known of the machine code, because a side was not compiled."""
NVCC_UNROLLS = "nvcc_unrolls"
"""An option of a kernel that is written in CUDA C++: nvcc decides how many rounds of a serial loop it writes out; else it writes out none."""


@dataclass(frozen=True)
class KernelRef:
    """A kernel found in a source file: its name, the 1-based line of its definition, and the surface that it is written in. `makers` are the functions around
    it that make no other kernel, whose names name it, too."""

    name: str
    file: str
    line: int
    surface: str
    makers: tuple[str, ...] = ()


@runtime_checkable
class Frontend(Protocol):
    """Source -> generic IR. Reads text only: the package that a file belongs to is never imported or run."""

    surface: str

    def kernels(self, source: Path) -> tuple[KernelRef, ...]:
        """The kernels of a file, in order. Raises KirError, located, when the file does not parse."""
        ...

    def parse(self, source: Path, kernel: str) -> Program:
        """The generic program of one kernel. Raises KirError, with the nearest names, when it is not there."""
        ...


@dataclass(frozen=True)
class SourceStatement:
    """A statement of a kernel's source. `start` and `end` are offsets of its characters in the file (without the line's indentation and
    what follows it on the line); `head` is where a compound statement's `:` stands; `binds` are the names that it binds itself."""

    start: int
    end: int
    indent: str
    head: int = 0
    binds: tuple[str, ...] = ()
    blocks: tuple[tuple[SourceStatement, ...], ...] = ()


@dataclass(frozen=True)
class Outline:
    """Where a kernel's statements stand in the text of its file. `body` are those after a docstring, `names` all identifiers that occur
    in the function, `modules` the names that the file binds by imports."""

    text: str
    body: tuple[SourceStatement, ...]
    parameters: tuple[str, ...]
    names: frozenset[str]
    modules: frozenset[str]


@runtime_checkable
class EditableFrontend(Protocol):
    """A frontend whose kernels can be edited in place."""

    def outline(self, source: Path, kernel: str) -> Outline:
        """Where the statements of a kernel stand. Raises KirError as `parse` does."""
        ...

    def parse_text(self, source: Path, text: str, kernel: str) -> Program:
        """As `parse`, with `text` in place of what the file holds."""
        ...


@dataclass(frozen=True)
class SourceLine:
    """Line `line` (1-based) of an emitted text says what the statement at `path` says."""

    line: int
    path: StatementPath


@dataclass(frozen=True)
class Argument:
    """A run-time argument of an emitted kernel. `kind` is `pointer`, `scalar` or `map` (a tensor map), `dtype` an IR dtype name, `divisor` the largest
    power of two up to 16 that the text may take to divide it: bytes for a pointer (1: as an element is), the value for a scalar. `of` is the
    parameter, workspace or tensor map of the program that it stands for, where the text spells it otherwise; a map that is `shown` is of a tensor as
    that shows it, and the surface's compiler says how its `box` is cut."""

    name: str
    kind: Literal["pointer", "scalar", "map"]
    dtype: str
    divisor: int = 1
    of: str = ""
    shown: Buffer | None = None
    box: tuple[int, ...] = ()

    @property
    def source(self) -> str:
        """The program's name for it."""
        return self.of or self.name


@dataclass(frozen=True)
class Entry:
    """One kernel of an emitted text: the IR kernel, its function there, arguments in ABI order, the grid's extents over the sizes
    (x, y, z), threads per CTA, and what the launcher must be told (`num_warps`, `num_stages`, `maxnreg`, ..)."""

    kernel: str
    function: str
    arguments: tuple[Argument, ...]
    grid: tuple[Expr, ...]
    threads: int
    options: tuple[tuple[str, Option], ...] = ()


@dataclass(frozen=True)
class Emitted:
    """A program in a surface's own language. `program` is the content hash of what it was written from; `bindings`, by function, are
    the TOML texts under which the surface's frontend reads it back; `launch` is host code that launches the entries, where the surface
    has such code apart from the kernels ("" where it has none, or what they need is no value of the host: `unlaunched` says which)."""

    surface: str
    program: str
    text: str
    source_map: tuple[SourceLine, ...]
    entries: tuple[Entry, ...]
    bindings: tuple[tuple[str, str], ...] = ()
    launch: str = ""
    unlaunched: str = ""

    def whole(self) -> str:
        """The text, and after it what launches it, or a comment that says why nothing does."""
        after = self.launch or (f"// Nothing here launches this: {self.unlaunched}.\n" if self.unlaunched else "")
        return self.text + (f"\n{after}" if after else "")

    def statement_of(self, line: int) -> StatementPath | None:
        """The statement that a line of the text belongs to, or None for a line that has none."""
        return next((each.path for each in self.source_map if each.line == line), None)


@dataclass(frozen=True)
class Passed:
    """An argument as a surface's compiler laid it out for one set of sizes. `kind` is `pointer` or `scalar` (of the program's parameter or
    workspace `of`, of an IR `dtype`) or `map`: a tiled tensor map over the tensor `of`, extents,
    box and steps in elements and innermost first, strides in bytes without the innermost, `swizzle` in bytes, `promotion` and
    `interleave` as the driver numbers them (CUDA driver API, `cuTensorMapEncodeTiled`). A map with corners, `lower` and `upper`, is in im2col mode, and
    its box are pixels and channels (`cuTensorMapEncodeIm2col`)."""

    kind: Literal["pointer", "scalar", "map"]
    of: str
    dtype: str
    extents: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    box: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    swizzle: int = 0
    interleave: int = 0
    promotion: int = 2
    nan_fill: bool = False
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()


@dataclass(frozen=True)
class Image:
    """What a launcher needs of a compiled kernel: the cubin, the function's name in it, bytes of dynamic shared memory, the cluster in
    CTAs per axis, whether the grid is cooperative. `hidden` are pointers that the surface's calling convention appends to the arguments:
    for each, bytes of scratch memory a CTA (0: a null pointer). Where the compiler decides them itself, `arguments` are what its function
    takes instead of the entry's, and `threads` how many a CTA has (0: as the entry says). `boxes` are those of the entry's maps of tensors, in order, as the
    compiler cuts them, with their swizzle in bytes; behind each such map its function takes the extents (i32) and the strides in elements (i64)."""

    cubin: bytes
    function: str
    dynamic_shared: int = 0
    cluster: tuple[int, ...] = ()
    cooperative: bool = False
    hidden: tuple[int, ...] = ()
    arguments: tuple[Passed, ...] | None = None
    threads: int = 0
    boxes: tuple[tuple[tuple[int, ...], int], ...] = ()


@dataclass(frozen=True)
class BodyLine:
    """A line of an emitted body: its text without indentation, how deep it is indented (0: the body itself), and its statement."""

    text: str
    depth: int
    path: StatementPath | None


@dataclass(frozen=True)
class Body:
    """A kernel's statements in a surface's words. `opening` lines come first and belong to no statement; `refused` are statements that
    the surface cannot say, `refusals` why; `needs` are module names that the text uses."""

    lines: tuple[BodyLine, ...]
    opening: tuple[str, ...]
    refused: tuple[StatementPath, ...]
    refusals: tuple[Diagnostic, ...]
    needs: frozenset[str]


@runtime_checkable
class ShowingBackend(Protocol):
    """A backend that has another text of a program for a reader, which says the same."""

    def shown(self, program: Program) -> Emitted:
        """As `emit`, where what is said more than once has a name. Raises as `emit`."""
        ...


@runtime_checkable
class EditingBackend(Protocol):
    """A backend that can write single statements into an existing kernel."""

    def body(self, program: Program, names: Mapping[str, str]) -> Body:
        """The body of a program's one kernel; `names` spells every name that occurs in it (an atom of an expression each)."""
        ...

    def spelled(self, names: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
        """A name that the surface allows for each name, none of them in `taken`."""
        ...

    def axis(self, number: int) -> str:
        """The expression for a CTA's place along an axis of the grid."""
        ...

    def launch(self, program: Program) -> Entry:
        """How the program's one kernel is launched. Raises KirError for a launch that the surface cannot express."""
        ...


@dataclass(frozen=True)
class CompiledKernel:
    """What a compiler made of one kernel: registers a thread, bytes spilled, bytes of shared memory a CTA, instructions by SASS
    opcode (empty when no disassembler was there), texts by stage (`ttgir`, `ptx`, `sass`, `log`), and what is launched."""

    kernel: str
    registers: int
    spills: int
    shared_bytes: int
    threads: int
    mix: Mapping[str, int] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    options: tuple[tuple[str, Option], ...] = ()
    image: Image | None = None

    def record(self) -> dict[str, Any]:
        """What a verdict keeps: everything but the texts and the image."""
        return {"kernel": self.kernel, "registers": self.registers, "spills": self.spills, "shared_bytes": self.shared_bytes,
                "threads": self.threads, "mix": dict(sorted(self.mix.items())), "options": dict(self.options)}


@dataclass(frozen=True)
class MachineLine:
    """A line of a disassembly, and the line of the emitted text that it was compiled from (1-based; 0 where that is not known)."""

    text: str
    line: int


@dataclass(frozen=True)
class Artifact:
    """A compiled program for one architecture; or, when `absent` says what this machine lacks, nothing but that sentence."""

    surface: str
    target: str
    kernels: tuple[CompiledKernel, ...]
    tools: tuple[tuple[str, str], ...] = ()
    absent: str = ""

    @property
    def compiled(self) -> bool:
        return not self.absent

    @property
    def registers(self) -> int:
        """The most registers a thread of any kernel takes."""
        return max((k.registers for k in self.kernels), default=0)

    @property
    def spills(self) -> int:
        """Bytes spilled, over all kernels."""
        return sum(k.spills for k in self.kernels)

    @property
    def shared_bytes(self) -> int:
        """The most shared memory that a CTA of any kernel takes."""
        return max((k.shared_bytes for k in self.kernels), default=0)

    @property
    def mix(self) -> dict[str, int]:
        """SASS instructions by opcode, over all kernels."""
        out: dict[str, int] = {}
        for k in self.kernels:
            for opcode, count in k.mix.items():
                out[opcode] = out.get(opcode, 0) + count
        return out

    def record(self) -> dict[str, Any]:
        """The JSON that a verdict keeps."""
        return {"surface": self.surface, "target": self.target, "absent": self.absent, "tools": dict(self.tools),
                "kernels": [k.record() for k in self.kernels]}


@runtime_checkable
class Backend(Protocol):
    """Specialized IR -> source -> compiled artifact."""

    surface: str

    def accepts(self, program: Program) -> tuple[Diagnostic, ...]:
        """What the surface cannot say, each located; empty when `emit` will succeed."""
        ...

    def emit(self, program: Program) -> Emitted:
        """The source text. Raises KirError with the diagnostics of `accepts`."""
        ...

    def launched_with(self, emitted: Emitted, sizes: Mapping[str, int]) -> Emitted:
        """What the surface's own launcher compiles at these sizes: Triton specializes on what divides its arguments, others do not."""
        ...

    def compile(self, emitted: Emitted, target: Target) -> Artifact:
        """Compiles without a device, in a process of its own. Raises KirError KIR-B010 with the compiler's words when it refuses, and
        KIR-B011 when it runs out of time; a missing toolchain is no error but an `Artifact` that says so."""
        ...


@dataclass(frozen=True)
class Translated:
    """What a surface's compiler writes of one kernel in a language that KIR reads: the function there, threads a CTA, bytes of dynamic shared memory, how
    files of the language end, and parameters that are spelled otherwise there, with their names in the program."""

    kernel: str
    function: str
    text: str
    threads: int
    dynamic_shared: int = 0
    suffix: str = ".cu"
    renamed: tuple[tuple[str, str], ...] = ()


@runtime_checkable
class TranslatingBackend(Protocol):
    """A backend whose compiler writes another language on its way."""

    def translated(self, emitted: Emitted, target: Target) -> tuple[Translated, ...]:
        """What is written of each kernel. Raises KirError as `Backend.compile` does, and KIR-B013 where the compiler is not here."""
        ...


@runtime_checkable
class DisassemblingBackend(Protocol):
    """A backend that knows which line of its text each machine instruction comes from."""

    def machine_code(self, emitted: Emitted, target: Target) -> tuple[MachineLine, ...]:
        """The SASS of an emitted program with its lines; nothing where a tool is lacking. Raises KirError as `Backend.compile` does."""
        ...


def warm(surface: str) -> None:
    """Begin to load a surface's compiler, where its backend says how: those that take seconds are loaded while a kernel is read."""
    begin = getattr(backend(surface), "warm", None)
    if begin is not None:
        begin()


def frontend(surface: str) -> Frontend:
    """The frontend of a surface. Raises KirError as `kir.base.registry` does, and KIR-X005 for a module that offers none."""
    found = getattr(registry("kir.frontends").load(surface), "FRONTEND", None)
    if not isinstance(found, Frontend):
        raise error("KIR-X005", f"the module of frontend '{surface}' offers no FRONTEND with surface, kernels and parse")
    return found


def reads(surface: str, suffix: str) -> bool:
    """Whether a surface's frontend reads files of a suffix. A package that offers SUFFIXES beside its FRONTEND is asked without importing it."""
    suffixes = getattr(registry("kir.frontends").load(surface), "SUFFIXES", None)
    if suffixes is None:
        suffixes = getattr(frontend(surface), "suffixes", ())
    return not suffixes or suffix in suffixes


def held_within(surface: str, path: Path) -> bool:
    """Whether a file of another language may have kernels of a surface in its strings: what a package offers as WITHIN names the suffixes and a word of such
    kernels."""
    words = getattr(registry("kir.frontends").load(surface), "WITHIN", {})
    return path.suffix in words and words[path.suffix].encode() in path.read_bytes()


def backend(surface: str) -> Backend:
    """The backend of a surface. Raises KirError as `kir.base.registry` does, and KIR-X005 for a module that offers none."""
    found = getattr(registry("kir.backends").load(surface), "BACKEND", None)
    if not isinstance(found, Backend):
        raise error("KIR-X005", f"the module of backend '{surface}' offers no BACKEND with surface, accepts, emit and compile")
    return found
