"""What torch, triton and Python's own functions are to a reader of host code: tensors of known shapes, numbers over sizes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL
from kir.ir.types import DTYPES as IR_DTYPES
from kir.surface.launches.values import Array, Bits, Dtype, Known, Quotient, Unknown, Value, floored, is_number, rounded_up

DTYPES = {
    "float16": "f16", "half": "f16", "bfloat16": "bf16", "float32": "f32", "float": "f32", "float64": "f64", "double": "f64", "int8": "i8", "int16": "i16",
    "int32": "i32", "int": "i32", "int64": "i64", "long": "i64", "uint8": "u8", "bool": "bool", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
    "short": "i16", "uint16": "u16", "uint32": "u32", "uint64": "u64",
}
"""IR dtypes by torch's names."""
TRITON = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "float8e4nv": "f8e4m3", "float8e5": "f8e5m2", "int1": "bool",
          **{f"{k}int{b}": f"{k or 'i'}{b}" for k in ("", "u") for b in (8, 16, 32, 64)}}
"""IR dtypes by triton.language's names."""
MAKERS = frozenset({"randn", "rand", "empty", "zeros", "ones", "full", "randint", "arange", "tensor", "randperm", "empty_strided", "linspace"})
SAME = frozenset({"contiguous", "cuda", "cpu", "detach", "requires_grad_", "fill_", "zero_", "normal_", "uniform_", "mul_", "add_", "div_", "record_stream",
                  "pin_memory", "npu", "xpu"})
"""Methods whose result is the tensor, or one of its shape and dtype in its place."""
ELEMENTWISE = frozenset({"rsqrt", "sqrt", "exp", "log", "abs", "sigmoid", "tanh", "relu", "neg", "square", "sin", "cos", "reciprocal", "clone"})
"""Functions of torch and methods whose result is a new tensor of the shape and dtype of their one tensor."""
COPIED = ELEMENTWISE | {"softmax", "clamp", "masked_fill"}
"""Methods whose result is such a tensor, whatever else they take."""
FOLDS = frozenset({"mean", "sum", "var", "std", "amax", "amin", "prod", "logsumexp"})
"""Methods that leave an axis out, which is named first, or keep it with one element."""
PLAIN = frozenset({"Tensor", "int", "float", "bool", "str", "list", "tuple", "dict"})
"""Classes that arguments usually are of."""
OTHER_DEVICES = frozenset({"torch.version.hip", "torch.version.xpu"})
"""What torch says of devices that KIR's targets are not."""
RANK = "the rank of a tensor"
"""What is said of a rank that nothing shows."""
REAL = "a number that need be no whole one"
"""What is said of such a number."""
CASTS = frozenset({"half", "float", "double", "bfloat16", "int", "long", "bool", "short"})


@dataclass(frozen=True)
class External:
    """A name of a package that is not read: `torch.randn`."""

    dotted: str

    @property
    def last(self) -> str:
        """Its last word."""
        return self.dotted.rpartition(".")[2]


class Lazy:
    """An argument of which only the name is known: a tensor once it is used as one, a number once it is used as that."""

    def __init__(self, known: Known, name: str, default: Value = None) -> None:
        self.known, self.name, self.default = known, name, default
        self.array_: Array | None = None
        self.number_: n.Expr | None = None

    def array(self) -> Array:
        """It is a tensor."""
        self.array_ = self.array_ or Array(self.known, self.name)
        return self.array_

    def number(self) -> n.Expr:
        """It is a number, a caller's choice; where the signature gives a default, that is its example, and what it is where no size can be so (-100)."""
        if self.number_ is None:
            given = self.default
            if isinstance(given, int) and not isinstance(given, bool) and given <= 0:
                self.number_ = build.const(given)
                self.known.remarks.append(f"{self.name} is {given}, as it is by default")
                return self.number_
            self.number_ = self.known.fresh("", given if isinstance(given, int) and not isinstance(given, bool) else None)
            self.known.called(self.number_, self.name, 1)
        return self.number_


