"""How large a tensor is that no host code shows: the fewest elements, of those that sizes give, at which the kernel stays inside."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, combinations_with_replacement, permutations, product

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.interp.state.result import Result
from kir.ir import nodes as n
from kir.ir.binding import Binding, expressions
from kir.ir.printer import expr_text
from kir.ir.types import DTYPES, I32
from kir.ir.visit import regions
from kir.surface.launches.alike import as_seen, parts_as_seen
from kir.surface.launches.reach import (
    LEAN,
    PLACES,
    PRIMES,
    Kept,
    cut,
    divisions,
    grid_extents,
    leaves,
    longer,
    parted,
    quotients,
    ran,
    shares,
    small_sizes,
    tiles,
)
from kir.surface.launches.reached_by import as_many_for_each, elements, least_with, multiples, powers_within, product_of_sizes, rows_of, sizes_reached_by
from kir.surface.launches.values import evaluated
from kir.surface.launches.whole import deciding

ENDLESS = 1 << 22
"""Elements of a tensor of which it is not known yet how large it is."""
SQUARES = (9, 25, 27, 49)
"""Places of a small odd window of two axes or three."""
MORE_PLACES = 6
"""What whole numbers are less than in the run that shows which tensors are looked up by them."""
MOST_PLACES = 1 << 12
"""What they are less than in one that shows how far a kernel goes at most that caps them."""
MOST_FACTORS = 4
UNSTATED = "?"


def open_shapes(binding: Binding) -> list[str]:
    """The tensors whose shape nobody states."""
    return [name for name, t in binding.tensors.items() if "?" in t.shape]


@dataclass(frozen=True)
class _Shape:
    """A shape that may be proposed, and how many elements it has at each of the sizes that are tried. One that is `exact` must have as many as
    are reached."""

    of: tuple[str | int, ...]
    elements: tuple[int, ...]
    exact: bool = False


class _Runs:
    """Runs of a program, each made once."""

    def __init__(self, program: n.Program) -> None:
        self.program = program
        self.made: dict[tuple[tuple[tuple[str, int], ...], int], Result | None] = {}
        self.kept: Kept = {}

    def at(self, sizes: Mapping[str, int], places: int = PLACES) -> Result | None:
        """The run at these sizes; None where it cannot be made."""
        key = tuple(sorted(sizes.items())), places
        if key not in self.made:
            self.made[key] = ran(self.program, sizes, places, kept=self.kept)
        return self.made[key]


def with_shapes(binding: Binding, made: Callable[[Binding], n.Program], guessed: Collection[str] = ()) -> Binding:
    """The binding with a shape for each tensor that has none: the smallest, of those that its sizes give, in which runs at small sizes stay. Where tiles
    reach beyond every one of them, or beyond a shape that is stated, a fact says that a size is a multiple of its tile; a tensor that is looked up by
    numbers of another is a table with a length of its own; one whose first axes alone are stated gets another. One that no shape fits keeps its
    question mark. Of a tensor that is `guessed` only the last axes are stated: where the kernel leaves these, it is taken for one that has no shape.
    `made` gives the program under a binding."""
    names = open_shapes(binding)
    binding = binding.changed(facts=[*binding.facts, *dict.fromkeys(quotients(binding))])
    try:
        program = made(shaped(binding, dict.fromkeys(names, (ENDLESS,))))
    except KirError:
        return binding
    runs = _Runs(program)
    best = _whole_parts(binding, runs, names) or _fitted(binding, runs, names)
    if best.ran and (short := [name for name in best.wrong if name in guessed]):
        bare = binding
        for size in (size for name, _, size in _lone(binding) if name in short):  # of which nothing would speak then
            bare = without(bare, size)
        measured = with_shapes(shaped(bare, dict.fromkeys(short, (UNSTATED,))), made)
        if not open_shapes(measured):
            return measured
    if best.ran and best.amiss != (0, 0):
        tiled = binding.changed(facts=[*binding.facts, *divisions(binding, program)])
        other = _fitted(tiled, runs, names)
        if other.amiss < best.amiss:
            best = other
            for fact in [f for f in tiled.facts if f not in binding.facts]:
                kept = [f for f in best.binding.facts if f != fact and f in tiled.facts]
                other, ragged = _fitted(binding.changed(facts=kept), runs, names), _rest_of(fact, kept)
                if other.amiss <= best.amiss and other.parts <= best.parts and (
                        not ragged or _fitted(binding.changed(facts=[*kept, ragged]), runs, names).amiss <= best.amiss):
                    best = other
    found = best.binding
    for name in () if open_shapes(found) else best.wrong:
        found = _with_axis(found, made, name)
    return found


def _rest_of(fact: str, kept: Sequence[str]) -> str:
    """That a size is no multiple of a number, but of a part of it that `kept` facts say, where `fact` is that it is one; "" where they say none. A run at
    small sizes may hold it by chance."""
    if (m := re.fullmatch(r"(\w+) % (\d+) == 0", fact)) is None:
        return ""
    parts = [int(k[1]) for f in kept if (k := re.fullmatch(rf"{m[1]} % (\d+) == 0", f)) and int(m[2]) % int(k[1]) == 0]
    return f"{m[1]} % {m[2]} == {max(parts)}" if parts else ""


def hazard(binding: Binding, made: Callable[[Binding], n.Program]) -> str:
    """What goes wrong in a run at small sizes, whatever the tensors' shapes are, and at which sizes; "" where nothing does."""
    try:
        program = made(shaped(binding, dict.fromkeys(open_shapes(binding), (ENDLESS,))))
    except KirError:
        return ""
    for sizes in (small_sizes(binding, primes) for primes in PRIMES):
        found = ran(program, sizes, mode="check") if sizes is not None else None
        first = next((f for f in found.findings if f.severity == "error" and f.kind not in ("bounds", "poison", "undefined")), None) if found else None
        if first is not None and sizes is not None:
            at = next((f" (line {a.origin.line})" for a in first.accesses if a.origin is not None), "")
            return f"{', '.join(f'{k} = {v}' for k, v in sizes.items()) or 'its only size'}: {first.message}{at}"
    return ""


