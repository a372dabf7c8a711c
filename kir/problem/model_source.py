"""A file in the form of KernelBench as text: its parts, its sizes, places for diagnostics. Nothing of it is run here.

Such a file defines a class `Model` with `forward`, `get_inputs()` and `get_init_inputs()`. Its sizes are the whole numbers written at module
level that `get_inputs` needs and `get_init_inputs` does not: what only the inputs depend on may vary, what the model is made of may not. Where there are
none, they are those that `get_inputs` itself calls with (`torch.randn(4096, 2048)`), equal ones one size.
"""
from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TypeGuard

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Origin, error

RANDOM = ("dropout", "rand", "bernoulli", "multinomial", "normal", "poisson", "exponential")
"""Parts of the names of calls that draw numbers."""


LEAST = 8
"""What a number that `get_inputs` calls with is at least to be taken for a size."""


def _is_size(node: ast.expr, least: int) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value >= least


@dataclass(frozen=True)
class ModelSource:
    """The text of a file, and the path that it is named by in diagnostics."""

    path: str
    text: str

    @classmethod
    def read(cls, path: Path) -> ModelSource:
        """Reads and checks a file. Raises KirError KIR-G910, located, for one that is not of the form."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as bad:
            raise error("KIR-G910", f"{path}: {bad}", needs="a Python file in the form of KernelBench, or a folder with a problem.toml") from bad
        out = cls(str(path), text)
        out.checked()
        return out

    def checked(self) -> None:
        """Raises KirError KIR-G910 for a part that is lacking."""
        try:
            tree = self.tree
        except SyntaxError as bad:
            line = bad.lineno or 1
            raise error("KIR-G910", f"no Python: {bad.msg}", origin=self.line(line)) from None
        model = self._class()
        if model is None:
            raise error("KIR-G910", "it defines no class 'Model'", origin=self.line(1), needs="class Model(torch.nn.Module), with forward")
        if self._method("forward") is None:
            raise error("KIR-G910", "its class 'Model' has no method 'forward'", origin=self.place(model), needs="def forward(self, ..)")
        for name in ("get_inputs", "get_init_inputs"):
            if self._function(name) is None:
                raise error("KIR-G910", f"it defines no function '{name}'", origin=self.line((tree.body[-1].end_lineno if tree.body else None) or 1),
                            needs=f"def {name}(): a list of {'what forward takes' if name == 'get_inputs' else 'what Model takes'}")

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree. Raises SyntaxError."""
        return ast.parse(self.text)

    # --------------------------------------------------------------------------------------------------------------------- places
    def place(self, node: ast.AST) -> Origin:
        """The span of a node; of a definition, its first line."""
        line = getattr(node, "lineno", 1)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            return self.line(line)
        return Origin(self.path, line, getattr(node, "col_offset", 0) + 1, getattr(node, "end_lineno", line), getattr(node, "end_col_offset", 0) + 1)

    def line(self, number: int) -> Origin:
        """A line without its indentation."""
        rows = self.text.splitlines()
        row = rows[number - 1] if 0 < number <= len(rows) else ""
        return Origin(self.path, number, len(row) - len(row.lstrip()) + 1, number, len(row) + 1)

    @property
    def forward(self) -> Origin:
        """Where `forward` is defined."""
        return self.place(self._method("forward") or self.tree)

    @property
    def result(self) -> Origin:
        """What `forward` returns, last."""
        method = self._method("forward") or self.tree
        found = [x for x in ast.walk(method) if isinstance(x, ast.Return) and x.value is not None]
        return self.place(found[-1].value) if found and found[-1].value is not None else self.forward

    @property
    def random(self) -> Origin:
        """The first call that looks as if it drew numbers, in `forward` or where the model is made; else where `forward` is defined."""
        for scope in (self._method("forward"), self._class()):
            for x in ast.walk(scope) if scope is not None else ():
                if isinstance(x, ast.Call) and any(word in ast.unparse(x.func).lower() for word in RANDOM):
                    return self.place(x)
        return self.forward

    def returned(self, function: str, index: int) -> Origin:
        """One element of the list that a function returns, or the whole of it."""
        node = self._function(function) or self.tree
        for x in reversed([x for x in ast.walk(node) if isinstance(x, ast.Return)]):
            if isinstance(x.value, (ast.List, ast.Tuple)) and index < len(x.value.elts):
                return self.place(x.value.elts[index])
            return self.place(x)
        return self.place(node)

    # ---------------------------------------------------------------------------------------------------------------------- sizes
    @cached_property
    def sizes(self) -> dict[str, int]:
        """Whole numbers of the module that `get_inputs` needs and `get_init_inputs` does not, by name; else those that it calls with (N0, N1, ..)."""
        return {name: value for name, found in self._written.items() if isinstance(value := found[0].value, int)}

    @cached_property
    def _written(self) -> dict[str, list[ast.Constant]]:
        """Where each size is written."""
        free = self._needed("get_inputs") - self._needed("get_init_inputs")
        named = {name: [node] for name, node in self._assigned.items() if name in free and _is_size(node, 1)}
        calls = [x for x in ast.walk(self._function("get_inputs") or ast.Module([], [])) if isinstance(x, ast.Call)]
        literals = [x for call in calls for a in call.args for x in (a.elts if isinstance(a, (ast.Tuple, ast.List)) else [a]) if _is_size(x, LEAST)]
        by_value: dict[object, list[ast.Constant]] = {}
        for x in sorted(literals, key=lambda x: (x.lineno, x.col_offset)):
            by_value.setdefault(x.value, []).append(x)
        return named or {f"N{k}": found for k, found in enumerate(by_value.values())}

    def at(self, sizes: Mapping[str, int]) -> str:
        """The text with other values for some of its sizes; what is computed from them follows."""
        lines = self.text.split("\n")
        every = [(node, sizes[name]) for name in sizes for node in self._written[name]]
        for node, value in sorted(every, key=lambda x: -x[0].col_offset):  # several may stand in one line
            row = lines[node.lineno - 1].encode()
            lines[node.lineno - 1] = (row[: node.col_offset] + str(value).encode() + row[node.end_col_offset:]).decode()
        return "\n".join(lines)

    @cached_property
    def _assigned(self) -> dict[str, ast.expr]:
        """What the module assigns to each plain name that it assigns once, one by one or several in a row (`M, N = 64, 32`)."""
        out: dict[str, ast.expr] = {}
        twice: set[str] = set()
        for s in self.tree.body:
            targets = s.targets if isinstance(s, ast.Assign) else [s.target] if isinstance(s, ast.AnnAssign) and s.value is not None else []
            for t in targets:
                value = s.value if isinstance(s, (ast.Assign, ast.AnnAssign)) else None
                pairs: list[tuple[ast.expr, ast.expr | None]] = [(t, value)]
                if isinstance(t, ast.Tuple) and isinstance(value, ast.Tuple) and len(t.elts) == len(value.elts):
                    pairs = list(zip(t.elts, value.elts, strict=True))
                for name, each in pairs:
                    if isinstance(name, ast.Name):
                        twice |= {name.id} & set(out)
                        if each is not None and len(targets) == 1:
                            out[name.id] = each
        return {k: v for k, v in out.items() if k not in twice}

    def _needed(self, function: str) -> set[str]:
        """Names that a function reads, and those that the module computes them from."""
        node = self._function(function)
        waiting = {x.id for x in ast.walk(node) if isinstance(x, ast.Name)} if node is not None else set()
        known: set[str] = set()
        while waiting:
            name = waiting.pop()
            known.add(name)
            if name in self._assigned:
                waiting |= {x.id for x in ast.walk(self._assigned[name]) if isinstance(x, ast.Name)} - known
        return known

    # ---------------------------------------------------------------------------------------------------------------------- parts
    def _class(self) -> ast.ClassDef | None:
        return next((s for s in self.tree.body if isinstance(s, ast.ClassDef) and s.name == "Model"), None)

    def _function(self, name: str) -> ast.FunctionDef | None:
        return next((s for s in self.tree.body if isinstance(s, ast.FunctionDef) and s.name == name), None)

    def _method(self, name: str) -> ast.FunctionDef | None:
        model = self._class()
        return next((s for s in model.body if isinstance(s, ast.FunctionDef) and s.name == name), None) if model else None
