"""The grid of a launch in Python host code: its extents as the code says them, and whether they are the same whatever way the code takes."""
from __future__ import annotations

import ast
import builtins

from kir.ir.binding import Binding
from kir.learning.optimize.hosts.read_back import NotSaid

MAKES = frozenset({"empty", "empty_like", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "new_empty", "new_zeros", "new_ones", "new_full"})
"""Functions of torch that give a tensor of its own memory."""
PURE = frozenset({
    *("stride", "size", "numel", "nelement", "dim", "data_ptr", "element_size", "is_contiguous", "cdiv", "next_power_of_2", "len", "min", "max", "int"),
    *("float", "bool", "abs", "round", "isinstance", "getattr", "sqrt", "log2", "ceil", "floor", "prod", "str", "tuple", "item", "type"),
    *("view", "reshape", "t", "transpose", "permute", "unsqueeze", "squeeze", "flatten", "detach", "contiguous"), *MAKES})
"""Functions that host code may call once more: they change nothing."""

def grid_of(tree: ast.Module, call: ast.AST, said: ast.expr, binding: Binding) -> tuple[list[str], bool]:
    """The extents of a launch's grid as host code says them, those that a tuner decides with the values of the binding; and whether they are said in one
    way, whatever way the host code takes. Raises NotSaid for a grid that is not said as a tuple."""
    around, metas = around_of(tree, call), dict[str, ast.expr]()
    if isinstance(said, ast.Name):
        stores = _stores(around, said.id) or _stores(tree, said.id)
        given = [s.value for s in stores if isinstance(s, ast.Assign) and [ast.unparse(x) for x in s.targets] == [said.id]]
        if len(stores) != len(given) or not given:
            made = stores[0] if len(stores) == 1 else None
            if not isinstance(made, ast.FunctionDef) or not isinstance(made.body[-1], ast.Return) or made.body[-1].value is None or len(made.body) != 1:
                raise NotSaid(f"its grid '{said.id}' is not said as a tuple")
            return grid_of(tree, call, ast.Lambda(made.args, made.body[-1].value), binding)
        if len(given) == 1:
            return grid_of(tree, call, given[0], binding)
        lengths = {len(x.elts) if isinstance(x, ast.Tuple) else 0 for x in given}
        if len(lengths) != 1 or lengths == {0}:
            raise NotSaid(f"its grid '{said.id}' is not said as a tuple")
        return [f"{said.id}[{k}]" for k in range(*lengths)], False
    if isinstance(said, ast.Lambda) and len(said.args.args) == 1:
        metas, chosen = {k: ast.Constant(v) for k, v in {**binding.options, **binding.metas}.items()}, said.args.args[0].arg

        class Chosen(ast.NodeTransformer):
            def visit_Subscript(self, x: ast.Subscript) -> ast.AST:
                if isinstance(x.value, ast.Name) and x.value.id == chosen and isinstance(x.slice, ast.Constant) and x.slice.value in metas:
                    return metas[x.slice.value]
                return self.generic_visit(x)

            def visit_Name(self, x: ast.Name) -> ast.AST:
                if x.id == chosen:
                    raise NotSaid("what its grid says of a tuner's choice is not known")
                return x
        said = Chosen().visit(ast.parse(ast.unparse(said.body), mode="eval").body)
    if not isinstance(said, ast.Tuple | ast.List) or any(isinstance(x, ast.Starred) for x in said.elts):
        raise NotSaid("its grid is not said as a tuple")
    return [said_as(x) for x in said.elts], all(_in_one_way(tree, around, x, set()) for x in said.elts)


def _stores(where: ast.AST, name: str) -> list[ast.stmt]:
    """The statements that give a name a meaning; each as often as it does."""
    out = list[ast.stmt]()
    for s in (s for s in ast.walk(where) if isinstance(s, ast.stmt) and s is not where):
        if isinstance(s, ast.FunctionDef | ast.ClassDef):
            out += [s] * (s.name == name)
            continue
        inner = {id(x) for child in ast.walk(s) if isinstance(child, ast.stmt) and child is not s for x in ast.walk(child)}
        out += [s for x in ast.walk(s) if isinstance(x, ast.Name) and x.id == name and isinstance(x.ctx, ast.Store | ast.Del) and id(x) not in inner]
        out += [s for x in (s.names if isinstance(s, ast.Import | ast.ImportFrom) else ()) if (x.asname or x.name) == name]
    return out


def _in_one_way(tree: ast.Module, around: ast.FunctionDef | ast.Module, e: ast.expr, seen: set[str]) -> bool:
    """Whether an expression means one thing in a function: each name in it is a parameter that is given nothing else, or is given one value once. What a
    condition decides, or a function of the user's own, does not."""
    if any(isinstance(x, ast.IfExp | ast.BoolOp | ast.NamedExpr) for x in ast.walk(e)):
        return False
    if any(isinstance(x, ast.Call) and ast.unparse(x.func).rpartition(".")[2] not in PURE for x in ast.walk(e)):
        return False
    args = {a.arg for a in (*around.args.args, *around.args.kwonlyargs)} if isinstance(around, ast.FunctionDef) else set()
    for name in {x.id for x in ast.walk(e) if isinstance(x, ast.Name)} - seen:
        stores = _stores(around, name)
        if name in args:
            if stores:
                return False
            continue
        stores = stores or _stores(tree, name)
        if not stores and hasattr(builtins, name):
            continue
        if len(stores) != 1 or not isinstance(s := stores[0], ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom):
            return False
        if isinstance(s, ast.Assign | ast.AnnAssign) and (s.value is None or not _in_one_way(tree, around, s.value, {*seen, name})):
            return False
    return True


def said_as(x: ast.expr) -> str:
    """An expression as it is said, in parentheses where it has an operator."""
    said = ast.unparse(x)
    return said if isinstance(x, ast.Name | ast.Attribute | ast.Constant | ast.Call | ast.Subscript) else f"({said})"


def around_of(tree: ast.Module, call: ast.AST) -> ast.FunctionDef | ast.Module:
    """The innermost function that a node stands in."""
    found = [f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and any(s is call for s in ast.walk(f))]
    return max(found, key=lambda f: f.lineno) if found else tree


__all__ = ["MAKES", "PURE", "around_of", "grid_of", "said_as"]
