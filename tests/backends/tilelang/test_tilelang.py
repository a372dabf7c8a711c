"""TileLang written: what it looks like, what is refused and where, and how a compiled kernel is called."""
from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from kir.analysis.normal.normal_form import normalize
from kir.backends.tilelang.form.form import form
from kir.base.diagnostic import KirError
from kir.gate.artifacts import _kernel, _to_json
from kir.gate.gpu.images.executable import Executable, bound
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.canonical import alpha_equal
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.surface import Artifact, Backend, CompiledKernel, Emitted, Image, Passed, backend
from kir.surface.reading import load_expert
from tests.backends.conftest import program
from tests.round_trips import TILELANG

HEAD = """kir 1
program p
  size N: i32
  in X: f16[N, 64]
  out Y: f32[N, 64]
  fact N <= 65536
kernel main grid (row: ceildiv(N, 16)) threads 128
"""
REFUSED = {
    "copies that were chosen": ("KIR-B301", "main/1", """
  shared S: f16[16, 64]
  copy load(X[row * 16 +: 16, 0 +: 64] else 0.0:f16 clip) -> S via vector(8)
  Y[row * 16 +: 16, 0 +: 64] = cast(S, f32) clip
"""),
    "matrix instructions that were chosen": ("KIR-B301", "main/1", """
  fragment acc: f32[16, 16] = 0.0
  mma acc += load(X[row * 16 +: 16, 0 +: 64] else 0.0:f16 clip) * trans(load(X[row * 16 +: 16, 0 +: 64] else 0.0:f16 clip), 1, 0) via mma_sync
  Y[row * 16 +: 16, 0 +: 16] = acc clip
"""),
    "a layout of another kind": ("KIR-B302", "main/0", """
  shared S: f16[16, 64] layout swizzle(1, 4, 3)
  S = load(X[row * 16 +: 16, 0 +: 64] else 0.0:f16 clip)
  Y[row * 16 +: 16, 0 +: 64] = cast(S, f32) clip
"""),
    "a swizzle of a single row": ("KIR-B302", "main/0", """
  shared S: f16[64] layout swizzle(3, 4, 3)
  S = load(X[row * 16, 0 +: 64] else 0.0:f16 clip)
  Y[row * 16, 0 +: 64] = cast(S, f32) clip
"""),
    "barriers": ("KIR-B303", "main/0", """
  shared b: mbarrier
  mbar_init(&b, 1)
  Y[row * 16 +: 16, 0 +: 64] = 0.0 clip
"""),
    "a loop over warps": ("KIR-B304", "main/0", """
  for w in 0..4 parallel warp
    Y[row * 16 + w * 4 +: 4, 0 +: 64] = 0.0 clip
"""),
    "a loop over some threads": ("KIR-B304", "main/0", """
  for t in 0..64 parallel thread
    Y[row * 16, t] = 0.0 clip
"""),
    "a tile that threads cannot hold": ("KIR-B305", "main/0", """
  fragment f: f32[512, 256] = 0.0
  Y[row * 16 +: 16, 0 +: 64] = f[0 +: 16, 0 +: 64] clip
"""),
    "a fragment whose elements every thread would have": ("KIR-B305", "main/1/body/0/body/0", """
  fragment f: f32[64, 64] = 0.0
  for i in 0..64
    for j in 0..64
      Y[i + row * 64, j] = f[i, j] clip
"""),
    "a counter of tiles around a pipelined loop": ("KIR-B309", "main", """
  shared S: f16[64]
  register before: i32 = 0
  for g in 0..4
    let first = before
    for t in (row - first) % 2..8 step 2
      fragment f: f32[64] = 0.0
      for j in 0..4 pipelined {stages=2}
        copy load(X[t * 4 + j, 0 +: 64] else 0.0:f16 clip) -> S
        f = f + cast(S, f32)
      Y[t, 0 +: 64] = f clip
    before = first + 8
"""),
    "a slice of shared memory copied onto one that overlaps": ("KIR-B328", "main/1", """
  shared S: f32[64] = 0.0
  S[1 +: 63] = S[0 +: 63]
  Y[row * 16, 0 +: 64] = S clip
"""),
    "a slice of a tensor copied onto one that overlaps": ("KIR-B328", "main/0", """
  Y[row * 16 +: 16, 1 +: 63] = load(Y[row * 16 +: 16, 0 +: 63] clip) clip
"""),
    "an overlapping slice that is computed with": ("KIR-B328", "main/0", """
  Y[row * 16 +: 16, 0 +: 63] = load(Y[row * 16 +: 16, 1 +: 63] clip) * 2.0 clip
"""),
    "a copy of a slice onto one that overlaps": ("KIR-B328", "main/1", """
  shared S: f32[64] = 0.0
  copy load(S[0 +: 48]) -> S[16 +: 48]
  Y[row * 16, 0 +: 64] = S clip
"""),
    "rows that are read through a column of their own": ("KIR-B328", "main/0", """
  Y[row * 16 +: 16, 0 +: 64] = load(Y[row * 16 +: 16, 0 +: 64] clip) - load(Y[row * 16 +: 16, 0 +: 1] clip) clip
"""),
    "a tile that is turned in its place": ("KIR-B328", "main/1", """
  shared S: f32[64, 64] = 0.0
  S = trans(S, 1, 0) + 1.0
  Y[row * 16 +: 16, 0 +: 64] = S[0 +: 16, 0 +: 64] clip
"""),
    "a value that is sorted": ("KIR-B306", "main/1", """
  let x = cast(load(X[row * 16, 0 +: 64] else 0.0:f16 clip), f32)
  let s = sort(x, axis=0)
  Y[row * 16, 0 +: 64] = s clip
"""),
    "a product of f32 that is exact": ("KIR-B004", "main/1", """
  fragment acc: f32[16, 16] = 0.0
  mma acc += cast(load(X[row * 16 +: 16, 0 +: 64] else 0.0:f16 clip), f32) * cast(load(X[0 +: 64, 0 +: 16] else 0.0:f16 clip), f32)
  Y[row * 16 +: 16, 0 +: 16] = acc clip
"""),
}


