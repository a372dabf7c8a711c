"""Emitted CUDA C++: what it says, what it refuses with its place, and what nvcc makes of it."""
from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from kir.backends.cuda.output.emit import _closed, header
from kir.base.diagnostic import KirError
from kir.gate import gate_cpu, realized
from kir.hardware.target import target
from kir.interp import run
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.problem import load_problem
from kir.rewrite.guard import with_otherwise
from kir.surface import Backend, backend
from tests.kir.gate.proved.programs_asynchronous import right as asynchronous
from tests.programs import EXPERTS, parsed
from tests.round_trips import CUDA

HEAD = """kir 1
program p
  size N: i32
  in X: f32[N, 64]
  inout Y: f32[N, 64]
"""


@pytest.fixture(scope="module")
def cuda() -> Backend:
    return backend("cuda")


def body(lines: str, threads: int = 64) -> str:
    indented = "\n".join(f"  {line}" for line in lines.splitlines())
    return f"{HEAD}kernel main grid (i: N) threads {threads}\n{indented}\n"


def threaded(lines: str) -> str:
    return body("for t in 0..64 parallel thread\n" + "\n".join(f"  {line}" for line in lines.splitlines()))


def test_device_functions_wrap_one_instruction_each() -> None:
    for name, (text, needs) in header().items():
        branches = re.split(r"\belse\b", text)
        assert all(len(re.findall(r"\basm\b", part)) <= 1 for part in branches), name
        bare = re.sub(r"\.reg \.pred p;|selp\.u32 %0, 1, 0, p;", "", text)  # how the predicate of an instruction leaves it
        assert all(row.count(";") <= 1 for row in re.findall(r'"([^"]*)"', bare)), name
        assert all(other in header() for other in needs)
        assert re.search(rf"\b{name}\b", text)


def test_device_functions_stand_in_one_order_whatever_was_written_before() -> None:
    orders = []
    for first in ("tma_store_2d", "tma_load_2d"):
        header.cache_clear()
        assert header()[first]
        orders.append(_closed({"tma_load_2d", "tma_store_2d", "mbar_init"}))
    assert orders == [["shared_address", "mbar_init", "tma_load_2d", "tma_store_2d"]] * 2


def test_only_used_device_functions_are_written(cuda: Backend) -> None:
    text = cuda.emit(parse_program(threaded("Y[i, t] = X[i, t] * 2.0"), "p.kir")).text
    assert "asm" not in text and "template" not in text
    assert "Y[static_cast<long long>(i) * 64 + t] = X[static_cast<long long>(i) * 64 + t] * 2.0f;" in text


@pytest.mark.parametrize(("narrow", "wide", "wraps"), [
    ("u16", "i32", True), ("u32", "i64", True), ("u8", "i32", False), ("i16", "i32", False), ("u16", "i64", False)])
def test_a_product_of_widened_numbers_wraps_as_the_program_says(cuda: Backend, narrow: str, wide: str, wraps: bool) -> None:
    """nvcc takes a signed product of numbers of which it knows that they are not negative to be none: found on the device."""
    p = parse_program(f"kir 1\nprogram p\n  in X: {narrow}[32]\n  out Y: {wide}[32]\nkernel main grid (b: 1) threads 32\n  for t in 0..32 parallel thread\n"
                      f"    let v = cast(X[t], {wide})\n    Y[t] = max(v * cast(X[31 - t], {wide}), 3:{wide})\n", "p.kir")
    assert ("static_cast<unsigned" in cuda.emit(p).text) is wraps


def test_no_thread_uses_an_mbarrier_before_it_is_initialized(cuda: Backend) -> None:
    text = cuda.emit(asynchronous("a box for the whole CTA")).text
    order = re.findall(r"mbar_init\(&|__syncthreads|mbar_arrive_expect\(&|mbar_try_wait\(&", text)
    assert order == ["mbar_init(&", "__syncthreads", "mbar_arrive_expect(&", "mbar_try_wait(&"]


