"""Naming a value that is written out several times, and writing it out again: the core of several passes."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from kir.analysis.access import Aliases, accesses
from kir.analysis.access import buffers_written as buffers_written
from kir.analysis.clipping import hangs_over, ranges_of
from kir.analysis.elements import NotElementwise, element
from kir.base.dataclass import dataclass
from kir.base.instructions import instruction
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.printer import expr_text
from kir.ir.types import TileType
from kir.ir.visit import blocks_of, children, names_mentioned, names_read, once, own_nodes, transform, walk
from kir.rewrite.base import Context, Miss, Pass, Path, Place, Rewritten, Site, found_sites
from kir.rewrite.edit import block_at, edit_block, enclosing, fresh, kernel_of, names_in, node_at, places
from kir.rewrite.precondition import Verdict, proved, refuted, unknown

MOST_WRITTEN = 600
"""Nodes that a walk adds to a program at most by writing a value out."""


def is_pure(e: n.Expr) -> bool:
    """Whether evaluating an expression again gives the same value as long as memory stays as it is."""
    return all(c.of is None and instruction(c.fn).is_pure and not instruction(c.fn).is_convergent for c in walk(e) if isinstance(c, n.Call))


def buffers_read(e: n.Expr | n.Stmt) -> frozenset[str]:
    """Names of the buffers that an expression, or a statement with all that is in it, reads."""
    return once(e, "_buffers_read", partial(_read, e))


def _read(e: n.Expr | n.Stmt) -> frozenset[str]:
    inner = [x for block in blocks_of(e) for x in block] if isinstance(e, n.Stmt) else []
    own = own_nodes(e) if isinstance(e, n.Stmt) and inner else walk(e)
    return frozenset(x.at.buffer.name for x in own if isinstance(x, n.Load)).union(*map(buffers_read, inner))


def _is_code(x: n.Node) -> bool:
    """Whether a node is evaluated where it stands; the shape of a buffer that is named there is not."""
    return not isinstance(x, n.Buffer)


def _evaluated(s: n.Stmt) -> Counter[n.Expr]:
    """How often a statement writes each expression out that it evaluates, inner statements included; in reading order."""
    return once(s, "_evaluated", partial(_counted, s))


def _by_text(s: n.Stmt) -> Mapping[str, tuple[n.Expr, ...]]:
    """What a statement evaluates by its text, in reading order."""
    return once(s, "_by_text", partial(_texts, s))


def _texts(s: n.Stmt) -> dict[str, tuple[n.Expr, ...]]:
    found: dict[str, tuple[n.Expr, ...]] = {}
    for x in _evaluated(s):
        text = expr_text(x)
        found[text] = (*found.get(text, ()), x)
    return found


def evaluates(s: n.Stmt, value: n.Expr) -> bool:
    """Whether a statement, or one inside it, evaluates an expression. Statements that do not mention all its names are passed over: to count all that a
    long loop evaluates takes longer, and pays where the same statement is asked again and again."""
    counted: Counter[n.Expr] | None = s.__dict__.get("_evaluated")
    if counted is not None:
        return value in counted
    named, stack = names_mentioned(value), list[n.Node](_code_of(s))
    while stack:
        x = stack.pop()
        if not named <= names_mentioned(x):
            continue
        if isinstance(x, n.Stmt):
            counted = x.__dict__.get("_evaluated")
            if counted is not None:
                if value in counted:
                    return True
                continue
        elif x == value:
            return True
        stack.extend(_code_of(x))
    return False


def _code_of(x: n.Node) -> list[n.Node]:
    """What is evaluated directly below a node."""
    moved = x.src if isinstance(x, n.Copy) else None  # what a copy moves is a place, not a value
    below = [c for c in children(x) if _is_code(c)]
    return below if moved is None else [*(c for c in below if c is not moved), *filter(_is_code, children(moved))]


def _counted(s: n.Stmt) -> Counter[n.Expr]:
    found: Counter[n.Expr] = Counter()
    stack: list[n.Node] = [s]
    while stack:
        x = stack.pop()
        if isinstance(x, n.Stmt) and x is not s:
            found.update(_evaluated(x))
            continue
        if isinstance(x, n.Expr) and x is not getattr(s, "src", None):  # what a copy moves is a place, not a value
            found[x] += 1
        stack.extend(reversed([c for c in children(x) if _is_code(c)]))
    return found


def _bound(s: n.Stmt) -> frozenset[str]:
    """Names that a statement binds, inner ones included."""
    return once(s, "_bound_names", lambda: frozenset(bound_names((s,))))


def _repeated(program: n.Program) -> Mapping[Path, tuple[n.Expr, ...]]:
    """At each statement, in reading order, the pure expressions of it that are evaluated again in it or later in its block, of names that are bound before."""
    return once(program, "_repeated", lambda: _written_out_again(program))


def _written_out_again(program: n.Program) -> dict[Path, tuple[n.Expr, ...]]:
    found: dict[Path, tuple[n.Expr, ...]] = {}
    order = [path for path, _ in places(program)]
    for first in order:
        if len(first) == 1 or first[-1] != 0:
            continue
        block, later, bound = block_at(program, first), Counter[n.Expr](), set[str]()
        for i in reversed(range(len(block))):  # what is evaluated from a statement on is added up from the block's end
            here = _evaluated(block[i])
            later.update(here)
            bound |= _bound(block[i])
            found[*first[:-1], i] = tuple(x for x in here if later[x] > 1 and is_pure(x) and bound.isdisjoint(names_read(x)))
    return {path: found[path] for path in order if found.get(path)}


def writes_before_last_use(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether memory that the named value reads stays as it is from the first use to the last."""
    params = site.params
    assert isinstance(params, Materialize)
    block, i = block_at(program, site.path), int(site.path[-1])
    value = params.found(block, i)
    assert value is not None
    last = next(k for k in reversed(range(i, params.end(block, i))) if evaluates(block[k], value))
    # A store has worked out what it writes before it writes: its own use sees the old contents anyhow.
    written = buffers_written(block[i:last + (0 if isinstance(block[last], n.Store) else 1)])
    memory = Aliases(program)
    clash = sorted(name for name in buffers_read(value) if any(memory.may_be_one(name, other) for other in written - {"*"}))
    first = next(k for k in range(i, last + 1) if evaluates(block[k], value))
    if any(a.sync for s in block[i:last] for a in accesses(s)):
        others = buffers_written(kernel_of(program, site.path).body)
        done = any(isinstance(x, n.Call) and x.fn == "wgmma_wait" for s in block[i:first + 1] for x in walk(s))  # before it a product may not be there
        kept = _of_its_team(program, site.path, value) if not done else frozenset[str]()
        changed = sorted(name for name in buffers_read(value) - kept if any(memory.may_be_one(name, other) for other in others))
        if changed and not clash and "*" not in written:
            return unknown(f"'{changed[0]}' is written by other threads too, before or after what they wait at between the uses of {expr_text(value)}",
                           needs="memory that the kernel only reads, or no barrier between the uses")
    if "*" in written:
        return refuted("opaque text between the uses may write anything", expr_text(value))
    if clash:
        return refuted(f"'{clash[0]}' is written between the uses of {expr_text(value)}", f"a later use sees the old '{clash[0]}'")
    return proved("nothing that the value reads is written while it is kept")


