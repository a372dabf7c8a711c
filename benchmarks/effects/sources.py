"""Where programs and steps come from: stored lineages, kernels of packages walked back, experts with other parameters, random walks."""

from __future__ import annotations

import json
import math
import random
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.effects.group import Group
from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.ir import nodes as n
from kir.ir.binding import LAUNCH_OPTIONS, Binding
from kir.ir.build import const, int_value
from kir.ir.canonical import content_hash
from kir.ir.types import I32
from kir.ir.visit import transform
from kir.learning.corpus.family import family_of
from kir.learning.corpus.rank import recorded
from kir.learning.tune.rank import built, given_of
from kir.learning.tune.space import find_space
from kir.lineage.engine import PassEngine
from kir.lineage.plan import plan
from kir.lineage.records.folder import Folder
from kir.problem import Problem, Shape, load_problem, problem_names
from kir.rewrite import Context, apply, pass_class, sites
from kir.rewrite.registry import pass_names
from kir.surface import backend
from kir.surface.reading import binding_of, load_expert, normal_form, read_source

ROOT = Path(__file__).parents[2]
LINEAGES, PIPELINES = ROOT / "skills" / "lineages", ROOT / "skills" / "pipelines"
RECORDED = ROOT / "benchmarks" / "results" / "gpu-packages.jsonl"
"""Launches at the sizes of real use."""
TARGET = target("h200")
CONTEXT = Context(target=TARGET)
MOST_STEPS, MOST_PROGRAMS = 40, 14
"""Steps of a kernel's walk; programs of a random walk's group."""
ABOUT = {"third": ((0, 28), range(2)), "fourth": ((28, 72), range(2, 4))}
"""By part, which kernels of a family are walked about, and seeds."""
LEAST_ELEMENTS = 1 << 16
"""Elements of all tensors of a recorded launch below which it is left out: any program takes as long as its launch."""
SIZES: dict[str, list[dict[str, int]]] = {
    "bytesort": [{"R": 64, "N": 4096}, {"R": 256, "N": 65536}],
    "conv2d": [{"N": 8, "H": 56, "W": 56, "C": 64, "F": 128}, {"N": 2, "H": 28, "W": 28, "C": 128, "F": 128}, {"N": 16, "H": 14, "W": 14, "C": 256, "F": 256}],
    "cross_attention": [{"B": 4, "H": 16, "L": 4096, "S": 1024}, {"B": 2, "H": 8, "L": 512, "S": 2048}],
    "fmha": [{"B": 2, "H": 8, "L": 1024}, {"B": 4, "H": 16, "L": 2048}, {"B": 1, "H": 4, "L": 256}],
    "gdn": [{"B": 1, "L": 1024, "H": 16}, {"B": 4, "L": 2048, "H": 16}],
    "gemm": [{"M": 512, "N": 512, "K": 512}, {"M": 1024, "N": 1024, "K": 1024}, {"M": 4096, "N": 4096, "K": 4096}, {"M": 128, "N": 8192, "K": 4096}],
    "gemm_grouped": [{"G": 8, "T": 2048, "N": 1024, "K": 1024}, {"G": 32, "T": 512, "N": 512, "K": 2048}],
    "rows": [{"M": 8192, "N": 4096}, {"M": 512, "N": 1024}, {"M": 64, "N": 32768}],
    "topk": [{"R": 64, "N": 16384, "K": 64}, {"R": 1024, "N": 1024, "K": 8}],
    "transpose": [{"M": 8192, "N": 8192}, {"M": 512, "N": 2048}, {"M": 4096, "N": 256}],
    "trisolve": [{"N": 4096, "C": 64}, {"N": 128, "C": 64}],
}
"""Sizes that are timed in the first part, by problem or by what problems of one kind share."""
SECOND_SIZES: dict[str, list[dict[str, int]]] = {
    "bmm": [{"G": 16, "M": 2048, "N": 2048, "K": 2048}, {"G": 64, "M": 256, "N": 256, "K": 128}, {"G": 32, "M": 512, "N": 1024, "K": 512}],
    "bytesort": [{"R": 16, "N": 32768}, {"R": 1024, "N": 1024}],
    "conv2d": [{"N": 32, "H": 56, "W": 56, "C": 64, "F": 64}, {"N": 4, "H": 14, "W": 14, "C": 512, "F": 512}, {"N": 1, "H": 112, "W": 112, "C": 32, "F": 64}],
    "cross_attention": [{"B": 2, "H": 16, "L": 2048, "S": 512}, {"B": 8, "H": 8, "L": 1024, "S": 256}],
    "fmha": [{"B": 1, "H": 32, "L": 4096}, {"B": 8, "H": 16, "L": 512}, {"B": 2, "H": 16, "L": 3072}],
    "fmha_gqa": [{"H": 8, "G": 4, "L": 2048}, {"H": 4, "G": 8, "L": 1024}, {"H": 16, "G": 2, "L": 4096}],
    "gdn": [{"B": 2, "L": 512, "H": 32}, {"B": 1, "L": 4096, "H": 8}],
    "gemm": [{"M": 2048, "N": 2048, "K": 2048}, {"M": 768, "N": 3072, "K": 768}, {"M": 64, "N": 4096, "K": 4096}, {"M": 8192, "N": 1024, "K": 512},
             {"M": 4096, "N": 512, "K": 8192}],
    "gemm_grouped": [{"G": 16, "T": 4096, "N": 768, "K": 512}, {"G": 4, "T": 1024, "N": 2048, "K": 1024}],
    "rows": [{"M": 2048, "N": 2048}, {"M": 16384, "N": 512}, {"M": 1024, "N": 8192}, {"M": 128, "N": 16384}],
    "conv2d_1x1": [{"N": 4, "H": 16, "W": 16, "C": 128, "F": 128}, {"N": 8, "H": 16, "W": 16, "C": 64, "F": 128}],
    "conv2d_5x5": [{"N": 4, "H": 16, "W": 16, "C": 128, "F": 128}, {"N": 8, "H": 16, "W": 16, "C": 64, "F": 128}],
    "conv2d_patches": [{"N": 4, "H": 16, "W": 16, "F": 128}, {"N": 8, "H": 16, "W": 16, "F": 256}],
    "conv2d_stride2": [{"N": 4, "H": 16, "W": 16, "C": 128, "F": 128}, {"N": 8, "H": 16, "W": 16, "C": 64, "F": 128}],
    "cumsum_columns": [{"B": 8, "N": 16, "C": 1024}, {"B": 2, "N": 32, "C": 1024}],
    "cumsum_mean": [{"B": 8, "L": 1024, "C": 128}, {"B": 2, "L": 2048, "C": 128}],
    "gqa_attention": [{"H": 4, "G": 4, "L": 1024}, {"H": 2, "G": 8, "L": 512}],
    "image_attention": [{"B": 2, "H": 8, "L": 1024, "S": 1024}, {"B": 4, "H": 4, "L": 512, "S": 1024}],
    "topk": [{"R": 256, "N": 4096, "K": 32}, {"R": 16, "N": 65536, "K": 128}, {"R": 4096, "N": 512, "K": 16}],
    "transpose": [{"M": 4096, "N": 4096}, {"M": 16384, "N": 1024}, {"M": 640, "N": 12800}],
    "trisolve": [{"N": 1024, "C": 64}, {"N": 2048, "C": 32}],
}
"""Those of the second part."""
THIRD_SIZES: dict[str, list[dict[str, int]]] = {
    "bmm": [{"G": 8, "M": 1024, "N": 1024, "K": 512}, {"G": 128, "M": 128, "N": 128, "K": 256}, {"G": 24, "M": 384, "N": 768, "K": 64},
            {"G": 48, "M": 256, "N": 512, "K": 512}, {"G": 4, "M": 512, "N": 512, "K": 2048}],
    "bytesort": [{"R": 128, "N": 8192}, {"R": 512, "N": 2048}, {"R": 8, "N": 131072}, {"R": 2048, "N": 512}, {"R": 32, "N": 16384}],
    "conv2d": [{"N": 8, "H": 28, "W": 28, "C": 64, "F": 192}, {"N": 4, "H": 56, "W": 56, "C": 64, "F": 64}, {"N": 16, "H": 7, "W": 7, "C": 512, "F": 256},
               {"N": 1, "H": 56, "W": 56, "C": 128, "F": 64}, {"N": 32, "H": 14, "W": 14, "C": 128, "F": 128}],
    "cross_attention": [{"B": 1, "H": 8, "L": 1024, "S": 1024}, {"B": 4, "H": 4, "L": 256, "S": 1536}],
    "fmha": [{"B": 4, "H": 8, "L": 512}, {"B": 1, "H": 16, "L": 1024}, {"B": 16, "H": 4, "L": 256}, {"B": 1, "H": 8, "L": 2048}, {"B": 2, "H": 4, "L": 1536}],
    "fmha_gqa": [{"H": 4, "G": 2, "L": 1024}, {"H": 8, "G": 8, "L": 512}, {"H": 2, "G": 4, "L": 2048}, {"H": 8, "G": 2, "L": 768}, {"H": 1, "G": 8, "L": 1536}],
    "gdn": [{"B": 2, "L": 1024, "H": 8}, {"B": 1, "L": 512, "H": 24}, {"B": 4, "L": 256, "H": 16}, {"B": 1, "L": 2048, "H": 12}],
    "gemm": [{"M": 1536, "N": 1536, "K": 1536}, {"M": 256, "N": 4096, "K": 1024}, {"M": 3072, "N": 768, "K": 768}, {"M": 512, "N": 2048, "K": 256},
             {"M": 2048, "N": 256, "K": 4096}, {"M": 384, "N": 1152, "K": 2304}],
    "gemm_grouped": [{"G": 64, "T": 2048, "N": 256, "K": 512}, {"G": 8, "T": 512, "N": 1024, "K": 768}],
    "rows": [{"M": 4096, "N": 1024}, {"M": 32768, "N": 256}, {"M": 256, "N": 8192}, {"M": 1500, "N": 3072}, {"M": 16, "N": 65536}, {"M": 132, "N": 4096}],
    "conv2d_1x1": [{"N": 4, "H": 24, "W": 24, "C": 192, "F": 192}, {"N": 8, "H": 24, "W": 24, "C": 64, "F": 192}],
    "conv2d_5x5": [{"N": 4, "H": 24, "W": 24, "C": 192, "F": 192}, {"N": 8, "H": 24, "W": 24, "C": 64, "F": 192}],
    "conv2d_patches": [{"N": 4, "H": 24, "W": 24, "F": 192}, {"N": 8, "H": 24, "W": 24, "F": 384}],
    "conv2d_stride2": [{"N": 4, "H": 24, "W": 24, "C": 192, "F": 192}, {"N": 8, "H": 24, "W": 24, "C": 64, "F": 192}],
    "cumsum_columns": [{"B": 8, "N": 24, "C": 1536}, {"B": 2, "N": 48, "C": 1536}],
    "cumsum_mean": [{"B": 8, "L": 1536, "C": 192}, {"B": 2, "L": 3072, "C": 192}],
    "gqa_attention": [{"H": 4, "G": 4, "L": 1536}, {"H": 2, "G": 8, "L": 768}],
    "image_attention": [{"B": 2, "H": 8, "L": 1536, "S": 1536}, {"B": 4, "H": 4, "L": 768, "S": 1536}],
    "topk": [{"R": 512, "N": 2048, "K": 16}, {"R": 32, "N": 32768, "K": 64}, {"R": 2048, "N": 1024, "K": 32}, {"R": 128, "N": 8192, "K": 8},
             {"R": 8, "N": 131072, "K": 16}],
    "transpose": [{"M": 2048, "N": 2048}, {"M": 1024, "N": 8192}, {"M": 12288, "N": 512}, {"M": 384, "N": 6144}, {"M": 3072, "N": 1280}, {"M": 256, "N": 320}],
    "trisolve": [{"N": 512, "C": 64}, {"N": 1024, "C": 32}, {"N": 256, "C": 64}, {"N": 3072, "C": 64}],
}
"""Those of the third part: smaller ones, and more of them for each program, as compiling takes longest."""
FOURTH_SIZES: dict[str, list[dict[str, int]]] = {
    "bmm": [{"G": 12, "M": 768, "N": 512, "K": 256}, {"G": 96, "M": 128, "N": 256, "K": 128}, {"G": 6, "M": 640, "N": 640, "K": 1024},
            {"G": 40, "M": 192, "N": 384, "K": 320}],
    "bytesort": [{"R": 48, "N": 12288}, {"R": 384, "N": 3072}, {"R": 768, "N": 1536}, {"R": 24, "N": 49152}],
    "conv2d": [{"N": 4, "H": 28, "W": 28, "C": 96, "F": 96}, {"N": 8, "H": 14, "W": 14, "C": 192, "F": 128}, {"N": 2, "H": 40, "W": 40, "C": 64, "F": 96},
               {"N": 12, "H": 20, "W": 20, "C": 128, "F": 64}],
    "cross_attention": [{"B": 3, "H": 6, "L": 768, "S": 384}, {"B": 1, "H": 20, "L": 640, "S": 1280}],
    "fmha": [{"B": 2, "H": 6, "L": 768}, {"B": 3, "H": 12, "L": 384}, {"B": 1, "H": 20, "L": 1280}, {"B": 6, "H": 4, "L": 640}],
    "fmha_gqa": [{"H": 6, "G": 2, "L": 640}, {"H": 3, "G": 4, "L": 1280}, {"H": 5, "G": 2, "L": 896}, {"H": 2, "G": 8, "L": 512}],
    "gdn": [{"B": 3, "L": 512, "H": 12}, {"B": 1, "L": 1536, "H": 20}, {"B": 2, "L": 768, "H": 10}],
    "gemm": [{"M": 1280, "N": 1280, "K": 640}, {"M": 640, "N": 2560, "K": 1280}, {"M": 192, "N": 3072, "K": 1536}, {"M": 2560, "N": 384, "K": 768},
             {"M": 896, "N": 896, "K": 3584}],
    "gemm_grouped": [{"G": 24, "T": 1536, "N": 384, "K": 640}, {"G": 12, "T": 3072, "N": 512, "K": 384}],
    "rows": [{"M": 3072, "N": 1536}, {"M": 24576, "N": 384}, {"M": 384, "N": 6144}, {"M": 48, "N": 24576}, {"M": 660, "N": 2560}],
    "conv2d_1x1": [{"N": 4, "H": 40, "W": 40, "C": 320, "F": 320}, {"N": 8, "H": 40, "W": 40, "C": 64, "F": 320}],
    "conv2d_5x5": [{"N": 4, "H": 40, "W": 40, "C": 320, "F": 320}, {"N": 8, "H": 40, "W": 40, "C": 64, "F": 320}],
    "conv2d_patches": [{"N": 4, "H": 40, "W": 40, "F": 320}, {"N": 8, "H": 40, "W": 40, "F": 640}],
    "conv2d_stride2": [{"N": 4, "H": 40, "W": 40, "C": 320, "F": 320}, {"N": 8, "H": 40, "W": 40, "C": 64, "F": 320}],
    "cumsum_columns": [{"B": 8, "N": 40, "C": 2560}, {"B": 2, "N": 80, "C": 2560}],
    "cumsum_mean": [{"B": 8, "L": 2560, "C": 320}, {"B": 2, "L": 5120, "C": 320}],
    "gqa_attention": [{"H": 4, "G": 4, "L": 2560}, {"H": 2, "G": 8, "L": 1280}],
    "image_attention": [{"B": 2, "H": 8, "L": 2560, "S": 2560}, {"B": 4, "H": 4, "L": 1280, "S": 2560}],
    "topk": [{"R": 384, "N": 3072, "K": 24}, {"R": 48, "N": 24576, "K": 48}, {"R": 1536, "N": 768, "K": 12}],
    "transpose": [{"M": 1536, "N": 1536}, {"M": 768, "N": 6144}, {"M": 9216, "N": 640}, {"M": 512, "N": 4608}],
    "trisolve": [{"N": 768, "C": 64}, {"N": 1536, "C": 32}, {"N": 384, "C": 64}],
}
"""Those of the fourth part."""
SIZES_OF = {"": SIZES, "second": SECOND_SIZES, "third": THIRD_SIZES, "fourth": FOURTH_SIZES}
KIND = {"addmm": "gemm", "attention_bshd": "cross_attention",
        "fmha_causal": "fmha", "fmha_d128": "fmha", "fmha_d128_causal": "fmha", "fmha_varlen": "fmha", "fmha_varlen_causal": "fmha",
        "fused_add_rmsnorm": "rows", "gdn_d128": "gdn", "gemm_fp8": "gemm", "gemm_nt": "gemm", "gemm_tn": "gemm", "gemm_tt": "gemm", "layernorm": "rows",
        "linear": "gemm", "mla_prefill": "fmha", "mqa_d256": "fmha",
        "rmsnorm": "rows", "scan": "rows", "softmax": "rows"}
