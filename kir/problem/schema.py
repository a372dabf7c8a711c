"""The form of `problem.toml`, and the expressions over sizes that stand in it."""
from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Number = int | float | bool

_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}
_FUNCTIONS: Mapping[str, Callable[..., int]] = {"min": min, "max": max, "ceildiv": lambda a, b: -(-a // b)}
_CALLED: dict[str, Any] = {"__builtins__": {}, **{f"__{name}": f for name, f in _FUNCTIONS.items()}}
HELD = ("bool", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2", "e8m0", *(f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64)))
"""Names of the dtypes that a problem's tensors may have: those that NumPy can hold (`draws.numpy_dtype`)."""


def evaluate(text: str, sizes: Mapping[str, Number]) -> int:
    """The integer (or truth) value of an expression over sizes: `+ - * // %`, comparisons, `min`, `max`, `ceildiv`.

    Raises ValueError, which names the part that is not understood."""
    if text in sizes:
        return int(sizes[text])
    if (code := _code(text)) is not None:
        try:
            return int(eval(code, _CALLED, sizes))  # nothing but what `_plain` lets through
        except (NameError, ZeroDivisionError, TypeError):  # said below, by its part
            pass
    try:
        return int(_value(_parsed(text), sizes))
    except (SyntaxError, ZeroDivisionError, TypeError, RecursionError) as wrong:
        raise ValueError(f"'{text}' has no value: {wrong.msg if isinstance(wrong, SyntaxError) else wrong}") from None


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@cache
def _code(text: str) -> CodeType | None:
    """An expression compiled, its functions under names that no size has; None for what is no expression over sizes."""
    try:
        return compile(ast.fix_missing_locations(ast.Expression(_plain(_parsed(text)))), text, "eval")
    except (SyntaxError, ValueError, RecursionError):
        return None


def _plain(e: ast.expr) -> ast.expr:
    """An expression of what `_value` knows, with its functions under names that no size has. Raises ValueError for any other."""
    match e:
        case ast.Constant(value=int()):
            return e
        case ast.Name(id=name) if not name.startswith("__"):
            return e
        case ast.UnaryOp(op=ast.USub(), operand=x):
            return ast.UnaryOp(ast.USub(), _plain(x))
        case ast.BinOp(left=a, op=op, right=b) if type(op) in _OPERATORS:
            return ast.BinOp(_plain(a), op, _plain(b))
        case ast.Compare(left=a, ops=[op], comparators=[b]) if type(op) in _OPERATORS:
            return ast.Compare(_plain(a), [op], [_plain(b)])
        case ast.Call(func=ast.Name(id=fn), args=args, keywords=[]) if fn in _FUNCTIONS:
            return ast.Call(ast.Name(f"__{fn}", ast.Load()), [_plain(a) for a in args], [])
        case _:
            raise ValueError("no expression over sizes")


@cache
def names_in(text: str) -> frozenset[str]:
    """The sizes that an expression mentions."""
    return frozenset(n.id for n in ast.walk(_parsed(text)) if isinstance(n, ast.Name)) - set(_FUNCTIONS)


def _value(e: ast.expr, sizes: Mapping[str, Number]) -> Number:
    match e:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name) if name in sizes:
            return sizes[name]
        case ast.UnaryOp(op=ast.USub(), operand=x):
            return -_value(x, sizes)
        case ast.BinOp(left=a, op=op, right=b) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(a, sizes), _value(b, sizes))  # type: ignore[no-any-return]  # operators are untyped
        case ast.Compare(left=a, ops=[op], comparators=[b]) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(a, sizes), _value(b, sizes))  # type: ignore[no-any-return]  # operators are untyped
        case ast.Call(func=ast.Name(id=fn), args=args) if fn in _FUNCTIONS:
            return _FUNCTIONS[fn](*(_value(a, sizes) for a in args))
        case _:
            raise ValueError(f"'{ast.unparse(e)}' is no expression over {', '.join(sizes) or 'no sizes'}")


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tensor(_Form):
    """A tensor of the problem. `dtype` is a dtype of the IR, or `T`, the problem's variable; `shape` are expressions over the sizes.
    An output that is `optional` is checked where a kernel writes it."""

    name: str
    role: Literal["in", "out", "inout"]
    dtype: str
    shape: tuple[str, ...]
    optional: bool = False


class Shape(_Form):
    """One set of sizes. Tags: `one` (degenerate: a forgery may be right), `small`, `tail` (not divided by tiles), `odd`, `timed`; `asked`
    beside `timed`: only when it is asked for by name."""

    name: str
    tags: tuple[Literal["one", "small", "tail", "odd", "timed", "asked"], ...]
    sizes: dict[str, int]


