"""Fills an array element by element, in any order and by any threads, and reads it in another.

pipeline: `hold-elements{value="X[at1, at0]" shape=[64,64] loops=["thread 128", "serial 32"] place=["turn0 % 64", "turn0 // 64 + turn1 * 2"]}@main/w`

```diff
 kir 1
 program transposed
   in X: f32[64, 64]
   out Y: f32[64, 64]
 kernel main grid (b: 1) threads 128
+  shared held: f32[64, 64]
+  for turn in 0..128 parallel thread
+    for turn_1 in 0..32
+      held[turn % 64, turn // 64 + turn_1 * 2] = X[turn // 64 + turn_1 * 2, turn % 64]
   @w for r in 0..64
     for c in 0..64
-      Y[r, c] = X[c, r]
+      Y[r, c] = held[r, c]
```
"""
from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import field
from typing import ClassVar, Literal

from kir.analysis import Aliases
from kir.analysis.facts import Facts
from kir.analysis.loops.loop_nest import Loops, built, by_place, counters, nest_at, reach, recounted, renamed
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import bound_names
from kir.ir.types import I32, DType, TileType, dtype_of
from kir.ir.visit import names_read, substitute
from kir.rewrite import Context, Found, Miss, Pass, Path, Place, Precondition, Rewritten, Site, Verdict, proved, refuted, unknown
from kir.rewrite.base import Effect
from kir.rewrite.edit import block_at, fresh, kernel_of, names_in, node_at, places
from kir.rewrite.match import allocated, block_and_index, fits_shared, fresh_at, fresh_var, loads_of, matched, matched_as, params_as
from kir.rewrite.match.local_buffers import byte_count, mentions, own_parts, team_level
from kir.rewrite.match.materialize import buffers_read, buffers_written, is_pure
from kir.rewrite.match.unify import bound_by, hole, rewritten
from kir.rewrite.precondition import decided
from kir.rewrite.view import expression_at, text_of

from ._buffered_value import can_be_declared, declared, holding, loops_of, mentioned, sizes_of, texts_of, without


def _item(site: Site) -> HoldElements:
    return params_as(site, HoldElements)


def _unchanged(program: n.Program, site: Site, context: Context) -> Verdict:
    item = _item(site)
    pattern = matched(item.pattern(program, site.path))
    (block, i), aliases = block_and_index(program, site.path), Aliases(program)
    change = item.reading(pattern, item.memory(pattern, "%held"))
    readers = [k for k in range(i, len(block)) if rewritten(block[k], change) != block[k]]
    written = buffers_written(block[i:readers[-1] + 1]) if readers else set()
    clash = [(w, r) for w in sorted(written) for r in sorted(buffers_read(pattern)) if w in (r, "*") or aliases.may_be_one(w, r)]
    if clash:
        return refuted(f"'{clash[0][0]}' is written between the reads of {item.value}", f"a later read sees the old '{clash[0][1]}'")
    return proved("nothing that the elements are made of is written while they are kept")


def _reached(program: n.Program, site: Site, context: Context) -> Verdict:
    item = _item(site)
    loops, place = item.nest(program, site.path) or ((), ())
    end = loops[0][2] if len(loops) == 1 else 0
    if isinstance(end, n.Expr) and place == (loops[0][1],):
        fits = decided(build.compare("le", end, item.shape[0]), Facts.at(program, site.path), "the array has so many elements", "the loop leaves the array",
                       needs="a fact that bounds the length")
        return _within(program, site, (0,), (build.sub(end, 1),)) if fits else fits
    found = reach(loops, place)
    if isinstance(found, str):
        return unknown(found)
    if any(a < 0 for a in found.low) or any(b >= d for b, d in zip(found.high, item.shape, strict=True)):
        outside = found.low if any(a < 0 for a in found.low) else found.high
        return refuted("the loops leave the array", f"place {', '.join(map(str, outside))} does not exist", needs="places in the array")
    if found.missed is not None:
        return refuted("the loops do not reach every element", f"element [{', '.join(map(str, found.missed))}] is never written",
                       needs="places that cover the array")
    if not any(found.low) and all(b + 1 == d for b, d in zip(found.high, item.shape, strict=True)):
        return proved("the loops reach every element (counted out)")
    return _within(program, site, found.low, found.high)


