"""Every kind of hazard is found, with its place, and its absence is not."""
from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest

from kir.analysis.proof.decide import decided
from kir.base.diagnostic import explanation
from kir.interp import Finding, run
from kir.interp.numerics.number import Array, storage
from kir.ir import nodes as n
from kir.ir.parser import parse_program

from .asynchronous_rules import DECIDED, RULES


def program(body: str, threads: int = 64, header: str = "", grid: str = "b: 1") -> str:
    """A kernel with inputs X: f32[64], output Y: f32[64]; `body` is indented by two blanks."""
    lines = "".join(f"  {line}\n" for line in body.strip("\n").split("\n"))
    return f"kir 1\nprogram p\n  in X: f32[64]\n  out Y: f32[64]\n{header}kernel main grid ({grid}) threads {threads}\n{lines}"


def check(text: str, more: Mapping[str, Array] | None = None, one_error: bool = False) -> tuple[Finding, ...]:
    x = np.arange(64, dtype=np.float32)
    return run(parse_program(text, "p.kir"), {"X": x, **(more or {})}, mode="check", one_error=one_error).findings


FOUND = {
    "bounds": ("KIR-I010", """
for t in 0..64 parallel thread
  Y[t] = X[t + 1]"""),
    "vector alignment": ("KIR-I011", """
for t in 0..31 parallel thread
  Y[t*2 + 1 +: 2] = X[t*2 + 1 +: 2]
for u in 0..64 parallel thread
  Y[u] = X[u]"""),
    "alignment of cp.async": ("KIR-I011", """
shared s: f32[64]
for t in 0..15 parallel thread
  copy X[t*4 + 1 +: 4] -> s[t*4 +: 4] via cp_async grouped
  async_commit()
  async_wait(0)
Y = X"""),
    "poison in an address": ("KIR-I012", """
shared s: i32[64]
for t in 0..64 parallel thread
  Y[t] = X[s[t]]"""),
    "poison in a branch": ("KIR-I012", """
shared s: i32[64]
Y = X
for t in 0..64 parallel thread
  if s[t] > 0
    Y[t] = 1.0"""),
    "output not written": ("KIR-I012", """
for t in 0..63 parallel thread
  Y[t] = X[t]"""),
    "poison in an output": ("KIR-I012", """
fragment f: f32[64]
Y = f"""),
    "false assumption": ("KIR-I013", """
assume(X[3] > 5.0)
Y = X"""),
    "race": ("KIR-I014", """
shared s: f32[64]
for t in 0..64 parallel thread
  s[t] = X[t]
  Y[t] = s[63 - t]"""),
    "race across a missing barrier of a reused buffer": ("KIR-I014", """
shared s: f32[64]
for t in 0..64 parallel thread
  s[t] = X[t]
  barrier()
  register r: f32 = s[63 - t]
  s[t] = r
  barrier()
  Y[t] = s[t]"""),
    "colliding stores": ("KIR-I014", """
Y = X
for t in 0..64 parallel thread
  Y[t // 2] = cast(t, f32)"""),
    "cp.async without a wait": ("KIR-I014", """
shared s: f32[64]
for t in 0..16 parallel thread
  copy X[t*4 +: 4] -> s[t*4 +: 4] via cp_async grouped
  async_commit()
  Y[t*4 +: 4] = s[t*4 +: 4]"""),
    "cp.async seen by another thread without a barrier": ("KIR-I014", """
shared s: f32[64]
for t in 0..16 parallel thread
  copy X[t*4 +: 4] -> s[t*4 +: 4] via cp_async grouped
  async_commit()
  async_wait(0)
  Y[t*4 +: 4] = s[60 - t*4 +: 4]"""),
    "generic writes before a TMA store": ("KIR-I015", """
shared s: f32[64]
s = X
copy s -> Y via tma grouped
bulk_commit()
bulk_wait(0)"""),
    "bulk store left behind": ("KIR-I017", """
shared s: f32[64]
s = X
fence_async()
copy s -> Y via tma grouped
bulk_commit()"""),
    "source of a bulk store overwritten": ("KIR-I014", """
shared s: f32[64]
s = X
fence_async()
copy s -> Y via tma grouped
bulk_commit()
s = 0.0
bulk_wait(0)"""),
    "warps that write the same part of a fragment": ("KIR-I014", """
fragment acc: f32[64] = 0.0
for w in 0..2 parallel warp
  acc[0 +: 32] = X[w*32 +: 32]
Y = acc"""),
    "a lane outside its mask": ("KIR-I018", """
for t in 0..64 parallel thread
  Y[t] = shfl_xor(X[t], 1, mask=65535)"""),
    "deadlock": ("KIR-I020", """
shared bar: mbarrier
mbar_init(&bar, 2)
fence_mbar_init()
for t in 0..64 parallel thread
  if t == 0
    mbar_arrive(&bar)
  mbar_wait(&bar, 0)
Y = X"""),
    "mbarrier not initialized": ("KIR-I021", """
shared bar: mbarrier
mbar_arrive(&bar)
Y = X"""),
    "use of an mbarrier that nobody else knows of": ("KIR-I014", """
shared bar: mbarrier
for t in 0..64 parallel thread
  if t == 0
    mbar_init(&bar, 64)
  mbar_arrive(&bar)
Y = X"""),
    "counts of a named barrier": ("KIR-I022", """
roles
  role first warps 0..1
    named_barrier_sync(1, 96)
  role second warps 1..3
    named_barrier_sync(1, 64)
Y = X"""),
    "divergent barrier": ("KIR-I023", """
for t in 0..64 parallel thread
  if t < 32
    barrier()
  Y[t] = X[t]"""),
    "what was written, read through the read-only cache": ("KIR-I027", """
for t in 0..64 parallel thread
  Y[t] = X[t]
  Y[t] = load(Y[t] cache nc)"""),
    "what was updated, read through the read-only cache": ("KIR-I027", """
for t in 0..64 parallel thread
  Y[t] = X[t]
for u in 0..32 parallel thread
  atomic_add(&Y[u], 1.0)
  Y[u + 32] = load(Y[u] cache ldg)"""),
    "trap": ("KIR-I025", """
Y = X
trap()"""),
}