FAMILY = {"addmm": "gemm", "attention_bshd": "attention", "bmm": "gemm", "bytesort": "sorting", "conv2d": "convolution", "cross_attention": "attention",
          "fmha": "attention", "fmha_causal": "attention", "fmha_varlen": "attention", "fmha_varlen_causal": "attention", "fmha_d128": "attention",
          "fmha_d128_causal": "attention", "fmha_gqa": "attention", "fused_add_rmsnorm": "norm", "gdn": "recurrence", "gdn_d128": "recurrence",
          "gemm_fp8": "gemm", "gemm_grouped": "gemm", "gemm_nt": "gemm", "gemm_tn": "gemm", "gemm_tt": "gemm",
          "layernorm": "norm", "linear": "gemm", "mla_prefill": "attention", "mqa_d256": "attention", "rmsnorm": "norm", "topk": "topk"}
SAME_FAMILY = {"matmul": "gemm"}
"""Families of packages' kernels that are one with a problem's."""
SURFACES = ("cuda", "triton", "tilelang")
Job = dict[str, Any]


def jobs(part: str = "") -> list[Job]:
    """Every group that can be made, each a small JSON object: what takes longest stands first. The later parts have other sizes and seeds, the third and fourth
    also random walks about kernels of packages, each about others; the fifth is of kernels of packages alone; the sixth of these too, on surfaces that their
    packages do not write, and of problems."""
    if part == "sixth":
        return _sixth_jobs()
    if part == "fifth":
        return [{"kind": "package", "kernel": place, "binding": str(path)} for place, path in recorded(RECORDED)] + [
            {"kind": "about", "kernel": place, "binding": str(path), "seed": 4} for place, path in recorded(RECORDED)]
    if part:
        return _later_jobs(part)
    out: list[Job] = []
    out += [{"kind": "space", "space": name, "problem": problem, "seed": seed} for name, problem in spaces() for seed in range(3)]
    out += [{"kind": "lineage", "name": path.parent.name} for path in sorted(LINEAGES.glob("*/lineage.json"))]
    out += [{"kind": "package", "kernel": place, "binding": str(path)} for place, path in recorded(RECORDED)]
    out += [{"kind": "metas", "expert": text, "problem": problem} for text, problem in experts()]
    out += [{"kind": "walk", "problem": name, "surface": surface, "seed": seed} for seed in range(8) for name in problem_names() for surface in SURFACES]
    return out


