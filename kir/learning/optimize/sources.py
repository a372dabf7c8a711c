"""Where plans come from: stored pipelines with their spaces, stored lineages taken to other kernels, single passes."""
from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.build import const, int_value, polynomial
from kir.ir.types import F32, I32, DType
from kir.ir.visit import regions, statements, substitute, walk
from kir.learning.cards.card import Card
from kir.learning.cards.library import library
from kir.learning.cards.use import applications
from kir.learning.optimize.forms.apart import apart, by_rows, masked
from kir.learning.optimize.lift import FAULTS
from kir.learning.optimize.plan import Plan, Setting
from kir.learning.tune.space import Point, Space, Value, shipped_spaces
from kir.lineage.records.folder import Folder
from kir.lineage.records.record import Lineage
from kir.problem import load_problem
from kir.rewrite import Pipeline, Step, pass_class, passes, sites
from kir.rewrite.anchor import anchor_text
from kir.rewrite.edit import places
from kir.rewrite.residue import NOTHING

THREADS = (256, 512, 128, 1024)
"""Threads of a CTA that are tried where no row says how much they have to do."""
A_THREAD = (16, 32, 64, 8)
"""Elements of a row that a thread holds, as they are tried: two and four vectors of 16 bytes were the fastest for 1024 to 8192 of 16 bits on an H200."""
LONGEST_ROW = 65536
"""Elements of a row that registers of a CTA may hold."""
DIVISORS = (16, 8, 4, 2)
"""What sizes may be promised to be multiples of."""
ALIGN = 16
"""Bytes that tensors are aligned to where a plan asks for wide accesses."""


@dataclass(frozen=True)
class PipelineSource:
    """Stored pipelines over a problem's naive program, their holes filled by their spaces."""

    spaces: tuple[Space, ...] = field(default_factory=shipped_spaces)
    name: str = "pipeline"

    def plans(self, program: n.Program, setting: Setting) -> Iterator[Plan]:
        """Of each pipeline of the surface the first point that its space allows, then points that differ from it in one parameter, then the rest."""
        return _in_turns(self.streams(program, setting))

    def streams(self, program: n.Program, setting: Setting) -> Iterator[tuple[str, str, Iterator[Plan]]]:
        """A stream for each pipeline."""
        yield from ((s.name, _operator(s.home), self._of(s, setting)) for s in self.spaces if s.kind == "pipeline" and setting.surface in ("", s.surface))

    def _of(self, space: Space, setting: Setting) -> Iterator[Plan]:
        given = {k: v for k, v in setting.given.items() if k in space.given or k in setting.shape.sizes}
        for point in by_distance(space):
            try:
                values = space.values(point, given)
                if not space.refusal(values):
                    yield Plan(f"pipeline {space.name}", Pipeline.parse(space.filled(values), str(space.file)).steps, _first_comment(space), point=point,
                               family=space.name, surface=space.surface, facts=space.facts, align=space.align, home=_naive(space.home), promises="home")
            except KirError:
                continue  # a hole that this setting does not fill, or a step that a point makes no sense of


def _in_turns(streams: Iterator[tuple[str, str, Iterator[Plan]]]) -> Iterator[Plan]:
    """The first plan of each stream, then the second of each, and so on."""
    for row in itertools.zip_longest(*(plans for _, _, plans in streams)):
        yield from (plan for plan in row if plan is not None)


def by_distance(space: Space) -> list[Point]:
    """Points of a space: the first values, then what differs from them in one parameter, in two, and so on; among these what differs in those that the
    space lists first, which are those of the tiles: how many stages a loop has, say, changes least."""
    first = {k: v[0] for k, v in space.parameters.items()}
    return sorted(space.points(), key=lambda p: (len(d := [i for i, (k, v) in enumerate(first.items()) if p[k] != v]), d))


def _first_comment(space: Space) -> str:
    return next((x for x in space.text.splitlines() if x.startswith("#")), "").removeprefix("#").strip()


@cache
def _operator(problem: str) -> str:
    """The operator of a problem by name; "" for none."""
    return load_problem(problem).spec.operator if problem else ""


@cache
def _naive(problem: str) -> n.Program | None:
    return load_problem(problem).naive if problem else None


