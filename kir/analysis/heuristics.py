"""Metas that a binding computes: its heuristics decided under the sizes' facts, the other metas, and what is absent."""
from __future__ import annotations

import re

from kir.analysis.facts import Facts
from kir.analysis.simplify import simplify
from kir.base.diagnostic import did_you_mean, error
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding, Setting, expressions, fact_expressions
from kir.ir.bindings.binding_values import check_values
from kir.ir.printer import expr_text
from kir.ir.types import BOOL, F32, I32
from kir.ir.visit import transform


def settled(binding: Binding) -> Binding:
    """The binding with a value under `metas` for each of its heuristics; a meta that is given keeps its value.

    Raises KirError KIR-F011 for a formula that is wrong, KIR-F012 for one that the facts do not decide.
    """
    metas: dict[str, Setting] = dict(binding.metas)
    wanted = {k: v for k, v in binding.heuristics.items() if k not in metas}
    if not wanted:
        return binding
    check_values(binding)
    sizes: dict[str, n.Expr] = {x: n.Var(x, I32) for x in binding.sizes}
    given_facts = fact_expressions(binding.facts, sizes, lambda k: binding.at("facts", k))
    header = n.Program("p", params=tuple(n.Param(x, "size", I32) for x in binding.sizes), facts=given_facts)
    facts = Facts.from_program(header)
    scalars = {k: v for k, v in binding.scalars.items() if isinstance(v, (str, int)) and k not in sizes}
    names: dict[str, n.Expr] = {**sizes, **expressions(scalars, sizes, "scalar", lambda key: binding.at("scalars", key))}
    names |= {k: _constant(v) for k, v in {**binding.options, **metas}.items() if isinstance(v, (bool, int, float))}
    while wanted:
        known = {k: v for k, v in wanted.items() if not _mentions(v, set(wanted) - {k})}
        if not known:
            raise error("KIR-F011", f"heuristics of the binding refer to one another: {', '.join(wanted)}", origin=binding.at("heuristics", next(iter(wanted))))
        for name, e in expressions(known, names, "heuristic", lambda key: binding.at("heuristics", key)).items():
            value = simplify(_without_absent(e, binding, name), facts)
            if not isinstance(value, n.Const):
                raise error("KIR-F012", f"the heuristic '{name}' = {wanted[name]} is not decided by the facts: it is {expr_text(value)}",
                            origin=binding.at("heuristics", name), needs=f"a fact that decides it, or {name} under [metas]", subject=binding.kernel)
            metas[name] = value.value
            names[name] = value
            del wanted[name]
    return binding.settled(metas)


def _constant(v: bool | int | float) -> n.Expr:
    return build.const(v, BOOL if isinstance(v, bool) else I32 if isinstance(v, int) else F32)


def _mentions(text: str, names: set[str]) -> bool:
    return bool(set(re.findall(r"\w+", text)) & names)


def _without_absent(e: n.Expr, binding: Binding, heuristic: str) -> n.Expr:
    """The formula with what is asked of parameters answered. Raises KirError KIR-F011 for a parameter that the binding does not name."""
    given = {*binding.tensors, *binding.scalars, *binding.sizes, *binding.dtypes}

    def leave(old: n.Node, new: n.Node) -> n.Node:
        if not isinstance(new, n.Call) or new.fn != "absent":
            return new
        name = str(dict(new.attrs).get("of", ""))
        if name not in given and name not in binding.absent:
            raise error("KIR-F011", f"the binding says nothing of '{name}', which a heuristic asks for", origin=binding.at("heuristics", heuristic),
                        attempt=did_you_mean(name, [*given, *binding.absent]), needs=f"a table [tensors.{name}], or its name under absent")
        return build.const(name in binding.absent, BOOL)
    made: n.Expr = transform(e, leave)
    return made