def _whole_parts(binding: Binding, runs: _Runs, names: Sequence[str]) -> _Fitted | None:
    """Shapes where each size that the kernel divides by another one, or by a number, is a multiple of that, which is a fact where the kernel would leave them
    else; None where it divides none so, or where no shape fits then either. At other sizes a quotient is zero, and what is reached says nothing."""
    pairs = (*parted(runs.program, binding.sizes), *cut(runs.program, binding.sizes)) if names else ()
    wanted = [fact for a, b in pairs if (fact := f"{a} % {b} == 0") not in binding.facts]
    best = _fitted(binding.changed(facts=[*binding.facts, *wanted]), runs, names) if wanted else None
    if best is None or best.amiss != (0, 0):
        return None
    for fact in wanted:
        loose = best.binding.changed(facts=[f for f in best.binding.facts if f != fact])
        larger = [f for f in (*wanted, *longer(runs.program, binding.sizes)) if f != fact]
        tried = [sizes for primes in PRIMES if (sizes := small_sizes(loose.changed(facts=[*loose.facts, *larger]), primes)) is not None]
        ends = [found.ends if (found := runs.at(sizes)) is not None else {} for sizes in tried]
        reached = [(end.get(name, 0), have, binding.tensors[name].role == "out") for name in names
                   for end, have in zip(ends, elements(loose, name, tried), strict=True)]
        if tried and all(0 < end <= have and (end == have or not written) for end, have, written in reached) and (  # all of what it makes is made
                _fitted(binding.changed(facts=[f for f in (*loose.facts, *larger) if f in best.binding.facts]), runs, names).amiss <= best.amiss):
            best = replace(best, binding=loose)
    return best


def _with_axis(binding: Binding, made: Callable[[Binding], n.Program], name: str) -> Binding:
    """The binding with another axis for a tensor that a kernel leaves: as many elements as it reaches in each of its rows, or a size of rows (of one axis and
    that the product, since the axis that is stated may be either). Unchanged where it is neither."""
    tried = [sizes for primes in PRIMES if (sizes := small_sizes(binding, primes)) is not None]
    try:
        program = made(shaped(binding, {name: (ENDLESS,), **dict.fromkeys(open_shapes(binding), (ENDLESS,))}))
    except KirError:
        return binding
    runs = [found for sizes in tried if (found := ran(program, sizes)) is not None]
    own = next((c for c in _candidates(binding, tried) if c.of == tuple(binding.tensors[name].shape)), None)
    if own is None or len(runs) < len(PRIMES) or any(leaves(found, name, binding) for found in runs):
        return binding
    times = [divmod(found.ends.get(name, 0), have) for found, have in zip(runs, own.elements)]
    if any(rest or k < 2 for k, rest in times):
        return binding
    if len(set(times)) == 1:
        return shaped(binding, {name: (*own.of, times[0][0])})
    rows = next((x for x in binding.sizes if [sizes[x] for sizes in tried] == [k for k, _ in times]), None)
    return shaped(binding, {name: (" * ".join((rows, str(own.of[0]))),) if len(own.of) == 1 else (rows, *own.of)}) if rows is not None else binding


