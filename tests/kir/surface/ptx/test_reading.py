"""What inline PTX means: the statements and values that asm texts become, and those that are refused at their place."""
from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from kir.base.diagnostic import KirError, Origin
from kir.base.instructions import table
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text, program_text
from kir.ir.types import BOOL, F16, F32, I32, MBARRIER, U32, DType, Space, TileType
from kir.surface.ptx import AsmOperand, Descriptor, Matrix, Meaning, Pointer, opcodes, read_asm
from kir.surface.ptx.table import markdown


def names() -> Callable[[str], str]:
    numbers = count()
    return lambda stem: f"{stem}{next(numbers)}"


def buffer(name: str, dtype: DType, space: Space = "global", *shape: int) -> n.Buffer:
    return n.Buffer(name, dtype, tuple(build.const(d) for d in shape or (64, 64)), space)


ROW, X, U, V, B = n.Var("i", I32), n.Var("x", F32), n.Var("u", U32), n.Var("v", U32), n.Var("b", BOOL)
A, S = buffer("A", F16), buffer("S", F16, "shared")
BAR, COUNT = buffer("bar", MBARRIER, "shared", 3), buffer("count", I32, "global", 8)
ACC, MAP = buffer("acc", F32, "register", 4, 4), n.TensorMap("A_map", "A", (64, 64))


def r(value: n.Expr | Pointer | Descriptor | None = None, constraint: str = "r") -> AsmOperand:
    return AsmOperand(constraint, value)


def at(b: n.Buffer, *index: n.Expr | int) -> Pointer:
    return Pointer(build.region(b, *index))


OUT, FOUT, HALF, WIDE = r(None, "=r"), r(None, "=f"), r(None, "=h"), r(None, "=l")
PA, PS = r(at(A, ROW, 8), "l"), r(at(S, ROW, 0))


def shown(meaning: Meaning) -> list[str]:
    """Statements as IR text, and after them the outputs."""
    body = meaning.statements or (n.Let(("none",), build.const(0)),)
    text = program_text(n.Program("p", kernels=(n.Kernel("main", (n.Axis("g", build.const(1)),), build.const(32), body),)))
    lines = [line[2:] for line in text.splitlines()[3:]] if meaning.statements else []
    return [*lines, *("= " + ("nothing" if o is None else expr_text(o)) for o in meaning.outputs)]


def read(text: str, *operands: AsmOperand) -> list[str]:
    return shown(read_asm(text, operands, names(), {"laneid": n.Var("lane", I32), "tid.x": n.Var("t", U32)}))


