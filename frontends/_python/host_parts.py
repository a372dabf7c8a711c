"""Parts of Python host code by themselves: a file, where a module that it imports may lie, the defaults of a function."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.surface.launches.values import Value


@dataclass(frozen=True)
class HostFile:
    """A Python file: its functions and classes by name, and which of its functions are kernels (or factories of them)."""

    path: Path
    tree: ast.Module
    kernels: frozenset[str]

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef]:
        """Functions on the first level, and methods as `Class.method`."""
        out: dict[str, ast.FunctionDef] = {}
        for s in self._top(self.tree.body):
            if isinstance(s, ast.FunctionDef):
                out[s.name] = s
            elif isinstance(s, ast.ClassDef):
                out.update({f"{s.name}.{m.name}": m for m in s.body if isinstance(m, ast.FunctionDef)})
        return out

    def _top(self, body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        for s in body:
            if isinstance(s, (ast.If, ast.Try, ast.With)):
                yield from self._top(s.body)
            else:
                yield s


@dataclass(frozen=True)
class Called:
    """A function of the folder as a value; `self_` is what a method is called on."""

    file: HostFile
    node: ast.FunctionDef | ast.Lambda
    scope: Mapping[str, object] = field(default_factory=dict)
    bound: bool = False


@dataclass(frozen=True)
class Kernel:
    """A kernel as a value, with the grid once it is subscripted; a factory's with what it was called with."""

    name: str
    grid: object = None
    given: Mapping[str, object] | None = None
    warm: bool = False
    """Whether it is called to be compiled only."""
    warmed: object = None
    """The record of the call that compiled it."""


class Names(dict[str, Value]):
    """The names of a module. What it imports is looked up when a name is asked for: most of a large package nobody asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.later: dict[str, Callable[[], Value]] = {}

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.later

    def __missing__(self, name: str) -> Value:
        self[name] = found = self.later.pop(name)()
        return found

    def __setitem__(self, name: str, value: Value) -> None:
        self.later.pop(name, None)
        super().__setitem__(name, value)

    def get(self, name: str, default: Value = None) -> Value:
        return self[name] if name in self else default  # noqa: SIM401  # this is that method


def module_files(at: Path, module: str, level: int) -> Iterator[Path]:
    """Where a module that a file imports may lie: beside it or above it where the import says how far (`level` dots), else beside the outermost package
    that holds the file, then beside it. Among installed packages only the file's own is looked into: another's host code says nothing of a launch."""
    home = at.parent
    if level:
        homes = [home.parents[level - 2] if level > 1 else home] if level - 1 <= len(home.parents) else []
    else:
        outer = home
        while (outer / "__init__.py").is_file():
            outer = outer.parent
        installed = outer != home and outer.name in ("site-packages", "dist-packages") and module.partition(".")[0] != home.relative_to(outer).parts[0]
        homes = [home] if installed else list(dict.fromkeys((outer, home)))
    for each in homes:
        inside = each.joinpath(*filter(None, module.split(".")))
        yield from (inside.with_suffix(".py"), inside / "__init__.py") if module else (inside / "__init__.py",)


def defaults(f: ast.FunctionDef | ast.Lambda) -> dict[str, ast.expr]:
    """The defaults of a function's parameters, by name."""
    names = [*f.args.posonlyargs, *f.args.args]
    pairs = dict(zip([a.arg for a in names[len(names) - len(f.args.defaults):]], f.args.defaults))
    return pairs | {a.arg: d for a, d in zip(f.args.kwonlyargs, f.args.kw_defaults) if d is not None}


def parameters(f: ast.FunctionDef | ast.Lambda) -> list[ast.arg]:
    """The parameters of a function that are passed one by one."""
    return [*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs]


def optional(f: ast.FunctionDef | ast.Lambda) -> frozenset[str]:
    """The parameters that may be None: by default, or as their annotation says (`X | None`, `Optional[X]`)."""
    pairs = defaults(f)
    return frozenset(p.arg for p in parameters(f) if _is_none(pairs.get(p.arg)) or (p.arg not in pairs and p.annotation is not None and _none_in(p.annotation)))


def _none_in(annotation: ast.expr) -> bool:
    """Whether an annotation admits None."""
    match annotation:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _is_none(left) or _is_none(right) or _none_in(left)
        case ast.Subscript(value=ast.Name(id="Optional") | ast.Attribute(attr="Optional")):
            return True
        case _:
            return False


def _is_none(e: ast.expr | None) -> bool:
    return isinstance(e, ast.Constant) and e.value is None


def leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether statements end in a refusal."""
    return bool(body) and isinstance(body[-1], ast.Raise)


def is_main(test: ast.expr) -> bool:
    """Whether a condition holds for a file that is run as a program."""
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def launched_below(functions: Mapping[str, ast.FunctionDef], kernels: Collection[str], s: ast.stmt) -> bool:
    """Whether one of the kernels is launched after a statement, by the function that it stands in or by one that this calls."""
    around = max((f for f in functions.values() if f.lineno <= s.lineno <= (f.end_lineno or f.lineno)), key=lambda f: f.lineno, default=None)
    found, waiting = set[str](), [x for t in (around.body if around is not None else ()) for x in ast.walk(t) if getattr(x, "lineno", 0) > s.lineno]
    while waiting:
        x = waiting.pop()
        if isinstance(x, ast.Name) and x.id in kernels:
            return True
        if isinstance(x, ast.Name) and x.id in functions and x.id not in found:
            found.add(x.id)
            waiting += ast.walk(functions[x.id])
    return False


def asked_for(test: ast.expr, x: ast.expr) -> bool:
    """Whether a condition asks whether an expression is None."""
    return (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.IsNot) and isinstance(test.comparators[0], ast.Constant)
            and test.comparators[0].value is None and ast.dump(test.left) == ast.dump(x))


def entry_name(owner: str, key: str) -> str:
    """Under which name a scope has an entry of a dictionary."""
    return f"{owner}[{key!r}]"


def chooses(body: Sequence[ast.stmt], kernels: Collection[str]) -> bool:
    """Whether statements only give a name to a kernel, to be launched further on."""
    return bool(body) and all(isinstance(s, ast.Assign) for s in body) and any(
        isinstance(s, ast.Assign) and isinstance(s.value, ast.Name) and s.value.id in kernels for s in body)