@dataclass(frozen=True)
class LineageSource:
    """Transitions of stored lineages, forward from the naive end, each pass at every place where it applies."""

    root: Path | None = None
    only: tuple[str, ...] = ()
    """Names of the lineages that are used; none: all."""
    name: str = "lineage"

    def plans(self, program: n.Program, setting: Setting) -> Iterator[Plan]:
        """Each lineage with parameters fit for the sizes, first as near to the stored ones as that allows."""
        return _in_turns(self.streams(program, setting))

    def streams(self, program: n.Program, setting: Setting) -> Iterator[tuple[str, str, Iterator[Plan]]]:
        """A stream for each lineage."""
        yield from ((name, _operator(lineage.header.problem), self._of(name, lineage, naive, program, setting))
                    for name, lineage, naive in stored_lineages(self.root) if name in self.only or not self.only)

    def _of(self, name: str, lineage: Lineage, naive: n.Program, program: n.Program, setting: Setting) -> Iterator[Plan]:
        steps = tuple(replace(Step.from_json(s.witness), residue=NOTHING, path=None, hash="") for _, s in lineage.transitions())
        added = _added(steps, naive)
        spaces = {key: domain for key in _tunable(steps) if (domain := _domain(key, program, setting))}
        spaces |= {(s.name, _ADDED[s.name][0]): _ADDED[s.name][1] for s in added}
        steps, facts = (*steps, *added), narrowing(program, setting)
        for values in sorted(itertools.product(*spaces.values()), key=lambda v: sum(x != d[0] for x, d in zip(v, spaces.values(), strict=True))):
            chosen = dict(zip(spaces, values, strict=True))
            point: dict[str, Value] = {f"{p}.{o}": v for (p, o), v in chosen.items() if v not in NOT_TAKEN}
            taken = (_with(s, chosen) for s in steps if chosen.get((s.name, _ADDED.get(s.name, ("",))[0])) not in NOT_TAKEN)
            yield Plan(f"lineage {name}", tuple(taken), f"what made {lineage.header.expert} fast", True, point, name,
                       setting.surface, facts, ALIGN, naive)


def _tunable(steps: Sequence[Step]) -> list[tuple[str, str]]:
    """Options of a lineage's passes that another kernel wants other values of, among those that have a domain."""
    return [key for key in _DOMAINS if any(s.name == key[0] for s in steps)]


def _domain(key: tuple[str, str], program: n.Program, setting: Setting) -> tuple[Value, ...]:
    if key == ("mask-tail", "extent"):
        return tuple(x for x in sorted({up(extent) for extent in loop_extents(program, setting)}) if x <= LONGEST_ROW)
    if key == ("multi-threaded-block", "threads"):
        return row_threads(program, setting) or _DOMAINS[key]
    return _DOMAINS[key]


