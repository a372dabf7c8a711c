"""The contracts that ship: their recorded answers, what puts them into programs, and wrong answers that must not pass."""
from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

import kir.skills
from kir.analysis.target.legalize import legalize
from kir.base.diagnostic import KirError
from kir.gate.cases import Case, problem_cases
from kir.gate.correctness import check as correct
from kir.hardware.target import ARCHITECTURES
from kir.interp import run as interpret
from kir.ir import nodes as n
from kir.ir.canonical import alpha_equal, content_hash
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.learning.evidence.answers import remember as remember_walks
from kir.learning.evidence.walked import Transition, Walked
from kir.lineage.carrier import Contract, check, fill, fill_recorded
from kir.lineage.carrier.checking import conforms
from kir.lineage.carrier.cutting import answer_of, outlines
from kir.lineage.carrier.recognition import agreement, keep, known, naive
from kir.lineage.carrier.records import Recorded, read_record
from kir.lineage.records.answers import remember
from kir.lineage.records.folder import Folder
from kir.lineage.records.record import Lineage
from kir.problem import load_problem
from kir.rewrite import pass_class, run, sites
from kir.surface import backend
from tests.carrier_answers import WRONG, Wrong

HOME = Path(next(iter(kir.skills.__path__)))
PASSES = {"radix-select": "radix-select", "gated-delta-rule": "chunk-recurrence", "gated-delta-rule-d128": "chunk-recurrence-d128",
          "unit-lower-solve": "blocked-solve", "chunk-inverse": "chunk-inverse", "stable-counting-sort": "warp-sort"}
PROBLEMS = {"radix-select": "topk", "gated-delta-rule": "gdn", "gated-delta-rule-d128": "gdn_d128", "unit-lower-solve": "trisolve",
            "stable-counting-sort": "bytesort"}
CONTRACTS = {name: Contract.shipped(name.replace("-", "_")) for name in PASSES}
ANSWERS = {f"{name}/{p.stem}": read_record(p, shipped=True) for name, c in CONTRACTS.items() for p in sorted(c.folder.glob("*.toml"))
           if p.name != "contract.toml"}


def test_every_file_beside_a_contract_belongs_to_it() -> None:
    for c in CONTRACTS.values():
        stems = {p.name.partition(".")[0] for p in (*c.folder.glob("*.kir"), *c.folder.glob("*.kir.in"))}
        assert stems == {p.stem for p in c.folder.glob("*.toml")} - {"contract"} | {"naive"}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_recorded_answer_is_for_the_contract_as_it_is(name: str) -> None:
    r, contract = ANSWERS[name], CONTRACTS[name.partition("/")[0]]
    r.must_fit(contract)
    assert r.record.gate["accepted"] and r.record.gate["hazard_runs"] > 0
    program = known(contract, r.name).program
    conforms(contract, program, r.answer)
    assert program_text(program) == r.answer.text and r.record.gate["program"] == content_hash(program)


def posed(contract: str) -> n.Program:
    """The problem's naive program, or of a contract of which there is none its own."""
    of = CONTRACTS[contract]
    return load_problem(PROBLEMS[contract]).naive if contract in PROBLEMS else naive(of, of.spec.dtypes[0])


def smallest(contract: Contract) -> str:
    return min((s for s in contract.spec.shapes if "one" not in s.tags), key=lambda s: max(s.sizes.values())).name


FAMILIES = ("radix-select/rows", "radix-select/clusters", "radix-select/chunks")


@pytest.mark.parametrize("name", [x for x in ANSWERS if x not in ("gated-delta-rule/threads", "unit-lower-solve/threads", "chunk-inverse/threads", *FAMILIES)])
def test_an_answer_meets_its_contract_again(name: str) -> None:
    contract = CONTRACTS[name.partition("/")[0]]
    verdict = check(contract, ANSWERS[name].answer)
    shapes = [s for s in contract.spec.shapes if "timed" not in s.tags]
    assert verdict.accepted and verdict.hazard_runs > 0, verdict.diagnostics
    assert verdict.runs >= len(shapes) + len(contract.problem().distributions) - 1
    assert tuple(ANSWERS[name].record.gate["dtypes"]) == verdict.dtypes, "what is recorded as tried was tried"