def test_every_emitted_statement_has_its_lines(cuda: Backend) -> None:
    p = parse_program(threaded("let x = X[i, t]\nif x > 0.0\n  Y[i, t] = x"), "p.kir")
    emitted = cuda.emit(p)
    lines = emitted.text.splitlines()
    assert {lines[row.line - 1].strip() for row in emitted.source_map if row.path == ("main", 0, "body", 0)} == {
        "const float x = X[static_cast<long long>(i) * 64 + t];"}
    assert cuda.emit(p) == emitted


def test_a_split_joins_again_before_what_follows(cuda: Backend) -> None:
    lines = "shared S: f32[64]\nfor t in 0..64 parallel thread\n  S[t] = X[i, t]\nfor u in 0..64 parallel thread\n  Y[i, u] = S[63 - u]"
    text = cuda.emit(parse_program(body(lines), "p.kir")).text
    assert text.count("__syncthreads();") == 1
    assert text.index("S[t] =") < text.index("__syncthreads();") < text.index("Y[")


def test_one_thread_writes_what_the_team_writes_once(cuda: Backend) -> None:
    text = cuda.emit(parse_program(body("let x = X[i, 0]\nY[i, 0] = x + 1.0"), "p.kir")).text
    assert "if (threadIdx.x == 0) {" in text


def test_divisions_round_down_also_for_negative_numbers(cuda: Backend) -> None:
    text = cuda.emit(parse_program(threaded("let k = cast(X[i, t], i32)\nY[i, t] = cast(k // 4 + k % 3 + t // 8, f32)"), "p.kir")).text
    assert "floor_div(k, 4)" in text and "floor_mod(k, 3)" in text and "t / 8" in text


def test_words_of_the_language_are_respelled(cuda: Backend) -> None:
    text = cuda.emit(parse_program(threaded("let class = X[i, t]\nlet double = class * 2.0\nY[i, t] = double"), "p.kir")).text
    assert "const float class_ =" in text and "const float double_ = class_ * 2.0f;" in text


def test_two_signs_are_no_decrement(cuda: Backend) -> None:
    text = cuda.emit(parse_program(threaded("register x: f32 = X[i, t]\nx = -(-x) - -1.0\nY[i, t] = x"), "p.kir")).text
    assert "--" not in text and "-(-x)" in text


