"""Traces: undo, replay, replay on another program, bisection, explanation; and steps that are refused."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kir.base.diagnostic import KirError, UsageError
from kir.ir.canonical import content_hash
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.rewrite import Pipeline, Step, Trace, pass_class, run
from kir.rewrite.base import parameter_types
from kir.rewrite.options import RENAMED
from kir.rewrite.residue import Residue, residue, restore

TEXT = """kir 1
program scale
  size N: i32
  in X: f32[N]
  out Y: f32[N]
  fact N % 16 == 0
kernel main grid (b: 1) threads 1
  @first for i in 0..N
    let x = X[i]
    Y[i] = x * 2.0
  @second for j in 0..N
    Y[j] = Y[j] + 1.0
"""
BASE = parse_program(TEXT)
STEPS = "unroll{factor=2}@main/first; unroll{factor=4}@main/second; unroll{factor=2 form=hint}@main/first"


def test_a_pipeline_is_text_json_and_python_at_once() -> None:
    pipeline = Pipeline.parse(STEPS)
    unroll = pass_class("unroll")
    assert pipeline == Pipeline((
        Step("unroll", {"factor": 2}, "main/first"), Step("unroll", {"factor": 4}, "main/second"),
        Step("unroll", {"factor": 2, "form": "hint"}, "main/first")))
    assert Step.of(unroll.with_options({"factor": 2}), "main/first") == pipeline.steps[0]
    assert str(pipeline) == STEPS
    exact = run(BASE, pipeline).pipeline
    assert Pipeline.parse(str(exact)) == exact
    assert Pipeline.from_json(exact.to_json()) == exact


def test_a_parameter_by_its_old_name_is_read_as_that_of_today_and_nothing_else_is() -> None:
    for of, names in RENAMED.items():
        assert all(new in parameter_types(pass_class(of)) and old not in parameter_types(pass_class(of)) for old, new in names.items())
    now = Pipeline.parse("partition-reduction{fresh=true distribution=turn}@main/t/total")
    text = str(now).replace("distribution", "dealt")
    assert Pipeline.parse(text) == now == Pipeline.from_json([{**now.to_json()[0], "options": {"fresh": True, "dealt": "turn"}}])
    assert str(Pipeline.parse(text).steps[0].places["distribution"]) == "<pipeline>:1:32"
    with pytest.raises(UsageError, match="no parameter 'dealt'"):
        run(BASE, "unroll{dealt=turn}")


def test_undo_takes_steps_back_and_replay_repeats_them() -> None:
    trace = run(BASE, STEPS)
    assert trace.undo(3).program == BASE
    assert trace.undo().program == run(BASE, "; ".join(STEPS.split("; ")[:2])).program
    assert content_hash(trace.replay().program) == content_hash(trace.program)
    back = Trace(trace.program)
    for step in reversed(trace.steps):
        back = back.then(step.back)
    assert back.program == BASE


def test_replay_on_another_program_goes_by_anchors_and_judges_anew() -> None:
    trace = run(BASE, STEPS)
    other = parse_program(TEXT.replace("2.0", "3.0").replace("@first for", "let zero = 0\n  @first for"))
    assert program_text(trace.replay(on=other).program).count("3.0") == 2
    odd = parse_program(TEXT.replace("fact N % 16 == 0", "fact N % 2 == 0"))
    with pytest.raises(KirError) as caught:
        trace.replay(on=odd)
    assert caught.value.diagnostics[0].id == "KIR-P520"
    assert "step 2 of the pipeline" in caught.value.diagnostics[0].anchor


def test_replay_notices_a_pass_that_has_changed() -> None:
    trace = run(BASE, "unroll{factor=2}@main/first")
    step = trace.steps[0]
    from dataclasses import replace
    forged = Trace(BASE, (replace(step, applied=replace(step.applied, told=lambda: replace(step.record, after="0" * 64))),))
    with pytest.raises(KirError) as caught:
        forged.replay()
    assert caught.value.diagnostics[0].id == "KIR-R007"


def test_bisect_finds_the_first_bad_step() -> None:
    trace = run(BASE, STEPS)
    assert trace.bisect(lambda p: program_text(p).count("+ 1.0") == 1) == 1
    assert trace.bisect(lambda p: True) is None
    assert trace.bisect(lambda p: p == BASE) == 0


def test_explain_says_what_and_why() -> None:
    text = run(BASE, STEPS).explain(1)
    assert "unroll at main/second" in text and "KIR-P520 proved" in text and "residue 0 bytes" in text


def test_anchors_of_the_base_are_followed() -> None:
    trace = run(BASE, "unroll{factor=2}@main/first; unroll{factor=2}@main/first")
    where = trace.anchor_map[("main", 0, "body", 1)]
    assert isinstance(where, tuple) and sorted(where) == [("main", 0, "body", k) for k in (1, 3, 5, 7)]


@pytest.mark.parametrize(("pipeline", "id"), [
    ("unrol", "KIR-X002"), ("unroll{factr=2}", "KIR-R002"), ("unroll{factor=two}", "KIR-R003"), ("unroll{form=sideways}", "KIR-R003"),
    ("unroll{factor=2", "KIR-R001"), ("unroll@main/first assume KIR-P999", "KIR-R009"), ("unroll", "KIR-R005"),
    ("unroll@main/third", "KIR-A002"), ("~unroll@main/first", "KIR-R004"), ("unroll{factor=3}@main/first", "KIR-P520")])
def test_a_bad_step_is_one_located_error(pipeline: str, id: str) -> None:
    with pytest.raises(KirError) as caught:
        run(BASE, pipeline)
    assert [d.id for d in caught.value.diagnostics] == [id]
    if id in ("KIR-R001", "KIR-R002", "KIR-R003", "KIR-R009", "KIR-X002"):
        assert isinstance(caught.value, UsageError)


@pytest.mark.parametrize(("option", "words", "column"), [
    ("factor=-2", "factor=-2 is too small", 8), ("factor=4294967296", "factor=4294967296 is too large", 8),
    ("form=hint factor=two", "factor=two is no int", 18), ("faktor=2", "no parameter 'faktor'", 8)])
def test_what_is_wrong_with_an_option_is_said_at_the_option(option: str, words: str, column: int) -> None:
    with pytest.raises(UsageError) as caught:
        run(BASE, f"unroll{{factor=2}}@main/first;\nunroll{{{option}}}")
    (d,) = caught.value.diagnostics
    assert words in d.message and d.anchor == "step 2 of the pipeline"
    assert str(d.origin) == f"<pipeline>:2:{column}"


def test_the_least_that_a_pass_takes_is_its_own_and_what_a_step_has_wrong_is_said_at_the_step() -> None:
    for step, words in (("tile{extent=0}", "a whole number from 1 on"), ("tile{axis=-1}", "a whole number from 0 on")):
        with pytest.raises(UsageError, match="too small") as caught:
            run(BASE, step)
        assert caught.value.diagnostics[0].needs == words
    with pytest.raises(KirError) as refused:
        run(BASE, Pipeline.parse("unroll{factor=2}@main/first;\n  unroll@main/third", "two.pipeline"))
    assert str(refused.value.diagnostics[0].origin) == "two.pipeline:2:3"


def test_a_pass_that_does_not_apply_says_which_states_it_requires_and_what_brings_them() -> None:
    with pytest.raises(KirError) as refused:
        run(BASE, "mma")
    assert refused.value.diagnostics[0].needs == "panels (from stage-panels)"


def test_an_undecided_precondition_may_be_assumed_and_a_refused_one_only_forced() -> None:
    free = parse_program(TEXT.replace("  fact N % 16 == 0\n", ""))
    trace = run(free, "unroll{factor=2}@main/first assume KIR-P520")
    assert dict(trace.steps[0].record.verdicts)["KIR-P520"].kind == "assumed"
    assert "assume KIR-P520" in str(trace.pipeline)
    fixed = parse_program(TEXT.replace("  fact N % 16 == 0\n", "").replace("0..N", "0..7"))
    with pytest.raises(KirError):
        run(fixed, "unroll{factor=2}@main/first assume KIR-P520")
    forced = run(fixed, "unroll{factor=2}@main/first force")
    assert forced.steps[0].record.waived == ("KIR-P520",)


def test_a_residue_holds_names_order_and_labels_and_nothing_else() -> None:
    made = parse_program(TEXT)
    renamed = TEXT.replace(" i ", " row ").replace("[i]", "[row]")
    wanted = parse_program(renamed.replace("let x = ", "@read let value = ").replace("= x *", "= value *"))
    left = residue(made, wanted)
    assert left == Residue(names=(("", (("i", "row"), ("x", "value"))),), labels=((("", 0, "body", 0), "read"),))
    again = restore(made, left)
    assert program_text(again) == program_text(wanted)
    assert Residue.from_json(left.to_json()) == left
    two = parse_program(TEXT.replace("    Y[j] = Y[j] + 1.0\n", "    let p = X[j]\n    let q = Y[j]\n    Y[j] = p + q\n"))
    swapped = parse_program(TEXT.replace("    Y[j] = Y[j] + 1.0\n", "    let q = Y[j]\n    let p = X[j]\n    Y[j] = p + q\n"))
    moved = residue(two, swapped)
    assert moved is not None and moved.order == ((("", 1, "body", 0), (1, 0)),)
    assert restore(two, moved) == swapped
    assert residue(made, two) is None
    digits = [parse_program(TEXT.replace("x * 2.0", text)) for text in ("x * 0.1 + 0.5 * 0.3", "x * 0.10000000149011612 + 0.5 * 0.30000001192092896")]
    spelled = residue(digits[0], digits[1])  # one number of f32 in other digits: equal, and another text with another hash
    assert spelled == Residue(literals=((("", 0, "body", 1), ((0, 0.10000000149011612), (2, 0.30000001192092896))),))
    assert program_text(restore(digits[0], spelled)) == program_text(digits[1])
    assert Residue.from_json(spelled.to_json()) == spelled


identifiers = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
kernels = st.one_of(st.just(""), identifiers)
renamings = st.lists(st.tuples(identifiers, identifiers), min_size=1, max_size=3).map(tuple)
branches = st.sampled_from([("body",), ("then",), ("orelse",), ("roles", 1, "body")])
fields_and_indices = st.lists(st.tuples(branches, st.integers(0, 99)), max_size=3)
paths = st.one_of(
    st.tuples(kernels),
    st.builds(lambda k, i, rest: (k, i, *(x for field, j in rest for x in (*field, j))), kernels, st.integers(0, 99), fields_and_indices))


@given(st.builds(
    Residue,
    st.lists(st.tuples(kernels, renamings), max_size=2).map(tuple),
    st.lists(st.tuples(paths, st.permutations(range(3)).map(tuple)), max_size=2).map(tuple),
    st.lists(st.tuples(paths, st.one_of(st.none(), identifiers)), max_size=2).map(tuple),
    st.lists(st.tuples(paths, st.lists(st.tuples(st.integers(0, 9), st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=2).map(tuple)),
             max_size=2).map(tuple)))
def test_a_residue_reads_back(left: Residue) -> None:
    assert Residue.parse(left.text()) == left


def test_a_record_predicts_what_the_footprints_show() -> None:
    p = parse_program("""kir 1
program g
  out C: f32[64, 64]
kernel main grid (b: 1) threads 1
  fragment acc: f32[64, 64] = 0.0
  C = acc
""")
    done = run(p, "multi-threaded-block{threads=128}").steps[0].record
    assert done.effect.registers is not None and done.effect.registers < 0
    assert done.effect.shared_bytes == 0


def test_every_public_name_is_there() -> None:
    import kir.rewrite
    assert all(getattr(kir.rewrite, name) is not None for name in kir.rewrite.__all__)