def shaped(binding: Binding, shapes: Mapping[str, Sequence[str | int]]) -> Binding:
    """The binding with these shapes of tensors."""
    return binding.changed(tensors={k: replace(t, shape=list(shapes[k])) if k in shapes else t for k, t in binding.tensors.items()})


@dataclass(frozen=True)
class _Fitted:
    """A binding with shapes, the tensors that none fits or whose shape the kernel leaves, and how many have more elements than are reached."""

    binding: Binding
    wrong: tuple[str, ...]
    loose: int = 0
    ran: bool = True
    """Whether the program could be run at all."""

    @property
    def amiss(self) -> tuple[int, int]:
        """How far it is from certain."""
        return (len(self.wrong), self.loose) if self.ran else (len(self.binding.tensors) + 1, 0)

    @property
    def parts(self) -> int:
        """How many parts of sizes its shapes are made of: of two that fit, more of them fit by chance."""
        return sum(str(d).count("//") for t in self.binding.tensors.values() for d in t.shape)


def _fitted(binding: Binding, made: _Runs, names: Sequence[str]) -> _Fitted:
    """The binding with shapes for those tensors that one fits, by how far the program of `made` reaches where they are endless."""
    program = made.program
    tried: list[Mapping[str, int]] = []
    runs: list[Result] = []
    touched = {r.buffer.name for k in program.kernels for r in regions(k)}
    asked = [name for name in names if touched & {name, f"{name}_flat"}]
    for turn in ((PRIMES[0],), (PRIMES[1], LEAN)):
        best: tuple[Mapping[str, int], Result] | None = None
        beyond_tiles = longer(program, binding.sizes) if tried else ()
        for order, primes in product((1, -1), turn):  # other sizes where these reach nothing, as padding that is wider than what is padded
            sizes = run = None
            for beyond in dict.fromkeys((beyond_tiles, ())) if order == 1 or best is not None else ():  # more than one tile, where such a run can be made
                sizes = small_sizes(binding.changed(sizes=binding.sizes[::order], facts=[*binding.facts, *beyond]), primes)
                run = made.at(sizes) if sizes is not None else None
                if run is not None:
                    break
            if sizes is not None and run is not None and (best is None or _reached(run, asked) > _reached(best[1], asked)):
                best = sizes, run
            if best is not None and _reached(best[1], asked) == len(asked):
                break
        if best is None:
            return _Fitted(binding, tuple(names), ran=False)
        tried.append(best[0])
        runs.append(best[1])
    places = any(t.role != "out" and (t.dtype not in DTYPES or DTYPES[t.dtype].is_integer) for t in binding.tensors.values())
    further = [found for sizes in tried if (found := made.at(sizes, MORE_PLACES)) is not None] if places and names else []
    if len(further) == len(runs) and any(more.ends.get(name, 0) < found.ends.get(name, 0) for name in names for found, more in zip(runs, further)):
        rising = [found for sizes in tried if (found := made.at(sizes, -MORE_PLACES)) is not None]  # numbers that say where something begins and ends
        further = rising if sum(_reached(found, names) for found in rising) > sum(_reached(found, names) for found in further) else further
    most = [found for sizes in tried if (found := made.at(sizes, MOST_PLACES)) is not None] if further else []  # as far as whatever they hold
    taken = [*(f"{x} // {by}" for x, by in (*tiles(program, binding.sizes), *parted(program, binding.sizes))), *shares(program, binding.sizes)]
    candidates = list(_candidates(binding, tried, [*dict.fromkeys((*taken, *powers_within(binding)))]))
    shapes: dict[str, Sequence[str | int]] = {}
    loose = 0
    known, facts = list(binding.sizes), list(binding.facts)
    alike: dict[tuple[tuple[int, ...], ...], Sequence[str | int]] = {}
    for name in names:
        if any(leaves(found, name, binding) for found in runs):
            continue
        ends = tuple(found.ends.get(name, 0) for found in runs)
        more = tuple(found.ends.get(name, 0) for found in further) if len(further) == len(runs) else ends
        furthest = tuple(found.ends.get(name, 0) for found in most) if len(most) == len(runs) else ends
        told = rows_of(program, name, binding.sizes) if not ends == more == furthest else None
        if not ends == more == furthest and (ends, furthest) in alike:  # looked up at the same places
            shapes[name] = alike[ends, furthest]
        elif more != ends and (table := _table(binding, name, ends, more, candidates)) is not None:
            length, shapes[name] = table
            alike[ends, furthest] = shapes[name]
            known.append(str(shapes[name][0]))
            facts.append(f"{shapes[name][0]} >= {length}")
        elif told is not None and not told[0]:
            shapes[name] = alike[ends, furthest] = (_own_length(binding, name, "rows"), told[1])
            known.append(str(shapes[name][0]))
            facts.append(f"{shapes[name][0]} >= {PLACES}")
        elif more != ends and any(a == b for a, b in zip(ends, more)) and (exact := next((c.of for c in candidates if c.elements == ends), None)):
            shapes[name] = exact  # some numbers are larger than any place there
        elif more != ends and any(b > a for a, b in zip(ends, more)):  # numbers of another tensor say how much of it is read
            if (rows := next((c.of for c in candidates if c.elements == furthest), None) or _of_whole_rows(binding, candidates, ends, more) or told):
                shapes[name] = rows
                loose += 1
        elif len(set(ends)) == 1 and ends[0] > 1 and not any(c.elements == ends for c in candidates):
            shapes[name] = ends[:1]  # as far whatever the sizes are
        elif (shape := _agreed(binding, made, candidates, ends, name) or _smallest(
                candidates, ends, {x: tuple(sizes[x] for sizes in tried) for x in binding.sizes},
                sizes_reached_by(program, name, binding.sizes), multiples(program, binding.sizes))) is not None:
            shapes[name] = shape.of
            numbers = all(isinstance(d, int) for d in shape.of) and shape.of != (1,) and not shape.exact
            loose += shape.elements != ends or not all(ends) or numbers  # of what no run reaches nothing is known, and a number may be chance
    stated = [name for name in binding.tensors if name not in names]
    left = [name for name in stated if any(leaves(found, name, binding) for found in runs)]
    loose += sum(binding.tensors[name].role == "out" and any(
        found.ends.get(name, 0) < have for found, have in zip(runs, elements(binding, name, tried))) for name in stated)
    return _Fitted(shaped(binding.changed(sizes=known, facts=facts), shapes), (*(name for name in names if name not in shapes), *left), loose)