@pytest.mark.parametrize("name", sorted(FOUND))
def test_a_hazard_is_found(name: str) -> None:
    wanted, body = FOUND[name]
    errors = [f for f in check(program(body)) if f.severity == "error"]
    assert wanted in {f.id for f in errors}, [(f.id, f.message) for f in errors]
    found = next(f for f in errors if f.id == wanted)
    assert explanation(wanted) is not None and found.diagnostic().render()
    assert [f for f in check(program(body), one_error=True) if f.severity == "error"] == errors[:1], "the same one, when the run ends with the first"


@pytest.mark.parametrize("name", sorted(x for x in FOUND if "read-only cache" in x))
def test_what_is_written_is_not_proved_to_be_seen_through_the_read_only_cache(name: str) -> None:
    body = FOUND[name][1]
    for text, right in ((body, False), (body.replace("load(Y[t] cache nc)", "Y[t]").replace("load(Y[u] cache ldg)", "0.0"), True)):
        races = [o for k in decided(parse_program(program(text))) for o in k.obligations if "race" in str(o.kind)]
        assert races and all(o.status == "proved" for o in races) == right


def test_elements_that_are_stored_as_far_as_a_tensor_goes_are_no_vector() -> None:
    """Backends write each of them by itself: nothing is asked of where the first one lies."""
    body = "for t in 0..31 parallel thread\n  Y[t*2 + 1 +: 2] = load(X[t*2 + 1 +: 2]{0}){0}\nfor u in 0..64 parallel thread\n  Y[u] = X[u]"
    for clip, found in (("", True), (" clip", False)):
        assert ("KIR-I011" in {f.id for f in check(program(body.format(clip)))}) == found


def test_each_cta_has_rounds_of_its_own() -> None:
    text = """kir 1
program p
  in X: f32[3, 64]
  out Y: f32[3, 64]
kernel k grid (b: 3) threads 64
  for t in 0..64 parallel thread
    for i in 0..ROUNDS
      barrier()
    Y[b, t] = X[b, t]
"""
    arrays = {"X": np.ones((3, 64), np.float32)}
    assert not run(parse_program(text.replace("ROUNDS", "3 - b")), arrays, mode="check").findings
    found = run(parse_program(text.replace("ROUNDS", "3 - b + t // 32")), arrays, mode="check").findings
    assert "KIR-I023" in {f.id for f in found}


