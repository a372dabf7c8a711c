"""Trials on kernels in which no expert is known to have used a skill: what they start from, and at which sizes they are forecast."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import pytest

from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import expr_text, program_text
from kir.ir.types import DType
from kir.learning.cards.card import FAMILY, Entry, Parameter
from kir.learning.cards.search import Index, Query, _reasons
from kir.learning.cards.use import Application, NearMiss, looked
from kir.learning.evidence.answers import remember
from kir.learning.evidence.archive import read_archive, shipped
from kir.learning.evidence.forwards import forward
from kir.learning.evidence.walked import Walked
from kir.learning.forecast import Analytic, Pair
from kir.learning.induce import transfers
from kir.learning.induce.hypotheses import Hypothesis, hypotheses
from kir.learning.induce.prose import _elsewhere, _parameter, _so_many, told
from kir.learning.induce.transfers import Transfer, _in_words_of, led, operators, problems, simplest, sizes_at, starts
from kir.learning.induce.trials import LED, OWN_STATE, UNSAID, came_to, decided, how_tried, sizes_of, tried
from kir.learning.induce.uses import uses
from kir.learning.optimize.words import renamed
from kir.learning.tune.space import find_space
from kir.problem import load_problem
from kir.rewrite import Context, pass_class, run, sites
from tests.kir.learning.cards.test_card import a_card


def host(name: str) -> Walked:
    return next(each for each in problems() if each.problem == name)


def named(problem: str, names: dict[str, str]) -> Transfer:
    """A problem's naive program with its sizes named otherwise, as the words of a plan name them."""
    own = load_problem(problem).naive
    return Transfer(host(problem), renamed(own, names), "cuda", names={new: old for old, new in names.items()})


@pytest.mark.parametrize("names", ({"M": "rows", "N": "columns"}, {"M": "N", "N": "M"}, {"K": "M", "M": "K"}))
def test_a_host_in_the_words_of_a_plan_is_profiled_at_the_sizes_of_its_own_problem(names: dict[str, str]) -> None:
    each = named("gemm", names)
    own = load_problem("gemm").naive
    assert sizes_of(host("gemm"), own) == {"M": 4096, "N": 4096, "K": 4096}, "the first timed shape"
    told = with_fact(each.before, names.get("N", "N"), 1040)  # of the timed shapes one has as many columns, and other numbers of rows and terms
    tall = sizes_at(each, told)
    assert tall == {names.get("M", "M"): 8000, names.get("N", "N"): 1040, names.get("K", "K"): 2056}
    assert {p.name for p in told.params if isinstance(p.of, DType) and p.role == "size"} == tall.keys(), "every size of the program, by its own name"
    faster = with_fact(own, "N", 1040)
    seen, same = (Analytic()(Pair(before, run(before, "multi-threaded-block{threads=128}").program, sizes, target("sm_90a"), surface="cuda"))
                  for before, sizes in ((told, tall), (faster, sizes_of(host("gemm"), faster))))
    assert seen.median == same.median, "what it is called changes no forecast"


def with_fact(program: Program, size: str, value: int) -> Program:
    return parse_program(program_text(program).replace("kernel ", f"  fact {size} == {value}\nkernel ", 1))


def test_a_trial_that_a_plan_led_to_knows_what_its_host_calls_its_sizes() -> None:
    walk = forward(find_space("gemm_tilelang"))
    card = next(each.card for each in hypotheses((walk,), uses((walk,))) if each.card.name == "tile.kernel")
    others = list(islice((each for each in led(card, (walk,)) if each.walked.problem), 4))
    assert others
    for each in others:
        words = _in_words_of(walk.program(walk.transitions[0].before_text), load_problem(each.walked.problem).naive)
        assert each.names == words.names
        own = sizes_of(each.walked, load_problem(each.walked.problem).naive)
        sizes = sizes_at(each, each.before)
        assert sorted(sizes.values()) == sorted(own.values()), each.walked.kernel
        assert {p.name for p in each.before.params if p.role == "size"} <= sizes.keys(), "or nothing can be forecast of it"


