"""Anchors parse back, ambiguity and misses are errors that help; paths edit; anchor maps are total relations that compose."""
from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kir.base.diagnostic import KirError
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.anchors import (
    anchor_of,
    at,
    block_at,
    enclosing,
    find,
    insert,
    parse_pattern,
    paths,
    replace_at,
    replace_block,
    resolve,
    segments,
)
from kir.ir.changes.anchor_map import AnchorMap, Deleted, anchor_map, identity
from kir.ir.parser import parse_program
from tests.strategies import programs

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
TEXT = """kir 1
program gemm
  size K: i32
  in A: f16[128, K]
  in B: f16[K, 64]
  out C: f32[128, 64]
kernel main grid () threads 128
  shared As: f16[128, 32]
  shared Bs: f16[32, 64]
  fragment acc: f32[128, 64] = 0.0
  @k_loop for k in 0..K // 32 pipelined {stages=3}
    @load_A copy A[0 +: 128, k * 32 +: 32] -> As via cp_async
    copy B[k * 32 +: 32, 0 +: 64] -> Bs via tma
    barrier()
    mma acc += As * Bs
    barrier()
  if K > 7
    acc = acc + 1.0
    acc = acc + 2.0
  else
    let x = K
  roles
    role producer warps 0..1
      let p = 1
    role consumer warps 1..4
      @load_A let p1 = 2
  @store C = acc
"""


@pytest.fixture
def gemm() -> n.Program:
    return parse_program(TEXT)


def test_names_come_from_labels_then_from_what_a_statement_defines(gemm: n.Program) -> None:
    assert segments(gemm.kernels[0].body) == ("As", "Bs", "acc", "k_loop", "if", "roles", "store")
    body = gemm.kernels[0].body[3]
    assert isinstance(body, n.For)
    assert segments(body.body) == ("load_A", "copy(dst=Bs)", "barrier#0", "mma(acc=acc)", "barrier#1")


@pytest.mark.parametrize(("text", "path"), [
    ("main", ("main",)),
    ("main/k_loop", ("main", 3)),
    ("main/k", ("main", 3)),
    ("main/k_loop/load_A", ("main", 3, "body", 0)),
    ("main/copy(dst=As)", ("main", 3, "body", 0)),
    ("copy(dst=As)#0", ("main", 3, "body", 0)),
    ("copy(via=tma)", ("main", 3, "body", 1)),
    ("for(kind=pipelined)", ("main", 3)),
    ("for(stages=3,var=k)", ("main", 3)),
    ("mma#0", ("main", 3, "body", 3)),
    ("main/k_loop/barrier#1", ("main", 3, "body", 4)),
    ("main/k_loop/body.2", ("main", 3, "body", 2)),
    ("main/if/then/store(dst=acc)#1", ("main", 4, "then", 1)),
    ("main/if/else/x", ("main", 4, "orelse", 0)),
    ("main/if/else", ("main", 4, "orelse")),
    ("main/roles/consumer/load_A", ("main", 5, "roles", 1, "body", 0)),
    ("main/k_loop@before", ("main", 3)),
    ("main/k_loop@after", ("main", 4)),
    ("main/store@after", ("main", 7)),
    ("store(dst=C)", ("main", 6)),
])
def test_what_anchors_mean(gemm: n.Program, text: str, path: tuple[int | str, ...]) -> None:
    assert resolve(gemm, text) == path


def test_an_ambiguous_anchor_lists_the_candidates(gemm: n.Program) -> None:
    for text in ("main/load_A", "load_A"):
        with pytest.raises(KirError) as raised:
            resolve(gemm, text)
        (d,) = raised.value.diagnostics
        assert d.id == "KIR-A001"
        assert d.witness == ("main/k_loop/load_A", "main/roles/consumer/load_A")
        assert [resolve(gemm, w) for w in d.witness] == list(find(gemm, text))


def test_a_miss_names_the_nearest_and_what_there_is(gemm: n.Program) -> None:
    with pytest.raises(KirError) as raised:
        resolve(gemm, "main/k_loop/laod_A")
    (d,) = raised.value.diagnostics
    assert d.id == "KIR-A002" and "load_A" in d.attempt and "barrier#0" in d.notes[0]
    with pytest.raises(KirError) as raised:
        resolve(gemm, "main/k_loop/barrier#2")
    assert raised.value.diagnostics[0].id == "KIR-A002"
    assert find(gemm, "main/nothing") == ()


@pytest.mark.parametrize("text", ["", "/", "main//k", "main/k_loop/", "main/copy(dst", "main/copy(dst=)", "main@before", "main/a b",
                                  "main/x#y"])
def test_what_is_no_anchor_is_refused(gemm: n.Program, text: str) -> None:
    with pytest.raises(KirError) as raised:
        resolve(gemm, text)
    assert raised.value.diagnostics[0].id == "KIR-A003"


@pytest.mark.parametrize("text", ["load_A", "copy(dst=As)#0", "for(kind=pipelined,stages=3)", "mma#2", "copy(via=vector(4))"])
def test_patterns_parse_back(text: str) -> None:
    assert str(parse_pattern(text)) == text


def test_a_path_of_another_program_is_an_error(gemm: n.Program) -> None:
    for path in ((), ("main",), ("other", 0), ("main", 99), ("main", 3, "then", 0), ("main", 3, "body", 9), ("main", 3, 0), ("main",
                                                                                                                             "body")):
        with pytest.raises(KirError) as raised:
            at(gemm, path)
        assert raised.value.diagnostics[0].id == "KIR-A004"
    with pytest.raises(KirError):
        anchor_of(gemm, ("main", 3, "body", 9))
    with pytest.raises(KirError):
        insert(gemm, ("main", 99), ())


