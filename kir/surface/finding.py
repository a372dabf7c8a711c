"""The binding of a kernel that nobody wrote: kept from an earlier answer, or found in the host code that launches it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from kir.analysis.heuristics import settled
from kir.base.diagnostic import Diagnostic, KirError, error, usage
from kir.ir.binding import Binding, Setting, expressions
from kir.ir.bindings.binding_uses import unmentioned
from kir.ir.bindings.specialize import specialize
from kir.ir.nodes import Binary, Call, Const, Expr, Program, Var
from kir.ir.types import I32
from kir.ir.visit import names_read, walk
from kir.surface import Frontend
from kir.surface.launches.aligned import with_whole_vectors
from kir.surface.launches.alike import AS_SEEN, whole_parts
from kir.surface.launches.assembled import UNKNOWN, Assumed, Found, in_words
from kir.surface.launches.axes import with_axes, with_counts
from kir.surface.launches.extents import open_shapes, with_places, with_shapes, with_ties
from kir.surface.launches.flat import flattened, with_rows
from kir.surface.launches.recorded import generalized
from kir.surface.launches.strided import with_inner_axes, with_reached_axes, with_row_lengths
from kir.surface.launches.values import taken_for
from kir.surface.launches.whole import choosers, whole_numbers

ASSUMED = "assumed, as nothing says it: "
"""What a note of such a thing begins with."""


def launches_of(reader: Frontend, path: Path, kernel: str) -> list[Found]:
    """What each launch of a kernel that host code shows says of it; the one that is taken first, with the shapes that only runs show worked out.

    A frontend that reads host code offers `launches(path, kernel)`. Raises what it raises for a source that cannot be read.
    """
    offered: Callable[[Path, str], list[Found]] | None = getattr(reader, "launches", None)
    if offered is None:
        return []
    found = sorted(offered(path, kernel), key=lambda f: (len(f.open) > len(open_shapes(f.binding)), len(f.open)))
    if not found:
        return []
    program = reader.parse(path, kernel)
    said = [_decided(_tiled(_chosen(_asked(_counted(each, program), program), program), program), program)
            if k == 0 or len(each.open) == len(open_shapes(each.binding)) else each for k, each in enumerate(found)]
    return [_whole(reader, path, kernel, said[0]), *said[1:]]


def under(reader: Frontend, path: Path, kernel: str) -> Callable[[Binding], Program]:
    """The specialized program of a kernel as a function of its binding. It raises KirError as the frontend and `specialize` do."""
    instantiate = getattr(reader, "instantiate", None)
    parsed: list[Program] = []

    def made(binding: Binding) -> Program:
        if instantiate is None and not parsed:
            parsed.append(reader.parse(path, kernel))
        return specialize(parsed[0] if instantiate is None else instantiate(path, kernel, binding), settled(binding))
    return made


def _has(name: str, binding: Binding) -> str:
    """How many elements a tensor has."""
    shape = binding.tensors[name].shape
    return f"{name} has {' x '.join(map(str, shape))} element{'s' * (shape != [1])}"


def _whole(reader: Frontend, path: Path, kernel: str, found: Found) -> Found:
    """With the shapes of tensors that the host code passes on unseen; other questions stay open."""
    wanted, made = open_shapes(found.binding), under(reader, path, kernel)
    if len(found.open) > len(wanted):
        return found
    given, found = found, _aligned(_stepped(found, made), made)
    examples = found.examples or {}
    binding = with_shapes(found.binding, made, found.guessed)
    said = [Assumed(f"{_has(name, binding)}: all that the kernel reaches", ("tensors", name, "shape")) for name in wanted
            if "?" not in binding.tensors[name].shape]
    said += [Assumed(f"{_has(name, binding)}: as far as the kernel reaches") for name, t in binding.tensors.items()
             if name not in wanted and t.shape != found.binding.tensors[name].shape]
    said += [Assumed(fact) for fact in binding.facts if fact not in found.binding.facts and not re.fullmatch(r"\w+ >= [12]", fact)]
    if not open_shapes(binding):
        parted = whole_parts(binding, made, examples)
        said += [Assumed(f"{fact}, {AS_SEEN}") for fact in parted]
        binding = binding.changed(facts=[*binding.facts, *parted])
        loose, binding = binding, with_ties(with_inner_axes(with_reached_axes(binding, made), made, examples), made, examples)
        said += [Assumed(f"{_has(name, binding)}: all that the kernel reaches") for name, t in binding.tensors.items()
                 if t.shape != loose.tensors[name].shape]
        binding = with_row_lengths(binding, made, examples)
        said += [Assumed(fact) for fact in binding.facts if fact not in loose.facts]
        shaped = with_axes(binding, made)
        binding = with_counts(shaped, made)
        binding = with_places(with_axes(binding, made) if binding is not shaped else binding, made)
        said += [Assumed(f"{fact}, or {'the grid or a loop leaves a rest out' if '%' in fact else 'numbers do not stay within 32 bits'}")
                 for fact in binding.facts if fact not in shaped.facts]
        binding = with_rows(binding, made)
    binding = _padded(binding)
    unsaid = frozenset(fact for fact in binding.facts if fact not in given.binding.facts and not re.fullmatch(r"\w+ >= \d+", fact))
    return flattened(replace(found, binding=binding.changed().assuming(unsaid), assumed=(*found.assumed, *said)))


def _stepped(found: Found, made: Callable[[Binding], Program]) -> Found:
    """With a step for each tensor of rows whose pointers stand in memory (`p_rows`, `p_rows_step`): all of a row that the kernel reaches."""
    binding, names = found.binding, [name for name in open_shapes(found.binding) if f"{name}_step" not in found.binding.scalars and name.endswith("_rows")]
    if not names:
        return found
    alone = with_shapes(binding.changed(scalars={**binding.scalars, **{f"{name}_step": 0 for name in names}}), made)
    shapes = {name: [str(d) for d in alone.tensors[name].shape] for name in names if "?" not in alone.tensors[name].shape}
    steps = {f"{name}_step": " * ".join(d if re.fullmatch(r"[\w *]+", d) else f"({d})" for d in shape) for name, shape in shapes.items()}
    said = [Assumed(f"{name} is {text}: all of a row that the kernel reaches") for name, text in steps.items()]
    return replace(found, binding=binding.changed(scalars={**binding.scalars, **steps}), assumed=(*found.assumed, *said)) if steps else found


def _aligned(found: Found, made: Callable[[Binding], Program]) -> Found:
    """With multiples of a vector's length, where vectors are not aligned else."""
    binding = with_whole_vectors(found.binding, made, found.examples or {})
    said = [Assumed(f"{fact}, or vectors that threads move are not aligned") for fact in binding.facts if fact not in found.binding.facts]
    return replace(found, binding=binding, assumed=(*found.assumed, *said)) if said else found


