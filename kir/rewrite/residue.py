"""What a pass's parameters do not say: local names, the order of independent statements, labels, and the digits of literals.

`residue(made, wanted)` is worked out by the framework, so that no pass carries any of it; `restore(made, residue) == wanted`. It never
holds a program, a kernel or a loop body.
"""
from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, TypeVar

from kir.base.dataclass import dataclass
from kir.base.diagnostic import usage
from kir.ir import nodes as n
from kir.ir.canonical import bound_names, rename
from kir.ir.visit import names_mentioned, once, statements, transform, walk
from kir.rewrite.edit import Path, edit_block, fields_of, node_at, replace_kernel, replace_stmts, with_block

N = TypeVar("N", bound=n.Node)


@dataclass(frozen=True)
class Residue:
    """`names`: (kernel, ((name made, name wanted), ..)); `order`: (path of the first statement that moves, permutation of those from
    there on); `labels`: (path, label or None) of statements and kernels whose label differs; `literals`: (path of a statement, ((which of its
    floating-point literals, the value wanted), ..)) where the same number is written in other digits. The kernel of a program that has only one
    is "", in names and at the head of paths."""

    names: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    order: tuple[tuple[Path, tuple[int, ...]], ...] = ()
    labels: tuple[tuple[Path, str | None], ...] = ()
    literals: tuple[tuple[Path, tuple[tuple[int, float], ...]], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.names or self.order or self.labels or self.literals)

    @property
    def size(self) -> int:
        """Its bytes as text."""
        return len(self.text().encode())

    def text(self) -> str:
        """One line: `cta=pid,kept=a;.3.0(1 0);.2#load_A;.4~0:0.1`; a kernel's name stands before `:` and at the head of a path."""
        parts = [f"{k}{':' if k else ''}{','.join(f'{old}={new}' for old, new in pairs)}" for k, pairs in self.names]
        parts += [f"{_short(path)}({' '.join(map(str, permutation))})" for path, permutation in self.order]
        parts += [f"{_short(path)}#{label or ''}" for path, label in self.labels]
        return ";".join([*parts, *(f"{_short(path)}~{','.join(f'{at}:{value!r}' for at, value in digits)}" for path, digits in self.literals)])

    @classmethod
    def parse(cls, text: str) -> Residue:
        """The inverse of `text`. Raises UsageError KIR-R001."""
        names, order, labels, literals = [], [], [], []
        for part in text.split(";") if text else ():
            if found := re.fullmatch(r"(?:(\w+):)?(\w+=\w+(?:,\w+=\w+)*)", part):
                pairs = tuple((pair.partition("=")[0], pair.partition("=")[2]) for pair in found[2].split(","))
                names.append((found[1] or "", pairs))
            elif found := re.fullmatch(r"([\w.]*)\((\d+(?: \d+)*)\)", part):
                order.append((_path(found[1]), tuple(map(int, found[2].split()))))
            elif found := re.fullmatch(r"([\w.]*)#(\w*)", part):
                labels.append((_path(found[1]), found[2] or None))
            elif found := re.fullmatch(r"([\w.]*)~(\d+:[-+.\de]+(?:,\d+:[-+.\de]+)*)", part):
                literals.append((_path(found[1]), tuple((int(at), float(value)) for at, _, value in (x.partition(":") for x in found[2].split(",")))))
            else:
                raise usage("KIR-R001", f"'{part}' is no part of a residue", needs="old=new, path(permutation), path#label or path~which:literal")
        return cls(tuple(names), tuple(order), tuple(labels), tuple(literals))

    def to_json(self) -> dict[str, Any]:
        """The parts that are not empty."""
        out: dict[str, Any] = {}
        if self.names:
            out["names"] = {k: dict(pairs) for k, pairs in self.names}
        if self.order:
            out["order"] = [[list(path), list(permutation)] for path, permutation in self.order]
        if self.labels:
            out["labels"] = [[list(path), label] for path, label in self.labels]
        if self.literals:
            out["literals"] = [[list(path), [list(each) for each in digits]] for path, digits in self.literals]
        return out

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Residue:
        """The inverse of `to_json`."""
        return cls(tuple((k, tuple(pairs.items())) for k, pairs in value.get("names", {}).items()),
                   tuple((tuple(path), tuple(permutation)) for path, permutation in value.get("order", ())),
                   tuple((tuple(path), label) for path, label in value.get("labels", ())),
                   tuple((tuple(path), tuple((at, number) for at, number in digits)) for path, digits in value.get("literals", ())))