def _later_jobs(part: str) -> list[Job]:
    out: list[Job] = []
    spaced, walked = {"second": ((3, 4), range(8, 16)), "third": ((5, 6), range(16, 24)), "fourth": ((7, 8), range(24, 34))}[part]
    out += [{"kind": "space", "space": name, "problem": problem, "seed": seed} for name, problem in spaces() for seed in spaced]
    out += [{"kind": "lineage", "name": path.parent.name} for path in sorted(LINEAGES.glob("*/lineage.json"))]
    out += [{"kind": "metas", "expert": text, "problem": problem} for text, problem in experts()]
    out += [{"kind": "walk", "problem": name, "surface": surface, "seed": seed} for seed in walked for name in problem_names() for surface in SURFACES]
    if part in ABOUT:
        (first, last), seeds = ABOUT[part]
        taken: Counter[str] = Counter()
        for place, path in recorded(RECORDED):
            taken[_family(place)] += 1
            if first < taken[_family(place)] <= last:
                out += [{"kind": "about", "kernel": place, "binding": str(path), "seed": seed} for seed in seeds]
    return [{**job, "sizes": part} for job in out]


def _sixth_jobs() -> list[Job]:
    """Kernels of packages as they are, and what they are walked back to on surfaces that their packages do not write; and walks about problems."""
    out: list[Job] = []
    for place, path in recorded(RECORDED):
        job = {"kernel": place, "binding": str(path)}
        out += [{"kind": "package", **job}, *({"kind": "across", **job, "surface": surface, "seed": 5} for surface in ("cuda", "tilelang"))]
    return out + [{"kind": "walk", "problem": name, "surface": surface, "seed": seed, "sizes": "second"}
                  for name in problem_names() for surface in SURFACES for seed in range(34, 36)]


