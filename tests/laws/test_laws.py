"""The laws of rewriting, over every registered pass and every program that is shipped.

Law 2: each pass is a lens. Law 2b: parameters alone suffice. Law 7: a trace replays to the same hashes. Also: the normal form is
idempotent, and pipelines survive as text and JSON.
"""
from __future__ import annotations

import json
from functools import lru_cache
from itertools import islice

import pytest

from kir.analysis import normalize
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.canonical import alpha_equal, content_hash
from kir.ir.changes.anchor_map import Deleted
from kir.ir.parser import parse_program
from kir.ir.paths import paths
from kir.ir.printer import program_text
from kir.ir.rules.generic import is_generic
from kir.rewrite import Applied, Pipeline, Site, Step, Trace, Witness, apply, each_site, passes, run
from kir.rewrite.base import Rewritten
from kir.rewrite.declarations import declared_first
from kir.rewrite.driver import forward_site, undone
from kir.rewrite.edit import places
from kir.rewrite.pipelines.text import Direction
from kir.rewrite.residue import Residue, residue
from tests.laws.walks import MOST, held, parts, refused_rightly
from tests.programs import ROOT, normal, parsed

FILES = sorted(str(p.relative_to(ROOT)) for folder in ("skills", "tests") for p in (ROOT / folder).rglob("*.kir")
               if not (p.name == "naive.kir" and "carriers" in p.parts) and "lineages" not in p.parts and p.parent.name != "gated_delta_rule_d128")
"""Every program but the states of lineages, which are replayed; the naive one of a contract is that of its problem, and the answers of one contract
are the experts of its problem, without the grid axes (`tests/kir/lineage/carrier/test_shipped.py` compares them)."""
PASSES = {cls.name: cls for cls in passes()}
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")
FIRST = 2
"""Sites at which anchor maps are looked at."""
PARTS = parts(PASSES)


def of(file: str) -> n.Program:
    """A shipped program in normal form."""
    return normal(ROOT / file)


each_file = pytest.mark.parametrize("file", FILES, scope="module")
"""All tests of a program come one after another, so that what one finds in it the next need not look for."""


@lru_cache(maxsize=2 * len(PASSES))
def found(name: str, file: str, direction: Direction) -> tuple[Site, ...]:
    """The first sites of a pass in a program."""
    return tuple(islice(each_site(PASSES[name].with_options({}), of(file), direction), MOST))


def applied(name: str, file: str, direction: Direction, k: int) -> Applied | KirError:
    """A pass applied at one of these sites, or why it refuses."""
    return first_applied(name, file, direction, k) if k < FIRST else newly_applied(name, file, direction, k)


def newly_applied(name: str, file: str, direction: Direction, k: int) -> Applied | KirError:
    site = found(name, file, direction)[k]
    try:
        return apply(of(file), site.params, site, direction)
    except KirError as refused:
        return refused


first_applied = lru_cache(maxsize=2 * FIRST * len(PASSES))(newly_applied)


@each_file
def test_normal_form_is_idempotent_and_prints_byte_for_byte(file: str) -> None:
    p = of(file)
    assert not is_generic(parsed(ROOT / file)) and normalize(p) == p
    assert parse_program(program_text(p)) == p
    assert program_text(parse_program(program_text(p))) == program_text(p)


@each_file
@pytest.mark.parametrize("part", PARTS)
def test_forward_restores_what_backward_took(part: str, file: str) -> None:
    held(forward_restores, PARTS[part], file)


def forward_restores(name: str, file: str) -> None:
    """Law 2: with the residue, to the byte; law 2b: with the parameters alone, up to names and order."""
    p = of(file)
    for site in found(name, file, "backward"):
        q, w = site.params.backward(p, site)
        there = forward_site(q, w.params, w.path)
        again = there.params.forward(q, there, w.residue)
        assert again == p
        assert [x.label for _, x in places(again)] == [x.label for _, x in places(p)]
        assert content_hash(again) == content_hash(p)
        bare = there.params.forward(q, there) if w.residue else again
        left = residue(bare, p)
        assert left is not None
        assert alpha_equal(bare, p) or left.order
        assert w.residue.size <= 0.2 * len(program_text(p)), "a residue holds names and order, not a program"


@each_file
@pytest.mark.parametrize("part", PARTS)
def test_backward_finds_what_forward_did(part: str, file: str) -> None:
    held(backward_finds, PARTS[part], file)


def backward_finds(name: str, file: str) -> None:
    """Law 2, the other way round; and what is offered applies: a site whose preconditions hold is one that `apply` takes, or that a trial refuses."""
    p = of(file)
    for k, site in enumerate(found(name, file, "forward")):
        done = applied(name, file, "forward", k)
        if isinstance(done, KirError):
            assert all(d.id[4] == "P" or d.id == "KIR-R006" for d in done.diagnostics), done
            assert refused_rightly(p, site), f"{site.params} is offered, and `apply` refuses it"
            continue
        back, witness = done.back or undone(p, Rewritten(done.program, done.witness.path), site.params)
        assert alpha_equal(back, p) or alpha_equal(declared_first(back), declared_first(p)), "up to where memory is declared in its block"
        assert witness == Witness(site.params, witness.path, Residue(witness.residue.names, (), witness.residue.labels))


@each_file
def test_a_trace_replays_and_its_pipeline_is_text_and_json(file: str) -> None:
    p = of(file)
    trace = Trace(p)
    for name in PASSES:
        site = next(each_site(PASSES[name].with_options({}), trace.program, "backward"), None)
        if site is None:
            continue
        try:
            trace = trace.extended(apply(trace.program, site.params, site, "backward"))
        except KirError as refused:
            assert all(d.id[4] == "P" for d in refused.diagnostics), refused
    assert trace.replay().program == trace.program
    text = str(trace.pipeline)
    assert Pipeline.parse(text) == trace.pipeline
    assert Pipeline.from_json(json.loads(json.dumps(trace.pipeline.to_json()))) == trace.pipeline
    assert content_hash(run(p, Pipeline.parse(text)).program) == content_hash(trace.program)
    forward = Trace(trace.program)
    for step in reversed(trace.steps):
        forward = forward.then(Step.of(step.witness.params, residue=step.witness.residue, path=step.witness.path, hash=step.record.after))
    assert forward.program == p


@each_file
@pytest.mark.parametrize("part", PARTS)
def test_anchor_maps_are_total_and_keep_labels(part: str, file: str) -> None:
    held(anchors_are_kept, PARTS[part], file)


def anchors_are_kept(name: str, file: str) -> None:
    """Law 4: every statement goes somewhere or is said to be gone."""
    p = of(file)
    for direction in DIRECTIONS:
        for k in range(len(found(name, file, direction)[:FIRST])):
            done = applied(name, file, direction, k)
            if isinstance(done, KirError):
                continue
            there = dict(paths(done.program))
            assert set(done.anchor_map) == {path for path, _ in paths(p)}
            for path, s in paths(p):
                target = done.anchor_map[path]
                if isinstance(target, Deleted):
                    assert target.step == str(done.record.step)
                    continue
                assert all(t in there for t in target)
                if any(there[t] == s for t in target):
                    assert any(there[t].label == s.label for t in target), "an unchanged subtree keeps its label"
            home = done.anchor_map.then(done.anchor_map.inverse(done.program, "undo"))
            for path, _ in paths(p):
                target = home[path]
                assert isinstance(target, Deleted) == isinstance(done.anchor_map[path], Deleted)
                assert isinstance(target, Deleted) or path in target