READ: list[tuple[str, tuple[AsmOperand, ...], list[str]]] = [
    ("add.f32 %0, %1, 0f3F800000;", (FOUT, r(X, "f")), ["= x + 1.0"]),
    ("add.rz.ftz.f32 %0, %1, %1;", (FOUT, r(X, "f")), ["= add_rounded(x, x, ftz=true, rounding=rz)"]),
    ("fma.rn.f32 %0, %1, %1, %1;", (FOUT, r(X, "f")), ["= fma(x, x, x)"]),
    ("mul.lo.s32 %0, %1, 3;", (OUT, r(ROW)), ["= i * 3"]),
    ("mul.wide.u32 %0, %1, %2;", (WIDE, r(U), r(V)), ["= cast(u, u64) * cast(v, u64)"]),
    ("mul.hi.u32 %0, %1, %2;", (OUT, r(U), r(V)), ["= mulhi(u, v)"]),
    ("mad.lo.u32 %0, %1, %2, %1;", (OUT, r(U), r(V)), ["= u + u * v"]),
    ("max.f32 %0, %1, %2, %1;", (FOUT, r(X, "f"), r(U)), ["= max(max(x, cast(u, f32, bits)), x)"]),
    ("min.NaN.f32 %0, %1, 0.0;", (FOUT, r(X, "f")), ["= min_nan(x, 0.0)"]),
    ("ex2.approx.ftz.f32 %0, %1;", (FOUT, r(X, "f")), ["= exp2_approx(x)"]),
    ("ex2.approx.f32 %0, %1;", (FOUT, r(X, "f")), ["= exp2_approx(x, subnormal=true)"]),
    ("rsqrt.approx.ftz.f32 %0, %1;", (FOUT, r(X, "f")), ["= rsqrt_approx(x)"]),
    ("ex2.approx.f16x2 %0, %1;", (OUT, r(U)), ["= pack(exp2_approx(unpack(u, dtype=f16), subnormal=true), dtype=u32)"]),
    ("sqrt.rn.f32 %0, %1;", (FOUT, r(X, "f")), ["= sqrt(x)"]),
    ("div.full.f32 %0, %1, %1;", (FOUT, r(X, "f")), ["= div_approx(x, x, subnormal=true)"]),
    ("lop3.b32 %0, %1, %2, %1, 0xEA;", (OUT, r(U), r(V)), ["= lop3(u, v, u, lut=234)"]),
    ("prmt.b32 %0, %1, %2, 0x5410;", (OUT, r(U), r(V)), ["= prmt(u, v, 21520:u32)"]),
    ("shf.l.wrap.b32 %0, %1, %2, 7;", (OUT, r(U), r(V)), ["= funnel_left(u, v, 7:u32)"]),
    ("fns.b32 %0, %1, 0, 2;", (OUT, r(U)), ["= nth_bit(u, 0:u32, 2:u32)"]),
    ("bfe.u32 %0, %1, 8, 4;", (OUT, r(U)), ["= bit_extract(u, 8:u32, 4:u32)"]),
    ("bfi.b32 %0, %1, %2, 8, 4;", (OUT, r(U), r(V)), ["= bit_insert(v, u, 8:u32, 4:u32)"]),
    ("dp4a.u32.u32 %0, %1, %2, %1;", (OUT, r(U), r(V)), ["= dp4a(u, v, u)"]),
    ("fma.rn.f16x2 %0, %1, %2, %1;", (OUT, r(U), r(V)),
     ["= pack(fma(unpack(u, dtype=f16), unpack(v, dtype=f16), unpack(u, dtype=f16)), dtype=u32)"]),
    ("cvt.rn.f16x2.f32 %0, %1, %2;", (OUT, r(X, "f"), r(n.Var("y", F32), "f")), ["= pack(cast(vec(y, x), f16), dtype=u32)"]),
    ("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %1;", (HALF, r(X, "f")), ["= pack(cast(vec(x, x), f8e4m3), dtype=u16)"]),
    ("cvt.rn.f16x2.e5m2x2 %0, %1;", (OUT, r(n.Var("h", DType("u16", "uint", 16)), "h")), ["= pack(cast(unpack(h, dtype=f8e5m2), f16), dtype=u32)"]),
    ("cvt.rni.sat.s8.f32 %0, %1;", (OUT, r(X, "f")), ["= cast(cast(cast(min(max(cast(round_even(x), i32), -128), 127), i8), i32), u32, bits)"]),
    ("cvt.rna.tf32.f32 %0, %1;", (OUT, r(X, "f")), ["= to_tf32(x, rounding=rna)"]),
    ("mov.b32 {%0, %1}, %2;", (HALF, HALF, r(U)), ["= pick(unpack(u, dtype=u16), 0)", "= pick(unpack(u, dtype=u16), 1)"]),
    ("{.reg .b32 %%rx; mov.b32 %%rx, %1; add\n .u32 %0, %%rx, %%rx;}", (OUT, r(U)), ["= u * 2:u32"]),
    ("mov.u32 %0, %%laneid;", (OUT,), ["= cast(lane, u32, bits)"]),
    ("{.reg .pred p; setp.ge.and.u32 p, %1, 4, %2; selp.b32 %0, %1, 0, p;}", (OUT, r(U), r(B, "b")), ["= select(u >= 4:u32 & b, u, 0:u32)"]),
    ("{.reg .pred p; setp.ne.f32 p, %1, 0.0; selp.f32 %0, %1, 1.0, p;}", (FOUT, r(X, "f")), ["= select(x < 0.0 | x > 0.0, x, 1.0)"]),
    ("{ .reg .pred p; setp.gt.f32 p, $1, 20.; @p mov.f32 $0, $1; @!p mul.f32 $0, $1, 2.0; @!p ex2.approx.ftz.f32 $0, $0; }",
     (r(None, "=r"), r(X)), ["= select(x > 20.0, x, exp2_approx(x * 2.0))"]),
    ("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4+16];", (OUT, OUT, OUT, OUT, PA),
     ["let x0 = load(A[i, 16 +: 8] cache nc_no_allocate_l2_128)", *(f"= pack(pick(x0, iota(2){f' + {k}' if k else ''}), dtype=u32)" for k in (0, 2, 4, 6))]),
    ("ld.global.b16 %0, [%1];", (HALF, PA), ["= A[i, 8]"]),
    ("{.reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.b16 %0, [%1];}", (HALF, PA, r(U)), ["= load(A[i, 8] where u != 0:u32)"]),
    ("st.global.cs.v2.u32 [%0], {%1,%2};", (PA, r(U), r(V)), ["A[i, 8 +: 4] = cat(unpack(u, dtype=f16), unpack(v, dtype=f16), axis=0) cache cs"]),
    ("ld.global.acquire.gpu.b32 %0, [%1];", (OUT, r(at(COUNT, ROW), "l")), ["let x0 = atomic_load(&count[i], order=acquire)", "= x0"]),
    ("st.release.gpu.global.b32 [%0], %1;", (r(at(COUNT, ROW), "l"), r(ROW)), ["atomic_store(&count[i], i, order=release)"]),
    ("red.release.gpu.global.add.s32 [%0], %1;", (r(at(COUNT, ROW), "l"), r(ROW)), ["atomic_add(&count[i], i, order=release)"]),
    ("atom.global.cas.b32 %0, [%1], %2, %3;", (OUT, r(at(COUNT, ROW), "l"), r(ROW), r(ROW)), ["let old0 = atomic_cas(&count[i], i, i)", "= old0"]),
    ("prefetch.global.L2 [%0];", (PA,), ["prefetch(&A[i, 8], level=2)"]),
    ("cp.async.cg.shared.global [%0], [%1], %2, %3;", (PS, PA, r(build.const(16), "n"), r(build.select(B, build.const(16), build.const(0)))),
     ["copy load(A[i, 8 +: 8] where b else 0.0:f16) -> S[i, 0 +: 8] via cp_async grouped"]),
    ("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p cp.async.cg.shared.global.L2::128B [%0], [%1], 16; }", (PS, PA, r(U)),
     ["if u != 0:u32", "  copy load(A[i, 8 +: 8] cache l2_128) -> S[i, 0 +: 8] via cp_async grouped"]),
    ("{ .reg .b64 p; createpolicy.fractional.L2::evict_first.b64 p, 1.0; cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, p; }", (PS, PA),
     ["copy A[i, 8 +: 8] -> S[i, 0 +: 8] via cp_async grouped"]),
    ("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;", (WIDE,), [f"= {0x12f0000000000000}:u64"]),  # the bits that stand for it
    ("cp.async.wait_group %0;", (r(build.const(2), "n"),), ["async_wait(2)"]),
    ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 64, [%2];", (PS, PA, r(at(BAR, 1))),
     ["copy A[i, 8 +: 32] -> S[i, 0 +: 32] via bulk signal bar[1]"]),
    ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];",
     (r(at(S, 0, 0)), r(None), r(at(BAR, 1)), r(ROW), r(build.mul(ROW, 64))),
     ["copy load(A[i * 64 +: 64, i +: 64] else 0.0:f16 clip) -> S via tma signal bar[1] {descriptor=A_map}"]),
    ("prefetch.tensormap [%0];", (r(None),), ["prefetch_descriptor(descriptor=A_map)"]),
    ("mbarrier.init.shared::cta.b64 [%0], 1;", (r(at(BAR, 0)),), ["mbar_init(&bar[0], 1)"]),
    ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;", (r(at(BAR, 0)), r(ROW)), ["mbar_arrive_expect(&bar[0], i)"]),
    ("{.reg .pred P1; WAIT: mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1; @P1 bra DONE; bra WAIT; DONE: }",
     (r(at(BAR, ROW)), r(ROW)), ["mbar_wait(&bar[i], i)"]),
    ("{.reg .pred p; L: mbarrier.test_wait.parity.shared.b64 p, [%0], %1; @!p bra L; }", (r(at(BAR, ROW)), r(ROW)), ["mbar_wait(&bar[i], i)"]),
    ("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];", (OUT, OUT, PS),
     ["let m0 = ldmatrix(&S[i, 0 +: 8], num=2, trans=true)", "= pack(pick(m0, iota(2)), dtype=u32)", "= pack(pick(m0, iota(2) + 2), dtype=u32)"]),
    ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};", (PS, r(U)), ["stmatrix(&S[i, 0 +: 8], unpack(u, dtype=f16))"]),
    ("shfl.sync.bfly.b32 %0, %1, 4, 0x1f, -1;", (FOUT, r(X, "f")), ["let x0 = shfl_xor(x, 4)", "= x0"]),
    ("shfl.sync.down.b32 %0, %1, 4, 0x181f, 0xffff;", (FOUT, r(X, "f")), ["let x0 = shfl_down(x, 4, mask=65535, width=8)", "= x0"]),
    ("redux.sync.max.u32 %0, %1, 0xffffffff;", (OUT, r(U)), ["let x0 = warp_reduce(u, op=max)", "= x0"]),
    ("and.b32 %0, %1, 0b1010U;", (OUT, r(U)), ["= u & 10:u32"]),
    ("bar.sync 0;", (), ["barrier()"]),
    ("barrier.sync %0, %1;", (r(ROW), r(ROW)), ["named_barrier_sync(i, i)"]),
    ("fence.proxy.async.shared::cta;", (), ["fence_async()"]),
    ("membar.gl;", (), ["fence(scope=gpu)"]),
    ("griddepcontrol.wait; // dummy $0", (OUT,), ["grid_dependency_wait()", "= nothing"]),
    ("setmaxnreg.dec.sync.aligned.u32 40;", (), ["set_registers(40, grow=false)"]),
    ("nanosleep.u32 20;", (), ["nanosleep(20:u32)"]),
    ("wgmma.wait_group.sync.aligned 1;", (), ["wgmma_wait(1)"]),
]


