"""The axes of a tensor that its caller allocates as so many elements: the factors of that number, in the order in which the kernel walks them; and how
large a launch may be whose threads a kernel counts in 32 bits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations

from kir.analysis.facts import Facts
from kir.analysis.integers.long_division import divided
from kir.analysis.normal.private.registers import counted
from kir.analysis.normal.regions import raised
from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding, plain_expression
from kir.ir.build import polynomial
from kir.ir.printer import expr_text
from kir.ir.types import I32
from kir.ir.visit import children, names_read, statements, walk
from kir.surface.launches.reach import grid_extents

MOST_FACTORS = 4
MOST_THREADS = (1 << 31) - 1
LONG, MIDDLE, SHORT = 1 << 27, 1 << 20, 1 << 13
"""What a size is at most where a kernel reads better so: small multiples of the first, tiles of rows of the second, and products of two of the third, stay
below 2^31."""
Axes = tuple[str | int, ...]


def with_axes(binding: Binding, made: Callable[[Binding], n.Program]) -> Binding:
    """The binding with a shape of several axes for each flat tensor of a product of sizes, where the kernel's accesses become regions of it; others
    stay flat. Tensors of the same product are tried together: rows of each factor first, then what the rows are made of. `made` gives the program
    under a binding."""
    alike: dict[frozenset[str], list[str]] = {}
    if any(_factors(binding, name) for name in binding.tensors):
        binding = _divisible(binding, made)
    halves = [name for name, t in binding.tensors.items() if len(t.shape) == 2 and isinstance(t.shape[1], int) and _factors(binding, name)]
    read = halves and _raised(binding, made, halves, ()).tensors
    for name in binding.tensors:
        if (factors := _factors(binding, name)) and not (name in halves and read and not read[name].shape):
            alike.setdefault(frozenset(factors), []).append(name)
    for names in alike.values():
        factors = _factors(binding, names[0])
        flat = {name: binding.tensors[name].shape for name in names}
        for last in factors:
            rest = [x for x in factors if x != last]
            binding = _raised(binding, made, [x for x in names if binding.tensors[x].shape == flat[x]], (" * ".join(rest), last))
        for last in factors if len(factors) > 2 else ():
            rows: Axes = (" * ".join(x for x in factors if x != last), last)
            for order in permutations(x for x in factors if x != last):
                binding = _raised(binding, made, [x for x in names if tuple(binding.tensors[x].shape) == rows], (*order, last))
            for middle in (x for x in factors if x != last) if len(factors) > 3 else ():  # planes of which nothing says what they are made of
                planes = " * ".join(x for x in factors if x not in (middle, last))
                binding = _raised(binding, made, [x for x in names if tuple(binding.tensors[x].shape) == rows], (planes, middle, last))
    told = sorted({v for v in binding.scalars.values() if type(v) is int and v > 1})  # lengths of rows in a program of one size
    for name, row in ((name, row) for name, t in binding.tensors.items() for row in told if t.strides is None):
        shape = binding.tensors[name].shape
        if len(shape) == 1 and isinstance(count := shape[0], int) and count % row == 0 and count > row:
            binding = _raised(binding, made, [name], (count // row, row))
    return binding


def _divisible(binding: Binding, made: Callable[[Binding], n.Program]) -> Binding:
    """The binding with a least value for each size of which the kernel divides by a part: none of it may be zero."""
    try:
        program = raised(made(binding))
    except KirError:
        return binding
    facts: list[str] = []
    for x in (x for k in program.kernels for x in walk(k) if isinstance(x, n.Binary) and x.op in ("floordiv", "mod", "tdiv", "trem")):
        match x.b:
            case n.Binary(op="floordiv" | "tdiv", a=n.Var(name=name), b=n.Const(value=int() as by)) if name in binding.sizes and by > 1:
                facts.append(f"{name} >= {by}")
            case _:
                pass
    return binding.changed(facts=list(dict.fromkeys([*binding.facts, *facts])))


def with_counts(binding: Binding, made: Callable[[Binding], n.Program]) -> Binding:
    """The binding with facts by which what a kernel counts in 32 bits stays below 2^31, where it reads better then: the threads along each axis of the
    grid, so that an unsigned number of them is a whole number, and sizes, so that sums and quotients of them are what they say. So with sizes of which
    the grid, or a loop, takes whole tiles only: multiples of these."""
    try:
        program = raised(made(binding))
    except KirError:
        return binding
    left, threads = _unsigned(program), build.int_value(program.kernels[0].threads)
    facts = [f"{name} <= {per * (MOST_THREADS // threads)}" for e in grid_extents(binding) if threads
             for name, per in [_extent_of(e)] if name in binding.sizes] if left else []
    if (bounded := _with(binding, made, facts, _unsigned, left)) is not binding:
        binding, program = bounded, raised(made(bounded))
    if (rounds := _rounds(program)) and (bounded := _with(binding, made, rounds, lambda p: len(_rounds(p)), len(rounds))) is not binding:
        binding, program = bounded, raised(made(bounded))
    taken = [e for extent in grid_extents(binding) if not _more(extent) for e in walk(extent)]
    whole = [f"{e.a.name} % {e.b.value} == 0" for e in taken if isinstance(e, n.Binary) and e.op == "floordiv"
             and isinstance(e.a, n.Var) and e.a.name in binding.sizes and isinstance(e.b, n.Const)]
    if whole and (bounded := _with(binding, made, whole, _quotients, _quotients(program))) is not binding:  # as many CTAs, or rounds, as there are whole tiles
        binding, program = bounded, raised(made(bounded))
    spoken = {m[1] for f in binding.facts if (m := re.fullmatch(r"(\w+) <=? .*", f))}
    best, left = binding, _times_unread(program, True)
    for most, flat in ((LONG, True), (MIDDLE, True), (SHORT, False)):
        if (best is not binding and not flat) or (most == MIDDLE and not _unsigned_sizes(program)):
            continue
        unread = _unread(program, flat)
        facts = [f"{name} <= {most}" for name in binding.sizes if name in unread and name not in spoken]
        bounded = _with(binding, made, facts, partial(_times_unread, flat=flat), left if flat else sum(unread.values()))
        if bounded is not binding:
            best, left = bounded, _times_unread(raised(made(bounded)), True)
    return best


def _with(binding: Binding, made: Callable[[Binding], n.Program], facts: Sequence[str], count: Callable[[n.Program], int], left: int) -> Binding:
    """The binding with these facts, where fewer than `left` of something are counted then."""
    bounded = binding.changed(facts=[*binding.facts, *(f for f in dict.fromkeys(facts) if f not in binding.facts)])
    if not facts:
        return binding
    try:
        return bounded if count(raised(made(bounded))) < left else binding
    except KirError:
        return binding


def _more(extent: n.Expr) -> bool:
    """Whether a grid has CTAs beside those of whole tiles, which may take the rest."""
    return any(isinstance(e, n.Binary) and e.op == "add" for e in walk(extent))


def _quotients(program: n.Program) -> int:
    """How many quotients of sizes the bodies of kernels have."""
    sizes = {p.name for p in program.params if p.role == "size"}
    return sum(isinstance(x, n.Binary) and x.op == "floordiv" and isinstance(x.a, n.Var) and x.a.name in sizes for k in program.kernels for s in k.body
               for x in walk(s))


def _rounds(program: n.Program) -> list[str]:
    """That sizes are multiples of what a loop takes of them a round, as facts that the program does not have, where nothing takes the rest: the size stands
    nowhere else in the code, nor in the grid."""
    known, out = Facts.from_program(program), []
    sizes = {p.name for p in program.params if p.role == "size"}
    code = [e for k in program.kernels for s in k.body for e in walk(s) if not isinstance(e, n.Buffer)]
    named = Counter(e.name for e in _outside_shapes(program) if e.name in sizes)
    named.update(x for k in program.kernels for a in k.grid for x in names_read(a.extent))
    for e in (s.hi for s in code if isinstance(s, n.For)):
        if isinstance(e, n.Binary) and e.op == "floordiv" and isinstance(e.a, n.Var) and e.a.name in sizes and (by := build.int_value(e.b)) and by > 1:
            times = sum(isinstance(s, n.For) and s.hi == e for s in code)
            if named[e.a.name] == times and not known.divides(by, e.a):
                out.append(f"{e.a.name} % {by} == 0")
    return list(dict.fromkeys(out))


def _outside_shapes(program: n.Program) -> Iterator[n.Var]:
    """The names that the code of a program's kernels reads as places or counts, the shapes of tensors left out."""
    waiting: list[n.Node] = [s for k in program.kernels for s in k.body]
    while waiting:
        x = waiting.pop()
        if isinstance(x, n.Cast) and x.dtype.is_float:
            continue  # a number to compute with, as the length of a mean
        if isinstance(x, n.Var):
            yield x
        waiting += [y for y in children(x) if not isinstance(y, n.Buffer)]


