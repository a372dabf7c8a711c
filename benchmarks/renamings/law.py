"""The law for one kernel: some of its identifiers renamed at once, read, compared, and written by the surfaces and read back."""
from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.renamings.corpora import Kernel
from benchmarks.renamings.cuda_source import CudaSource
from benchmarks.renamings.python_source import Name, PythonSource
from benchmarks.renamings.words import drawn
from kir.analysis.heuristics import settled as settled_binding
from kir.analysis.normal.regions import raised
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.bindings.specialize import specialize
from kir.ir.canonical import canonical
from kir.ir.names import own_words
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rebuild.callers import called
from kir.ir.rules.verify import check
from kir.ir.visit import statements, transform
from kir.learning.corpus.roundtrip.equal import settled
from kir.surface import backend, frontend

SURFACES = ("cuda", "triton", "tilelang")


@dataclass
class Difference:
    """What went wrong: where, which renamings, and how the two differ."""

    place: str
    names: dict[str, str]
    what: str


@dataclass
class Tally:
    """Counts of a run."""

    renamings: int = 0
    readings: int = 0
    written: int = 0
    settled: int = 0
    differences: list[Difference] = field(default_factory=list)


@dataclass
class Read:
    """A kernel read: the program as written, that under its binding in normal form, and what each surface makes of it."""

    generic: n.Program
    bound: n.Program | None
    surfaces: dict[str, str] = field(default_factory=dict)


