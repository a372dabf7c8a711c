"""Expressions as CUDA C++, one element at a time: a thread's tile is an array, and an operation on it a loop over elements.

`element(e, at)` writes the element of `e` at indices `at` (C++ texts). What needs statements of its own (reductions, vector loads) is
written before the statement that uses it, through `Writer`.
"""
from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.base.instructions import instruction, masked
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.printer import expr_text
from kir.ir.types import F32, FP8, DType, Type, dtype_of, shape_of
from kir.ir.visit import walk
from kir.surface.ptx.writing import spelled

from ..._wrap import wrapped
from ..spelling import ptx_functions
from ..spelling.literals import c_type, flat, literal, of_type, refuse, sizes_of, unflattened

CONDITIONAL, OR, AND, BIT_OR, BIT_XOR, BIT_AND, EQUAL, COMPARE, SHIFT, SUM, PRODUCT, UNARY, ATOM = range(13)
_INFIX = {"add": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT), "div": ("/", PRODUCT), "tdiv": ("/", PRODUCT),
          "trem": ("%", PRODUCT), "shl": ("<<", SHIFT), "shr": (">>", SHIFT), "or": ("|", BIT_OR), "xor": ("^", BIT_XOR),
          "and": ("&", BIT_AND), "lt": ("<", COMPARE), "le": ("<=", COMPARE), "gt": (">", COMPARE), "ge": (">=", COMPARE),
          "eq": ("==", EQUAL), "ne": ("!=", EQUAL)}
_LOGICAL = {"or": ("||", OR), "and": ("&&", AND), "xor": ("!=", EQUAL)}
_HEADER = frozenset({"min_nan", "max_nan", "exp2_approx", "tanh_approx", "rcp_approx"})
_SHUFFLES = {"shfl_xor": "__shfl_xor_sync", "shfl_up": "__shfl_up_sync", "shfl_down": "__shfl_down_sync", "shfl_idx": "__shfl_sync"}
_VOTES = {"vote_any": "__any_sync", "vote_all": "__all_sync", "ballot": "__ballot_sync", "match_any": "__match_any_sync"}
_FOLDS = {"sum": "{a} + {b}", "prod": "{a} * {b}", "xor": "{a} ^ {b}", "or": "{a} | {b}", "and": "{a} & {b}"}
_HALVES = {"fma": "__hfma", "abs": "__habs"}
_WHOLE = {"i32": "int", "u32": "uint", "i64": "ll", "u64": "ull"}
"""How CUDA's conversions call an integer."""
_OF_BITS = frozenset({"popc", "clz", "ffs", "brev"})
"""Of words of 32 bits, and by another name of 64."""
"""Functions of f16 and bf16 that round once or not at all; what CUDA says of the others (errors of an ulp or two) no row says."""
_FROM_WHOLE = {("i32", "f16"): "__int2half", ("u32", "f16"): "__uint2half", ("i64", "f16"): "__ll2half", ("u64", "f16"): "__ull2half",
               ("i32", "bf16"): "__int2bfloat16", ("u32", "bf16"): "__uint2bfloat16", ("i64", "bf16"): "__ll2bfloat16",
               ("u64", "bf16"): "__ull2bfloat16", ("f64", "f16"): "__double2half", ("f64", "bf16"): "__double2bfloat16"}
"""Conversions that round once (CUDA Math API, half and bfloat16 conversions); from f64 to nearest only, without a suffix."""
FULL_WARP = "0xffffffffu"
MOST_ROUNDS, SOME_ROUNDS, FEW_ROUNDS = 256, 32, 8
"""Rounds of loops over elements, one in another, that are written out whole, and how many at once of a longer one (the last: of one thread alone): a compiler
takes minutes over thousands, and no thread has registers for more."""


def lane_mask(attrs: Mapping[str, n.Attr]) -> str:
    """The mask of an operation of a warp: of its lanes, or of the group of neighbors that the caller is in."""
    if "group" in attrs:
        size = int(attrs["group"])
        return f"0x{(1 << size) - 1:x}u << (threadIdx.x & {32 - size}u)"
    return f"0x{int(attrs['mask']):x}u" if "mask" in attrs else FULL_WARP




