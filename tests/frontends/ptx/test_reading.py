"""PTX as compilers wrote it: texts of nvcc and of Triton compute what their sources say, a text without a barrier or a mask is found out, bad input is named.

`texts/` was made once, without lines of debugging: turned and sums by nvcc 13.0 for sm_80, softmax and product_sm80 by Triton 3.6 for sm_80, product_sm90
for sm_90.
"""
from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.gate.proved.assembly import named
from kir.gate.proved.compiled import Validated, judged
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.visit import walk
from kir.surface.reading import read_source
from tests.kir.gate.proved.test_compiled import TURNED

TEXTS = Path(__file__).parent / "texts"


def text_of(name: str) -> str:
    """A compiler's text."""
    return (TEXTS / f"{name}.ptx").read_text()


def bound(folder: Path, name: str, text: str, binding: str) -> n.Program:
    """A text under a binding."""
    file = folder / f"{name}.ptx"
    file.write_text(text)
    return read_source(str(file), Binding.parse(binding)).specialized()


def sums(folder: Path, text: str) -> n.Program:
    """Sums of rows."""
    return bound(folder, "sums", text, """kernel = "sums"
sizes = ["M", "N"]
grid = ["M"]
[metas]
threads_x = 64
[scalars]
param_2 = "N"
[tensors.param_0]
name = "X"
shape = ["M", "N"]
dtype = "f32"
[tensors.param_1]
name = "Y"
shape = ["M"]
dtype = "f32"
""")


@pytest.mark.parametrize("size", [1, 63, 64, 200, 321])
def test_loops_unrolled_with_a_rest_a_tree_and_an_early_exit_of_nvcc(tmp_path: Path, size: int) -> None:
    program = sums(tmp_path, text_of("sums"))
    assert {type(x) for k in program.kernels for x in walk(k)} & {n.While, n.Opaque, n.Jump} == set()  # loops that count are loops over rounds
    x = np.random.default_rng(size).integers(-8, 8, (3, size)).astype(np.float32)
    done = run(program, {"X": x}, {}, mode="check")
    assert not done.findings and (done.outputs["Y"] == x.sum(1)).all()


def softmax(folder: Path, text: str) -> n.Program:
    """Rows of a softmax, by Triton."""
    return bound(folder, "softmax", text, """kernel = "softmax"
sizes = ["M", "N"]
facts = ["N <= 256"]
grid = ["M"]
absent = ["param_4", "param_5"]
[metas]
shared_bytes = 8
[scalars]
param_2 = "N"
param_3 = "N"
[tensors.param_0]
name = "X"
shape = ["M", "N"]
dtype = "bf16"
[tensors.param_1]
name = "Y"
shape = ["M", "N"]
dtype = "bf16"
""")


def test_a_softmax_of_triton_with_its_masks_shuffles_and_barriers(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((2, 100)).astype(ml_dtypes.bfloat16)
    done = run(softmax(tmp_path, text_of("softmax")), {"X": x}, {}, mode="check")
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(1, keepdims=True))
    assert not [f for f in done.findings if f.severity == "error"]
    assert np.abs(done.outputs["Y"].astype(np.float64) - e / e.sum(1, keepdims=True)).max() < 2e-4


def product(folder: Path, name: str, text: str, threads: int, shared: int) -> n.Program:
    """A matrix product, by Triton: its tensor cores by `name`."""
    rows = 16 if name == "product_sm80" else 64
    axes = (("A", "M", "K"), ("B", "K", "N"), ("C", "M", "N"))
    tensors = "".join(f'[tensors.param_{k}]\nname = "{of}"\nshape = ["{a}", "{b}"]\ndtype = "f16"\n' for k, (of, a, b) in enumerate(axes))
    return bound(folder, name, text, f"""kernel = "mm"
sizes = ["M", "N", "K"]
grid = ["ceildiv(M, {rows})", "ceildiv(N, 16)"]
absent = ["param_6", "param_7"]
[metas]
shared_bytes = {shared}
[scalars]
param_3 = "M"
param_4 = "N"
param_5 = "K"
{tensors}""")


