"""Law 5a over the instruction table: every row that is a PTX instruction, written as CUDA by the backend, is read back as that row; forms
that the backend does not know are refused at their place."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError
from kir.base.instructions import table
from kir.ir.parser import parse_program
from kir.surface import backend
from tests.round_trips import CUDA

F, H, B, S, U = "f32", "f16", "bf16", "i32", "u32"


def elementwise(call: str, *dtypes: str, result: str = "") -> str:
    """A kernel of one warp that stores a call on its lane's elements of one tensor each."""
    out = result or dtypes[0]
    ins = "\n".join(f"  in {'ABCD'[k]}: {d}[32]" for k, d in enumerate(dtypes))
    args = {"abcd"[k]: f"{'ABCD'[k]}[t]" for k in range(len(dtypes))}
    value = re.sub(r"\$([abcd])", lambda m: args[m[1]], call)
    return f"{ins}\n  out Y: {out}[32]\nkernel main grid (g: 1) threads 32\n  for t in 0..32 parallel thread\n    Y[t] = {value}\n"


def effects(*lines: str, shared: tuple[str, ...] = (), params: tuple[str, ...] = ("inout X: f32[32]",), threads: int = 32, tail: str = "X[t] = 1.0",
            attrs: str = "") -> str:
    """A kernel whose threads do something for its effect."""
    body = "\n".join(f"    {x}" for x in (*lines, *([tail] if tail else [])))
    front = "".join(f"  shared {s}\n" for s in shared)
    heads = "".join(f"  {p}\n" for p in params)
    return f"{heads}kernel main grid (g: 1) threads {threads}{attrs}\n{front}  for t in 0..{threads} parallel thread\n{body}\n"


def named(name: str, call: str, *dtypes: str) -> str:
    """As `elementwise`, for a call that stands under a name."""
    return elementwise("v", *dtypes).replace("    Y[t] = v", f"    let v = {re.sub(r'[$]([abcd])', lambda m: m[1].upper() + '[t]', call)}\n    Y[t] = v")