@pytest.mark.parametrize("name", ["gated-delta-rule/threads", "unit-lower-solve/threads", "chunk-inverse/threads"])
def test_a_slow_answer_is_right_on_adversarial_inputs(name: str) -> None:
    contract = CONTRACTS[name.partition("/")[0]]
    problem, shape = contract.problem(), smallest(contract)
    inputs = problem.inputs(shape, 3, problem.distributions[2])
    result = interpret(known(contract, name.partition("/")[2]).program, inputs, problem.scalars(problem.shape(shape)))
    assert problem.compare(result.outputs, inputs, shape).ok


@pytest.mark.parametrize("wrong", WRONG, ids=lambda w: f"{w.contract}: {w.name}")
def test_a_wrong_answer_is_refused_with_its_reason(wrong: Wrong) -> None:
    verdict = check(wrong.of, wrong.answer)
    assert not verdict.accepted
    assert wrong.id in {d.id for d in verdict.diagnostics}
    assert wrong.says in "\n".join(d.render() for d in verdict.diagnostics)
    assert all(d.origin is not None or d.anchor for d in verdict.diagnostics)


# ------------------------------------------------------------------------------------------------------------ in a program

@cache
def filled(contract: str, answer: str) -> n.Program:
    return run(posed(contract), f'{PASSES[contract]}{{answer="{answer}"}}').program


@pytest.mark.parametrize("name", [x for x in ANSWERS if x.partition("/")[0] in PROBLEMS])
def test_the_naive_problem_with_an_answer_is_right_and_some_backend_writes_it(name: str) -> None:
    contract, _, answer = name.partition("/")
    program, problem = filled(contract, answer), load_problem(PROBLEMS[contract])
    surface = ANSWERS[name].record.gate["surface"]
    assert backend(surface).accepts(program) == ()
    cases: list[Case] = list(problem_cases(program, problem, {}))
    if answer in ("threads", "clusters", "chunks", "warpgroups", "pairs"):  # thousands of statements a thread: one case, not in checking mode
        case = next(c for c in cases if c.shape in ("odd", "tail"))
        assert case.compare(interpret(program, case.arrays, case.scalars).outputs).ok
        return
    outcome = correct(program, cases, problem.name)
    assert outcome.ok, outcome.reason


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("surface", ["cuda", "triton"])
def test_every_contract_has_an_answer_on_every_surface(contract: str, surface: str) -> None:
    programs = (filled(contract, name.partition("/")[2]) for name in ANSWERS if name.startswith(f"{contract}/"))
    text = next(backend(surface).emit(p).text for p in programs if backend(surface).accepts(p) == ())
    assert ("__global__" if surface == "cuda" else "@triton.jit") in text


@pytest.mark.parametrize("contract", CONTRACTS)
def test_an_open_hole_is_printed_and_verified_and_not_written(contract: str) -> None:
    program = run(posed(contract), PASSES[contract]).program
    assert f'contract "{CONTRACTS[contract].id}"' in program_text(program)
    assert parse_program(program_text(program)) == program
    for surface in ("cuda", "triton"):
        assert any("is not filled" in d.message for d in backend(surface).accepts(program))


@pytest.mark.parametrize("name", ANSWERS)
def test_back_and_forth_restores_the_program_to_the_letter(name: str) -> None:
    contract, _, answer = name.partition("/")
    program, naive_one = filled(contract, answer), posed(contract)
    back = run(program, f"~{PASSES[contract]}")
    assert alpha_equal(back.program, naive_one)
    step = back.steps[0].back
    assert step.options["answer"] == ANSWERS[name].record.answer[:16]
    assert program_text(run(back.program, str(step)).program) == program_text(program)


@pytest.mark.parametrize(("file", "contract"), [("topk/topk_radix", "radix-select"), ("gdn/gdn", "gated-delta-rule")])
def test_an_expert_is_recognized_by_what_it_computes_and_comes_back(file: str, contract: str) -> None:
    path = HOME / "experts" / f"{file}.kir"
    expert = parse_program(path.read_text(encoding="utf-8"), str(path))
    back = run(expert, f"~{PASSES[contract]}")
    assert alpha_equal(back.program, load_problem(PROBLEMS[contract]).naive)
    assert "runs" in dict(back.steps[0].record.verdicts)[max(id_ for id_, _ in back.steps[0].record.verdicts)].reason
    assert program_text(run(back.program, str(back.steps[0].back)).program) == program_text(expert)