@pytest.mark.parametrize(("name", "threads", "shared", "word"), [("product_sm80", 32, 1024, "mma_sync"), ("product_sm90", 128, 2560, "wgmma")])
def test_products_of_triton_on_the_tensor_cores_of_two_generations(tmp_path: Path, name: str, threads: int, shared: int, word: str) -> None:
    program = product(tmp_path, name, text_of(name), threads, shared)
    assert any(isinstance(x, n.Call) and x.fn == word for k in program.kernels for x in walk(k))
    r = np.random.default_rng(1)
    a, b = (r.integers(-3, 4, shape).astype(np.float16) for shape in ((20, 40), (40, 24)))
    done = run(program, {"A": a, "B": b}, {}, mode="check")
    assert not [f for f in done.findings if f.severity == "error"]
    assert (done.outputs["C"] == a.astype(np.float32) @ b.astype(np.float32)).all()
    assert parse_program(program_text(program), "again.kir") == program


def turned(text: str) -> Validated:
    """A text of the kernel that turns tiles around, against that kernel."""
    return judged(parse_program(TURNED, "turned.kir"), named("main", "turned_kernel", text, 64, 256, ("A", "B", "N")))


def test_what_was_compiled_with_its_barrier_and_masks_is_the_kernel() -> None:
    done = turned(text_of("turned"))
    assert done.status == "holds" and done.checked is not None and done.checked.verdict == "proved" and len(done.sizes) > 1 and not done.diagnostics()


@pytest.mark.parametrize(("gone", "instead", "id"), [
    ("bar.sync \t0;", "", "KIR-G141"),
    ("bar.sync \t0;", "@%p1 bar.sync \t0;", "KIR-G141"),
    ("bar.sync \t0;\n\t@%p1 bra \t$L__BB0_4;", "@%p1 bra \t$L__BB0_4;\n\tbar.sync \t0;", "KIR-G141"),
    ("@%p1 bra \t$L__BB0_4;", "", "KIR-G139"),
    ("@%p1 bra \t$L__BB0_2;", "", "KIR-G139"),
    ("setp.ge.s32", "setp.gt.s32", "KIR-G139"),
    ("mov.u32 \t%r9, 63;", "mov.u32 \t%r9, 62;", "KIR-G139"),
])
def test_a_barrier_or_a_mask_that_is_gone_is_found_out(gone: str, instead: str, id: str) -> None:
    assert gone in text_of("turned")
    done = turned(text_of("turned").replace(gone, instead))
    assert done.status == "refuted" and {d.id for d in done.diagnostics()} == {id}, done.line


def test_a_parameter_that_is_called_as_the_threads_are_is_another() -> None:
    program = parse_program(TURNED.replace("size N", "size t").replace("fact N", "fact t").replace("[N]", "[t]").replace("(N, ", "(t, ")
                            .replace("for t in", "for i in").replace("s[t]", "s[i]").replace("64 + t]", "64 + i]").replace("63 - t]", "63 - i]"), "t.kir")
    made = named("main", "turned_kernel", text_of("turned"), 64, 256, ("A", "B", "t"))
    with pytest.raises(KirError) as refused:
        judged(program, made)
    assert "'t'" in refused.value.diagnostics[0].message or refused.value.diagnostics[0].id.startswith("KIR-F")


def test_a_barrier_that_no_thread_needs_is_missed_all_the_same() -> None:
    twice = TURNED.replace("    barrier()\n", "    barrier()\n    barrier()\n")
    done = judged(parse_program(twice, "twice.kir"), named("main", "turned_kernel", text_of("turned"), 64, 256, ("A", "B", "N")))
    assert done.status == "refuted" and "1 of 2 barriers" in done.why and [d.id for d in done.diagnostics()] == ["KIR-G141"]


def test_a_wait_of_tensor_cores_that_is_gone_is_found_out(tmp_path: Path) -> None:
    text = text_of("product_sm90").replace("wgmma.wait_group.sync.aligned 0;", "")
    r = np.random.default_rng(1)
    a, b = (r.integers(-3, 4, shape).astype(np.float16) for shape in ((20, 40), (40, 24)))
    done = run(product(tmp_path, "product_sm90", text, 128, 2560), {"A": a, "B": b}, {}, mode="check")
    assert [f for f in done.findings if f.severity == "error"]


