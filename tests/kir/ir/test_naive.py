"""Predicate N, the measure of law 9, and state features."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from kir.ir import nodes as n
from kir.ir.anchors import resolve
from kir.ir.measures.features import KINDS, features, has, kinds
from kir.ir.measures.measure import deciding, decreases, measure
from kir.ir.measures.naive import is_naive, is_row_major
from kir.ir.parser import parse_program
from kir.ir.visit import walk
from kir.problem import load_problem, problem_names
from kir.rewrite.conformance.box import box_of

ROOT = Path(__file__).parents[3]
EXPERTS = sorted((ROOT / "skills" / "experts").rglob("*.kir"))


@dataclass(frozen=True)
class Item:
    kind: str
    axes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Private:
    name: str
    dtype: str
    shape: tuple[str, ...]


HEAD = "kir 1\nprogram p\n  size M: i32\n  size N: i32\n  in A: f32[M, N]\n  out C: f32[M, N]\n"
NAIVE = HEAD + "kernel main grid (i: M, j: N) threads 1\n  @s C[i, j] = A[i, j] * 2.0\n"


@pytest.mark.parametrize(("grid", "body", "message"), [
    ("(i: M)", "for j in 0..N\n    @s C[i, j] = A[i, j] * 2.0", ""),
    ("(b: ceildiv(M, 4))",
     "for i in 0..4\n    for j in 0..N\n      @s C[b * 4 + i, j] = load(A[b * 4 + i, j] else 0.0 clip) * 2.0 clip",
     "one thread computes several rows"),
    ("(i: M, j: N)", "@s C[i, j] = A[i, j] * 2.0", "several threads compute one row")])
def test_a_row_is_one_threads(grid: str, body: str, message: str) -> None:
    found = is_naive(parse_program(f"{HEAD}kernel main grid {grid} threads 1\n  {body}\n"), Item("row", ("M",)))
    assert [v.message.partition(":")[0] for v in found] == ([message] if message else [])
    assert all(v.clause == "work-item" for v in found)


@pytest.mark.parametrize("name", problem_names())
def test_every_problem_comes_with_a_naive_program(name: str) -> None:
    problem = load_problem(name)
    assert is_naive(problem.naive, problem.work_item, problem.state) == ()


@pytest.mark.parametrize("file", EXPERTS, ids=lambda f: f.name)
def test_no_expert_is_naive_and_each_violation_names_a_place(file: Path) -> None:
    p = parse_program(file.read_text(), str(file))
    found = is_naive(p)
    assert found
    outside = {p.name, *(t.name for t in p.tensor_maps), *(q.name for q in p.params)}
    for v in found:
        assert v.anchor in outside or resolve(p, v.anchor)


CLAUSES = {
    "threads": (NAIVE.replace("threads 1", "threads 32"), "one-thread", "main"),
    "a loop over threads": (NAIVE.replace("  @s", "  @t for t in 0..1 parallel thread\n    @s"), "one-thread", "main/t"),
    "shared memory": (NAIVE.replace("  @s", "  shared x: f32\n  @s"), "memory", "main/x"),
    "a fragment": (NAIVE.replace("  @s", "  fragment x: f32[8]\n  @s"), "memory", "main/x"),
    "a barrier": (NAIVE.replace("  @s", "  barrier()\n  @s"), "synchronization", "main/barrier"),
    "an atomic": (NAIVE.replace("  @s C[i, j] = A[i, j] * 2.0", "  @s atomic_add(&C[i, j], 1.0)"), "atomics", "main/s"),
    "a whole tile": (NAIVE.replace("  @s C[i, j] = A[i, j] * 2.0", "  @s C[i, 0 +: 8] = A[i, 0 +: 8]"), "scalar", "main/s"),
    "a reduction": (NAIVE.replace("  @s", "  @r let x = reduce(iota(4), axis=0, op=sum)\n  @s"), "scalar", "main/r"),
    "unrolling": (NAIVE.replace("  @s", "  @k for k in 0..4 unroll {factor=4}\n    pass\n  @s"), "unrolling", "main/k"),
    "a private array": (NAIVE.replace("  @s", "  register x: f32[8]\n  @s"), "state", "main/x"),
    "a layout": (NAIVE.replace("out C: f32[M, N]", "out C: f32[M, N] strides [1, M]"), "layout", "C"),
    "a view": (NAIVE.replace("  @s", "  view global v(a): f32[M] at A[a, 0]\n  @s"), "layout", "main/v"),
    "several elements": (NAIVE.replace("(i: M, j: N)", "(i: M)").replace("  @s", "  for j in 0..N\n    @s"), "work-item", "main/j/s"),
    "an idle axis": (NAIVE.replace("(i: M, j: N)", "(i: M, j: N, l: M)"), "work-item", "main"),
    "opaque text": (NAIVE.replace("  @s", '  opaque cuda reads * writes * because "asm" text "x"\n  @s'), "opaque", "main/opaque"),
    "a cluster": (NAIVE.replace("threads 1", "threads 1 cluster (2)"), "launch", "main"),
    "a copy of a tile": (NAIVE.replace("  @s C[i, j] = A[i, j] * 2.0", "  @s copy A[i, 0 +: 8] -> C[i, 0 +: 8] via tma"), "asynchrony",
                         "main/s"),
    "dispatch": (NAIVE + "plan\n  dispatch\n    when M < 4\n      launch main\n    else\n      launch main\n", "launch", "p"),
    "a meta": (NAIVE.replace("  size M", "  meta B: int\n  size M"), "specialized", "p"),
}


@pytest.mark.parametrize(("text", "clause", "anchor"), CLAUSES.values(), ids=CLAUSES.keys())
def test_each_clause_is_named_with_its_anchor(text: str, clause: str, anchor: str) -> None:
    found = [(v.clause, v.anchor) for v in is_naive(parse_program(text), Item("element"))]
    assert (clause, anchor) in found


def test_the_scalar_program_is_naive() -> None:
    assert is_naive(parse_program(NAIVE), Item("element")) == ()


def test_declared_state_and_scatter_allow_what_they_say_and_no_more() -> None:
    p = parse_program(NAIVE.replace("  @s", "  register x: f32[8]\n  register y: f32[8]\n  @s"))
    assert [v.anchor for v in is_naive(p, state=[Private("x", "f32", ("8",))])] == ["main/y"]
    assert is_naive(p, state=[Private("x", "f32", ("16",)), Private("y", "f32", ("8",))]) == ()
    assert len(is_naive(p, state=[Private("x", "f16", ("8",)), Private("y", "f32", ("4",))])) == 2
    sized = parse_program(NAIVE.replace("kernel main", "  fact N <= 8\nkernel main").replace("  @s", "  register x: f32[8]\n  @s"))
    assert is_naive(sized, state=[Private("x", "f32", ("N",))]) == ()
    assert [v.anchor for v in is_naive(p, state=[Private("x", "f32", ("N",)), Private("y", "f32", ("8",))])] == ["main/y"]
    scatter = parse_program(NAIVE.replace("  @s C[i, j] = A[i, j] * 2.0", "  @s atomic_add(&C[i, j], A[i, j])"))
    assert is_naive(scatter, scatter=True) == ()


def test_a_row_may_be_written_by_one_thread_when_the_problem_says_so() -> None:
    p = parse_program(HEAD + "kernel main grid (i: M) threads 1\n  for j in 0..N\n    @s C[i, j] = A[i, j]\n")
    assert is_naive(p, Item("row")) == ()
    assert [v.clause for v in is_naive(p, Item("element"))] == ["work-item"]


def test_row_major_strides_are_recognized_through_derived_parameters() -> None:
    text = HEAD.replace("out C: f32[M, N]", "scalar ld: i32 = N\n  out C: f32[M, N] strides [ld, 1]") + NAIVE[len(HEAD):]
    assert is_naive(parse_program(text), Item("element")) == ()
    p = parse_program(NAIVE.replace("out C: f32[M, N]", "out C: f32[M, N] strides [N, 1]"))
    c = p.params[-1].of
    assert isinstance(c, n.Buffer) and is_row_major(c)


# ------------------------------------------------------------------------------------------------------------------ measure

TILED = HEAD + """kernel main grid (i: ceildiv(M, 64)) threads 128
  shared As: f32[64, 32] layout swizzle(3, 4, 3)
  fragment acc: f32[64] = 0.0
  @k_loop for k in 0..N // 32 pipelined {stages=3}
    @load copy A[i * 64 +: 64, k * 32 +: 32] -> As via cp_async clip
    @sum acc = acc + reduce(As, axis=1, op=sum)
  @store C[i * 64 +: 64, 0] = acc * 2.0
