"""The 22 held-out instances: what is computed, at which sizes, and the FlagGems kernel that stands beside it.

Where the list of instances leaves a size open it is set here, the same for both sides: 32 heads of dimension 64; groups of 2048 x 2048 x 2048, all with as
many rows; 16384 x 4096 for the residual sum.
"""

from __future__ import annotations

from collections.abc import Mapping

from kir.base.dataclass import dataclass
from kir.problem import Problem, Shape, load_problem


@dataclass(frozen=True)
class Instance:
    """A problem at one set of sizes, and the reference that it is compared with."""

    name: str
    problem: str
    sizes: Mapping[str, int]
    rival: str
    library: tuple[str, ...] = ()
    """Kernels of the device's maker (cuBLAS, cuDNN) and of torch for the same: the fastest of them stands beside both, and is no rival."""
    scores: str = ""
    """Of attention: how many products of a query and a key there are."""

    @property
    def shape(self) -> Shape:
        return Shape(name=self.name, tags=("timed", "asked"), sizes=dict(self.sizes))

    def posed(self) -> Problem:
        """The problem, with this shape among its own."""
        from kir.learning.tune.device import with_shape

        return with_shape(load_problem(self.problem), self.shape)


def _cube(n: int) -> dict[str, int]:
    return {"M": n, "N": n, "K": n}


ATTENTION = "flag_gems.scaled_dot_product_attention", ("torch.nn.functional.scaled_dot_product_attention (cuDNN)",
                                                       "torch.nn.functional.scaled_dot_product_attention")
BMM, NORMS = ("torch.bmm",), "torch.nn.functional."
INSTANCES = (
    *(Instance(f"mm {n}", "gemm:bf16", _cube(n), "flag_gems.mm", ("torch.matmul",)) for n in (2048, 4096, 8192)),
    Instance("addmm 4096", "addmm:bf16", _cube(4096), "flag_gems.addmm", ("torch.addmm",)),
    Instance("bmm 16 x 2048", "bmm:bf16", {"G": 16, **_cube(2048)}, "flag_gems.bmm", BMM),
    Instance("bmm 32 x 1024", "bmm:bf16", {"G": 32, **_cube(1024)}, "flag_gems.bmm", BMM),
    *(Instance(f"grouped {g}", "bmm:bf16", {"G": g, **_cube(2048)}, "flag_gems.group_mm", BMM) for g in (4, 8)),
    *(Instance(f"causal B{b} S{s}", "fmha_causal", {"B": b, "H": 32, "L": s}, *ATTENTION, "B * H * L * L // 2") for b, s in ((4, 1024), (2, 4096), (1, 8192))),
    Instance("full B2 S2048", "fmha", {"B": 2, "H": 32, "L": 2048}, *ATTENTION, "B * H * L * L"),
    *(Instance(f"grouped heads B{b} S{s}", "fmha_gqa", {"H": 8 * b, "G": 4, "L": s}, *ATTENTION, "H * G * L * L") for b, s in ((2, 2048), (1, 4096))),
    *(Instance(f"rmsnorm {m} x {n}", "rmsnorm:bf16", {"M": m, "N": n}, "flag_gems.rms_norm", (NORMS + "rms_norm",))
      for m, n in ((16384, 4096), (8192, 8192), (32768, 2048))),
    *(Instance(f"layernorm {m} x {n}", "layernorm:bf16", {"M": m, "N": n}, "flag_gems.layer_norm", (NORMS + "layer_norm",))
      for m, n in ((16384, 4096), (8192, 8192))),
    *(Instance(f"softmax {m} x {n}", "softmax:bf16", {"M": m, "N": n}, "flag_gems.softmax", ("torch.softmax",)) for m, n in ((16384, 4096), (131072, 1024))),
    Instance("residual rmsnorm 16384 x 4096", "fused_add_rmsnorm:bf16", {"M": 16384, "N": 4096}, "flag_gems.fused_add_rms_norm"),
)
