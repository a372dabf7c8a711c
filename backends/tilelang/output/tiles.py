"""Tile statements: whole-tile operations where TileLang has them, else loops over `T.Parallel`, element by element."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace

from kir.analysis.access import Aliases, may_overlap
from kir.analysis.bounds import conjuncts, says_bound
from kir.analysis.elements import NotElementwise, element, element_region
from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value, is_const, logical_and
from kir.ir.printer import expr_text
from kir.ir.types import I32, DType, TileType, dtype_of, shape_of
from kir.ir.visit import walk

from ..form.form import is_only_element, reduced_place
from ..spelling.expressions import AXIS, MOST_ELEMENTS, Expressions, is_zero, promoted, refuse
from ..spelling.names import fresh
from .fragment_elements import Picks
from .pixels import Pixels, steps

_REDUCTIONS = {"sum": "T.reduce_sum", "max": "T.reduce_max", "min": "T.reduce_min", "and": "T.reduce_bitand", "or": "T.reduce_bitor",
               "xor": "T.reduce_bitxor"}
_MERGED = {"sum": "add", "max": "max", "min": "min", "and": "and", "or": "or", "xor": "xor"}
"""The operator that joins a reduction to what its target holds (`clear=False`)."""
_SCANNED_BY = (32, 64, 128, 256, 512, 1024)
"""Threads of a CTA that TileLang's scan is written for."""
AXES = ("i", "j", "k", "l", "m", "n")
Lines = list[tuple[str, int]]
"""Texts with how much deeper than the statement they stand."""
_OF_TMA = frozenset({"eviction_policy", "cluster_mask", "leader_scope_threads"})
"""Options of `T.tma_copy`."""


def _never_one(a: n.Expr | n.Span, b: n.Expr | n.Span) -> bool:
    """Whether two indices differ by a number, whatever else they are."""
    if isinstance(a, n.Span) or isinstance(b, n.Span) or a.type != b.type or not isinstance(a.type, DType):
        return False
    return (build.int_value(build.sub(a, b)) or 0) % (1 << 32) != 0


