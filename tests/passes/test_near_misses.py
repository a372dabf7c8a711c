"""Places that look like a site of a pass and are none, and what is said of them."""
from __future__ import annotations

from typing import Literal

import pytest

from kir.base.diagnostic import KirError
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.rewrite import Pipeline, judge, passes, run
from kir.rewrite.driver import apply, misses, offered, sites

SCAN = """kir 1
program p
  in X: f32[64, 32]
  out Y: f32[64, 32]
kernel main grid (c: 1) threads 32
  fragment h: f32[32] = 0.0
  for i in 0..64
    let x = X[i, 0 +: 32]
    h = {update}
    Y[i, 0 +: 32] = {read}
"""


@pytest.mark.parametrize(("update", "read"), [("h + x", "h"), ("h * 0.5 + x", "x"), ("x + exp(x) * h", "x")])
def test_a_scan_is_no_contraction(update: str, read: str) -> None:
    """What an iteration reads of earlier ones cannot be folded a panel at a time (fla's `chunk_hgrn_fwd_kernel_h`)."""
    program = parse_program(SCAN.format(update=update, read=read), "p.kir")
    item = next(p for p in passes() if p.name == "stage-panels").with_options({})
    assert sites(item, program) == ()
    assert "an iteration reads what earlier ones made of 'h'" in [said for _, said in misses(item, program)]


FOLDED = """kir 1
program p
  size M: i32
  in X: f32[M, 20]
  out Y: f32[M, 20]
  workspace partial: f32[4, M, 20]
kernel main grid (i: ceildiv(M, 16), j: 2, part: 4) threads 128
  fragment acc: f32[16, 16] = 0.0
  for k in part..min(part + 1, 2)
    mma acc += load(X[i * 16 +: 16, k * 16 +: 16] else 0.0 clip) * load(X[k * 16 +: 16, j * 16 +: 16] else 0.0 clip)
  partial[part, i * 16 +: 16, j * 16 +: 16] = acc clip
kernel combine grid (i: ceildiv(M, 16), j: 2) threads 128
  let acc = reduce(load(partial[0 +: 4, i * 16 +: 16, j * 16 +: 16] else 0.0 clip), axis=0, op=sum)
  Y[i * 16 +: 16, j * 16 +: 16] = acc clip
"""


def test_parts_that_no_loop_adds_up_are_no_split_product() -> None:
    """Random program 13679: looking for the sum of the second kernel, which keeps none, ended with an exception."""
    program, item = parse_program(FOLDED, "p.kir"), next(p for p in passes() if p.name == "split-k").with_options({})
    assert sites(item, program, "backward") == () and "one of the two kernels keeps no sum" in [said for _, said in misses(item, program, "backward")]


PARTED = """kir 1
program p
  size M: i32
  in X: f16[M, 48]
  in W: f16[48, 48]
  out Y: f32[M, 48]
kernel main grid (i: ceildiv(M, 16), j: 3) threads 128
  fragment acc: f32[16, 16] = 0.0
  let a = load(X[i * 16 +: 16, 0 +: 48] else 0.0:f16 clip)
  let b = load(W[0 +: 48, j * 16 +: 16] else 0.0:f16 clip)
  mma acc += a * b
  let left, right = split(trans(reshape(acc, 16, 2, 8), 0, 2, 1))
  let kept = i * 16
  Y[kept +: 16, j * 16 +: 8] = left clip
  Y[kept +: 16, j * 16 + 8 +: 8] = right clip
"""


def test_a_tile_that_is_taken_apart_by_numbers_has_no_other_size() -> None:
    """Random program 6990: the rows of what `reshape` takes grew, and its numbers did not."""
    program = parse_program(PARTED, "p.kir")
    item = next(p for p in passes() if p.name == "grow-tile").with_options({})
    assert sites(item, program) == ()
    assert any("'reshape' spells the size out" in said for _, said in misses(item, program))


GROWN = """kir 1
program p
  size M: i32
  in X: f16[M, 16]
  in W: f16[16, 16]
  out Y: f32[M, 16]
kernel main grid (i: ceildiv(M, 16)) threads 128
  fragment acc: f32[16, 16] = 0.0
  shared Xs: f16[16, 16]{layout}
  copy load(X[i * 16 +: 16, 0 +: 16] else 0.0:f16 clip) -> Xs
  mma acc += Xs * W
  {store}
"""


