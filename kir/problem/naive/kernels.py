"""Kernels of a graph, one thread a work item: what is computed of one element where it is read, sums and products in loops of their own.

A tensor gets a kernel when it is the result, or when writing its computation where it is read would repeat a loop. What a kernel reduces on the way to an
element is reduced before it, once for all elements that share it: a row's maximum and sum stand before the loop over the row.
"""
from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kir.problem.naive import operators as ops
from kir.problem.naive.graph import ENOUGH, LONGEST, SAME, Extent, Graph, Moving, Node, Of, operands
from kir.problem.naive.writing import Body, Writing, begun, finer_of, names_of, parted_of, placed

ROW = 32
"""Elements of a row that is one work item, where nothing but the row's elements is computed."""
GRID_Y = 65535
"""CTAs along the second and third axes of a grid at most (CUDA C++ Programming Guide, technical specifications)."""
I32_MOST = 2**31 - 1
MULTIPLE = re.compile(r": (\w+) \* (\d+)(?=,|$)")
"""An axis of a grid that is a size so many times: the size is no larger than lets that be counted in 32 bits."""
CONTRACTIONS = ("mm", "bmm", "convolution")
POOLS = ("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool2d", "max_pool3d")
SCANS = ("cumsum", "cumprod")
STARTS = {"sum": 0, "prod": 1, "amax": -math.inf, "amin": math.inf, "any": False, "all": True}
STEPS: Mapping[str, Callable[..., str]] = {
    "sum": "{0} + ({1})".format, "prod": "{0} * ({1})".format, "amax": "max_nan({0}, {1})".format, "amin": "min_nan({0}, {1})".format,
    "amax of numbers": "max({0}, {1})".format, "amin of numbers": "min({0}, {1})".format, "any": "{0} | ({1})".format, "all": "{0} & ({1})".format}


