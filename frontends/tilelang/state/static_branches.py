"""Branches that the binding decides, run both ways; and what names stand for after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libcst as cst

from kir.base.diagnostic import Origin
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import dtype_of
from kir.ir.visit import walk

from ..values import arithmetic
from ..values.values import Choice, Frame, Items, Listed, Memory, NotUnderstood, Num, Place, Raised, Returned, Scope, Unbound, Value, is_number
from . import mutable
from .reader import Reader, Undecided, same

Way = Callable[[], Returned | None]
"""One way through a branch; what it returns, if it ends the function."""


class Found(Exception):
    """The function that is looked for has been reached; `scope` is what it sees, `assumed` what holds there."""

    def __init__(self, scope: Scope, assumed: list[n.Expr]) -> None:
        super().__init__("found")
        self.scope, self.assumed = scope, [*assumed]


def both_ways(r: Reader, f: Frame, cond: n.Expr, then: Way, orelse: Way, s: cst.CSTNode) -> Returned | None:
    """Both outcomes of a static condition: in the kernel as a `static if`, on the host as choices. Raises Found where one of them reaches the function that
    is looked for, Undecided where both do and it sees something else."""
    before = dict(f.scope.names)
    results: list[Returned | None] = []
    ends: list[dict[str, Value]] = []
    blocks: list[list[n.Stmt]] = []
    raised = []
    reached: list[Found | None] = []
    why: Raised | None = None
    mark, changed = len(r.changes), []
    layouts, laid = dict(r.layouts), []
    for holds, act in ((True, then), (False, orelse)):
        f.scope.names.clear()
        f.scope.names.update(before)
        r.layouts = dict(layouts)
        r.branches.append(cond)
        with r.out.capture() as made, r.assuming(cond, holds):
            result: Returned | None = None
            gone, there = False, None
            try:
                result = act()
            except Raised as bad:
                why, gone = bad, True
            except Found as found:
                there = found
            finally:
                r.branches.pop()
        results.append(result)
        raised.append(gone)
        reached.append(there)
        ends.append(dict(f.scope.names))
        changed.append(mutable.rolled_back(r, mark))
        blocks.append(made)
        laid.append(r.layouts)
    if any(reached):
        _go_on(r, f, cond, reached, ends, changed)
    if all(raised):
        assert why is not None
        raise why
    r.layouts = next((x for x, gone in zip(laid, reversed(raised), strict=True) if gone), {k: v for k, v in laid[0].items() if laid[1].get(k) is v})
    f.scope.names.clear()
    if any(raised):
        r.sure()
        kept = 1 if raised[0] else 0
        mutable.settle(r, cond, changed, kept, lambda name, a, b: a)
        f.scope.names.update(ends[kept])
        r.out.block.extend(blocks[kept])
        r.assume(cond if kept == 0 else build.invert(cond))
        return results[kept]
    mutable.settle(r, cond, changed, None, lambda name, a, b: _phi(r, name, cond, a, b, blocks))
    merged = _joined(r, cond, before, ends, blocks)
    f.scope.names.update(merged)
    result = None
    if any(x is not None for x in results):
        if any(x is None for x in results):
            raise NotUnderstood("a function that returns only where a condition of the host holds")
        a, b = (x.value if x is not None else None for x in results)
        result = Returned(_phi(r, "result", cond, a, b, blocks))
    if blocks[0] or blocks[1]:
        r.out.emit(branch(cond, tuple(blocks[0]), tuple(blocks[1]), True, f.scope.module.origin(s)))
    return result


def _go_on(r: Reader, f: Frame, cond: n.Expr, reached: list[Found | None], ends: list[dict[str, Value]], changed: list[dict[int, Any]]) -> None:
    """Go on where one way reaches the function that is looked for: the condition has that outcome from here on."""
    kept = 0 if reached[0] is not None else 1
    found = reached[kept]
    assert found is not None
    other = reached[1]
    if kept == 0 and other is not None:
        if any(changed) or ends[0].keys() != ends[1].keys() or not all(same(v, ends[1][k]) for k, v in ends[0].items()):
            raise Undecided(cond)
        found.assumed = [x for x in found.assumed if x in other.assumed]
    r.assumed[:] = found.assumed
    mutable.settle(r, cond, changed, kept, lambda name, a, b: a)
    f.scope.names.clear()
    f.scope.names.update(ends[kept])
    raise found


def branch(cond: n.Expr, then: n.Block, orelse: n.Block, static: bool, origin: Origin | None) -> n.Stmt:
    """A branch; the loop alone where it is one loop, and its condition that the loop runs at all."""
    loop = then[0] if len(then) == 1 and not orelse else None
    if isinstance(loop, n.For) and isinstance(cond, n.Binary) and cond.op == "lt" and (cond.a, cond.b) == (loop.lo, loop.hi):
        return loop
    return n.If(cond, then, orelse, static, origin=origin)


def _joined(r: Reader, cond: n.Expr, before: dict[str, Value], ends: list[dict[str, Value]], blocks: list[list[n.Stmt]]) -> dict[str, Value]:
    out: dict[str, Value] = {}
    for name in dict.fromkeys([*ends[0], *ends[1]]):
        if name in ends[0] and name in ends[1]:
            out[name] = _phi(r, name, cond, ends[0][name], ends[1][name], blocks)
        else:
            present = 0 if name in ends[0] else 1
            missing = Unbound(f"'{name}' is only bound where a condition of the host {'holds' if present == 0 else 'does not hold'}")
            value = ends[present][name]
            value = _hoisted(r, name, value, blocks[present])
            out[name] = Choice(cond, value, missing) if present == 0 else Choice(cond, missing, value)
    return out


def _phi(r: Reader, name: str, cond: n.Expr, a: Value, b: Value, blocks: list[list[n.Stmt]]) -> Value:
    """What a name stands for after a static branch. A number that is worked out inside is kept in a register."""
    if same(a, b):
        return a
    if isinstance(a, Items) and isinstance(b, Items) and len(a.items) == len(b.items):
        either = enumerate(zip(a.items, b.items, strict=True))
        joined = tuple(_phi(r, f"{name}_{k}", cond, x, y, blocks) for k, (x, y) in either)
        return Listed(joined) if isinstance(a, Listed) and isinstance(b, Listed) else Items(joined)
    inside = any(_local(r, v, block) for v, block in zip((a, b), blocks, strict=True))
    numbers = all(is_number(v) or isinstance(v, (Num, Place, Memory)) for v in (a, b))
    if r.launched and numbers and inside and not any(isinstance(v, Memory) and not v.var for v in (a, b)):
        left, right = arithmetic.paired(a, b, r.run)
        buffer = n.Buffer(r.out.fresh(name), dtype_of(left.type), (), "register")
        r.joined.add(buffer.name)
        r.out.emit(n.Alloc(buffer))
        for block, e in zip(blocks, (left, right), strict=True):
            block.append(n.Store(n.Region(buffer), e, origin=r.out.origin))
        return Num(n.Load(n.Region(buffer)))
    return r.merged(cond, _hoisted(r, name, a, blocks[0]), _hoisted(r, name, b, blocks[1]))


def _local(r: Reader, v: Value, block: list[n.Stmt]) -> bool:
    """Whether a value names something that a block declares, or reads memory."""
    if isinstance(v, (Place, Memory)):
        return True
    if not isinstance(v, Num):
        return False
    own = {x for s in block for x in (s.names if isinstance(s, n.Let) else ())}
    return any(isinstance(x, n.Load) or (isinstance(x, n.Var) and x.name in own) for x in walk(v.expr))


def _hoisted(r: Reader, name: str, v: Value, block: list[n.Stmt]) -> Value:
    """A buffer that a static branch declares, declared before it: what comes after may name it. A number likewise, in a register."""
    if isinstance(v, (Memory, Place)):
        for i, s in enumerate(block):
            if isinstance(s, n.Alloc) and s.buffer.name == v.buffer.name:
                block[i:i + 1] = [] if s.init is None else [n.Store(n.Region(s.buffer), s.init, origin=s.origin)]
                r.hoisted.add(v.buffer.name)
                r.out.emit(n.Alloc(s.buffer, None, s.label, s.origin))
                break
            if isinstance(s, n.View) and s.buffer.name == v.buffer.name:
                del block[i]
                r.hoisted.add(v.buffer.name)
                r.out.emit(s)
                break
        return v
    if isinstance(v, Items):
        kept = tuple(_hoisted(r, name, x, block) for x in v.items)
        return v if all(x is y for x, y in zip(kept, v.items, strict=True)) else (Listed if isinstance(v, Listed) else Items)(kept)
    if isinstance(v, Choice):
        return Choice(v.cond, _hoisted(r, name, v.a, block), _hoisted(r, name, v.b, block))
    if r.launched and isinstance(v, Num) and _local(r, v, block):
        buffer = n.Buffer(r.out.fresh(name), dtype_of(v.expr.type), (), "register")
        r.joined.add(buffer.name)
        r.out.emit(n.Alloc(buffer))
        block.append(n.Store(n.Region(buffer), v.expr, origin=r.out.origin))
        return Num(n.Load(n.Region(buffer)))
    return v
