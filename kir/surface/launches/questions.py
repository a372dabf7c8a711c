"""What a binding leaves open, as questions: one at a time, each with a proposed answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.ir import nodes as n
from kir.ir.binding import Binding, Setting, check_dtype, expressions, unfilled
from kir.ir.build import polynomial
from kir.ir.types import I32
from kir.ir.visit import statements, walk
from kir.surface.launches.assembled import Assumed
from kir.surface.launches.extents import with_shapes

Field = tuple[str, ...]
ATTEMPTS = 3
"""How often one question is asked at most."""


@dataclass(frozen=True)
class Question:
    """One question about a field of a binding, and the answer that is proposed ("" for none)."""

    field: Field
    text: str
    proposal: str


def questions(binding: Binding, assumed: Sequence[Assumed], made: Callable[[Binding], n.Program]) -> Iterator[Question]:
    """The first question of a binding as it is: scalars, compile-time values, the grid, dtypes, shapes; at last what was `assumed`. To be asked for
    again once it is answered."""
    left = [tuple(x.split(".")) for x in unfilled(binding)]
    order = ("scalars", "metas", "options", "grid", "dtypes", "tensors")
    for field in sorted(left, key=lambda f: (order.index(f[0]) if f[0] in order else 9, f[-1] == "shape")):
        yield Question(field, _asked(field), _proposal(binding, field, made))
    for each in assumed:
        if each.field and each.field not in left:
            yield Question(each.field, _asked(each.field), _held(binding, each.field))


def answered(binding: Binding, question: Question, answer: str) -> Binding:
    """The binding with an answer in its place; names that the answer brings are sizes from then on. Raises KirError KIR-F011 for one that cannot be."""
    field, text = question.field, answer.strip()
    if not text:
        raise error("KIR-F011", f"{'.'.join(field)} needs an answer")
    match field:
        case ("tensors", name, "dtype"):
            check_dtype(text, f"tensor '{name}'")
            return _tensor(binding, name, dtype=text)
        case ("tensors", name, "shape" | "strides"):
            binding, shape = _over(binding, _listed(text), name)
            return _tensor(binding, name, **{field[2]: shape})
        case ("grid",):
            binding, extents = _over(binding, _listed(text), "grid")
            return binding.changed(grid=extents)
        case ("dtypes", name):
            check_dtype(text, f"'{name}'")
            return binding.changed(dtypes={**binding.dtypes, name: text})
        case ("scalars", name):
            binding, (value,) = _over(binding, [text], name)
            return binding.changed(scalars={**binding.scalars, name: value})
        case (("metas" | "options") as table, name):
            return binding.changed(**{table: {**getattr(binding, table), name: _setting(text)}})
        case _:
            raise error("KIR-F011", f"{'.'.join(field)} is no field that is asked for")


def all_answered(binding: Binding, assumed: Sequence[Assumed], made: Callable[[Binding], n.Program], ask: Callable[[Question, str], str]) -> Binding:
    """The binding once every question is answered. `ask` is given a question and what was wrong with the last answer ("" at first). Raises the last
    refusal of an answer where none of three could be taken, and what `ask` raises."""
    done: set[Field] = set()
    while True:
        question = next((q for q in questions(binding, assumed, made) if q.field not in done), None)
        if question is None:
            return binding
        said = ""
        for attempt in range(ATTEMPTS):
            reply = ask(question, said) or question.proposal
            try:
                binding = answered(binding, question, reply)
                break
            except KirError as bad:
                if attempt == ATTEMPTS - 1:
                    raise
                said = bad.diagnostics[0].message
        done.add(question.field)


def _listed(text: str) -> list[str]:
    """The expressions between the commas of a list, which may stand in brackets; a comma in brackets within is one of its expression."""
    parts, depth = [""], 0
    for c in text.strip():
        depth += (c in "([") - (c in ")]")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    only = parts[0].strip()
    if len(parts) == 1 and only[:1] + only[-1:] in ("[]", "()") and _closes(only):
        return _listed(only[1:-1])
    return [x.strip() for x in parts if x.strip()]


def _closes(text: str) -> bool:
    """Whether the bracket that a text begins with is closed by its last character."""
    depth = 0
    for k, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if not depth:
            return k == len(text) - 1
    return False


def _tensor(binding: Binding, name: str, **fields: object) -> Binding:
    return binding.changed(tensors={k: replace(t, **fields) if k == name else t for k, t in binding.tensors.items()})  # type: ignore[arg-type]  # by name


def _over(binding: Binding, texts: Sequence[str], where: str) -> tuple[Binding, list[str | int]]:
    """Expressions over sizes; names that nothing else has become sizes."""
    words = {w for t in texts for w in re.findall(r"[A-Za-z_]\w*", t)} - {"ceildiv", "min", "max"}
    new = [w for w in sorted(words) if w not in binding.sizes and w not in binding.metas and w not in binding.tensors]
    sizes = [*binding.sizes, *new]
    held = {x: n.Var(x, I32) for x in [*sizes, *binding.metas]}
    expressions({f"{where}[{k}]": t for k, t in enumerate(texts) if not t.strip().isdigit()}, held, "extent")
    made = binding.changed(sizes=sizes, facts=[*binding.facts, *(f"{x} >= 1" for x in new)]) if new else binding
    return made, [int(t) if t.strip().isdigit() else t.strip() for t in texts]


def _setting(text: str) -> Setting:
    if text in ("true", "false", "True", "False"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip('"')


def _held(binding: Binding, field: Field) -> str:
    match field:
        case ("tensors", name, part):
            value = getattr(binding.tensors[name], part)
            return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        case (table, name):
            return str(getattr(binding, table).get(name, ""))
        case _:
            return ""


def _asked(field: Field) -> str:
    match field:
        case ("tensors", name, "dtype"):
            return f"which dtype has {name}?"
        case ("tensors", name, part):
            return f"which {part} has {name}? (expressions over sizes, with commas)"
        case ("grid",):
            return "how many CTAs are launched along each axis? (expressions over sizes, with commas)"
        case ("scalars", name):
            return f"what is the argument {name}? (a number, or an expression over sizes)"
        case ("metas", name):
            return f"what is the compile-time value {name}?"
        case _:
            return f"what is {'.'.join(field)}?"


def _tiles(binding: Binding) -> list[str]:
    """Compile-time values that are extents of tiles, by the look of them."""
    return [k for k, v in binding.metas.items() if isinstance(v, int) and not isinstance(v, bool) and v > 1 and not k.startswith("threads_")]


FLAG = re.compile(r"(?i)(is|has|use|with|need|do|enable|apply|return|store|even)_|.*(flag|causal)")
"""Names of compile-time values that are yes or no."""


def _proposal(binding: Binding, field: Field, made: Callable[[Binding], n.Program]) -> str:
    """What is most likely, from the names and from what is known so far."""
    match field:
        case ("tensors", name, "dtype"):
            return next((t.dtype for t in binding.tensors.values() if t.dtype not in ("", "?")), "f32")
        case ("tensors", name, "shape"):
            shape = with_shapes(binding, made).tensors[name].shape
            return ", ".join(map(str, shape)) if "?" not in shape else ""
        case ("scalars", name):
            stride = "stride" in name.lower()
            return name if not stride and name not in binding.tensors else binding.sizes[-1] if stride and binding.sizes else ""
        case ("metas", name) if re.match(r"threads_x", name):
            return "256"
        case ("metas", name) if name in ("T", "scalar_t") or "dtype" in name.lower():
            return next((t.dtype for t in binding.tensors.values() if t.dtype not in ("", "?")), "f32")
        case ("metas", name):
            return "false" if FLAG.match(name) else "64"
        case ("grid",) if len(binding.grid) == 1 and binding.sizes and len(tiles := _tiles(binding)) == 1:
            return f"ceildiv({binding.sizes[0]}, {tiles[0]})"
        case ("grid",) if len(binding.grid) == 1 and binding.sizes and (covered := _covered(binding, made)):
            return covered
        case ("grid",):
            return ", ".join(binding.sizes[0] if k == 0 else "1" for k, _ in enumerate(binding.grid)) if binding.sizes else ""
        case _:
            return ""


__all__ = ["Question", "all_answered", "answered", "questions"]


def _covered(binding: Binding, made: Callable[[Binding], n.Program]) -> str:
    """The CTAs of whose threads each does one of as many things as a size says: what the kernel asks of its thread's number; "" where it asks nothing such."""
    threads = binding.metas.get("threads_x")
    whole = {k: replace(t, shape=[binding.sizes[0]] if "?" in t.shape else t.shape) for k, t in binding.tensors.items()}
    try:
        program = made(binding.changed(grid=[binding.sizes[0]], tensors=whole))
    except KirError:
        return ""
    for k in program.kernels if isinstance(threads, int) else ():
        block = n.Var(k.grid[0].name, I32)
        values = {n.Var(s.names[0], s.value.type): s.value for s in statements(k.body) if isinstance(s, n.Let) and len(s.names) == 1}
        for x in walk(k):
            if isinstance(x, n.Binary) and x.op in ("lt", "ge") and isinstance(x.b, n.Var) and x.b.name in binding.sizes and (
                    polynomial(values.get(x.a, x.a) if isinstance(x.a, n.Var) else x.a).get((block,)) == threads):
                return f"ceildiv({x.b.name}, {threads})"
    return ""
