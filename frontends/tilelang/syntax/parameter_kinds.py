"""What kind of value a factory's parameter is, from how its text uses it: a number, a dtype, a condition, a text."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from ..._python.signature import nodes_below

_INTEGERS = """
    range serial Serial unroll Unroll vectorized Vectorized Parallel grid Pipelined Persistent Kernel ceildiv cdiv ceil_div align gcd dynamic reshape view
    use_swizzle alloc_barrier next_power_of_2
"""
INTEGER_WORDS = frozenset(_INTEGERS.split())
"""Functions whose arguments are integers."""
SHAPED = frozenset(["alloc_shared", "alloc_fragment", "alloc_local", "alloc_buffer", "alloc_reducer", "Tensor", "StridedTensor"])
DTYPE_FIRST = frozenset(["Cast", "infinity", "max_value", "min_value", "dtype", "alloc_var"])
DTYPE_SECOND = frozenset(["cast", "reinterpret"])
FLAGS = frozenset({"reverse", "clear", "clear_accum", "transpose_A", "transpose_B", "return_prev", "disable_tma"})
DTYPE_NAME = re.compile(r"(^|_)dtypes?$")


def kinds(node: cst.FunctionDef) -> dict[str, str]:
    """The kind of each name that the text of a function tells: `int`, `dtype`, `bool`; others are not in it."""
    found = _Evidence(node)
    out: dict[str, str] = {}
    for name in found.dtypes | {x for x in found.parameters - found.integers if DTYPE_NAME.search(x)}:
        out[name] = "dtype"
    for name in found.keys:
        out[name] = "str"
    for name in found.integers:
        out.setdefault(name, "int")
    for name in found.booleans - found.integers:
        out.setdefault(name, "bool")
    return out


def perhaps_none(node: cst.FunctionDef) -> frozenset[str]:
    """The names that a function asks whether they are None, or true at all, or takes another value for where they are not."""
    out: set[str] = set()
    for x in nodes_below(node.body):
        match x:
            case cst.Comparison(left=cst.Name(value=name), comparisons=[cst.ComparisonTarget(operator=cst.Is() | cst.IsNot() | cst.Equal() | cst.NotEqual(),
                                                                                          comparator=cst.Name(value="None"))]):
                out.add(name)
            case cst.If(test=test) | cst.IfExp(test=test):
                out |= set(_conditions(test))
            case cst.UnaryOperation(operator=cst.Not(), expression=inner):
                out |= set(_conditions(inner))
            case cst.BooleanOperation():
                out |= set(_conditions(x))
            case _:
                pass
    return frozenset(out)


class _Evidence:
    def __init__(self, node: cst.FunctionDef) -> None:
        self.integers: set[str] = set()
        self.dtypes: set[str] = set()
        self.booleans: set[str] = set()
        self.keys: set[str] = set()
        self.parameters = {p.name.value for p in (*node.params.params, *node.params.kwonly_params)}
        self.assigned: dict[str, set[str]] = {}
        self.tables: set[str] = set()
        for x in nodes_below(node.body):
            self.see(x)
        self.close()

    def see(self, x: cst.CSTNode) -> None:
        match x:
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value):
                self.assigned.setdefault(name, set()).update(_arithmetic(value))
                if isinstance(value, cst.Dict):
                    self.tables.add(name)
            case cst.Assign(targets=targets, value=value) if len(targets) > 1:
                for each in targets:
                    if isinstance(each.target, cst.Name):
                        self.assigned.setdefault(each.target.value, set()).update(_arithmetic(value))
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Tuple(elements=targets))], value=cst.Tuple(elements=values)) if len(
                    targets) == len(values):
                for t, v in zip(targets, values, strict=True):
                    if isinstance(t.value, cst.Name):
                        self.assigned.setdefault(t.value.value, set()).update(_arithmetic(v.value))
            case cst.Call(func=func, args=args):
                self.called(_last(func), args)
            case cst.Subscript(value=cst.Name(value=owner)) if owner in self.tables:
                self.keys |= {y for s in x.slice if isinstance(s.slice, cst.Index) for y in _names(s.slice.value)} & self.parameters
            case cst.Subscript(value=owner, slice=slices):
                if _last(owner) in SHAPED:
                    within = [s.slice.value for s in slices if isinstance(s.slice, cst.Index)]
                    only = within[0] if len(within) == 1 else None
                    self.tensor([y.value for y in only.elements] if isinstance(only, cst.Tuple) else within)
                else:
                    for s in slices:
                        self.integers |= set(_arithmetic(s.slice))
            case cst.BinaryOperation(operator=cst.FloorDivide() | cst.Modulo()):
                self.integers |= set(_arithmetic(x.left)) | set(_arithmetic(x.right))
            case cst.If(test=test) | cst.IfExp(test=test):
                self.booleans |= set(_conditions(test))
            case cst.UnaryOperation(operator=cst.Not(), expression=inner):
                self.booleans |= set(_conditions(inner))
            case cst.BooleanOperation():
                self.booleans |= set(_conditions(x))
            case _:
                pass

    def called(self, word: str, args: object) -> None:
        positional = [a for a in args if a.keyword is None]  # type: ignore[attr-defined]  # arguments
        for a in args:  # type: ignore[attr-defined]  # arguments
            if a.keyword is not None and a.keyword.value == "dtype":
                self.dtypes |= set(_names(a.value))
            if a.keyword is not None and a.keyword.value in ("threads", "num_stages", "arrive_count"):
                self.integers |= set(_arithmetic(a.value))
            if a.keyword is not None and a.keyword.value in FLAGS:
                self.booleans |= set(_conditions(a.value))
        if word in INTEGER_WORDS:
            for a in positional:
                self.integers |= set(_arithmetic(a.value))
        elif word in SHAPED:
            self.tensor([a.value for a in positional])
        elif word in DTYPE_FIRST and positional:
            self.dtypes |= set(_names(positional[0].value))
        elif word in DTYPE_SECOND and len(positional) > 1:
            self.dtypes |= set(_names(positional[1].value))

    def tensor(self, args: list[cst.BaseExpression]) -> None:
        if args:
            self.integers |= set(_arithmetic(args[0]))
        if len(args) > 1:
            self.dtypes |= set(_names(args[-1]))
        if len(args) > 2:
            self.integers |= set(_arithmetic(args[1]))

    def close(self) -> None:
        """What is assigned from something is evidence for what it is assigned from."""
        for _ in range(len(self.assigned) + 1):
            before = len(self.integers) + len(self.dtypes)
            for name, sources in self.assigned.items():
                if name in self.integers:
                    self.integers |= sources
                if name in self.dtypes and len(sources) == 1:
                    self.dtypes |= sources
            if before == len(self.integers) + len(self.dtypes):
                return


def _last(e: cst.BaseExpression) -> str:
    if isinstance(e, cst.Attribute):
        return e.attr.value
    return e.value if isinstance(e, cst.Name) else ""


def _names(e: cst.CSTNode) -> Iterator[str]:
    if isinstance(e, cst.Name):
        yield e.value


def _arithmetic(e: cst.CSTNode) -> Iterator[str]:
    """Names whose value goes into a number: not those of conditions, attributes' owners, or functions."""
    match e:
        case cst.Name():
            yield e.value
        case cst.IfExp():
            yield from _arithmetic(e.body)
            yield from _arithmetic(e.orelse)
        case cst.BinaryOperation():
            yield from _arithmetic(e.left)
            yield from _arithmetic(e.right)
        case cst.UnaryOperation(operator=cst.Minus()):
            yield from _arithmetic(e.expression)
        case cst.Call():
            for a in e.args:
                yield from _arithmetic(a.value)
        case cst.Tuple() | cst.List():
            for x in e.elements:
                yield from _arithmetic(x.value)
        case cst.Index():
            yield from _arithmetic(e.value)
        case cst.Slice():
            for part in (e.lower, e.upper):
                if part is not None:
                    yield from _arithmetic(part)
        case _:
            return


def _conditions(e: cst.CSTNode) -> Iterator[str]:
    match e:
        case cst.Name():
            yield e.value
        case cst.BooleanOperation():
            yield from _conditions(e.left)
            yield from _conditions(e.right)
        case cst.UnaryOperation(operator=cst.Not()):
            yield from _conditions(e.expression)
        case _:
            return
