"""Anchors: named, stable places in a program, with a text form that parses back.

`main/k_loop/load_A` goes from a kernel down. A segment is the name of a statement (its label, else a name of its own: the variable of
a loop, what a let or an allocation defines, the function that is called, `copy(dst=As)`, `store(dst=C)`, `mma(acc=acc)`, `if`), the
name of a role, `then` or `else` after an `if`, or a pattern `kind(field=value, ..)`. `#2` takes the third of several. A segment is
looked for among the statements directly inside, and below them only when there is none. Without a kernel in front, `copy(dst=As)#0`,
the whole program is searched. `@before` and `@after` denote gaps. Ambiguity is an error that lists the candidates.
"""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, did_you_mean, error
from kir.ir import nodes as n
from kir.ir.paths import (
    Path,
    at,
    block_at,
    block_paths,
    child_blocks,
    enclosing,
    insert,
    path_text,
    paths,
    replace_at,
    replace_block,
    roots,
)
from kir.ir.visit import once

__all__ = ["Path", "Pattern", "anchor_of", "anchors", "at", "block_at", "block_paths", "child_blocks", "effective_name", "enclosing",
           "find",
           "insert", "kind_of", "own_name", "parse_pattern", "path_text", "paths", "properties", "replace_at", "replace_block", "resolve",
           "segments"]


def kind_of(s: n.Stmt) -> str:
    """The kind of a statement as patterns write it: `for`, `copy`, `let`, .."""
    return type(s).__name__.lower()


def properties(s: n.Stmt) -> dict[str, str]:
    """What a pattern may ask of a statement."""
    match s:
        case n.Let():
            return {"name": ",".join(s.names)}
        case n.Alloc():
            return {"name": s.buffer.name, "space": s.buffer.space, "dtype": s.buffer.dtype.name}
        case n.View():
            return {"name": s.buffer.name, "space": s.buffer.space, "of": s.at.buffer.name}
        case n.Store():
            return {"dst": s.at.buffer.name, "space": s.at.buffer.space}
        case n.Copy():
            return {"src": s.src.at.buffer.name, "dst": s.dst.buffer.name, "via": s.via, "from": s.src.at.buffer.space,
                    "to": s.dst.buffer.space}
        case n.Mma():
            return {"acc": s.acc.buffer.name, "via": s.via}
        case n.Eval():
            return {"fn": s.call.fn}
        case n.For():
            return {"var": s.var.name, "kind": s.kind, **{k: str(v) for k, v in s.attrs}}
        case n.Jump():
            return {"kind": s.kind}
        case n.Opaque():
            return {"surface": s.surface}
        case n.Hole():
            return {"name": s.name}
        case _:
            return {}


def own_name(s: n.Stmt) -> str:
    """The name of a statement that has no label: stable while what it defines or writes keeps its name."""
    match s:
        case n.Let():
            return s.names[0] if s.names else "let"
        case n.Alloc() | n.View():
            return s.buffer.name
        case n.Store():
            return f"store(dst={s.at.buffer.name})"
        case n.Copy():
            return f"copy(dst={s.dst.buffer.name})"
        case n.Mma():
            return f"mma(acc={s.acc.buffer.name})"
        case n.Eval():
            return s.call.fn
        case n.For():
            return s.var.name
        case n.Jump():
            return s.kind
        case n.Hole():
            return s.name
        case _:
            return kind_of(s)


@dataclass(frozen=True)
class Pattern:
    """One segment: a name or a kind with required properties, and which of several (None: it must be the only one)."""

    name: str
    properties: tuple[tuple[str, str], ...] | None = None
    index: int | None = None

    def __str__(self) -> str:
        inner = "" if self.properties is None else "(" + ",".join(f"{k}={v}" for k, v in self.properties) + ")"
        return self.name + inner + ("" if self.index is None else f"#{self.index}")

    def select(self, statements: Iterable[tuple[Path, n.Stmt]]) -> list[tuple[Path, n.Stmt]]:
        """Those of `statements` that the pattern means, whichever their index: by effective name, else by own name, else by kind."""
        found = list(statements)
        if self.properties is not None:
            wanted = self.properties
            return [(p, s) for p, s in found if kind_of(s) == self.name and all(properties(s).get(k) == v for k, v in wanted)]
        for names in (effective_name, own_name, kind_of):
            chosen = [(p, s) for p, s in found if names(s) == self.name]
            if chosen:
                return chosen
        return []


_SEGMENT = re.compile(r"(?P<name>\w+)(?P<open>\((?P<inner>(?:[^()]|\([^()]*\))*)\))?(#(?P<index>\d+))?")
_PROPERTY = re.compile(r"\s*(\w+)\s*=\s*([^,=]+)\s*")


