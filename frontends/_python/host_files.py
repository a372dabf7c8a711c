"""The host code around a kernel: which files of its folder are followed, from where, and the launches of one kernel that come of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import islice
from pathlib import Path

from kir.ir import nodes as n
from kir.surface.launches.record import HostLaunch
from kir.surface.launches.values import Array, Unknown, Value, variables

from .host_parts import optional
from .host_run import Follower, Fork, HostFile, Kernel
from .host_values import Lazy

MOST_FILES = 40
MOST_BYTES = 400_000
"""Files of a folder that are looked through, and how large they may be."""
MOST_OF_PACKAGE = 4_000
"""Files of a package that are looked through for a launch where the folder has none."""
MOST_WAYS = 8
"""Ways through the branches of one entry that are followed."""
MOST_OPTIONAL = 8
"""Arguments that may be None that are None one beside the other."""
MOST_CALLERS = 3
"""Calls between a launch and the function whose defaults are taken."""
OnCall = Callable[[Follower, HostFile, Kernel, ast.Call, list[Value], dict[str, Value]], Value]


def host_launches(source: Path, kernel: str, is_kernel: Callable[[ast.FunctionDef], bool], on_call: OnCall) -> list[HostLaunch]:
    """The launches of a kernel in its file, and in other files of its folder that name it or its file. What a main program or a test calls comes
    first: there the sizes are known. Of one place in the text the launch of which the most is known, of equals the first; where something is open, whoever
    calls the function that launches is followed too, since its defaults may say it, and then the usual call, without the arguments that are None by default;
    so is that call where no other comes to the launch. A file that defines a kernel of the same name launches its own."""
    load = cache(partial(_loaded, is_kernel=is_kernel))
    files = list(islice(_files(source, kernel, load), MOST_FILES))
    others = {str(f.path) for f in files if f.path != source and kernel in f.kernels}
    found: dict[str, HostLaunch] = {}

    def follow(starts: Iterator[Callable[[Follower], None]], usual: frozenset[str] | None = frozenset(), flags: bool = False) -> None:
        for start in starts:
            ways = [frozenset[Fork]()]
            for way in ways:  # each by itself: what one part of a branch checks says nothing of the other
                follower = Follower({f.path.stem: f for f in files}, on_call, load, usual, way, flags)
                start(follower)
                for each in follower.launches:
                    if each.kernel == kernel and each.file not in others and (each.place not in found or _left(each) < _left(found[each.place])):
                        found[each.place] = each
                ways += [more for fork in follower.forks if (more := way | {fork}) not in ways][:MOST_WAYS - len(ways)]

    follow(_entries(files, kernel))
    if any(_open(each) or _apart(each) for each in found.values()):
        follow(_callers(files, kernel))
    if not found or any(map(_open, found.values())):
        follow(_entries(files, kernel), None)
    if not found:  # it may be launched where an argument is not what it is by default
        follow(_entries(files, kernel), flags=True)
    without = frozenset[str]()
    for name in dict.fromkeys(x for _, f in _launching(files, kernel) for x in sorted(optional(f))):  # not all are None where the kernel is launched
        before = sorted(map(_left, found.values()))
        if len(without) > MOST_OPTIONAL or not before or not before[0][0]:
            break
        follow((lambda follower, file=file, f=f: follower.entry(file, f) for file, f in _launching(files, kernel)), without | {name})  # type: ignore[misc]  # of this turn
        without |= {name} if sorted(map(_left, found.values())) < before else frozenset()
    return list(found.values())


def _open(launch: HostLaunch) -> int:
    """How many of a launch's values nothing says: neither what they are, nor what they are by default."""
    said = (*launch.named.values(), *launch.grid, *launch.factory.values())
    return sum(isinstance(v, Unknown) or (isinstance(v, Lazy) and v.array_ is None and v.default is None) for v in said)


def _apart(launch: HostLaunch) -> int:
    """How many sizes nothing ties to a tensor: numbers given beside tensors whose extents the host code does not speak of. Their caller may."""
    given = (*launch.named.values(), *launch.arguments)
    arrays = [a for v in given if isinstance(a := v.array_ if isinstance(v, Lazy) else v, Array) and a.shape is not None]
    numbers = [e for v in given if isinstance(e := v.number_ if isinstance(v, Lazy) else v, n.Expr)]
    shown = {x for a in arrays for d in a.shape or () for x in variables(launch.known.resolved(d))}
    return len({x for e in numbers for x in variables(launch.known.resolved(e))} - shown)


