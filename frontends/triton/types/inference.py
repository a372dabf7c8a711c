"""What the parameters of a jit function are, from how its body uses them.

Pointers flow backward from places where an address is needed, integers from index arithmetic, metas from `constexpr`. Facts flow through
calls of other jit functions. What shows no evidence stays open: a scalar of symbolic dtype, a meta of kind `any`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import libcst as cst

from kir.base.dataclass import dataclass

from ..._python.signature import annotation_text, extents_given, first_name, is_constexpr, is_none, nodes_below, parameters, stated_kind, tile_extents
from ..host.known_packages import DTYPES
from ..host.scope import HostScope
from ..values.values import AXES, MOST_AXES, Builtin, Jit, NotUnderstood

POINTER_CALLS = frozenset({
    "load", "store", "atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor", "atomic_xchg", "atomic_cas",
    "make_block_ptr", "make_tensor_descriptor", "_experimental_make_tensor_descriptor", "advance"})
POLICIES = ("cache_modifier", "eviction_policy", "volatile", "sem", "scope")
"""What an access to memory is told while the kernel is compiled."""
REDUCTIONS = frozenset({"sum", "max", "min", "argmax", "argmin", "cumsum", "cumprod", "associative_scan", "reduce", "sort", "topk", "flip", "xor_sum"})
DESCRIPTOR_CALLS = frozenset({"_experimental_descriptor_load", "_experimental_descriptor_store", "load_tensor_descriptor", "store_tensor_descriptor"})
INTEGER_CALLS = frozenset({"arange", "cdiv", "range", "static_range", "program_id", "num_programs"})
THROUGH_CALLS = frozenset({"multiple_of", "max_contiguous", "max_constancy", "minimum", "maximum", "min", "max", "broadcast_to", "where"})
ELEMENTWISE = frozenset({"where", "maximum", "minimum", "abs", "exp", "exp2", "log", "log2", "cast", "sqrt", "rsqrt", "sigmoid", "fma", "trans", "cumsum",
                         "clamp", "sin", "cos", "floor", "ceil", "div_rn", "fdiv", "multiple_of", "max_contiguous"})
_SHAPED = ("reshape", "view", "broadcast_to")
INTEGER_OPERATORS = (cst.FloorDivide, cst.Modulo, cst.LeftShift, cst.RightShift)
INTEGER_AUGMENTED = (cst.FloorDivideAssign, cst.ModuloAssign, cst.LeftShiftAssign, cst.RightShiftAssign)


@dataclass
class Facts:
    """Names of a function by what they are known to be."""

    pointers: set[str] = field(default_factory=set)
    integers: set[str] = field(default_factory=set)
    numbers: set[str] = field(default_factory=set)
    booleans: set[str] = field(default_factory=set)
    dtypes: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    descriptors: dict[str, int] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    extents: set[str] = field(default_factory=set)
    """Parameters that a tile's shape is made of: they are known when the function is compiled."""
    tiles: dict[str, int] = field(default_factory=dict)
    """Parameters of helpers that must be tiles, with the fewest axes that their uses need."""
    blocks: dict[str, int] = field(default_factory=dict)
    """Parameters of helpers that must be block pointers, with their axes."""
    axes: int = 1


_CONDITIONAL = (cst.If, cst.IfExp, cst.While, cst.Assert, cst.Comparison, cst.UnaryOperation, cst.BooleanOperation)