def _short(path: Path) -> str:
    """A path as `main.3.0.then.1`: `body` between two indices is left out."""
    return ".".join(str(p) for p in path if p != "body")


def _path(text: str) -> Path:
    kernel, *rest = text.split(".")
    out: list[int | str] = [kernel]
    for p in rest:
        if p.isdigit():
            out += ["body"] if isinstance(out[-1], int) else []
            out.append(int(p))
        else:
            out.append(p)
    return tuple(out)


def _with_kernel(left: Residue, old: str, new: str) -> Residue:
    """A residue in which one kernel is called otherwise."""
    def at(path: Path) -> Path:
        return (new, *path[1:]) if path[0] == old else path
    return Residue(tuple((new if k == old else k, pairs) for k, pairs in left.names),
                   tuple((at(path), permutation) for path, permutation in left.order),
                   tuple((at(path), label) for path, label in left.labels),
                   tuple((at(path), digits) for path, digits in left.literals))


NOTHING = Residue()
"""No residue."""


def residue(made: n.Program, wanted: n.Program) -> Residue | None:
    """What turns `made` into `wanted`, or None when they differ in more than a residue may hold."""
    if len(made.kernels) != len(wanted.kernels) or replace(made, kernels=()) != replace(wanted, kernels=()):
        return None
    names: list[tuple[str, tuple[tuple[str, str], ...]]] = []
    order: list[tuple[Path, tuple[int, ...]]] = []
    labels: list[tuple[Path, str | None]] = []
    literals: list[tuple[Path, tuple[tuple[int, float], ...]]] = []
    for a, b in zip(made.kernels, wanted.kernels, strict=True):
        if a.name != b.name:
            return None
        found = ((), a) if a == b else _renamed(a, b)
        if found is None:
            moves = _order(_blank(a), _blank(b))
            if moves is None:
                return None
            found = _renamed(next(k for k in _reordered(made, moves).kernels if k.name == a.name), b)
            if found is None:  # statements that differ in names alone: those of one name go together
                moves = _order(_told_apart(a), _told_apart(b))
                found = _renamed(next(k for k in _reordered(made, moves).kernels if k.name == a.name), b) if moves is not None else None
            if found is None or moves is None:
                return None
            order += moves
        pairs, close = found
        if pairs:
            names.append((a.name, pairs))
        labels += _labels(close, b)
        literals += _literals(close.body, b.body, (b.name,))
    whole = Residue(tuple(names), tuple(order), tuple(labels), tuple(literals))
    return _with_kernel(whole, made.kernels[0].name, "") if len(made.kernels) == 1 else whole


def is_same(a: n.Program, b: n.Program) -> bool:
    """Whether two programs have one text: equal, their labels and the digits of their literals too."""
    return a == b and all(next(_labels(x, y), None) is None and next(_literals(x.body, y.body, (y.name,)), None) is None
                          for x, y in zip(a.kernels, b.kernels, strict=True))


def _labels(a: n.Kernel, b: n.Kernel) -> Iterator[tuple[Path, str | None]]:
    """The labels of `b`, in reading order, that `a`, which is alike, has otherwise; what both share is passed over."""
    def below(x: n.Block, y: n.Block, prefix: Path) -> Iterator[tuple[Path, str | None]]:
        for i, (s, t) in enumerate(zip(x, y, strict=True)):
            if s is t:
                continue
            if s.label != t.label:
                yield (*prefix, i), t.label
            for (fragment, inner), (_, other) in zip(fields_of(s), fields_of(t), strict=True):
                yield from below(inner, other, (*prefix, i, *fragment))
    if a.label != b.label:
        yield (a.name,), b.label
    yield from below(a.body, b.body, (a.name,))


def _literals(a: n.Block, b: n.Block, prefix: Path) -> Iterator[tuple[Path, tuple[tuple[int, float], ...]]]:
    """The floating-point literals of `b` that `a`, which is equal, has in other digits."""
    for i, (s, t) in enumerate(zip(a, b, strict=True)):
        if s is t:
            continue
        wanted = _floats(t)
        digits = tuple((at, y) for at, (x, y) in enumerate(zip(_floats(s), wanted, strict=True)) if x != y and x == x) if wanted else ()
        if digits:
            yield (*prefix, i), digits
        for (fragment, inner), (_, other) in zip(fields_of(s), fields_of(t), strict=True):
            yield from _literals(inner, other, (*prefix, i, *fragment))