class Subject:
    """A kernel of a corpus with its original, which is read once."""

    def __init__(self, kernel: Kernel, folder: Path) -> None:
        self.kernel, self.folder = kernel, folder
        self.text = kernel.file.read_text(encoding="utf-8")
        self.name = kernel.name

    @cached_property
    def source(self) -> PythonSource | CudaSource:
        """The file's identifiers."""
        plain = self.kernel.name.partition("<")[0]
        if self.kernel.surface != "cuda":
            return PythonSource(self.text, re.sub(r"__\d+$", "", plain))
        words, macros = _around(self.kernel.file)
        return CudaSource(self.text, plain, words, macros, alone=not re.search(r'#\s*include\s*"', self.text))

    @cached_property
    def original(self) -> Read:
        """The kernel as it is. Raises KirError where it cannot be read."""
        if self.kernel.surface == "cuda" and self.kernel.binding is None:
            for name in frontend("cuda").samples(self.kernel.file, self.kernel.name)[:3]:  # type: ignore[attr-defined]  # beyond the protocol
                self.name = name
                made = self.read(self.text, None)
                if not _opaque(made.generic):
                    return made
        return self.read(self.text, self.kernel.binding)

    def read(self, text: str, binding: Binding | None) -> Read:
        """The kernel of a text in the file's place."""
        surface, file = self.kernel.surface, self.kernel.file
        reader: Any = frontend(surface)
        if surface == "cuda":
            file = _placed(file, text)
            made = reader.instantiate(file, self.name, binding)
        elif surface == "tilelang" and binding is not None:
            other = type(reader)()
            other._project = reader._project.with_text(file, text)
            made = other.instantiate(file, self.name, binding)
        else:
            made = reader.parse_text(file, text, self.name)
        if binding is None:
            return Read(made, None)
        program = specialize(made, settled_binding(binding))
        check(program)
        return Read(made, raised(program))

    # ------------------------------------------------------------------------------------------------------------------------ one try
    def candidates(self) -> list[Name]:
        """Identifiers that may be renamed: of the file's, those in what the kernel is made of."""
        return self.source.names()

    def draw(self, chance: random.Random, most: int) -> dict[Name, str]:
        """Some identifiers and the words that they are renamed to."""
        names = self.candidates()
        words = sorted({x.text for x in names})
        out: dict[Name, str] = {}
        b = self.kernel.binding
        bound = frozenset({*b.sizes, *(t.name for t in b.tensors.values()), *b.options, *(m.of for m in b.maps.values())} if b is not None else ())
        said = frozenset(w for x in _texts(b) for w in re.findall(r"[^\W\d]\w*", x)) if b is not None else frozenset()
        for name in chance.sample(names, min(len(names), most)):
            if name.text in [x.text for x in out] or (b is not None and _unclear(name, b)):
                continue
            for _ in range(6):
                new = drawn(chance, name.text, words)
                taken = bound | said if name.kind == "parameter" else frozenset()
                if new not in out.values() and self.source.allows(name, new, taken | self.options):
                    out[name] = new
                    break
        return out

    @property
    def options(self) -> frozenset[str]:
        """Words of the surface's own launch that a parameter may not have."""
        return frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg"}) if self.kernel.surface == "triton" else frozenset()

    def tried(self, names: Mapping[Name, str], surfaces: tuple[str, ...], tally: Tally) -> str:
        """What differs under a renaming; "" for nothing."""
        old = self.original
        text = self.source.renamed(names)
        abi = {x.text: new for x, new in names.items() if x.kind == "parameter"}
        abi |= {x.text: new for x, new in names.items() if x.kind == "file"}
        binding = None if self.kernel.binding is None else self.bound(self.kernel.binding, abi)
        try:
            new = self.read(text, binding)
        except KirError as bad:
            return f"refused: {bad.diagnostics[0].id} {bad.diagnostics[0].message}"
        tally.readings += 1
        if found := self.compared(old.generic, new.generic, abi, tally):
            return f"as it is read: {found}"
        if parse_program(program_text(new.generic)) != new.generic:
            return "its text does not parse back to the program"
        if old.bound is None or new.bound is None:
            return self.own_surface(old, new, tally)
        if found := self.compared(old.bound, new.bound, abi, tally):
            return f"under its binding: {found}"
        for surface in surfaces:
            if surface not in old.surfaces:
                old.surfaces[surface] = self.written(surface, old.bound)
            made = self.written(surface, new.bound)
            tally.written += made == "equal"
            if _alike(old.surfaces[surface]) != _alike(made):
                return f"written as {surface}: {made} (the original: {old.surfaces[surface]})"
        return ""

    def compared(self, p: n.Program, q: n.Program, abi: Mapping[str, str], tally: Tally) -> str:
        """How a program differs from the original, what callers know mapped back."""
        try:
            back = _back(p, q)
        except ValueError as bad:
            return str(bad)
        for new, old in back.items() if p is self.original.generic else ():
            if old in abi and abi[old] != new and (old, new) not in ((x, x) for x in abi.values()):
                return f"'{old}' is called '{new}', not '{abi[old]}'"
        p, q = _verbatim_apart(p), _verbatim_apart(q)
        made = called(canonical(q), back)
        if canonical(made) == canonical(p):
            return ""
        if _by_use(canonical(made)) == _by_use(canonical(p)):
            return ""
        if _settled_alike(p, made):
            tally.settled += 1
            return ""
        return _first(p, made)

    def own_surface(self, old: Read, new: Read, tally: Tally) -> str:
        """A generic program written by its own surface and read back, where that surface writes generic programs."""
        surface = self.kernel.surface
        if surface == "cuda" or _opaque(new.generic):
            return ""
        if surface not in old.surfaces:
            old.surfaces[surface] = self.again(old.generic)
        made = self.again(new.generic)
        tally.written += made == "equal"
        return "" if _alike(old.surfaces[surface]) == _alike(made) else f"written again: {made} (the original: {old.surfaces[surface]})"

    def again(self, p: n.Program) -> str:
        """What comes of a generic program that is written and read back."""
        surface, file = self.kernel.surface, self.kernel.file
        try:
            emitted = backend(surface).emit(p)
        except KirError as bad:
            return f"refused {bad.diagnostics[0].id} {bad.diagnostics[0].message}"
        try:
            q = frontend(surface).parse_text(file.with_name(f"{file.stem}__again.py"), emitted.text, p.kernels[0].name)  # type: ignore[attr-defined]
            q = _kernels_as(q, p)
            back = _back(p, _metas_as(q, p))
        except KirError as bad:
            return f"not read back: {bad.diagnostics[0].id} {bad.diagnostics[0].message}"
        except ValueError as bad:
            return f"read back: {bad}"
        made = called(canonical(q), back)
        return "equal" if _settled_alike(p, made) else f"read back: {_first(p, made)}"

    def written(self, surface: str, p: n.Program) -> str:
        """What a surface makes of a program under its binding."""
        try:
            emitted = backend(surface).emit(p)
        except KirError as bad:
            return f"refused {bad.diagnostics[0].id} {bad.diagnostics[0].message}"
        if len(emitted.bindings) != 1:
            return "equal"
        ((function, text),) = emitted.bindings
        file = self.folder / f"emitted.{'cu' if surface == 'cuda' else 'py'}"
        file.write_text(emitted.text, encoding="utf-8")
        try:
            b = Binding.parse(text)
            reader: Any = frontend(surface)
            if surface == "triton":
                q = reader.parse_text(file, emitted.text, function)
            elif surface == "tilelang":
                other = type(reader)()
                other._project = reader._project.with_text(file, emitted.text)
                q = other.instantiate(file, function, b)
            else:
                file = _placed(file, emitted.text)
                q = reader.instantiate(file, function, b)
            q = raised(specialize(q, settled_binding(b)))
        except KirError as bad:
            return f"not read back: {bad.diagnostics[0].id} {bad.diagnostics[0].message}"
        q = _kernels_as(q, p)
        try:
            made = called(canonical(q), _back(p, q))
        except ValueError as bad_:
            return f"read back: {bad_}"
        return "equal" if canonical(replace(made, name=p.name)) == canonical(p) else f"read back: {_first(p, made)}"

    # ----------------------------------------------------------------------------------------------------------------------- bindings
    def bound(self, b: Binding, abi: Mapping[str, str]) -> Binding:
        """The binding with its keys renamed alike: those of the source, and KIR's own words, which give way."""
        callers = self.source.callers() if isinstance(self.source, CudaSource) else [x.text for x in self.source.names() if x.kind == "parameter"]
        others = [x for x in (*b.metas, *b.scalars, *b.tensors, *b.absent) if x not in callers]
        own = [x for x in ("threads_x", "threads_y", "threads_z", "shared_bytes") if x in b.metas and x not in callers]
        words: dict[str, str] = {k: v for k, v in _own(self.kernel.surface, [abi.get(x, x) for x in callers]).items() if k in own}
        flattened = {x: abi[x.rpartition("_")[0]] + x[x.rindex("_"):] for x in others if "_" in x and x.rpartition("_")[0] in abi}
        changed: dict[str, str] = {**abi, **words, **flattened}

        def key(x: str) -> str:
            return changed.get(x, x)

        def words_of(x: Any) -> Any:
            return re.sub(r"[^\W\d]\w*", lambda m: abi.get(m[0], m[0]), x) if isinstance(x, str) else x
        tensors = {key(k): replace(t, shape=[words_of(x) for x in t.shape],
                                   strides=None if t.strides is None else [words_of(x) for x in t.strides]) for k, t in b.tensors.items()}
        return replace(
            b, sizes=[key(x) for x in b.sizes], facts=[words_of(x) for x in b.facts], grid=[words_of(x) for x in b.grid], absent=[key(x) for x in b.absent],
            metas={key(k): v for k, v in b.metas.items()}, dtypes={key(k): v for k, v in b.dtypes.items()}, tensors=tensors,
            scalars={key(k): words_of(v) for k, v in b.scalars.items()}, arrays={key(k): v for k, v in b.arrays.items()},
            maps={key(k): replace(m, of=key(m.of)) for k, m in b.maps.items()},
            heuristics={key(k): words_of(v) for k, v in b.heuristics.items()},
            configs=[{key(k): v for k, v in c.items()} for c in b.configs])


