"""What one arm of a static branch leaves open: the written text compiles under every setting, and reads back as the program."""
from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

import pytest

from kir.analysis.branch_definitions import both_arms
from kir.backends.triton import BACKEND
from kir.frontends.triton.frontend import TritonFrontend
from kir.ir import nodes as n
from kir.ir.visit import walk
from kir.learning.corpus import same_program

HEAD = "import triton\nimport triton.language as tl\n\n"
KERNEL = """@triton.jit
def kernel(x, y, gate, out, T, K, cap: tl.constexpr, GATED: tl.constexpr, EVEN: tl.constexpr, ODD: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, B)
    if not EVEN:
        inside = at < K
    if GATED:
        scale = tl.load(gate + at)
        p_gate = gate + tl.program_id(0).to(tl.int64) * K + at
    acc = tl.zeros((B,), dtype=tl.float32)
    for t in range(T):
        if ODD:
            mask = None if EVEN else inside
        else:
            late = at < t
            mask = late if EVEN else late & inside
        v = tl.load(x + t * K + at, mask=mask).to(tl.float32)
        if GATED:
            v = v * tl.load(p_gate)
            p_gate += K
        acc += v
    if cap is not None:
        acc = cap * (acc / cap)
    if T > 3:
        if GATED:
            acc = acc * scale + tl.load(y + at)
    tl.store(out + at, acc)
"""


def _read(tmp_path: Path) -> n.Program:
    (tmp_path / "source.py").write_text(HEAD + KERNEL)
    return TritonFrontend().parse(tmp_path / "source.py", "kernel")


def test_arms_that_leave_a_name_open_are_completed_and_read_back(tmp_path: Path) -> None:
    program = _read(tmp_path)
    filled = both_arms(program)
    assert filled is not program and both_arms(filled) is filled
    emitted = BACKEND.emit(program)
    (tmp_path / "emitted.py").write_text(emitted.text)
    again = TritonFrontend().parse(tmp_path / "emitted.py", "kernel")
    assert same_program(program, again), emitted.text
    assert not same_program(again, program), "poison is not taken for zeros"


def test_a_value_under_one_condition_and_read_under_it_is_left_alone(tmp_path: Path) -> None:
    text = "@triton.jit\ndef kernel(x, y, A: tl.constexpr):\n    if A:\n        v = tl.load(x)\n    tl.store(y, 1)\n    if A:\n        tl.store(y, v)\n"
    (tmp_path / "source.py").write_text(HEAD + text)
    program = TritonFrontend().parse(tmp_path / "source.py", "kernel")
    assert both_arms(program) is program


def test_what_a_branch_overwrites_is_not_filled_with_zeros(tmp_path: Path) -> None:
    text = ("@triton.jit\ndef kernel(x, y, A: tl.constexpr, B: tl.constexpr):\n    if A:\n        v = tl.load(x)\n    else:\n        v = tl.load(y)\n"
            "    if B:\n        v = v + 1\n    tl.store(y, v)\n")
    (tmp_path / "source.py").write_text(HEAD + text)
    program = TritonFrontend().parse(tmp_path / "source.py", "kernel")
    assert sum(isinstance(s, n.Store) for k in program.kernels for s in walk(k)) == sum(
        isinstance(s, n.Store) for k in both_arms(program).kernels for s in walk(k))


@pytest.mark.triton
def test_what_is_written_compiles_under_every_setting(tmp_path: Path) -> None:
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend

    (tmp_path / "kir_written_arms.py").write_text(BACKEND.emit(_read(tmp_path)).text)
    spec = importlib.util.spec_from_file_location("kir_written_arms", tmp_path / "kir_written_arms.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fn, target = module.kernel, GPUTarget("cuda", 90, 32)
    compiler = make_backend(target)
    options = compiler.parse_options({})
    for cap, gated, even, odd in itertools.product((None, 2.0), (True, False), (True, False), (True, False)):
        constants = {"cap": cap, "GATED": gated, "EVEN": even, "ODD": odd, "B": 32, **({} if gated else {"gate": None, "y": None})}
        types = {"x": "*fp16", "y": "*fp32", "gate": "*fp32", "out": "*fp32", "T": "i32", "K": "i32"} | dict.fromkeys(constants, "constexpr")
        source = ASTSource(fn, {name: types[name] for name in fn.arg_names}, {(fn.arg_names.index(k),): v for k, v in constants.items()})
        context = ir.context()
        ir.load_dialects(context)
        compiler.load_dialects(context)
        assert source.make_ir(target, options, compiler.get_codegen_implementation(options), compiler.get_module_map(), context) is not None