def test_editing_at_paths(gemm: n.Program) -> None:
    path = resolve(gemm, "main/k_loop/load_A")
    new = n.Eval(build.call("fence"), label="f")
    replaced = replace_at(gemm, path, (new,))
    assert at(replaced, path) is new
    removed = replace_at(gemm, path, ())
    assert len(block_at(removed, path[:-1])) == len(block_at(gemm, path[:-1])) - 1
    before = insert(gemm, resolve(gemm, "main/k_loop/load_A@before"), (new,))
    after = insert(gemm, resolve(gemm, "main/store@after"), (new,))
    assert at(before, path) is new and at(before, (*path[:-1], 1)) == at(gemm, path)
    assert after.kernels[0].body[-1] is new and anchor_of(after, ("main", 8)) == "main/f@after"
    role = resolve(gemm, "main/roles/producer")
    assert block_at(replace_block(gemm, role, (new, new)), role) == (new, new)
    assert [p for p, _ in enclosing(gemm, path)] == [("main", 3)]
    assert removed.kernels[0].body[0] is gemm.kernels[0].body[0]


@SLOW
@given(programs(1), st.data())
def test_replacing_a_statement_by_itself_changes_nothing(p: n.Program, data: st.DataObject) -> None:
    listed = list(paths(p))
    if listed:
        path, s = data.draw(st.sampled_from(listed))
        assert replace_at(p, path, (s,)) == p
        marked = insert(p, path, (n.Eval(build.call("fence"), label="here"),))
        assert at(marked, path).label == "here"
        assert replace_at(marked, path, ()) == p


# --------------------------------------------------------------------------------------------------------------- anchor maps

@SLOW
@given(programs(1))
def test_the_map_of_no_change_is_the_identity(p: n.Program) -> None:
    assert anchor_map(p, p) == identity(p)
    assert anchor_map(p, parse_program(__import__("kir.ir.printer", fromlist=["x"]).program_text(p))).is_identity


@SLOW
@given(programs(1), programs(1))
def test_maps_are_total_and_no_two_statements_become_one(p: n.Program, q: n.Program) -> None:
    m = anchor_map(p, q, step="s")
    there = {path for path, _ in paths(q)}
    assert list(m) == [path for path, _ in paths(p)]
    images = [t for image in map(m.__getitem__, m) if not isinstance(image, Deleted) for t in image]
    assert len(images) == len(set(images)) and set(images) <= there
    for path in m:
        target = m[path]
        if isinstance(target, Deleted):
            assert target.step == "s" and target.reason
        else:
            assert all(type(at(p, path)) is type(at(q, t)) for t in target)


@SLOW
@given(programs(1), st.data())
def test_an_unchanged_statement_is_followed_when_its_neighbors_change(p: n.Program, data: st.DataObject) -> None:
    body = p.kernels[0].body
    if not body:
        return
    i = data.draw(st.integers(0, len(body) - 1))
    marker = n.Eval(build.call("cluster_arrive"))
    q = insert(p, ("kernel_0", i), (marker,))
    m = anchor_map(p, q)
    for path in m:
        head = path[1]
        assert isinstance(head, int)
        moved = ("kernel_0", head + (head >= i), *path[2:])
        target = m[path]
        assert not isinstance(target, Deleted)
        assert at(q, target[0]) == at(p, path)
        if sum(x == body[head] for x in body) == 1:
            assert target == (moved,)
    back = anchor_map(q, p, step="undo")
    assert isinstance(back[("kernel_0", i)], Deleted)
    assert m.then(back).is_identity or any(body.count(x) > 1 for x in body)


def test_statements_that_move_are_followed(gemm: n.Program) -> None:
    path = resolve(gemm, "main/k_loop/load_A")
    hoisted = insert(replace_at(gemm, path, ()), ("main", 3), (at(gemm, path),))
    m = anchor_map(gemm, hoisted)
    assert m[path] == (("main", 3),)
    assert m[resolve(gemm, "main/k_loop")] == (("main", 4),)
    assert m[resolve(gemm, "main/k_loop/mma(acc=acc)")] == (("main", 4, "body", 2),)


def test_hints_say_where_copies_went_and_what_is_gone(gemm: n.Program) -> None:
    load = resolve(gemm, "main/k_loop/load_A")
    twice = insert(gemm, load, (replace(at(gemm, load), label=None),))  # type: ignore[type-var]  # every Stmt is a dataclass
    m = anchor_map(gemm, twice, {load: [load, (*load[:-1], 1)], ("main", 6): []}, step="unroll", reason="no longer needed")
    assert m[load] == (load, (*load[:-1], 1))
    assert m[("main", 6)] == Deleted("unroll", "no longer needed")


def test_maps_compose_and_remember_the_first_reason(gemm: n.Program) -> None:
    load = resolve(gemm, "main/k_loop/load_A")
    q = replace_at(gemm, load, ())
    r = replace_at(q, ("main", 0), ())
    first, second = anchor_map(gemm, q, step="one"), anchor_map(q, r, step="two")
    both = first.then(second)
    assert both[load] == first[load] == Deleted("one", "not in the program after the step")
    assert both[("main", 0)] == Deleted("two", "not in the program after the step")
    assert both[("main", 3)] == (("main", 2),)
    assert AnchorMap(tuple(both.targets)) == both
    inverse = first.inverse(q, "one")
    assert first.then(inverse)[("main", 3)] == (("main", 3),)
    with pytest.raises(KirError) as raised:
        both[("main", 77)]
    assert raised.value.diagnostics[0].id == "KIR-A004"
