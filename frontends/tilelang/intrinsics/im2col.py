"""`T.im2col`: a tile of the matrix whose rows are the places of a convolution's output and whose columns are (kernel row, kernel column, channel)."""

from __future__ import annotations

from kir.analysis.elements import Axes, tile
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32

from ..state.reader import Reader, zero
from ..state.regions import at, extents, region
from ..values.values import NotUnderstood, Signature, Value

NAMES = ("img", "col", "nhw_step", "c_step", "kernel", "stride", "dilation", "pad", "eviction_policy")


def im2col(r: Reader, given: Signature) -> Value:
    """`T.im2col(image, tile, row block, column block, kernel, stride, dilation, pad)`: the image is [N, H, W, C], what lies outside of it is 0
    (`tilelang/language/copy_op.py` of TileLang 0.1.15; the copy is a tensor map's in im2col mode, CUDA driver API, cuTensorMapEncodeIm2col)."""
    args: dict[str, Value] = dict(zip(NAMES, given.args, strict=False))
    args.update(given.named)
    if any(x not in args for x in NAMES[:8]) or args.get("eviction_policy") is not None:
        raise NotUnderstood("an im2col of an unusual form")
    image, where = region(r, args["img"]), region(r, args["col"])
    if image.buffer.space != "global" or len(image.buffer.shape) != 4 or len(extents(where)) != 2:
        raise NotUnderstood("an im2col that is not from an image of [N, H, W, C] to a matrix")
    _, height, width, channels = image.buffer.shape
    kernel, stride, dilation, pad = (r.dim(args[x]) for x in NAMES[4:8])
    rows, columns = extents(where)
    axes: Axes = [(n.Var("%row", I32), rows), (n.Var("%column", I32), columns)]
    m, k = (build.add(build.mul(r.dim(args[step]), _number(extent)), v) for step, (v, extent) in zip(("nhw_step", "c_step"), axes, strict=True))

    def outputs(size: n.Expr) -> n.Expr:
        reach = build.add(build.mul(dilation, build.sub(kernel, 1)), 1)
        return build.add(build.floordiv(build.sub(build.add(size, build.mul(pad, 2)), reach), stride), 1)

    def inner(place: n.Expr, tap: n.Expr) -> n.Expr:
        return build.sub(build.add(build.mul(place, stride), build.mul(tap, dilation)), pad)
    down, across = outputs(height), outputs(width)
    line = build.mul(kernel, channels)
    y = inner(build.floordiv(build.mod(m, build.mul(down, across)), across), build.floordiv(k, line))
    x = inner(build.mod(m, across), build.mod(build.floordiv(k, channels), kernel))
    index = (build.floordiv(m, build.mul(down, across)), y, x, build.mod(k, channels))
    place = n.Region(image.buffer, tuple(tile(i, axes, j == 0) for j, i in enumerate(index)))
    value = build.load(place, None, zero(image.buffer.dtype), True)
    r.out.emit(n.Store(at(where), value, None, False))
    return None


def _number(extent: int | n.Expr) -> n.Expr:
    return build.const(extent) if isinstance(extent, int) else extent
