"""Structural diff of two programs: what changed, moved, came and went, statement by statement.

`diff` gives one tree of rows in reading order; `render_terminal`, `render_html` and `to_json` show the same rows. A statement that moved
is one row where it is now and a pointer where it was, never deleted and added.
"""
from __future__ import annotations

import difflib
import html
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.anchors import anchors
from kir.ir.changes.matching import match
from kir.ir.paths import Path, child_blocks
from kir.ir.printer import name_text, program_text, stmt_lines

Kind = Literal["same", "changed", "moved", "moved+changed", "left", "added", "deleted"]
SIGNS: dict[Kind, str] = {"same": " ", "changed": "~", "moved": ">", "moved+changed": "»", "left": "<", "added": "+", "deleted": "-"}
"""`left` marks the place that a moved statement left."""


@dataclass(frozen=True)
class Row:
    """One line: `before` and `after` are its text on each side ("" where there is none), `depth` its nesting, anchors where it stands
    on each side. Rows of the header, and of the words between blocks, have no anchor."""

    kind: Kind
    depth: int
    before: str = ""
    after: str = ""
    anchor_before: str = ""
    anchor_after: str = ""


@dataclass(frozen=True)
class Diff:
    """All rows in reading order, and whether the programs are equal as values (labels aside)."""

    rows: tuple[Row, ...]
    equal: bool

    @property
    def counts(self) -> dict[Kind, int]:
        """How many rows there are of each kind."""
        out: dict[Kind, int] = dict.fromkeys(SIGNS, 0)
        for row in self.rows:
            out[row.kind] += 1
        return out

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all differs, labels included."""
        return all(row.kind == "same" for row in self.rows)


def diff(before: n.Program, after: n.Program, hints: Mapping[Path, Iterable[Path]] | None = None) -> Diff:
    """The difference; `hints` say where some statements went, as for `anchor_map`."""
    return Diff(tuple(_Differ(before, after, hints).rows()), before == after)


class _Differ:
    def __init__(self, before: n.Program, after: n.Program, hints: Mapping[Path, Iterable[Path]] | None) -> None:
        self.before, self.after = before, after
        self.pairs = match(before, after, hints)
        self.back = {b: a for a, b in self.pairs.items()}
        self.names = {path: text for text, path, _ in anchors(before)}, {path: text for text, path, _ in anchors(after)}
        self.stmts = {path: s for _, path, s in anchors(before)}

    def rows(self) -> Iterator[Row]:
        yield from self.header()
        for kind, old, new in (("function", self.before.functions, self.after.functions), ("kernel", self.before.kernels,
                                                                                           self.after.kernels)):
            yield from self.roots(kind, old, new)
        yield from _lines(_plan(self.before), _plan(self.after))

    def header(self) -> Iterator[Row]:
        yield from _lines(_head(self.before), _head(self.after))

    def roots(self, kind: str, old: tuple[n.Kernel, ...] | tuple[n.Function, ...], new: tuple[n.Kernel, ...] | tuple[n.Function, ...]
              ) -> Iterator[Row]:
        """Rows of kernels or functions: partners are those of one name, the rest in order."""
        left = {x.name: x for x in old}
        partners = {x.name: x.name for x in new if x.name in left}
        partners.update(zip([x.name for x in new if x.name not in left], [x for x in left if x not in partners.values()], strict=False))
        for y in new:
            x = left.get(partners.get(y.name, ""))
            if x is None:
                yield Row("added", 0, "", _title(self.after, y), "", y.name)
                yield from self.block((), ("",), y.body, (y.name,), 1)
                continue
            a, b = _title(self.before, x), _title(self.after, y)
            yield Row("same" if a == b else "changed", 0, a, b, x.name, y.name)
            yield from self.block(x.body, (x.name,), y.body, (y.name,), 1)
        for x in old:
            if x.name not in partners.values():
                yield Row("deleted", 0, _title(self.before, x), "", x.name)
                yield from self.block(x.body, (x.name,), (), ("",), 1)

    def block(self, old: n.Block, a: Path, new: n.Block, b: Path, depth: int) -> Iterator[Row]:
        """Rows of two blocks that are partners: those of the new one in order, with what left the old one at its place."""
        kept = [i for i in range(len(old)) if self.pairs.get((*a, i), ("",))[:-1] == b]
        targets = [int(self.pairs[(*a, i)][-1]) for i in kept]
        still = {targets[i] for i in _longest_rising(targets)}
        position = 0
        for j, t in enumerate(new):
            source = self.back.get((*b, j))
            in_place = source is not None and source[:-1] == a and j in still
            if in_place and source is not None:
                yield from self.leaving(old, a, position, int(source[-1]), b, still, depth)
                position = int(source[-1]) + 1
            yield from self.statement(source, in_place, t, (*b, j), depth)
        yield from self.leaving(old, a, position, len(old), b, still, depth)

    def leaving(self, old: n.Block, a: Path, start: int, stop: int, b: Path, still: set[int], depth: int) -> Iterator[Row]:
        """Rows of old statements that are not in place any more: deleted, or moved."""
        for i in range(start, stop):
            path = (*a, i)
            target = self.pairs.get(path)
            head = _head_line(old[i])
            if target is None:
                yield Row("deleted", depth, head, "", self.names[0].get(path, ""))
                for steps, inner in child_blocks(old[i]):
                    yield from self.between(old[i], None, steps, depth)
                    yield from self.block(inner, path + steps, (), ("",), _inner_depth(old[i], depth))
            elif target[:-1] != b or target[-1] not in still:
                yield Row("left", depth, head, "", self.names[0].get(path, ""), self.names[1].get(target, ""))

    def statement(self, source: Path | None, in_place: bool, t: n.Stmt, b: Path, depth: int) -> Iterator[Row]:
        """Rows of a statement of the new program."""
        after = _head_line(t)
        if source is None:
            yield Row("added", depth, "", after, "", self.names[1][b])
            for steps, inner in child_blocks(t):
                yield from self.between(None, t, steps, depth)
                yield from self.block((), ("",), inner, b + steps, _inner_depth(t, depth))
            return
        s = self.stmts[source]
        before = _head_line(s)
        same = before == after
        kind: Kind = ("same" if same else "changed") if in_place else ("moved" if same else "moved+changed")
        yield Row(kind, depth, before, after, self.names[0][source], self.names[1][b])
        old = dict(child_blocks(s))
        for steps, inner in child_blocks(t):
            yield from self.between(s, t, steps, depth)
            yield from self.block(old.get(steps, ()), source + steps if steps in old else ("",), inner, b + steps, _inner_depth(t, depth))
        for steps, inner in child_blocks(s):
            if steps not in dict(child_blocks(t)):
                yield from self.between(s, None, steps, depth)
                yield from self.block(inner, source + steps, (), ("",), _inner_depth(s, depth))

    def between(self, s: n.Stmt | None, t: n.Stmt | None, steps: Path, depth: int) -> Iterator[Row]:
        """The line that introduces a further block of a statement: `else`, or a role."""
        a, b = "" if s is None else _intro(s, steps), "" if t is None else _intro(t, steps)
        if a or b:
            kind: Kind = "same" if a == b else "changed" if a and b else "added" if b else "deleted"
            yield Row(kind, depth + (steps[0] == "roles"), a, b)


def _inner_depth(s: n.Stmt, depth: int) -> int:
    return depth + 2 if isinstance(s, n.Roles) else depth + 1


def _intro(s: n.Stmt, steps: Path) -> str:
    if isinstance(s, n.If):
        return "else" if steps[0] == "orelse" and s.orelse else ""
    if isinstance(s, n.Roles) and isinstance(steps[1], int) and steps[1] < len(s.roles):
        r = s.roles[steps[1]]
        return f"role {name_text(r.name)} warps {r.lo}..{r.hi}" + (f" registers {r.registers}" if r.registers else "")
    return ""


def _head_line(s: n.Stmt) -> str:
    return next(stmt_lines(s))


def _head(p: n.Program) -> list[str]:
    """The lines above the first function or kernel."""
    out = []
    for line in program_text(n.Program(p.name, p.metas, p.params, p.facts, p.structs, p.workspaces, p.tensor_maps)).splitlines()[1:]:
        out.append(line)
    return out


def _plan(p: n.Program) -> list[str]:
    lines = program_text(n.Program(p.name, plan=p.plan)).splitlines()
    return lines[lines.index("plan"):] if p.plan else []


def _title(p: n.Program, x: n.Kernel | n.Function) -> str:
    """The first line of a kernel or function."""
    alone = n.Program(p.name, kernels=(x,)) if isinstance(x, n.Kernel) else n.Program(p.name, functions=(x,))
    return program_text(alone).splitlines()[2]


def _lines(old: list[str], new: list[str]) -> Iterator[Row]:
    """Rows of plain lines."""
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (_plain("same", x, x) for x in old[i1:i2])
            continue
        yield from (_plain("deleted", x, "") for x in old[i1:i2])
        yield from (_plain("added", "", x) for x in new[j1:j2])


def _plain(kind: Kind, before: str, after: str) -> Row:
    text = before or after
    return Row(kind, (len(text) - len(text.lstrip())) // 2, before.strip(), after.strip())


def _longest_rising(values: list[int]) -> list[int]:
    """Positions of a longest strictly rising subsequence: what stays in place when the others move around it."""
    tails: list[int] = []
    ends: list[int] = []
    previous: list[int] = []
    for i, v in enumerate(values):
        k = bisect_left(tails, v)
        if k == len(tails):
            tails.append(v)
            ends.append(i)
        else:
            tails[k], ends[k] = v, i
        previous.append(ends[k - 1] if k else -1)
    out: list[int] = []
    i = ends[-1] if ends else -1
    while i >= 0:
        out.append(i)
        i = previous[i]
    return out[::-1]


# ------------------------------------------------------------------------------------------------------------------ renderers

CONTEXT = 3
"""Unchanged rows shown around a changed one."""


def shown(d: Diff, context: int = CONTEXT) -> Iterator[Row | int]:
    """The rows near a change; a number stands for that many unchanged rows left out."""
    near: set[int] = set()
    for i, row in enumerate(d.rows):
        if row.kind != "same":
            near.update(range(max(0, i - context), min(len(d.rows), i + context + 1)))
    skipped = 0
    for i, row in enumerate(d.rows):
        if i in near:
            if skipped:
                yield skipped
                skipped = 0
            yield row
        else:
            skipped += 1
    if skipped:
        yield skipped


def _sides(row: Row) -> Iterator[tuple[str, str]]:
    """(sign, text) of the one or two lines of a row."""
    pad = "  " * row.depth
    if row.kind in ("changed", "moved+changed"):
        yield "-", pad + row.before
        yield "+" if row.kind == "changed" else SIGNS[row.kind], pad + row.after
    elif row.kind == "left":
        yield SIGNS["left"], f"{pad}{row.before}"
    else:
        yield SIGNS[row.kind], pad + (row.after or row.before)


def _note(row: Row) -> str:
    """Where a moved statement came from or went to."""
    if row.kind in ("moved", "moved+changed"):
        return f"moved from {row.anchor_before}"
    return f"moved to {row.anchor_after}" if row.kind == "left" else ""


_STYLES = {"+": "green", "-": "red", ">": "cyan", "»": "cyan", "<": "dim cyan", " ": ""}


def render_terminal(d: Diff, context: int = CONTEXT, color: bool = False) -> str:
    """Text for a terminal, one line a row (two where it changed); with ANSI colors if `color`."""
    from rich.console import Console
    from rich.text import Text
    lines: list[Text] = []
    if d.is_empty:
        lines.append(Text("no difference"))
    for row in () if d.is_empty else shown(d, context):
        if isinstance(row, int):
            lines.append(Text(f"  .. {row} unchanged", style="dim"))
            continue
        for sign, text in _sides(row):
            note = _note(row) if sign != "-" or row.kind != "moved+changed" else ""
            lines.append(Text(f"{sign} {text}" + (f"    # {note}" if note else ""), style=_STYLES[sign]))
    console = Console(no_color=not color, force_terminal=color, force_jupyter=False, color_system="standard" if color else None, width=10_000, highlight=False)
    with console.capture() as captured:
        for line in lines:
            console.print(line, soft_wrap=True, markup=False)
    return captured.get().rstrip("\n")


_CSS = """.kir-diff{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-x:auto;margin:0;
border:1px solid #d0d7de;border-radius:6px;padding:.5em 0;color:#1f2328;background:#fff}
.kir-diff div{padding:0 1em 0 calc(1em + var(--in,4ch));text-indent:calc(-1*var(--in,4ch));white-space:pre-wrap;overflow-wrap:anywhere}
.kir-diff .add{background:#dafbe1}.kir-diff .del{background:#ffebe9}.kir-diff mark{color:inherit;background:none;border-radius:2px}
.kir-diff .add mark,.kir-diff .mov mark{background:#9be9a8}.kir-diff .del mark{background:#ffb8b0}
.kir-diff .mov{background:#ddf4ff}
.kir-diff .gone{background:#f6f8fa;color:#59636e}.kir-diff .skip{color:#59636e;background:#f6f8fa}.kir-diff i{color:#0969da}
@media screen and (prefers-color-scheme:dark){
.kir-diff{border-color:#353d45;color:#e3e8ec;background:#14181c}
.kir-diff .add{background:#173524}.kir-diff .del{background:#43211f}.kir-diff .mov{background:#132f45}
.kir-diff .add mark,.kir-diff .mov mark{background:#2b6b42}.kir-diff .del mark{background:#7d3430}
.kir-diff .gone,.kir-diff .skip{background:#1c2227;color:#9aa6b1}.kir-diff i{color:#6db3f2}}"""
LEAST_ALIKE = 0.4
"""How much two sides of a changed statement have in common where marking what differs still helps."""
_CLASSES = {"+": "add", "-": "del", ">": "mov", "»": "mov", "<": "gone", " ": ""}


def render_html(d: Diff, context: int = CONTEXT) -> str:
    """A self-contained HTML fragment (one `div` with its own style); texts are escaped."""
    out = [f"<div class=\"kir-diff\" role=\"table\" aria-label=\"structural difference\"><style>{_CSS}</style>"]
    if d.is_empty:
        out.append('<div class="skip">no difference</div>')
    for row in () if d.is_empty else shown(d, context):
        if isinstance(row, int):
            out.append(f'<div class="skip">  .. {row} unchanged</div>')
            continue
        title = html.escape(row.anchor_after or row.anchor_before, quote=True)
        for sign, text, marks in _marked_sides(row):
            note = _note(row) if sign != "-" or row.kind != "moved+changed" else ""
            tail = f"  <i>{html.escape(note)}</i>" if note else ""
            said = "".join(f"<mark>{html.escape(part)}</mark>" if marked else html.escape(part) for part, marked in marks)
            hang = 4 + len(text) - len(text.lstrip())
            out.append(f'<div class="{_CLASSES[sign]}" title="{title}" style="--in:{hang}ch">{html.escape(sign)} {said}{tail}</div>')
    return "\n".join([*out, "</div>"])


Marked = tuple[tuple[str, bool], ...]
"""A text in parts, each with whether it is marked."""


def _marked_sides(row: Row) -> Iterator[tuple[str, str, Marked]]:
    """The lines of a row with what differs between its two sides marked: a word is easily overlooked in a long statement."""
    sides = list(_sides(row))
    if len(sides) != 2:
        yield from ((sign, text, ((text, False),)) for sign, text in sides)
        return
    words = [re.findall(r"\w+|\s+|[^\w\s]", text) for _, text in sides]
    match = difflib.SequenceMatcher(None, words[0], words[1], autojunk=False)
    alike = match.ratio() >= LEAST_ALIKE
    codes = match.get_opcodes()
    ranges = ([(op, i1, i2) for op, i1, i2, _, _ in codes], [(op, j1, j2) for op, _, _, j1, j2 in codes])
    for (sign, text), own, taken in zip(sides, words, ranges, strict=True):
        parts = [("".join(own[first:last]), op != "equal") for op, first, last in taken if first < last]
        yield sign, text, tuple(parts) if alike else ((text, False),)


def to_json(d: Diff) -> dict[str, Any]:
    """`equal`, `counts` by kind, and every row that is not the same: `kind`, `depth`, and those of `before`, `after`, `anchor_before`,
    `anchor_after` that are not empty."""
    rows = []
    for row in d.rows:
        if row.kind != "same":
            texts = {k: getattr(row, k) for k in ("before", "after", "anchor_before", "anchor_after")}
            rows.append({"kind": row.kind, "depth": row.depth, **{k: v for k, v in texts.items() if v}})
    return {"equal": d.equal, "counts": {k: v for k, v in d.counts.items() if v}, "rows": rows}
