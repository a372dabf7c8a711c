"""Steps learned on one kernel, taken on another."""
from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.visit import statements, walk
from kir.learning.optimize import lift
from kir.learning.optimize.lift import Left, Lifted, lifted, taken
from kir.learning.optimize.plan import Setting
from kir.learning.optimize.schedules.scans import ScanSource
from kir.learning.optimize.sources import LineageSource, PipelineSource, loop_sizes, narrowing
from kir.learning.optimize.words import in_words_of, renamed
from kir.learning.tune.rank import promised
from kir.learning.tune.space import find_space
from kir.problem import Shape, load_problem
from kir.rewrite import Context, Step, pass_class
from kir.rewrite.anchor import anchor_text

H200 = target("h200")


def of_family(problem: str, shape: str, family: str, surface: str) -> Lifted:
    """What the first plan of a family makes of a problem's naive program."""
    posed = load_problem(problem)
    setting = Setting(posed, posed.shape(shape), H200, surface)
    source = PipelineSource((find_space(family),)) if surface and not family.endswith("_lineage") else LineageSource()
    plan = next(p for p in source.plans(posed.naive, setting) if p.family == family.removesuffix("_lineage"))
    assert plan.home is not None
    own = posed.naive if plan.promises == "home" else promised(posed.naive, plan.facts, plan.align)
    words = in_words_of(plan.home, own)
    base = promised(words.program, plan.facts, plan.align) if plan.promises == "home" and plan.facts else words.program
    done = lifted(base, plan, setting.context)
    return Lifted(words.back(done.program), done.steps, done.left, done.unproved)


def via(program: n.Program) -> set[str]:
    return {s.via for k in program.kernels for s in statements(k.body) if isinstance(s, n.Mma)}


def test_a_product_with_a_bias_takes_the_whole_hopper_pipeline() -> None:
    done = of_family("addmm:bf16", "square", "gemm_sm90", "cuda")
    assert not done.left and len(done.steps) == 26 and not done.unproved
    assert "wgmma" in via(done.program)


def test_a_product_that_launches_columns_first_is_said_rows_first_as_its_plans_are() -> None:
    """Steps know an axis by its number; what has threads already is left as it is launched."""
    naive = load_problem("gemm").naive
    (kernel,) = naive.kernels
    turned = replace(kernel, grid=kernel.grid[::-1])
    for threads, grid in ((kernel.threads, kernel.grid), (const(32), turned.grid)):
        own = replace(naive, kernels=(replace(turned, threads=threads),))
        assert [a.extent for a in in_words_of(naive, own).program.kernels[0].grid] == [a.extent for a in grid]
    attention, (rows, heads, _) = load_problem("fmha").naive, load_problem("fmha").naive.kernels[0].grid
    own = parse_program(program_text(attention).replace("grid (i: L, h: H, b: B)", "grid (b: B, h: H, i: L)"), "turned.kir")
    assert [a.name for a in in_words_of(attention, own).program.kernels[0].grid][:2] == [rows.name, heads.name]


def test_a_batched_product_takes_the_whole_hopper_pipeline_in_one_line_of_tiles() -> None:
    done = of_family("bmm:bf16", "batch16", "gemm_sm90", "cuda")
    assert not done.left and len(done.program.kernels[0].grid) == 1
    assert "wgmma" in via(done.program) and all(t.box[0] == 1 for t in done.program.tensor_maps)


def test_causal_attention_does_without_masks_before_the_diagonal() -> None:
    done = of_family("fmha_causal", "long", "fmha_causal_even_triton", "triton")
    loops = [s for k in done.program.kernels for s in statements(k.body) if isinstance(s, n.For)]
    assert not done.left and not done.unproved
    assert [any(isinstance(x, n.Select) for s in loop.body for x in walk(s)) for loop in loops] == [False, True]


def test_rows_of_a_norm_may_share_a_cta() -> None:
    posed = load_problem("softmax")
    setting = Setting(posed, posed.shape("long"), H200, "triton")
    plans = [p for p in LineageSource(only=("softmax_tilelang",)).plans(posed.naive, setting) if p.point.get("tile.extent") == 4]
    plan = next(p for p in plans if "cache-policy.policy" in p.point)
    words = in_words_of(plan.home or posed.naive, promised(posed.naive, plan.facts, plan.align))
    made = lifted(words.program, plan, setting.context)
    assert [s.name for s in made.steps].count("tile") == 1 and "cache-policy" in {s.name for s in made.steps}