def _reached(run: Result, names: Collection[str]) -> int:
    """How many of these tensors a run reached."""
    return sum(run.ends.get(name, 0) > 0 for name in names)


def _agreed(binding: Binding, made: _Runs, candidates: Sequence[_Shape], ends: Sequence[int], name: str) -> _Shape | None:
    """Of several shapes that have as many elements as are reached, the first that has so in a run at other sizes too; None where there are no several."""
    several = [c for c in candidates if c.elements == tuple(ends) and any(ends)]
    if len({frozenset(re.findall(r"[A-Za-z_]\w*", str(c.of))) for c in several}) < 2:
        return None
    sizes = small_sizes(binding.changed(sizes=binding.sizes[::-1]), PRIMES[1])
    found = made.at(sizes) if sizes is not None else None
    if found is None or sizes is None:
        return None
    return next((c for c in several if _counted(c.of, binding, sizes) == found.ends.get(name, 0)), None)


def _counted(of: Sequence[str | int], binding: Binding, sizes: Mapping[str, int]) -> int | None:
    """How many elements a shape has at some sizes; None where that is not known."""
    try:
        parts = list(expressions({str(k): d for k, d in enumerate(of)}, {x: n.Var(x, I32) for x in binding.sizes}, "extent").values())
    except KirError:
        return None
    counts = [evaluated(e, sizes) for e in parts]
    return None if None in counts else math.prod(c for c in counts if c is not None)


