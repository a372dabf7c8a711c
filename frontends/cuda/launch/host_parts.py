"""Parts of C++ host code by themselves: functions and their parameters, numbers, operators, the opposite of a condition."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.surface.launches.values import Array, Dtype, Either, Known, Quotient, Unknown, Value, floored, is_number, one_more, rounded_up

from ..source.source import Node, Sources, Unit, fragment
from ..source.syntax import declared_name, function_declarator, text
from ..symbols.index import template_params
from ..symbols.symbols import TParam
from ..types.errors import NotUnderstood
from .dispatch import Written
from .host_values import TYPES, Rank

MOST_FILES, MOST_BYTES = 20, 400_000
_AROUND = frozenset({"translation_unit", "namespace_definition", "declaration_list", "linkage_specification", "template_declaration", "preproc_ifdef"})
_ENDINGS = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".h", ".hpp")
_ORDER = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
_OPERATORS: Mapping[str, Callable[[n.Expr, n.Expr], n.Expr]] = {"+": build.add, "-": build.sub, "*": build.mul, "/": floored, "%": build.mod}
_PARSED = frozenset({"atoi", "atol", "atoll", "stoi", "stol", "stoll", "stoul", "stoull", "strtol", "strtoll", "strtoul", "strtoull"})
"""What makes a number of a text that whoever runs the program gives: it may be any."""
_ROUNDED_UP = frozenset({"cdiv", "ceil_div", "ceildiv", "divup", "div_up", "divceil", "ceil_division"})
DEVICE_NUMBERS = frozenset({"multiProcessorCount", "maxThreadsPerMultiProcessor", "maxBlocksPerMultiProcessor", "sharedMemPerBlock", "l2CacheSize"})
"""What host code asks a device's properties for: any number is right."""


def functions(node: Node) -> list[Node]:
    """The definitions of functions that are no kernels."""
    out, stack = [], [node]
    while stack:
        top = stack.pop()
        if top.type == "function_definition":
            if not text(top).lstrip().startswith("__thread") and "__thread" not in text(top).partition("(")[0]:
                out.append(top)
        elif top.type in _AROUND:
            stack += reversed(top.named_children)
    return out


LONGEST = 16
"""Statements of a function of numbers that is followed wherever it stands."""


class Headers:
    """What the files of a translation unit define beside their launches: short functions, and constants, by name."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = units
        self._functions: dict[str, tuple[Unit, Node] | None] = {}
        self._enumerators: dict[str, int | None] = {}

    def function(self, name: str) -> tuple[Unit, Node] | None:
        """The definition of a short function, and where it stands."""
        if name not in self._functions:
            self._functions[name] = next(((unit, f) for unit in self.units if name.encode() in unit.text for f in functions(unit.root)
                                          if function_name(f) == name and (body := f.child_by_field_name("body")) is not None
                                          and len(body.named_children) <= LONGEST), None)
        return self._functions[name]

    def constant(self, unit: Unit, name: str) -> Node | None:
        """What a `const` or `constexpr` of a file, outside of functions, is."""
        stack = [unit.root] if name.encode() in unit.text else []
        while stack:
            top = stack.pop()
            if top.type in _AROUND:
                stack += reversed(top.named_children)
            elif top.type == "declaration" and "const" in text(top).partition("=")[0]:
                for d in top.children_by_field_name("declarator"):
                    if (called := declared_name(d)) is not None and text(called) == name and (value := d.child_by_field_name("value")) is not None:
                        return value
        return None

    def enumerator(self, name: str) -> int | None:
        """The number of a constant of an enumeration, named with it (`Order::kBig`) or, where it is no class, by itself; None for another name."""
        if name not in self._enumerators:
            within, _, last = name.rpartition("::")
            found = (_enumerated(e, last) for unit in self.units if last.encode() in unit.text and b"enum" in unit.text for e in _enumerations(unit.root)
                     if _called(e) == within.rpartition("::")[2] or (not within and not text(e).startswith("enum class")))
            self._enumerators[name] = next((number for number in found if number is not None), None)
        return self._enumerators[name]

    def enumerates(self, value: Node | None) -> bool:
        """Whether a value is a constant of an enumeration: a choice, and no size."""
        return value is not None and value.type in ("identifier", "qualified_identifier") and self.enumerator(text(value)) is not None


def _enumerations(root: Node) -> Iterator[Node]:
    stack = [root]
    while stack:
        top = stack.pop()
        if top.type == "enum_specifier":
            yield top
        elif top.type in _AROUND:
            stack += reversed(top.named_children)


def _called(e: Node) -> str:
    return text(name) if (name := e.child_by_field_name("name")) is not None else ""


def _enumerated(e: Node, name: str) -> int | None:
    """The number that an enumeration gives a name; None where it has no such name, or numbers that are no literals."""
    body, number = e.child_by_field_name("body"), 0
    for each in body.named_children if body is not None else ():
        if each.type == "enumerator":
            if (value := each.child_by_field_name("value")) is not None:
                if not isinstance(given := literal(text(value)), n.Const) or type(given.value) is not int:
                    return None
                number = given.value
            if _called(each) == name:
                return number
            number += 1
    return None


class Around:
    """What stands outside functions in some files, and what kernels mention there; found once for all entries that are followed."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.words = words_of_kernels(units)
        self.declared = [(unit, s) for unit in units for s in unit.root.named_children if s.type == "declaration"]


