"""What the CUDA backend writes as PTX: rows of the instruction table without a CUDA call, cache policies, packed words."""
from __future__ import annotations

import re

import pytest

from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.ir.parser import parse_program
from kir.surface import backend

PROGRAM = """kir 1
program p
  size N: i32
  in X: f16[N] align 16
  in F: f32[N]
  in U: u32[N]
  out Y: f16[N] align 16
  out G: f32[N]
  out W: u32[N]
  inout flag: u32[1]
  fact N % 1024 == 0
kernel main grid (b: ceildiv(N, 1024)) threads 128
  for t in 0..128 parallel thread
"""
EVERYTHING = """grid_dependency_wait()
let v = load(X[b * 1024 + t * 8 +: 8] cache nc_no_allocate_l2_128)
Y[b * 1024 + t * 8 +: 8] = v cache cs
let f = load(F[b * 1024 + t] cache evict_last)
let g = exp2_approx(f) + log2_approx(f, subnormal=true) + add_rounded(f, f, rounding=rz, ftz=true)
G[b * 1024 + t] = to_tf32(g, rounding=rna) cache wt
let u = U[b * 1024 + t]
let w = lop3(u, u, 7:u32, lut=234) + funnel_left(u, 9:u32, u) + bit_insert(u, u, 3:u32, 4:u32) + dp4a(u, u, u) + mulhi(u, u)
let h = unpack(u, dtype=f16)
let k = pack(h * h, dtype=u32)
let s = atomic_load(&flag[0], order=acquire)
W[b * 1024 + t] = w + k + warp_reduce(u, op=max) + s
prefetch(&F[b * 1024 + t], level=2)
nanosleep(20:u32)
grid_dependency_launch()
if t == 0
  atomic_store(&flag[0], 1:u32, order=release)"""


def emitted(lines: str) -> str:
    return backend("cuda").emit(parse_program(PROGRAM + "\n".join("    " + line for line in lines.splitlines()) + "\n")).text


@pytest.mark.parametrize(("line", "instruction"), [
    ("G[b * 128 + t] = log2_approx(F[t])", "lg2.approx.ftz.f32 %0, %1;"),
    ("G[b * 128 + t] = exp2_approx(F[t], subnormal=true)", "ex2.approx.f32 %0, %1;"),
    ("G[b * 128 + t] = rsqrt_approx(F[t])", "rsqrt.approx.ftz.f32 %0, %1;"),
    ("G[b * 128 + t] = fma_rounded(F[t], F[t], F[t], rounding=rd)", "fma.rm.f32 %0, %1, %2, %3;"),
    ("W[b * 128 + t] = bit_extract(U[t], 3:u32, 4:u32)", "bfe.u32 %0, %1, %2, %3;"),
    ("W[b * 128 + t] = funnel_right(U[t], U[t], 3:u32, clamp=true)", "shf.r.clamp.b32 %0, %1, %2, %3;"),
    ("G[b * 128 + t] = load(F[t] cache cg)", "ld.global.cg.f32 %0, [%1];"),
    ("G[b * 128 + t] = load(F[t] cache volatile)", "*(const volatile float*)&F[t]"),
    ("Y[t * 8 +: 8] = load(X[t * 8 +: 8] cache nc)", "ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"),
    ("Y[t * 8 +: 8] = X[t * 8 +: 8] cache cs", "st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"),
    ("W[t] = warp_reduce(U[t], op=min)", "__reduce_min_sync(0xffffffffu, U[t])"),
    ("nanosleep(5:u32)", "__nanosleep(5u);"),
])
def test_a_row_is_one_instruction(line: str, instruction: str) -> None:
    text = emitted(line)
    assert instruction in text
    functions = re.findall(r"__device__ __forceinline__.*?\n}\n", text, flags=re.DOTALL)
    assert all(len(re.findall(r"\basm\b", f)) <= 1 for f in functions)


@pytest.mark.parametrize(("line", "id", "words"), [
    ("G[b * 128 + t] = load(F[t] cache wb)", "KIR-B008", "no cache policy 'wb'"),
    ("G[b * 128 + t] = F[t] cache nc", "KIR-B008", "no cache policy 'nc'"),
    ("Y[t] = exp2_approx(X[t])", "KIR-B008", "no spelling"),
    ("G[t] = to_tf32(F[t], rounding=rz)", "KIR-B008", "no spelling"),
])
def test_what_ptx_lacks_is_refused_with_its_place(line: str, id: str, words: str) -> None:
    with pytest.raises(KirError) as caught:
        emitted(line)
    assert (caught.value.diagnostics[0].id, words in caught.value.diagnostics[0].message) == (id, True)
    assert caught.value.diagnostics[0].anchor.startswith("main/")


@pytest.mark.nvcc
@pytest.mark.sass
@pytest.mark.parametrize("name", ["sm_80", "sm_90a"])
def test_every_written_instruction_assembles(name: str) -> None:
    cuda = backend("cuda")
    made = cuda.compile(cuda.emit(parse_program(PROGRAM + "\n".join("    " + line for line in EVERYTHING.splitlines()) + "\n")), target(name))
    assert made.spills == 0
    assert {"REDUX", "NANOSLEEP"} <= set(made.mix)
    assert ("ACQBULK" in made.mix) == (name == "sm_90a"), "waiting for earlier kernels is an instruction from sm_90 on"


def test_a_launch_that_overlaps_the_one_before_is_an_option_of_the_entry() -> None:
    text = PROGRAM + "    grid_dependency_wait()\n    G[t] = F[t]\nplan\n  launch main {pdl=true}\n"
    (entry,) = backend("cuda").emit(parse_program(text)).entries
    assert dict(entry.options) == {"pdl": True}


def test_a_view_of_shared_memory_is_a_pointer_into_it() -> None:
    text = """kir 1
program p
  in X: f32[64]
  out Y: f16[64]
kernel main grid (b: 1) threads 64
  shared A: f32[128]
  view shared B: f16[64] at A[64]
  for t in 0..64 parallel thread
    A[t] = X[t]
    B[t] = cast(A[t], f16)
    Y[t] = B[t]
"""
    assert "__half* const B = reinterpret_cast<__half*>(&A[64]);" in backend("cuda").emit(parse_program(text)).text
    with pytest.raises(KirError) as caught:
        backend("cuda").emit(parse_program(text.replace("A[64]", "A[63]")))
    assert "multiple of 16 bytes" in caught.value.diagnostics[0].message