def parse_pattern(text: str, whole: str = "") -> Pattern:
    """A segment from its text; the inverse of `str`. Raises KirError KIR-A003."""
    m = _SEGMENT.fullmatch(text.strip())
    if m is None:
        raise error("KIR-A003", f"'{text}' is no anchor segment", subject=whole,
                    needs="a name, or kind(field=value, ..), and #n for the n-th of several")
    wanted: tuple[tuple[str, str], ...] | None = None
    if m["open"] is not None:
        pairs = [_PROPERTY.fullmatch(x) for x in m["inner"].split(",")] if m["inner"].strip() else []
        if any(p is None for p in pairs):
            raise error("KIR-A003", f"'{m['inner']}' in '{text}' is no list of field=value", subject=whole)
        wanted = tuple((p[1], p[2].strip()) for p in pairs if p)
    return Pattern(m["name"], wanted, None if m["index"] is None else int(m["index"]))


def effective_name(s: n.Stmt) -> str:
    """The label of a statement, else its own name."""
    return s.label or own_name(s)


def segments(block: n.Block) -> tuple[str, ...]:
    """The segment of each statement of a block: unambiguous inside it."""
    names = [effective_name(s) for s in block]
    plain = Counter(names)
    patterned = Counter(map(own_name, block))
    seen: Counter[str] = Counter()
    out = []
    for s, name in zip(block, names, strict=True):
        own = own_name(s)
        if "(" in name:
            out.append(name if patterned[name] == 1 else f"{name}#{seen[own]}")
        else:
            out.append(name if plain[name] == 1 else f"{name}#{seen['@' + name]}")
        seen[own] += 1
        seen["@" + name] += 1
    return tuple(out)


def _steps_text(s: n.Stmt, steps: Path) -> str:
    """How an anchor names a block of a statement ("" where there is only one)."""
    if isinstance(s, n.If):
        return "then" if steps[0] == "then" else "else"
    if isinstance(s, n.Roles) and isinstance(steps[1], int):
        return s.roles[steps[1]].name
    return ""


def anchors(program: n.Program) -> Iterator[tuple[str, Path, n.Stmt]]:
    """The anchor, path and statement of every statement, in reading order."""
    def below(block: n.Block, path: Path, text: str) -> Iterator[tuple[str, Path, n.Stmt]]:
        for i, (s, segment) in enumerate(zip(block, segments(block), strict=True)):
            here, name = (*path, i), f"{text}/{segment}"
            yield name, here, s
            for steps, inner in child_blocks(s):
                branch = _steps_text(s, steps)
                yield from below(inner, here + steps, f"{name}/{branch}" if branch else name)
    for name, block in roots(program):
        yield from below(block, (name,), name)


def anchor_of(program: n.Program, path: Path) -> str:
    """The anchor of the statement (or block, or gap at the end of a block) at `path`; `resolve` gives the path back. Raises KirError
    KIR-A004."""
    text = str(path[0]) if path else ""
    block = block_at(program, path[:1])
    rest = path[1:]
    named = once(program, "_segments", dict[Path, tuple[str, ...]])  # of each block, by the path that leads to it
    while rest:
        index = rest[0]
        if not isinstance(index, int) or not 0 <= index <= len(block) or (index == len(block) and (len(rest) > 1 or not block)):
            raise error("KIR-A004", f"this program has no statement at {path_text(path)}", needs="a path of this very program")
        at = path[:len(path) - len(rest)]
        if at not in named:
            named[at] = segments(block)
        if index == len(block):
            return f"{text}/{named[at][-1]}@after"
        s = block[index]
        text += "/" + named[at][index]
        rest = rest[1:]
        for steps, inner in child_blocks(s):
            if rest and rest[:len(steps)] == steps:
                branch = _steps_text(s, steps)
                text += f"/{branch}" if branch else ""
                block, rest = inner, rest[len(steps):]
                break
        else:
            if rest:
                raise error("KIR-A004", f"this program has no statement at {path_text(path)}", needs="a path of this very program")
    return text


@dataclass(frozen=True)
class _Place:
    """Where a partly read anchor stands: a statement, or blocks to look in."""

    scopes: tuple[tuple[Path, n.Block], ...]
    statement: tuple[Path, n.Stmt] | None = None
    text: str = ""

    def direct(self) -> list[tuple[Path, n.Stmt]]:
        return [((*path, i), s) for path, block in self.scopes for i, s in enumerate(block)]

    def below(self) -> list[tuple[Path, n.Stmt]]:
        return [pair for path, block in self.scopes for pair in block_paths(block, path)]


def _start(program: n.Program, segment: str) -> _Place | None:
    for name, block in roots(program):
        if name == segment:
            return _Place((((name,), block),), None, name)
    for k in program.kernels:
        if k.label == segment:
            return _Place((((k.name,), k.body),), None, k.name)
    return None


