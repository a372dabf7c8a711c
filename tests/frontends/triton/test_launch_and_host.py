"""What kernels take from their launch and from the host around them: policies, counts, enumerations, dependent launches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.backends.triton import BACKEND
from kir.base.diagnostic import KirError
from kir.frontends.triton.frontend import TritonFrontend
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.binding import Binding, Tensor
from kir.ir.bindings.specialize import specialize
from kir.ir.parser import parse_program
from kir.ir.visit import statements
from kir.learning.corpus.roundtrip.equal import same_program
from kir.surface.reading import launched
from tests.frontends.reading import opaque
from tests.frontends.triton.reading import execute, read, written_back


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_dependent_launches_are_written_as_triton_has_them(tmp_path: Path) -> None:
    source = """
@triton.jit
def kernel(x, y, B: tl.constexpr):
    tl.extra.cuda.gdc_wait()
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i) + 1)
    tl.extra.cuda.gdc_launch_dependents()
"""
    x = values(8)
    out = execute(tmp_path, source, {"x": x, "y": np.zeros(8, np.float32)}, metas={"B": 8})
    np.testing.assert_array_equal(out["y"], x + 1)
    text = written_back(tmp_path, source)
    assert "tl.extra.cuda.gdc_wait()" in text and "tl.extra.cuda.gdc_launch_dependents()" in text


EVICTED = """
@triton.jit
def through(p, mask, policy):
    return tl.load(p, mask=mask, other=0.0, eviction_policy=policy)

@triton.jit
def kernel(x, y, N, B: tl.constexpr, keep: tl.constexpr = "", near: tl.constexpr = ""):
    i = tl.arange(0, B)
    v = through(x + i, i < N, keep)
    if keep == "evict_last":
        v = v * 2
    tl.store(y + i, v, mask=i < N, cache_modifier=near, eviction_policy=keep)
"""


@pytest.mark.parametrize(("keep", "near", "times", "cache"), [("evict_last", ".cg", 2, "cg_evict_last"), ("", "", 1, ""), ("evict_normal", ".wt", 1, "wt")])
def test_a_cache_policy_that_metas_hold(tmp_path: Path, keep: str, near: str, times: int, cache: str) -> None:
    x = values(7)
    out = execute(tmp_path, EVICTED, {"x": x, "y": np.zeros(7, np.float32)}, metas={"B": 8, "keep": keep, "near": near}, scalars={"N": 7})
    np.testing.assert_array_equal(out["y"], x * np.float32(times))
    made = specialize(read(tmp_path, EVICTED), Binding(
        recorded=True, grid=[1], metas={"B": 8, "keep": keep, "near": near}, scalars={"N": 7}, tensors={k: Tensor(shape=[7], dtype="f32") for k in "xy"}))
    assert {s.cache for s in statements(made.kernels[0].body) if isinstance(s, n.Store) and s.at.buffer.space == "global"} == {cache}
    text = written_back(tmp_path, EVICTED)
    assert text.count("eviction_policy=keep") == 2 and text.count("cache_modifier=near") == 1


@pytest.mark.parametrize(("keep", "near", "meant"), [("evict_soon", "", "an eviction policy"), ("", ".zz", "a cache modifier")])
def test_a_cache_policy_that_there_is_not(tmp_path: Path, keep: str, near: str, meant: str) -> None:
    with pytest.raises(KirError, match=meant) as bad:
        execute(tmp_path, EVICTED, {"x": values(7), "y": np.zeros(7, np.float32)}, metas={"B": 8, "keep": keep, "near": near}, scalars={"N": 7})
    assert bad.value.diagnostics[0].id == "KIR-F012"


def test_a_pointer_after_a_loop_that_may_not_run(tmp_path: Path) -> None:
    source = """
@triton.jit
def kernel(x, y, lo, hi, B: tl.constexpr):
    p = x + tl.arange(0, B)
    total = tl.zeros([B], tl.float32)
    for k in range(lo, hi, B):
        total += tl.load(p)
        p += B
    tl.store(y + tl.arange(0, B), total + tl.load(p))
