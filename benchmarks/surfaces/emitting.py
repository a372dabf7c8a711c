"""What `kir opt EXPERT --emit SURFACE` gives for every GEMM, softmax and RMSNorm expert on every surface, as `docs/tables/emitting.md`.

    python -m benchmarks.surfaces.emitting            # writes docs/tables/emitting.md
    python -m benchmarks.surfaces.emitting --check    # fails when the table is not what the backends say
"""
from __future__ import annotations

import sys
from pathlib import Path

from kir.analysis import normalize
from kir.base.diagnostic import KirError
from kir.hardware.machine import package_folder
from kir.lineage.legalize_for_surface import brought
from kir.rewrite import Trace
from kir.surface import backend
from kir.surface.reading import load_expert

ROOT = Path(__file__).parents[2]
SKILLS = ROOT / "skills"
PAGE = ROOT / "docs" / "tables" / "emitting.md"
SURFACES = ("cuda", "triton", "tilelang")
EXPERTS = (
    ("gemm", "CUDA, sm_80", "experts/gemm/gemm_sm80.cu::gemm_sm80", "gemm_sm80"),
    ("gemm", "IR, sm_80", "experts/gemm/gemm_sm80.kir", ""),
    ("gemm", "IR, sm_80, lanes", "experts/gemm/gemm_sm80_lanes.kir", ""),
    ("gemm", "IR, sm_90a", "experts/gemm/gemm_sm90.kir", ""),
    ("gemm", "IR, sm_90a, persistent", "experts/gemm/gemm_sm90_persistent.kir", ""),
    ("gemm", "Triton", "experts/gemm/triton.py::gemm_persistent", "triton_gemm"),
    ("gemm", "TileLang", "experts/gemm/tilelang.py::gemm_pipelined", "tilelang_gemm"),
    ("gemm", "FlagGems, Triton", "flag_gems:ops/mm.py::mm_kernel_general", "flag_gems_mm"),
    ("softmax", "CUDA", "experts/softmax/softmax.cu::softmax", "cuda_softmax"),
    ("softmax", "IR", "experts/softmax/softmax.kir", ""),
    ("softmax", "TileLang", "experts/softmax/tilelang.py::softmax_row", "tilelang_softmax"),
    ("softmax", "Liger, Triton", "liger_kernel:ops/softmax.py::_softmax_single_block_forward_kernel", "liger_softmax"),
    ("rmsnorm", "CUDA", "experts/rmsnorm/rmsnorm.cu::rmsnorm", "cuda_rmsnorm"),
    ("rmsnorm", "IR", "experts/rmsnorm/rmsnorm.kir", ""),
    ("rmsnorm", "TileLang", "experts/rmsnorm/tilelang.py::rmsnorm_row", "tilelang_rmsnorm"),
    ("rmsnorm", "Liger, Triton", "liger_kernel:ops/rms_norm.py::_rms_norm_forward_kernel", "liger_rms_norm"),
)
"""Problem, what the expert is written in, where it is, and its binding."""
HEAD = """# Any expert on any surface

`kir opt EXPERT --emit SURFACE` for each expert and surface. `written`: as it stands. Else what the surface's compiler decides itself, or cannot say, is
undone by inverses of passes, each said (KIR-B307), and the rest is written: how many steps, of which passes, and what the surface said first.
Code of threads that no pass makes the tiles of an algorithm of becomes tiles with an element for each thread (`element-per-thread`), shared memory a part of a
workspace (`localize-workspace`): right and compiled, not fast. Where no pass undoes what is refused, KIR-B308 says how near it came, and what is left.
Written by `python -m benchmarks.surfaces.emitting`; a test compares some of the rows.

| problem | expert | cuda | triton | tilelang |
| --- | --- | --- | --- | --- |
"""


def cell(source: str, binding: str, surface: str) -> str:
    """What one surface says of one expert."""
    where = source if ":" in source.split("::")[0] else str(SKILLS / source)
    expert = load_expert(where, SKILLS / "bindings" / f"{binding}.toml" if binding else None)
    refused = backend(surface).accepts(expert.program)
    if not refused:
        return "written"
    first = refused[0]
    said = f"{first.id}: {first.message}"
    try:
        done, _ = brought(Trace(normalize(expert.program)), backend(surface))
    except KirError:
        return f"refused at `{first.anchor or first.subject}`. {said}"
    passes = ", ".join(dict.fromkeys(s.record.step.name for s in done.steps if s.record.step.direction == "backward"))
    return f"written after {len(done.steps)} steps ({passes}). {said}"


def row(problem: str, name: str, source: str, binding: str) -> str:
    """A line of the table."""
    cells = (problem, name, *(cell(source, binding, surface) for surface in SURFACES))
    return "| " + " | ".join(x.replace("|", "\\|") for x in cells) + " |"


def present(source: str) -> bool:
    """Whether the package that an expert belongs to is here."""
    package, _, rest = source.partition(":")
    return rest.startswith(":") or "/" in package or package_folder(package) is not None


def page() -> str:
    """The whole page."""
    return HEAD + "\n".join(row(*each) for each in EXPERTS) + "\n"


def main() -> int:
    """Write the page, or compare it."""
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
