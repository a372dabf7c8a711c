"""Expressions of generic programs: over metas and dtypes that are still open."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.dtype_terms import beside, compared, join, quotient, rounded, summed, widened
from kir.ir.printer import expr_text
from kir.ir.types import BOOL, DTYPES, F32, I32, I64, DType, TileType, Type, dtype_of, shape_of, symbolic
from kir.ir.visit import walk

from ..tiles.expressions import _COMPARISONS, _INFIX, ATOM, COMBINES, COMPARE, OR, PRODUCT, SCANNED, UNARY, Expressions, dims, literal, refuse
from ..tiles.memory import Memory
from ..tiles.packed import nibble
from .dtype_terms import QUESTIONS, Terms

_PROMOTING = frozenset({"add", "sub", "mul", "and", "or", "xor", "tdiv", "trem", "floordiv", "mod"})
_STATIC_CALLS = frozenset({"meta_is", "meta_true", "absent", "dtype_is", "dtype_kind", "dtype_bits", "log2", "sqrt", "pow", "next_power_of_2"})
_STATIC_INFIX = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "add": "+", "sub": "-", "mul": "*"}


@dataclass
class GenericExpressions(Expressions):
    """Expressions over open metas and dtypes."""

    metas: set[str] = field(default_factory=set)
    kinds: dict[str, str] = field(default_factory=dict)
    terms: Terms = field(default_factory=lambda: Terms({}, {}, lambda text: text))
    counts: frozenset[str] = frozenset()
    """Names of the launch, which count from 0."""

    # ------------------------------------------------------------------------------------------------------- shapes and dtypes
    def extents(self, t: Type) -> tuple[str, ...]:
        """The shape of a type, over metas."""
        return tuple(str(d) if isinstance(d, int) else self.text(self._whole(d)) for d in shape_of(t))

    def _whole(self, e: n.Expr) -> n.Expr:
        """A compile-time whole number as Python has it: a conversion would make a value of the run."""
        while isinstance(e, n.Cast) and e.rounding == "rn" and e.dtype.is_integer and dtype_of(e.x.type).is_integer and self.is_static(e.x):
            e = e.x
        return e

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
            return f"tl.full({dims(self.extents(to))}, {literal(e.x)}, dtype={self.terms.constant(e.dtype)})"
        if isinstance(to, TileType) and not isinstance(e, n.Const) and not shape_of(e.type):
            return f"tl.full({dims(self.extents(to))}, {self.text(e)}, dtype={self.dtype(dtype_of(e.type))})"
        return super().filled(e, to)

    # ------------------------------------------------------------------------------------------------------------------ nodes
    def spell(self, e: n.Expr) -> tuple[str, int]:
        """Text and binding level."""
        if isinstance(e, (n.Binary, n.Unary, n.Select, n.Call, n.Cast)) and self.is_static(e):
            made = self._static(e)
            if made is not None:
                return made, ATOM
        if isinstance(e, n.Address):
            return f"({self.reader.pointer(self, e.at)})" if isinstance(self.reader, Memory) else "", ATOM
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
            case n.Binary(op="shl", a=n.Const(value=1), b=b) if dtype_of(e.type) == I64:
                return f"(2 ** {self.text(unconverted(b, I64), ATOM)})"
            case n.Cast(x=n.Call(fn="log2", args=(n.Cast(x=n.Call(fn="next_power_of_2", args=(n.Binary(op="add", a=n.Binary(
                    op="max", a=x, b=n.Const(value=1)), b=n.Const(value=1)),))),))) if e.dtype == I32:
                return f"(tl.standard._log2({self.text(x)}) + 1)"
            case n.Binary(op="min" | "max"):
                return f"{e.op}({self.text(e.a)}, {self.text(e.b)})"
            case n.Binary(op="floordiv" | "mod"):
                return f"({self.text(e.a, PRODUCT)} {'//' if e.op == 'floordiv' else '%'} {self.text(e.b, UNARY)})"
            case n.Binary(op="tdiv" | "trem") if not _not_negative(e.a, self.counts) or not _not_negative(e.b, self.counts):
                left = f"tl.cast({self.text(e.a)}, {self.dtype(dtype_of(e.type))})"  # a value of the run: Python's own division rounds down
                return f"({left} {'//' if e.op == 'tdiv' else '%'} {self.text(e.b, UNARY)})"
            case n.Binary(op="ceildiv"):
                return f"triton.cdiv({self.text(e.a)}, {self.text(e.b)})"
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
        return self.terms.text(DTYPES.get(str(name)) or symbolic(str(name)))

    def _binary(self, e: n.Binary) -> tuple[str, int]:
        if e.op in _PROMOTING or e.op in ("lt", "le", "gt", "ge", "eq", "ne", "div"):
            a, b = self._operands(e)
            if (a, b) != (e.a, e.b):
                return self._infix(e.op, a, b)
        return super()._binary(e)

    def _infix(self, op: str, a: n.Expr, b: n.Expr) -> tuple[str, int]:
        if op in _COMPARISONS:
            return f"{self.text(a, OR)} {_COMPARISONS[op]} {self.text(b, OR)}", COMPARE
        sign, level = _INFIX[{"floordiv": "tdiv", "mod": "trem"}.get(op, op)]
        return f"{self.text(a, level)} {sign} {self.text(b, level + 1)}", level

    def _operands(self, e: n.Binary) -> tuple[n.Expr, n.Expr]:
        """The operands as they were before Triton's promotion, where it gives just these."""
        wanted = dtype_of(e.a.type)
        a, b = unconverted(e.a, wanted), unconverted(e.b, wanted)
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
                made = compared(F32 if x.dtype.is_float else x.dtype, x.value, own) if op in _COMPARISONS else beside(x.dtype, own)
                return quotient(made) if op == "div" else made
            if self.is_static(x):
                if not isinstance(x, n.Var):
                    return None
                made = compared(dtype_of(x.type), None, dtype_of(y.type)) if op in _COMPARISONS else beside(dtype_of(x.type), dtype_of(y.type))
                return quotient(made) if op == "div" else made
        made = join(dtype_of(a.type), dtype_of(b.type))
        return quotient(made) if op == "div" else made

    def _sign(self, e: n.Expr) -> bool:
        return _not_negative(e, self.counts)

    def _check_sign(self, e: n.Binary) -> None:
        """The frontend writes rounding down only where it saw that nothing is negative, and reads it so again."""
        for side, what in ((e.a, "dividend"), (e.b, "divisor")):
            if not _not_negative(side, self.counts):
                raise refuse("KIR-B005", f"{expr_text(e)} rounds down, Triton's division truncates, and the {what} may be negative",
                             needs="tdiv and trem")

    def _cast(self, e: n.Cast) -> str:
        """Scalars are converted by a function: an argument that is 1, and what metas make, are numbers of Python without methods."""
        options = {"rn": "", "bits": ", bitcast=True"}.get(e.rounding)
        if options is None or isinstance(e.x.type, TileType) or nibble(e) is not None:
            return super()._cast(e)
        dtype = self.terms.constant(e.dtype) if isinstance(e.x, n.Const) else self.dtype(e.dtype)
        return f"tl.cast({self.tensor(e.x)}, {dtype}{options})"

    # ------------------------------------------------------------------------------------------------------------------ calls
    def _call(self, e: n.Call) -> tuple[str, int]:
        attrs = dict(e.attrs)
        args = [a for a in e.args if isinstance(a, n.Expr)]
        match e.fn:
            case "broadcast" if not isinstance(args[0], n.Const) and not shape_of(args[0].type) and not (
                    isinstance(args[0], n.Cast) and isinstance(args[0].x, n.Const)):
                return f"tl.full({dims(self.extents(e.type))}, {self.text(args[0])}, dtype={self.dtype(dtype_of(e.type))})", ATOM
            case "broadcast" if isinstance(args[0], n.Cast) and isinstance(args[0].x, n.Const):
                return self.filled(args[0], e.type), ATOM
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
            case "fmod" if not dtype_of(args[0].type).is_symbolic:
                return f"({self.text(args[0], PRODUCT)} % {self.text(args[1], UNARY)})", ATOM
            case "pow" if self.is_static(e):
                inner = args[0].x if isinstance(args[0], n.Cast) else args[0]
                return f"({self.text(inner, ATOM)} ** {self.text(args[1], ATOM)})", ATOM
            case "log2" | "sqrt" if self.is_static(e) and not isinstance(args[0], n.Const):
                inner = args[0].x if isinstance(args[0], n.Cast) else args[0]
                return f"math.{e.fn}({self.text(inner)})", ATOM
            case "gather":
                return f"tl.gather({self.text(args[0])}, {self.text(args[1])}, {int(attrs.get('axis', 0))})", ATOM
            case "max_nan" | "min_nan":
                word = {"max_nan": "maximum", "min_nan": "minimum"}[e.fn]
                return self._as_it_was(f"tl.{word}({self.tensor(args[0])}, {self.tensor(args[1])}, propagate_nan=tl.PropagateNan.ALL)", e), ATOM
            case "multiple_of" | "max_contiguous" | "max_constancy":
                counts = [self.text(a.x if isinstance(a, n.Cast) and isinstance(a.x, n.Var) and self.is_static(a.x) else a) for a in args[1:]]
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
        if op in ("prod", "and"):
            self.combines[op] = COMBINES[op]
            return f"tl.reduce({self.text(args[0])}, {axis}, {COMBINES[op]}{keep})"
        if op in ("max", "min") and widened(own) != own and rounded(own) == own:
            # Only with its index does Triton leave the dtype of an extreme as it is.
            return f"tl.{op}({self.text(_natural(args[0], rounded))}, {axis}, return_indices=True{keep})[0]"
        if op == "sum" and summed(own) != own:
            return f"tl.sum({self.text(args[0])}, axis={axis}{keep}, dtype={self.dtype(own)})"
        rule = {"sum": summed, "max": widened, "min": widened, "argmax": rounded, "argmin": rounded}.get(op)
        if rule is not None and rule(own) == own:
            return f"tl.{op}({self.text(_natural(args[0], rule))}, axis={axis}{keep})"
        return super()._reduce(e, args, named)

    def with_index(self, first: n.Stmt, second: n.Let) -> str | None:
        """One reduction for an extreme and, in the next statement, its index; None for anything else."""
        match first, second:
            case n.Let(value=n.Call(fn="reduce", args=(n.Expr() as x,)) as best), n.Let(value=n.Call(fn="reduce", args=(n.Expr() as y,)) as where):
                named, other = dict(best.attrs), dict(where.attrs)
                own = dtype_of(x.type)
                same = x == y and {**named, "op": ""} == {**other, "op": ""} and "combine" not in named and rounded(own) == own
                if same and named.get("op") in ("max", "min") and other.get("op") == f"arg{named['op']}":
                    keep = ", keep_dims=True" if named.get("keep") else ""
                    return f"tl.{named['op']}({self.text(_natural(x, rounded))}, {named['axis']}, return_indices=True{keep})"
        return None

    def _scan(self, e: n.Call, args: list[n.Expr], attrs: object) -> str:
        named = dict(e.attrs)
        op, axis = str(named.get("op")), named["axis"]
        reverse = ", reverse=True" if named.get("reverse") else ""
        rule = {"sum": lambda d: summed(rounded(d)), "prod": rounded}.get(op)
        if rule is not None and rule(dtype_of(args[0].type)) == dtype_of(args[0].type):
            inner = args[0]
            for step in (summed, rounded) if op == "sum" else (rounded,):
                inner = _natural(inner, step)
            return f"{'tl.cumsum' if op == 'sum' else 'tl.cumprod'}({self.text(inner)}, axis={axis}{reverse})"
        if op in SCANNED:
            self.combines[op] = SCANNED[op]
            return f"tl.associative_scan({self.text(args[0])}, {axis}, {SCANNED[op]}{reverse})"
        return super()._scan(e, args, named)


