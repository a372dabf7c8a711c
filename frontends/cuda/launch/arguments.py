"""A launch in host code as the arguments of a kernel: its parameters by name, its template arguments, its block."""

from __future__ import annotations

import math
import re

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding, Tensor
from kir.ir.types import I32
from kir.surface.launches.record import HostLaunch
from kir.surface.launches.values import Array, Dtype, Unknown, Value, is_number

from ..source.syntax import declared_name, text
from ..symbols.symbols import Function
from .dispatch import Written
from .geometry import BLOCK, words_of
from .host_values import TYPES
from .records import Record, apart

_MADE = re.compile(r"((?:::)?[A-Za-z_][\w:]*(?:<[^()]*>)?)(?:\(\.\.\))?")
"""What host code says of an object that it makes, or declares, of a class that is not followed."""
UNASKED = 48 * 1024
"""Bytes of shared memory that a launch has without asking for more."""


def parameters_of(fn: Function) -> dict[str, str]:
    """The text of each parameter of a kernel, by its name."""
    named = ((declared_name(d), q) for q in fn.parameters() if (d := q.child_by_field_name("declarator")) is not None)
    return {text(name): text(q) for name, q in named if name is not None}


def named_arguments(fn: Function, launch: HostLaunch) -> dict[str, Value]:
    """The arguments of a launch by the kernel's parameters."""
    return apart(dict(zip(parameters_of(fn), launch.arguments)))


def functors(fn: Function, launch: HostLaunch) -> dict[str, tuple[str, Record]]:
    """The objects with members that a launch passes for parameters whose type is a template's: the type's name, and the object."""
    types = {p.name for p in fn.params or () if p.kind == "type"}
    found = {}
    for (name, kind), v in zip(parameters_of(fn).items(), launch.arguments):
        m = re.fullmatch(r"(?:const\s+)?(\w+)\s*&{0,2}\s*\w+", kind)
        if isinstance(v, Record) and v.kind and m is not None and m[1] in types:
            found[name] = m[1], v
    return found


def with_members(skeleton: Binding, fn: Function, launch: HostLaunch) -> Binding:
    """The skeleton with a tensor for each pointer, and a number for each whole number, that such an object has, or an accessor of a tensor."""
    tensors, scalars = dict(skeleton.tensors), dict(skeleton.scalars)
    objects = {name: made for name, (_, made) in functors(fn, launch).items()}
    objects |= {name: v for name, v in zip(parameters_of(fn), launch.arguments) if isinstance(v, Record) and "first" in v.members and not v.kind}
    for name, made in objects.items():
        scalars.pop(name, None)
        for member, words in made.declared.items():
            plain = re.sub(r"\b(?:const|volatile|restrict|__restrict__)\b", " ", words)
            dtype = TYPES.get(re.split(r"[*\w]+\s*;", plain.replace("*", " * "))[0].replace("*", " ").strip(), "")
            if "*" in words:
                tensors[f"{name}_{member}"] = Tensor(shape=["?"], dtype=dtype or "?", role="in" if re.search(r"\bconst\b[^*]*\*", words) else "")
            elif dtype.startswith(("i", "u")):
                scalars[f"{name}_{member}"] = "?"
    return skeleton.changed(tensors=tensors, scalars=scalars) if (tensors, scalars) != (skeleton.tensors, skeleton.scalars) else skeleton


def compile_time(fn: Function, launch: HostLaunch) -> dict[str, Value]:
    """What a launch says of the kernel's compile-time values: template arguments, those that follow from the arguments' types, the block and the
    bytes of dynamic shared memory."""
    words = words_of(fn)
    out: dict[str, Value] = {p.name: v for p, v in zip(fn.params or (), launch.templates) if not p.pack}
    usual = {p.name: text(p.default) for p in fn.params or () if p.kind == "value" and p.default is not None and p.name not in out}
    out |= {name: build.const(int(words)) if words.isdecimal() else words == "true" for name, words in usual.items()
            if words in ("true", "false") or (words.isdecimal() and int(words) < 1 << 31)}
    kinds, named = parameters_of(fn), named_arguments(fn, launch)
    for p in fn.params or ():
        held = out.get(p.name)
        if p.kind == "type" and (held is None or isinstance(held, Unknown)):
            of = re.compile(rf"\b{re.escape(p.name)}\b[^*]*\*")
            given = next((named[k] for k, kind in kinds.items() if of.search(kind) and isinstance(named.get(k), Array)), None)
            plain = re.compile(rf"(const\s+)?{re.escape(p.name)}\s*&?\s*\w+")  # a functor: its class is what the host calls by its name
            made = next((m[1] for k, kind in kinds.items() if plain.fullmatch(kind) and isinstance(v := named.get(k), Unknown)
                         and (m := _MADE.fullmatch(v.reason)) is not None), "")
            if isinstance(given, Array):
                out[p.name] = Dtype(given.dtype)
            elif made:
                out[p.name] = Written(made)
    out |= {kind: Written(made.kind) for kind, made in functors(fn, launch).values() if isinstance(out.get(kind, Unknown("")), Unknown)}
    for word, extent in zip(BLOCK, launch.block):
        if word == BLOCK[0] or not build.is_const(extent, 1):  # type: ignore[arg-type]  # an extent is a number, or unknown
            out[words[word]] = extent
    shared = launch.shared_bytes
    if isinstance(shared, n.Expr) and is_number(shared) and not build.is_const(shared, 0):
        out[words["shared_bytes"]] = _enough(launch, shared)
    return out


def _enough(launch: HostLaunch, shared: n.Expr) -> n.Expr:
    """Bytes of shared memory as in the call that was seen; no call needs more. Sizes that no call shows are taken for so much that a CTA may have
    these bytes unasked."""
    unseen = launch.known.unseen(shared)
    value = launch.known.pinned(shared)
    while value > UNASKED and any(launch.known.examples[x] > 1 for x in unseen):
        launch.known.examples.update({x: max(1, launch.known.examples[x] // 2) for x in unseen})
        value = launch.known.pinned(shared)
    shared = launch.known.resolved(shared)
    if not isinstance(shared, n.Const):
        terms = {**build.polynomial(shared)}
        each = math.gcd(*terms.values())  # bytes of an element
        own = terms.pop((), 0) // each
        launch.known.fact(build.compare("le", build.from_polynomial({m: c // each for m, c in terms.items()}, I32), value // each - own))
    return build.const(value)