@dataclass
class Tiles:
    """Writes statements on tiles through `to`, for a team of so many threads (0: the binding decides)."""

    to: Expressions
    threads: int = 128
    taken: set[str] = field(default_factory=set)
    aliases: Aliases | None = None

    def settled(self, at: n.Region, parts: Sequence[n.Expr | None], one: n.Region | None = None, axes: Sequence[tuple[n.Var, int | n.Expr]] = ()) -> None:
        """Raises KirError KIR-B328 where a statement that stores `parts` at `at` reads elements there that it may have written by then: the IR
        reads all of them first, the threads of TileLang read and write side by side. Where `parts` are of one element, `one` is its place and
        `axes` are those of the loop."""
        known = self.to.facts
        for v, extent in axes:
            known = known.ranging(v, build.const(0), extent if isinstance(extent, n.Expr) else build.const(extent))
        for x in (x for e in parts if e is not None for x in walk(e) if isinstance(x, n.Load)):
            b = x.at.buffer
            if b.name != at.buffer.name and (self.aliases is None or not self.aliases.may_be_one(b.name, at.buffer.name)):
                continue
            alike = b.shape == at.buffer.shape
            if alike and (x.at.index == (one or at).index or any(map(_never_one, x.at.index, at.index))):
                continue
            if not alike or may_overlap(replace(x.at, buffer=at.buffer), at, known):
                raise refuse("KIR-B328", f"{expr_text(x)} reads what the same statement writes to '{at.buffer.name}': TileLang's threads would read and "
                             "write side by side", "a fragment that holds the value, and its copy as the next statement")

    def fits(self, shape: Sequence[int | n.Expr], what: str) -> None:
        """Raises KirError KIR-B305 for a tile of which a thread would have too much."""
        count = 1
        for d in shape:
            count *= int_value(d) or 1
        if self.threads and count > MOST_ELEMENTS * self.threads:
            raise refuse("KIR-B305", f"{what} has {count} elements for {self.threads} thread{'s' if self.threads != 1 else ''}: TileLang would unroll "
                         f"{count // self.threads} each", f"at most {MOST_ELEMENTS} a thread: more threads, or a smaller tile")

    # ---------------------------------------------------------------------------------------------------------------- regions
    def region(self, at: n.Region, whole: bool = False) -> str:
        """A region as an operand of a tile operation: the buffer, a corner (`whole` says that the other side gives the extents), or
        slices."""
        name = self.to.names[at.buffer.name]
        if not at.index or is_whole(at):
            return name
        spans = [i for i in at.index if isinstance(i, n.Span)]
        if any(i.step != 1 for i in spans):
            raise refuse("KIR-B306", f"every {spans[0].step}. element of '{at.buffer.name}' is no region of TileLang")
        if any(isinstance(i, n.Expr) and isinstance(i.type, TileType) for i in at.index):
            raise refuse("KIR-B306", f"elements of '{at.buffer.name}' at gathered places are no region of TileLang")
        if whole and len(spans) == len(at.index):
            return f"{name}[{', '.join(self.to.text(i.lo) for i in spans)}]"
        return f"{name}[{', '.join(self._slice(i) for i in at.index)}]"

    def _slice(self, i: n.Expr | n.Span) -> str:
        if isinstance(i, n.Expr):
            return self.to.text(i)
        if (between := _between(i)) is not None:
            lo, hi = promoted(*between)
            return f"{self.to.text(lo)}:{self.to.text(hi)}"
        extent = i.extent if isinstance(i.extent, n.Expr) else build.const(i.extent, _integer(i.lo))
        return f"{self.to.text(i.lo)}:{self.to.text(build.add(i.lo, build.cast(extent, _integer(i.lo))))}"

    # ----------------------------------------------------------------------------------------------------------------- stores
    def store(self, s: n.Store) -> Lines:
        """A store of a tile or a scalar."""
        if s.cache:
            raise refuse("KIR-B008", f"TileLang has no cache policy on a store ('{s.cache}')", "a copy with an eviction policy")
        if isinstance(s.value, n.Call) and s.value.fn == "reduce" and is_only_element(s.at):
            return [(self.reduction(s.value, n.Region(s.at.buffer), True), 0)]
        if isinstance(s.value, n.Binary) and s.value.a == n.Load(s.at) and isinstance(s.value.b, n.Call) and s.value.b.fn == "reduce" and (
                is_only_element(s.at) and s.mask is None):
            return [(self.reduction(s.value.b, n.Region(s.at.buffer), False), 0)]
        if not isinstance(s.at.type, TileType):
            return self._guarded(s.mask, lambda: [(self._assigned(self.to.place(s.at), s.at, s.value), 0)])
        found = self._whole(s) if s.mask is None else None
        if found is None:
            return self._elements(s)
        self.settled(s.at, (s.value,))
        return found

    def _guarded(self, mask: n.Expr | None, lines: Callable[[], Lines]) -> Lines:
        """Lines under a condition, which loads in them need not say again."""
        if mask is None:
            return lines()
        head = f"if {self.to.text(mask)}:"
        self.to.guards.append(mask)
        told = [(head, 0), *((text, depth + 1) for text, depth in lines())]
        self.to.guards.pop()
        return told

    def _assigned(self, place: str, at: n.Region, value: n.Expr) -> str:
        """`place = value`, or `place += rest` for a float sum that starts with the place."""
        if isinstance(value, n.Binary) and value.op in ("add", "sub", "mul") and dtype_of(value.type).is_float and value.a == n.Load(at):
            sign = {"add": "+=", "sub": "-=", "mul": "*="}[value.op]
            return f"{place} {sign} {self.to.text(value.b)}"
        return f"{place} = {self.to.text(value)}"

    def _whole(self, s: n.Store) -> Lines | None:
        """A store that is one operation on whole tiles."""
        value, dtype = s.value, dtype_of(s.at.type)
        if not isinstance(value.type, TileType) and not any(isinstance(x, n.Load) for x in walk(value)) and s.at.buffer.space != "global":
            return [self.filled(s.at, value)]
        match value:
            case (n.Cast(rounding="rn", x=n.Load(mask=None) as src) | (n.Load(mask=None) as src)) if _movable(src, s.at) and (
                    dtype_of(src.type) != dtype if isinstance(value, n.Cast) else src.at.buffer.space == "fragment" and not src.clip
                    and not any(isinstance(i, n.Expr) for at in (src.at, s.at) if at.buffer.space == "fragment" for i in at.index)):
                same = shape_of(src.type) == shape_of(s.at.type)
                place = self.source(src, s.at) if same else self.region(src.at)
                return [(f"T.copy({place}, {self.region(s.at, same and _has_shape(src.at))})", 0)]
            case n.Call(fn="reduce"):
                return [(self.reduction(value, s.at, True), 0)]
            case n.Call(fn="scan"):
                return [(self.scan(value, s.at), 0)]
            case n.Binary(a=n.Load(mask=None) as first, b=n.Call(fn="reduce") as call) if first.at == s.at and _MERGED.get(
                    str(dict(call.attrs).get("op"))) == value.op:
                return [(self.reduction(call, s.at, False), 0)]
            case _:
                return None

    def filled(self, at: n.Region, value: n.Expr) -> tuple[str, int]:
        """One value everywhere."""
        truth = isinstance(value, n.Cast) and isinstance(value.x, n.Const) and value.x.dtype.is_bool  # no zero of the dtype that the binding decides
        if is_zero(value) and not truth:
            return f"T.clear({self.region(at)})", 0
        return f"T.fill({self.region(at)}, {self.to.text(value)})", 0

    def reduction(self, e: n.Call, at: n.Region, clear: bool) -> str:
        """`T.reduce_sum(source, target, dim=..)`. Raises KIR-B008 for what has no such form."""
        attrs, operand = dict(e.attrs), e.args[0]
        op = str(attrs.get("op", attrs.get("combine")))
        plain = op.removesuffix("_nan") if op in ("max_nan", "min_nan") else op
        if len(e.args) != 1 or plain not in _REDUCTIONS or "combine" in attrs or not isinstance(operand, n.Expr):
            raise refuse("KIR-B008", f"TileLang has no reduction '{op}'", f"one of {', '.join(_REDUCTIONS)}")
        source = reduced_place(operand, e)
        if not (isinstance(source, n.Load) and source.mask is None and is_whole(source.at) and source.at.buffer.space in ("fragment", "shared")):
            raise refuse("KIR-B306", f"the reduced tile {expr_text(source)} is no buffer of its own")
        name = f"T.reduce_abs{op}" if isinstance(operand, n.Call) and operand.fn == "abs" else _REDUCTIONS[plain]
        options = ("" if clear else ", clear=False") + (", nan_propagate=True" if plain != op else "")
        return f"{name}({self.region(source.at)}, {self.region(at)}, dim={attrs['axis']}{options})"

    def scan(self, e: n.Call, at: n.Region) -> str:
        """`T.cumsum(source, target, dim=..)`."""
        attrs, source = dict(e.attrs), e.args[0]
        name = {"sum": "T.cumsum", "max": "T.cummax"}.get(str(attrs.get("op")))
        if self.threads and self.threads not in _SCANNED_BY:
            raise refuse("KIR-B306", f"{self.threads} threads scan a tile", "a power of two of them, from 32 to 1024")
        if name is None or len(e.args) != 1 or "combine" in attrs:
            raise refuse("KIR-B008", f"TileLang has no scan '{attrs.get('op', attrs.get('combine'))}'", "a sum or a maximum")
        if not (isinstance(source, n.Load) and source.mask is None and is_whole(source.at) and source.at.buffer.space in ("fragment", "shared")):
            raise refuse("KIR-B306", "the scanned tile is no buffer of its own")
        reverse = ", reverse=True" if attrs.get("reverse") else ""
        return f"{name}({self.region(source.at)}, {self.region(at)}, dim={attrs['axis']}{reverse})"

    # ------------------------------------------------------------------------------------------------------------ elementwise
    def _elements(self, s: n.Store) -> Lines:
        self.fits(shape_of(s.at.type), f"what is stored to '{s.at.buffer.name}'")
        axes = self.axes(shape_of(s.at.type))
        index = [v for v, _ in axes]
        try:
            value = element(s.value, index[len(index) - len(shape_of(s.value.type)):])
            mask = None if s.mask is None else element(s.mask, _aligned(index, s.mask))
            one = n.Store(element_region(s.at, index), value, mask)
            self.settled(s.at, (value, mask), one.at, axes)
        except NotElementwise as what:
            raise refuse("KIR-B306", f"'{what}' has no elements that TileLang could compute one by one",
                         "values that are computed element by element, reductions or sums along an axis") from None
        with self.loop(axes, (one,)) as (head, body):
            lines = [line for x in body for line in self._scalars(x)]
        return [(head, 0), *((text, depth + 1) for text, depth in lines)]

    def _scalars(self, s: n.Stmt) -> Lines:
        """A store of one element, or what stands under a condition."""
        if isinstance(s, n.If):
            return self._guarded(s.cond, lambda: [line for x in s.then for line in self._scalars(x)])
        assert isinstance(s, n.Store)
        return self._guarded(s.mask, lambda: [(self._assigned(self.to.place(s.at), s.at, s.value), 0)])

    def axes(self, shape: Sequence[int | n.Expr]) -> list[tuple[n.Var, int | n.Expr]]:
        """A variable for each axis, with names that nothing else has."""
        used = {*self.to.names.values(), *self.taken}
        out = []
        for k, extent in enumerate(shape):
            name = fresh(AXES[k] if k < len(AXES) else f"i{k}", used)
            used.add(name)
            out.append((n.Var(f"{AXIS}{name}", I32), extent))
        return out

    def _fresh_axes(self, axes: Sequence[tuple[n.Var, int | n.Expr]]) -> Callable[[], n.Var]:
        """A maker of further axes beside these."""
        used = {*self.to.names.values(), *self.taken, *(v.name.removeprefix(AXIS) for v, _ in axes)}

        def made() -> n.Var:
            name = fresh("at", used)
            used.add(name)
            return n.Var(f"{AXIS}{name}", I32)
        return made

    def _entered(self, axes: Iterable[tuple[n.Var, int | n.Expr]]) -> Mapping[str, str]:
        """Makes the axes known; gives the names as they were."""
        before = self.to.names
        self.to.names = {**before, **{v.name: v.name.removeprefix(AXIS) for v, _ in axes}}
        return before

    def parallel(self, axes: Sequence[tuple[n.Var, int | n.Expr]]) -> str:
        """The head of a loop over all elements."""
        names = ", ".join(v.name.removeprefix(AXIS) for v, _ in axes)
        extents = ", ".join(str(extent) if isinstance(extent, int) else self.to.text(extent) for _, extent in axes)
        return f"for {names} in T.Parallel({extents}):"

    # ----------------------------------------------------------------------------------------------------------------- copies
    def source(self, src: n.Load, to: n.Region) -> str:
        """The source of a copy. Outside of its tensor TileLang reads zeros."""
        if src.other is not None and not is_zero(src.other):
            raise refuse("KIR-B306", f"outside of '{src.at.buffer.name}' a copy reads zeros in TileLang", "else 0")
        return self.region(src.at, _has_shape(to) and shape_of(src.at.type) == shape_of(to.type))

    def target(self, s: n.Copy) -> str:
        """The target of a copy."""
        return self.region(s.dst, _has_shape(s.src.at) and shape_of(s.src.at.type) == shape_of(s.dst.type))

    def copied(self, s: n.Copy) -> str:
        """`T.copy(source, target)`."""
        known = {"coalesced_width", "eviction_policy", "disable_tma"}
        if s.via != "plain" or s.signal is not None or s.grouped:
            raise refuse("KIR-B301", f"TileLang chooses how a copy is made, not the program (via {s.via})", "a plain copy, or T.async_copy")
        if s.mask is not None or s.src.mask is not None:
            raise refuse("KIR-B306", "a copy has no mask in TileLang but the edges of the tensor", "a store where the mask holds")
        if extra := [k for k, _ in s.attrs if k not in known]:
            raise refuse("KIR-B301", f"a copy of TileLang has no option '{extra[0]}'")
        self.settled(s.dst, (s.src,))
        options = "".join(f", {k}={repr(v) if k == 'eviction_policy' else self.to.option(v)}" for k, v in s.attrs)
        if s.src.cache:
            raise refuse("KIR-B301", f"a copy of TileLang has no cache policy '{s.src.cache}'")
        return f"T.copy({self.source(s.src, s.dst)}, {self.target(s)}{options})"

    def moved(self, word: str, s: n.Copy, more: str = "") -> str:
        """A copy that its own program waits for."""
        options = dict(s.attrs)
        if s.mask is not None or s.src.mask is not None or s.src.cache or (options and (word != "T.tma_copy" or set(options) - _OF_TMA)):
            raise refuse("KIR-B301", f"{word} has no mask and no such options", "a copy without them")
        said = "".join(f", {k}={repr(v) if k == 'eviction_policy' else self.to.option(v)}" for k, v in options.items())
        return f"{word}({self.source(s.src, s.dst)}, {self.target(s)}{more}{said})"

    def pixels(self, s: n.Copy, of: Pixels) -> str:
        """`T.im2col(image, tile, row of tiles, column of tiles, taps, stride, dilation, zeros around)`, which its own program waits for."""
        if s.mask is not None or s.src.mask is not None or s.attrs or s.src.cache or s.signal is None or not (s.src.other is None or is_zero(s.src.other)):
            raise refuse("KIR-B301", "T.im2col has no mask and no options", "a copy without them")
        rows, columns = (self.to.text(e) for e in steps(s))
        barrier = f'annotations={{"barrier": {self.to.place(s.signal)}}}'
        return f"T.im2col({self.to.names[of.image.name]}, {self.region(s.dst)}, {rows}, {columns}, {of.kernel}, {of.stride}, 1, {of.pad}, {barrier})"

    @contextmanager
    def loop(self, axes: list[tuple[n.Var, int | n.Expr]], body: n.Block) -> Iterator[tuple[str, n.Block]]:
        """The head of a loop over all elements with what it does; inside, its axes have names."""
        picks = Picks(body, self._fresh_axes(axes))
        cond = picks.cond()
        before = self._entered(picks.over(axes))
        made = tuple(picks.of(s) for s in body)
        try:
            yield self.parallel(picks.over(axes)), made if cond is None else (n.If(cond, made),)
        finally:
            self.to.names = before

    def atomic(self, e: n.Call) -> Lines:
        """An atomic operation whose result nobody takes, for each element of its place."""
        at, value, *mask = e.args
        assert isinstance(at, n.Region) and isinstance(value, n.Expr)
        attrs = {k: v for k, v in e.attrs if (k, v) not in (("order", "relaxed"), ("scope", "gpu"))}
        if attrs:
            raise refuse("KIR-B008", f"TileLang has no {e.fn} with {next(iter(attrs))}={next(iter(attrs.values()))}", "a relaxed one")
        self.ordered(e)
        axes = self.axes(shape_of(at.type))
        index = [v for v, _ in axes]
        before = self._entered(axes)
        try:
            cond = element(mask[0], _aligned(index, mask[0])) if mask and isinstance(mask[0], n.Expr) else None
            one = element_region(at, index) if axes else at
            shown, place, each = said(cond, one), self.to.place(one), element(value, _aligned(index, value))
            self.settled(at, (each,), one, axes)
            self.to.guards += [cond] if cond is not None else []  # also what TileLang checks by itself
            try:
                lines = self._guarded(shown, lambda: [(f"T.{e.fn}({place}, {self.to.text(each)})", 0)])
            finally:
                del self.to.guards[len(self.to.guards) - (cond is not None):]
        except NotElementwise as what:
            raise refuse("KIR-B306", f"'{what}' has no elements that TileLang could compute one by one", "a value by elements") from None
        finally:
            self.to.names = before
        return lines if not axes else [(self.parallel(axes), 0), *((t, d + 1) for t, d in lines)]

    @staticmethod
    def ordered(e: n.Call) -> None:
        """Refuses what is compared as another dtype: TileLang's header takes 64-bit numbers for unsigned ones, and its compiler refuses that."""
        if e.fn in ("atomic_max", "atomic_min") and isinstance(e.args[0], n.Region) and e.args[0].buffer.dtype.name == "i64":
            raise refuse("KIR-B008", f"TileLang has no {e.fn} of signed 64-bit numbers", "numbers of 32 bits")

    # --------------------------------------------------------------------------------------------------------------- products
    def product(self, s: n.Mma, via: str = "auto", clear: bool = False) -> str:
        """`T.gemm(a, b, acc)`, or what leaves its products to a wait; `clear`: into an accumulator that begins at zero."""
        options = dict(s.attrs)
        policy = options.pop("policy", None)
        if s.via != via or s.pending != (via == "wgmma") or options:
            raise refuse("KIR-B301", f"TileLang chooses the matrix instruction, not the program (via {s.via})", "via auto")
        dtype = dtype_of(s.a.type)
        if dtype.name == "f32" and s.precision != "tf32":
            raise refuse("KIR-B004", f"TileLang multiplies tiles of f32 as tf32, not as {s.precision}", "precision tf32, or via fma")
        self._shared_out([int_value(d) if isinstance(d, n.Expr) else d for d in shape_of(s.acc.type)])
        a, first = self._operand(s.a)
        b, second = self._operand(s.b)
        text = f"T.{'gemm' if via == 'auto' else 'wgmma_gemm'}({a}, {b}, {self.region(s.acc)}"
        text += "".join(f", {name}=True" for name, on in (("transpose_A", first), ("transpose_B", second)) if on)
        text += f", policy=T.GemmWarpPolicy.{policy}" if policy else ""
        return text + (", clear_accum=True)" if clear else ")")

    def _shared_out(self, extents: Sequence[int | None]) -> None:
        """Refuses a product that TileLang cannot share out: each warp has a multiple of 16 rows and of 8 columns (`ComputeDefaultWarpPartition`)."""
        warps = self.threads // 32
        if warps < 2 or len(extents) != 2 or None in extents:
            return
        rows, columns = (int(d or 0) for d in extents)
        if not any(warps % m == 0 and rows % (16 * m) == 0 and columns % (8 * (warps // m)) == 0 for m in range(1, warps + 1)):
            raise refuse("KIR-B306", f"a product of {rows} x {columns} cannot be shared out to {warps} warps, each with multiples of 16 rows and 8 columns",
                         "fewer threads, or a larger tile")

    def _operand(self, e: n.Expr) -> tuple[str, bool]:
        """An operand's place, and whether it stands there transposed."""
        turned = isinstance(e, n.Call) and e.fn == "trans" and [int_value(a) for a in e.args[1:] if isinstance(a, n.Expr)] == [1, 0]
        place = e.args[0] if turned and isinstance(e, n.Call) else e
        if not isinstance(place, n.Load) or place.mask is not None or place.at.buffer.space not in ("shared", "fragment"):
            raise refuse("KIR-B306", f"the operand {expr_text(e)} of a product is no place in shared memory or a fragment")
        if len(shape_of(place.type)) != 2:
            raise refuse("KIR-B002", "TileLang multiplies matrices, not batches of them")
        return self.region(place.at), turned


def _between(i: n.Span) -> tuple[n.Expr, n.Expr] | None:
    """The two ends of a range whose extent is their difference, in one dtype."""
    extent = i.extent.x if isinstance(i.extent, n.Cast) and i.extent.rounding == "rn" else i.extent
    if isinstance(extent, n.Binary) and extent.op == "sub" and extent.b == i.lo and not is_const(i.lo, 0):
        return i.lo, extent.a
    return None


def is_wiped(s: n.Store, product: n.Stmt) -> bool:
    """Whether a store sets to zero all that a product by warpgroups, left in flight, adds to."""
    return (isinstance(product, n.Mma) and product.via == "wgmma" and product.pending and s.at == product.acc and s.mask is None and is_whole(s.at)
            and isinstance(s.value, n.Const) and not s.value.value)


def is_whole(at: n.Region) -> bool:
    """Whether a region is all of its buffer."""
    return not at.index or all(isinstance(i, n.Span) and is_const(i.lo, 0) and i.step == 1 and int_value(i.extent) is not None
                               and int_value(i.extent) == int_value(d) for i, d in zip(at.index, at.buffer.shape, strict=True))


def _has_shape(at: n.Region) -> bool:
    """Whether a region, as it is written, says its extents."""
    return is_whole(at)


def _movable(src: n.Load, to: n.Region) -> bool:
    """Whether a conversion is a copy between two places that have names. Shapes that the binding decides are held to agree."""
    one, two = shape_of(src.type), shape_of(to.type)
    known = [(int_value(a) if isinstance(a, n.Expr) else a, int_value(b) if isinstance(b, n.Expr) else b) for a, b in zip(one, two, strict=False)]
    agree = len(one) == len(two) and all(None in p or p[0] == p[1] for p in known)
    return agree and all(
        at.buffer.space in ("global", "shared", "fragment") and all(
            (isinstance(i, n.Span) and i.step == 1) or (isinstance(i, n.Expr) and not isinstance(i.type, TileType)) for i in at.index)
        for at in (src.at, to))


def _aligned(index: Sequence[n.Expr], e: n.Expr) -> list[n.Expr]:
    """The index of an operand that broadcasts."""
    shape = shape_of(e.type)
    taken = index[len(index) - len(shape):]
    return [build.const(0) if d == 1 else i for i, d in zip(taken, shape, strict=True)]


def _integer(e: n.Expr) -> DType:
    assert isinstance(e.type, DType)
    return e.type


__all__ = ["Lines", "Tiles", "is_whole"]


def said(cond: n.Expr | None, at: n.Region) -> n.Expr | None:
    """The condition of an atomic operation without what it ends with that TileLang checks anyway: that the place lies inside its tensor, axis by axis."""
    atoms = list(conjuncts(cond))
    if at.buffer.space != "global" or len(at.index) != len(at.buffer.shape):
        return cond
    last = (len(at.index), 0)
    while atoms:
        own = next(((k, 1 if isinstance(atoms[-1], n.Binary) and atoms[-1].op == "lt" else 0) for k, (i, d) in
                    enumerate(zip(at.index, at.buffer.shape, strict=True)) if isinstance(i, n.Expr) and says_bound(atoms[-1], i, d)), None)
        if own is None or own >= last:
            break
        last = own
        atoms.pop()
    out: n.Expr | None = None
    for each in atoms:
        out = each if out is None else logical_and(out, each)
    return out