def spaces() -> list[tuple[str, str]]:
    """Tuning spaces over pipelines, with the problem of each."""
    return [(path.stem, tomllib.loads(path.read_text(encoding="utf-8")).get("home", "gemm")) for path in sorted(PIPELINES.glob("*.toml"))]


def experts() -> list[tuple[str, str]]:
    """Source kernels that ship with a binding for a problem."""
    out = []
    for path in sorted((ROOT / "skills" / "bindings").glob("*.toml")):
        said = Binding.read(path)
        if said.problem and (found := next((f for f in (ROOT / "skills" / "experts").rglob("*") if f.suffix in (".cu", ".py")
                                            and f"{said.kernel}(" in f.read_text(encoding="utf-8")), None)):
            out.append((f"{found}::{said.kernel}", said.problem))
    return out


def made(job: Job) -> Group:
    """The group of a job. Raises KirError where its root cannot be read."""
    makers: dict[str, Callable[[Job], Group]] = {"space": _space, "lineage": _lineage, "package": _package, "metas": _metas, "walk": _walk, "about": _about,
                                                   "across": _across}
    return makers[str(job["kind"])](job)


def _shapes(problem: Problem, which: str = "") -> list[Shape]:
    known = SIZES_OF[which]
    sizes = known.get(problem.spec.name) or known.get(KIND.get(problem.spec.name, ""), [])
    return [Shape(name="x".join(map(str, s.values())), tags=("timed",), sizes=s) for s in sizes]


