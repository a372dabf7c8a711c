"""The text of a unit and of its launch, from their templates."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources

from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.rebuild.plans import Plan
from kir.surface import Argument, Entry

from ..spelling.literals import TYPES, refuse

_BODY = "\x00"
_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "&&", "or": "||",
          "add": "+", "sub": "-", "mul": "*", "floordiv": "/", "tdiv": "/", "mod": "%", "trem": "%"}


@cache
def _template(name: str) -> object:
    from jinja2 import Environment, StrictUndefined

    text = (resources.files(__package__) / "templates" / name).read_text(encoding="utf-8")
    return Environment(trim_blocks=True, undefined=StrictUndefined, autoescape=False).from_string(text)  # C++, not HTML


def _rendered(name: str, **values: object) -> str:
    template = _template(name)
    made: str = template.render(**values)  # type: ignore[attr-defined]  # a jinja2 Template, which has no stubs here
    return made


def unit(program: str, includes: Sequence[str], device: Sequence[str], body: Sequence[str]) -> tuple[str, int]:
    """The text of a unit, and the number of lines before its body."""
    made = _rendered("unit.cu.j2", program=program, includes=includes, device=[x.rstrip() for x in device], body=_BODY)
    before = made[:made.index(_BODY)].count("\n")
    return made.replace(_BODY, "\n".join(body)).rstrip() + "\n", before


def launch(program: str, entries: Sequence[Entry], names: Mapping[str, str], plan: Plan) -> str:
    """A host function that launches the kernels of a unit as their plan says, `entries` in the order of its launches; `names` are C++'s for the program's
    parameters. Raises KirError KIR-B007 for a grid, or a choice between launches, that the host cannot compute."""
    arguments: Sequence[Argument] = entries[0].arguments
    kernels = iter([{"function": e.function, "grid": [_host(x, names) for x in e.grid] or ["1"], "threads": e.threads,
                     "shared": int(dict(e.options).get("dynamic_shared", 0))} for e in entries])

    def steps(plan: Plan, pad: str) -> Iterator[Mapping[str, object]]:
        for step in plan:
            if isinstance(step, n.Launch):
                yield {**next(kernels), "pad": pad}
                continue
            for number, (guard, arm) in enumerate(step.arms):
                yield {"text": f"{'} else ' if number else ''}if ({_host(guard, names).removeprefix('(').removesuffix(')')}) {{", "pad": pad}
                yield from steps(arm, pad + "  ")
            if step.orelse:
                yield {"text": "} else {", "pad": pad}
                yield from steps(step.orelse, pad + "  ")
            yield {"text": "}", "pad": pad}

    parameters = [{"name": a.name, "type": f"{TYPES[a.dtype]}{'*' if a.kind == 'pointer' else ''}"} for a in arguments]
    return _rendered("launch.cu.j2", program=program, steps=[*steps(plan, "  ")], parameters=parameters)


def _host(e: n.Expr, names: Mapping[str, str]) -> str:
    """A size expression in C++; sizes are not negative."""
    match e:
        case n.Const():
            return str(e.value)
        case n.Var():
            return names[e.name]
        case n.Cast():
            return f"static_cast<{TYPES[e.dtype.name]}>({_host(e.x, names)})"
        case n.Binary() if e.op == "ceildiv":
            return f"(({_host(e.a, names)} + {_host(e.b, names)} - 1) / {_host(e.b, names)})"
        case n.Select():
            return f"({_host(e.cond, names)} ? {_host(e.a, names)} : {_host(e.b, names)})"
        case n.Binary() if e.op in _SIGNS:
            return f"({_host(e.a, names)} {_SIGNS[e.op]} {_host(e.b, names)})"
        case n.Binary() if e.op in ("min", "max"):
            a, b = _host(e.a, names), _host(e.b, names)
            return f"({a} {'<' if e.op == 'min' else '>'} {b} ? {a} : {b})"
        case _:
            raise refuse("KIR-B007", f"the host cannot compute {expr_text(e)}", "sums, products and quotients of sizes")
