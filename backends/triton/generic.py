"""Generic programs (metas and dtypes still open) as Triton: what a frontend read from a kernel is written as a kernel again.

Every conversion is written out, except where Triton's own rules for operands of two dtypes say the same. Pointers are flat: an access is
the pointer plus an index. Parameters come first, then the metas as constexpr.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kir.analysis.facts import Facts
from kir.diagnostic import Diagnostic, KirError
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.canonical import bound_names, content_hash
from kir.ir.dtype_terms import accumulated, join, quotient, rounded, summed, widened, with_float, with_int
from kir.ir.printer import expr_text
from kir.ir.types import BOOL, I32, DType, TileType, Type, dtype_of, shape_of
from kir.ir.visit import walk
from kir.surface import Emitted, SourceLine, StatementPath

from .._wrap import wrapped
from .expressions import ATOM, COMPARE, OR, PRODUCT, SUM, UNARY, Expressions, dims, literal, refuse
from .memory import Memory
from .names import spelled
from .statements import Line, Statements
from .terms import QUESTIONS, Terms, is_derived, is_descriptor, is_flat, roots_of, select_arms

_PROMOTING = frozenset({"add", "sub", "mul", "and", "or", "xor", "tdiv", "trem", "floordiv", "mod"})
_STATIC_CALLS = frozenset({"meta_is", "meta_true", "absent", "dtype_is", "dtype_kind", "dtype_bits", "log2", "next_power_of_2"})
_STATIC_INFIX = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "add": "+", "sub": "-", "mul": "*"}
_LAUNCH = ("num_warps", "num_stages")


def can_write(p: n.Program) -> bool:
    """Whether a generic program has the form in which this surface's frontend reads one: flat pointers, descriptors, scalars."""
    return len(p.kernels) == 1 and not p.workspaces and not p.tensor_maps and all(
        not isinstance(q.of, n.Buffer) or is_flat(q.of) or is_descriptor(q.of) for q in p.params) and any(
        isinstance(q.of, n.Buffer) for q in p.params)


def write_generic(p: n.Program) -> tuple[Emitted | None, tuple[Diagnostic, ...]]:
    """The kernel of a generic program as a Triton module, or the refusals."""
    (k,) = p.kernels
    metas = _metas(p)
    top = spelled([*(f.name for f in p.functions), k.name])
    outer = [*(q.name for q in p.params), *(m.name for m in p.metas)]
    refusals: list[Diagnostic] = []
    chunks: list[list[Line]] = []
    libdevice, combines = False, set[str]()
    for f in p.functions:
        names = {**top, **spelled([*(x.name for x in f.params), *bound_names(f.body)], [*top.values(), *outer])}
        roots = {x.of.name: f"{names[x.name]}.dtype" for x in f.params if isinstance(x, n.Var) and isinstance(x.of, DType)}
        body = _body(p, names, roots, frozenset(), in_function=True)
        body.block(f.body, (f.name,), 1)
        refusals += body.refusals
        chunks.append([("@triton.jit", None), (f"def {top[f.name]}({', '.join(names[x.name] for x in f.params)}):", None), *body.lines])
        libdevice = libdevice or body.expressions.uses_libdevice
        combines |= set(body.open.combines.values())
    taken = [*top.values(), *outer, *(a.name for a in k.grid)]
    names = {**top, **{x: x for x in outer}, **spelled(bound_names(k.body), taken)}
    names |= {a.name: f"tl.program_id({i})" for i, a in enumerate(k.grid)}
    names |= {f"grid_{i}": f"tl.num_programs({i})" for i in range(3)}
    for q in p.params:
        if isinstance(q.of, n.Buffer) and is_descriptor(q.of):
            for i in range(len(q.of.shape)):
                names[f"{q.name}_shape_{i}"] = f"{q.name}.shape[{i}]"
                names[f"{q.name}_block_{i}"] = f"{q.name}.block_shape[{i}]"
    body = _body(p, names, roots_of(p), frozenset(m.name for m in p.metas), in_function=False)
    body.block(k.body, (k.name,), 1)
    refusals += [replace(d, anchor=d.anchor or k.name) for d in body.refusals]
    if refusals:
        return None, tuple(refusals)
    libdevice = libdevice or body.expressions.uses_libdevice
    combines |= set(body.open.combines.values())
    mathematics = any("math.log2(" in line for chunk in (*chunks, body.lines) for line, _ in chunk)
    signature = [*(_parameter(q) for q in p.params if not dict(q.attrs).get("implicit")), *metas]
    head: list[Line] = [("@triton.jit", None), (f"def {top[k.name]}(", None), *((f"    {x},", None) for x in signature), ("):", None)]
    chunks.append([*head, *body.lines])
    for name in sorted(combines):
        chunks.insert(0, [("@triton.jit", None), (f"def {name}(a, b):", None), (f"    return {_BODIES[name]}", None)])
    header = [*(["import math", ""] if mathematics else []), "import triton", "import triton.language as tl", *(["from triton.language.extra import libdevice"] if libdevice else [])]
    lines: list[Line] = [(line, None) for line in header]
    for chunk in chunks:
        lines += [("", None), ("", None), *chunk]
    source_map = tuple(SourceLine(i, path) for i, (_, path) in enumerate(lines, 1) if path is not None)
    return Emitted("triton", content_hash(p), "\n".join(line for line, _ in lines) + "\n", source_map, ()), ()


