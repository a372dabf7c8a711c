"""How addresses are written: advanced by loops as the source did, and summed so that what no loop changes is worked out before it."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.backends.triton import BACKEND
from kir.frontends.triton.frontend import TritonFrontend
from kir.learning.corpus import same_program

HEAD = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef kernel("
KERNELS = {
    "pointers of tiles are advanced": (
        """x, y, T, H, K: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * K
    p, q = x + at + tl.arange(0, B), y + at + tl.arange(0, B)
    for _ in range(T):
        v = tl.load(p)
        tl.store(q, v)
        p += H * K
        q += K
""", ["x_at = x + ", "tl.load(x_at)", "x_at += H * K", "y_at += K"], [" * __"]),
    "in steps that are no rounds": (
        """x, y, N, B: tl.constexpr):
    p = x + tl.arange(0, B)
    s = tl.zeros((B,), dtype=tl.float32)
    for k in range(0, N, B):
        s += tl.load(p, mask=tl.arange(0, B) < N - k)
        p += 3
    tl.store(y + tl.arange(0, B), s)
""", ["x_at += 3"], ["// B"]),
    "two loops, one after the other and one in the other": (
        """x, y, T, K: tl.constexpr, B: tl.constexpr):
    p, q = x + tl.arange(0, B), y + tl.arange(0, B)
    for _ in range(T):
        r = q
        for _ in range(T):
            tl.store(r, tl.load(p))
            r += 2
        p += K
    q = y + tl.arange(0, B)
    for _ in range(T):
        tl.store(q, 1.0)
        q += K
""", ["x_at += K"], []),
    "a pointer under a static branch, or in a loop that is left early, is not": (
        """x, y, g, T, K, GATED: tl.constexpr, B: tl.constexpr):
    p = x + tl.arange(0, B)
    s = tl.zeros((B,), dtype=tl.float32)
    for t in range(T):
        if GATED:
            s += tl.load(g + t * K + tl.arange(0, B))
        s += tl.load(p)
        p += K
    tl.store(y + tl.arange(0, B), s)
""", ["x_at += K"], ["g_at"]),
    "what a loop leaves alone comes first": (
        """x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)[:, None]
    x += rows * N
    for n in range(0, N, BN):
        cols = n + tl.arange(0, BN)[None, :]
        tl.store(y + rows * N + cols, tl.load(x + cols, mask=cols < N), mask=cols < N)
""", ["tl.load(x + x_1 + cols", "tl.store(y + N * rows + cols"], ["x + (", "y + ("]),
    "a dtype that a branch within a branch asks of is named before what is made of it": (
        """x, y, n, ONE: tl.constexpr, B: tl.constexpr):
    if tl.constexpr(x.dtype.element_ty == tl.float16):
        wide = tl.float32
    else:
        wide = x.dtype.element_ty
    at = tl.arange(0, B)
    if ONE:
        if wide.is_floating():
            least = float("-inf")
        else:
            least = 0
        v = tl.load(x + at, mask=at < n, other=least)
        w = tl.full((B,), 0, wide)
        tl.store(y + at, tl.where(v > w, v, w))
""", ["dtype_1: tl.constexpr"], []),
    "an offset that is known when it is compiled has a name or none": (
        """x, y, N: tl.constexpr):
    for i in tl.static_range(N):
        for j in tl.static_range(N):
            at = x + i * N + j
            tl.store(y + i * N + j, tl.load(at) * 2)
            tl.store(at, 0.0)
""", ["tl.static_range"], []),
    "an extreme and its index of a variable are one, too": (
        """x, y, i, N, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B)).to(tl.float32)
    for k in range(N):
        best = tl.min(v, axis=0)
        where = tl.argmin(v, axis=0)
        tl.store(y + k, best)
        tl.store(i + k, where)
        v = tl.where(tl.arange(0, B) == where, float("inf"), v)
""", ["best, where = tl.min(", "return_indices=True)"], ["argmin"]),
    "an index that is a wide number alone stays one": (
        """x, y, N, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    row = at // N
    tl.store(y + at, tl.load(x + row.to(tl.int64)))
""", ["x + row.to(tl.int64)", "y + at"], []),
    "an extreme and its index are one reduction": (
        """x, y, i, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]).to(tl.float32)
    best, where = tl.max(v, axis=1, return_indices=True)
    tl.store(y + tl.arange(0, B), best)
    tl.store(i + tl.arange(0, B), where)
""", ["best, where = tl.max(v, 1, return_indices=True)"], ["argmax"]),
}


@pytest.mark.parametrize("what", KERNELS)
def test_addresses_are_written_as_kernels_have_them(tmp_path: Path, what: str) -> None:
    source, there, absent = KERNELS[what]
    (tmp_path / "source.py").write_text(HEAD + source)
    program = TritonFrontend().parse(tmp_path / "source.py", "kernel")
    emitted = BACKEND.emit(program)
    (tmp_path / "emitted.py").write_text(emitted.text)
    assert same_program(program, TritonFrontend().parse(tmp_path / "emitted.py", "kernel")), emitted.text
    for word in there:
        assert word in emitted.text, emitted.text
    for word in absent:
        assert word not in emitted.text, emitted.text
