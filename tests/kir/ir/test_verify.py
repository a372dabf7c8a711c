"""The verifier: accepts what is sound (generated; what is shipped: `test_text.py`), and names each fault once, with its place."""
from __future__ import annotations

from dataclasses import replace

import pytest

from kir.base.diagnostic import KirError, explanation
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.generic import generic_parts, is_generic
from kir.ir.rules.verify import check, verify
from kir.ir.types import BOOL, F32, I32, I64

HEAD = """kir 1
program p
  size M: i32
  in A: f16[M, 64]
  inout C: f32[M, 64]
kernel main grid (i: M) threads 128
"""
FAULTS = {
    "effect inside an expression": ("  let x = 1.0 + atomic_add(&C[i, 0], 1.0)", "KIR-V014", "main/x"),
    "store of another dtype": ("  @s C[i, 0] = A[i, 0]", "KIR-V009", "main/s"),
    "store of another shape": ("  @s C[i, 0 +: 8] = broadcast(1.0, 4)", "KIR-V009", "main/s"),
    "write to an input": ("  @s A[i, 0] = 1.0:f16", "KIR-V025", "main/s"),
    "rank": ("  @s C[i] = 1.0", "KIR-V007", "main/s"),
    "float index": ("  @s C[i, 1.0] = 1.0", "KIR-V007", "main/s"),
    "range beside a tile": ("  @s C[i + iota(4), 0 +: 4] = 1.0", "KIR-V007", "main/s"),
    "literal index out of bounds": ("  @s C[i, 64] = 1.0", "KIR-V008", "main/s"),
    "negative index": ("  let x = C[i, -1]", "KIR-V008", "main/x"),
    "range out of bounds": ("  let x = C[i, 60 +: 8]", "KIR-V008", "main/x"),
    "copy of another shape": ("  shared s: f16[32]\n  @c copy A[i, 0 +: 16] -> s", "KIR-V009", "main/c"),
    "mma shapes": ("  fragment acc: f32[16, 8] = 0.0\n  shared a: f16[16, 16]\n  shared b: f16[8, 8]\n  @m mma acc += a * b", "KIR-V009",
                   "main/m"),
    "mma of a team inside a loop over threads": ("  fragment acc: f32[16, 8] = 0.0\n  shared a: f16[16, 16]\n  shared b: f16[16, 8]\n"
                                                 "  for t in 0..128 parallel thread\n    @m mma acc += a * b", "KIR-V010", "main/t/m"),
    "shared memory of a thread": ("  for t in 0..128 parallel thread\n    shared s: f32[8]", "KIR-V011", "main/t/s"),
    "fragment of a thread": ("  for t in 0..128 parallel thread\n    fragment s: f32[8]", "KIR-V011", "main/t/s"),
    "global memory of a kernel": ("  global s: f32[8]", "KIR-V011", "main/s"),
    "mbarrier in registers": ("  register s: mbarrier[2]", "KIR-V011", "main/s"),
    "threads of threads": ("  for t in 0..128 parallel thread\n    @u for u in 0..2 parallel thread\n      pass", "KIR-V012", "main/t/u"),
    "more threads than there are": ("  @t for t in 0..256 parallel thread\n    pass", "KIR-V012", "main/t"),
    "a split that starts elsewhere": ("  @t for t in 1..64 parallel thread\n    pass", "KIR-V012", "main/t"),
    "roles that share a warp": ("  @r roles\n    role a warps 0..2\n      pass\n    role b warps 1..4\n      pass", "KIR-V012", "main/r"),
    "roles beyond the CTA": ("  @r roles\n    role a warps 0..5\n      pass", "KIR-V012", "main/r"),
    "registers of a role": ("  @r roles\n    role a warps 0..1 registers 41\n      pass", "KIR-V012", "main/r"),
    "shuffle outside a loop over threads": ("  let x = shfl_xor(1.0, 1)", "KIR-V013", "main/x"),
    "group without a commit": ("  shared s: f16[64]\n  @c copy A[i, 0 +: 64] -> s via cp_async grouped\n  async_wait(0)", "KIR-V015",
                               "main/c"),
    "signal without a wait": ("  shared s: f16[64]\n  shared bar: mbarrier[1]\n  mbar_init(&bar[0], 1)\n"
                              "  @c copy A[i, 0 +: 64] -> s via tma signal bar[0]", "KIR-V015", "main/c"),
    "wait without an init": ("  shared bar: mbarrier[1]\n  @w mbar_wait(&bar[0], 0)", "KIR-V015", "main/w"),
    "pending mma without a wait": ("  fragment acc: f32[64, 8] = 0.0\n  shared a: f16[64, 16]\n  shared b: f16[16, 8]\n"
                                   "  @m mma acc += a * b via wgmma pending\n  wgmma_commit()", "KIR-V015", "main/m"),
    "a plain copy that signals": ("  shared s: f16[64]\n  shared bar: mbarrier[1]\n  mbar_init(&bar[0], 1)\n  mbar_wait(&bar[0], 0)\n"
                                  "  @c copy A[i, 0 +: 64] -> s signal bar[0]", "KIR-V015", "main/c"),
    "labels": ("  @x C[i, 0] = 1.0\n  @x C[i, 1] = 1.0", "KIR-V019", "main/x#1"),
    "break outside a loop": ("  @j break", "KIR-V022", "main/j"),
    "break of a split": ("  for t in 0..128 parallel thread\n    @j break", "KIR-V022", "main/t/j"),
    "return of values": ("  @j return 1", "KIR-V022", "main/j"),
    "opaque of nothing": ('  @o opaque triton reads Z writes nothing because "x" text "y"', "KIR-V023", "main/o"),
    "way to copy": ("  shared s: f16[64]\n  @c copy A[i, 0 +: 64] -> s via tmaa", "KIR-V024", "main/c"),
    "way to multiply": ("  fragment acc: f32[16, 8] = 0.0\n  shared a: f16[16, 16]\n  shared b: f16[16, 8]\n"
                        "  @m mma acc += a * b via mma_synk",
                        "KIR-V024", "main/m"),
    "loop attribute": ("  @k for k in 0..4 pipelined {stagess=3}\n    pass", "KIR-V024", "main/k"),
    "order of a loop": ("  @k for k in 0..4 pipelined {stages=3, stage=3}\n    pass", "KIR-V024", "main/k"),
    "stages": ("  @k for k in 0..4 pipelined {stages=many}\n    pass", "KIR-V024", "main/k"),
    "condition": ("  @c if i\n    pass", "KIR-V009", "main/c"),
    "loop bounds of two dtypes": ("  @k for k in 0..4:i64\n    pass", "KIR-V009", "main/k"),
    "step of zero": ("  @k for k in 0..4 step 0\n    pass", "KIR-V009", "main/k"),
    "static branch on a run-time value": ("  @c static if i == 0\n    pass", "KIR-V017", "main/c"),
    "layout": ("  shared s: f16[8, 8] layout swizle(3, 4, 3)", "KIR-L001", "main/s"),
    "layout arguments": ("  shared s: f16[8, 8] layout swizzle(3, 4)", "KIR-L002", "main/s"),
    "strides": ("  shared s: f16[8, 8] strides [8]", "KIR-V009", "main/s"),
    "alignment": ("  shared s: f16[8, 8] align 12", "KIR-V009", "main/s"),
    "initial value": ("  shared s: f16[8] = 1.0", "KIR-V009", "main/s"),
    "view of another space": ("  shared s: f16[8]\n  view register v: f16[8] at s[0]", "KIR-V011", "main/v"),
    "floordiv of floats": ("  let x = 1.0 // 2.0", "KIR-V002", "main/x"),
    "a reduction of floats by their bits": ("  let x = reduce(broadcast(1.0, 4), axis=0, op=xor)", "KIR-V002", "main/x"),
    "combine function": ("  let x = reduce(iota(4), axis=0, combine=f)", "KIR-V005", "main/x"),
}