def _unclear(name: Name, b: Binding) -> bool:
    """Whether a name is also what the binding calls something else: a tensor's own name or array, of which other parts speak."""
    arrays = name.kind != "parameter" and name.text in b.arrays
    sizes = name.kind == "file" or (name.kind == "parameter" and any(m.of == name.text for m in b.maps.values()))
    return arrays or sizes


def _texts(b: Binding) -> list[str]:
    shapes = [x for t in b.tensors.values() for x in (*t.shape, *(t.strides or ()))]
    return [str(x) for x in (*b.facts, *b.grid, *b.scalars.values(), *b.heuristics.values(), *shapes)]


def _own(surface: str, callers: list[str]) -> dict[str, str]:
    from kir.frontends.cuda.launch.geometry import OWN

    return own_words(callers, OWN) if surface == "cuda" else {}


def _back(p: n.Program, q: n.Program) -> dict[str, str]:
    """The names of `q` that callers know, each with that of `p` in its place. Raises ValueError where the two have not the same."""
    pairs: list[tuple[str, str]] = []
    for what, one, other in (("parameters", p.params, q.params), ("metas", p.metas, q.metas), ("tensor maps", p.tensor_maps, q.tensor_maps)):
        if len(one) != len(other):
            raise ValueError(f"its {what} are {', '.join(x.name for x in other)}, not {', '.join(x.name for x in one)}")
        pairs += [(y.name, x.name) for x, y in zip(one, other, strict=True)]  # type: ignore[attr-defined]  # each has a name
    pairs += [(y.buffer.name, x.buffer.name) for x, y in zip(p.workspaces, q.workspaces, strict=False)]
    return dict(pairs)