def test_attention_with_shared_heads_takes_what_attention_does() -> None:
    done = of_family("fmha_gqa", "long", "fmha_tilelang", "tilelang")
    assert not done.left and via(done.program) == {"auto"}
    assert [p.name for p in done.program.params] == [p.name for p in load_problem("fmha_gqa").naive.params]


def test_attention_laid_out_otherwise_takes_what_attention_does() -> None:
    """Heads innermost, and sequences first: what is tiled are the queries, whichever axis of a tensor they are."""
    for problem, own in (("attention_bshd", "Q[b, i, h, d]"), ("cross_attention", "Q[i, b, h, d]")):
        home, words = load_problem("fmha").naive, in_words_of(load_problem("fmha").naive, load_problem(problem).naive).program
        assert [a.name for a in words.kernels[0].grid] == [a.name for a in home.kernels[0].grid] and own in program_text(words)
        done = of_family(problem, "long", "fmha_tilelang", "tilelang")
        assert not done.left and "i_tile * 192 +: 192" in program_text(done.program)


def test_steps_are_taken_with_the_kernels_own_factors() -> None:
    """Attention scaled by 1 / sqrt(192) takes the steps that were written for 1 / 8, as they are and folded into powers of two."""
    done = of_family("mla_prefill", "long", "fmha_causal_triton", "triton")
    assert {s.name: s.options["scale"] for s in done.steps if "scale" in s.options} == {"fold-maximum-scale": 0.07216878, "online-normalize": 0.10411754}


def test_layer_norm_takes_the_steps_of_rms_norm_and_guards_what_it_folds() -> None:
    done = of_family("layernorm:bf16", "long", "rmsnorm_tilelang_lineage", "cuda")
    names = [s.name for s in done.steps]
    assert names.count("mask-tail") == 3 and "guard-value" in names
    assert not any(isinstance(s, n.For) for k in done.program.kernels for s in statements(k.body))


def test_a_residual_norm_takes_the_steps_of_rms_norm_though_its_loops_do_several_things() -> None:
    """What a loop only names is written out where a sum is looked for; a loop with two stores is spread by the pass that takes several statements."""
    done = of_family("fused_add_rmsnorm:bf16", "long", "rmsnorm_tilelang_lineage", "triton")
    assert {(s.name, s.direction) for s in done.steps} >= {("reuse-operand", "backward"), ("tree-reduction", "forward"), ("partition-block", "forward")}
    assert not any(isinstance(s, n.For) and s.kind == "serial" for k in done.program.kernels for s in statements(k.body))


def test_what_does_not_apply_is_told_with_its_reason() -> None:
    naive = load_problem("softmax").naive
    said = taken(naive, Step("wgmma", at="main/max_loop"), Context(H200))
    assert isinstance(said, Left) and said.pass_name == "wgmma" and said.reason


TINY = """
kir 1
program copy
  size K: i32
  size N: i32
  in B: f32[K, N]
  out A: f32[K, N]
kernel go grid (i: K) threads 1
  for j in 0..N
    A[i, j] = B[i, j] * 2.0
"""


def test_a_plan_comes_to_the_same_with_what_is_known_of_its_first_steps_and_ends_where_it_is_told_to() -> None:
    posed = load_problem("rmsnorm")
    setting = Setting(posed, posed.shapes[-1], H200, "triton")
    plan = next(p for p in PipelineSource((find_space("gemm_triton"),)).plans(posed.naive, setting))
    alone, known = lifted(posed.naive, plan, setting.context), dict[tuple[str, ...], Any]()
    for some in (plan, replace(plan, steps=plan.steps[:4]), plan):
        assert lifted(posed.naive, some, setting.context, known).program == lifted(posed.naive, some, setting.context).program
    assert len(alone.left) > 2 and all(each.reason for each in alone.left)
    for most in (0, 1, len(alone.left)):
        quick = lifted(posed.naive, plan, setting.context, known, most)
        assert [each.step for each in quick.left] == [each.step for each in alone.left][:most + 1]
    assert quick.program == alone.program