def _smallest(candidates: Sequence[_Shape], ends: Sequence[int], sizes: Mapping[str, Sequence[int]], own: Collection[str],
              often: Collection[int]) -> _Shape | None:
    """The shape of as many elements as are reached, else a product of sizes that has, or a number times one, else the smallest that has them all: of those
    that are made of sizes which places in the tensor depend on (`own`), else of all."""
    apart = sizes.keys() - own
    candidates = sorted(candidates, key=lambda c: not apart.isdisjoint(re.findall(r"[A-Za-z_]\w*", str(c.of))))
    same = next((c for c in candidates if c.elements == tuple(ends)), None) if any(ends) else None
    if same is None and len(set(ends)) == 1 < len(ends) and ends[0] > 1 and all(len(set(sizes[x])) > 1 for x in own):
        return _Shape((ends[0],), tuple(ends), not own)  # as many, whatever the sizes are
    product_of = product_of_sizes(tuple(ends), tuple((x, tuple(v)) for x, v in sizes.items())) if same is None and min(ends, default=0) > 1 else None
    if product_of is not None:
        return _Shape((" * ".join(product_of),), tuple(ends))
    if same is None and (each := as_many_for_each(tuple(ends), {x: tuple(sizes[x]) for x in sorted(own)})) is not None:
        return _Shape(each, tuple(ends))
    return same or least_with([c for c in candidates if not c.exact], ends, often, lambda of: _Shape(of, tuple(ends)))


