"""Honest kernels, which must pass: naive programs, experts, in place, atomics, unordered selections, low precision by contract; and third-party
kernels of the zoo, those that no problem describes by what the interpreter makes of them."""

from __future__ import annotations

import importlib.util
import tomllib
from dataclasses import dataclass
from pathlib import Path

from kir.gate.gpu.relative import program_problem
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.problem import Problem, load_problem
from kir.surface.reading import load_expert

ROOT = Path(__file__).parents[2]
PROBLEMS = Path(__file__).parent / "problems"


@dataclass(frozen=True)
class Honest:
    """`source` is `naive`, a file under `skills/experts`, or a kernel of a package with its binding. Needs `zoo` where it is a package's.
    Without a `problem` the kernel's own program is the reference, and inputs have the deviation `scale`.
    `quick`: at the timed shape the float64 oracle takes a minute."""

    problem: str
    source: str = "naive"
    bind: str = ""
    surface: str = "kir"
    note: str = ""
    quick: bool = False
    scale: float = 1.0

    @property
    def name(self) -> str:
        return f"{self.problem.rpartition('/')[2] or 'itself'} {self.source if self.source == 'naive' else self.source.rpartition('/')[2]}"

    @property
    def zoo(self) -> bool:
        return "::" in self.source and not self.source.startswith("skills/")

    def here(self) -> bool:
        """Whether its source is installed."""
        if not self.zoo:
            return True
        package, _, file = self.source.partition("::")[0].partition(":")
        found = importlib.util.find_spec(package)
        return found is not None and any((Path(at) / file).is_file() for at in found.submodule_search_locations or ())

    def loaded(self) -> tuple[Program, Problem, str]:
        """The program, its problem and the surface to compile it on."""
        if not self.problem:
            expert = load_expert(self.source, ROOT / "skills" / "bindings" / self.bind)
            return expert.program, program_problem(expert.program, expert.program, self.scale), self.surface
        problem = load_problem(PROBLEMS / self.problem if (PROBLEMS / self.problem).is_dir() else self.problem)
        if self.source == "naive":
            return problem.naive, problem, self.surface
        if self.source.endswith(".kir"):
            path = ROOT / "skills" / "experts" / self.source
            return parse_program(path.read_text(), str(path)), problem, self.surface
        file = str(ROOT / self.source) if self.source.startswith("skills/") else self.source
        expert = load_expert(file, ROOT / "skills" / "bindings" / self.bind)
        return expert.program, problem, expert.surface


HONEST = (
    *(
        Honest(p)
        for p in (
            "gemm:f16",
            "gemm:bf16",
            "conv2d:f16",
            "conv2d:bf16",
            "fmha:f16",
            "fmha:bf16",
            "fmha_causal",
            "gdn:bf16",
            "gdn:f16",
            "rmsnorm:f16",
            "rmsnorm:bf16",
            "rmsnorm:f32",
            "softmax:f16",
            "softmax:bf16",
            "softmax:f32",
        )
    ),
    Honest("topk", note="a set with ties"),
    Honest("scaled_rows"),
    Honest("in_place", note="in place"),
    Honest("histogram", note="atomics"),
    Honest("narrowed", note="low precision by contract"),
    Honest("gemm", "gemm/gemm_sm80_lanes.kir", surface="cuda", note="cp.async, ldmatrix, mma.sync"),
    Honest("gemm", "gemm/gemm_sm90_lanes.kir", surface="cuda", note="TMA, wgmma, warp roles"),
    Honest("gemm", "gemm/gemm_sm90_persistent.kir", surface="cuda", note="tensor maps as arguments, roles, persistent CTAs"),
    Honest("gemm", "gemm/gemm_sm90.kir", surface="cuda", note="the tile program, lowered on the way"),
    Honest("topk", "topk/topk_radix.kir", surface="cuda", note="a set with ties, by radix"),
    Honest("softmax", "softmax/softmax.kir"),
    Honest("rmsnorm", "rmsnorm/rmsnorm.kir"),
    Honest("gemm", "gemm/gemm_sm80.kir", surface="cuda", note="the tile program, lowered on the way"),
    Honest("fmha", "fmha/fmha_sm90.kir", surface="cuda", note="the tile program: TMA, wgmma, lowered on the way", quick=True),
    Honest("fmha_causal", "fmha/fmha_causal_sm90.kir", surface="cuda", note="the tile program: TMA, wgmma, lowered on the way", quick=True),
    Honest("conv2d", "conv2d/conv2d_sm90.kir", surface="cuda", note="the tile program: im2col by TMA"),
    Honest("gdn", "gdn/gdn.kir", surface="cuda", note="the tile program, in chunks"),
    *(
        Honest(row["problem"], f"{row['file']}::{row['kernel']}", Path(row["binding"]).name, row.get("surface", "triton"))
        for row in tomllib.loads((ROOT / "tests" / "zoo.toml").read_text()).values()
    ),
    Honest("gemm", "skills/experts/gemm/tilelang.py::gemm_pipelined", "tilelang_gemm.toml", "tilelang"),
    Honest("rmsnorm", "skills/experts/rmsnorm/tilelang.py::rmsnorm_row", "tilelang_rmsnorm.toml", "tilelang"),
    Honest("softmax", "skills/experts/softmax/tilelang.py::softmax_row", "tilelang_softmax.toml", "tilelang"),
    Honest("fmha", "skills/experts/fmha/tilelang.py::fmha_forward", "tilelang_fmha.toml", "tilelang", quick=True),
    Honest("", "tile_kernels:transpose/batched_transpose_kernel.py::batched_transpose_kernel", "tile_kernels_transpose.toml", "tilelang"),
    Honest("", "tile_kernels:quant/per_token_cast_kernel.py::per_token_cast_kernel", "tile_kernels_per_token_cast.toml", "tilelang",
           "low precision by contract: e4m3 with a scale for 128 channels"),
    Honest("", "flash_qla:ops/gated_delta_rule/chunk/hopper/kkt_solve.py::tilelang_kkt_solve_kernel__2", "flash_qla_kkt_solve.toml", "cuda",
           "TileLang read, CUDA written; inputs as small as its callers' are", scale=0.05),
    Honest("", "fla:ops/generalized_delta_rule/dplr/backends/tilelang/cumsum.py::chunk_local_cumsum_rect_tl", "fla_dplr_cumsum.toml", "tilelang"),
)
"""Those of the zoo (tests/zoo.toml, tests/frontends/tilelang/test_zoo.py) are on all surfaces that it has kernels of."""