def words_of_kernels(units: Sequence[Unit]) -> set[str]:
    """Every name in the bodies of kernels and of functions of the device."""
    out: set[str] = set()
    for unit in units:
        host = {f.start_byte for f in functions(unit.root)}
        stack = [unit.root]
        while stack:
            top = stack.pop()
            if top.type == "function_definition":
                if top.start_byte not in host:
                    out.update(re.findall(r"[A-Za-z_]\w*", text(top)))
            else:
                stack += top.named_children if top.type in _AROUND else ()
    return out


def function_name(node: Node) -> str:
    """The plain name of a function; "" where it has none."""
    try:
        name = declared_name(function_declarator(node))
    except NotUnderstood:
        return ""
    return text(name).rpartition("::")[2] if name is not None else ""


def last_name(words: str) -> str:
    """The name of a function that is passed on, without casts, template arguments and `&`: `(void*)&kernel<4>`."""
    return words.rpartition(")")[2].strip("& ()").partition("<")[0]


def is_integer(kind: str) -> bool:
    """Whether a C++ type holds whole numbers."""
    return TYPES[kind][0] in "iu"


def parameters(node: Node) -> list[Node]:
    """The declarations of a function's parameters."""
    try:
        listed = function_declarator(node).child_by_field_name("parameters")
    except NotUnderstood:
        return []
    return [] if listed is None else [p for p in listed.named_children if p.type in ("parameter_declaration", "optional_parameter_declaration")]


def is_of_the_device(words: str, units: Sequence[Unit]) -> bool:
    """Whether a template argument is spelled by the name of a class, or of a function of the device, that a file declares."""
    name = re.match(r"[A-Za-z_]\w*", words)
    declared = re.compile(rf"\b(?:struct|class)\s+(?:alignas\([^()]*\)\s*)?{name[0]}\b|\b__device__\b[^;{{}}()]*\b{name[0]}\s*\(") if name is not None else None
    return declared is not None and any(declared.search(unit.mapped.source) for unit in units)


def template_of(node: Node) -> tuple[TParam, ...]:
    """The template parameters of a function."""
    around = node.parent
    return template_params(around) if around is not None and around.type == "template_declaration" else ()


def template_names(node: Node) -> list[str]:
    """The names of a function's template parameters."""
    around = node.parent
    listed = around.child_by_field_name("parameters") if around is not None and around.type == "template_declaration" else None
    return [text(d) for p in (listed.named_children if listed is not None else ())
            if (d := declared_name(p) or (p.named_children[-1] if p.named_children else None)) is not None]


def literal(words: str) -> Value:
    """A number as it is written."""
    plain = words.replace("'", "").rstrip("uUlL")
    try:
        value = int(plain, 0)
        return build.const(value) if value < 1 << 31 else Unknown("a large number")
    except ValueError:
        try:
            return float(plain.rstrip("fF"))
        except ValueError:
            return Unknown(words)


Passed = tuple[str, tuple[int, ...], tuple[int, ...]] | int | float | bool | None
"""An argument of a call: of a tensor its dtype, shape and strides."""


def given(known: Known, v: Passed) -> Value:
    """The value of an argument that a call is given."""
    if isinstance(v, tuple):
        shape = tuple(build.const(d) for d in v[1])
        strides = [build.const(s) for s in v[2]]
        return Array(known, "", shape, v[0], None if tuple(strides) == build.row_major(shape) else strides)
    return build.const(v) if isinstance(v, int) and not isinstance(v, bool) and abs(v) < 1 << 31 else v