"""
STEPS = {
    "asynchrony": (" via cp_async", ""),
    "stages": (" pipelined {stages=3}", ""),
    "layouts": (" layout swizzle(3, 4, 3)", ""),
    "threads": ("threads 128", "threads 1"),
    "masks": (" clip", ""),
    "fused": ("= acc * 2.0", "= acc"),
}


@pytest.mark.parametrize("component", STEPS)
def test_taking_a_feature_back_decreases_the_measure_in_its_component(component: str) -> None:
    old, new = STEPS[component]
    p, q = parse_program(TILED), parse_program(TILED.replace(old, new))
    assert decreases(p, q) and not decreases(q, p)
    assert deciding(measure(p), measure(q)) == component


def test_a_step_may_pay_with_what_stands_further_right() -> None:
    p = parse_program(TILED)
    q = parse_program(TILED.replace(" via cp_async", "").replace("    @sum", "    barrier()\n    @sum").replace("  @store",
                                                                                                                "  let a = 1\n  @store"))
    assert decreases(p, q)


def test_splitting_a_loop_that_carries_two_accumulators_decreases_the_measure() -> None:
    one = HEAD + ("kernel main grid (i: M) threads 1\n  register a: f32 = 0.0\n  register b: f32 = 0.0\n"
                  "  for j in 0..N\n    a = a + A[i, j]\n    b = max(b, A[i, j])\n  C[i, 0] = a + b\n")
    two = one.replace("    b = max(b, A[i, j])", "  for l in 0..N\n    b = max(b, A[i, l])")
    assert decreases(parse_program(one), parse_program(two))
    assert deciding(measure(parse_program(one)), measure(parse_program(two))) == "coupling"


def test_a_barrier_for_each_array_measures_less_than_one_for_both() -> None:
    one = HEAD + ("kernel main grid (i: M) threads 32\n  shared a: f32[32]\n  shared b: f32[32]\n  for t in 0..32 parallel thread\n"
                  "    a[t] = A[i, t]\n    b[t] = A[i, t + 1]\n    barrier()\n    C[i, t] = a[31 - t] + b[31 - t]\n")
    two = one.replace("    b[t]", "    barrier()\n    b[t]")
    assert deciding(measure(parse_program(one)), measure(parse_program(two))) == "synchronization"
    assert decreases(parse_program(one), parse_program(two))


def test_what_its_data_say_is_a_scatter_and_a_flat_view_is_a_row_major_tensor() -> None:
    head = "kir 1\nprogram p\n  in X: f32[4, 8]\n  in I: i32[4]\n  inout H: f32[16]\nkernel main grid (i: 4) threads 1\n"
    picked = head + "  view global flat: f32[32] at X\n  atomic_add(&H[I[i]], flat[I[i] + i * 8])\n"
    assert is_naive(parse_program(picked)) == ()
    assert {v.clause for v in is_naive(parse_program(picked.replace("&H[I[i]]", "&H[i]")))} == {"atomics"}
    assert {v.clause for v in is_naive(parse_program(picked.replace("f32[32] at X", "f32[16, 2] at X").replace("flat[I[i] + i * 8]", "flat[I[i], 0]")))} == {
        "layout"}


@pytest.mark.parametrize(("view", "row"), [
    ("[M, 8 * N]", True), ("[M * 8, N]", True), ("[M, 2, 4 * N]", True), ("[M, 3, 4 * N]", False), ("[M * 4, 2 * N]", False), ("[M, 2, 4, N]", False),
    ("[8 * N, M]", False)])
def test_a_view_of_rows_in_one_piece_is_a_row_major_tensor(view: str, row: bool) -> None:
    """Axes side by side, or a group of one and all that come after it: nothing that mixes rows."""
    rank = view.count(",") + 1
    text = ("kir 1\nprogram p\n  in X: f32[M, 8, N]\n  out Y: f32[M]\n  size M: i32\n  size N: i32\n"
            f"kernel main grid (i: M) threads 1\n  view global v: f32{view} at X\n  Y[i] = v[{', '.join(['0'] * rank)}]\n")
    assert {v.clause for v in is_naive(parse_program(text))} == (set() if row else {"layout"})


def test_sinking_a_definition_into_a_loop_decreases_the_measure() -> None:
    hoisted = HEAD + "kernel main grid (i: M) threads 1\n  let x = A[i, 0]\n  for j in 0..N\n    C[i, j] = x\n"
    sunk = HEAD + "kernel main grid (i: M) threads 1\n  for j in 0..N\n    let x = A[i, 0]\n    C[i, j] = x\n"
    inlined = HEAD + "kernel main grid (i: M) threads 1\n  for j in 0..N\n    C[i, j] = A[i, 0]\n"
    assert measure(parse_program(inlined)) < measure(parse_program(sunk)) < measure(parse_program(hoisted))


@pytest.mark.parametrize("name", problem_names())
def test_experts_measure_more_than_the_naive_program(name: str) -> None:
    naive = measure(load_problem(name).naive)
    for file in (ROOT / "skills" / "experts" / name).glob("*.kir"):
        assert naive < measure(parse_program(file.read_text(), str(file)))


@pytest.mark.parametrize("file", sorted((ROOT / "passes").rglob("[a-z]*.py")), ids=lambda f: f.stem)
def test_going_back_over_the_example_of_a_pass_decreases_the_measure_or_adds_a_kernel(file: Path) -> None:
    """A step back that splits a kernel, or that moves memory of a CTA to a workspace, is no step of a lineage: naive programs have as many
    kernels and workspaces as the expert."""
    box = box_of(file.read_text(), file.stem)
    before, after = box.before, box.after
    if any(isinstance(x, n.Hole) for k in after.kernels for x in walk(k)):
        assert not any(isinstance(x, n.Hole) for k in before.kernels for x in walk(k))  # the filled program is what a lineage undoes
        return
    assert decreases(after, before) == (len(before.kernels) <= len(after.kernels) and len(before.workspaces) <= len(after.workspaces))


# ----------------------------------------------------------------------------------------------------------------- features

def test_features_say_what_and_where() -> None:
    found = features(parse_program(TILED))
    assert {"shared:As", "swizzle:As", "fragment:acc", "pipelined@main/k_loop", "cp_async@main/k_loop/load", "reduction@main/k_loop/sum",
            "masked@main/k_loop/load", "threads@main", "tiled@main", "rows@main/store"} <= found
    assert has(found, "shared:As") and has(found, "pipelined") and not has(found, "mma") and not has(found, "shared:Bs")
    assert features(parse_program(NAIVE)) == frozenset()


@pytest.mark.parametrize("file", EXPERTS, ids=lambda f: f.name)
def test_features_do_not_depend_on_labels_of_the_values(file: Path) -> None:
    p = parse_program(file.read_text(), str(file))
    assert kinds(features(p)) <= set(KINDS) and features(p)


ROW = """kir 1
program p
  size M: i32
  in A: f32[M, 8]
  out C: f32[M, {columns}]
