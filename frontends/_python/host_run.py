"""Host code in Python followed without running it, as far as the launches of kernels: assignments, calls of functions of the same folder, tests of sizes.

Nothing is imported or executed. Of a loop one turn is followed, of a branch that nothing decides the part that launches.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32
from kir.surface.launches.record import HostLaunch
from kir.surface.launches.values import Array, Bits, Dtype, Either, Known, Unknown, Value, decided, is_condition, number_chosen, opposite, taken_for

from .host_operators import binary, is_power_of_two
from .host_parts import Called as Called
from .host_parts import HostFile as HostFile
from .host_parts import Kernel as Kernel
from .host_parts import Names, asked_for, chooses, defaults, entry_name, is_main, launched_below, leaves, module_files, optional, parameters
from .host_values import (
    RANK,
    External,
    Lazy,
    Limits,
    Method,
    Saved,
    Shape,
    Starred,
    array,
    attribute,
    bytes_of,
    called,
    chosen,
    dtypes_said,
    external,
    method,
    number,
    part_of,
    turn,
)
from .host_wrappers import DEVICE, OF_DEVICE, OF_NUMBERS, Made, constant, held_since_made, made_of_class, plain_default, turns_of, wrapped

DEEPEST, MOST_STATEMENTS = 8, 20_000
"""Calls inside one another that are followed, and statements for one entry."""
_ORDER = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}


class _Return(Exception):
    def __init__(self, value: Value) -> None:
        self.value = value


Fork = tuple[str, int]
"""A branch: file and line."""


class _Raised(Exception):
    """The host code refuses its call here."""


class Follower:
    """One entry of host code, followed. `on_call` turns the call of a kernel into a launch, or a value; `load` reads a file that another one imports;
    `usual` are those of an entry's arguments that may be None that are None (None: each), the others are what they turn out to be. `forks` are
    the branches that nothing decides and that launch either way; the first part is taken, of those in `otherwise` the second. With `flags` an entry's
    arguments that are true or false by default, and what else decides a branch, are what its launch needs."""

    def __init__(self, files: Mapping[str, HostFile], on_call: Callable[[Follower, HostFile, Kernel, ast.Call, list[Value], dict[str, Value]], Value],
                 load: Callable[[Path], HostFile | None] = lambda path: None, usual: frozenset[str] | None = frozenset(),
                 otherwise: frozenset[Fork] = frozenset(), flags: bool = False) -> None:
        self.files, self.on_call, self.load, self.usual, self.otherwise, self.flags = files, on_call, load, usual, otherwise, flags
        self.forks: list[Fork] = []
        self.known = Known()
        self.launches: list[HostLaunch] = []
        self.depth = self.followed = 0
        self.modules: dict[str, Names] = {}

    # ------------------------------------------------------------------------------------------------------------------ entries
    def module(self, file: HostFile) -> Names:
        """The names of a file: what its first level assigns and imports, without what only a main program does."""
        key = str(file.path)
        if key not in self.modules:
            scope = self.modules[key] = Names()
            for s in file.tree.body:
                if isinstance(s, (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef, ast.Try)) or (
                        isinstance(s, ast.If) and not is_main(s.test)):
                    self.try_(file, s, scope)
        return self.modules[key]

    def main(self, file: HostFile) -> None:
        """Everything that running the file does."""
        scope = self.module(file)
        rest = [s for s in file.tree.body if not isinstance(s, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef))]
        for s in rest:
            if isinstance(s, ast.Assign) and not any(isinstance(x, ast.Call) for x in ast.walk(s)):
                continue
            self.try_(file, s, scope)

    def entry(self, file: HostFile, f: ast.FunctionDef) -> dict[str, Value]:
        """A function called by whom nobody sees: its arguments are what they turn out to be; those that a test is given by a mark, as there. The backward of
        an autograd function finds what its forward keeps. What it keeps itself in its first argument."""
        scope: dict[str, Value] = self.module(file)
        own = next((name for name, g in file.functions.items() if g is f), "")
        forward = file.functions.get(f"{own.removesuffix('.backward')}.forward") if own.endswith(".backward") else None
        if forward is not None:
            held, names = self.entry(file, forward), [next(iter(parameters(g)), None) for g in (forward, f)]
            if names[0] is not None and names[1] is not None:
                scope = {**scope, **{f"{names[1].arg}.{k.partition('.')[2]}": v for k, v in held.items()}}
        given = {**{p.arg: Lazy(self.known, p.arg, self._default(file, f, p, scope)) for p in parameters(f)}, **self._marked(file, f, scope)}
        without = {x for x in optional(f) if self.usual is None or x in self.usual}
        for p in parameters(f):
            default = self._default(file, f, p, scope)
            left_out = isinstance(default, str) or (isinstance(default, bool) and not self.flags) or p.arg in without
            if p.arg not in given or (isinstance(given[p.arg], Lazy) and left_out):
                given[p.arg] = default
        kept: dict[str, Value] = {}
        with suppress(_Raised):
            inner = self.call(Called(file, f, scope), [], given, kept)
            if isinstance(inner, Called) and isinstance(inner.node, ast.FunctionDef):  # a function that makes the one that is called
                self.call(inner, [], {p.arg: Lazy(self.known, p.arg, self._default(file, inner.node, p, dict(inner.scope))) for p in parameters(inner.node)})
        return kept

    def _marked(self, file: HostFile, f: ast.FunctionDef, scope: dict[str, Value]) -> dict[str, Value]:
        out: dict[str, Value] = {}
        for d in f.decorator_list:
            if isinstance(d, ast.Call) and isinstance(d.func, ast.Attribute) and d.func.attr == "parametrize" and len(d.args) >= 2:
                names, rows = d.args[0], self.value(file, d.args[1], scope)
                labels = [x.strip() for x in names.value.split(",")] if isinstance(names, ast.Constant) and isinstance(names.value, str) else []
                if isinstance(rows, list) and rows:
                    row = rows[0] if len(labels) > 1 and isinstance(rows[0], list) else [rows[0]]
                    out |= {k: chosen(self.known, k, v) for k, v in zip(labels, row)}
        return out

    def _default(self, file: HostFile, f: ast.FunctionDef | ast.Lambda, p: ast.arg, scope: dict[str, Value]) -> Value:
        pairs = defaults(f)
        if p.arg not in pairs:
            return None
        found = self.value(file, pairs[p.arg], scope)
        return int(found.value) if isinstance(found, n.Const) and not isinstance(found.value, bool) else found

    # --------------------------------------------------------------------------------------------------------------- statements
    def try_(self, file: HostFile, s: ast.stmt, scope: dict[str, Value]) -> None:
        """A statement of a file's first level; one that refuses or returns ends itself alone."""
        try:
            self.run(file, [s], scope)
        except (_Return, _Raised):
            return

    def run(self, file: HostFile, body: Sequence[ast.stmt], scope: dict[str, Value]) -> None:
        """Statements in order."""
        for s in body:
            self.followed += 1
            if self.followed > MOST_STATEMENTS:
                raise _Return(Unknown("more statements than are followed"))
            match s:
                case ast.Import() | ast.ImportFrom():
                    self._import(file, s, scope)
                case ast.FunctionDef(name=name):
                    scope[name] = Kernel(name) if name in file.kernels else Called(file, s, scope)
                case ast.ClassDef(name=name):
                    scope[name] = External(f"{file.path.stem}.{name}")
                case ast.Assign(targets=targets, value=value):
                    found = self.value(file, value, scope)
                    for t in targets:
                        self.assign(file, t, found, scope)
                case ast.AnnAssign(target=target, value=value) if value is not None:
                    self.assign(file, target, self.value(file, value, scope), scope)
                case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                    scope[name] = binary(self.known, op, scope.get(name), self.value(file, value, scope))
                case ast.Expr(value=value):
                    self.value(file, value, scope)
                case ast.Return(value=value):
                    raise _Return(None if value is None else self.value(file, value, scope))
                case ast.Raise():
                    raise _Raised
                case ast.Assert(test=test) if not is_power_of_two(test):  # which would make of a number the power that is assumed
                    dtypes_said(test, lambda e: self.value(file, e, scope))
                    self._holds(self.value(file, test, scope))
                case ast.If():
                    self._branch(file, s, scope)
                case ast.For(target=target, iter=over, body=inner):
                    turns = self.value(file, over, scope)
                    seen = turn(self.known, target, turns[0]) if isinstance(turns, (list, tuple)) and turns else self._one_of(turns, target)
                    self.assign(file, target, seen, scope)
                    self.run(file, inner, scope)
                case ast.While(body=inner) | ast.Try(body=inner):
                    self.run(file, inner, scope)
                case ast.With(items=items, body=inner):
                    for item in items:
                        found = self.value(file, item.context_expr, scope)
                        if item.optional_vars is not None:
                            self.assign(file, item.optional_vars, found, scope)
                    self.run(file, inner, scope)
                case _:
                    pass

    def assign(self, file: HostFile, target: ast.expr, v: Value, scope: dict[str, Value]) -> None:
        """A value for a name, or for several."""
        match target:
            case ast.Name(id="_"):
                scope["_"] = v  # what is put away: no name that would make two of them one
            case ast.Name(id=name):
                old = scope.get(name)
                if isinstance(old, n.Expr) and isinstance(v, n.Expr) and isinstance(old, n.Var) and isinstance(v, n.Var):
                    self.known.same(old, v)  # the author gives one name to both
                self.known.called(v, name)
                if isinstance(v, Array) and not v.hint:
                    v.hint = name
                scope[name] = v
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                for t, each in zip(elts, self._unpacked(v, elts)):
                    self.assign(file, t, each, scope)
            case ast.Attribute(value=ast.Name(id=owner), attr=attr):
                scope[f"{owner}.{attr}"] = v
            case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=str(key))):
                scope[entry_name(owner, key)] = v
            case _:
                pass

    def _one_of(self, turns: Value, target: ast.expr) -> Value:
        """What a turn of a loop has of things that nobody shows: what its use says that it is."""
        unseen = isinstance(turns, Unknown) or (isinstance(turns, Lazy) and turns.array_ is None and turns.number_ is None)
        return Lazy(self.known, target.id) if unseen and isinstance(target, ast.Name) else Unknown("a turn of a loop")

    def _unpacked(self, v: Value, into: Sequence[ast.expr]) -> list[Value]:
        if isinstance(v, Shape):
            starred = next((k for k, t in enumerate(into) if isinstance(t, ast.Starred)), None)
            if starred is None:
                return list(v.of.of_rank(len(into)) or [Unknown("an extent")] * len(into))
            after = len(into) - starred - 1
            return [*(v.of.extent(k) for k in range(starred)), Unknown("extents"), *(v.of.extent(k - after) for k in range(after))]
        stars = [k for k, x in enumerate(v) if isinstance(x, Starred)] if isinstance(v, (list, tuple)) else []
        if isinstance(v, (list, tuple)) and len(stars) == 1 and isinstance(x := v[stars[0]], Starred) and isinstance(x.of, Shape) and len(v) <= len(into):
            rank = len(into) - len(v) + 1
            v = [*v[:stars[0]], *(x.of.of.of_rank(rank) or [Unknown("an extent")] * rank), *v[stars[0] + 1:]]
        if isinstance(v, (list, tuple)) and len(v) == len(into):
            return list(v)
        if isinstance(v, Called | Kernel):
            return [v] * len(into)
        if isinstance(v, Saved):
            return [Array(self.known, t.id if isinstance(t, ast.Name) else "") for t in into]
        if isinstance(v, Lazy) and v.array_ is None and v.number_ is None and v.default is None:  # several arguments that are handed over as one
            return [Lazy(self.known, t.id) if isinstance(t, ast.Name) else Unknown("a part of what is not known") for t in into]
        return [Unknown("a part of what is not known")] * len(into)

    def _branch(self, file: HostFile, s: ast.If, scope: dict[str, Value]) -> None:
        if is_main(s.test):
            self.run(file, s.body, scope)
            return
        test = self.value(file, s.test, scope)
        answer = self.truth(test)
        passed = self.flags and self._launching(file, s.orelse if answer else s.body)
        if answer is None and not passed and is_condition(test) and isinstance(test, n.Expr):
            example = decided(self.known.resolved(test), self.known.examples)
            if example is not None:
                answer = example
                self._holds(test if example else opposite(test))
        if answer is None and not passed and is_condition(test) and isinstance(test, n.Expr) and isinstance(s.body[-1], ast.Return) and self.depth and (
                not launched_below(file.functions, file.kernels, s)):  # a function of numbers, which gives something else for a special one
            answer = decided(self.known.resolved(test), {x: taken_for(1) for x in self.known.unseen(test)} | self.known.examples)
            if answer is not None:
                self._holds(test if answer else opposite(test))
        if answer is None or passed:
            refuses = leaves(s.body)
            if refuses and not s.orelse:
                dtypes_said(s.test, lambda e: self.value(file, e, scope), holds=False)
                self._holds(opposite(test))
                return
            first, second = self._launching(file, s.body), bool(s.orelse) and self._launching(file, s.orelse)
            if not first and not s.orelse and isinstance(s.body[-1], ast.Return) and launched_below(file.functions, file.kernels, s):
                self._holds(opposite(test))
                return
            if first and (second or isinstance(s.body[-1], ast.Return)):  # either may be taken: the other way is followed by itself
                self.forks.append((str(file.path), s.lineno))
                refuses = refuses or self.forks[-1] in self.otherwise
            other_rank = isinstance(test, Unknown) and test.reason == RANK and not first and not s.orelse  # most tensors have the rank that nothing is done for
            answer = not refuses and not other_rank and (first or not s.orelse or not second)
            if self.flags and isinstance(test, Lazy) and isinstance(test.default, bool) and isinstance(s.test, ast.Name):
                scope[s.test.id] = answer
            if not isinstance(test, Unknown) and chooses(s.body if answer else s.orelse, file.kernels):  # what is launched further on is that one
                self._holds(test if answer else opposite(test))
        self.run(file, s.body if answer else s.orelse, scope)

    def _holds(self, test: Value) -> None:
        """A condition that every call keeps."""
        if isinstance(test, list):
            for each in test:
                self._holds(each)
        elif isinstance(test, n.Binary) and is_condition(test):
            if test.op == "eq" and any(isinstance(x, n.Var) for x in (test.a, test.b)):
                self.known.same(test.a, test.b)
            else:
                self.known.fact(test)

    def _launching(self, file: HostFile, body: Sequence[ast.stmt]) -> bool:
        held: Mapping[str, Value] = self.modules.get(str(file.path), {})
        for s in body:
            for x in ast.walk(s):
                if isinstance(x, ast.Name) and x.id in file.kernels:
                    return True
                if isinstance(x, ast.Call) and isinstance(x.func, ast.Name) and isinstance(held.get(x.func.id), (Called, Kernel)):
                    return True
        return False

    def _import(self, file: HostFile, s: ast.Import | ast.ImportFrom, scope: dict[str, Value]) -> None:
        for alias in s.names:
            dotted = alias.name if isinstance(s, ast.Import) else f"{s.module or ''}.{alias.name}".lstrip(".")
            own = self._source(file, s, alias.name) if isinstance(s, ast.ImportFrom) else self.files.get(alias.name)
            name = alias.asname or alias.name.partition(".")[0]
            if isinstance(s, ast.ImportFrom) and own is not None and own.path != file.path:
                for each in ([alias.name] if alias.name != "*" else [*self.module(own), *self.module(own).later]):
                    taken = partial(self._taken, own, each, external(dotted))
                    if isinstance(scope, Names):
                        scope.later[alias.asname or each] = taken
                    else:
                        scope[alias.asname or each] = taken()
            elif isinstance(s, ast.ImportFrom) and alias.name in self.files:
                scope[name] = self.files[alias.name]
            elif own is not None and isinstance(s, ast.Import):
                scope[name] = own
            else:
                scope[name] = external(dotted if alias.asname or isinstance(s, ast.ImportFrom) else name)

    def _taken(self, own: HostFile, name: str, otherwise: Value) -> Value:
        """A name of another file, whose first level is run as by itself."""
        before, self.depth = self.depth, 0
        found = self.module(own).get(name, otherwise)
        self.depth = before
        return found

    def _source(self, file: HostFile, s: ast.ImportFrom, name: str, deep: int = 0) -> HostFile | None:
        """The file that a name is imported from: by its dotted path, through packages that only pass it on, else a file of the folder so called."""
        found = next((f for path in module_files(file.path, s.module or "", s.level) if (f := self.load(path)) is not None), None)
        if found is not None and found.path.name == "__init__.py":
            on = next((x for x in found.tree.body if isinstance(x, ast.ImportFrom) and any((a.asname or a.name) == name for a in x.names)), None)
            if on is not None and deep < DEEPEST:
                return self._source(found, on, name, deep + 1)
            found = found if name in found.functions else None
        return found or self.files.get((s.module or "").rpartition(".")[2])

    # -------------------------------------------------------------------------------------------------------------- expressions
    def value(self, file: HostFile, e: ast.expr, scope: Mapping[str, Value]) -> Value:
        """What an expression is, as far as it can be told."""
        match e:
            case ast.Constant(value=bool() | str() | float() | None as value):
                return value
            case ast.Constant(value=int() as value):
                return build.const(value) if abs(value) < 1 << 31 else Unknown("a large number")
            case ast.Name(id=name):
                if name in scope:
                    return scope[name]
                held: Mapping[str, Value] = self.modules.get(str(file.path), {})
                return held[name] if name in held else External(name)
            case ast.Attribute(value=owner, attr=attr):
                return self._attribute(file, e, self.value(file, owner, scope), attr, scope)
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                return [v for x in elts for v in self._element(file, x, scope)]
            case ast.Dict(keys=keys, values=values):
                return {k.value: self.value(file, v, scope) for k, v in zip(keys, values) if isinstance(k, ast.Constant)}
            case ast.BinOp(left=left, op=op, right=right):
                return binary(self.known, op, self.value(file, left, scope), self.value(file, right, scope))
            case ast.UnaryOp(op=op, operand=operand):
                return self._unary(op, self.value(file, operand, scope))
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._compare(file, left, ops, others, scope)
            case ast.BoolOp(op=op, values=values):
                return self._logic(op, [self.value(file, v, scope) for v in values])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._chosen(file, test, body, orelse, scope)
            case ast.Subscript(value=owner, slice=index):
                return self._subscript(file, self.value(file, owner, scope), index, scope, ast.unparse(owner))
            case ast.Lambda():
                return Called(file, e, dict(scope))
            case ast.NamedExpr(target=target, value=value) if isinstance(scope, dict):
                self.assign(file, target, found := self.value(file, value, scope), scope)
                return found
            case ast.Call():
                return self._call(file, e, scope)
            case (ast.ListComp(elt=elt, generators=[only]) | ast.GeneratorExp(elt=elt, generators=[only])) if (turns := turns_of(only)):
                return [self.value(file, elt, {**scope, **{x: self.value(file, v, scope) for x, v in turn.items()}}) for turn in turns]
            case ast.ListComp(elt=elt, generators=[only]):
                over = self.value(file, only.iter, scope)
                if not isinstance(over, (list, tuple)) or not over:
                    return Unknown("a list")
                inner = dict(scope)
                self.assign(file, only.target, over[0], inner)
                return [self.value(file, elt, inner)]
            case _:
                return Unknown(type(e).__name__.lower())

    def _element(self, file: HostFile, e: ast.expr, scope: Mapping[str, Value]) -> list[Value]:
        """What an element of a tuple stands for: with a star all that it has, or, as a shape whose rank nobody knows yet, itself."""
        if not isinstance(e, ast.Starred):
            return [self.value(file, e, scope)]
        found = self.value(file, e.value, scope)
        if isinstance(found, Shape):
            return list(found.of.shape) if found.of.shape is not None else [Starred(found)]
        return list(found) if isinstance(found, (list, tuple)) else [Starred(found)]

    def _chosen(self, file: HostFile, test: ast.expr, body: ast.expr, orelse: ast.expr, scope: Mapping[str, Value]) -> Value:
        answer = self.truth(found := self.value(file, test, scope))
        if answer is None and isinstance(found, n.Expr):
            answer = decided(self.known.resolved(found), self.known.examples)
        if self.truth(found) is None and (both := number_chosen(found, *(self.value(file, x, scope) for x in (body, orelse)))) is not None:
            return both
        taken, left = (body, orelse) if answer is not False else (orelse, body)
        v = self.value(file, taken, scope)  # what a caller may bring along is as what is made without it
        alike = self.value(file, left, scope) if isinstance(v, Lazy) and v.array_ is None and asked_for(test, taken) else v
        return alike if isinstance(alike, Array) else v

    def _attribute(self, file: HostFile, e: ast.Attribute, owner: Value, attr: str, scope: Mapping[str, Value]) -> Value:
        if isinstance(e.value, ast.Name) and f"{e.value.id}.{attr}" in scope:
            return scope[f"{e.value.id}.{attr}"]
        if isinstance(owner, HostFile):
            return self.module(owner).get(attr, Unknown(attr))
        if isinstance(held := owner.default if isinstance(owner, Lazy) else owner, Made):
            return held.get(attr, Unknown(attr))
        if isinstance(owner, External):
            klass = owner.dotted.rpartition(".")[2]
            method_ = next((h.functions.get(f"{klass}.{'forward' if attr == 'apply' else attr}") for h in self.files.values()
                            if f"{klass}.{'forward' if attr == 'apply' else attr}" in h.functions), None)
            if method_ is not None:
                return Called(next(h for h in self.files.values() if method_ in h.functions.values()), method_, bound=attr == "apply")
            return external(f"{owner.dotted}.{attr}")
        if isinstance(owner, Kernel):
            return replace(owner, warm=attr == "warmup") if attr in ("run", "kernel", "fn", "warmup") else Unknown(attr)
        if isinstance(owner, Lazy) and attr in OF_NUMBERS and owner.array_ is None:
            owner.number()
            return Unknown(attr)
        if attr in ("saved_tensors", "saved_variables") and (isinstance(owner, External) or (isinstance(owner, Lazy) and owner.array_ is None)):
            return Saved()
        if isinstance(owner, Lazy) and owner.number_ is None and owner.name not in ("self", "ctx", "cls"):
            owner = owner.array()
        if isinstance(owner, Lazy) and owner.name in ("self", "ctx") and isinstance(e.value, ast.Name) and isinstance(scope, dict):
            usual = held_since_made(file, attr)  # else what another call has left there
            return scope.setdefault(f"{e.value.id}.{attr}", Lazy(self.known, attr, *(() if usual is None else (plain_default(self.value(file, usual, {})),))))
        if attr == "itemsize" and isinstance(owner, Dtype):
            return bytes_of(self.known, owner.name)
        if attr == "value" and isinstance(owner, (n.Const, bool, str, float)):
            return owner  # of a compile-time constant
        if attr in OF_DEVICE:
            self.known.remarks.append(f"{attr} is {OF_DEVICE[attr]}, as of an {DEVICE.name}")
            return build.const(OF_DEVICE[attr])
        return attribute(owner, attr) if isinstance(owner, Array) else owner.value(attr) if isinstance(owner, Limits) else Unknown(f".{attr}")

    def _subscript(self, file: HostFile, owner: Value, index: ast.expr, scope: Mapping[str, Value], name: str) -> Value:
        if isinstance(index, ast.Slice) and index.step is None and isinstance(owner, (Shape, list, tuple)):
            first, last = (0 if x is None else number(self.value(file, x, scope)) for x in (index.lower, index.upper))
            return part_of(owner, first, last, index.upper is None)
        at = self.value(file, index, scope)
        if isinstance(owner, Kernel):
            return replace(owner, grid=at)
        if isinstance(at, str) and isinstance(scope, dict) and (isinstance(owner, (Unknown, Lazy, Array)) or entry_name(name, at) in scope):
            return scope.setdefault(entry_name(name, at), Lazy(self.known, at))  # an entry of a dictionary: what its use says that it is
        if isinstance(owner, Shape) and isinstance(e := number(at), n.Const):
            return owner.of.extent(int(e.value)) or Unknown("an extent")
        if isinstance(owner, (list, tuple)) and isinstance(e := number(at), n.Const) and -len(owner) <= int(e.value) < len(owner):
            return owner[int(e.value)]
        if isinstance(owner, dict) and isinstance(at, str):
            return owner.get(at, n.Var(at, I32) if at.isidentifier() and owner.get("") == "metas" else Unknown(at))
        if (of := array(owner)) is not None:
            return of.part()
        return Unknown("an element")

    def _unary(self, op: ast.unaryop, v: Value) -> Value:
        if isinstance(op, ast.Not):
            answer = self.truth(v)
            return (not answer) if answer is not None else opposite(v)
        if isinstance(op, ast.USub) and (e := number(v)) is not None:
            return build.negate(e)
        made = Array(self.known, "", v.shape, v.dtype) if isinstance(v, Array) else Unknown("an operator")
        return -v if isinstance(op, ast.USub) and isinstance(v, float) else made

    def _compare(self, file: HostFile, left: ast.expr, ops: Sequence[ast.cmpop], others: Sequence[ast.expr], scope: Mapping[str, Value]) -> Value:
        out, a = list[Value](), self.value(file, left, scope)
        for op, each in zip(ops, others):
            b = self.value(file, each, scope)
            out.append(self._compared(op, a, b))
            a = b
        return out[0] if len(out) == 1 else out

    def _compared(self, op: ast.cmpop, a: Value, b: Value) -> Value:
        if isinstance(op, (ast.Is, ast.IsNot)) and (a is None or b is None):
            return (a is b) == isinstance(op, ast.Is) if not any(isinstance(x, (Unknown, Lazy)) for x in (a, b)) else isinstance(op, ast.IsNot)
        if isinstance(a, Shape) and isinstance(b, Shape) and isinstance(op, ast.Eq):
            rank = next((len(x.of.shape) for x in (a, b) if x.of.shape is not None), None)
            if rank is not None:
                for x, y in zip(a.of.of_rank(rank) or (), b.of.of_rank(rank) or ()):
                    self.known.same(x, y)
            return True
        first, second = number(a), number(b)
        if first is not None and second is not None and type(op) in _ORDER:
            return build.compare(_ORDER[type(op)], self.known.resolved(first), self.known.resolved(second))
        if type(op) in _ORDER and (tensor := next((x for x in (a, b) if isinstance(x, Array)), None)) is not None:
            return Array(self.known, "", tensor.shape, "bool")
        if isinstance(op, (ast.Eq, ast.NotEq)) and isinstance(a, str) and isinstance(b, str):
            return (a == b) == isinstance(op, ast.Eq)
        return Unknown(RANK if RANK in (getattr(a, "reason", ""), getattr(b, "reason", "")) and isinstance(op, ast.Eq) else "a comparison")

    def _logic(self, op: ast.boolop, values: list[Value]) -> Value:
        answers, whole = [self.truth(v) for v in values], isinstance(op, ast.And)
        if (not whole) in [a for a in answers if a is not None]:
            return not whole
        left = [v for v, a in zip(values, answers) if a is None]
        return whole if not left else left[0] if len(left) == 1 else left if whole else Either("one condition or another", tuple(left))

    def truth(self, v: Value) -> bool | None:
        """Whether a value counts as true; None where that is not known."""
        if isinstance(v, bool) or v is None or isinstance(v, (str, float)):
            return bool(v)
        if isinstance(v, n.Const):
            return bool(v.value)
        if isinstance(v, (list, tuple)) and v and all(isinstance(x, (bool, n.Expr)) for x in v):
            answers = [self.truth(x) for x in v]
            return None if None in answers else all(answers)
        return None

    def _call(self, file: HostFile, e: ast.Call, scope: Mapping[str, Value]) -> Value:
        if isinstance(e.func, ast.Attribute) and e.func.attr == "bit_length" and not e.args:
            owner = number(self.value(file, e.func.value, scope))
            return Bits(owner) if owner is not None else Unknown("bit_length")
        f = self.value(file, e.func, scope)
        args: list[Value] = []
        for a in e.args:
            found = self.value(file, a.value if isinstance(a, ast.Starred) else a, scope)
            if isinstance(found, Shape) and isinstance(a, ast.Starred):
                found = list(found.of.shape or ())
            args += list(found) if isinstance(a, ast.Starred) and isinstance(found, (list, tuple)) else [found]
        named: dict[str, Value] = {}
        for k in e.keywords:
            found = self.value(file, k.value, scope)
            named |= {k.arg: found} if k.arg is not None else {str(x): v for x, v in found.items()} if isinstance(found, dict) else {}
        if (kernel := wrapped(e, f, args, lambda x, held: self.value(file, x, {**scope, **held}))) is not None:
            return kernel
        if isinstance(f, Kernel):
            return self.on_call(self, file, f, e, args, named)
        if isinstance(f, Called):
            return self.call(f, args, named)
        if isinstance(f, Method):
            return method(f.of, f.name, [self._plain(x) for x in args], {k: self._plain(v) for k, v in named.items()})
        if isinstance(e.func, ast.Attribute) and e.func.attr == "save_for_backward" and isinstance(e.func.value, ast.Name) and isinstance(scope, dict):
            scope[f"{e.func.value.id}.saved_tensors"] = args
        if isinstance(f, External) and (fields := made_of_class(file, f, args, named, lambda x: self.value(file, x, scope))) is not None:
            return fields
        if isinstance(f, External):
            for inner in (x for x in args if isinstance(x, Called) and isinstance(x.node, ast.Lambda)):
                self.call(inner, [], {})  # do_bench(lambda: f(..)) calls it
            return called(self.known, f, [self._plain(x) for x in args], {k: self._plain(v) for k, v in named.items()})
        return Unknown("a call")

    def _plain(self, v: Value) -> Value:
        """A shape as its extents, where they are known; a dtype that an argument is by default."""
        if isinstance(v, Lazy) and isinstance(v.default, Dtype) and v.array_ is None and v.number_ is None:
            return v.default
        if isinstance(v, Shape):
            v.of.settle()
            return list(v.of.shape) if v.of.shape is not None else v
        return v

    def call(self, f: Called, args: Sequence[Value], named: Mapping[str, Value], kept: dict[str, Value] | None = None) -> Value:
        """A function of the folder, followed. What it assigns to attributes of its first argument is put into `kept`."""
        if self.depth >= DEEPEST:
            return Unknown("calls too deep")
        given: list[Value] = [*([External("ctx")] if f.bound else []), *args]
        scope: dict[str, Value] = dict(f.scope)
        names = [p.arg for p in parameters(f.node)]
        scope.update(dict(zip(names, given)))
        for p in parameters(f.node)[len(given):]:
            scope[p.arg] = named[p.arg] if p.arg in named else constant(self._default(f.file, f.node, p, scope))
        if f.node.args.kwarg is not None:
            scope[f.node.args.kwarg.arg] = {k: v for k, v in named.items() if k not in names}
        if f.node.args.vararg is not None:
            scope[f.node.args.vararg.arg] = given[len(f.node.args.posonlyargs) + len(f.node.args.args):]
        for name in names:
            v = scope.get(name)
            if isinstance(v, Lazy):
                continue
            self.known.called(v, name, 1)
            if isinstance(v, Array) and not v.hint:
                v.hint = name
        self.depth += 1
        handed = any(isinstance(scope.get(name), Array) for name in names)
        self.known.handed += handed
        try:
            if isinstance(f.node, ast.Lambda):
                return self.value(f.file, f.node.body, scope)
            self.run(f.file, f.node.body, scope)
            return None
        except _Return as back:
            return back.value
        finally:
            self.depth -= 1
            self.known.handed -= handed
            if kept is not None and names:
                kept.update({k: v for k, v in scope.items() if k.startswith(f"{names[0]}.")})
