"""Kernels whose size is a number of their file: `#define N 4096`. Read again with other numbers in its place, the file tells what of the kernel is made of it,
so that it can be tried at smaller sizes, and be made faster at its own."""
from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kir.analysis import normalize
from kir.analysis.facts import Facts
from kir.analysis.normal.flat_index import split_index
from kir.base.dataclass import replace
from kir.base.diagnostic import KirError
from kir.base.notices import notices
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.types import I32
from kir.ir.visit import own_nodes, rebuild, substitute, transform
from kir.learning.optimize.lift import FAULTS
from kir.rewrite.edit import places
from kir.surface.reading import load_expert, located, read_text

NUMBER = re.compile(r"^([ \t]*#[ \t]*define[ \t]+|[ \t]*(?:static[ \t]+)?(?:constexpr|const)[ \t]+(?:static[ \t]+)?(?:int|unsigned|size_t|int32_t)[ \t]+)"
                    r"(?P<name>[A-Za-z_]\w*)(?P<between>[ \t]*=[ \t]*|[ \t]+)(?P<value>\d+)(?=[ \t]*(?:;|//|/\*|$))", re.MULTILINE)
"""A number with a name, by itself on a line of a CUDA file."""
LEAST, MOST = 256, 6
"""What such a number is at least to be taken for a size, and how many of a file are tried."""
PARTS = (2, 4, 8)
"""What it is divided by to read the kernel again."""


NUMBERS, TILE = 3, (16, 1024)
"""Numbers of a file that are looked at as parameters of a kernel's own, and what such a number is at least and at most."""


class _Apart(Exception):
    """The kernel is another one with another number."""