class Draw(_Form):
    """How the elements of an input are drawn (shapes and dtypes are the tensor's): `normal` (mean, scale), `uniform` (low, high),
    `log_uniform` (random sign, magnitude 2^low .. 2^high), `alternating` (+x, -x along the last axis but one and the last, with a
    small disturbance: sums cancel), `sparse` (one in `every` is normal * scale, the rest 0), `unit` (normal rows of length 1 along the
    last axis), `integers` (low .. high - 1; few values make ties), `constant` (low), `special` (normal, but one in `every` is one of `values`: `inf`,
    `-inf`, `nan`, `-0.0`, whose sign counts then), `partition` (where the pieces begin that a number of things is cut into, and where the last ends: from
    0 up to `of`, an expression over the sizes; one piece in `every` is empty, and the more `scale` is above 1, the more the first ones have)."""

    kind: Literal["normal", "uniform", "log_uniform", "alternating", "sparse", "unit", "integers", "constant", "special", "partition"]
    mean: float = 0.0
    scale: float = 1.0
    low: float = 0.0
    high: float = 1.0
    every: int = 8
    values: tuple[Literal["inf", "-inf", "nan", "-0.0"], ...] = ()
    of: str = ""

    @model_validator(mode="after")
    def _cut(self) -> Draw:
        if (self.kind == "partition") != bool(self.of):
            raise ValueError("a partition says 'of' how many things it is, and no other draw does")
        return self

    def at(self, sizes: Mapping[str, Number]) -> Draw:
        """The same draw at some sizes: with the number that is cut as `high`."""
        return self.model_copy(update={"high": float(evaluate(self.of, sizes))}) if self.of else self


class Term(_Form):
    """One summand of the error bound of an output: c * unit_roundoff(eps) * over * f(n). `eps` is a dtype, `T` or `out` (the output's);
    `over` is `result` (|oracle|) or a magnitude that the reference computes; n is an expression over the sizes. With `subnormal` the
    rounding is one near zero: half the distance between subnormals stands in the place of the unit roundoff. An error of a `device` is one
    that its units make and the interpreter does not: only what a device has computed may have it."""

    outputs: tuple[str, ...] = ()
    eps: str
    over: str = "result"
    c: float
    f: Literal["constant", "log2", "sqrt", "linear"] = "constant"
    n: str = "1"
    subnormal: bool = False
    device: bool = False
    why: str

    def factor(self, sizes: Mapping[str, Number]) -> float:
        """c * f(n) for these sizes."""
        n = max(evaluate(self.n, sizes), 1)
        return self.c * {"constant": 1.0, "log2": math.log2(n) + 1, "sqrt": math.sqrt(n), "linear": float(n)}[self.f]


class Elementwise(_Form):
    """Every element within its bound."""

    kind: Literal["elementwise"] = "elementwise"


class SetWithTies(_Form):
    """Along the last axis, `values` is the oracle's multiset in any order, and `indices` are distinct places of `source` that hold
    these values: which of several equal elements is taken is free."""

    kind: Literal["set_with_ties"]
    values: str
    indices: str
    source: str


class WorkItem(_Form):
    """What one thread of a naive program computes: one `element`, `row`, or `head_column`, for each point of `axes`."""

    kind: Literal["element", "row", "head_column"]
    axes: tuple[str, ...]


class State(_Form):
    """A private array that one work item may hold."""

    name: str
    dtype: str
    shape: tuple[str, ...]


Float = Literal["f8e5m2", "f8e4m3", "bf16", "f16", "tf32", "f32", "f64"]


class Products(_Form):
    """Elements of the two tensors `of`, or what is made of each, are multiplied as `dtype`: an operand that is wider has been rounded to it, one that is
    narrower is no such product."""

    of: tuple[str, str]
    dtype: Float


class Step(_Form):
    """A step on the way to the outputs (from the tensor `of`, where that is given): `compensation` (rounding errors of a sum are worked out and
    used), `round` (a cast that narrows `to` a dtype), `call` (`any_of` these instructions), `order` (no sum whose order depends on which CTA or
    thread comes first)."""

    kind: Literal["compensation", "round", "call", "order"]
    of: str = ""
    to: Float | Literal[""] = ""
    any_of: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> Step:
        if self.kind == "round" and self.to in ("", "tf32"):
            raise ValueError("a step of the kind 'round' says 'to' which dtype")
        if self.kind == "call" and not self.any_of:
            raise ValueError("a step of the kind 'call' names instructions in 'any_of'")
        return self


class Claims(_Form):
    """How a kernel of this problem computes, beyond what it computes: judged from the IR, as no tested value would show it. `accumulator` is the
    least precise dtype in which a running sum may be kept."""

    products: tuple[Products, ...] = ()
    accumulator: Float | Literal[""] = ""
    steps: tuple[Step, ...] = ()