_COMBINES = {"prod": "product_of_two", "and": "and_of_two"}
_BODIES = {"product_of_two": "a * b", "and_of_two": "a & b"}
"""Combine functions that a reduction without a name of its own in Triton brings along."""


def _parameter(q: n.Param) -> str:
    """A run-time parameter. What Triton's own types do not say is said in words that it passes over: `integer`, of whatever width."""
    if isinstance(q.of, n.Buffer):
        return q.name
    return f'{q.name}: "scalar"' if q.of.is_symbolic else f'{q.name}: "integer"' if q.of == I32 else f"{q.name}: tl.{_dtype_word(q.of.name)}"


def _metas(p: n.Program) -> list[str]:
    """The metas as parameters, each with its kind: those without a default first."""
    used = {x.name for f in p.functions for s in f.body for x in walk(s) if isinstance(x, n.Var)}
    for s in (s for k in p.kernels for s in k.body):
        for x in walk(s):
            match x:
                case n.Var():
                    used.add(x.name)
                case n.For():
                    used |= {v for _, v in x.attrs if isinstance(v, str)}
                case n.Mma():
                    used.add(x.precision)
                case _:
                    pass
    descriptors = {f"{q.name}_block_{i}" for q in p.params if isinstance(q.of, n.Buffer) for i in range(len(q.of.shape)) if is_descriptor(q.of)}
    plain, defaulted = [], []
    for m in p.metas:
        if is_derived(m) or m.name in descriptors or (m.name in _LAUNCH and m.name not in used and m.default is not None):
            continue
        if m.default is None:
            plain.append(f'{m.name}: "constexpr[{m.kind}]"')
        else:
            shown = f"tl.{_dtype_word(m.default)}" if m.kind == "dtype" else repr(m.default)
            defaulted.append(f'{m.name}: "constexpr[{m.kind}]" = {shown}')
    return [*plain, *defaulted]


def _dtype_word(name: object) -> str:
    from .expressions import DTYPES

    return DTYPES[str(name)]


def _body(p: n.Program, names: dict[str, str], roots: dict[str, str], metas: frozenset[str], in_function: bool) -> GenericStatements:
    facts = Facts.from_program(n.Program(p.name))
    memory = GenericMemory()
    expressions = GenericExpressions(names, facts, {f.name: f for f in p.functions}, memory)
    made = GenericStatements(expressions, memory, 1, in_function=in_function)
    expressions.metas = set(metas)
    expressions.kinds = {m.name: m.kind for m in p.metas}
    derived = {m.name: str(m.default) for m in p.metas if is_derived(m)}
    expressions.terms = Terms(roots, derived, made.define)
    return made


