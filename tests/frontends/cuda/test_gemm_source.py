"""What hand-written GEMMs do in CUDA C++: arrays laid out in a pool, packed registers, copies kept inside by their size, guarded wide moves."""
from __future__ import annotations

from pathlib import Path

import pytest

from kir.analysis.normal.regions import raised
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.bindings.specialize import specialize
from kir.ir.printer import program_text
from kir.ir.visit import statements
from kir.surface import frontend
from kir.surface.reading import load_expert

SKILLS = Path(__file__).parents[3] / "skills"
COPY_ASYNC = '''
__device__ __forceinline__ void copy_async(void* to, const void* from, bool inside) {
  const int bytes = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from), "r"(bytes) : "memory");
}
'''
BINDING = """kernel = "k"
grid = ["ceildiv(N, 32)"]
sizes = ["M", "N"]
facts = ["M >= 1", "M <= 1000", "N >= 1", "N <= 1000", "N % 8 == 0"]
[metas]
threads_x = 32
{pool}
[tensors.X]
shape = ["M", "N"]
dtype = "f16"
[tensors.Y]
shape = ["M", "N"]
dtype = "f16"
"""


def read(body: str, folder: Path, shared: int | None = None) -> n.Program:
    """A kernel of X and Y [M, N], specialized and raised."""
    path = folder / "k.cu"
    path.write_text("#include <cuda_fp16.h>\n" + COPY_ASYNC + "__global__ void k(const half* X, half* Y, int M, int N) {\n" + body + "\n}\n")
    text = BINDING.format(pool="" if shared is None else f"shared_bytes = {shared}")
    return raised(specialize(frontend("cuda").parse(path, "k"), Binding.parse(text, "k.toml")))


POOL = """
  extern __shared__ __align__(128) unsigned char pool[];
  using Rows = half[4][32];
  using Row = half[32];
  Rows& a = *reinterpret_cast<Rows*>(pool);
  Row& b = *reinterpret_cast<Row*>(pool + {offset});
  a[threadIdx.x / 8][threadIdx.x] = X[threadIdx.x];
  b[threadIdx.x] = X[threadIdx.x];
  {more}
  __syncthreads();
  Y[threadIdx.x] = a[0][threadIdx.x] + b[31 - threadIdx.x];
"""


def test_references_into_a_pool_are_arrays_of_their_own(tmp_path: Path) -> None:
    p = read(POOL.replace("{offset}", "sizeof(Rows)").replace("{more}", ""), tmp_path, 320)
    shared = [s.buffer for s in statements(p.kernels[0].body) if isinstance(s, n.Alloc) and s.buffer.space == "shared"]
    assert [(b.name, len(b.shape), b.align) for b in shared] == [("a", 2, 1024), ("b", 1, 256)]


@pytest.mark.parametrize(("offset", "more", "reason"), [
    ("128", "", "share bytes 128"), ("256", "pool[0] = 1;", "used by bytes and as arrays of its own")])
def test_arrays_that_are_not_side_by_side_are_not_taken_apart(tmp_path: Path, offset: str, more: str, reason: str) -> None:
    p = read(POOL.replace("{offset}", offset).replace("{more}", more), tmp_path, 320)
    assert any(reason in s.reason for s in statements(p.kernels[0].body) if isinstance(s, n.Opaque))


COPY = """
  __shared__ __align__(16) half tile[32][8];
  const int row = threadIdx.x, column = blockIdx.x * 32;
  const bool inside = row < M && column < N;
  copy_async(&tile[row][0], inside ? &X[row * N + column] : X, inside);
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  if (row < M && column < N) {
    *reinterpret_cast<uint4*>(&Y[row * N + column]) = *reinterpret_cast<const uint4*>(&tile[row][0]);
  }
"""


def test_sized_and_guarded_moves_are_clipped_copies(tmp_path: Path) -> None:
    copies = [s for s in statements(read(COPY, tmp_path).kernels[0].body) if isinstance(s, n.Copy)]
    assert [(s.via, s.src.clip, s.src.mask, s.clip, s.mask) for s in copies] == [
        ("cp_async", True, None, False, None), ("vector(8)", False, None, True, None)]