class ProblemFile(_Form):
    """All of `problem.toml`. `dtypes` are what `T` may be, the first by default. `references` name the panel that is timed beside a
    kernel. `norm` is the part of the bound's Euclidean norm that the error's may reach on many elements. `flops` and `bytes` are
    expressions over the sizes: operations and bytes of memory that no kernel can do without; a measured time below what the device needs
    for them is refused (without `bytes`: the dense inputs, unless the operator reads only a part of them). `numbers` says of inputs what
    the problem is defined for: elements that are `finite`, or at least `not nan`; what it is asked of others is refused."""

    name: str
    title: str
    operator: str
    dtypes: tuple[str, ...] = ()
    constants: dict[str, Number] = {}
    scalars: dict[str, float] = {}
    facts: tuple[str, ...] = ()
    tensors: tuple[Tensor, ...]
    shapes: tuple[Shape, ...]
    distributions: dict[str, dict[str, Draw]]
    errors: tuple[Term, ...] = ()
    claims: Claims = Claims()
    relation: Annotated[Elementwise | SetWithTies, Field(discriminator="kind")] = Elementwise()
    numbers: dict[str, Literal["finite", "not nan"]] = {}
    work_item: WorkItem
    state: tuple[State, ...] = ()
    norm: float = 0.75
    scatter: bool = False
    references: tuple[str, ...] = ()
    flops: str = ""
    bytes: str = ""

    @field_validator("distributions")
    @classmethod
    def _has_normal(cls, value: dict[str, dict[str, Draw]]) -> dict[str, dict[str, Draw]]:
        if "normal" not in value or len(value) < 2:
            raise ValueError("give a distribution called 'normal', and at least one more that is adversarial")
        return value

    @field_validator("shapes")
    @classmethod
    def _named(cls, value: tuple[Shape, ...]) -> tuple[Shape, ...]:
        if not value:
            raise ValueError("there is none")
        if len({s.name for s in value}) != len(value):
            raise ValueError("two have the same name")
        return value

    @model_validator(mode="after")
    def _known(self) -> ProblemFile:
        names, outputs = [t.name for t in self.tensors], {t.name for t in self.tensors if t.role != "in"}
        if len(set(names)) != len(names):
            raise ValueError("two tensors have the same name")
        if not outputs:
            raise ValueError("no tensor has the role 'out' or 'inout': nothing would be computed")
        given = {*self.dtypes, *(t.dtype for t in self.tensors), *(s.dtype for s in self.state), *(e.eps for e in self.errors)} - {"T", "out"}
        if wrong := sorted(given - set(HELD)):
            raise ValueError(f"there is no dtype '{wrong[0]}' here: {', '.join(HELD)}")
        if not self.dtypes and any(t.dtype == "T" for t in self.tensors):
            raise ValueError("a tensor has the dtype 'T', and 'dtypes' does not say what that is")
        said = [x for term in self.errors for x in term.outputs]
        if isinstance(self.relation, SetWithTies):
            said += [self.relation.values, self.relation.indices]
        named = [x for p in self.claims.products for x in p.of] + [s.of for s in self.claims.steps if s.of]
        if unknown := [x for x in named if x not in names]:
            raise ValueError(f"a claim names '{unknown[0]}', which is no tensor")
        if absent := [x for x in said if x not in outputs]:
            raise ValueError(f"'{absent[0]}' is named where outputs are, and is none of {', '.join(sorted(outputs))}")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> ProblemFile:
        for shape in self.shapes:
            for tensor in self.tensors:
                for dimension in tensor.shape:
                    if evaluate(dimension, shape.sizes) < 1:
                        raise ValueError(f"shape '{shape.name}' makes {tensor.name} empty ('{dimension}')")
            for work in (self.flops, self.bytes):
                if work:
                    evaluate(work, shape.sizes)
            for fact in self.facts:
                if not evaluate(fact, shape.sizes):
                    raise ValueError(f"shape '{shape.name}' breaks the fact '{fact}'")
        inputs = {t.name for t in self.tensors if t.role != "out"}
        if unknown := sorted(self.numbers.keys() - inputs):
            raise ValueError(f"'numbers' names '{unknown[0]}', which is no input")
        for draws in self.distributions.values():
            for name, draw in draws.items():
                if name != "*" and name not in {t.name for t in self.tensors}:
                    raise ValueError(f"a distribution names '{name}', which is no tensor")
                for x, kind in self.numbers.items():
                    if name in ("*", x) and set(draw.values) & ({"nan"} if kind == "not nan" else {"nan", "inf", "-inf"}):
                        raise ValueError(f"a distribution draws {', '.join(draw.values)} for '{x}', which is {kind}")
        for name in self.work_item.axes:
            if self.shapes and name not in self.shapes[0].sizes:
                raise ValueError(f"the work item ranges over '{name}', which is no size")
        return self