class Kernels:
    """The kernels of a graph, in their order; `place` is where a node lies in memory."""

    def __init__(self, g: Graph) -> None:
        self.g, self.uses = g, g.uses()
        self.place: dict[int, str] = {n.number: n.name for n in g.nodes.values() if n.op == "input"}
        self.kernels: list[str] = []
        self.made: list[tuple[int, frozenset[int]]] = []
        self.workspaces: list[str] = []
        self.facts: dict[str, None] = {}

    def text(self, name: str, sizes: Sequence[str], params: Sequence[str]) -> str:
        """The program. Raises KirError KIR-G918."""
        self._kernel(self.g.result, "out")
        header = [f"  size {s}: i32" for s in sizes] + [f"  {p}" for p in params] + [f"  workspace {w}" for w in self.workspaces]
        header += [f"  fact {x}" for x in self.facts]
        return "\n".join(["kir 1", f"program {name}", *header, *self.kernels, ""])

    # ------------------------------------------------------------------------------------------------------------------- kernels
    def _kernel(self, number: int, buffer: str) -> None:
        """The kernel that puts a node into a buffer, after those that it needs. Names are a kernel's own."""
        held = self.g.whole, self.g.parts, self.g.parted
        before = len(self.kernels), len(self.workspaces), dict(self.place)
        while True:
            self.g.whole, self.g.parts, self.g.parted = {}, {}, {}
            made = self._written(number, buffer)
            twice = next((stored for stored, theirs in self.made[before[0]:-1] if made & theirs), None)
            if twice is None:
                break
            del self.kernels[before[0]:], self.made[before[0]:], self.workspaces[before[1]:]  # what is multiplied once lies in memory from the beginning
            self.place = dict(before[2])
            self._stored(twice)
            before = len(self.kernels), len(self.workspaces), dict(self.place)
        self.g.whole, self.g.parts, self.g.parted = held

    def _written(self, number: int, buffer: str, flat: int | None = None, finer: Mapping[str, list[Extent]] | None = None) -> set[int]:
        """Writes it; the contractions that it computes itself. With `finer` some of its axes are several, with `flat` those after the first so many one."""
        node, through = self.g.nodes[number], list[Node]()
        while node.op in (*ops.TURNS, *ops.RESHAPES) and node.args[0].number not in self.place and self.uses[node.args[0].number] == 1:
            through.append(node)
            node = self.g.nodes[node.args[0].number]
        before = len(self.kernels), len(self.made), len(self.workspaces), dict(self.place)
        w, index = begun(self.g, number, node, flat, finer or {})
        axes = w.axes
        at: Sequence[str] = index
        for view in reversed(through):
            at = ops.written(self.g, view, at) or []
        if node.op in SCANS:
            self._scan(w, node, index, f"{buffer}[{', '.join(at)}]")
            return w.made
        inner = Body()
        value = ops.cast(self._element(w, inner, node.number, index, root=True), ops.computed(node.dtype), node.dtype)
        mine = self.g.nodes[number]
        store = inner.ended(f"@store_{buffer} {placed(self.g, w, buffer, mine, at)} = {value}")
        if w.finer and w.shared is None and not finer:
            del self.kernels[before[0]:], self.made[before[1]:], self.workspaces[before[2]:]
            self.place = before[3]
            return self._written(number, buffer, None, w.finer)
        if w.shared is None and axes and (last := list(axes)[-1]) == index[-1] and ROW <= max(axes[last]) <= LONGEST:
            w.shared = frozenset(axes) - {last}
        grid = [x for x in axes if w.shared is None or x in w.shared]
        if flat is None and [*axes][:len(grid)] == grid and len(axes) > len(grid) + 1 and [*axes][-1] == index[-1]:
            return self._written(number, buffer, len(grid), finer)
        if flat is not None and parted_of(w, store) and len(begun(self.g, number, node, None, finer or {})[0].axes) > flat + 2:
            return self._written(number, buffer, flat + 1, finer)
        for x in reversed([x for x in axes if x not in grid]):
            store = [f"for {x} in 0..{self.g.extent(axes[x])}", *("  " + line for line in store)]
        self._add(w, grid, [*w.before.lines, *store])
        return w.made

    def _add(self, w: Writing, grid: Sequence[str], lines: Sequence[str]) -> None:
        """A kernel over these axes: the last one fastest, what is more than three in one."""
        told, lets = self._convolved(w, grid) if w.filters in grid[1:-1] else self._grid({x: w.axes[x] for x in grid}, w.product)
        name = f"k{len(self.kernels)}" if w.number != self.g.result else "main"
        self.made.append((w.number, frozenset(w.made)))
        self.facts |= dict.fromkeys(f"{size} <= {I32_MOST // int(times)}" for size, times in MULTIPLE.findall(told))
        if w.product and not lets:
            lets, lines = _parts_named(w, grid, lines)
        views = [f"view {view.format(named)}" for view, named in w.views.items()]
        self.kernels.append("\n".join([f"kernel {name} grid ({told}) threads 1", *("  " + x for x in (*views, *lets, *lines))]))

    def _convolved(self, w: Writing, grid: Sequence[str]) -> tuple[str, list[str]]:
        """Filters and pixels of a line as axes of their own, as the rows and columns of a product have them; images and lines in one."""
        rest = [x for x in grid if x not in (w.filters, grid[-1], grid[0])] + [grid[0]]  # what divides by a size alone is known to stay in range
        flat, lets, text = "".join(rest), list[str](), self.g.extent
        self.facts |= dict.fromkeys(f"{text(w.axes[x])} >= 1" for x in rest[1:] if len({*w.axes[x]}) > 1)
        left = flat
        for x in reversed(rest[1:]):
            lets.append(f"let {x} = {left} % ({text(w.axes[x])})")
            left = f"({left}) // ({text(w.axes[x])})"
        lets += [f"let {rest[0]} = {left}"] if len(rest) > 1 else []
        told = " * ".join(f"({text(w.axes[x])})" for x in rest)
        return f"{flat}: {told}, {w.filters}: {text(w.axes[w.filters])}, {grid[-1]}: {text(w.axes[grid[-1]])}", lets

    def _grid(self, axes: Mapping[str, Extent], product: bool) -> tuple[str, list[str]]:
        names, text = list(axes), self.g.extent
        ordered = [*names[-2:], *reversed(names[:-2])] if product else names[::-1]
        if len(names) <= 3 and all(max(axes[x]) <= GRID_Y for x in ordered[1:]):
            return ", ".join(f"{x}: {text(axes[x])}" for x in ordered), []
        numbers = [len({*axes[x]}) == 1 for x in names]
        pairs = sorted((k for k in range(len(names) - 1) if numbers[k + 1]), key=lambda k: not numbers[k])  # of numbers the product is one
        for a, b in ((names[k], names[k + 1]) for k in pairs if len(names) <= 4):
            both = {x: e for x, e in axes.items() if x != b} | {a: tuple(p * q for p, q in zip(axes[a], axes[b], strict=True))}
            if numbers[names.index(a)] or max(both[a]) <= GRID_Y:
                told, lets = self._grid({f"{a}{b}" if x == a else x: both[x] for x in names if x != b}, product)
                return told, [*lets, f"let {a} = {a}{b} // {text(axes[b])}", f"let {b} = {a}{b} % {text(axes[b])}"]
        last, rest = names[-1], names[:-1]
        if max(axes[last]) > GRID_Y:
            last, rest = "", names
        flat, lets = "flat", list[str]()
        for x in reversed(rest):
            if x == rest[0]:
                lets.append(f"let {x} = {flat}")
            else:
                lets.append(f"let {x} = {flat} % ({text(axes[x])})")
                flat = f"({flat}) // ({text(axes[x])})"
        told = f"flat: {' * '.join(f'({text(axes[x])})' for x in rest)}"
        return f"{told}, {last}: {text(axes[last])}" if last else told, lets

    def _stored(self, number: int) -> str:
        """Where a node lies, after a kernel that puts it there."""
        if number not in self.place:
            node, name = self.g.nodes[number], f"t{len(self.workspaces)}"
            self.workspaces.append("")
            at = len(self.workspaces) - 1
            self._kernel(number, name)
            self.place[number] = name
            self.workspaces[at] = f"{name}: {node.dtype}[{', '.join(map(self.g.extent, node.shape)) or '1'}]"
        return self.place[number]

    # ------------------------------------------------------------------------------------------------------------------ elements
    def _element(self, w: Writing, body: Body, number: int, index: tuple[str, ...], root: bool = False) -> str:
        """The element of a node at a place, computed where it is asked for, in its dtype of computation."""
        node = self.g.nodes[number]
        own = ops.computed(node.dtype)
        if number in self.place:
            return ops.cast(placed(self.g, w, self.place[number], node, index), node.dtype, own)
        if (number, index) in body.known:
            return body.known[number, index]
        if (number, index) in w.before.known:
            return w.before.known[number, index]
        if node.op in ops.VIEWS:
            return self._element(w, body, node.args[0].number, tuple(ops.seen(self.g, node, index)))
        if node.op in (*CONTRACTIONS, *POOLS, *SCANS, "fold"):
            if not self._here(w, node, index, root):
                return ops.cast(f"{self._stored(number)}[{', '.join(index) or '0'}]", node.dtype, own)
            w.made |= {number} if node.op in CONTRACTIONS else set()
            made = self._reduced(w, node, index)
            w.before.known[number, index] = made
            return made
        if node.op == "cat":
            return self._joined(w, body, node, index)
        if node.op == "constant_pad_nd":
            return self._padded(w, body, node, index)
        if node.op in ("gather", "index_select", "embedding"):
            return self._gathered(w, body, node, index)
        if node.op not in ops.KNOWN_POINTWISE:
            raise self.g.refused(f"nothing is known of the operator {node.op}")

        def of(x: Any, dtype: str) -> str:
            if isinstance(x, Of):
                other = self.g.nodes[x.number]
                at = tuple(ops.fitted(other.shape, index))
                return ops.cast(self._element(w, body, x.number, at), ops.computed(other.dtype), dtype)
            if isinstance(x, Moving):
                return f"cast({self.g.number(x)}, {dtype})"
            return ops.literal(x, dtype)

        def dtype_of(x: Any) -> str:
            return self.g.nodes[x.number].dtype if isinstance(x, Of) else "i64" if isinstance(x, Moving) else "f32"

        text = ops.pointwise(self.g, node, of, dtype_of, index)
        if self.uses.get(number, 0) > 1 and node.op not in (*SAME, *ops.MADE):
            name = w.name("v")
            body.lines.append(f"let {name} = {text}")
            body.known[number, index] = name
            return name
        return f"({text})"

    def _here(self, w: Writing, node: Node, index: Sequence[str], root: bool) -> bool:
        """Whether a reduction is computed in this kernel: at a place that the kernel's own axes name, once for each work item, with as many of these as fill
        a device."""
        if node.op in SCANS:
            return False
        named = [name for x in index if x != "0" for name in names_of(self.g, w, x)]
        if any(x not in w.axes for x in named) or len(set(named)) != len(named):
            w.finer = w.finer or finer_of(self.g, w, named)
            return False
        shared = frozenset(named)
        if root:
            w.shared = shared
            return True
        if node.number in w.made:  # at another place than this kernel has made it for
            return False
        if w.shared is not None:
            return shared == w.shared
        alone = [x for x in w.axes if x not in shared]
        items, row = (math.prod(max(w.axes[x]) for x in names) for names in (shared, alone))
        if alone and (node.op in CONTRACTIONS or items < ENOUGH or row > LONGEST):
            return False
        w.shared = shared
        return True

    def _reduced(self, w: Writing, node: Node, index: tuple[str, ...]) -> str:
        match node.op:
            case "fold":
                return self._fold(w, node, index)
            case "mm" | "bmm":
                return self._product(w, node, index)
            case "convolution":
                return self._convolution(w, node, index)
            case _:
                return self._pool(w, node, index)

    def _loop(self, w: Writing, hint: str) -> str:
        w.loops += 1
        self.g.parted.pop(f"{hint}{w.loops}", None)
        return f"{hint}{w.loops}"

    def _summed(self, w: Writing, what: str, dtype: str, start: Any, loops: Sequence[tuple[str, str]], body: Body, step: str) -> str:
        """A register that loops fold into, before the element is computed."""
        name = w.name(what)
        lines = body.ended(f"{name} = {step.replace('@@', name)}")
        for var, extent in reversed(loops):
            parts = re.compile(rf"\({var}\) (//|%) ")
            if (several := self.g.parted.get(var)) is None or not any(parts.search(line) for line in lines):
                lines = [f"for {var} in 0..{extent}", *("  " + x for x in lines)]
                continue
            named = [f"{var}_{k}" for k in range(len(several))]
            for (_, place), mine in zip(several, named, strict=True):
                lines = [x.replace(place, mine) for x in lines]
            flat = named[0]
            for (e, _), mine in zip(several[1:], named[1:], strict=True):
                flat = f"({flat}) * ({self.g.extent(e)}) + {mine}"
            lines = [re.sub(rf"\b{var}\b", f"({flat})", x) for x in lines]
            for (e, _), mine in reversed([*zip(several, named, strict=True)]):
                lines = [f"for {mine} in 0..{self.g.extent(e)}", *("  " + x for x in lines)]
        w.before.lines += [f"register {name}: {dtype} = {ops.literal(start, dtype)}", *lines]
        return name

    def _fold(self, w: Writing, node: Node, index: tuple[str, ...]) -> str:
        how, axes, keep = node.words["how"], node.words["axes"], node.words["keep"]
        source = self.g.nodes[node.args[0].number]
        rest = iter(index if not keep else [x for k, x in enumerate(index) if k not in axes])
        at, loops = list[str](), list[tuple[str, str]]()
        for k, extent in enumerate(source.shape):
            if k not in axes:
                at.append(next(rest))
            elif set(extent) == {1}:
                at.append("0")
            else:
                at.append(self._loop(w, "j"))
                w.flat.add(at[-1])
                loops.append((at[-1], self.g.extent(extent)))
        if source.number not in self.place and self._blocked(w, source.number, tuple(at), math.prod(max(e) for e in source.shape)):
            kept = source
            while kept.op in ops.RESHAPES and (under := self.g.nodes[kept.args[0].number]).number not in self.place:
                kept = under  # as it is made: its axes are parted, or put together, where it is seen
            self._stored(kept.number)
            for var, _ in loops if _axes(kept) <= _axes(source) else ():  # what lies in memory is read as it lies there
                self.g.parted.pop(var, None)
        body, of = Body(), ops.computed(source.dtype)
        value = self._element(w, body, source.number, tuple(at))
        if not loops and how not in ("argmax", "argmin", "any", "all"):
            w.before.lines += body.lines
            return ops.cast(value, of, ops.computed(node.dtype))
        if how in ("argmax", "argmin"):
            return self._extreme(w, how, source, at, loops, body, value)
        dtype = "bool" if how in ("any", "all") else ops.computed(node.dtype)
        if how in ("amax", "amin") and loops and dtype.startswith("f") and not self._subtracted(node):
            return self._kept(w, how, dtype, loops, body, ops.cast(value, of, dtype))
        made = self._summed(w, {"sum": "sum", "prod": "product", "amax": "top", "amin": "least"}.get(how, how), dtype, STARTS[how], loops, body,
                            STEPS[f"{how} of numbers" if self._subtracted(node) else how]("@@", ops.cast(value, of, dtype)))
        return made

    def _blocked(self, w: Writing, number: int, index: tuple[str, ...], elements: int) -> bool:
        """Whether what is folded needs a reduction that cannot be made before the loop, and has no more elements than that: it is put in memory itself,
        so that a row's reductions and what is made of them stay in one kernel."""
        node = self.g.nodes[number]
        if number in self.place:
            return False
        if node.op in (*CONTRACTIONS, *POOLS, *SCANS, "fold"):
            inside = node.op not in SCANS and w.shared is not None and frozenset(x for x in index if x != "0") == w.shared
            return not inside and elements <= math.prod(max(e) for e in node.shape)
        if node.op in ops.VIEWS:
            return self._blocked(w, node.args[0].number, tuple(ops.seen(self.g, node, index)), elements)
        plain = node.op in ops.KNOWN_POINTWISE
        return any(self._blocked(w, x, tuple(ops.fitted(self.g.nodes[x].shape, index)) if plain
                                 else ("?",) * len(self.g.nodes[x].shape), elements) for x in set(operands(node)))

    def _subtracted(self, node: Node) -> bool:
        """Whether a maximum is only taken from the elements that it is of: a NaN among these is one in the difference, whatever the maximum."""
        mine = [x for x in self.g.nodes.values() if node.number in set(operands(x))] if node.words["how"] == "amax" else []
        return bool(mine) and all(x.op == "sub" and x.args[0] == node.args[0] for x in mine)

    def _kept(self, w: Writing, how: str, dtype: str, loops: Sequence[tuple[str, str]], body: Body, value: str) -> str:
        """An extreme value of elements, which is a NaN where one of them is: how many are is counted in a loop of its own, so that what folds the others is a
        plain maximum or minimum, which every surface reduces over threads."""
        other = [(self._loop(w, "j"), extent) for _, extent in loops]
        for (old, _), (new, _) in zip(loops, other, strict=True):
            if (several := self.g.parted.get(old)) is not None:
                self.g.parted[new] = several
        word = re.compile("|".join(rf"\b{old}\b" for old, _ in loops))
        named = {old: new for (old, _), (new, _) in zip(loops, other, strict=True)}

        def moved(text: str) -> str:
            return word.sub(lambda found: named[found.group()], text)

        beside = Body([moved(line) for line in body.lines])
        made = self._summed(w, "top" if how == "amax" else "least", dtype, STARTS[how], loops, body, STEPS[f"{how} of numbers"]("@@", value))
        odd = self._summed(w, "odd", "i32", 0, other, beside, f"@@ + select({moved(value)} != {moved(value)}, 1, 0)")
        return f"select({odd} > 0, {ops.literal(math.nan, dtype)}, {made})"

    def _extreme(self, w: Writing, how: str, source: Node, at: Sequence[str], loops: Sequence[tuple[str, str]], body: Body, value: str) -> str:
        """The first place of the largest or smallest element, which a NaN is: that element, then the least place where it stands."""
        if len(loops) != 1:
            raise self.g.refused(f"{how} over several axes")
        (first, extent), of, again, most = loops[0], ops.computed(source.dtype), Body(), "amax" if how == "argmax" else "amin"
        start = STARTS[most] if of in ("f16", "bf16", "f32", "f64") else None
        if start is None:
            raise self.g.refused(f"{how} of {of}")
        if not body.lines:
            return self._sought(w, how, of, first, extent, value)
        best = self._summed(w, "best", of, start, loops, body, STEPS[most]("@@", value))
        second = self._loop(w, "j")
        now = self._element(w, again, source.number, tuple(second if x == first else x for x in at))
        name = w.name("now")
        again.lines.append(f"let {name} = {now}")
        here = f"select(({name} == {best}) | ({name} != {name}), {second}, {extent})"
        found = self._summed(w, "at", "i32", 2**31 - 1, [(second, extent)], again, f"min(@@, {here})")
        return f"cast({found}, i64)"

    def _sought(self, w: Writing, how: str, of: str, var: str, extent: str, value: str) -> str:
        """The same where an element is one expression, in the form of a search that every surface spreads over threads: the place of the best number, the first
        place of a NaN, and how many there are."""
        second, third = self._loop(w, "j"), self._loop(w, "j")
        other, last = (re.sub(rf"\b{var}\b", new, value) for new in (second, third))

        def sought(loop: str, element: str, sign: str) -> str:
            at = w.name("at")
            best = re.sub(rf"\b{loop}\b", at, element)
            w.before.lines += [f"register {at}: i32 = 0", f"for {loop} in 0..{extent}", f"  if {element} {sign} {best}", f"    {at} = {loop}"]
            return at
        found = sought(var, value, ">" if how == "argmax" else "<")
        nan = sought(second, f"select({other} != {other}, {ops.literal(1.0, of)}, {ops.literal(-math.inf, of)})", ">")
        odd = self._summed(w, "odd", "i32", 0, [(third, extent)], Body(), f"@@ + select({last} != {last}, 1, 0)")
        return f"cast(select({odd} > 0, {nan}, {found}), i64)"

    def _product(self, w: Writing, node: Node, index: tuple[str, ...]) -> str:
        w.product = True
        a, b = (self.g.nodes[x.number] for x in node.args[:2])
        k, own = self._loop(w, "k"), ops.computed(node.dtype)
        body = Body()
        left = self._operand(w, body, a.number, (*index[:-2], index[-2], k))
        right = self._operand(w, body, b.number, (*index[:-2], k, index[-1]))
        return self._summed(w, "acc", own, 0, [(k, self.g.extent(a.shape[-1]))], body, f"@@ + {left} * {right}")

    def _operand(self, w: Writing, body: Body, number: int, index: tuple[str, ...], other: str = "") -> str:
        """An element of what a product takes: views of what lies in memory are read there, anything else is put there first. With `other` the place may
        be out of range."""
        node, at = self.g.nodes[number], index
        while node.number not in self.place and node.op in ops.VIEWS and (not other or self._same_axes(node)):
            node, at = self.g.nodes[node.args[0].number], tuple(ops.seen(self.g, node, at))
        where = f"{self._stored(node.number)}[{', '.join(at)}]"
        read = f"load({where} else {other}:{node.dtype} clip)" if other and node.dtype != "f32" else f"load({where} else {other} clip)" if other else where
        return ops.cast(read, node.dtype, ops.computed(node.dtype))

    def _same_axes(self, view: Node) -> bool:
        """Whether a view has its operand's axes, turned or with more of extent 1: out of range in the one is out of range in the other."""
        source = [e for e in self.g.nodes[view.args[0].number].shape if set(e) != {1}]
        return view.op in ops.TURNS or (view.op in ops.RESHAPES and source == [e for e in view.shape if set(e) != {1}])

    def _convolution(self, w: Writing, node: Node, index: tuple[str, ...]) -> str:
        x, weight, bias, stride, padding, dilation, turned, _, groups = node.args
        source, filters = self.g.nodes[x.number], self.g.nodes[weight.number]
        if any(isinstance(v, Moving) for v in (*stride, *padding, *dilation)) or len(source.shape) != len(filters.shape):
            raise self.g.refused("a convolution whose form moves with the sizes")
        rank, out = len(source.shape) - 2, node.shape[1][0]
        each = out // groups
        depth = filters.shape[0][0] // groups if turned else filters.shape[1][0]
        c = self._loop(w, "c")
        steps = [self._loop(w, "r") for _ in range(rank)]
        group = "0" if groups == 1 else f"({index[1]} // {each})" if each != 1 else index[1]
        channel = c if groups == 1 else f"{group} * {depth} + {c}" if depth != 1 else group
        kernel = [self.g.extent(e) for e in filters.shape[2:]]
        stride, padding, dilation = (list(v) * rank if len(v) == 1 else list(v) for v in (stride, padding, dilation))
        at, conditions = list[str](), list[str]()
        for i, s, p, d, t in zip(index[2:], stride, padding, dilation, steps, strict=True):
            if not turned:
                at.append(f"{i} * {s} + {t} * {d} - {p}")
            elif s == 1:
                at.append(f"{i} + {p} - {t} * {d}")
            else:
                conditions.append(f"({i} + {p} - {t} * {d}) % {s} == 0")
                at.append(f"({i} + {p} - {t} * {d}) // {s}")
        body, own = Body(), ops.computed(node.dtype)
        safe = not turned and not any(padding)
        value = self._operand(w, body, x.number, (index[0], channel, *at), "" if safe else "0.0")
        place = (channel, index[1] if groups == 1 else f"{index[1]} % {each}", *steps) if turned else (index[1], c if depth != 1 else "0", *steps)
        scaled = f"{self._operand(w, body, weight.number, place)} * {value}"
        if conditions:
            scaled = f"select({' & '.join(conditions)}, {scaled}, {ops.literal(0, own)})"
        loops = [*zip(steps, kernel, strict=True), *((c, str(depth)) for _ in range(depth != 1))]
        w.filters = index[1] if depth != 1 and groups == 1 else ""
        made = self._summed(w, "acc", own, 0, loops if loops else [(c, "1")], body, f"@@ + {scaled}")
        return made if bias is None else f"({made} + {self._operand(w, w.before, bias.number, (index[1],))})"

    def _pool(self, w: Writing, node: Node, index: tuple[str, ...]) -> str:
        x, size, *more = node.args
        source = self.g.nodes[x.number]
        rank = len(size) if not isinstance(size, int) and len(size) > 1 else 1 if "1d" in node.op else 2 if "2d" in node.op else 3
        def each(v: Any, usual: int) -> list[int]:
            return [usual] * rank if v in (None, ()) else [v] * rank if isinstance(v, int) else list(v) * rank if len(v) == 1 else list(v)
        window = each(size, 1)
        stride = each(more[0], 0) if more and more[0] not in ((), None) else window
        padding = each(more[1] if len(more) > 1 else None, 0)
        most = node.op.startswith("max")
        dilation = each(more[2] if most and len(more) > 2 else None, 1)
        whole = len(more) < (4 if most else 3) or not more[3 if most else 2]
        counted = most or len(more) < 4 or bool(more[3])
        if not whole or (not counted and any(padding)) or any(isinstance(v, Moving) for v in (*window, *stride, *padding)):
            raise self.g.refused(f"{node.op} with windows that are cut")
        if not most and len(more) > 4 and more[4] is not None:
            raise self.g.refused(f"{node.op} with a divisor of its own")
        steps = [self._loop(w, "r") for _ in range(rank)]
        lead = index[: len(index) - rank]
        at = [f"{i} * {s} + {t} * {d} - {p}" for i, s, p, d, t in zip(index[len(lead):], stride, padding, dilation, steps, strict=True)]
        body, own = Body(), ops.computed(node.dtype)
        place = (*lead, *at)
        value = (self._operand(w, body, x.number, place, "-inf" if most else "0.0") if any(padding)
                 else ops.cast(self._element(w, body, source.number, place), ops.computed(source.dtype), own))
        loops = list(zip(steps, map(str, window), strict=True))
        made = self._summed(w, "top" if most else "sum", own, -math.inf if most else 0, loops, body, STEPS["amax" if most else "sum"]("@@", value))
        return made if most else f"({made} / {ops.literal(math.prod(window), own)})"

    def _joined(self, w: Writing, body: Body, node: Node, index: tuple[str, ...]) -> str:
        parts = node.args[0]
        axis = (int(node.args[1] if len(node.args) > 1 else node.words.get("dim", 0)) + len(index)) % len(index)
        own, text, end = ops.computed(node.dtype), "", [sum(e) for e in zip(*(self.g.nodes[p.number].shape[axis] for p in parts), strict=True)]
        for part in reversed(parts):
            other = self.g.nodes[part.number]
            start = [b - e for b, e in zip(end, other.shape[axis], strict=True)]
            inside = f"max(0, min({index[axis]} - {self.g.extent(tuple(start))}, {self.g.extent(other.shape[axis])} - 1))"
            value = ops.cast(self._element(w, body, part.number, (*index[:axis], inside, *index[axis + 1:])), ops.computed(other.dtype), own)
            text = value if not text else f"select({index[axis]} < {self.g.extent(tuple(end))}, {value}, {text})"
            end = start
        return f"({text})"

    def _padded(self, w: Writing, body: Body, node: Node, index: tuple[str, ...]) -> str:
        pads = node.args[1]
        source = self.g.nodes[node.args[0].number]
        filled = node.args[2] if len(node.args) > 2 else node.words.get("value", 0)
        at, conditions = list(index), list[str]()
        for k in range(len(pads) // 2):
            axis, low, high = len(index) - 1 - k, pads[2 * k], pads[2 * k + 1]
            extent = self.g.extent(source.shape[axis])
            if low or high:
                at[axis] = f"max(0, min({index[axis]} - {low}, {extent} - 1))"
                conditions += [f"{index[axis]} >= {low}"] * bool(low) + [f"{index[axis]} < {extent} + {low}"] * bool(high)
        own = ops.computed(node.dtype)
        value = self._element(w, body, source.number, tuple(at))
        return f"select({' & '.join(conditions)}, {value}, {ops.literal(filled, own)})" if conditions else value

    def _gathered(self, w: Writing, body: Body, node: Node, index: tuple[str, ...]) -> str:
        if node.op == "embedding":
            table, chosen = node.args[:2]
            at = f"cast({self._element(w, body, chosen.number, index[:-1])}, i32)"
            return self._element(w, body, table.number, (at, index[-1]))
        source, axis, chosen = node.args[:3]
        axis = (axis + len(index)) % len(index)
        which = self._element(w, body, chosen.number, index if node.op == "gather" else (index[axis],))
        return self._element(w, body, source.number, (*index[:axis], f"cast({which}, i32)", *index[axis + 1:]))

    def _scan(self, w: Writing, node: Node, index: tuple[str, ...], place: str) -> None:
        """A running sum or product along an axis: its loop writes as it goes."""
        axis = (int(node.args[1]) + len(index)) % len(index)
        own, total = ops.computed(node.dtype), w.name("total")
        body, var = Body(), index[axis]
        source = self.g.nodes[node.args[0].number]
        value = ops.cast(self._element(w, body, source.number, index), ops.computed(source.dtype), own)
        inside = body.ended(f"{total} = {STEPS['sum' if node.op == 'cumsum' else 'prod'](total, value)}",
                            f"{place} = {ops.cast(total, own, node.dtype)}")
        lines = [f"register {total}: {own} = {ops.literal(0 if node.op == 'cumsum' else 1, own)}", *w.before.lines,
                 *([f"for {var} in 0..{self.g.extent(w.axes[var])}", *("  " + x for x in inside)] if var != "0" else inside)]
        self._add(w, [x for x in w.axes if x != var], lines)


def _parts_named(w: Writing, grid: Sequence[str], lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """What a product's places along the grid are parted into, named once: a tile of such a product is known to stay in range by these names."""
    made: dict[str, str] = {}
    part = re.compile(rf"\(\(({'|'.join(map(re.escape, grid)) or '(?!)'})\) (//|%) \((\d+)\)\)")
    lines = [part.sub(lambda found: made.setdefault(" ".join(found.groups()), w.name("part")), line) for line in lines]
    return [f"let {name} = {text}" for text, name in made.items()], [*lines]


def _axes(node: Node) -> int:
    """Axes of more than one element."""
    return sum(set(e) != {1} for e in node.shape)


NAME = re.compile(r"[^A-Za-z0-9_]")


def program_name(text: str) -> str:
    """A name of the IR from a file's."""
    name = NAME.sub("_", text)
    return name if name[:1].isalpha() else f"model_{name}"
