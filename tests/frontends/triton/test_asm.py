"""Inline PTX in Triton kernels: read as expressions over tiles, run by the interpreter; what it may not be is opaque with its reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.ir import nodes as n
from kir.ir.visit import statements, walk
from tests.frontends.reading import opaque
from tests.frontends.triton.reading import execute, read, written_back

KERNEL = """
@triton.jit
def kernel(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    w = tl.inline_asm_elementwise({asm!r}, {constraints!r}, [v], dtype={dtype}, is_pure=True, pack={pack})
    tl.store(y + i, w)
"""


def kernel(asm: str, constraints: str = "=r,r", dtype: str = "tl.float32", pack: int = 1) -> str:
    return KERNEL.format(asm=asm, constraints=constraints, dtype=dtype, pack=pack)


def test_a_chain_under_predicates_is_a_select(tmp_path: Path) -> None:
    x = np.linspace(-3, 30, 16, dtype=np.float32)
    asm = """{ .reg .pred p; setp.gt.f32 p, $1, 20.; @p mov.f32 $0, $1; @!p mul.f32 $0, $1, 1.4426950408889634;
               @!p ex2.approx.ftz.f32 $0, $0; @!p add.f32 $0, $0, 1.0; @!p lg2.approx.ftz.f32 $0, $0;
               @!p mul.f32 $0, $0, 0.6931471805599453; }"""
    out = execute(tmp_path, kernel(asm), {"x": x, "y": np.zeros(16, np.float32)}, metas={"B": 16})
    np.testing.assert_allclose(out["y"], np.where(x > 20, x, np.log1p(np.exp(x.astype(np.float64)))), rtol=1e-5)


def test_a_register_that_is_used_again_is_worked_out_once(tmp_path: Path) -> None:
    asm = "{ .reg .f32 r, e; rcp.approx.f32 r, $1; fma.rn.f32 e, $1, r, 0fBF800000; neg.f32 e, e; fma.rn.f32 $0, r, e, r; }"
    assert written_back(tmp_path, kernel(asm)).count("rcp.approx") == 1


def test_halves_that_share_a_register_are_elements_again(tmp_path: Path) -> None:
    x = np.linspace(-2, 2, 16).astype(np.float16)
    out = execute(tmp_path, kernel("fma.rn.f16x2 $0, $1, $1, $1;", dtype="tl.float16", pack=2), {"x": x, "y": np.zeros(16, np.float16)},
                  metas={"B": 16})
    np.testing.assert_array_equal(out["y"], (x.astype(np.float64) ** 2 + x).astype(np.float16))


def test_asm_text_may_be_made_by_a_host_loop(tmp_path: Path) -> None:
    source = """
def generate(count):
    template = "mul.f32 ${out_reg}, ${in_reg}, 3.0;"
    text = ""
    for i in range(count):
        text += "{" + template.format(out_reg=i, in_reg=i + count) + "}"
    return " ".join(text.split("\\n"))


ASM: tl.constexpr = tl.constexpr(generate(2))
CONSTRAINTS: tl.constexpr = tl.constexpr(",".join("=r" for i in range(2)) + "," + ",".join("r" for i in range(2)))


@triton.jit
def kernel(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.inline_asm_elementwise(ASM, CONSTRAINTS, [tl.load(x + i)], dtype=tl.float32, is_pure=True, pack=2))
"""
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(execute(tmp_path, source, {"x": x, "y": np.zeros(8, np.float32)}, metas={"B": 8})["y"], 3 * x)


def test_dependent_launches_are_statements(tmp_path: Path) -> None:
    program = read(tmp_path, """
@triton.jit
def kernel(x, y, B: tl.constexpr):
    tl.inline_asm_elementwise("griddepcontrol.wait; // dummy $0", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i))