def sized(file: str, program: n.Program) -> tuple[n.Program, Mapping[str, int]] | None:
    """The kernel of a CUDA file, of which nothing is a size, with the first number of its file as a size that it can be read with others of; and what that is.
    None where there is none, or more of the kernel changes with it than numbers that are made of it."""
    place, kernel = located(file)
    if place.suffix not in (".cu", ".cuh") or any(p.role == "size" for p in program.params):
        return None
    text = read_text(place)
    for m in [m for m in NUMBER.finditer(text) if int(m["value"]) >= LEAST and int(m["value"]) % PARTS[-1] == 0][:MOST]:
        values = [int(m["value"]), *(int(m["value"]) // part for part in PARTS)]
        try:
            made = _with_size((program, *(_read(text, m, value, place, kernel) for value in values[1:])), values, n.Var(m["name"], I32))
        except (KirError, _Apart, *FAULTS):
            continue
        made, sizes = normalize(made), {m["name"]: values[0]}
        if content_hash(at_its_own(made, sizes)) == content_hash(normalize(program)):
            return in_rows(made, m["name"]), sizes
    return None


def in_rows(program: n.Program, size: str) -> n.Program:
    """A program whose flat tensors are rows of that size, or so many rows, as far as each place is proved to keep to its row."""
    now, of = program, n.Var(size, I32)
    for p in program.params:
        if not (isinstance(p.of, n.Buffer) and len(p.of.shape) == 1):
            continue
        terms = build.polynomial(p.of.shape[0])
        times = build.const(next(iter(terms.values()))) if len(terms) == 1 else build.const(1)
        shapes = [(build.mul(of, times), of)] if set(terms) == {(of, of)} else [(of, times), (times, of)] if set(terms) == {(of,)} else []
        for rows in (replace(p.of, shape=shape) for shape in shapes if times != build.const(1) or len(shapes) == 1):
            index = dict[n.Expr | n.Span | None, tuple[n.Expr, ...] | None]()
            for path, s in places(now):
                for r in (r for r in (own_nodes(s) if isinstance(s, n.Stmt) else ()) if isinstance(r, n.Region) and r.buffer == p.of):
                    at = r.index[0] if len(r.index) == 1 else None
                    index[at] = split_index(at, rows, Facts.at(now, path)) if isinstance(at, n.Expr) else None
            if index and None not in index.values():
                now = _renamed(now, p.of, rows, {at: split for at, split in index.items() if split is not None})
                break
    return normalize(now)


def _renamed(program: n.Program, old: n.Buffer, new: n.Buffer, index: Mapping[Any, tuple[n.Expr, ...]]) -> n.Program:
    """A program in which a tensor has another shape, and other indices name its places."""
    def leave(before: n.Node, x: n.Node) -> n.Node:
        if isinstance(before, n.Region) and before.buffer == old and isinstance(x, n.Region):
            return replace(x, buffer=new, index=index[before.index[0]])
        return new if before == old else x
    made: n.Program = transform(program, leave)
    return made


def numbered(file: str, program: n.Program) -> Iterator[tuple[str, int, Callable[[int], n.Program | None]]]:
    """Numbers of a CUDA file that say how a kernel is cut, and nothing of its tensors (threads of a CTA, a tile): each with its value, and the kernel with
    another in its place (None where it is then none, or has other tensors)."""
    place, kernel = located(file)
    if place.suffix not in (".cu", ".cuh"):
        return
    text = read_text(place)

    def other(m: re.Match[str]) -> Callable[[int], n.Program | None]:
        def read(value: int) -> n.Program | None:
            with contextlib.suppress(KirError, *FAULTS):
                made = _read(text, m, value, place, kernel)
                return made if made.params == program.params and made.facts == program.facts else None
            return None
        return read
    for m in [m for m in NUMBER.finditer(text) if TILE[0] <= (v := int(m["value"])) <= TILE[1] and v & (v - 1) == 0][:NUMBERS]:
        value, read = int(m["value"]), other(m)
        twice = read(2 * value if value < TILE[1] else value // 2)
        if twice is not None and content_hash(twice) != content_hash(program) and read(value) == program:
            yield m["name"], value, read


def at_its_own(program: n.Program, sizes: Mapping[str, int]) -> n.Program:
    """A program at the numbers of its file, of which nothing is a size again."""
    values: dict[str, n.Expr] = {name: build.const(value, I32) for name, value in sizes.items()}
    params = tuple(substitute(p, values) for p in program.params if p.name not in sizes)
    facts = tuple(f for f in (substitute(f, values) for f in program.facts) if not isinstance(f, n.Const))
    made = replace(program, params=params, facts=facts, kernels=tuple(substitute(k, values) for k in program.kernels),
                   workspaces=tuple(substitute(w, values) for w in program.workspaces), tensor_maps=tuple(substitute(t, values) for t in program.tensor_maps))
    return normalize(made)


def _read(text: str, m: re.Match[str], value: int, place: Path, kernel: str) -> n.Program:
    """The kernel of a file in which a number is another one."""
    with tempfile.TemporaryDirectory() as folder, notices():
        file = Path(folder) / place.name
        file.write_text(f"{text[:m.start('value')]}{value}{text[m.end('value'):]}", encoding="utf-8")
        return load_expert(f"{file}::{kernel}" if kernel else str(file), None).program


def _with_size(programs: Sequence[n.Program], values: Sequence[int], size: n.Var) -> n.Program:
    """What several programs are at a size. Raises _Apart."""
    facts = dict[n.Expr, None]()
    merged = _merged(programs, values, size, facts)
    if not isinstance(merged, n.Program) or merged == programs[0] or size.name in {p.name for p in merged.params}:
        raise _Apart
    return replace(merged, params=(n.Param(size.name, "size", I32), *merged.params),
                   facts=(*merged.facts, build.compare("ge", size, build.const(1)), *facts))


def _merged(xs: Sequence[object], values: Sequence[int], size: n.Var, facts: dict[n.Expr, None]) -> object:
    """What is alike in several programs, with what of its numbers is made of a size in terms of it. Raises _Apart."""
    first = xs[0]
    if all(x == first for x in xs):
        return first
    if any(type(x) is not type(first) for x in xs):
        raise _Apart
    if isinstance(first, tuple):
        if any(not isinstance(x, tuple) or len(x) != len(first) for x in xs):
            raise _Apart
        return tuple(_merged(parts, values, size, facts) for parts in zip(*(x for x in xs if isinstance(x, tuple)), strict=True))
    if isinstance(first, n.Const):
        numbers = [x.value for x in xs if isinstance(x, n.Const) and type(x.value) is int]
        made = next(_formulas(numbers, values, size, facts), None) if len(numbers) == len(xs) and first.type == I32 else None
        if made is None:
            raise _Apart
        return made
    if isinstance(first, n.Node):
        changed: dict[str, Any] = {f: _merged([getattr(x, f) for x in xs], values, size, facts) for f in first.compared_fields}
        return rebuild(first, changed)
    raise _Apart


def _formulas(numbers: Sequence[int], values: Sequence[int], size: n.Var, facts: dict[n.Expr, None]) -> Iterator[n.Expr]:
    """What numbers are that a size makes, one for each of its values: so many times it, a part of it, its square, or it and something."""
    def all_are(of: Sequence[int]) -> bool:
        return list(numbers) == list(of)
    v, c = values[0], numbers[0]
    square = build.mul(size, size)
    if c % v == 0 and all_are([c // v * x for x in values]):
        yield build.mul(size, c // v)
    if c and v % c == 0 and all_are([x // (v // c) for x in values]):
        facts[build.compare("eq", build.mod(size, v // c), build.const(0))] = None
        yield build.floordiv(size, v // c)
    if c % (v * v) == 0 and all_are([c // (v * v) * x * x for x in values]):
        yield build.mul(square, c // (v * v))
    if c and v * v % c == 0 and all_are([x * x // (v * v // c) for x in values]):
        facts[build.compare("eq", build.mod(square, v * v // c), build.const(0))] = None
        yield build.floordiv(square, v * v // c)
    if all_are([x + c - v for x in values]):
        yield build.add(size, c - v)


__all__ = ["at_its_own", "numbered", "sized"]
