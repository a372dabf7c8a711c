"""What is proved for every size is right, and what is wrong is never proved."""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kir.analysis.facts import Facts
from kir.analysis.proof import decide
from kir.analysis.proof.asking import question
from kir.analysis.proof.asking.terms import Terms
from kir.analysis.proof.decide import decided, unordered
from kir.analysis.proof.indices.numbered import equal_parts
from kir.base.diagnostic import KirError, UsageError
from kir.gate.mutants import spread
from kir.gate.proved import proved
from kir.gate.proved.confirm import OF_RUN
from kir.gate.proved.drawn import random_inputs
from kir.interp import run
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.printer import expr_text
from kir.ir.types import I32
from kir.ir.visit import substitute
from tests.kir.interp.findings.mutation import mutants
from tests.programs import EXPERTS
from tests.red_team.pairs import LAST

from . import programs_asynchronous as asynchronous
from .programs import HEAD, RIGHT, WRONG, right, wrong

SIZES = ({"N": 5, "K": 3, "M": 4}, {"N": 70, "K": 2, "M": 3})
OF_RINGS = ({"N": 3, "K": 5, "M": 70}, {"N": 2, "K": 112, "M": 200})
AT_THE_END = "when the program ends"
"""That an output is written everywhere is no obligation of `kir check`: the gate's oracle sees what is missing."""


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_is_proved(name: str) -> None:
    done = proved(right(name))
    assert done.verdict == "proved", done.findings
    assert done.status("overflow") == "proved"


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_is_refuted_by_a_run(name: str) -> None:
    program, kind = wrong(name)
    done = proved(program)
    assert done.status(kind) == "refuted", done.findings  # type: ignore[arg-type]  # one of the kinds
    found = next(f for f in done.findings if f.kind == kind and f.status == "refuted")
    assert found.sizes and found.shown
    assert done.verdict == ("proved" if kind == "overflow" else "refuted")


@pytest.mark.parametrize("name", [*RIGHT][:2] + [*WRONG][:6])
def test_what_is_first_out_of_order_is_said_alone_as_it_is_beside_all_else(name: str) -> None:
    program = right(name) if name in RIGHT else wrong(name)[0]
    for proof in decided(program):
        alone, beside = unordered(program, proof.kernel), next((o for o in proof.obligations if o.kind in decide.ORDERED and o.status != "proved"), None)
        assert (alone is None) == (beside is None)
        if alone is not None and beside is not None:  # of any values that show it, another question may come to others
            assert replace(alone, values={}) == replace(beside, values={})


def _mutants() -> Iterator[tuple[str, n.Program]]:
    for name in RIGHT:
        for m in mutants(right(name)):
            yield f"{name}: {m.name}", m.program
        for other in spread(right(name), 12):
            if other.program is not None:
                yield f"{name}: {other.name}", other.program


def _found(program: n.Program, many: tuple[dict[str, int], ...] = SIZES) -> set[str]:
    """The kinds of hazards that runs show."""
    kinds: set[str] = set()
    for sizes in many:
        own = {p.name for p in program.params}
        try:
            arrays, scalars = random_inputs(program, {k: v for k, v in sizes.items() if k in own}, 0)
            result = run(program, arrays, scalars, mode="check", most_steps=3000)
        except KirError:
            continue
        kinds |= {OF_RUN[f.kind] for f in result.errors if f.kind in OF_RUN and AT_THE_END not in f.message}
    return kinds


def test_no_mutant_that_a_run_finds_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question, "OF_KERNEL", 600_000)  # what is right takes less
    assert len(_found_and_not_proved(_mutants(), SIZES)) >= 10


def _found_and_not_proved(many: Iterable[tuple[str, n.Program]], sizes: tuple[dict[str, int], ...]) -> list[str]:
    """The programs in which runs find a hazard, of none of which that hazard is proved not to be there. Where runs find nothing, nothing is asked."""
    found = [(name, program, kinds) for name, program in many if (kinds := _found(program, sizes))]
    missed = []
    for name, program, kinds in found:
        done = proved(program, 0)
        missed += [(name, kind) for kind in kinds if done.status(kind) == "proved"]  # type: ignore[arg-type]  # one of the kinds
    assert not missed
    return [name for name, _, _ in found]


