"""The text of a unit and of its launch, from their templates."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources

from kir.analysis.tiles.mapped_views import ends_joined
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


_KINDS = {"u8": "UINT8", "i8": "UINT8", "f8e4m3": "UINT8", "f8e5m2": "UINT8", "bool": "UINT8", "u16": "UINT16", "i16": "UINT16", "u32": "UINT32",
          "i32": "INT32", "u64": "UINT64", "i64": "INT64", "f16": "FLOAT16", "bf16": "BFLOAT16", "f32": "FLOAT32", "f64": "FLOAT64"}
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


def launch(program: str, entries: Sequence[Entry], names: Mapping[str, str], plan: Plan, maps: Mapping[str, tuple[n.TensorMap, n.Buffer]] | None = None) -> str:
    """A host function that launches the kernels of a unit as their plan says, `entries` in the order of its launches; `names` are C++'s for the program's
    parameters, `maps` tensor maps by name, each with its tensor. Raises KirError KIR-B007 for a grid, a choice between launches or a tensor map that the host
    cannot compute."""
    arguments: Sequence[Argument] = [a for a in entries[0].arguments if a.kind != "map"]
    held = {e.function: [_map(a.name, *(maps or {})[a.source], names) for a in e.arguments if a.kind == "map"] for e in entries}
    kernels = iter([{"function": e.function, "grid": [_host(x, names) for x in e.grid] or ["1"], "threads": e.threads, "maps": held[e.function],
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
    return _rendered("launch.cu.j2", program=program, steps=[*steps(plan, "  ")], parameters=parameters, mapped=any(held.values()),
                     plain=not all(held.values()))


def _map(name: str, m: n.TensorMap, of: n.Buffer, names: Mapping[str, str]) -> Mapping[str, object]:
    """What the host encodes of a tiled map over a dense tensor."""
    options = dict(m.attrs)
    if options.keys() - {"swizzle", "merge", "merge_last"} or of.layout is not None or of.strides is not None or of.dtype.name not in _KINDS:
        raise refuse("KIR-B007", f"the host cannot encode the tensor map '{m.name}'", "a tiled map over a dense tensor")
    first, last = ends_joined(m.attrs)
    axes, left = [f"static_cast<cuuint64_t>({_host(d, names)})" for d in of.shape], len(of.shape) - last
    shape = [axes[:first], *([x] for x in axes[first:left]), axes[left:]] if left >= first else [axes]
    extents = [" * ".join(x) for x in shape]
    strides = [" * ".join([*(y for x in shape[k + 1:] for y in x), str(of.dtype.bytes)]) for k in range(len(shape) - 1)]
    return {"name": name, "extents": extents[::-1], "strides": strides[::-1] or ["0"], "box": [str(x) for x in reversed(m.box)], "data": names[m.of],
            "type": f"CU_TENSOR_MAP_DATA_TYPE_{_KINDS[of.dtype.name]}", "swizzle": f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[int(options.get('swizzle', 0))]}"}


def _host(e: n.Expr, names: Mapping[str, str]) -> str:
    """A size expression in C++; sizes are not negative."""
    match e:
        case n.Const():
            return str(e.value)
        case n.Var():
            return names[e.name]
        case n.Cast():
            return f"static_cast<{TYPES[e.dtype.name]}>({_host(e.x, names)})"
        case n.Unary() if e.op == "neg":
            return f"(-{_host(e.x, names)})"
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
