"""Keeps the digits of what a loop counts in registers that are carried on, instead of dividing the count in each iteration.

pipeline: `carry-digits@main/k`

```diff
 kir 1
 program taps
   size C: i32
   in X: f32[3, 3, C]
   in W: f32[C * 9]
   out Y: f32[16]
   fact C % 16 == 0
   fact C >= 1
   fact C <= 4096
 kernel main grid (b: 1) threads 1
   fragment acc: f32[16] = 0.0
+  register digit_2: i32 = 0
+  register digit_1: i32 = 0
+  register digit: i32 = 0
   @k for k in 0..C * 9 // 16
-    acc = acc + X[k * 16 // (C * 3), k * 16 // C % 3, k * 16 % C +: 16] * W[k * 16 +: 16]
+    acc = acc + X[digit_2, digit_1, digit +: 16] * W[k * 16 +: 16]
+    digit_2 = select(digit + 16 < C, digit_2, select(digit_1 + 1 < 3, digit_2, digit_2 + 1))
+    digit_1 = select(digit + 16 < C, digit_1, select(digit_1 + 1 < 3, digit_1 + 1, 0))
+    digit = select(digit + 16 < C, digit + 16, 0)
   Y = acc
```
"""
from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, TypeGuard

from kir.analysis.facts import Facts
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.types import I32, I64
from kir.ir.visit import names_read, transform, walk
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, edit_block, fresh, kernel_of, names_in
from kir.rewrite.match import is_counted, matched, node_as, sibling, splice
from kir.rewrite.precondition import decided


@dataclass(frozen=True)
class Digits:
    """Digits of `var * step`: below `radix`, then below `inner` (1: there are none between), then the rest."""

    var: n.Var
    step: int
    radix: n.Expr
    inner: int

    @property
    def count(self) -> n.Expr:
        """What is divided."""
        return build.mul(self.var, self.step)

    def each(self) -> tuple[n.Expr, ...]:
        """The digits, the lowest first."""
        first, last = build.mod(self.count, self.radix), build.floordiv(self.count, build.mul(self.radix, self.inner))
        return (first, last) if self.inner == 1 else (first, build.mod(build.floordiv(self.count, self.radix), self.inner), last)

    def carried(self, digits: tuple[n.Buffer, ...]) -> tuple[n.Store, ...]:
        """How registers of the digits become those of the next iteration, the highest first."""
        first, *others = (n.Load(n.Region(b)) for b in digits)
        more = build.add(first, self.step)
        stays = build.compare("lt", more, self.radix)
        stores = [n.Store(n.Region(digits[0]), build.select(stays, more, build.const(0)))]
        turned: n.Expr | None = None
        for b, digit in zip(digits[1:], others, strict=True):
            up = build.add(digit, 1)
            if b is digits[-1]:
                carried = up if turned is None else build.select(turned, digit, up)
            else:
                turned = build.compare("lt", up, self.inner)
                carried = build.select(turned, up, build.const(0))
            stores.append(n.Store(n.Region(b), build.select(stays, digit, carried)))
        return tuple(reversed(stores))


def _whole(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether a digit is full when it turns, and no count leaves 32 bits."""
    loop = node_as(program, site.path, n.For)
    found, facts = matched(_digits(loop)), Facts.at(program, (*site.path, "body", 0))
    left = decided(build.compare("eq", build.mod(found.radix, found.step), 0), facts, f"{found.step} divides {expr_text(found.radix)}",
                   f"{expr_text(found.radix)} is no multiple of {found.step}: a digit is past it when it turns")
    some = left and decided(build.compare("ge", found.radix, 1), facts, f"{expr_text(found.radix)} is positive", f"{expr_text(found.radix)} may be nothing")
    if not some:
        return some
    most = facts.domain(build.mul(build.cast(loop.var, I64), build.const(found.step, I64))).hi
    if most is None or most > I32.range[1]:
        return refuted(f"{expr_text(found.count)} may leave 32 bits, and its digits are others then", needs="a bound of the loop's iterations")
    return some


def _ends(program: n.Program, site: Site, context: Context) -> Verdict:
    loop = node_as(program, site.path, n.For)
    if any(isinstance(x, n.Jump) for x in walk(loop)):
        return refuted("an iteration may end early, before its digits are carried on", "the next iteration has the same digits again", needs="a branch instead")
    return proved("every iteration comes to its end")


@dataclass(frozen=True)
class CarryDigits(Pass):
    """No parameters: the loop's own digits."""

    intent: ClassVar[str] = "strength-reduce"
    catalogue: ClassVar[tuple[int, ...]] = (15,)
    claim: ClassVar[str] = "Comparisons take the place of divisions, on which the address of the next copy waits."
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P988", "validity", "shape", "digits turn where they are full", _whole),
        Precondition("KIR-P989", "validity", "pipeline", "every iteration comes to its end", _ends))

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a counted loop in which the digits of a multiple of its count are used, one below a radix that is no number."""
        if not _counts(node):
            return None
        found = _digits(node)
        return None if found is None else Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """A register for each digit before the loop, carried on at its end."""
        loop = node_as(program, site.path, n.For)
        found, taken = matched(_digits(loop)), names_in(program, kernel_of(program, site.path))
        registers = tuple(n.Buffer(fresh("digit", taken), I32, (), "register") for _ in found.each())
        at: dict[n.Node, n.Expr] = {e: n.Load(n.Region(b)) for e, b in zip(found.each(), registers, strict=True)}
        made = replace(loop, body=(*_put(loop.body, at), *found.carried(registers)))
        out = splice(program, site.path, (*(n.Alloc(b, build.const(0)) for b in reversed(registers)), made))
        return Rewritten(out, sibling(site.path, len(registers)))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a loop before which registers are nought that are carried on at its end as digits are."""
        if not _counts(node):
            return None
        found = _carried(block_at(program, path), int(path[-1]))
        return Miss(found) if isinstance(found, str) else found and Site(path, self, {"made": found[0], "registers": found[1]})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """The count is divided where its digits are used."""
        gone: int = site.captures["registers"]
        i = int(site.path[-1])
        out = edit_block(program, site.path, lambda b: (*b[:i - gone], site.captures["made"], *b[i + 1:]))
        return Rewritten(out, sibling(site.path, -gone))

    def effect(self, program: n.Program, site: Site) -> Effect:
        """No claim: a compiler may have done the same."""
        return Effect()