def _branch(place: _Place, segment: str) -> _Place | None:
    """The branch of an `if` or the role that a segment names."""
    if place.statement is None:
        return None
    path, s = place.statement
    if not isinstance(s, (n.If, n.Roles)):
        return None
    chosen = tuple((path + steps, block) for steps, block in child_blocks(s) if _steps_text(s, steps) == segment)
    return _Place(chosen, None, f"{place.text}/{segment}") if chosen else None


def _candidates(program: n.Program, place: _Place, pattern: Pattern) -> list[tuple[Path, n.Stmt]]:
    return pattern.select(place.direct()) or pattern.select(place.below())


def _miss(program: n.Program, place: _Place, segment: str, text: str) -> KirError:
    where = place.text or "this program"
    there = place.below()
    names = list(dict.fromkeys(effective_name(s) for _, s in there))
    direct = list(dict.fromkeys(segments(tuple(s for _, s in place.direct()))))
    hint = did_you_mean(segment, [*names, *(kind_of(s) for _, s in there)] + ([] if place.text else [name for name, _ in roots(program)]))
    own = [] if place.text else [f"kernel {name}" for name, _ in roots(program)]
    direct = [*own, *direct]
    notes = (f"directly in {where}: {', '.join(direct[:12])}{', ..' if len(direct) > 12 else ''}",) if direct else (f"{where} is empty",)
    return error("KIR-A002", f"there is no '{segment}' in {where}", subject=text, attempt=hint, notes=notes)


_GAP = re.compile(r"(?P<anchor>.*)@(?P<gap>before|after)")
_NUMBERED = re.compile(r"body\.(\d+)")


def _walk(program: n.Program, text: str, every: bool) -> list[Path]:
    """The paths that an anchor without gap means; more than one only if `every`, for the last segment."""
    parts = [part.strip() for part in text.strip().split("/")]
    if not all(parts):
        raise error("KIR-A003", f"'{text}' is no anchor: a segment is empty", needs="segments between slashes, as in main/k_loop/load_A")
    place = _start(program, parts[0])
    if place is not None:
        parts = parts[1:]
    else:
        place = _Place(tuple(((name,), block) for name, block in roots(program)))
    for i, part in enumerate(parts):
        branch = _branch(place, part)
        if branch is not None:
            place = branch
            continue
        if place.statement is not None:
            path, s = place.statement
            place = _Place(tuple((path + steps, block) for steps, block in child_blocks(s)), None, place.text)
        numbered = _NUMBERED.fullmatch(part)
        pattern = Pattern("", (), int(numbered[1])) if numbered else parse_pattern(part, text)
        found = place.direct() if numbered else _candidates(program, place, pattern)
        if not found or (pattern.index is not None and pattern.index >= len(found)):
            raise _miss(program, place, part, text)
        if pattern.index is not None:
            found = found[pattern.index:pattern.index + 1]
        if len(found) > 1:
            if every and i == len(parts) - 1:
                return [path for path, _ in found]
            listed = tuple(anchor_of(program, path) for path, _ in found[:12])
            raise error("KIR-A001", f"'{part}' means {len(found)} statements", subject=text, witness=listed,
                        needs="one of these, or #n for the n-th")
        place = _Place((), found[0], anchor_of(program, found[0][0]))
    if place.statement is not None:
        return [place.statement[0]]
    if len(place.scopes) == 1:
        return [place.scopes[0][0]]
    raise error("KIR-A003", f"'{text}' names no statement", needs="segments between slashes, as in main/k_loop/load_A")


def resolve(program: n.Program, text: str) -> Path:
    """The path that an anchor means; a gap gives the path at which `insert` puts statements into it; a kernel or branch gives the path
    of its block. Raises KirError: KIR-A001 (ambiguous, with the candidates), KIR-A002 (no match,
                                                                                        with the nearest), KIR-A003 (no anchor)."""
    gap = _GAP.fullmatch(text.strip())
    if gap is None:
        return _walk(program, text, False)[0]
    path = _walk(program, gap["anchor"], False)[0]
    last = path[-1]
    if not isinstance(last, int):
        raise error("KIR-A003", f"'{text}' is no gap: {gap['anchor']} is a whole block", needs="a statement before @before or @after")
    return path if gap["gap"] == "before" else (*path[:-1], last + 1)


def find(program: n.Program, text: str) -> tuple[Path, ...]:
    """All paths that the last segment of an anchor may mean, none where nothing matches. Raises KirError KIR-A001 (an earlier segment
    is ambiguous) and KIR-A003 (no anchor)."""
    try:
        return tuple(_walk(program, text, True))
    except KirError as bad:
        if bad.diagnostics[0].id == "KIR-A002":
            return ()
        raise
