"""Memory that holds what is read again: where it is declared, how often it is mentioned, and the program without it."""
from __future__ import annotations

from collections.abc import Sequence

from kir.analysis.loops.loop_nest import Loops, counters, recounted, ways
from kir.ir import nodes as n
from kir.ir.types import I32
from kir.ir.visit import names_read
from kir.rewrite import Path, Rewritten
from kir.rewrite.edit import block_at, enclosing
from kir.rewrite.match import block_and_index, regions_of, sibling, splice
from kir.rewrite.match.local_buffers import mentions
from kir.rewrite.match.unify import Change, rewritten
from kir.rewrite.view import expression_at, text_of


def loops_of(program: n.Program, path: Path, texts: Sequence[str]) -> Loops | None:
    """The loops that texts say, as `serial 4`, `serial N` and `serial ceildiv(20 - turn0, 16)`, with `turn0`, .. for counters; None for other texts."""
    sizes = sizes_of(program)
    turns, lengths = counters(len(texts), "turn"), list[n.Expr | None]()
    for k, text in enumerate(texts):
        count = text.partition(" ")[2]
        made = None if count.isdigit() or not count else expression_at(program, path, count, turns[:k])
        lengths.append(made if made is not None and made.type == I32 and names_read(made) <= {*sizes, *(v.name for v in turns[:k])} else None)
    found = ways([text if e is None else f"{text.partition(' ')[0]} 1" for text, e in zip(texts, lengths, strict=True)])
    return None if found is None else tuple((kind, v, count if e is None else e) for (kind, count), e, v in zip(found, lengths, turns, strict=True))


def sizes_of(program: n.Program) -> frozenset[str]:
    """The names of a program's sizes."""
    return frozenset(p.name for p in program.params if p.role == "size")


def texts_of(loops: Loops) -> tuple[str, ...]:
    """The texts of loops."""
    return tuple(f"{kind} {count if isinstance(count, int) else text_of(count)}"
                 for kind, _, count in recounted(loops, counters(len(loops), "turn")))


def mentioned(s: n.Stmt, name: str) -> int:
    """How many places in a statement are of that memory."""
    return len(regions_of(s, name))


def declared(program: n.Program, path: Path, name: str, literal: bool = False) -> tuple[Path, int] | None:
    """Where the memory is declared without a value (or with a `literal` one), and how many statements further out than `path`."""
    around = [p for p, x in enclosing(program, path) if isinstance(x, n.Stmt)]
    for level, p in enumerate([path, *reversed(around)]):
        for k, s in enumerate(block_at(program, p)[:int(p[-1])]):
            if isinstance(s, n.Alloc) and s.buffer.name == name:
                return ((*p[:-1], k), level) if s.init is None or (literal and isinstance(s.init, n.Const)) else None
    return None


def can_be_declared(program: n.Program, path: Path, hoist: int) -> bool:
    """Whether the memory could be declared `hoist` statements further out than `path`: all those are loops or branches."""
    around = [x for _, x in enclosing(program, path) if isinstance(x, n.Stmt)]
    return hoist <= len(around) and all(isinstance(x, (n.For, n.If, n.While)) for x in around[len(around) - hoist:])


def holding(program: n.Program, path: Path, held: n.Buffer, fill: n.Block, rest: n.Block, hoist: int, begin: n.Const | None = None) -> Rewritten:
    """The program with memory that is declared `hoist` statements further out than `path` and filled there, before `rest` in place of what
    followed; the path of what fills it. It may `begin` with a value that nobody reads."""
    alloc = n.Alloc(held, begin)
    made = splice(program, path, (*(() if hoist else (alloc,)), *fill, *rest), 0, None)
    if not hoist:
        return Rewritten(made, sibling(path, 1))
    outer = [p for p, x in enclosing(program, path) if isinstance(x, n.Stmt)][-hoist]
    return Rewritten(splice(made, outer, (alloc,), 0, 0), (*sibling(outer, 1), *path[len(outer):]))


def without(program: n.Program, path: Path, name: str, at: Path, change: Change) -> Rewritten:
    """The program without the statement at `path` that fills the memory and without its declaration at `at`; what comes after it is
    changed to read each element where it comes from."""
    return replaced_by(program, path, name, at, tuple(rewritten(s, change) for s in block_at(program, path)[int(path[-1]) + 1:]))


def replaced_by(program: n.Program, path: Path, name: str, at: Path, rest: n.Block) -> Rewritten:
    """The same, with what comes after it given; the path of the first statement that read the memory."""
    block, i = block_and_index(program, path)
    first = next(k for k in range(i + 1, len(block)) if mentions(block[k], name)) - 1
    made = splice(splice(program, path, rest, 0, None), at, ())
    out = [*path[:-1], first]
    out[len(at) - 1] = int(out[len(at) - 1]) - 1
    return Rewritten(made, tuple(out))