@pytest.mark.parametrize(("text", "operands", "wanted"), READ, ids=[f"{k}-{t.split(';')[0][:40]}" for k, (t, _, _) in enumerate(READ)])
def test_an_instruction_becomes(text: str, operands: tuple[AsmOperand, ...], wanted: list[str]) -> None:
    given = tuple(r(Descriptor(MAP, A), "l") if o.value is None and not o.is_output else o for o in operands)
    assert read(text, *given) == wanted


def test_registers_cut_from_one_place_are_that_place_again() -> None:
    acc = [AsmOperand("+f", n.Load(build.region(ACC, ROW, k))) for k in range(4)]
    held = n.Var("m", TileType(F16, (8,)))
    a = [r(build.call("pack", build.call("pick", held, build.add(build.iota(2), 2 * k) if k else build.iota(2)), dtype="u32")) for k in range(4)]
    text = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
    got = read(text, *acc, *a, r(U), r(V))
    assert got == ["let d0 = mma_sync(m, cat(unpack(u, dtype=f16), unpack(v, dtype=f16), axis=0), acc[i, 0 +: 4], shape=m16n8k16)",
                   *(f"= pick(d0, {k})" for k in range(4))]


D, T = buffer("d", F32, "register", 4), buffer("T", F16, "shared", 3, 64, 64)
ACCS = tuple(AsmOperand("+f", place=build.region(D, k)) for k in range(4))
MATRICES = {
    "A": Matrix(at(T, 0, ROW, 16), 1 << 62 | 64 << 32 | 1 << 16), "B": Matrix(at(T, 1, 0, 16), 1 << 62 | 64 << 32 | 512 << 16),
    "wrong rows": Matrix(at(T, 1, 0, 16), 1 << 62 | 128 << 32), "no swizzle": Matrix(at(T, 1, 0, 16), 64 << 32),
    "flat": Matrix(at(buffer("F", F16, "shared", 4096), 0), 1 << 62 | 64 << 32),
}