def parted(folder: Path, *changes: tuple[str, str]) -> n.Program:
    """A product whose right operand lies in a shared array of its own."""
    text = text_of("product_sm90")
    for gone, instead in ((".shared .align 16", ".shared .align 1024"),
                          (".reg .b32 \t%r<105>;", ".reg .b32 \t%r<210>;\n\t.shared .align 1024 .b8 second[512];"),
                          ("add.s32 \t%r41, %r89, 2048;", "mov.b32 \t%r41, second; add.s32 \t%r201, %r41, %r39;"),
                          ("[%r13+2048]", "[%r201]"), ("[%r13+2304]", "[%r201+256]"), *changes):
        assert gone in text
        text = text.replace(gone, instead)
    return product(folder, "product_sm90", text, 128, 2048)


def test_operands_of_tensor_cores_in_several_shared_arrays(tmp_path: Path) -> None:
    program = parted(tmp_path)
    assert {s.buffer.name for k in program.kernels for s in k.body if isinstance(s, n.Alloc)} == {"global_smem", "second"}
    r = np.random.default_rng(1)
    a, b = (r.integers(-3, 4, shape).astype(np.float16) for shape in ((20, 40), (40, 24)))
    done = run(program, {"A": a, "B": b}, {}, mode="check")
    assert not [f for f in done.findings if f.severity == "error"]
    assert (done.outputs["C"] == a.astype(np.float32) @ b.astype(np.float32)).all()


@pytest.mark.parametrize(("gone", "instead", "reason"), [
    (".align 1024 .b8 second", ".align 128 .b8 second", "begins inside eight of its rows"),
    ("bfe.u32 \t%r42, %r41, 4, 14;", "add.s32 %r202, %r41, %r89; bfe.u32 \t%r42, %r202, 4, 14;", "one of several shared arrays"),
    ("bfe.u32 \t%r42, %r41, 4, 14;", "shl.b32 %r202, %r41, 1; bfe.u32 \t%r42, %r202, 4, 14;", "several shared arrays"),
    ("bfe.u32 \t%r42, %r41, 4, 14;", "bfe.u32 \t%r42, %r41, 4, 14; st.shared.b32 [%r201], %r41;", "several shared arrays"),
])
def test_a_number_of_an_address_in_one_of_several_shared_arrays_is_a_place_or_nothing(tmp_path: Path, gone: str, instead: str, reason: str) -> None:
    kept = [x for k in parted(tmp_path, (gone, instead)).kernels for x in walk(k) if isinstance(x, n.Opaque)]
    assert len(kept) == 1 and reason in kept[0].reason


HALVED = "shr.s32 %r201, %r17, 31; shr.u32 %r202, %r201, 30; add.s32 %r203, %r17, %r202; "
SIXTH = "mul.hi.s32 %r201, %r17, 715827883; shr.u32 %r202, %r201, 31; add.s32 %r203, %r201, %r202; mul.lo.s32 %r204, %r203, 6; sub.s32 %r205, %r17, %r204; "
THIRD = "cvt.u64.u32 %rd201, %r17; mul.lo.s64 %rd202, %rd201, 2863311531; shr.u64 %rd203, %rd202, 33; cvt.u32.u64 %r203, %rd203; "
ADDED = "shl.b32 %r206, %r205, 5; add.s32 %r207, %r206, %r40; cvt.u64.u32 %rd13, %r207;"


def ring(folder: Path, stage: str) -> n.Program:
    """A product whose left operand lies in a stage of a ring: the remainder of N (in %r17), 0 at 24, as it is told."""
    text = text_of("product_sm90").replace("cvt.u64.u32 \t%rd13, %r40;", stage)
    text = text.replace(".reg .b32 \t%r<105>;", ".reg .b32 \t%r<210>;").replace(".reg .b64 \t%rd<48>;", ".reg .b64 \t%rd<210>;")
    return product(folder, "product_sm90", text, 128, 2560)


