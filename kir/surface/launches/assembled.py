"""A binding from a kernel's skeleton and a launch that host code shows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import LAUNCH_OPTIONS, Binding, Setting, Tensor, unfilled
from kir.ir.printer import expr_text
from kir.ir.types import BOOL, DTYPES, I32
from kir.ir.visit import names_read, substitute
from kir.surface.launches.alike import AS_SEEN, as_the_call_has_them, shared_out
from kir.surface.launches.record import HostLaunch
from kir.surface.launches.values import STRIDING, Array, Dtype, Known, Unknown, Value, is_number, variables

UNKNOWN = "?"
LONG = 16
"""From which compile-time value on a length that is a multiple of it is taken to be so because of it."""
_RESERVED = frozenset({"size", "fact", "kernel", "program", "grid", "threads", "min", "max", "let", "for", "if", "in", "out", "inout", "scalar", "pass", "true",
                       "false", "step", "at", "to", "load", "store", "barrier", "clip", "cast", "else", "meta"})
"""Words that no size is called by."""


@dataclass(frozen=True)
class Assumed:
    """What was taken for true because nothing says it: the text, and the field of the binding that it went into (() for none)."""

    text: str
    field: tuple[str, ...] = ()


def in_words(assumed: Iterable[Assumed]) -> list[str]:
    """What was assumed, for people: of several that are the same it is said once."""
    out: dict[str, list[str]] = {}
    for each in assumed:
        name, _, value = each.text.partition(" is ")
        alike = bool(value) and not {*name, *value} & {" ", ","}
        out.setdefault(f"= {value}" if alike else each.text, []).append(name if alike else each.text)
    return [told[0] if not key.startswith("= ") else f"{told[0]} is {key[2:]}" if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]} are {key[2:]}"
            for key, told in out.items()]


@dataclass(frozen=True)
class Found:
    """A binding that the host code at `place` gives, what it left open ("?" in the binding), and what was assumed where nothing says it.
    `examples` are sizes as a call that was seen has them, `numbers` its other arguments, `tuned` the compile-time values that it leaves to a tuner,
    `guessed` the tensors whose last axes alone the host code speaks of, `others` what other launches say otherwise, or what of recorded calls nothing
    fits."""

    binding: Binding
    place: str
    assumed: tuple[Assumed, ...] = ()
    examples: Mapping[str, int] | None = None
    numbers: Mapping[str, float] | None = None
    tuned: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def open(self) -> tuple[str, ...]:
        """The fields that still hold a question mark."""
        return unfilled(self.binding)


def assembled(skeleton: Binding, launch: HostLaunch, named: Mapping[str, Value], metas: Mapping[str, Value] | None = None,
              usual: Mapping[str, int] | None = None, in_rows: Collection[str] = ()) -> Found:
    """The skeleton with what a launch says. `named` are its arguments by the kernel's parameters, `metas` further compile-time values; `usual` is what
    some of them are where nothing says how large they are. Tensors `in_rows` have an axis whose stride the launch does not pass."""
    made = _Assembly(skeleton, launch, named, metas or {}, usual or {})
    for name in in_rows:
        a = made.named.get(name)
        strided = sorted(a.stepped) if isinstance(a, Array) and a.shape is None and a.turned is None and a.count is None else []
        if isinstance(a, Array) and len(strided) > 1 and strided == list(range(len(strided))) and all(0 <= k < len(strided) for k in a.asked):
            a.of_rank(len(strided) + 1)
    return made.found()


def as_called(skeleton: Binding, launch: HostLaunch, given: Mapping[str, Value], sizes: Iterable[str],
              usual: Mapping[str, int] | None = None) -> Found:
    """The skeleton of a kernel that a factory makes, with what the factory is `given`: these arguments as sizes of their own names, the others as
    compile-time values; `usual` is what some of them are where nothing says how large they are."""
    made = _Assembly(skeleton, launch, {}, {k: v for k, v in given.items() if k not in sizes}, usual or {})
    metas, absent = made._metas()
    metas = {k: _width(metas.get(k.removesuffix("_bytes"))) or v if v == UNKNOWN and k.endswith("_bytes") else v for k, v in metas.items() if k not in sizes}
    named = [*dict.fromkeys([*(k for k in skeleton.metas if k in sizes), *skeleton.sizes])]
    examples = {k: e for k in named if isinstance(v := given.get(k), n.Expr) and (e := launch.known.example(v)) is not None}
    kept = made.facts_on(named, {k: v for k, v in given.items() if k not in sizes})
    binding = skeleton.changed(sizes=named, facts=[*(f"{x} >= 1" for x in named), *kept], metas=metas, absent=[*skeleton.absent, *absent])
    return Found(binding, launch.place, tuple(made.assumed), examples)


def _width(dtype: Setting | None) -> int:
    """Bytes of an element of a dtype; 0 for what is none."""
    return DTYPES[dtype].bits // 8 if isinstance(dtype, str) and dtype in DTYPES else 0


class _Assembly:
    def __init__(self, skeleton: Binding, launch: HostLaunch, named: Mapping[str, Value], metas: Mapping[str, Value], usual: Mapping[str, int]) -> None:
        self.skeleton, self.launch, self.known = skeleton, launch, launch.known
        self.named = {k: self._typed(k, v) for k, v in named.items()}
        self.given = {**self.named, **metas}
        self.assumed: list[Assumed] = []
        self.usual = usual
        self.pins = 1
        """How many sizes the compile-time values follow from that no call shows."""
        self.open_conditions: dict[str, n.Expr] = {}
        """Compile-time values that are conditions on sizes, which nothing decides."""
        self.sizes: dict[str, str] = {}
        """Names of the sizes by the host's variables."""
        self.taken = {*skeleton.tensors, *skeleton.metas, *skeleton.heuristics, *(k for c in skeleton.configs for k in c), *LAUNCH_OPTIONS, *_RESERVED}

    def _typed(self, name: str, v: Value) -> Value:
        """An argument of the host's, as the kernel takes it."""
        array, number = getattr(v, "array", None), getattr(v, "number", None)
        if name in self.skeleton.tensors and callable(array):  # a tensor, even if host code compared it with a number
            made: Value = array()
            return made
        if name in self.skeleton.tensors and isinstance(v, Unknown):
            return Array(self.known, name)  # a tensor for certain, of which nothing is known
        if name in self.skeleton.scalars and callable(number) and getattr(v, "array_", None) is None:
            made = number()
            return made
        return v

    def found(self) -> Found:
        """The binding, with its sizes named."""
        arrays = {k: v for k, v in self.named.items() if isinstance(v, Array)}
        self._dense_rows(arrays)
        for a in arrays.values():
            a.settle()
        alike = as_the_call_has_them(self.known, arrays, self.named.values(), self.launch.grid)
        self._written_twice(arrays)
        for name in self.skeleton.scalars:
            if is_number(v := self.named.get(name)):
                self.known.called(v, name, 1)
        metas, more = self._metas()
        tensors, absent = self._tensors(), [k for k in self.skeleton.tensors if k in self.named and self.named[k] is None]
        scalars = {k: s for k, v in self.skeleton.scalars.items() if (s := self._scalar(k, v)) is not None}
        whole = {k: self._text(v) for k in self.skeleton.dtypes if is_number(v := self.named.get(k)) and isinstance(v, n.Expr) and not isinstance(v, n.Const)}
        scalars |= whole  # a number of the host's is one of the kernel's, whose dtype the source leaves open
        options = {**self.skeleton.options, **{k: int(e.value) for k, v in self.named.items() if k in LAUNCH_OPTIONS and isinstance(e := v, n.Const)}}
        sizes = list(dict.fromkeys([*self.sizes.values(), *self.skeleton.sizes]))
        grid = self._grid()
        sizes = list(dict.fromkeys([*self.sizes.values(), *sizes]))
        binding = self.skeleton.changed(
            sizes=sizes, facts=self._facts(sizes), grid=grid, absent=[*self.skeleton.absent, *absent, *more], metas=metas, scalars=scalars, tensors=tensors,
            dtypes={k: v for k, v in self.skeleton.dtypes.items() if k not in whole}, options=options)
        binding = binding.joining(frozenset(self._shared(arrays, a, b, tensors) for a, b in combinations(arrays, 2) if arrays[a].memory is arrays[b].memory))
        names = {v: k for k, v in self.sizes.items()}
        held = {**self.launch.seen, **{x: e for x, e in self.known.examples.items() if x not in self.known.assumed}}
        examples = {name: held[x] for name in sizes if (x := names.get(name, "")) in held}
        self.assumed += [Assumed(f"{k} has {' x '.join(map(str, tensors[k].shape))} elements, {AS_SEEN}") for k in alike if k in tensors]
        self.assumed += [Assumed(f"{k} is false, as nothing promises {self._text(e)}", ("metas", k)) for k, e in self.open_conditions.items()]
        self.assumed += [Assumed(x) for x in dict.fromkeys(self.known.remarks)]
        self.assumed += [Assumed(f"{self.sizes[x]} up to {self.known.examples[x]}") for x in self.known.assumed if x in self.sizes]
        return Found(binding, self.launch.place, tuple(self.assumed), examples, {k: v for k, v in self.named.items() if isinstance(v, float)},
                     tuple(k for k in self.skeleton.metas if k not in self.given), tuple(k for k, a in arrays.items() if a.guessed))

    def _dense_rows(self, arrays: Mapping[str, Array]) -> None:
        """A step that is passed unseen and bears a tensor's name (`cos_row_stride`) is the length of that tensor's rows."""
        for name in self.skeleton.scalars:
            of = next((k for k in arrays if re.fullmatch(rf"{re.escape(k)}_?(row_)?stride(_row)?", name, re.IGNORECASE)), None)
            if of is not None and isinstance(self.named.get(name), Unknown) and arrays[of].shape is None and arrays[of].turned is None:
                self.named[name] = arrays[of].stride(0)
                self.assumed.append(Assumed(f"{name} is the length of a row of {of}", ("scalars", name)))

    def _written_twice(self, arrays: Mapping[str, Array]) -> None:
        """A length that a call writes out, which nothing else that is passed tells, and that is a number which the kernel is passed, stays that number: as a
        size of its own it would be another one than the kernel's. So does, where no call of the launching function is shown, one that is a compile-time
        value, one more, or so many times as much; and one that is written beside a tensor which a caller hands in: it is so in every call. Where all that the
        kernel is passed are written numbers, every length is."""
        steps = [e for k, e in self.named.items() if STRIDING.search(k) and isinstance(e, n.Var)]  # of a row: that it is as long says the length itself
        told = [e for e in (*self.named.values(), *self.launch.grid) if isinstance(e, n.Expr)]
        given = {k: self.known.resolved(v) for k, v in self.given.items() if isinstance(v, n.Expr)}
        numbers = {int(e.value) for k in self.skeleton.scalars if isinstance(e := given.get(k), n.Const) and isinstance(e.value, int)}
        shown = any(rank == 0 and x in self.known.examples and x not in self.known.assumed for x, (rank, _) in self.known.names.items())
        metas = [e.value for k in self.skeleton.metas if isinstance(e := given.get(k), n.Const) and type(e.value) is int and e.value >= 8] if not shown else []
        apart = frozenset[str]().union(*(names_read(self.known.resolved(e)) for e in told if not any(e is x for x in steps)))
        used = apart.union(*(names_read(self.known.resolved(e)) for e in steps))
        handed = any(not a.memory.begun and a.memory.like is None and a.memory.turned is None for a in arrays.values())
        for d in [self.known.resolved(d) for a in arrays.values() for d in a.shape or ()]:
            value = self.known.examples.get(d.name) if isinstance(d, n.Var) and d.name not in apart else None
            if value is None or not isinstance(d, n.Var):
                continue
            stays = not apart or value in numbers or (d.name not in used and (
                (handed and d.name not in self.known.names) or any(value in (m, m + 1) or (m >= LONG and value % m == 0) for m in metas)))
            if stays:
                self.known.same(d, build.const(value))

    def _shared(self, arrays: Mapping[str, Array], a: str, b: str, tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
        """Two tensors of one memory: both are all of it; or parts, the first of which begins so many elements before the second, where that is known."""
        x, y = arrays[a], arrays[b]
        if x is y:
            return a, b
        alike = tensors[a].dtype == tensors[b].dtype == x.memory.dtype if a in tensors and b in tensors else False
        if not alike or x.begins is None or y.begins is None or x.begins.type != y.begins.type:
            return a, b, "part"
        between = build.sub(y.begins, x.begins)
        signs = {c > 0 for c in build.polynomial(between).values()}
        if len(signs) != 1:
            return a, b, "part"
        return (a, b, str(self._text(between))) if signs == {True} else (b, a, str(self._text(build.negate(between))))

    def _tensors(self) -> dict[str, Tensor]:
        arrays = {k: v for k, v in self.named.items() if isinstance(v, Array)}
        known = [a.dtype for a in arrays.values() if a.dtype in DTYPES and DTYPES[a.dtype].is_float and DTYPES[a.dtype].bits > 8]
        said = {id(x): t.dtype for name, t in self.skeleton.tensors.items() if t.dtype != UNKNOWN and name in arrays for x in _of_one_dtype(arrays[name])}
        out: dict[str, Tensor] = {}
        for name, t in self.skeleton.tensors.items():
            v = self.named.get(name)
            if v is None and name in self.named:
                continue
            if not isinstance(v, Array):
                out[name] = t
                continue
            dtype = t.dtype if t.dtype != UNKNOWN else v.dtype
            if dtype in ("", UNKNOWN):  # of a tensor that is made like it, or that it is made like, the kernel may say more
                dtype = next((said[id(x)] for x in _of_one_dtype(v) if id(x) in said), dtype)
            if dtype in ("", UNKNOWN):
                dtype = known[0] if known else "f32"
                self.assumed.append(Assumed(f"{name} is {dtype}", ("tensors", name, "dtype")))
            shape = [self._text(d) for d in v.shape] if v.shape is not None else t.shape
            strides = [self._text(s) for s in v.strides] if v.strides is not None else None
            out[name] = replace(t, shape=shape, dtype=dtype, strides=strides)
        return out

    def _metas(self) -> tuple[dict[str, Setting], list[str]]:
        """Compile-time values, and those that are None."""
        out: dict[str, Setting] = {}
        absent = []
        asked = [self.given[k] for k in self.skeleton.metas if k in self.given]
        numbers = [e for v in asked if isinstance(e := number() if callable(number := getattr(v, "number", None)) else v, n.Expr) and is_number(e)]
        self.pins = len({x for e in numbers for x in self.known.unseen(e)})
        for name, default in self.skeleton.metas.items():
            v = self.given.get(name, Unknown())
            if v is None:
                absent.append(name)
                continue
            tuned = name in {k for c in self.skeleton.configs for k in c}
            before, capped = len(self.known.assumed), isinstance(v, n.Expr) and is_number(v) and self.known.capped(v) is not None
            made = default if tuned and not isinstance(v, n.Const) else self._setting(v, self.usual.get(name, 0))
            if isinstance(v, n.Expr) and v.type == BOOL and not isinstance(self.known.resolved(v), n.Const):
                self.open_conditions[name] = v
            pinned = isinstance(v, n.Expr) and not {*variables(v)}.isdisjoint(self.known.assumed)  # here, or by what came before
            if len(self.known.assumed) > before or capped or pinned:
                self.assumed.append(Assumed(f"{name} is {made}", ("metas", name)))
            if isinstance(v, Dtype) and not v.name:
                self.assumed.append(Assumed(f"{name} is f32", ("metas", name)))
            out[name] = made if made is not None else default
        return out, absent

    def _setting(self, v: Value, usual: int = 0) -> Setting | None:
        number, default = getattr(v, "number", None), getattr(v, "default", None)
        if callable(number):
            v = default if isinstance(default, float) else number()
        if isinstance(v, Dtype):
            return v.name or "f32"
        if isinstance(v, (bool, str, float)):
            return v
        if isinstance(v, n.Expr):
            e = self.known.resolved(v)
            if isinstance(e, n.Const) and isinstance(e.value, (bool, int)):
                return e.value
            if e.type == BOOL:
                return False
            if isinstance(e, n.Expr) and is_number(e):
                atoms = {x for term in build.polynomial(e) for x in term}
                short = any(len(a.shape or ()) > 2 and not atoms.isdisjoint(a.shape or ()) for a in self.named.values() if isinstance(a, Array))
                value = self.known.pinned(e, max(self.pins, 2) if short else self.pins, usual)  # tensors of many axes have short ones
                for a in self.named.values() if value == usual == 1 else ():
                    if isinstance(a, Array) and e in {*map(self.known.resolved, a.shape or ())}:
                        a.guessed = True  # one that a kernel treats apart where it is 1 may stand for an axis that was added in front
                shared_out(self.known, e, value)
                self.known.same(e, build.const(value))
                return value
        return None

    def _scalar(self, name: str, default: str | int | float) -> str | int | float | None:
        v = self.named.get(name, Unknown())
        if is_number(v) and isinstance(v, n.Expr):
            return self._text(v)
        if isinstance(v, bool):
            return int(v)
        return None if not isinstance(v, Unknown) or default == UNKNOWN else default

    def _grid(self) -> list[str | int]:
        axes = len(self.skeleton.grid)
        extents: list[str | int] = []
        for each in self.launch.grid[:3]:
            if callable(number := getattr(each, "number", None)):
                each = number()
            extents.append(self._text(each) if is_number(each) and isinstance(each, n.Expr) else UNKNOWN)
        while len(extents) > axes and extents[-1] == 1:
            extents.pop()
        return [*extents, *([1] * (axes - len(extents)))] if self.launch.grid else list(self.skeleton.grid)

    def _text(self, e: n.Expr) -> str | int:
        """An expression over the named sizes."""
        e = self.known.resolved(e)
        if isinstance(e, n.Const):
            return int(e.value)
        own = [x for x in dict.fromkeys(variables(e)) if x.startswith("host_")]
        for x in own:
            if x not in self.sizes:
                self.sizes[x] = self._name(x)
        return expr_text(_canonical(substitute(e, {x: n.Var(self.sizes[x], I32) for x in own})))

    def _name(self, variable: str) -> str:
        hint = re.sub(r"\W", "_", self.known.names.get(variable, (9, ""))[1]).strip("_") or "n"
        hint = hint if not hint[0].isdigit() else f"n{hint}"
        name, k = hint, 1
        other = self.named.get(hint) if hint in self.skeleton.scalars else None
        clash = isinstance(other, n.Expr) and is_number(other) and self.known.resolved(other) != n.Var(variable, I32)  # a parameter of the name is another
        while name in self.taken or name in self.sizes.values() or (clash and name == hint):
            k += 1
            name = f"{hint}_{k}" if hint not in _RESERVED else f"n_{hint}"
        return name

    def facts_on(self, sizes: Sequence[str], given: Mapping[str, Value]) -> list[str]:
        """What the host promises of sizes that it calls as the kernel does: what it checks, and what the numbers that it gives are made of."""
        called = {x: name for x, (_, name) in self.known.names.items() if name in sizes}
        made = [build.compare("eq", e, self.known.pinned(e)) for e in given.values() if isinstance(e, n.Binary) and is_number(e)]
        out = []
        for f in (*map(self.known.resolved, self.known.facts), *made):
            own = set(variables(f))
            if own and own <= called.keys():
                out.append(expr_text(substitute(f, {x: n.Var(called[x], I32) for x in own})))
        return list(dict.fromkeys(out))

    def _facts(self, sizes: Iterable[str]) -> list[str]:
        out = [f"{x} >= 1" for x in sizes if not any(re.match(rf"{re.escape(x)}\s*>=", f) for f in self.skeleton.facts)]
        for f in self.known.facts:
            f = self.known.resolved(f)
            own = [x for x in variables(f) if x.startswith("host_")]
            if own and all(x in self.sizes for x in own) and isinstance(f, n.Binary) and f.a != f.b:
                out.append(expr_text(substitute(f, {x: n.Var(self.sizes[x], I32) for x in own})))
        return list(dict.fromkeys([*self.skeleton.facts, *out]))


def _canonical(e: n.Expr) -> n.Expr:
    return build.from_polynomial(build.polynomial(e), e.type) if isinstance(e, n.Binary) and e.op in ("add", "sub", "mul") else e  # type: ignore[arg-type]  # an i32


__all__ = ["Found", "Known", "assembled"]


def _of_one_dtype(a: Array) -> Iterator[Array]:
    """A tensor of open dtype, and those that it was made like with their dtype."""
    at: Array | None = a
    while at is not None and at.dtype in ("", UNKNOWN):
        yield at
        at = at.like if at.alike else None