@pytest.mark.parametrize(("layout", "store", "why"), [
    ("", "Y[i * 16 +: 16, 0 +: 16] = acc clip", ""), (" layout swizzle(1, 4, 3)", "Y[i * 16 +: 16, 0 +: 16] = acc clip", ""),
    (" layout strides(1, 16)", "Y[i * 16 +: 16, 0 +: 16] = acc clip", "the layout of 'Xs' spells the size out"),
    ("", "if i * 16 + 16 <= M\n    Y[i * 16 +: 16, 0 +: 16] = acc\n  else\n    Y[i * 16 +: 16, 0 +: 16] = acc clip", "'i' is read where no tile begins, too")])
def test_a_tile_does_not_grow_beside_what_spells_its_size_out(layout: str, store: str, why: str) -> None:
    """Random program 12336: elements of the grown tile lay on one another; and a condition on the tile's number was of the small tiles."""
    program = parse_program(GROWN.format(layout=layout, store=store), "p.kir")
    item = next(p for p in passes() if p.name == "grow-tile").with_options({})
    assert len(sites(item, program)) == (0 if why else 1)
    assert not why or any(why in said for _, said in misses(item, program))


INSIDE = """kir 1
program p
  size M: i32
  in Y: f32[M, 20]
  out Z: f32[M, 20]
  fact M >= 1
kernel main grid (r: ceildiv(M, 32)) threads 32
  for i in 0..32
    if i + r * 32 < M
      Z[i + r * 32, 0 +: 20] = {read} + {read}
"""


@pytest.mark.parametrize(("read", "found"), [("Y[i + r * 32, 0 +: 20]", 0), ("load(Y[i + r * 32, 0 +: 20] else 0.0 clip)", 1)])
def test_what_a_condition_keeps_inside_is_not_staged_before_it(read: str, found: int) -> None:
    """Random program 11529: the copy stood before the condition, and read beyond the tensor."""
    program = parse_program(INSIDE.format(read=read), "p.kir")
    item = next(p for p in passes() if p.name == "stage-shared").with_options({})
    assert len([s for s in sites(item, program) if len(s.path) == 4]) == found
    value = item.with_options({"value": read})
    assert found or any("may lie outside its buffer" in said for _, said in misses(value, program))


@pytest.mark.parametrize(("stored", "found"), [
    ("0 +: 3] = broadcast(acc, 3)", 0), ("0 +: 24] = broadcast(acc, 24)", 1), ("c] = acc + 1", 0), ("d] = acc + 1", 1)])
def test_a_part_of_a_tensor_has_no_kernel_of_its_own(stored: str, found: int) -> None:
    """Random program 9319: the new kernel read, and stored, what had not been stored before."""
    loop = f"for {stored[0]} in 0..{24 if stored[0] == 'd' else 3}\n    " if stored[0] in "cd" else ""
    program = parse_program(f"""kir 1
program p
  size M: i32
  in X: i32[M]
  inout Z: i32[M, 24]
kernel main grid (r: M) threads 32
  register acc: i32 = X[r]
  {loop}Z[r, {stored}
""", "p.kir")
    item = next(p for p in passes() if p.name == "fuse-epilogue").with_options({})
    assert len(sites(item, program, "backward")) == found
    assert found or any("leaves a part of axis 1 of 'Z' out" in said for _, said in misses(item, program, "backward"))


def test_values_that_are_made_at_once_have_no_form_as_a_tile() -> None:
    """Random program 10186: the pass made a program that has no types."""
    program = parse_program("""kir 1
program p
  size M: i32
  in X: f16[M, 16]
  inout Y: f16[M, 16]
kernel main grid (r: M) threads 1
  let left, right = split(trans(reshape(X[r, 0 +: 16], 2, 8), 1, 0))
  Y[r, 0 +: 8] = left
  Y[r, 8 +: 8] = right
""", "p.kir")
    item = next(p for p in passes() if p.name == "tile").with_options({})
    assert sites(item, program) == () and any("several values are made at once" in said for _, said in misses(item, program))


