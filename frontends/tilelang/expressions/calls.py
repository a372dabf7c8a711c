"""Calls: of functions of the source (read in place), of dtypes (casts), of Python's and math's functions, of TileLang's words."""

from __future__ import annotations

import math
import re

import libcst as cst

from kir.ir import build

from ..state import mutable
from ..state.evaluate import evaluate
from ..state.functions import called
from ..state.layouts import layout_word
from ..state.reader import OWN, Reader, Undecided
from ..values import arithmetic
from ..values.arithmetic import convert
from ..values.names import LANGUAGE, absolute
from ..values.values import (
    Builtin,
    Choice,
    Class,
    Function,
    Instance,
    Items,
    LayoutOf,
    Listed,
    Memory,
    Method,
    NotUnderstood,
    Num,
    Open,
    Place,
    Raised,
    Scope,
    Signature,
    Table,
    Text,
    TypeOf,
    Unknown,
    Value,
    describe,
    is_known,
    is_number,
)
from .classes import fields_of, inherited, initializer, is_enumeration, members
from .iteration import iterated
from .operators import binary
from .python_functions import LIBRARY, python_function

_LAYOUT = re.compile(r"(?:^|_)(make_\w*?layout)(?:_\d+)?$")
"""What objects of other packages make layouts of buffers by."""


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
        case Open() if (word := _LAYOUT.search(fn.name)) is not None and any(isinstance(x, Memory) for x in given.args):
            return LayoutOf(word[1], tuple(given.args), tuple(given.named.items()), r.out.origin)  # which thread holds what is no part of the meaning
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
    if is_enumeration(r, fn) and len(given.args) == 1 and not given.named:
        return _member(r, fn, given.args[0])
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


def _member(r: Reader, of: Class, value: Value) -> Value:
    """The member of an enumeration with a value, which stands for it."""
    value, values = r.settled(value), members(r, of)
    if isinstance(value, (Text, Open)):
        r.choices.setdefault(value.name, []).extend(values)
    elif not is_known(value):
        raise NotUnderstood(f"the member of '{of.node.name.value}' that is {describe(value)}")
    elif value not in values:
        raise Raised(f"{value!r} is no value of '{of.node.name.value}'", (), r.out.origin)
    return value


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
            if fn.name in ("startswith", "endswith") and len(args) == 1 and isinstance(args[0], Items) and all(isinstance(x, str) for x in args[0].items):
                return bool(getattr(owner, fn.name)(args[0].items))
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
    if name in LIBRARY:
        return LIBRARY[name](r, given)
    if name == "functools.reduce":
        return _reduced(r, given, e)
    if name.startswith("operator.") and (op := name.removeprefix("operator.").removesuffix("_")) in OPERATORS and len(given.args) == 2:
        return binary(r, OPERATORS[op], *given.args)
    root, _, rest = name.partition(".")
    last = name.rsplit(".", 1)[-1]
    if root == "math" and all(is_known(r.settled(a)) for a in given.args):
        return arithmetic.host(getattr(math, rest), *(r.settled(a) for a in given.args))
    if root == "builtins":
        return python_function(r, rest, given, lambda of, args: invoke(r, of, Signature(args), e))
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


OPERATORS = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "truediv", "floordiv": "floordiv", "mod": "mod", "pow": "pow", "lshift": "shl",
             "rshift": "shr", "and": "and", "or": "or", "xor": "xor", "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
"""Functions of Python's `operator`, without the line under a word of the language."""


def _reduced(r: Reader, given: Signature, e: cst.CSTNode) -> Value:
    """`functools.reduce(f, items, first)`: two at a time, from the first on."""
    items = [*given.args[2:3], *iterated(r, given.args[1])]
    if not items:
        raise NotUnderstood("a reduction of nothing")
    out = items[0]
    for x in items[1:]:
        out = invoke(r, r.settled(given.args[0]), Signature([out, x]), e)
    return out


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