@pytest.mark.parametrize("stage", [
    HALVED + "and.b32 %r204, %r203, -4; sub.s32 %r205, %r17, %r204; " + ADDED,
    HALVED + "and.b32 %r204, %r203, 134217724; sub.s32 %r205, %r17, %r204; " + ADDED,  # where only 27 bits of it count
    SIXTH + "shr.s32 %r208, %r205, 31; and.b32 %r208, %r208, 6; add.s32 %r205, %r205, %r208; " + ADDED,
    THIRD + "mul.lo.s32 %r204, %r203, 3; sub.s32 %r205, %r17, %r204; " + ADDED,
])
def test_a_stage_of_a_ring_is_a_remainder_however_it_is_told(tmp_path: Path, stage: str) -> None:
    r = np.random.default_rng(1)
    a, b = (r.integers(-3, 4, shape).astype(np.float16) for shape in ((20, 40), (40, 24)))
    done = run(ring(tmp_path, stage), {"A": a, "B": b}, {}, mode="check")
    assert not [f for f in done.findings if f.severity == "error"]
    assert (done.outputs["C"] == a.astype(np.float32) @ b.astype(np.float32)).all()


@pytest.mark.parametrize("stage", [
    HALVED + "and.b32 %r204, %r203, -4; sub.s32 %r205, %r16, %r204; " + ADDED,  # of another number
    HALVED + "and.b32 %r204, %r203, -65536; sub.s32 %r205, %r17, %r204; " + ADDED,  # more than shared memory has
    HALVED + "and.b32 %r204, %r203, 67108860; sub.s32 %r205, %r17, %r204; " + ADDED,  # a bit more counts than is there
    SIXTH.replace("%r203, 6", "%r203, 5") + ADDED,  # a quotient by six, times five
    SIXTH.replace("715827883", "815827883") + ADDED,  # no quotient at all
    THIRD.replace("%rd201, %r17", "%rd201, %r99") + "mul.lo.s32 %r204, %r203, 3; sub.s32 %r205, %r17, %r204; " + ADDED,
    THIRD.replace("cvt.u64.u32 %rd201, %r17", "add.s32 %r201, %r17, 1; cvt.u64.u32 %rd201, %r201")
    + "mul.lo.s32 %r204, %r203, 3; sub.s32 %r205, %r17, %r204; " + ADDED,  # a sum that wraps before it is divided
])
def test_what_only_looks_like_a_remainder_is_no_place_in_shared_memory(tmp_path: Path, stage: str) -> None:
    kept = [x for k in ring(tmp_path, stage).kernels for x in walk(k) if isinstance(x, n.Opaque)]
    assert len(kept) == 1 and "an operand of wgmma" in kept[0].reason


@pytest.mark.parametrize(("change", "reason"), [
    (lambda t: t.replace("add.f32", "add.rn.ftz.magic.f32", 1), "KIR-F301"),
    (lambda t: t.replace("bar.sync \t0;", "call.uni helper, ();", 1), "a call of a function"),
    (lambda t: t.replace("ret;", "brx.idx %r1, targets;", 1), "a place that is computed"),
    (lambda t: t.replace("mov.u32 \t%r1, %tid.x;", "mov.u32 \t%r1, %clock;", 1), "the special register %clock"),
    (lambda t: t.replace("mov.u32 \t%r1, %tid.x;", "", 1), "before anything is written to it"),
    (lambda t: t.replace("ld.global.nc.f32 \t%f12, [%rd5];", "ld.global.nc.f32 \t%f12, [4096];", 1), "an absolute address"),
])
def test_what_is_not_understood_stays_text_with_its_reason(tmp_path: Path, change: object, reason: str) -> None:
    assert callable(change)
    text = change(text_of("sums"))
    assert text != text_of("sums")
    file = tmp_path / "k.ptx"
    file.write_text(text)
    try:
        program = read_source(str(file)).program
    except KirError as refused:
        assert refused.diagnostics[0].id == reason and refused.diagnostics[0].origin is not None
        return
    kept = [x for k in program.kernels for x in walk(k) if isinstance(x, n.Opaque)]
    assert len(kept) == 1 and reason in kept[0].reason and kept[0].origin is not None and kept[0].origin.line > 10


