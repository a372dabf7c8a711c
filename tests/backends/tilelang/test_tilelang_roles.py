"""Roles in TileLang: what passes make of a program, said as its compiler takes it, and read back as the same."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from kir.analysis.normal.normal_form import normalize
from kir.analysis.target.legalize import legalize
from kir.backends.tilelang.compile import translate
from kir.backends.tilelang.form.form import form
from kir.frontends.tilelang.teams.declaration_cleanup import with_conditions, with_quotients
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.canonical import alpha_equal
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.visit import walk
from kir.learning.tune.rank import built, given_of
from kir.learning.tune.space import find_space
from kir.problem import load_problem
from kir.surface import Backend, backend
from tests.round_trips import TILELANG

H200 = target("h200")
SAID = {
    "gemm_tilelang_roles": ("T.alloc_barrier([128] * 4)", "T.alloc_barrier([256] * 4)", "T.barrier_arrive(", "policy=T.GemmWarpPolicy.FullRow",
                            "T.wait_wgmma(1)"),
    "fmha_d128_causal_roles_tilelang": ("elif tx < 256:", "T.sync_threads(9, 256)", "T.named_barrier_arrive(10, 256)", "clear_accum=True",
                                        "Qs_full = T.alloc_barrier(128)"),
    "gemm_fp8_tilelang_roles": ("T.alloc_barrier([256] * 6)", "clear_accum=True"),
    "gemm_grouped_tilelang_roles": ('chosen_ = T.alloc_var("int32", init=0)', "if chosen == 1:", "if chosen_ == 1:",
                                    'i_tile = T.alloc_var("int32", init=0)'),  # else its quotient stands wherever it is read
}


@pytest.fixture
def tilelang() -> Backend:
    return backend("tilelang")


def made(name: str) -> Program:
    """The first point of a space."""
    space = find_space(name)
    problem = load_problem(space.home)
    given = given_of(space, problem, problem.shapes[0], H200)
    point = next(p for p in space.points() if not space.refusal(space.values(p, given)))
    return built(space, space.values(point, given), problem, H200)


@pytest.mark.parametrize("name", SAID)
def test_roles_that_passes_make_are_said_and_read_back(tilelang: Backend, name: str, tmp_path: Path) -> None:
    p = made(name)
    text = tilelang.emit(p).text
    assert [words for words in SAID[name] if words not in text] == []
    again = TILELANG.read_back(form(normalize(p)), tmp_path)
    assert alpha_equal(again, form(normalize(p))), program_text(again)
    assert form(form(p)) == form(p)


ROLES = """kir 1
program p
  in X: f16[64, 64]
  out Y: f16[64, 64]
kernel main grid (i: 1) threads 384
  shared S: f16[64, 64]
  shared full: mbarrier[1]
  mbar_init(&full[0], {count})
  fence_mbar_init()
  roles
    role producer warps 0..4
      mbar_arrive_expect(&full[0], {bytes})
      copy X -> S via tma signal full[0]
    role consumer warps 4..12
      {more}
      mbar_wait(&full[0], 0)
      @store_Y Y = S
"""


@pytest.mark.parametrize(("count", "size", "more", "why"), [
    ("1", "4096", "mbar_wait(&full[0], 0)", "expects other bytes"),
    ("2", "8192", "mbar_arrive(&full[0])", "teams of several sizes"),
    ("1", "8192", "named_barrier_sync(9, 256)", "number is not from 1 to 7"),
    ("1", "8192", "bulk_wait(1)", "groups of copies"),
    ("i + 1", "8192", "mbar_wait(&full[0], 0)", "not one number"),
])
def test_arrivals_that_threads_cannot_say_are_refused(tilelang: Backend, count: str, size: str, more: str, why: str) -> None:
    refused = tilelang.accepts(parse_program(ROLES.format(count=count, bytes=size, more=more), "p.kir"))
    assert [d.id for d in refused] == ["KIR-B303"] and why in refused[0].message


@pytest.mark.parametrize(("options", "grows"), [("", False), (" {min_ctas=2}", True), (" {min_ctas=many}", None)])
def test_what_a_role_asks_for_is_more_or_less_than_a_thread_is_launched_with(tilelang: Backend, options: str, grows: bool | None) -> None:
    """168 registers where a CTA has the multiprocessor for itself, 80 where two share it; CUDA says so in other words."""
    text = ROLES.format(count=1, bytes=8192, more="").replace("threads 384", f"threads 384{options}")
    p = parse_program(text.replace("warps 4..12", "warps 4..12 registers 104").replace("warps 0..4", "warps 0..4 registers 24"), "p.kir")
    legal = [d for d in legalize(p, target("sm_90a").architecture) if d.id == "KIR-V036"]
    if grows is None:
        assert "no number" in legal[0].message and "KIR-B304" in [d.id for d in tilelang.accepts(p)]
        return
    assert not legal and f"T.set_max_nreg(104, {int(grows)})" in tilelang.emit(p).text
    assert f"set_registers_{'up' if grows else 'down'}<104>" in backend("cuda").emit(p).text


def test_a_loop_that_may_not_run_says_when_it_does(tilelang: Backend, tmp_path: Path) -> None:
    """TileLang 0.1.15 makes one round of a loop that has at most one by a quotient."""
    p = parse_program("""kir 1
