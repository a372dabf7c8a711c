"""How far TileLang's kernels go back with registered passes: attention to the keys one by one, and others' kernels to loops over elements."""
from __future__ import annotations

import pytest

from benchmarks.surfaces.lineages_tilelang import KERNELS, walked
from kir.ir.measures.naive import is_naive
from kir.lineage.convergence import form_hashes
from kir.problem import load_problem
from kir.rewrite.meaning import difference, interpreted
from kir.surface.reading import load_expert
from tests.programs import SKILLS, bound

PACKAGES = {
    "tile_kernels_transpose": ("tile_kernels:transpose/batched_transpose_kernel.py::batched_transpose_kernel", ("stage-shared", "partition-rows"),
                               {"num_batches": 1, "shape_x": 64, "shape_y": 64}),
    "tile_kernels_per_token_cast": ("tile_kernels:quant/per_token_cast_kernel.py::per_token_cast_kernel", ("pack-panels", "tree-reduction", "operand-reuse"),
                                    {"num_tokens": 3}),
    "fla_dplr_cumsum": ("fla:ops/generalized_delta_rule/dplr/backends/tilelang/cumsum.py::chunk_local_cumsum_rect_tl",
                        ("mma", "specialize-tail", "retain-tile"),
                        {"B": 1, "Tt": 70, "H": 1, "K": 5}),
    "tile_kernels_cast_back": ("tile_kernels:quant/cast_back_kernel.py::cast_back_kernel", ("retain-tile", "partition-rows"),
                               {"num_tokens": 5}),
}


def test_attention_goes_back_to_a_softmax_and_a_sum_over_the_keys() -> None:
    expert = bound("fmha/tilelang.py::fmha_forward", "tilelang_fmha")
    way = walked(expert, "fmha", ("partition-rows", "partition-block"))
    found, intents = way.program, way.intents
    problem = load_problem("fmha")
    assert is_naive(found, work_item=problem.work_item, state=problem.state) == ()
    assert {"pipeline", "mma", "stage-shared", "stage-epilogue", "online-normalize", "tile", "predicate"} <= set(intents) and len(intents) >= 20
    sizes = {"B": 1, "H": 1, "L": 70}
    assert difference(interpreted(expert, sizes, 1), interpreted(found, sizes, 1), "rounding-moved(rescaling)") == ""


@pytest.mark.zoo
@pytest.mark.parametrize("name", PACKAGES)
def test_kernels_that_others_wrote_go_back_to_naive(name: str) -> None:
    source, intents, sizes = PACKAGES[name]
    expert = bound(source, name)
    way = walked(expert, "", next(kernel[3] for kernel in KERNELS if kernel[1] == name))
    found = way.program
    assert is_naive(found) == () and set(intents) <= set(way.intents)
    assert difference(interpreted(expert, sizes, 1), interpreted(found, sizes, 1), "reassociated(k)") == ""


@pytest.mark.parametrize(("problem", "surface"), [(p, s) for p in ("softmax", "rmsnorm") for s in ("cuda", "tilelang")])
def test_the_naive_kernel_of_a_surface_is_the_problems_naive_program(problem: str, surface: str) -> None:
    file = {"cuda": "naive.cu", "tilelang": "naive_tilelang.py"}[surface]
    kernel = load_expert(f"{SKILLS}/problems/{problem}/{file}::{problem}_naive", SKILLS / "bindings" / f"{problem}_naive_{surface}.toml").program
    assert form_hashes([kernel]) == form_hashes([load_problem(problem).naive])


def test_the_page_has_a_row_for_each_kernel_and_says_what_the_shipped_lineages_do() -> None:
    from benchmarks.surfaces import lineages_tilelang as page
    rows = {line.split("`")[1]: line for line in page.PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")}
    assert list(rows) == [kernel[0] for kernel in page.KERNELS]
    gated = [kernel for kernel in page.KERNELS if page.shipped(kernel[0]) is not None]
    assert len(gated) >= 8 and all(page.row(*kernel) == rows[kernel[0]] for kernel in gated)