def beside(source: Path, kernel: str, seen: set[Path]) -> list[Unit]:
    """The files of a source's folder, but those `seen`, in which a kernel is named and something is launched."""
    out: list[Unit] = []
    for path in sorted(p for p in source.parent.iterdir() if p.suffix in _ENDINGS and p.resolve() not in seen)[:400]:
        try:
            data = path.read_bytes()
            if len(data) <= MOST_BYTES and kernel.encode() in data and (b"<<<" in data or b"LaunchKernel" in data) and len(out) < MOST_FILES:
                out.append(Sources("sm_80").read(path))
        except (OSError, KirError):
            continue
    return out


def defines(unit: Unit, kernel: str) -> bool:
    """Whether a file has a kernel of this name itself: with its body, not only declared. (In parsed text `__thread` stands for `__global__`.)"""
    return re.search(rb"\b__thread\b[^;{}]*?\b" + re.escape(kernel.encode()) + rb"\s*\([^;{}]*\{", unit.text) is not None


def worked_out(e: Node, scope: Mapping[str, Value]) -> bool:
    """Whether an expression rests on a number that is fixed in this function: what is worked out of it (`block_size / 32`) is no size of its own."""
    if e.type == "identifier":
        return isinstance(held := scope.get(text(e)), n.Const) and type(held.value) is int and held.value > 1
    return any(worked_out(x, scope) for x in e.named_children)


def class_constant(units: Sequence[Unit], name: str, value: Callable[[Node, dict[str, Value]], Value], of: Mapping[str, Value], deep: int = 6) -> Value:
    """A constant of a class, `wide::size`, where the file says `typedef Packed<float> wide;` and the class `static constexpr int size = 16 / sizeof(T);`,
    or the scope `of` it `using wide = Packed<float>;`."""
    if isinstance(known := of.get(name.partition("::")[0]), Written):
        name = f"{known.reason}::{name.partition('::')[2]}"
    found = _said_of(tuple(unit.text for unit in units), name)
    if found is None:
        return Unknown(name)
    said, given = found
    scope: dict[str, Value] = {
        p: build.const(int(x)) if x.isdigit() else x == "true" if x in ("true", "false") else Dtype(TYPES[x]) if x in TYPES else Unknown(x) for p, x in given}
    for other in dict.fromkeys(re.findall(r"(?<![\w:.])[A-Za-z_]\w*", said)):  # what it is worked out of is of the same class
        if deep and other not in scope and not isinstance(v := class_constant(units, f"{name.rpartition('::')[0]}::{other}", value, {}, deep - 1), Unknown):
            scope[other] = v
    try:
        return value(fragment(said), scope)
    except NotUnderstood:
        return Unknown(name)


_HEAD = re.compile(r"(?:template\s*<([^<>]*)>\s*)?\b(?:struct|class)\s+(?:alignas\s*\([^()]*\)\s*)?\Z")
LONGEST_HEAD = 400
"""Characters before the name of a class in which its template's parameters are looked for."""


@lru_cache(maxsize=1 << 12)
def _said_of(sources: tuple[bytes, ...], name: str) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """The text of a class's constant in these files, and what its class is given for each template parameter; None where they do not say."""
    owner, _, member = name.rpartition("::")
    words = _joined(sources)
    kind = _alias(words, owner) if re.fullmatch(r"\w+", owner) else owner
    plain, _, given = kind.rstrip("> ").partition("<")
    plain = plain.strip().rpartition("::")[2]
    begins = re.compile(rf"{re.escape(plain)}\b[^;{{}}]*\{{") if plain else None
    head, body = next(((head, m.end()) for m in begins.finditer(words) if (head := _HEAD.search(words, max(0, m.start() - LONGEST_HEAD), m.start()))),
                      (None, 0)) if begins is not None else (None, 0)
    said = re.compile(rf"static\s+constexpr\s+[\w:\s]*?\b{re.escape(member)}\s*=\s*([^;{{}}]+);").search(words, body) if head is not None and member else None
    if head is None or said is None:
        return None
    params = [x.split("=")[0].split()[-1] for x in (head[1] or "").split(",") if x.strip()]
    return said[1], tuple((p, x if x.isdigit() else _alias(words, x)) for p, x in zip(params, (x.strip() for x in given.split(",")), strict=False))


