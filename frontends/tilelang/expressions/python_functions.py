"""Functions of Python and its library, on values of the host and numbers of the kernel."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

from kir.ir import build
from kir.ir.types import F32, I32, dtype_of

from ..state.reader import OWN, Reader
from ..values import arithmetic
from ..values.arithmetic import convert
from ..values.names import said_dtype
from ..values.values import (
    Builtin,
    Function,
    Instance,
    Items,
    Listed,
    Loop,
    Memory,
    NotUnderstood,
    Num,
    Open,
    Place,
    Signature,
    Slice,
    Table,
    TypeOf,
    Unknown,
    Value,
    describe,
    is_known,
    is_number,
)
from .iteration import iterated, listed
from .operators import binary

Apply = Callable[[Value, list[Value]], Value]
"""A function applied to values."""
MOST_COMBINATIONS = 4096
NUMBERS = frozenset({"min", "max", "abs", "int", "float", "bool", "str", "sum", "round", "pow", "divmod"})
COLLECTIONS = frozenset({"range", "len", "tuple", "list", "set", "frozenset", "slice", "next", "enumerate", "zip", "reversed", "sorted"})


def python_function(r: Reader, name: str, given: Signature, apply: Apply) -> Value:
    """A function that Python has built in. Raises NotUnderstood."""
    args = [r.settled(a) for a in given.args]
    if name in NUMBERS:
        return _number(r, name, args)
    if name in COLLECTIONS:
        return _collection(r, name, args, given)
    if name == "dict":
        return _dict(r, args, given)
    return _answer(r, name, args, apply)


def _unusual(name: str) -> NotUnderstood:
    return NotUnderstood(f"'{name}' of these values")


def _number(r: Reader, name: str, args: list[Value]) -> Value:
    """What gives a number or a text."""
    match name, args:
        case ("min" | "max"), [one]:
            return _folded(r, name, list(iterated(r, one)))
        case ("min" | "max"), _:
            return _folded(r, name, args)
        case "abs", [one]:
            return arithmetic.host(abs, one) if is_number(one) else Num(build.call("abs", r.run(one)))
        case "int", [one]:
            if is_known(one) and one is not None:
                return arithmetic.host(int, one)
            made = r.run(one)
            return Num(made if dtype_of(made.type).is_integer else convert(made, I32))
        case "float", [one]:
            if isinstance(one, (str, int, float)):
                return arithmetic.host(float, one)
            return Num(convert(r.run(one), F32))
        case "bool", [one]:
            found = r.truth(one)
            return found if isinstance(found, bool) else Num(found)
        case "str", [one] if is_known(one):
            return str(one)
        case "str", [TypeOf() as one] if not one.dtype.is_symbolic:
            return said_dtype(one.dtype)
        case "sum", [one]:
            out: Value = 0
            for x in iterated(r, one):
                out = binary(r, "add", out, x)
            return out
        case "round", _ if all(is_known(a) for a in args):
            return arithmetic.host(round, *args)
        case "round", [Open() as one, *_] if one.kind == "asked":
            return r.ask("rounded", f"{OWN}round({one.key})")
        case "pow", [a, b]:
            return binary(r, "pow", a, b)
        case "divmod", [a, b]:
            return Items((binary(r, "floordiv", a, b), binary(r, "mod", a, b)))
    raise _unusual(name)


def _collection(r: Reader, name: str, args: list[Value], given: Signature) -> Value:
    """What makes or measures a list or a tuple."""
    match name, args:
        case "range", _:
            return Loop("range", tuple(args))
        case "len", [one]:
            return _length(r, one)
        case "tuple", _:
            return Items(tuple(iterated(r, args[0])) if args else ())
        case ("list" | "set" | "frozenset"), _:
            elements = iterated(r, args[0]) if args else ()
            return Listed(elements if name == "list" else dict.fromkeys(elements))
        case "slice", ([_] | [_, _] | [_, _, _]):
            return Slice(*(args if len(args) > 1 else (None, args[0])))
        case "next", ([Items() as one] | [Items() as one, _]) if one.items or len(args) > 1:
            return one.items[0] if one.items else args[1]
        case "enumerate", [one]:
            return Items(tuple(Items((k, v)) for k, v in enumerate(iterated(r, one))))
        case "zip", _:
            return Items(tuple(Items(tuple(t)) for t in zip(*(iterated(r, a) for a in args), strict=False)))
        case "reversed", [one]:
            return Items(tuple(reversed(iterated(r, one))))
        case "sorted", [one] if not given.named:
            items = iterated(r, one)
            if all(is_number(x) for x in items):
                return Listed(sorted(items))
    raise _unusual(name)


def _length(r: Reader, v: Value) -> Value:
    v = r.decided(v)
    if isinstance(v, (Items, Table)):
        return len(v.items)
    if isinstance(v, str):
        return len(v)
    if isinstance(v, Open) and (items := r.given_items(v)):
        return len(items)
    raise NotUnderstood(f"the length of {describe(v)}{listed(r, v)}")


def _dict(r: Reader, args: list[Value], given: Signature) -> Value:
    named = tuple((k, v) for k, v in given.named.items())
    match args:
        case []:
            return Table(named)
        case [Table() as one]:
            return Table((*one.items, *named))
        case [one]:
            pairs = [x.items for x in iterated(r, one) if isinstance(x, Items) and len(x.items) == 2]
            return Table((*((k, v) for k, v in pairs), *named))
    raise _unusual("dict")


def _answer(r: Reader, name: str, args: list[Value], apply: Apply) -> Value:
    """What applies a function, answers a question or does nothing."""
    match name, args:
        case "map", [Function() as of, *rest]:
            return Items(tuple(apply(of, list(t)) for t in zip(*(iterated(r, a) for a in rest), strict=False)))
        case "filter", [Function() as of, one]:
            kept = [(x, r.truth(apply(of, [x]))) for x in iterated(r, one)]
            if all(isinstance(holds, bool) for _, holds in kept):
                return Items(tuple(x for x, holds in kept if holds))
        case ("any" | "all"), [one]:
            outcomes = [r.truth(x) for x in iterated(r, one)]
            if all(isinstance(x, bool) for x in outcomes):
                return any(outcomes) if name == "any" else all(outcomes)
        case "print", _:
            return None
        case "isinstance", [one, of] if (known := _kinds(of)) is not None and (held := _is_of(r.settled(one), known)) is not None:
            return held
        case ("isinstance" | "hasattr" | "getattr"), _:
            subject = args[0].name if args and isinstance(args[0], Open) else "is"
            return r.ask(f"{subject}_{name}", f"{OWN}{name}({args})", "bool")
        case _ if name.endswith("Error") or name == "Exception":
            return Unknown("an exception")
    raise _unusual(name)


def _kinds(v: Value) -> tuple[type, ...] | None:
    """Python's own types, as `isinstance` takes them; None for others."""
    named = {"int": int, "float": float, "bool": bool, "str": str, "list": list, "tuple": tuple, "dict": dict}
    each = v.items if isinstance(v, Items) else (v,)
    found = [named.get(x.name.removeprefix("builtins.")) if isinstance(x, Builtin) else None for x in each]
    return None if any(x is None for x in found) else tuple(x for x in found if x is not None)