WIDE = """kir 1
program p
  size N: i64
  in X: f32[64]
  out Y: f32[64]
  fact N >= 1:i64
kernel main grid (m: 64) threads 128
  @each for j: i64 in 0:i64..64:i64
    Y[j] = X[j] * 2.0
  @all for k: i64 in 0:i64..N
    Y[m] = 1.0
"""


def test_loops_that_count_in_64_bits_break_no_pass() -> None:
    """Every pass finds its sites, and judges and carries out what it finds, or refuses it; none fails inside."""
    program = parse_program(WIDE, "p.kir")
    tried = 0
    for cls in passes():
        item = cls.with_options({})
        for site in sites(item, program):
            judge(program, site)
            try:
                apply(program, site.params, site)
            except KirError as refused:
                assert all(d.id[4] in "PR" for d in refused.diagnostics), refused
            tried += 1
        assert sites(item, program, "backward") is not None and misses(item, program) is not None
    assert tried >= 10


def test_lowered_code_that_shares_memory_as_a_whole_is_not_taken_for_tiles() -> None:
    """Lowering that is not raised again is refused with a reason, whatever raising tried on the way."""
    program = parse_program("""kir 1
program p
  in X: f32[2048, 128]
  out Y: f32[2048, 128]
  out R: f32[2048]
kernel main grid (i: 256) threads 32
  let x = X[i * 8 +: 8, 0 +: 128]
  let sum = reduce(x * x, axis=1, op=sum)
  let r = 1.0 / sqrt_approx(sum + 1e-06)
  let y = x * expand(r, axis=1)
  Y[i * 8 +: 8, 0 +: 128] = y
  R[i * 8 +: 8] = r
""", "p.kir")
    with pytest.raises(KirError) as refused:
        run(program, "lower-tiles")
    assert [d.id for d in refused.value.diagnostics] == ["KIR-R006"]


ROWS = """kir 1
program p
  in X: f32[8, 100]
  out Y: f32[8]
  out C: i32[8]
kernel main grid (i: 8) threads 1
  register m: f32 = -inf
  for k in 0..100
    m = max(m, X[i, k])
  register s: f32 = 0.0
  register seen: i32 = 0
  for j in 0..100
    s = s + exp(X[i, j] - m)
    seen = seen + 1
  Y[i] = s
  C[i] = seen
"""
PRIVATE = """kir 1
program p
  in X: f32[64]
  out Y: f32[64, 32]
kernel main grid (i: 64) threads 32
  for t in 0..32 parallel thread
    register r: f32 = X[i]
    r = r * 2.0
    Y[i, t] = r
"""


@pytest.mark.parametrize(("text", "name"), [(ROWS, "online-normalize"), (PRIVATE, "tile")])
def test_what_a_pass_cannot_rewrite_it_does_not_offer(text: str, name: str) -> None:
    """A counter beside a sum that grows with the maximum, and values that are private to one thread of many."""
    program = parse_program(text, "p.kir")
    item = next(p for p in passes() if p.name == name).with_options({})
    for site in sites(item, program):
        with pytest.raises(KirError) as refused:
            apply(program, site.params, site)
        assert refused.value.diagnostics[0].id[4] == "P"