def _of_its_team(program: n.Program, path: Path, value: n.Expr) -> frozenset[str]:
    """Registers and fragments that a value reads, and that the innermost team around a place declares: no other thread writes them."""
    names = frozenset(x.at.buffer.name for x in walk(value) if isinstance(x, n.Load) and x.at.buffer.space in ("register", "fragment"))
    for at, s in enclosing(program, path):
        if isinstance(s, n.Roles):
            names &= frozenset(bound_names(s.roles[int(path[len(at) + 1])].body))
        elif isinstance(s, n.For) and s.kind in ("warpgroup", "warp", "thread"):
            names &= _bound(s)
    return names


def inside_where_it_is_read(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether what the named value reads is in its buffers where the name will stand: it is evaluated there anyhow, or its indices say so."""
    params = site.params
    assert isinstance(params, Materialize)
    block, i = block_at(program, site.path), int(site.path[-1])
    value = params.found(block, i)
    assert value is not None
    if outside := may_lie_outside(program, site.path, block[i:params.end(block, i)], value):
        return unknown(outside, needs="a site within the condition, or facts that keep its indices inside")
    return proved("it is evaluated in any case, or its indices stay inside their buffers")


def may_lie_outside(program: n.Program, path: Path, uses: n.Block, value: n.Expr) -> str:
    """Why a value cannot be evaluated at `path`, before the statements that use it: they may not all be reached, and what it reads may then lie outside its
    buffer. "" where it can."""
    for s in uses:
        if _always(s, value):
            return ""
        if any(isinstance(x, n.Jump) for x in walk(s)):
            break  # it may never come to what follows
    ranges = ranges_of(kernel_of(program, path))
    for x in walk(value):
        if isinstance(x, n.Load) and x.mask is None and not x.clip and x.at.buffer.shape and hangs_over(x.at, ranges, program.facts, sums=True):
            return f"{expr_text(x)} stands under conditions, and may lie outside its buffer without them"
    return ""


def _always(s: n.Stmt, value: n.Expr) -> bool:
    """Whether a statement evaluates a value whatever conditions and lengths of loops in it are."""
    if not evaluates(s, value):
        return False
    match s:
        case n.If():
            return any(x == value for x in walk(s.cond)) or (_within(s.then, value) and _within(s.orelse, value))
        case n.For():
            trips = build.int_value(build.sub(s.hi, s.lo)) if s.hi.type == s.lo.type else None
            return any(x == value for e in (s.lo, s.hi, s.step) for x in walk(e)) or (trips is not None and trips > 0 and _within(s.body, value))
        case n.While():
            return any(x == value for x in walk(s.cond))
        case n.Roles():
            return False
        case _:
            return True


def _within(block: n.Block, value: n.Expr) -> bool:
    return any(_always(s, value) for s in block)


@dataclass(frozen=True)
class Materialize(Pass):
    """Base: `value` is the text of the expression that gets a name before the statement at the site; `until` is how many statements from there
    on use the name, 0 when all that follow do."""

    value: str = ""
    until: int = 0

    def admits(self, e: n.Expr) -> bool:
        """Whether a value is of the kind that this pass names."""
        raise TypeError(type(self).__name__)

    def end(self, block: n.Block, i: int) -> int:
        """The statement after the last one in which the name may stand."""
        return min(i + self.until, len(block)) if self.until > 0 else len(block)

    def found(self, block: n.Block, i: int) -> n.Expr | None:
        """The expression with the text `value` in the first statement from `i` on that has it."""
        return next((x for s in block[i:self.end(block, i)] for x in _by_text(s).get(self.value, ())), None)

    def sites(self, program: n.Program) -> Iterator[Site]:
        """With no `value` given, every candidate that is written out more than once in what follows."""
        yield from super().sites(program)
        if not self.value:
            for path, values in _repeated(program).items():
                some = (Site(path, replace(self, value=expr_text(x))) for x in values if self.admits(x))
                yield from (s for s in some if not self.until or found_sites(s.params.match(program, path, node_at(program, path))))

    def match(self, program: n.Program, path: Path, node: Place) -> Site | Miss | None:
        """Before the first statement that writes the value out, or further up in its block."""
        if not self.value or not isinstance(node, n.Stmt):
            return None
        block, i = block_at(program, path), int(path[-1])
        within = block[i:self.end(block, i)]
        value = next((x for s in within for x in _by_text(s).get(self.value, ()) if self.admits(x) and is_pure(x)), None)
        if value is None or any(not _bound(s).isdisjoint(names_read(value)) for s in block[i:]):
            return None
        if self.until > 0:
            last = max(k for k, s in enumerate(within) if evaluates(s, value)) + 1
            if not any(evaluates(s, value) for s in block[i + self.until:]):
                return Miss("no statement behind those writes the value out (until=0)")
            if last != self.until:
                return Miss(f"the last of those that writes the value out is number {last} (until={last})")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """Names the value before the statement; every later place in the block that writes it out uses the name."""
        kernel, i = kernel_of(program, site.path), int(site.path[-1])
        value = self.found(block_at(program, site.path), i)
        assert value is not None
        name = fresh(suggested_name(value), names_in(program, kernel))
        var, named = n.Var(name, value.type), names_mentioned(value)

        def leave(old: n.Node, new: n.Node) -> n.Node:
            if isinstance(new, n.Copy) and isinstance(old, n.Copy) and old.src == value:
                return replace(new, src=old.src)
            return var if new is old and new == value else new  # what has changed has the new name in it

        def enter(x: n.Node) -> bool:
            return evaluates(x, value) if isinstance(x, n.Stmt) else _is_code(x) and named <= names_mentioned(x)

        def edit(block: n.Block) -> n.Block:
            end = self.end(block, i)
            after = tuple(transform(s, leave, enter) for s in block[i:end])
            return (*block[:i], n.Let((name,), value), *after, *block[end:])
        return Rewritten(edit_block(program, site.path, edit), site.path)

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Site | Miss | None:
        """At a named value of the kind."""
        if not (isinstance(node, n.Let) and len(node.names) == 1 and self.admits(node.value) and is_pure(node.value)):
            return None
        block, i = block_at(program, path), int(path[-1])
        if not any(node.names[0] in names_read(s) for s in block[i + 1:]):
            return Miss("the value is never used")
        if _is_computed(node.value) and any(_stretches(s, node.names[0]) for s in block[i + 1:]):
            return Miss("a reader stretches the value over another axis, which only operands are")
        last = max(k for k in range(i + 1, len(block)) if node.names[0] in names_read(block[k]))
        again = any(evaluates(s, node.value) for s in block[last + 1:])
        return Site(path, replace(self, value=expr_text(node.value), until=last - i if again else 0))

    def inverse_sites(self, program: n.Program) -> Iterator[Site]:
        """Named values, but none of which writing it out makes a program that nobody reads any more: a chain of such doubles with each link."""
        yield from (site for site in super().inverse_sites(program) if _written_out(program, site.path) <= MOST_WRITTEN)

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Writes the value out wherever its name stood."""
        node, i = node_at(program, site.path), int(site.path[-1])
        assert isinstance(node, n.Let)
        made = edit_block(program, site.path, lambda b: (*b[:i], *(inlined(s, node.names[0], node.value) for s in b[i + 1:])))
        return Rewritten(made, site.path)


def _written_out(program: n.Program, path: Path) -> int:
    """How many nodes more a program has once a value is written out wherever its name stands."""
    block, i = block_at(program, path), int(path[-1])
    node = block[i]
    if not isinstance(node, n.Let):
        return 0
    uses = sum(1 for s in block[i + 1:] if node.names[0] in names_read(s) for x in walk(s) if isinstance(x, n.Var) and x.name == node.names[0])
    return (uses - 1) * sum(1 for _ in walk(node.value))


def _is_computed(e: n.Expr) -> bool:
    """Whether a tile is computed from others element by element."""
    return isinstance(e.type, TileType) and (isinstance(e, (n.Binary, n.Unary, n.Select, n.Cast)) or (
        isinstance(e, n.Call) and e.of is None and e.fn != "iota" and instruction(e.fn).level == "element"))


def _stretches(s: n.Stmt, name: str) -> bool:
    return any(isinstance(x, n.Call) and x.fn in ("expand", "broadcast", "trans") and isinstance(x.args[0], n.Var) and x.args[0].name == name
               for x in walk(s))


def suggested_name(value: n.Expr) -> str:
    """What a reader would call a value: after the buffer that it is loaded from, or the function that makes it."""
    match value:
        case n.Load():
            name = value.at.buffer.name.lower()
            return name if name != value.at.buffer.name else f"{name}_kept"
        case n.Cast():
            return suggested_name(value.x)
        case n.Call():
            return value.fn
        case _:
            return "kept"


def inlined(s: n.Stmt, name: str, value: n.Expr) -> Any:
    """A statement with a name replaced by its value; elements picked from it become elements of the value."""
    if name not in names_read(s):
        return s

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Var) and new.name == name:
            return value
        if isinstance(old, n.Call) and old.fn == "pick" and isinstance(old.args[0], n.Var) and old.args[0].name == name:
            assert isinstance(new, n.Call) and isinstance(value.type, TileType)
            try:
                return element(value, [a for a in new.args[1:] if isinstance(a, n.Expr)])
            except NotElementwise:
                return new
        return new
    return transform(s, leave)
