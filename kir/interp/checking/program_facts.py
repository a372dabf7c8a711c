"""What the checker must know of a program before it runs: which memories change, and how finely they are looked at."""
from __future__ import annotations

from kir.analysis.proof.sites import SYNCHRONIZING
from kir.interp.numerics.number import storage
from kir.ir import nodes as n
from kir.ir.visit import once_for_each, walk

__all__ = ["BEYOND_FIRST", "SYNCHRONIZING", "finest_view", "has_tensor_memory", "multiplies", "needs_layers", "viewed_only", "written"]

BEYOND_FIRST = frozenset({"cg", "cv"})
"""Cache policies of reads that the first cache does not serve: they see what has arrived in the second, of which a relaxed atomic tells."""


@once_for_each
def needs_layers(program: n.Program, k: n.Kernel) -> bool:
    """Whether a kernel has an async proxy, or atomics that may order memory."""
    for x in (y for root in (k, *program.functions) for y in walk(root)):
        match x:
            case n.Copy() if x.via in ("bulk", "tma"):
                return True
            case n.Mma() if x.pending:
                return True
            case n.Call() if x.fn.startswith(("atomic_", "fence", "wgmma", "tcgen05")):
                return True
            case _:
                pass
    return any(True for x in walk(k) if isinstance(x, (n.Load, n.Store)) and x.cache in SYNCHRONIZING)


@once_for_each
def has_tensor_memory(program: n.Program, k: n.Kernel) -> bool:
    """Whether a kernel has something to do with tensor memory."""
    return any(isinstance(x, n.Call) and x.of is None and x.fn.startswith("tcgen05_") for root in (k, *program.functions) for x in walk(root))


@once_for_each
def multiplies(program: n.Program, k: n.Kernel) -> bool:
    """Whether a kernel has products in flight, which use registers."""
    return any((isinstance(x, n.Mma) and x.pending) or (isinstance(x, n.Call) and x.fn == "wgmma") for root in (k, *program.functions) for x in walk(root))


@once_for_each
def finest_view(program: n.Program) -> int:
    """Bytes of the smallest element of any view or buffer parameter; 0 when there is none."""
    sizes = [storage(x.buffer.dtype).itemsize for k in (*program.kernels, *program.functions) for x in walk(k) if isinstance(x, n.View)]
    sizes += [storage(p.dtype).itemsize for fn in program.functions for p in fn.params if isinstance(p, n.Buffer)]
    return min(sizes, default=0)


@once_for_each
def viewed_only(program: n.Program) -> set[str]:
    """Names of buffers that are only accessed through views."""
    viewed: set[str] = set()
    used: dict[str, int] = {}
    for k in (*program.kernels, *program.functions):
        for x in walk(k):
            if isinstance(x, n.Region):
                used[x.buffer.name] = used.get(x.buffer.name, 0) + 1
            if isinstance(x, n.View):
                viewed.add(x.at.buffer.name)
                used[x.at.buffer.name] = used.get(x.at.buffer.name, 0) - 1
    return {name for name in viewed if used.get(name, 0) <= 0}


@once_for_each
def written(program: n.Program, k: n.Kernel) -> set[str]:
    """Names of buffers that a kernel may write, places passed to calls included, and what views show that it may write."""
    out: set[str] = set()
    shown: list[tuple[str, str]] = []
    for x in (y for root in (k, *program.functions) for y in walk(root)):
        match x:
            case n.Store():
                out.add(x.at.buffer.name)
            case n.Copy():
                out.add(x.dst.buffer.name)
            case n.View():
                shown.append((x.buffer.name, x.at.buffer.name))
            case n.Call():
                out |= {a.buffer.name for a in x.args if isinstance(a, n.Region)}
            case _:
                pass
    pointed = {x.at.buffer.name for root in (k, *program.functions) for x in walk(root) if isinstance(x, n.Address)}
    grown = True
    while grown:  # a view may show a view
        more = {base for view, base in shown if (view in out or view in pointed or base in pointed) and base not in out}
        grown = bool(more)
        out |= more
    return out