@pytest.mark.parametrize(("content", "id"), [
    (text_of("sums").replace(".version 9.0", ".version 3.1").encode(), "KIR-F311"),
    (text_of("sums").replace(".version 9.0", ".version 99.0").encode(), "KIR-F311"),
    (text_of("sums").replace(".address_size 64", ".address_size 32").encode(), "KIR-F311"),
    (b"", "KIR-F311"),
    (b"int main() { return 0; }", "KIR-F311"),
    (text_of("sums").encode()[:1500], "KIR-F300"),
    (b"\x7fELF\x02\x01\x01\x33\xff\xfe", "KIR-F310"),
])
def test_another_version_a_text_cut_short_and_bytes_are_one_named_error(tmp_path: Path, content: bytes, id: str) -> None:
    file = tmp_path / "k.ptx"
    file.write_bytes(content)
    with pytest.raises(KirError) as refused:
        read_source(f"{file}::sums")
    assert [d.id for d in refused.value.diagnostics] == [id]


def test_a_kernel_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    from kir.frontends.ptx import FRONTEND

    with pytest.raises(KirError) as refused:
        FRONTEND.parse(TEXTS / "sums.ptx", "sum")
    assert refused.value.diagnostics[0].id == "KIR-F312" and "'sums'" in refused.value.diagnostics[0].attempt
    assert [(k.name, k.surface) for k in FRONTEND.kernels(TEXTS / "sums.ptx")] == [("sums", "ptx")]
    assert FRONTEND.skeleton(TEXTS / "sums.ptx", "sums").tensors["param_1"].role == "out"


def boxes(folder: Path, text: str) -> n.Program:
    """A tensor twice, tile by tile, through tensor maps that the kernel writes."""
    tensors = "".join(f'[tensors.param_{k}]\nname = "{of}"\nshape = ["M", "N"]\ndtype = "f16"\n' for k, of in enumerate("XY"))
    return bound(folder, "boxes", text, f"""kernel = "boxes"
sizes = ["M", "N"]
grid = ["ceildiv(M, 16)", "ceildiv(N, 64)"]
absent = ["param_4", "param_5"]
[metas]
shared_bytes = 8192
[scalars]
param_2 = "M"
param_3 = "N"
{tensors}""")


def test_tensor_maps_that_a_kernel_writes_are_those_of_its_tensors(tmp_path: Path) -> None:
    program = boxes(tmp_path, text_of("boxes"))
    assert {(m.of, m.box) for m in program.tensor_maps} == {("X", (16, 64)), ("Y", (16, 64))}
    x = np.random.default_rng(2).integers(-9, 9, (40, 80)).astype(np.float16)
    done = run(program, {"X": x}, {}, mode="check")
    assert not [f for f in done.findings if f.severity == "error"] and (done.outputs["Y"] == x + x).all()


@pytest.mark.parametrize(("gone", "instead", "reason"), [
    ("global_dim.shared::cta.b1024.b32 [ %rd1 + 0 ], 0x1, %r", "global_dim.shared::cta.b1024.b32 [ %rd1 + 0 ], 0x1, 4096; //", "dimension 1 is not that of"),
    ("elemtype.shared::cta.b1024.b32 [ %rd1 + 0 ], 0x6", "elemtype.shared::cta.b1024.b32 [ %rd1 + 0 ], 0x2", "a tensor map of 2 dimensions"),
    ("fill_mode.shared::cta.b1024.b32 [ %rd1 + 0 ], 0x0", "fill_mode.shared::cta.b1024.b32 [ %rd1 + 0 ], 0x1", "fills with other than zero"),
])
def test_a_tensor_map_of_something_else_stays_text(tmp_path: Path, gone: str, instead: str, reason: str) -> None:
    assert gone in text_of("boxes")
    program = boxes(tmp_path, text_of("boxes").replace(gone, instead))
    assert any(isinstance(x, n.Opaque) and reason in x.reason for k in program.kernels for x in walk(k))


def test_the_size_of_a_warp_is_a_number(tmp_path: Path) -> None:
    """nvcc writes it by its name where a lane's number is masked."""
    text = """.version 8.4
.target sm_80
.address_size 64
.visible .entry wide(.param .u64 wide_param_0)
.reqntid 4, 1, 1
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [wide_param_0];
	cvta.to.global.u64 %rd2, %rd1;
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, WARP_SZ;
	add.s32 %r3, %r2, %r1;
	mul.wide.u32 %rd3, %r1, 4;
	add.s64 %rd2, %rd2, %rd3;
	st.global.u32 [%rd2], %r3;
	ret;
}
"""
    p = bound(tmp_path, "wide", text, 'kernel = "wide"\ngrid = [1]\n[tensors.param_0]\nshape = [4]\ndtype = "i32"\nrole = "out"\n')
    assert run(p, {}, {}).outputs["param_0"].tolist() == [32, 33, 34, 35]


