"""Bindings: what a generic kernel is specialized with, as readable TOML.

    kernel = "mm_kernel_general"
    problem = "gemm"
    elsewhere = "zero"            # what masked loads give where the source does not say; left out: undefined
    recorded = true               # this is a launch as it was: it may hold values that the kernel never reads
    sizes = ["M", "N", "K"]
    facts = ["M >= 1", "K % 8 == 0"]
    grid = ["ceildiv(M, BLOCK_M) * ceildiv(N, BLOCK_N)"]
    absent = ["bias"]
    [metas]                       # compile-time values: integers, booleans, floats, texts, dtypes by name
    BLOCK_M = 128
    [dtypes]                      # dtypes of scalars that the source leaves open
    eps = "f32"
    [scalars]                     # run-time scalars: an expression over the sizes, or a number
    stride_am = "K"
    [tensors.A]                   # `name` is the problem's name where it differs
    shape = ["M", "K"]
    dtype = "bf16"
    [maps.A_map]                  # a tensor map that the kernel gets as a parameter: what it describes, its box, bytes of swizzle
    of = "A"
    box = [128, 64]
    swizzle = 128
    [options]
    num_warps = 8
    num_stages = 3
    [arrays]                      # shapes of shared and local arrays that the source declares flat
    As = [3, 128, 32]
    [heuristics]                  # metas that follow from the others, the sizes and their facts, and what is absent
    EVEN_K = "K % BLOCK_K == 0"
    [[configs]]                   # alternatives: metas and options that replace those above (`BINDING.toml#0` names the first)
    BLOCK_M = 64
    num_warps = 4

Every value is used, and of the type that its use asks for, or the binding is refused at the value's line (`kir.ir.bindings.binding_values`, what a
binding says in itself; `kir.ir.bindings.binding_uses`, what the kernel makes of it). A launch that `kir capture` recorded has a value for each
parameter of the kernel, whether the kernel reads it or not, and an extent for each axis of the grid that the host named: such a binding says
`recorded = true`, and these two are let pass. Whatever else is wrong in it is refused as anywhere. The option `threads` stands for `num_warps` where
a kernel is written for so many threads of a CTA (1: a scalar program). A scalar that is neither a size nor bound stays a run-time parameter. Strides
are row-major unless they are given (in elements).
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, Unpack, get_args, get_origin, get_type_hints

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Fields, KirError, Origin, did_you_mean, error, usage
from kir.base.toml_text import loads
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.names import unlike
from kir.ir.printer import name_text
from kir.ir.types import BOOL, DTYPES, I32, I64

Setting = int | float | bool | str
NO_TEXT = "this is no IR text: "
LAUNCH_OPTIONS = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg", "threads"})
"""Names in a configuration that are options of the launch, not metas."""


_STRICT = {"extra": "forbid", "strict": True}
"""How pydantic reads these classes, where a file does not fit them."""


@dataclass(frozen=True)
class Tensor:
    """A pointer or descriptor parameter: expressions over the sizes, an IR dtype, an alignment in bytes. `strides` are in elements. `exact` says
    that flat indices never leave their row, those that depend on data neither. Shape and dtype are left out where the source states them."""

    __pydantic_config__ = _STRICT
    shape: list[str | int] = field(default_factory=list)
    dtype: str = ""
    strides: list[str | int] | None = None
    name: str = ""
    role: str = ""
    align: int = 16
    exact: bool = False


@dataclass(frozen=True)
class Map:
    """A tensor map (CUtensorMap) that a kernel takes: the tensor (by its name in the kernel, or under [tensors] where the kernel has no pointer
    to it), the box in elements, slowest axis first, bytes of its swizzle, and other attributes of `map` in the IR. `name` is the program's name
    for it where that differs."""

    __pydantic_config__ = _STRICT
    of: str
    box: list[int]
    swizzle: int = 0
    name: str = ""
    attrs: dict[str, Setting] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """The TOML text that a binding was read from, and which of its configurations was taken."""

    file: str
    text: str
    number: int | None = None

    def at(self, steps: tuple[str | int, ...], key: bool) -> Origin:
        """Where a value (or its key) stands: of one that is not there, the table that it would be in, and at last the file's first line."""
        from kir.ir.grammar.toml_places import places

        found = places(self.text)
        if steps[:1] in (("metas",), ("options",)) and len(steps) > 1:
            chosen = ("configs", self.number, *steps[1:]) if self.number is not None else steps
            computed = ("heuristics", *steps[1:])
            steps = chosen if chosen in found else steps if steps in found else computed if computed in found else steps
        whole = steps
        while steps and steps not in found:
            steps = steps[:-1]
        if not steps:
            return Origin(self.file, 1, 1, 1, len(self.text.partition("\n")[0].rstrip()) + 1)
        span = found[steps]
        return Origin.of(self.file, self.text, *(span.key if key or whole != steps else span.value))


