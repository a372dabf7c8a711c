"""What flows where in a program: from which tensors, scalars and sizes each value comes, by data, by index and by condition.

A name stands for all that is ever stored under it, so more seems to flow than does; what is said to be *absent* is absent. Left out is what
cannot arrive: a product with zero, an arm of a branch that a constant decides, a store that the next one overwrites, code after a jump.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.anchors import anchors
from kir.ir.types import DType
from kir.ir.visit import blocks_of, children, statements

Key = tuple[str, str]
"""A kernel and a name of its own, or `""` and the name of a parameter or a workspace."""
_READS_ONLY = frozenset({"atomic_load", "ldmatrix", "prefetch", "register_fence"})
"""Calls with an effect that leave the places that they are given as they are."""


@dataclass(frozen=True)
class Definition:
    """A statement that gives `key` a value: `uses` are the expressions that it takes, `under` the conditions and bounds that it stands under."""

    key: Key
    stmt: n.Node
    kernel: str
    uses: tuple[n.Node, ...]
    under: tuple[n.Expr, ...]


def branches_around(program: n.Program, matters: Callable[[n.If, str], bool] = lambda b, kernel: True) -> dict[int, tuple[tuple[n.If, bool], ...]]:
    """By statement, the branches that it stands in, each with its side, as far as they matter."""
    out: dict[int, tuple[tuple[n.If, bool], ...]] = {}

    def block(body: n.Block, kernel: str, inside: tuple[tuple[n.If, bool], ...]) -> None:
        for s in body:
            out[id(s)] = inside
            if isinstance(s, n.If):
                for side, arm in ((True, s.then), (False, s.orelse)):
                    block(arm, kernel, (*inside, (s, side)) if matters(s, kernel) else inside)
            else:
                for inner in blocks_of(s):
                    block(inner, kernel, inside)
    for k in program.kernels:
        block(k.body, k.name, ())
    for f in program.functions:
        block(f.body, f.name, ())
    return out


class Flow:
    """The definitions of a program by name. `opaque` where some of it is text that nobody understands: then nothing is said to be absent."""

    def __init__(self, program: n.Program) -> None:
        self.program = program
        self.definitions: dict[Key, list[Definition]] = {}
        self.opaque = False
        self._kernel = ""
        self._globals = {p.name for p in program.params} | {w.buffer.name for w in program.workspaces}
        self._anchors = {id(s): text for text, _, s in anchors(program)}
        self._zeros: dict[Key, bool] = {}
        self._sources: dict[int, tuple[n.Node, frozenset[Key]]] = {}
        self._named: dict[tuple[int, str], tuple[n.Node, tuple[Key, ...]]] = {}
        for p in program.params:
            if p.value is not None:
                self._add(("", p.name), p, (p.value,), ())
        for kernel, guards in launched(program):
            self._walk_kernel(kernel, guards)

    # ------------------------------------------------------------------------------------------------------- building
    def key(self, name: str, kernel: str) -> Key:
        """What a name means in a kernel; a view is what it shows."""
        views = self._all_views.get(kernel, {}) if kernel else {}
        seen = set[str]()
        while name in views and name not in seen:
            seen.add(name)
            name = views[name]
        return ("" if name in self._globals else kernel, name)

    @property
    def _all_views(self) -> Mapping[str, Mapping[str, str]]:
        found: dict[str, dict[str, str]] | None = self.__dict__.get("_view_names")
        if found is None:
            found = self.__dict__["_view_names"] = {
                k.name: {s.buffer.name: s.at.buffer.name for s in statements(k.body) if isinstance(s, n.View)} for k in self.program.kernels}
        return found

    def _add(self, key: Key, s: n.Node, uses: Sequence[n.Node], under: tuple[n.Expr, ...]) -> None:
        self.definitions.setdefault(key, []).append(Definition(key, s, self._kernel, tuple(uses), under))

    def _walk_kernel(self, kernel: n.Kernel, guards: tuple[n.Expr, ...]) -> None:
        self._kernel = kernel.name
        for axis in kernel.grid:
            self._add((kernel.name, axis.name), kernel, (axis.extent,), guards)
        exits = tuple(self._exits(kernel.body, ()))
        self._block(kernel.body, (*guards, *exits))

    def _exits(self, block: n.Block, under: tuple[n.Expr, ...]) -> Iterator[n.Expr]:
        """Conditions under which a jump leaves a loop or the kernel: all else stands under them too."""
        for s in block:
            match s:
                case n.Jump():
                    yield from under
                case n.If():
                    yield from self._exits(s.then, (*under, s.cond))
                    yield from self._exits(s.orelse, (*under, s.cond))
                case n.For() | n.While():
                    yield from self._exits(s.body, under)
                case n.Roles():
                    for role in s.roles:
                        yield from self._exits(role.body, under)
                case _:
                    pass

    def _block(self, block: n.Block, under: tuple[n.Expr, ...]) -> bool:
        """Takes a block in; whether what stands after it cannot be reached."""
        dead = _overwritten(block)
        return any(self._statement(s, under) for i, s in enumerate(block) if i not in dead)

    def _statement(self, s: n.Stmt, under: tuple[n.Expr, ...]) -> bool:
        k = self._kernel
        match s:
            case n.Let():
                for name in s.names:
                    self._add((k, name), s, (s.value,), under)
                self._effects(s, s.value, under)
            case n.Alloc():
                if s.init is not None:
                    self._add(self.key(s.buffer.name, k), s, (s.init,), under)
            case n.View():
                self._add(self.key(s.buffer.name, k), s, (*s.at.index, *([s.fill] if s.fill is not None else [])), under)
                for axis in s.axes:
                    self._add((k, axis), s, (), under)
            case n.Store():
                self._add(self.key(s.at.buffer.name, k), s, (s.value, *s.at.index, *([s.mask] if s.mask is not None else [])), under)
            case n.Copy():
                self._add(self.key(s.dst.buffer.name, k), s, (s.src, *s.dst.index, *([s.mask] if s.mask is not None else [])), under)
            case n.Mma():
                self._add(self.key(s.acc.buffer.name, k), s, (s.a, s.b, *s.acc.index), under)
            case n.Eval():
                self._effects(s, s.call, under)
            case n.For():
                if isinstance(s.lo, n.Const) and isinstance(s.hi, n.Const) and s.lo.value >= s.hi.value:
                    return False
                self._add((k, s.var.name), s, (s.lo, s.hi, s.step), under)
                self._block(s.body, (*under, s.lo, s.hi, s.step))
            case n.While():
                self._block(s.body, (*under, s.cond))
            case n.If():
                return self._branch(s, under)
            case n.Roles():
                for role in s.roles:
                    self._block(role.body, under)
            case n.Jump():
                return True
            case n.Opaque() | n.Hole():
                self.opaque = True
            case _:
                pass
        return False

    def _branch(self, s: n.If, under: tuple[n.Expr, ...]) -> bool:
        if isinstance(s.cond, n.Const):
            return self._block(s.then if s.cond.value else s.orelse, under)
        inner = (*under, s.cond)
        ends = [self._block(s.then, inner), self._block(s.orelse, inner)]
        return all(ends)

    def _effects(self, s: n.Stmt, value: n.Expr, under: tuple[n.Expr, ...]) -> None:
        """Places that a call is given by reference get something of all that it is given."""
        if isinstance(value, n.Call) and value.fn not in _READS_ONLY:
            for place in value.args:
                if isinstance(place, n.Region):
                    self._add(self.key(place.buffer.name, self._kernel), s, value.args, under)

    # -------------------------------------------------------------------------------------------------------- asking
    def anchor(self, d: Definition) -> str:
        """Where a definition stands."""
        return self._anchors.get(id(d.stmt), d.kernel)

    def parts(self, e: n.Node, kernel: str) -> Iterator[n.Node]:
        """An expression and those below it whose value can arrive at its own."""
        yield e
        match e:
            case n.Binary(op="mul", a=a, b=b) if self.is_zero(a, kernel) or self.is_zero(b, kernel):
                return
            case n.Binary(op="sub" | "xor", a=a, b=b) if a == b:
                return
            case n.Binary(op="and", a=a, b=b) if _is_false(a) or _is_false(b):
                return
            case n.Select(cond=n.Const(value=holds)):
                yield from self.parts(e.a if holds else e.b, kernel)
                return
            case n.Load(mask=n.Const(value=False)):
                yield from self.parts(e.other, kernel) if e.other is not None else ()
                return
            case n.Buffer():
                return
            case _:
                for child in children(e):
                    yield from self.parts(child, kernel)

    def names(self, e: n.Node, kernel: str) -> tuple[Key, ...]:
        """The names that an expression takes its value from, each once."""
        kept = self._named.get((id(e), kernel))
        if kept is None:
            kept = self._named[id(e), kernel] = (e, tuple(dict.fromkeys(self._names(e, kernel))))
        return kept[1]

    def _names(self, e: n.Node, kernel: str) -> Iterator[Key]:
        for part in self.parts(e, kernel):
            match part:
                case n.Var():
                    yield self.key(part.name, kernel)
                case n.Region():
                    yield self.key(part.buffer.name, kernel)
                case _:
                    pass

    def is_zero(self, e: n.Node, kernel: str) -> bool:
        """Whether an expression is zero, by constants alone."""
        match e:
            case n.Const():
                return not isinstance(e.value, bool) and e.value == 0
            case n.Cast() | n.Unary(op="neg"):
                return self.is_zero(e.x, kernel)
            case n.Binary(op="mul"):
                return self.is_zero(e.a, kernel) or self.is_zero(e.b, kernel)
            case n.Var():
                return self._all_zero(self.key(e.name, kernel))
            case n.Load():
                return self._all_zero(self.key(e.at.buffer.name, kernel))
            case _:
                return False

    def _all_zero(self, key: Key) -> bool:
        if key not in self._zeros:
            self._zeros[key] = False
            found = self.definitions.get(key, []) if not self._is_parameter(key) else []
            self._zeros[key] = bool(found) and all(
                isinstance(d.stmt, (n.Let, n.Alloc, n.Store)) and d.uses and self.is_zero(d.uses[0], d.kernel) for d in found)
        return self._zeros[key]

    def _is_parameter(self, key: Key) -> bool:
        return key[0] == "" and any(p.name == key[1] for p in self.program.params)

    def live(self, output: str) -> dict[Key, list[Definition]]:
        """The definitions from which a tensor's contents come, by name."""
        return self._closure([self.key(output, "")])

    def _closure(self, begin: Sequence[Key]) -> dict[Key, list[Definition]]:
        found: dict[Key, list[Definition]] = {}
        waiting = list(begin)
        while waiting:
            key = waiting.pop()
            if key in found:
                continue
            found[key] = self.definitions.get(key, [])
            for d in found[key]:
                for e in (*d.uses, *d.under):
                    waiting += self.names(e, d.kernel)
        return found

    def sources(self, e: n.Node, kernel: str) -> frozenset[str]:
        """The parameters from which an expression's value comes."""
        kept = self._sources.get(id(e))
        if kept is None:
            keys = frozenset(key for key in self._closure(list(self.names(e, kernel))) if self._is_parameter(key))
            kept = self._sources[id(e)] = (e, keys)
        return frozenset(name for _, name in kept[1])

    def inputs(self, output: str) -> frozenset[str]:
        """The parameters from which a tensor's contents come; itself only where it is read before."""
        found = self.live(output)
        own = self.key(output, "")
        reads = any(own in self.names(e, d.kernel) for d in found[own] for e in (*d.uses, *d.under))
        return frozenset(key[1] for key in found if self._is_parameter(key) and (key != own or reads))