CLEAN = {
    "masked tail": """
for t in 0..128 parallel thread
  Y[t] = load(X[t] else 0.0 clip) clip""",
    "poison copied but not used": """
fragment f: f32[64]
fragment g: f32[64]
g = f
Y = X""",
    "a conjunction that its other side decides": """
fragment f: f32[64]
f[0 +: 32] = X[0 +: 32]
Y = X
Y = 2.0 where iota(64) < 32 & f > 0.5""",
    "masked load, masked store": """
let m = iota(64) < 40
let x = load(X[iota(64)] where m)
Y = X
Y[iota(64)] = x + 1.0 where m""",
    "warps that write their parts of a fragment": """
fragment acc: f32[64] = 0.0
for w in 0..2 parallel warp
  acc[w*32 +: 32] = X[w*32 +: 32]
Y = acc""",
    "barriers": """
shared s: f32[64]
for t in 0..64 parallel thread
  s[t] = X[t]
  barrier()
  Y[t] = s[63 - t]""",
    "loops over threads join": """
shared s: f32[64]
for t in 0..64 parallel thread
  s[t] = X[t]
for u in 0..64 parallel thread
  Y[u] = s[63 - u]""",
    "cp.async": """
shared s: f32[64]
for t in 0..16 parallel thread
  copy X[t*4 +: 4] -> s[t*4 +: 4] via cp_async grouped
  async_commit()
  async_wait(0)
  barrier()
  Y[t*4 +: 4] = s[60 - t*4 +: 4]""",
    "TMA load and store": """
shared s: f32[64]
shared bar: mbarrier
mbar_init(&bar, 1)
fence_mbar_init()
mbar_arrive_expect(&bar, 256)
copy X -> s via tma signal bar
mbar_wait(&bar, 0)
copy s -> Y via tma grouped
bulk_commit()
bulk_wait(0)""",
    "atomics": """
shared s: f32 = 0.0
for t in 0..64 parallel thread
  atomic_add(&s, X[t])
  barrier()
  Y[t] = s""",
    "warps hand over at mbarriers": """
shared s: f32[64]
shared bar: mbarrier
mbar_init(&bar, 32)
for t in 0..64 parallel thread
  if t < 32
    s[t] = X[t]
    s[t + 32] = X[t + 32]
    mbar_arrive(&bar)
  mbar_wait(&bar, 0)
  Y[t] = s[63 - t]""",
    "exited threads": """
shared s: f32[64]
Y = X
for t in 0..64 parallel thread
  if t >= 32
    return
  s[t] = X[t]
  barrier()
  Y[t] = s[31 - t]""",
    "lanes that their mask names": """
for t in 0..64 parallel thread
  if t % 32 < 16
    Y[t] = shfl_xor(X[t], 1, mask=65535)
  else
    Y[t] = X[t]""",
    "a warp synchronizes": """
shared s: f32[64]
for t in 0..64 parallel thread
  s[t] = X[t]
  warp_sync()
  Y[t] = s[t // 32 * 32 + 31 - t % 32]""",
}


@pytest.mark.parametrize("name", sorted(CLEAN))
def test_what_is_right_is_not_refused(name: str) -> None:
    assert [(f.id, f.message, f.accesses) for f in check(program(CLEAN[name]))] == []


def test_same_value_stores_are_weak() -> None:
    found = check(program("""
shared flag: i32 = 0
for t in 0..64 parallel thread
  flag = 1
Y = X"""))
    assert [(f.kind, f.severity) for f in found] == [("race", "weak")]


def test_an_order_that_only_a_shuffle_gives_is_weak() -> None:
    found = check(program("""
shared s: f32[64]
for t in 0..64 parallel thread
  s[t] = X[t]
  let x = shfl_xor(X[t], 1)
  Y[t] = s[t // 32 * 32 + 31 - t % 32] + x * 0.0"""))
    assert [(f.kind, f.severity) for f in found] == [("race", "weak")]


def test_a_race_names_both_accesses_with_thread_and_origin() -> None:
    found = check(program(FOUND["race"][1]))
    (race,) = [f for f in found if f.kind == "race"]
    first, second = race.accesses
    assert (first.verb, first.anchor, second.verb, second.anchor) == ("read", "main/t/store(dst=Y)", "write", "main/t/store(dst=s)")
    assert "thread" in first.thread and "thread" in second.thread and first.thread != second.thread
    assert first.origin is not None and second.origin is not None and (first.origin.line, second.origin.line) == (9, 8)