def test_kernels_are_tried_in_turns_over_their_families(walks: Sequence[Walked]) -> None:
    own = tuple(each for each in walks if each.family == "softmax")
    card = next(each.card for each in hypotheses(own, uses(own)) if each.card.name == "multi-threaded-block.kernel")
    norm, copy = (next(each for each in walks if each.family == family) for family in ("norm", "copy"))
    many = [each.model_copy(update={"kernel": f"{each.kernel} {k}", "package": "other"}) for each in (norm, copy) for k in range(3)]
    assert [each.walked.family for each in starts(card, [*own, *many])] in (["norm", "copy"] * 3, ["copy", "norm"] * 3)


def test_states_of_its_own_walk_are_in_a_kernels_own_words(walks: Sequence[Walked]) -> None:
    own = tuple(each for each in walks if each.family == "softmax")
    card = next(each.card for each in hypotheses(own, uses(own)) if each.card.name == "multi-threaded-block.kernel")
    assert all(not each.names and sizes_at(each, each.before) == sizes_of(each.walked, each.before) for each in starts(card, walks))


def test_a_skill_that_pays_in_its_own_families_alone_is_admitted_for_these(found: dict[str, Hypothesis]) -> None:
    each = found["partition-rows.for"]
    good, = tried(each.lift, each.uses)[:1]
    own = [good.model_copy(update={"kernel": f"own {k}", "skill": True, "without": False}) for k in range(3)]
    others = [good.model_copy(update={"kernel": f"other {k}", "skill": False, "without": False}) for k in range(3)]
    families = {f"own {k}": each.card.scope.families[0] for k in range(3)} | {f"other {k}": "sorting" for k in range(3)}
    assert decided(each.card, [*own, *others]).state == "hypothesis", "nothing is known of the kernels' families"
    card = decided(each.card, [*own, *others], families)
    says, = (p for p in card.preconditions if p.category == FAMILY)
    assert card.state == "admitted" and "elsewhere 0 of 3 trials succeeded" in card.why and (says.kind, says.proved, says.refused) == ("profit", 3, 3)
    assert "It pays where the kernel is of" in told(card, each.uses)
    query = Query(frozenset(), frozenset(), case="sorting")
    assert any(why.startswith("profit: only where") for why in _reasons(card, query, Index.of([card]).columns(query)[0]))
    assert decided(each.card, [*own[:2], *others], families).state == "hypothesis", "two trials say too little"
    assert decided(each.card, [*own, *others], dict.fromkeys(families, "sorting")).state == "hypothesis", "none is of its families"
    lucky = [t.model_copy(update={"without": True}) for t in own]
    assert decided(each.card, [*lucky, *others], families).state == "hypothesis", "no better than without it"


