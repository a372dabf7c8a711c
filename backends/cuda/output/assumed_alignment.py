"""The alignment that a kernel's text may rely on of a pointer, so that a launcher can put it no better than that."""
from __future__ import annotations

import math

from kir.ir import nodes as n
from kir.ir.types import DType
from kir.ir.visit import regions, walk

VECTOR = 16
"""Bytes of the widest access."""


def assumed_alignment(kernel: n.Kernel, b: n.Buffer) -> int:
    """Bytes, at most `VECTOR`: what a parameter declares. Where it declares nothing: `VECTOR` for one whose memory is read or written as wider
    things than its elements (vectors that a copy asks for, asynchronous copies, views, instructions over several elements), else 1: no more
    than an element needs. Opaque text may rely on what is declared alone."""
    if b.align:
        return math.gcd(b.align, VECTOR)
    return VECTOR if any(_wide(s, b.name) for s in walk(kernel)) else 1


def _wide(s: n.Node, name: str) -> bool:
    match s:
        case n.View():
            return s.at.buffer.name == name
        case n.Copy():
            return s.via not in ("auto", "plain") and any(r.buffer.name == name for r in regions(s))
        case n.Call():
            return any(isinstance(a, n.Region) and a.buffer.name == name and not isinstance(a.type, DType) for a in s.args)
    return False