def _within(program: n.Program, site: Site, lows: Sequence[int], highs: Sequence[int | n.Expr]) -> Verdict:
    """Whether every read of an array that is filled in part is of that part."""
    name = fresh_at(program, site.path, "held")
    made = site.params.optimize(program, site).program
    for path, s in places(made):
        regions = [x.at for x in loads_of(own_parts(s), name)] if isinstance(s, n.Stmt) else []
        for r in regions:
            known = Facts.at(made, path)
            for i, low, high in zip(r.index or (None,) * len(lows), lows, highs, strict=True):
                first, last = (i.lo, build.add(i.lo, build.sub(i.extent, 1) if isinstance(i.extent, n.Expr) else i.extent - 1)) if isinstance(
                    i, n.Span) and i.step == 1 else (i, i)
                if not isinstance(first, n.Expr) or isinstance(first.type, TileType) or not isinstance(last, n.Expr):
                    return unknown("a read takes more than the part that is filled", needs="reads of single elements, or of ranges")
                claim = build.logical_and(build.compare("ge", first, low), build.compare("le", last, high))
                verdict = decided(claim, known, "only what is filled is read", "an element is read that is never filled")
                if not verdict:
                    return verdict
    return proved("the loops reach every element of the part that is read (counted out)")


def _fits(program: n.Program, site: Site, context: Context) -> Verdict:
    item = _item(site)
    pattern = matched(item.pattern(program, site.path))
    if item.space != "shared":
        return proved("the array is a thread's own")
    held = [byte_count(b) for b in allocated(kernel_of(program, site.path), "shared")]
    if None in held:
        return unknown("an extent is not known", needs="literal extents")
    total = math.prod(item.shape) * dtype_of(pattern.type).bytes + sum(x for x in held if x is not None)
    return fits_shared(total, context, "fewer elements")


NUMBER = re.compile(r"-?(\d+(\.\d*)?(e[-+]?\d+)?|inf)")


