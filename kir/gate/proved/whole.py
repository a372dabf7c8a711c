"""Proofs of another program than the one that is checked: named barriers that name every thread as barriers of the CTA, and indices in their own width."""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.proof.decide import KernelProof, decided, of_widths
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.visit import transform, walk

NAMED = ("named_barrier_sync", "named_barrier_arrive")


def with_whole_barriers(program: n.Program, proofs: tuple[KernelProof, ...]) -> tuple[KernelProof, ...]:
    """What is decided of a program; of one whose named barriers all name as many threads as a CTA has, what is decided with a barrier in the place of each,
    where all threads are proved to reach every one: then all take the same ones in the same order, whatever their numbers are."""
    if all(o.status == "proved" for p in proofs for o in p.obligations) or not any(isinstance(x, n.Call) and x.fn in NAMED for x in walk(program)):
        return proofs
    kernels = []
    for k in program.kernels:
        threads = int_value(k.threads)
        named = [x for x in walk(k) if isinstance(x, n.Call) and x.fn in NAMED]
        if threads is None or not all(x.fn == NAMED[0] and isinstance(x.args[0], n.Expr) and int_value(x.args[0]) in range(16)
                                       and isinstance(x.args[1], n.Expr) and int_value(x.args[1]) == threads
                                       for x in named):
            return proofs
        kernels.append(transform(k, _whole))
    other = decided(replace(program, kernels=tuple(kernels)))
    met = all(o.status == "proved" for p in other for o in p.obligations if o.kind == "barrier")
    return other if met else proofs


def with_widths(proofs: tuple[KernelProof, ...], written: n.Program) -> tuple[KernelProof, ...]:
    """What is decided of a program, with what is decided of the widths of indices in the program as it was written."""
    own = {p.kernel: p.obligations for p in of_widths(written, steps=True)}
    return tuple(replace(p, obligations=(*(o for o in p.obligations if o.kind != "overflow"), *own[p.kernel])) if p.kernel in own else p for p in proofs)


def _whole(_: n.Node, x: n.Node) -> n.Node:
    return n.Call("barrier", ()) if isinstance(x, n.Call) and x.fn == NAMED[0] else x


__all__ = ["with_whole_barriers", "with_widths"]