@dataclass(frozen=True)
class Limits:
    """`torch.finfo` of a dtype."""

    of: str

    def value(self, name: str) -> Value:
        """Its least or greatest number, or its spacing at 1."""
        import ml_dtypes

        from kir.interp.numerics.number import storage
        dtype = storage(IR_DTYPES[self.of])
        info = (ml_dtypes.iinfo if IR_DTYPES[self.of].is_integer else ml_dtypes.finfo)(dtype)
        if name not in ("min", "max", "eps", "tiny", "smallest_normal") or not hasattr(info, name):
            return Unknown(name)
        found = getattr(info, name)
        return build.const(int(found)) if isinstance(info, ml_dtypes.iinfo) and abs(int(found)) < 1 << 31 else float(found)


@dataclass(frozen=True)
class Described:
    """A tensor descriptor that the host makes: of a tensor, with the extents of its blocks."""

    of: Array
    block: tuple[Value, ...]


def is_real(v: Value) -> bool:
    """Whether a value is a number that need be no whole one: a parameter that is 2.0 by default, or what is computed with one."""
    return isinstance(v, float) or (isinstance(v, Lazy) and isinstance(v.default, float) and v.array_ is None) or (isinstance(v, Unknown) and v.reason == REAL)


def uncounted(left: Value, right: Value) -> Unknown:
    """What arithmetic on two values gives that are not both whole numbers."""
    return Unknown(REAL if is_real(left) or is_real(right) else "arithmetic on what is not known")


def number(v: Value) -> n.Expr | None:
    """A value as a whole number, where it is one."""
    if isinstance(v, Lazy):
        return v.number() if v.array_ is None and not is_real(v) else None
    if isinstance(v, bool) or v is None:
        return None
    if isinstance(v, int):
        return build.const(v)
    if isinstance(v, Quotient):
        return None
    return v if isinstance(v, n.Expr) and is_number(v) else None


def array(v: Value) -> Array | None:
    """A value as a tensor, where it is one."""
    if isinstance(v, Lazy):
        return v.array() if v.number_ is None and not is_real(v) else None
    return v if isinstance(v, Array) else None


def external(dotted: str) -> Value:
    """A name of a package, where it means a value: a dtype, or None where torch has None."""
    owner, _, last = dotted.rpartition(".")
    if dotted in OTHER_DEVICES:
        return None
    if owner in ("torch", "numpy", "np", "cupy", "cp") and last in DTYPES:
        return Dtype(DTYPES[last])
    if owner.endswith(("tl", "triton.language")) and last in TRITON:
        return Dtype(TRITON[last])
    return External(dotted)


def _dims(known: Known, values: Sequence[Value]) -> list[n.Expr] | None:
    """A shape from arguments: numbers, or one list of them. A number that is written out is a size of its own, of which it is an example, but for one in a
    function that tensors are handed to: it is so in every call."""
    items = list(values[0]) if len(values) == 1 and isinstance(values[0], (list, tuple)) else list(values)
    out: list[n.Expr] = []
    for each in items:
        e = number(each)
        if e is None:
            return None
        out.append(known.fresh("", int(e.value)) if isinstance(e, n.Const) and int(e.value) > 1 and not known.handed else e)
    return out


def _dtype(named: Mapping[str, Value], default: str) -> str:
    given = named.get("dtype")
    return given.name if isinstance(given, Dtype) else default if given is None else ""