@dataclass(frozen=True)
class HoldElements(Pass):
    """`value` is the element at `at0`, `at1`, .. of an array of `shape` in `space`, which `loops` (kind and length of each, `thread 128`, outermost first; a
    length may follow from counters: `serial ceildiv(20 - turn0, 16)`) fill at `place`, written in their counters `turn0`, `turn1`, ..; it is declared
    `hoist` statements further out. It may `begin` with a literal, which nobody reads. The reads of these numbers, in the order of the text, are `left` as
    they are."""

    intent: ClassVar[str] = "stage-shared"
    catalogue: ClassVar[tuple[int, ...]] = (2, 5, 16)
    claim: ClassVar[str] = "Elements are brought in the order that suits memory, and used in the order that suits the work."
    provides: ClassVar[tuple[str, ...]] = ("shared",)
    preconditions: ClassVar[tuple[Precondition, ...]] = (
        Precondition("KIR-P871", "validity", "aliasing", "what the elements are made of is not written while they are kept", _unchanged),
        Precondition("KIR-P872", "validity", "shape", "the loops reach every element that is read, and no place outside", _reached),
        Precondition("KIR-P873", "validity", "hardware", "shared memory holds the array beside what is allocated already", _fits))

    value: str = ""
    shape: tuple[int, ...] = ()
    space: Literal["shared", "register"] = "shared"
    loops: tuple[str, ...] = ()
    place: tuple[str, ...] = ()
    hoist: int = 0
    begin: str = ""
    left: tuple[int, ...] = ()

    def literal(self, dtype: DType) -> n.Const | None:
        """What the array begins with."""
        return n.Const(float(self.begin) if dtype.is_float else int(self.begin), dtype) if self.begin else None

    def pattern(self, program: n.Program, path: Path) -> n.Expr | None:
        """The element at the holes' place."""
        at = counters(len(self.shape), "at")
        made = expression_at(program, path, self.value, at)
        if made is None or isinstance(made.type, TileType) or not is_pure(made) or any(v.name not in names_read(made) for v in at):
            return None
        return renamed(made, at, [hole(k) for k in range(len(at))])

    def nest(self, program: n.Program, path: Path) -> tuple[Loops, tuple[n.Expr, ...]] | None:
        """The loops, with `turn0`, .. for counters, and the place that they fill."""
        turns = counters(len(self.loops), "turn")
        place = tuple(expression_at(program, path, text, turns) for text in self.place)
        found = loops_of(program, path, self.loops)
        if found is None or len(place) != len(self.shape) or not all(isinstance(e, n.Expr) and e.type == I32 for e in place):
            return None
        return found, tuple(e for e in place if e is not None)

    def memory(self, pattern: n.Expr, name: str) -> n.Buffer:
        """The array."""
        dtype = dtype_of(pattern.type)
        return n.Buffer(name, dtype, tuple(map(build.const, self.shape)), self.space)

    def reading(self, pattern: n.Expr, held: n.Buffer) -> Some:
        """The change from elements to those that the array keeps."""
        return Some(Change(pattern, held), frozenset(self.left))

    def match(self, program: n.Program, path: Path, node: Place) -> Found:
        """At a statement that reads such elements; which, and how the array is filled, are given."""
        if not isinstance(node, n.Stmt) or isinstance(node, n.Alloc) or not (self.value and self.shape and self.loops):
            return None
        pattern, nest = self.pattern(program, path), self.nest(program, path)
        if pattern is None or nest is None:
            return Miss("there are no such elements here, or no such loops")
        whole = dtype_of(pattern.type).is_integer
        if self.begin and (self.space != "register" or not NUMBER.fullmatch(self.begin) or (whole and not self.begin.lstrip("-").isdigit())):
            return Miss("it begins with no number of its dtype, or is not a thread's own")
        if not can_be_declared(program, path, self.hoist):
            return Miss("the array cannot be declared that far out")
        if not _fitting(program, path, self.space, nest[0]):
            return Miss("the array is not of those who get here")
        if rewritten(node, self.reading(pattern, self.memory(pattern, "%held"))) == node:
            return Miss("the statement reads no such element")
        return Site(path, self)

    def optimize(self, program: n.Program, site: Site) -> Rewritten:
        """An array, loops that fill it, and reads of it in the rest of the block."""
        kernel, i = kernel_of(program, site.path), int(site.path[-1])
        pattern, nest = matched(self.pattern(program, site.path)), matched(self.nest(program, site.path))
        taken = names_in(program, kernel)
        made = self.memory(pattern, fresh("held", taken))
        turns = [v for _, v, _ in nest[0]]
        own = [fresh_var("turn", taken) for _ in turns]
        loops = recounted(nest[0], own)
        place = [renamed(e, turns, own) for e in nest[1]]
        value: n.Expr = substitute(pattern, {hole(k).name: e for k, e in enumerate(place)})
        fill = built(loops, build.region(made, *place), value)
        change = self.reading(pattern, made)
        rest = tuple(rewritten(s, change) for s in block_at(program, site.path)[i:])
        return holding(program, site.path, made, (fill,), rest, self.hoist, self.literal(made.dtype))

    def match_inverse(self, program: n.Program, path: Path, node: Place) -> Found:
        """At loops that do nothing but fill an array, each element of which follows from its place, and of which everything else is a read."""
        nest = nest_at(node, sizes_of(program)) if isinstance(node, n.For) else None
        if nest is None or nest.store.at.buffer.space not in ("shared", "register", "fragment"):
            return None
        b = nest.store.at.buffer
        shape = tuple(build.int_value(d) or 0 for d in b.shape)
        if b.layout is not None or b.strides is not None or b.align or b.space == "fragment" or not _fitting(program, path, b.space, nest.loops):
            return Miss(f"'{b.name}' has a layout of its own, or belongs to others")
        at = counters(len(shape), "at")
        value = by_place(nest, at)
        if value is None or not is_pure(value) or any(v.name not in names_read(value) for v in at):
            return Miss("what is stored does not follow from where it is stored")
        where, (block, i) = declared(program, path, b.name, literal=b.space == "register" and not b.dtype.is_bool), block_and_index(program, path)
        if where is None:
            return Miss(f"'{b.name}' is declared elsewhere, or with a value")
        back = Back(b, renamed(value, at, [hole(k) for k in range(len(at))]))
        after = [rewritten(s, back) for s in block[i + 1:]]
        numbers = Numbers(back, Change(back.pattern, b))
        for s in block[i + 1:]:
            rewritten(s, numbers)
        used = sum(mentioned(s, b.name) for s in block[i + 1:])
        everywhere = sum(mentioned(s, b.name) for s in kernel_of(program, path).body)
        if not used or any(mentions(s, b.name) for s in after) or everywhere != used + mentioned(node, b.name) or (  # type: ignore[arg-type]  # a For
                set(bound_names(block[i + 1:])) & names_read(value)):
            return Miss(f"'{b.name}' is not only read, and after it is filled")
        turns, own = counters(len(nest.loops), "turn"), [v for _, v, _ in nest.loops]
        place = [renamed(e, own, turns) for e in nest.store.at.index if isinstance(e, n.Expr)]
        item = HoldElements(text_of(value), shape, b.space, texts_of(nest.loops),  # type: ignore[arg-type]  # one of two spaces
                            tuple(map(text_of, place)), where[1], _begin(program, where[0]), tuple(numbers.direct))
        return Site(path, item, {"declared": where[0], "change": back, "buffer": b})

    def deoptimize(self, program: n.Program, site: Site) -> Rewritten:
        """Each element where it comes from."""
        return without(program, site.path, site.captures["buffer"].name, site.captures["declared"], site.captures["change"])

    def effect(self, program: n.Program, site: Site) -> Effect:
        """The bytes of the array, in shared memory."""
        pattern = self.pattern(program, site.path)
        if pattern is None or self.space != "shared":
            return Effect()
        return Effect(shared_bytes=math.prod(self.shape) * dtype_of(pattern.type).bytes)