APPROXIMATE = [f"{x}_approx" for x in ("exp2", "log2", "rsqrt", "sin", "cos", "rcp", "sqrt")]
MBAR = ("bar: mbarrier[2]",)
CASES: dict[str, list[str]] = {
    **{fn: [elementwise(f"{fn}($a)", F), elementwise(f"{fn}($a, subnormal=true)", F)] for fn in APPROXIMATE},
    "sqrt_approx": [elementwise("sqrt_approx($a)", F)],
    "exp2_approx": [elementwise("exp2_approx($a)", F), elementwise("exp2_approx($a, subnormal=true)", F), elementwise("exp2_approx($a)", B)],
    "tanh_approx": [elementwise("tanh_approx($a)", d) for d in (F, H, B)],
    "div_approx": [elementwise("div_approx($a, $b)", F, F), elementwise("div_approx($a, $b, subnormal=true)", F, F)],
    **{f"{op}_rounded": [elementwise(f"{op}_rounded({', '.join('$' + x for x in 'abc'[:count])}, {how})", *[F] * count)
                         for how in ("rounding=rz", "rounding=ru", "rounding=rd", "ftz=true, rounding=rz")]
       for op, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3), ("div", 2), ("sqrt", 1), ("rcp", 1))},
    "to_tf32": [elementwise("to_tf32($a, rounding=rna)", F)],
    "lop3": [elementwise("lop3($a, $b, $c, lut=202)", U, U, U)],
    "bit_extract": [elementwise("bit_extract($a, $b, $c)", S, S, S), elementwise("bit_extract($a, $b, $c)", U, U, U)],
    "bit_insert": [elementwise("bit_insert($a, $b, $c, $d)", U, U, U, U)],
    "nth_bit": [elementwise("nth_bit($a, $b, $c)", U, U, U)],
    "funnel_left": [elementwise("funnel_left($a, $b, $c)", U, U, U), elementwise("funnel_left($a, $b, $c, clamp=true)", U, U, U)],
    "funnel_right": [elementwise("funnel_right($a, $b, $c)", U, U, U), elementwise("funnel_right($a, $b, $c, clamp=true)", U, U, U)],
    "dp4a": [elementwise("dp4a($a, $b, $c)", S, S, S, result=S), elementwise("dp4a($a, $b, $c)", U, U, U, result=U)],
    "mulhi": [elementwise("mulhi($a, $b)", S, S), elementwise("mulhi($a, $b)", U, U)],
    "prmt": [elementwise("prmt($a, $b, $c)", U, U, U)],
    "popc": [elementwise("popc($a)", U, result=S)],
    "clz": [elementwise("clz($a)", U, result=S)],
    "brev": [elementwise("brev($a)", U)],
    "pack": [effects("let v = cast(A[t, 0 +: 2], f16)", "let w = pack(v, dtype=u32)", params=("in A: f32[32, 2]", "out Y: u32[32]"), tail="Y[t] = w")],
    "unpack": [effects(f"let v = unpack(A[t], dtype={d})", f"Y[t, 0 +: {k}] = v * v", params=("in A: u32[32]", f"out Y: {d}[32, {k}]"), tail="")
               for d, k in ((H, 2), ("i8", 4))],
    "print": [effects("if t < 2", '  print(t, X[t], format="%d %f\\n")')],
    **{f"atomic_{op}": [effects(f"atomic_{op}(&X[0], t)", params=("inout X: i32[32]",), tail=""),
                        effects(f"let old = atomic_{op}(&X[0], t)", params=("inout X: i32[32]",), tail="X[t] = old")]
       for op in ("add", "max", "min", "and", "or", "xor")},
    "atomic_exch": [effects("let old = atomic_exch(&X[0], t)", params=("inout X: i32[32]",), tail="X[t] = old")],
    "atomic_cas": [effects("let old = atomic_cas(&X[0], 3, t)", params=("inout X: i32[32]",), tail="X[t] = old")],
    "atomic_load": [effects("let v = atomic_load(&X[0], order=acquire)", params=("inout X: u32[32]",), tail="X[t] = v")],
    "atomic_store": [effects("atomic_store(&X[t], 1:u32, order=release)", params=("inout X: u32[32]",), tail="")],
    "prefetch": [effects("prefetch(&X[t], level=2)"), effects("prefetch(&X[t], level=1)")],
    **{fn: [named("v", f"{fn}($a, 4)", F), named("v", f"{fn}($a, 4)", S)] for fn in ("shfl_xor", "shfl_up", "shfl_down", "shfl_idx")},
    "vote_any": [effects("let v = vote_any(A[t] > 0.0)", "Y[t] = cast(v, i32)", params=("in A: f32[32]", "out Y: i32[32]"), tail="")],
    "vote_all": [effects("let v = vote_all(A[t] > 0.0)", "Y[t] = cast(v, i32)", params=("in A: f32[32]", "out Y: i32[32]"), tail="")],
    "ballot": [effects("let v = ballot(A[t] > 0.0)", "Y[t] = v", params=("in A: f32[32]", "out Y: u32[32]"), tail="")],
    "match_any": [effects("let v = match_any(A[t])", "Y[t] = v", params=("in A: u32[32]", "out Y: u32[32]"), tail="")],
    "active_mask": [effects("let v = active_mask()", "Y[t] = v", params=("out Y: u32[32]",), tail="")],
    "warp_reduce": [effects(f"let v = warp_reduce(A[t], op={op})", "Y[t] = v", params=("in A: u32[32]", "out Y: u32[32]"), tail="")
                    for op in ("add", "min", "max", "and", "or", "xor")],
    "ldmatrix": [effects("s[t, 0 +: 8] = broadcast(0.0:f16, 8)", "barrier()", f"let v = ldmatrix(&s[t % {8 * num}, 0 +: 8], num={num}{trans})",
                         f"Y[t, 0 +: {2 * num}] = v", shared=("s: f16[32, 8]",), params=(f"out Y: f16[32, {2 * num}]",), tail="")
                 for num in (1, 2, 4) for trans in ("", ", trans=true")],
    "stmatrix": [effects("let x = A[t, 0 +: 8]", "stmatrix(&s[t, 0 +: 8], x)", "barrier()", shared=("s: f16[32, 8]",),
                         params=("in A: f16[32, 8]", "out Y: f16[32, 8]"), tail="copy s[t, 0 +: 8] -> Y[t, 0 +: 8] via vector(8)")],
    "mma_sync": [effects(f"Y[t, 0 +: 4] = mma_sync(A[t, 0 +: {na}], B[t, 0 +: {nb}], C[t, 0 +: 4], shape={shape})", tail="",
                         params=(f"in A: {ab}[32, {na}]", f"in B: {ab}[32, {nb}]", f"in C: {cd}[32, 4]", f"out Y: {cd}[32, 4]"))
                 for ab, cd, shape, na, nb in ((H, F, "m16n8k16", 8, 4), (B, F, "m16n8k16", 8, 4), (H, H, "m16n8k16", 8, 4), (H, F, "m16n8k8", 4, 2),
                                               (B, F, "m16n8k8", 4, 2), (H, H, "m16n8k8", 4, 2), ("i8", S, "m16n8k16", 8, 4),
                                               ("i8", S, "m16n8k32", 16, 8), ("u8", S, "m16n8k32", 16, 8))],
    "barrier": [effects("barrier()")],
    "warp_sync": [effects("warp_sync()")],
    "named_barrier_sync": [effects("named_barrier_sync(1, 32)")],
    "named_barrier_arrive": [effects("named_barrier_arrive(1, 64)")],
    "cluster_arrive": [effects("cluster_arrive()", "cluster_wait()")],
    "cluster_wait": [effects("cluster_arrive()", "cluster_wait()")],
    "fence": [effects(f"fence(scope={s})") for s in ("cta", "gpu", "sys")],
    "fence_async": [effects("fence_async()")],
    "fence_mbar_init": [effects("fence_mbar_init()")],
    "mbar_init": [effects("if t == 0", "  mbar_init(&bar[0], 1)", shared=MBAR)],
    "mbar_expect": [effects("mbar_expect(&bar[0], 64)", shared=MBAR)],
    "mbar_arrive": [effects("mbar_arrive(&bar[1])", shared=MBAR)],
    "mbar_arrive_expect": [effects("mbar_arrive_expect(&bar[0], 128)", shared=MBAR)],
    "mbar_wait": [effects("mbar_wait(&bar[0], 1)", shared=MBAR)],
    "async_commit": [effects("async_commit()", "async_wait(0)")],
    "async_wait": [effects("async_wait(2)")],
    "bulk_commit": [effects("bulk_commit()")],
    "bulk_wait": [effects("bulk_wait(0)"), effects("bulk_wait(1, read=true)")],
    "prefetch_descriptor": [effects("prefetch_descriptor(descriptor=X_map)", params=("inout X: f32[64, 32]", "map X_map of X box [32, 32] {swizzle=128}"),
                                    tail="X[0, t] = 1.0")],
    "wgmma": [effects("register acc: f32[64] = 0.0", "wgmma_fence()", f"wgmma(&acc, {a}, {b}, shape=m64n128k16{trans})", "wgmma_commit()",
                      "wgmma_wait(0)", "X[t, 0 +: 64] = acc", threads=128, params=("inout X: f32[128, 64]",), tail="",
                      shared=("A: f16[2, 64, 64] layout swizzle(3, 4, 3) align 1024",
                              f"{b[1]}: f16[{'2, 2, 64, 64' if b[1] == 'B' else '128, 64'}] layout swizzle(3, 4, 3) align 1024"))
              for a, b, trans in (("&A[1, 0 +: 64, 16 +: 16]", "&B[0, 0 +: 2, 32 +: 16, 0 +: 64]", ""),
                                  ("&A[0, 0 +: 64, 0 +: 16]", "&N[0 +: 128, 48 +: 16]", ", trans_b=true"),
                                  ("&A[1, 16 +: 16, 0 +: 64]", "&N[0 +: 128, 0 +: 16]", ", trans_a=true, trans_b=true"))],
    "wgmma_fence": [effects("wgmma_fence()", threads=128, params=("inout X: f32[128]",))],
    "wgmma_commit": [effects("wgmma_commit()", threads=128, params=("inout X: f32[128]",))],
    "wgmma_wait": [effects("wgmma_wait(0)", threads=128, params=("inout X: f32[128]",))],
    "tcgen05_mma": [effects("let d = X[t]", f"tcgen05_mma(d, {a}, {b}, {add}, shape=m128n128k16{trans})", threads=128, params=("inout X: u32[128]",),
                            tail="X[t] = 1:u32", shared=tuple(f"{x} layout swizzle(3, 4, 3) align 1024" for x in shared))
                    for a, b, add, trans, *shared in (
                        ("&A[1, 0 +: 128, 16 +: 16]", "&B[0, 0 +: 2, 32 +: 16, 0 +: 64]", "1", "", "A: f16[2, 128, 64]", "B: f16[2, 2, 64, 64]"),
                        ("&T[1, 0 +: 2, 16 +: 16, 0 +: 64]", "&N[0 +: 128, 48 +: 16]", "t", ", trans_a=true, trans_b=true", "T: bf16[2, 2, 64, 64]",
                         "N: bf16[128, 64]"))],
    "tcgen05_ld": [effects(f"register r: f32[{n}] = 0.0", "let d = X[t, 0]", f"tcgen05_ld(&r[{at} +: {n // 2}], d + 64:u32)", "tcgen05_wait_ld()",
                           f"Y[t, 0 +: {n}] = r", threads=128, params=("in X: u32[128, 1]", f"out Y: f32[128, {n}]"), tail="")
                   for n, at in ((64, 32), (4, 0))],
    "tcgen05_alloc": [effects("tcgen05_alloc(&at[0], 256)", shared=("at: u32[2]",))],
    "tcgen05_dealloc": [effects("let d = X[t]", "tcgen05_dealloc(d, 32)", params=("inout X: u32[32]",), tail="X[t] = 1:u32")],
    "tcgen05_commit": [effects("tcgen05_commit(&bar[1])", shared=MBAR)],
    **{f"tcgen05_{x}": [effects(f"tcgen05_{x}()")] for x in ("relinquish", "wait_ld", "fence_before", "fence_after")},
    "grid_dependency_wait": [effects("grid_dependency_wait()")],
    "grid_dependency_launch": [effects("grid_dependency_launch()")],
    "set_registers": [effects("set_registers(40, grow=false)", threads=128, params=("inout X: f32[128]",)),
                      effects("set_registers(232, grow=true)", threads=128, params=("inout X: f32[128]",))],
    "nanosleep": [effects("nanosleep(100:u32)")],
    "trap": [effects("if X[t] > 1.0", "  trap()")],
}


