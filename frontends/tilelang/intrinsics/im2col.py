"""`T.im2col`: a tile of the matrix whose rows are the places of a convolution's output and whose columns are (kernel row, kernel column, channel)."""

from __future__ import annotations

from kir.analysis.elements import Axes, tile
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.types import I32

from ..state.reader import Reader, zero
from ..state.regions import Extents, at, barrier_place, region, squeezed
from ..values.values import NotUnderstood, Place, Signature, Table, Value

NAMES = ("img", "col", "nhw_step", "c_step", "kernel", "stride", "dilation", "pad", "eviction_policy", "annotations")
AXES = ("pixel", "tap")


def im2col(r: Reader, given: Signature) -> Value:
    """`T.im2col(image, tile, row block, column block, kernel, stride, dilation, pad)`: the image is [N, H, W, C], what lies outside of it is 0
    (`tilelang/language/copy_op.py` of TileLang 0.1.15; the copy is a tensor map's in im2col mode, CUDA driver API, cuTensorMapEncodeIm2col)."""
    args: dict[str, Value] = dict(zip(NAMES, given.args, strict=False))
    args.update(given.named)
    if any(x not in args for x in NAMES[:8]) or args.get("eviction_policy") is not None:
        raise NotUnderstood("an im2col of an unusual form")
    image, where = region(r, args["img"]), squeezed(region(r, args["col"]))
    sides = [i.extent for i in where.index if isinstance(i, n.Span)]
    if image.buffer.space != "global" or len(image.buffer.shape) != 4 or len(sides) != 2:
        raise NotUnderstood("an im2col that is not from an image of [N, H, W, C] to a matrix")
    _, height, width, channels = image.buffer.shape
    kernel, stride, dilation, pad = (r.dim(args[x]) for x in NAMES[4:8])
    rows, columns = sides
    if (barrier := _barrier(r, args.get("annotations"))) is not None:
        _brought(r, image, where, sides, [r.dim(args[x]) for x in NAMES[2:8]], barrier)
        return None
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


def _barrier(r: Reader, annotations: Value) -> n.Region | None:
    """The barrier that counts the bytes, which the program waits for itself."""
    found = r.decided(annotations)
    if found is None:
        return None
    pairs = dict(found.state.held) if isinstance(found, Table) else {}
    if set(pairs) != {"barrier"}:
        raise NotUnderstood("an im2col with annotations but a barrier")
    return barrier_place(r, pairs["barrier"])


def _brought(r: Reader, image: Place, where: Place, sides: Extents, numbers: list[n.Expr], barrier: n.Region) -> None:
    """The copy of a tile of the view of pixels by taps and channels, after the bytes that it brings are expected."""
    row, column, *rest = numbers
    kernel, stride, dilation, pad = (build.int_value(x) for x in rest)
    if kernel is None or stride is None or dilation != 1 or pad is None:
        raise NotUnderstood("an im2col of taps that are apart, or not known")
    count, *space, channels = image.buffer.shape
    down, across = (build.ceildiv(build.add(d, 2 * pad - kernel + 1), stride) for d in space)
    pixel, tap = (build.var(axis, I32) for axis in AXES)

    def inner(place: n.Expr, by: n.Expr) -> n.Expr:
        return build.sub(build.add(build.mul(place, stride), by), pad)
    taps = (build.floordiv(tap, build.mul(channels, kernel)), build.mod(build.floordiv(tap, channels), kernel)) if kernel > 1 else (build.const(0),) * 2
    index = (build.floordiv(pixel, build.mul(down, across)), inner(build.mod(build.floordiv(pixel, across), down), taps[0]),
             inner(build.mod(pixel, across), taps[1]), build.mod(tap, channels) if kernel > 1 else tap)
    shape = build.mul(build.mul(down, count), across), build.mul(channels, kernel * kernel)
    buffer = n.Buffer(r.out.fresh(f"{image.buffer.name}m"), image.buffer.dtype, shape, "global")
    r.born.add(buffer.name)
    r.out.emit(n.View(buffer, n.Region(image.buffer, index), AXES, build.const(0, buffer.dtype)))
    r.aliases[buffer.name] = r.aliases.get(image.buffer.name, image.buffer.name)
    tile_of = [build.span(build.mul(step, _number(extent)), extent) for step, extent in zip((row, column), sides, strict=True)]
    size = build.floordiv(build.mul(build.mul(*map(_number, sides)), buffer.dtype.bits), 8)
    r.out.emit(n.Eval(build.call("mbar_expect", barrier, size)))
    r.out.emit(n.Copy(build.load(n.Region(buffer, tuple(tile_of)), None, zero(buffer.dtype), True), at(where), "tma", None, False, barrier))


def _number(extent: int | n.Expr) -> n.Expr:
    return build.const(extent) if isinstance(extent, int) else extent