def filled(operands: tuple[AsmOperand | str, ...]) -> tuple[AsmOperand, ...]:
    """Operands, with matrices by their names."""
    return tuple(AsmOperand("l", MATRICES[o]) if isinstance(o, str) else o for o in operands)


@pytest.mark.parametrize(("last", "wanted"), [
    ("1, 1, 1, 0, 0", ["wgmma(&d, &T[0, i +: 64, 16 +: 16], &T[1, 0 +: 8, 16 +: 16], shape=m64n8k16, trans_b=true)"]),
    ("0, 1, 1, 0, 0", ["d = 0.0", "wgmma(&d, &T[0, i +: 64, 16 +: 16], &T[1, 0 +: 8, 16 +: 16], shape=m64n8k16, trans_b=true)"]),
    ("p, 1, 1, 1, 1", ["if ~(u != 0:u32)", "  d = 0.0", "wgmma(&d, &T[0, i +: 16, 16 +: 64], &T[1, 0 +: 16, 16 +: 8], shape=m64n8k16, trans_a=true)"])])
def test_a_product_of_matrices_in_shared_memory_becomes(last: str, wanted: list[str]) -> None:
    text = f"{{ .reg .pred p; setp.ne.b32 p, %6, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%0,%1,%2,%3}}, %4, %5, {last}; }}"
    assert read(text, *ACCS, *filled(("A", "B")), r(U)) == [*wanted, *["= nothing"] * 4]