@lru_cache(maxsize=4)
def _joined(sources: tuple[bytes, ...]) -> str:
    return "\n".join(x.decode(errors="replace") for x in sources)


def _alias(words: str, name: str, deep: int = 4) -> str:
    """The type that a name stands for."""
    patterns = (rf"typedef\s+([^;{{}}]+?)\s+{re.escape(name)}\s*;", rf"using\s+{re.escape(name)}\s*=\s*([^;{{}}]+);")
    found = [m for each in patterns if (m := re.search(each, words)) is not None] if deep and name in words and name else []
    return _alias(words, min(found, key=lambda m: m.start())[1].strip(), deep - 1) if found else name


def combined(known: Known, op: str, a: Value, b: Value) -> Value:
    """What an operator of two operands gives."""
    if isinstance(a, Rank) and isinstance(b, n.Const) and op in ("==", "!="):
        a.of.of_rank(int(b.value))
        return op == "=="
    if op in ("&&", "and"):
        return False if a is False or b is False else b if a is True else a if b is True else [a, b]
    if op in ("||", "or"):
        return True if a is True or b is True else b if a is False else a if b is False else Either("one condition or another", (a, b))
    if isinstance(a, Dtype) and isinstance(b, Dtype):
        if op == "==" and not a.name:
            return Unknown("a dtype")
        return (a == b) == (op == "==")
    if isinstance(a, Array) and op in ("+", "-"):
        whole = b if isinstance(b, n.Expr) and is_number(b) else None
        if whole is not None and build.is_const(whole, 0):
            return a
        return a.part(begins=known.resolved(whole) if whole is not None and op == "+" else None)
    if op == "/" and (isinstance(a, Quotient) or isinstance(b, Quotient)):
        return unrounded(known, a, b)
    if op == "+" and (up := one_more(known, a, b) or one_more(known, b, a)) is not None:
        return up
    if not (isinstance(a, n.Expr) and isinstance(b, n.Expr) and is_number(a) and is_number(b)):
        return Unknown("arithmetic on what is not known")
    a, b = known.resolved(a), known.resolved(b)
    if op in _OPERATORS and not (op in "/%" and build.is_const(b, 0)):
        return _OPERATORS[op](a, b)
    if op in _ORDER:
        return build.compare(_ORDER[op], a, b)
    x, y = known.example(a), known.example(b)
    if op in ("<<", ">>") and x is not None and y is not None and 0 <= y < 31:
        return build.const(x << y if op == "<<" else x >> y)
    return Unknown("an operator")


def unrounded(known: Known, a: Value, b: Value) -> Value:
    """A division of floating-point numbers that were whole ones."""
    over, under = (x.over if isinstance(x, Quotient) and build.is_const(x.under, 1) else x for x in (a, b))
    if not (isinstance(over, n.Expr) and isinstance(under, n.Expr) and is_number(over) and is_number(under)) or build.is_const(under, 0):
        return Unknown("a division of what is not known")
    return Quotient(known.resolved(over), known.resolved(under))


def arithmetic(known: Known, name: str, args: Sequence[Value]) -> Value | None:
    """What a function of whole numbers gives, by its name; None for another one."""
    numbers = [a for a in args if isinstance(a, n.Expr) and is_number(a)]
    if name in ("ceil", "ceilf", "floor", "floorf") and len(args) == 1 and isinstance(args[0], Quotient):
        return (rounded_up if name.startswith("ceil") else floored)(args[0].over, args[0].under)
    if name in _PARSED:
        return known.fresh()
    if name == "gcd" and len(args) == 2:
        return divisor(known, args)
    if len(numbers) != 2 or len(args) != 2:
        return None
    return build.minimum(*numbers) if name == "min" else build.maximum(*numbers) if name == "max" else rounded_up(*numbers) if (
        name.lower() in _ROUNDED_UP) else None


def divisor(known: Known, args: Sequence[Value]) -> Value:
    """The greatest common divisor of numbers: a number of which nothing is known but that it divides each."""
    made = known.fresh()
    for number in args:
        if isinstance(number, n.Expr) and is_number(number) and not isinstance(number, n.Const):
            known.fact(build.compare("eq", build.mod(number, made), 0))
    return made