@dataclass
class GenericExpressions(Expressions):
    """Expressions over open metas and dtypes."""

    metas: set[str] = field(default_factory=set)
    kinds: dict[str, str] = field(default_factory=dict)
    terms: Terms = field(default_factory=lambda: Terms({}, {}, lambda text: text))

    # ------------------------------------------------------------------------------------------------------- shapes and dtypes
    def extents(self, t: Type) -> tuple[str, ...]:
        """The shape of a type, over metas."""
        return tuple(str(d) if isinstance(d, int) else self.text(d) for d in shape_of(t))

    def dtype(self, d: DType) -> str:
        """A dtype or dtype term."""
        return self.terms.text(d)

    def narrow(self, d: DType) -> bool:
        """Only what is known to be narrow."""
        return not d.is_symbolic and d.bits < 32

    def is_static(self, e: n.Node) -> bool:
        """Whether an expression depends on metas only."""
        return all(
            x.name in self.metas if isinstance(x, n.Var) else not isinstance(x, (n.Load, n.Region)) and not (
                isinstance(x, n.Call) and x.fn not in _STATIC_CALLS)
            for x in walk(e))

    def filled(self, e: n.Expr, to: Type) -> str:
        """A whole value; `tl.full` takes what is converted already."""
        if isinstance(to, TileType) and isinstance(e, n.Cast) and isinstance(e.x, n.Const) and shape_of(e.type) != shape_of(to):
            return f"tl.full({dims(self.extents(to))}, {literal(e.x)}, dtype={self.dtype(e.dtype)})"
        return super().filled(e, to)

    # ------------------------------------------------------------------------------------------------------------------ nodes
    def spell(self, e: n.Expr) -> tuple[str, int]:
        """Text and binding level."""
        if isinstance(e, (n.Binary, n.Unary, n.Select, n.Call)) and self.is_static(e):
            made = self._static(e)
            if made is not None:
                return made, ATOM
        if isinstance(e, n.Unary) and e.op == "not" and dtype_of(e.type) == BOOL and not shape_of(e.type):
            return f"(not {self.text(e.x)})", ATOM
        return super().spell(e)

    def _static(self, e: n.Expr) -> str | None:
        """Arithmetic and questions about metas, as Python works them out; None for what has no static spelling of its own."""
        match e:
            case n.Binary(op="and" | "or") if dtype_of(e.type) == BOOL:
                return f"({self.text(e.a, ATOM)} {e.op} {self.text(e.b, ATOM)})"
            case n.Unary(op="not") if dtype_of(e.type) == BOOL:
                return f"(not {self.text(e.x, ATOM)})"
            case n.Binary(op="min" | "max"):
                return f"{e.op}({self.text(e.a)}, {self.text(e.b)})"
            case n.Binary(op="floordiv" | "mod"):
                return f"({self.text(e.a, PRODUCT)} {'//' if e.op == 'floordiv' else '%'} {self.text(e.b, UNARY)})"
            case n.Binary(op="ceildiv"):
                return f"tl.cdiv({self.text(e.a)}, {self.text(e.b)})"
            case n.Binary() if (sign := _STATIC_INFIX.get(e.op)) is not None:
                a, b = self._operands(e)
                return f"({self.text(a, ATOM)} {sign} {self.text(b, ATOM)})"
            case n.Select():
                return f"({self.text(e.a, ATOM)} if {self.text(e.cond)} else {self.text(e.b, ATOM)})"
            case n.Call(fn="meta_is", args=(n.Var(name=name), *_)):
                value = str(dict(e.attrs)["value"])
                return f"({name} is None)" if value == "None" else f"({name} == {value!r})"
            case n.Call(fn="meta_true", args=(n.Var(name=name), *_)):
                return name
            case n.Call(fn="absent"):
                return f"({dict(e.attrs)['param']} is None)"
            case n.Call(fn="dtype_is"):
                named = dict(e.attrs)
                return f"({self._term(named['a'])} == {self._term(named['b'])})"
            case n.Call(fn="dtype_kind"):
                named = dict(e.attrs)
                return f"{self._term(named['term'])}.{QUESTIONS[str(named['kind'])]}()"
            case n.Call(fn="dtype_bits"):
                return f"{self._term(dict(e.attrs)['term'])}.primitive_bitwidth"
            case n.Call(fn="next_power_of_2", args=(n.Expr() as x, *_)):
                return f"triton.next_power_of_2({self.text(x)})"
            case _:
                return None

    def _term(self, name: n.Attr) -> str:
        from kir.ir.types import DTYPES, symbolic

        return self.terms.text(DTYPES.get(str(name)) or symbolic(str(name)))

    def _binary(self, e: n.Binary) -> tuple[str, int]:
        if e.op in _PROMOTING or e.op in ("lt", "le", "gt", "ge", "eq", "ne", "div"):
            a, b = self._operands(e)
            if (a, b) != (e.a, e.b):
                return self._infix(e.op, a, b)
        return super()._binary(e)

    def _infix(self, op: str, a: n.Expr, b: n.Expr) -> tuple[str, int]:
        from .expressions import _COMPARISONS, _INFIX

        if op in _COMPARISONS:
            return f"{self.text(a, OR)} {_COMPARISONS[op]} {self.text(b, OR)}", COMPARE
        sign, level = _INFIX[{"floordiv": "tdiv", "mod": "trem"}.get(op, op)]
        return f"{self.text(a, level)} {sign} {self.text(b, level + 1)}", level

    def _operands(self, e: n.Binary) -> tuple[n.Expr, n.Expr]:
        """The operands as they were before Triton's promotion, where it gives just these."""
        wanted = dtype_of(e.a.type)
        a, b = _unconverted(e.a, wanted), _unconverted(e.b, wanted)
        for x, y in ((a, b), (a, e.b), (e.a, b)):
            if (x, y) != (e.a, e.b) and self._promoted(x, y, e.op) == wanted:
                return x, y
        return e.a, e.b

    def _promoted(self, a: n.Expr, b: n.Expr, op: str) -> DType | None:
        if isinstance(a, n.Const) and isinstance(b, n.Const):
            return None
        if self.is_static(a) and self.is_static(b):
            return join(*(I32 if dtype_of(x.type).is_bool else dtype_of(x.type) for x in (a, b)))
        for x, y in ((a, b), (b, a)):
            if isinstance(x, n.Const):
                own = dtype_of(y.type)
                made = with_float(own) if x.dtype.is_float else own if x.dtype.is_bool else with_int(own)
                return quotient(made) if op == "div" else made
            if self.is_static(x):
                return None
        made = join(dtype_of(a.type), dtype_of(b.type))
        return quotient(made) if op == "div" else made

    def _check_sign(self, e: n.Binary) -> None:
        """The frontend writes rounding down only where it saw that nothing is negative, and reads it so again."""
        for side, what in ((e.a, "dividend"), (e.b, "divisor")):
            if not _not_negative(side):
                raise refuse("KIR-B005", f"{expr_text(e)} rounds down, Triton's division truncates, and the {what} may be negative",
                             needs="tdiv and trem")

    # ------------------------------------------------------------------------------------------------------------------ calls
    def _call(self, e: n.Call) -> tuple[str, int]:
        attrs = dict(e.attrs)
        args = [a for a in e.args if isinstance(a, n.Expr)]
        match e.fn:
            case "broadcast" if isinstance(args[0], n.Cast) and isinstance(args[0].x, n.Const):
                return self.filled(args[0], e.type), ATOM
            case "broadcast" if not isinstance(args[0], n.Const) and not shape_of(args[0].type) and all(int_value(d) == 1 for d in args[1:]):
                return f"{self.text(args[0], ATOM)}[{', '.join('None' for _ in args[1:])}]", ATOM
            case "expand" if not shape_of(args[0].type):
                return f"tl.expand_dims({self.text(args[0])}, {int(attrs['axis'])})", ATOM
            case "expand":
                return self._expanded(e)
            case "pick" if all(int_value(i) == 0 for i in args[1:]):
                return f"tl.reshape({self.text(args[0])}, ())", ATOM
            case "cat":
                return f"tl.cat({self.text(args[0])}, {self.text(args[1])}, can_reorder=True)", ATOM
            case "philox":
                operands = ", ".join(map(self.tensor, args))
                return f"tl.philox({operands}, n_rounds={attrs['rounds']})[{attrs['lane']}]", ATOM
            case "fmod":
                return f"({self.text(args[0], PRODUCT)} % {self.text(args[1], UNARY)})", ATOM
            case "log2" if self.is_static(e):
                inner = args[0].x if isinstance(args[0], n.Cast) else args[0]
                return f"math.log2({self.text(inner)})", ATOM
            case "gather":
                return f"tl.gather({self.text(args[0])}, {self.text(args[1])}, {int(attrs.get('axis', 0))})", ATOM
            case "max_nan" | "min_nan":
                word = {"max_nan": "maximum", "min_nan": "minimum"}[e.fn]
                return f"tl.{word}({self.tensor(args[0])}, {self.tensor(args[1])}, propagate_nan=tl.PropagateNan.ALL)", ATOM
            case "multiple_of" | "max_contiguous" | "max_constancy":
                counts = [self.text(a) for a in args[1:]]
                return f"tl.{e.fn}({self.text(args[0])}, {counts[0] if len(counts) == 1 else '[' + ', '.join(counts) + ']'})", ATOM
            case _:
                return super()._call(e)

    def _expanded(self, e: n.Call) -> tuple[str, int]:
        """`x[None, :, None]` for axes added one after another."""
        axes: list[int] = []
        x: n.Expr = e
        while isinstance(x, n.Call) and x.fn == "expand" and isinstance(x.args[0], n.Expr) and shape_of(x.args[0].type):
            axes.insert(0, int(dict(x.attrs)["axis"]))
            x = x.args[0]
        marks = [":"] * len(shape_of(x.type))
        if axes != sorted(axes):
            inner = e.args[0]
            assert isinstance(inner, n.Expr)
            x, axes = inner, [int(dict(e.attrs)["axis"])]
            marks = [":"] * len(shape_of(x.type))
        for axis in axes:
            marks.insert(axis, "None")
        return f"{self.text(x, ATOM)}[{', '.join(marks)}]", ATOM

    def _reduce(self, e: n.Call, args: list[n.Expr], attrs: object) -> str:
        named = dict(e.attrs)
        op, axis = str(named.get("op")), named["axis"]
        keep = ", keep_dims=True" if named.get("keep") else ""
        if "combine" in named:
            return super()._reduce(e, args, named)
        own = dtype_of(args[0].type)
        if op in _COMBINES:
            self.combines[op] = _COMBINES[op]
            return f"tl.reduce({self.text(args[0])}, {axis}, {_COMBINES[op]}{keep})"
        if op in ("max", "min") and widened(own) != own and rounded(own) == own:
            # Only with its index does Triton leave the dtype of an extreme as it is.
            return f"tl.{op}({self.text(_natural(args[0], rounded))}, {axis}, return_indices=True{keep})[0]"
        if op == "sum" and summed(own) != own:
            return f"tl.sum({self.text(args[0])}, axis={axis}{keep}, dtype={self.dtype(own)})"
        rule = {"sum": summed, "max": widened, "min": widened, "argmax": rounded, "argmin": rounded}.get(op)
        return super()._reduce(e, [_natural(a, rule) for a in args], named)

    def _scan(self, e: n.Call, args: list[n.Expr], attrs: object) -> str:
        named = dict(e.attrs)
        if named.get("op") == "sum":
            args = [_natural(a, lambda d: summed(rounded(d))) for a in args]
        if named.get("op") in ("max", "min"):
            reverse = ", reverse=True" if named.get("reverse") else ""
            word = {"max": "tl.maximum", "min": "tl.minimum"}[str(named["op"])]
            return f"tl.associative_scan({self.text(args[0])}, {int(named['axis'])}, {word}{reverse})"
        return super()._scan(e, args, named)


