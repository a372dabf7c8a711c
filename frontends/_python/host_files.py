"""The host code around a kernel: which files of its folder are followed, from where, and the launches of one kernel that come of it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from kir.surface.launches.record import HostLaunch
from kir.surface.launches.values import Value

from .host_run import Follower, HostFile, Kernel

MOST_FILES = 40
MOST_BYTES = 400_000
"""Files of a folder that are looked through, and how large they may be."""
OnCall = Callable[[Follower, HostFile, Kernel, ast.Call, list[Value], dict[str, Value]], Value]


def host_launches(source: Path, kernel: str, is_kernel: Callable[[ast.FunctionDef], bool], on_call: OnCall) -> list[HostLaunch]:
    """The launches of a kernel in its file, and in other files of its folder that name it or its file. What a main program or a test calls comes
    first: there the sizes are known; of one place in the text the first."""
    files = _files(source, kernel, is_kernel)
    found: dict[str, HostLaunch] = {}
    for start in _entries(files, kernel):
        follower = Follower({f.path.stem: f for f in files}, on_call)
        start(follower)
        for each in follower.launches:
            if each.kernel == kernel:
                found.setdefault(each.place, each)
    return list(found.values())


def _files(source: Path, kernel: str, is_kernel: Callable[[ast.FunctionDef], bool]) -> list[HostFile]:
    out = []
    beside = sorted(p for p in source.parent.glob("*.py") if p.name != source.name)[:400] if source.parent.is_dir() else []
    wanted = (kernel.encode(), source.stem.encode())
    for path in (source, *beside):
        try:
            data = path.read_bytes()
            if len(data) > MOST_BYTES or (path != source and not any(word in data for word in wanted)):
                continue
            tree = ast.parse(data)
        except (OSError, SyntaxError, ValueError):
            continue
        out.append(HostFile(path, tree, frozenset(x.name for x in ast.walk(tree) if isinstance(x, ast.FunctionDef) and is_kernel(x))))
        if len(out) == MOST_FILES:
            break
    return out


def _entries(files: list[HostFile], kernel: str) -> Iterator[Callable[[Follower], None]]:
    """Main programs, functions that nobody need give anything (tests too), and then every function that launches the kernel itself."""
    for file in files:
        if any(isinstance(x, ast.Call) and not isinstance(s, (ast.FunctionDef, ast.ClassDef)) for s in file.tree.body for x in ast.walk(s)):
            yield lambda follower, file=file: follower.main(file)  # type: ignore[misc]  # the file of this turn
    for file in files:
        for f in file.functions.values():
            if f.name not in file.kernels and (f.name.startswith("test") or not (f.args.args or f.args.kwonlyargs)):
                yield lambda follower, file=file, f=f: follower.entry(file, f)  # type: ignore[misc]  # the function of this turn
    for file in files:
        for f in file.functions.values():
            if f.name not in file.kernels and any(isinstance(x, ast.Name) and x.id == kernel for x in ast.walk(f)):
                yield lambda follower, file=file, f=f: follower.entry(file, f)  # type: ignore[misc]  # the function of this turn


def decorated(f: ast.FunctionDef, words: frozenset[str]) -> bool:
    """Whether a function is under a decorator whose last word is one of these."""
    for d in f.decorator_list:
        target = d.func if isinstance(d, ast.Call) else d
        if (target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else "") in words:
            return True
    return False