def test_every_row_of_ptx_has_its_case() -> None:
    rows = {name for name, row in table().items() if row.ptx}
    assert rows == set(CASES) - {"print"}


@pytest.mark.parametrize("fn", CASES)
def test_a_row_is_written_and_read_back(fn: str, tmp_path: Path) -> None:
    for k, text in enumerate(CASES[fn]):
        try:
            program = parse_program(f"kir 1\nprogram p\n{text}", f"{fn} {k}")
        except KirError as bad:
            raise AssertionError(f"{text}\n{bad}") from bad
        CUDA.holds(program, tmp_path, k)


FP8 = effects("Y[t, 0 +: 4] = mma_sync(A[t, 0 +: 16], B[t, 0 +: 8], C[t, 0 +: 4], shape=m16n8k32)", tail="",
              params=("in A: f8e4m3[32, 16]", "in B: f8e4m3[32, 8]", "in C: f32[32, 4]", "out Y: f32[32, 4]"))
NO_FORM = {"mma_sync": (FP8, "f8e4m3"), "sqrt_approx": (elementwise("sqrt_approx($a, subnormal=true)", F), "sqrt_approx"),
           "bulk": (elementwise("to_tf32($a, rounding=rz)", F), "to_tf32")}


@pytest.mark.parametrize("what", NO_FORM)
def test_what_has_no_form_is_refused_at_its_place(what: str) -> None:
    text, word = NO_FORM[what]
    with pytest.raises(KirError) as caught:
        backend("cuda").emit(parse_program(f"kir 1\nprogram p\n{text}", "p.kir"))
    first = caught.value.diagnostics[0]
    assert first.id.startswith("KIR-B") and word in first.message and (first.origin is not None or first.anchor)