BLOCKS = """kir 1
program heads
  size B: i32
  size L: i32
  in k: bf16[B, L, 1, 128]
  in beta: f32[B, L, 2]
  out A: bf16[B, L, 2, 64]
kernel main grid (h: 2, b: B, c: ceildiv(L, 64)) threads 128
"""


@pytest.mark.parametrize(("old", "new", "holds"), [("", "", True), ("c * 64 +: 64, h,", "h * 64 +: 64, h,", False), ("0, 0 +: 128", "h // 2, 0 +: 128", True)])
def test_instances_may_come_first_in_the_grid_and_heads_share_what_there_is_one_of(old: str, new: str, holds: bool) -> None:
    body = program_text(known(CONTRACTS["chunk-inverse"], "tiles").program).partition("threads 128\n")[2]
    for ours, theirs in (("k[c * 64 +: 64, ", "k[b, c * 64 +: 64, 0, "), ("beta[c * 64 +: 64]", "beta[b, c * 64 +: 64, h]"),
                         ("A[c * 64 +: 64, ", "A[b, c * 64 +: 64, h, ")):
        body = body.replace(ours, theirs)
    program = parse_program(BLOCKS + body.replace(old, new, 1))
    found = sites(pass_class("chunk-inverse")(), program, "backward")
    assert bool(found) == holds
    if found:
        back = run(program, "~chunk-inverse")
        assert back.steps[0].back.options["order"] in ((1, 2, 0), [1, 2, 0])
        assert program_text(run(back.program, str(back.steps[0].back)).program) == program_text(program)


def test_an_answer_travels_with_its_lineage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = HOME / "experts" / "topk" / "topk_radix.kir"
    expert = parse_program(path.read_text(encoding="utf-8"), str(path))
    back = run(expert, "~radix-select")
    step = back.steps[0].back
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(KirError, match="KIR-H142"):
        run(back.program, str(step))
    lineage = SimpleNamespace(accepted=[SimpleNamespace(witness=step.to_json(), before="expert")])
    remember(cast(Lineage, lineage), cast(Folder, SimpleNamespace(program=lambda state: expert)))
    assert program_text(run(back.program, str(step)).program) == program_text(expert)


def test_an_answer_travels_with_the_evidence_of_a_walk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = program_text(known(CONTRACTS["stable-counting-sort"], "tiles").program).replace("threads 128", "threads 64")
    back = run(fill(CONTRACTS["stable-counting-sort"], run(posed("stable-counting-sort"), "warp-sort").program, ("main", 0), parse_program(text)), "~warp-sort")
    step, after = back.steps[0].back, back.base
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(KirError, match="KIR-H142"):
        run(back.program, str(step))
    texts = {"before": program_text(back.program), "after": program_text(after)}
    made = Transition(number=0, intent="sort", step=step.to_json(), before=content_hash(back.program), after=content_hash(after), before_text="before",
                      after_text="after")
    remember_walks([Walked(kernel="sorts", package="here", family="sort", ended="naive", programs=texts, transitions=(made,))])
    assert content_hash(run(back.program, str(step)).program) == content_hash(after)


def test_what_computes_something_else_is_not_recognized_and_says_why() -> None:
    path = HOME / "experts" / "topk" / "topk_radix.kir"
    text = path.read_text(encoding="utf-8").replace("key1 > prefix", "key1 >= prefix", 1)
    program = parse_program(text)
    item = pass_class("radix-select")()
    assert sites(item, program, "backward") == ()
    found = item.match_inverse(program, ("main",), program.kernels[0])
    assert "does not meet radix-select/1" in getattr(found, "reason", "")


@pytest.mark.parametrize("name", [x for x in ANSWERS if "threads" not in x])
def test_an_answer_meets_its_contract_in_every_other_dtype(name: str) -> None:
    contract, _, answer = name.partition("/")
    assert set(ANSWERS[name].record.gate["dtypes"]) == set(CONTRACTS[contract].spec.dtypes)
    for dtype in CONTRACTS[contract].spec.dtypes[1:]:
        assert agreement(CONTRACTS[contract], known(CONTRACTS[contract], answer, dtype).program, dtype).holds