def _of_problem(name: str, problem: Problem, surface: str, job: Job) -> Group:
    which = str(job.get("sizes", ""))
    return Group(f"{name}/{which}" if which else name, FAMILY.get(problem.spec.name, problem.spec.name), surface, problem, _shapes(problem, which))


# ----------------------------------------------------------------------------------------------------------------- stored lineages

@cache
def states(name: str) -> tuple[n.Program, ...]:
    """The programs of a stored lineage, naive first."""
    folder = Folder(LINEAGES / name)
    return tuple(folder.program(state) for state in reversed(folder.read().states))


def _lineage(job: Job) -> Group:
    """A stored lineage's steps, each as it is and at every shape."""
    record, programs = Folder(LINEAGES / job["name"]).read(), states(job["name"])
    if record.header.problem:
        out = _of_problem(f"lineage/{job['name']}", load_problem(record.header.problem), record.header.surface, job)
    else:
        out = _unnamed(f"lineage/{job['name']}", programs[-1], record.header.surface, job)
    for before, after, step in zip(programs, programs[1:], reversed(record.accepted), strict=False):
        out.join(before, after, step.forward, "lineage")
    return out


def _unnamed(name: str, program: n.Program, surface: str, job: Job) -> Group:
    """A group whose sizes are made up: every size that no problem gives, once large and once small."""
    sizes, which = [p.name for p in program.params if p.role == "size"], job.get("sizes", "")
    shapes = [Shape(name=str(of), tags=("timed",), sizes=dict.fromkeys(sizes, of))
              for of in {"": (4096, 256, 64), "second": (2048, 512, 128), "third": (3072, 1024, 192), "fourth": (1536, 640, 320)}[which]]
    return Group(f"{name}/{which}" if which else name, _family(f"{name}::"), surface, None, shapes)