def _counted(found: Found, program: Program) -> Found:
    """With whole numbers for what the kernel takes for places or bits, where a floating-point dtype was only assumed."""
    named = whole_numbers(program)
    guessed = {each.field[1] for each in found.assumed if each.field[::2] == ("tensors", "dtype")} & named.keys()
    binding = found.binding.changed(
        tensors={k: replace(t, dtype=named[k]) if k in guessed else t for k, t in found.binding.tensors.items()},
        dtypes={k: "i32" if k in named and v.startswith("f") else v for k, v in found.binding.dtypes.items()})
    said = tuple(Assumed(f"{each.field[1]} is {named[each.field[1]]}", each.field)
                 if each.field[1:2] and each.field[1] in guessed and each.field[2:] == ("dtype",) else each for each in found.assumed)
    return replace(found, binding=binding, assumed=said)


def _asked(found: Found, program: Program) -> Found:
    """With false for each compile-time value that the kernel only asks whether it holds, and the first text that it asks for for one that is a text, where
    a number was taken since nothing says what it is."""
    kinds = {m.name: m.kind for m in program.metas}
    texts: dict[str, str] = {}
    for x in (x for k in program.kernels for x in walk(k) if isinstance(x, Call) and x.fn == "meta_is"):
        if isinstance(x.args[0], Var) and (text := str(dict(x.attrs)["value"])) != "None":
            texts.setdefault(x.args[0].name, text)
    taken: dict[str, Setting] = {}
    for name in (each.field[1] for each in found.assumed if each.field[:1] == ("metas",)):
        if type(found.binding.metas.get(name)) is int and (kinds.get(name) == "bool" or (kinds.get(name) == "str" and name in texts)):
            taken[name] = False if kinds[name] == "bool" else texts[name]
    said = tuple(Assumed(f"{each.field[1]} is {str(taken[each.field[1]]).lower()}", each.field) if each.field[1:] and each.field[1] in taken else each
                 for each in found.assumed)
    return replace(found, binding=found.binding.changed(metas={**found.binding.metas, **taken}), assumed=said)


