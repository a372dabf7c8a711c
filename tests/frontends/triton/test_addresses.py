"""Addresses of tensors as numbers, boxes of one axis, asm of packed elements, arms whose extents differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.ir import nodes as n
from tests.frontends.reading import opaque
from tests.frontends.triton.reading import execute, read, written_back

THERE = """
@triton.jit
def there(p, bases, here, where):
    at = tl.cast(p, tl.uint64) - tl.load(bases + here)
    return tl.cast(tl.cast(tl.load(bases + where), tl.pointer_type(tl.int8)) + at, p.dtype)

@triton.jit
def fetch(p, bases, here, where):
    return tl.load(there(p, bases, here, where))

@triton.jit
def kernel(x, y, bases, here, where, N, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(there(y + at, bases, here, where), tl.load(x + at, mask=at < N), mask=at < N)

@triton.jit
def aligned(x, y):
    if x.to(tl.int64) % 16 == 0:
        tl.store(y, tl.load(x + 1))

@triton.jit
def narrow(x, y):
    tl.store(y, x.to(tl.int32) + tl.load(x))
"""


def test_the_address_of_a_tensor_is_a_number_of_the_launch(tmp_path: Path) -> None:
    program = read(tmp_path, THERE)
    assert {q.name: dict(q.attrs)["address"] for q in program.params if "address" in dict(q.attrs)} == {"y_address": "y"}
    tensors = [q for q in program.params if isinstance(q.of, n.Buffer) and q.name != "memory"]
    assert len(tensors) == 3 and {dict(q.attrs).get("alias") for q in tensors} == {"memory"}  # what is stored there may be any of them
    text = written_back(tmp_path, THERE)
    assert "y_address" not in text and "tl.cast(y, tl.int64)" in text  # its callers do not give it


def test_an_address_that_is_only_asked_for_needs_no_other_memory(tmp_path: Path) -> None:
    assert {q.name for q in read(tmp_path, THERE, "aligned").params} == {"x", "y", "x_address", "x_extent", "y_extent", "grid_0"}
    written_back(tmp_path, THERE, "aligned")
    assert opaque(read(tmp_path, THERE, "narrow")) == ["an address as i32"]  # half of an address is none


def test_what_is_given_the_type_of_a_value_becomes_a_pointer_so_is_the_value(tmp_path: Path) -> None:
    assert opaque(read(tmp_path, THERE, "fetch")) == []
    assert 'p: "pointer"' in written_back(tmp_path, THERE, "fetch")


BOXES = """
@triton.jit
def kernel(x, y, h, N, S: tl.constexpr, B: tl.constexpr):
    box = tl.make_tensor_descriptor(x + h * S, [S], [1], [B])
    tl.store(y + tl.arange(0, B), box.load([tl.program_id(0) * B]))

@triton.jit
def turned(x, axis: tl.constexpr, W: tl.constexpr):
    x = x.trans() if axis == 0 else x
    M: tl.constexpr = x.shape[0]
    K: tl.constexpr = x.shape[1]
    x = x.reshape(M // W, W, K // 8, 8)
    return tl.sum(x, axis=3)

@triton.jit
def low(x, y, B: tl.constexpr):
    at = tl.arange(0, B)
    q = tl.inline_asm_elementwise("{ .reg .b8 t; .reg .b32 w; cvt.rn.satfinite.e2m1x2.f32 t, $2, $1; mov.b32 w, {t, t, t, t}; and.b32 $0, w, 255; }", "=r,f,f",
                                  [tl.load(x + at), tl.load(x + at + B)], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(y + at, q.to(tl.uint8))

@triton.jit
def widened(x, y, B: tl.constexpr):
    at = tl.arange(0, B)
    a, b = tl.inline_asm_elementwise("{ .reg .b8 q, r, s, t; .reg .b32 p; mov.b32 {q, r, s, t}, $2; cvt.rn.f16x2.e2m1x2 p, q; mov.b32 {$0, $1}, p; }",
                                     "=h,=h,r", [tl.load(x + at).to(tl.int32)], dtype=(tl.float16, tl.float16), is_pure=True, pack=1)
    tl.store(y + at, a + b)
"""


@pytest.mark.parametrize("kernel", ["kernel", "turned", "low"])
def test_boxes_arms_and_low_bytes_are_written_back(tmp_path: Path, kernel: str) -> None:
    text = written_back(tmp_path, BOXES, kernel)
    assert {"kernel": "make_tensor_descriptor", "turned": "x.shape", "low": "cvt.rn.satfinite.e2m1x2.f32"}[kernel] in text


def test_elements_of_four_bits_are_read_one_by_one(tmp_path: Path) -> None:
    values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    codes = np.arange(256, dtype=np.int32)
    out = execute(tmp_path, BOXES, {"x": codes, "y": np.zeros(256, np.float32)}, metas={"B": 256}, kernel="widened")
    signed = [*values, *(-v for v in values)]
    assert out["y"].tolist() == [signed[c & 15] + signed[c >> 4] for c in codes]
    assert written_back(tmp_path, BOXES, "widened").count("cvt.rn.f16x2.e2m1x2") == 2
    wrong = BOXES.replace("tl.store(y + at, a + b)", "tl.store(y + at, at.to(tl.float8e4nv, bitcast=True))")
    assert "the bits of i32 as f8e4m3" in opaque(read(tmp_path, wrong, "widened"))
