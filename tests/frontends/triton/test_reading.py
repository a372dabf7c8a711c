"""What Triton code means: small kernels read from source and run by the interpreter, against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.backends.triton import BACKEND
from kir.base.diagnostic import KirError
from kir.frontends.triton.frontend import TritonFrontend
from kir.frontends.triton.statements import loops
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.binding import Binding, Tensor
from kir.ir.bindings.specialize import specialize
from kir.ir.printer import program_text
from kir.ir.visit import statements
from tests.frontends.reading import opaque
from tests.frontends.triton.reading import HEAD, execute, read, written_back


def values(*shape: int, dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def test_masks_other_and_weak_literals(tmp_path: Path) -> None:
    x = values(7, dtype=np.float16)
    out = execute(tmp_path, """
@triton.jit
def kernel(x, y, N, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < N, other=2.0)
    tl.store(y + i, v * 0.5 + 1, mask=i < N)
""", {"x": x, "y": np.zeros(7, np.float16)}, metas={"B": 8}, scalars={"N": 7})
    np.testing.assert_array_equal(out["y"], x * np.float16(0.5) + np.float16(1))


def test_integer_division_truncates(tmp_path: Path) -> None:
    x = np.array([-7, 7, -8, 8], np.int32)
    out = execute(tmp_path, """