"""
    x = np.arange(24, dtype=np.float32)
    written_back(tmp_path, source)
    for lo, hi, rounds in ((1, 9, 2), (0, 9, 3), (9, 1, 0), (4, 4, 0)):
        out = execute(tmp_path, source, {"x": x, "y": np.zeros(4, np.float32)}, metas={"B": 4}, scalars={"lo": lo, "hi": hi})
        np.testing.assert_array_equal(out["y"], x[: 4 * rounds + 4].reshape(-1, 4).sum(axis=0))


ENUMERATED = """
from enum import Enum

class Kind(Enum):
    ONE = 1
    TWO = 2

class Sizes:
    WIDE = 3

TWO: tl.constexpr = tl.constexpr(Kind.TWO.value)
WIDE: tl.constexpr = tl.constexpr(Sizes.WIDE)

@triton.jit
def kernel(x, y, B: tl.constexpr, kind: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    if kind == TWO:
        v = v * WIDE
    tl.store(y + i, v)
"""


def test_members_of_host_enumerations(tmp_path: Path) -> None:
    x = values(8)
    for kind, times in ((1, 1), (2, 3)):
        out = execute(tmp_path, ENUMERATED, {"x": x, "y": np.zeros(8, np.float32)}, metas={"B": 8, "kind": kind})
        np.testing.assert_array_equal(out["y"], x * np.float32(times))


@pytest.mark.parametrize(("old", "new"), [("ONE = 1", "THREE = 1\n    TWO_ = 2"), ("class Kind(Enum)", "class Kind(Enum, metaclass=Other)")])
def test_a_class_that_is_more_than_its_body_is_not_guessed(tmp_path: Path, old: str, new: str) -> None:
    source = ENUMERATED.replace(old, new).replace("Kind.TWO.value", "Kind.ONE.value")
    assert any("'ONE'" in text for text in opaque(read(tmp_path, source)))


def test_counts_of_several_dtypes_that_the_binding_decides(tmp_path: Path) -> None:
    source = """
@triton.jit
def kernel(lengths, y, N, B: tl.constexpr):
    length = tl.load(lengths)
    rounds = tl.cdiv(length, B)
    each = tl.cdiv(rounds * B, N)
    tl.store(y, tl.cdiv(length + each, each))
"""
    written_back(tmp_path, source)
    out = execute(tmp_path, source, {"lengths": np.array([37], np.int64), "y": np.zeros(1, np.int64)}, metas={"B": 8}, scalars={"N": 3})
    assert out["y"][0] == -(-(37 + 14) // 14)


def test_descriptors_through_functions_getattr_and_a_fast_division(tmp_path: Path) -> None:
    source = """
import math
WIDE: tl.constexpr = tl.constexpr(math.gcd(24, 16))

@triton.jit
def kernel(x, y, M, N, B: tl.constexpr):
    a = tl.make_tensor_descriptor(x, [M, N], [N, 1], [B, B])
    b = tl.make_tensor_descriptor(y, [M, N], [N, 1], [B, B])
    v = tl.load_tensor_descriptor(a, [0, 0])
    tl.store_tensor_descriptor(b, [0, 0], libdevice.fast_dividef(v, v + getattr(tl, "constexpr")(WIDE)))
"""
    x = values(6, 8) + 9
    out = execute(tmp_path, source, {"x": x, "y": np.zeros((6, 8), np.float32)}, metas={"B": 8}, scalars={"M": 6, "N": 8})
    np.testing.assert_allclose(out["y"], x / (x + 8), rtol=1e-6)
    assert "libdevice.fast_dividef(" in written_back(tmp_path, source)


def test_a_descriptor_whose_box_a_meta_decides_is_of_that_box_where_the_meta_is_asked(tmp_path: Path) -> None:
    x, source = values(6, 8), """
@triton.jit
def kernel(x, y, M, N, B: tl.constexpr, HALVES: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[B, 8])
    target = tl.make_tensor_descriptor(y, shape=[M, N], strides=[N, 1], block_shape=[B, 8 if not HALVES else 4])
    t = source.load([tl.program_id(0) * B, 0])
    if HALVES:
        a, b = tl.split(tl.permute(tl.reshape(t, (B, 2, 4)), (0, 2, 1)))
        target.store([tl.program_id(0) * B, 0], a + 1.0)
        target.store([tl.program_id(0) * B, 4], b + 1.0)
    else:
        target.store([tl.program_id(0) * B, 0], t + 1.0)
"""
    for split in (False, True):
        out = execute(tmp_path, source, {"x": x, "y": np.zeros((6, 8), np.float32)}, grid=2, metas={"B": 4, "HALVES": split}, scalars={"M": 6, "N": 8})
        np.testing.assert_array_equal(out["y"], x + 1)
    written_back(tmp_path, source)


@pytest.mark.parametrize("touched", [False, True])
def test_a_tensor_that_the_kernel_never_touches(tmp_path: Path, touched: bool) -> None:
    """A number that is used is refused as a tensor; what nobody uses is what the binding says."""
    source = f"""
@triton.jit
def kernel(x, w, y, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i){" * w" if touched else ""})
"""
    tensors = {k: Tensor(shape=["N", 8] if k == "w" else [8], dtype="f16" if k == "w" else "f32") for k in "xwy"}
    binding = Binding(sizes=["N"], grid=[1], metas={"B": 8}, tensors=tensors)
    if touched:
        with pytest.raises(KirError) as refused:
            specialize(read(tmp_path, source), binding)
        assert refused.value.diagnostics[0].id == "KIR-F011"
        return
    w = next(p for p in specialize(read(tmp_path, source), binding).params if p.name == "w")
    assert isinstance(w.of, n.Buffer) and (w.of.dtype.name, len(w.of.shape)) == ("f16", 2)


@pytest.mark.parametrize(("test", "factor"), [
    ('device.vendor_name == "other"', "3.0"), ('device.vendor_name == "nvidia"', "2.0"), ('BACKEND != "cuda"', "3.0"), ('"cuda" == BACKEND', "2.0"),
])
def test_a_vendor_that_host_code_asks_for_is_that_of_the_machine(tmp_path: Path, test: str, factor: str) -> None:
    (tmp_path / "k.py").write_text(f"""import triton
