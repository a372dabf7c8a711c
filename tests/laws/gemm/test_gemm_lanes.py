"""The sm_80 GEMM as CUDA spells it, lane by lane: raised to tiles and lowered again exactly, and walked back to naive, each state as CUDA."""
from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.canonical import alpha_equal
from kir.ir.measures.measure import decreases
from kir.ir.measures.naive import is_naive
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import verify
from kir.ir.visit import statements
from kir.lineage.engine import PassEngine
from kir.problem import load_problem
from kir.rewrite import Applied, apply, sites
from kir.rewrite.driver import forward_site
from kir.rewrite.meaning import difference, interpreted
from kir.rewrite.registry import pass_class
from kir.surface import backend
from tests.programs import EXPERTS, normal

LANES = EXPERTS / "gemm" / "gemm_sm80_lanes.kir"
SIZES = {"M": 3, "N": 8, "K": 40}


def raised(p: n.Program) -> Applied:
    """The tile program of a kernel of threads."""
    item = pass_class("lower-mma").with_options({})
    (site,) = sites(item, p, "backward")
    return apply(p, site.params, site, "backward")


def lowered(p: n.Program) -> n.Program:
    item = pass_class("lower-mma").with_options({})
    return item.forward(p, forward_site(p, item, (p.kernels[0].name,)))


@cache
def walk() -> tuple[Applied, ...]:
    """Every step to naive, as the lineage takes them."""
    problem = load_problem("gemm")
    engine = PassEngine({"work_item": problem.work_item, "state": problem.state})
    p, out = normal(LANES), []
    while is_naive(p, problem.work_item, problem.state):
        for candidate in engine.candidates(p, ("partition-rows",)):
            try:
                done = apply(p, candidate.handle.params, candidate.handle, "backward")
            except KirError:
                continue
            if decreases(p, done.program) and not backend("cuda").accepts(done.program):
                break
        else:
            break
        out.append(done)
        p = done.program
    return tuple(out)


def states() -> Iterator[n.Program]:
    yield normal(LANES)
    yield from (done.program for done in walk())


def test_the_tiles_of_the_lanes_are_the_tile_expert() -> None:
    tiles = raised(normal(LANES)).program
    kernel = tiles.kernels[0]
    assert [s.label for s in kernel.body if s.label] == ["prologue", "k_loop", "stage_C", "store_C"]
    assert sum(isinstance(s, n.For) and s.kind == "warp" for x in kernel.body if isinstance(x, n.For) for s in x.body) == 1
    assert alpha_equal(tiles, raised(lowered(tiles)).program)


def test_forward_gives_the_lanes_again() -> None:
    p = normal(LANES)
    done = raised(p)
    there = forward_site(done.program, done.witness.params, done.witness.path)
    assert apply(done.program, there.params, there, left=done.witness.residue).program == p


def test_names_bare_loops_and_written_out_swizzles_are_parameters() -> None:
    path = Path(__file__).with_name("gemm_by_hand.kir")
    p = normal(path)
    done = raised(p)
    assert {"bare": True, "explicit": True}.items() <= done.witness.params.options().items()
    assert "layout swizzle(2, 4, 3)" in program_text(done.program)
    there = forward_site(done.program, done.witness.params, done.witness.path)
    assert apply(done.program, there.params, there, left=done.witness.residue).program == p


def test_it_ends_in_a_naive_program_by_steps_of_many_intents() -> None:
    problem = load_problem("gemm")
    assert is_naive(walk()[-1].program, problem.work_item, problem.state, kernels=1) == ()
    intents = {done.witness.params.intent for done in walk()}
    assert len(walk()) >= 20 and intents >= {"async-copy", "pipeline", "swizzle-shared", "vectorize-global", "ldmatrix", "mma", "unroll",
                                             "stage-shared", "stage-epilogue", "warp-partition", "register-tile", "lower-mma"}


def test_every_state_is_written_as_cuda() -> None:
    for p in states():
        assert backend("cuda").accepts(p) == ()


def test_raising_undoes_lowering_on_every_state_of_several_threads() -> None:
    item = pass_class("lower-mma").with_options({})
    tried = 0
    for p in list(states())[1:]:
        kernel = p.kernels[0]
        if any(isinstance(x, n.Mma) for x in statements(kernel.body)) and build.int_value(kernel.threads) != 1:
            apply(p, item, forward_site(p, item, (kernel.name,)))  # refused (KIR-R006) unless backward gives `p` again
            tried += 1
    assert tried >= 18


def test_lowered_states_mean_the_same_and_are_free_of_hazards() -> None:
    item = pass_class("lower-mma").with_options({})
    by_adds = 0
    for p in list(states())[1:]:
        kernel = p.kernels[0]
        if not any(isinstance(x, n.Mma) for x in statements(kernel.body)) or item.match(p, (kernel.name,), kernel) is None:
            continue
        by_adds += "via fma" in program_text(p)
        if "via fma" in program_text(p) and by_adds not in (1, 5):
            continue
        made = lowered(p)
        assert [d for d in verify(made) if d.severity == "error"] == []
        assert difference(interpreted(p, SIZES), interpreted(made, SIZES), "reassociated(k)") == ""
        if "via fma" not in program_text(p):
            assert interpreted(made, SIZES, checked=True).errors == ()


def test_a_product_of_several_warps_says_first_which_warp_does_what() -> None:
    text = """kir 1
program p
  in A: f16[64, 32]
  in B: f16[32, 64]
  out C: f32[64, 64]
kernel main grid (i: 1) threads 128
  fragment acc: f32[64, 64] = 0.0
  mma acc += A * B via mma_sync
  C = acc
"""
    q = parse_program(text, "p.kir")
    item = pass_class("lower-mma").with_options({})
    with pytest.raises(KirError, match="warp-partition"):
        forward_site(q, item, ("main",))