def _family(place: str) -> str:
    family = family_of(place)
    return SAME_FAMILY.get(family, family)


# ------------------------------------------------------------------------------------------------------------ kernels of packages

def _package(job: Job) -> Group:
    """A recorded launch walked back without the gate, and its launch options varied."""
    out, program = _recorded(job)
    _descend(out, program, "package")
    _varied(out, program)
    return out


def _about(job: Job) -> Group:
    """Random legal steps from a recorded launch, and from what it becomes where passes are undone."""
    out, program = _recorded(job)
    out.name += f"/about/{job['seed']}"
    rng = random.Random(f"{job['kernel']} {job['seed']}")
    back = replace(out, programs={}, edges=[])
    _descend(back, program, "package")
    _wander(out, [program, *rng.sample(list(back.programs.values()), min(2, len(back.programs)))], rng, 40)
    return out


def _across(job: Job) -> Group:
    """Random legal steps from what a recorded launch becomes where passes are undone, on another surface than its package's: from the states that this one can
    say. Raises LookupError where it says none."""
    out, program = _recorded(job)
    back = replace(out, programs={}, edges=[])
    _descend(back, program, "package")
    said = backend(job["surface"])
    starts = [each for each in (program, *reversed(back.programs.values())) if not said.accepts(each)][:3]
    if not starts:
        raise LookupError("the surface says no state of it")
    rng = random.Random(f"{job['kernel']} {job['surface']} {job['seed']}")
    front = replace(out, name=f"{out.name}/across/{job['surface']}/{job['seed']}", surface=job["surface"], programs={}, edges=[])
    _wander(front, list(starts), rng, 40)
    return front


def group_name(place: str) -> str:
    """What the group of a package's kernel is called; those of walks about it begin so."""
    return f"package/{place.partition(':')[0]}/{place.rpartition('::')[2]}"


def _recorded(job: Job) -> tuple[Group, n.Program]:
    """The group of a recorded launch, with the expert alone in it."""
    binding = Binding.read(Path(job["binding"]))
    expert = load_expert(job["kernel"], Path(job["binding"]))
    scalars = {k: v for k, v in binding.scalars.items() if isinstance(v, int | float)}
    extents = {k: tuple(int(d) for d in t.shape) for k, t in binding.tensors.items() if all(isinstance(d, int) for d in t.shape)}
    place = job["kernel"]
    out = Group(group_name(place), _family(place), expert.surface, None,
                [Shape(name="recorded", tags=("timed",), sizes={})], scalars, extents)
    if sum(math.prod(e) for e in extents.values()) < LEAST_ELEMENTS:
        raise LookupError("its tensors are too small to say anything")
    out.add(expert.program)
    return out, expert.program