def _unconverted(e: n.Expr, dtype: DType) -> n.Expr:
    """What a conversion to `dtype` was made of."""
    return e.x if isinstance(e, n.Cast) and e.dtype == dtype and e.rounding == "rn" else e


def _natural(e: n.Expr, rule: Callable[[DType], DType] | None) -> n.Expr:
    """What Triton converts by itself, unconverted."""
    if rule is not None and isinstance(e, n.Cast) and e.rounding == "rn" and rule(dtype_of(e.x.type)) == e.dtype:
        return e.x
    return e


def _not_negative(e: n.Expr) -> bool:
    """As the frontend sees it."""
    match e:
        case n.Const():
            return e.value >= 0
        case n.Var(name=name):
            return name.startswith(("pid_", "grid_")) or dtype_of(e.type).kind == "uint"
        case n.Cast(x=x, dtype=dtype):
            return dtype.is_integer and dtype_of(x.type).is_integer and dtype.bits >= dtype_of(x.type).bits and _not_negative(x)
        case n.Binary(op="add" | "mul" | "floordiv" | "mod" | "min" | "max" | "and" | "tdiv" | "trem" | "ceildiv"):
            return _not_negative(e.a) and _not_negative(e.b)
        case n.Call(fn="iota"):
            return True
        case n.Call(fn="expand" | "broadcast" | "multiple_of" | "max_contiguous", args=(n.Expr() as x, *_)):
            return _not_negative(x)
        case _:
            return isinstance(e.type, (DType, TileType)) and dtype_of(e.type).kind == "uint"