class Inference:
    """Facts of jit functions, each worked out once."""

    def __init__(self, scope: HostScope) -> None:
        self.scope = scope
        self._facts: dict[int, Facts] = {}
        self._calls: dict[int, Jit | str | None] = {}

    def facts(self, fn: Jit) -> Facts:
        """The facts of a function. Recursion gives what is known so far."""
        if id(fn.node) not in self._facts:
            self._facts[id(fn.node)] = Facts()
            self._facts[id(fn.node)] = self.reading(fn).facts
        return self._facts[id(fn.node)]

    def reading(self, fn: Jit) -> Reading:
        """A function read for its facts."""
        made = Reading(self, fn)
        made.run()
        return made

    def callee(self, fn: Jit, e: cst.BaseExpression, local: set[str]) -> Jit | str | None:
        """The jit function called, or the last word of a builtin, or None."""
        if isinstance(e, cst.Name) and e.value in local:
            return None
        if id(e) not in self._calls:
            root: cst.BaseExpression = e
            while isinstance(root, cst.Attribute):
                root = root.value
            found: Jit | str | None = None
            if isinstance(root, cst.Name) and root.value not in local:
                try:
                    value = self.scope.scope(fn.module).evaluate(e)
                    found = value if isinstance(value, Jit) else value.name.rsplit(".", 1)[-1] if isinstance(value, Builtin) else None
                except NotUnderstood:
                    found = None
            self._calls[id(e)] = found
        return self._calls[id(e)]