kernel main grid (i: M) threads 1
  register acc: f32[8] = 0.0
  for k in 0..8
    for j in 0..8
      acc[j] = acc[j] + A[i, k]
  for j_1 in 0..8
    C[i, j_1{at}] = acc[j_1]
"""


@pytest.mark.parametrize(("columns", "at", "problem", "allowed"), [
    ("8", "", None, True), ("16", "", None, False), ("9", " + 1", None, False), ("8", "", "row", False)],
                         ids=["a whole row", "a part of one", "not from its start", "where a problem says what may be held"])
def test_without_a_problem_a_row_that_is_stored_may_be_held(columns: str, at: str, problem: str | None, allowed: bool) -> None:
    found = is_naive(parse_program(ROW.format(columns=columns, at=at)), Item(problem, ("M",)) if problem else None)
    assert [v.clause for v in found] == ([] if allowed else ["state"])


@pytest.mark.parametrize(("second", "allowed"), [("I[m, k] = where[k]", True), ("I[m, 3 - k] = where[k]", False), ("I[m, k] = where[k] + best[0]", True)])
def test_one_loop_may_store_the_rows_that_are_held_to_several_outputs(second: str, allowed: bool) -> None:
    text = ("kir 1\nprogram best\n  size M: i32\n  in X: i32[M, 4]\n  out V: i32[M, 4]\n  out I: i32[M, 4]\nkernel main grid (m: M) threads 1\n"
            "  register best: i32[4] = 0\n  register where: i32[4] = 0\n  for j in 0..4\n    best[j] = X[m, 3 - j]\n    where[j] = 3 - j\n"
            f"  for k in 0..4\n    V[m, k] = best[k]\n    {second}\n")
    found = is_naive(parse_program(text.replace("where", "place")))
    assert {v.clause for v in found} == (set() if allowed else {"state"})


RECURRENCE = """kir 1
program recurrence
  size T: i32
  in K: f32[T, 4]
  in V: f32[T, 4]
  out O: f32[T, 4]
  out H: f32[4]