@pytest.fixture(scope="module")
def tilelang() -> Backend:
    return backend("tilelang")


def test_a_gemm_reads_as_people_write_it(tilelang: Backend) -> None:
    text = tilelang.emit(program("gemm_tile")).text
    for line in ("@tilelang.jit", "def gemm(M, N, K):", "    @T.prim_func", 'A: T.Tensor((M, K), "float16")', "T.Pipelined(", "num_stages=3",
                 "T.gemm("):
        assert line in text, f"{line}\n{text}"
    compile(text, "emitted.py", "exec")


def test_every_line_names_its_statement(tilelang: Backend) -> None:
    emitted = tilelang.emit(program("softmax_tile"))
    lines = emitted.text.splitlines()
    loops = [i for i, line in enumerate(lines, 1) if "T.Parallel(" in line]
    assert loops and all(emitted.statement_of(i) is not None for i in loops)


@pytest.mark.parametrize("what", REFUSED)
def test_what_tilelang_cannot_say_is_refused_where_it_stands(tilelang: Backend, what: str) -> None:
    id_, place, body = REFUSED[what]
    p = parse_program(HEAD + body.lstrip("\n"), "p.kir")
    found = [d for d in tilelang.accepts(p) if d.id == id_]
    assert found, [f"{d.id}: {d.message}" for d in tilelang.accepts(p)]
    assert found[0].anchor.startswith(place) and found[0].needs, found[0]
    with pytest.raises(KirError):
        tilelang.emit(p)


@pytest.mark.parametrize("statement", [
    "S[0 +: 32] = S[32 +: 32]", "S = S * 2.0", "copy load(S[0 +: 32]) -> S[32 +: 32]", "S[0 +: 32] = S[32 +: 32] + S[0 +: 32]",
])
def test_a_statement_may_read_its_own_elements_and_others_apart(tilelang: Backend, statement: str) -> None:
    body = f"  shared S: f32[64] = 0.0\n  {statement}\n  Y[row * 16, 0 +: 64] = S clip\n"
    assert not [d.id for d in tilelang.accepts(parse_program(HEAD + body, "p.kir"))]