NOT_TAKEN_BACK = {
    "persistent": ("would bring for the next tile what the one before may still read", """kir 1
program scaled_sums
  size M: i32
  size T: i32
  in X: f16[T, M, 64]
  in W: f16[T, 64, 64]
  out Y: f16[T, 64]
  map X_map of X box [1, 64, 64]
  map W_map of W box [1, 64, 64]
kernel main grid (i: T) threads 256
  shared Xs: f16[64, 64] align 128
  shared Ws: f16[64, 64] align 128
  shared full: mbarrier[1]
  shared empty: mbarrier[1]
  shared Ws_full: mbarrier
  mbar_init(&Ws_full, 1)
  mbar_init(&full[0], 1)
  mbar_init(&empty[0], 1)
  fence_mbar_init()
  roles
    role producer warps 0..4
      mbar_arrive_expect(&Ws_full, 8192)
      copy W[i, 0 +: 64, 0 +: 64] -> Ws via tma signal Ws_full {descriptor=W_map}
      for j in 0..ceildiv(M, 64)
        mbar_wait(&empty[0], (j + 1) % 2)
        mbar_arrive_expect(&full[0], 8192)
        copy load(X[i, j * 64 +: 64, 0 +: 64] else 0.0:f16 clip) -> Xs via tma signal full[0] {descriptor=X_map}
    role consumer warps 4..8
      fragment acc: f32[64] = 0.0
      @weights mbar_wait(&Ws_full, 0)
      for k in 0..ceildiv(M, 64)
        mbar_wait(&full[0], k % 2)
        acc = acc + reduce(cast(Xs * Ws, f32), axis=0, op=sum)
        mbar_arrive(&empty[0])
      Y[i, 0 +: 64] = cast(acc, f16)
"""),
    "proxy-fence": ("a copy via tma is there already", """kir 1
program p
  in X: f32[64]
  out Y: f32[64]
kernel main grid (c: 1) threads 64
  shared S: f32[64]
  S = X * 2.0
  copy S -> Y via tma
"""),
    "write-out": ("no whole number that grows evenly", """kir 1
program p
  in X: f32[64]
  out Y: f32[64]
kernel main grid (c: 64) threads 1
  register s: f32 = 0.0
  for j in 0..4
    s = s + X[c] * cast(j + 1, f32)
  Y[c] = s
"""),
    "predicate": ("says what it gives where nothing is read", """kir 1
program p
  size N: i32
  in X: f32[N]
  out Y: f32[64]
kernel main grid (c: 1) threads 64
  for t in 0..64 parallel thread
    if t < 32
      Y[t] = load(X[t] else 0.0 clip)
"""),
    "tree-reduction": ("a part of 's' is read as a tile", """kir 1
program p
  in X: f32[64, 4]
  out Y: f32[64]
kernel main grid (c: 1) threads 64
  fragment s: f32[64] = 0.0
  for j in 0..4
    s = s + X[0 +: 64, j]
  Y[0 +: 32] = s[0 +: 32]
  Y[32 +: 32] = s[32 +: 32]
"""),
}


@pytest.mark.parametrize("name", NOT_TAKEN_BACK)
def test_what_could_not_be_undone_is_no_site(name: str) -> None:
    """`kir sites` offers a place only where what the pass makes is found again; the pattern says why not."""
    said, text = NOT_TAKEN_BACK[name]
    program, item = parse_program(text, "p.kir"), next(p for p in passes() if p.name == name).with_options({})
    assert sites(item, program) == ()
    assert any(said in reason for _, reason in misses(item, program)), misses(item, program)


def test_what_a_copy_moves_stays_a_place() -> None:
    """A load that a copy moves gets no name, and no buffer that other readers share with it."""
    program = parse_program("""kir 1
program p
  in X: f32[64]
  out Y: f32[64]
  out Z: f32[64]
kernel main grid (c: 1) threads 64
  shared S: f32[64]
  for i in 0..2
    copy X -> S
    Y = X * 2.0
    Z = X * cast(i, f32) + S
""", "p.kir")
    for name in ("retain-tile", "stage-shared"):
        item = next(p for p in passes() if p.name == name).with_options({})
        for site in sites(item, program):
            apply(program, item, site)


def test_a_fragment_that_a_copy_moves_gets_no_name() -> None:
    """A copy moves what is at a place: a value has none."""
    program = parse_program("""kir 1
program p
  in X: f32[64]
  out Y: f32[64]
  out Z: f32[64]
kernel main grid (c: 1) threads 64
  fragment F: f32[64]
  F = X * 2.0
  copy F -> Y
  fragment s: f32[64] = 0.0
  for j in 0..4
    s = s + X * cast(j, f32)
  copy s -> Z
""", "p.kir")
    overwrite, tree = (next(p for p in passes() if p.name == name).with_options({}) for name in ("overwrite-fragment", "tree-reduction"))
    assert sites(overwrite, program, "backward") == () and sites(tree, program) == ()
    assert "a copy moves 'F', which is a place" in [said for _, said in misses(overwrite, program, "backward")]


