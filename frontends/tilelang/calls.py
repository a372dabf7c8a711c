"""Calls: of functions of the source (read in place), of dtypes (casts), of Python's and math's functions, of TileLang's words."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

import libcst as cst

from kir.ir import build
from kir.ir.types import F32, I32, dtype_of

from . import arithmetic, mutable
from .arithmetic import convert
from .classes import fields_of, inherited, initializer
from .evaluate import evaluate
from .functions import called
from .iteration import iterated, listed
from .layouts import layout_word
from .names import LANGUAGE, absolute
from .operators import binary
from .reader import OWN, Reader, Undecided
from .values import (
    Builtin,
    Choice,
    Class,
    Function,
    Instance,
    Items,
    Listed,
    Loop,
    Memory,
    Method,
    NotUnderstood,
    Num,
    Open,
    Place,
    Scope,
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

MOST_COMBINATIONS = 4096


def call(r: Reader, scope: Scope, e: cst.Call) -> Value:
    """The value of a call."""
    fn = r.settled(_function(r, scope, e))
    if isinstance(fn, Builtin) and fn.name.startswith("torch.") and not r.launched and not fn.name.startswith(("torch.finfo", "torch.iinfo")):
        return r.ask(fn.name.rsplit(".", 1)[-1], scope.module.code(e))
    given = Signature()
    for a in e.args:
        if isinstance(fn, Builtin) and fn.name == f"{LANGUAGE}.device_assert" and given.args:
            continue
        value = evaluate(r, scope, a.value)
        if a.star == "*":
            given.args += iterated(r, value)
        elif a.star == "**":
            if not isinstance(value, Table):
                raise NotUnderstood("arguments spread from what is no dict")
            given.named.update({str(k): v for k, v in value.items})
        elif a.keyword is not None:
            given.named[a.keyword.value] = value
        else:
            given.args.append(value)
    return invoke(r, fn, given, e)


def _function(r: Reader, scope: Scope, e: cst.Call) -> Value:
    """What is called; `super().word` is that of the next class of the object at hand."""
    match e.func:
        case cst.Attribute(value=cst.Call(func=cst.Name(value="super"), args=[]), attr=cst.Name(value=word)):
            return inherited(r, scope, e, word)
        case _:
            return evaluate(r, scope, e.func)


def invoke(r: Reader, fn: Value, given: Signature, e: cst.CSTNode) -> Value:
    """A function applied to values."""
    match fn:
        case Function():
            return called(r, fn, [*fn.leading, *given.args], {**dict(fn.partial), **given.named})
        case TypeOf():
            return _cast(r, fn, given)
        case Class():
            return _made(r, fn, given)
        case Method():
            return _method(r, fn, given)
        case Choice():
            raise Undecided(fn.cond)
        case Open():
            _of_host(r, fn.name, given)
            return r.ask(fn.name, f"{fn.key or fn.name}({given.args}{given.named})")
        case Builtin():
            return _builtin(r, fn, given, e)
        case Unknown():
            raise NotUnderstood(fn.reason)
        case _:
            raise NotUnderstood(f"a call of {describe(fn)}")


def _cast(r: Reader, fn: TypeOf, given: Signature) -> Value:
    if not given.args:
        return fn
    value = r.decided(given.args[0])
    made = arithmetic.valued(value, fn.dtype) if is_number(value) else convert(r.run(value), fn.dtype)
    assert made is not None
    return Num(made)


def _made(r: Reader, fn: Class, given: Signature) -> Value:
    made = initializer(r, fn)
    if made is not None:
        owner = Instance(fn, {})
        called(r, made, [owner, *given.args], given.named)
        return owner
    fields = fields_of(r, fn)
    out: dict[str, Value] = {}
    for (c, name, statement), value in zip(fields, [*given.args, *[None] * len(fields)], strict=False):
        position = [x for _, x, _ in fields].index(name)
        if position < len(given.args):
            out[name] = value
        elif name in given.named:
            out[name] = given.named[name]
        elif statement.value is not None:
            out[name] = evaluate(r, c.scope, statement.value)
        else:
            raise NotUnderstood(f"an object of '{fn.node.name.value}' without its '{name}'")
    return Instance(fn, out)


def _method(r: Reader, fn: Method, given: Signature) -> Value:
    owner = fn.owner
    if fn.name == "astype" and given.args and not isinstance(owner, (Items, Table, str, TypeOf)):
        return Num(convert(r.run(owner), r.dtype(given.args[0])))
    match owner, fn.name:
        case Table(), "get":
            default = given.args[1] if len(given.args) > 1 else None
            key = r.decided(given.args[0])
            if is_known(key):
                return next((v for k, v in owner.items if k == key), default)
        case Table(), "items":
            return Items(tuple(Items((k, v)) for k, v in owner.items))
        case Table(), "keys":
            return Items(tuple(k for k, _ in owner.items))
        case Table(), "values":
            return Items(tuple(v for _, v in owner.items))
        case (Table() | Listed()), "copy" if not given.args:
            return type(owner)(owner.items)
        case Listed(), _ if fn.name in mutable.LIST_WORDS and not given.named:
            return mutable.method(r, owner, fn.name, given.args, lambda v: iterated(r, v))
        case Table(), "update" if given.named and not given.args:
            return mutable.method(r, owner, "update", [Table(given.named.items())], lambda v: iterated(r, v))
        case Table(), _ if fn.name in mutable.DICT_WORDS and not given.named:
            return mutable.method(r, owner, fn.name, given.args, lambda v: iterated(r, v))
        case int(), "bit_length" if not given.args:
            return owner.bit_length()
        case Num(), "bit_length" if not given.args and r.is_static(owner.expr):
            return r.ask("bit_length", f"{OWN}bit_length({owner.expr})")
        case float(), "is_integer" if not given.args:
            return owner.is_integer()
        case str(), ("isdigit" | "isalpha" | "isnumeric" | "isupper" | "islower") if not given.args:
            return bool(getattr(owner, fn.name)())
        case str(), "join" if len(given.args) == 1:
            parts = iterated(r, given.args[0])
            if all(isinstance(x, str) for x in parts):
                return owner.join(str(x) for x in parts)
        case str(), ("lower" | "upper" | "strip" | "removeprefix" | "removesuffix" | "startswith" | "endswith" | "replace" | "split" | "format"):
            args = [r.decided(a) for a in given.args]
            if all(isinstance(a, str) for a in args):
                made = getattr(owner, fn.name)(*args)
                return Items(tuple(made)) if isinstance(made, list) else made
        case Items(), ("index" | "count"):
            key = r.decided(given.args[0])
            if is_known(key) and all(is_known(x) for x in owner.items):
                return int(getattr(owner.items, fn.name)(key))
    if isinstance(owner, TypeOf) and fn.name in ("as_torch",):
        return owner
    raise NotUnderstood(f"'{fn.name}' of {describe(owner)}")


# ------------------------------------------------------------------------------------------------------------------- builtins
def _builtin(r: Reader, fn: Builtin, given: Signature, e: cst.CSTNode) -> Value:
    name = absolute(fn.name)
    if name.startswith(LANGUAGE + "."):
        return r.handlers.intrinsic(r, name[len(LANGUAGE) + 1:], given, e)
    if name in WORDS_OF_HOST:
        return WORDS_OF_HOST[name](r, given)
    root, _, rest = name.partition(".")
    last = name.rsplit(".", 1)[-1]
    if root == "math" and all(is_known(r.settled(a)) for a in given.args):
        return arithmetic.host(getattr(math, rest), *(r.settled(a) for a in given.args))
    if root == "builtins":
        return _python(r, rest, given, e)
    if last in ("cdiv", "next_power_of_2") and root in ("tilelang", "triton"):
        return _counted(r, name.rsplit(".", 1)[-1], given)
    if name.startswith("tilelang.") and last.startswith("make_") and last.endswith("swizzle_layout"):
        return layout_word(r, last, given, e)
    if name.startswith("tilelang.layout."):
        return layout_word(r, name.removeprefix("tilelang.layout."), given, e)
    _of_host(r, name, given)
    asked = given.args[0] if given.args and rest in ("environ.get", "getenv") else None
    worked_out = OWN if root == "math" else ""
    return r.ask(asked if isinstance(asked, str) and asked.isidentifier() else name.rsplit(".", 1)[-1], f"{worked_out}{name}({given.args}{given.named})")


def _of_host(r: Reader, name: str, given: Signature) -> None:
    """Raises NotUnderstood for a function that is not known and takes what only the running kernel knows: no binding can answer for it."""
    for v in (*given.args, *given.named.values()):
        for x in v.items if isinstance(v, Items) else (v,):
            x = r.settled(x)
            if isinstance(x, (Memory, Place)) or (isinstance(x, Num) and not r.is_static(x.expr)):
                raise NotUnderstood(f"the function '{name}', of what the kernel computes")


def _counted(r: Reader, word: str, given: Signature) -> Value:
    if word == "cdiv":
        return arithmetic.binary("ceildiv", r.settled(given.args[0]), r.settled(given.args[1]), r.run)
    value = r.settled(given.args[0])
    if isinstance(value, int):
        return 1 << max(value - 1, 0).bit_length()
    e = r.dim(value)
    if not r.is_static(e):
        raise NotUnderstood("the next power of two of a size")
    return Num(build.call("next_power_of_2", e))


def _python(r: Reader, name: str, given: Signature, e: cst.CSTNode) -> Value:
    args = [r.settled(a) for a in given.args]
    match name, args:
        case ("min" | "max"), [one]:
            return _folded(r, name, list(iterated(r, one)))
        case ("min" | "max"), _:
            return _folded(r, name, args)
        case "range", _:
            return Loop("range", tuple(args))
        case "len", [one]:
            one = r.decided(one)
            if isinstance(one, Items):
                return len(one.items)
            if isinstance(one, str):
                return len(one)
            if isinstance(one, Table):
                return len(one.items)
            if isinstance(one, Open) and (listed_one := r.given_items(one)):
                return len(listed_one)
            raise NotUnderstood(f"the length of {describe(one)}{listed(one)}")
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
        case "tuple", _:
            return Items(tuple(iterated(r, args[0])) if args else ())
        case ("list" | "set" | "frozenset"), _:
            elements = iterated(r, args[0]) if args else ()
            return Listed(elements if name == "list" else dict.fromkeys(elements))
        case "slice", ([_] | [_, _] | [_, _, _]):
            return Slice(*(args if len(args) > 1 else (None, args[0])))
        case "next", ([Items() as one] | [Items() as one, _]) if one.items or len(args) > 1:
            return one.items[0] if one.items else args[1]
        case "map", [Function() as of, *rest]:
            return Items(tuple(invoke(r, of, Signature(list(t)), e) for t in zip(*(iterated(r, a) for a in rest), strict=False)))
        case "filter", [Function() as of, one]:
            kept = [(x, r.truth(invoke(r, of, Signature([x]), e))) for x in iterated(r, one)]
            if all(isinstance(holds, bool) for _, holds in kept):
                return Items(tuple(x for x, holds in kept if holds))
        case "sum", [one]:
            out: Value = 0
            for x in iterated(r, one):
                out = binary(r, "add", out, x)
            return out
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
        case "dict", []:
            return Table(tuple((k, v) for k, v in given.named.items()))
        case "dict", [Table() as one]:
            return Table((*one.items, *given.named.items()))
        case "dict", [one]:
            pairs = [x.items for x in iterated(r, one) if isinstance(x, Items) and len(x.items) == 2]
            return Table((*((k, v) for k, v in pairs), *given.named.items()))
        case "round", _ if all(is_known(a) for a in args):
            return arithmetic.host(round, *args)
        case "round", [Open() as one, *_] if one.kind == "asked":
            return r.ask("rounded", f"{OWN}round({one.key})")
        case "pow", [a, b]:
            return binary(r, "pow", a, b)
        case "divmod", [a, b]:
            return Items((binary(r, "floordiv", a, b), binary(r, "mod", a, b)))
        case ("any" | "all"), [one]:
            outcomes = [r.truth(x) for x in iterated(r, one)]
            if all(isinstance(x, bool) for x in outcomes):
                return any(outcomes) if name == "any" else all(outcomes)
        case "print", _:
            return None
        case "isinstance", [one, of] if is_known(one) and (known := _kinds(of)) is not None:
            return isinstance(one, known)
        case ("isinstance" | "hasattr" | "getattr"), _:
            subject = args[0].name if args and isinstance(args[0], Open) else "is"
            return r.ask(f"{subject}_{name}", f"{OWN}{name}({args})", "bool")
        case _ if name.endswith("Error") or name == "Exception":
            return Unknown("an exception")
    raise NotUnderstood(f"'{name}' of these values")


def _kinds(v: Value) -> tuple[type, ...] | None:
    """Python's own types, as `isinstance` takes them; None for others."""
    named = {"int": int, "float": float, "bool": bool, "str": str}
    each = v.items if isinstance(v, Items) else (v,)
    found = [named.get(x.name.removeprefix("builtins.")) if isinstance(x, Builtin) else None for x in each]
    return None if any(x is None for x in found) else tuple(x for x in found if x is not None)


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


WORDS_OF_HOST: Mapping[str, Callable[[Reader, Signature], Value]] = {
    "functools.partial": _partial,
    "dataclasses.replace": _replaced,
    "math.gcd": _gcd,
    "itertools.product": _product,
}