def test_a_scan_is_said_for_the_threads_that_it_is_written_for(tilelang: Backend) -> None:
    body = "  let x = load(Y[row * 16, 0 +: 64] else 0.0 clip)\n  let s = scan(x, axis=0, op=sum)\n  Y[row * 16, 0 +: 64] = s clip\n"
    said = {count: [d.id for d in tilelang.accepts(parse_program(re.sub(r"threads \d+", f"threads {count}", HEAD) + body, "p.kir"))] for count in (1, 64, 96)}
    assert said == {1: ["KIR-B306"], 64: [], 96: ["KIR-B306"]}


def test_launches_and_programs_that_have_no_form_are_refused(tilelang: Backend) -> None:
    four = parse_program(HEAD.replace("(row: ceildiv(N, 16))", "(row: N, a: 1, b: 1, c: 1)") + "  Y[row, 0 +: 64] = 0.0\n", "p.kir")
    assert [d.id for d in tilelang.accepts(four)] == ["KIR-B007"]
    sized = parse_program("kir 1\nprogram p\n  size N: i32\n  out Y: f32[N]\nkernel main grid (i: N) threads N\n  Y[i] = 0.0\n", "p.kir")
    assert [d.id for d in tilelang.accepts(sized)] == ["KIR-B007"]


def test_sizes_make_a_variant_of_their_own(tilelang: Backend) -> None:
    emitted = tilelang.emit(program("gemm_tile"))
    small, large = (tilelang.launched_with(emitted, {"M": m, "N": 64, "K": 64}) for m in (64, 128))
    assert small.text == large.text == emitted.text
    assert len({Executable.variant(x) for x in (emitted, small, large)}) == 3
    assert tilelang.launched_with(large, {"M": 64, "N": 64, "K": 64}) == small


def _compiled(emitted: Emitted, *arguments: Passed) -> Artifact:
    image = Image(b"cubin", "gemm_kernel", 49152, arguments=arguments, threads=256)
    return Artifact("tilelang", "sm_90a", (CompiledKernel("main", 168, 0, 49152, 256, image=image),))


def test_a_launch_passes_what_the_compiler_laid_out(tilelang: Backend) -> None:
    p = program("gemm_tile")
    emitted = tilelang.launched_with(tilelang.emit(p), {"M": 256, "N": 128, "K": 64})
    made = _compiled(emitted, Passed("map", "A", "f16", (64, 256), (128,), (32, 128), (1, 1), 64), Passed("pointer", "C", "f16"),
                     Passed("scalar", "M", "i32"))
    kept = _to_json(made)["kernels"][0]
    assert _kernel(kept) == made.kernels[0], "an artifact that was kept says the same"
    executable = Executable(p, emitted, {Executable.variant(emitted): made})
    (launch,) = executable.launches(emitted, bound(p, {"M": 256, "N": 128, "K": 64}, {}))
    assert launch["threads"] == 256
    kind, row = launch["arguments"][0]
    assert kind == "map" and row["extents"] == [64, 256] and row["strides"] == [128] and row["box"] == [32, 128] and row["swizzle"] == 64
    assert launch["arguments"][1:] == [["buffer", "C"], ["scalar", "i32", 256]]


# ------------------------------------------------------------------------------------------------------------------------- compiled


@pytest.fixture(scope="module")
def hopper(tilelang: Backend) -> Artifact:
    from kir.hardware.target import target
    home = Path(__file__).parents[3] / "skills"
    expert = load_expert(f"{home}/experts/gemm/tilelang.py::gemm_pipelined", home / "bindings" / "tilelang_gemm.toml")
    emitted = tilelang.emit(expert.program)
    return tilelang.compile(tilelang.launched_with(emitted, {"M": 4096, "N": 4096, "K": 4096}), target("sm_90a"))


@pytest.mark.tilelang
@pytest.mark.nvcc
def test_a_gemm_is_compiled_for_hopper(hopper: Artifact) -> None:
    (k,) = hopper.kernels
    assert hopper.mix["HGMMA"] > 0 and 64 < k.registers <= 255 and k.shared_bytes >= 2 * (128 * 32 + 32 * 128) * 2
    assert {"cuda", "ptx", "sass"} <= set(k.texts) and dict(hopper.tools)["tilelang"]
    assert k.image is not None and k.image.function and k.image.threads == k.threads


