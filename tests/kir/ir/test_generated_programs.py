"""Laws of every program, on generated ones. Drawing a program takes longer than most laws, so all are held to the same programs."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kir.ir import build
from kir.ir import nodes as n
from kir.ir.anchors import anchor_of, anchors, at, find, paths, replace_at, resolve
from kir.ir.canonical import alpha_equal, bound_names, content_hash, rename
from kir.ir.changes.diff import diff, render_terminal, to_json
from kir.ir.measures.features import KINDS, features, kinds
from kir.ir.measures.measure import Measure, measure
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import verify
from kir.ir.visit import transform
from tests.strategies import programs


def it_is_accepted(p: n.Program, _: Random) -> None:
    assert [d.render() for d in verify(p, specialized=True)] == []


def printed_it_parses_to_itself(p: n.Program, _: Random) -> None:
    text = program_text(p)
    again = parse_program(text)
    assert again == p
    assert program_text(again) == text
    d = diff(p, again)
    assert d.is_empty and d.equal and to_json(d)["rows"] == []
    assert render_terminal(d) == "no difference"


def every_anchor_parses_back(p: n.Program, _: Random) -> None:
    listed = list(anchors(p))
    assert [(path, s) for _, path, s in listed] == list(paths(p))
    assert len({text for text, _, _ in listed}) == len(listed)
    for text, path, s in listed:
        assert resolve(p, text) == path
        assert anchor_of(p, path) == text
        assert at(p, path) is s
        assert find(p, text) == (path,)


def it_is_in_normal_form_wherever_it_is_rebuilt(p: n.Program, _: Random) -> None:
    def rebuilt(e: n.Node) -> n.Node:
        if isinstance(e, n.Binary):
            return build.binary(e.op, e.a, e.b)
        return build.unary(e.op, e.x) if isinstance(e, n.Unary) else e
    assert transform(p, lambda old, new: rebuilt(new)) == p


def renaming_what_is_local_keeps_the_hash(p: n.Program, random: Random) -> None:
    kernels = []
    for k in p.kernels:
        local = list(dict.fromkeys([*(a.name for a in k.grid), *bound_names(k.body)]))
        fresh = [f"z{i}" for i in range(len(local))]
        random.shuffle(fresh)
        kernels.append(rename(k, dict(zip(local, fresh, strict=True))))
    renamed = replace(p, kernels=tuple(kernels))
    assert content_hash(renamed) == content_hash(p)
    assert alpha_equal(renamed, p)


def the_measure_consists_of_natural_numbers_and_falls_when_a_statement_goes(p: n.Program, _: Random) -> None:
    m = measure(p)
    assert len(m) == len(Measure._fields) and all(isinstance(x, int) and x >= 0 for x in m)
    leaves = [path for path, s in paths(p) if isinstance(s, (n.Opaque, n.Jump))]
    if leaves:
        assert measure(replace_at(p, leaves[0], ())) < m


def features_have_known_kinds_and_their_anchors_exist(p: n.Program, _: Random) -> None:
    found = features(p)
    assert kinds(found) <= set(KINDS)
    for f in found:
        if "@" in f:
            assert resolve(p, f.partition("@")[2])


LAWS: tuple[Callable[[n.Program, Random], None], ...] = (
    it_is_accepted, printed_it_parses_to_itself, every_anchor_parses_back, it_is_in_normal_form_wherever_it_is_rebuilt, renaming_what_is_local_keeps_the_hash,
    the_measure_consists_of_natural_numbers_and_falls_when_a_statement_goes, features_have_known_kinds_and_their_anchors_exist)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(programs(), st.randoms(use_true_random=False))
def test_every_law_holds_of_generated_programs(p: n.Program, random: Random) -> None:
    for law in LAWS:
        law(p, random)