@dataclass
class GenericMemory(Memory):
    """Accesses through flat pointers and descriptors."""

    def pointer(self, to: Expressions, at: n.Region) -> str:
        """The pointer plus the index, as one term."""
        base = to.names[at.buffer.name]
        (index,) = at.index
        assert isinstance(index, n.Expr)
        if isinstance(index, n.Const) and index.value == 0:
            return base
        return f"{base} + {to.text(index, SUM + 1)}"

    def load_text(self, to: Expressions, e: n.Load) -> str:
        """A value read."""
        b = e.at.buffer
        if b.space != "global":
            return super().load_text(to, e)
        if any(isinstance(i, n.Span) for i in e.at.index):
            return f"{to.names[b.name]}.load([{', '.join(to.text(i.lo) for i in e.at.index if isinstance(i, n.Span))}])"
        out = f"tl.load({self.pointer(to, e.at)}"
        if e.mask is not None:
            out += f", mask={to.text(e.mask)}"
            if e.other is not None:
                out += f", other={to.text(_unconverted(e.other, b.dtype))}"
        return f"{out}{self._options(e.cache)})"

    def store_text(self, to: Expressions, at: n.Region, value: str, mask: n.Expr | None, clip: bool, cache: str) -> str:
        """A `tl.store`, or that of a descriptor."""
        if any(isinstance(i, n.Span) for i in at.index):
            return f"{to.names[at.buffer.name]}.store([{', '.join(to.text(i.lo) for i in at.index if isinstance(i, n.Span))}], {value})"
        shown = f", mask={to.text(mask)}" if mask is not None else ""
        return f"tl.store({self.pointer(to, at)}, {value}{shown}{self._options(cache)})"

    def _options(self, cache: str) -> str:
        """A modifier, an eviction policy, volatile, or several of them."""
        rest, out = cache, ""
        for word in ("volatile", "evict_first", "evict_last"):
            if rest == word or rest.endswith(f"_{word}"):
                out = super()._options(word) + out
                rest = rest[: -len(word)].rstrip("_")
        return (super()._options(rest) if rest else "") + out

    def atomic_text(self, to: Expressions, e: n.Call) -> str:
        """An atomic with the order and scope that it names."""
        at = e.args[0]
        assert isinstance(at, n.Region)
        attrs = dict(e.attrs)
        operands = [to.tensor(_unconverted(a, at.buffer.dtype)) for a in e.args[1:] if isinstance(a, n.Expr)]
        options = "".join(f', {k}="{attrs[name]}"' for name, k in (("order", "sem"), ("scope", "scope")) if name in attrs)
        if e.fn == "atomic_cas":
            return f"tl.atomic_cas({self.pointer(to, at)}, {operands[0]}, {operands[1]}{options})"
        word = {"atomic_exch": "atomic_xchg"}.get(e.fn, e.fn)
        mask = f", mask={operands[1]}" if len(operands) > 1 else ""
        return f"tl.{word}({self.pointer(to, at)}, {operands[0]}{mask}{options})"