import triton.language as tl
from nowhere import BACKEND, device


@triton.jit
def twice(x):
    return x * 2.0


@triton.jit
def thrice(x):
    return x * 3.0


if {test}:
    many = twice
else:
    many = thrice


@triton.jit
def kernel(x, y, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(y + at, many(tl.load(x + at)))
""")
    assert f"* {factor}" in BACKEND.emit(TritonFrontend().parse(tmp_path / "k.py", "kernel")).text


def test_approximations_of_libdevice_stay_what_they_are(tmp_path: Path) -> None:
    words = ("fast_sinf", "fast_cosf", "fast_log2f", "fast_tanhf")
    calls = "\n".join(f"    tl.store(y + {k} * B + at, libdevice.{w}(tl.load(x + at).to(tl.float32)))" for k, w in enumerate(words))
    (tmp_path / "k.py").write_text("import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n\n@triton.jit\n"
                                   f"def kernel(x, y, B: tl.constexpr):\n    at = tl.arange(0, B)\n{calls}\n")
    text = BACKEND.emit(TritonFrontend().parse(tmp_path / "k.py", "kernel")).text
    assert all(f"libdevice.{w}(" in text for w in words[:3]) and "tanh.approx.f32" in text, "the library for CUDA has no fast_tanhf"


def test_the_high_half_of_a_product_is_that_of_unsigned_operands(tmp_path: Path) -> None:
    """`tl.umulhi` takes the bits of signed operands as they are; a signed high half is written as its instruction."""
    source = """
@triton.jit
def kernel(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.umulhi(tl.load(x + i), 0x7FFFFFFF))
"""
    x = np.array([-1, -7, 1 << 30, 5], np.int32)
    out = execute(tmp_path, source, {"x": x, "y": np.zeros(4, np.int32)}, metas={"B": 4})
    np.testing.assert_array_equal(out["y"], [(int(v) % (1 << 32)) * 0x7FFFFFFF >> 32 for v in x])
    assert "tl.umulhi(" in written_back(tmp_path, source)
    signed = parse_program("kir 1\nprogram p\n  in X: i32[16]\n  out Y: i32[16]\nkernel main grid (b: 1) threads 128\n  let x = X[0 +: 16]\n"
                           "  Y[0 +: 16] = mulhi(x, x)\n")
    assert "mul.hi.s32" in BACKEND.emit(signed).text


GIVEN = """import torch
import triton
import triton.language as tl


@triton.constexpr_function
def tile_of(n, most):
    tile = 1
    while tile < n and tile < most:
        tile *= 2
    return tile


@triton.jit
def scaled(x, s):
    return x * s


@triton.jit
def leaky(x, s):
    return tl.where(x >= 0, x, x * s)


@triton.jit
def through(x, s, FN: tl.constexpr):
    return FN(x, s)


@triton.jit
def kernel(x, y, D: tl.constexpr, MOST: tl.constexpr, FN: tl.constexpr):
    B: tl.constexpr = tile_of(D, MOST)
    at = tl.program_id(0) * D + tl.arange(0, B)
    v = tl.load(x + at, mask=tl.arange(0, B) < D, other=0.0)
    for i in tl.static_range(tl.standard._log2(B)):
        a, b = tl.split(tl.permute(tl.reshape(v, (B >> (i + 1), 2, 2**i)), (0, 2, 1)))
        v = tl.reshape(tl.permute(tl.join(a + b, a - b), (0, 2, 1)), (B,))
    tl.store(y + at, through(v, 0.5, FN), mask=tl.arange(0, B) < D)


def run(rows):
    x = torch.randn(rows, 6, device="cuda")
    y = torch.empty_like(x)
    kernel[(rows,)](x, y, D=6, MOST=64, FN=leaky)
"""


def test_what_only_the_values_of_a_binding_decide_is_read_under_them(tmp_path: Path) -> None:
    """Functions that a kernel is given, shapes that a logarithm of a meta counts, a loop of a host function over metas."""
    (tmp_path / "k.py").write_text(GIVEN, encoding="utf-8")
    assert opaque(TritonFrontend().parse(tmp_path / "k.py", "kernel")) != []
    binding, _ = launched(f"{tmp_path / 'k.py'}::kernel")
    assert binding is not None and binding.metas == {"D": 6, "MOST": 64, "FN": "leaky"}
    x = values(3, 8)[:, :6].copy()
    transformed = np.pad(x, ((0, 0), (0, 2))) @ np.array([[(-1) ** (i & j).bit_count() for i in range(8)] for j in range(8)])
    for name, want in (("leaky", np.where(transformed >= 0, transformed, transformed / 2)), ("scaled", transformed / 2)):
        recorded = Binding(recorded=True, grid=[3], metas={**binding.metas, "FN": name}, tensors={k: Tensor(shape=[3, 6], dtype="f32") for k in "xy"})
        program = TritonFrontend().instantiate(tmp_path / "k.py", "kernel", recorded)
        assert opaque(program) == [] and {m.name: m.default for m in program.metas}["FN"] == name
        out = run(specialize(program, recorded), {"x": x, "y": np.zeros((3, 6), np.float32)}, {}).outputs
        np.testing.assert_allclose(out["y"], want[:, :6], rtol=1e-5, atol=1e-5)
        again = TritonFrontend().parse_text(tmp_path / "again.py", BACKEND.emit(program).text, "kernel")
        assert same_program(program, again)
    unknown = recorded.changed(metas={**binding.metas, "FN": "nothing"})
    with pytest.raises(KirError, match="'FN' = nothing: 'nothing' is not defined in"):
        TritonFrontend().instantiate(tmp_path / "k.py", "kernel", unknown)