def _times_unread(program: n.Program, flat: bool) -> int:
    return sum(_unread(program, flat).values())


def _unread(program: n.Program, flat: bool) -> Counter[str]:
    """How often each size stands in a quotient that rounds to zero, or (`flat`) in a flat index: numbers that may wrap, for all that is known."""
    sizes = {p.name for p in program.params if p.role == "size"}
    views = {s.buffer.name for k in program.kernels for s in statements(k.body) if isinstance(s, n.View) and flat}
    out: Counter[str] = Counter()
    for k in program.kernels:
        for x in walk(k):
            if (isinstance(x, n.Binary) and x.op in ("tdiv", "trem")) or (isinstance(x, n.Region) and x.buffer.name in views):
                out.update(names_read(x) & sizes)
    return out


def _extent_of(e: n.Expr) -> tuple[str, int]:
    """The size that an extent of the grid counts, and how many of it a CTA has; "" for other extents."""
    match e:
        case n.Var(name=name):
            return name, 1
        case n.Binary(op="ceildiv" | "floordiv", a=n.Var(name=name), b=n.Const(value=int() as per)):
            return name, per
        case _:
            return "", 0


def _unsigned(program: n.Program) -> int:
    """How often a number of the grid is widened to an unsigned one."""
    axes = {a.name for k in program.kernels for a in k.grid}
    return sum(isinstance(x, n.Cast) and x.dtype.kind == "uint" and isinstance(x.x, n.Var) and x.x.name in axes for k in program.kernels for x in walk(k))