def _descend(out: Group, program: n.Program, source: str) -> None:
    """What taking passes back one by one gives, in the planned order."""
    engine = PassEngine(context=CONTEXT)
    order = plan(program, engine, 60).delayed
    seen = {content_hash(program)}
    for _ in range(MOST_STEPS):
        if not engine.violations(program):
            return
        moved = next(_moves(engine, program, order, seen), None)
        if moved is None:
            return
        simpler, forward = moved
        out.join(simpler, program, forward, source)
        seen.add(content_hash(simpler))
        program = simpler


def _moves(engine: PassEngine, program: n.Program, order: tuple[str, ...], seen: set[str]) -> Iterator[tuple[n.Program, str]]:
    measure = engine.measure(program)
    for candidate in engine.candidates(program, order):
        try:
            move = engine.backward(program, candidate)
        except KirError:
            continue
        if engine.measure(move.program) < measure and content_hash(move.program) not in seen:
            yield move.program, move.forward


def _varied(out: Group, program: n.Program) -> None:
    """Other warps and stages than were recorded."""
    threads = [k.threads for k in program.kernels]
    for factor in (0.25, 0.5, 2, 4):
        new = [int((int_value(t) or 0) * factor) for t in threads]
        if all(32 <= t <= 1024 for t in new):
            kernels = tuple(replace(k, threads=const(t, I32)) for k, t in zip(program.kernels, new, strict=True))
            out.join(program, replace(program, kernels=kernels), f"retune{{threads={new[0]}}}", "tune")
    for stages in (1, 2, 3, 4, 5):
        if (other := _with_stages(program, stages)) != program:
            out.join(program, other, f"retune{{stages={stages}}}", "tune")


def _with_stages(program: n.Program, stages: int) -> n.Program:
    """A program whose pipelined loops have so many stages."""
    def leave(_: n.Node, node: n.Node) -> n.Node:
        if isinstance(node, n.For) and "stages" in dict(node.attrs):
            return replace(node, attrs=tuple((k, stages if k == "stages" else v) for k, v in node.attrs))
        return node

    made = transform(program, leave)
    assert isinstance(made, n.Program)
    return made


# --------------------------------------------------------------------------------------------------------- experts, other parameters

