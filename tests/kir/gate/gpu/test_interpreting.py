"""Cases interpreted in processes of their own say what this process would say."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kir.gate.cases import problem_cases
from kir.gate.correctness import check
from kir.gate.gpu.interpreting import MODULES, TASK, spread
from kir.hardware.device.client import ChildGone, Server
from kir.ir.parser import parse_program
from kir.problem import load_problem


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(TASK, list(MODULES)) as made:
        yield made


def test_the_record_is_the_same_as_in_one_process(server: Server) -> None:
    problem = load_problem("gemm")
    cases = list(problem_cases(problem.naive, problem, {}))
    alone, apart = check(problem.naive, cases, "gemm"), check(problem.naive, cases, "gemm", runner=spread(lambda: server, problem))
    assert alone.ok and apart == alone


def test_the_first_wrong_case_ends_it_as_in_one_process(server: Server) -> None:
    problem = load_problem("gemm")
    wrong = parse_program(Path(str(problem.folder / "naive.kir")).read_text().replace("acc + cast", "acc - cast"), "wrong.kir")
    cases = list(problem_cases(wrong, problem, {}))
    alone, apart = check(wrong, cases, "gemm"), check(wrong, cases, "gemm", runner=spread(lambda: server, problem))
    assert not alone.ok and apart == alone


def test_without_a_process_the_cases_are_run_here() -> None:
    class Gone:
        def child(self) -> None:
            raise ChildGone("crash", "no server")
    problem = load_problem("gemm")
    cases = list(problem_cases(problem.naive, problem, {}))[:2]
    found = check(problem.naive, cases, "gemm", runner=spread(lambda: Gone(), problem))  # type: ignore[arg-type,return-value]  # a stand-in
    assert found.ok and len(found.runs) == 3


def test_a_case_that_ends_its_process_is_a_refusal(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from kir.gate.gpu import interpreting
    problem = load_problem("gemm")
    cases = list(problem_cases(problem.naive, problem, {}))[:1]
    real = interpreting._asked
    def gone(*_: object) -> None:
        raise ChildGone("crash", "its process died (SIGKILL)")
    monkeypatch.setattr(interpreting, "_asked", gone)
    found = check(problem.naive, cases, "gemm", runner=spread(lambda: server, problem))
    assert not found.ok and "cannot be interpreted" in found.reason and "SIGKILL" in found.reason
    monkeypatch.setattr(interpreting, "_asked", real)
    assert check(problem.naive, cases, "gemm", runner=spread(lambda: server, replace(problem))).ok