def test_panels_of_columns_are_an_axis() -> None:
    wide = buffer("W", F16, "shared", 2, 4, 64, 64)
    accs = [AsmOperand("+f", place=build.region(buffer("d", F32, "register", 128), k)) for k in range(128)]
    left, right = Matrix(at(T, 0, 0, 0), 1 << 62 | 64 << 32), Matrix(at(wide, ROW, 0, 16, 0), 1 << 62 | 64 << 32 | 512 << 16)
    text = f"wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {{{', '.join(f'%{k}' for k in range(128))}}}, %128, %129, 1, 1, 1, 0, 1;"
    got = read(text, *accs, AsmOperand("l", left), AsmOperand("l", right))
    assert got[0] == "wgmma(&d, &T[0, 0 +: 64, 0 +: 16], &W[i, 0 +: 4, 16 +: 16, 0 +: 64], shape=m64n256k16)"


def test_a_box_goes_to_several_ctas_and_into_part_of_an_array() -> None:
    text = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;"
    shared = buffer("P", F16, "shared", 3, 128, 64)
    got = read(text, r(at(shared, 1, ROW, 0)), r(Descriptor(MAP, A), "l"), r(at(BAR, 1)), r(ROW), r(ROW), r(build.const(3), "h"))
    assert got == ["copy load(A[i +: 64, i +: 64] else 0.0:f16 clip) -> P[1, i +: 64, 0 +: 64] via tma signal bar[1] {descriptor=A_map, multicast=3}"]


def test_a_place_in_another_cta_is_one_of_the_cluster() -> None:
    peers = buffer("peers", MBARRIER, "cluster", 2, 3)
    text = "{ .reg .b32 a; mapa.shared::cluster.u32 a, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [a]; }"
    made = read_asm(text, (r(at(BAR, 2)), r(build.cast(ROW, U32))), names(), {}, peers=lambda b: peers)
    assert shown(made) == ["mbar_arrive(&peers[i, 2])"]