@dataclass(frozen=True)
class Binding:
    """One specialization of a kernel. Frozen; unknown fields are errors. `elsewhere` is what a masked load gives where its mask does not
    hold and the source does not say: undefined, or `zero`, which is what compiled code gives."""

    __pydantic_config__ = _STRICT
    source: ClassVar[Source | None] = None
    """What it was read from; None for one made in Python. `changed` keeps it."""
    computed: ClassVar[frozenset[str]] = frozenset()
    """The metas whose values its heuristics gave."""
    unsaid: ClassVar[frozenset[str]] = frozenset()
    """Facts that were taken for true because nothing says them. `changed` keeps them."""
    joined: ClassVar[frozenset[tuple[str, ...]]] = frozenset()
    """Tensors for which the host code passes one and the same, or, with `PART` behind them, parts of one. `changed` keeps them."""
    kernel: str = ""
    problem: str = ""
    elsewhere: Literal["", "zero"] = ""
    recorded: bool = False
    sizes: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    grid: list[str | int] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    metas: dict[str, Setting] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    scalars: dict[str, str | int | float] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    options: dict[str, Setting] = field(default_factory=dict)
    arrays: dict[str, list[int]] = field(default_factory=dict)
    maps: dict[str, Map] = field(default_factory=dict)
    heuristics: dict[str, str] = field(default_factory=dict)
    configs: list[dict[str, Setting]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Binding:
        """The binding of a TOML file; `FILE#2` is that of its third configuration. Raises KirError KIR-F010 with the field that is wrong,
        and KIR-F012 for a skeleton that is not filled in."""
        name, mark, number = str(path).rpartition("#")
        if mark and number.isdigit() and not path.exists():
            whole = cls.read(Path(name))
            return whole.configured(int(number))
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError as bad:
            beside = [each.name for each in path.parent.glob("*.toml")] if path.parent.is_dir() else []
            raise usage("KIR-F010", f"there is no binding {path}", attempt=did_you_mean(path.name, beside) or "kir bind FILE -o, which writes one") from bad
        except IsADirectoryError as bad:
            raise usage("KIR-F010", f"the binding {path} is a folder", needs="a TOML file") from bad
        except OSError as bad:
            raise usage("KIR-F010", f"the binding {path} cannot be read: {(bad.strerror or bad.__class__.__name__).lower()}") from bad
        except UnicodeDecodeError as bad:
            raise usage("KIR-F010", f"the binding {path} is no text: its byte {bad.start} is not UTF-8", needs="a TOML file") from bad
        found = cls.parse(text, str(path))
        if left := unfilled(found):
            line = next((number for number, row in enumerate(text.splitlines(), start=1) if '"?"' in row.partition("#")[0]), 1)
            column = text.splitlines()[line - 1].find('"?"') + 1
            raise error("KIR-F012", f"the binding is not filled in yet: {', '.join(left)}", origin=Origin(str(path), line, column, line, column + 3),
                        needs="numbers, dtypes, and expressions over the sizes, in the places of \"?\"; `kir explain your-own-kernel` goes through them")
        return found

    def configured(self, number: int) -> Binding:
        """The binding with the metas and options of a configuration, without the others. Raises KirError KIR-F010 when there is none
        of that number."""
        if not 0 <= number < len(self.configs):
            raise error("KIR-F010", f"the binding of '{self.kernel}' has no configuration {number}", origin=self.at("configs"),
                        needs=f"0 to {len(self.configs) - 1}" if self.configs else "a binding with [[configs]]")
        chosen = self.configs[number]
        metas = {**self.metas, **{k: v for k, v in chosen.items() if k not in LAUNCH_OPTIONS}}
        options = {**self.options, **{k: v for k, v in chosen.items() if k in LAUNCH_OPTIONS}}
        made = self.changed(metas=metas, options=options, configs=[], heuristics={k: v for k, v in self.heuristics.items() if k not in chosen})
        return made._read_from(replace(self.source, number=number) if self.source is not None else None)

    def changed(self, **fields: Any) -> Binding:
        """The binding with fields replaced, of which one still knows where the others were written."""
        return replace(self, **fields)._read_from(self.source).assuming(self.unsaid).joining(self.joined)

    def assuming(self, facts: frozenset[str]) -> Binding:
        """The binding, some of whose facts nothing says."""
        if facts:
            object.__setattr__(self, "unsaid", facts & frozenset(self.facts))
        return self

    def settled(self, metas: dict[str, Setting]) -> Binding:
        """The binding with its heuristics worked out: `metas` are all that there are then."""
        made = self.changed(metas=metas, heuristics={})
        object.__setattr__(made, "computed", frozenset(metas) - frozenset(self.metas))
        return made

    def joining(self, pairs: frozenset[tuple[str, ...]]) -> Binding:
        """The binding, some of whose tensors are one."""
        if pairs:
            object.__setattr__(self, "joined", pairs)
        return self

    def _read_from(self, source: Source | None) -> Binding:
        if source is not None:
            object.__setattr__(self, "source", source)
        return self

    def at(self, *steps: str | int, key: bool = False) -> Origin | None:
        """Where in its file a value stands (`at("tensors", "X", "shape", 1)`), or its key; None for a binding that was made in Python."""
        return self.source.at(steps, key) if self.source is not None else None

    def refusal(self, steps: tuple[str | int, ...], id: str, message: str, *, key: bool = False, **more: Unpack[Fields]) -> KirError:
        """An error at a value of the binding, to be raised by the caller."""
        more["origin"] = self.at(*steps, key=key)
        return error(id, message, **more)

    @classmethod
    def parse(cls, text: str, file: str = "<binding>") -> Binding:
        """The binding of a TOML text. Raises KirError KIR-F010."""
        try:
            held = loads(text.removeprefix("\ufeff"))
        except tomllib.TOMLDecodeError as bad:
            line, column = _place_of(str(bad), text)
            raise error("KIR-F010", f"{file} is no TOML: {str(bad).partition(' (at ')[0].lower()}", needs="a binding as `kir bind` writes one",
                        origin=Origin(file, line, column, line, column + 1) if line else None) from bad
        own: Any = cls
        if _fits(held, own):
            return cls(**{name: _made(value, hints(own)[name]) for name, value in held.items()})._read_from(Source(file, text))
        raise _misfit(held, Source(file, text))

    def text(self) -> str:
        """The binding as TOML; `parse` is its inverse."""
        lines: list[str] = []
        for name in ("kernel", "problem", "elsewhere", "sizes", "facts", "grid", "absent"):
            if getattr(self, name):
                lines.append(f"{name} = {json.dumps(getattr(self, name))}")
        if self.recorded:
            lines.append("recorded = true")
        for name in ("metas", "dtypes", "scalars", "options", "arrays", "heuristics"):
            items: Mapping[str, Setting] = getattr(self, name)
            if items:
                lines += ["", f"[{name}]", *(f"{_key(k)} = {_value(v)}" for k, v in items.items())]
        for name, t in self.tensors.items():
            lines += ["", f"[tensors.{_key(name)}]"]
            lines += [f"{f.name} = {_value(value)}" for f in fields(t) if (value := getattr(t, f.name)) != _default(f)]
        for name, m in self.maps.items():
            lines += ["", f"[maps.{_key(name)}]", f"of = {json.dumps(m.of)}", f"box = {json.dumps(m.box)}"]
            lines += [f"swizzle = {m.swizzle}"] if m.swizzle else []
            lines += [f"name = {json.dumps(m.name)}"] if m.name else []
            lines += [f"attrs = {{ {', '.join(f'{k} = {_value(v)}' for k, v in m.attrs.items())} }}"] if m.attrs else []
        for one in self.configs:
            lines += ["", "[[configs]]", *(f"{_key(k)} = {_value(v)}" for k, v in one.items())]
        return "\n".join(lines).lstrip("\n") + "\n"


def _key(name: str) -> str:
    """A name as a key of TOML, which takes letters of ASCII alone as they are."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


@cache
def hints(cls: Any) -> Mapping[str, Any]:
    """The types of a class's fields, by name."""
    return {f.name: kinds[f.name] for kinds in (get_type_hints(cls),) for f in fields(cls)}


def _default(f: Any) -> object:
    return f.default if f.default is not MISSING else f.default_factory() if f.default_factory is not MISSING else MISSING


def _fits(value: object, kind: Any) -> bool:
    """Whether a value of a TOML file is of a type, to the letter."""
    origin, args = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        known = hints(kind)
        needed = {f.name for f in fields(kind) if _default(f) is MISSING}
        return isinstance(value, dict) and needed <= set(value) <= set(known) and all(_fits(v, known[k]) for k, v in value.items())
    if origin is list:
        return type(value) is list and all(_fits(each, args[0]) for each in value)
    if origin is dict:
        return type(value) is dict and all(_fits(each, args[1]) for each in value.values())
    if origin is Literal:
        return value in args
    return any(_fits(value, each) for each in args) if origin is UnionType else type(value) is kind


def _made(value: Any, kind: Any) -> Any:
    """A value that fits a type, as an instance of it."""
    of = get_args(kind)[1] if get_origin(kind) is dict else None
    return {name: of(**each) for name, each in value.items()} if isinstance(of, type) and is_dataclass(of) else value


def _misfit(held: Mapping[str, object], source: Source) -> KirError:
    """What is wrong with the content of a file, in the words of pydantic, which takes a sixteenth of a second to load."""
    from pydantic import TypeAdapter, ValidationError

    try:
        TypeAdapter(Binding).validate_json(json.dumps(held, default=lambda date: [str(date)]))
    except ValidationError as bad:
        first = bad.errors()[0]
        known = [name for cls in (Binding, Tensor, Map) for name in hints(cls)]
        unknown = first["type"] in ("extra_forbidden", "unexpected_keyword_argument")
        hint = did_you_mean(str(first["loc"][-1]), known) if unknown else ""
        return error("KIR-F010", f"{source.file}: field '{'.'.join(map(str, first['loc']))}': {_WORDS.get(first['type'], first['msg'].lower())}", attempt=hint,
                     origin=source.at(first["loc"], unknown))
    raise AssertionError(f"{source.file} fits")


def _place_of(words: str, text: str) -> tuple[int, int]:
    """Line and column that tomllib's words end with, which may be the last of the text; zeros where they name none."""
    if words.endswith("(at end of document)") and (lines := text.rstrip().splitlines()):
        return len(lines), len(lines[-1])
    found = re.search(r"at line (\d+), column (\d+)", words)
    return (int(found[1]), int(found[2])) if found else (0, 0)


_WORDS = {"list_type": "it takes a list, in brackets", "dict_type": "it takes a table", "string_type": "it takes a text, in quotes"}
"""What a field takes, in TOML's words."""



def unfilled(binding: Binding) -> tuple[str, ...]:
    """The fields of a skeleton that a person has not filled in: those that still hold a question mark."""
    def open_in(value: object) -> bool:
        return value == "?" or (isinstance(value, (list, tuple)) and any(open_in(each) for each in value))

    found = [name for name in ("sizes", "facts", "grid") if open_in(getattr(binding, name))]
    for table in ("metas", "dtypes", "scalars", "options"):
        found += [f"{table}.{name}" for name, value in getattr(binding, table).items() if open_in(value)]
    found += [f"tensors.{name}.{field}" for name, t in binding.tensors.items() for field in ("shape", "dtype", "strides") if open_in(getattr(t, field))]
    return tuple(found)


def _value(v: object) -> str:
    if isinstance(v, float) and v != v:
        return "nan"
    if isinstance(v, float) and v in (float("inf"), float("-inf")):
        return "inf" if v > 0 else "-inf"
    return json.dumps(v)


def expressions(texts: Mapping[str, str | int], sizes: Mapping[str, n.Expr], what: str,
                at: Callable[[str], Origin | None] = lambda key: None) -> dict[str, n.Expr]:
    """IR expressions of texts over named integers, with those names replaced. Raises KirError KIR-F011 with the text that is wrong, where it stands."""
    from kir.ir.visit import substitute

    out: dict[str, n.Expr] = {}
    header, axis = "".join(f"  size {name_text(k)}: i32\n" for k in sizes), unlike("x", set(sizes))
    for key, text in texts.items():
        if isinstance(text, int) and not -(2**31) <= text < 2**31:
            out[key] = build.const(text, I64)
            continue
        if (plain := plain_expression(str(text), sizes)) is not None and plain.type == I32:
            out[key] = plain
            continue
        from kir.ir.parser import parse_program

        try:
            program = parse_program(f"kir 1\nprogram p\n{header}kernel k grid ({axis}: {text}) threads 1\n  pass\n")
            _within(str(text))
            if "\n" in str(text) or len(program.kernels) != 1 or len(program.kernels[0].grid) != 1:
                raise error("KIR-F011", "this is more than one expression")
        except KirError as bad:
            raise error(
                "KIR-F011",
                f"{what} '{key}' = '{text}': {bad.diagnostics[0].message.removeprefix(NO_TEXT)}",
                origin=at(key),
                needs=f"an expression over {', '.join(sizes) or 'numbers'}",
            ) from bad
        out[key] = substitute(program.kernels[0].grid[0].extent, sizes)
    return out


def _within(text: str) -> None:
    """Raises KirError for a number without a dtype that 32 bits do not hold: as an i32 it would be another."""
    for number in re.findall(r"(?<![\w.:])\d+(?![\w.:])", text):
        if int(number) >= 2**31:
            raise error("KIR-F011", f"{number} does not fit in 32 bits; {number}:i64 does")


_OPERATIONS: Mapping[type, str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floordiv", ast.Mod: "mod", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt",
    ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}


def plain_expression(text: str, sizes: Mapping[str, n.Expr]) -> n.Expr | None:
    """An expression of nothing but sizes, numbers, arithmetic and one comparison, which Python spells as the IR does; None for any other,
    whose parser takes a twentieth of a second to load."""
    try:
        return _plain(ast.parse(text, mode="eval").body, sizes)
    except (SyntaxError, ValueError, RecursionError, KirError):
        return None


def _plain(e: ast.expr, sizes: Mapping[str, n.Expr]) -> n.Expr | None:
    name: str | None
    match e:
        case ast.Constant(value=int() as value) if not isinstance(value, bool) and value < 1 << 31:
            return build.const(value)
        case ast.Name(id=size):
            found = sizes.get(size)
            return found if found is not None and found.type == I32 else None
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
            name, a, b = _OPERATIONS.get(type(op)), _plain(left, sizes), _plain(right, sizes)
        case ast.Call(func=ast.Name(id=function), args=[left, right], keywords=[]) if function in ("ceildiv", "min", "max"):
            name, a, b = function, _plain(left, sizes), _plain(right, sizes)
        case _:
            return None
    return None if name is None or a is None or b is None or a.type != I32 or b.type != I32 else build.binary(name, a, b)


def fact_expressions(texts: list[str], sizes: Mapping[str, n.Expr], at: Callable[[int], Origin | None] = lambda number: None) -> tuple[n.Expr, ...]:
    """Facts over the sizes. Raises KirError KIR-F011, at the fact that is wrong."""
    from kir.ir.visit import substitute

    header, axis = "".join(f"  size {name_text(k)}: i32\n" for k in sizes), unlike("x", set(sizes))
    out = []
    for number, text in enumerate(texts):
        if (plain := plain_expression(text, sizes)) is not None and plain.type == BOOL:
            out.append(plain)
            continue
        from kir.ir.parser import parse_program

        try:
            program = parse_program(f"kir 1\nprogram p\n{header}  fact {text}\nkernel k grid ({axis}: 1) threads 1\n  pass\n")
            _within(text)
            if "\n" in text or len(program.facts) != 1:
                raise error("KIR-F011", "this is more than one condition")
        except KirError as bad:
            said = bad.diagnostics[0].message.removeprefix(NO_TEXT)
            raise error("KIR-F011", f"fact '{text}': {said}", origin=at(number), needs=f"a condition over {', '.join(sizes) or 'numbers'}",
                        attempt="name what it speaks of under sizes") from bad
        out.append(substitute(program.facts[0], sizes))
    return tuple(out)


def check_dtype(name: str, where: str, origin: Origin | None = None) -> None:
    """Raises KirError KIR-F011 for a dtype that the IR does not have."""
    if name not in DTYPES:
        hint = did_you_mean(name, DTYPES)
        raise error("KIR-F011", f"{where}: there is no dtype '{name}'", origin=origin, attempt=hint, needs="" if hint else f"one of {', '.join(DTYPES)}")