@triton.jit
def kernel(x, q, r):
    i = tl.arange(0, 4)
    v = tl.load(x + i)
    tl.store(q + i, v // 3)
    tl.store(r + i, v % 3)
""", {"x": x, "q": np.zeros(4, np.int32), "r": np.zeros(4, np.int32)})
    np.testing.assert_array_equal(out["q"], [-2, 2, -2, 2])
    np.testing.assert_array_equal(out["r"], [-1, 1, -2, 2])


def test_a_sum_of_truths_is_unsigned(tmp_path: Path) -> None:
    """Triton counts its bool among the unsigned integers: a count that is subtracted from wraps, unless it is said to be signed."""
    x = np.array([1, 5, -3, 7], np.int32)
    source = """
@triton.jit
def kernel(x, y):
    v = tl.load(x + tl.arange(0, 4))
    tl.store(y, (tl.sum(v > 2) - 3).to(tl.int64))
    tl.store(y + 1, (tl.sum((v > 2).to(tl.int32)) - 3).to(tl.int64))
"""
    out = execute(tmp_path, source, {"x": x, "y": np.zeros(2, np.int64)})
    np.testing.assert_array_equal(out["y"], [(1 << 32) - 1, -1])
    assert "(tl.int32)" in BACKEND.emit(read(tmp_path, source)).text, "the conversion decides the sum's dtype"


def test_pointers_that_advance_in_a_loop_have_closed_forms(tmp_path: Path) -> None:
    source = """
@triton.jit
def kernel(x, y, M, N, stride, B: tl.constexpr):
    p = x + tl.program_id(0) * stride + tl.arange(0, B)
    total = tl.zeros([B], tl.float32)
    for k in range(0, N, B):
        total += tl.load(p)
        p += B
    tl.store(y + tl.program_id(0), tl.sum(total))
"""
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    out = execute(tmp_path, source, {"x": x, "y": np.zeros(3, np.float32)}, grid=3, metas={"B": 4}, scalars={"M": 3, "N": 8, "stride": 8})
    np.testing.assert_allclose(out["y"], x.sum(1))
    loop = next(s for s in statements(read(tmp_path, source).kernels[0].body) if isinstance(s, n.For))
    assert [type(s).__name__ for s in loop.body] == ["Store"], "the pointer is no buffer any more"


def test_pointers_that_move_irregularly_live_in_a_buffer(tmp_path: Path) -> None:
    x = np.arange(16, dtype=np.float32)
    out = execute(tmp_path, """
@triton.jit
def kernel(x, y):
    p = x
    total = 0.0
    for k in range(4):
        total += tl.load(p)
        p += k
    tl.store(y, total)
""", {"x": x, "y": np.zeros(1, np.float32)})
    assert out["y"][0] == 0 + 0 + 1 + 3


def test_block_pointers_check_bounds_and_advance(tmp_path: Path) -> None:
    x = values(5, 6)
    out = execute(tmp_path, """
@triton.jit
def kernel(x, y, M, N):
    p = tl.make_block_ptr(x, (M, N), (N, 1), (0, 0), (4, 8), (1, 0))
    total = tl.zeros((4, 8), tl.float32)
    for k in range(2):
        total += tl.load(p, boundary_check=(0, 1), padding_option="zero")
        p = tl.advance(p, (4, 0))
    q = tl.make_block_ptr(y, (4, N), (N, 1), (0, 0), (4, 8), (1, 0))
    tl.store(q, total, boundary_check=(1,))
""", {"x": x, "y": np.zeros((4, 6), np.float32)}, scalars={"M": 5, "N": 6})
    expected = x[:4].copy()
    expected[0] += x[4]
    np.testing.assert_array_equal(out["y"], expected)


def test_static_branches_change_types(tmp_path: Path) -> None:
    source = """
@triton.jit
def kernel(x, y, WIDE: tl.constexpr, TURN: tl.constexpr):
    i = tl.arange(0, 4)
    v = tl.load(x + i)
    if WIDE:
        v = v.to(tl.float32)
    if TURN:
        v = v[:, None]
        p = y + i[:, None]
    else:
        p = y + i
    tl.store(p, v * v)
"""
    x = np.array([1.001, 2.003, 3.007, 30.0], np.float16)
    for wide in (False, True):
        for turn in (False, True):
            out = execute(tmp_path, source, {"x": x, "y": np.zeros(4, np.float32)}, metas={"WIDE": wide, "TURN": turn})
            want = x.astype(np.float32) ** 2 if wide else (x * x).astype(np.float32)
            np.testing.assert_array_equal(out["y"], want)


def test_optional_pointers(tmp_path: Path) -> None:
    source = """
@triton.jit
def kernel(x, bias, y, HAS: tl.constexpr):
    i = tl.arange(0, 4)
    v = tl.load(x + i)
    if HAS:
        b = tl.load(bias + i)
    if bias is not None:
        v += b
    tl.store(y + i, v)
"""
    x, b = values(4), values(4, seed=1)
    out = execute(tmp_path, source, {"x": x, "bias": b, "y": np.zeros(4, np.float32)}, metas={"HAS": True})
    np.testing.assert_array_equal(out["y"], x + b)
    out = execute(tmp_path, source, {"x": x, "y": np.zeros(4, np.float32)}, metas={"HAS": False}, absent=("bias",))
    np.testing.assert_array_equal(out["y"], x)


def test_helpers_return_from_branches_and_tuples(tmp_path: Path) -> None:
    out = execute(tmp_path, """
@triton.jit
def pick(v, MODE: tl.constexpr):
    if MODE == 0:
        return v, 1
    if MODE == 1:
        return v * 2, 2
    return v * 3, 3

@triton.jit
def clamp_low(a, b):
    if a > b:
        return a
    return b

@triton.jit
def kernel(x, y, MODE: tl.constexpr):
    v, c = pick(tl.load(x), MODE)
    tl.store(y, clamp_low(v, -10.0) + c)
    tl.store(y + 1, clamp_low(-v, 0.5))
""", {"x": np.array([2.0], np.float32), "y": np.zeros(2, np.float32)}, metas={"MODE": 1})
    np.testing.assert_array_equal(out["y"], [6.0, 0.5])


def test_run_time_branches_and_while_loops_carry_names(tmp_path: Path) -> None:
    out = execute(tmp_path, """
@triton.jit
def kernel(x, y, N):
    n = tl.load(x).to(tl.int32)
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    tl.store(y, steps)
""", {"x": np.array([6], np.int32), "y": np.zeros(1, np.int32)}, scalars={"N": 1})
    assert out["y"][0] == 8


def test_swapped_names_in_a_loop(tmp_path: Path) -> None:
    out = execute(tmp_path, """
@triton.jit
def kernel(y):
    a = 0
    b = 1
    for _ in range(10):
        a, b = b, a + b
    tl.store(y, a)
""", {"y": np.zeros(1, np.int32)})
    assert out["y"][0] == 55


def test_static_loops_and_known_ranges_are_unrolled(tmp_path: Path) -> None:
    out = execute(tmp_path, """
@triton.jit
def kernel(x, y, T: tl.constexpr):
    acc = tl.zeros([4], tl.float32)
    for t in tl.static_range(T):
        acc += tl.load(x + t * 4 + tl.arange(0, 4)) * (t + 1)
    for t in tl.static_range(2):
        acc = acc + t
    tl.store(y + tl.arange(0, 4), acc)
""", {"x": np.ones((3, 4), np.float32), "y": np.zeros(4, np.float32)}, metas={"T": 3})
    np.testing.assert_array_equal(out["y"], [7.0] * 4)


def test_rounds_of_loops_over_known_values_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MOST_ROUNDS", 100)
    head = "".join(f"{'    ' * (k + 1)}for i{k} in tl.static_range(0, 6):\n" for k in range(3))
    program = read(tmp_path, f"@triton.jit\ndef kernel(y):\n{head}                tl.store(y + i0, i1 + i2)\n")
    assert set(opaque(program)) == {"loops over known values that have more than 100 rounds in all"}
    nest = "".join(f"{'    ' * (k + 1)}for i{k} in range(N):\n" for k in range(17)) + f"{'    ' * 18}tl.store(y + i0, i1)\n"
    assert set(opaque(read(tmp_path, f"@triton.jit\ndef kernel(y, N):\n{nest}"))) == {"more than 16 loops within one another"}


def test_descending_loops(tmp_path: Path) -> None:
    out = execute(tmp_path, """
@triton.jit
def kernel(x, y, N):
    last = 0.0
    for i in range(N - 1, -1, -2):
        last = last * 10 + tl.load(x + i)
    tl.store(y, last)
""", {"x": np.arange(6, dtype=np.float32), "y": np.zeros(1, np.float32)}, scalars={"N": 6})
    assert out["y"][0] == 531.0


def test_products_go_into_their_accumulator(tmp_path: Path) -> None:
    source = """
@triton.jit
def kernel(a, b, c, K: tl.constexpr):
    i = tl.arange(0, 16)
    acc = tl.zeros((16, 16), dtype=tl.float32)
    for k in range(0, K, 16):
        x = tl.load(a + i[:, None] * K + (k + i)[None, :])
        y = tl.load(b + (k + i)[:, None] * 16 + i[None, :])
        acc = acc * 0.5 + tl.dot(x, y)
    tl.store(c + i[:, None] * 16 + i[None, :], acc)
"""
    a, b = values(16, 32, dtype=np.float16), values(32, 16, dtype=np.float16, seed=1)
    out = execute(tmp_path, source, {"a": a, "b": b, "c": np.zeros((16, 16), np.float32)}, metas={"K": 32})
    a32, b32 = a.astype(np.float32), b.astype(np.float32)
    np.testing.assert_allclose(out["c"], 0.5 * (a32[:, :16] @ b32[:16]) + a32[:, 16:] @ b32[16:], rtol=1e-5, atol=1e-5)


def test_reductions_scans_and_combine_functions(tmp_path: Path) -> None:
    x = values(8)
    out = execute(tmp_path, """
@triton.jit
def both(v1, i1, v2, i2):
    take = v1 >= v2
    return tl.where(take, v1, v2), tl.where(take, i1, i2)

@triton.jit
def add(a, b):
    return a + b

@triton.jit
def kernel(x, y, z, s):
    i = tl.arange(0, 8)
    v = tl.load(x + i)
    top, where = tl.reduce((v, i), 0, both)
    tl.store(y, top)
    tl.store(y + 1, tl.reduce(v, 0, add))
    tl.store(y + 2, tl.min(v))
    tl.store(z, where)
    tl.store(z + 1, tl.argmin(v, axis=0))
    tl.store(s + i, tl.associative_scan(v, 0, add) + 0 * tl.cumsum(v, 0))
""", {"x": x, "y": np.zeros(3, np.float32), "z": np.zeros(2, np.int32), "s": np.zeros(8, np.float32)})
    np.testing.assert_allclose(out["y"], [x.max(), x.sum(), x.min()], rtol=1e-5)
    np.testing.assert_array_equal(out["z"], [x.argmax(), x.argmin()])
    np.testing.assert_allclose(out["s"], np.cumsum(x), rtol=1e-5)



def test_shapes_permutations_and_math(tmp_path: Path) -> None:
    x = values(4, 8)
    out = execute(tmp_path, """
@triton.jit
def kernel(x, y):
    i, j = tl.arange(0, 4), tl.arange(0, 8)
    v = tl.load(x + i[:, None] * 8 + j[None, :])
    v = tl.exp(tl.abs(v)) + libdevice.tanh(v)
    w = tl.reshape(tl.trans(v), (4, 8))
    a, b = tl.split(tl.reshape(w, (4, 4, 2)))
    tl.store(y + i[:, None] * 4 + i[None, :], tl.maximum(a, b))
""", {"x": x, "y": np.zeros((4, 4), np.float32)})
    v = (np.exp(np.abs(x)) + np.tanh(x)).astype(np.float32)
    w = v.T.reshape(4, 4, 2)
    np.testing.assert_allclose(out["y"], w.max(-1), rtol=1e-5)


@pytest.mark.parametrize(("word", "given", "wide"), [("maximum", 0.1, np.float32), ("minimum", 3, np.float16)])
def test_a_literal_beside_maximum_is_of_its_own_dtype(tmp_path: Path, word: str, given: float, wide: type[np.floating]) -> None:
    """Unlike one beside `+`: Triton 3.6 makes a tensor of it first, of f32 or i32."""
    x = np.arange(-32, 32).astype(np.float16) / 16
    out = execute(tmp_path, f"""
@triton.jit
def kernel(x, y):
    i = tl.arange(0, 64)
    v = tl.{word}(tl.load(x + i), {given})
    tl.store(y + i, v * v)
""", {"x": x, "y": np.zeros(64, np.float32)})
    v = getattr(np, word)(x.astype(wide), wide(given))
    np.testing.assert_array_equal(out["y"], (v * v).astype(np.float32))


NEAR, BYTES = np.array([0.0999755859375, 0.1001, 0.09998, 0.5], np.float16), np.array([-128, 127, -1, 44], np.int8)
FAR = np.array([0.1, 0.1000000005, float(np.float32(0.1)), 3.0])


@pytest.mark.parametrize(("expression", "x", "s", "want"), [
    ("v > 0.1", NEAR, None, [0, 1, 0, 1]),  # a comparison makes a tensor of a literal first: in f32, not in f16
    ("v == 0.1", NEAR, None, [0, 0, 0, 0]),
    ("0.5 <= v", NEAR, None, [0, 0, 0, 1]),
    ("v > S", NEAR, 0.1, [0, 1, 0, 1]),
    ("v > 0.1", FAR, None, [0, 0, 0, 1]),  # 0.1 of f32, which is more than 0.1
    ("tl.maximum(v, 0.1)", FAR, None, [np.float32(0.1)] * 3 + [3.0]),
    ("v > 300", BYTES, None, [0, 0, 0, 0]),
    ("v == 255", BYTES, None, [0, 0, 0, 0]),
    ("v > -1", BYTES.view(np.uint8), None, [1, 1, 1, 1]),
    ("(v * S).to(tl.float32)", NEAR, 0.1, (NEAR * np.float16(0.1)).astype(np.float32)),  # a meta is a literal, and yields
    ("(v + S).to(tl.int32)", BYTES, 3, [-125, -126, 2, 47]),
    ("(v << S) >> S", BYTES, 4, [0, -1, -1, -4]),
    ("(v * S * S).to(tl.float32)", BYTES, 0.5, [-32, 31.75, -0.25, 11]),
    ("((v > 0) + (v > 44)).to(tl.int32)", BYTES, None, [0, 0, 0, 1]),  # one bit, which wraps
    ("(-(v > 0)).to(tl.int32)", BYTES, None, [0, 1, 0, 1]),
    ("libdevice.fmod(v, 2.0).to(tl.float32)", np.array([-3.5, 3.5, 1.0, 4.0], np.float32), None, [-1.5, 1.5, 1.0, 0.0]),
    ("tl.cdiv(v + 9, v)", np.array([7, 1, 3, 5], np.int32), None, [3, 10, 4, 3]),
    ("tl.associative_scan(v.to(tl.int32), 0, xor)", BYTES, None, [-128, -1, 0, 44]),
])
def test_what_values_are_beside_one_another(tmp_path: Path, expression: str, x: np.ndarray, s: float | None, want: object) -> None:
    """A literal, a meta and a truth beside a tensor, as Triton 3.6 has them in its TTIR; what is written back is the same."""
    source = f"""
@triton.jit
def xor(a, b):
    return a ^ b
@triton.jit
def kernel(x, y, S: tl.constexpr):
    v = tl.load(x + tl.arange(0, 4))
    tl.store(y + tl.arange(0, 4), {expression})
"""
    out = execute(tmp_path, source, {"x": x, "y": np.zeros(4)}, metas={} if s is None else {"S": s})
    np.testing.assert_array_equal(out["y"], want)
    written_back(tmp_path, source)


def test_rounded_functions_of_libdevice_and_tiles_of_many_axes(tmp_path: Path) -> None:
    x = values(64) * 9
    out = execute(tmp_path, """
@triton.jit
def kernel(x, y):
    i = tl.arange(0, 64)
    v = tl.load(x + i)
    near, cut = libdevice.float2int_rn(v), libdevice.float2int_rz(v) + (libdevice.float2int_ru(v) - libdevice.float2int_rd(v))
    v = libdevice.mul_rn(libdevice.add_rn(libdevice.int2float_rn(near), 0.5), libdevice.int2float_rn(cut))
    v = tl.reshape(tl.permute(tl.reshape(v, (2, 2, 2, 2, 2, 2, 1)), (5, 4, 3, 2, 1, 0, 6)), (64,))
    tl.store(y + i, v)
""", {"x": x, "y": np.zeros(64, np.float32)})
    want = (np.rint(x) + np.float32(0.5)) * (np.trunc(x) + np.ceil(x) - np.floor(x))
    np.testing.assert_array_equal(out["y"], want.reshape((2,) * 6).transpose(5, 4, 3, 2, 1, 0).reshape(64))


def test_atomics(tmp_path: Path) -> None:
    out = execute(tmp_path, """
@triton.jit
def kernel(x, y, old):
    pid = tl.program_id(0)
    o = tl.atomic_add(y, pid + 1)
    tl.atomic_max(y + 1, pid, sem="relaxed")
    tl.store(old + pid, o)
""", {"x": np.zeros(1, np.int32), "y": np.zeros(2, np.int32), "old": np.zeros(4, np.int32)}, grid=4)
    np.testing.assert_array_equal(out["y"], [10, 3])


@pytest.mark.parametrize(("said", "right"), [("", True), (', sem="relaxed"', False), (', sem="release"', False), (', sem="acquire"', False)])
def test_the_last_cta_sees_what_the_others_stored_before_they_took_a_number(tmp_path: Path, said: str, right: bool) -> None:
    """`tl.atomic_add` orders memory on both sides where nothing else is said; relaxed on either, what the last one reads is a race."""
    program = read(tmp_path, """
@triton.jit
def kernel(x, part, taken, y):
    pid = tl.program_id(0)
    tl.store(part + pid, tl.load(x + pid) * 2.0)
    tl.debug_barrier()
    number = tl.atomic_add(taken, 1SAID)
    if number == 3:
        v = tl.load(part + tl.arange(0, 4))
        tl.store(y, tl.sum(v))
""".replace("SAID", said))
    assert ("order=acq_rel" in program_text(program)) == right
    arrays = {"x": np.ones(4, np.float32), "part": np.zeros(4, np.float32), "taken": np.zeros(1, np.int32), "y": np.zeros(1, np.float32)}
    shapes = {k: Tensor(shape=list(a.shape), dtype="i32" if k == "taken" else "f32") for k, a in arrays.items()}
    made = specialize(program, Binding(recorded=True, grid=[4], tensors=shapes))
    assert (not run(made, arrays, {}, mode="check").errors) == right


def test_functions_and_constants_of_other_modules(tmp_path: Path) -> None:
    (tmp_path / "lib.py").write_text(HEAD + """
SCALE = tl.constexpr(3)
_HALF: tl.constexpr = tl.constexpr(0.5)

@triton.jit
def scaled(x):
    return x * SCALE * _HALF
""")
    import sys
    sys.path.insert(0, str(tmp_path))
    try:
        out = execute(tmp_path, """
from lib import scaled
import lib

@triton.jit
def kernel(x, y):
    tl.store(y, scaled(tl.load(x)) + lib.SCALE)
""", {"x": np.array([2.0], np.float32), "y": np.zeros(1, np.float32)})
    finally:
        sys.path.remove(str(tmp_path))
    assert out["y"][0] == 6.0


def test_what_is_not_understood_is_opaque_with_its_reason(tmp_path: Path) -> None:
    program = read(tmp_path, """
@triton.jit
def kernel(x, y):
    v = tl.load(x)
    w = mystery(v)
    tl.store(y, w + 1)
    tl.store(y + 1, v)
""")
    reasons = opaque(program)
    assert reasons == ["'mystery' is not defined in source.py", "it uses 'w', which is not understood"]
    body = program.kernels[0].body
    assert [type(s).__name__ for s in body] == ["Let", "Opaque", "Opaque", "Store"]
    assert body[1].origin is not None and body[1].origin.line == 9


def test_decorators_that_may_replace_a_function_are_not_guessed_at(tmp_path: Path) -> None:
    program = read(tmp_path, """
@somebody.elses
@triton.jit
def helper(v):
    return v

@triton.jit
def kernel(x, y):
    tl.store(y, helper(tl.load(x)))
""")
    assert opaque(program) == ["'helper' has a decorator that may replace it"]


@pytest.mark.parametrize(
    ("text", "id_"),
    [("def broken(:\n", "KIR-F002"), ("x = 'a' b'b'\n", "KIR-F002"), ("x = 1\n", "KIR-F003")],
)
def test_bad_files_are_refused_with_a_place(tmp_path: Path, text: str, id_: str) -> None:
    file = tmp_path / "bad.py"
    file.write_text(text)
    with pytest.raises(KirError) as caught:
        TritonFrontend().parse(file, "kernel")
    assert caught.value.diagnostics[0].id == id_
    if id_ == "KIR-F002":
        assert caught.value.diagnostics[0].origin is not None


def test_a_tensor_descriptor_moves_boxes_and_fills_with_zero(tmp_path: Path) -> None:
    source = """
@triton.jit
def kernel(x, y, M, N, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[B, 8])
    target = tl.make_tensor_descriptor(y, shape=[M, N], strides=[N, 1], block_shape=[B, 8])
    row = tl.program_id(0) * B
    t = source.load([row, 0])
    target.store([row, 0], t + 1.0)
"""
    x = values(6, 8)
    out = execute(tmp_path, source, {"x": x, "y": np.zeros((6, 8), np.float32)}, grid=2, metas={"B": 4}, scalars={"M": 6, "N": 8})
    np.testing.assert_array_equal(out["y"], x + 1)
    copies = [s for s in statements(read(tmp_path, source).kernels[0].body) if isinstance(s, n.Copy)]
    assert [s.via for s in copies] == ["tma", "tma"]


def test_a_boundary_check_of_as_many_axes_as_there_are_checks_all(tmp_path: Path) -> None:
    """FlagGems hands the order of the axes to its kernels as metas; whichever they are, an axis cannot be named twice."""
    source = """
@triton.jit
def kernel(x, y, n, FIRST: tl.constexpr, B: tl.constexpr):
    p = tl.make_block_ptr(x, (n,), (1,), (tl.program_id(0) * B,), (B,), order=(FIRST,))
    q = tl.make_block_ptr(y, (n,), (1,), (tl.program_id(0) * B,), (B,), order=(FIRST,))
    tl.store(q, tl.load(p, boundary_check=(FIRST,)) + 1, boundary_check=(FIRST,))
"""
    x = values(6)
    out = execute(tmp_path, source, {"x": x, "y": np.zeros(6, np.float32)}, grid=2, metas={"FIRST": 0, "B": 4}, scalars={"n": 6})
    np.testing.assert_array_equal(out["y"], x + 1)
    two = source.replace("(n,), (1,), (tl.program_id(0) * B,), (B,), order=(FIRST,)", "(n, n), (n, 1), (0, 0), (B, B), order=(1, 0)")
    assert "axes of a boundary check that are not known" in " ".join(opaque(read(tmp_path, two)))


def test_a_decorator_may_put_a_library_s_function_in_the_place_of_one(tmp_path: Path) -> None:
    """What a shim does is worked out from its source: where the library has a function of the name, that is meant."""
    source = """
def use(module):
    def decorator(fn):
        name = fn.__name__
        if hasattr(module, name):
            try:
                return getattr(module, name)
            except Exception:
                pass
        return fn
    return decorator

def shim(fn):
    return use(libdevice)(fn)

@shim
@triton.jit
def trunc(x):
    return x * 100

def unknown(fn):
    return SOMETHING(fn)

@unknown
@triton.jit
def other(x):
    return x

@triton.jit
def kernel(x, y):
    tl.store(y, trunc(tl.load(x)))

@triton.jit
def strange(x, y):
    tl.store(y, other(tl.load(x)))
"""
    out = execute(tmp_path, source, {"x": np.array([-2.5], np.float32), "y": np.zeros(1, np.float32)})
    assert out["y"][0] == -2.0
    assert "has a decorator that may replace it" in opaque(read(tmp_path, source, "strange"))[0]


def test_a_choice_of_tuples_is_unpacked_by_its_length(tmp_path: Path) -> None:
    source = """
@triton.jit
def parts(X: tl.constexpr, Y: tl.constexpr = None):
    pid = tl.program_id(0)
    if Y is None:
        return pid % X, pid // X
    else:
        return pid % X, (pid // X) % Y, pid // (X * Y)

@triton.jit
def kernel(y, S):
    i, j, k = parts(2, S)
    tl.store(y + tl.program_id(0), i + 10 * j + 100 * k)
"""
    out = execute(tmp_path, source, {"y": np.zeros(12, np.int32)}, grid=12, scalars={"S": 3})
    np.testing.assert_array_equal(out["y"], [p % 2 + 10 * (p // 2 % 3) + 100 * (p // 6) for p in range(12)])


def test_a_package_that_is_not_on_the_path_or_is_linked_to_from_there_is_read_with_its_own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "elsewhere" / "linked_pack"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "inner" / "__init__.py").write_text("")
    (package / "inner" / "parts.py").write_text("import triton\n\n@triton.jit\ndef doubled(x):\n    return x * 2\n")
    (package / "inner" / "kernels.py").write_text(
        "import triton\nimport triton.language as tl\nfrom .parts import doubled\nfrom linked_pack.inner.parts import doubled as again\n\n"
        "@triton.jit\ndef kernel(x):\n    tl.store(x, again(doubled(tl.load(x))))\n")
    for on_path in (False, True):
        if on_path:
            (tmp_path / "site").mkdir()
            (tmp_path / "site" / "linked_pack").symlink_to(package)
            monkeypatch.syspath_prepend(str(tmp_path / "site"))
        program = TritonFrontend().parse(package / "inner" / "kernels.py", "kernel")
        assert not any(isinstance(s, n.Opaque) for k in program.kernels for s in k.body)
