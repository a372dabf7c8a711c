"""What a function alone does not show: what its callers give it, which arms Triton refuses, how a name is spelled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.frontends.triton.frontend import TritonFrontend
from kir.ir.rules.verify import verify
from kir.learning.corpus.roundtrip.equal import same_program
from kir.surface import backend
from tests.frontends.reading import opaque
from tests.frontends.triton.reading import execute, read, written_back

HELPERS = """
@triton.jit
def mean_square(x, weight):
    return tl.sum(x * weight, axis=0)

@triton.jit
def rows(at, count, value):
    tl.store(at + tl.arange(0, count), tl.zeros((count,), tl.float32) + value)

@triton.jit
def scale(x, FACTOR: tl.constexpr):
    if FACTOR == 1:
        return x
    return x[None, :] * FACTOR

@triton.jit
def below(total, x_ptr, N, cols: tl.constexpr, FAR: tl.constexpr):
    if FAR == 1:
        lo = 8
        x_ptr += lo
    elif FAR == 2:
        lo = 16
        x_ptr += lo
    for i in range(lo, N, 8):
        total += tl.sum(tl.where(cols[None, :] < N - i, tl.load(x_ptr), 0.0), 1)
        x_ptr += 8
    return total

@triton.jit
def kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < N, other=0.0)
    rows(y_ptr + BLOCK, BLOCK, mean_square(x, x + 1))
    total = below(tl.zeros((1,), tl.float32), x_ptr, N, at, 3 - BLOCK)
    tl.store(y_ptr + at, x + below(total, x_ptr, N, at, 2))
"""


def test_a_helper_is_read_as_its_callers_give_it(tmp_path: Path) -> None:
    assert written_back(tmp_path, HELPERS, "mean_square").count("tile[1]") == 2
    assert "count: \"constexpr" in written_back(tmp_path, HELPERS, "rows")
    assert "tl.sum" in written_back(tmp_path, HELPERS, "kernel")  # the pointers that loops advance are not looked at after them
    assert '"tile[1]"' in written_back(tmp_path, HELPERS, "below")  # a tile, though its parameter says that it is known when it is compiled
    alone = HELPERS[: HELPERS.index("@triton.jit\ndef kernel")]
    assert opaque(read(tmp_path, alone, "rows")) != []  # nobody says that the count is known when it is compiled


def test_a_helper_of_an_axis_is_read_for_that_of_its_first_call(tmp_path: Path) -> None:
    source = '''
@triton.jit
def largest(x, axis, EXACT: tl.constexpr):
    top = tl.max(x, axis=axis)
    if EXACT:
        scale = top * 2.0
    else:
        scale = tl.exp2(top)[:, None]
    return scale, top

@triton.jit
def kernel(x_ptr, y_ptr, EXACT: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, M * N)).reshape(M, N)
    scale, top = largest(x, axis=1, EXACT=EXACT)
    tl.store(y_ptr + tl.arange(0, M), top)
'''
    text = written_back(tmp_path, source, "largest")
    assert '"tile[2]"' in text and "axis=1" in text and text.count("return") == 2
    other = source + source[source.index("\n@triton.jit\ndef kernel"):].replace("def kernel", "def other").replace("axis=1", "axis=EXACT + 1")
    assert opaque(read(tmp_path, other, "largest")) != []  # no number in one of the calls


def test_a_static_arm_that_triton_refuses_is_never_taken(tmp_path: Path) -> None:
    source = """