def _floats(s: n.Stmt) -> tuple[float, ...]:
    """The floating-point literals of a statement, without those in its blocks, as they are written."""
    return once(s, "_floats", lambda: tuple(x.value for x in walk(_hollow(s)) if isinstance(x, n.Const) and isinstance(x.value, float)))


def _respelled(program: n.Program, path: Path, digits: tuple[tuple[int, float], ...]) -> n.Program:
    """`program` with other digits for some literals of the statement at `path`."""
    s, wanted, at = node_at(program, path), dict(digits), count()
    assert isinstance(s, n.Stmt)

    def leave(_: n.Node, x: n.Node) -> n.Node:
        if not (isinstance(x, n.Const) and isinstance(x.value, float)):
            return x
        return x if (value := wanted.get(next(at))) is None else n.Const(value, x.dtype)
    made = transform(_hollow(s), leave)
    for steps, block in fields_of(s):
        made = with_block(made, steps, block)
    return replace_stmts(program, path, (made,))


def restore(made: n.Program, left: Residue) -> n.Program:
    """`made` with statement order, names, labels and digits as `left` has them."""
    left = _with_kernel(left, "", made.kernels[0].name) if made.kernels else left
    out = _reordered(made, left.order)
    for kernel, pairs in left.names:
        item = rename(next(k for k in out.kernels if k.name == kernel), dict(pairs))
        assert isinstance(item, n.Kernel)
        out = replace_kernel(out, kernel, item)
    for path, label in left.labels:
        out = relabeled(out, path, label)
    for path, digits in left.literals:
        out = _respelled(out, path, digits)
    return out


def moved(path: Path, left: Residue) -> Path:
    """Where the statement at a path of `made` stands in `restore(made, left)`."""
    for first, permutation in _with_kernel(left, "", str(path[0])).order:
        at, start = len(first) - 1, int(first[-1])
        if len(path) > at and path[:at] == first[:at] and 0 <= int(path[at]) - start < len(permutation):
            path = (*path[:at], start + permutation.index(int(path[at]) - start), *path[at + 1:])
    return path


def relabeled(program: n.Program, path: Path, label: str | None) -> n.Program:
    """`program` with another label on the kernel or statement at `path`."""
    item = node_at(program, path)
    made: Any = replace(item, label=label)  # type: ignore[type-var]  # every Stmt is a dataclass
    if isinstance(made, n.Kernel):
        return replace_kernel(program, made.name, made)
    return replace_stmts(program, path, (made,))


def local_names(k: n.Kernel) -> list[str]:
    """Names that a kernel binds, in reading order, each once."""
    return list(dict.fromkeys([*(a.name for a in k.grid), *bound_names(k.body)]))


def _renamed(a: n.Kernel, b: n.Kernel) -> tuple[tuple[tuple[str, str], ...], n.Kernel] | None:
    """The renaming of `a`'s local names that makes it equal to `b`, and what it makes."""
    ours, theirs = local_names(a), local_names(b)
    if len(ours) != len(theirs):
        return None
    pairs = tuple((x, y) for x, y in zip(ours, theirs, strict=True) if x != y)
    made: n.Kernel = rename(a, dict(pairs))
    return (pairs, made) if made == b else None


def _blank(k: n.Kernel) -> n.Kernel:
    """The kernel with every local name as `_`, without labels."""
    return once(k, "_blank", lambda: replace(_nameless(replace(k, body=()), frozenset(local_names(k))),
                                             body=_blank_block(k.body, frozenset(local_names(k)))))


def _blank_block(block: n.Block, local: frozenset[str]) -> n.Block:
    return tuple(_blank_stmt(s, local & names_mentioned(s)) for s in block)


def _blank_stmt(s: n.Stmt, local: frozenset[str]) -> n.Stmt:
    """A statement with local names as `_`; worked out once for each statement and the names in it that are local."""
    kept: dict[frozenset[str], n.Stmt] = once(s, "_blank", dict)
    if local not in kept:
        inner = fields_of(s)
        made = _nameless(_hollow(s) if inner else s, local)
        for steps, block in inner:
            made = with_block(made, steps, _blank_block(block, local))
        kept[local] = made
    return kept[local]