@pytest.mark.parametrize("name", asynchronous.RIGHT)
def test_a_right_asynchronous_program_is_proved(name: str) -> None:
    done = proved(asynchronous.right(name), 0)
    assert done.verdict == "proved", done.findings


@pytest.mark.parametrize("name", asynchronous.WRONG)
def test_no_wrong_asynchronous_program_is_proved(name: str) -> None:
    program, kind = asynchronous.wrong(name)
    tiles = asynchronous.WRONG[name][0] in ("products", "ring of tiles")
    found = _found(program, tuple({**s, "K": 16 * (k % 2) + 64} if tiles else {**s, "K": k} for s, k in zip(OF_RINGS, (5, 8), strict=True)))
    done = proved(program, 0)
    assert (kind in found) != (name in asynchronous.UNSEEN), found
    assert not {k for k in {*found, kind} if done.status(k) == "proved"}  # type: ignore[arg-type]  # kinds


def test_no_mutant_of_an_asynchronous_program_that_a_run_finds_is_proved() -> None:
    many = ((m.name, m.program) for name in ("groups of threads", "ring") for m in mutants(asynchronous.right(name)))
    assert len(_found_and_not_proved(many, OF_RINGS[:1])) >= 10


@pytest.mark.parametrize(("name", "runs"), [("softmax/softmax", 6), ("rmsnorm/rmsnorm", 6), ("fmha/fmha_sm90", 0)])
def test_an_expert_is_proved(name: str, runs: int) -> None:
    done = proved(parse_program((EXPERTS / f"{name}.kir").read_text()), runs)
    assert done.verdict == "proved", done.findings


def test_what_is_not_followed_is_not_decided() -> None:
    """That all come to a named barrier is proved; what it orders is left out, and what needs that is not decided."""
    ring, last = HEAD + asynchronous.RIGHT["ring"], "        Y[b, w * 32 +: 32] = sum\n"
    sync = "        named_barrier_sync(1, 64)\n"
    exchanged = f"        s[0, w * 32 +: 32] = sum\n{sync}        Y[b, w * 32 +: 32] = s[0, 32 - w * 32 +: 32]\n"
    for text, race in ((ring.replace(last, sync + last), "proved"), (ring.replace(last, exchanged), "undecided")):
        done = proved(parse_program(text), 0)
        assert {done.status("ring"), done.status("barrier")} == {"proved"}
        assert done.verdict == done.status("race") == race
        assert all(f.why or f.shown for f in done.findings)


TURNS = ("    if wg == 0\n      named_barrier_arrive(1, 256)\n    @k for k in 0..K\n      named_barrier_sync(wg + 1, 256)\n",
         "      named_barrier_arrive((wg + 1) % 2 + 1, 256)\n"
         "    named_barrier_sync(wg + 1, 256)\n    if wg != 1\n      named_barrier_arrive(wg + 2, 256)\n")


@pytest.mark.parametrize(("begin", "end", "why"), [
    ("    @k for k in 0..K\n      named_barrier_sync(3, 256)\n", "", ""),
    (TURNS[0].replace("wg == 0", "wg == 1"), TURNS[1], ""),
    ("    @k for k in 0..K\n      if wg == 0\n        named_barrier_sync(3, 256)\n      else\n        named_barrier_arrive(3, 256)\n", "",
     "arrives for the next"),
    ("    @k for k in 0..K\n      if wg == 0\n        named_barrier_sync(3, 256)\n      else\n        named_barrier_sync(4, 256)\n",
     "      if wg == 0\n        named_barrier_sync(4, 256)\n      else\n        named_barrier_sync(3, 256)\n", "does not wait for itself"),
    ("    @k for k in 0..K\n      if X[b, k, wg] > 0.0\n        named_barrier_sync(3, 256)\n", "", "how often barrier 3 is used"),
    ("    @k for k in 0..K\n      named_barrier_sync(k, 256)\n", "", "which named barrier it is"),
    ("    @k for k in 0..K\n      barrier()\n      named_barrier_sync(3, 256)\n", "", "")])
def test_turns_at_named_barriers_are_proved_or_not_decided_with_why(begin: str, end: str, why: str) -> None:
    text = asynchronous.RIGHT["turns"]
    assert TURNS[0] in text and TURNS[1] in text
    done = proved(parse_program(HEAD + text.replace(TURNS[0], begin).replace(TURNS[1], end)), 0)
    assert done.status("barrier") == done.status("ring") == ("undecided" if why else "proved")
    assert not why or any(why in f.why for f in done.findings), done.findings


