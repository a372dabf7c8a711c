"""The specializations of kernels that a package's own host code names: by launches, by explicit instantiations; else ones that are guessed, and say so."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice, product
from pathlib import Path

from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.binding import Binding, Setting
from kir.surface.launches.record import HostLaunch, Specialization
from kir.surface.launches.values import Dtype, Unknown, Value, is_number

from ..source.source import Sources, Unit
from ..source.syntax import text
from ..source.tree import Project, project_of
from ..symbols.overloaded import named as by_name
from ..symbols.symbols import Function, TParam
from ..symbols.template_candidates import choices, likely, samples
from .arguments import compile_time
from .dispatch import CPP_TYPES, GuessedType, Written, instantiations
from .entries import every_launch
from .geometry import BLOCK, words_of
from .launch_bounds import bounds_of

MOST_EACH = 8
"""Specializations of one kernel that are offered; how many more there are is said."""
MOST_FILES, MOST_BYTES = 6, 400_000
GUESSED_THREADS, GUESSED_SHARED, MOST_THREADS = 256, 96 << 10, 1024
_POOL = re.compile(rb"\bextern\s+register\b")
"""`extern __shared__`, as the grammar is given it."""
Means = Callable[[Function, TParam, str], bool]
Offers = Callable[[Function], Mapping[str, Sequence[str]]]
_ENDINGS = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".h", ".hpp", ".inc")


def specializations(
    sources: Sources, main: Unit, source: Path, kernels: Sequence[Function], reads: Callable[[str], bool], means: Means, offers: Offers,
    part: tuple[int, int] = (0, 1),
) -> Iterator[Specialization]:
    """Each specialization of each kernel, in the order of the kernels. `reads` says whether a kernel is read under template arguments (text): what is
    guessed is the first of its samples that is. `means` says whether the text of one argument is one where the kernel stands: the host's own local names are
    none, and are guessed. `offers` says of which classes a type parameter may be one. Of part k of m those of every m-th kernel from the k-th on: what
    costs is to try arguments, and no part tries those of another."""
    beside = _elsewhere(sources, source, [f.name for f in kernels])
    units = [*sources.units, *beside]
    others = {(f.name, str(u.path)) for u in beside for f in kernels if _defines(u, f.name)}  # those launch their own kernel of that name
    launches = every_launch(units, main, others)
    named = [(name, text(given)[1:-1].strip(), f"{o.file}:{o.line}") for name, given, node, unit in instantiations(units) for o in [unit.origin(node)]
             if (name, o.file) not in others]
    of_name: dict[str, Function] = {}
    for called, fn in by_name(kernels):
        of_name.setdefault(called, fn)  # an overload of a template: which one it is says each specialization
    for called, fn in islice(of_name.items(), part[0], None, part[1]):
        own = [(words, at) for name, words, at in named if name == fn.name]
        its = [each for each in launches if each.kernel == fn.name]
        if fn.params is None and any(f.name == fn.name and f is not fn and f.params is None for f in kernels):  # the arguments say which it is, by their number
            its = [each for each in its if len(each.arguments) == len(fn.parameters())]
        yield from _capped([_called(each, fn.name, called) for each in _of(fn, its, own, reads, means, offers)])


def _called(each: Specialization, name: str, called: str) -> Specialization:
    """A specialization by the name under which its kernel is asked for."""
    return each if called == name else replace(each, name=called, label=called + each.label.removeprefix(name))


def _capped(found: list[Specialization]) -> list[Specialization]:
    more = len(found) - MOST_EACH
    return found if more <= 0 else [*found[:MOST_EACH - 1], found[MOST_EACH - 1].with_more(more)]


def _of(fn: Function, launches: Sequence[HostLaunch], named: Sequence[tuple[str, str]], reads: Callable[[str], bool],
        means: Means, offers: Offers) -> Iterator[Specialization]:
    classes = offers(fn)
    wanted = [p.name for p in fn.params or () if not p.pack and p.default is None]
    seen: set[str] = set()
    words = words_of(fn)
    blocks: list[tuple[dict[str, Setting], str]] = []
    taken: dict[str, str] = {}
    for launch in launches:
        metas, guessed = _settings(fn, launch, means)
        _refit(fn, metas, guessed, reads, taken, classes)
        block = {k: v for k, v in metas.items() if k in words.values()}
        blocks.append((block, launch.place))
        if any(name not in metas for name in wanted):
            continue
        made = _specialization(fn, "", metas, launch.place, guessed)
        if made.label not in seen:
            seen.add(made.label)
            yield made
    if named:
        block, _ = blocks[0] if blocks else ({}, "")
        for arguments, place in dict(named).items():
            metas, guessed = _with_block(fn, dict(block))
            made = _specialization(fn, arguments, metas, place, guessed)
            seen.add(made.label)
            yield made
    if seen:
        return
    block, place = blocks[0] if blocks else ({}, "")
    metas, guessed = _with_block(fn, dict(block))
    arguments = ""
    if fn.params:
        tried = list(samples(fn, classes))
        arguments = next((x for x in tried[:MOST_GUESSES] if reads(f"{fn.name}<{x}>")), tried[0] if tried else "")
        guessed = ("template arguments", *guessed)
    yield _specialization(fn, arguments, metas, place, guessed)


def _refit(fn: Function, metas: dict[str, Setting], guessed: Sequence[str], reads: Callable[[str], bool], taken: dict[str, str],
           classes: Mapping[str, Sequence[str]]) -> None:
    """Guessed types of a launch as the first of their samples under which the kernel is read; the first of all where none is. What was found once for a
    kernel is `taken` for its other launches."""
    of = [p for p in fn.params or () if not p.pack and (p.default is None or p.name in metas)]
    types = [p for p in of if p.kind == "type" and p.name in guessed]
    if not types or any(p.name not in metas for p in of):
        return
    if not taken:
        for each in islice(product(*(list(classes.get(p.name, ())) or choices(p) for p in types)), MOST_REFITS):
            trial = {**metas, **{p.name: words for p, words in zip(types, each, strict=True)}}
            if reads(f"{fn.name}<{', '.join(_argument_text(trial[p.name]) for p in of)}>"):
                taken.update({p.name: words for p, words in zip(types, each, strict=True)})
                break
        else:
            taken.update({p.name: next(iter(classes.get(p.name, ())), str(metas[p.name])) for p in types})
    metas.update({p.name: taken[p.name] for p in types if p.name in taken})


def _argument_text(v: Setting) -> str:
    """A meta as a template argument in C++."""
    return ("true" if v else "false") if isinstance(v, bool) else CPP_TYPES.get(v, v) if isinstance(v, str) else str(v)


MOST_REFITS = 3
MOST_GUESSES = 6
"""Template arguments that are tried for a kernel which nothing names arguments for."""


def _specialization(fn: Function, arguments: str, metas: Mapping[str, Setting], place: str, guessed: tuple[str, ...]) -> Specialization:
    words = words_of(fn)
    own = {p.name for p in fn.params or ()}
    shown = arguments or ", ".join(f"{k} = {v}" for k, v in metas.items() if k in own)
    threads = "x".join(str(metas[words[b]]) for b in BLOCK if words[b] in metas)
    label = f"{fn.name}{f'<{shown}>' if shown else ''}[{threads}]"
    name = f"{fn.name}<{arguments}>" if arguments else fn.name
    return Specialization(fn.name, name, label, Binding(kernel=fn.name, grid=[], metas=dict(metas)), place, guessed)


def _settings(fn: Function, launch: HostLaunch, means: Means) -> tuple[dict[str, Setting], tuple[str, ...]]:
    """The metas that a launch tells, with its block whole, and what of that is guessed."""
    out: dict[str, Setting] = {}
    unknown: list[str] = []
    kinds = {p.name: p for p in fn.params or ()}
    for name, v in compile_time(fn, launch).items():
        of = kinds.get(name)
        made = _setting(launch, v, of)
        if isinstance(made, str) and of is not None and isinstance(v, Written) and not means(fn, of, made):
            made = _number(likely(of)) if of.kind == "value" else likely(of)
            unknown.append(name)
        elif isinstance(v, GuessedType):
            unknown.append(name)
        if made is not None:
            out[name] = made
    metas, guessed = _with_block(fn, out)
    return metas, (*unknown, *guessed)


def _number(words: str) -> Setting:
    """A guessed value: a number where it is one."""
    return int(words) if words.isdigit() else words == "true" if words in ("true", "false") else words


def _setting(launch: HostLaunch, v: Value, of: TParam | None) -> Setting | None:
    """The value of a meta, the template parameter `of` or (None) one of the launch's own."""
    if isinstance(v, Dtype):
        return v.name or (None if of is None or of.kind != "type" else "i32" if likely(of) == "int32_t" else "f32")
    if isinstance(v, bool):
        return v
    if isinstance(v, Written):
        return v.reason if of is not None else None
    if isinstance(v, Unknown):
        return None
    if isinstance(v, n.Expr) and is_number(v):
        e = launch.known.resolved(v)
        if isinstance(e, n.Const) and isinstance(e.value, int):
            return int(e.value)
        if of is None:
            return launch.known.pinned(e)
        return launch.known.example(e)
    return None