def row_threads(program: n.Program, setting: Setting) -> tuple[int, ...]:
    """Threads that have so much to do each, for the longest row that a loop of the program runs over; none where it has no such loop."""
    row = max(map(up, loop_extents(program, setting)), default=0)
    return tuple(dict.fromkeys(min(1024, max(32, row // each)) for each in A_THREAD)) if row > 32 else ()


_DOMAINS: Mapping[tuple[str, str], tuple[int, ...]] = {("mask-tail", "extent"): (), ("multi-threaded-block", "threads"): THREADS}
"""Whole-number parameters of passes that depend on the sizes of a call, and what is tried of them."""


_ADDED: Mapping[str, tuple[str, tuple[Value, ...]]] = {"tile": ("extent", (1, 4, 2)), "cache-policy": ("policy", ("", "cs"))}
"""Steps that are tried after those of a lineage that spreads a row over the threads of a CTA, and values of their options: several rows a CTA, results
that do not stay in the cache."""
NOT_TAKEN = (1, "")
"""Values of such an option with which the step is not taken."""


def _added(steps: Sequence[Step], naive: n.Program) -> tuple[Step, ...]:
    """The further steps, where a lineage has none like them."""
    names = {s.name for s in steps}
    if "multi-threaded-block" not in names or "tile" in names or len(naive.kernels) != 1:
        return ()
    results = [p.name for p in naive.params if p.role == "out"]
    stores = [path for path, s in places(naive) if isinstance(s, n.Store) and s.at.buffer.name == results[0]] if len(results) == 1 else []
    policy = [Step("cache-policy", {"policy": "cs", "buffer": results[0]}, anchor_text(naive, stores[0]))] if len(stores) == 1 else []
    return (Step("tile", {"extent": 4}, naive.kernels[0].name), *(s for s in policy if s.name not in names))


def _with(step: Step, chosen: Mapping[tuple[str, str], Value]) -> Step:
    changes = {o: v for (p, o), v in chosen.items() if p == step.name}
    return replace(step, options=MappingProxyType({**step.options, **changes})) if changes else step


def loop_sizes(program: n.Program) -> tuple[str, ...]:
    """Sizes that say how far loops of a program run."""
    names = {p.name for p in program.params if p.role == "size"}
    found = (x.name for e in _ends(program) for x in walk(e) if isinstance(x, n.Var))
    return tuple(dict.fromkeys(x for x in found if x in names))


def loop_extents(program: n.Program, setting: Setting) -> tuple[int, ...]:
    """How far loops of a program run at a setting's sizes, where sizes and numbers say it."""
    values = {p.name: const(setting.shape.sizes[p.name], p.of) for p in program.params if isinstance(p.of, DType) and p.name in setting.shape.sizes}
    found = (int_value(substitute(e, values)) for e in _ends(program))
    return tuple(dict.fromkeys(x for x in found if x is not None))


def _ends(program: n.Program) -> Iterator[n.Expr]:
    yield from (s.hi for k in program.kernels for s in statements(k.body) if isinstance(s, n.For))


def multiplies(program: n.Program) -> bool:
    """Whether a program folds products of two tensors of which each moves along an axis that the other does not: what tensor cores are for."""
    for k in program.kernels:
        axes = {a.name for a in k.grid}
        for loop in (s for s in statements(k.body) if isinstance(s, n.For)):
            moving = axes | {s.var.name for s in statements(k.body) if isinstance(s, n.For)} - {loop.var.name}
            for x in (x for s in statements(loop.body) if isinstance(s, n.Store) and not s.at.index for x in walk(s.value)):
                sides = [{y.name for r in walk(side) if isinstance(r, n.Region) and r.buffer.space == "global" for i in r.index for y in walk(i)
                          if isinstance(y, n.Var) and y.name in moving} for side in (x.a, x.b)] if isinstance(x, n.Binary) and x.op == "mul" else []
                if sides and sides[0] - sides[1] and sides[1] - sides[0]:
                    return True
    return False


def narrowing(program: n.Program, setting: Setting) -> tuple[str, ...]:
    """What may be promised of the sizes that loops run to: at most the next power of two, and a multiple of what divides them."""
    out = list[str]()
    for name in loop_sizes(program):
        if (value := setting.shape.sizes.get(name)) is not None:
            out += [f"{name} >= 1", f"{name} <= {up(value)}"]
            out += [f"{name} % {d} == 0" for d in DIVISORS if value % d == 0][:1]
    return tuple(out)


def up(value: int) -> int:
    """The power of two that is no less."""
    return 1 << max(0, (value - 1).bit_length())


def stored_lineages(root: Path | None = None) -> tuple[tuple[str, Lineage, n.Program], ...]:
    """Lineages of a folder (those that come with KIR), each with its name and its naive program."""
    return _stored(root or Path(str(resources.files("kir.skills"))) / "lineages")


@cache
def _stored(root: Path) -> tuple[tuple[str, Lineage, n.Program], ...]:
    out = []
    for each in sorted(p for p in root.iterdir() if (p / "lineage.json").is_file()):
        folder = Folder(each)
        lineage = folder.read()
        out.append((each.name, lineage, folder.program(lineage.states[-1])))
    return tuple(out)


IDLE, NOTHING_WON = "nothing by itself", 1.02
"""In the place of an operator, of a card no use of which is forecast to win by itself: no upper quartile is above this."""


@dataclass(frozen=True)
class CardSource:
    """Cards of skills, wherever they hold: those that the library admits."""

    cards: tuple[Card, ...] = field(default_factory=lambda: tuple(library().admitted))
    name: str = "card"

    def plans(self, program: n.Program, setting: Setting) -> Iterator[Plan]:
        """The first application of each card, then the second of each, and so on."""
        return _in_turns(self.streams(program, setting))

    def streams(self, program: n.Program, setting: Setting) -> Iterator[tuple[str, str, Iterator[Plan]]]:
        """A stream for each card, those that won most elsewhere first."""
        best = {card.name: max((x.high for x in (*card.effect.forecast.values(), *card.effect.measured.values())), default=math.inf) for card in self.cards}
        for card in sorted(self.cards, key=lambda card: -best[card.name]):
            yield card.name, IDLE if best[card.name] <= NOTHING_WON else "", self._of(card, program, setting)

    def _of(self, card: Card, program: n.Program, setting: Setting) -> Iterator[Plan]:
        for number, found in enumerate(applications(card, program, setting.context)):
            yield Plan(f"card {card.name}", found.steps, found.reason, point={"place": number}, family=card.name, surface=setting.surface)


SINGLE: Mapping[str, Mapping[str, tuple[Value, ...]]] = {
    "pipeline": {"stages": (4, 3, 2)}, "multi-threaded-block": {"threads": THREADS}, "vectorize-global": {"width": (8, 4)}, "tree-reduction": {},
    "tile": {"extent": (64, 128), "axis": (0, 1)}, "stage-panels": {"extent": (64, 32)}, "mma": {}, "narrow-operand": {}, "partition-rows": {},
    "cache-converted-value": {}, "retain-tile": {}, "reuse-operand": {}, "online-normalize": {}, "fold-scale": {}, "linear-grid": {}, "raster-l2": {},
    "persistent": {"ctas": ()}, "tma-load": {}, "tma-store": {}, "stage-epilogue": {}, "invariant-hoist": {}, "fuse-loops": {},
    "cache-policy": {}, "swizzle-shared": {}, "unroll": {"factor": (0, 4)}, "vector-load": {},
}
"""Passes that are tried by themselves, with the values that are tried of their parameters; the others only pay in company."""


@dataclass(frozen=True)
class PassSource:
    """Single passes at every place where they apply, with a few values of their parameters."""

    name: str = "pass"
    table: Mapping[str, Mapping[str, tuple[Value, ...]]] = field(default_factory=lambda: SINGLE)

    def plans(self, program: n.Program, setting: Setting) -> Iterator[Plan]:
        """Passes in the order of the table, places in reading order."""
        known = {cls.name for cls in passes()}
        for name, domains in self.table.items():
            if name not in known:
                continue
            cls = pass_class(name)
            for values in itertools.product(*(_waves(program, setting) if d == () else d for d in domains.values())):
                options = dict(zip(domains, values, strict=True))
                try:
                    found = sites(cls.with_options(options), program)
                except (KirError, *FAULTS):
                    continue
                for site in found:
                    step = Step.of(site.params, anchor_text(program, site.path))
                    yield Plan(f"pass {step}", (step,), cls.claim, family=name, surface=setting.surface)


def _waves(program: n.Program, setting: Setting) -> Sequence[int]:
    """Numbers of CTAs that run at once, less than there are: as many as all SMs have room for, half and a quarter of them, and one for each SM."""
    threads, device = max((int_value(k.threads) or 1 for k in program.kernels), default=1), setting.target.device
    most = max(1, min(setting.target.architecture.max_ctas_per_sm, setting.target.architecture.max_threads_per_sm // threads))
    there = max((math.prod(_extent(k, axis, setting) for axis in range(len(k.grid))) for k in program.kernels), default=1)
    return [x for x in dict.fromkeys(device.sm_count * max(1, most // part) for part in (1, 2, 4, most)) if x < there]


@dataclass(frozen=True)
class ThreadsSource:
    """Other numbers of threads for a kernel that has some: its statements belong to the CTA, so that they may be undone, and others given."""

    name: str = "threads"
    counts: tuple[int, ...] = tuple(sorted((*THREADS, 64, 32)))

    def plans(self, program: n.Program, setting: Setting) -> Iterator[Plan]:
        """Half and twice as many first, then what is further off; each number is a family, since one says little of another."""
        cls = pass_class("multi-threaded-block")
        for kernel in program.kernels:
            now = int_value(kernel.threads)
            if now is None or now <= 1:
                continue
            for count in sorted((c for c in self.counts if c != now), key=lambda c: (max(c, now) / min(c, now), c)):
                back = Step.of(cls.with_options({"threads": now}), kernel.name, "backward")
                steps = back, Step.of(cls.with_options({"threads": count}), kernel.name)
                yield Plan(f"threads {kernel.name}", steps, cls.claim, point={"threads": count}, family=f"threads {count}", surface=setting.surface)


COLUMNS = (32, 64, 16, 128)
"""Neighbors along the axis that memory is contiguous along which a CTA takes, where what it folds lies across: 32 of 4 bytes are what DRAM is read in."""
ROWS = (1, 4, 2, 8)
"""Rows that a CTA takes, where what it folds is contiguous."""
PARTS = (2, 4, 8, 16, 32, 64, 128)
"""CTAs over which one loop is distributed, as they are tried."""
CTAS_PER_SM = 8
"""CTAs an SM over which such a loop is distributed if it can be."""
LOOPED = ((128, 1), (128, 4), (128, 2), (64, 1), (256, 4), (64, 4), (256, 2))
PLAIN = ((256, 16), (128, 16), (256, 8), (128, 8), (256, 4), (512, 4), (128, 4))
"""Threads, and elements of each, where loops fold, and where nothing is folded: a few vectors of 16 bytes, so that memory is asked for enough at once."""
SPREAD = "tiles spread"
"""How families begin whose plans make axes of loops first."""
WINDOW, ONCE = 32, {"triton": (Step("cache-converted-value"), Step("reuse-operand"))}
"""Iterations up to which a loop is left to each thread: a filter, a window; steps, by surface, that name what is used more than once."""


@dataclass(frozen=True)
class TileSource:
    """Schedules of a naive kernel that need no kernel like it: tiles of its results along one axis or two, with threads that hold some elements each; what
    long loops fold spread over threads, with neighbors beside it where they share what is read; loops in tiles, or a few iterations at once; contracted axes
    in panels, or dealt to several CTAs where there are few results."""

    name: str = "tiles"

    def plans(self, program: n.Program, setting: Setting) -> Iterator[Plan]:
        """The first plan of each family, then the second of each, and so on."""
        return _in_turns(self.streams(program, setting))

    def streams(self, program: n.Program, setting: Setting) -> Iterator[tuple[str, str, Iterator[Plan]]]:
        """A stream for each form that the kernel has room for; also with coordinates and loops over results that need nothing of one another as axes of the
        grid, and with masks in the place of branches."""
        axes, wide = apart(program, setting)
        rows, seen = by_rows(wide, setting)
        masks, bare = masked(seen, setting)
        first = (*axes, *rows, *masks)
        spread = ((family.replace("tiles", SPREAD, 1), operator, (
            replace(p, source=p.source.replace("tiles", SPREAD, 1), family=p.family.replace("tiles", SPREAD, 1), steps=(*first, *p.steps)) for p in plans))
            for family, operator, plans in (self._forms(bare, setting) if first else ()))
        plain = self._forms(program, setting)
        alone = first and not any(isinstance(s, n.For) for s in wide.kernels[0].body)  # nothing is folded: CTAs of a few vectors each come first
        yield from itertools.chain(spread, plain) if alone else itertools.chain(plain, spread)

    def _forms(self, program: n.Program, setting: Setting) -> Iterator[tuple[str, str, Iterator[Plan]]]:
        """A stream for each form that the kernel has room for. None where there are several kernels (each is planned alone), or threads already."""
        kernel = program.kernels[0]
        if len(program.kernels) != 1 or int_value(kernel.threads) != 1:
            return
        rows, column = axes_of_results(kernel)
        loops = [s for s in statements(kernel.body) if isinstance(s, n.For)]
        folds = [s for s in loops if not any(isinstance(x, n.Store) and x.at.buffer.space == "global" for x in walk(s))]
        if column is not None:
            yield "tiles", "", self._planned("tiles", self._along(kernel, column, _innermost(program, folds), setting), program, setting, not loops)
            if len(folds) == 1:
                yield "tiles parts", "", self._planned("tiles parts", self._parts(kernel, column, folds[0], setting), program, setting, everywhere=False)
        long = sorted({up(x) for x in loop_extents(program, setting) if x > WINDOW})
        if long and long[-1] <= LONGEST_ROW:
            yield "tiles folded", "", self._folds(program, setting, long)
        if rows is not None and column is not None and folds:
            yield "tiles both", "", self._planned("tiles both", self._both(kernel, rows, column, folds), program, setting)
            if len(folds) == 1:
                yield "tiles split", "", self._planned("tiles split", self._split(kernel, rows, column, folds[0]), program, setting)
            if _depths(folds)[0]:
                at = _innermost(program, folds)[0]
                yield "tiles cores", "", self._planned("tiles cores", self._cores(kernel, rows, column, folds[-1], at, setting.surface), program, setting)
        if rows is not None and column is not None and not loops:
            yield "tiles across", "", self._planned("tiles across", self._across(kernel, rows, column, setting.surface), program, setting)
        if len(folds) < len(loops):
            yield "tiles of loops", "", self._planned("tiles of loops", self._loops(kernel), program, setting)

    def _planned(self, family: str, points: Iterator[tuple[Mapping[str, Value], tuple[Step, ...]]], program: n.Program, setting: Setting,
                 everywhere: bool = True) -> Iterator[Plan]:
        facts = tuple(f for f in narrowing(program, setting) if "%" in f)
        for point, steps in points:
            once = ONCE.get(setting.surface, ()) if everywhere and family == "tiles" else ()
            yield Plan(family, (*steps, *once), pass_class("tile").claim, everywhere, point, family, setting.surface, facts, ALIGN)

    def _along(self, kernel: n.Kernel, column: int, loops: Sequence[str], setting: Setting) -> Iterator[tuple[Mapping[str, Value], tuple[Step, ...]]]:
        most, some = up(_extent(kernel, column, setting)), LOOPED if loops else PLAIN  # a longer tile would be empty but for its beginning
        for factor in (8, 1, 4, 16) if loops else (1,):
            for threads, each in [(t, e) for t, e in some if t * e <= most] or [(t, most // t) for t in (64, 128, 32) if t <= most] or [(32, 1)]:
                steps = (_tile(kernel, column, threads * each), _threads_of(kernel, threads),
                         *(Step("unroll", {"factor": factor}, at) for at in loops if factor > 1))
                yield {"threads": threads, "each": each, "unroll": factor}, steps

    def _parts(self, kernel: n.Kernel, column: int, loop: n.For, setting: Setting) -> Iterator[tuple[Mapping[str, Value], tuple[Step, ...]]]:
        """What one loop folds dealt to several CTAs: so many parts that each SM has some, where the results alone are too few."""
        results = math.prod(_extent(kernel, axis, setting) for axis in range(len(kernel.grid)))
        for threads, each in ((128, 1), (128, 2), (64, 2), (256, 1)):
            wanted = CTAS_PER_SM * setting.target.device.sm_count / math.ceil(results / (threads * each))
            for parts in sorted((p for p in PARTS if p <= 2 * wanted), key=lambda p: abs(math.log(p / wanted)))[:3]:
                steps = (_tile(kernel, column, threads * each), _threads_of(kernel, threads),
                         Step("split-k", {"parts": parts}, f"{kernel.name}/{loop.var.name}"),
                         Step("unroll", {"factor": 0 if setting.surface == "cuda" else 8, "form": "hint"}, f"{kernel.name}/{loop.var.name}"))
                yield {"threads": threads, "each": each, "parts": parts}, steps

    def _folds(self, program: n.Program, setting: Setting, long: Sequence[int]) -> Iterator[Plan]:
        axis, first = contiguous_axis(program.kernels[0]), tuple(_folded(program.kernels[0], long))
        for each in A_THREAD:
            for items in ROWS if axis is None else COLUMNS:
                if items * long[-1] > LONGEST_ROW:
                    continue
                threads = min(1024, max(32, items * long[-1] // each))
                tile = (Step("tile", {"axis": axis or 0, "extent": items}, program.kernels[0].name),) if items > 1 and program.kernels[0].grid else ()
                steps = (*first, Step("multi-threaded-block", {"threads": threads}), *tile, *ONCE.get(setting.surface, ()))
                yield Plan("tiles folded", steps, "what a long loop folds is spread over threads", True, {"items": items, "threads": threads}, "tiles folded",
                           setting.surface, narrowing(program, setting), ALIGN)

    def _both(self, kernel: n.Kernel, rows: int, column: int, folds: Sequence[n.For]) -> Iterator[tuple[Mapping[str, Value], tuple[Step, ...]]]:
        for depth, each, (m, c) in itertools.product(
                _depths(folds), (64, 32), _fitting(kernel, rows, column, ((64, 128), (128, 128), (64, 64), (128, 64), (32, 64), (32, 128), (16, 64)))):
            if 64 <= (threads := m * c // each) <= 512:
                yield {"rows": m, "columns": c, "depth": depth, "threads": threads}, _product(kernel, rows, column, m, c, depth, threads)

    def _split(self, kernel: n.Kernel, rows: int, column: int, loop: n.For) -> Iterator[tuple[Mapping[str, Value], tuple[Step, ...]]]:
        for depth, parts, (m, c) in itertools.product(_depths([loop]), (16, 8, 32, 4, 64), ((64, 64), (128, 128), (32, 64))):
            split = Step("split-k", {"parts": parts}, f"{kernel.name}/{loop.var.name}{'_tile' if depth else ''}")
            yield {"parts": parts, "rows": m, "columns": c, "depth": depth}, (*_product(kernel, rows, column, m, c, depth, max(64, m * c // 64)), split)

    def _cores(self, kernel: n.Kernel, rows: int, column: int, loop: n.For, at: str, surface: str) -> Iterator[tuple[Mapping[str, Value], tuple[Step, ...]]]:
        """Products on tensor cores, as many steps as the operands' dtypes and the surface allow; then with their operands in shared memory."""
        at, wide = f"{at}_tile", _wide(loop)
        cores = (Step("split-operands" if wide else "narrow-operand", at=f"{at}/mma"), Step("mma", at=f"{at}/mma"))
        shared = () if surface == "triton" else (Step("stage-shared", at=f"{at}/mma"), Step("swizzle-shared"))
        forms, most = ((3, 32), (2, 32), (0, 32), (3, 16)) if wide else itertools.product((0, 3, 1), (32, 64)), int_value(loop.hi) or 64
        turns = (True, False) if wide and surface == "triton" and _contiguous_along(loop, kernel.grid[column].name) else (False,)
        for (stages, depth), (m, c), turned in itertools.product(
                dict.fromkeys((s, min(d, most)) for s, d in forms),
                _fitting(kernel, rows, column, ((64, 128), (128, 128), (64, 64), (128, 64), (16, 64), (32, 128), (32, 64))), turns):
            steps = (*_product(kernel, rows, column, m, c, depth, 256 if m * c > 8192 else 128), *cores, *((Step("swap-operands", at=f"{at}/mma"),) * turned))
            pipelined = (*(shared if stages else ()), *((Step("pipeline", {"stages": stages}, at),) if stages > 1 else ()))
            yield {"rows": m, "columns": c, "depth": depth, "stages": stages, **({"turned": turned} if len(turns) > 1 else {})}, (*steps, *pipelined)

    def _across(self, kernel: n.Kernel, rows: int, column: int, surface: str) -> Iterator[tuple[Mapping[str, Value], tuple[Step, ...]]]:
        """Tiles of results that are read along another axis than they are written: through shared memory (Triton's own), so that both are contiguous."""
        for staged, extent, threads in itertools.product((False,) if surface == "triton" else (True, False), (64, 32, 128), (256, 128)):
            shared = (Step("stage-shared"), Step("swizzle-shared")) if staged else ()
            yield {"extent": extent, "threads": threads, "staged": staged}, (*_product(kernel, rows, column, extent, extent, 0, threads), *shared)

    def _loops(self, kernel: n.Kernel) -> Iterator[tuple[Mapping[str, Value], tuple[Step, ...]]]:
        for threads, each in ((128, 4), (128, 8), (256, 4), (128, 1), (64, 4), (256, 16)):
            yield {"threads": threads, "each": each}, (Step("tile-loop", {"extent": threads * each}), _threads_of(kernel, threads))


def _folded(kernel: n.Kernel, long: Sequence[int]) -> Iterator[Step]:
    """What makes tiles of loops, as far as the kernel has what each step is for."""
    loops = [s for s in statements(kernel.body) if isinstance(s, n.For)]
    inside = [x for loop in loops for s in loop.body for x in walk(s)]
    scalars = (s.at.buffer.name for s in kernel.body if isinstance(s, n.Store) and s.at.buffer.space == "register")  # what a fold came to, made another
    yield from (Step("overwrite-fragment", {"buffer": name}, direction="backward") for name in dict.fromkeys(scalars))
    ops = {x.op for x in inside if isinstance(x, n.Binary)}
    fills = [{}, *({"fill": word} for word, of in (("lowest", {"max", "gt"}), ("highest", {"min", "lt"})) if ops & of)]
    yield from (Step("mask-tail", {"extent": e, **fill}) for e in long for fill in fills)
    yield Step("tree-reduction")
    if any(isinstance(x, n.Store) and x.at.buffer.space == "global" for x in inside):
        yield Step("partition-rows")
    if len(loops) > 1:
        yield Step("retain-tile")


def contiguous_axis(kernel: n.Kernel) -> int | None:
    """The axis of the grid along which most accesses to global memory are contiguous, those of loops before those that are made once; None where that is
    none."""
    names = [a.name for a in kernel.grid]
    looped = {id(r) for s in statements(kernel.body) if isinstance(s, n.For) for x in s.body for r in walk(x) if isinstance(r, n.Region)}
    found = [r for r in regions(kernel) if r.index and r.buffer.space == "global"]
    for some in ([r for r in found if id(r) in looped], found):
        votes = Counter[int | None]()
        for r in some:
            if isinstance(r.index[-1], n.Expr):
                votes.update(names.index(m[0].name) if m[0].name in names else None for m, c in polynomial(r.index[-1]).items()
                             if c == 1 and len(m) == 1 and isinstance(m[0], n.Var))
        if votes:
            return votes.most_common(1)[0][0]
    return None


def _tile(kernel: n.Kernel, axis: int, extent: int, back: bool = False) -> Step:
    return Step("tile", {"axis": axis, "extent": extent, **({"back": True} if back else {})}, kernel.name)


def _threads_of(kernel: n.Kernel, threads: int) -> Step:
    return Step("multi-threaded-block", {"threads": threads}, kernel.name)


def _innermost(program: n.Program, folds: Sequence[n.For]) -> list[str]:
    """Where the loops stand that have none inside."""
    return [anchor_text(program, path) for path, s in places(program) if isinstance(s, n.For) and s in folds
            and not any(isinstance(x, n.For) for x in statements(s.body))]


def _extent(kernel: n.Kernel, axis: int, setting: Setting) -> int:
    """Elements of an axis of the grid at a setting's sizes."""
    return int_value(substitute(kernel.grid[axis].extent, {name: const(value, I32) for name, value in setting.shape.sizes.items()})) or 1


def _fitting(kernel: n.Kernel, rows: int, column: int, tiles: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Tiles that are no larger than the axes, where these are numbers."""
    most = [int_value(kernel.grid[axis].extent) or LONGEST_ROW for axis in (rows, column)]
    return [(m, c) for m, c in tiles if m <= up(most[0]) and c <= up(most[1])]


def _product(kernel: n.Kernel, rows: int, column: int, m: int, c: int, depth: int, threads: int) -> tuple[Step, ...]:
    panels = (Step("stage-panels", {"extent": depth}),) if depth else ()
    tiles = (_tile(kernel, rows, m), _tile(kernel, column, c, back=True))
    whole = (int_value(kernel.grid[column].extent) or 1) % c == 0  # nothing hangs over
    if kernel.body and isinstance(kernel.body[0], n.Let) and not whole:  # axes that are parts of one: what is inside by them is known only after the last axis
        tiles = (_tile(kernel, column, c), _tile(kernel, rows, m))
    return (_threads_of(kernel, threads), *tiles, *panels)


def _depths(folds: Sequence[n.For]) -> tuple[int, ...]:
    """Elements of a contracted axis that a panel has, as they are tried; 0 for none, where the one loop inside of all others does not add up products of two
    tensors."""
    last = folds[-1]
    adds = (all(f is last or f.body == (folds[i + 1],) for i, f in enumerate(folds))
            and any(isinstance(s, n.Store) and any(isinstance(x, n.Binary) and x.op == "mul" and _reads(x.a) == _reads(x.b) == 1 for x in walk(s.value))
                    for s in last.body))
    most = int_value(last.hi) or 32
    return (*(x for x in (32, 16) if x <= most), 0) if adds else (0,)


def _reads(e: n.Expr) -> int:
    return sum(isinstance(x, n.Load) and x.at.buffer.space == "global" for x in walk(e))


def _wide(loop: n.For) -> bool:
    """Whether a loop reads nothing but f32."""
    return {x.at.buffer.dtype for x in walk(loop) if isinstance(x, n.Load) and x.at.buffer.space == "global"} == {F32}


def _contiguous_along(loop: n.For, axis: str) -> bool:
    """Whether what a loop loads by an axis lies along it in memory: tensor cores read operands in tf32 only where they lie along what is contracted, and what
    is read transposed is theirs to read first."""
    lasts = [x.at.index[-1] for x in walk(loop) if isinstance(x, n.Load) and x.at.buffer.space == "global" and x.at.index]
    return any(isinstance(y, n.Var) and y.name == axis for i in lasts if isinstance(i, n.Expr) for y in walk(i))


def axes_of_results(kernel: n.Kernel) -> tuple[int | None, int | None]:
    """Positions of the grid axes that a kernel's stores have next to last and last among their indices, or in one index by what they are multiplied with;
    None where there is none."""
    order: dict[int, tuple[int, int, int]] = {}
    names = {axis.name: position for position, axis in enumerate(kernel.grid)}
    for s in statements(kernel.body):
        if isinstance(s, n.Store) and s.at.buffer.space == "global":
            for place, index in enumerate(s.at.index):
                found = {names[a.name]: (place, 1 - len(atoms), -abs(c)) for atoms, c in (polynomial(index) if isinstance(index, n.Expr) else {}).items()
                         for a in atoms if isinstance(a, n.Var) and a.name in names}
                if any(rank[1:] == (0, -1) for rank in found.values()):
                    order |= {position: max(rank, order.get(position, rank)) for position, rank in found.items()}
    ranked = sorted(order, key=lambda position: order[position])
    return ranked[-2] if len(ranked) > 1 else None, ranked[-1] if ranked else None


__all__ = ["CardSource", "LineageSource", "PassSource", "PipelineSource", "ThreadsSource", "TileSource", "by_distance", "loop_sizes", "narrowing",
           "stored_lineages"]