def _chosen(found: Found, program: Program) -> Found:
    """Without a least value of a number that only chooses: callers give none and less, too."""
    b = found.binding
    said = " ".join(map(str, (*b.grid, *b.metas.values(), *(x for t in b.tensors.values() for x in (*t.shape, *(t.strides or ()))))))
    of = [str(b.scalars.get(name)) for name in choosers(program)]
    free = {f"{x} >= 1" for x in of if x in b.sizes and not re.search(rf"\b{x}\b", said) and [*map(str, b.scalars.values())].count(x) == of.count(x)
            and not any(re.search(rf"\b{x}\b", f) for f in b.facts if f != f"{x} >= 1")}
    return replace(found, binding=b.changed(facts=[f for f in b.facts if f not in free])) if free else found


def _padded(b: Binding) -> Binding:
    """With none at least of what only makes something larger than its sizes are: callers pad by nothing, too."""
    extents = [str(x) for x in (*b.grid, *(x for t in b.tensors.values() for x in (*t.shape, *(t.strides or ()))))]
    texts = dict(enumerate(dict.fromkeys([*extents, *(s for v in b.scalars.values() if (s := str(v)) not in b.sizes)])))
    held = {x: Var(x, I32) for x in b.sizes}
    none = set[str]()
    for x in (x for x in b.sizes if f"{x} >= 1" in b.facts and sum(bool(re.search(rf"\b{x}\b", f)) for f in b.facts) == 1):
        said = {str(k): text for k, text in texts.items() if re.search(rf"\b{x}\b", text)}
        try:
            whole = x in extents or not all(_larger(e, x) and names_read(e) & held.keys() - {x} for e in expressions(said, held, "size").values())
        except KirError:
            continue  # it says what it is of later
        none |= {x} if said and not whole else set()
    return b.changed(facts=[f"{m} >= 0" if (m := f.removesuffix(" >= 1")) in none else f for f in b.facts]) if none else b


def _larger(e: Expr, x: str) -> bool:
    """Whether a size is only added in an expression, times a positive number, and never what is divided by."""
    match e:
        case Binary(op="add", a=a, b=b):
            return _larger(a, x) and _larger(b, x)
        case Binary(op="sub" | "floordiv" | "ceildiv" | "div", a=a, b=b):
            return _larger(a, x) and x not in names_read(b)
        case Binary(op="mul", a=a, b=b) if isinstance(a, Const) or isinstance(b, Const):
            return _larger(a, x) and _larger(b, x) and all(not isinstance(c, Const) or c.value > 0 for c in (a, b))
        case _:
            return isinstance(e, Var) or x not in names_read(e)


def _tiled(found: Found, program: Program) -> Found:
    """With a power of two for each extent of a tile that the host code leaves to a tuner: any computes the same, and a small tile is gated soonest."""
    lengths = dict.fromkeys(v.name for x in walk(program) if isinstance(x, Call) and x.fn == "iota" for v in x.args if isinstance(v, Var))
    left = [name for name in lengths if name in found.tuned and found.binding.metas.get(name) == UNKNOWN]
    if not left:
        return found
    metas = {**found.binding.metas, **dict.fromkeys(left, taken_for(len(left)))}
    said = [Assumed(f"{name} is {metas[name]}", ("metas", name)) for name in left]
    return replace(found, binding=found.binding.changed(metas=metas), assumed=(*found.assumed, *said))