def test_a_guard_that_does_not_speak_of_whole_chunks_stays(tmp_path: Path) -> None:
    copies = [s for s in statements(read(COPY.replace("column < N", "column + 9 < N"), tmp_path).kernels[0].body) if isinstance(s, n.Copy)]
    assert [(s.src.mask is None, s.mask is None) for s in copies] == [(False, True), (True, False)]


def test_the_gemm_is_read_without_opaque_text_in_the_thread_dialect() -> None:
    source = SKILLS / "experts" / "gemm" / "gemm_sm80.cu"
    text = program_text(load_expert(f"{source}::gemm_sm80", SKILLS / "bindings" / "gemm_sm80.toml").program)
    assert "opaque" not in text and "unpack" not in text and "pick(" not in text
    for line in ("shared As: f16[3, 128, 32] align 1024", "a[mi, 0 +: 8] = m",
                 "acc[mi_1, ni_1, 0 +: 4] = mma_sync(a[mi_1, 0 +: 8], b[ni_1, 0 +: 4], acc[mi_1, ni_1, 0 +: 4], shape=m16n8k16)"):
        assert line in text, line


def test_a_plain_gemm_is_raised_with_its_habits_as_parameters() -> None:
    """Padded rows, a barrier at the end of the loop, loops unrolled without a factor or braces, results stored from registers."""
    from kir.rewrite import apply, sites
    from kir.rewrite.driver import forward_site
    from kir.rewrite.meaning import difference, interpreted
    from kir.rewrite.registry import pass_class
    folder = Path(__file__).with_name("kernels")
    p = load_expert(f"{folder / 'gemm_simple.cu'}::gemm_simple", folder / "gemm_simple.toml").program
    (site,) = sites(pass_class("lower-mma").with_options({}), p, "backward")
    assert {"bare": True, "padded": True, "late": True}.items() <= site.params.options().items()
    done = apply(p, site.params, site, "backward")
    text = program_text(done.program)
    for line in ("shared As: f16[64, 32] strides [40, 1]", "C[block_y * 64 +: 64, block_x * 64 +: 64] = acc clip",
                 "copy load(A[block_y * 64 +: 64, k0_tile * 32 +: 32] else 0.0:f16 clip) -> As via vector(8)"):
        assert line in text, line
    there = forward_site(done.program, done.witness.params, done.witness.path)
    assert apply(done.program, there.params, there, left=done.witness.residue).program == p
    sizes = {"M": 70, "N": 72, "K": 40}
    assert difference(interpreted(p, sizes), interpreted(done.program, sizes), "reassociated(k)") == ""
    assert interpreted(p, sizes, checked=True).errors == ()


def test_four_matrices_at_a_time_fill_two_columns_of_products(tmp_path: Path) -> None:
    from kir.rewrite import apply, sites
    from kir.rewrite.registry import pass_class
    folder = Path(__file__).with_name("kernels")
    source = (folder / "gemm_simple.cu").read_text(encoding="utf-8")
    start = source.index("#pragma unroll\n      for (int j = 0; j < 4; ++j) {\n        asm volatile(\"ldmatrix")
    stop = source.index("#pragma unroll", start + 1)
    wide = """#pragma unroll
      for (int j = 0; j < 2; ++j) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
          : "=r"(b[2 * j][0]), "=r"(b[2 * j][1]), "=r"(b[2 * j + 1][0]), "=r"(b[2 * j + 1][1])
          : "r"(smem(&Bs[kk + lane % 16][wn + j * 16 + lane / 16 * 8])));
      }
"""
    path = tmp_path / "wide.cu"
    path.write_text(source[:start] + wide + source[stop:])
    p = load_expert(f"{path}::gemm_simple", folder / "gemm_simple.toml").program
    (site,) = sites(pass_class("lower-mma").with_options({}), p, "backward")
    assert "via ldmatrix {num=4, trans=true}" in program_text(apply(p, site.params, site, "backward").program)