def called(known: Known, f: External, args: Sequence[Value], named: Mapping[str, Value]) -> Value:
    """What a function of a package gives."""
    word = f.last
    if word == "dtype" and args and isinstance(args[0], Dtype):
        return args[0]
    if f.dotted in ("os.environ.get", "os.getenv") and args and isinstance(args[0], str):  # as where nobody has set it
        return args[1] if len(args) > 1 else named.get("default")
    if word in MAKERS and f.dotted.split(".")[0] in ("torch", "numpy", "np", "cupy", "cp", "jax", "random", word):
        return _made(known, word, args, named)
    if word.endswith("_like") and args and (like := array(args[0])) is not None:
        made = Array(known, "", like.shape, _dtype(named, like.dtype))
        made.like, made.alike = like, "dtype" not in named
        return made
    if f.dotted.startswith("torch.") and args and word in ELEMENTWISE | FOLDS and (of := array(args[0])) is not None:
        return method(of, word, args[1:], named) if word in FOLDS else Array(known, "", of.shape, of.dtype)
    if word in ("cdiv", "ceil_div", "ceildiv", "div_up", "cdiv_fn") and len(args) == 2:
        a, b = number(args[0]), number(args[1])
        return rounded_up(a, b) if a is not None and b is not None else Unknown(word)
    if word in ("next_power_of_2", "next_pow2", "next_power_of_two") and args and (e := number(args[0])) is not None:
        return known.power_of_two(e)
    if word in ("sqrt", "isqrt") and f.dotted.split(".")[0] in ("math", "np", "numpy") and args and (e := number(args[0])) is not None:
        return known.root(e)
    if word == "divmod" and len(args) == 2 and (a := number(args[0])) is not None and (b := number(args[1])) is not None:
        return [floored(known.resolved(a), known.resolved(b)), build.mod(known.resolved(a), known.resolved(b))]
    if word in ("min", "max") and len(args) >= 2 and all(number(a) is not None for a in args):
        return _extreme(known, word, [e for a in args if (e := number(a)) is not None])
    if word in ("ceil", "int", "floor", "round") and len(args) == 1 and isinstance(args[0], Unknown) and args[0].reason == REAL:
        return known.fresh("")  # a number of its own: a caller's factor, rounded
    if f.dotted in ("math.log2", "np.log2", "numpy.log2") and args and (e := number(args[0])) is not None:
        return Bits(build.sub(e, 1))  # rounded up, as it is used
    if word in ("ceil", "int", "round") and len(args) == 1 and isinstance(args[0], Bits):
        return args[0] if word == "ceil" else known.bits(args[0])
    if word == "ceil" and args:
        return rounded_up(args[0].over, args[0].under) if isinstance(args[0], Quotient) else args[0]
    if word in ("int", "floor") and args:
        return floored(args[0].over, args[0].under) if isinstance(args[0], Quotient) else args[0]
    if word == "len" and args and isinstance(args[0], (list, tuple)):
        return build.const(len(args[0]))
    if f.dotted == "dict" and all(isinstance(a, dict) for a in args[:1]):
        return {**(args[0] if args and isinstance(args[0], dict) else {}), **named}
    if f.dotted == "bool" and len(args) == 1 and (isinstance(args[0], bool) or (isinstance(args[0], n.Expr) and args[0].type == BOOL)):
        return args[0]
    if word in ("tuple", "list") and args and isinstance(args[0], (list, tuple)):
        return list(args[0])
    if word == "prod" and args and isinstance(args[0], (list, tuple)) and all(number(a) is not None for a in args[0]):
        whole: n.Expr = build.const(1)
        for each in args[0]:
            whole = build.mul(whole, number(each) or whole)
        return whole
    if word in ("finfo", "iinfo") and args and isinstance(args[0], Dtype) and args[0].name in IR_DTYPES:
        return Limits(args[0].name)
    if word in ("from_tensor", "TensorDescriptor") and len(args) in (2, 4) and isinstance(args[-1], (list, tuple)) and (of := array(args[0])) is not None:
        of.of_rank(len(args[-1]))
        return Described(of, tuple(args[-1]))
    if word == "constexpr" and len(args) == 1:
        return args[0]
    if f.dotted == "isinstance" and len(args) == 2 and isinstance(args[1], External):
        if kind := _kind(args[0]):
            return kind == args[1].last
        if isinstance(args[0], Lazy) and args[1].last not in PLAIN:
            return False  # an argument of which nothing is said is of no class that few have
    if word in ("is_available", "is_cuda") or f.dotted.endswith("cuda.is_available"):
        return True
    return Unknown(f"{f.dotted}(..)")


def _kind(v: Value) -> str:
    """The class of a value, "" where that is not known."""
    if isinstance(v, Array) or (isinstance(v, Lazy) and v.array_ is not None):
        return "Tensor"
    if isinstance(v, (bool, str, float)):
        return type(v).__name__
    return "int" if isinstance(v, n.Const) else ""


def _extreme(known: Known, word: str, values: Sequence[n.Expr]) -> Value:
    """The least or the most of numbers; beside one that is written out, what it is in the call that was seen."""
    fold: Callable[[n.Expr, n.Expr], n.Expr] = build.minimum if word == "min" else build.maximum
    made = values[0]
    for each in values[1:]:
        made = fold(made, each)
    return made


