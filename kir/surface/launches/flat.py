"""Tensors of which a kernel is told the number of elements alone: one size in place of those of their axes."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from kir.ir.binding import Binding
from kir.surface.launches.assembled import Found

_PRODUCT = re.compile(r"\w+(?: \* \w+)+")


def flattened(found: Found) -> Found:
    """With one size for the product of several that nothing else speaks of than shapes of as many elements: what `x.numel()` gives a kernel that is told no
    axis of `x`. It is called as the parameter that has it."""
    binding, examples = found.binding, found.examples
    for param, value in binding.scalars.items():
        parts = str(value).split(" * ")
        if not (_PRODUCT.fullmatch(str(value)) and len(set(parts)) == len(parts) and set(parts) <= set(binding.sizes)):
            continue
        if (made := _in_one(binding, param, parts)) is not None:
            binding = made
            if examples is not None:
                count = math.prod(examples.get(x, 0) for x in parts)
                examples = {**{k: v for k, v in examples.items() if k not in parts}, **({param: count} if 0 < count < 1 << 31 else {})}
    return found if binding is found.binding else replace(found, binding=binding, examples=examples)


def _in_one(binding: Binding, name: str, parts: list[str]) -> Binding | None:
    """The binding with a size for the product of others; None where something speaks of one of them alone."""
    if name in binding.sizes or any(name == (t.name or k) for k, t in binding.tensors.items()):
        return None
    product = re.compile(rf"(?:(?<=^)|(?<=[(,+]) ?|(?<=[(,+] )){re.escape(' * '.join(parts))}(?=$|[),]| [-+%]| //)")

    def said(text: str | int) -> str | int:
        return product.sub(lambda m: (" " if m[0].startswith(" ") else "") + name, text) if isinstance(text, str) else text
    least = {f"{x} >= 1" for x in parts}
    tensors = {k: replace(t, shape=_merged([said(d) for d in t.shape], name, parts)) if t.strides is None else t for k, t in binding.tensors.items()}
    made = binding.changed(
        sizes=[*dict.fromkeys(name if x in parts else x for x in binding.sizes)], grid=[said(x) for x in binding.grid],
        facts=[f"{name} >= 1", *(str(said(f)) for f in binding.facts if f not in least)], tensors=tensors,
        scalars={k: said(v) if isinstance(v, str) else v for k, v in binding.scalars.items()})
    spoken = re.compile("|".join(rf"\b{x}\b" for x in parts))
    told = (*made.grid, *made.facts, *made.scalars.values(), *(d for t in made.tensors.values() for d in (*t.shape, *(t.strides or ()))),
            *made.metas.values(), *made.heuristics.values(), *made.maps, *made.arrays)
    return None if any(spoken.search(x) for x in told if isinstance(x, str)) or made.maps or made.arrays else made


def _merged(shape: list[str | int], name: str, parts: list[str]) -> list[str | int]:
    """A shape of which the axes that are such a product are one."""
    held, count = [*map(str, shape)], len(parts)
    at = next((k for k in range(len(held) - count + 1) if held[k:k + count] == parts), None)
    return shape if at is None else [*shape[:at], name, *shape[at + count:]]


__all__ = ["flattened"]