@pytest.mark.parametrize(("body", "id", "anchor"), FAULTS.values(), ids=FAULTS.keys())
def test_each_fault_is_named_once_with_its_place(body: str, id: str, anchor: str) -> None:
    p = parse_program(HEAD + body + "\n", "fault.kir")
    found = verify(p)
    assert [(d.id, d.anchor) for d in found] == [(id, anchor)], "\n".join(d.render() for d in found)
    assert found[0].origin is not None and found[0].origin.file == "fault.kir"
    assert explanation(id) is not None
    with pytest.raises(KirError):
        check(p)


HEADERS = {
    "two parameters of one name": ("  size M: i32\n", "  size M: i32\n  size M: i32\n", "KIR-T003"),
    "a size that is a float": ("  size M: i32\n", "  size M: i32\n  size X: f32\n", "KIR-V021"),
    "a fact that is no bool": ("  size M: i32\n", "  size M: i32\n  fact M\n", "KIR-V021"),
    "an alias of nothing": ("inout C: f32[M, 64]", "inout C: f32[M, 64] {alias=B}", "KIR-V021"),
    "a tile that a caller gives, of a size of the run": ("  size M: i32\n", "  size M: i32\n  in fragment t: f32[M, 1]\n", "KIR-V021"),
    "a box of another rank": ("  size M: i32\n", "  size M: i32\n  map tA of A box [64]\n", "KIR-V021"),
    "a box too large": ("  size M: i32\n", "  size M: i32\n  map tA of A box [512, 64]\n", "KIR-V021"),
    "a box wider than its swizzle": ("  size M: i32\n", "  size M: i32\n  map tA of A box [64, 64] {swizzle=64}\n", "KIR-V021"),
    "a map of nothing": ("  size M: i32\n", "  size M: i32\n  map tA of Q box [64, 64]\n", "KIR-V021"),
    "too many threads": ("threads 128", "threads 2048", "KIR-V021"),
    "too many axes": ("(i: M)", "(i: M, j: M, k: M, l: M)", "KIR-V021"),
    "a plan without a kernel": ("  C[i, 0] = 1.0\n", "  C[i, 0] = 1.0\nplan\n  launch mian\n", "KIR-V018"),
    "two kernels of one name": ("  C[i, 0] = 1.0\n", "  C[i, 0] = 1.0\nkernel main grid () threads 1\n  pass\n", "KIR-V004"),
    "a function named like an instruction": ("kernel main", "function exp(x: f32) -> f32\n  return x\nkernel main", "KIR-V004"),
    "a function without its return": ("kernel main", "function f(x: f32) -> f32\n  let y = x\nkernel main", "KIR-V022"),
    "a function that returns another type": ("kernel main", "function f(x: f32) -> f32\n  return 1\nkernel main", "KIR-V022"),
}