def _of_whole_rows(binding: Binding, candidates: Sequence[_Shape], ends: Sequence[int], more: Sequence[int]) -> Sequence[str | int] | None:
    """The shape of a tensor of which numbers of another one say how many rows are read, as a cache up to a length: rows of as many elements as all that is
    reached is a multiple of (of those that the kernel has a name for the most), as many of them as the smallest product of sizes that has them. None where
    no row is that long."""
    row = math.gcd(*ends, *more)
    row = max((v for v in binding.metas.values() if isinstance(v, int) and v > 1 and row % v == 0), default=row)
    least = [a // row for a in ends] if row else []  # larger numbers may be more than there are
    fits = next((c for c in candidates if not c.exact and c.of != (1,) and all(have >= end for have, end in zip(c.elements, least))), None) if row > 1 else None
    return None if fits is None or not all(isinstance(d, str) for d in fits.of) else (*fits.of, row)


def _table(binding: Binding, name: str, ends: Sequence[int], more: Sequence[int], candidates: Sequence[_Shape]) -> tuple[int, Sequence[str | int]] | None:
    """The shape of a tensor that is looked up by numbers of another: a length of its own, and rows as far apart as one more in a number reaches; with the
    least length. None where no shape of a row fits."""
    rows = tuple((b - a) // (MORE_PLACES - PLACES) for a, b in zip(ends, more))
    exact = not any(r <= 0 or (b - a) % (MORE_PLACES - PLACES) for r, a, b in zip(rows, ends, more))
    row = next((c for c in candidates if c.elements == rows), None) if exact else None
    lengths = {-(-end // r) for end, r in zip(ends, rows)} if row is not None else set()
    if row is None or len(lengths) != 1:
        whole = math.gcd(*ends, *more)  # as far at all sizes: where numbers alone say how far, in rows of as many elements as all is a multiple of
        if len(ends) < 2 or len(set(ends)) > 1 or not 0 < whole < max(more):
            return None
        return max(PLACES, max(more) // whole), (_own_length(binding, name, "rows" if whole > 1 else "elements"), *((whole,) if whole > 1 else ()))
    own = _own_length(binding, name, "elements" if row.of == (1,) else "rows")
    return max(PLACES, lengths.pop()), (own, *(row.of if row.of != (1,) else ()))


def _own_length(binding: Binding, name: str, of: str) -> str:
    """A size of its own for a tensor."""
    own = f"{name}_{of}"
    while own in binding.sizes or own in binding.tensors:
        own += "_"
    return own


def _candidates(binding: Binding, tried: Sequence[Mapping[str, int]], parts: Sequence[str] = ()) -> Iterator[_Shape]:
    """Shapes that may be proposed, the smallest first: those of other tensors, one element, products of sizes; and, where they are exactly as large as what is
    reached, products of these, what scalars are computed as, extents of the grid and `parts` of sizes, such products times a small number, and a size and one
    more."""
    held = {x: n.Var(x, I32) for x in binding.sizes}
    out: list[_Shape] = []

    def offer(of: Sequence[str | int], exact: bool = False) -> None:
        counts = [_counted(of, binding, sizes) for sizes in tried]
        if None not in counts:
            out.append(_Shape(tuple(of), tuple(c for c in counts if c is not None), exact))

    offer((1,))
    for t in binding.tensors.values():
        if "?" not in t.shape and t.strides is None and not all(isinstance(d, int) for d in t.shape):
            offer(t.shape)
    extents = [expr_text(g) for g in grid_extents(binding) if not isinstance(g, (n.Const, n.Var))]
    scalars = [v for v in binding.scalars.values() if isinstance(v, str) and v not in held]
    single = [*binding.sizes, *dict.fromkeys((*scalars, *extents, *parts))]
    for k in range(1, MOST_FACTORS + 1 if len(single) <= 7 else MOST_FACTORS):
        for each in combinations(single, k):
            offer((" * ".join(x if k == 1 or re.fullmatch(r"\w+(\(.*\))?", x) else f"({x})" for x in each),), not set(each) <= set(binding.sizes))
    for k in range(2, MOST_FACTORS + 1 if len(binding.sizes) <= 5 else MOST_FACTORS):
        for each in combinations_with_replacement(binding.sizes, k):
            if len({*each}) < k:
                offer((" * ".join(each),), True)  # as high as wide
    for x in scalars:
        for window in SQUARES:  # as many places of a window for each of what is counted
            offer((f"({x})", window), True)
    lengths = [d for t in binding.tensors.values() for d in t.shape if isinstance(d, int) and d > 1]
    for x in binding.sizes:
        offer((f"{x} + 1",), True)
    for x, y in combinations(binding.sizes, 2) if len(binding.sizes) <= MOST_FACTORS else ():
        for both in (f"{x} + {y}", f"{x} + {y} * 2", f"{y} + {x} * 2"):  # with what stands on both sides
            offer((both,), True)
    for shape in [c.of for c in out if not c.exact]:
        for factor in dict.fromkeys((2, 3, *(1 << k for k in range(2, 11)), *SQUARES, *lengths)):
            offer((*shape, factor) if shape != (1,) else (factor,), True)
    for extent in extents:
        for factor in (3, *(1 << k for k in range(1, 6))):  # as many for each CTA: one of each warp, or so
            offer((extent, factor), True)
    def of_parts(c: _Shape) -> bool:
        return any(e in str(d) for d in c.of for e in (*extents, *parts))
    yield from sorted(out, key=lambda c: (max(c.elements, default=0), any(isinstance(d, int) for d in c.of), of_parts(c)))


def with_ties(binding: Binding, made: Callable[[Binding], n.Program], examples: Mapping[str, int] | None = None) -> Binding:
    """The binding without sizes that only extents speak of, of one tensor or of several that the host code makes alike, where the kernel says what they
    are (see `_tied`); what is alike is tied for each tensor by itself, and only if that ties all. `examples` are the sizes in
    a call that was seen: what they contradict is not so."""
    apart = _apart(binding)
    tied = _tied(apart, made, examples or {}) if apart is not binding else binding
    if apart is binding or not set(tied.sizes) <= set(binding.sizes):
        tied = _tied(binding, made, examples or {})
    return tied


def _apart(binding: Binding) -> Binding:
    """The binding with a size of its own for each extent of a size that several tensors have and nothing else mentions."""
    said = _said(binding)
    extents = [str(d) for t in binding.tensors.values() for d in t.shape]
    now = binding
    for size in (x for x in binding.sizes if not re.search(rf"\b{x}\b", said) and extents.count(x) > 1
                 and sum(len(re.findall(rf"\b{x}\b", d)) for d in extents) == extents.count(x)):
        names = [name for name, t in binding.tensors.items() if size in map(str, t.shape)]
        own = {name: f"{size}_{name}" for name in names}
        if any(x in binding.sizes for x in own.values()):
            continue
        now = without(now, size)
        now = shaped(now.changed(sizes=[*now.sizes, *own.values()], facts=[*now.facts, *(f"{x} >= 1" for x in own.values())]),
                      {name: [own[name] if str(d) == size else d for d in now.tensors[name].shape] for name in names})
    return now


def with_places(binding: Binding, made: Callable[[Binding], n.Program]) -> Binding:
    """The binding with room for the places that runs draw: the first axis of a tensor that is looked up by numbers of another, and of which nothing else
    speaks, is as long as they are large. What a caller's numbers are is his to know, and one row alone would leave them none."""
    said = _said(binding)
    extents = [(name, axis, str(d)) for name, t in binding.tensors.items() for axis, d in enumerate(t.shape)]
    free = [x for x in binding.sizes if not re.search(rf"\b{x}\b", said) and {axis for _, axis, d in extents if re.search(rf"\b{x}\b", d)} == {0}
            and all(d == x for _, _, d in extents if re.search(rf"\b{x}\b", d))]
    sizes = small_sizes(binding) if free and any(t.dtype in DTYPES and DTYPES[t.dtype].is_integer for t in binding.tensors.values()) else None
    if sizes is None:
        return binding
    try:
        program = made(binding)
    except KirError:
        return binding
    more = []
    for x in free:
        names = [name for name, _, d in extents if d == x]

        left = {(rows, places): found is None or any(leaves(found, name, binding) for name in names)
                for rows, places in ((1, PLACES), (1, MORE_PLACES), (PLACES, PLACES), (MORE_PLACES, MORE_PLACES))
                for found in [ran(program, {**sizes, x: rows}, places)]}
        if (left[1, PLACES] or left[1, MORE_PLACES]) and not (left[PLACES, PLACES] or left[MORE_PLACES, MORE_PLACES]):
            more.append(x)
    return binding.changed(facts=[*(f for f in binding.facts if f not in {f"{x} >= 1" for x in more}), *(f"{x} >= {PLACES}" for x in more)])


def _said(binding: Binding) -> str:
    """What of a binding speaks of sizes beside the extents of its tensors."""
    facts = [f for f in binding.facts if not re.fullmatch(r"\w+ >= 1", f)]
    return " ".join(map(str, (*binding.grid, *binding.scalars.values(), *facts, *(s for t in binding.tensors.values() for s in t.strides or ()))))


def _tied(binding: Binding, made: Callable[[Binding], n.Program], examples: Mapping[str, int]) -> Binding:
    """The binding without sizes that are an extent of one tensor and nothing else, since the host code never compares two tensors: each such extent
    is what gives the tensor as many elements as are reached, else the smallest of the other sizes at which runs at small sizes stay inside. One at which
    none does stays a size, and so does each where data may be places (an index into a table reaches as far as its values do, which no small run shows)."""
    binding = _as_reached(binding, made, examples)
    places = _places(binding, made)
    for name, axis, size in () if places else _lone(binding):
        tried = [sizes for primes in PRIMES if (sizes := small_sizes(binding, primes)) is not None]
        alone = {each for _, _, each in _lone(binding)}
        others = sorted((x for x in binding.sizes if x not in alone), key=lambda x: max((sizes[x] for sizes in tried), default=0))
        if axis == 0:
            rows = _rows(without(binding, size), made, name, tried)
            left = {x: [sizes[x] - reached for sizes, reached in zip(tried, rows or ())] for x in others}
            fit = [x for x in others if left[x] and min(left[x]) >= 0]
            others = ([x for x in fit if len({*left[x]}) == 1] or fit)[:1]  # as many, or always so many more; else the smallest that is no less
        for other in (x for x in others if as_seen(examples, [size], [x])):
            shape = [other if k == axis else d for k, d in enumerate(binding.tensors[name].shape)]
            now = shaped(without(binding, size), {name: shape})
            try:
                runs = [ran(made(now), sizes) for sizes in tried]
            except KirError:
                break
            if None in runs or not runs:
                break
            if all(found is not None and found.ends.get(name, 0) and not leaves(found, name, now) for found in runs):  # what is not reached shows nothing
                binding = now
                break
    return binding


def _places(binding: Binding, made: Callable[[Binding], n.Program]) -> bool:
    """Whether whole numbers that a tensor holds may decide where a kernel reads or writes."""
    whole = {name for name, t in binding.tensors.items() if t.dtype not in DTYPES or DTYPES[t.dtype].is_integer}
    try:
        return bool(whole) and not whole.isdisjoint(deciding(made(binding)))
    except KirError:
        return True


def _as_reached(binding: Binding, made: Callable[[Binding], n.Program], examples: Mapping[str, int]) -> Binding:
    """The binding with extents that nothing else mentions as what gives the tensor as many elements as are reached, where one axis of it is such, or all."""
    lone: dict[str, list[int]] = {}
    for name, axis, _ in _lone(binding):
        lone.setdefault(name, []).append(axis)
    names = [name for name, axes in lone.items() if binding.tensors[name].strides is None and len(axes) in (1, 2, len(binding.tensors[name].shape))]
    bare = binding
    for size in (size for name, _, size in _lone(binding) if name in names):
        bare = without(bare, size)
    tried = [sizes for primes in PRIMES if (sizes := small_sizes(bare, primes)) is not None]
    if not names or len(tried) < len(PRIMES):
        return binding
    try:
        program = made(shaped(bare, dict.fromkeys(names, (ENDLESS,))))
    except KirError:
        return binding
    runs = [ran(program, sizes) for sizes in tried]
    if runs[0] is not None and runs[-1] is None and (lean := small_sizes(bare, LEAN)) is not None:  # too large a run
        tried[-1], runs[-1] = lean, ran(program, lean)
    further = [ran(program, sizes, MORE_PLACES) for sizes in tried]
    parts = [*powers_within(bare), *parts_as_seen(examples, bare.sizes, [size for _, _, size in _lone(binding)])]
    candidates = list(_candidates(shaped(bare, dict.fromkeys(names, (UNSTATED,))), tried, parts))
    for name in names:
        ends = [0 if found is None or leaves(found, name, bare) else found.ends.get(name, 0) for found in runs]
        if 0 in ends or ends != [0 if found is None else found.ends.get(name, 0) for found in further]:
            continue
        (axis, *more), shape = lone[name], binding.tensors[name].shape
        if len(more) == 1 and len(shape) > 2:
            found = _two_axes(binding, bare, name, [axis, *more], ends, tried)
        elif not more and len(shape) > 1:
            rows = [(-(-end // each), 0) if each and axis == 0 else divmod(end, each) if each else (0, 1)
                    for end, each in zip(ends, elements(binding, name, tried, axis))]  # of the last row perhaps not all
            one = next((c for c in candidates if len(c.of) == 1 and [(k, 0) for k in c.elements] == rows and as_seen(examples, [shape[axis]], c.of)), None)
            found = None if one is None else [*shape[:axis], *one.of, *shape[axis + 1:]]
        else:
            found = next((list(c.of) for c in candidates if list(c.elements) == ends and as_seen(examples, shape, c.of)), None)
            found = [*{*ends}] if found is None and {*ends} == {examples.get(str(shape[0]))} and len(shape) == 1 else found  # one number, in the call too
        if found is not None:
            for axis in lone[name]:
                binding = without(binding, str(shape[axis]))
            binding = shaped(binding, {name: found})
    return binding


def _two_axes(binding: Binding, bare: Binding, name: str, axes: Sequence[int], ends: Sequence[int],
              tried: Sequence[Mapping[str, int]]) -> list[str | int] | None:
    """A shape with two sizes of other tensors for two extents that nothing else mentions, which make it as large as it is reached: in the order, and at the
    axes, that they have in another tensor where that is so. None where no two do."""
    shape = binding.tensors[name].shape
    rest = elements(shaped(bare, {name: [1 if k in axes else d for k, d in enumerate(shape)]}), name, tried)
    pairs = [(a, b) for a, b in permutations(bare.sizes, 2)
             if all(each and sizes[a] * sizes[b] * each == end for sizes, each, end in zip(tried, rest, ends, strict=True))]
    others = [list(map(str, t.shape)) for other, t in binding.tensors.items() if other != name]
    pairs.sort(key=lambda p: not any(len(o) == len(shape) and [o[k] for k in axes] == list(p) for o in others))
    return None if not pairs else [pairs[0][list(axes).index(k)] if k in axes else d for k, d in enumerate(shape)]


def without(binding: Binding, size: str) -> Binding:
    """The binding without a size, and without the facts on it."""
    return binding.changed(sizes=[x for x in binding.sizes if x != size], facts=[f for f in binding.facts if not re.search(rf"\b{size}\b", f)])


def _rows(binding: Binding, made: Callable[[Binding], n.Program], name: str, tried: Sequence[Mapping[str, int]]) -> list[int] | None:
    """How many rows of a tensor are reached at each of these sizes; None where that cannot be said."""
    t = binding.tensors[name]
    held = {x: n.Var(x, I32) for x in binding.sizes}
    parts = list(expressions({str(k): d for k, d in enumerate(t.shape[1:])}, held, "extent").values())
    lengths = [math.prod(evaluated(e, sizes) or 1 for e in parts) for sizes in tried]
    if t.strides is not None or not lengths:
        return None
    try:
        program = made(shaped(binding, {name: [ENDLESS // max(lengths), *t.shape[1:]]}))
    except KirError:
        return None
    runs = [ran(program, sizes) for sizes in tried]
    if any(found is None or leaves(found, name, binding) for found in runs):
        return None
    return [-(-found.ends.get(name, 0) // length) for found, length in zip(runs, lengths) if found is not None]


def _lone(binding: Binding) -> list[tuple[str, int, str]]:
    """Extents that a size stands for and nothing else mentions: tensor, axis, size."""
    extents = [(name, axis, str(d)) for name, t in binding.tensors.items() for axis, d in enumerate(t.shape)]
    words = f"{_said(binding)} {' '.join(d for _, _, d in extents)}"
    return [(name, axis, d) for name, axis, d in extents if d in binding.sizes and len(re.findall(rf"\b{d}\b", words)) == 1]