NAMED = """kir 1
program p
  size M: i32
  size N: i32
  in X: f16[M, N]
  out Y: f16[M, N]
kernel main grid (row: M) threads 1
  register total: f32 = 0.0
  @sum for j in 0..N
    let x = cast(X[row, j], f32) + 1.0
    total = total + x * (cast(X[row, j], f32) + 1.0)
  @store for k in 0..N
    Y[row, k] = cast(total, f16)
"""


@pytest.mark.parametrize(("step", "said"), [
    ("templatize{axis=4}@main", "an axis is that of a tile, and the slot is threads"),
    ("persistent{ctas=2 named=true}@main", "it has no roles that would share the number of tiles (named=false)"),
    ("persistent{ctas=2 carried=true}@main", "it has no roles that would add up slots, or go backward (carried=false snake=false)"),
    ('reuse-operand{value="cast(X[row, j], f32) + 1.0" until=4}@main/sum/x', "no statement behind those writes the value out (until=0)"),
    ('retain-tile{value="X[row, j]" until=4}@main/sum/x', "no statement behind those writes the value out (until=0)"),
    ('retain-tile{value="X[row, j]" until=1}@main/sum/x', "")])
def test_a_parameter_that_says_the_same_in_another_way_is_a_near_miss(step: str, said: str) -> None:
    """What only another spelling of the same step gives back is refused by the pattern, which says which spelling."""
    program = parse_program(NAMED, "p.kir")
    if not said:
        assert run(program, step).steps
        return
    with pytest.raises(KirError) as refused:
        run(program, step)
    assert refused.value.diagnostics[0].id == "KIR-R004" and any(said in w for w in refused.value.diagnostics[0].witness)


def test_what_a_trial_refuses_is_said_with_what_the_other_direction_reads() -> None:
    program = parse_program(NAMED, "p.kir")
    item = next(p for p in passes() if p.name == "tile").with_options({"needless": ("Y",), "extent": 8})
    found = offered(item, program)
    assert found.sites == () and found.refused == () and [why.rpartition("again: ")[2] for _, why in found.near] == [
        "it reads tile{extent=8} or tile{extent=8 back=true} there"]


def test_loops_that_are_to_be_run_once_lie_in_the_loop_itself() -> None:
    program = parse_program("""kir 1
program p
  in X: f32[4, 8, 8]
  out Y: f32[4]
kernel main grid (b: 1) threads 1
  @each for i in 0..4
    register s: f32 = 0.0
    for j in 0..8
      for k in 0..8
        s = s + X[i, j, k]
    Y[i] = s
""", "p.kir")
    with pytest.raises(KirError) as refused:
        run(program, "jam-loop{enter=[1]}@main/each")
    assert "lie in others that are not" in str(refused.value)


RUNNING = """kir 1
program p
  in X: f32[M, 16]
  out Y: f32[M, 16]
  out Z: f32[M]
  size M: i32
kernel main grid (row: M) threads 32
"""


@pytest.mark.parametrize(("direction", "said", "body"), [
    ("forward", "'total' is used after the loop, too",
     "  register total: f32 = 0.0\n  for j in 0..16\n    total = total + X[row, j]\n    Y[row, j] = total\n  Z[row] = total\n"),
    ("forward", "a part of 'total' is read alone",
     "  fragment total: f32[4] = 0.0\n  for j in 0..4\n    total = total + X[row, j * 4 +: 4]\n    Y[row, j * 4 +: 4] = total[0]\n  Z[row] = 0.0\n"),
    ("backward", "'total' is used by more than the stores after it",
     "  let total = scan(X[row, 0 +: 16], axis=0, op=sum)\n  Y[row, 0 +: 16] = total\n  let most = reduce(total, axis=0, op=max)\n  Z[row] = most\n"),
    ("backward", "what is stored has another shape than the scan",
     "  let total = scan(X[row, 0 +: 16], axis=0, op=sum)\n  Y[row, 0 +: 16] = total\n  Z[row] = reduce(total, axis=0, op=max)\n"),
])
def test_a_scan_of_which_more_is_needed_than_the_loop_stores_is_none(direction: Literal["forward", "backward"], said: str, body: str) -> None:
    program, item = parse_program(RUNNING + body, "p.kir"), next(p for p in passes() if p.name == "tile-scan").with_options({})
    assert sites(item, program, direction) == ()
    assert said in [reason for _, reason in misses(item, program, direction)]


