"""Reading one kernel: expressions of Triton become values, what they compute becomes IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

import libcst as cst

from kir.dataclass import dataclass
from kir.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import BOOL, DType, symbolic

from . import joins, operators
from .emit import Emitter, buffer_read, mentions
from .host import HostScope, unchanged_by_decorators
from .inference import Inference
from .liveness import Liveness
from .signature import parameters
from .values import (
    BlockPointer,
    Builtin,
    Choice,
    Host,
    Items,
    Jit,
    Method,
    ModuleValue,
    NotUnderstood,
    Pointer,
    Run,
    Slice,
    Static,
    TypeOf,
    Undefined,
    Value,
    describe,
    is_known,
    is_number,
)

MAX_INLINE = 24


@dataclass
class Frame:
    """The names of one function while it is read. `cells` are the names that live in buffers."""

    fn: Jit
    scope: HostScope
    env: dict[str, Value] = field(default_factory=dict)
    cells: dict[str, Value] = field(default_factory=dict)
    number: int = 0
    """Tells calls of functions apart: a name of one is none of another's."""


class Arguments:
    """The arguments of a call, by position or keyword."""

    def __init__(self, args: Sequence[Value], named: dict[str, Value]) -> None:
        self.args, self.named = list(args), dict(named)

    def get(self, at: int, name: str, default: Value = None) -> Value:
        """One argument, or its default."""
        if at < len(self.args):
            return self.args[at]
        return self.named.get(name, default)

    def need(self, at: int, name: str) -> Value:
        """One argument that must be there."""
        if at >= len(self.args) and name not in self.named:
            raise NotUnderstood(f"argument '{name}' is missing")
        return self.get(at, name)

    def flat(self, at: int, name: str) -> tuple[Value, ...]:
        """A shape or permutation given as one tuple or as the remaining arguments."""
        rest = self.args[at:]
        if len(rest) > 1 or (len(rest) == 1 and not isinstance(rest[0], Items)):
            return tuple(rest)
        whole = self.get(at, name)
        if isinstance(whole, Items):
            return whole.items
        raise NotUnderstood(f"'{name}' is {describe(whole)}")


