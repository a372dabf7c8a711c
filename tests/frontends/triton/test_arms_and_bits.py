"""What arms of static branches give a name keeps its dtype, bits are counted and taken as they are, and bounds outlive what a loop's names start with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frontends.reading import opaque
from tests.frontends.triton.reading import execute, read, written_back

SCALED = """
@triton.jit
def kernel(g, y, scale, n, B: tl.constexpr, GATED: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.zeros([B, B], dtype=tl.float32)
    c = tl.zeros([B, B], dtype=tl.float32)
    b = tl.load(g + i, mask=i < n, other=0.0)
    m = (i[:, None] >= i[None, :]) & (i < n)[:, None]
    if GATED:
        a = a * tl.exp(b)[:, None] * scale
        c = tl.where(m, c * tl.exp(b[:, None] - b[None, :]), 0) * scale
    else:
        a += tl.dot(tl.trans(c), a) * scale
        a *= scale
    tl.store(y + i[:, None] * B + i[None, :], a + c)
"""
ARMS = """
@triton.jit
def kernel(lens, mask, y, z, N: tl.constexpr, LOCAL: tl.constexpr, HAS: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    count = tl.zeros((), dtype=tl.int32)
    if N == 0:
        count = tl.full((), 7, dtype=tl.int32)
    elif not LOCAL:
        if HAS:
            count = tl.load(lens)
        else:
            count = tl.full((), N, dtype=tl.int32)
    tl.store(y + i, count + i)
    hidden = tl.full((B,), False, tl.int1)
    if mask is not None:
        hidden = tl.load(mask + i)
    tl.store(z + i, tl.where(hidden, -1, i))
"""


@pytest.mark.parametrize(("metas", "want"), [({"N": 0, "LOCAL": False, "HAS": True}, 7), ({"N": 3, "LOCAL": False, "HAS": True}, 1 << 40),
                                             ({"N": 3, "LOCAL": False, "HAS": False}, 3), ({"N": 3, "LOCAL": True, "HAS": True}, 0)])
def test_a_number_in_one_arm_keeps_its_dtype(tmp_path: Path, metas: dict[str, Any], want: int) -> None:
    given: dict[str, np.ndarray] = {"lens": np.full(1, 1 << 40, np.int64), "mask": np.array([1, 0, 1, 0], np.int8), "y": np.zeros(4, np.int64),
                                    "z": np.zeros(4, np.int32)}
    out = execute(tmp_path, ARMS, given, metas={"B": 4, **metas})
    np.testing.assert_array_equal(out["y"], want + np.arange(4))
    np.testing.assert_array_equal(out["z"], [-1, 1, -1, 3])


def test_arms_are_written_with_their_dtypes(tmp_path: Path) -> None:
    assert "tl.full((), N, tl.int32)" in written_back(tmp_path, ARMS)


BITS = """
@triton.jit
def ones(x):
    return tl.inline_asm_elementwise("popc.b32 $0, $1;", "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1)

@triton.jit
def kernel(x, q, s, y, z, N: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(z + i, ones(v) + ones(v.to(tl.uint32, bitcast=True) >> 1))
    w = tl.load(q + i)
    if (N & 4) > 0:
        w = w & ((1 << N) - 1)
    tl.store(y + i, (w * 2).to(tl.int64) + tl.math.llrint(tl.load(s + i)))
"""


@pytest.mark.parametrize("count", [4, 3])
def test_bits_are_what_they_are(tmp_path: Path, count: int) -> None:
    x, q, s = np.array([-1, 5, 1 << 30, 0], np.int32), np.array([60, 51, 18, 3], np.int8), np.array([0.5, 1.5, -2.5, 2.6], np.float32)
    out = execute(tmp_path, BITS, {"x": x, "q": q, "s": s, "y": np.zeros(4, np.int64), "z": np.zeros(4, np.int32)}, metas={"N": count, "B": 4})
    np.testing.assert_array_equal(out["z"], [sum(int(b).bit_count() for b in (k, k >> 1)) for k in x.view(np.uint32).tolist()])
    np.testing.assert_array_equal(out["y"], ((q & 15) if count == 4 else q) * 2 + np.rint(s).astype(np.int64))


def test_bits_are_written_as_they_are(tmp_path: Path) -> None:
    text = written_back(tmp_path, BITS)
    assert "libdevice.popc(" in text and "bitcast=True)" in text and "(N & 4)" in text


def test_the_bound_of_a_loop_is_what_its_name_was_before(tmp_path: Path) -> None:
    source = """
@triton.jit
def kernel(x, y, lo, hi, B: tl.constexpr):
    i = tl.arange(0, B)
    start = lo - (lo % B)
    total = tl.zeros([B], tl.float32)
    for _ in range(0, (hi - start + B - 1) // B):
        total += tl.load(x + start + i, mask=start + i < hi, other=0.0)
        start += B
    tl.store(y + i, total)
"""
    x = np.arange(11, dtype=np.float32)
    out = execute(tmp_path, source, {"x": x, "y": np.zeros(4, np.float32)}, metas={"B": 4}, scalars={"lo": 5, "hi": 11})
    np.testing.assert_array_equal(out["y"], [4 + 8, 5 + 9, 6 + 10, 7])
    written_back(tmp_path, source)


def test_a_box_is_not_read_through_a_pointer(tmp_path: Path) -> None:
    """With the setting under which the kernel is given a descriptor Triton takes no pointer, so that arm is never taken."""
    source = """
@triton.jit
def kernel(x, y, READY: tl.constexpr, B: tl.constexpr):
    if not READY:
        x = tl.make_tensor_descriptor(x, shape=[B, B], strides=[B, 1], block_shape=[B, B])
    tl.store(y + tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :], x.load([0, 0]) + 1.0)
"""
    x = np.arange(256, dtype=np.float32)
    out = execute(tmp_path, source, {"x": x, "y": np.zeros(256, np.float32)}, metas={"B": 16, "READY": False})
    np.testing.assert_array_equal(out["y"], x + 1)
    asked = source.replace("x.load([0, 0]) + 1.0", "tl.load(y, mask=(0, 0))")
    assert any("a load of a box through a pointer" in s for s in opaque(read(tmp_path, asked)))


def test_a_number_that_tiles_are_multiplied_by_is_no_tile(tmp_path: Path) -> None:
    assert not [m.name for m in read(tmp_path, SCALED).metas if "shape" in m.name]