def test_a_host_on_which_neither_arm_takes_what_follows_is_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan for attention without a mask cannot tile causal attention, whatever was done before; it takes other layouts whole."""
    monkeypatch.setattr(transfers, "MOST_LED", 16)
    walk = next(each for each in read_archive(shipped()) if each.kernel == "pipelines/fmha_tilelang")
    card = next(each.card for each in hypotheses((walk,), uses((walk,))) if each.card.name == "guard-value.let")
    hosts = {each.walked.kernel for each in led(card, (walk,))}
    assert {"problems/attention_bshd", "problems/cross_attention", "problems/image_attention"} <= hosts
    assert hosts.isdisjoint({"problems/gqa_attention", "problems/mla_prefill", "problems/mqa_d256"})


def test_an_algorithm_of_one_family_is_tried_where_it_is_a_part_of_more() -> None:
    walk = next(each for each in read_archive(shipped()) if each.kernel == "pipelines/trisolve_cuda")
    card = next(each.card for each in hypotheses((walk,), uses((walk,))) if each.card.name.startswith("blocked-solve"))
    assert {each.walked.kernel for each in led(card, (walk,))} == {"operators/solve_heads", "operators/solve_scaled", "operators/delta_values"}
    walk = next(each for each in read_archive(shipped()) if "kkt_solve" in each.kernel and each.transitions)
    remember((walk,))
    card = next(each.card for each in hypotheses((walk,), uses((walk,))) if each.card.name == "chunk-inverse.kernel")
    assert any(each.name == "order" and each.role == "chosen" for each in card.carrier.steps[0].parameters), "of three axes; a host of two has no use for it"
    assert {each.walked.kernel for each in led(card, (walk,))} == {"operators/inverse_heads", "operators/inverse_sequences", "operators/inverse_shared"}


def test_an_axis_by_which_a_loop_is_as_long_as_it_is_goes_with_its_like_in_another_kernel() -> None:
    """Tokens of a chunk are the second axis of the one and the third of the other, whose heads have no keys in common."""
    walk = next(each for each in read_archive(shipped()) if "kkt_solve" in each.kernel and each.transitions)
    made = _in_words_of(simplest(walk), simplest(next(each for each in operators() if each.kernel == "operators/inverse_sequences"))).program
    assert {a.name: expr_text(a.extent) for a in made.kernels[0].grid}["t"] == "num_tokens" and sites(pass_class("chunk-inverse").with_options({}), made)


def test_an_answer_is_chosen_of_those_that_kernels_had_and_one_that_is_not_here_is_a_near_miss() -> None:
    some = [each for each in read_archive(shipped()) if each.kernel in ("topk_radix.kir", "pipelines/topk_rows", "pipelines/topk_triton")]
    card = next(each.card for each in hypotheses(some, uses(some)) if each.card.name == "radix-select.kernel")
    (answer,) = [each for move in card.carrier.steps for each in move.parameters if each.name == "answer"]
    assert answer.role == "chosen" and {"bits", "rows(threads=1024, items=4, room=4096, bits=11)"} < set(answer.values)
    found = list(looked(card, simplest(next(each for each in operators() if each.kernel == "operators/topk_beams")), Context(target("sm_90a"))))
    here = {value for value in answer.values if str(value).startswith(("bits", "rows"))}
    assert {each.steps[0].options["answer"] for each in found if isinstance(each, Application)} == here
    assert ["KIR-H142" in each.conditions[0] for each in found if isinstance(each, NearMiss)] == [True]


def test_how_a_skill_was_tried_is_said_once_and_not_in_each_row() -> None:
    def trial(outcome: str, won: bool = False) -> Entry:
        return Entry(what="trial", kernel="k", outcome=outcome, skill=won, without=False)
    led_to = trial(f"{LED} `gemm.kir`, what came after it there follows in both arms: forecast 1.14 times as fast, the best of 5 tries", True)
    own, lifted = trial(f"{OWN_STATE}: forecast 1 times as fast, the best of 8 tries"), trial("lifted from 21 other kernels: no place")
    unsaid = trial(f"{LED} `gemm.kir`, what came after it there follows in both arms: {UNSAID}")
    assert [*map(came_to, (led_to, own, lifted, unsaid))] == [
        "plan of `gemm.kir`: best of 5 tries", "its own walk: best of 8 tries", "lifted from 21 other kernels: no place", f"plan of `gemm.kir`: {UNSAID}"]
    said = how_tried((led_to, own, lifted))
    assert all(f"*{kind}*:" in said for kind in ("lifted from", "plan of", "its own walk")) and "*plan of*" not in how_tried((own,))
    assert "nothing is known" in decided(a_card(), ()).why and decided(a_card(), (led_to,)).why.startswith("1 of 1 held-out trials succeeded, 0 without")
    tally = "{} of {} trials on other kernels succeeded, {} without the skill"
    assert [_elsewhere(tally.format(*row)) for row in ((0, 2, 1), (0, 1, 0), (2, 3, 0))] == [
        "of 2 on other kernels none did (1 did without it)", "the one on another kernel did not", "of 3 on other kernels 2 did"]
    assert [_so_many(so, of, "use") for so, of in ((1, 1), (2, 2), (5, 5), (0, 3), (1, 3))] == [
        "its one use", "both uses", "all 5 uses", "none of 3 uses", "1 of 3 uses"]
    answer = Parameter(name="answer", role="chosen", values=("e63841a12d6f42d3",), kernels=(1,))
    assert "was recognized in the kernel by what it computes" in _parameter("", answer, 1)
    several = answer.model_copy(update={"values": ("bits", *answer.values), "kernels": (2, 1)})
    assert _parameter("", several, 3) == ("`answer` is chosen for each kernel: `bits` in 2 kernels, `e63841a12d6f42d3` in 1; one under a hash was recognized "
                                          "in its kernel by what it computes.")
