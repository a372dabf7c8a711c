"""Names outside a kernel: module constants, imports and small host expressions, evaluated from source alone.

The subset: literals, names, attributes, tuples and lists, arithmetic, comparisons, `and or not`, conditional expressions, comprehensions,
dicts with texts as keys, lambdas (kept, not called), `triton.Config(..)`, `len min max abs int float bool range`, `tl.constexpr(..)`, and
calls of host functions of simple statements (assignments, `if`, `try`, `return`). What cannot be evaluated raises
NotUnderstood; where a name has several candidate definitions the first that can be evaluated is taken, and a branch of a top-level
`if` counts only when its test does not evaluate to the other outcome. The machine is modelled, never asked: an NVIDIA GPU of
compute capability 9.0, Triton 3.6.0, no environment variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import libcst as cst

from kir.ir.types import DTYPES as kir_dtypes

from ..._python.project import (
    AUGMENTED,
    TRANSPARENT_DECORATORS,
    Definition,
    Guarded,
    Imported,
    Module,
    Project,
    decorator_name,
    is_jit,
    local_definitions,
    small_definitions,
)
from ..._python.python_operators import BINARY, COMPARE, UNARY
from ..._python.signature import literal_value
from ..values.values import Builtin, Configuration, Host, HostLambda, Items, Jit, Member, ModuleValue, NotUnderstood, Table, TypeOf, Value, is_known
from . import strings
from .classes import is_passed_by_parts, member, method_of
from .element_functions import element_row
from .known_packages import CALLS, DTYPES, EXTERNAL, MACHINE, MODULES, TORCH_DTYPES, of_the_machine
from .python_functions import HOST_CALLS, LIBDEVICE, PYTHON, TRITON_HAS

MAX_DEPTH = 24


def literal(e: cst.BaseExpression) -> Value:
    """The value of a literal; NotUnderstood for anything else."""
    match e:
        case cst.Integer() | cst.Float() | cst.SimpleString() | cst.ConcatenatedString():
            value = literal_value(e)
            if isinstance(value, (int, float, str)):
                return value
        case cst.Name(value="True"):
            return True
        case cst.Name(value="False"):
            return False
        case cst.Name(value="None"):
            return None
    raise NotUnderstood("this is no literal")


def builtin(name: str) -> Value:
    """What a dotted name of a known package stands for."""
    if name.startswith(("torch.finfo.", "torch.iinfo.")):
        return limit(*name.split(".")[2:])
    if name in MACHINE:
        return MACHINE[name]
    if name.startswith("torch._inductor.runtime.triton_helpers.libdevice"):  # what torch imports there
        name = "triton.language.extra.libdevice" + name.partition(".libdevice")[2]
    parts = name.split(".")
    if len(parts) > 1 and parts[0] in ("triton", "torch") and parts[-1] in DTYPES and "libdevice" not in parts:
        return TypeOf(DTYPES[parts[-1]])
    return TypeOf(TORCH_DTYPES[name]) if name in TORCH_DTYPES else Builtin(name)


def limit(dtype: str, word: str) -> Value:
    """`torch.finfo(dtype).word` and `torch.iinfo(dtype).word`."""
    import ml_dtypes
    import numpy as np

    names = {"f16": "float16", "f32": "float32", "f64": "float64"}
    narrow = {"bf16": ml_dtypes.bfloat16, "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
              "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz}
    if dtype in names or dtype in narrow:
        found = ml_dtypes.finfo(narrow[dtype] if dtype in narrow else np.dtype(names[dtype]))
        values = {"max": found.max, "min": found.min, "eps": found.eps, "tiny": found.tiny, "smallest_normal": found.tiny}
        if word in values:
            return float(values[word])
    elif word in ("min", "max"):
        return kir_dtypes[dtype].range[word == "max"]
    raise NotUnderstood(f"the limit '{word}' of {dtype}")


def unchanged_by_decorators(f: cst.FunctionDef) -> bool:
    """Whether every decorator of a jit function leaves its meaning as it is written."""
    return all(decorator_name(d) in TRANSPARENT_DECORATORS for d in f.decorators)


class HostScope:
    """The names that a kernel of `module` sees outside its own parameters; `owners` are the functions that enclose it."""

    def __init__(self, project: Project, module: Module, owners: tuple[cst.FunctionDef, ...] = ()) -> None:
        self.project, self.module = project, module
        self._cache: dict[str, Value] = {}
        self._busy: set[str] = set()
        self._locals = [local_definitions(f) for f in reversed(owners)]
        self._parameters = {p.name.value for f in owners for p in (*f.params.params, *f.params.kwonly_params)}
        self._scopes: dict[Module, HostScope] = {module: self}

    def scope(self, module: Module) -> HostScope:
        """The scope of another module, sharing what has been evaluated."""
        if module not in self._scopes:
            made = HostScope(self.project, module)
            made._scopes = self._scopes
            self._scopes[module] = made
        return self._scopes[module]

    def lookup(self, name: str) -> Value:
        """The value of a global name. Raises NotUnderstood when it is not found or cannot be evaluated."""
        if name not in self._cache:
            if name in self._busy:
                raise NotUnderstood(f"'{name}' is defined in terms of itself")
            self._busy.add(name)
            try:
                self._cache[name] = self._find(name)
            finally:
                self._busy.discard(name)
        return self._cache[name]

    def _find(self, name: str) -> Value:
        for scope in (*self._locals, self.module.definitions):
            if name in scope:
                return self._first(name, scope[name])
        if name in self._parameters:
            raise NotUnderstood(f"'{name}' is a parameter of the host function that makes this kernel")
        for star in self.module.definitions.get("*", ()):
            if isinstance(star, Imported):
                other = self._module(star.module)
                if other is not None:
                    try:
                        return self.scope(other).lookup(name)
                    except NotUnderstood:
                        continue
        if name in ("True", "False", "None"):
            return {"True": True, "False": False, "None": None}[name]
        if name in PYTHON:
            return Builtin(f"builtins.{name}")
        raise NotUnderstood(f"'{name}' is not defined in {self.module.path.name}")

    def _first(self, name: str, candidates: list[Definition]) -> Value:
        reason, excluded = "", 0
        plain = [c for c in candidates if not isinstance(c, Guarded)]
        # The last unconditional definition wins, as when the module runs; guarded ones are tried in order before it.
        for c in [
            *(c for c in candidates if isinstance(c, Guarded)),
            *(reversed(plain) if all(isinstance(p, cst.BaseExpression) for p in plain) else plain),
        ]:
            try:
                return self._value(c)
            except NotUnderstood as bad:
                reason = reason or bad.reason
                excluded += isinstance(bad, _Excluded)
        first = candidates[0] if excluded == len(candidates) and "*" not in self.module.definitions and name not in PYTHON else None
        if isinstance(first, Guarded):  # nothing else defines it: what uses it runs only where this branch is taken
            return self._value(first.definition)
        raise NotUnderstood(reason or f"'{name}' cannot be evaluated")

    def _value(self, d: Definition) -> Value:
        match d:
            case Guarded():
                try:
                    outcome = self.evaluate(d.test)
                    if is_known(outcome) and bool(outcome) != d.expected:
                        raise _Excluded("this branch is not taken")
                except _Excluded:
                    raise
                except NotUnderstood:
                    if of_the_machine(d.test) is not None and of_the_machine(d.test) != d.expected:
                        raise _Excluded("this branch is not taken") from None
                return self._value(d.definition)
            case Imported():
                return self._imported(d)
            case cst.FunctionDef():
                return self._decorated(d) if is_jit(d, self.module) else Host(self.module, d)
            case cst.ClassDef():
                return Host(self.module, d)
            case _:
                return self.evaluate(d)

    def _decorated(self, d: cst.FunctionDef) -> Value:
        """A jit function after its decorators: one that is no part of Triton may put another in its place."""
        made: Value = Jit(self.module, d)
        for each in reversed(d.decorators):
            if decorator_name(each) in TRANSPARENT_DECORATORS:
                continue
            try:
                fn = self.evaluate(each.decorator)
                if not isinstance(fn, Host) or not isinstance(fn.node, cst.FunctionDef):
                    return Jit(self.module, d)
                made = self._inline(fn.module, fn.node, [made], 1, names=fn.names)
            except NotUnderstood:
                return Jit(self.module, d)
        return made

    def _module(self, name: str) -> Module | None:
        return None if name.split(".")[0] in EXTERNAL else self.project.module(name, self.module)

    def _imported(self, d: Imported) -> Value:
        full = d.module if d.attribute is None else f"{d.module}.{d.attribute}"
        if d.module.split(".")[0] in EXTERNAL:
            return builtin(full)
        if d.attribute is not None:
            inner = self._module(d.module)
            if inner is not None and inner is not self.module:
                try:
                    return self.scope(inner).lookup(d.attribute)
                except NotUnderstood:
                    pass
                found = self._module(full)
                if found is not None:
                    return ModuleValue(found)
                return self.scope(inner).lookup(d.attribute)
        found = self._module(full)
        if found is None:
            raise NotUnderstood(f"there is no source for '{full}'")
        return ModuleValue(found)

    def attribute(self, owner: Value, name: str) -> Value:
        """`owner.name` for modules, packages and dtypes."""
        match owner:
            case Builtin():
                return builtin(f"{owner.name}.{name}")
            case ModuleValue():
                try:
                    return self.scope(owner.module).lookup(name)
                except NotUnderstood:
                    inner = self._module(f"{owner.module.name}.{name}")
                    if inner is None:
                        raise
                    return ModuleValue(inner)
            case Jit() | Host() if name == "__name__":
                return owner.node.name.value
            case Jit() if name == "fn":  # what its decorators were given
                return owner
            case Host(node=cst.ClassDef()) if is_passed_by_parts(owner.node) and (own := method_of(owner.node, name)) is not None:
                return Jit(owner.module, own)
            case Host(node=cst.ClassDef()):
                return member(owner, name, self.scope(owner.module).evaluate)
            case Member() if name in ("value", "name"):
                return owner.value if name == "value" else owner.name
            case int() | float() | str() if name == "value":  # of a constexpr, or of a member that is a number itself
                return owner
            case _:
                raise NotUnderstood(f"attribute '{name}' of a host value")

    def evaluate(self, e: cst.BaseExpression, names: Mapping[str, Value] | None = None, depth: int = 0) -> Value:
        """The value of a host expression of the subset. Raises NotUnderstood."""
        if depth > MAX_DEPTH:
            raise NotUnderstood("host expression nested too deeply")

        def sub(x: cst.BaseExpression) -> Value:
            return self.evaluate(x, names, depth + 1)

        def known(x: cst.BaseExpression) -> Any:
            value = sub(x)
            if is_known(value):
                return value
            if isinstance(value, Items):
                return tuple(value.items)
            raise NotUnderstood("a host expression over values that are not known")

        match e:
            case cst.FormattedString() | cst.ConcatenatedString():
                found = strings.parts(e)
                return strings.put_together(found, [sub(x.expression) for x in found if not isinstance(x, str)], True)
            case cst.Integer() | cst.Float() | cst.SimpleString():
                return literal(e)
            case cst.Name():
                if names is not None and e.value in names:
                    return names[e.value]
                return self.lookup(e.value)
            case cst.Attribute():
                return self.attribute(sub(e.value), e.attr.value)
            case cst.Tuple() | cst.List():
                return Items(tuple(sub(x.value) for x in e.elements))
            case cst.UnaryOperation():
                return _wrapped(UNARY[type(e.operator)], known(e.expression))
            case cst.BinaryOperation():
                return _wrapped(BINARY[type(e.operator)], known(e.left), known(e.right))
            case cst.BooleanOperation():
                left = sub(e.left)
                if not is_known(left):
                    raise NotUnderstood("a host condition that is not known")
                return sub(e.right) if bool(left) == isinstance(e.operator, cst.And) else left
            case cst.Comparison(comparisons=[one]):
                a, b = known(e.left), known(one.comparator)
                if isinstance(one.operator, (cst.In, cst.NotIn)):
                    return (a in b) == isinstance(one.operator, cst.In)
                return _wrapped(COMPARE[type(one.operator)], a, b)
            case cst.IfExp():
                return sub(e.body) if known(e.test) else sub(e.orelse)
            case cst.ListComp(elt=one, for_in=loop) | cst.GeneratorExp(elt=one, for_in=loop):
                return Items(tuple(self._comprehended(one, loop, dict(names or {}), depth)))
            case cst.Dict():
                return Table(tuple(pair for x in e.elements for pair in self._pairs(x, names, depth)))
            case cst.Lambda():
                return HostLambda(self.module, e)
            case cst.NamedExpr(target=cst.Name(value=name)) if isinstance(names, dict):
                value = sub(e.value)
                names[name] = value
                return value
            case cst.Subscript(slice=[cst.SubscriptElement(slice=cst.Index(value=index))]):
                owner, at = sub(e.value), known(index)
                if isinstance(owner, Items) and isinstance(at, int) and -len(owner.items) <= at < len(owner.items):
                    return owner.items[at]
                raise NotUnderstood("a host subscript that is not known")
            case cst.Subscript(slice=[cst.SubscriptElement(slice=cst.Slice() as part)]):
                ends = [None if x is None else known(x) for x in (part.lower, part.upper, part.step)]
                return _wrapped(lambda whole: whole[slice(*ends)], known(e.value))
            case cst.Call():
                try:
                    return self._call(e, names, depth)
                except NotUnderstood:
                    said = of_the_machine(e)
                    if said is None:
                        raise
                    return said
            case _:
                raise NotUnderstood(f"host expression {type(e).__name__}")

    def _call(self, e: cst.Call, names: Mapping[str, Value] | None, depth: int) -> Value:
        if isinstance(e.func, cst.Attribute) and e.func.attr.value in ("get", "getenv") and len(e.args) == 2:
            owner = self.evaluate(e.func.value, names, depth + 1)
            if owner in (Builtin("os.environ"), Builtin("os")):
                return self.evaluate(e.args[1].value, names, depth + 1)
        if isinstance(e.func, cst.Attribute) and e.func.attr.value in strings.METHODS:
            text = self.evaluate(e.func.value, names, depth + 1)
            if isinstance(text, str):
                return strings.method(e, text, names, lambda x, inner: self.evaluate(x, inner, depth + 1))
        fn = self.evaluate(e.func, names, depth + 1)
        if isinstance(fn, Builtin) and fn.name in CALLS:
            return CALLS[fn.name]
        args = [self.evaluate(a.value, names, depth + 1) for a in e.args if a.keyword is None and not a.star]
        if isinstance(fn, Builtin) and fn.name.startswith("triton.") and fn.name.endswith(".Config"):
            return self._configuration(args, e, names, depth)
        named = {a.keyword.value: self.evaluate(a.value, names, depth + 1) for a in e.args if a.keyword is not None}
        if len(args) + len(named) != len(e.args) or (named and not isinstance(fn, Host)):
            raise NotUnderstood("a host call with keywords")
        match fn:
            case Builtin(name=name) if name.endswith(".constexpr") and len(args) == 1:
                return args[0]
            case Builtin(name="torch.finfo" | "torch.iinfo" as word) if len(args) == 1 and isinstance(args[0], TypeOf):
                return Builtin(f"{word}.{args[0].dtype.name}")
            case Builtin(name="builtins.hasattr") if len(args) == 2 and isinstance(args[0], Builtin):
                return _has(args[0].name, str(args[1]))
            case Builtin(name=name) if name in HOST_CALLS and all(is_known(a) or isinstance(a, Items) for a in args):
                return _wrapped(HOST_CALLS[name], *(list(a.items) if isinstance(a, Items) else a for a in args))
            case Builtin(name="importlib.util.find_spec" | "importlib.import_module") if len(args) == 1 and str(args[0]).split(".")[0] == "triton":
                return Builtin(str(args[0])) if args[0] in MODULES else None
            case Builtin(name="importlib.util.module_from_spec") if len(args) == 1:
                return args[0]
            case Builtin(name="builtins.map") if len(args) == 2 and isinstance(of := args[0], Builtin) and of.name in HOST_CALLS and isinstance(args[1], Items):
                return Items(tuple(_wrapped(HOST_CALLS[of.name], x) for x in args[1].items))
            case Builtin(name="builtins.getattr") if len(args) == 2 and isinstance(args[1], str):
                return self.attribute(args[0], args[1])
            case Host(node=cst.FunctionDef() as f):
                return self._inline(fn.module, f, args, depth, named, fn.names)
            case Builtin(name=name) if name.startswith("triton.language.") and name.rsplit(".", 1)[1] in ("tensor",):
                return fn
            case _:
                raise NotUnderstood("a host call that cannot be evaluated")

    def call_host(self, fn: Host, args: Sequence[Value], named: Mapping[str, Value]) -> Value:
        """What a host function gives for known arguments. Raises NotUnderstood."""
        if not isinstance(fn.node, cst.FunctionDef) or not all(is_known(v) for v in (*args, *named.values())):
            raise NotUnderstood(f"a call of the host function '{fn.node.name.value}'")
        return self._inline(fn.module, fn.node, list(args), 1, named, fn.names)

    def evaluate_call(self, name: str, args: Sequence[Value]) -> Value:
        """A Python or math function on literals."""
        return _wrapped(HOST_CALLS[name], *args)

    def _comprehended(self, one: cst.BaseExpression, loop: cst.CompFor, names: dict[str, Value], depth: int) -> Iterator[Value]:
        """The elements of a comprehension, in order."""
        found = self.evaluate(loop.iter, names, depth + 1)
        if not isinstance(found, Items):
            raise NotUnderstood("a comprehension over what is no list")
        for item in found.items:
            inner = {**names, **_unpacked(loop.target, item)}
            outcomes = [self.evaluate(test.test, inner, depth + 1) for test in loop.ifs]
            if not all(map(is_known, outcomes)):
                raise NotUnderstood("a condition of a comprehension that is not known")
            if all(outcomes):
                if loop.inner_for_in is None:
                    yield self.evaluate(one, inner, depth + 1)
                else:
                    yield from self._comprehended(one, loop.inner_for_in, inner, depth)

    def _pairs(self, x: cst.BaseDictElement, names: Mapping[str, Value] | None, depth: int) -> Iterator[tuple[str, Value]]:
        """What an element of a dict display holds."""
        value = self.evaluate(x.value, names, depth + 1)
        if isinstance(x, cst.DictElement):
            key = self.evaluate(x.key, names, depth + 1)
            if not isinstance(key, str):
                raise NotUnderstood("a dict whose keys are no texts")
            yield key, value
        elif isinstance(value, Table):
            yield from value.items
        else:
            raise NotUnderstood("a dict spread from what is no dict")

    def _configuration(self, args: list[Value], e: cst.Call, names: Mapping[str, Value] | None, depth: int) -> Configuration:
        """`triton.Config(kwargs, num_warps=.., num_stages=.., ..)`; hooks are left out."""
        words = ("kwargs", "num_warps", "num_stages", "num_ctas", "maxnreg")
        given: dict[str, Value] = dict(zip(words, args, strict=False))
        for a in e.args:
            if a.keyword is not None and a.keyword.value in words:
                given[a.keyword.value] = self.evaluate(a.value, names, depth + 1)
        kwargs = given.pop("kwargs", Table(()))
        if not isinstance(kwargs, Table):
            raise NotUnderstood("a configuration whose values are no dict")
        return Configuration((*kwargs.items, *((k, v) for k, v in given.items() if v is not None)))

    def _inline(
        self,
        module: Module,
        f: cst.FunctionDef,
        args: list[Value],
        depth: int,
        named: Mapping[str, Value] | None = None,
        names: Mapping[str, Value] | None = None,
    ) -> Value:
        bound: dict[str, Value] = {**(names or {}), **dict(zip((p.name.value for p in f.params.params), args))}
        bound.update(named or {})
        inner = self.scope(module)
        for p in (*f.params.params, *f.params.kwonly_params):
            if p.name.value not in bound and p.default is not None:
                bound[p.name.value] = inner.evaluate(p.default, None, depth + 1)
        found = inner._execute(f.body.body, bound, depth + 1)
        return found[0] if found is not None else None

    def _execute(self, body: Sequence[cst.CSTNode], names: dict[str, Value], depth: int) -> tuple[Value] | None:
        """Run host statements of the subset (assignments of names, `if`, `for`, `try`, `return`); the value returned, if one was."""
        for s in body:
            match s:
                case cst.SimpleStatementLine():
                    for small in s.body:
                        match small:
                            case cst.Return(value=value):
                                return (None if value is None else self.evaluate(value, names, depth + 1),)
                            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value):
                                names[name] = self.evaluate(value, names, depth + 1)
                            case cst.Assign(targets=[cst.AssignTarget(target=cst.Tuple() as target)], value=value):
                                names.update(_unpacked(target, self.evaluate(value, names, depth + 1)))
                            case cst.AugAssign(target=cst.Name(value=name), operator=op, value=value) if type(op) in AUGMENTED:
                                names[name] = self.evaluate(cst.BinaryOperation(cst.Name(name), AUGMENTED[type(op)](), value), names, depth + 1)
                            case cst.Import() | cst.ImportFrom():
                                names.update(self._local_imports(small))
                            case cst.Expr() | cst.Pass() | cst.Assert():
                                continue
                            case _:
                                raise NotUnderstood(f"host statement {type(small).__name__}")
                case cst.FunctionDef() if not s.decorators:
                    names[s.name.value] = Host(self.module, s, names)
                case cst.If():
                    outcome = self.evaluate(s.test, names, depth + 1)
                    if isinstance(outcome, (Builtin, ModuleValue)):
                        outcome = True
                    if not is_known(outcome):
                        raise NotUnderstood("a host branch that is not known")
                    orelse: Sequence[cst.CSTNode] = (
                        () if s.orelse is None else [s.orelse] if isinstance(s.orelse, cst.If) else s.orelse.body.body
                    )
                    found = self._execute(s.body.body if outcome else orelse, names, depth + 1)
                    if found is not None:
                        return found
                case cst.For(target=cst.Name(value=name), orelse=None):
                    for each in strings.rounds(s.iter, names, lambda x, inner: self.evaluate(x, inner, depth + 1)):
                        names[name] = each
                        found = self._execute(s.body.body, names, depth + 1)
                        if found is not None:
                            return found
                case cst.While(orelse=None):
                    for _ in strings.while_true(s.test, names, lambda x, inner: self.evaluate(x, inner, depth + 1)):
                        found = self._execute(s.body.body, names, depth + 1)
                        if found is not None:
                            return found
                case cst.Try():
                    found = self._execute(s.body.body, names, depth + 1)
                    if found is not None:
                        return found
                case _:
                    raise NotUnderstood(f"host statement {type(s).__name__}")
        return None

    def _local_imports(self, s: cst.Import | cst.ImportFrom) -> dict[str, Value]:
        holder = Module(self.module.path, self.module.name, "", cst.Module(body=[]))
        return {name: self._value(d) for name, d in small_definitions(holder, s)}


def _has(owner: str, name: str) -> bool:
    """Whether a module of Triton's has a name, as far as that is known. Raises NotUnderstood."""
    if f"{owner}.{name}" in TRITON_HAS:
        return True
    if owner.rpartition(".")[2] == "libdevice":
        if element_row(f"{owner}.{name}", name) is not None or name in LIBDEVICE:
            return True
        raise NotUnderstood(f"whether libdevice has '{name}'")
    return False


def _unpacked(target: cst.BaseExpression, value: Value) -> dict[str, Value]:
    """The names of a comprehension's target with their values."""
    match target:
        case cst.Name():
            return {target.value: value}
        case cst.Tuple() | cst.List() if isinstance(value, Items) and len(value.items) == len(target.elements):
            return {k: v for x, y in zip(target.elements, value.items, strict=True) for k, v in _unpacked(x.value, y).items()}
        case _:
            raise NotUnderstood("values of another form than the names that they are for")


class _Excluded(NotUnderstood):
    """A guarded definition whose test evaluates to the other outcome."""


def _wrapped(fn: Callable[..., Any], *args: Any) -> Value:
    try:
        value = fn(*args)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError) as bad:
        raise NotUnderstood(f"a host expression fails: {bad}") from bad
    if isinstance(value, (list, tuple)):
        return Items(tuple(value))
    if is_known(value):
        return value  # type: ignore[no-any-return]  # checked by is_known
    raise NotUnderstood("a host expression of an unusual type")
