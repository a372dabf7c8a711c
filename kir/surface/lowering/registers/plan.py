"""The form of a tile program that lowering takes as it is: what takes several threads stands under a name of its own, and tiles that are
arithmetic on positions alone are written where they are used. Tile code to tile code, of the same meaning; idempotent."""
from __future__ import annotations

from dataclasses import replace

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import TileType
from kir.ir.visit import statements, substitute, substitute_buffers, transform, walk

COLLECTIVE = frozenset({"reduce", "scan", "gather", "sort", "cat", "histogram"})
"""Calls that are computed as values of their own before the statement that uses them."""
WITH_START = frozenset({"sum", "prod", "max", "min", "xor", "or", "and"})
"""Reductions that begin with a value which changes nothing, so that each operand's element is read once."""
POSITIONS = frozenset({"iota", "expand", "broadcast", "trans", "reshape", "join"})


def planned(program: n.Program, k: n.Kernel) -> n.Kernel:
    """A kernel in the form that is lowered."""
    taken = {p.name for p in program.params} | {w.buffer.name for w in program.workspaces} | {f.name for f in program.functions}
    taken |= {a.name for a in k.grid} | set(bound_names(k.body)) | {x.name for x in program.kernels}
    scalars = {s.buffer.name: replace(s.buffer, space="register", layout=None) for s in statements(k.body)
               if isinstance(s, n.Alloc) and s.buffer.space == "fragment" and not s.buffer.shape}
    plan = _Plan(taken, {})
    body = plan.block(tuple(substitute_buffers(s, scalars) for s in k.body))
    return replace(k, body=(*plan.shared, *body))


def is_collective(e: n.Node) -> bool:
    """Whether a call combines elements of several threads."""
    return isinstance(e, n.Call) and e.of is None and e.fn in COLLECTIVE and any(
        isinstance(a, n.Expr) and isinstance(a.type, TileType) for a in e.args)


def is_position(e: n.Expr) -> bool:
    """Whether a tile is arithmetic on positions alone, which costs less to compute again than to keep."""
    for x in walk(e):
        match x:
            case n.Load():
                return False
            case n.Var() if isinstance(x.of, TileType):
                return False
            case n.Call() if x.of is not None or (x.fn not in POSITIONS and isinstance(x.type, TileType)):
                return False
            case _:
                pass
    return True


class _Plan:
    """Names that are taken, and tiles of positions by name."""

    def __init__(self, taken: set[str], formulas: dict[str, n.Expr]) -> None:
        self.taken, self.formulas = taken, formulas
        self.shared: list[n.Stmt] = []

    def fresh(self, base: str) -> str:
        name, i = base, 0
        while name in self.taken:
            i += 1
            name = f"{base}_{i}"
        self.taken.add(name)
        return name

    def block(self, body: n.Block) -> n.Block:
        out: list[n.Stmt] = []
        for s in body:
            out += self.statement(s)
        return tuple(out)

    def statement(self, s: n.Stmt) -> list[n.Stmt]:
        """A statement with what must be computed before it; all come from where it came from."""
        made = self._statement(s)
        return [x if x.origin is not None else replace(x, origin=s.origin) for x in made]  # type: ignore[type-var]  # every Stmt is a dataclass

    def _statement(self, s: n.Stmt) -> list[n.Stmt]:
        s = substitute(s, self.formulas) if self.formulas else s
        before: list[n.Stmt] = []
        match s:
            case n.For() if s.kind == "thread":
                return [s]
            case n.For():
                head = self.hoisted(replace(s, body=()), before)
                assert isinstance(head, n.For)
                return [*before, replace(head, body=self.block(s.body))]
            case n.While():
                return [replace(s, body=self.block(s.body))]
            case n.If():
                head = self.hoisted(replace(s, then=(), orelse=()), before)
                assert isinstance(head, n.If)
                return [*before, replace(head, then=self.block(s.then), orelse=self.block(s.orelse))]
            case n.Alloc() if s.buffer.space == "shared":
                self.shared.append(replace(s, init=None))
                return [] if s.init is None else self.statement(n.Store(n.Region(s.buffer), s.init, label=s.label, origin=s.origin))
            case n.Roles():
                return [replace(s, roles=tuple(replace(r, body=self.block(r.body)) for r in s.roles))]
            case n.Opaque() | n.Hole():
                return [s]
            case n.Let() if len(s.names) == 1 and isinstance(s.value.type, TileType) and is_position(s.value):
                self.formulas[s.names[0]] = s.value
                return []
            case n.Let() if is_collective(s.value) or (isinstance(s.value, n.Call) and s.value.fn == "split"):
                assert isinstance(s.value, n.Call)
                named = s.value.fn != "reduce" or dict(s.value.attrs).get("op") not in WITH_START
                args = tuple(self.operand(a, before, named) if isinstance(a, n.Expr) else a for a in s.value.args)
                return [*before, replace(s, value=replace(s.value, args=args))]
            case _:
                made = self.hoisted(s, before)
                assert isinstance(made, n.Stmt)
                if isinstance(made, n.Alloc) and made.init is not None and isinstance(made.init.type, TileType):
                    made = replace(made, init=build.broadcast(made.init, n.Region(made.buffer).type))
                return [*before, made]

    def operand(self, e: n.Expr, before: list[n.Stmt], named: bool) -> n.Expr:
        """An operand of a collective call: a value of its own where it reads memory, which happens once, or is used often (`named`)."""
        made = self.hoisted(e, before)
        assert isinstance(made, n.Expr)
        if isinstance(made.type, TileType) and not isinstance(made, n.Var) and not is_position(made) and (named or any(
                isinstance(x, n.Load) and x.at.buffer.space in ("global", "shared") for x in walk(made))):
            name = self.fresh("value")
            before.append(n.Let((name,), made))
            return n.Var(name, made.type)
        return made

    def hoisted(self, item: n.Node, before: list[n.Stmt]) -> n.Node:
        """A statement or expression in which collective calls are values with names, defined in `before`."""
        done: dict[n.Expr, n.Var] = {}

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if is_collective(new) and isinstance(new, n.Call):
                if new not in done:
                    named = new.fn != "reduce" or dict(new.attrs).get("op") not in WITH_START
                    args = tuple(self.operand(a, before, named) if isinstance(a, n.Expr) else a for a in new.args)
                    name = self.fresh(new.fn)
                    before.append(n.Let((name,), replace(new, args=args)))
                    done[new] = n.Var(name, new.type)
                return done[new]
            return new
        made = transform(item, leave)
        assert isinstance(made, n.Node)
        return made
