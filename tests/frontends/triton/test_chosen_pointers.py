"""Pointers that a value chooses among buffers, what helpers are given, and what host code of other vendors' devices comes to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.frontends.triton.frontend import TritonFrontend
from tests.frontends.reading import opaque
from tests.frontends.triton.reading import execute, read, written_back

CHOSEN = """
@triton.jit
def kernel(a, b, y, z, N, B: tl.constexpr):
    pid = tl.program_id(0)
    src = tl.where(pid == 0, a + 1, b)
    if pid == 2:
        dst = y
    else:
        dst = z
    i = tl.arange(0, B)
    for k in range(0, N, B):
        v = tl.load(src + i, mask=i + k < N, other=0)
        tl.atomic_add(dst + pid * N + k + i, v.to(src.dtype.element_ty), mask=i + k < N)
        src += B
"""


def test_pointers_that_a_value_chooses(tmp_path: Path) -> None:
    a, b = np.arange(1, 18, dtype=np.float32), np.arange(100, 116, dtype=np.float32)
    given = {"a": a, "b": b, "y": np.zeros(48, np.float32), "z": np.zeros(48, np.float32)}
    out = execute(tmp_path, CHOSEN, given, grid=3, metas={"B": 8}, scalars={"N": 13})
    y, z = np.zeros(48), np.zeros(48)
    z[:13], z[13:26], y[26:39] = a[1:14], b[:13], b[:13]
    np.testing.assert_array_equal(out["y"], y)
    np.testing.assert_array_equal(out["z"], z)
    assert "if " in written_back(tmp_path, CHOSEN)
    by_tile = CHOSEN.replace("tl.where(pid == 0,", "tl.where(tl.arange(0, B) == 0,")
    assert any("'src' is a tile of pointers into several buffers, and changes in a loop" in s for s in opaque(read(tmp_path, by_tile)))


BY_ROW = """
@triton.jit
def kernel(a, b, which, y, N, D, B: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    cols = tl.arange(0, B)
    w = tl.load(which + rows, mask=rows < N, other=0)[:, None]
    keep = (rows < N)[:, None] & (cols < D)[None, :]
    v = tl.load(tl.multiple_of(tl.where(w == 1, a + rows[:, None] * D, b + rows[:, None] * D), (8, 8)) + cols[None, :], mask=keep, other=0.0)
    at = rows[:, None] * D + cols[None, :]
    p = tl.where(w == 1, b + at, tl.where(w == 2, a + at, y + at))
    tl.store(p, v * 2, mask=keep)
"""


def test_pointers_that_each_element_chooses(tmp_path: Path) -> None:
    a, b, which = np.arange(1, 36, dtype=np.float32).reshape(7, 5), np.arange(100, 135, dtype=np.float32).reshape(7, 5), np.arange(7, dtype=np.int32) % 3
    out = execute(tmp_path, BY_ROW, {"a": a, "b": b, "which": which, "y": np.zeros((7, 5), np.float32)}, grid=2, metas={"B": 8}, scalars={"N": 7, "D": 5})
    w = which[:, None]
    np.testing.assert_array_equal(out["a"], np.where(w == 2, b * 2, a))
    np.testing.assert_array_equal(out["b"], np.where(w == 1, a * 2, b))
    np.testing.assert_array_equal(out["y"], np.where(w == 0, b * 2, 0))
    assert "~cond" in written_back(tmp_path, BY_ROW)
    atomic = BY_ROW.replace("tl.store(p, v * 2, mask=keep)", "tl.atomic_add(p, v, mask=keep)")
    assert any("an atomic on a tile of pointers into several buffers" in s for s in opaque(read(tmp_path, atomic)))


HELPERS = """
@triton.jit
def scaled(x_ptr, y_ptr, at, dtype):
    tl.store(y_ptr + at, tl.load(x_ptr + at).to(dtype))

@triton.jit
def inner(acc, m, p_k, lo, hi, flag: tl.constexpr, B: tl.constexpr):
    p_k = tl.advance(p_k, (0, lo))
    for i in range(lo, hi, B):
        k = tl.load(p_k, boundary_check=(1,), padding_option="zero")
        if flag & 2:
            k = k * 2
        m = tl.maximum(m, tl.max(k, 1))
        acc += k
        p_k = tl.advance(p_k, (0, B))
    return acc, m

@triton.jit
def kernel(x, y, z, M: tl.constexpr, N, B: tl.constexpr, flag: tl.constexpr):
    acc, m = tl.zeros((M, B), tl.float32), tl.full((M,), float("-inf"), tl.float32)
    p = tl.make_block_ptr(x, (M, N), (N, 1), (0, 0), (M, B), (1, 0))
    acc, m = inner(acc, m, p, 0, N, flag, B)
    tl.store(y + tl.arange(0, M)[:, None] * B + tl.arange(0, B)[None, :], acc)
    tl.store(z + tl.arange(0, M), m)
    scaled(y, z, M, tl.float32)
"""


def test_helpers_are_read_alone(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(4, 13)).astype(np.float32)
    given = {"x": x, "y": np.zeros((4, 8), np.float32), "z": np.zeros(5, np.float32)}
    out = execute(tmp_path, HELPERS, given, metas={"M": 4, "B": 8, "flag": 3}, scalars={"N": 13})
    wide = np.pad(x * 2, ((0, 0), (0, 3)))
    np.testing.assert_allclose(out["y"], wide[:, :8] + wide[:, 8:], rtol=1e-6)
    np.testing.assert_allclose(out["z"][:4], wide.max(1), rtol=1e-6)
    written_back(tmp_path, HELPERS, "scaled")
    assert opaque(read(tmp_path, HELPERS, "inner")) == []
    kinds = {m.name: m.kind for m in read(tmp_path, HELPERS, "inner").metas}
    assert kinds["flag"] == "int" and {"p_k_block_0", "p_k_block_1"} <= set(kinds)


HOST = """
try:
    import triton
    import triton.language as tl
    THERE = True
except Exception:
    triton = None
    THERE = False
import functools
import importlib.util
import torch

def is_npu():
    try:
        return torch.npu.is_available()
    except Exception:
        return False

def found(name):
    for place in ("triton.language.libdevice", "triton.language.extra.libdevice"):
        if spec := importlib.util.find_spec(place):
            return getattr(importlib.util.module_from_spec(spec), name)

def fast():
    if is_npu() or platform.is_rocm():
        from triton.language.math import exp as made
    else:
        from triton.language.extra.cuda.libdevice import fast_expf as made
    return made

exp, rsqrt = fast(), found("rsqrt")

if THERE:
    @triton.jit
    def half(x):
        return rsqrt(exp(x)), torch.finfo(torch.float8_e4m3fn).tiny

@triton.jit
def kernel(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b = half(tl.load(x + i))
    tl.store(y + i, a + b)
"""


def test_host_code_that_asks_for_the_machine(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 8, dtype=np.float32)
    out = execute(tmp_path, HOST, {"x": x, "y": np.zeros(8, np.float32)}, metas={"B": 8})
    np.testing.assert_allclose(out["y"], 1 / np.sqrt(np.exp(x)) + 2.0**-6, rtol=1e-5)


PAIR = """
@triton.jit
def kernel(x, y, z, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b = tl.load(x + 2 * i), tl.load(x + 2 * i + 1)
    packed = tl.inline_asm_elementwise(asm="@ASM@", constraints="=h,f,f", args=[b, a], dtype=tl.uint16, is_pure=True, pack=1)
    tl.store(y + i, packed)
    scale = tl.inline_asm_elementwise("cvt.rp.satfinite.ue8m0x2.f32 $0, 0.0, $1;", "=h,f", [a], dtype=tl.uint16, is_pure=True, pack=1)
    tl.store(z + i, scale)
"""
FP4 = "{ .reg .b8 q; .reg .b16 r; cvt.rn.satfinite.e2m1x2.f32 q, $1, $2; mov.b16 r, {q, 0}; mov.u16 $0, r; }"
BYTES = """
@triton.jit
def kernel(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b = tl.load(x + 2 * i), tl.load(x + 2 * i + 1)
    tl.store(y + i, tl.inline_asm_elementwise("{ .reg .b8 p, q, r, s; cvt.rn.satfinite.e2m1x2.f32 p, $5, $1; cvt.rn.satfinite.e2m1x2.f32 q, $6, $2; "
        "cvt.rn.satfinite.e2m1x2.f32 r, $7, $3; cvt.rn.satfinite.e2m1x2.f32 s, $8, $4; mov.b32 $0, {p, q, r, s}; }", "=r,f,f,f,f,f,f,f,f", [a, b],
        dtype=tl.uint8, is_pure=True, pack=4))
"""


@pytest.mark.parametrize(("source", "said"), [(PAIR.replace("@ASM@", FP4), "ue8m0x2"), (BYTES, "mov.b32 $0")])
def test_pairs_packed_by_an_instruction_are_written_as_it(tmp_path: Path, source: str, said: str) -> None:
    text = written_back(tmp_path, source)
    assert said in text and "cvt.rn.satfinite.e2m1x2.f32" in text


def test_a_helper_says_what_its_result_lacks(tmp_path: Path) -> None:
    file = tmp_path / "source.py"
    file.write_text("import triton\nimport triton.language as tl\n\n@triton.jit\ndef part(x, axis):\n    m = tl.max(x, axis=axis)\n    return m\n")
    assert opaque(TritonFrontend().parse(file, "part")) == ["an axis must be a literal integer, not a run-time value"]


def test_a_module_of_the_own_package_is_taken_before_one_that_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = "import triton\n\n@triton.jit\ndef times(x):\n    return x * {n}\n"
    for folder, n in (("site", 3), ("work", 2)):
        (tmp_path / folder / "kir_own_package").mkdir(parents=True)
        (tmp_path / folder / "kir_own_package" / "__init__.py").write_text("")
        (tmp_path / folder / "kir_own_package" / "common.py").write_text(helper.format(n=n))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    source = ("from kir_own_package.common import times\n\n@triton.jit\ndef kernel(x, y, B: tl.constexpr):\n    i = tl.arange(0, B)\n"
              "    tl.store(y + i, times(tl.load(x + i)))\n")
    x = np.arange(8, dtype=np.float32)
    out = execute(tmp_path / "work" / "kir_own_package", source, {"x": x, "y": np.zeros(8, np.float32)}, metas={"B": 8})
    np.testing.assert_array_equal(out["y"], 2 * x)


MOVED = """
from triton.language.target_info import cuda_capability_geq

@triton.jit
def mean(x, n):
    return tl.sum(x * x, axis=0) / n / x.shape[0]

@triton.jit
def kernel(cache, y, z, D: tl.constexpr, B: tl.constexpr):
    pid = tl.program_id(0)
    row = cache + pid * 24
    p = (row + 8).to(tl.pointer_type(tl.float16))
    i = tl.arange(0, B)
    v = tl.load(p + i)
    tl.store(y + pid * B + i, v)
    q = (y + pid * B).to(tl.pointer_type(tl.int16))
    tl.store(q + 1, 0)
    scale = D ** -0.5 if cuda_capability_geq(9) and not cuda_capability_geq(10, 0) else 0.0
    tl.store(z + pid, mean(v.to(tl.float32), 2) * scale)
"""


def test_moved_pointers_of_another_dtype(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=24).astype(np.float16)
    given: dict[str, np.ndarray] = {"cache": x.view(np.uint8), "y": np.zeros(16, np.float16), "z": np.zeros(2, np.float32)}
    out = execute(tmp_path, MOVED, given, grid=2, metas={"B": 8, "D": 64})
    want = x.reshape(2, 12)[:, 4:].copy()
    np.testing.assert_allclose(out["z"], (want.astype(np.float32) ** 2).sum(1) / 16 / 8, rtol=1e-6)
    want[:, 1] = 0
    np.testing.assert_array_equal(out["y"].reshape(2, 8), want)
    written_back(tmp_path, MOVED)
    assert opaque(read(tmp_path, MOVED, "mean")) == []


ADDRESSED = """
@triton.jit
def first(addresses, row):
    p = tl.cast(tl.load(addresses + row), tl.pointer_type(tl.float32))
    return tl.multiple_of(p, 16)


@triton.jit
def kernel(src, addresses, n, TABLE: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    if TABLE:
        p = first(addresses, row)
        tl.store(p + 2 * n + i, tl.load(p + i, mask=i < n, other=0.0) + tl.load(src + i, mask=i < n, other=0.0), mask=i < n)
    else:
        p = first(addresses, 0)
        tl.store(tl.max_contiguous(p + i, B), tl.load(src + i, mask=i < n, other=0.0).to(p.dtype.element_ty), mask=i < n)
"""


def test_an_address_made_of_an_integer_is_a_place_in_all_memory(tmp_path: Path) -> None:
    """The table holds addresses as bytes from the start of what stands for all memory; each tensor may be a part of it."""
    rows, src = np.arange(16, dtype=np.float32), np.full(3, 100, np.float32)
    given: dict[str, np.ndarray] = {"src": src, "addresses": np.array([16, 4], np.int64), "memory": rows.view(np.uint8)}
    out = execute(tmp_path, ADDRESSED, given, grid=2, metas={"B": 4, "TABLE": True}, scalars={"n": 3})["memory"].view(np.float32)
    want = rows.copy()
    want[10:13], want[7:10] = rows[4:7] + 100, rows[1:4] + 100
    np.testing.assert_array_equal(out, want)
    text = written_back(tmp_path, ADDRESSED)
    assert "tl.pointer_type(tl.uint8)" in text and "memory," not in text
    # What is said of an address in bytes is said of its place in elements, and of address 0.
    assert "= tl.multiple_of(p, 4)" in text
    assert "tl.cast(0, tl.int64).to(tl.pointer_type(tl.uint8)), 16)" in " ".join(text.split()).replace(", )", ")") and "tl.max_contiguous(i, B)" in text, text
    assert "multiple_of(p" not in written_back(tmp_path, ADDRESSED.replace("(p, 16)", "(p, 6)"))
    program = read(tmp_path, ADDRESSED)
    assert {q.name: dict(q.attrs).get("alias") for q in program.params if q.role != "size" and q.name != "n"} == {
        "src": "memory", "addresses": "memory", "memory": None}
    by_float = ADDRESSED.replace("tl.load(addresses + row), tl", "tl.load(addresses + row).to(tl.float32), tl")
    assert any("an address made of a number that is no integer" in s for s in opaque(read(tmp_path, by_float)))


BETWEEN = """
@triton.jit
def kernel(first, out, y, seen, T, so, B: tl.constexpr):
    i = tl.arange(0, B)
    p = first
    r, w = y, y + B
    for t in range(0, T):
        at = p + i
        v = tl.load(at)
        tl.store(out + t * so + i, v + 1.0)
        p = out + t * so
        tl.store(w + i, tl.load(r + i) + v)
        r, w = w, r
        tl.atomic_add(seen + t, 1, sem="release")
        done = tl.atomic_add(seen + t, 0, sem="acquire")
        while done < 1:
            done = tl.atomic_add(seen + t, 0, sem="acquire")
    tl.store(y + 2 * B + i, tl.load(p + i) + tl.load(r + i))

@triton.jit
def swapped(a, b, y, T, B: tl.constexpr):
    i = tl.arange(0, B)
    r = a
    w = b
    for t in range(0, T):
        tl.store(w + i, tl.load(r + i) * 2)
        tmp = r
        r = w
        w = tmp
    tl.store(y + i, tl.load(r + i))
"""


def test_a_pointer_that_moves_between_two_tensors_in_a_loop(tmp_path: Path) -> None:
    x = np.arange(4, dtype=np.float32)
    given: dict[str, np.ndarray] = {"first": x, "out": np.zeros(12, np.float32), "y": np.zeros(12, np.float32), "seen": np.zeros(3, np.int32)}
    out = execute(tmp_path, BETWEEN, given, metas={"B": 4}, scalars={"T": 3, "so": 4})
    np.testing.assert_array_equal(out["out"].reshape(3, 4), x + np.arange(1, 4, dtype=np.float32)[:, None])
    np.testing.assert_array_equal(out["y"][8:], (x + 3) + (3 * x + 3))
    for rounds in (0, 3):
        made = execute(tmp_path, BETWEEN, {"a": x, "b": x - 9, "y": np.zeros(4, np.float32)}, kernel="swapped", metas={"B": 4}, scalars={"T": rounds})
        np.testing.assert_array_equal(made["y"], x * 2 ** rounds)
    for name in ("kernel", "swapped"):
        written_back(tmp_path, BETWEEN, name)
    third = BETWEEN.replace("        w = tmp", "        w = y")
    assert any("'r' changes its type in the loop" in s for s in opaque(read(tmp_path, third, "swapped")))


def test_only_the_tensor_that_is_meant_is_read(tmp_path: Path) -> None:
    """The other one may be shorter: a read in front of the choice would leave it."""
    source = """
@triton.jit
def kernel(flag, a, b, y, B: tl.constexpr):
    i = tl.arange(0, B)
    if tl.load(flag) > 0:
        p = a
    else:
        p = b
    tl.store(y + i, tl.load(p + i))
"""
    x = np.arange(4, dtype=np.float32)
    out = execute(tmp_path, source, {"flag": np.ones(1, np.int32), "a": x, "b": np.zeros(1, np.float32), "y": np.zeros(4, np.float32)}, metas={"B": 4})
    np.testing.assert_array_equal(out["y"], x)
    assert "    else:\n        x = tl.load(b" in written_back(tmp_path, source)
