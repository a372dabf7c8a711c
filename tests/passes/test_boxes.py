"""Every pass: its before/after box runs, its text and JSON parse back, it sits in a module of its own."""
from __future__ import annotations

import sys

import pytest

from kir.analysis import normalize
from kir.base.diagnostic import KirError
from kir.ir.canonical import alpha_equal
from kir.ir.printer import program_text
from kir.rewrite import Pass, Pipeline, Step, passes, run
from kir.rewrite.conformance.box import box_of

ALL = {cls.name: cls for cls in passes()}


@pytest.mark.parametrize("name", ALL)
def test_the_box_of_a_pass_shows_what_it_does(name: str) -> None:
    box_of(sys.modules[ALL[name].__module__].__doc__ or "", name).run()


def test_a_box_is_what_changes_or_both_programs_and_nothing_less() -> None:
    doc = sys.modules[ALL["pad-shared"].__module__].__doc__ or ""
    box, fence = box_of(doc, "pad-shared"), doc[doc.index("```diff"):doc.rindex("```") + 3]
    both = f"```kir\n{program_text(box.before)}```\n\n```kir\n{program_text(box.after)}```"
    assert box_of(doc.replace(fence, both), "pad-shared") == box
    for wrong in (doc.replace(fence, ""), doc.replace("pipeline: ", ""), doc.replace(fence, both.replace("```kir", "```", 1))):
        with pytest.raises(KirError, match="KIR-R010"):
            box_of(wrong, "pad-shared")
    with pytest.raises(KirError, match="another program"):
        box_of(doc.replace("+  shared Xs: f32[32, 32] strides [33, 1]", "+  shared Xs: f32[32, 32] strides [34, 1]"), "pad-shared").run()


@pytest.mark.parametrize("name", ALL)
def test_the_box_leads_back(name: str) -> None:
    box = box_of(sys.modules[ALL[name].__module__].__doc__ or "", name)
    trace = run(normalize(box.before), box.pipeline)
    for step in reversed(trace.steps):
        there = step.witness
        sites = [s for s in ALL[step.record.step.name]().inverse_sites(step.after) if s.path == there.path and s.params == there.params]
        assert sites, "backward does not apply where forward has been"
        back, witness = sites[0].params.backward(step.after, sites[0])
        assert alpha_equal(back, step.before)
        assert witness.params == there.params
        assert not witness.residue.order


ROWS = 70
"""Rows of the catalogue; ids past ten times that many are taken as they come, by passes whose row has none left."""


@pytest.mark.parametrize("name", ALL)
def test_a_pass_declares_what_it_is(name: str) -> None:
    cls = ALL[name]
    assert cls.intent and cls.claim.endswith(".") and cls.catalogue
    for p in cls.preconditions:
        row = int(p.id[5:]) // 10
        assert row in cls.catalogue or row > ROWS, f"{p.id}: the ids of a pass are its catalogue row times ten and up"


@pytest.mark.parametrize("name", ALL)
def test_text_json_and_values_are_one(name: str) -> None:
    item: Pass = ALL[name]()
    for direction in ("forward", "backward"):
        pipeline = Pipeline((Step.of(item, "main/k_loop", direction), Step.of(item, force=True)))
        assert Pipeline.parse(str(pipeline)) == pipeline
        assert Pipeline.from_json(pipeline.to_json()) == pipeline
        assert cls_from(pipeline.steps[0], name) == item


def cls_from(step: Step, name: str) -> Pass:
    return ALL[name].with_options(step.options)


def test_no_two_passes_share_an_id() -> None:
    taken: dict[str, str] = {}
    for name, cls in ALL.items():
        for p in cls.preconditions:
            assert taken.setdefault(p.id, name) == name, f"{p.id} is declared by {taken[p.id]} and {name}"