@pytest.mark.parametrize("name", ["softmax", "rmsnorm", "gemm"])
def test_the_nearest_places_are_those_of_all(name: str) -> None:
    program = load_problem(name).naive
    for step in (Step("reuse-operand", {"value": "X[i, j]"}, f"{program.kernels[0].name}/body.0"), Step("multi-threaded-block", {"threads": 64}, "other"),
                 Step("partition-rows", {"threads": 32}, f"{program.kernels[0].name}/j"), Step("unroll", {"factor": 2}, f"{program.kernels[0].name}/k")):
        texts = {k: v for k, v in step.options.items() if lift.names_things(v)}
        numbers = {k: v for k, v in step.options.items() if k not in texts}
        rows = []
        for number, site in enumerate(lift._open_sites(program, pass_class(step.name), numbers, texts)):
            alike = [lift.alike(str(texts[k]), str(getattr(site.params, k))) for k in texts]
            if all(getattr(site.params, k) == v for k, v in numbers.items()) and min(alike, default=1.0) >= lift.LEAST_LIKE:
                rows.append((-lift.alike(step.at, anchor_text(program, site.path)) - 2 * sum(alike), number, site))
        assert lift._nearest(program, step) == [site for _, _, site in sorted(rows, key=lambda row: row[:2])[:lift.NEAREST]]


def test_words_of_another_and_back() -> None:
    text = TINY.replace("copy", "twice").replace("K", "M").replace("B", "X").replace("A", "Y").replace("go", "main")
    other = parse_program(text.replace(" j ", " k ").replace(", j]", ", k]"))
    program = parse_program(TINY)
    words = in_words_of(other, program)
    assert [k.name for k in words.program.kernels] == ["main"]
    assert {p.name for p in words.program.params} == {p.name for p in other.params}
    assert words.back(words.program) == program or {p.name for p in words.back(words.program).params} == {p.name for p in program.params}


def test_names_that_change_places_do_not_clash() -> None:
    program = parse_program(TINY)
    swapped = renamed(program, {"A": "B", "B": "A"})
    assert [p.name for p in swapped.params] == ["K", "N", "A", "B"]
    assert renamed(swapped, {"A": "B", "B": "A"}) == program


@pytest.mark.parametrize(("size", "facts"), [(4096, ("N >= 1", "N <= 4096", "N % 16 == 0")), (5000, ("N >= 1", "N <= 8192", "N % 8 == 0")),
                                             (37, ("N >= 1", "N <= 64"))])
def test_promises_hold_at_the_sizes_that_they_are_made_for(size: int, facts: tuple[str, ...]) -> None:
    problem = load_problem("softmax")
    shape = problem.shapes[0].model_copy(update={"sizes": {"M": 4, "N": size}})
    assert loop_sizes(problem.naive) == ("N",)
    assert narrowing(problem.naive, Setting(problem, shape, H200, "cuda")) == facts


SUMS = """kir 1
program sums
  size M: i32
  size N: i32
  in X: f32[M, N]
  out Y: f32[M, N]
  fact N >= 1
  fact N <= 1024
kernel main grid (row: M) threads 1
{body}
"""
RUNNING = "  register total: f32 = 0.0\n  for j in 0..N\n    total = total + X[row, j]\n    Y[row, j] = total"


def test_running_sums_become_scans_of_tiles_and_what_has_none_has_no_such_plan() -> None:
    at = Shape(name="asked", tags=("timed",), sizes={"M": 64, "N": 1000})
    setting = Setting(cast(Any, SimpleNamespace(dtype="f32")), at, target("h200"), "triton")
    program = parse_program(SUMS.format(body=RUNNING))
    plans = [*ScanSource().plans(program, setting)]
    assert plans and {p.point["extent"] for p in plans} == {1024} and all("N <= 1024" in p.facts for p in plans)
    for plan in plans:
        found = lifted(program, plan, setting.context)
        assert not found.left and "scan(" in program_text(found.program) and "for " not in program_text(found.program)
    assert not [*ScanSource().plans(parse_program(SUMS.format(body="  Y[row, 0] = X[row, 0]")), setting)]