@triton.jit
def kernel(x, y, d_ptr, N, TILED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    over = tl.load(d_ptr) if d_ptr is not None else None
    v = tl.load(x + at, mask=at < N, other=0.0)
    tl.store(y + at, v / over, mask=at < N)
"""
    x = np.arange(8, dtype=np.float32)
    made = execute(tmp_path, source, {"x": x, "y": np.zeros(8, np.float32), "d_ptr": np.array([2.0], np.float32)},
                   metas={"BLOCK": 8, "TILED": False}, scalars={"N": 8})
    assert (made["y"] == x / 2).all()
    written_back(tmp_path, source)
    tiled = """
@triton.jit
def kernel(x, y, desc, N, USE: tl.constexpr, BLOCK: tl.constexpr):
    if USE:
        at = tl.program_id(0) * BLOCK
    else:
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if desc is not None:
        v = desc.load([at])
    else:
        v = tl.load(x + at)
    tl.store(y + tl.arange(0, BLOCK), v)
"""
    assert opaque(read(tmp_path, tiled)) == []


def test_logarithms_of_literals_and_eight_bits_of_other_machines_are_written_as_they_are_read(tmp_path: Path) -> None:
    source = """
import math
log2 = tl.log2

@triton.jit
def kernel(x, y, z, left_out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    kind = left_out.dtype.element_ty if left_out is not None else x.dtype.element_ty
    v = tl.load(x + at) * log2(math.e)
    tl.store(z + at, v.to(tl.float8e4b8).to(tl.float32))
    tl.store(y + at, (v.to(kind) + v).to(tl.float32))
"""
    text = written_back(tmp_path, source)
    assert "float8e4b8" in text and "math.log2" not in text


def test_the_product_of_the_signs_is_that_of_both_operands(tmp_path: Path) -> None:
    source = """
@triton.jit
def kernel(a, b, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.inline_asm_elementwise("max.NaN.xorsign.abs.f32 $0, $1, $2;", "=r,r,r", [tl.load(a + at), tl.load(b + at)], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(y + at, v)
"""
    a, b = np.array([1, -2, 3, -4], np.float32), np.array([2, 1, -5, -1], np.float32)
    made = execute(tmp_path, source, {"a": a, "b": b, "y": np.zeros(4, np.float32)}, metas={"BLOCK": 4})
    assert made["y"].tolist() == [2, -2, -5, 4]


def test_tiles_of_two_arms_that_only_run_tells_apart_have_one_shape(tmp_path: Path) -> None:
    source = """
@triton.jit
def kernel(x, y, N, M: tl.constexpr, SIDE: tl.constexpr):
    if N > 3:
        tile = tl.zeros((SIDE,), tl.float32)
    else:
        tile = tl.load(x + tl.arange(0, M))
    tl.store(y + tl.arange(0, M), tile)
"""
    x = np.arange(8, dtype=np.float32)
    for many in (2, 4):
        made = execute(tmp_path, source, {"x": x, "y": x + 1}, metas={"M": 8, "SIDE": 8}, scalars={"N": many})
        assert (made["y"] == (0 if many > 3 else x)).all()
    written_back(tmp_path, source)
    assert opaque(read(tmp_path, source.replace("(SIDE,)", "(4,)").replace("tl.arange(0, M))\n    tl", "tl.arange(0, 8))\n    tl"))) != []


BY_ITS_CALLER = """
@triton.jit
def product(a_ptrs, b_ptrs, total, bounds, dtype, K, B: tl.constexpr):
    for k in range(0, K, B):
        a = tl.load(a_ptrs + k)
        b = tl.load(b_ptrs + k * bounds[1])
        total += tl.dot(a, b.to(dtype))
    return total, bounds[0]

@triton.jit
def kernel(x_ptr, w_ptr, y_ptr, N, K, TWICE: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    total = tl.zeros((B, B), tl.float32)
    total, wide = product(x_ptr + i[:, None] * K + i[None, :], w_ptr + i[:, None] * N + i[None, :], total, (N, N), w_ptr.dtype.element_ty, K, B=B)
    if TWICE:
        total += total
    elif B < 8:
        raise ValueError("too small")
    tl.store(y_ptr + i[:, None] * wide + i[None, :], total)
"""


def test_a_helper_is_read_as_a_call_gives_it(tmp_path: Path) -> None:
    """Tiles of pointers, tuples and dtypes are what one call says of them; tiles that have an extent in common share its name."""
    x, w = np.arange(64, dtype=np.float32).reshape(4, 16), np.ones((16, 4), np.float32)
    given = {"x_ptr": x, "w_ptr": w, "y_ptr": np.zeros((4, 4), np.float32)}
    source = BY_ITS_CALLER.replace("B < 8", "B < 2")
    np.testing.assert_array_equal(execute(tmp_path, source, given, metas={"B": 4, "TWICE": True}, scalars={"N": 4, "K": 16})["y_ptr"], 2 * x @ w)
    text = written_back(tmp_path, BY_ITS_CALLER, "product")
    assert 'total: "tile[B, total_shape_1]"' in text and 'a_ptrs_at: "tile[B, ' in text and "bounds_1" in text
    assert "raise" not in written_back(tmp_path, BY_ITS_CALLER)
    unlike = BY_ITS_CALLER + BY_ITS_CALLER[BY_ITS_CALLER.index("@triton.jit\ndef kernel"):].replace("def kernel", "def other").replace("(N, N)", "(N, N, K)")
    assert opaque(read(tmp_path, unlike, "product"))  # what two calls give is not alike
    folder = tmp_path / "of_several_files"
    folder.mkdir()
    (folder / "__init__.py").touch()
    head, _, kernel = BY_ITS_CALLER.rpartition("@triton.jit")
    assert opaque(read(folder, head, "product"))
    (folder / "uses.py").write_text(f"import triton\nimport triton.language as tl\nfrom .source import product\n\n@triton.jit{kernel}")
    assert opaque(read(folder, head, "product")) == []


ORDERED = """
@triton.jit
def kernel(x_ptr, y_ptr, MODE: tl.constexpr, KEPT: tl.constexpr):
    i = tl.arange(0, 4)
    tl.atomic_add(y_ptr + i, tl.load(x_ptr + i, eviction_policy=KEPT), sem=MODE, scope="gpu")
"""


def test_the_order_of_an_atomic_may_be_a_meta(tmp_path: Path) -> None:
    x = np.arange(4, dtype=np.float32)
    given = {"x_ptr": x, "y_ptr": np.ones(4, np.float32)}
    np.testing.assert_array_equal(execute(tmp_path, ORDERED, given, metas={"MODE": "release", "KEPT": "evict_last"})["y_ptr"], x + 1)
    text = written_back(tmp_path, ORDERED)
    assert "sem=MODE" in text and "eviction_policy=KEPT" in text
    with pytest.raises(KirError, match="'strong', and the order of an atomic is meant"):
        execute(tmp_path, ORDERED, given, metas={"MODE": "strong", "KEPT": ""})


UNLIKE = """
@triton.jit
def step(at, total, N: tl.constexpr):
    return total + tl.sum(tl.load(at), axis=0) / N

@triton.jit
def halved(at, G: tl.constexpr):
    return tl.load(at + tl.cast(G, tl.int32) // 2)

@triton.jit
def spread(at, rows, cols):
    return tl.sum(tl.load(at + rows * 8 + cols), axis=1)

def late(x, y, BLOCK: tl.constexpr):
    at = x + tl.arange(0, BLOCK)
    tl.store(y, step(at, 0.0, BLOCK) + halved(x, BLOCK - 4))
    tl.store(y + tl.arange(0, BLOCK), spread(x, tl.arange(0, BLOCK)[:, None], tl.arange(0, 8)[None, :]))

late = triton.jit(late, do_not_specialize=["x"])

@triton.jit
def tiled(x, y, BLOCK: tl.constexpr):
    tl.store(y + tl.arange(0, BLOCK), step(x + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32), BLOCK))
"""


def test_a_kernel_that_is_compiled_below_itself_is_one_and_says_what_its_helpers_take(tmp_path: Path) -> None:
    written_back(tmp_path, UNLIKE, "late")
    assert [k.name for k in TritonFrontend().kernels(tmp_path / "source.py")] == ["late", "tiled"]
    assert opaque(read(tmp_path, UNLIKE, "step"))  # one caller gives a number, another a tile
    made = TritonFrontend().as_called(tmp_path / "source.py", "step")
    assert made is not None and opaque(made) == [] and verify(made) == ()
    assert "tl.cast(G, tl.int32) // 2" in written_back(tmp_path, UNLIKE, "halved")  # Python's own division would round down
    assert '"tile[' in (text := written_back(tmp_path, UNLIKE, "spread")) and "=1]" in text and "[=1, " in text
    other = UNLIKE.replace("late = triton.jit(late, do_not_specialize=[\"x\"])", "import jax as triton_like\nlate = triton_like.jit(late)")
    (tmp_path / "source.py").write_text("import triton\nimport triton.language as tl\n" + other)
    assert [k.name for k in TritonFrontend().kernels(tmp_path / "source.py")] == ["tiled"]


COUNTED = """
import torch

@triton.jit
def coordinates(at, D: tl.constexpr):
    out = ()
    for d in tl.static_range(D):
        out = out + (tl.load(at + d),)
    return out

@triton.jit
def length(parts, D: tl.constexpr):
    total = tl.zeros(parts[0].shape, tl.float32)
    for d in tl.static_range(D):
        total += parts[d] * parts[d]
    return total

@triton.jit
def kernel(x, y, D: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, length(coordinates(x + at * D, D), D))

def host(x):
    y = torch.empty(x.shape[0], device=x.device)
    kernel[(1,)](x, y, D=3, BLOCK=16)
    return y
"""


def test_a_helper_is_read_under_the_launch_of_a_kernel_that_calls_it(tmp_path: Path) -> None:
    for name in ("length", "coordinates"):
        assert opaque(read(tmp_path, COUNTED, name)) != []
        made = TritonFrontend().as_called(tmp_path / "source.py", name)
        assert made is not None and opaque(made) == [] and verify(made) == ()
        text = backend("triton").emit(made).text
        assert same_program(made, TritonFrontend().parse_text(tmp_path / "again.py", text, name)) and (name != "length" or text.count("tile[=16]") == 3)
    unlaunched = COUNTED[: COUNTED.index("def host")]
    (tmp_path / "source.py").write_text("import triton\nimport triton.language as tl\n" + unlaunched)
    assert TritonFrontend().as_called(tmp_path / "source.py", "length") is None


def test_a_text_that_a_parameter_has_by_default_is_said_as_triton_takes_it(tmp_path: Path) -> None:
    source = """
@triton.jit
def kernel(x, y, MODE: tl.constexpr = "twice", B: tl.constexpr = 64):
    v = tl.load(x + tl.arange(0, B))
    if MODE == "twice":
        v = v * 2
    tl.store(y + tl.arange(0, B), v)
"""
    assert "MODE: tl.constexpr = 'twice'," in written_back(tmp_path, source)  # under a word in quotes Triton makes a tensor of what is given by default
