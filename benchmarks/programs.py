"""The programs that the figures are taken on."""

from __future__ import annotations

from dataclasses import replace

from kir.ir.nodes import Program, Stmt
from kir.ir.parser import parse_program

TILE_GEMM = """kir 1
program gemm
  size M: i32
  size N: i32
  size K: i32
  in A: f16[M, K]
  in B: f16[K, N]
  out C: f16[M, N]
kernel main grid (pid_m: ceildiv(M, 64), pid_n: ceildiv(N, 64)) threads 128
  fragment acc: f32[64, 64] = 0.0
  @k_loop for k in 0..ceildiv(K, 64) pipelined {stages=3}
    @load_A let a = load(A[pid_m * 64 +: 64, k * 64 +: 64] else 0.0:f16 clip)
    @load_B let b = load(B[k * 64 +: 64, pid_n * 64 +: 64] else 0.0:f16 clip)
    @mma mma acc += a * b
  @store C[pid_m * 64 +: 64, pid_n * 64 +: 64] = cast(acc, f16) clip
"""


def tile_gemm() -> Program:
    """A GEMM at tile level, as a Triton kernel reads."""
    return parse_program(TILE_GEMM, "tile_gemm.kir")


def copies(program: Program, factor: int) -> Program:
    """The program with a kernel body of ``factor`` independent copies of its own, names and labels apart, the first as it was."""
    from kir.ir.canonical import bound_names, rename

    kernel = program.kernels[0]
    body: list[Stmt] = list(kernel.body)
    for number in range(1, factor):
        names = {name: f"{name}_{number}" for name in bound_names(kernel.body)}
        again = rename(kernel, names)
        body += [replace(each, label=f"{each.label}_{number}") if each.label else each for each in again.body]  # type: ignore[type-var]  # a kernel's statements are dataclasses
    return replace(program, kernels=(replace(kernel, body=tuple(body)),))
