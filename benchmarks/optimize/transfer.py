"""Transfer: skills of one kind of kernel alone, used on another: those of one surface on the others, those of GEMM and softmax on attention and norms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.optimize.running import ages, code, each, made, search
from kir.base.store import write_atomic
from kir.learning.optimize.search import SURFACES, Budget
from kir.learning.optimize.sources import LineageSource, PassSource, PipelineSource, stored_lineages
from kir.learning.tune.space import shipped_spaces

PROBLEMS = ("gemm", "softmax", "rmsnorm", "layernorm", "fmha")
OPERATORS = ("gemm", "softmax")
"""Skills of these alone, used on the problems that are none of them."""
BUDGET = Budget(candidates=4, seconds=3600.0, plans=48)
"""As in `benchmarks.optimize.recovery`: plans and candidates bind, not seconds."""


def transfer(out: Path, only: str, seconds: float, workers: int = 1) -> int:
    """Every problem on every surface with the skills of each surface alone, with those of all, and with those of two operators."""
    file = out / "optimize-transfer.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.is_file() else []
    done = {(r["problem"], r["surface"], r["skills"]) for r in rows if r.get("code") == code()}
    tasks = [
        (p, s, k)
        for p in PROBLEMS
        for s in SURFACES
        for k in ("all", "none", *SURFACES, "of " + " and ".join(OPERATORS))
        if (p, s, k) not in done and any(w in p for w in only.split(","))
    ]
    for (name, surface, skills), row in each(one, tasks, workers, seconds):
        rows = [r for r in rows if (r["problem"], r["surface"], r["skills"]) != (name, surface, skills)]
        rows.append({"problem": name, "surface": surface, "skills": skills, **row, **made()})
        rows.sort(key=lambda r: (PROBLEMS.index(r["problem"]), SURFACES.index(r["surface"]), r["skills"]))
        write_atomic(file, json.dumps({"rows": rows}, indent=1) + "\n")
    write_atomic(out / "optimize-transfer.md", "\n".join(_table(rows)) + "\n")
    print("\n".join(_table(rows)))
    return 0


def one(name: str, surface: str, skills: str) -> dict[str, Any]:
    """The row of one search."""
    lineages, spaces = stored_lineages(), shipped_spaces()
    if skills.startswith("of "):
        told = {n: lineage.header.problem for n, lineage, _ in lineages}
        names = tuple(n for n, problem in told.items() if problem in OPERATORS)
        spaces = tuple(s for s in spaces if s.home.partition("_")[0] in OPERATORS)
    elif skills in SURFACES:
        names = tuple(n for n, lineage, _ in lineages if _surface(n) == skills)
        spaces = tuple(s for s in spaces if s.surface == skills)
    else:
        names, spaces = tuple(n for n, _, _ in lineages), spaces
    sources = (PassSource(),) if skills == "none" else (PipelineSource(spaces), LineageSource(only=names), PassSource())
    return search(name, surface, sources, BUDGET)[1]


def _surface(lineage: str) -> str:
    """The surface of a lineage's expert: the end of its name, or CUDA."""
    end = lineage.rpartition("_")[2]
    return end if end in SURFACES else "cuda"


def _table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    kinds = list(dict.fromkeys(("none", *SURFACES, "of " + " and ".join(OPERATORS), "all")))
    yield "# Skills of some kernels, used on others"
    yield ""
    yield (
        f"Made by `python -m benchmarks.optimize transfer` on the modelled H200: {BUDGET.candidates} candidates and {BUDGET.plans} plans a search, from the "
        "problem's naive program alone. A cell is the speed over that with all skills; those of a surface are the pipelines written for it, which are "
        "used on that surface only, and the lineages of its experts, which are used on any. `none`: nothing faster was found; an empty cell was not run."
    )
    yield ""
    yield "| problem | surface | with all skills | " + " | ".join(kinds[:-1]) + " |"
    yield "| --- | --- | --- | " + " | ".join("---" for _ in kinds[:-1]) + " |"
    by = {(r["problem"], r["surface"], r["skills"]): r["seconds"] for r in rows}
    for problem, surface in dict.fromkeys((r["problem"], r["surface"]) for r in rows):
        whole = by.get((problem, surface, "all"))
        cells = (_cell(by, (problem, surface, kind), whole) for kind in kinds[:-1])
        yield f"| {problem} | {surface} | {_cell(by, (problem, surface, 'all'), None)} | " + " | ".join(cells) + " |"
    yield ""
    yield ages(rows)


def _cell(by: Mapping[tuple[str, str, str], float | None], key: tuple[str, str, str], whole: float | None) -> str:
    """The speed over `whole`, or the time where that is not known; nothing for what was not run."""
    seconds = by.get(key)
    return "" if key not in by else "none" if not seconds else f"{whole / seconds:.2f}" if whole else f"{seconds * 1e6:.1f} us"