@pytest.mark.tilelang
@pytest.mark.nvcc
def test_a_tensor_in_another_shape_is_passed_by_its_own_name(tilelang: Backend) -> None:
    p = parse_program("""kir 1
program doubled
  size M: i32
  in X: f32[M, 8, 32]
  out Y: f32[M, 256]
kernel main grid (i: M) threads 128
  view global Xm: f32[M, 256] at X
  Y[i, 0 +: 256] = Xm[i, 0 +: 256] * 2.0
""", "doubled.kir")
    emitted = tilelang.launched_with(tilelang.emit(p), {"M": 64})
    assert "T.reshape(X" in emitted.text
    image = tilelang.compile(emitted, target("sm_90a")).kernels[0].image
    assert image is not None and image.arguments is not None and {a.of for a in image.arguments} == {"X", "Y"}


@pytest.mark.tilelang
@pytest.mark.nvcc
def test_its_launch_has_an_argument_for_every_tensor(hopper: Artifact) -> None:
    image = hopper.kernels[0].image
    assert image is not None and image.arguments is not None
    assert {a.of for a in image.arguments} == {"A", "B", "C"}
    for a in image.arguments:
        if a.kind == "map":
            assert a.extents == (4096, 4096) and a.strides == (8192,) and np.prod(a.box) > 0 and a.swizzle in (0, 32, 64, 128)


@pytest.mark.tilelang
def test_a_fault_of_the_compiler_is_located(tilelang: Backend) -> None:
    from dataclasses import replace

    from kir.hardware.target import target
    emitted = tilelang.emit(program("softmax_tile"))
    broken = replace(emitted, text=emitted.text.replace("T.exp(", "T.no_such_function("))
    with pytest.raises(KirError) as refused:
        tilelang.compile(tilelang.launched_with(broken, {"M": 8, "N": 256}), target("sm_80"))
    (found,) = refused.value.diagnostics
    assert found.id == "KIR-B010" and "no_such_function" in found.message and found.anchor