def _decided(found: Found, program: Program) -> Found:
    """With false for each condition on sizes that a decorator computes and that no fact decides: the kernel for all sizes."""
    binding, said = found.binding, list(found.assumed)
    for name, formula in found.binding.heuristics.items():
        try:
            settled(binding.changed(heuristics={name: formula}))
        except KirError as bad:
            if bad.diagnostics[0].id != "KIR-F012":
                return found
            if unmentioned(program, {name}):
                binding = binding.changed(heuristics={k: v for k, v in binding.heuristics.items() if k != name})
                continue
            binding = binding.changed(metas={**binding.metas, name: False}, heuristics={k: v for k, v in binding.heuristics.items() if k != name})
            said.append(Assumed(f"{name} is false, as nothing promises {formula}", ("metas", name)))
    return replace(found, binding=binding, assumed=tuple(said))


def notice(found: Found, others: list[Found], name: str, command: str) -> Diagnostic:
    """Where a binding was found, what was assumed beside, and which other launches say otherwise."""
    metas = ", ".join(f"{k} = {v}" for k, v in found.binding.metas.items())
    differing = _differing(found, others)
    tuned = (f"of {len(found.binding.configs)} configurations that are tuned among, the first; `kir bind` writes them all, and --bind FILE.toml#1 takes "
             "the second",) if len(found.binding.configs) > 1 else ()
    return Diagnostic(
        "KIR-S060", f"{name} is read as {found.place} launches it{f' ({metas})' if metas else ''}",
        notes=(*(f"{ASSUMED}{each}" for each in in_words(found.assumed)), *tuned, *differing),
        attempt=command if found.assumed or differing else "", severity="warning" if found.assumed or differing else "note")


def _differing(found: Found, others: Sequence[Found]) -> tuple[str, ...]:
    """What other launches say otherwise."""
    return tuple(f"{o.place} launches it with {told}" for o in others if o is not found and (told := _difference(found.binding, o.binding)))


def _difference(a: Binding, b: Binding) -> str:
    """What compile-time values another launch has."""
    told = [f"{k} = {v}" for k, v in b.metas.items() if a.metas.get(k) != v]
    told += [f"{k} left out" for k in b.absent if k not in a.absent]
    return ", ".join(told)


def proposed(reader: Frontend, path: Path, kernel: str, line: int = 0, calls: Sequence[Binding] = (), names: Sequence[str] = ()) -> Found:
    """What can be found out of a kernel's binding: from recorded `calls`, else from its launch in host code (at a `line`), else from its source alone,
    with a question mark in every place that nothing fills. Raises KirError KIR-F005 for a frontend that writes no skeletons, KIR-F014 for calls that do
    not fit together, KIR-S062 for a line on which there is no launch."""
    if calls:
        made = generalized(calls, names)
        left = tuple(Assumed(f"{each} is of another specialization (compile-time values, dtypes, numbers of axes), and left out") for each in made.left)
        return replace(made.found, assumed=(*made.found.assumed, *left))
    found = launches_of(reader, path, kernel)
    if line:
        chosen = [f for f in found if f.place.endswith(f":{line}")]
        if not chosen:
            raise usage("KIR-S062", f"no launch of {kernel} stands on line {line}", witness=tuple(f.place for f in found),
                        needs="the line of one of its launches")
        taken = chosen[0] if chosen[0] is found[0] else _whole(reader, path, kernel, chosen[0])
        return replace(taken, others=_differing(chosen[0], found))
    if found:
        return replace(found[0], others=_differing(found[0], found))
    make: Callable[[Path, str], Binding] | None = getattr(reader, "skeleton", None)
    if make is None:
        raise error("KIR-F005", f"the frontend '{reader.surface}' writes no skeletons of bindings", needs="a binding by hand")
    return Found(make(path, kernel), "")