CLUSTER = """  size N: i32
  in X: f32[N, 32]
  out Y: f32[N, 32]
kernel main grid (b: N) threads 32 cluster (2)
  shared s: f32[32]
  @t for t in 0..32 parallel thread
    s[t] = X[b, t]
    barrier()
    {}Y[b, t] = s[31 - t]
"""


@pytest.mark.parametrize(("old", "new", "verdict"), [("", "", "proved"), ("    barrier()\n", "", "refuted"),
                                                     ("{}", "cluster_arrive()\n    cluster_wait()\n    ", "undecided")])
def test_ctas_of_a_cluster_that_exchange_nothing_are_as_others(old: str, new: str, verdict: str) -> None:
    assert proved(parse_program(HEAD + CLUSTER.replace(old, new, 1).replace("{}", "")), 2).verdict == verdict


@pytest.mark.parametrize("facts", [
    ("N < 4", "N % 8 == 5"), ("N >= 1", "N * N == 2"), ("N == 3", "N * K == 7"), ("N >= 1", "K >= 1", "K * N <= 0"), ("K * 0 == 1",)])
def test_facts_that_exclude_one_another_are_refused(facts: tuple[str, ...]) -> None:
    text = HEAD + RIGHT["ping-pong"].replace("  in X", "".join(f"  fact {f}\n" for f in facts) + "  in X")
    with pytest.raises(KirError) as refused:
        proved(parse_program(text))
    assert refused.value.diagnostics[0].id == "KIR-Y001"
    assert len(refused.value.diagnostics[0].witness) == len(facts)


def test_nothing_is_proved_by_facts_that_no_sizes_are_found_for() -> None:
    """Of facts that exclude one another by their products, which the solver does not see, nothing follows; of those that it finds sizes for, all does."""
    text = HEAD + RIGHT["ping-pong"].replace("  in X", "  fact N >= 100000\n  fact K >= 100000\n  fact N * K < 2000000\n  in X")
    done = proved(parse_program(text), 0)
    assert done.verdict == "undecided" and {done.status(k) for k in ("race", "bounds", "barrier")} == {"undecided"}
    assert {f.why for f in done.findings} == {"no sizes are found for which the facts hold"}
    assert proved(parse_program(text.replace("2000000", "1000000 * N")), 0).verdict == "proved"


def test_sizes_of_a_negative_extent_are_no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A counterexample at such sizes is not run, and not believed; the program is refuted where it does run, or is not decided."""
    text = "kir 1\nprogram p\n  size N: i32\n  size M: i32\n  in X: f32[N - M]\n  out Y: f32[8]\n{fact}kernel main grid (i: 1) threads 1\n  Y[0] = X[0]\n"
    never, some = (parse_program(text.format(fact=fact)) for fact in ("  fact N < M\n", ""))
    with pytest.raises(UsageError, match=r"no launch: 'X' would be of extents \[-1\]"):
        random_inputs(never, {"N": 1, "M": 2}, 0)
    assert random_inputs(some, {}, 0)[0]["X"].size > 0, "sizes that nobody gives make no extent empty"
    product = parse_program(text.format(fact="  fact ceildiv(N * M, 8) == 9\n").replace("N - M", "N * M"))
    assert 64 < random_inputs(product, {}, 0)[0]["X"].size <= 72, "no size near 20 fits, and smaller ones do"
    done = proved(never)
    assert done.status("bounds") == "undecided" and not done.tried and "no launch" in done.not_run
    assert "no run showed" in next(f.why for f in done.findings if f.kind == "bounds")
    assert proved(some).status("bounds") == "refuted"
    data = parse_program(text.format(fact="  in I: i32[N]\n").replace("N - M", "N").replace("Y[0] = X[0]", "Y[(I[0] & 4096) // 512] = X[0]"))
    monkeypatch.setattr("kir.gate.proved.confirm.MOST_SECONDS", -1.0)  # the first run is made in any case, and the answer says that there were to be more
    assert len(proved(data).tried) == 1 and "other sizes were left out" in proved(data).not_run


def test_a_solver_that_gives_up_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question, "RLIMIT", 1)
    done = proved(right("reversed in shared memory"), 0)
    assert done.verdict == "undecided"
    assert any("gave up" in f.why for f in done.findings)


UNSIGNED = HEAD + """  size M: i32
  size N: i32
  fact M % 8 == 0
  fact N % 8 == 0
  in X: f32[M, N]
  out Y: f32[M * N]