def widened(e: n.Expr) -> int | None:
    """The bits of an unsigned number that a conversion makes wider; None of anything else."""
    if not (isinstance(e, n.Cast) and e.rounding == "rn" and isinstance(e.dtype, DType) and e.dtype.kind == "int"):
        return None
    of = dtype_of(e.x.type)
    return of.bits if of.kind == "uint" and of.bits < e.dtype.bits else None


def unrolled(rounds: int, inside: int = 1) -> str:
    """The line before a loop over elements, with so many rounds `inside` each of its own."""
    if rounds * inside <= MOST_ROUNDS:
        return "#pragma unroll"
    return f"#pragma unroll {min(SOME_ROUNDS, max(1, MOST_ROUNDS // inside))}"


@dataclass
class Writer:
    """Lines being written, with the depth of their block and names that are still free: `taken` are those of the program. `alone`: for one thread, which
    holds more elements than it has registers in memory, where writing loops over them out saves nothing and takes its compiler seconds."""

    taken: Collection[str] = ()
    lines: list[tuple[str, tuple[int | str, ...] | None]] = field(default_factory=list)
    depth: int = 1
    path: tuple[int | str, ...] | None = None
    alone: bool = False
    _count: int = 0

    def put(self, text: str) -> None:
        """One line, broken where a call makes it long."""
        self.lines.extend((line, self.path) for line in wrapped("  " * self.depth + text, trailing=False))

    def fresh(self, stem: str) -> str:
        """A name that nothing in the program has."""
        self._count += 1
        name = f"{stem}_{self._count}_"
        return name if name not in self.taken else self.fresh(stem)

    def loops(self, shape: tuple[int, ...]) -> tuple[str, ...]:
        """Opens unrolled loops over the elements of a shape; `close` ends them."""
        names, long = [], self.alone and math.prod(shape) > MOST_ROUNDS
        for axis, extent in enumerate(shape):
            name = self.fresh("e")
            self.put(f"#pragma unroll {FEW_ROUNDS if axis == len(shape) - 1 else 1}" if long else unrolled(extent, math.prod(shape[axis + 1:])))
            self.put(f"for (int {name} = 0; {name} < {extent}; ++{name}) {{")
            self.depth += 1
            names.append(name)
        return tuple(names)

    def close(self, count: int = 1) -> None:
        """Ends blocks."""
        for _ in range(count):
            self.depth -= 1
            self.put("}")


@dataclass
class Places:
    """How buffers are addressed; implemented by `memory`."""

    def element(self, to: Expressions, r: n.Region, at: tuple[str, ...]) -> str:
        """The lvalue of one element of a region."""
        raise TypeError(type(self).__name__)

    def inside(self, to: Expressions, r: n.Region, at: tuple[str, ...]) -> str:
        """A condition: the element lies in its buffer ("" where that is certain)."""
        raise TypeError(type(self).__name__)