@dataclass
class GenericStatements(Statements):
    """Statements of a generic kernel: no barrier is added, and a value that both arms of a branch give needs no declaration."""

    _depth: int = 1
    _path: StatementPath = ()
    _named: int = 0
    _outside: tuple[int, int] | None = None
    """Where the outermost static branch around the statement being written starts: line and depth."""
    _one_armed: set[str] = field(default_factory=set)
    """Buffers that only one arm of a static branch fills: in a loop Triton must be told that the other leaves nothing."""
    _merged: dict[int, n.Expr] = field(default_factory=dict)
    """What stores at the end of a static arm give, by the identity of the store: a branch finds the common dtype itself."""

    @property
    def open(self) -> GenericExpressions:
        """What writes expressions over open metas."""
        assert isinstance(self.expressions, GenericExpressions)
        return self.expressions

    def define(self, text: str) -> str:
        """A name for a dtype, defined before the statement being written."""
        self._named += 1
        name = f"dtype_{self._named}"
        while name in self.expressions.names.values():
            name += "_"
        line = f"{name}: tl.constexpr = {text}"
        if self._outside is None:
            self.put(line, self._depth, self._path)
            return name
        # Under a static branch the term might be read as what it is there: it is named before the branch.
        at, depth = self._outside
        made = wrapped("    " * depth + line)
        self.lines[at:at] = [(x, self._path) for x in made]
        self._outside = at + len(made), depth
        return name

    def block(self, block: n.Block, path: StatementPath, depth: int) -> None:
        """A block; dtypes that it names are forgotten at its end."""
        before = len(self.lines)
        around = self._depth, self._path
        self.open.terms.known.append({})
        self._one_armed |= _one_armed(block)
        skip = -1
        for i, s in enumerate(block):
            if i == skip:
                continue
            self._depth, self._path = depth, (*path, i)
            try:
                following = block[i + 1] if i + 1 < len(block) else None
                start = _start_of(s, following)
                if start is not None and isinstance(following, n.Mma):
                    self._product(start, following, depth, (*path, i))
                    skip = i + 1
                else:
                    self._statement(s, (*path, i), depth)
            except KirError as refused:
                self.refused.append((*path, i))
                self.refusals += [replace(d, anchor="/".join(map(str, (*path, i))), origin=s.origin) for d in refused.diagnostics]
        if len(self.lines) == before:
            self.put("pass", depth, None)
        self.open.terms.known.pop()
        self._depth, self._path = around

    def _statement(self, s: n.Stmt, path: StatementPath, depth: int) -> None:
        to = self.open
        match s:
            case n.Alloc(init=None):
                if self._loops and s.buffer.name in self._one_armed:
                    self.put(f"{to.names[s.buffer.name]} = None", depth, path)
            case n.Opaque():
                raise refuse("KIR-B002", f"this is source text that KIR does not understand: {s.reason}")
            case n.View() if not s.axes:
                self.put(f"{to.names[s.buffer.name]} = {to.names[s.at.buffer.name]}.to(tl.pointer_type({to.dtype(s.buffer.dtype)}), "
                         "bitcast=True)", depth, path)
            case n.Store() if s.at.buffer.space == "global":
                value = _unconverted(s.value, s.at.buffer.dtype)
                if isinstance(value, n.Const) or dtype_of(value.type) == s.at.buffer.dtype:
                    value = value if isinstance(s.value, n.Cast) else s.value
                self.put(self.memory.store_text(to, s.at, to.text(value), s.mask, s.clip, s.cache), depth, path)
            case n.Store() if id(s) in self._merged:
                self.put(f"{to.names[s.at.buffer.name]} = {to.assigned(self._merged[id(s)])}", depth, path)
            case n.If() if s.static:
                self._merge(s)
                outside = self._outside
                if outside is None:
                    self._outside = len(self.lines), depth
                cond = to.text(s.cond)
                self.put(f"if {cond}:", depth, path)
                self.block(s.then, (*path, "then"), depth + 1)
                if s.orelse:
                    self.put("else:", depth, path)
                    self.block(s.orelse, (*path, "orelse"), depth + 1)
                self._outside = outside
            case n.Jump() if s.kind != "return":
                self.put(s.kind, depth, path)
            case _:
                super()._statement(s, path, depth)

    def _merge(self, s: n.If) -> None:
        """Find the stores of both arms whose dtype is the choice between what the arms give."""
        arms = [{x.at.buffer.name: x for x in arm if isinstance(x, n.Store) and x.at.buffer.space != "global" and not x.at.index}
                for arm in (s.then, s.orelse)]
        for name, a in arms[0].items():
            b, dtype = arms[1].get(name), a.at.buffer.dtype
            if b is None:
                continue
            va, vb = _unconverted(a.value, dtype), _unconverted(b.value, dtype)
            chosen = select_arms(self.open.terms.derived.get(dtype.name, dtype.name))
            if chosen == (dtype_of(va.type).name, dtype_of(vb.type).name):
                self._merged |= {id(a): va, id(b): vb}

    def _for(self, s: n.For, depth: int, path: StatementPath) -> None:
        to, attrs = self.open, dict(s.attrs)
        bounds = ", ".join(to.text(x) for x in (s.lo, s.hi, s.step))
        if s.kind == "static":
            to.metas.add(s.var.name)
            self._loop(f"for {to.names[s.var.name]} in tl.static_range({bounds}):", s.body, None, depth, path)
            return
        if s.kind not in ("serial", "pipelined", "unroll"):
            raise refuse("KIR-B002", f"Triton has no {s.kind} loop")
        options = "".join(f", {word}={attrs.pop(key)}" for key, word in (
            ("stages", "num_stages"), ("factor", "loop_unroll_factor"), ("disallow_acc_multi_buffer", "disallow_acc_multi_buffer"),
            ("flatten", "flatten"), ("warp_specialize", "warp_specialize"), ("disable_licm", "disable_licm")) if key in attrs)
        if attrs:
            raise refuse("KIR-B002", f"a Triton loop has no option '{next(iter(attrs))}'")
        word = "tl.range" if options else "range"
        self._loop(f"for {to.names[s.var.name]} in {word}({bounds}{options}):", s.body, None, depth, path)

    def _product(self, start: n.Expr, s: n.Mma, depth: int, path: StatementPath) -> None:
        """`c = tl.dot(a, b)`, or with the accumulator that it starts from."""
        to = self.open
        acc = "" if _is_zero(start) else f", acc={to.filled(start, s.acc.type)}"
        self.put(f"{to.names[s.acc.buffer.name]} = {self._dotted(s, acc)}", depth, path)

    def _dot(self, s: n.Mma) -> str:
        name = self.expressions.names[s.acc.buffer.name]
        return f"{name} = {self._dotted(s, f', acc={name}')}"

    def _dotted(self, s: n.Mma, acc: str) -> str:
        to, dtype = self.open, dtype_of(s.a.type)
        if s.pending or s.via not in ("auto", "fma") or s.attrs:
            raise refuse("KIR-B002", "Triton code cannot choose the matrix instruction")
        precision = ""
        if dtype.is_symbolic or dtype.name == "f32":
            kind = to.kinds.get(s.precision)
            precision = f", input_precision={s.precision}" if kind in ("str", "any") else (
                f", allow_tf32={s.precision}" if kind else f', input_precision="{s.precision}"')
        out = "" if acc or s.acc.buffer.dtype == accumulated(dtype) else f", out_dtype={to.dtype(s.acc.buffer.dtype)}"
        return f"tl.dot({to.text(s.a)}, {to.text(s.b)}{acc}{precision}{out})"