def with_bytes_guessed(each: Specialization) -> Specialization | None:
    """One to which host code, as far as it is followed, gives fewer bytes of shared memory than its arrays take, with bytes that are guessed."""
    name = next((k for k in each.binding.metas if k.rstrip("_") == "shared_bytes"), None)
    held = each.binding.metas.get(name) if name is not None else None
    if name is None or not isinstance(held, int) or held >= GUESSED_SHARED:
        return None
    guessed = tuple(dict.fromkeys((*each.guessed, "bytes of shared memory")))
    return replace(each, binding=replace(each.binding, metas={**each.binding.metas, name: GUESSED_SHARED}), guessed=guessed)


@lru_cache(maxsize=64)
def _declares_pool(source: bytes) -> bool:
    """Whether something in a file is in shared memory of which the launch says how much there is."""
    return _POOL.search(source) is not None


def _with_block(fn: Function, metas: dict[str, Setting]) -> tuple[dict[str, Setting], tuple[str, ...]]:
    """Metas with threads and shared bytes for all that is open, and what of them is guessed."""
    words, guessed = words_of(fn), []
    extents = [metas.get(words[b]) for b in BLOCK]
    count = 1
    for e in extents:
        count *= e if isinstance(e, int) else 1
    if not isinstance(extents[0], int) or not 1 <= count <= MOST_THREADS:
        bound = next((b.split(",")[0].strip() for b in bounds_of(fn) if not b.startswith(("maxnreg", "cluster"))), "")
        for b in BLOCK:
            metas.pop(words[b], None)
        metas[words[BLOCK[0]]] = int(bound) if bound.isdigit() and 1 <= int(bound) <= MOST_THREADS else GUESSED_THREADS
        guessed.append("threads")
    if words["shared_bytes"] not in metas and _declares_pool(fn.unit.text):  # a function that it calls may be the one that declares it
        metas[words["shared_bytes"]] = GUESSED_SHARED
        guessed.append("bytes of shared memory")
    return metas, tuple(guessed)