def test_another_dtype_of_the_contract_is_carried_over() -> None:
    problem = load_problem("gdn:f16")
    trace = run(problem.naive, "chunk-recurrence{answer=tiles}")
    assert "is recorded for gated-delta-rule/1" in trace.explain(0)
    opened = run(problem.naive, "chunk-recurrence").program
    assert alpha_equal(fill_recorded(CONTRACTS["gated-delta-rule"], opened, ("main", 0), "tiles"), trace.program)
    cases: list[Case] = list(problem_cases(trace.program, problem, {}))
    outcome = correct(trace.program, cases[:4], problem.name)
    assert outcome.ok, outcome.reason


SLICED = """kir 1
program heads
  size H: i32
  size T: i32
  size Q: i32
  in Keys: f32[T, H]
  out Most: f32[H, Q]
  out Where: i32[H, Q]
  fact Q >= 1
  fact Q <= T
"""


def test_instances_may_lie_along_any_axis_and_sizes_have_any_name() -> None:
    contract = CONTRACTS["radix-select"]
    body = program_text(naive(contract, "f32")).partition("kernel main grid () threads 1\n")[2]
    for old, new in (("X[j]", "Keys[j, h]"), ("V[s]", "Most[h, s]"), ("I[s]", "Where[h, s]"), ("0..K", "0..Q"), ("0..N", "0..T"),
                     ("= N", "= T"), ("N ==", "T ==")):
        body = body.replace(old, new)
    program = parse_program(f"{SLICED}kernel pick grid (h: H) threads 1\n{body}")
    trace = run(program, "radix-select{answer=bits}")
    assert trace.steps[0].record.step.options["kernel"] == "pick"
    keys = np.random.default_rng(0).standard_normal((70, 3)).astype(np.float32)
    got = interpret(trace.program, {"Keys": keys}, {"Q": 5}, mode="check")
    assert got.errors == ()
    assert (np.sort(got.outputs["Most"]) == np.sort(keys.T)[:, -5:]).all()
    assert alpha_equal(run(trace.program, "~radix-select").program, program)


VARIANT = """kir 1
program sorted
  size R: i32
  size M: i32
  in data: u8[R, M]
  out order: i32[R, M]
kernel rank grid (r: R) threads 1
  for i in 0..M
    register before: i32 = 0
    for j in 0..M
      if data[r, j] < data[r, i] | data[r, j] == data[r, i] & j < i
        before = before + 1
    order[r, before] = i
"""


def test_a_naive_program_in_other_words_is_recognized_and_comes_back() -> None:
    program = parse_program(VARIANT)
    trace = run(program, "warp-sort{answer=warps}")
    options = trace.steps[0].record.step.options
    assert set(options) == {"answer", "kernel", "naive"} and options["kernel"] == "rank"
    keys = np.random.default_rng(1).integers(0, 9, (2, 90)).astype(np.uint8)
    got = interpret(trace.program, {"data": keys}, mode="check")
    assert got.errors == () and (got.outputs["order"] == np.argsort(keys, axis=-1, kind="stable")).all()
    assert alpha_equal(run(trace.program, str(trace.steps[0].back)).program, program)
    wrong = parse_program(VARIANT.replace("& j < i", "& j > i"))
    with pytest.raises(KirError, match=r"does not meet stable-counting-sort/1"):
        run(wrong, "warp-sort{answer=warps}")


def test_an_answer_is_cut_out_and_put_back() -> None:
    contract = CONTRACTS["gated-delta-rule"]
    program = filled("gated-delta-rule", "tiles")
    found = next(o for o in outlines(contract, program, ("prepare", "carry", "outputs"), "main")
                 if all(a == b for a, b in o.operands.items()))
    cut = answer_of(contract, program, found)
    assert alpha_equal(cut, known(contract, "tiles").program)
    assert alpha_equal(fill(contract, found.holed, found.path, cut), program)
    assert next(outlines(contract, program, ("prepare", "outputs"), "main"), None) is None


def test_what_is_kept_is_found_by_its_hash_alone() -> None:
    contract = CONTRACTS["stable-counting-sort"]
    text = program_text(known(contract, "tiles").program).replace("threads 128", "threads 64")
    key = keep(contract, parse_program(text))
    found = known(contract, key[:16])
    assert (found.source, found.hash) == ("kept", key) and agreement(contract, found.program, "").holds
    with pytest.raises(KirError, match="KIR-H142"):
        known(contract, "0123456789abcdef")