def _start_of(s: n.Stmt, following: n.Stmt | None) -> n.Expr | None:
    """What the product that follows starts from, where the statement gives its accumulator just that."""
    match s, following:
        case n.Alloc(init=n.Expr() as init), n.Mma() if following.acc == n.Region(s.buffer):
            return init
        case n.Store(mask=None), n.Mma() if following.acc == s.at and s.at.buffer.space != "global" and not any(
                isinstance(x, n.Buffer) and x.name == s.at.buffer.name for e in (s.value, following.a, following.b) for x in walk(e)):
            return s.value
        case _:
            return None


def _one_armed(block: n.Block) -> set[str]:
    """Private buffers without a first value that a static branch of the block fills in one arm only."""
    declared = {s.buffer.name for s in block if isinstance(s, n.Alloc) and s.init is None}
    out = set()
    for i, s in enumerate(block):
        if isinstance(s, n.If) and s.static:
            arms = [{x.at.buffer.name for x in arm if isinstance(x, n.Store)} for arm in (s.then, s.orelse)]
            for which in (0, 1):
                out |= {x for x in (arms[which] - arms[1 - which]) & declared if _only_under(x, s.cond, which, block[i + 1:])}
    return out


def _only_under(name: str, cond: n.Expr, which: int, rest: n.Block) -> bool:
    """Whether statements mention a name in one arm of branches on a condition only."""
    def mentioned(nodes: tuple[n.Node, ...]) -> bool:
        return any(isinstance(x, n.Buffer) and x.name == name for s in nodes for x in walk(s))
    return all(not mentioned((s.orelse, s.then)[which]) if isinstance(s, n.If) and s.static and s.cond == cond else not mentioned((s,))
               for s in rest)


def _is_zero(e: n.Expr) -> bool:
    match e:
        case n.Call(fn="broadcast", args=(n.Expr() as x, *_)) | n.Cast(x=x):
            return _is_zero(x)
        case n.Const():
            return not e.value
        case _:
            return False