def _settled_alike(p: n.Program, q: n.Program) -> bool:
    return any(settled(p, by_content) == settled(q, by_content) for by_content in (True, False))


def _metas_as(q: n.Program, p: n.Program) -> n.Program:
    """A program that was written and read back, its metas in the order of the original: a surface writes those with defaults last. Metas that have
    kept their names are told by them."""
    own = {m.name: m for m in q.metas}
    others = iter([m for m in q.metas if m.name not in {x.name for x in p.metas}])
    found = [m for x in p.metas if (m := own.get(x.name) or next(others, None)) is not None]
    return replace(q, metas=tuple(found)) if len(found) == len(q.metas) else q


def _verbatim_apart(p: n.Program) -> n.Program:
    """The program with what is kept verbatim without its text, in which names stand, and its reason."""
    def leave(old: n.Node, new: n.Node) -> n.Node:
        return replace(new, text="", reason="") if isinstance(new, n.Opaque) else new
    made: n.Program = transform(p, leave)
    return made


def _by_use(p: n.Program) -> n.Program:
    from kir.learning.corpus.roundtrip.equal import _functions_by_use

    return _functions_by_use(p)


def _kernels_as(q: n.Program, p: n.Program) -> n.Program:
    kernels = tuple(replace(k, name=old.name) for k, old in zip(q.kernels, p.kernels, strict=False))
    return replace(q, name=p.name, kernels=kernels)


def _first(p: n.Program, q: n.Program) -> str:
    one, other = (program_text(canonical(x)).splitlines() for x in (p, q))
    return next((f"{x.strip()[:170]} | {y.strip()[:170]}" for x, y in zip(one, other) if x != y), "the number of statements")


def _alike(outcome: str) -> str:
    """An outcome without the names in it."""
    return outcome if outcome == "equal" else " ".join(outcome.split()[:2]) if outcome.startswith("refused") else "differs"


def _opaque(p: n.Program) -> bool:
    return any(isinstance(s, n.Opaque) for b in (*(k.body for k in p.kernels), *(f.body for f in p.functions)) for s in statements(b))


_PLACED: dict[Path, Path] = {}


def _placed(file: Path, text: str) -> Path:
    """A file of that text among links to all that lies around the original, so that its includes are found."""
    if file not in _PLACED:
        here = Path(tempfile.mkdtemp(prefix="kir-renamings-"))
        chain = [x for x in reversed(file.parents) if len(x.parts) > len(file.parts) - 8]
        for folder, inner in zip(chain, [*chain[1:], file], strict=True):
            for beside in folder.iterdir():
                if beside != inner and (beside.is_dir() or beside.suffix in (".h", ".cuh", ".hpp", ".inc")):
                    (here / beside.name).symlink_to(beside)
            if inner is not file:
                here /= inner.name
                here.mkdir()
        _PLACED[file] = here / file.name
    made = _PLACED[file]
    made.write_text(text, encoding="utf-8")
    return made


def _around(file: Path) -> tuple[frozenset[str], frozenset[str]]:
    """The words of the files that a file includes, and those in their macros."""
    opened = frontend("cuda").open(file)  # type: ignore[attr-defined]  # beyond the protocol
    words: set[str] = set()
    macros: set[str] = set()
    for unit in opened.sources.units:
        if unit is opened.main:
            continue
        text = unit.path.read_text(encoding="utf-8", errors="replace")
        words |= set(re.findall(r"[^\W\d]\w*", text))
        for line in re.findall(r"(?m)^[ \t]*#((?:[^\n]*\\\n)*[^\n]*)", text):
            macros |= set(re.findall(r"[^\W\d]\w*", line))
    return frozenset(words), frozenset(macros)