def _counts(node: Place) -> TypeGuard[n.For]:
    return is_counted(node, ("serial", "pipelined"), I32)


def _digits(loop: n.For) -> Digits | None:
    """The digits that are used of a multiple of a loop's count."""
    halves = [x for s in loop.body for x in walk(s) if isinstance(x, n.Binary) and x.op in ("mod", "floordiv")]
    for low in halves:
        step = build.polynomial(low.a).get((loop.var,))
        if low.op != "mod" or isinstance(low.b, n.Const) or loop.var.name in names_read(low.b) or step is None or low.a != build.mul(loop.var, step):
            continue
        turned = build.floordiv(low.a, low.b)
        inner = next((build.int_value(x.b) for x in halves if x.op == "mod" and x.a == turned and isinstance(x.b, n.Const)), None)
        found = Digits(loop.var, step, low.b, inner or 1)
        if step >= 1 and found.each()[-1] in halves:
            return found
    return None


def _carried(block: n.Block, i: int) -> tuple[n.For, int] | str | None:
    """The loop that divides, of the one at a place of a block that carries digits on, and how many registers are before it; or why it is none."""
    loop = block[i]
    assert isinstance(loop, n.For)
    before = list[n.Buffer]()
    for s in reversed(block[:i]):
        if not isinstance(s, n.Alloc) or s.buffer.space != "register" or s.buffer.shape or s.buffer.dtype != I32 or s.init != build.const(0):
            break
        before.append(s.buffer)
    for count in (3, 2):
        registers, stores = tuple(before[:count]), loop.body[-count:]
        if len(registers) < count or len(stores) < count or not isinstance(stores[-1], n.Store):
            continue
        found = _told(loop, registers, stores)
        if found is None:
            continue
        body = loop.body[:-count]
        if any(isinstance(x, n.Store) and x.at.buffer in registers for s in body for x in walk(s)):
            return "a digit is written elsewhere"
        if any(isinstance(x, n.Region) and x.buffer in registers for s in (*block[:i - count], *block[i + 1:]) for x in walk(s)):
            return "a digit is used outside the loop"
        digits: dict[n.Node, n.Expr] = {n.Load(n.Region(b)): e for b, e in zip(registers, found.each(), strict=True)}
        return replace(loop, body=_put(body, digits)), count
    return None


def _put(body: n.Block, what: dict[n.Node, n.Expr]) -> n.Block:
    """Statements with other expressions in the place of some."""
    return tuple(transform(s, lambda old, new: what.get(new, new)) for s in body)


def _told(loop: n.For, registers: tuple[n.Buffer, ...], stores: n.Block) -> Digits | None:
    """The digits that some registers are, carried on by these statements."""
    last = stores[-1]
    assert isinstance(last, n.Store)
    first = last.value
    if not (isinstance(first, n.Select) and isinstance(first.cond, n.Binary) and first.cond.op == "lt"):
        return None
    step = build.int_value(build.sub(first.cond.a, n.Load(n.Region(registers[0]))))
    inner = next((build.int_value(x.b) for x in walk(stores[-2]) if isinstance(x, n.Binary) and x.op == "lt" and isinstance(x.b, n.Const)), None)
    found = Digits(loop.var, step or 0, first.cond.b, inner or 1)
    return found if step and len(found.each()) == len(registers) and found.carried(registers) == tuple(stores) else None


__all__ = ["CarryDigits"]
