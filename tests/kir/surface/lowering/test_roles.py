"""Kernels whose warps have roles, lowered to threads: the same values, no hazard, and Hopper's instructions in what is compiled."""
from __future__ import annotations

import numpy as np
import pytest

from kir.base.diagnostic import KirError
from kir.hardware.target import target
from kir.interp import run
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.ir.rules.verify import check
from kir.problem import Shape, load_problem
from kir.surface import backend
from kir.surface.lowering import lowered
from tests.programs import EXPERTS, parsed

HOPPER = {"gemm/gemm_sm90": "gemm", "gemm/gemm_sm90_persistent": "gemm", "fmha/fmha_sm90": "fmha"}


@pytest.mark.parametrize("name", HOPPER)
def test_a_hopper_expert_computes_the_same_by_threads(name: str) -> None:
    program = lowered(parsed(EXPERTS / f"{name}.kir"))
    check(program)
    assert parse_program(program_text(program)) == program
    assert lowered(program) is program
    problem = load_problem(HOPPER[name])
    shape = problem.shape("ring") if HOPPER[name] == "gemm" else Shape(name="one head", tags=("tail",), sizes={"B": 1, "H": 1, "L": 200})
    inputs = problem.inputs(shape, seed=1, distribution="normal")
    found = run(program, inputs, problem.scalars(shape), mode="check")
    assert problem.compare(found.outputs, inputs, shape).ok
    assert [f.message for f in found.findings if f.severity == "error"] == []


@pytest.mark.nvcc
@pytest.mark.parametrize("name", HOPPER)
def test_it_is_compiled_to_wgmma_and_tma_without_spills(name: str) -> None:
    made = backend("cuda")
    artifact = made.compile(made.emit(parsed(EXPERTS / f"{name}.kir")), target("sm_90a"))
    assert artifact.spills == 0
    if artifact.mix:
        assert artifact.mix["HGMMA"] > 0 and artifact.mix["UTMALDG"] > 0 and artifact.mix["UTMASTG"] > 0 and artifact.mix["USETMAXREG"] > 0


def test_a_tile_of_the_whole_cta_before_its_roles_is_refused() -> None:
    text = (EXPERTS / "gemm" / "gemm_sm90.kir").read_text().replace("  roles\n", "  Cs = 0.0:f16\n  roles\n")
    with pytest.raises(KirError) as bad:
        lowered(parse_program(text))
    found = bad.value.diagnostics[0]
    assert found.id == "KIR-B030" and "before its roles" in found.message


def test_a_wait_for_the_kernel_ahead_stands_before_roles_and_what_is_read_after_it() -> None:
    """Every thread waits, once barriers are ready; what memory says before the wait is not what a role may use."""
    text = (EXPERTS / "gemm" / "gemm_sm90.kir").read_text().replace(
        "  roles\n", "  grid_dependency_wait()\n  grid_dependency_launch()\n  let corner = cast(A[0, 0], f32)\n  roles\n", 1)
    program = lowered(parse_program(text))
    check(program)
    lines = [line.strip() for line in program_text(program).splitlines()]
    at = [next(i for i, line in enumerate(lines) if line.startswith(words)) for words in ("mbar_init(", "grid_dependency_wait()", "let corner", "roles")]
    assert at == sorted(at)
    read, wait = "  let corner = cast(A[0, 0], f32)\n", "  grid_dependency_wait()\n"
    late = text.replace(read, "").replace(wait, wait + read)
    with pytest.raises(KirError) as bad:
        lowered(parse_program(late))
    assert bad.value.diagnostics[0].id == "KIR-B030"


def test_an_operand_that_wgmma_cannot_read_is_refused() -> None:
    text = (EXPERTS / "gemm" / "gemm_sm90.kir").read_text().replace(
        "shared As: f16[3, 128, 64] layout swizzle(3, 4, 3) align 1024", "shared As: f16[3, 128, 64] align 1024")
    made = backend("cuda")
    with pytest.raises(KirError) as bad:
        made.emit(parse_program(text))
    found = bad.value.diagnostics[0]
    assert found.id == "KIR-B002" and "swizzle" in (found.needs or "")


WAITING = """kir 1
program sums
  size M: i32
  in X: f32[M, 64]
  in W: f16[M, 64, 64]
  out Y: f32[64]
  out Z: f32[64, 64]
  map W_map of W box [1, 64, 64]
kernel main grid (i: 1) threads 192
  shared Ws: f16[64, 64] align 128
  roles
    role sums warps 0..2
      fragment all: f32[64] = 0.0
      for j in 0..M
        all = all + X[j, 0 +: 64]
      Y = all
    role weights warps 2..6
      fragment acc: f32[64, 64] = 0.0
      for k in 0..M
        copy W[k, 0 +: 64, 0 +: 64] -> Ws via tma {descriptor=W_map}
        acc = acc + cast(Ws, f32)
      Z = acc
"""


def test_a_role_waits_for_boxes_of_its_own() -> None:
    program = lowered(parse_program(WAITING))
    check(program)
    text = program_text(program)
    assert text.index("mbar_init(&arrived[0], 1)") < text.index("roles") < text.index("register phase")
    rng = np.random.default_rng(2)
    x, w = rng.integers(-4, 5, (5, 64)).astype(np.float32), rng.integers(-4, 5, (5, 64, 64)).astype(np.float16)
    found = run(program, {"X": x, "W": w}, {"M": 5}, mode="check")
    assert [f.message for f in found.errors] == []
    assert (found.outputs["Y"] == x.sum(axis=0)).all() and (found.outputs["Z"] == w.astype(np.float32).sum(axis=0)).all()


def test_one_of_several_warpgroups_waits_for_no_box() -> None:
    split = "      for wg in 0..2 parallel warpgroup\n"
    text = WAITING.replace("threads 192", "threads 320").replace("2..6", "2..10").replace("      fragment acc", f"{split}      fragment acc")
    head, _, rest = text.partition(split)
    with pytest.raises(KirError) as bad:
        lowered(parse_program(head + split + "".join(f"  {line}\n" for line in rest.splitlines())))
    assert bad.value.diagnostics[0].id == "KIR-B030" and "one of several warpgroups" in bad.value.diagnostics[0].message