def launched(program: n.Program) -> Iterator[tuple[n.Kernel, tuple[n.Expr, ...]]]:
    """The kernels that the launch plan runs, with the guards under which it does."""
    if not program.plan:
        yield from ((k, ()) for k in program.kernels)
        return
    by_name = {k.name: k for k in program.kernels}

    def steps(plan: Sequence[n.Launch | n.Dispatch], guards: tuple[n.Expr, ...]) -> Iterator[tuple[n.Kernel, tuple[n.Expr, ...]]]:
        for step in plan:
            if isinstance(step, n.Launch):
                yield by_name[step.kernel], guards
                continue
            all_guards = tuple(g for g, _ in step.arms)
            for guard, inner in step.arms:
                if isinstance(guard, n.Const) and not guard.value:
                    continue
                yield from steps(inner, guards if isinstance(guard, n.Const) else (*guards, *all_guards))
                if isinstance(guard, n.Const):
                    break
            else:
                yield from steps(step.orelse, (*guards, *all_guards))
    yield from steps(program.plan, ())


def _overwritten(block: n.Block) -> set[int]:
    """Stores of a block whose place the same block writes again before anything looks at the buffer."""
    dead: set[int] = set()
    for i, s in enumerate(block):
        if not isinstance(s, n.Store):
            continue
        name = s.at.buffer.name
        for later in block[i + 1:]:
            if isinstance(later, n.Store) and later.at == s.at and later.mask is None and not later.clip and not _reads(later, name):
                dead.add(i)
                break
            if not isinstance(later, (n.Let, n.Store, n.Alloc)) or _reads(later, name):
                break
    return dead


def _reads(s: n.Stmt, name: str) -> bool:
    """Whether a statement may look at a buffer, other than by storing there."""
    below: list[n.Node] = [*s.at.index, s.value, *([s.mask] if s.mask is not None else [])] if isinstance(s, n.Store) else list(children(s))
    while below:
        e = below.pop()
        if (isinstance(e, n.Region) and e.buffer.name == name) or (isinstance(e, n.Call) and e.args and any(isinstance(a, n.Region) for a in e.args)):
            return True
        below += [] if isinstance(e, n.Buffer) else list(children(e))
    return False


def _is_false(e: n.Node) -> bool:
    return isinstance(e, n.Const) and e.value is False


def is_tensor(p: n.Param) -> bool:
    """Whether a parameter is memory."""
    return not isinstance(p.of, DType)


__all__ = ["Definition", "Flow", "Key", "is_tensor", "launched"]