class Reader:
    """The state of reading one kernel."""

    def __init__(self, scope: HostScope, inference: Inference) -> None:
        self.root = scope
        self.inference = inference
        self.out = Emitter()
        self.paths = joins.Paths()
        self.frames: list[Frame] = []
        self.dtype_terms: dict[str, str] = {}
        self.functions: dict[str, n.Function] = {}
        self.written: set[str] = set()
        self.read: set[str] = set()
        self.opaque: list[str] = []
        self.retyped: dict[str, Value] = {}
        self.metas: set[str] = set()
        self.live: list[Liveness] = []
        self.weak: set[str] = set()
        self.axes = 1
        self.calls = 0
        self.places: tuple[str, ...] = ()
        """What the place of a program along each axis of the grid is called, and in `extents` how many there are."""
        self.extents: tuple[str, ...] = ()
        self.returns = False
        self.aliases: dict[str, str] = {}
        self.combines: dict[str, tuple[str | None, str]] = {}

    def owner(self, name: str) -> str:
        """A name of the function being read, told apart from those of its callers."""
        return f"{self.frame.number}:{name}"

    @property
    def counts(self) -> tuple[str, ...]:
        """Names of the launch, which count from 0."""
        return (*self.places, *self.extents)

    @property
    def frame(self) -> Frame:
        """The innermost function."""
        return self.frames[-1]

    # ---------------------------------------------------------------------------------------------------------------- names
    def chosen_dtype(self, cond: n.Expr, a: DType, b: DType) -> DType:
        """The dtype that is `a` under a static condition, else `b`; one name for each such term."""
        if a == b:
            return a
        text = f"select({joins.static_condition(cond)},{a.name},{b.name})"
        if text not in self.dtype_terms:
            self.dtype_terms[text] = self.out.fresh("T")
        return symbolic(self.dtype_terms[text])

    def mapped(self, value: Value, expr: Callable[[n.Expr], n.Expr]) -> Value:
        """A value with each expression inside replaced."""
        return joins.mapped(value, expr)

    def over(self, values: tuple[Value, ...], fn: Callable[..., Value]) -> Value:
        """`fn` of the values, distributed over static choices."""
        return joins.over(self, values, fn)

    def lookup(self, name: str) -> Value:
        """The value of a name in the function being read."""
        frame = self.frame
        if name in frame.cells:
            return self.cell_value(frame.cells[name])
        if name in frame.env:
            value = frame.env[name]
            if isinstance(value, Undefined):
                raise NotUnderstood(f"'{name}' may be unbound here")
            return value
        return frame.scope.lookup(name)

    def cell_value(self, cell: Value) -> Value:
        """What a mutable name holds: cells are values over reads of their buffers."""
        return cell

    def stable(self, name: str, value: Value) -> Value:
        """A value whose run-time parts are named, so that it can be used again later."""

        def expr(e: n.Expr) -> n.Expr:
            if isinstance(e, (n.Var, n.Const)):
                return e
            buffer = buffer_read(e)
            if buffer is not None and buffer.name not in self.out.mutable:
                owner = self.out.owners.setdefault(buffer.name, self.owner(name))
                if owner == self.owner(name):
                    return e
            return self.out.let(name, e)

        def scalar(e: n.Expr) -> n.Expr:
            return e if not (isinstance(e, n.Load) and e.at.buffer.name in self.out.mutable) and not _reads(e) else self.out.let(name, e)

        if isinstance(value, BlockPointer):
            return joins.mapped(value, scalar)
        if isinstance(value, Choice):
            return Choice(value.cond, self._under(value.cond, True, name, value.a), self._under(value.cond, False, name, value.b))
        if isinstance(value, Items):
            return Items(tuple(self.stable(name, v) for v in value.items))
        return joins.mapped(value, expr)

    def _under(self, cond: n.Expr, outcome: bool, name: str, value: Value) -> Value:
        with self.paths.under(cond, outcome), self.out.capture() as block:
            made = self.stable(name, value)
        if not block:
            return made
        made = joins.export(self, (made, block), name)
        joins.emit_if(self, cond, block if outcome else [], [] if outcome else block, True)
        return made

    # ----------------------------------------------------------------------------------------------------------- expressions
    def eval(self, e: cst.BaseExpression) -> Value:
        """The value of an expression. Raises NotUnderstood."""
        match e:
            case cst.Name():
                return self.lookup(e.value)
            case cst.Integer() | cst.Float() | cst.SimpleString() | cst.ConcatenatedString():
                return self.root.evaluate(e)
            case cst.BinaryOperation():
                op = operators.ARITHMETIC.get(type(e.operator).__name__)
                if op is None:
                    raise NotUnderstood(f"operator {type(e.operator).__name__}")
                return self.arithmetic(op, self.eval(e.left), self.eval(e.right))
            case cst.UnaryOperation():
                if isinstance(e.operator, cst.Not):
                    return self.over((self.eval(e.expression),), lambda v: operators.negation(operators.truth(self.presence(v))))
                op = {cst.Minus: "neg", cst.Plus: "pos", cst.BitInvert: "not"}[type(e.operator)]
                return self.over((self.eval(e.expression),), lambda v: operators.unary(op, v))
            case cst.Comparison():
                return self._comparison(e)
            case cst.BooleanOperation():
                return self._boolean(e)
            case cst.IfExp():
                return self._conditional(e)
            case cst.Attribute():
                return self.attribute(self.eval(e.value), e.attr.value)
            case cst.Subscript():
                return self._subscript(e)
            case cst.Call():
                return self._call(e)
            case cst.Tuple() | cst.List():
                items: list[Value] = []
                for x in e.elements:
                    value = self.eval(x.value)
                    if isinstance(x, cst.StarredElement):
                        items.extend(self.items(value))
                    else:
                        items.append(value)
                return Items(tuple(items))
            case cst.FormattedString():
                return ""
            case cst.ListComp() | cst.GeneratorExp():
                return self._comprehension(e)
            case _:
                raise NotUnderstood(f"expression {type(e).__name__}")

    def items(self, v: Value) -> tuple[Value, ...]:
        """The elements of a tuple."""
        if isinstance(v, Items):
            return v.items
        raise NotUnderstood(f"{describe(v)} where a tuple is needed")

    def arithmetic(self, op: str, a: Value, b: Value) -> Value:
        """`a op b`, tuples included."""
        if isinstance(a, Items) or isinstance(b, Items):
            if op == "add" and isinstance(a, Items) and isinstance(b, Items):
                return Items(a.items + b.items)
            if op == "mul" and isinstance(a, Items) and isinstance(b, int):
                return Items(a.items * b)
            if op == "mul" and isinstance(b, Items) and isinstance(a, int):
                return Items(b.items * a)
            raise NotUnderstood(f"'{op}' of tuples")
        made = self.over((a, b), lambda x, y: operators.binary(op, x, y, self.counts))
        return self.fused(made) if op == "add" else made

    def fused(self, v: Value) -> Value:
        """`e + product` where the product was just made with an empty accumulator: the accumulator starts as `e` instead."""
        if not (isinstance(v, Run) and isinstance(v.expr, n.Binary) and v.expr.op == "add"):
            return v
        block = self.out.block
        for product, other in ((v.expr.b, v.expr.a), (v.expr.a, v.expr.b)):
            buffer = buffer_read(product)
            if buffer is None or len(block) < 2 or other.type != product.type:
                continue
            alloc, mma = block[-2], block[-1]
            if (
                isinstance(mma, n.Mma)
                and mma.acc.buffer == buffer
                and isinstance(alloc, n.Alloc)
                and alloc.buffer == buffer
                and alloc.init is not None
                and _is_zero(alloc.init)
                and not mentions(other, {buffer.name})
            ):
                block[-2] = n.Alloc(buffer, other, alloc.label, alloc.origin)
                return Run(product)
        return v

    def presence(self, v: Value) -> Value:
        """A pointer as a condition: whether it is given."""
        if isinstance(v, Pointer) and not v.terms:
            return Static(build.invert(build.call("absent", param=v.base.name)))
        return v

    def _comparison(self, e: cst.Comparison) -> Value:
        left = self.eval(e.left)
        out: Value = True
        for i, target in enumerate(e.comparisons):
            right = self.eval(target.comparator)
            made = self._compared(target.operator, left, right)
            out = made if i == 0 else self.over((out, made), lambda a, b: operators.logical("and", a, b))
            left = right
        return out

    def _compared(self, operator: cst.BaseCompOp, a: Value, b: Value) -> Value:
        word = type(operator).__name__
        if word in ("In", "NotIn"):
            found: Value = False
            for item in self.items(b):
                one = self.over((a, item), lambda x, y: operators.compare("eq", x, y))
                found = self.over((found, one), lambda x, y: operators.logical("or", x, y))
            return found if word == "In" else self.over((found,), operators.negation)
        if word in ("Is", "IsNot"):
            return self.over((a, b), lambda x, y: self._identity(x, y, word == "IsNot"))
        return self.over((a, b), lambda x, y: operators.compare(operators.COMPARISON[word], x, y))

    def _identity(self, a: Value, b: Value, negated: bool) -> Value:
        if b is None or a is None:
            value = a if b is None else b
            if value is None:
                return not negated
            made: n.Expr
            if isinstance(value, Pointer) and not value.terms:
                made = build.call("absent", param=value.base.name)
            elif isinstance(value, Run) and isinstance(value.expr, n.Var) and value.expr.name in self.metas:
                made = build.call("absent", param=value.expr.name)
            elif isinstance(value, Static) and isinstance(value.expr, n.Var):
                made = build.call("meta_is", value.expr, value="None")
            else:
                return negated
            return Static(build.invert(made) if negated else made)
        return operators.compare("ne" if negated else "eq", a, b)

    def _boolean(self, e: cst.BooleanOperation) -> Value:
        op = "and" if isinstance(e.operator, cst.And) else "or"
        left = self.over((self.eval(e.left),), lambda v: operators.truth(self.presence(v)))
        if is_known(left) and bool(left) == (op == "or"):
            return left
        if isinstance(left, Static):
            with self.paths.under(left.expr, op == "and"):
                right = self.over((self.eval(e.right),), lambda v: operators.truth(self.presence(v)))
        else:
            right = self.over((self.eval(e.right),), lambda v: operators.truth(self.presence(v)))
        return self.over((left, right), lambda a, b: operators.logical(op, a, b))

    def _conditional(self, e: cst.IfExp) -> Value:
        cond = self.over((self.eval(e.test),), lambda v: operators.truth(self.presence(v)))
        if is_known(cond):
            return self.eval(e.body if cond else e.orelse)
        if isinstance(cond, Static):
            if (asked := _left_out(cond.expr)) is not None:
                given = self.eval(e.body)
                if isinstance(given, TypeOf) and given.dtype.name == asked:
                    return given  # the dtype of an argument that is left out has no meaning
            return joins.static_branch(self, cond.expr, lambda: self.eval(e.body), lambda: self.eval(e.orelse))
        assert isinstance(cond, Run)
        return self.choose(cond, lambda: self.eval(e.body), lambda: self.eval(e.orelse))

    def choose(self, cond: Run, a: Callable[[], Value], b: Callable[[], Value], name: str = "x") -> Value:
        """`a()` or `b()` by a run-time scalar; an if where they emit or read memory, a select otherwise."""
        if cond.shape:
            raise NotUnderstood("a branch on a tile")
        with self.out.capture() as block_a:
            va = a()
        with self.out.capture() as block_b:
            vb = b()
        if not block_a and not block_b and is_number_or_run(va) and is_number_or_run(vb) and not _loads(va) and not _loads(vb):
            dtype = operators.common(va, vb) if isinstance(va, Run) or isinstance(vb, Run) else None
            ea, eb = operators.run(va, dtype), operators.run(vb, dtype)
            if dtype is None and ea.type != eb.type:
                raise NotUnderstood("a conditional of literals of two dtypes")
            return Run(build.select(cond.expr, ea, eb))
        test = self.out.let("cond", cond.expr)
        made = joins.merge(self, test, (va, block_a), (vb, block_b), False, name)
        joins.emit_if(self, test, block_a, block_b, False)
        return made

    def _comprehension(self, e: cst.ListComp | cst.GeneratorExp) -> Value:
        loop = e.for_in
        if loop.ifs or loop.inner_for_in is not None or not isinstance(loop.target, cst.Name):
            raise NotUnderstood("a comprehension of unusual form")
        out: list[Value] = []
        saved = dict(self.frame.env)
        for item in self.items(self.eval(loop.iter)):
            self.frame.env[loop.target.value] = item
            out.append(self.eval(e.elt))
        self.frame.env = saved
        return Items(tuple(out))

    # ---------------------------------------------------------------------------------------------------- attributes, calls
    def attribute(self, owner: Value, name: str) -> Value:
        """`owner.name`."""
        if isinstance(owner, (Builtin, ModuleValue)):
            return self.frame.scope.attribute(owner, name)
        from .shapes import attribute_of

        return self.over((owner,), lambda v: attribute_of(self, v, name))

    def _subscript(self, e: cst.Subscript) -> Value:
        owner = self.eval(e.value)
        index = tuple(self._index(s.slice) for s in e.slice)
        from .shapes import subscript

        return self.over((owner,), lambda v: subscript(self, v, index))

    def _index(self, s: cst.BaseSlice) -> Value:
        if isinstance(s, cst.Index):
            return self.eval(s.value)
        assert isinstance(s, cst.Slice)
        ends = [None if x is None else self.eval(x) for x in (s.lower, s.upper)]
        if s.step is not None or not all(x is None or isinstance(x, int) for x in ends):
            raise NotUnderstood("a slice whose ends are not literals")
        return Slice(*ends)  # type: ignore[arg-type]  # integers or None

    def _call(self, e: cst.Call) -> Value:
        fn = self.eval(e.func)
        args: list[Value] = []
        named: dict[str, Value] = {}
        for a in e.args:
            value = self.eval(a.value)
            if a.star == "*":
                args.extend(self.items(value))
            elif a.star == "**":
                raise NotUnderstood("a call with **")
            elif a.keyword is not None:
                named[a.keyword.value] = value
            else:
                args.append(value)
        return self.call(fn, args, named)

    def call(self, fn: Value, args: Sequence[Value], named: dict[str, Value]) -> Value:
        """`fn(*args, **named)`."""
        if isinstance(fn, Choice):
            return self.over((fn,), lambda f: self.call(f, args, named))
        if isinstance(fn, Jit):
            return self.inline(fn, args, named)
        keys = tuple(named)
        if isinstance(fn, Builtin):
            from .calls import builtin_call

            lazy = fn.name.rsplit(".", 1)[-1] in ("static_assert", "device_print", "device_assert", "static_print", "print")
            if lazy:
                return None
            return self.over(
                (*args, *named.values()),
                lambda *vs: builtin_call(self, fn.name, Arguments(vs[: len(args)], dict(zip(keys, vs[len(args) :], strict=True)))),
            )
        if isinstance(fn, Method):
            from .calls import method_call

            return self.over(
                (fn.owner, *args, *named.values()),
                lambda o, *vs: method_call(self, o, fn.name, Arguments(vs[: len(args)], dict(zip(keys, vs[len(args) :], strict=True)))),
            )
        if isinstance(fn, TypeOf) and len(args) == 1:
            return self.over((args[0],), lambda v: self.converted(v, fn.dtype))
        if isinstance(fn, Host) and isinstance(fn.node, cst.FunctionDef) and all(is_constexpr_value(v) for v in (*args, *named.values())):
            return self.inline(Jit(fn.module, fn.node), args, named, host=True)
        if isinstance(fn, Host):
            raise NotUnderstood(f"a call of the host function '{fn.node.name.value}'")
        raise NotUnderstood(f"a call of {describe(fn)}")

    def converted(self, v: Value, dtype: DType) -> Value:
        """`v` as a run-time value of a dtype."""
        if isinstance(v, Run) and dtype == BOOL:
            return Run(operators.as_bool(v.expr))
        return Run(operators.run(v, dtype))

    def inline(self, fn: Jit, args: Sequence[Value], named: dict[str, Value], host: bool = False) -> Value:
        """A jit function called: its body is read in place; so is that of a `host` function of constexprs, which Triton runs as it is."""
        if len(self.frames) > MAX_INLINE or any(f.fn.node is fn.node for f in self.frames):
            raise NotUnderstood(f"'{fn.node.name.value}' calls itself")
        if not host and not unchanged_by_decorators(fn.node):
            raise NotUnderstood(f"'{fn.node.name.value}' has a decorator that may replace it")
        from .statements import run_function

        self.calls += 1
        frame = Frame(fn, self.root.scope(fn.module), number=self.calls)
        params = parameters(fn.node)
        names = [p.name.value for p in params]
        if (
            fn.node.params.star_arg is not None
            and not isinstance(fn.node.params.star_arg, cst.MaybeSentinel)
            and isinstance(fn.node.params.star_arg, cst.Param)
        ):
            rest = fn.node.params.star_arg.name.value
            frame.env[rest] = Items(tuple(args[len(fn.node.params.params) :]))
            args = args[: len(fn.node.params.params)]
        if len(args) > len(names) or any(k not in names for k in named):
            raise NotUnderstood(f"arguments of '{fn.node.name.value}' do not fit")
        for name, value in (*zip(names, args), *named.items()):
            frame.env[name] = self.stable(name, value) if not is_number(value) else value
        for p in params:
            if p.name.value not in frame.env:
                if p.default is None:
                    raise NotUnderstood(f"'{fn.node.name.value}' lacks its argument '{p.name.value}'")
                frame.env[p.name.value] = frame.scope.evaluate(p.default)
        self.frames.append(frame)
        try:
            return run_function(self, fn.node.body)
        except KirError as bad:
            raise NotUnderstood(f"in '{fn.node.name.value}': {bad.diagnostics[0].message}") from bad
        finally:
            self.frames.pop()


