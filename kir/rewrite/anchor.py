"""Anchors as the rewriting layer uses them: labels along the way, or the index where a statement has none; kernels count too."""
from __future__ import annotations

from kir.diagnostic import did_you_mean, error
from kir.ir import nodes as n
from kir.rewrite.edit import Path, enclosing, node_at, places


def anchor_text(program: n.Program, path: Path) -> str:
    """The text of the anchor at a path, `main/k_loop/3`; a kernel's is its name."""
    around = [*enclosing(program, path), (path, node_at(program, path))] if len(path) > 1 else [(path, node_at(program, path))]
    return "/".join([str(path[0]), *(node.label or str(p[-1]) for p, node in around if len(p) > 1)])


def path_of(program: n.Program, anchor: str) -> Path:
    """The path of an anchor's text. Raises KirError KIR-R004 for a miss, KIR-R005 for an ambiguity."""
    by_text: dict[str, list[Path]] = {}
    for path, _ in places(program):
        by_text.setdefault(anchor_text(program, path), []).append(path)
    found = by_text.get(anchor, [])
    if not found:
        raise error("KIR-R004", f"there is no place '{anchor}'", attempt=did_you_mean(anchor, by_text))
    if len(found) > 1:
        raise error("KIR-R005", f"'{anchor}' names {len(found)} places", witness=tuple("/".join(map(str, p)) for p in found))
    return found[0]
