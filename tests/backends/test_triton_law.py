"""Law 5a: what the Triton backend writes, the Triton frontend reads back as the same program, whatever the local names."""
from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from kir.analysis.normal_form import normalize
from kir.analysis.regions import raised
from kir.gate import gate_cpu
from kir.ir import nodes as n
from kir.ir.binding import Binding
from kir.ir.canonical import alpha_equal, bound_names, rename
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.specialize import specialize
from kir.ir.visit import walk
from kir.lineage.source import load_expert
from kir.problem import load_problem
from kir.surface import backend, frontend
from kir.target import target
from tests.backends.conftest import program

BINDINGS = Path(__file__).parents[2] / "skills" / "bindings"
VARIANTS = {
    "bfloat16": lambda text: text.replace("f16", "bf16"),
    "four stages": lambda text: text.replace("stages=3", "stages=4"),
    "not pipelined": lambda text: text.replace(" pipelined {stages=3}", ""),
    "one tail": lambda text: text.replace("fact K % 16 == 0", "fact K % 32 == 0"),
    "eight warps": lambda text: text.replace("threads 128", "threads 256"),
    "tall tiles": lambda text: text.replace("by * 128", "by * 64").replace("128, k", "64, k").replace("M, 128", "M, 64")
    .replace("128, bx", "64, bx").replace("f32[128, 128]", "f32[64, 128]"),
}


def fuzzed(p: n.Program, seed: int) -> n.Program:
    """The program with other local names, some of them awkward in Python."""
    words = random.Random(seed)
    pool = ["lambda", "tl", "x", "_", "acc_1", "pid", "range", "offs_m", "None_", "total", "mask", "arange", "load", "M_", "k1", "class"]
    def other(k: n.Kernel) -> n.Kernel:
        old = [*(a.name for a in k.grid), *bound_names(k.body)]
        fresh = [f"{words.choice(pool)}{i if words.random() < 0.9 else ''}_{i}" for i in range(len(old))]
        return rename(k, dict(zip(old, fresh, strict=True)))
    return replace(p, kernels=tuple(map(other, p.kernels)))


def read_back(p: n.Program, folder: Path) -> n.Program:
    """The one kernel of a program, written as Triton, read, bound and brought to normal form."""
    emitted = backend("triton").emit(p)
    (folder / "emitted.py").write_text(emitted.text)
    ((function, binding),) = emitted.bindings
    made = raised(specialize(frontend("triton").parse(folder / "emitted.py", function), Binding.parse(binding)))
    names = {k.name: old.name for k, old in zip(made.kernels, p.kernels, strict=True)}
    return replace(made, name=p.name, kernels=tuple(replace(k, name=names[k.name]) for k in made.kernels))


def holds(p: n.Program, folder: Path, seed: int = 0) -> None:
    p = normalize(p)
    again = read_back(fuzzed(p, seed), folder)
    assert alpha_equal(again, p), f"{program_text(p)}\n{program_text(again)}"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["gemm_tile", "softmax_tile", "rmsnorm_tile"])
def test_tile_programs_are_read_back(tmp_path: Path, name: str, seed: int) -> None:
    holds(program(name), tmp_path, seed)


@pytest.mark.parametrize("name", ["gemm", "softmax", "rmsnorm", "topk", "conv2d"])
def test_naive_programs_are_read_back(tmp_path: Path, name: str) -> None:
    holds(load_problem(name).naive, tmp_path)


@pytest.mark.parametrize("what", VARIANTS)
def test_variants_of_the_gemm_are_read_back(tmp_path: Path, what: str) -> None:
    source = program_text(program("gemm_tile"))
    text = VARIANTS[what](source)
    assert text != source
    holds(parse_program(text, "p.kir"), tmp_path)


EXPERTS = {
    "flag_gems_mm": "flag_gems:ops/mm.py::mm_kernel_general",
    "liger_softmax": "liger_kernel:ops/softmax.py::_softmax_single_block_forward_kernel",
    "liger_rms_norm": "liger_kernel:ops/rms_norm.py::_rms_norm_forward_kernel",
    "triton_gemm": f"{Path(__file__).parents[2]}/skills/experts/gemm/triton.py::gemm_persistent",
}


@pytest.mark.zoo
@pytest.mark.parametrize("name", EXPERTS)
def test_kernels_that_others_wrote_are_read_back(tmp_path: Path, name: str) -> None:
    expert = load_expert(EXPERTS[name], BINDINGS / f"{name}.toml")
    again = read_back(fuzzed(expert.program, 1), tmp_path)
    assert alpha_equal(again, expert.program), f"{program_text(expert.program)}\n{program_text(again)}"


@pytest.mark.zoo
@pytest.mark.triton
@pytest.mark.parametrize("name", EXPERTS)
def test_kernels_that_others_wrote_pass_the_gate(name: str) -> None:
    binding = BINDINGS / f"{name}.toml"
    expert = load_expert(EXPERTS[name], binding)
    verdict = gate_cpu(expert.program, load_problem(Binding.read(binding).problem), "triton", [target("sm_90a")])
    assert verdict.accepted, verdict.reason
    if "gemm" in name or "mm" in name.split("_"):
        copies = "UTMALDG" if any(isinstance(s, n.Copy) and s.via == "tma" for s in walk(expert.program)) else "LDGSTS"
        assert verdict.artifacts[0].mix["HGMMA"] > 0 and verdict.artifacts[0].mix[copies] > 0
        assert (copies == "UTMALDG") == (name == "triton_gemm"), "descriptors are read and written as descriptors"
