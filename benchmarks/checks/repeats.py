"""How much of a folder's code stands in it twice: ``python -m benchmarks.checks.repeats [FOLDER] [LINES]``.

Code is what is left without docstrings, imports, blank lines and what a class declares of itself. A run of so many lines of it that stands again to the
letter counts.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from kir.base.dataclass import dataclass

LINES = 6


@dataclass(frozen=True)
class Repeated:
    """Lines of code of a folder, how many of them repeat others in a run, and where each run stands."""

    code: int
    lines: int
    runs: tuple[tuple[str, ...], ...]


def _left_out(tree: ast.Module) -> Iterator[ast.stmt]:
    for x in ast.walk(tree):
        if isinstance(x, (ast.Import, ast.ImportFrom)):
            yield x
        elif isinstance(x, (ast.Module, ast.FunctionDef, ast.ClassDef)):
            if x.body and isinstance(x.body[0], ast.Expr) and isinstance(x.body[0].value, ast.Constant):
                yield x.body[0]
            if isinstance(x, ast.ClassDef):
                yield from (s for s in x.body if isinstance(s, (ast.Assign, ast.AnnAssign)))


def code_of(text: str) -> tuple[tuple[int, str], ...]:
    """The lines of a module that are code, by number."""
    out = {k for s in _left_out(ast.parse(text)) for k in range(s.lineno, (s.end_lineno or s.lineno) + 1)}
    return tuple((k, said.strip()) for k, said in enumerate(text.splitlines(), 1) if said.strip() and k not in out)


def repeated(folder: Path, lines: int = LINES) -> Repeated:
    """What stands twice in the modules of a folder and those below it."""
    code = {file: code_of(file.read_text(encoding="utf-8")) for file in sorted(folder.rglob("*.py"))}
    at: dict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    for file, found in code.items():
        for i in range(len(found) - lines + 1):
            at[tuple(said for _, said in found[i:i + lines])].append((file, i))
    twice = [places for places in at.values() if len(places) > 1]
    again = {(file, k) for places in twice for file, i in places[1:] for k in range(i, i + lines)}
    return Repeated(sum(map(len, code.values())), len(again), tuple(
        tuple(f"{file.relative_to(folder)}:{code[file][i][0]}" for file, i in places) for places in twice))


def main(words: Sequence[str]) -> int:
    """Print it."""
    folder, lines = Path(words[0] if words else "passes"), int(words[1]) if len(words) > 1 else LINES
    found = repeated(folder, lines)
    files = sorted(folder.rglob("*.py"))
    print(f"{sum(len(f.read_text(encoding='utf-8').splitlines()) for f in files):,} lines in {len(files)} modules, {found.code:,} of them code; "
          f"{found.lines} repeat others in runs of {lines}")
    for places in found.runs:
        print("  ", *places)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
