"""Identifiers of a Python file renamed, so that it stays the same kernel: all mentions of one name within one outermost function."""
from __future__ import annotations

import ast
import builtins
import io
import keyword
import tokenize
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

LAUNCH = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg", "grid", "warmup", "stream", "self", "debug", "sanitize_overflow"})
"""What a launch of Triton takes beside a kernel's own parameters: a parameter of that name is that option."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Name:
    """An identifier that may be renamed: `kind` is `parameter` (callers know it), `local` or `function`."""

    text: str
    kind: str
    function: str


@dataclass
class PythonSource:
    """A file, and the functions in it that a kernel is made of: the outermost one around the kernel, and helpers of the same file."""

    text: str
    kernel: str
    decorated: bool = True
    tree: ast.Module = field(init=False)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.text)

    # ------------------------------------------------------------------------------------------------------------------- what there is
    @cached_property
    def tops(self) -> dict[str, Function]:
        """Outermost functions by name, where only one has it."""
        out: dict[str, Function] = {}
        twice: set[str] = set()
        for f in _outermost(self.tree):
            twice |= {f.name} & out.keys()
            out[f.name] = f
        return {k: v for k, v in out.items() if k not in twice}

    @cached_property
    def home(self) -> Function | None:
        """The outermost function that is the kernel or has it in it."""
        for f in self.tops.values():
            if any(isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef)) and x.name == self.kernel for x in ast.walk(f)):
                return f
        return None

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word of the file: identifiers, and words in texts."""
        out: set[str] = set()
        for t in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if t.type == tokenize.NAME:
                out.add(t.string)
            elif t.type == tokenize.STRING:
                out |= set("".join(c if c.isalnum() or c == "_" else " " for c in t.string).split())
        return frozenset(out)

    @cached_property
    def globals(self) -> frozenset[str]:
        """Names bound outside functions."""
        out: set[str] = set()
        waiting: list[ast.AST] = [self.tree]
        while waiting:
            node = waiting.pop()
            for x in ast.iter_child_nodes(node):
                match x:
                    case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                        out.add(x.name)
                    case ast.Import() | ast.ImportFrom():
                        out |= {(a.asname or a.name).partition(".")[0] for a in x.names}
                    case ast.Name():
                        out.add(x.id)
                    case _:
                        waiting.append(x)
                        continue
                if isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    waiting += x.decorator_list
        return frozenset(out)

    def functions(self) -> list[Function]:
        """The kernel's outermost function, and those helpers of the file that it mentions, directly or not."""
        if self.home is None:
            return []
        out, waiting = [self.home], [self.home]
        while waiting:
            f = waiting.pop()
            for x in ast.walk(f):
                if isinstance(x, ast.Name) and x.id in self.tops and self.tops[x.id] not in out:
                    out.append(self.tops[x.id])
                    waiting.append(self.tops[x.id])
        return out

    def names(self) -> list[Name]:
        """What may be renamed."""
        out = []
        for f in self.functions():
            params = {a.arg for a in _arguments(f)}
            for x in sorted(_bound(f)):
                if self._free(f, x):
                    inner = next((g for g in ast.walk(f) if isinstance(g, (ast.FunctionDef, ast.AsyncFunctionDef)) and g.name == self.kernel), None)
                    caller = x in params or (inner is not None and x in {a.arg for a in _arguments(inner)})
                    out.append(Name(x, "parameter" if caller and f is self.home else "local", f.name))
            if f is not self.home and self._nameable(f.name):
                out.append(Name(f.name, "function", ""))
        return out

    def _free(self, f: Function, x: str) -> bool:
        """Whether all mentions of a name within a function are one function's own."""
        if x in self.globals or hasattr(builtins, x) or x == "_" or x == self.kernel or x in LAUNCH:
            return False
        for node in ast.walk(f):
            match node:
                case ast.Global() | ast.Nonlocal() if x in node.names:
                    return False
                case ast.Import() | ast.ImportFrom() if any((a.asname or a.name).partition(".")[0] == x for a in node.names):
                    return False
                case ast.ClassDef():
                    return False
                case ast.ExceptHandler() if node.name == x:
                    return False
                case ast.Call(keywords=given) if any(k.arg == x for k in given) and isinstance(node.func, ast.Name) and (
                        node.func.id in _bound(f) or node.func.id == f.name):
                    return False
                case ast.Constant(value=str() as said) if x in "".join(c if c.isalnum() or c == "_" else " " for c in said).split():
                    if not any(node in ast.walk(d) for d in f.decorator_list) or said != x:
                        return False
                case _:
                    pass
        # a caller in this file that names the parameter
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and any(k.arg == x for k in node.keywords) and (
                    (isinstance(node.func, ast.Name) and node.func.id == f.name) or (isinstance(node.func, ast.Attribute) and node.func.attr == f.name)):
                return False
        return not any(isinstance(k, ast.keyword) and k.arg == x for d in f.decorator_list for k in ast.walk(d))

    def _nameable(self, name: str) -> bool:
        f = self.tops[name]
        others = [x for x in ast.walk(self.tree) if isinstance(x, (ast.FunctionDef, ast.ClassDef)) and x.name == name and x is not f]
        stored = [x for x in ast.walk(self.tree) if isinstance(x, ast.Name) and x.id == name and not isinstance(x.ctx, ast.Load)]
        arguments = [x for x in ast.walk(self.tree) if isinstance(x, ast.arg) and x.arg == name]
        texts = [x for x in ast.walk(self.tree) if isinstance(x, ast.Constant) and isinstance(x.value, str) and name in x.value]
        return not others and not stored and not arguments and not texts

    # ------------------------------------------------------------------------------------------------------------------------- renaming
    def allows(self, name: Name, new: str, taken: frozenset[str] = frozenset()) -> bool:
        """Whether a name may be called so in this file and stay what it is."""
        if not new.isidentifier() or keyword.iskeyword(new) or new in self.words or new in taken or new.startswith("__"):
            return False
        if unicodedata.normalize("NFKC", new) != new or new == self.kernel or new in LAUNCH:
            return False
        return name.kind != "function" or not hasattr(builtins, new)

    def renamed(self, names: Mapping[Name, str]) -> str:
        """The file with names renamed."""
        lines = self.text.encode().split(b"\n")
        edits: list[tuple[int, int, int, str]] = []
        for name, new in names.items():
            scope: ast.AST = self.tree if name.kind == "function" else self.tops[name.function]
            edits += [(line, start, stop, new) for line, start, stop in self._places(scope, name.text, lines)]
        for line, start, stop, new in sorted(set(edits), reverse=True):
            lines[line - 1] = lines[line - 1][:start] + new.encode() + lines[line - 1][stop:]
        made = b"\n".join(lines).decode()
        ast.parse(made)
        return made

    def _places(self, scope: ast.AST, x: str, lines: list[bytes]) -> Iterator[tuple[int, int, int]]:
        width = len(x.encode())
        quoted = {id(y) for f in ([scope] if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) else []) for d in f.decorator_list for y in ast.walk(d)}
        for node in ast.walk(scope):
            match node:
                case ast.Name(id=found) if found == x:
                    yield node.lineno, node.col_offset, node.col_offset + width
                case ast.arg(arg=found) if found == x:
                    yield node.lineno, node.col_offset, node.col_offset + width
                case ast.FunctionDef(name=found) if found == x:
                    at = lines[node.lineno - 1].index(b"def ", node.col_offset) + 4
                    while lines[node.lineno - 1][at:at + 1] == b" ":
                        at += 1
                    yield node.lineno, at, at + width
                case ast.Constant(value=found) if found == x and id(node) in quoted:
                    yield node.lineno, node.col_offset + 1, node.col_offset + 1 + width
                case _:
                    pass


def _outermost(node: ast.AST) -> Iterator[Function]:
    for x in ast.iter_child_nodes(node):
        if isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield x
        elif not isinstance(x, ast.ClassDef):
            yield from _outermost(x)


def _arguments(f: Function) -> list[ast.arg]:
    a = f.args
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *([a.vararg] if a.vararg else []), *([a.kwarg] if a.kwarg else [])]


def _bound(f: Function) -> frozenset[str]:
    """Names bound anywhere in a function."""
    out: set[str] = set()
    for x in ast.walk(f):
        match x:
            case ast.arg():
                out.add(x.arg)
            case ast.Name(ctx=ast.Store()):
                out.add(x.id)
            case ast.FunctionDef() if x is not f:
                out.add(x.name)
            case _:
                pass
    return frozenset(out)
