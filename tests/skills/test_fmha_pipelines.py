"""Stored pipelines of attention: each makes of its naive program one that is right, at lengths that tiles divide and at others."""
from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import pytest

from kir.hardware.target import target
from kir.interp import run
from kir.ir.nodes import Program
from kir.learning.tune import load_space
from kir.learning.tune.rank import Prefixes, built, given_of
from kir.problem import Problem, Shape, load_problem
from kir.surface import backend

FOLDER = Path(__file__).parents[2] / "skills" / "pipelines"
NAMES = sorted(f.stem for f in FOLDER.glob("fmha*.toml"))
HOPPER = [name for name in NAMES if name.endswith("_sm90")]
COMPILED = [name for name in HOPPER if "_stay" not in name or name in ("fmha_d128_causal_stay_sm90", "fmha_varlen_causal_stay_sm90")]
"""Those for which nvcc is asked: of CTAs that stay the two of which a tile's loop differs from the others'."""
H200 = target("h200")


@cache
def made(name: str) -> tuple[Program, Problem]:
    """The first point of a space, over its naive program; of uneven lengths whose CTAs stay, one whose rounds go backward and whose heads
    follow one another."""
    space = load_space(FOLDER / f"{name}.toml")
    problem = load_problem(space.home)
    point = {x: values[-1 if x in ("snake", "fast") and "varlen" in name else 0] for x, values in space.parameters.items()}
    values = space.values(point, {**given_of(space, problem, problem.shapes[0], H200), "sms": 3})
    assert space.refusal(values) == ""
    return built(space, values, problem, H200, prefixes(space.home, str(space.facts), str(space.align))), problem


@lru_cache(maxsize=1)
def prefixes(*base: str) -> Prefixes:
    """What pipelines over one program have come to: they begin alike, and stand beside one another."""
    return {}


def right(name: str, length: int, mode: str) -> None:
    program, problem = made(name)
    heads = 3 if "_stay" in name or "_begun" in name else 2  # CTAs that stay take several tiles, and not all as many
    sizes = {"H": 1, "G": heads, "L": length} if "gqa" in name else {"B": 1, "H": heads, "L": length}
    shape = Shape(name="some", sizes=sizes, tags=())
    inputs = problem.inputs(shape, seed=length)
    found = run(program, inputs, problem.scalars(shape), mode="check" if mode == "check" else "fast")
    assert problem.compare(found.outputs, inputs, shape).ok
    assert [f for f in found.findings if f.severity == "error"] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_pipeline_makes_attention_from_its_naive_program(name: str) -> None:
    right(name, 256 if "even" in name else 300, "fast")
    space = load_space(FOLDER / f"{name}.toml")
    assert backend(space.surface).accepts(made(name)[0]) == ()


@pytest.mark.parametrize("name", [name for name in NAMES if "varlen" in name])
def test_sequences_of_uneven_lengths_see_their_own_keys_and_rows_past_their_ends_are_zero(name: str) -> None:
    program, problem = made(name)
    shape = Shape(name="some", sizes={"B": 6, "H": 1, "L": 300}, tags=())
    inputs = {**problem.inputs(shape, seed=1), "lengths": np.array([300, 129, 128, 1, 0, -7], np.int32)}
    found = run(program, inputs, problem.scalars(shape), mode="check" if name.endswith("_sm90") else "fast")
    assert problem.compare(found.outputs, inputs, shape).ok and not found.errors
    assert [int(np.abs(o[0].astype(np.float64)).max(axis=1).nonzero()[0].max(initial=-1)) for o in found.outputs["O"]] == [299, 128, 127, 0, -1, -1]


@pytest.mark.parametrize("name", HOPPER)
def test_tiles_that_follow_one_another_in_a_cta_have_no_hazards(name: str) -> None:
    right(name, 256 if "even" in name else 129, "check")


@pytest.mark.nvcc
@pytest.mark.parametrize("name", COMPILED)
def test_hopper_attention_is_hgmma_and_tma_without_spills(name: str) -> None:
    by = backend("cuda")
    artifact = by.compile(by.emit(made(name)[0]), target("sm_90a"))
    assert artifact.spills == 0
    if artifact.mix:
        assert all(artifact.mix[opcode] > 0 for opcode in ("HGMMA", "UTMALDG", "UTMASTG", "USETMAXREG", "SYNCS"))
        assert "FCHK" not in artifact.mix


@pytest.mark.nvcc
def test_attention_for_ampere_is_mma_sync_and_cp_async_without_spills_and_hazards() -> None:
    right("fmha_causal_sm80", 129, "check")
    by = backend("cuda")
    artifact = by.compile(by.emit(made("fmha_causal_sm80")[0]), target("sm_80"))
    assert artifact.spills == 0
    if artifact.mix:
        assert all(artifact.mix[opcode] > 0 for opcode in ("HMMA", "LDSM", "LDGSTS"))


@pytest.mark.triton
def test_the_loop_of_causal_attention_on_triton_leaves_registers_for_three_ctas_of_a_warpgroup() -> None:
    by = backend("triton")
    (kernel,) = by.compile(by.emit(made("fmha_d128_causal_wide_peeled_triton")[0]), target("sm_90a")).kernels
    assert kernel.registers <= 168 and kernel.spills == 0