program p
  size M: i32
  in X: f16[M, 64] align 16
  out Y: f16[M, 64]
kernel main grid (i: min(ceildiv(M, 16), 132)) threads 128
  for turn in 1..ceildiv(ceildiv(M, 16) - i, 132) step 2
    Y[(turn * 132 + i) * 16 +: 16, 0 +: 64] = load(X[(turn * 132 + i) * 16 +: 16, 0 +: 64] else 0.0:f16 clip) clip
  for again in 0..ceildiv(M, 4096)
    Y[again * 16 +: 16, 0 +: 64] = load(X[again * 16 +: 16, 0 +: 64] else 0.0:f16 clip) clip
""", "p.kir")
    text = tilelang.emit(p).text
    assert "if 1 < T.ceildiv(T.ceildiv(M, 16) - i, 132):" in text and text.count("    if ") == 1
    again = TILELANG.read_back(form(normalize(p)), tmp_path)
    assert alpha_equal(again, form(normalize(p))), program_text(again)


@pytest.mark.tilelang
@pytest.mark.nvcc
def test_roles_compile_without_spills(tilelang: Backend) -> None:
    p = made("gemm_tilelang_roles")
    (kernel,) = tilelang.compile(tilelang.launched_with(tilelang.emit(p), {"M": 512, "N": 512, "K": 256}), target("sm_90a")).kernels
    assert kernel.spills == 0 and any(word.startswith("HGMMA") for word in kernel.mix)


@pytest.mark.tilelang
def test_barriers_of_a_branch_in_a_role_are_for_the_whole_team(tilelang: Backend) -> None:
    """TileLang's compiler counts those that come by the condition where it can read it, and came to 64 of 128 threads, which wait for ever."""
    p = made("gemm_grouped_tilelang_roles")
    (kernel,) = translate(tilelang.launched_with(tilelang.emit(p), {"G": 8, "T": 8192, "N": 28672, "K": 4096}), target("sm_90a"))
    assert set(re.findall(r"__sync_thread_partial\(\d+, (\d+)\)", kernel.text)) == {"128"}


@pytest.mark.parametrize(("after", "branches"), [("pass", True), ("Y[i] = chosen", False), ("chosen = 2", False)])
def test_a_branch_by_a_number_is_one_by_its_condition_where_nothing_else_reads_it(after: str, branches: bool) -> None:
    p = parse_program(f"""kir 1
program p
  in X: i32[8]
  out Y: i32[8]
kernel main grid (i: 8) threads 1
  register chosen: i32 = 0
  chosen = select(X[i] < 4, 1, 0)
  if chosen == 1
    Y[i] = 3
  {after if after != "pass" else ""}
""", "p.kir")
    (kernel,) = p.kernels
    made = with_conditions(kernel.body)
    assert (len(made) == 1) == branches and (made == kernel.body) != branches


@pytest.mark.parametrize(("more", "named"), [("", True), ("  q = 2", False), ("  Y[q] = q", True)])
def test_a_quotient_that_a_variable_holds_from_its_start_is_a_name_for_it(more: str, named: bool) -> None:
    (kernel,) = parse_program(f"""kir 1
program p
  out Y: i32[8]
  size M: i32
kernel main grid (i: 8) threads 1
  register q: i32 = 0
  q = i // M
  Y[i] = q + 1
{more}
""", "p.kir").kernels
    made = with_quotients(kernel.body)
    assert (isinstance(made[0], n.Let) and not any(isinstance(x, n.Load) for s in made for x in walk(s))) == named and (made == kernel.body) != named


def test_what_a_whole_cta_brings_and_multiplies_is_done_where_it_stands(tilelang: Backend, tmp_path: Path) -> None:
    """A state of a walk between a program with roles and its naive one."""
    p = parse_program("""kir 1
program p
  size M: i32
  in A: f16[M, 64] align 16
  in B: f16[64, 64] align 16
  out C: f32[M, 64]
kernel main grid (i: ceildiv(M, 64)) threads 128
  fragment acc: f32[64, 64] = 0.0
  shared As: f16[64, 64] layout auto
  shared Bs: f16[64, 64] layout auto
  copy load(A[i * 64 +: 64, 0 +: 64] else 0.0:f16 clip) -> As via tma
  copy load(B[0 +: 64, 0 +: 64] else 0.0:f16 clip) -> Bs via tma
  mma acc += As * Bs via wgmma
  C[i * 64 +: 64, 0 +: 64] = acc clip
""", "p.kir")
    assert "T.gemm(As, Bs, acc)" in tilelang.emit(p).text
    again = TILELANG.read_back(form(normalize(p)), tmp_path)
    assert alpha_equal(again, form(normalize(p))), program_text(again)
