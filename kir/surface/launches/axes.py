"""The axes of a tensor that its caller allocates as so many elements: the factors of that number, in the order in which the kernel walks them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations

from kir.analysis.normal.regions import raised
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.binding import Binding, plain_expression
from kir.ir.build import polynomial
from kir.ir.types import I32
from kir.ir.visit import statements

MOST_FACTORS = 3


def with_axes(binding: Binding, made: Callable[[Binding], n.Program]) -> Binding:
    """The binding with a shape of several axes for each flat tensor of a product of sizes, where the kernel's accesses become regions of it; others
    stay flat. `made` gives the program under a binding."""
    for name, orders in {k: list(_orders(binding, k)) for k in binding.tensors}.items():
        for order in orders:
            tried = binding.changed(tensors={k: replace(t, shape=list(order)) if k == name else t for k, t in binding.tensors.items()})
            try:
                program = raised(made(tried))
            except KirError:
                continue
            if not any(isinstance(s, n.View) and s.at.buffer.name == (tried.tensors[name].name or name) for k in program.kernels for s in statements(k.body)):
                binding = tried
                break
    return binding


def _orders(binding: Binding, name: str) -> Iterator[tuple[str | int, ...]]:
    shape = binding.tensors[name].shape
    if len(shape) != 1 or isinstance(shape[0], int) or binding.tensors[name].strides is not None:
        return
    e = plain_expression(shape[0], {x: n.Var(x, I32) for x in binding.sizes})
    terms = polynomial(e) if e is not None else {}
    if len(terms) == 1:
        (atoms, count), = terms.items()
        factors = [x.name for x in atoms if isinstance(x, n.Var)]
        if count == 1 and len(factors) == len(atoms) and 2 <= len(set(factors)) == len(factors) <= MOST_FACTORS:
            yield from permutations(factors)
