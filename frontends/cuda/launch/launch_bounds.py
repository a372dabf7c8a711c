"""What a kernel says of its launch: launch bounds, registers, clusters."""

from __future__ import annotations

from kir.ir import nodes as n

from ..symbols.symbols import Function


def launch_bounds(fn: Function) -> n.Attrs:
    """What `__launch_bounds__` and `__maxnreg__` say beside the number of threads."""
    bounds = bounds_of(fn)
    out: dict[str, n.Attr] = {}
    for words in bounds:
        if words.startswith("cluster "):
            continue
        if words.startswith("maxnreg "):
            if words.split()[1].isdigit():
                out["maxnreg"] = int(words.split()[1])
            continue
        parts = [w.strip() for w in words.split(",")]
        if len(parts) > 1 and parts[1].isdigit():
            out["min_ctas"] = int(parts[1])
    return n.attrs(**out)


def cluster_of(fn: Function) -> tuple[int, ...]:
    """The shape that `__cluster_dims__` gives a cluster, without trailing ones; () where it says none."""
    said = next((w for w in bounds_of(fn) if w.startswith("cluster ")), "").removeprefix("cluster ").split(",")
    shape = [int(w) for w in said if w.strip().isdigit()]
    while shape and shape[-1] == 1:
        shape.pop()
    return tuple(shape)


def bounds_of(fn: Function) -> list[str]:
    """The texts of launch bounds that belong to a kernel."""
    body = fn.body
    if body is None:
        return []
    before = [c.end_byte for c in (fn.node.parent.named_children if fn.node.parent is not None else []) if c.end_byte <= fn.node.start_byte]
    low = max(before, default=0)
    if not fn.unit.ascii:
        return []
    return [words for at, words in fn.unit.bounds if low <= at < body.start_byte]