def _nameless(item: N, local: frozenset[str]) -> N:
    return rename(item, dict.fromkeys(local, "_"), labels=False)


def _told_apart(k: n.Kernel) -> n.Kernel:
    """The kernel with local names after what the statements are in which they occur, wherever those stand, until that tells no more apart."""
    names = local_names(k)
    local, kinds, hollow = frozenset(names), dict.fromkeys(names, "_"), [once(s, "_hollow", partial(_hollow, s)) for s in statements(k.body)]
    while True:
        found, alike = defaultdict[str, list[int]](list), Counter(kinds.values())
        for s in hollow:
            mentioned = {x: kinds[x] for x in local & names_mentioned(s)}
            for name in mentioned:
                if alike[kinds[name]] > 1:  # else nothing is left to tell it apart from
                    found[name].append(_seen_from(s, mentioned, name))
        groups = {name: (kinds[name], tuple(sorted(found[name]))) for name in names}
        numbers = {group: f"_{number}" for number, group in enumerate(sorted(set(groups.values())))}
        if len(numbers) == len(set(kinds.values())):
            return rename(k, kinds, labels=False)
        kinds = {name: numbers[groups[name]] for name in names}


def _seen_from(s: n.Stmt, kinds: Mapping[str, str], name: str) -> int:
    """What a statement is to one of its names, where all names are known by their kinds alone; worked out once for each."""
    kept: dict[tuple[frozenset[tuple[str, str]], str], int] = once(s, "_seen_from", dict)
    key = frozenset(kinds.items()), name
    if key not in kept:
        kept[key] = hash(rename(s, {**kinds, name: f"{kinds[name]}own"}, labels=False))
    return kept[key]


def _order(a: n.Kernel, b: n.Kernel) -> list[tuple[Path, tuple[int, ...]]] | None:
    """Permutations of blocks (outermost first) after which two kernels agree, names aside that both have as they are."""
    found: list[tuple[Path, tuple[int, ...]]] = []

    def below(x: n.Block, y: n.Block, prefix: Path) -> bool:
        if len(x) != len(y):
            return False
        waiting: dict[Any, list[int]] = defaultdict(list)
        for i, s in enumerate(x):
            waiting[shape_key(s)].append(i)
        permutation = []
        for s in y:
            if not waiting[shape_key(s)]:
                return False
            permutation.append(waiting[shape_key(s)].pop(0))
        if (start := next((i for i, k in enumerate(permutation) if i != k), None)) is not None:
            stop = next(i for i in reversed(range(len(permutation))) if permutation[i] != i) + 1
            found.append(((*prefix, start), tuple(k - start for k in permutation[start:stop])))
        return all(below(inner, other, (*prefix, i, *fragment))
                   for i, s in enumerate(y)
                   for (fragment, other), (_, inner) in zip(fields_of(s), fields_of(x[permutation[i]]), strict=True))

    return found if below(a.body, b.body, (a.name,)) else None


def _hollow(s: n.Stmt) -> n.Stmt:
    """A statement with nothing in its blocks."""
    match s:
        case n.For() | n.While():
            return replace(s, body=())
        case n.If():
            return replace(s, then=(), orelse=())
        case n.Roles():
            return replace(s, roles=tuple(replace(r, body=()) for r in s.roles))
        case _:
            return s


def shape_key(s: n.Stmt) -> n.Stmt | tuple[Any, ...]:
    """A statement up to the order of the statements inside it."""
    inner = fields_of(s)
    if not inner:
        return s
    return once(s, "_shape_key", lambda: (_hollow(s), *(tuple(sorted(hash(shape_key(x)) for x in block)) for _, block in inner)))


def _permuted(start: int, permutation: tuple[int, ...], block: n.Block) -> n.Block:
    stop = start + len(permutation)
    return (*block[:start], *(block[start + i] for i in permutation), *block[stop:])


def _reordered(program: n.Program, order: tuple[tuple[Path, tuple[int, ...]], ...] | list[tuple[Path, tuple[int, ...]]]) -> n.Program:
    for path, permutation in order:
        program = edit_block(program, path, partial(_permuted, int(path[-1]), permutation))
    return program

