"""Places in memory as pointer arithmetic with masks, or as boxes of a tensor descriptor."""
from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import field

from kir.analysis.facts import Facts
from kir.analysis.simplify import simplified
from kir.analysis.tiles.seen_through import gathered
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value, is_const
from kir.ir.types import I32, TileType, dtype_of
from kir.ir.visit import walk

from .expressions import ATOM, OR, PRODUCT, SUM, Expressions, LoadWriter, dims, not_negative, refuse, tile_shape
from .marks import Marks
from .one_piece import of_one_piece

_MODIFIERS = {"load": frozenset({"ca", "cg", "cv"}), "store": frozenset({"wb", "cg", "cs", "wt"})}
"""Cache modifiers that Triton's `tl.load` and `tl.store` take; their compiler refuses the others."""
_EVICTIONS = frozenset({"evict_first", "evict_last"})
_ATOMICS = {"atomic_add": "add", "atomic_max": "max", "atomic_min": "min", "atomic_and": "and", "atomic_or": "or", "atomic_xor": "xor",
            "atomic_exch": "xchg"}
_ORDERS = {"relaxed": "relaxed", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
_SCOPES = {"cta": "cta", "gpu": "gpu", "sys": "sys"}


def _all_of(at: n.Region) -> bool:
    """Whether a region has all elements of its buffer in their order: dimensions of one element are all that may be dropped."""
    return all(int_value(d) == 1 and int_value(i) == 0 if isinstance(i, n.Expr) else
               int_value(i.lo) == 0 and i.step == 1 and (i.extent if isinstance(i.extent, int) else int_value(i.extent)) == int_value(d)
               for i, d in zip(at.index, at.buffer.shape, strict=False))


def _unchanging(e: n.Node) -> bool:
    """Whether a text over it says the same wherever its names are the same, and may be said sooner: nothing in it reads memory or a register, or divides."""
    return not any(isinstance(x, n.Load) or (isinstance(x, n.Call) and x.fn not in ("iota", "expand", "broadcast"))
                   or (isinstance(x, n.Binary) and "div" in x.op) for x in walk(e))


def _called(size: n.Expr) -> str:
    """How a place along an axis of such a size is called; "" where the size has no name."""
    return size.name.lower() if isinstance(size, n.Var) else ""


def strides_of(b: n.Buffer) -> tuple[n.Expr, ...]:
    """Element strides, row-major where the buffer gives none."""
    if b.strides is not None:
        return b.strides
    out: list[n.Expr] = []
    step: n.Expr | None = None
    for extent in reversed(b.shape):
        out.insert(0, build.const(1) if step is None else step)
        step = extent if step is None else build.mul(step, extent)
    return tuple(out)


def in_bounds(facts: Facts, lo: n.Expr, extent: int | n.Expr, step: int | n.Expr, size: n.Expr) -> bool:
    """Whether lo, lo + step, .., `extent` of them, all stay below `size` (their lower bound is `facts`' own question)."""
    count, stride = int_value(extent), int_value(step)
    if count is None or stride is None or stride < 1:
        return False
    span = (count - 1) * stride + 1
    low = facts.expanded(lo)
    if dtype_of(low.type) == dtype_of(size.type):
        room = facts.domain(build.sub(size, build.add(low, span))).lo
        if room is not None and room >= 0:
            return True
    for held in facts.holds:
        if isinstance(held, n.Binary) and held.op == "lt" and isinstance(held.a, n.Var) and _below(facts, low, held.a, held.b, span, size):
            return True
    return False


def _below(facts: Facts, low: n.Expr, var: n.Var, end: n.Expr, span: int, size: n.Expr) -> bool:
    """Whether var < end implies low + span <= size, for low == var * c with c >= span and end * c <= size."""
    terms = build.polynomial(low)
    if set(terms) != {(var,)}:
        return False
    c = terms[(var,)]
    if c < span:
        return False
    end = facts.expanded(end)
    if c == 1:
        return end == size
    quotient = isinstance(end, n.Binary) and end.op in ("floordiv", "ceildiv") and end.a == size and int_value(end.b) == c
    if quotient:
        assert isinstance(end, n.Binary)
        return end.op == "floordiv" or facts.divides(c, size)
    known, total = facts.domain(end).hi, facts.domain(size).lo
    return known is not None and total is not None and known * c <= total


def may_exceed_32_bits(facts: Facts, b: n.Buffer) -> bool:
    """Whether the number of a buffer's last element is not known to fit in 32 bits, so that offsets are computed in 64."""
    last = 0
    for extent, stride in zip(b.shape, strides_of(b), strict=True):
        count, step = facts.domain(extent).hi, facts.domain(stride).hi
        if is_const(stride, 1):
            step = 1
        if count is None or step is None:
            return True
        last += max(0, count - 1) * step
    return last > I32.range[1]


@dataclass
class Memory(LoadWriter):
    """Pointers, masks and options of accesses to global memory. `views` are the affine views in scope by name, `flat` those that see a
    buffer's own elements under another shape; `descriptors` collects the tensor descriptors that the kernel must make first: name to
    (buffer, box)."""

    views: dict[str, n.View] = field(default_factory=dict)
    flat: dict[str, str] = field(default_factory=dict)
    descriptors: dict[str, tuple[n.Buffer, tuple[int, ...]]] = field(default_factory=dict)
    hosted: bool = False
    """Whether the host makes the descriptors of tensors that the kernel touches by boxes of one shape alone."""
    marks: Marks | None = None
    """Where what may be named is to be marked in the text."""

    # -------------------------------------------------------------------------------------------------------------- pointers
    def pointer(self, to: Expressions, at: n.Region) -> str:
        """The pointer (or tile of pointers) of a region: the base plus an index times a stride for each dimension."""
        index = at.index or tuple(build.span(0, d) for d in at.buffer.shape)
        terms = [to.names[self.flat.get(at.buffer.name, at.buffer.name)]]
        wide = may_exceed_32_bits(to.facts, at.buffer)
        for axis, (i, stride) in enumerate(zip(index, strides_of(at.buffer), strict=True)):
            place = self._index(to, index, axis, at.buffer.shape[axis])
            if is_const(stride, 1):
                if not (isinstance(i, n.Expr) and is_const(i, 0)):
                    terms.append(place[0] if place[1] >= SUM else f"({place[0]})")
            elif not (isinstance(i, n.Expr) and is_const(i, 0)):
                if wide and dtype_of(i.lo.type if isinstance(i, n.Span) else i.type) == I32:
                    place = (f"tl.cast({place[0]}, tl.int64)", ATOM)
                terms.append(f"{place[0] if place[1] >= PRODUCT else f'({place[0]})'} * {to.text(stride, PRODUCT + 1)}")
        if self.marks is not None and len(terms) > 2 and _unchanging(at):
            return f"{terms[0]} + {self.marks.of(' + '.join(terms[1:]), 'offset', 'offs')}"
        return " + ".join(terms)

    def _index(self, to: Expressions, index: tuple[n.Expr | n.Span, ...], axis: int, size: n.Expr) -> tuple[str, int]:
        """The index of one dimension (of so many elements), stretched to its axis of the region: text and binding level."""
        i = index[axis]
        spans = [a for a, x in enumerate(index) if isinstance(x, n.Span)]
        if isinstance(i, n.Expr):
            return to.spell(i)
        (extent,) = to.extents(TileType(dtype_of(i.lo.type), (i.extent,)))
        text, level = f"tl.arange(0, {extent})", ATOM
        if i.step != 1:
            stride = i.step if isinstance(i.step, int) else to.text(i.step, PRODUCT + 1)
            text, level = f"{text} * {stride}", PRODUCT
        if not is_const(i.lo, 0):
            text, level = f"{to.text(i.lo, SUM)} + {text}", SUM
        if self.marks is not None and _unchanging(i):
            text, level = self.marks.of(text, "place", f"offs_{along}" if (along := _called(size)) else "offs", level == ATOM), ATOM
        if len(spans) > 1:
            where = ", ".join(":" if a == axis else "None" for a in spans)
            text, level = f"{text if level == ATOM else f'({text})'}[{where}]", ATOM
        return text, level

    def bounds(self, to: Expressions, at: n.Region) -> list[str]:
        """Comparisons that hold inside the buffer, for the dimensions in which the region may leave it."""
        out = []
        index = at.index or tuple(build.span(0, d) for d in at.buffer.shape)
        for axis, (i, size) in enumerate(zip(index, at.buffer.shape, strict=True)):
            lo, extent, step = (i.lo, i.extent, i.step) if isinstance(i, n.Span) else (i, 1, 1)
            text, level = self._index(to, index, axis, size)
            shown = text if level > OR else f"({text})"
            if not not_negative(to.facts, lo):
                out.append(f"{shown} >= 0")
            if not in_bounds(to.facts, lo, extent, step, size):
                out.append(f"{shown} < {to.text(size, OR)}")
        return out

    def mask(self, to: Expressions, at: n.Region, mask: n.Expr | None, clip: bool) -> str:
        """The conjunction of the bounds (under `clip`) and an explicit mask, or nothing."""
        parts = [(p, OR - 1) for p in (self.bounds(to, at) if clip else ())]
        if mask is not None:
            parts.append(to.spell(mask))
        out = parts[0][0] if len(parts) == 1 else " & ".join(p if level >= ATOM else f"({p})" for p, level in parts)
        return self.marks.of(out, "mask", "mask") if self.marks is not None and out and _unchanging(at) and (mask is None or _unchanging(mask)) else out

    # --------------------------------------------------------------------------------------------------------------- accesses
    def _options(self, cache: str, verb: str) -> str:
        if not cache:
            return ""
        if cache in _MODIFIERS[verb]:
            return f', cache_modifier=".{cache}"'
        if cache in _EVICTIONS:
            return f', eviction_policy="{cache}"'
        if cache == "volatile":
            return ", volatile=True"
        raise refuse("KIR-B008", f"Triton has no cache policy '{cache}' for a {verb}", needs=f"one of {', '.join(sorted(_MODIFIERS[verb] | _EVICTIONS))}")

    def _checked(self, at: n.Region) -> None:
        if at.buffer.space not in ("global",):
            raise refuse("KIR-B002", f"'{at.buffer.name}' is {at.buffer.space} memory: Triton code cannot index it",
                         needs="whole values of fragments and registers, and global memory")
        if at.buffer.layout is not None:
            raise refuse("KIR-B002", f"'{at.buffer.name}' has a layout, and global memory is addressed by strides in Triton")

    def load_text(self, to: Expressions, e: n.Load) -> str:
        """A value read: a fragment or register by its name, a view by its definition, global memory through `tl.load`."""
        b = e.at.buffer
        if b.space in ("fragment", "register"):
            if e.mask is not None or not _all_of(e.at):
                raise refuse("KIR-B006", f"a part of '{b.name}' is read: Triton reads a tile as a whole")
            return f"tl.reshape({to.names[b.name]}, {dims(to.extents(e.at.type))})" if e.at.index else to.names[b.name]
        if b.name in self.views:
            return self.load_text(to, of_one_piece(simplified(self._through_view(e), to.facts), to.facts))
        self._checked(e.at)
        to.extents(e.at.type)
        mask = self.mask(to, e.at, e.mask, e.clip)
        out = f"tl.load({self.pointer(to, e.at)}"
        if mask:
            out += f", mask={mask}"
            if e.other is not None:
                out += f", other={to.text(e.other)}"
        return f"{out}{self._options(e.cache, 'load')})"

    def _through_view(self, e: n.Load) -> n.Load:
        """A load of a view as a gather from what it views. Raises KIR-B002 for a view of bytes, and for what a gather cannot say."""
        view = self.views[e.at.buffer.name]
        if not view.axes:
            raise refuse("KIR-B002", f"'{view.buffer.name}' reinterprets memory, which Triton cannot do")
        try:
            return gathered(view, e)
        except ValueError as why:
            raise refuse("KIR-B002", str(why)) from None

    def store_text(self, to: Expressions, at: n.Region, value: str, mask: n.Expr | None, clip: bool, cache: str) -> str:
        """A `tl.store`."""
        self._checked(at)
        if at.buffer.name in self.views:
            raise refuse("KIR-B002", f"'{at.buffer.name}' is a view: Triton code cannot write through it")
        to.extents(at.type)
        condition = self.mask(to, at, mask, clip)
        return f"tl.store({self.pointer(to, at)}, {value}{f', mask={condition}' if condition else ''}{self._options(cache, 'store')})"

    def atomic_text(self, to: Expressions, e: n.Call) -> str:
        """An atomic read-modify-write; relaxed and device-wide unless its attributes say otherwise."""
        at = e.args[0]
        assert isinstance(at, n.Region)
        self._checked(at)
        attrs = dict(e.attrs)
        order, scope = _ORDERS.get(str(attrs.get("order", "relaxed"))), _SCOPES.get(str(attrs.get("scope", "gpu")))
        if order is None or scope is None:
            raise refuse("KIR-B008", f"Triton has no atomic of order {attrs.get('order')} and scope {attrs.get('scope')}")
        operands = [to.tensor(a) if isinstance(a, n.Const) else to.text(a) for a in e.args[1:] if isinstance(a, n.Expr)]
        if e.fn == "atomic_cas":
            return f'tl.atomic_cas({self.pointer(to, at)}, {operands[0]}, {operands[1]}, sem="{order}", scope="{scope}")'
        if e.fn not in _ATOMICS:
            raise refuse("KIR-B008", f"Triton has no spelling for '{e.fn}'")
        mask = f", mask={operands[1]}" if len(operands) > 1 else ""
        return f'tl.atomic_{_ATOMICS[e.fn]}({self.pointer(to, at)}, {operands[0]}{mask}, sem="{order}", scope="{scope}")'

    # ------------------------------------------------------------------------------------------------------------ descriptors
    def box(self, to: Expressions, at: n.Region) -> tuple[str, str]:
        """A tensor descriptor for a region and the coordinates of its corner; a dimension without a span has one element of the box.
        Raises KIR-B002 where a box cannot say it."""
        self._checked(at)
        if at.buffer.name in self.views:
            raise refuse("KIR-B002", f"'{at.buffer.name}' is a view of other elements, which no tensor descriptor shows")
        spans = [i for i in at.index if isinstance(i, n.Span)]
        if not spans or any(i.step != 1 for i in spans) or any(isinstance(i, n.Expr) and isinstance(i.type, TileType) for i in at.index):
            raise refuse("KIR-B002", f"'{at.buffer.name}' is copied by tma from a place that is no box",
                         needs="spans of step 1, and single indices beside them")
        extents = iter(tile_shape(at.type))
        shape = tuple(next(extents) if isinstance(i, n.Span) else 1 for i in at.index)
        name = f"{to.names[at.buffer.name]}_desc"
        for known, (buffer, box) in self.descriptors.items():
            if buffer == at.buffer and box == shape:
                name = known
                break
        else:
            while name in self.descriptors or name in to.names.values():
                name += "_"
            self.descriptors[name] = (at.buffer, shape)
        return name, f"[{', '.join(to.text(i.lo if isinstance(i, n.Span) else i) for i in at.index)}]"

    def box_shape(self, at: n.Region) -> str:
        """What the box of a region is reshaped from, or its tile is reshaped to: the text of its extents, "" where they are the tile's."""
        extents = iter(tile_shape(at.type))
        return "" if all(isinstance(i, n.Span) for i in at.index) else ", ".join(str(next(extents)) if isinstance(i, n.Span) else "1" for i in at.index)

    def given(self, text: str, to: Expressions) -> dict[str, tuple[str, n.Buffer, tuple[int, ...]]]:
        """Of the tensors whose descriptors the host makes, by the names in the program: the descriptor, as what it shows the tensor, and its box. `text` is
        what was written of the kernel's body, in which such a tensor is not named otherwise."""
        if not self.hosted:
            return {}
        shown = set(re.findall(r"\w+", text))
        found = [(self.flat.get(b.name, b.name), name, b, box) for name, (b, box) in self.descriptors.items()]
        of = [base for base, *_ in found]
        return {base: (name, b, box) for base, name, b, box in found if of.count(base) == 1 and to.names[base] not in shown}

    def descriptor_lines(self, to: Expressions, given: Collection[str] = ()) -> list[str]:
        """The statements that make the descriptors collected so far, but for those of tensors that are given as such."""
        out = []
        for name, (buffer, box) in self.descriptors.items():
            if self.flat.get(buffer.name, buffer.name) in given:
                continue
            shape, strides = (", ".join(to.text(x) for x in xs) for xs in (buffer.shape, strides_of(buffer)))
            base = to.names[self.flat.get(buffer.name, buffer.name)]
            out.append(f"{name} = tl.make_tensor_descriptor({base}, shape=[{shape}], strides=[{strides}], "
                       f"block_shape=[{', '.join(map(str, box))}])")
        return out


