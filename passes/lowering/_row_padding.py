"""Rows of shared memory that are declared wider than they are used: padding as a part of the shape, or as strides."""
from __future__ import annotations

from dataclasses import replace

from kir.analysis.facts import Facts
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.visit import statements, transform, walk


def narrowed(program: n.Program, kernel: n.Kernel) -> n.Kernel:
    """The tile kernel with rows of its shared memory as wide as what is used of them, and the rest as strides."""
    shared = {s.buffer.name: s.buffer for s in statements(kernel.body) if isinstance(s, n.Alloc) and s.buffer.space == "shared"
              and s.buffer.layout is None and s.buffer.strides is None and len(s.buffer.shape) > 1}
    most: dict[str, int] = {}

    def below(block: n.Block, known: Facts) -> None:
        for s in block:
            if isinstance(s, n.For):
                below(s.body, known.ranging(s.var, s.lo, s.hi, s.step))
                continue
            if isinstance(s, n.If):
                below(s.then, known)
                below(s.orelse, known)
                continue
            for x in walk(s):
                if isinstance(x, n.Region) and x.buffer.name in shared and not isinstance(s, n.Alloc):
                    width = build.int_value(x.buffer.shape[-1]) or 0
                    last = x.index[-1] if x.index else build.span(0, width)
                    lo, extent = (last.lo, build.int_value(last.extent)) if isinstance(last, n.Span) else (last, 1)
                    hi = known.domain(lo).hi
                    most[x.buffer.name] = max(most.get(x.buffer.name, 0), width if hi is None or extent is None else hi + extent)
    below(kernel.body, Facts.from_program(program))
    made = {}
    for name, b in shared.items():
        width, used = build.int_value(b.shape[-1]), most.get(name)
        shape = [build.int_value(d) for d in b.shape]
        if width is not None and used is not None and used < width and None not in shape:
            strides, step = [1], width
            for d in reversed(shape[1:-1]):
                strides.append(step)
                step *= d or 1
            strides.append(step)
            made[name] = replace(b, shape=(*b.shape[:-1], build.const(used)), strides=tuple(map(build.const, reversed(strides))))
    return _with(kernel, made)


def widened(kernel: n.Kernel) -> n.Kernel:
    """The kernel of thread code with padded rows of its shared memory as wide as they are apart."""
    made = {}
    for s in statements(kernel.body):
        if isinstance(s, n.Alloc) and s.buffer.space == "shared" and s.buffer.strides is not None and len(s.buffer.shape) > 1:
            made[s.buffer.name] = replace(s.buffer, shape=(*s.buffer.shape[:-1], s.buffer.strides[-2]), strides=None)
    return _with(kernel, made)


def _with(kernel: n.Kernel, buffers: dict[str, n.Buffer]) -> n.Kernel:
    def leave(old: n.Node, new: n.Node) -> n.Node:
        if isinstance(new, n.Region) and new.buffer.name in buffers:
            return build.region(buffers[new.buffer.name], *new.index)
        if isinstance(new, n.Alloc) and new.buffer.name in buffers:
            return replace(new, buffer=buffers[new.buffer.name])
        return new
    made: n.Kernel = transform(kernel, leave, lambda x: not isinstance(x, n.Buffer))
    return made