def _metas(job: Job) -> Group:
    """An expert at other metas and launch options: each halved and doubled, alone and with one other."""
    problem = load_problem(job["problem"])
    path = binding_of(job["expert"], None, job["problem"])
    if path is None:
        raise LookupError("it ships with no binding")
    binding = Binding.read(path)
    expert = load_expert(job["expert"], path)
    out = _of_problem(f"metas/{expert.name}-{expert.surface}", problem, expert.surface, job)
    out.add(expert.program)
    numbers = {**{k: v for k, v in binding.metas.items() if isinstance(v, int) and not isinstance(v, bool) and v > 0},
               **{k: v for k, v in binding.options.items() if k in LAUNCH_OPTIONS and isinstance(v, int) and v > 0}}
    frontier: list[tuple[dict[str, int], n.Program]] = [({}, expert.program)]
    for depth in range(2):
        following = []
        for changed, program in frontier:
            for name, value in numbers.items():
                if name in changed:
                    continue
                for new in {value // 2, value * 2} - {0}:
                    other = _specialized(job["expert"], binding, {**changed, name: new})
                    if other is not None:
                        out.join(program, other, f"retune{{{name}={new}}}", "tune")
                        following.append(({**changed, name: new}, other))
        random.Random(depth).shuffle(following)
        frontier = following[:4]
    return out


def _specialized(text: str, binding: Binding, values: dict[str, int]) -> n.Program | None:
    metas = {**binding.metas, **{k: v for k, v in values.items() if k in binding.metas}}
    options = {**binding.options, **{k: v for k, v in values.items() if k in LAUNCH_OPTIONS}}
    try:
        return normal_form(read_source(text, replace(binding, metas=metas, options=options)))
    except KirError:
        return None


def _space(job: Job) -> Group:
    """Points of a declared space, joined where they differ least."""
    space, problem = find_space(job["space"]), load_problem(job["problem"])
    out = _of_problem(f"space/{space.name}/{job['seed']}", problem, space.surface, job)
    if space.surface == "kir":
        out.surface = "cuda"
    rng = random.Random(job["seed"])
    given = given_of(space, problem, out.shapes[-2], TARGET)
    points = [p for p in space.points() if not space.refusal(space.values(p, given))]
    rng.shuffle(points)
    kept: list[tuple[dict[str, Any], n.Program]] = []
    known: dict[tuple[str, ...], n.Program] = {}
    for point in points:
        if len(kept) >= MOST_PROGRAMS:
            break
        try:
            program = built(space, space.values(point, given), problem, TARGET, known)
        except KirError:
            continue
        near = sorted(kept, key=lambda each: (sum(each[0][k] != point[k] for k in point), rng.random()))[:2]
        for other, before in near:
            changes = " ".join(f"{k}={point[k]}" for k in point if other[k] != point[k])
            out.join(before, program, f"retune{{{changes}}}", "tune")
        out.add(program)
        kept.append((dict(point), program))
    return out


# ------------------------------------------------------------------------------------------------------------------- random walks

def _walk(job: Job) -> Group:
    """Random legal steps from a problem's naive program, and from states of its lineages on the surface."""
    problem = load_problem(job["problem"])
    rng = random.Random(f"{job['problem']} {job['surface']} {job['seed']}")
    out = _of_problem(f"walk/{job['problem']}/{job['surface']}/{job['seed']}", problem, job["surface"], job)
    starts = [problem.naive] if job["seed"] % 3 == 0 else [s for name in _lineages_of(job["problem"]) for s in states(name)]
    said = backend(job["surface"])
    starts = [s for s in starts if not said.accepts(s)]
    if not starts:
        raise LookupError("the surface says no state of it")
    _wander(out, [rng.choice(starts) for _ in range(2)], rng, 60)
    return out


def _wander(out: Group, front: list[n.Program], rng: random.Random, most: int) -> None:
    """Random legal steps, at most so many, from programs and from what came of them last."""
    said = backend(out.surface)
    for _ in range(most):
        if len(out.programs) >= MOST_PROGRAMS:
            return
        program = rng.choice(front[-6:])
        found = step(program, rng, lambda made: not said.accepts(made))
        if found is None:
            continue
        after, text, forward = found
        out.join(program, after, text, "walk") if forward else out.join(after, program, text, "walk")
        front.append(after)


@cache
def _lineages_of(problem: str) -> tuple[str, ...]:
    """Names of stored lineages of a problem, of any surface."""
    return tuple(p.parent.name for p in sorted(LINEAGES.glob("*/lineage.json")) if json.loads(p.read_text(encoding="utf-8"))["header"]["problem"] == problem)


def step(program: n.Program, rng: random.Random, sayable: Callable[[n.Program], bool]) -> tuple[n.Program, str, bool] | None:
    """A random pass at a random site, its whole numbers at times halved or doubled: the program after, the forward step's text, and whether
    it was taken forward. None where eight passes in turn apply nowhere."""
    families = by_family()
    for _ in range(24):
        item = pass_class(rng.choice(families[rng.choice(list(families))])).with_options({})
        forward = rng.random() < 0.65
        try:
            found = sites(item, program, "forward" if forward else "backward")
            if not found:
                continue
            site = rng.choice(found)
            if forward and rng.random() < 0.6:
                site = replace(site, params=_mutated(site.params, rng))
            done = apply(program, site.params, site, "forward" if forward else "backward", context=CONTEXT)
        except (KirError, ArithmeticError, ValueError, KeyError, IndexError, RecursionError, MemoryError):
            continue
        if content_hash(done.program) == content_hash(program) or not sayable(done.program):
            continue
        if forward:
            return done.program, str(replace(done.record.step, path=None, hash="")), True
        return done.program, _forward_text(done), False
    return None


@cache
def by_family() -> dict[str, tuple[str, ...]]:
    """Names of passes by the folder that they stand in: each family is as likely as any, however many passes it has."""
    out: dict[str, tuple[str, ...]] = {}
    for name in pass_names():
        family = pass_class(name).__module__.rpartition(".")[0]
        out[family] = (*out.get(family, ()), name)
    return out


def _mutated(params: Any, rng: random.Random) -> Any:
    """A pass with one of its whole numbers halved or doubled."""
    options = params.options()
    numbers = [k for k, v in options.items() if isinstance(v, int) and not isinstance(v, bool) and 1 < v <= 512]
    if not numbers:
        return params
    name = rng.choice(numbers)
    return params.with_options({**options, name: max(1, options[name] * 2 if rng.random() < 0.5 else options[name] // 2)})


def _forward_text(done: Any) -> str:
    """The text of the step that leads from the simpler program back."""
    from kir.rewrite import Step
    from kir.rewrite.anchor import anchor_text

    witness = done.witness
    return str(Step.of(witness.params, anchor_text(done.program, witness.path)))