def _defines(unit: Unit, kernel: str) -> bool:
    """Whether a file defines a kernel of that name; `__thread` stands for `__global__` in the text that the grammar is given."""
    return re.search(rb"\b__thread\b[^;{}]*\b" + re.escape(kernel.encode()) + rb"\s*\([^;{}]*\)\s*\{", unit.text) is not None


def _elsewhere(sources: Sources, source: Path, kernels: Sequence[str]) -> list[Unit]:
    """Files of the project, the nearest first, that launch or instantiate one of these kernels."""
    if sources.project is None:
        sources.project = project_of(source)
    seen = {u.path.resolve() for u in sources.units}
    names = re.compile(rf"\b(?:{'|'.join(map(re.escape, kernels))})\b".encode()) if kernels else re.compile(rb"(?!)")
    out: list[Unit] = []
    for path in _files(sources.project, source):
        if path.resolve() in seen or len(out) >= MOST_FILES:
            continue
        try:
            data = path.read_bytes()
            if len(data) > MOST_BYTES or not (b"<<<" in data or b"LaunchKernel" in data or b"template __global__" in data) or names.search(data) is None:
                continue
            more = Sources(sources.target, sources.folders)
            more.project = sources.project
            out.append(more.read(path))
        except (OSError, KirError):
            continue
    return out


def _files(project: Project, source: Path) -> list[Path]:
    beside = [p for p in sorted(source.parent.iterdir()) if p.suffix in _ENDINGS and p.is_file()][:400]
    if project.root is None:
        return beside
    root = project.root
    below = sorted((p for found in project.headers.values() for p in found if p.suffix in (".cu", ".cuh")),
                   key=lambda p: (len(p.relative_to(root).parts), str(p)))
    return list(dict.fromkeys([*beside, *below]))[:2_000]