def _raised(binding: Binding, made: Callable[[Binding], n.Program], names: Sequence[str], axes: Axes) -> Binding:
    """The binding with these axes for those of the tensors whose accesses become regions of them."""
    shaped = _shaped(binding, dict.fromkeys(names, axes)) if axes else binding
    for facts in ([], [f"{x} <= {MIDDLE}" for x in binding.sizes]) if names else ():
        try:
            program = raised(made(shaped.changed(facts=[*binding.facts, *facts])))
            wraps = _unsigned_sizes(program)
            program = raised(replace(program, kernels=tuple(counted(k) for k in program.kernels)))
        except KirError:
            return binding
        viewed = {s.at.buffer.name for k in program.kernels for s in statements(k.body) if isinstance(s, n.View)}
        if not wraps or not viewed & {binding.tensors[name].name or name for name in names}:
            break
    else:
        return binding
    return _shaped(binding, {name: axes for name in names if (binding.tensors[name].name or name) not in viewed})


def _unsigned_sizes(program: n.Program) -> bool:
    """Whether sizes are widened to unsigned numbers, so that what is made of them may wrap."""
    sizes = {p.name for p in program.params if p.role == "size"}
    return any(isinstance(x, n.Cast) and x.dtype.kind == "uint" and isinstance(x.x, n.Var) and x.x.name in sizes for k in program.kernels for x in walk(k))


def _shaped(binding: Binding, shapes: Mapping[str, Axes]) -> Binding:
    extents = {k: [int(x) if isinstance(x, str) and x.isdigit() else x for x in shape] for k, shape in shapes.items()}
    return binding.changed(tensors={k: replace(t, shape=extents[k]) if k in extents else t for k, t in binding.tensors.items()})


def _factors(binding: Binding, name: str) -> list[str]:
    """The sizes, and parts of such, whose product a flat tensor's extent is; [] for others."""
    shape = binding.tensors[name].shape
    often = shape[1] if len(shape) == 2 and isinstance(shape[1], int) else 1
    if len(shape) != 1 + (often > 1) or isinstance(shape[0], int) or binding.tensors[name].strides is not None:
        return []
    held = {x: n.Var(x, I32) for x in binding.sizes}
    e = plain_expression(shape[0], held)
    terms = polynomial(e) if e is not None else {}
    sums: list[str] = []
    for text in dict.fromkeys(str(v) for v in binding.scalars.values()) if len(terms) > 1 else ():
        one = plain_expression(text, held)
        if one is not None and len(own := polynomial(one)) > 1:
            quotient, rest = divided(terms, own)
            if quotient and not rest:
                sums, terms = [*sums, f"({text})"], quotient
    if len(terms) == 1:
        (atoms, count), = terms.items()
        factors = [*(x.name if isinstance(x, n.Var) else f"({expr_text(x)})" for x in atoms), *sums, *((str(often),) if often > 1 else ())]
        if count == 1 and 2 <= len(set(factors)) == len(factors) <= MOST_FACTORS:
            return factors
    return []
