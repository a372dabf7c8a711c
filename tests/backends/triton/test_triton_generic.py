"""Generic programs written as Triton: what was read from a kernel is a kernel again, and reads as the same program."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.backends.triton import BACKEND
from kir.base.diagnostic import KirError
from kir.frontends.triton.frontend import TritonFrontend
from kir.ir.parser import parse_program
from kir.learning.corpus import same_program

HEAD = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n"
KERNELS = {
    "dtypes that a branch decides": """@triton.jit
def kernel(x_ptr, w_ptr, y_ptr, stride, n, eps, MODE: tl.constexpr, AFFINE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n, other=0)
    own = x.dtype
    if AFFINE:
        w = tl.load(w_ptr + cols, mask=cols < n, other=0)
    if MODE == 0:
        x = x.to(tl.float32)
    mean = tl.sum(x * x, axis=0) / n
    x = x * tl.rsqrt(mean + eps)
    if MODE == 0:
        x = x.to(own)
    if AFFINE:
        y = x * w
    else:
        y = x
    tl.store(y_ptr + row * stride + cols, y, mask=cols < n)
""",
    "products": """@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, TF32: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + i[:, None] * K + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * N + j[None, :])
        acc += tl.dot(a, b, allow_tf32=TF32)
    again = tl.dot(acc.to(a_ptr.dtype.element_ty), acc.to(a_ptr.dtype.element_ty), input_precision="ieee")
    tl.store(c_ptr + i[:, None] * N + j[None, :], again)
""",
    "products of integers": """@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    acc = tl.zeros((M, N), dtype=tl.int32)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + i[:, None] * K + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * N + j[None, :])
        acc += tl.dot(a, b, out_dtype=tl.int32)
    tl.store(c_ptr + i[:, None] * N + j[None, :], acc)
""",
    "reductions and scans": """@triton.jit
def larger(a, ia, b, ib):
    take = a > b
    return tl.where(take, a, b), tl.where(take, ia, ib)

@triton.jit
def product(a, b):
    return a * b