def unconverted(e: n.Expr, dtype: DType) -> n.Expr:
    """What a conversion to `dtype` was made of."""
    return e.x if isinstance(e, n.Cast) and e.dtype == dtype and e.rounding == "rn" and nibble(e) is None else e


def _natural(e: n.Expr, rule: Callable[[DType], DType] | None) -> n.Expr:
    """What Triton converts by itself, unconverted."""
    if rule is not None and isinstance(e, n.Cast) and e.rounding == "rn" and rule(dtype_of(e.x.type)) == e.dtype:
        return e.x
    return e


def _not_negative(e: n.Expr, counts: frozenset[str]) -> bool:
    """As the frontend sees it."""
    match e:
        case n.Const():
            return e.value >= 0
        case n.Var(name=name):
            return name in counts or dtype_of(e.type).kind == "uint"
        case n.Cast(x=x, dtype=dtype):
            return dtype.is_integer and dtype_of(x.type).is_integer and dtype.bits >= dtype_of(x.type).bits and _not_negative(x, counts)
        case n.Binary(op="max"):
            return _not_negative(e.a, counts) or _not_negative(e.b, counts)
        case n.Binary(op="add" | "mul" | "floordiv" | "mod" | "min" | "and" | "tdiv" | "trem" | "ceildiv"):
            return _not_negative(e.a, counts) and _not_negative(e.b, counts)
        case n.Call(fn="iota"):
            return True
        case n.Call(fn="expand" | "broadcast" | "multiple_of" | "max_contiguous", args=(n.Expr() as x, *_)):
            return _not_negative(x, counts)
        case _:
            return isinstance(e.type, (DType, TileType)) and dtype_of(e.type).kind == "uint"
