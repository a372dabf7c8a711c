"""Where a pass applies to a program, forward and backward, with the verdict of every precondition; and where it nearly does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.ir.nodes import Program
from kir.rewrite import Pass, Path, judge, sites
from kir.rewrite.anchor import anchor_text
from kir.rewrite.driver import forward_site, looked, rejection_reason, run_backward
from kir.rewrite.pipelines.text import Direction
from kir.rewrite.registry import failed, pass_class


@dataclass(frozen=True)
class Places:
    """What there is to say of one pass: as data, as lines, what is wrong with it, and forward sites that turned out to be none."""

    rows: list[dict[str, Any]]
    lines: list[str]
    warnings: list[Diagnostic]
    rejected: list[tuple[Path, str]]


BOTH: tuple[Direction, ...] = ("forward", "backward")


def asked(name: str, program: Program, near: bool, directions: Sequence[Direction] = BOTH) -> Places:
    """The sites of a pass by its name. One that cannot be imported has none, and what is wrong with it is said."""
    found = Places([], [], [], [])
    try:
        cls = pass_class(name)
    except KirError as bad:
        found.warnings.extend(replace(told, severity="warning") for told in bad.diagnostics)
        return found
    try:
        for _ in _of(cls, program, near, found, directions):
            pass
    except Exception as fault:
        found.warnings.append(failed(cls, "here", fault))
    return found


def one_by_one(name: str, program: Program, directions: Sequence[Direction] = BOTH) -> Iterator[dict[str, Any]]:
    """The rows of a pass by its name as they are found; those before a fault of the pass stand."""
    with suppress(Exception):
        yield from _of(pass_class(name), program, False, Places([], [], [], []), directions)


def _of(cls: type[Pass], program: Program, near: bool, out: Places, directions: Sequence[Direction]) -> Iterator[dict[str, Any]]:
    """The sites of one pass as they are found, and its near misses where they are wanted: added to what is found."""
    item, rows, lines = cls.with_options({}), out.rows, out.lines
    for direction in directions:
        mark = "~" if direction == "backward" else ""
        applies, missed = looked(item, program, direction) if near else (sites(item, program, direction), ())
        for site in applies:
            if direction == "forward":
                verdicts = judge(program, site)
            else:
                simpler, witness = run_backward(program, site)
                verdicts = judge(simpler, witness.there[0] if witness.there else forward_site(simpler, witness.params, witness.path))
            advice = {p.id for p in site.params.preconditions if p.kind == "profit"}
            open_ = [(id_, v) for id_, v in verdicts if not v]
            refused = [id_ for id_, _ in open_ if id_ not in advice]
            if direction == "forward" and not refused and (why := rejection_reason(program, site)):
                out.rejected.append((site.path, why))
                continue
            anchor = anchor_text(program, site.path)
            rows.append({"pass": cls.name, "direction": direction, "anchor": anchor, "step": f"{mark}{site.params}@{anchor}",
                         "verdicts": {id_: v.to_json() for id_, v in verdicts}, "refused": refused})
            lines.append(f"{mark}{site.params}@{anchor}  " + ("refused" if rows[-1]["refused"] else "applies"))
            for id_, v in open_:
                lines.append(f"    {id_} {'advises against it' if id_ in advice else v.kind}: {v.reason}")
                lines += [f"      witness: {w}" for w in v.witness]
            yield rows[-1]
        for path, reason in (*missed, *(out.rejected if direction == "forward" else ())) if near else ():
            anchor = anchor_text(program, path)
            rows.append({"pass": cls.name, "direction": direction, "anchor": anchor, "miss": reason})
            lines.append(f"{mark}{cls.name}@{anchor}  does not apply: {reason}")