REFUSED: list[tuple[str, tuple[AsmOperand | str, ...], str, str]] = [
    ("add.f32 %0, %1", (FOUT, r(X, "f")), "KIR-F300", "ends in the middle"),
    ("add.f32 %0, %1 %1;", (FOUT, r(X, "f")), "KIR-F300", "is not what PTX has here"),
    ("frob.u32 %0;", (OUT,), "KIR-F301", "no instruction 'frob'"),
    ("add.foo.f32 %0, %1, %1;", (FOUT, r(X, "f")), "KIR-F301", ".foo that is not understood"),
    ("add.f32 %0, %1;", (FOUT, r(X, "f")), "KIR-F302", "takes 3 operands, not 2"),
    ("add.f32 %0, %1, %2;", (FOUT, r(X, "f")), "KIR-F302", "operand %2 is used"),
    ("add.u32 %0, %1, %1;", (OUT, r(X, "f")), "KIR-F302", "register of floats"),
    ("add.f64 %0, %1, %1;", (FOUT, r(X, "f")), "KIR-F302", "32 bits where 64"),
    ("add.f32 %1, %1, %1;", (FOUT, r(X, "f")), "KIR-F302", "says input"),
    ("add.f32 %0, %0, %0;", (FOUT,), "KIR-F302", "read before anything"),
    ("{.reg .b32 a; .reg .b32 a; mov.b32 %0, a;}", (OUT,), "KIR-F302", "declared twice"),
    ("mov.b32 %0, nowhere;", (OUT,), "KIR-F302", "no register 'nowhere'"),
    ("lop3.b32 %0, %1, %1, %1, 256;", (OUT, r(U)), "KIR-F302", "is a byte"),
    ("ex2.approx.u32 %0, %1;", (OUT, r(U)), "KIR-F302", "no form on u32"),
    ("ld.shared.f32 %0, [%1];", (FOUT, PA), "KIR-F302", ".shared access to 'A', which is global"),
    ("ld.global.v4.u32 {%0,%0}, [%1];", (OUT, PA), "KIR-F302", "2 registers where the instruction takes 4"),
    ("ld.global.b16 %0, [%1+1];", (HALF, PA), "KIR-F306", "1 bytes from an element"),
    ("ld.global.f32 %0, [%1];", (FOUT, r(U)), "KIR-F306", "does not hold the address"),
    ("cp.async.cg.shared.global [%0], [%1], 8;", (PS, PA), "KIR-F302", "does not copy 8 bytes"),
    ("setmaxnreg.inc.sync.aligned.u32 41;", (), "KIR-F302", "multiple of 8"),
    ("mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0,%0,%0,%0},{%1,%1,%1,%1},{%1,%1},{%0,%0,%0,%0};", (r(X, "+f"), r(U)), "KIR-F302", "no mma"),
    ("mov.u32 %0, %%smid;", (OUT,), "KIR-F304", "special register"),
    ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0}, %1, %1, 1, 1, 1;", (FOUT, r(U)), "KIR-F302", "takes the signs of its operands"),
    *((f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%0,%1,%2,%3}}, %4, %5, {last};", (*ACCS, left, right), "KIR-F304", words)
      for last, left, right, words in (("1, 1, 1, 0, 0", r(U), "B", "not made of an address"), ("1, -1, 1, 0, 0", "A", "B", "negates"),
                                       ("1, 1, 1, 0, 0", "A", "wrong rows", "groups of eight rows"), ("1, 1, 1, 0, 1", "A", "no swizzle", "without a swizzle"),
                                       ("1, 1, 1, 0, 0", "flat", "B", "whose rows are not"))),
    ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%0,%1,%2}, %4, %5, 1, 1, 1, 0, 0;", (*ACCS, "A", "B"), "KIR-F304", "not consecutive"),
    ("mapa.shared::cluster.u32 %0, %1, %2;", (OUT, r(at(BAR, 0)), r(U)), "KIR-F304", "cluster is not known"),
    ("shfl.sync.bfly.b32 %0, %1, 4, 0x1f, %1;", (OUT, r(U)), "KIR-F304", "mask of lanes"),
    ("L: add.f32 %0, %1, %1; bra L;", (FOUT, r(X, "f")), "KIR-F304", "jump"),
    ("tcgen05.ld.sync.b32 %0;", (OUT,), "KIR-F302", "takes 2 operands"),
    ("tcgen05.ld.sync.aligned.16x64b.x1.b32 {%0}, [%1];", (OUT, r(U)), "KIR-F304", "of another shape"),
    ("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, %1;", (AsmOperand("=f", place=build.region(D, 0)), r(U)), "KIR-F302", "an address"),
    ("tcgen05.cp.cta_group::1.128x256b [%0], %1;", (r(U), "A"), "KIR-F304", "no row for"),
    ("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [%0];", (r(at(BAR, 0)),), "KIR-F304", "no row for"),
    ("tcgen05.mma.cta_group::1.kind::tf32 [%0], %1, %2, 0x8110010, 1;", (r(U), "A", "B"), "KIR-F304", "of another kind"),
    ("tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, 0x8110010, {%0, %0, %0, %0}, 1;", (r(U), "A", "B"), "KIR-F304", "lanes left out"),
    *((f"tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, {code:#x}, 1;", (r(U), "A", "B"), "KIR-F304", words)
      for code, words in ((0x4110010, "of descriptor"), (0x8110000, "of descriptor"), (0x8112010, "of descriptor"), (0x8100010, "begins inside one"))),
    ("addc.u32 %0, %1, %1;", (OUT, r(U)), "KIR-F304", "carry"),
    ("createpolicy.fractional.L2::evict_first.b64 %0, 0.5;", (WIDE,), "KIR-F304", "an L2 policy of a part of the lines"),
    ("createpolicy.range.L2::evict_last.b64 %0, [%1], 64, 128;", (WIDE, PA), "KIR-F304", "an L2 policy of a part of the lines"),
    ("ld.global.L2::cache_hint.b16 %0, [%1], %2;", (HALF, PA, r(n.Var("w", DType("u64", "uint", 64)), "l")), "KIR-F304", "that nothing says"),
    ("mbarrier.try_wait.parity.shared.b64 %0, [%1], %2;", (OUT, r(at(BAR, 0)), r(ROW)), "KIR-F304", "one try"),
    ("mbarrier.init.shared.b64 [%0], 1;", (PS,), "KIR-F304", "declared as f16"),
]