@dataclass
class Expressions:
    """Writes expressions. `replaced` are values that stand in arrays already, by the expression that they are."""

    names: Mapping[str, str]
    facts: Facts
    writer: Writer
    places: Places
    functions: Mapping[str, n.Function]
    used: set[str] = field(default_factory=set)
    replaced: dict[n.Expr, str] = field(default_factory=dict)
    narrow: dict[str, int] = field(default_factory=dict)
    """Values that are unsigned numbers made wider, with the bits of those."""
    written: dict[str, str] = field(default_factory=dict)
    """Device functions that are written for this program, by name."""
    counted: dict[n.Copy, tuple[Sequence[str], Sequence[str]]] = field(default_factory=dict)
    """Coordinates and offsets of gathers that the loop around them counts, outermost first."""

    def function(self, made: tuple[str, str]) -> str:
        """A device function that is written for this program (`ptx`), noted as used."""
        self.written[made[0]] = made[1]
        return made[0]

    def header(self, name: str) -> str:
        """A function of device.cuh, noted as used."""
        self.used.add(name)
        return name

    def scalar(self, e: n.Expr, least: int = 0) -> str:
        """A scalar."""
        return self.element(e, (), least)

    def element(self, e: n.Expr, at: tuple[str, ...], least: int = 0) -> str:
        """The element of `e` at `at`, in parentheses when it binds more loosely than `least`."""
        text, level = self._element(e, self._fitted(e.type, at))
        return text if level >= least else f"({text})"

    def _fitted(self, t: Type, at: tuple[str, ...]) -> tuple[str, ...]:
        """Indices of a value that broadcasts to a larger one: the last axes, 0 along those of extent 1."""
        shape = sizes_of(t)
        own = at[len(at) - len(shape):] if shape else ()
        return tuple("0" if extent == 1 else i for i, extent in zip(own, shape, strict=True))

    def _element(self, e: n.Expr, at: tuple[str, ...]) -> tuple[str, int]:
        if e in self.replaced:
            whole = isinstance(e, (n.Binary, n.Select, n.Cast)) and not sizes_of(e.type)
            return self.replaced[e] if whole else f"{self.replaced[e]}[{flat(at, sizes_of(e.type))}]", ATOM
        match e:
            case n.Const():
                text = literal(e)
                return text, UNARY if text.startswith("-") else ATOM
            case n.Var():
                shape = sizes_of(e.type)
                return (f"{self.names[e.name]}[{flat(at, shape)}]" if shape else self.names[e.name]), ATOM
            case n.Unary():
                sign = "-" if e.op == "neg" else "!" if dtype_of(e.type).is_bool else "~"
                x = self.element(e.x, at, UNARY)
                return f"{sign}({x})" if sign == "-" and x.startswith("-") else sign + x, UNARY  # `--x` is something else
            case n.Binary():
                return self._binary(e, at)
            case n.Select():
                return f"{self.element(e.cond, at, OR)} ? {self.element(e.a, at, OR)} : {self.element(e.b, at, OR)}", CONDITIONAL
            case n.Cast():
                return self._cast(e, at), ATOM
            case n.Load():
                return self._load(e, at)
            case n.Call():
                return self._call(e, at)
            case _:
                raise refuse("KIR-B002", f"the CUDA backend has no spelling for {expr_text(e)}")

    def _binary(self, e: n.Binary, at: tuple[str, ...]) -> tuple[str, int]:
        dtype = dtype_of(e.a.type)
        if dtype.is_bool and e.op in _LOGICAL:
            sign, level = _LOGICAL[e.op]
            left, right = self.element(e.a, at, level), self.element(e.b, at, level + 1)
            if " < " in left and ">" in right and not left.startswith("("):  # `a < b || c > d` begins like a template
                left = f"({left})"
            return f"{left} {sign} {right}", level
        if e.op in ("floordiv", "mod", "ceildiv"):
            return self._rounded_down(e, at)
        if e.op in ("min", "max"):
            a, b = self.element(e.a, at), self.element(e.b, at)
            name = {"f32": f"f{e.op}f", "f64": f"f{e.op}", "f16": f"__h{e.op}", "bf16": f"__h{e.op}"}.get(dtype.name, e.op)
            return f"{name}({a}, {b})", ATOM
        if e.op not in _INFIX:
            raise refuse("KIR-B002", f"the CUDA backend has no operator '{e.op}'")
        if e.op == "mul" and self._wraps(e):
            a, b = (f"static_cast<unsigned{' long long' if dtype.bits == 64 else ''}>({self.element(x, at)})" for x in (e.a, e.b))
            return f"static_cast<{c_type(dtype)}>({a} * {b})", ATOM
        sign, level = _INFIX[e.op]
        tighter = SUM if e.op in n.COMPARISONS else level + 1  # a shift on the right stands in parentheses: `a < b >> c` begins like a template
        text = f"{self.element(e.a, at, level)} {sign} {self.element(e.b, at, tighter)}"
        if dtype.is_integer and dtype.bits < 32 and e.op not in n.COMPARISONS:
            return f"static_cast<{c_type(dtype)}>({text})", ATOM
        return text, level

    def _wraps(self, e: n.Binary) -> bool:
        """Whether a signed product of numbers of narrower unsigned dtypes may be more than its dtype holds: C++ leaves that undefined, and nvcc, which knows
        those numbers, takes such a product to be no less than zero."""
        dtype, bits = dtype_of(e.type), 0
        for side in (e.a, e.b):
            own = self.narrow.get(side.name) if isinstance(side, n.Var) else widened(side)
            if own is None or dtype.kind != "int":
                return False
            bits += own
        return bits >= dtype.bits

    def _rounded_down(self, e: n.Binary, at: tuple[str, ...]) -> tuple[str, int]:
        """C++ truncates: that is rounding down where neither operand is negative, and a function of the header elsewhere."""
        lows = [self.facts.domain(self.facts.expanded(x)).lo for x in (e.a, e.b)]
        unsigned = dtype_of(e.type).kind == "uint"
        plain = unsigned or all(low is not None and low >= 0 for low in lows)
        if plain and e.op != "ceildiv":
            return f"{self.element(e.a, at, PRODUCT)} {'/' if e.op == 'floordiv' else '%'} {self.element(e.b, at, UNARY)}", PRODUCT
        name = self.header({"floordiv": "floor_div", "mod": "floor_mod", "ceildiv": "ceil_div"}[e.op])
        return f"{name}({self.element(e.a, at)}, {self.element(e.b, at)})", ATOM

    def _cast(self, e: n.Cast, at: tuple[str, ...]) -> str:
        source, to, x = dtype_of(e.x.type), e.dtype, self.element(e.x, at)
        if e.rounding == "bits":
            return f"{self.header('bit_cast')}<{c_type(to)}>({x})"
        narrow = {"f16": "half", "bf16": "bfloat16"}
        if source.name in narrow:
            x = f"__{narrow[source.name]}2float({x})"
            source = F32
        if source in FP8:
            x, source = f"static_cast<float>({x})", F32
        if to == source:
            return x
        if to in FP8:
            if e.rounding != "rn" or not source.is_float:
                raise refuse("KIR-B004", f"CUDA has no conversion of {source} to {to} with rounding '{e.rounding}'",
                             needs="a cast from a float, which rounds to nearest and saturates")
            return f"{c_type(to)}({x})"
        if to.name in narrow:
            if e.rounding not in ("rn", "rz", "ru", "rd"):
                raise refuse("KIR-B004", f"CUDA has no conversion to {to} with rounding '{e.rounding}'")
            if (name := _FROM_WHOLE.get((source.name, to.name))) is not None:
                if source.name != "f64":
                    return f"{name}_{e.rounding}({x})"
                if e.rounding == "rn":
                    return f"{name}({x})"
            wide = x if source.name == "f32" else f"static_cast<float>({x})"
            if source.name == "f64" or (source.is_integer and source.bits > 16):
                raise refuse("KIR-B004", f"a conversion of {source} to {to} rounds twice", needs="an explicit cast to f32 between")
            return f"__float2{narrow[to.name]}_{e.rounding}({wide})"
        if e.rounding in ("rd", "ru") and source.name in ("f32", "f64") and to.name in _WHOLE:
            return f"__{'float' if source.name == 'f32' else 'double'}2{_WHOLE[to.name]}_{e.rounding}({x})"
        if e.rounding == "sat" and to.is_integer and to.bits < 32 and (source.bits == 32 or source.is_float) and source.name != "f64":
            lo, hi = to.range
            whole = x if source.is_integer else f"static_cast<int>({x})"
            return f"static_cast<{c_type(to)}>({f'min({whole}, {hi}u)' if source.kind == 'uint' else f'max(min({whole}, {hi}), {lo})'})"
        if e.rounding != "rn":
            raise refuse("KIR-B004", f"CUDA has no conversion of {source} to {to} with rounding '{e.rounding}'")
        return f"static_cast<{c_type(to)}>({x})"

    def _load(self, e: n.Load, at: tuple[str, ...]) -> tuple[str, int]:
        text = self.places.element(self, e.at, at)
        conditions = [self.places.inside(self, e.at, at)] if e.clip else []
        if e.mask is not None:
            conditions.append(self.element(e.mask, at, AND))
        conditions = [c for c in conditions if c]
        if e.cache:
            text = self.cached(e.at.buffer, e.cache, text)
        if not conditions:
            return text, ATOM
        other = self.element(e.other, at, OR) if e.other is not None else of_type(dtype_of(e.type), "0")
        if e.other is None and dtype_of(e.type).is_float and dtype_of(e.type).bits < 32:
            other = literal(n.Const(0.0, dtype_of(e.type)))
        return f"{' && '.join(conditions)} ? {text} : {other}", CONDITIONAL

    def cached(self, b: n.Buffer, cache: str, place: str) -> str:
        """A read of one element under a cache policy."""
        if cache == "volatile" and b.space == "global" and b.dtype.name not in ("f16", "bf16"):
            return f"*(const volatile {c_type(b.dtype)}*)&{place}"
        if b.space != "global" or b.dtype.bytes not in ptx_functions.WORDS:
            raise refuse("KIR-B008", f"a cache policy for {b.space} memory of {b.dtype}", "elements of 2, 4 or 8 bytes in global memory")
        if cache == "nc" and b.dtype.name in ("f16", "bf16"):
            return f"__ldg(&{place})"
        moved = f"{self.function(ptx_functions.load(cache, b.dtype.bytes, b.dtype))}(&{place})"
        return ptx_functions.from_word(b.dtype, moved, self.header("bit_cast") if b.dtype.bits < 32 else "")

    # ------------------------------------------------------------------------------------------------------------------ calls
    def _call(self, e: n.Call, at: tuple[str, ...]) -> tuple[str, int]:
        args, attrs = [a for a in e.args if isinstance(a, n.Expr)], dict(e.attrs)
        if e.of is not None:
            if shape_of(e.type) or any(shape_of(a.type) for a in args):
                raise refuse("KIR-B002", f"function '{e.fn}' of a tile")
            return f"{self.names[e.fn]}({', '.join(map(self.scalar, args))})", ATOM
        match e.fn:
            case "iota":
                return at[0], COMPARE
            case "expand":
                axis = int(attrs["axis"])
                return self._element(args[0], at[:axis] + at[axis + 1:])
            case "broadcast":
                return self._element(args[0], self._fitted(args[0].type, at))
            case "trans":
                order = [int_value(a) or 0 for a in args[1:]]
                return self._element(args[0], tuple(at[order.index(axis)] for axis in range(len(order))))
            case "reshape":
                return self._element(args[0], unflattened(flat(at, sizes_of(e.type)), sizes_of(args[0].type)))
            case "vec":
                if at[0].isdigit():
                    return self._element(args[int(at[0])], ())
                return self._spilled(e, at)
            case "cat":
                return self._spilled(e, at)
            case "pick":
                return self._element(args[0], tuple(self.element(i, at) for i in args[1:]))
            case "reduce":
                return self._reduced(e, at)
            case "multiple_of" | "max_contiguous" | "max_constancy":
                return self._element(args[0], at)
            case "pack":
                return f"{self.header('packed')}<{c_type(dtype_of(e.type))}>({self._whole(args[0])})", ATOM
            case "unpack":
                return f"{self.header('part')}<{c_type(dtype_of(e.type))}>({self.element(args[0], at[:-1])}, {at[-1]})", ATOM
            case "warp_reduce":
                mask = self._lanes(e, at)
                return f"__reduce_{attrs.get('op', 'add')}_sync({mask}, {self.element(args[0], at)})", ATOM
            case _ if e.fn in _SHUFFLES:
                width = f", {attrs['width']}" if "width" in attrs else ""
                mask = self._lanes(e, at)
                return f"{_SHUFFLES[e.fn]}({mask}, {self.element(args[0], at)}, {self.element(args[1], at)}{width})", ATOM
            case "philox":
                words = [*(self.element(a, self._fitted(a.type, at)) for a in args), "0u", "0u", "0u"][:5]
                return f"{self.header('philox4x32')}<{attrs.get('lane', 0)}, {attrs.get('rounds', 10)}>({', '.join(words)})", ATOM
            case "active_mask":
                return "__activemask()", ATOM
            case _ if e.fn in _VOTES:
                mask = self._lanes(e, at)
                return f"{_VOTES[e.fn]}({mask}, {self.element(args[0], at)})", ATOM
            case _:
                return self._math(e, args, at), ATOM

    def _lanes(self, e: n.Call, at: tuple[str, ...]) -> str:
        """The mask of a call: a number, or what the run says."""
        return self.element(e.args[-1], at) if masked(e.fn, len(e.args)) and isinstance(e.args[-1], n.Expr) else lane_mask(dict(e.attrs))

    def _math(self, e: n.Call, args: list[n.Expr], at: tuple[str, ...]) -> str:
        row, dtype = instruction(e.fn), dtype_of(args[0].type) if args else None
        values = ", ".join(self.element(a, at) for a in args)
        if e.fn in _HEADER and dtype is not None and dtype.name == "f32" and not e.attrs:
            return f"{self.header(e.fn)}({values})"
        if e.fn == "to_tf32" and dict(e.attrs).get("rounding", "rn") == "rn":
            return f"{self.header('round_to_tf32')}({values})"
        spelling = row.on("cuda")
        exact = spelled(e.fn, tuple(dtype_of(a.type) for a in args), dict(e.attrs)) if row.level == "element" else None
        if exact is not None and (spelling is None or e.attrs or e.fn == "mulhi"):
            return f"{self.function(ptx_functions.element(exact))}({values})"
        if e.fn == "mulhi" and dtype is not None and dtype.bits != 32:
            if dtype.bits < 32:
                raise refuse("KIR-B004", f"{spelling} takes no {dtype}", needs="an operand cast to 32 bits")
            return f"{'__mul64hi' if dtype.kind == 'int' else '__umul64hi'}({values})"
        if e.attrs and row.level == "element":
            raise refuse("KIR-B008", f"the CUDA backend has no spelling for {expr_text(e)}")
        if spelling is None or not row.is_pure or row.level != "element" or dtype is None:
            raise refuse("KIR-B008", f"the CUDA backend has no spelling for '{e.fn}'")
        if dtype.name in ("f16", "bf16") and e.fn in _HALVES:
            return f"{_HALVES[e.fn]}({values})"
        if dtype.name in ("f16", "bf16"):
            raise refuse("KIR-B004", f"{spelling} takes no {dtype}", needs="an operand cast to f32")
        if dtype.name == "f64" and spelling.startswith("__f") and e.fn not in _OF_BITS:  # a function of floats, which would round what it is given
            raise refuse("KIR-B004", f"{spelling} takes no f64", needs="an operand cast to f32")
        if dtype.name == "f64" and spelling.endswith("f") and not spelling.startswith("__"):
            spelling = spelling[:-1]
        if e.fn == "abs" and dtype.is_integer:
            spelling = "abs"
        if e.fn in _OF_BITS:
            if dtype.bits < 32 and (e.fn in ("clz", "brev") or (e.fn == "popc" and dtype.kind == "int")):
                raise refuse("KIR-B004", f"{spelling} takes no {dtype}", needs="an operand cast to u32")
            spelling += "ll" if dtype.bits == 64 else ""
        if e.fn == "brev" and dtype.kind == "int":  # C++ has it of unsigned words
            return f"static_cast<{c_type(dtype)}>({spelling}({values}))"
        return f"{spelling}({values})"

    def _whole(self, x: n.Expr) -> str:
        """A vector as an array."""
        if isinstance(x, n.Var):
            return self.names[x.name]
        if x not in self.replaced:
            self.replaced[x] = self.array(x)
        return self.replaced[x]

    def _spilled(self, e: n.Expr, at: tuple[str, ...]) -> tuple[str, int]:
        """A value put in an array of its own first."""
        self.replaced[e] = self.array(e)
        return self._element(e, at)

    def array(self, e: n.Expr) -> str:
        """Writes a tile into a fresh array and gives its name."""
        name, shape = self.writer.fresh("v"), sizes_of(e.type)
        self.writer.put(f"{c_type(dtype_of(e.type))} {name}[{math.prod(shape)}];")
        self.fill(name, e, shape)
        return name

    def fill(self, name: str, e: n.Expr, shape: tuple[int, ...]) -> None:
        """Writes every element of `e`, stretched to `shape`, into an array."""
        if isinstance(e, n.Call) and e.fn == "vec" and e.of is None:
            for i, a in enumerate(e.args):
                assert isinstance(a, n.Expr)
                self.writer.put(f"{name}[{i}] = {self.scalar(a)};")
            return
        if isinstance(e, n.Call) and e.fn == "cat" and e.of is None and sizes_of(e.type) == shape:
            axis, first = int(dict(e.attrs).get("axis", 0)), 0
            for a in e.args:
                assert isinstance(a, n.Expr)
                own = sizes_of(a.type)
                self._filled(name, a, own, shape, tuple(first * (k == axis) for k in range(len(own))))
                first += own[axis]
            return
        self._filled(name, e, shape, shape, (0,) * len(shape))

    def _filled(self, name: str, e: n.Expr, own: tuple[int, ...], shape: tuple[int, ...], first: tuple[int, ...]) -> None:
        """Writes every element of `e`, stretched to `own`, into an array of `shape`, from the place `first` on."""
        self.prepare(e)
        at = self.writer.loops(own)
        places = tuple(f"({i} + {k})" if k else i for i, k in zip(at, first, strict=True))
        self.writer.put(f"{name}[{flat(places, shape)}] = {self.element(e, at)};")
        self.writer.close(len(own))

    def prepare(self, e: n.Expr) -> None:
        """Puts what needs statements (reductions, vectors) into arrays, outside the loops over elements."""
        for x in reversed(list(walk(e))):
            if isinstance(x, n.Call) and x.of is None and x.fn in ("reduce", "vec", "cat") and x not in self.replaced and sizes_of(
                    x.type):
                self.replaced[x] = self._reduction(x) if x.fn == "reduce" else self.array(x)
            elif isinstance(x, n.Call) and x.of is None and x.fn == "reduce" and x not in self.replaced:
                self.replaced[x] = self._reduction(x)
            elif isinstance(x, n.Call) and x.of is None and x.fn == "unpack" and isinstance(x.args[0], (n.Binary, n.Select, n.Cast)) and not sizes_of(
                    x.args[0].type) and x.args[0] not in self.replaced:
                self.replaced[x.args[0]] = self._number(x.args[0])

    def _number(self, e: n.Expr) -> str:
        """Writes a number into a variable, of which several elements are parts."""
        name = self.writer.fresh("v")
        self.writer.put(f"const {c_type(dtype_of(e.type))} {name} = {self.scalar(e)};")
        return name

    def _reduced(self, e: n.Call, at: tuple[str, ...]) -> tuple[str, int]:
        if e not in self.replaced:
            self.replaced[e] = self._reduction(e)
        return self._element(e, at)

    def _reduction(self, e: n.Call) -> str:
        """A loop over the reduced axis, in index order, into an array of the other axes."""
        attrs, x = dict(e.attrs), e.args[0]
        if not isinstance(x, n.Expr) or len(e.args) != 1 or "combine" in attrs:
            raise refuse("KIR-B008", "the CUDA backend reduces one value with a built-in operation")
        op, axis, shape, dtype = str(attrs["op"]), int(attrs["axis"]), sizes_of(x.type), dtype_of(x.type)
        out = shape[:axis] + shape[axis + 1:]
        if op not in (*_FOLDS, "min", "max"):
            raise refuse("KIR-B008", f"the CUDA backend has no reduction '{op}'")
        name = self.writer.fresh("r")
        self.writer.put(f"{c_type(dtype)} {name}[{max(1, math.prod(out))}];")
        self.prepare(x)
        at = self.writer.loops(out)
        place = f"{name}[{flat(at, out)}]"
        self.writer.put(f"{place} = {self.element(x, (*at[:axis], '0', *at[axis:]))};")
        step = self.writer.fresh("e")
        self.writer.put(unrolled(int(shape[axis])))
        self.writer.put(f"for (int {step} = 1; {step} < {shape[axis]}; ++{step}) {{")
        self.writer.depth += 1
        value = self.element(x, (*at[:axis], step, *at[axis:]), UNARY)
        if op in ("min", "max"):
            function = {"f32": f"f{op}f", "f64": f"f{op}", "f16": f"__h{op}", "bf16": f"__h{op}"}.get(dtype.name, op)
            self.writer.put(f"{place} = {function}({place}, {value});")
        else:
            self.writer.put(f"{place} = {_FOLDS[op].format(a=place, b=value)};")
        self.writer.close(1 + len(out))
        return name