""")
    assert opaque(program) == []
    calls = [c.fn for s in statements(program.kernels[0].body) for c in walk(s) if isinstance(c, n.Call)]
    assert "grid_dependency_wait" in calls


@pytest.mark.parametrize(("asm", "constraints", "dtype", "pack", "reason"), [
    ("add.f32 $0, $1;", "=r,r", "tl.float32", 1, "takes 3 operands, not 2"),
    ("frob.f32 $0, $1;", "=r,r", "tl.float32", 1, "no instruction 'frob'"),
    ("mov.f32 $0, $1;", "=r,r,r", "tl.float32", 1, "3 constraints for 1 results and 1 operands"),
    ("mov.u32 $0, %smid;", "=r,r", "tl.int32", 1, "special register"),
    ("{mov.b32 $0, $2; mov.b32 $1, $3; add.f32 $1, $1, $1;}", "=r,=r,r,r", "tl.float32", 2, "treat every element alike"),
    ("{mov.b32 $0, $3; mov.b32 $1, $2;}", "=r,=r,r,r", "tl.float32", 2, "treat every element alike"),
])
def test_asm_that_is_not_understood_is_opaque(tmp_path: Path, asm: str, constraints: str, dtype: str, pack: int, reason: str) -> None:
    program = read(tmp_path, kernel(asm, constraints, dtype, pack))
    assert any(reason in r for r in opaque(program)), opaque(program)


HALVES = '''
@triton.jit
def kernel(x_ptr, y_ptr, D: tl.constexpr):
    i = tl.arange(0, 4)
    low, high = tl.inline_asm_elementwise("""{
        .reg .b32 t;
        lop3.b32 t, $2, $3, $4, $5;
        sub.f16x2 t, t, $6;
        mov.b32 {$0, $1}, t;
    }""", "=h,=h,r,n,n,n,r", args=[tl.load(x_ptr + i), 0x000f000f, 0x64006400, (0xf0 & 0xcc) | 0xaa, 0x64006400],
        dtype=(tl.float16, tl.float16), is_pure=True, pack=1)
    scale = math.sqrt(D) * tl.extra.cuda.num_threads() / 32 / tl.extra.cuda.num_warps()
    tl.store(y_ptr + i, low * 16 + high / scale)
'''


def test_constants_and_the_halves_of_a_register(tmp_path: Path) -> None:
    """Four bits of each half become a number; what a metavalue's root and the threads of a launch are, is known when a kernel is compiled."""
    x = np.array([0x00030005, 0x12345678, 0x7fff0000, 0x000a000b], np.int32)
    out = execute(tmp_path, "import math\n" + HALVES, {"x_ptr": x, "y_ptr": np.zeros(4, np.float32)}, metas={"D": 16})["y_ptr"]
    np.testing.assert_array_equal(out, (x & 15) * 16 + (x >> 16 & 15) / 4)
    assert "math.sqrt(D)" in written_back(tmp_path, "import math\n" + HALVES)


FOUR_BITS = '''
@triton.jit
def kernel(x_ptr, y_ptr, z_ptr):
    i = tl.arange(0, 8)
    four = tl.inline_asm_elementwise("""{
        .reg .b8 t;
        cvt.rn.satfinite.e2m1x2.f16x2 t, $1;
        cvt.u32.u8 $0, t;
    }""", "=r,r", [tl.load(x_ptr + i)], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(y_ptr + i, four.to(tl.uint8))
    tl.store(z_ptr + i, tl.inline_asm_elementwise("""{
        .reg .b8 a<4>;
        mov.b32 {a0, a1, a2, a3}, $4;
        cvt.rn.f16x2.e2m1x2 $0, a0;
        cvt.rn.f16x2.e2m1x2 $1, a1;
        cvt.rn.f16x2.e2m1x2 $2, a2;
        cvt.rn.f16x2.e2m1x2 $3, a3;
    }""", "=r,=r,=r,=r,r", [four.to(tl.uint8)], dtype=tl.uint32, is_pure=True, pack=4))
'''


def test_pairs_of_halves_to_four_bits_and_back(tmp_path: Path) -> None:
    halves = np.array([[0, 1], [6, -6], [0.5, -1.5], [7, 3], [2, 4], [-0.5, 0], [1, 1], [3, -2]], np.float16)
    given: dict[str, np.ndarray] = {"x_ptr": halves.view(np.int32).reshape(-1), "y_ptr": np.zeros(8, np.uint8), "z_ptr": np.zeros(8, np.int32)}
    out = execute(tmp_path, FOUR_BITS, given)
    np.testing.assert_array_equal(out["z_ptr"].view(np.float16).reshape(8, 2), np.clip(halves, -6, 6))
    np.testing.assert_array_equal(out["y_ptr"][:3], [0x20, 0xf7, 0xb1])
    text = written_back(tmp_path, FOUR_BITS)
    assert "e2m1x2.f16x2" in text and "f16x2.e2m1x2" in text


NTH = """
@triton.jit
def following(bits, n):
    return tl.inline_asm_elementwise("fns.b32 $0, $1, 0, $2;", "=r,r,r", [bits, n + 1], dtype=tl.int32, is_pure=True, pack=1)

@triton.jit
def kernel(x, y, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(y + at, following(tl.load(x + at), at))
"""


def test_the_nth_bit_that_is_set(tmp_path: Path) -> None:
    words = np.array([0b1011, 0b1010, 0b10111, 1], np.int32)
    out = execute(tmp_path, NTH, {"x": words, "y": np.zeros(4, np.int32)}, metas={"B": 4})
    assert out["y"].tolist() == [0, 3, 2, -1]
    assert "fns.b32" in written_back(tmp_path, NTH)
