"""Integer expressions as sums: `affine(e, names)` is a coefficient for each of `names`, and what is left."""
from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.ir.build import Monomial, add, const, from_polynomial, mul, polynomial
from kir.ir.types import DType, dtype_of
from kir.ir.visit import names_read


@dataclass(frozen=True)
class Affine:
    """`sum(coefficient * name) + rest`: coefficients and rest are free of the names. A coefficient is an expression (a stride, say)."""

    coefficients: Mapping[str, n.Expr]
    rest: n.Expr

    def coefficient(self, name: str) -> n.Expr:
        """The coefficient of a name, 0 for one that does not occur."""
        return self.coefficients.get(name, const(0, dtype_of(self.rest.type)))

    def expression(self) -> n.Expr:
        """The sum again, in normal form."""
        out, dtype = self.rest, dtype_of(self.rest.type)
        for name, c in self.coefficients.items():
            out = add(out, mul(n.Var(name, dtype), c))
        return out


def affine(e: n.Expr, names: Collection[str]) -> Affine | None:
    """`e` as a sum over `names`, or None where one of them stands inside a product with another or under another operation."""
    dtype = dtype_of(e.type)
    if not (isinstance(e.type, DType) and dtype.is_integer):
        return None
    wanted = set(names)
    parts: dict[str, dict[Monomial, int]] = {}
    rest: dict[Monomial, int] = {}
    for atoms, c in polynomial(e).items():
        inside = [a for a in atoms if isinstance(a, n.Var) and a.name in wanted]
        others = tuple(a for a in atoms if not (isinstance(a, n.Var) and a.name in wanted))
        if len(inside) > 1 or any(names_read(a) & wanted for a in others):
            return None
        if inside:
            assert isinstance(inside[0], n.Var)
            parts.setdefault(inside[0].name, {})[others] = c
        else:
            rest[atoms] = c
    found = {name: from_polynomial(terms, dtype) for name, terms in sorted(parts.items())}
    return Affine(MappingProxyType(found), from_polynomial(rest, dtype))