kernel main grid (b: 1) threads 1
  register h: f32[4{more}] = 0.0
  for t in 0..T
    for i in 0..4
{update}
    register o: f32 = 0.0
    for i_1 in 0..4
      {along}
    {given}
"""
STATE = {"more": "", "update": "      h[i] = h[i] * 0.5 + K[t, i]", "along": "o = o + h[i_1] * V[t, i_1]", "given": "O[t, 0] = o"}
NEXT = "      pass\n    register next: f32[4] = 0.0\n    for j in 0..4\n      for i in 0..4\n        next[i] = next[i] + h[j] * K[t, i]"
HELD = {
    "a row that each round goes along": ({}, True),
    "a row of which each round finds an element": ({"along": "if K[t, i_1] > 0.0\n        o = h[cast(K[t, i_1], i32)]"}, True),
    "both axes of it": ({"more": ", 4", "update": "      for j in 0..4\n        h[i, j] = h[i, j] * 0.5 + V[t, j]",
                         "along": "for j_1 in 0..4\n        o = o + h[i_1, j_1]"}, True),
    "columns that could be work items": ({"more": ", 4", "update": "      for j in 0..4\n        h[i, j] = h[i, j] * 0.5 + V[t, j]",
                                          "along": "for j_1 in 0..4\n        O[t, j_1] = h[i_1, j_1]"}, False),
    "elements that could be work items": ({"along": "O[t, 3 - i_1] = h[i_1]"}, False),
    "what each round begins anew": ({"update": "      h[i] = K[t, i] * 2.0"}, False),
    "rounds that give no results": ({"given": "H[0] = o"}, False),
    "a number that is made of an element and goes back to it": ({"update": "      register x: f32 = h[i]\n      x = x + K[t, i]\n      h[i] = x"}, True),
    "the next state, beside the one that it is computed from": ({"update": NEXT, "given": "O[t, 0] = o\n    for i_3 in 0..4\n      h[i_3] = next[i_3]"}, True),
    "elements that wait for nothing": ({"update": NEXT.replace("h[j]", "h[i]"), "given": "O[t, 0] = o\n    for i_3 in 0..4\n      h[i_3] = next[i_3]"}, False),
    "a row that is not needed once the state changes": ({"update": NEXT,
                                                         "given": "O[t, 0] = o + next[1]\n    for i_3 in 0..4\n      h[i_3] = h[i_3] * 0.5"}, False),
    "sums that are only used at the end": ({"along": "pass", "given": "O[t, 0] = V[t, 0]\n  register all: f32 = 0.0\n  for i_2 in 0..4\n"
                                            "    all = all + h[i_2]\n  H[0] = all"}, False),
}


@pytest.mark.parametrize("case", HELD)
def test_without_a_problem_what_a_recurrence_hands_on_may_be_held(case: str) -> None:
    changed, allowed = HELD[case]
    found = is_naive(parse_program(RECURRENCE.format(**{**STATE, **changed})))
    assert [v.clause for v in found] == ([] if allowed else ["state"])
