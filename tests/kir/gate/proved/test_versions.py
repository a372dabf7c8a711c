"""Versions that launches choose at numbers of sizes: shown to be the other version with the numbers in it, or judged by themselves."""
from __future__ import annotations

import pytest

from kir.gate.cpu import gate_cpu
from kir.gate.proved.versions import without_versions
from kir.hardware.target import target
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.rewrite import Context, run

H200 = target("h200")
DOUBLE = """kir 1
program double
  size M: i32
  size N: i32
  in X: f16[M, N]
  out Y: f16[M, N]
  fact M >= 1
  fact N >= 1
kernel main grid (i: ceildiv(M * N, 64)) threads 64
  for t in 0..64 parallel thread
    if i * 64 + t < M * N
      Y[(i * 64 + t) // N, (i * 64 + t) % N] = X[(i * 64 + t) // N, (i * 64 + t) % N] + X[(i * 64 + t) // N, (i * 64 + t) % N]
"""
NAIVE = parse_program(DOUBLE)
SIZED = program_text(run(NAIVE, "know-sizes{sizes=[M, N] values=[3000, 4000]}@main", Context(H200)).program)
MISTAKES = [
    ("if i * 64 + t < 12000000", "if i * 64 + t < 11999999"),
    ("// 4000, (i * 64 + t) % 4000] + X", "// 4001, (i * 64 + t) % 4000] + X"),
    ("when M == 3000 & N == 4000", "when M == 3001 & N == 4000"),
    ("when M == 3000 & N == 4000", "when M == 3000"),
]
"""What makes the version at numbers another program than the one for any sizes, at sizes that no test has."""


def test_the_other_version_with_the_numbers_in_it_is_left_out() -> None:
    program = parse_program(SIZED)
    left = without_versions(program)
    assert [k.name for k in program.kernels] == ["main", "main_of_any"] and [k.name for k in left.kernels] == ["main_of_any"]
    assert without_versions(left) == left and without_versions(NAIVE) == NAIVE


@pytest.mark.parametrize(("old", "new"), [*MISTAKES, ("launch main\n", "launch main {pdl=true}\n"),
                                          ("when M == 3000 & N == 4000", "when M >= 3000 & N == 4000")])
def test_what_differs_in_anything_else_stays(old: str, new: str) -> None:
    assert old in SIZED
    program = parse_program(SIZED.replace(old, new))
    assert without_versions(program) == program


def test_launches_that_are_made_alike_and_begin_early_are_versions_too() -> None:
    early = run(NAIVE, "programmatic-dependent-launch{wait=0 trigger=start}@main; know-sizes{sizes=[N] values=[4000]}@main", Context(H200)).program
    assert "launch main {pdl=true}" in program_text(early) and [k.name for k in without_versions(early).kernels] == ["main_of_any"]


def test_a_version_at_large_numbers_is_accepted_and_a_wrong_one_is_not() -> None:
    assert gate_cpu(parse_program(SIZED), None, "kir", [H200], against=NAIVE).accepted
    for old, new in MISTAKES:
        verdict = gate_cpu(parse_program(SIZED.replace(old, new)), None, "kir", [H200], against=NAIVE)
        assert not verdict.accepted and verdict.stage == "correctness", (new, verdict.reason)
