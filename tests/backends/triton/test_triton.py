"""Emitted Triton as text, and what the backend refuses, each refusal with its place."""
from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from kir.analysis import normalize
from kir.base.diagnostic import KirError
from kir.faces.hub.wrapper import wrapper
from kir.gate.gpu.images.executable import Executable, bound
from kir.gate.proved.assembly import assembled
from kir.gate.proved.drawn import random_inputs
from kir.interp import run
from kir.ir.anchors import at
from kir.ir.binding import Binding
from kir.ir.canonical import alpha_equal
from kir.ir.nodes import For, Mma, Store
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.learning.optimize.hosts.read_back import for_readers
from kir.rewrite.meaning import difference
from kir.surface import Artifact, Backend, CompiledKernel, Image, ShowingBackend, backend
from kir.surface.reading import load_expert
from tests.backends.conftest import program
from tests.round_trips import ROUND_TRIPS

HEAD = """kir 1
program p
  size N: i32
  in X: f32[N]
  in H: f16[64, 64]
  out Y: f32[N]
"""


@pytest.fixture
def triton() -> Backend:
    return backend("triton")


def body(lines: str, threads: int = 128, head: str = HEAD) -> str:
    indented = "\n".join(f"  {line}" for line in lines.splitlines())
    return f"{head}kernel main grid (i: N) threads {threads}\n{indented}\n"


def test_emission_is_valid_python_and_stable(triton: Backend) -> None:
    for name in ("gemm_tile", "softmax_tile", "rmsnorm_tile"):
        p = program(name)
        first, second = triton.emit(p), triton.emit(p)
        assert first == second
        ast.parse(first.text)
        assert max(map(len, first.text.splitlines())) < 140
        assert triton.accepts(p) == ()


def test_maxima_and_minima_of_tiles_keep_nan(triton: Backend) -> None:
    p = parse_program("kir 1\nprogram p\n  in X: f32[64]\n  out Y: f32[64]\nkernel main grid (i: 1) threads 32\n"
                      "  Y[0 +: 64] = min_nan(max_nan(X[0 +: 64], 0.0), 1.0)\n")
    assert triton.accepts(p) == () and triton.emit(p).text.count("propagate_nan=tl.PropagateNan.ALL") == 2


@pytest.mark.parametrize(("extreme", "dtype", "rounds"), [
    ("max(x, 3.0:bf16)", "bf16", 1), ("min(max(x, W[0]), x)", "bf16", 2), ("max_nan(x, W[0])", "bf16", 1), ("max(x, W[0])", "f16", 0),
    ("max(x, W[0])", "f32", 0)])
def test_an_extreme_of_bf16_is_one_again(triton: Backend, tmp_path: Path, extreme: str, dtype: str, rounds: int) -> None:
    """`tl.maximum` and `tl.minimum` give f32 of bf16: what is computed with them would not be rounded."""
    p = parse_program(f"kir 1\nprogram p\n  in X: {dtype}[64]\n  in W: {dtype}[1]\n  out Y: {dtype}[64]\nkernel main grid (i: 64) threads 1\n"
                      f"  let x = X[i]\n  let y = {extreme}\n  Y[i] = (x * y + y) * y\n")
    assert triton.emit(p).text.count(".to(tl.bfloat16)") == rounds
    arrays, scalars = random_inputs(p, {}, 0)
    assert not difference(run(p, arrays, scalars), run(ROUND_TRIPS["triton"].read_back(p, tmp_path), arrays, scalars))


@pytest.mark.parametrize(("dtype", "operand"), [
    ("f16", "tl.full((), 0.5, tl.float16)"), ("f64", "tl.full((), 0.5, tl.float64)"), ("f32", "0.5"), ("i16", "tl.full((), 1, tl.int16)"), ("i64", "1")])
def test_a_literal_beside_an_extreme_does_not_widen_it(triton: Backend, tmp_path: Path, dtype: str, operand: str) -> None:
    """To `tl.maximum` a bare literal is i32 or f32, whatever is beside it."""
    value = "0.5" if dtype.startswith("f") else "1"
    p = parse_program(f"kir 1\nprogram p\n  in X: {dtype}[64]\n  out Y: {dtype}[64]\nkernel main grid (i: 64) threads 1\n"
                      f"  let y = max(X[i], {value}:{dtype})\n  Y[i] = y * y + y\n")
    assert f", {operand})\n" in triton.emit(p).text
    ROUND_TRIPS["triton"].holds(p, tmp_path)