kernel main grid (c: N // 8, b: M // 8) threads 64
  @t for t in 0..64 parallel thread
    let inner = cast(N, u32) * cast(t // 8, u32) + cast(t % 8, u32)
    Y[cast(N, i64) * cast(b * 8, i64) + cast(c * 8, i64) + cast(inner, i64)] = X[b * 8 + t // 8, c * 8 + t % 8] + cast(c, f32)
"""


def test_sums_of_a_claim_that_is_proved_of_a_number_must_fit_too() -> None:
    text = HEAD + RIGHT["tiles in turn"].replace("  fact M <= 1000\n", "").replace("m * 2 + t // 4", "m * 4096 + t // 4").replace("[M * 2,", "[M * 4096,")
    done = proved(parse_program(text), 0)
    assert done.status("bounds") == "proved" and done.verdict == "proved"
    assert any(f.kind == "overflow" and "4096" in f.what and f.status == "refuted" for f in done.findings)


@pytest.mark.parametrize(("threads", "fits"), [(48, "refuted"), (64, "proved")])
def test_a_condition_on_a_sum_does_not_show_that_the_sum_fits(threads: int, fits: str) -> None:
    """The last CTA of 48 threads has places beyond 2^31 - 1, which the machine takes for negative ones, below N: it was proved by that condition itself."""
    done = proved(parse_program(f"""{HEAD}  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: ceildiv(N, {threads})) threads {threads}
  for t in 0..{threads} parallel thread
    if b >= 0 & b * {threads} + t < N
      Y[b * {threads} + t] = X[b * {threads} + t]
"""), 0)
    assert done.verdict == "proved" and done.status("overflow") == fits, done.findings


def test_a_kernel_has_so_many_steps_for_all_its_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is decided depends on steps of the solver, never on time: of few steps a hard question gets a part, and the easy ones are answered still."""
    taken: list[question.Steps] = []

    class Noted(question.Steps):
        def __init__(self, left: int = 0) -> None:
            super().__init__(left)
            taken.append(self)
    monkeypatch.setattr(decide, "Steps", Noted)
    monkeypatch.setattr(question, "OF_KERNEL", 40_000)
    first, second = (proved(parse_program(UNSIGNED), 0) for _ in range(2))
    assert first.verdict == "undecided" and first.findings == second.findings
    assert first.status("undefined") == "proved" and any("gave up" in f.why for f in first.findings)
    assert all(0 < s.left < 40_000 for s in taken)


@pytest.mark.parametrize(("old", "new", "kind"), [
    ("", "", ""), ("cast(c * 8, i64) + cast(inner", "cast(c * 4, i64) + cast(inner", "race"), ("cast(b * 8, i64)", "cast(b * 7, i64)", "race"),
    ("cast(t % 8, u32)", "cast(t % 8 + 1, u32)", "bounds")])
def test_an_unsigned_offset_in_a_flat_index_does_not_wrap_where_sizes_fit(old: str, new: str, kind: str) -> None:
    done = proved(parse_program(UNSIGNED.replace(old, new, 1)))
    assert done.verdict == ("refuted" if kind else "proved"), done.findings
    assert not kind or done.status(kind) == "refuted"  # type: ignore[arg-type]  # one of the kinds


@pytest.mark.parametrize(("old", "new"), [
    ("  launch first\n  launch second\n", "  launch second\n  launch first\n"),
    ("  launch first\n", "  dispatch\n    when N > 3\n      launch first\n    else\n      launch first\n"),
    ("  launch second\n", "  launch second {pdl=true}\n"),
    ("  @store_S S", "  if X[b, 0] > 0.0\n    @store_S S"), ("step 64", "step 65"), ("    if c == 0\n", "    if c == 1\n")])
def test_launches_that_may_not_have_filled_it_prove_nothing_of_memory(old: str, new: str) -> None:
    text = HEAD + RIGHT["two launches"]
    assert old in text
    assert proved(parse_program(text.replace(old, new, 1)), 0).status("undefined") == "undecided"


@pytest.mark.parametrize(("stored", "contents", "race"), [
    ("Y[b, j] = X[I[b], j]", ("0 <= I[...] < V",), "proved"), ("Y[b, j] = F[I[b] * D + j]", ("0 <= I[...] < V",), "proved"),
    ("Y[b, j] = F[b % V * D + I[b]]", ("0 <= I[...] < D",), "proved"), ("Y[b, j] = F[b % V * D + I[b] + 1]", (), "proved"),
    ("Y[b, j] = X[I[I[b]], j]", ("0 <= I[...] < N", "0 <= I[...] < V"), "proved"), ("Y[I[b], j] = X[0, j] + cast(b, f32)", ("0 <= I[...] < N",), "undecided"),
    ("Y[b, j] = X[I[b] + 1, j]", (), "proved"), ("Y[b, j] = F[I[b] * D + j + 1]", (), "proved"), ("Y[b, j] = F[I[b] * (D + 1) + j]", (), "proved")])
def test_indices_that_a_tensor_holds_are_taken_to_be_inside_and_that_is_said(stored: str, contents: tuple[str, ...], race: str) -> None:
    program = parse_program(HEAD + f"""  size N: i32
  size V: i32
  size D: i32
  in I: i32[N]
  in X: f32[V, D]
  in F: f32[V * D]
  out Y: f32[N, D]
  fact V >= 1
  fact V <= 10000
  fact D <= 10000
kernel main grid (b: N) threads 32
  @t for t in 0..32 parallel thread
    for j in t..D step 32
      {stored}
""")
    done = proved(program, 0)
    assert done.unsaid == contents
    assert done.status("race") == race and done.status("bounds") == ("proved" if contents else "undecided")


@pytest.mark.parametrize(("role", "stored", "race", "said"), [
    ("in", "for r in I[b]..I[b + 1]\n      Y[r] = cast(b, f32)", "proved", ("0 <= I[...] <= N + 1, and it never falls",)),
    ("in", "Y[I[b]] = cast(b, f32)", "undecided", ("0 <= I[...] < N + 1", "the numbers in 'I' are all different")),
    ("in", "for r in I[b]..I[b] + 2\n      Y[r] = cast(b, f32)", "refuted", ()),
    ("inout", "Y[I[b]] = Y[I[b]] + 1.0", "refuted", ("0 <= I[...] < N + 1",))])
def test_tables_that_say_where_to_store_are_taken_to_keep_ctas_apart_where_they_can(role: str, stored: str, race: str, said: tuple[str, ...]) -> None:
    """Parts from one number to the next, and places of which no two are alike; what is read and stored there again counts, and must be an atomic."""
    done = proved(parse_program(HEAD + f"""  size N: i32
  in I: i32[N + 1]
  {'out' if role == 'in' else role} Y: f32[N + 1]
  fact N >= 2
kernel main grid (b: N) threads 1
  @t for t in 0..1 parallel thread
    {stored}
"""))
    assert done.status("race") == race and done.unsaid == said, (done.unsaid, done.findings)

@pytest.mark.parametrize(("count", "given", "race"), [
    ("O[g + 1] - first", ("0 <= O[...] <= T, and it never falls",), "proved"),
    ("O[g + 1] - first + 1", ("the numbers in 'O' rise",), "refuted"), ("T - first", (), "refuted")])
def test_parts_of_an_axis_are_apart_where_offsets_do_not_fall_and_that_is_said(count: str, given: tuple[str, ...], race: str) -> None:
    program = parse_program(HEAD + f"""  size G: i32
  size T: i32
  in O: i32[G + 1]
  out Y: f32[T]
  fact T <= 10000
  fact G <= 10000
kernel main grid (i: T, g: G) threads 1
  let first = O[g]
  let count = {count}
  Y[first + i] = cast(g, f32) where i < count clip
""")
    done = proved(program, 3)
    assert done.status("race") == race and done.unsaid == given and done.verdict == race


@pytest.mark.parametrize(("fact", "mask", "verdict"), [("N % 4 == 0", "-4", "proved"), ("N % 2 == 0", "-4", "refuted"), ("N % 4 == 0", "-2", "refuted")])
def test_a_mask_that_keeps_the_upper_bits_is_a_multiple(fact: str, mask: str, verdict: str) -> None:
    done = proved(parse_program(HEAD + f"""  size N: i32
  in X: f32[N] align 16
  out Y: f32[N]
  fact N >= 4
  fact {fact}
kernel main grid (b: ceildiv(N, 32)) threads 32
  @t for t in 0..32 parallel thread
    if b * 32 + t < N
      let v = X[((b * 32 + t) & {mask}) +: 4]
      Y[b * 32 + t] = pick(v, 0) + pick(v, 3)
"""))
    assert done.verdict == verdict, done.findings


def test_a_product_that_a_model_has_wrong_brings_in_those_of_its_factors() -> None:
    """They were added to the products while these were gone through: an internal error for `a * a * K + b * M * c + c * c` as an index."""
    program = parse_program(HEAD + "  size N: i32\n  size K: i32\n  size M: i32\n  fact N * K * M >= 1\nkernel main grid (a: N) threads 1\n  barrier()\n")
    steps = question.Steps()
    terms = Terms(steps.formulas, Facts.in_kernel(program, "main"))
    terms.boolean(program.facts[0])
    assert len(terms.corrected(SimpleNamespace(value=lambda _: 2))) == 3  # type: ignore[arg-type]  # a model by which each number is 2


def test_a_generic_program_is_refused() -> None:
    with pytest.raises(KirError) as refused:
        proved(parse_program("kir 1\nprogram p\n  meta B: int\n  size N: i32\n  out Y: f32[N]\nkernel main grid (b: N) threads B\n  Y[b] = 0.0\n"))
    assert refused.value.diagnostics[0].id == "KIR-I003"


def test_a_team_that_splits_again_around_a_barrier_is_not_decided() -> None:
    program = parse_program(HEAD + """  size N: i32
  in X: f32[N, 64]
  out Y: f32[N, 64]
kernel main grid (b: N) threads 64
  shared s: f32[64]
  for w in 0..2 parallel warp
    for t in 0..32 parallel thread
      s[w * 32 + t] = X[b, t]
      barrier()
      Y[b, w * 32 + t] = s[w * 32 + 31 - t]
""")
    found = [o for kernel in decided(program) for o in kernel.obligations if o.why == "a team splits again around a barrier"]
    assert {o.kind for o in found} == {"race", "barrier"} and all(o.status == "open" for o in found)


def test_tickets_that_a_caller_hands_in_begin_at_zero() -> None:
    """Whoever counts the CTAs that are done resets the count, or gives zero: no run from another number is a counterexample."""
    text = LAST.replace("  workspace P: f32[ceildiv(N, 128)]\n  workspace C: i32[1] = 0\n", "  inout P: f32[ceildiv(N, 128)]\n  inout C: i32[1]\n")
    program = parse_program(text)
    assert random_inputs(program, {"N": 300}, 0)[0]["C"].tolist() == [0]
    assert proved(program, 2).verdict == "undecided"
    unread = parse_program(text.replace("let old = atomic_add(&C[0], 1)", "atomic_add(&C[0], 1)\n      let old = 0"))
    assert random_inputs(unread, {"N": 300}, 1)[0]["C"].tolist() != [0] or random_inputs(unread, {"N": 300}, 0)[0]["C"].tolist() != [0]


def test_a_quotient_is_a_digit_of_the_sum_that_it_is_in_and_nothing_is_asked_of_it() -> None:
    x, e, size = (n.Var(name, I32) for name in ("x", "e", "N"))
    index, other = (build.add(build.mul(build.floordiv(x, size), 64), e),), {v.name: n.Var(f"{v.name}'", I32) for v in (x, e)}
    asked: list[n.Expr] = []

    def asks(holding: tuple[question.Holding, ...], claim: n.Expr) -> bool:
        asked.append(claim)
        return True
    holding = (question.Ranging(e, build.const(0), build.const(64)), question.Ranging(x, build.const(0), size))
    same = build.compare("eq", index[0], substitute(index[0], other))
    found = equal_parts(index, lambda each: substitute(each, other), holding, build.invert(same), asks, {"N"}, True)
    assert [expr_text(each) for each in found][:2] == ["e == e'", "x // N == x' // N"] and not any("|" in expr_text(c) for c in asked)