REFUSED = {
    "a tile without a form for threads": ("KIR-B030", body("let x = sort(X[i, 0 +: 64], axis=0)"), "main/0"),
    "a fragment for another team": ("KIR-B030", body("fragment f: f32[16, 8] layout mma_c"), "main/0"),
    "a pipelined loop": ("KIR-B002", threaded("for k in 0..4 pipelined {stages=2}\n  Y[i, t] = 0.0"), "main/0/body/0"),
    "a barrier in part of a team": ("KIR-B002", body("for t in 0..32 parallel thread\n  barrier()"), "main/0"),
    "a copy via tma of what no map has": ("KIR-B002", body(
        "shared s: f32[2]\nshared full: mbarrier\nfor t in 0..64 parallel thread\n  if t == 0\n    copy X[i, 0 +: 2] -> s via tma signal full"),
        "main/2/body/0/then/0"),
    "half-precision mathematics": ("KIR-B004", threaded("let h = exp(cast(X[i, t], f16))"), "main/0/body/0"),
    "a maximum of doubles": ("KIR-B004", threaded("let h = max_nan(cast(X[i, t], f64), 1.0:f64)"), "main/0/body/0"),
    "leading zeros of a narrow number": ("KIR-B004", threaded("let h = clz(cast(i, i16))"), "main/0/body/0"),
    "an instruction without a spelling": ("KIR-B008", threaded("let h = exp2_approx(1:u32)"), "main/0/body/0"),
    "too many threads": ("KIR-B007", body("pass", threads=2048), "main"),
    "registers and resident CTAs": ("KIR-B007", threaded("Y[i, t] = 0.0").replace("threads 64", "threads 64 {maxnreg=64, min_ctas=2}"), "main"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals_name_their_place(cuda: Backend, what: str) -> None:
    id_, text, anchor = REFUSED[what]
    p = parse_program(text, "p.kir")
    assert [(d.id, d.anchor) for d in cuda.accepts(p)] == [(id_, anchor)]
    with pytest.raises(KirError):
        cuda.emit(p)


@pytest.mark.nvcc
@pytest.mark.sass
def test_the_experts_compile_with_the_instructions_that_they_name(cuda: Backend) -> None:
    gemm = cuda.compile(cuda.emit(parsed(EXPERTS / "gemm/gemm_sm80_lanes.kir")), target("sm_80"))
    assert gemm.mix["HMMA"] == 2 * 4 * 4 and gemm.mix["LDGSTS"] == 12 and gemm.mix["LDSM"] == 2 * (4 + 4) and gemm.mix["STG.128"] == 8
    assert gemm.spills == 0 and gemm.shared_bytes == 2 * (3 * 128 * 32 + 3 * 32 * 128 + 128 * 128)
    softmax = cuda.compile(cuda.emit(parsed(EXPERTS / "softmax/softmax.kir")), target("sm_90a"))
    assert softmax.mix["SHFL"] == 10 and softmax.mix["BAR"] == 2 and softmax.shared_bytes == 32
    assert {"ptx", "sass"} <= set(softmax.kernels[0].texts)


@pytest.mark.nvcc
def test_a_limit_of_registers_is_read_back_and_taken_by_nvcc(cuda: Backend, tmp_path: Path) -> None:
    p = parse_program(threaded("Y[i, t] = X[i, t] * 2.0").replace("threads 64", "threads 64 {maxnreg=40}").replace("inout Y", "out Y"), "p.kir")
    CUDA.holds(p, tmp_path)
    assert cuda.compile(cuda.emit(p), target("sm_90a")).kernels[0].registers <= 40


@pytest.mark.nvcc
def test_unrolling_is_realized(cuda: Backend) -> None:
    rolled = threaded("register s: f32 = 0.0\nfor k in 0..8\n  s = s + X[i, k]\nY[i, t] = s")
    unrolled, renamed = rolled.replace("0..8", "0..8 unroll {factor=8}"), re.sub(r"\bs\b", "total", rolled)
    artifacts = [cuda.compile(cuda.emit(parse_program(text, "p.kir")), target("sm_80")) for text in (rolled, unrolled, renamed)]
    assert realized(artifacts[0], artifacts[1])
    assert not realized(artifacts[0], artifacts[2])


@pytest.mark.nvcc
@pytest.mark.sass
def test_vectors_are_used_where_alignment_is_known(cuda: Backend) -> None:
    copy = threaded("let x = X[i, t * 4 +: 4]\nY[i, t * 4 +: 4] = x").replace("64]", "256]")
    aligned = copy.replace("f32[N, 256]", "f32[N, 256] align 16")
    loads = [cuda.compile(cuda.emit(parse_program(text, "p.kir")), target("sm_80")).mix for text in (copy, aligned)]
    assert loads[0].get("LDG") == 4 and "LDG.128" not in loads[0]
    assert loads[1].get("LDG.128") == 1 and loads[1].get("STG.128") == 1


@pytest.mark.nvcc
def test_a_fault_that_only_nvcc_finds_is_located(cuda: Backend) -> None:
    from dataclasses import replace
    emitted = cuda.emit(parse_program(threaded("let x = X[i, t]\nY[i, t] = x"), "p.kir"))
    with pytest.raises(KirError) as refused:
        cuda.compile(replace(emitted, text=emitted.text.replace("const float x", "const float y")), target("sm_80"))
    found = refused.value.diagnostics[0]
    assert found.id == "KIR-B010" and found.anchor == "main/0/body/1" and '"x"' in found.message


@pytest.mark.nvcc
@pytest.mark.parametrize("name", ["softmax", "gemm"])
def test_naive_programs_pass_the_gate_as_cuda(name: str) -> None:
    problem = load_problem(name)
    verdict = gate_cpu(problem.naive, problem, "cuda", [target("sm_80")])
    assert verdict.accepted, verdict.reason
    assert program_text(problem.naive) and verdict.artifacts[0].surface == "cuda"


@pytest.mark.parametrize("fact", ["N % 64 == 0", "N <= 4096"])
def test_the_host_chooses_between_a_kernel_for_some_sizes_and_one_for_all_others(fact: str) -> None:
    """What a text says of other sizes its own host code does: the launches stand under the condition, in the order of the plan."""
    text = "kir 1\nprogram twice\n  size N: i32\n  in X: f32[N]\n  out Y: f32[N]\n{}kernel main grid (i: ceildiv(N, 64)) threads 64\n" \
           "  for t in 0..64 parallel thread\n    if i * 64 + t < N\n      Y[i * 64 + t] = X[i * 64 + t] * 2.0\n"
    some, every = (parse_program(text.format(facts), "twice.kir") for facts in (f"  fact {fact}\n", ""))
    launch = backend("cuda").emit(with_otherwise(some, every)).launch
    chosen = "(N % 64) == 0" if "%" in fact else "N <= 4096"
    lines = [x.strip() for x in launch.splitlines() if x.strip().startswith(("if (N", "if ((N", "}", "const void"))]
    assert lines[0] == f"if ({chosen}) {{" and lines[3] == "} else {"
    assert "twice_main" in lines[1] and "main_otherwise" in lines[4]
    assert backend("cuda").emit(some).launch.count("cudaLaunchKernel") == 1
    both = backend("cuda").emit(parse_program(text.format("").replace("threads 64\n", "threads 64 cluster (2)\n"), "twice.kir"))
    assert "__cluster_dims__(2, 1, 1)" in both.text and "cudaLaunchKernel" in both.launch, "a kernel that says its clusters is launched as others are"
    fewer = backend("cuda").emit(parse_program(text.format("").replace("ceildiv(N, 64)", "(-N + 256) // 64"), "twice.kir"))
    assert "(-N)" in fewer.launch and not fewer.unlaunched, "a difference of sizes"
    unsaid = backend("cuda").emit(with_otherwise(parse_program(text.format("  fact popc(N) == 1\n"), "twice.kir"), every))
    assert not unsaid.launch and "popc(N)" in unsaid.unlaunched
    assert unsaid.whole().endswith(f"// Nothing here launches this: {unsaid.unlaunched}.\n"), "what C++ cannot say of a choice is told, not left out"


@pytest.mark.parametrize(("layout", "declared"), [(" layout strides(1, 2)", "s = [256]"), (" layout strides(136, 1)", "s = [2, 136]"), ("", "s = [2, 128]")])
def test_an_array_with_its_axes_in_another_order_is_told_flat(cuda: Backend, tmp_path: Path, layout: str, declared: str) -> None:
    """What is read of it as rows and columns has columns below zero: `s[cur + (127 - t) * 2]` is no element of row 1 (found by passes over kernels)."""
    p = parse_program(f"kir 1\nprogram parity\n  in x: f32[128]\n  out y: f32[128]\nkernel parity grid (b: 1) threads 128\n  shared s: f32[2, 128]{layout}\n"
                      "  for t in 0..128 parallel thread\n    s[0, t] = x[t]\n    barrier()\n    register cur: i32 = 0\n    for k in 0..3\n"
                      "      s[cur ^ 1, t] = s[cur, -t + 127] * 2.0\n      cur = cur ^ 1\n      barrier()\n    y[t] = s[cur, t]\n", "p.kir")
    emitted, x = cuda.emit(p), np.arange(128, dtype=np.float32)
    assert declared in emitted.bindings[0][1]
    again = CUDA.read_back(p, tmp_path)
    found = run(again, {again.params[0].name: x, again.params[1].name: np.zeros_like(x)}, mode="check")
    assert not found.errors and (found.outputs[again.params[1].name] == x[::-1] * 8).all()


def test_one_thread_does_not_write_out_loops_over_more_than_its_registers(cuda: Backend) -> None:
    for threads, rounds in ((1, {"#pragma unroll 1", "#pragma unroll 8"}), (128, {"#pragma unroll", "#pragma unroll 16"})):
        text = (f"kir 1\nprogram p\n  in X: f32[64, 32]\n  out Y: f32[64, 32]\nkernel main grid (i: 1) threads {threads}\n  fragment a: f32[64, 32] = 0.0\n"
                "  a = X * 2.0\n  Y = a + 1.0\n")
        assert {line.strip() for line in cuda.emit(parse_program(text, "p.kir")).text.splitlines() if "pragma" in line} == rounds