@pytest.mark.parametrize(("old", "new", "id"), HEADERS.values(), ids=HEADERS.keys())
def test_each_fault_outside_the_bodies_is_named(old: str, new: str, id: str) -> None:
    text = (HEAD + "  C[i, 0] = 1.0\n").replace(old, new)
    try:
        found = verify(parse_program(text))
    except KirError as bad:
        found = bad.diagnostics
    assert [d.id for d in found] == [id], "\n".join(d.render() for d in found)
    assert found[0].anchor or found[0].origin


def _main(*body: n.Stmt) -> n.Program:
    return n.Program("p", kernels=(n.Kernel("main", (), build.const(32), body),))


def test_faults_that_no_text_can_have_are_found_in_trees() -> None:
    x = n.Let(("x",), build.const(1))
    raw = n.Binary("add", build.const(1), n.Var("x", I32))
    b = n.Buffer("b", F32, (build.const(8),), "register")
    cases = [
        ((n.Let(("y",), n.Var("x", I32)),), "KIR-V005"),
        ((x, x), "KIR-V004"),
        ((x, n.Let(("y",), n.Var("x", I64))), "KIR-V006"),
        ((x, n.Let(("y",), raw)), "KIR-V020"),
        ((x, n.Let(("y",), n.Binary("sub", n.Var("x", I32), n.Var("x", I32)))), "KIR-V020"),
        ((n.Let(("y",), n.Const(300, F32)),), "KIR-V020"),
        ((n.Alloc(b), n.Store(n.Region(replace(b, align=16), (build.const(0),)), build.const(1.0, F32))), "KIR-V006"),
        ((n.Store(n.Region(b, (build.const(0),)), build.const(1.0, F32)),), "KIR-V005"),
        ((n.If(build.compare("eq", build.var("q"), 1), (x,)), n.Let(("y",), n.Var("x", I32))), "KIR-V005"),
        ((n.Let(("no name",), build.const(1)),), "KIR-V004"),
        ((n.Let(("y",), n.Call("expp", (build.const(1.0, F32),), (), F32)),), "KIR-V001"),
    ]
    for body, id in cases:
        assert id in {d.id for d in verify(_main(*body))}, (body, verify(_main(*body)))