@pytest.mark.parametrize(("text", "operands", "id", "words"), REFUSED, ids=[t[:40] for t, _, _, _ in REFUSED])
def test_wrong_ptx_is_refused_at_its_place(text: str, operands: tuple[AsmOperand | str, ...], id: str, words: str) -> None:
    with pytest.raises(KirError) as caught:
        read(text, *filled(operands))
    found = caught.value.diagnostics[0]
    assert (found.id, words in found.message) == (id, True), found.message
    assert found.origin is not None and found.origin.file == "<asm>"


def test_a_refusal_names_the_line_of_the_instruction() -> None:
    with pytest.raises(KirError) as caught:
        read("mov.b32 %0, %1;\n  add.f32 %0, %1;", OUT, r(U))
    assert caught.value.diagnostics[0].origin == Origin("<asm>", 2, 3, 2, 18)


def test_every_opcode_that_is_not_refused_has_a_handler() -> None:
    from kir.surface.ptx import HANDLERS
    assert {o.name for o in opcodes().values() if not o.why} - set(HANDLERS) == set()
    assert set(HANDLERS) - set(opcodes()) == set()


def test_the_page_of_covered_opcodes_is_current() -> None:
    page = Path(__file__).parents[4] / "docs" / "tables" / "ptx.md"
    assert page.read_text(encoding="utf-8") == markdown(), "regenerate it: python -m kir.surface.ptx.table > docs/tables/ptx.md"


def test_rows_that_name_ptx_are_rows_of_opcodes() -> None:
    named = {name for o in opcodes().values() for name in (*o.rows, *o.written)}
    assert {name for name, row in table().items() if row.ptx} - named == set()