def test_all_elements_of_a_fragment_without_dimensions_of_one_element_are_a_reshaped_tile(triton: Backend, tmp_path: Path) -> None:
    """What the normal form makes of a tile of one row, and of one element."""
    p = parse_program("kir 1\nprogram p\n  in X: f32[8, 64]\n  out Y: f32[8, 64]\nkernel main grid (i: 8) threads 32\n  fragment f: f32[1, 64] = 0.5\n"
                      "  fragment m: f32[1] = 2.0\n  f = max(f[0, 0 +: 64], broadcast(X[i, 0 +: 64], 1, 64))\n  m = broadcast(m[0] * 3.0, 1)\n"
                      "  Y[i, 0 +: 64] = f[0, 0 +: 64] * m[0]\n")
    text = triton.emit(p).text
    assert text.count("tl.reshape(f, (64,))") == 2 and text.count("tl.reshape(m, ())") == 2
    arrays, scalars = random_inputs(p, {}, 0)
    assert not difference(run(p, arrays, scalars), run(ROUND_TRIPS["triton"].read_back(p, tmp_path), arrays, scalars))


def test_every_statement_has_its_lines(triton: Backend) -> None:
    p = program("gemm_tile")
    emitted = triton.emit(p)
    lines = emitted.text.splitlines()
    by_kind = {type(at(p, row.path)).__name__: lines[row.line - 1] for row in reversed(emitted.source_map)}
    assert "tl.dot(" in by_kind[Mma.__name__]
    assert by_kind[Store.__name__].strip().startswith("tl.store(")
    assert by_kind[For.__name__].strip() == "for k in range(tl.cdiv(K, 32)):"
    covered = {row.line for row in emitted.source_map}
    first = next(i for i, line in enumerate(lines, 1) if "acc = tl.zeros" in line)
    assert covered == set(range(first, len(lines) + 1))
    assert emitted.statement_of(1) is None


def test_launch_says_warps_stages_and_what_divides_the_arguments(triton: Backend) -> None:
    (entry,) = triton.emit(program("gemm_tile")).entries
    assert dict(entry.options) == {"num_warps": 4, "num_stages": 3}
    assert [(a.name, a.kind, a.dtype, a.divisor) for a in entry.arguments] == [
        ("M", "scalar", "i32", 1), ("N", "scalar", "i32", 16), ("K", "scalar", "i32", 16),
        ("A", "pointer", "f16", 16), ("B", "pointer", "f16", 16), ("C", "pointer", "f16", 16)]


def test_a_workspace_is_an_allocation_of_its_own_and_so_aligned(triton: Backend) -> None:
    p = parse_program("kir 1\nprogram p\n  in X: f16[64]\n  out Y: f16[64]\n  workspace W: f16[64]\nkernel first grid (i: 1) threads 32\n"
                      "  W = X\nkernel second grid (i: 1) threads 32\n  Y = W + W\nplan\n  launch first\n  launch second\n", "p.kir")
    found = {(a.source, a.divisor) for e in triton.emit(p).entries for a in e.arguments}
    assert found == {("X", 1), ("W", 16), ("Y", 1)}


def test_stages_of_loops_that_the_launch_option_does_not_reach_stand_on_the_loop(triton: Backend) -> None:
    text = triton.emit(program("rmsnorm_tile")).text
    assert "tl.range(tl.cdiv(N, 256), num_stages=2)" in text
    assert "for t1 in range(tl.cdiv(N, 256)):" in text


def test_names_that_python_reserves_are_respelled(triton: Backend) -> None:
    source = body("let lambda = X[i]\nlet tl = lambda + 1.0\nY[i] = tl", threads=1).replace("size N", "size for").replace("[N]", "[%for]")
    p = parse_program(source.replace("grid (i: N)", "grid (i: %for)").replace("size for", "size %for"), "p.kir")
    emitted = triton.emit(p)
    ast.parse(emitted.text)
    assert "def main(for_, X, H, Y):" in emitted.text and "tl_ = lambda_ + 1.0" in emitted.text


def test_masks_stand_only_where_the_tile_may_leave_the_buffer(triton: Backend) -> None:
    copy = body("Y[i * 64 +: 64] = load(X[i * 64 +: 64] else 0.0 clip) clip").replace("grid (i: N)", "grid (i: ceildiv(N, 64))")
    whole = parse_program(copy, "p.kir")
    assert triton.emit(whole).text.count("mask=") == 2
    exact = parse_program(copy.replace("kernel main", "  fact N % 64 == 0\nkernel main"), "p.kir")
    assert triton.emit(exact).text.count("mask=") == 0
    below = parse_program(body("Y[i +: 64] = load(X[i - 3 +: 64] else 0.0 clip) clip"), "p.kir")
    assert "i - 3 + tl.arange(0, 64) >= 0" in triton.emit(below).text