def test_a_name_defined_in_a_branch_is_not_in_view_behind_it() -> None:
    inner = n.Let(("x",), build.const(1))
    p = _main(n.If(build.const(True, BOOL), (inner,)), n.Let(("y",), n.Var("x", I32)))
    assert [(d.id, d.anchor) for d in verify(p)] == [("KIR-V005", "main/y")]


GENERIC = """kir 1
program g
  meta BLOCK: int = 128
  meta EVEN: bool
  size M: i32
  size A_extent: i64 {implicit=true}
  in A: $<T>[A_extent]
  out C: f32[M]
kernel main grid (pid: ceildiv(M, BLOCK)) threads 128
  static if EVEN
    C[pid * BLOCK +: BLOCK] = 1.0
  for s in 0..BLOCK static
    C[s] = cast(A[s], f32)
"""


def test_generic_programs_verify_and_are_told_apart() -> None:
    p = parse_program(GENERIC)
    assert [d.render() for d in verify(p)] == []
    assert is_generic(p) and not is_generic(parse_program(HEAD + "  C[i, 0] = 1.0\n"))
    messages = " ".join(d.message for d in generic_parts(p))
    for what in ("BLOCK", "EVEN", "A_extent", "'A'", "static branch", "static loop"):
        assert what in messages
    assert {d.id for d in verify(p, specialized=True)} == {"KIR-V016"}


def test_pure_device_functions_may_stand_in_expressions_and_others_may_not() -> None:
    pure = "function f(x: f32) -> f32\n  register t: f32 = x\n  t = t * 2.0\n  return t\n"
    impure = "function f(x: f32, global out: f32[4]) -> f32\n  out[0] = x\n  return x\n"
    kernel = "kernel main grid (i: M) threads 1\n  C[i, 0] = 1.0 + f({})\n"
    head = HEAD[:HEAD.index("kernel")]
    assert verify(parse_program(head + pure + kernel.format("2.0"))) == ()
    text = head.replace("inout C", "inout D: f32[4]\n  inout C") + impure + kernel.format("2.0, &D")
    assert [d.id for d in verify(parse_program(text))] == ["KIR-V014"]


def test_metas_of_any_kind_and_symbolic_dtypes_may_stand_where_the_binding_may_make_them_fit() -> None:
    text = """kir 1
program g
  meta EPS: any
  meta SCALE: float = 0.5
  size M: i32
  in X: $<TX>[M]
  in Y: $<TY>[M]
  out C: f32[M]
kernel main grid (i: M) threads 32
  let y = Y[i]
  let e = cast(EPS, f32) + SCALE
  @s C[i] = cast(X[y], f32) * e
"""
    p = parse_program(text)
    assert [d.render() for d in verify(p)] == []
    assert n.meta_type(p.metas[0]).is_symbolic and n.meta_type(p.metas[1]) == F32
    assert parse_program(program_text(p)) == p