def test_records_say_who_when_and_what_was_compiled() -> None:
    for name, r in ANSWERS.items():
        assert isinstance(r, Recorded)
        data = tomllib.loads(r.path.read_text(encoding="utf-8"))
        assert data["who"] and data["note"], name
        rows = data["gate"].get("kernels") or data["gate"]["compiled"]  # as records were written before
        program = known(CONTRACTS[name.partition("/")[0]], r.name).program
        assert {row["target"] for row in rows} == {t for t in ("sm_80", "sm_90a") if not legalize(program, ARCHITECTURES[t])}, name


def test_the_selection_of_a_hole_with_shared_slices_is_refused() -> None:
    text = program_text(run(load_problem("topk").naive, "radix-select").program).replace("writes V[row, 0 +: K]", "writes V[0, 0 +: K]")
    contract = CONTRACTS["radix-select"]
    with pytest.raises(KirError, match="KIR-H108"):
        fill(contract, parse_program(text), ("main", 0), known(contract, "bits").program)


HEADS = """kir 1
program heads
  size L: i32
  size H: i32
  in q: bf16[L, H, 128]
  in k: bf16[L, H, 128]
  in v: bf16[L, H * 2, 128]
  in g: f32[L, H * 2]
  in beta: f32[L, H * 2]
  out o: bf16[L, H * 2, 128]
"""


@pytest.mark.parametrize(("old", "new", "holds"), [
    ("", "", True), ("k[t, h // 2", "k[t, h // 2 * 1 + 0 * t", True), ("k[t, h // 2", "k[t, (h + t) // 2", False), ("o[t, h,", "o[t, h // 2,", False),
])
def test_an_instance_reads_at_a_place_that_follows_from_the_axes_and_writes_at_the_axes(old: str, new: str, holds: bool) -> None:
    body = program_text(naive(CONTRACTS["gated-delta-rule-d128"], "bf16")).partition("kernel main grid (e: 128) threads 1\n")[2]
    for a in ("k[t, ", "q[t, "):
        body = body.replace(a, f"{a}h // 2, ")
    for a in ("v[t, ", "o[t, "):
        body = body.replace(a, f"{a}h, ")
    body = body.replace("g[t]", "g[t, h]").replace("beta[t]", "beta[t, h]")
    program = parse_program(f"{HEADS}kernel main grid (e: 128, h: H * 2) threads 1\n{body.replace(old, new)}")
    found = next(iter(outlines(CONTRACTS["gated-delta-rule-d128"], program, ("main",), "main")), None)
    assert (found is not None) == holds
    if found is not None:
        hole = cast(n.Hole, found.holed.kernels[0].body[0])
        assert [program_text(found.holed).count(x) for x in ("q[0 +: L, h // 2, 0 +: 128]", "o[0 +: L, h, 0 +: 128]")] == [1, 1] and len(hole.reads) == 5


def test_the_boxes_of_an_answer_are_one_wide_along_what_tells_instances_apart() -> None:
    program = filled("gated-delta-rule-d128", "warpgroups")
    boxes = {m.of: m.box for m in program.tensor_maps}
    assert boxes["q"] == boxes["o"] == (1, 64, 1, 64) and boxes["A"] == (1, 1, 64, 64) and boxes["E"] == (1, 1, 64)
    for answer, file in (("warpgroups", "gdn_d128_sm90"), ("pairs", "gdn_d128_sm90_pair"), ("tiles", "gdn_d128")):
        expert = parse_program((HOME / "experts" / "gdn" / f"{file}.kir").read_text(encoding="utf-8"))
        assert alpha_equal(filled("gated-delta-rule-d128", answer), expert)
    part = program_text(run(load_problem("gdn_d128").naive, "chunk-recurrence-d128").program).replace("size L: i32", "size L: i32\n  size M: i32")
    opened = parse_program(part.replace("[B, L, ", "[B, M, "))
    with pytest.raises(KirError, match="KIR-H150"):
        fill_recorded(CONTRACTS["gated-delta-rule-d128"], opened, ("main", 0), "warpgroups")
