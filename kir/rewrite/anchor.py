"""Anchors as the rewriting layer uses them: those of `kir.ir.anchors`, where a kernel's name means the kernel itself."""
from __future__ import annotations

from kir.ir import nodes as n
from kir.ir.anchors import anchor_of, find, resolve
from kir.rewrite.edit import Path


def anchor_text(program: n.Program, path: Path) -> str:
    """The text of the anchor at a path; a kernel's is its name."""
    return anchor_of(program, path)


def path_of(program: n.Program, anchor: str) -> Path:
    """The path of an anchor's text. Raises KirError KIR-A001 (ambiguous), KIR-A002 (no match), KIR-A003 (no anchor)."""
    return resolve(program, anchor)


def paths_of(program: n.Program, anchor: str) -> tuple[Path, ...]:
    """Every path that an anchor may mean. Raises KirError as `path_of`, but not for several statements that its last segment fits."""
    return find(program, anchor) or (resolve(program, anchor),)