@triton.jit
def kernel(x_ptr, y_ptr, i_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    best, where = tl.reduce((x, at), 0, larger)
    top, arg = tl.max(x, axis=0, return_indices=True)
    tl.store(y_ptr, best + top + tl.reduce(x, 0, product))
    tl.store(i_ptr, where + arg)
    tl.store(y_ptr + at, tl.cumsum(x, axis=0) + tl.associative_scan(x, 0, product))
    tl.store(i_ptr + at, tl.sum(x.to(tl.int8), axis=0) + tl.argmin(x, axis=0))
""",
    "a helper that is given tiles": """@triton.jit
def kernel(a, b, s, w, AXIS: tl.constexpr, TF32: tl.constexpr = None):
    c = tl.dot(a, tl.trans(b.to(a.dtype)), allow_tf32=TF32)
    return c * s[:, None] + tl.max(tl.abs(w), 0), a.shape[0]
""",
    "a helper that returns one of two tuples": """@triton.jit
def kernel(X: tl.constexpr, Y: tl.constexpr = None):
    pid = tl.program_id(0)
    if Y is None:
        return pid % X, pid // X
    else:
        return pid % X, (pid // X) % Y, pid // (X * Y)
""",
    "descriptors made where they are used": """@triton.jit
def kernel(x, y, M, N, B: tl.constexpr, USE: tl.constexpr):
    x += tl.program_id(1) * M * N
    if USE:
        source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [B, 16])
        target = tl.make_tensor_descriptor(y, [M, N], [N, 1], [B, 16])
        v = source.load([tl.program_id(0) * B, 16])
    else:
        v = tl.load(x + tl.arange(0, B)[:, None] * N + tl.arange(0, 16)[None, :])
    if USE:
        target.store([tl.program_id(0) * B, 0], v)
    else:
        tl.store(y + tl.arange(0, B)[:, None] * N + tl.arange(0, 16)[None, :], v)
""",
    "integers as wide as another dtype": """def bare(x):
    return x.value if isinstance(x, tl.constexpr) else x

@tl.constexpr
def as_wide(bits):
    return tl.core.get_int_dtype(bare(bits), False)

@tl.constexpr
def top(bits):
    return 1 << (bits - 1)

@triton.jit
def kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    bits: tl.constexpr = x.dtype.primitive_bitwidth
    raw = x.to(as_wide(bits), bitcast=True)
    tl.store(y_ptr + at, tl.where((raw & top(bits)) != 0, -1.0, 1.0))
""",
    "sums from either end": """@triton.jit
def kernel(x_ptr, y_ptr, n, BACK: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for step in range(0, n, BLOCK):
        x_ptr += BLOCK * n
        tl.store(y_ptr + step + at, tl.cumsum(tl.load(x_ptr + at), axis=0, reverse=BACK))
""",
    "loops and what they carry": """@triton.jit
def kernel(x_ptr, n, STEPS: tl.constexpr, STAGES: tl.constexpr, BLOCK: tl.constexpr):
    best = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    count = 0
    for s in tl.range(0, n, BLOCK, num_stages=STAGES):
        x = tl.load(x_ptr + s + tl.arange(0, BLOCK), mask=s + tl.arange(0, BLOCK) < n, cache_modifier=".cg", eviction_policy="evict_first")
        best = tl.maximum(best, x)
        if s > 64:
            count += 1
    for k in tl.static_range(STEPS):
        best += k
    left = count
    while left > 0:
        left = left // 2
        best += left
    tl.store(x_ptr + tl.arange(0, BLOCK), best)
""",
    "parameters that may be absent, texts, helpers": """@triton.jit
def activated(x, KIND: tl.constexpr):
    if KIND == "relu":
        return tl.maximum(x, 0.0)
    elif KIND == "tanh":
        return libdevice.tanh(x)
    return x

@triton.jit
def kernel(x_ptr, bias_ptr, y_ptr, KIND: tl.constexpr, SCALE: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr = 128):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at).to(tl.float32)
    if bias_ptr is not None:
        x += tl.load(bias_ptr + at)
    if SCALE != 1.0:
        x = x * SCALE
    if HALF:
        tl.atomic_add(y_ptr + at % (BLOCK // 2), activated(x, KIND), mask=at < BLOCK // 2, sem="relaxed")
    else:
        tl.store(y_ptr + at, activated(x, KIND))
""",
    "names of Python's, a first value that a dtype chooses, what another branch has loaded": """@triton.jit
def least(dtype):
    kind = dtype.value
    if kind.is_floating():
        value: tl.constexpr = float("-inf")
        return value
    if kind.is_int_signed():
        value: tl.constexpr = -1 * 2 ** (kind.int_bitwidth - 1)
        return value
    if kind.is_int_unsigned():
        value: tl.constexpr = 0
        return value

@triton.jit
def kernel(input, abs, self, N, EARLY: tl.constexpr, BLOCK: tl.constexpr):
    best = least(input.type.element_ty)
    for s in range(0, N // BLOCK):
        at = s * BLOCK + tl.arange(0, BLOCK)
        if EARLY:
            y = tl.load(abs + at)
        x = tl.max(tl.load(input + at), 0)
        best = tl.where(x > best, x, best)
        if not EARLY:
            y = tl.load(abs + at)
        tl.store(self + at, y)
    base = self + 8
    tl.store(base + 12, best)
""",
    "block pointers and random numbers": """@triton.jit
def kernel(x_ptr, y_ptr, seed, M, N, BM: tl.constexpr, BN: tl.constexpr):
    p = tl.make_block_ptr(x_ptr, (M, N), (N, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    for _ in range(0, N, BN):
        x = tl.load(p, boundary_check=(0, 1), padding_option="zero")
        r = tl.rand(seed, tl.arange(0, BN))
        tl.store(p, tl.where(r[None, :] > 0.5, x, 0.0), boundary_check=(0, 1))
        p = tl.advance(p, (0, BN))
""",
    "tensor descriptors": """@triton.jit
def kernel(x_desc, y_desc, BM: tl.constexpr):
    row = tl.program_id(0) * BM
    x = x_desc.load([row, 0])
    y_desc.store([row, 0], x * 2.0)
""",
    "a loop down to the beginning": """@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    last = tl.program_id(0).to(tl.int64) * BLOCK
    s = tl.zeros([BLOCK], tl.float32)
    for i in range(last - BLOCK, -BLOCK, -BLOCK):
        at = i + tl.arange(0, BLOCK)
        s += tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + last + tl.arange(0, BLOCK), s)
""",
    "a helper": """@triton.jit
def kernel(x, scale, WIDE: tl.constexpr):
    y = x * scale
    if WIDE:
        return y.to(tl.float32), 1
    return x, 2
""",
}


@pytest.mark.parametrize("what", KERNELS)
def test_a_generic_kernel_is_written_and_read_back(tmp_path: Path, what: str) -> None:
    file = tmp_path / "source.py"
    file.write_text(HEAD + KERNELS[what])
    program = TritonFrontend().parse(file, "kernel")
    emitted = BACKEND.emit(program)
    compile(emitted.text, "emitted.py", "exec")
    (tmp_path / "emitted.py").write_text(emitted.text)
    assert same_program(program, TritonFrontend().parse(tmp_path / "emitted.py", "kernel")), emitted.text
    assert emitted.source_map and emitted.program


def test_opaque_source_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "source.py"
    file.write_text(HEAD + "@triton.jit\ndef kernel(x_ptr):\n    v = tl.no_such_thing(x_ptr)\n    tl.store(x_ptr, v)\n")
    with pytest.raises(KirError) as refused:
        BACKEND.emit(TritonFrontend().parse(file, "kernel"))
    assert {d.id for d in refused.value.diagnostics} == {"KIR-B002"} and refused.value.diagnostics[0].anchor == "kernel/0"


def test_rounding_down_that_triton_cannot_say_is_refused() -> None:
    text = ("kir 1\nprogram p\n  meta B: int\n  out Y: $<Y>[Y_extent]\n  scalar n: i32\n  size Y_extent: i64 {implicit=true}\n"
            "  size grid_0: i32 {implicit=true}\nkernel p grid (pid_0: grid_0) threads 32\n  Y[4 // n] = cast(B, $<Y>)\n")
    assert [d.id for d in BACKEND.accepts(parse_program(text, "p.kir"))] == ["KIR-B005"]


def test_an_accumulator_that_is_given_has_the_dtype_of_the_result(tmp_path: Path) -> None:
    (tmp_path / "source.py").write_text(HEAD + KERNELS["products of integers"])
    text = BACKEND.emit(TritonFrontend().parse(tmp_path / "source.py", "kernel")).text
    assert "out_dtype=tl.int32" in text and "acc=" in text, "without it Triton takes f32 for granted"


def test_a_negative_step_stays_a_number_that_triton_knows(tmp_path: Path) -> None:
    (tmp_path / "source.py").write_text(HEAD + KERNELS["a loop down to the beginning"])
    text = BACKEND.emit(TritonFrontend().parse(tmp_path / "source.py", "kernel")).text
    assert ", -BLOCK):" in text, "converted, it is a tensor, and Triton counts upwards"