def _is_of(v: Value, known: tuple[type, ...]) -> bool | None:
    """Whether a value is of one of Python's own types; None where that is not known."""
    match v:
        case Listed():
            return list in known
        case Items():  # some that stand for what Python would have as a list or an iterator
            return True if {list, tuple} <= {*known} else None if {list, tuple} & {*known} else False
        case Table():
            return dict in known
        case Memory() | Place() | Function():
            return False
        case Num() if not {int, float, bool}.intersection(known):
            return False
        case _:
            return isinstance(v, known) if is_known(v) else None


def _folded(r: Reader, op: str, args: list[Value]) -> Value:
    if not args:
        raise NotUnderstood(f"'{op}' of nothing")
    out = args[0]
    for x in args[1:]:
        out = arithmetic.binary(op, r.settled(out), r.settled(x), r.run)
    return out


def _partial(r: Reader, given: Signature) -> Value:
    fn = r.decided(given.args[0])
    if not isinstance(fn, Function):
        raise NotUnderstood(f"a part of {describe(fn)}")
    return Function(fn.node, fn.scope, (*fn.partial, *given.named.items()), (*fn.leading, *given.args[1:]))


def _replaced(r: Reader, given: Signature) -> Value:
    owner = r.decided(given.args[0])
    if not isinstance(owner, Instance):
        raise NotUnderstood(f"a copy of {describe(owner)} with other fields")
    return Instance(owner.of, {**owner.fields, **given.named})


def _gcd(r: Reader, given: Signature) -> Value:
    """A greatest common divisor, of numbers that the binding knows."""
    args = [r.settled(a) for a in given.args]
    known = [r.known_int(a) for a in args]
    if all(k is not None for k in known):
        return math.gcd(*[k for k in known if k is not None])
    out = args[0]
    for x in args[1:]:
        a, b = r.dim(out), r.dim(x)
        if not (r.is_static(a) and r.is_static(b)):
            raise NotUnderstood("the greatest common divisor of sizes")
        out = Num(build.call("gcd", a, b))
    return out


def _product(r: Reader, given: Signature) -> Value:
    """All combinations of the elements of lists."""
    lists = [iterated(r, a) for a in given.args]
    if math.prod(len(x) for x in lists) > MOST_COMBINATIONS:
        raise NotUnderstood("more combinations than anybody tries")
    return Items(tuple(Items(tuple(t)) for t in itertools.product(*lists)))


def _data_type(r: Reader, given: Signature) -> Value:
    """`tvm.DataType(dtype)`, of which the width is asked."""
    return TypeOf(r.dtype(given.args[0]))


LIBRARY: Mapping[str, Callable[[Reader, Signature], Value]] = {
    "functools.partial": _partial,
    "dataclasses.replace": _replaced,
    "math.gcd": _gcd,
    "itertools.product": _product,
    **dict.fromkeys(("tvm.DataType", "tvm.runtime.DataType", "tilelang.tvm.DataType"), _data_type),
}
