"""What NumPy does as one has the bits of what is done in the order that reductions and scans have (`kir/interp/calls/tile.py`)."""
from __future__ import annotations

import numpy as np
import pytest

from kir.interp.calls import tile
from kir.interp.numerics import number
from kir.interp.numerics.number import Array
from kir.ir.types import DTYPES, DType

SHAPES = ((1, 1), (3, 5), (2, 8), (4, 33), (2, 3, 16), (1, 64, 3))
SPECIAL = (0.0, -0.0, np.nan, np.inf, -np.inf, -1.0)


def drawn(dtype: DType, shape: tuple[int, ...], special: bool) -> Array:
    random = np.random.default_rng(len(shape) * shape[-1])
    if dtype.is_float:
        x = random.normal(size=shape) * 10.0 ** random.integers(-3, 4, size=shape)
        return np.asarray(np.where(random.random(shape) < 0.5 * special, random.choice(SPECIAL, size=shape), x)).astype(number.storage(dtype))
    x = random.integers(-2**62, 2**62, size=shape)
    return x % 2 == 0 if dtype.is_bool else number.wrap(x.astype(number.storage(dtype)), dtype)


def step_by_step(op: str, dtype: DType, x: Array, axis: int, reverse: bool) -> Array:
    """A scan, one element after another."""
    combine, steps = tile._folded(op, dtype), list[Array]()
    places = range(x.shape[axis])
    for i in reversed(places) if reverse else places:
        here = x[(*(slice(None),) * axis, slice(i, i + 1))]
        steps.append(combine((steps[-1],), (here,))[0] if steps else here)
    return np.concatenate(steps[::-1] if reverse else steps, axis=axis)


@pytest.mark.parametrize("name", ["i8", "i32", "u16", "u64", "i4", "bool", "f16", "bf16", "f32", "f64"])
def test_what_is_done_at_once_has_the_bits_of_what_is_done_in_order(name: str) -> None:
    dtype, at_once = DTYPES[name], 0
    ops = [op for op in tile._WHOLE if not (dtype.is_float and op in ("and", "or", "xor")) and not (dtype.is_bool and op in ("sum", "prod"))]
    with np.errstate(all="ignore"):
        for shape, special, op in ((s, k, op) for s in SHAPES for k in (False, True) for op in ops):
            x = drawn(dtype, shape, special)
            for axis in range(1, len(shape)):
                wanted = tile.halve((x,), axis, tile._folded(op, dtype))[0]
                found = [(wanted, tile._tree(op, dtype, x, axis)), (wanted, tile._at_once(op, dtype, x, axis)),
                         *((step_by_step(op, dtype, x, axis, back), tile._running(op, dtype, x, axis, back)) for back in (False, True))]
                at_once += sum(got is not None for _, got in found[1:])
                assert all(got is None or (got.dtype, got.shape, got.tobytes()) == (want.dtype, want.shape, want.tobytes()) for want, got in found), (op, x)
    assert at_once or dtype.bits < 8