def test_ctas_race_unless_one_acquires_what_the_other_released() -> None:
    counted = """
for t in 0..32 parallel thread
  part[b, t] = X[b*32 + t]
  barrier()
  if t == 0
    {fence}
    let before = atomic_add(&count[0], 1{order})
    {behind}
    last = before == 1
  {aside}
  barrier()
  if last
    {first}
    Y[t] = part[0, t]
    Y[t + 32] = part[1, t]"""
    header = "  workspace part: f32[2, 32]\n  workspace count: i32[1] = 0\n"
    body = "shared last: bool\n" + counted.strip("\n")
    fence = "fence(scope=gpu)"

    def seen(way: str = "", **parts: str) -> tuple[Finding, ...]:
        text = body.format(**{"fence": fence, "order": "", **{part: f"let no_{part} = 0" for part in ("behind", "aside", "first")}, **parts})
        return check(program(re.sub(r"= (part.*)", rf"= load(\1 cache {way})", text) if way else text, 32, header, "b: 2"))

    assert not seen(fence="let no_fence = 0", order=", order=acq_rel") and not seen(order=", order=acquire")
    assert not seen(behind=fence) and not seen(first=fence)
    of_one_cta = ({"fence": "fence(scope=cta)"}, {"order": ", scope=cta"}, {"fence": "let no_fence = 0", "order": ", order=acq_rel, scope=cta"})
    for parts in ({"fence": "let no_fence = 0"}, {"fence": "let no_fence = 0", "order": ", order=acquire"}, *of_one_cta):
        assert {(f.id, f.severity) for f in seen(**{"behind": fence, **parts})} == {("KIR-I014", "error")}, parts
    aside = f"if t == 5\n    {fence}"
    for parts in ({}, {"behind": "fence(scope=cta)"}, {"order": ", order=release"}, {"aside": aside}):  # who fences must know that it was told
        found = seen(**parts)
        assert {(f.id, f.severity) for f in found} == {("KIR-I014", "error")} and all("no fence comes behind that" in f.message for f in found), parts
    for way in ("cg", "volatile"):  # what the first cache holds is not asked
        assert not seen(way), way


def test_dependent_launches_wait_before_they_read() -> None:
    text = """kir 1
program p
  in X: f32[64]
  out Y: f32[64]
  workspace W: f32[64]
kernel first grid (b: 1) threads 1
  W = X
kernel second grid (b: 1) threads 1
  {wait}
  Y = W
plan
  launch first
  launch second {{pdl=true}}
"""
    assert not check(text.format(wait="grid_dependency_wait()"))
    assert {f.id for f in check(text.format(wait="let unused = 0"))} == {"KIR-I014"}


def test_late_completion_changes_an_output() -> None:
    """The value itself depends on timing, whatever the detector says: both ends of a copy's interval are tried."""
    found = check(program("""
shared s: f32[64] = 1.0
for t in 0..16 parallel thread
  copy X[t*4 +: 4] -> s[t*4 +: 4] via cp_async grouped
  Y[t*4 +: 4] = s[t*4 +: 4]
  async_commit()
  async_wait(0)"""))
    assert "KIR-I014" in {f.id for f in found if f.severity == "error"}


def test_bank_conflicts_and_sectors_are_counted() -> None:
    x = np.arange(64, dtype=np.float32)
    body = """
shared s: f32[64, 32]
for t in 0..32 parallel thread
  s[{place}] = X[t]
Y = X"""
    def counted(place: str) -> tuple[int, int]:
        result = run(parse_program(program(body.format(place=place), 32)), {"X": x}, mode="check", traffic=True)
        return result.counters.bank_conflicts, result.counters.sectors
    assert counted("0, t") == (0, 4)
    assert counted("t, 0") == (31, 4)
    assert counted("t, t") == (0, 4)


SPIN = """kir 1
program p
  in X: f32[64]
  out Y: f32[64]
  workspace part: f32[64]
  workspace flag: i32[1] = 0
kernel main grid (b: 2) threads 32
  for t in 0..32 parallel thread
    if b == 1
      part[t] = X[t]
      part[t + 32] = X[t + 32]
      {fence}
      barrier()
      if t == 0
        atomic_exch(&flag[0], 1)
    else
      if t == 0
        register seen: i32 = 0
        while seen == 0
          let v = atomic_add(&flag[0], 0)
          seen = v
        {behind}
      barrier()
      Y[t] = part[t]
      Y[t + 32] = part[t + 32]
"""


