"""What stands on a Triton kernel and decides how it is launched: tuners, which must do nothing but choose, and heuristics, which must give what was read."""
from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping

from kir.analysis.heuristics import settled
from kir.ir.binding import Binding
from kir.learning.optimize.hosts.read_back import NotSaid

TOUCHING = frozenset({"pre_hook", "post_hook", "reset_to_zero", "restore_value"})
"""What a tuner does to the arguments beside choosing."""
KNOWN = frozenset({"triton", "torch", "math", "itertools", "os"})
"""Packages whose functions do nothing like that."""


def worked_out(tree: ast.Module, made: ast.FunctionDef, binding: Binding, said: Mapping[str, str], own: set[str]) -> list[str]:
    """What must hold of what decorators work out for a kernel. A tuner's choice decides nothing, as it is made by time alone; what a heuristic works out of the
    arguments has the value that the kernel was read with. Raises NotSaid for other decorators, and for a tuner that does more than choose."""
    out, values = list[str](), settled(binding).metas
    for d in made.decorator_list:
        name = ast.unparse(d.func if isinstance(d, ast.Call) else d).rpartition(".")[2]
        if name == "autotune" and isinstance(d, ast.Call):
            _only_chooses(tree, d)
        elif name == "heuristics" and isinstance(d, ast.Call):
            table = next((x for x in (*d.args, *(k.value for k in d.keywords)) if isinstance(x, ast.Dict)), None)
            if table is None:
                raise NotSaid("its heuristics are no table")
            for key, f in zip(table.keys, table.values, strict=True):
                what = str(key.value) if isinstance(key, ast.Constant) else ""
                if what in {a.arg for a in made.args.args} and what in values:
                    out.append(_worked_out(what, f, values[what], said, own))
        elif name != "jit":
            raise NotSaid(f"'@{name}' stands on the kernel")
    return out


def _worked_out(what: str, f: ast.expr, value: object, said: Mapping[str, str], own: set[str]) -> str:
    """That a heuristic of the arguments gives a value."""
    if not isinstance(f, ast.Lambda) or len(f.args.args) != 1:
        raise NotSaid(f"'{what}' is worked out by no lambda")
    args = f.args.args[0].arg

    class Given(ast.NodeTransformer):
        def visit_Subscript(self, x: ast.Subscript) -> ast.AST:
            if isinstance(x.value, ast.Name) and x.value.id == args:
                name = str(x.slice.value) if isinstance(x.slice, ast.Constant) else ""
                if name not in said:
                    raise NotSaid(f"'{what}' is worked out of '{name}', which its launch does not say")
                return ast.parse(f"({said[name]})", mode="eval").body
            return self.generic_visit(x)

        def visit_Name(self, x: ast.Name) -> ast.AST:
            if x.id == args or x.id in own:
                raise NotSaid(f"'{what}' is worked out of '{x.id}'")
            return x
    made = ast.unparse(Given().visit(ast.parse(ast.unparse(f.body), mode="eval").body))
    if isinstance(value, bool):
        return f"{'' if value else 'not '}({made})"
    if not isinstance(value, int | str):
        raise NotSaid(f"'{what}' is nothing that Python compares")
    return f"({made}) == {value!r}"


def _only_chooses(tree: ast.Module, tuner: ast.Call) -> None:
    """Raises NotSaid for a tuner that changes arguments before or after a launch, and for one of which this file does not show that it does not."""
    tops: dict[str, list[ast.stmt]] = {}
    for s in tree.body:
        stored = [x.id for x in ast.walk(s) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]
        for name in [s.name] if isinstance(s, ast.FunctionDef | ast.ClassDef) else stored:
            tops.setdefault(name, []).append(s)
    imported = {(a.asname or a.name).partition(".")[0]: (getattr(s, "module", None) or a.name).partition(".")[0]
                for s in ast.walk(tree) if isinstance(s, ast.Import | ast.ImportFrom) for a in s.names}
    left: list[ast.AST] = [*tuner.args, *(k.value for k in tuner.keywords if k.arg in ("configs", None))]
    seen = set[str]()
    if len(tuner.args) > 3 or any(k.arg is None for k in tuner.keywords):
        raise NotSaid("what its tuner does is not said by names")
    if changed := next((k.arg for k in tuner.keywords if k.arg in TOUCHING), None):
        raise NotSaid(f"its tuner has a {changed}")
    while left:
        at = left.pop()
        bound = {x.id for x in ast.walk(at) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
        bound |= {x.arg for x in ast.walk(at) if isinstance(x, ast.arg)}
        for x in ast.walk(at):
            if isinstance(x, ast.Call) and len(x.args) > 3 + 2 * (ast.unparse(x.func).rpartition(".")[2] == "Config"):
                raise NotSaid("what its tuner does is not said by names")
            word = x.arg if isinstance(x, ast.keyword) else x.attr if isinstance(x, ast.Attribute) else ""
            if word in TOUCHING:
                raise NotSaid(f"its tuner has a {word}")
            if isinstance(x, ast.keyword) and x.arg is None:
                raise NotSaid("what its tuner does is not said by names")
            if isinstance(x, ast.Name) and x.id not in bound and x.id not in seen:
                seen.add(x.id)
                if x.id in tops:
                    left += tops[x.id]
                elif imported.get(x.id, "") not in KNOWN and not hasattr(builtins, x.id):
                    raise NotSaid(f"what its tuner does is made by '{x.id}'")


__all__ = ["worked_out"]