def _begin(program: n.Program, at: Path) -> str:
    """The literal that memory is declared with, as text."""
    init = matched_as(node_at(program, at), n.Alloc).init
    return repr(init.value) if isinstance(init, n.Const) else ""


@dataclass(frozen=True)
class Change:
    """From an element to the same of the array."""

    pattern: n.Expr
    held: n.Buffer

    def __call__(self, x: n.Expr) -> n.Expr | None:
        found = bound_by(self.pattern, x, len(self.held.shape))
        return None if found is None else build.load(build.region(self.held, *found))


@dataclass
class Some:
    """The same, but for elements of some numbers, which are counted as they are met."""

    change: Change
    left: frozenset[int]
    met: int = 0

    def __call__(self, x: n.Expr) -> n.Expr | None:
        made = self.change(x)
        self.met += made is not None
        return None if self.met - 1 in self.left else made


@dataclass(frozen=True)
class Back:
    """From an element of the array to what it is."""

    held: n.Buffer
    pattern: n.Expr

    def __call__(self, x: n.Expr) -> n.Expr | None:
        if not (isinstance(x, n.Load) and x.at.buffer == self.held and x.mask is None and not x.clip and not x.cache):
            return None
        index = [i for i in x.at.index if isinstance(i, n.Expr) and not isinstance(i.type, TileType) and i.type == I32]
        if len(index) != len(self.held.shape):
            return None
        made: n.Expr = substitute(self.pattern, {hole(k).name: e for k, e in enumerate(index)})
        return made


@dataclass
class Numbers:
    """Changes nothing, and counts elements: `direct` are the numbers of those that are not read from the array."""

    back: Back
    change: Change
    met: int = 0
    direct: list[int] = field(default_factory=list)

    def __call__(self, x: n.Expr) -> n.Expr | None:
        held = self.back(x) is not None
        if held or self.change(x) is not None:
            self.direct += () if held else (self.met,)
            self.met += 1
        return None


def _fitting(program: n.Program, path: Path, space: str, loops: Loops) -> bool:
    """Whether those who execute the loops are those whose array it is: the CTA's threads for shared memory, one thread for its own."""
    level, kernel = team_level(program, path), kernel_of(program, path)
    if space == "register":
        return loops[0][0] != "thread" and (level == "thread" or build.is_const(kernel.threads, 1))
    return level == "cta" and (loops[0][0] != "thread" or build.int_value(kernel.threads) == loops[0][2])