@pytest.mark.gpu
@pytest.mark.tilelang
@pytest.mark.parametrize("name", ["gemm", "fmha", "softmax", "rmsnorm"])
def test_experts_pass_the_gate_on_a_device(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    from kir.gate.gpu import Gpu, Options, gate_gpu
    from kir.problem import load_problem
    kernels = {"gemm": "gemm_pipelined", "fmha": "fmha_forward", "softmax": "softmax_row", "rmsnorm": "rmsnorm_row"}
    home = Path(__file__).parents[3] / "skills"
    expert = load_expert(f"{home}/experts/{name}/tilelang.py::{kernels[name]}", home / "bindings" / f"tilelang_{name}.toml")
    problem = load_problem(name)
    smallest = min(problem.timed_for(expert.program), key=lambda s: sum(s.sizes.values()))
    with Gpu.open(tmp_path_factory.mktemp("gate")) as gpu:
        verdict = gate_gpu(gpu, expert.program, problem, "tilelang", options=Options(shapes=(smallest.name,), panel=False, interpret=False, budget=0.4))
    assert verdict.accepted, verdict.reason


def test_workspaces_are_tensors_too(tilelang: Backend) -> None:
    p = parse_program("""kir 1
program two
  size N: i32
  in X: f32[N]
  out Y: f32[N]
  workspace W: f32[N]
  fact N <= 65536
kernel first grid (i: N) threads 1
  W[i] = X[i] * 2.0
kernel second grid (i: N) threads 1
  Y[i] = W[i] + 1.0
""", "two.kir")
    emitted = tilelang.emit(p)
    assert [e.function for e in emitted.entries] == ["first", "second"]
    assert [a.name for a in emitted.entries[0].arguments] == ["N", "X", "W"] and isinstance(p.kernels[0], n.Kernel)
    assert len({dict(e.options)["factory"] for e in emitted.entries}) == 2


PICKED = """  fragment F: f32[2, 16, 64] = 0.0
  fragment r: f32[16] = 0.0
  for a in 0..2 unroll
    F[a, 0 +: 16, 0 +: 64] = cast(load(X[row * 16 +: 16, 0 +: 64] else 0.0:f16 clip), f32)
  r = F[1, 0 +: 16, 2]
  Y[row * 16 +: 16, 0 +: 64] = F[1, 0 +: 16, 0 +: 64] + expand(r, axis=1) clip
"""


@pytest.mark.tilelang
@pytest.mark.nvcc
def test_a_fixed_index_of_a_fragment_is_one_round_of_a_loop_over_all(tilelang: Backend, tmp_path: Path) -> None:
    from kir.hardware.target import target
    p = parse_program(HEAD + PICKED, "p.kir")
    emitted = tilelang.emit(p)
    assert "for at, at_, i in T.Parallel(2, 64, 16):\n                if at == 1 and at_ == 2:" in emitted.text
    assert tilelang.compile(tilelang.launched_with(emitted, {"N": 64}), target("sm_90a")).kernels
    again = TILELANG.read_back(form(normalize(p)), tmp_path)
    assert alpha_equal(again, form(normalize(p))), program_text(again)


APART = {
    "a vector along rows and columns of one tile": ("x[i] - x_shared[j]", """
  let x = cast(load(X[row * 16, 0 +: 64] else 0.0:f16 clip), f32) * 2.0
  let y = expand(x, axis=1) - expand(x, axis=0)
  Y[row * 64 +: 64, 0 +: 64] = y clip
"""),
    "a vector along rows of a tile and columns of another": ("x_shared[j]", """
  let x = cast(load(X[row * 64, 0 +: 64] else 0.0:f16 clip), f32) * 2.0
  fragment acc: f32[64, 64] = expand(x, axis=1)
  acc = acc * expand(x, axis=0)
  Y[row * 64 +: 64, 0 +: 64] = acc clip
"""),
    "names of shared memory, as both operands": ("T.gemm(S, S, acc, transpose_B=True", """
  shared S: f16[64, 64]
  S = load(X[row * 64 +: 64, 0 +: 64] else 0.0:f16 clip)
  let x = S
  fragment acc: f32[64, 64] = 0.0
  mma acc += x * trans(x, 1, 0)
  Y[row * 64 +: 64, 0 +: 64] = acc clip
"""),
    "a right operand in global memory, transposed": ("T.gemm(S, right_shared, acc, transpose_B=True", """
  shared S: f16[64, 64]
  S = load(X[row * 64 +: 64, 0 +: 64] else 0.0:f16 clip)
  fragment acc: f32[64, 64] = 0.0
  mma acc += S * trans(load(X[row * 64 +: 64, 0 +: 64] else 0.0:f16 clip), 1, 0)
  Y[row * 64 +: 64, 0 +: 64] = acc clip
"""),
    "a result as a right operand": ("T.gemm(S, right_shared, again)", """
  shared S: f16[64, 64]
  S = load(X[row * 64 +: 64, 0 +: 64] else 0.0:f16 clip)
  fragment acc: f32[64, 64] = 0.0
  mma acc += S * trans(S, 1, 0)
  fragment again: f32[64, 64] = 0.0
  mma again += S * cast(acc, f16)
  Y[row * 64 +: 64, 0 +: 64] = again clip
"""),
}


@pytest.mark.tilelang
@pytest.mark.nvcc
@pytest.mark.parametrize("what", APART)
def test_what_is_read_in_two_ways_lies_in_shared_memory(tilelang: Backend, what: str, tmp_path: Path) -> None:
    line, body = APART[what]
    p = parse_program(HEAD + body, "p.kir")
    emitted = tilelang.emit(p)
    assert line in emitted.text
    assert tilelang.compile(tilelang.launched_with(emitted, {"N": 64}), target("sm_90a")).kernels
    again = TILELANG.read_back(form(normalize(p)), tmp_path)
    assert alpha_equal(again, form(normalize(p))), program_text(again)


@pytest.mark.parametrize(("threads", "stages", "refused"), [(256, 3, True), (128, 3, False), (256, 0, False)])
def test_a_right_operand_in_registers_is_refused_where_products_of_it_are_wrong(tilelang: Backend, threads: int, stages: int, refused: bool) -> None:
    """As an H200 has shown: in a pipelined loop of more than 128 threads."""
    loop = f" pipelined {{stages={stages}}}" if stages else ""
    p = parse_program(f"""kir 1
program p
  size N: i32
  in X: f16[N, 64]
  in W: f16[N, 64]
  out Y: f32[N, 64]
kernel main grid (row: ceildiv(N, 128)) threads {threads}
  fragment acc: f32[128, 64] = 0.0
  for k in 0..ceildiv(N, 64){loop}
    shared S: f16[128, 64]
    copy load(X[row * 128 +: 128, 0 +: 64] else 0.0:f16 clip) -> S
    fragment R: f16[64, 64] = load(W[k * 64 +: 64, 0 +: 64] else 0.0:f16 clip)
    mma acc += S * R
  Y[row * 128 +: 128, 0 +: 64] = acc clip
""", "p.kir")
    found = [d for d in tilelang.accepts(p) if "right operand in registers" in d.message]
    assert bool(found) == refused and all(d.id == "KIR-B306" for d in found)


SAID = {
    "what the lanes of a warp have together": ("T.warp_reduce_sum(", "kernel main grid (row: ceildiv(N, 16)) threads 32", """
  for t in 0..32 parallel thread
    let x = cast(load(X[row, t] else 0.0:f16 clip), i32)
    Y[row, t] = cast(warp_reduce(x, op=add), f32) clip
"""),
    "an arm that an unsigned number guards": ("T.Select(", "kernel main grid (row: ceildiv(N, 16)) threads 32", """
  for t in 0..32 parallel thread
    let bits = cast(cast(load(X[row, t] else 0.0:f16 clip), f32), u32, bits)
    Y[row, t] = cast(cast(select(bits >= 2147483648:u32, ~bits, bits | 2147483648:u32), i32), f32) clip
"""),
    "barriers of single threads, and no others": (
        "TL_DISABLE_THREAD_STORAGE_SYNC: True", "kernel main grid (row: ceildiv(N, 16)) threads 32 {tl_disable_thread_storage_sync=true}", """
  shared S: f32[32]
  for t in 0..32 parallel thread
    S[t] = cast(load(X[row, t] else 0.0:f16 clip), f32)
    barrier()
    Y[row, t] = S[31 - t] clip
"""),
    "fast math, under which a quotient is exact": ("T.ieee_fdiv(T.exp2(", "kernel main grid (row: ceildiv(N, 16)) threads 32 {tl_enable_fast_math=true}", """
  for t in 0..32 parallel thread
    let x = cast(load(X[row, t] else 0.0:f16 clip), f32)
    Y[row, t] = exp2_approx(x) / (x * x + 1.0) clip
"""),
}


@pytest.mark.parametrize("what", SAID)
def test_what_single_threads_do_is_said_and_read_back(tilelang: Backend, what: str, tmp_path: Path) -> None:
    words, kernel, body = SAID[what]
    p = parse_program(re.sub(r"kernel main .*\n", kernel + "\n", HEAD) + body.lstrip("\n"), "p.kir")
    assert words in tilelang.emit(p).text, tilelang.emit(p).text
    again = TILELANG.read_back(form(normalize(p)), tmp_path)
    assert alpha_equal(again, form(normalize(p))), program_text(again)


def test_one_of_two_comparisons_is_no_chain_of_them(tilelang: Backend) -> None:
    lines = "  for t in 0..32 parallel thread\n    let x = load(X[row, t] else 0.0:f16 clip)\n    register on: bool = x < 1.0:f16 ^ x > 2.0:f16\n"
    lines += "    Y[row, t] = select(on, 1.0, 0.0) clip\n"
    p = parse_program(re.sub(r"kernel main .*\n", "kernel main grid (row: N) threads 32\n", HEAD) + lines, "p.kir")
    assert re.search(r"init=\(x < .*\) != \(x > .*\)\)", text := tilelang.emit(p).text), text


def test_an_approximation_needs_fast_math(tilelang: Backend) -> None:
    p = parse_program(HEAD + "  Y[row * 16 +: 16, 0 +: 64] = exp2_approx(cast(load(X[row * 16 +: 16, 0 +: 64] else 0.0:f16 clip), f32)) clip\n", "p.kir")
    assert [(d.id, "fast math" in d.message) for d in tilelang.accepts(p)] == [("KIR-B008", True)]
