"""Anchor maps: where each statement of a program went in a step, as a total relation.

Every path of the program before maps to the paths that it became, or to `Deleted` with the step and the reason. Maps compose.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.ir import nodes as n
from kir.ir.changes.matching import match
from kir.ir.paths import Path, path_text, paths


@dataclass(frozen=True)
class Deleted:
    """The statement is gone: by which step, and why."""

    step: str
    reason: str


Target = tuple[Path, ...] | Deleted


@dataclass(frozen=True)
class AnchorMap:
    """(path before, where it went) for every statement, in reading order."""

    targets: tuple[tuple[Path, Target], ...]
    _index: dict[Path, Target] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_index", dict(self.targets))

    def __getitem__(self, path: Path) -> Target:
        """Where the statement at `path` went. Raises KirError KIR-A004 for a path that the program before does not have."""
        found = self._index.get(path)
        if found is None:
            raise error("KIR-A004", f"the program before this step has no statement at {path_text(path)}", needs="a path of that program")
        return found

    def __iter__(self) -> Iterator[Path]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def then(self, later: AnchorMap) -> AnchorMap:
        """This map followed by that of the next step; what is deleted stays so, with the first reason."""
        return AnchorMap(tuple((path, _onward(target, later)) for path, target in self.targets))

    def inverse(self, after: n.Program, step: str, reason: str = "undone") -> AnchorMap:
        """The map of the step undone: each statement of `after` goes to all that became it."""
        sources: dict[Path, list[Path]] = {}
        for path, target in self.targets:
            if not isinstance(target, Deleted):
                for t in target:
                    sources.setdefault(t, []).append(path)
        return AnchorMap(tuple((path, tuple(sources[path]) if path in sources else Deleted(step, reason)) for path, _ in paths(after)))

    @property
    def is_identity(self) -> bool:
        """Whether every statement stayed where it was."""
        return all(target == (path,) for path, target in self.targets)

    def to_json(self) -> list[dict[str, object]]:
        """One object a statement: `path`, and `to` or `step` and `reason`."""
        return [{"path": list(path), **({"step": t.step, "reason": t.reason} if isinstance(t, Deleted) else {"to": [list(x) for x in t]})}
                for path, t in self.targets]


def _onward(target: Target, later: AnchorMap) -> Target:
    if isinstance(target, Deleted):
        return target
    out: list[Path] = []
    gone: Deleted | None = None
    for path in target:
        step = later[path]
        if isinstance(step, Deleted):
            gone = gone or step
        else:
            out += [p for p in step if p not in out]
    return tuple(out) if out or gone is None else gone


def identity(program: n.Program) -> AnchorMap:
    """The map of no change."""
    return AnchorMap(tuple((path, (path,)) for path, _ in paths(program)))


def anchor_map(before: n.Program, after: n.Program, hints: Mapping[Path, Iterable[Path]] | None = None, step: str = "",
               reason: str = "not in the program after the step") -> AnchorMap:
    """Where each statement went, by matching (`kir.ir.changes.matching`); `hints` say it for some: several paths for a statement that was
    copied, none for one that was removed."""
    said = {old: tuple(new) for old, new in (hints or {}).items()}
    pairs = match(before, after, said)
    out: list[tuple[Path, Target]] = []
    for path, _ in paths(before):
        where: tuple[Path, ...] = said[path] if path in said else (pairs[path],) if path in pairs else ()
        out.append((path, where or Deleted(step, reason)))
    return AnchorMap(tuple(out))
