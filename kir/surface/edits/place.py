"""Where changed statements go in the source: spans to replace, lines to remove, gaps to fill."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Origin
from kir.ir import nodes as n
from kir.ir.paths import Path, block_paths
from kir.surface import Outline, SourceStatement
from kir.surface.edits.change import Change
from kir.surface.edits.splice import Splice


class Unplaced(Exception):
    """A change that cannot be written at this level; a larger span is tried. The text says why."""


@dataclass
class Places:
    """The statements of a program's kernel, each with the source statement that it came from."""

    outline: Outline
    file: str
    starts: Sequence[int]
    owner: dict[Path, SourceStatement] = field(default_factory=dict)
    blocks: dict[SourceStatement, tuple[SourceStatement, ...]] = field(default_factory=dict)
    inside: dict[SourceStatement, list[Path]] = field(default_factory=dict)

    @classmethod
    def of(cls, outline: Outline, kernel: n.Kernel, starts: Sequence[int]) -> Places:
        """Follow each statement's origin into the outline."""
        made = cls(outline, kernel.origin.file if kernel.origin is not None else "", starts)
        made._enter(outline.body)
        for path, s in block_paths(kernel.body, (kernel.name,)):
            chain = made._chain(s.origin)
            if chain:
                made.owner[path] = chain[-1]
            for x in chain:
                made.inside.setdefault(x, []).append(path)
        return made

    def _enter(self, block: tuple[SourceStatement, ...]) -> None:
        for s in block:
            self.blocks[s] = block
            for inner in s.blocks:
                self._enter(inner)

    def _chain(self, origin: Origin | None) -> list[SourceStatement]:
        """The source statements around a place, outermost first."""
        if origin is None or origin.file != self.file:
            return []
        start = self.starts[origin.line - 1] + origin.column - 1
        out: list[SourceStatement] = []
        block: tuple[SourceStatement, ...] = self.outline.body
        end = self.starts[origin.end_line - 1] + origin.end_column - 1
        while True:
            found = next((s for s in block if s.start <= start < s.end), None)
            if found is None:
                return out
            out.append(found)
            if start == found.start and end >= found.end:
                return out
            block = tuple(x for inner in found.blocks for x in inner)

    # ---------------------------------------------------------------------------------------------------------------- changes
    def grown(self, found: Sequence[Change]) -> list[Change]:
        """The changes, each as wide as the source statements that it touches; those that meet become one."""
        out = list(found)
        while True:
            wider = [self._wider(c) for c in out]
            merged: list[Change] = []
            for c in sorted(wider, key=lambda c: (len(c.path), c.path, c.start, c.end)):
                last = merged[-1] if merged else None
                if last is not None and not last.head and not c.head and last.path == c.path and c.start < last.end:
                    merged[-1] = replace(last, end=max(last.end, c.end), new_end=max(last.new_end, c.new_end))
                else:
                    merged.append(c)
            if merged == out:
                return out
            out = merged

    def _wider(self, c: Change) -> Change:
        if c.head:
            return c
        size = len(c.path)
        owners = {self.owner[p] for i in range(c.start, c.end) if (p := (*c.path, i)) in self.owner}
        touched = [path[size] for s in owners for path in self.inside[s] if path[:size] == c.path]
        before = max(0, c.start - min((i for i in touched if isinstance(i, int)), default=c.start))
        after = max(0, max((i + 1 for i in touched if isinstance(i, int)), default=c.end) - c.end)
        return replace(c, start=c.start - before, end=c.end + after, new_start=c.new_start - before, new_end=c.new_end + after)

    def splices(self, change: Change, old: n.Block, lines: Sequence[str]) -> Iterator[Splice]:
        """The splices of one change; `lines` are the new text, without the indentation of its place."""
        paths = [(*change.path, i) for i in range(change.start, change.end)]
        if change.head:
            owner = self.owner.get(paths[0])
            if owner is None or not owner.head:
                raise Unplaced("a loop or branch whose head is not in the source")
            yield Splice(owner.start, owner.head, self._joined(lines, owner.indent))
            return
        owners = list(dict.fromkeys(self.owner[p] for p in paths if p in self.owner))
        for owner in owners:
            if any(path[:len(p)] == p for path in self.inside[owner] for p in paths) and not all(
                    any(path[:len(p)] == p for p in paths) for path in self.inside[owner]):
                raise Unplaced("a source statement that is also about something unchanged")
        if not owners:
            if lines:
                yield self._gap(change, old, lines)
            return
        owners.sort(key=lambda s: s.start)
        for owner in owners[:-1] if lines else owners:
            yield self._removed(owner, owners, bool(lines))
        if lines:
            yield Splice(owners[-1].start, owners[-1].end, self._joined(lines, owners[-1].indent))

    def _joined(self, lines: Sequence[str], indent: str) -> str:
        return f"\n{indent}".join(lines)

    def _removed(self, owner: SourceStatement, gone: Sequence[SourceStatement], replaced: bool) -> Splice:
        """A statement with its line, or `pass` where it was the block's last."""
        block = self.blocks[owner]
        left = [s for s in block if s not in gone] or (replaced and gone[-1] in block)
        text = self.outline.text
        if not left and owner is [s for s in block if s in gone][-1]:
            return Splice(owner.start, owner.end, "pass")
        line_end = text.find("\n", owner.end)
        rest = text[owner.end:] if line_end < 0 else text[owner.end:line_end]
        if owner.indent and (not rest.strip() or rest.lstrip().startswith("#")):
            return Splice(owner.start - len(owner.indent), len(text) if line_end < 0 else line_end + 1, "")
        raise Unplaced("a statement that shares its line")

    def _gap(self, change: Change, old: n.Block, lines: Sequence[str]) -> Splice:
        """Where statements go that replace none: before the next, after the one before, or into the block around."""
        after, before = self.owner.get((*change.path, change.end)), self.owner.get((*change.path, change.start - 1))
        if after is not None and after is not before:
            return Splice(after.start, after.start, f"{self._joined(lines, after.indent)}\n{after.indent}")
        if before is not None:
            return self._behind(before, lines)
        if len(change.path) == 1 and self.outline.body:
            return self._behind(self.outline.body[-1], lines)
        raise Unplaced("a place between statements that the source does not show")

    def _behind(self, s: SourceStatement, lines: Sequence[str]) -> Splice:
        line_end = self.outline.text.find("\n", s.end)
        at = len(self.outline.text) if line_end < 0 else line_end
        rest = self.outline.text[s.end:at].strip()
        if rest and not rest.startswith("#"):
            raise Unplaced("a place in the middle of a line")
        return Splice(at, at, f"\n{s.indent}{self._joined(lines, s.indent)}")


def source_names(outline: Outline, kernel: n.Kernel) -> Mapping[str, str]:
    """What the source calls a kernel's local names: the same, or without the number that told two uses of a name apart."""
    out: dict[str, str] = {}
    bound = {x for s in _every(outline.body) for x in s.binds}
    for _, s in block_paths(kernel.body, (kernel.name,)):
        names = s.names if isinstance(s, n.Let) else (s.buffer.name,) if isinstance(s, n.Alloc) else (s.var.name,) if isinstance(s, n.For) else ()
        for name in names:
            stem, _, number = name.rpartition("_")
            for candidate in (name, *([stem] if number.isdigit() else [])):
                if candidate in bound:
                    out[name] = candidate
                    break
    return out


def _every(block: tuple[SourceStatement, ...]) -> Iterator[SourceStatement]:
    for s in block:
        yield s
        for inner in s.blocks:
            yield from _every(inner)