def is_constexpr_value(v: Value) -> bool:
    """A value that is known while the kernel is compiled: a number, text, dtype, function, or a tuple of them."""
    if isinstance(v, Items):
        return all(is_constexpr_value(x) for x in v.items)
    return is_number(v) or is_known(v) or isinstance(v, (TypeOf, Builtin, Host, Jit))


def is_number_or_run(v: Value) -> bool:
    """A number, run-time or static."""
    return isinstance(v, Run) or is_number(v)


def _reads(e: n.Expr) -> bool:
    from kir.ir.visit import walk

    return any(isinstance(x, n.Load) for x in walk(e))


def _left_out(cond: n.Expr) -> str | None:
    """The parameter or meta of which a condition says that it is given."""
    match cond:
        case n.Unary(op="not", x=n.Call(fn="absent") as asked):
            return str(dict(asked.attrs)["param"])
        case n.Unary(op="not", x=n.Call(fn="meta_is", args=(n.Var(name=name),)) as asked) if dict(asked.attrs)["value"] == "None":
            return name
        case _:
            return None


def _loads(v: Value) -> bool:
    return isinstance(v, Run) and any(isinstance(x, n.Load) and buffer_read(x) is None for x in _walk(v.expr))


def _walk(e: n.Expr) -> Sequence[n.Node]:
    from kir.ir.visit import walk

    return list(walk(e))


def _is_zero(e: n.Expr) -> bool:
    if isinstance(e, n.Call) and e.fn == "broadcast":
        return isinstance(e.args[0], n.Expr) and _is_zero(e.args[0])
    if isinstance(e, n.Cast):
        return _is_zero(e.x)
    return isinstance(e, n.Const) and e.value == 0
