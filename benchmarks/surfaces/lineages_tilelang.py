"""How far TileLang's kernels go back: `docs/tables/lineages-tilelang.md`.

    python -m benchmarks.surfaces.lineages_tilelang            # writes docs/tables/lineages-tilelang.md
    python -m benchmarks.surfaces.lineages_tilelang --check    # fails when the table is not what the lineages and the passes give

A kernel whose lineage is shipped (`skills/lineages/`) has the steps that its gated walk kept. Any other is walked back here, without the gate: each
step is restored exactly by its forward direction, with its preconditions judged.
"""
from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kir.base.diagnostic import KirError
from kir.ir.nodes import Program
from kir.lineage.engine import PassEngine
from kir.lineage.records.folder import opened
from kir.lineage.records.record import Lineage, Violation
from kir.problem import load_problem
from kir.surface.reading import load_expert

ROOT = Path(__file__).parents[2]
SKILLS = ROOT / "skills"
PAGE = ROOT / "docs" / "tables" / "lineages-tilelang.md"
KERNELS = (
    ("skills/experts/gemm/tilelang.py::gemm_pipelined", "tilelang_gemm", "gemm", ("partition-rows", "partition-block")),
    ("skills/experts/fmha/tilelang.py::fmha_forward", "tilelang_fmha", "fmha", ("partition-rows", "partition-block")),
    ("skills/experts/softmax/tilelang.py::softmax_row", "tilelang_softmax", "softmax", ()),
    ("skills/experts/rmsnorm/tilelang.py::rmsnorm_row", "tilelang_rmsnorm", "rmsnorm", ()),
    ("fla:ops/generalized_delta_rule/dplr/backends/tilelang/cumsum.py::chunk_local_cumsum_rect_tl", "fla_dplr_cumsum", "", ()),
    ("tile_kernels:transpose/batched_transpose_kernel.py::batched_transpose_kernel", "tile_kernels_transpose", "", ()),
    ("tile_kernels:quant/per_token_cast_kernel.py::per_token_cast_kernel", "tile_kernels_per_token_cast", "", ()),
    ("tile_kernels:quant/cast_back_kernel.py::cast_back_kernel", "tile_kernels_cast_back", "", ("hold-tile", "multi-threaded-block")),
    ("flash_qla:ops/utils/cumsum.py::tilelang_chunk_local_cumsum_kernel__2", "flash_qla_cumsum", "", ()),
    ("flash_qla:ops/utils/group_reduce.py::tilelang_group_reduce_vector_kernel", "flash_qla_group_reduce", "", ()),
    ("flash_qla:ops/gated_delta_rule/chunk/hopper/kkt_solve.py::tilelang_kkt_solve_kernel__2", "flash_qla_kkt_solve", "", ()),
    ("flash_qla:ops/gated_delta_rule/chunk/hopper/fused_fwd.py::tilelang_fused_chunk_gdr_fwd_kernel", "flash_qla_fused_fwd", "", ()),
)
"""Each kernel, its binding, its problem, and the passes that are undone last (what `kir lineage` finds by trying)."""
HEAD = """# TileLang's kernels on the way back

Each kernel walked back to naive with registered passes: how many steps, of which intents (how often), how many of them change the compiled code
(`realized`), whether predicate N holds at the end, and otherwise what blocks it. Kernels with `realized` were walked by `kir lineage` with its
whole gate on sm_80 and sm_90a, and rebuilt to the letter; what it kept is shipped under `skills/lineages/`, where `kir replay` runs it. Where
TileLang refuses a state (it infers the layouts of all fragments together), the state is compiled as CUDA, which its record says; how many is in brackets.
The others were walked without the gate. What stops the fused recurrence: [0041](../decisions/0041-fused-recurrence.md). Written by
`python -m benchmarks.surfaces.lineages_tilelang`; a test compares some of the rows.

| kernel | steps | intents | realized | ends | what stops it |
| --- | --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Way:
    """A walk: the intents of its steps, what is left, and the last program."""

    intents: tuple[str, ...]
    left: tuple[Violation, ...]
    program: Program


def walked(program: Program, problem: str, last: tuple[str, ...]) -> Way:
    """The walk back, passes `last` last."""
    of = load_problem(problem) if problem else None
    engine = PassEngine({"work_item": of.work_item, "state": of.state} if of is not None else {})
    seen, intents = {engine.content(program)}, list[str]()
    while engine.violations(program):
        for candidate in engine.candidates(program, last):
            try:
                made = engine.backward(program, candidate).program
            except KirError:
                continue
            if engine.measure(made) < engine.measure(program) and engine.content(made) not in seen:
                break
        else:
            break
        program = made
        seen.add(engine.content(program))
        intents.append(candidate.intent)
    return Way(tuple(intents), tuple(engine.violations(program)), program)


@cache
def shipped(source: str) -> Lineage | None:
    """The shipped lineage of a kernel, if there is one."""
    return next((opened(each).read() for each, of in _sources() if of == source), None)


@cache
def _sources() -> list[tuple[Path, str]]:
    """The files of the shipped lineages, with the source that each is of."""
    return [(each, json.loads(each.read_text(encoding="utf-8"))["header"]["source"]) for each in sorted((SKILLS / "lineages").glob("*/lineage.json"))]


def row(source: str, binding: str, problem: str, last: tuple[str, ...]) -> str:
    """The line of the table of one kernel."""
    record = shipped(source)
    if record is not None:
        steps, left = [step.intent for step in record.accepted], record.outcome.violations
        elsewhere = sum("refused_by" in step.gate for step in record.accepted)
        realized = f"{record.outcome.realized} of {len(steps)}" + (f" ({elsewhere} as CUDA)" if elsewhere else "")
    else:
        place = str(ROOT / source) if source.startswith("skills/") else source
        way = walked(load_expert(place, SKILLS / "bindings" / f"{binding}.toml").program, problem, last)
        steps, left, realized = list(way.intents), way.left, ""
    intents = ", ".join(f"{intent} {steps.count(intent)}" if steps.count(intent) > 1 else intent for intent in dict.fromkeys(steps))
    clauses = {v.clause: v for v in reversed(left)}
    stops = "; ".join(f"`{v.anchor}`: {v.message}" for v in list(reversed(clauses.values()))[:4])
    ends = "naive" if not left else f"{len(left)} nodes before naive"
    return f"| `{source}` | {len(steps)} | {intents} | {realized} | {ends} | {stops} |"


def table() -> str:
    """The page."""
    return HEAD + "\n".join(row(*kernel) for kernel in KERNELS) + "\n"


def main() -> int:
    """Write the page, or with `--check` compare it."""
    made = table()
    if "--check" in sys.argv:
        return 0 if PAGE.read_text(encoding="utf-8") == made else 1
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