def test_all_bits_but_the_sign_of_a_number_below_zero(tmp_path: Path) -> None:
    text = text_of("sums")
    start, end = text.index("{", text.index(".entry")), text.rindex("}")
    body = """{ .reg .b32 %r<6>; .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [sums_param_0]; ld.param.u64 %rd2, [sums_param_1]; mov.u32 %r1, %ctaid.x; mul.wide.s32 %rd3, %r1, 8;
    add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3; ld.global.u64 %rd6, [%rd4]; and.b64 %rd7, %rd6, 9223372036854775807;
    cvt.u32.u64 %r2, %rd6; and.b32 %r3, %r2, 2147483647; bfe.u32 %r4, %r2, 0, 31; xor.b32 %r5, %r3, %r4; cvt.u64.u32 %rd8, %r5; add.s64 %rd7, %rd7, %rd8;
    cvt.u64.u32 %rd8, %r3; add.s64 %rd7, %rd7, %rd8; st.global.u64 [%rd5], %rd7; ret; """
    program = bound(tmp_path, "sums", text[:start] + body + text[end:], """kernel = "sums"
sizes = ["M"]
grid = ["M"]
[metas]
threads_x = 1
[scalars]
param_2 = "M"
[tensors.param_0]
name = "X"
shape = ["M"]
dtype = "i64"
[tensors.param_1]
name = "Y"
shape = ["M"]
dtype = "i64"
""")
    x = np.array([-5, 5, -(1 << 63), (1 << 40) - 1, 1 << 31, -(1 << 31)], np.int64)
    want = (x & 0x7FFFFFFFFFFFFFFF) + (x & 0x7FFFFFFF)
    assert (run(program, {"X": x}, {}).outputs["Y"] == want).all()


BOTH = """.version 9.0
.target sm_90a
.address_size 64
.visible .entry both(.param .u64 both_Y, .param .align 128 .b8 both_Y_map[128])
.maxntid 32, 1, 1
{
	.reg .pred %p<2>; .reg .b32 %r<12>; .reg .b64 %rd<8>; .reg .f32 %f<2>;
	.shared .align 128 .b8 s[128];
	ld.param.u64 %rd1, [both_Y];
	mov.b64 %rd2, both_Y_map;
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, s;
	cvt.rn.f32.s32 %f1, %r1;
	shl.b32 %r4, %r1, 2;
	add.s32 %r5, %r3, %r4;
	st.shared.f32 [%r5], %f1;
	fence.proxy.async.shared::cta;
	bar.sync 0;
	shl.b32 %r6, %r2, 3;
	mov.u32 %r7, 0;
	setp.ne.s32 %p1, %r1, 0;
	@%p1 bra $L__1;
	cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd2, {%r7, %r6}], [%r3];
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group 0;
$L__1:
	shl.b32 %r8, %r2, 6;
	add.s32 %r9, %r8, %r1;
	mul.wide.s32 %rd3, %r9, 4;
	cvta.to.global.u64 %rd4, %rd1;
	add.s64 %rd5, %rd4, %rd3;
	st.global.f32 [%rd5+128], %f1;
	ret;
}
"""


def test_a_tensor_that_is_reached_by_a_map_and_by_its_address_is_one(tmp_path: Path) -> None:
    program = bound(tmp_path, "both", BOTH.replace(" s[128]", " $s$0[128]").replace("%r3, s;", "%r3, $s$0;"), """kernel = "both"
sizes = ["M"]
grid = ["ceildiv(M, 8)"]
[metas]
threads_x = 32
[tensors.Y]
shape = ["M", "8"]
dtype = "f32"
role = "out"
[maps.Y_map]
of = "Y"
name = "Y_map"
box = [4, 8]
""")
    done = run(program, {}, {"M": 16}, mode="check")
    assert not [f for f in done.findings if f.severity == "error"]
    assert (done.outputs["Y"] == np.tile(np.arange(32.0).reshape(4, 8), (4, 1))).all()
    assert parse_program(program_text(program), "again.kir") == program
