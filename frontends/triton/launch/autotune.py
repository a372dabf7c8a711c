"""What decorators leave to the launch: the configurations of `autotune`, and the metas that `heuristics` computes, as data of a binding."""

from __future__ import annotations

import libcst as cst

from kir.ir.binding import Setting
from kir.ir.printer import name_text

from ..._python.project import Module, Project, decorator_name
from ..host.scope import HostScope
from ..values.values import Configuration, HostLambda, Items, NotUnderstood, Table, Value, is_known

AUTOTUNERS = frozenset({"autotune", "libtuner", "fla_cache_autotune"})
"""Decorators whose argument `configs` lists configurations."""
ARITHMETIC = {cst.Add: "+", cst.Subtract: "-", cst.Multiply: "*", cst.FloorDivide: "//", cst.Modulo: "%"}
COMPARISONS = {cst.LessThan: "<", cst.LessThanEqual: "<=", cst.GreaterThan: ">", cst.GreaterThanEqual: ">=", cst.Equal: "==",
               cst.NotEqual: "!="}
FUNCTIONS = {"next_power_of_2": "next_power_of_2", "min": "min", "max": "max", "cdiv": "ceildiv"}


class Tuning:
    """The decorators of one kernel, evaluated from source."""

    def __init__(self, project: Project, module: Module, node: cst.FunctionDef) -> None:
        self._scope = HostScope(project, module, module.owners.get(id(node), ()))
        self._decorators = [(decorator_name(d), d.decorator) for d in node.decorators if isinstance(d.decorator, cst.Call)]
        self.reasons: list[str] = []
        """Why something that a decorator says is not in the data."""

    def configurations(self) -> list[dict[str, Setting]]:
        """Every configuration, in the order in which the tuner tries them: metas, and `num_warps` and its like, by name."""
        out: list[dict[str, Setting]] = []
        for name, call in self._decorators:
            if name not in AUTOTUNERS:
                continue
            given = next((a for a in call.args if a.keyword is not None and a.keyword.value == "configs"), None)
            given = given or next((a for a in call.args if a.keyword is None), None)
            if given is None:
                continue
            found = self._value(f"the configurations of {name}", given.value)
            for one in found.items if isinstance(found, Items) else ():
                if isinstance(one, Configuration):
                    out.append({k: v for k, v in one.settings if is_known(v) and v is not None})  # type: ignore[misc]  # literals
        return out

    def heuristics(self) -> dict[str, str]:
        """Each meta that a decorator computes from the arguments, with its formula as IR text over sizes, scalars and metas."""
        out: dict[str, str] = {}
        for name, call in self._decorators:
            if name != "heuristics" or not call.args:
                continue
            found = self._value("the heuristics", call.args[0].value)
            for key, value in found.items if isinstance(found, Table) else ():
                if not isinstance(value, HostLambda):
                    self.reasons.append(f"{key} is no lambda")
                    continue
                try:
                    out[key] = self._formula(value.node)
                except NotUnderstood as bad:
                    self.reasons.append(f"{key}: {bad.reason}")
        return out

    def _value(self, what: str, e: cst.BaseExpression) -> Value:
        try:
            return self._scope.evaluate(e)
        except NotUnderstood as bad:
            self.reasons.append(f"{what}: {bad.reason}")
            return None

    def _formula(self, f: cst.Lambda) -> str:
        if len(f.params.params) != 1:
            raise NotUnderstood("a heuristic of several arguments")
        return self._text(f.body, f.params.params[0].name.value)

    def _text(self, e: cst.BaseExpression, args: str) -> str:
        """A host expression over `args["name"]` as IR text, parenthesized where it has an operator."""
        def sub(x: cst.BaseExpression) -> str:
            return self._text(x, args)
        match e:
            case cst.Subscript(value=cst.Name(value=owner), slice=[cst.SubscriptElement(slice=cst.Index(value=cst.SimpleString() as key))]) \
                    if owner == args:
                return name_text(str(key.evaluated_value))
            case cst.Comparison(left=left, comparisons=[cst.ComparisonTarget(operator=cst.Is() | cst.IsNot() as op, comparator=cst.Name(value="None"))]):
                return f"{'~' if isinstance(op, cst.IsNot) else ''}absent(of={sub(left)})"
            case cst.Comparison(left=left, comparisons=[cst.ComparisonTarget(operator=op, comparator=right)]) if type(op) in COMPARISONS:
                return f"({sub(left)} {COMPARISONS[type(op)]} {sub(right)})"
            case cst.BinaryOperation() if type(e.operator) in ARITHMETIC:
                return f"({sub(e.left)} {ARITHMETIC[type(e.operator)]} {sub(e.right)})"
            case cst.BooleanOperation():
                return f"({sub(e.left)} {'&' if isinstance(e.operator, cst.And) else '|'} {sub(e.right)})"
            case cst.UnaryOperation(operator=cst.Not()):
                return f"~{sub(e.expression)}"
            case cst.Call(func=cst.Name(value="isinstance"), args=[cst.Arg(value=one), cst.Arg(value=cst.Attribute(attr=cst.Name(value="Tensor")))]):
                return f"~absent(of={sub(one)})"
            case cst.Call(func=cst.Attribute(attr=cst.Name(value=word)) | cst.Name(value=word)) if word in FUNCTIONS:
                return f"{FUNCTIONS[word]}({', '.join(sub(a.value) for a in e.args)})"
            case _:
                value = self._scope.evaluate(e)
                if isinstance(value, bool):
                    return "true" if value else "false"
                if isinstance(value, int):
                    return str(value)
                raise NotUnderstood("a heuristic that is no arithmetic on its arguments")
