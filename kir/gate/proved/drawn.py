"""Random tensors for a program at sizes that its facts allow."""
from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kir.analysis.access import offset_tables
from kir.base.diagnostic import usage
from kir.gate.inputs.sets import size_sets
from kir.interp.numerics.number import storage
from kir.ir import nodes as n
from kir.ir.build import compare, const, int_value
from kir.ir.nodes import Program
from kir.ir.types import DType
from kir.ir.visit import statements, substitute


def random_inputs(program: Program, given: Mapping[str, int | float], seed: int) -> tuple[dict[str, Any], dict[str, int | float]]:
    """Random tensors, and the sizes and scalars that they are drawn for; what CTAs count in begins at zero, and places where parts begin and end rise.

    Raises UsageError KIR-C002 for a size that nothing gives and for sizes that are no launch, a tensor's extent being negative, and MemoryError."""
    free = [p for p in program.params if isinstance(p.of, DType) and p.value is None]
    found = _size_sets(program) if any(p.name not in given for p in free) else [{}]
    values: dict[str, int | float] = {p.name: 0.5 if isinstance(p.of, DType) and p.of.is_float else 1 for p in free if p.role == "scalar"}
    values |= {**(found[0] if found else {}), **given}
    missing = [p.name for p in free if p.name not in values]
    if missing:
        raise usage("KIR-C002", f"no value for '{missing[0]}'", needs=f"--set {missing[0]}=NUMBER, or --problem")
    known = {p.name: const(values[p.name], p.of) for p in program.params if p.name in values and isinstance(p.of, DType)}
    random, arrays, shapes = np.random.default_rng(seed), {}, {}
    for p in program.params:
        if not isinstance(p.of, n.Buffer):
            continue
        extents = [int_value(substitute(d, known)) for d in p.of.shape]
        shapes[p.name] = [d for d in extents if d is not None]
        if len(shapes[p.name]) != len(extents):
            raise usage("KIR-C002", f"the shape of '{p.name}' is not given by sizes alone", needs="--problem")
        if min(shapes[p.name], default=0) < 0:
            raise usage("KIR-C002", f"these sizes are no launch: '{p.name}' would be of extents {shapes[p.name]}", needs="extents of 0 or more")
    fits_memory(shapes)
    counters, rising = _counters(program), offset_tables(program)
    for p in program.params:
        if isinstance(p.of, n.Buffer) and p.role != "out":
            drawn: Any = random.standard_normal(shapes[p.name]) if p.of.dtype.is_float else random.integers(0, 2, shapes[p.name])
            if p.name in counters:
                drawn = np.zeros(shapes[p.name])
            if p.name in rising:
                drawn = np.sort(drawn, axis=-1)
            arrays[p.name] = np.asarray(drawn).astype(storage(p.of.dtype))
    return arrays, values


def _size_sets(program: Program) -> list[dict[str, int]]:
    """Sizes at which every fact holds and no extent is empty, near 20 where there are such; without that, sizes at which every fact holds."""
    buffers = [p.of for p in program.params if isinstance(p.of, n.Buffer)]
    extents = dict.fromkeys(d for b in buffers for d in b.shape if isinstance(d, n.Binary) and isinstance(d.type, DType))
    filled = replace(program, facts=(*program.facts, *(compare("ge", d, const(1, d.type)) for d in extents if isinstance(d.type, DType))))
    tries = ((program, (20,), False), (filled, (20, 3, 7, 1), False), (filled, (20,), True), (program, (3, 7, 1), False))
    for k, (each, bases, below) in enumerate(tries):
        for found in size_sets(each, bases, below=below):
            values = {p.name: const(found[p.name], p.of) for p in program.params if p.name in found and isinstance(p.of, DType)}
            if k == len(tries) - 1 or all((int_value(substitute(d, values)) or 1) > 0 for d in extents):
                return [found]
    return size_sets(program, (20,))


def _counters(program: Program) -> frozenset[str]:
    """Whole numbers that atomics count and whose old value is used: a number of tickets, whose users agree on where it begins."""
    views = {s.buffer.name: s.at.buffer.name for k in program.kernels for s in statements(k.body) if isinstance(s, n.View)}
    named = set()
    for k in program.kernels:
        for s in statements(k.body):
            if isinstance(s, n.Let) and isinstance(s.value, n.Call) and s.value.fn.startswith("atomic_") and isinstance(r := s.value.args[0], n.Region):
                name = r.buffer.name
                while name in views:
                    name = views[name]
                named.add(name)
    return frozenset(p.name for p in program.params if p.role == "inout" and p.name in named and isinstance(p.of, n.Buffer) and p.of.dtype.is_integer)


def fits_memory(shapes: Mapping[str, list[int]]) -> None:
    """Raises MemoryError, before anything is drawn, for tensors that this machine cannot hold beside what is known of them."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = {name: 8 * math.prod(shape) for name, shape in shapes.items()}  # drawn as float64
    if sum(needed.values()) > there:
        largest = max(needed, key=lambda name: needed[name])
        raise MemoryError(f"the tensors take {sum(needed.values()) / 2**30:.0f} GiB as they are drawn, most of it '{largest}' {shapes[largest]}")
