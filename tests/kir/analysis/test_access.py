"""Accesses, exchange of code, invariance, affine forms and footprints."""
from __future__ import annotations

from kir.analysis import Aliases, Facts, accesses, affine, footprint, independent, is_invariant, may_overlap
from kir.analysis.access import covers, uses, written
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.build import add, const, mul, sub, var
from kir.ir.parser import parse_program
from kir.ir.printer import expr_text

PROGRAM = parse_program("""kir 1
program p
  size N: i32
  in X: f32[N, 64]
  in Z: f32[64]
  out Y: f32[N, 64] {alias=X}
  out W: f32[N, 64]
  fact N <= 65536
kernel main grid (b: N) threads 64
  shared S: f32[2, 64]
  @first W[b, 0 +: 32] = Z[0 +: 32]
  @second W[b, 32 +: 32] = Z[32 +: 32]
  @third Y[b, 0 +: 64] = X[b, 0 +: 64]
  let t = b * 2
  @fourth W[t, 0 +: 8] = Z[0 +: 8]
  barrier()
  @loop for i in 0..8
    let u = Z[i]
    let v = X[b, i]
    S[i % 2, 0 +: 64] = X[b, 0 +: 64] * u
    Y[b, i] = v
""")
KERNEL = PROGRAM.kernels[0]
BODY = KERNEL.body
ALIASES = Aliases(PROGRAM)
KNOWN = Facts.at(PROGRAM, ("main", len(BODY)))


def at(label: str) -> n.Stmt:
    return next(s for s in BODY if s.label == label)


def stored(label: str) -> n.Region:
    s = at(label)
    assert isinstance(s, n.Store)
    return s.at


def test_places_that_cannot_meet_are_told_apart() -> None:
    assert not may_overlap(stored("first"), stored("second"), KNOWN)
    assert may_overlap(stored("first"), stored("fourth"), KNOWN)
    assert covers(n.Region(stored("first").buffer), stored("first"), KNOWN)
    assert not covers(stored("fourth"), stored("first"), KNOWN)


def test_code_is_exchanged_only_when_nothing_connects_it() -> None:
    assert independent((at("first"),), (at("second"),), KNOWN, ALIASES)
    assert not independent((at("first"),), (at("fourth"),), KNOWN, ALIASES)
    assert not independent((BODY[4],), (at("fourth"),), KNOWN, ALIASES), "the let is used"
    assert not independent((at("first"),), (BODY[6],), KNOWN, ALIASES), "a barrier orders everything"
    reads_y = parse_program("kir 1\nprogram q\n  out Y: f32[4]\n  out W: f32[4]\n"
                            "kernel main grid (b: 1) threads 1\n  W[0] = Y[0]\n  Y[0] = 1.0\n")
    one, two = reads_y.kernels[0].body
    assert not independent((one,), (two,), Facts.from_program(reads_y), Aliases(reads_y))


def test_aliases_and_views_are_one_memory() -> None:
    assert ALIASES.may_be_one("X", "Y") and not ALIASES.may_be_one("X", "Z")


def test_invariance_looks_through_names_and_memory() -> None:
    loop = at("loop")
    assert isinstance(loop, n.For)
    let_u, let_v = loop.body[0], loop.body[1]
    assert isinstance(let_u, n.Let) and isinstance(let_v, n.Let)
    assert not is_invariant(let_u.value, loop, ALIASES), "it names the loop's variable"
    z = next(p.of for p in PROGRAM.params if p.name == "Z")
    x = next(p.of for p in PROGRAM.params if p.name == "X")
    assert isinstance(z, n.Buffer) and isinstance(x, n.Buffer)
    assert is_invariant(n.Load(n.Region(z, (const(3),))), loop, ALIASES)
    assert not is_invariant(n.Load(n.Region(x, (const(3), const(0)))), loop, ALIASES), "the loop writes Y, which is X"
    assert written(loop.body) == {"S", "Y"}
    assert uses(loop.body)["v"] == 1


def test_accesses_of_a_statement() -> None:
    kinds = sorted((a.kind, a.buffer) for a in accesses(at("third")))
    assert kinds == [("read", "X"), ("write", "Y")]


def test_affine_forms() -> None:
    i, j, stride = var("i"), var("j"), var("stride")
    e = add(add(mul(i, stride), mul(sub(j, 3), 64)), stride)
    found = affine(e, ("i", "j"))
    assert found is not None
    assert (expr_text(found.coefficient("i")), expr_text(found.coefficient("j")), expr_text(found.rest)) == ("stride", "64", "stride - 192")
    assert found.expression() == e
    assert affine(mul(i, j), ("i", "j")) is None
    assert affine(mul(i, j), ("i",)) is not None


def test_footprint_of_the_sm80_gemm() -> None:
    p = parse_program("""kir 1
program g
  out C: f32[128, 128]
kernel main grid (b: 1) threads 256
  shared As: f16[4, 128, 32]
  fragment acc: f32[128, 128] = 0.0
  if b < 1
    shared Bs: f16[4, 32, 128]
    Bs[0, 0, 0] = cast(1.0, f16)
  else
    shared Cs: f32[128]
    Cs[0] = 1.0
  C = acc
""")
    found = footprint(p, p.kernels[0])
    assert found.shared_bytes == 2 * 4 * 128 * 32 * 2
    assert found.registers is not None and 64 <= found.registers <= 128
    assert found.ctas_per_sm(target("sm_80").architecture) == 2
    assert found.ctas_per_sm(target("sm_90a").architecture) == 2
