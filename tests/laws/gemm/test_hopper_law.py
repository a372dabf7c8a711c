"""Law 5a for kernels of Hopper: tensor maps, rings of mbarriers, roles with their registers, wgmma by descriptors, clusters."""
from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from kir.analysis.normal.normal_form import normalize
from kir.backends.cuda.lowering.thread_code import thread_code
from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.learning.tune import load_space
from kir.learning.tune.rank import built, given_of
from kir.problem import load_problem
from kir.surface import backend
from tests.programs import EXPERTS, SKILLS, normal
from tests.round_trips import CUDA

NAMES = ("gemm/gemm_sm90", "gemm/gemm_sm90_lanes", "gemm/gemm_sm90_persistent", "fmha/fmha_sm90", "fmha/fmha_causal_sm90")


@cache
def tuned(name: str, problem: str) -> n.Program:
    """The first point of a stored subject of tuning; of a program with a version for other sizes, the fast kernel."""
    space, wanted, hardware = load_space(SKILLS / "pipelines" / f"{name}.toml"), load_problem(f"{problem}:f16"), target("h200")
    given = given_of(space, wanted, wanted.shape("square"), hardware)
    point = next(p for p in space.points() if space.refusal(space.values(p, given)) == "")
    made = built(space, space.values(point, given), wanted, hardware)
    return replace(made, kernels=made.kernels[:1], plan=())


def holds(program: n.Program, folder: Path, seed: int) -> None:
    """The law, for the threads of a program."""
    threads, _, refused = thread_code(normalize(program))
    assert refused == ()
    CUDA.holds(threads, folder, seed)


@pytest.mark.parametrize("name", NAMES)
def test_experts_are_read_back(tmp_path: Path, name: str) -> None:
    holds(normal(EXPERTS / f"{name}.kir"), tmp_path, 4)


@pytest.mark.parametrize(("name", "problem"), [("gemm_sm90_cluster", "gemm"), ("gemm_sm90_multicast", "gemm"), ("gemm_sm90_tt", "gemm_tt")])
def test_tuned_kernels_are_read_back(tmp_path: Path, name: str, problem: str) -> None:
    """In clusters, with multicasts and arrivals at other CTAs; operands that are stored the other way round."""
    holds(tuned(name, problem), tmp_path, 5)


ROLES = """kir 1
program p
  inout X: f32[512]
kernel main grid (g: 1) threads 512
  shared a: f32[512]
  for t in 0..512 parallel thread
    a[t] = X[t]
  roles
    role loader warps 0..2
      for t0 in 0..64 parallel thread
        X[t0] = a[511 - t0]
        barrier()
        a[t0] = X[63 - t0]
    role adder warps 4..12 registers 200
      for w in 0..2 parallel warpgroup
        for t1 in 0..128 parallel thread
          X[w * 128 + t1 + 128] = a[w * 128 + t1] + 1.0
          barrier()
          a[w * 128 + t1 + 128] = 0.0
    role short warps 12..16
      for t2 in 0..128 parallel thread
        X[t2 + 384] = 3.0
  for t3 in 0..512 parallel thread
    X[t3] = a[t3] * 2.0
"""


def test_roles_with_gaps_and_code_after_them_are_read_back(tmp_path: Path) -> None:
    """Idle warps, a role that is named by a word of C++, warpgroups that meet, and all threads again."""
    holds(parse_program(ROLES, "roles"), tmp_path, 6)


def test_registers_of_a_part_of_a_warpgroup_are_not_written() -> None:
    """All warps of a warpgroup execute the instruction together; idle ones would not."""
    with pytest.raises(KirError, match=r"KIR-B002.*registers of 'loader'"):
        backend("cuda").emit(parse_program(ROLES.replace("warps 0..2", "warps 0..2 registers 40"), "roles"))


CLUSTER = """kir 1
program p
  inout X: f32[256]
kernel main grid (g: 2) threads 128 cluster (2)
  shared a: f32[128]
  view cluster every: f32[2, 128] at a
  for t in 0..128 parallel thread
    every[1 - g % 2, t] = X[g * 128 + t]
    cluster_arrive()
    cluster_wait()
    X[g * 128 + t] = a[t] + every[1 - g % 2, 127 - t]
    cluster_arrive()
    cluster_wait()
"""


def test_loads_and_stores_of_another_cta_are_read_back(tmp_path: Path) -> None:
    holds(parse_program(CLUSTER, "cluster"), tmp_path, 7)