def _made(known: Known, word: str, args: Sequence[Value], named: Mapping[str, Value]) -> Value:
    if word == "full":
        args = args[:1]
    if word == "randint":
        args = args[-1:] if args and isinstance(args[-1], (list, tuple)) else [named.get("size")]
    if word == "tensor":
        inner = args[0] if args else None
        return Array(known, "", _dims(known, [build.const(len(inner))]) if isinstance(inner, list) else None, _dtype(named, ""))
    if word == "arange":
        ends = [number(x) for x in args]
        args = args[:1]
        if len(ends) > 1:
            length = build.sub(known.resolved(ends[1]), known.resolved(ends[0])) if ends[0] is not None and ends[1] is not None else None
            step = known.resolved(ends[2]) if len(ends) > 2 and ends[2] is not None else None
            args = [] if length is None or (len(ends) > 2 and step is None) else [length if step is None else rounded_up(length, step)]
    if "size" in named and not args:
        args = [named["size"]]
    shape = _dims(known, args)
    default = "i64" if word in ("randint", "arange", "randperm") else "f32"
    return Array(known, "", shape, _dtype(named, default))


def _shape(a: Array) -> tuple[n.Expr, ...] | None:
    a.settle()
    return a.shape


def attribute(a: Array, name: str) -> Value:
    """An attribute of a tensor; `Method` for what is called."""
    if name == "shape":
        return Shape(a)
    if name == "dtype":
        return Dtype(a.dtype)
    if name == "ndim":
        return build.const(len(a.shape)) if a.shape is not None else Unknown(RANK)
    if name in ("T", "mT"):
        return method(a, "t", (), {})
    if name == "is_cuda":
        return True
    if name == "itemsize":
        return _element_bytes(a)
    if name == "data":
        return a
    if name == "grad":
        if a.grad is None:
            a.grad = Array(a.known, f"{a.hint}_grad" if a.hint else "", a.shape, a.dtype)
            a.grad.like = a
        return a.grad
    if name == "requires_grad":
        a.known.remarks.append(f"{a.hint or 'a tensor'} needs no gradient")
        return False  # as torch makes tensors
    return Method(a, name)


@dataclass(frozen=True)
class Shape:
    """The shape of a tensor, before it is unpacked or subscripted."""

    of: Array


@dataclass(frozen=True)
class Saved:
    """The tensors that `ctx.save_for_backward` was given in a call that is not seen."""


@dataclass(frozen=True)
class Starred:
    """A value with a star whose number of elements is not known yet."""

    of: Value


@dataclass(frozen=True)
class Method:
    """A method of a tensor, before it is called."""

    of: Array
    name: str


def part_of(owner: Shape | list[Value] | tuple[Value, ...], first: int | n.Expr | None, last: int | n.Expr | None, rest: bool) -> Value:
    """`x[first:last]` of a list, or of a shape whose rank may be open; `rest` where no end is said."""
    lo, hi = (int(e.value) if isinstance(e, n.Const) else e if isinstance(e, int) else None for e in (first, last))
    if isinstance(owner, Shape) and owner.of.shape is not None:
        owner = list(owner.of.shape)
    if lo is None or hi is None:
        return Unknown("a part of a list")
    if not isinstance(owner, Shape):
        return list(owner[lo:] if rest else owner[lo:hi])
    axes = range(lo, 0) if rest and lo < 0 else range(lo, hi) if not rest and 0 <= lo < hi else range(0)
    return [owner.of.extent(k) or Unknown("an extent") for k in axes] if axes else Unknown("a part of a shape")