class Reading:
    """One function: its nodes, what its names are assigned, and what that says of them."""

    def __init__(self, inference: Inference, fn: Jit) -> None:
        self.inference, self.fn, self.facts = inference, fn, Facts()
        self.params = {p.name.value: p for p in parameters(fn.node)}
        self.assigned: dict[str, list[cst.BaseExpression]] = {}
        self.nodes = list(nodes_below(fn.node.body))
        self._pending: list[cst.BaseExpression] = []
        self._tiled: set[str] = set()
        self._scaling: set[int] = set()  # what names are multiplied by and so on: it need not have their axes

    def run(self) -> None:
        """Fill in the facts."""
        for p in self.params.values():
            if annotation_text(p) in ("int32", "int64", "uint32", "uint64", "int8", "int16", "int", "integer") or stated_kind(p) == "int":
                self.facts.integers.add(p.name.value)
            if stated_kind(p) == "pointer":
                self.facts.pointers.add(p.name.value)
            if extents := tile_extents(p):
                self.facts.tiles[p.name.value] = len(extents)
            if isinstance(p.default, cst.Integer):
                self.facts.integers.add(p.name.value)
        for node in self.nodes:
            if node.__class__ in (cst.Assign, cst.AugAssign, cst.AnnAssign, cst.For):
                self._assignments(node)
        self.local = set(self.params) | set(self.assigned)
        calls = [n for n in self.nodes if isinstance(n, cst.Call)]
        self.facts.pointers |= {name for name, values in self.assigned.items() if name in self.params and any(self._loads(v, name) for v in values)}
        arithmetic = [n for n in self.nodes if n.__class__ in (cst.BinaryOperation, cst.AugAssign, cst.Comparison, cst.For)]
        subscripts = [n for n in self.nodes if isinstance(n, cst.Subscript)]
        attributes = [n for n in self.nodes if n.__class__ is cst.Attribute]
        loops = [n for n in self.nodes if isinstance(n, (cst.For, cst.While))]
        for node in arithmetic:
            self._numbers(node)
        for _ in range(8):
            before = (len(self.facts.pointers), len(self.facts.integers), len(self.facts.numbers))
            for node in arithmetic:
                self._integers(node)
            for call in calls:
                self._call(call)
            for node in subscripts:
                match node:  # `x.shape[1]`
                    case cst.Subscript(value=cst.Attribute(value=cst.Name() as name, attr=cst.Name(value="shape")),
                                       slice=[cst.SubscriptElement(slice=cst.Index(value=cst.Integer() as axis))]) if axis.evaluated_value < MOST_AXES:
                        self.tile(name, axis.evaluated_value + 1)
                if any(is_none(x.slice) for x in node.slice):
                    self.tile(node.value, sum(isinstance(x.slice, cst.Slice) for x in node.slice))
            for node in attributes:
                if isinstance(node, cst.Attribute) and node.attr.value == "element_ty":
                    inner = node.value
                    if isinstance(inner, cst.Attribute) and inner.attr.value in ("dtype", "type"):
                        self.pointer(inner.value)
            for loop in loops:
                self._carried(loop)
            if before == (len(self.facts.pointers), len(self.facts.integers), len(self.facts.numbers)):
                break
        self._conditions()

    # ----------------------------------------------------------------------------------------------------------- assignments
    def _assignments(self, node: cst.CSTNode) -> None:
        match node:
            case cst.Assign():
                for t in node.targets:
                    self._bind(t.target, node.value)
            case cst.AugAssign(operator=cst.AddAssign() | cst.SubtractAssign(), target=cst.Name() as name):
                self._bind(name, cst.BinaryOperation(name, cst.Add(), node.value))
            case (cst.AugAssign() | cst.AnnAssign()) if node.value is not None:
                self._bind(node.target, node.value)
                self._scaling |= {id(node.value)} if isinstance(node, cst.AugAssign) else set()
            case cst.For():
                self._bind(node.target, cst.Integer("0"))
                if isinstance(node.target, cst.Name):
                    self.facts.integers.add(node.target.value)
            case _:
                pass

    def _bind(self, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        if isinstance(target, cst.Name):
            self.assigned.setdefault(target.value, []).append(value)
        elif isinstance(target, (cst.Tuple, cst.List)):
            parts = value.elements if isinstance(value, (cst.Tuple, cst.List)) and len(value.elements) == len(target.elements) else None
            for i, t in enumerate(target.elements):
                self._bind(t.value, parts[i].value if parts is not None else cst.Name("None"))

    def _loads(self, e: cst.BaseExpression, name: str) -> bool:
        """Whether a value is loaded through a name, which it then replaces: `q = tl.load(q + offsets)`; not one that is added to another address."""
        return any(isinstance(x, cst.Call) and x.args and self.inference.callee(self.fn, x.func, self.local) == "load"
                   and first_name(x.args[0].value) == name for x in (e, *nodes_below(e)))

    # -------------------------------------------------------------------------------------------------------------- pointers
    def pointer(self, e: cst.BaseExpression) -> None:
        """An expression that is an address."""
        match e:
            case cst.Name():
                if e.value in self.facts.pointers or e.value not in self.local or e.value in self.facts.numbers:
                    return
                self.facts.pointers.add(e.value)
                for value in self.assigned.get(e.value, ()):
                    self.pointer(value)
            case cst.BinaryOperation(operator=cst.Add() | cst.Subtract()):
                if self._is_offset(e) and self.may_point(e.right):
                    self.pointer(e.right)
                elif self.may_point(e.left):
                    self.pointer(e.left)
                    self.integer(e.right)
                elif self.may_point(e.right):
                    self.pointer(e.right)
                    self.integer(e.left)
            case cst.IfExp():
                self.pointer(e.body)
                self.pointer(e.orelse)
            case cst.Subscript():
                self.pointer(e.value)
            case cst.Call():
                word = self.inference.callee(self.fn, e.func, self.local)
                args = [a.value for a in e.args]
                if word in ("multiple_of", "max_contiguous", "advance", "broadcast_to", "expand_dims", "cast", "to_tensor") and args:
                    self.pointer(args[0])
                elif word == "where" and len(args) == 3:
                    self.pointer(args[1])
                    self.pointer(args[2])
                elif isinstance(e.func, cst.Attribute) and e.func.attr.value == "to":
                    self.pointer(e.func.value)
            case _:
                pass

    def _is_offset(self, e: cst.BinaryOperation) -> bool:
        """Whether the left side is a name that is a number until this statement adds a pointer to it."""
        if not isinstance(e.left, cst.Name) or e.left.value in self.params:
            return False
        name = e.left.value
        others = [v for v in self.assigned.get(name, ()) if v is not e]
        return bool(others) and not any(self.may_point(v, frozenset({name})) for v in others)

    def may_point(self, e: cst.BaseExpression, seen: frozenset[str] = frozenset()) -> bool:
        match e:
            case cst.Name():
                if e.value in self.facts.pointers:
                    return True
                if e.value in self.facts.numbers or e.value in seen or e.value in self.facts.integers:
                    return False
                if e.value in self.params and is_constexpr(self.params[e.value]):
                    return False
                if e.value in self.assigned and any(self.may_point(v, seen | {e.value}) for v in self.assigned[e.value]):
                    return True
                return e.value in self.params
            case cst.BinaryOperation(operator=cst.Add() | cst.Subtract()):
                return self.may_point(e.left, seen) or self.may_point(e.right, seen)
            case cst.IfExp():
                return self.may_point(e.body, seen)
            case cst.Subscript():
                return self.may_point(e.value, seen)
            case cst.Call():
                word = self.inference.callee(self.fn, e.func, self.local)
                if word in ("multiple_of", "max_contiguous", "broadcast_to") and e.args:
                    return self.may_point(e.args[0].value, seen)
                if word == "where" and len(e.args) == 3:
                    return self.may_point(e.args[1].value, seen)
                if isinstance(e.func, cst.Attribute) and e.func.attr.value == "to" and e.args:
                    return "pointer_type" in self.fn.module.code(e.args[0].value)
                return False
            case _:
                return False

    # -------------------------------------------------------------------------------------------------------------- integers
    def integer(self, e: cst.BaseExpression) -> None:
        """An expression that is an integer: so are the operands of its ring operations."""
        match e:
            case cst.Name():
                if e.value in self.local and e.value not in self.facts.pointers and e.value not in self.facts.integers:
                    self.facts.integers.add(e.value)
                    for value in self.assigned.get(e.value, ()):
                        self.integer(value)
            case cst.BinaryOperation(operator=cst.Add() | cst.Subtract() | cst.Multiply() | cst.FloorDivide() | cst.Modulo()):
                self.integer(e.left)
                self.integer(e.right)
            case cst.UnaryOperation(operator=cst.Minus()):
                self.integer(e.expression)
            case cst.Subscript():
                self.integer(e.value)
            case cst.IfExp():
                self.integer(e.body)
                self.integer(e.orelse)
            case cst.Tuple() | cst.List():
                for x in e.elements:
                    self.integer(x.value)
            case cst.Call():
                word = self.inference.callee(self.fn, e.func, self.local)
                if word in THROUGH_CALLS:
                    for a in e.args[1 if word == "where" else 0 :]:
                        self.integer(a.value)
            case _:
                pass

    def is_integer(self, e: cst.BaseExpression, seen: frozenset[str] = frozenset()) -> bool:
        match e:
            case cst.Name():
                return e.value in self.facts.integers or (
                    e.value not in seen
                    and e.value in self.assigned
                    and any(self.is_integer(v, seen | {e.value}) for v in self.assigned[e.value])
                    and e.value not in self.facts.pointers
                )
            case cst.BinaryOperation(operator=cst.FloorDivide()):
                return True
            case cst.BinaryOperation(operator=cst.Add() | cst.Subtract() | cst.Modulo()):
                return self.is_integer(e.left, seen) or self.is_integer(e.right, seen)
            case cst.BinaryOperation(operator=cst.Multiply()):
                return self.is_integer(e.left, seen) and self.is_integer(e.right, seen)
            case cst.Subscript():
                return self.is_integer(e.value, seen)
            case cst.Call():
                return self.inference.callee(self.fn, e.func, self.local) in INTEGER_CALLS
            case _:
                return False

    def _numbers(self, node: cst.CSTNode) -> None:
        """Names that take part in arithmetic that no pointer takes part in."""
        match node:
            case cst.BinaryOperation(operator=cst.Multiply() | cst.Divide() | cst.FloorDivide() | cst.Modulo() | cst.Power()):
                for side in (node.left, node.right):
                    if isinstance(side, cst.Name) and not self._is_pointer_name(side.value):
                        self.facts.numbers.add(side.value)
            case _:
                pass

    def _is_pointer_name(self, name: str) -> bool:
        return name in self.facts.pointers

    def _integers(self, node: cst.CSTNode) -> None:
        match node:
            case cst.BinaryOperation(operator=operator) if isinstance(operator, INTEGER_OPERATORS):
                self.integer(node.left)
                self.integer(node.right)
            case cst.BinaryOperation(operator=cst.BitAnd() | cst.BitOr() | cst.BitXor(), left=cst.Name() as name, right=cst.Integer()) \
                    if name.value in self.params and is_constexpr(self.params[name.value]):
                self.integer(name)
            case cst.AugAssign(operator=operator) if isinstance(operator, INTEGER_AUGMENTED):
                self.integer(node.target)
                self.integer(node.value)
            case cst.AugAssign(operator=cst.AddAssign() | cst.SubtractAssign(), target=cst.Name(value=name)) if name in self.facts.pointers:
                self.integer(node.value)
            case cst.Comparison(comparisons=[one]) if not isinstance(one.operator, (cst.Is, cst.IsNot, cst.In, cst.NotIn)):
                if self.is_integer(node.left):
                    self.integer(one.comparator)
                elif self.is_integer(one.comparator):
                    self.integer(node.left)
            case cst.For(iter=cst.Call(args=args)):
                for a in args:
                    if a.keyword is None:
                        self.integer(a.value)
            case _:
                pass

    # ----------------------------------------------------------------------------------------------------------------- calls
    def _call(self, call: cst.Call) -> None:
        fn = self.inference.callee(self.fn, call.func, self.local)
        by_name = {a.keyword.value: a.value for a in call.args if a.keyword is not None}
        args = [a.value for a in call.args if a.keyword is None and not a.star]
        if isinstance(call.func, cst.Name) and call.func.value in self.params:
            self.facts.functions.add(call.func.value)
        if (isinstance(call.func, cst.Attribute) and isinstance(call.func.value, cst.Name) and call.func.value.value in self.params and args
                and call.func.attr.value in ("load", "store", "atomic_add", "gather", "scatter") and isinstance(args[0], (cst.List, cst.Tuple))):
            self.facts.descriptors.setdefault(call.func.value.value, len(args[0].elements))
            self.integer(args[0])
        if (isinstance(call.func, cst.Attribute) and call.func.attr.value in ("to", "cast") and fn != "cast"
                and args and isinstance(args[0], cst.Name) and args[0].value in self.params):
            self.facts.dtypes.add(args[0].value)
        if fn is None and isinstance(call.func, cst.Attribute) and call.func.attr.value in ("reshape", "view", "broadcast_to"):
            for e in args:
                self.integer(e)
        if "dtype" in by_name and isinstance(dtype := by_name["dtype"], cst.Name) and dtype.value in self.params:
            self.facts.dtypes.add(dtype.value)
        if isinstance(fn, Jit):
            self._jit_call(fn, args, by_name)
            return
        if fn in POINTER_CALLS:
            for word, known in ((w, self.facts.booleans if w == "volatile" else self.facts.texts) for w in POLICIES):
                if isinstance(given := by_name.get(word), cst.Name) and given.value in self.params:
                    known.add(given.value)
        if fn == "dot":
            for word, known in (("allow_tf32", self.facts.booleans), ("input_precision", self.facts.texts)):
                if isinstance(given := by_name.get(word), cst.Name) and given.value in self.params:
                    known.add(given.value)
        self._tiles(fn, [*args, *(by_name[k] for k in ("input", "other", "acc", "axis") if k in by_name)])
        if fn is None:
            return
        if fn in POINTER_CALLS:
            base = args[0] if args else next((by_name[k] for k in ("pointer", "ptr", "base") if k in by_name), None)
            if base is not None:
                self.pointer(base)
            if fn in ("make_block_ptr", "make_tensor_descriptor", "_experimental_make_tensor_descriptor"):
                for e in [*args[1:], *by_name.values()]:
                    self.integer(e)
            if fn == "advance" and len(args) > 1:
                self.integer(args[1])
            moves = args[1] if fn == "advance" and len(args) > 1 else by_name.get("boundary_check")
            if isinstance(base, cst.Name) and isinstance(moves, (cst.Tuple, cst.List)) and moves.elements and self._stays(base.value):
                axes = [int(e.value.value) + 1 for e in moves.elements if isinstance(e.value, cst.Integer)] if fn != "advance" else []
                self.facts.blocks[base.value] = max([self.facts.blocks.get(base.value, 0), *(axes or [len(moves.elements)])])
        elif fn in DESCRIPTOR_CALLS and args and isinstance(args[0], cst.Name):
            first = 2 if fn == "_experimental_descriptor_store" else 1
            at = args[first] if len(args) > first else by_name.get("offsets")
            if isinstance(at, (cst.List, cst.Tuple)):
                self.facts.descriptors.setdefault(args[0].value, len(at.elements))
                self.integer(at)
        elif fn in ("program_id", "num_programs"):
            axis = args[0] if args else by_name.get("axis")
            if isinstance(axis, cst.Integer) and axis.evaluated_value < AXES:
                self.facts.axes = max(self.facts.axes, axis.evaluated_value + 1)
        elif fn in INTEGER_CALLS:
            for a in args:
                self.integer(a)
            self._known_before([cst.Element(a) for a in args] if fn == "arange" else ())
        elif fn == "cast" and len(args) == 2 and isinstance(args[1], cst.Name) and args[1].value in self.params:
            self.facts.dtypes.add(args[1].value)
        elif fn in ("zeros", "full", "reshape", "broadcast_to", "view"):
            shape = args[1] if fn in ("reshape", "broadcast_to", "view") and len(args) > 1 else args[0] if args else by_name.get("shape")
            if shape is not None:
                self.integer(shape)
                self._known_before(shape.elements if isinstance(shape, (cst.Tuple, cst.List)) else ())
            if fn == "zeros" and len(args) > 1 and isinstance(args[1], cst.Name) and args[1].value in self.params:
                self.facts.dtypes.add(args[1].value)

    def _known_before(self, elements: Sequence[cst.BaseElement]) -> None:
        """Extents of a tile, which are known when the function is compiled."""
        self.facts.extents |= {e.value.value for e in elements if isinstance(e.value, cst.Name) and e.value.value in self.params}

    def _carried(self, loop: cst.For | cst.While) -> None:
        """A parameter that a loop binds anew, and reads, has the axes before the loop that it is given in it."""
        below = list(nodes_below(loop.body))
        reads = {x.value for x in below if isinstance(x, cst.Name)}
        for node in below:
            target: cst.BaseExpression | None = None
            if isinstance(node, cst.Assign) and len(node.targets) == 1:
                target = node.targets[0].target
            elif isinstance(node, cst.AugAssign):
                target = node.target
            if isinstance(target, cst.Name) and target.value in self.params and target.value in reads and target.value not in self.facts.pointers \
                    and not is_constexpr(self.params[target.value]) and isinstance(node, (cst.Assign, cst.AugAssign)):
                axes = self._axes(node.value, frozenset({target.value}))
                if axes:
                    self.facts.tiles[target.value] = max(axes, self.facts.tiles.get(target.value, 0))

    def axes(self, e: cst.BaseExpression) -> int:
        """How many axes an expression has, as far as it shows; 0 where it does not."""
        return self._axes(e, frozenset())

    def _axes(self, e: cst.BaseExpression, seen: frozenset[str]) -> int:
        match e:
            case cst.Name():
                if e.value in seen:
                    return self.facts.tiles.get(e.value, 0)
                return max([self.facts.tiles.get(e.value, 0), *(self._axes(v, seen | {e.value}) for v in self.assigned.get(e.value, ()))])
            case cst.BinaryOperation():
                return max(self._axes(e.left, seen), self._axes(e.right, seen))
            case cst.UnaryOperation():
                return self._axes(e.expression, seen)
            case cst.Subscript():
                kept = [x.slice for x in e.slice]
                return len(kept) if all(is_none(x) or isinstance(x, cst.Slice) for x in kept) else 0
            case cst.Call():
                return self._axes_of_call(e, seen)
        return 0

    def _axes_of_call(self, e: cst.Call, seen: frozenset[str]) -> int:
        word = self.inference.callee(self.fn, e.func, self.local)
        args = [a.value for a in e.args if a.keyword is None]
        if word is None and isinstance(e.func, cst.Attribute) and e.func.attr.value in ("to", "cast"):
            return self._axes(e.func.value, seen)
        if word is None and isinstance(e.func, cst.Attribute) and e.func.attr.value in _SHAPED:
            return extents_given(args)
        if isinstance(word, Jit) or not args or word in _SHAPED:
            return extents_given(args[1:]) if word in _SHAPED else 0
        if word == "dot":
            return 2
        if word in ("zeros", "full") and isinstance(args[0], (cst.Tuple, cst.List)):
            return len(args[0].elements)
        if word == "load":
            block = self.facts.blocks.get(args[0].value, 0) if isinstance(args[0], cst.Name) else 0
            return block or self._axes(args[0], seen)
        if word in ("sum", "max", "min", "argmax", "argmin", "xor_sum"):
            whole = len(args) < 2 and not any(a.keyword is not None and a.keyword.value == "axis" for a in e.args)
            kept = any(a.keyword is not None and a.keyword.value == "keep_dims" for a in e.args)
            return 0 if whole else max(0, self._axes(args[0], seen) - (not kept))
        if word == "arange":
            return 1
        return max(self._axes(a, seen) for a in args) if word in ELEMENTWISE else 0

    def _stays(self, name: str) -> bool:
        """Whether a parameter is never bound to anything but itself, advanced."""
        return name in self.params and all(
            isinstance(e, cst.Call) and self.inference.callee(self.fn, e.func, self.local) == "advance" and bool(e.args) and first_name(e.args[0].value) == name
            for e in self.assigned.get(name, ()))

    def _tiles(self, fn: str | None, args: list[cst.BaseExpression]) -> None:
        """What a builtin says of the axes of its operands."""
        if fn == "dot":
            for e in args[:3]:
                self.tile(e, 2)
        elif fn == "trans" and len(args) == 1:
            self.tile(args[0], 2)
        elif fn in ("reshape", "view") and args:
            self.tile(args[0], 1)
        elif fn in REDUCTIONS and args:
            axis = args[1] if len(args) > 1 else None
            self.tile(args[0], min(MOST_AXES, axis.evaluated_value + 1) if isinstance(axis, cst.Integer) else 1)

    def tile(self, e: cst.BaseExpression, axes: int) -> None:
        """An expression with so many axes at least: so has what it is an elementwise function of."""
        match e:
            case cst.Name():
                if e.value in self.params and not is_constexpr(self.params[e.value]):
                    self.facts.tiles[e.value] = max(axes, self.facts.tiles.get(e.value, 0))
                for value in [v for v in self.assigned.get(e.value, ()) if id(v) not in self._scaling] if e.value not in self._tiled else ():
                    self._tiled.add(e.value)
                    self.tile(value, axes)
            case cst.UnaryOperation():
                self.tile(e.expression, axes)
            case cst.BinaryOperation(left=cst.Name(value=a) as side, right=cst.Name(value=b)) if a == b:
                self.tile(side, axes)
            case cst.BinaryOperation(left=side, right=cst.Integer() | cst.Float()) | cst.BinaryOperation(left=cst.Integer() | cst.Float(), right=side):
                self.tile(side, axes)
            case cst.Call():
                word = self.inference.callee(self.fn, e.func, self.local)
                if isinstance(e.func, cst.Attribute) and e.func.attr.value in ("to", "cast") and word != "cast":
                    self.tile(e.func.value, axes)
                elif word in ("abs", "exp", "exp2", "log", "log2", "cast", "trans", "sqrt") and e.args:
                    self.tile(e.args[0].value, axes)
            case _:
                pass

    def _jit_call(self, fn: Jit, args: list[cst.BaseExpression], by_name: dict[str, cst.BaseExpression]) -> None:
        inner = self.inference.facts(fn)
        names = [p.name.value for p in parameters(fn.node)]
        self.facts.axes = max(self.facts.axes, inner.axes)
        for name, value in [*zip(names, args), *by_name.items()]:
            if name in inner.tiles and name not in inner.pointers:
                self.tile(value, inner.tiles[name])
            if name in inner.pointers:
                self.pointer(value)
            elif name in inner.integers:
                self.integer(value)
            if isinstance(value, cst.Name) and value.value in self.params:
                for kind in ("booleans", "dtypes", "functions", "texts", "extents"):
                    if name in getattr(inner, kind):
                        getattr(self.facts, kind).add(value.value)
                if name in inner.descriptors:
                    self.facts.descriptors.setdefault(value.value, inner.descriptors[name])
                if name in inner.blocks and self._stays(value.value):
                    self.facts.blocks.setdefault(value.value, inner.blocks[name])

    # ------------------------------------------------------------------------------------------------------------ conditions
    def _conditions(self) -> None:
        for node in self.nodes:
            if node.__class__ not in _CONDITIONAL:
                continue
            match node:
                case cst.If(test=test) | cst.IfExp(test=test) | cst.While(test=test) | cst.Assert(test=test):
                    self._condition(test)
                case cst.Comparison(left=cst.Name(value=name), comparisons=[cst.ComparisonTarget(comparator=cst.SimpleString())]):
                    self.facts.texts.add(name)
                case cst.Comparison(left=cst.Name(value=name) as left, comparisons=[one]) if (
                        self._is_meta(left) and isinstance(one.comparator, cst.Attribute) and one.comparator.attr.value in DTYPES):
                    self.facts.dtypes.add(name)
                case cst.Comparison(
                    left=cst.Name(value=name) as left,
                    comparisons=[cst.ComparisonTarget(operator=cst.Equal() | cst.NotEqual() | cst.In() | cst.NotIn(), comparator=right)],
                ) if self._is_meta(left) and self._is_known_integer(right):
                    self.facts.integers.add(name)
                case cst.UnaryOperation(operator=cst.Not(), expression=e):
                    self._condition(e)
                case cst.BooleanOperation(left=a, right=b):
                    self._condition(a)
                    self._condition(b)
                case _:
                    pass

    def _is_known_integer(self, e: cst.BaseExpression) -> bool:
        if isinstance(e, cst.UnaryOperation):
            return self._is_known_integer(e.expression)
        if isinstance(e, cst.Integer):
            return True
        if isinstance(e, cst.Name) and e.value not in self.local:
            try:
                value = self.inference.scope.scope(self.fn.module).lookup(e.value)
            except NotUnderstood:
                return False
            return isinstance(value, int) and not isinstance(value, bool)
        return False

    def _is_meta(self, e: cst.BaseExpression) -> bool:
        return isinstance(e, cst.Name) and e.value in self.params and is_constexpr(self.params[e.value])

    def _condition(self, e: cst.BaseExpression) -> None:
        both = (e.left, e.right) if isinstance(e, cst.BinaryOperation) and isinstance(e.operator, (cst.BitAnd, cst.BitOr)) else (e,)
        self.facts.booleans |= {x.value for x in both if isinstance(x, cst.Name)} if all(map(self._is_meta, both)) else set()