def test_more_copies_than_a_program_holds_are_none() -> None:
    text = "kir 1\nprogram p\n  size N: i32\n  out Y: f32[N]\nkernel main grid (i: 1) threads 1\n  for j in 0..N\n    Y[j] = 1.0\n"
    item = next(p for p in passes() if p.name == "unroll").with_options({"factor": 2147483647})
    assert "2147483647 copies of 1 statements are more than 65536" in [said for _, said in misses(item, parse_program(text, "p.kir"))]


ROLES = """kir 1
program p
  in X: f16[64, 64]
  out Y: f16[64, 64]
  map X_map of X box [64, 64]
kernel main grid (i: 1) threads {threads}
  shared Xs: f16[64, 64] align 128
  shared full: mbarrier[1]
  mbar_init(&full[0], 1)
  fence_mbar_init()
  @teams roles
    role producer warps 0..4
      mbar_arrive_expect(&full[0], 8192)
      copy load(X[0 +: 64, 0 +: 64] else 0.0:f16 clip) -> Xs via tma signal full[0] {{descriptor=X_map}}
    role consumer warps 4..{warps}
      mbar_wait(&full[0], 0)
      {last}
"""


@pytest.mark.parametrize(("warps", "offers"), [(8, [(24, 240), (32, 240), (40, 240)]), (12, [(24, 240), (32, 232), (40, 232)]),
                                               (16, [(24, 160), (32, 160), (40, 152)])])
def test_registers_that_roles_may_take_are_offered(warps: int, offers: list[tuple[int, int]]) -> None:
    """What the copying warpgroups leave, in steps of 8; each passes the pass's own conditions. Where nobody holds results nothing is offered."""
    item = next(p for p in passes() if p.name == "redistribute-registers").with_options({})
    program = parse_program(ROLES.format(threads=32 * warps, warps=warps, last="Y[0 +: 64, 0 +: 64] = Xs clip"), "p.kir")
    found = sites(item, program)
    assert [site.params.options()["registers"] for site in found] == offers
    assert all(v for site in found for _, v in judge(program, site))
    idle = parse_program(ROLES.format(threads=32 * warps, warps=warps, last="cta_sync()").replace("cta_sync()", "mbar_wait(&full[0], 0)"), "p.kir")
    assert sites(item, idle) == () and any("none holds results" in said for _, said in misses(item, idle))


EPILOGUE = """kir 1
program p
  in X: f32[4, 8]
  out Y: f32[4, 8]
  out Z: f32[4, 8]
kernel main grid (r: 4) threads 1
  register s: f32 = 1.0
  for c in 0..8
    Y[r, c] = {value}
  {other}
"""


@pytest.mark.parametrize(("value", "other", "said"), [
    ("s * 2.0", "Z[r, 0] = s", ""),
    ("s * 2.0", "Y[r, 4] = s", "'Y' is written by other statements too"),
    ("s * 2.0", "copy load(X[r, 0 +: 4]) -> Y[r, 4 +: 4]", "'Y' is written by other statements too"),
    ("s * seen[r * 8 + c]", "Z[r, 0] = s", "'seen' is a name of this kernel's own")])
def test_an_epilogue_is_split_off_where_nothing_else_writes_its_result_and_all_names_are_the_program_s(value: str, other: str, said: str) -> None:
    text = EPILOGUE.format(value=value, other=other).replace("threads 1\n", "threads 1\n  view global seen: f32[32] at X\n", "seen" in value)
    program = parse_program(text, "p.kir")
    item = next(p for p in passes() if p.name == "fuse-epilogue").with_options({})
    found = [s for s in sites(item, program, "backward") if s.path[:2] == ("main", 1 + ("seen" in value))]
    near = [why for _, why in misses(item, program, "backward")]
    assert bool(found) == (not said) and (not said or any(why.startswith(said) for why in near)), near