def method(a: Array, name: str, args: Sequence[Value], named: Mapping[str, Value]) -> Value:
    """What a method of a tensor gives."""
    known = a.known
    axis = next((int(e.value) for e in (number(x) for x in (*args, *named.values())) if isinstance(e, n.Const)), None)
    if name == "size":
        return Shape(a) if axis is None else _or_unknown(a.extent(axis), "an extent")
    if name == "stride":
        if axis is not None:
            return a.stride(axis)
        shape = _shape(a)
        return [a.stride(k) for k in range(len(shape))] if shape is not None else Unknown("the strides of a tensor")
    if name in ("numel", "nelement"):
        return a.elements()
    if name in ("dim", "ndimension"):
        return attribute(a, "ndim")
    if name in COPIED or (name == "contiguous" and (a.turned is not None or a.strides is not None)):
        made = Array(known, a.hint, a.shape, a.dtype)
        made.like = a if a.shape is None else None
        return made
    if name in ("data_ptr", "view_as", "expand_as") or name in SAME:
        return a
    if name in ("to", "type", "astype"):
        chosen = next((x for x in (*args, *named.values()) if isinstance(x, Dtype)), None)
        return a if chosen is None else _with_dtype(a, chosen.name)
    if name in CASTS:
        return _with_dtype(a, DTYPES[name])
    if name == "is_contiguous":
        return True
    if name.startswith("new_"):
        return _made(known, name.removeprefix("new_"), args, {"dtype": Dtype(a.dtype), **named})
    if name == "element_size":
        return _element_bytes(a)
    if name in ("transpose", "swapaxes") and len(axes := [int(e.value) for e in map(number, args) if isinstance(e, n.Const)]) == 2 and (
            a.shape is None or len(a.shape) != 2):
        turned = a.part(hint=a.hint)
        turned.turned = a, axes[0], axes[1]
        if a.shape is not None:
            turned.of_rank(len(a.shape))
        return turned
    if name in ("t", "transpose"):
        shape = a.of_rank(2)
        return a.part((shape[1], shape[0]), (a.stride(1), a.stride(0))) if shape is not None else Unknown("a transposed tensor")
    if name == "unsqueeze" and axis is not None and (shape := _shape(a)) is not None and -len(shape) <= axis <= len(shape):
        at = axis if axis >= 0 else len(shape) + 1 + axis
        return a.part([*shape[:at], build.const(1), *shape[at:]], hint=a.hint)
    if name == "flatten" and len(args) == 2 and isinstance(args[0], n.Const) and isinstance(args[1], n.Const):
        return _flattened(a, int(args[0].value), int(args[1].value))
    if name == "view" and len(args) == 1 and isinstance(kind := args[0], Dtype) and a.shape is not None and a.strides is None:
        return Array(a.known, a.hint, a.shape, kind.name)  # the same bytes by another name, of elements as wide
    if name in ("view", "reshape", "flatten"):
        return _viewed(a, [] if name == "flatten" and args == [build.const(0)] else args)
    if name in FOLDS and (axis := next((int(e.value) for e in map(number, (*args, named.get("dim"))) if isinstance(e, n.Const)), None)) is not None:
        return _folded(a, axis, named.get("keepdim") is True or True in args[1:], _dtype(named, a.dtype))
    return Unknown(f".{name}(..)")


def _element_bytes(a: Array) -> n.Expr:
    """The bytes of an element; where nothing says its dtype, those of f32, which it is taken for then."""
    return bytes_of(a.known, next((x.dtype for x in _like(a) if x.dtype), ""), a.hint)