def _left(launch: HostLaunch) -> tuple[int, int]:
    """What a launch leaves open: values, and sizes that it ties to no tensor."""
    return _open(launch), _apart(launch)


def _files(source: Path, kernel: str, load: Callable[[Path], HostFile | None]) -> Iterator[HostFile]:
    beside = sorted(p for p in source.parent.glob("*.py") if p.name != source.name)[:400] if source.parent.is_dir() else []
    wanted = (kernel.encode(), source.stem.encode())
    launched, begins = False, re.compile(rb"\b" + re.escape(kernel.encode()) + rb"\s*\[")
    for path in (source, *beside):
        data = _bytes(path)
        if (path == source or any(word in data for word in wanted)) and (file := load(path)) is not None:
            launched = launched or begins.search(data) is not None
            yield file
    if not launched:  # it may be from elsewhere in its package
        yield from (file for path in _package(source) if path.parent != source.parent and begins.search(_bytes(path)) and (file := load(path)) is not None)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _package(source: Path) -> list[Path]:
    """The files of the package that a file is in; none where it is in none."""
    root = source.parent
    while (root / "__init__.py").is_file() and (root.parent / "__init__.py").is_file():
        root = root.parent
    return sorted(islice(root.rglob("*.py"), MOST_OF_PACKAGE)) if root != source.parent and (root / "__init__.py").is_file() else []


def _loaded(path: Path, is_kernel: Callable[[ast.FunctionDef], bool]) -> HostFile | None:
    """A file as a reader of host code sees it; None for one that is not there, is no Python, or is too large."""
    try:
        data = path.read_bytes()
        tree = ast.parse(data) if len(data) <= MOST_BYTES else None
    except (OSError, SyntaxError, ValueError):
        return None
    if tree is None:
        return None
    return HostFile(path, tree, frozenset(x.name for x in ast.walk(tree) if isinstance(x, ast.FunctionDef) and is_kernel(x)))


def _entries(files: list[HostFile], kernel: str) -> Iterator[Callable[[Follower], None]]:
    """Main programs, functions that nobody need give anything (tests too), and then every function that launches the kernel itself."""
    for file in files:
        if any(isinstance(x, ast.Call) and not isinstance(s, (ast.FunctionDef, ast.ClassDef)) for s in file.tree.body for x in ast.walk(s)):
            yield lambda follower, file=file: follower.main(file)  # type: ignore[misc]  # the file of this turn
    for file in files:
        for f in file.functions.values():
            if f.name not in file.kernels and (f.name.startswith("test") or not (f.args.args or f.args.kwonlyargs)):
                yield lambda follower, file=file, f=f: follower.entry(file, f)  # type: ignore[misc]  # the function of this turn
    for file, f in _launching(files, kernel):
        yield lambda follower, file=file, f=f: follower.entry(file, f)  # type: ignore[misc]  # the function of this turn


def _launching(files: list[HostFile], kernel: str) -> Iterator[tuple[HostFile, ast.FunctionDef]]:
    """Every function that names the kernel, or what its file makes of it."""
    for file in files:
        made = (s for s in file.tree.body if isinstance(s, ast.Assign) and any(isinstance(x, ast.Name) and x.id == kernel for x in ast.walk(s.value)))
        names = {kernel} | {t.id for s in made for t in s.targets if isinstance(t, ast.Name)}
        yield from ((file, f) for f in file.functions.values()
                    if f.name not in file.kernels and any(isinstance(x, ast.Name) and x.id in names for x in ast.walk(f)))


def _callers(files: list[HostFile], kernel: str) -> Iterator[Callable[[Follower], None]]:
    """Functions that call those that launch the kernel, and their callers, nearest first."""
    names, known = {kernel}, set[str]()
    for _ in range(MOST_CALLERS):
        known |= names
        calling = [(file, name, f) for file in files for name, f in file.functions.items() if f.name not in file.kernels and f.name not in known
                   and any(isinstance(x, ast.Name) and x.id in names for x in ast.walk(f))]
        if names != {kernel}:
            for file, _name, f in calling:
                yield lambda follower, file=file, f=f: follower.entry(file, f)  # type: ignore[misc]  # the function of this turn
        names = {name.partition(".")[0] for _, name, _ in calling} | {f.name for _, _, f in calling} - {"forward", "__call__"}


def decorated(f: ast.FunctionDef, words: frozenset[str]) -> bool:
    """Whether a function is under a decorator whose last word is one of these."""
    for d in f.decorator_list:
        target = d.func if isinstance(d, ast.Call) else d
        if (target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else "") in words:
            return True
    return False