def test_a_loop_that_carries_something_becomes_no_vectors() -> None:
    """A mark for vectors promises that no iteration reads what another writes, and no run shows it: only a loop of which that is proved gets one."""
    text = "kir 1\nprogram p\n  inout X: f32[65]\n  out Y: f32[64]\nkernel main grid (b: 1) threads 1\n  for i in 0..64\n    {body}\n"
    item = next(p for p in passes() if p.name == "unroll").with_options({"factor": 0, "form": "vector"})
    carried, apart = (parse_program(text.format(body=body)) for body in ("X[i + 1] = X[i] * 2.0", "Y[i] = X[i] * 2.0"))
    assert sites(item, carried) == () and "an iteration may touch what another writes" in [said for _, said in misses(item, carried)]
    assert len(sites(item, apart)) == 1


def test_a_chain_of_names_is_not_written_out_whole() -> None:
    """Each link is named three times: written out, the last would have thousands of nodes. A walk leaves such names, and takes the others back."""
    links = "".join(f"  let m{k} = select(m{k - 1} != m{k - 1} | m{k - 1} > X[{k}], m{k - 1}, X[{k}])\n" for k in range(1, 9))
    head = "kir 1\nprogram p\n  in X: f32[9]\n  out Y: f32[1]\nkernel main grid (b: 1) threads 1\n  let m0 = X[0] * 2.0\n"
    program = parse_program(f"{head}{links}  Y[0] = m8\n")
    item = next(p for p in passes() if p.name == "reuse-operand").with_options({})
    found = [site.path for site in item.inverse_sites(program)]
    assert ("main", 0) in found  # a short value
    while steps := list(item.inverse_sites(program)):
        program = steps[0].params.deoptimize(program, steps[0]).program
    assert 0 < sum(1 for s in program.kernels[0].body if type(s).__name__ == "Let") < 9
    assert len(program_text(program)) < 20_000


def test_ctas_that_stay_already_are_not_made_to_stay_again() -> None:
    program = parse_program("kir 1\nprogram p\n  size M: i32\n  in X: f32[M]\n  out Y: f32[M]\nkernel main grid (i: M) threads 1\n  Y[i] = X[i] * 2.0\n")
    item = next(p for p in passes() if p.name == "persistent").with_options({"ctas": 132})
    once = run(program, Pipeline.parse("persistent{ctas=132}@main", "once")).program
    assert len(sites(item, program)) == 1 and sites(item, once) == ()
    assert [said for _, said in misses(item, once)] == ["its CTAs stay already, and further ones would have nothing to do"]


WARPS = """kir 1
program p
  in X: f32[64, 32]
  out Y: f32[64, 32]
kernel main grid (b: 16) threads 128
  shared kept: f32[{shape}]
  for t in 0..128 parallel thread
    kept[{put}] = X[b * 4 + t // 32, t % 32]
    warp_sync()
    register sum: f32 = 0.0
    for c in 0..{count}
      sum = sum + kept[{got}]
    Y[b * 4 + t // 32, t % 32] = sum
"""


@pytest.mark.parametrize(("shape", "put", "count", "got", "found"), [
    ("128", "t", 32, "t // 32 * 32 + c", 1), ("4, 32", "t // 32, t % 32", 32, "t // 32, c", 1), ("128", "t", 33, "t // 32 * 32 + c", 0),
    ("128", "t", 32, "c", 0), ("128", "t", 32, "t // 64 * 32 + c", 0), ("4, 32", "t // 32, t % 32", 32, "3 - t // 32, c", 0),
    ("160", "t // 32 * 40 + t % 32", 32, "t // 32 * 40 + c", 1), ("160", "t // 32 * 32 + t % 32", 32, "t // 32 * 32 + c", 0)])
def test_warps_that_read_of_one_another_have_no_cta_of_their_own(shape: str, put: str, count: int, got: str, found: int) -> None:
    program = parse_program(WARPS.format(shape=shape, put=put, count=count, got=got), "p.kir")
    item = next(p for p in passes() if p.name == "warps-per-cta").with_options({})
    assert len(sites(item, program, "backward")) == found
    assert found or "its warps differ in more than their place along a grid axis" in [said for _, said in misses(item, program, "backward")]