def bytes_of(known: Known, dtype: str, of: str = "") -> n.Expr:
    """The bytes of an element of a dtype, which may be a caller's choice; `of` names the tensor."""
    if dtype not in IR_DTYPES:
        known.remarks.append(f"an element of {of or 'a tensor'} has 4 bytes")
    return build.const(max(IR_DTYPES[dtype].bits // 8, 1) if dtype in IR_DTYPES else 4)


def _like(a: Array) -> Iterator[Array]:
    """A tensor, and those that it was made like with their dtype."""
    at: Array | None = a
    while at is not None:
        yield at
        at = at.like if at.alike else None


def _folded(a: Array, axis: int, keeps: bool, dtype: str) -> Array:
    """A tensor with an axis left out, or kept with one element."""
    shape = _shape(a)
    if shape is None or not -len(shape) <= axis < len(shape):
        return Array(a.known, "", None, dtype)
    at = axis % len(shape)
    return Array(a.known, "", [*shape[:at], *([build.const(1)] if keeps else []), *shape[at + 1:]], dtype)


def _or_unknown(v: Value, what: str) -> Value:
    return Unknown(what) if v is None else v


def _with_dtype(a: Array, dtype: str) -> Array:
    if a.dtype == "" and a.shape is None:
        a.dtype = dtype
        return a
    return Array(a.known, a.hint, _shape(a), dtype, a.strides)


def _viewed(a: Array, args: Sequence[Value]) -> Value:
    """A tensor with other axes: one extent may be -1, what is left."""
    items = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else list(args) or [-1]
    given = [e for e in (number(x) for x in items) if e is not None]
    if len(given) != len(items):
        return Unknown("a view")
    rest: n.Expr = build.const(1)
    for e in given:
        if not build.is_const(e, -1):
            rest = build.mul(rest, e)
    if a.shape is None and len(given) == 2 and build.is_const(given[0], -1):
        rows = a.known.fresh("rows")  # all axes before the last as one
        a.folded = (rows, given[1])
        return a.part(a.folded, hint=a.hint)
    left = rest if rest is None else _over(a.elements(), rest)
    return a.part([left if build.is_const(e, -1) else e for e in given], hint=a.hint)


def _flattened(a: Array, first: int, last: int) -> Value:
    """A tensor whose axes from one to another are one; of unknown rank, all axes before its last."""
    if a.shape is None:
        if (first, last) != (0, -2):
            return Unknown("axes made one")
        a.folded = (a.known.fresh("rows"), a.known.fresh("columns"))
        return a.part(a.folded, hint=a.hint)
    rank = len(a.shape)
    lo, hi = first % rank, last % rank
    whole: n.Expr = build.const(1)
    for e in a.shape[lo:hi + 1]:
        whole = build.mul(whole, e)
    return a.part([*a.shape[:lo], whole, *a.shape[hi + 1:]], hint=a.hint)


def _over(whole: n.Expr, part: n.Expr) -> n.Expr:
    """A product without one of its factors."""
    terms = build.polynomial(whole)
    inner = build.polynomial(part)
    if len(terms) == 1 and len(inner) == 1:
        (atoms, c), (less, d) = next(iter(terms.items())), next(iter(inner.items()))
        left = list(atoms)
        if c % d == 0 and all(x in left and left.remove(x) is None for x in less):  # type: ignore[func-returns-value]  # removes as it checks
            made: n.Expr = build.const(c // d)
            for x in left:
                made = build.mul(made, x)
            return made
    return floored(whole, part)


def dtypes_said(test: ast.expr, value: Callable[[ast.expr], Value], holds: bool = True) -> None:
    """What a condition that every call keeps (with `holds` false, that every call breaks) says of dtypes: `x.dtype == torch.float16`, or one of several in a
    row. A tensor of which nothing else does has that one."""
    match test:
        case ast.BoolOp(op=ast.And(), values=values) if holds:
            for each in values:
                dtypes_said(each, value)
        case ast.BoolOp(op=ast.Or(), values=values) if not holds:
            for each in values:
                dtypes_said(each, value, False)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            dtypes_said(operand, value, not holds)
        case ast.Compare(left=left, ops=ops, comparators=others) if holds or len(ops) == 1:
            sides = [left, *others] if all(isinstance(op, ast.Eq if holds else ast.NotEq) for op in ops) else []
            names = {x.name for e in sides if isinstance(x := value(e), Dtype) and x.name}
            for e in sides if len(names) == 1 else ():
                owner = value(e.value) if isinstance(e, ast.Attribute) and e.attr == "dtype" else None
                of = owner.array() if isinstance(owner, Lazy) and owner.number_ is None else owner
                if isinstance(of, Array) and not of.dtype:
                    of.dtype = next(iter(names))


def chosen(known: Known, name: str, v: Value) -> Value:
    """A number that the caller chose, as a size of which it is an example; of several each."""
    if isinstance(v, (list, tuple)):
        return [chosen(known, "", x) for x in v]
    e = number(v)
    if isinstance(e, n.Const) and int(e.value) > 1:
        made = known.fresh("", int(e.value))
        if name:
            known.called(made, name)
        return made
    return v


def turn(known: Known, target: ast.expr, v: Value) -> Value:
    """What a turn of a loop gives: numbers that the caller chose, each one size, wherever it is used."""
    names = [x.id if isinstance(x, ast.Name) else "" for x in target.elts] if isinstance(target, ast.Tuple) else []
    if isinstance(v, (list, tuple)):
        return [chosen(known, names[k] if k < len(names) else "", x) for k, x in enumerate(v)]
    return chosen(known, target.id, v) if isinstance(target, ast.Name) else v
