"""What a tensor descriptor must be able to say of a place in global memory: the conditions that `tma-load` and `tma-store` share.

The limits are those of cuTensorMapEncodeTiled (CUDA driver API, "Tensor Map Object Management").
"""
from __future__ import annotations

from kir.analysis.facts import Facts
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.build import int_value
from kir.ir.printer import expr_text, region_text
from kir.ir.types import DType, TileType, dtype_of, shape_of
from kir.rewrite import Context, Site, Verdict, proved, refuted, unknown
from kir.rewrite.match import hardware_of
from kir.rewrite.precondition import decided

CHUNK, MOST_IN_BOX, MOST_DIMENSIONS = 16, 256, 5
"""Bytes that rows, strides and addresses are multiples of; elements of a box along a dimension; dimensions of a tensor."""


def is_box(r: n.Region) -> bool:
    """Whether a region is a box of neighbors in global memory, of literal extents, that a descriptor could name; its single indices, of a batch or a head,
    are boxes of one."""
    spans = [i for i in r.index if isinstance(i, n.Span)]
    return r.buffer.space == "global" and bool(spans) and isinstance(r.index[-1], n.Span) and all(
        isinstance(i.extent, int) and i.step in (1, build.const(1)) for i in spans) and all(
        not isinstance(i.type, TileType) for i in r.index if not isinstance(i, n.Span))


def strides_of(b: n.Buffer) -> list[n.Expr]:
    """Elements from one index to the next, per dimension."""
    if b.strides is not None:
        return list(b.strides)
    out: list[n.Expr] = []
    step: n.Expr = build.const(1)
    for d in reversed(b.shape):
        out.append(step)
        step = build.mul(step, d)
    return out[::-1]


def strides_fit(at: n.Region, facts: Facts) -> Verdict:
    """Whether rows lie dense and start at multiples of 16 bytes."""
    *outer, inner = strides_of(at.buffer)
    if len(outer) + 1 > MOST_DIMENSIONS:
        return refuted(f"'{at.buffer.name}' has {len(outer) + 1} dimensions", f"a descriptor has at most {MOST_DIMENSIONS}")
    if int_value(inner) != 1:
        return unknown(f"the last stride of '{at.buffer.name}' is not known to be 1", needs="a dense last dimension")
    each = CHUNK // at.buffer.dtype.bytes
    for stride in outer:
        claim = build.compare("eq", build.mod(stride, build.const(each, _dtype(stride))), 0)
        found = decided(claim, facts, f"rows of '{at.buffer.name}' start at multiples of {CHUNK} bytes",
                        f"rows of '{at.buffer.name}' are {at.buffer.dtype.bytes} * {expr_text(stride)} bytes apart, which is no multiple of {CHUNK}")
        if not found:
            return found
    return proved(f"rows of '{at.buffer.name}' are dense and start at multiples of {CHUNK} bytes")


def box_fits(at: n.Region) -> Verdict:
    """Whether one box may have these extents."""
    extents = [d for d in shape_of(at.type) if isinstance(d, int)]
    if max(extents) > MOST_IN_BOX:
        return refuted(f"{region_text(at)} is {max(extents)} wide", f"a box has at most {MOST_IN_BOX} elements a dimension", needs="several copies")
    row = extents[-1] * at.buffer.dtype.bytes
    if row % CHUNK:
        return refuted(f"a row of {region_text(at)} has {row} bytes", f"a box moves multiples of {CHUNK} bytes",
                       needs=f"a multiple of {CHUNK // at.buffer.dtype.bytes} elements")
    return proved(f"a box of {' x '.join(map(str, extents))} elements, rows of {row} bytes")


def base_fits(at: n.Region) -> Verdict:
    """Whether the tensor begins at a multiple of 16 bytes; a tensor that says nothing is aligned as allocators align (256 bytes)."""
    if at.buffer.align and at.buffer.align % CHUNK:
        return refuted(f"'{at.buffer.name}' is aligned to {at.buffer.align} bytes", f"a descriptor's tensor begins at a multiple of {CHUNK}")
    return proved(f"'{at.buffer.name}' begins at a multiple of {CHUNK} bytes, as tensors do")


def has_tma(program: n.Program, site: Site, context: Context) -> Verdict:
    """Whether the target moves boxes in hardware; elsewhere the compiler takes the descriptor apart, and nothing is gained."""
    hardware = hardware_of(context, "sm_90a")
    if hardware.architecture.has("tma"):
        return proved(f"{hardware.name} copies boxes in hardware")
    return refuted(f"{hardware.name} has no tensor memory accelerator", "each element's address is computed as without a descriptor",
                   needs="sm_90 or newer")


def _dtype(e: n.Expr) -> DType:
    assert not isinstance(e.type, TileType)
    return dtype_of(e.type)
