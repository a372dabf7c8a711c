"""Kernels of some 500 lines, for what a command takes on them."""

from __future__ import annotations

from pathlib import Path

from kir.ir.nodes import Program
from kir.surface import backend
from kir.surface.reading import load_expert

SKILLS = Path(__file__).parents[1] / "skills"
KKT = "flash_qla:ops/gated_delta_rule/chunk/hopper/kkt_solve.py::tilelang_kkt_solve_kernel__2"
KKT_BINDING = SKILLS / "bindings" / "flash_qla_kkt_solve.toml"
FLASH = "flag_gems:ops/flash_kernel.py::flash_fwd_kernel"
"""The longest Triton kernel of the packages that are read here: 434 lines, 753 as a program."""

_BLOCK = """    @load_{i} let x_{i} = X[row, {at} + t]
    S[t] = x_{i} * 2.0
    @meet_{i} barrier()
    @turn_{i} let y_{i} = S[127 - t] + x_{i}
    for j_{i} in 0..4
      @add_{i} acc = acc + y_{i} * cast(j_{i} + 1, f32)
    barrier()
    if t < {limit}
      @store_{i} Y[row, {at} + t] = y_{i} + acc
"""


def ir_text(blocks: int = 54) -> str:
    """A program in the thread dialect: loads, a turn through shared memory, a loop and a guarded store, again and again."""
    body = "".join(_BLOCK.format(i=i, at=128 * i, limit=64 + i) for i in range(blocks))
    return f"""kir 1
program long
  size M: i32
  in X: f32[M, {128 * blocks}]
  out Y: f32[M, {128 * blocks}]
  fact M <= 1048576
kernel main grid (row: M) threads 128
  shared S: f32[128]
  for t in 0..128 parallel thread
    register acc: f32 = 0.0
{body}"""


def written(folder: Path, blocks: int = 54) -> tuple[Path, Path, Path]:
    """The IR text as a file, the CUDA text that is written for kkt_solve, and the binding under which that is read."""
    text = folder / "long.kir"
    text.write_text(ir_text(blocks), encoding="utf-8")
    return text, *as_cuda(load_expert(KKT, KKT_BINDING).program, folder, "kkt")


def as_cuda(program: Program, folder: Path, name: str) -> tuple[Path, Path]:
    """A program as a CUDA file, and the binding under which that is read."""
    cuda, binding = folder / f"{name}.cu", folder / f"{name}.toml"
    emitted = backend("cuda").emit(program)
    cuda.write_text(emitted.text, encoding="utf-8")
    binding.write_text(dict(emitted.bindings)[emitted.entries[0].function], encoding="utf-8")
    return cuda, binding