def test_a_read_after_a_write_of_the_same_buffer_waits_for_all_threads(triton: Backend) -> None:
    head = HEAD.replace("out Y", "inout Y")
    swapped = body("Y[0 +: 64] = X[0 +: 64]\nlet y = Y[iota(64) ^ 1]\nY[0 +: 64] = y", head=head)
    text = triton.emit(parse_program(swapped, "p.kir")).text
    lines = [line.strip().split("(")[0] for line in text.splitlines() if "tl.store" in line or "tl.load" in line or "barrier" in line]
    assert lines.index("tl.debug_barrier") == 1
    alone = triton.emit(parse_program(body("let y = Y[i]\nY[i] = y * 2.0", head=head), "p.kir")).text
    assert "barrier" not in alone


REFUSED = {
    "shared memory": ("KIR-B002", "shared S: f32[64]", "main/0"),
    "threads": ("KIR-B002", "for t in 0..128 parallel thread\n  Y[t] = X[t]", "main/0"),
    "break": ("KIR-B002", "for t in 0..4\n  break", "main/0/body/0"),
    "return inside a loop": ("KIR-B002", "for t in 0..4\n  return", "main/0/body/0"),
    "roles": ("KIR-B002", "roles\n  role a warps 0..2\n    pass\n  role b warps 2..4\n    pass", "main/0"),
    "a tile that is no power of two": ("KIR-B003", "let x = X[0 +: 48]", "main/0"),
    "a dot that is too small": ("KIR-B003", "fragment c: f32[64, 8] = 0.0\nmma c += H[0 +: 64, 0 +: 16] * H[0 +: 16, 0 +: 8]", "main/1"),
    "division in half precision": ("KIR-B004", "let h = H[0, 0 +: 64]\nlet q = h / h", "main/1"),
    "a minimum that Triton widens": ("KIR-B004", "let m = reduce(H[0, 0 +: 64], axis=0, op=min)", "main/0"),
    "a division of unknown sign": ("KIR-B005", "let k = 64 // cast(X[i], i32)\nY[i] = cast(k, f32)", "main/0"),
    "part of a fragment": ("KIR-B006", "fragment f: f32[64] = 0.0\nf[3] = 1.0", "main/1"),
    "a part of a fragment that is read": ("KIR-B006", "fragment f: f32[1, 64] = 0.0\nlet x = f[0, 0 +: 32]", "main/1"),
    "an element of a fragment of several": ("KIR-B006", "fragment f: f32[64] = 0.0\nlet x = f[0]", "main/1"),
    "a reduction without a spelling": ("KIR-B008", "let m = reduce(X[0 +: 64], axis=0, op=max_nan)", "main/0"),
    "a load under a policy of stores": ("KIR-B008", "let h = load(X[0 +: 64] cache cs)", "main/0"),
    "a store under a policy of loads": ("KIR-B008", "X[0 +: 64] = 1.0 cache ca", "main/0"),
    "a copy of its own kind": ("KIR-B002", "fragment f: f32[64]\ncopy X[0 +: 64] -> f via cp_async", "main/1"),
    "a matrix instruction": ("KIR-B002", "fragment c: f32[64, 64] = 0.0\nmma c += H * H via wgmma", "main/1"),
    "a descriptor of a view of other elements": (
        "KIR-B002", "view global V(a, b): f16[64, 64] at H[b, a]\nfragment f: f16[64, 64]\ncopy V[0 +: 64, 0 +: 64] -> f via tma", "main/2"),
    "a product of a kind on the scalar units": ("KIR-B008", "fragment c: i32[64, 64] = 0\nmma c += cast(H, i8) * cast(H, i8) via fma", "main/1"),
    "opaque source": ("KIR-B002", 'opaque cuda reads nothing writes nothing because "asm" text "x"', "main/0"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals_name_their_place(triton: Backend, what: str) -> None:
    id_, lines, anchor = REFUSED[what]
    p = parse_program(body(lines), "p.kir")
    found = triton.accepts(p)
    assert [(d.id, d.anchor) for d in found] == [(id_, anchor)]
    assert found[0].message
    with pytest.raises(KirError) as refused:
        triton.emit(p)
    assert refused.value.diagnostics == found


def test_a_function_that_reads_a_size_of_the_program_is_refused(triton: Backend) -> None:
    function = "function last(global V: f32[N]) -> f32\n  return V[N - 1]\n"
    p = parse_program(body("Y[i] = last(&X)").replace("kernel main", f"{function}kernel main"), "p.kir")
    assert "a function reads 'N' of the program" in [d.message for d in triton.accepts(p)]


def test_all_refusals_are_found_in_one_run(triton: Backend) -> None:
    lines = "shared S: f32[64]\nfor t in 0..4\n  let m = reduce(X[0 +: 64], axis=0, op=max_nan)\nlet x = X[0 +: 48]"
    p = parse_program(body(lines), "p.kir")
    assert [d.id for d in triton.accepts(p)] == ["KIR-B002", "KIR-B008", "KIR-B003"]


def test_a_generic_program_and_an_odd_launch_are_refused(triton: Backend) -> None:
    generic = parse_program("kir 1\nprogram p\n  meta B: int\n  in X: f32[B]\nkernel main grid (i: 1) threads 32\n  pass\n", "p.kir")
    assert [d.id for d in triton.accepts(generic)] == ["KIR-B001"]
    assert [d.id for d in triton.accepts(parse_program(body("pass", threads=96), "p.kir"))] == ["KIR-B007"]


def test_a_descriptor_through_another_shape_is_one_of_the_tensor(triton: Backend) -> None:
    lines = "view global V: f16[32, 128] at H\nfragment f: f16[16, 64]\ncopy V[0 +: 16, 0 +: 64] -> f via tma"
    assert "tl.make_tensor_descriptor(H, shape=[32, 128], strides=[128, 1], block_shape=[16, 64])" in triton.emit(parse_program(body(lines), "p.kir")).text


BOXES = """kir 1
program p
  size N: i32
  in X: f16[N, 64] align 16
  in H: f16[64, 64] align 16
  out Y: f16[N, 64] align 16
kernel main grid (i: ceildiv(N, 16)) threads 128 {host_descriptors=1}
  view global V: f16[32, 128] at H
  fragment x: f16[16, 64]
  fragment f: f16[16, 64]
  copy load(X[i * 16 +: 16, 0 +: 64] else 0.0:f16 clip) -> x via tma
  copy V[0 +: 16, 0 +: 64] -> f via tma
  fragment y: f16[16, 64] = x + f
  copy y -> Y[i * 16 +: 16, 0 +: 64] via tma clip
"""


def test_descriptors_that_the_host_makes_are_parameters(triton: Backend) -> None:
    """As what they show the tensor; one that the kernel also touches otherwise, or by boxes of another shape, it describes itself."""
    emitted = triton.emit(p := parse_program(BOXES, "p.kir"))
    (entry,) = emitted.entries
    assert "def main(N, X_desc, V_desc, Y_desc):" in emitted.text and "make_tensor_descriptor" not in emitted.text
    assert [(a.kind, a.source, a.box) for a in entry.arguments[1:]] == [("map", "X", (16, 64)), ("map", "H", (16, 64)), ("map", "Y", (16, 64))]
    made = CompiledKernel("main", 0, 0, 0, 128, {}, {}, (), Image(b"", "main", boxes=(((16, 64), 128), ((16, 64), 0), ((16, 64), 128))))
    executable = Executable(p, emitted, {Executable.variant(emitted): Artifact("triton", "sm_90a", (made,), ())})
    (launch,) = executable.launches(emitted, bound(p, {"N": 40}, {}))
    first = {"of": "H", "dtype": "f16", "extents": [128, 32], "swizzle": 0, "strides": [256], "box": [64, 16]}
    assert launch["arguments"][6:11] == [["map", first], *(["scalar", "i32", x] for x in (32, 128)), *(["scalar", "i64", x] for x in (128, 1))]
    assert assembled(emitted, Artifact("triton", "sm_90a", (replace(made, texts={"ptx": ".entry main()"}),), ())) == ()
    assert executable.alignment("H") == 16 and "TensorDescriptor.from_tensor(H.view(32, 128,), [16, 64])" in wrapper(p, emitted)
    binding = emitted.bindings[0][1]
    assert "X_desc_block_0 = 16" in binding and 'shape = ["32", "128"]' in binding
    other = "fragment s: f16[8, 64]\n  copy load(X[i * 16 +: 8, 0 +: 64] else 0.0:f16 clip) -> s via tma"
    for more in ("let one = load(X[0, 0])\n  Y[i * 16, 0] = one", other):
        own = triton.emit(parse_program(BOXES + f"  {more}\n", "p.kir"))
        assert "tl.make_tensor_descriptor(X," in own.text and ("pointer", "X") in [(a.kind, a.source) for a in own.entries[0].arguments]


def test_a_product_on_the_scalar_units_is_one_of_f32(triton: Backend) -> None:
    lines = "fragment c: f32[64, 64] = 0.0\nlet w = cast(H, f32)\nlet h = H\nmma c += w * h via fma"
    assert 'c = tl.dot(w, (h).to(tl.float32), c, input_precision="ieee")' in triton.emit(parse_program(body(lines), "p.kir")).text


@pytest.mark.parametrize(("op", "combine"), [("prod", "a * b"), ("and", "a & b")])
def test_a_reduction_without_a_word_of_its_own_brings_its_combine_function(triton: Backend, op: str, combine: str) -> None:
    value = "X[0 +: 64] > 0.0" if op == "and" else "X[0 +: 64]"
    text = triton.emit(parse_program(body(f"let m = reduce({value}, axis=0, op={op})\nY[i] = cast(m, f32)"), "p.kir")).text
    (name,) = {line.split()[1].partition("(")[0] for line in text.splitlines() if line.startswith("def ") and line.endswith("(a, b):")}
    assert f"    return {combine}" in text and f", 0, {name})" in text


@pytest.mark.parametrize(("op", "dtype"), [("max", "i32"), ("min", "f64"), ("max", "bf16")])
def test_extremes_along_a_tile_bring_a_function_of_their_own(triton: Backend, tmp_path: Path, op: str, dtype: str) -> None:
    """Triton 3.6 takes no function of its own where values are combined; of bf16 its extremes give f32."""
    p = parse_program(f"kir 1\nprogram p\n  in X: {dtype}[64]\n  out Y: {dtype}[64]\nkernel main grid (i: 1) threads 32\n"
                      f"  Y[0 +: 64] = scan(X[0 +: 64], axis=0, op={op})\n")
    assert f"return tl.{op}imum(a, b)" in triton.emit(p).text
    again = ROUND_TRIPS["triton"].read_back(p, tmp_path)
    assert not again.functions and f"op={op}" in program_text(again)
    arrays, scalars = random_inputs(p, {}, 0)
    assert not difference(run(p, arrays, scalars), run(again, arrays, scalars))


READ_TWICE = """kir 1
program rows
  size M: i32
  size K: i32
  in X: f32[M, K]
  in W: f32[K, 64]
  out Y: f32[M, 64]
kernel main grid (i: ceildiv(M, 32)) threads 128
  fragment acc: f32[32, 64] = 0.0
  for k in 0..ceildiv(K, 16)
    let x = load(X[i * 32 +: 32, k * 16 +: 16] else 0.0 clip) + load(X[i * 32 +: 32, k * 16 +: 16] else 0.0 clip)
    mma acc += x * load(W[k * 16 +: 16, 0 +: 64] else 0.0 clip)
  Y[i * 32 +: 32, 0 +: 64] = acc clip
"""


def test_what_is_said_more_than_once_has_a_name_for_a_reader(triton: Backend, tmp_path: Path) -> None:
    """Where all names in it have their values; and the text is read as the other one is."""
    p = parse_program(READ_TWICE, "rows")
    assert isinstance(triton, ShowingBackend)
    shown = triton.shown(p)
    lines = [line.strip() for line in shown.text.splitlines()]
    order = ("offs_m = i * 32 + tl.arange(0, 32)", "for k in ", "offs_k = k * 16", "offs = ", "mask = ", "x = ")
    at = {name: next(k for k, line in enumerate(lines) if line.startswith(name)) for name in order}
    assert list(at.values()) == sorted(at.values()), shown.text
    assert lines[at["offs = "]] == "offs = tl.cast(offs_m[:, None], tl.int64) * K + offs_k[None, :]" and shown.text.count("tl.arange(0, 16)") == 1
    assert max(map(len, lines)) < 110
    texts = []
    for stem, each in (("gated", triton.emit(p)), ("shown", shown)):
        (tmp_path / f"{stem}.py").write_text(each.text)
        texts.append(normalize(load_expert(f"{tmp_path / stem}.py::main", Binding.parse(dict(each.bindings)["main"])).program))
    assert alpha_equal(*texts) and for_readers(triton, p).text == shown.text
    assert triton.shown(parse_program(body("Y[i] = X[i]"), "one")).text == triton.emit(parse_program(body("Y[i] = X[i]"), "one")).text


def test_a_size_less_a_number_divides_where_a_fact_keeps_it_positive(triton: Backend) -> None:
    text = "kir 1\nprogram p\n  size W: i32\n  out Y: f32[W]\n{}kernel main grid (i: W) threads 128\n  Y[i % (W - 2)] = 1.0\n"
    assert "i % (W - 2)" in triton.emit(parse_program(text.format("  fact W - 2 >= 1\n"), "p")).text
    assert [d.id for d in triton.accepts(parse_program(text.format("  fact W >= 1\n"), "p"))] == ["KIR-B005"]