def test_a_cta_may_spin_on_what_another_publishes() -> None:
    fence, none = "fence(scope=gpu)", "let unused = 0"
    assert not check(SPIN.format(fence=fence, behind=fence))
    for parts in ((none, none), (none, fence), (fence, none)):
        found = check(SPIN.format(fence=parts[0], behind=parts[1]))
        assert {f.id for f in found if f.severity == "error"} == {"KIR-I014"}, parts


def test_a_spin_that_nobody_ends_is_a_deadlock() -> None:
    never = SPIN.format(fence="let unused = 0", behind="let a = 0").replace("atomic_exch(&flag[0], 1)", "atomic_exch(&flag[0], 0)")
    assert "KIR-I020" in {f.id for f in check(never)}


CLUSTER = """kir 1
program p
  in X: f32[64]
  out Y: f32[64]
kernel main grid (b: 2) threads 32 cluster (2)
  cluster box: f32[2, 32]
  for t in 0..32 parallel thread
    box[b, t] = X[b*32 + t]
    {arrive}
    {wait}
    Y[b*32 + t] = box[1 - b, t]
"""


def test_the_ctas_of_a_cluster_meet() -> None:
    assert not check(CLUSTER.format(arrive="cluster_arrive()", wait="cluster_wait()"))
    assert "KIR-I014" in {f.id for f in check(CLUSTER.format(arrive="let a = 0", wait="let w = 0")) if f.severity == "error"}


LEFT_IN_REGISTERS = """kir 1
program p
  in X: f16[64, 64]
  in W: f16[64, 64]
  out Y: f32[64, 64]
kernel main grid (b: 1) threads 128
  shared Ws: f16[64, 64] layout swizzle(3, 4, 3) align 1024
  Ws = W
  fragment acc: f32[64, 64] = 0.0
  fragment left: f16[64, 64] = X
  fence_async()
  barrier()
  wgmma_fence()
  mma acc += left * Ws via wgmma pending
  wgmma_commit()
  wgmma_wait(0)
  Y = acc
"""


@pytest.mark.parametrize(("old", "new"), [
    ("  wgmma_fence()\n", ""),  # the accumulator and the left side were written, and no fence follows
    ("  fragment left: f16[64, 64] = X\n  fence_async()\n  barrier()\n  wgmma_fence()\n",
     "  fence_async()\n  barrier()\n  wgmma_fence()\n  fragment left: f16[64, 64] = X\n"),  # only the left side was written since the fence
    ("  wgmma_wait(0)\n", "  left = broadcast(0.0:f16, 64, 64)\n  wgmma_wait(0)\n")])  # the product may still read it
def test_the_registers_that_a_product_reads_are_fenced_and_kept(old: str, new: str) -> None:
    inputs = {name: np.ones((64, 64), np.float16) for name in ("X", "W")}
    assert old in LEFT_IN_REGISTERS
    assert not run(parse_program(LEFT_IN_REGISTERS, "p.kir"), inputs, mode="check").findings
    assert {f.id for f in run(parse_program(LEFT_IN_REGISTERS.replace(old, new), "p.kir"), inputs, mode="check").errors} == {"KIR-I016"}


def _inputs(p: n.Program) -> dict[str, Array]:
    shapes = {q.name: (tuple(d.dimension for d in q.of.shape), storage(q.of.dtype)) for q in p.params if isinstance(q.of, n.Buffer) and q.role != "out"}
    return {name: (np.arange(int(np.prod(shape))) % 7 + 1).astype(kind).reshape(shape) for name, (shape, kind) in shapes.items()}  # type: ignore[arg-type]  # numbers


@pytest.mark.parametrize("rule", sorted(RULES))
def test_each_rule_of_asynchronous_instructions_is_kept(rule: str) -> None:
    """The right program has no finding; each way of breaking it is reported by a run, and proved by no one."""
    text, broken = RULES[rule]
    right = parse_program(text, "p.kir")
    assert [(f.id, f.message) for f in run(right, _inputs(right), mode="check").findings] == []
    opened = [o for k in decided(right) for o in k.obligations if o.status != "proved"]
    assert rule not in DECIDED or not opened, opened
    for what, old, new, wanted in broken:
        assert old in text, what
        wrong = parse_program(text.replace(old, new), "p.kir")
        assert wanted in {f.id for f in run(wrong, _inputs(wrong), mode="check").errors}, what
        assert any(o.status != "proved" for k in decided(wrong) for o in k.obligations), what
