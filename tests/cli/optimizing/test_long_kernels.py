"""Commands on kernels of 500 lines: how much work they do, and that they come to an end."""

from __future__ import annotations

from collections import Counter
from cProfile import Profile
from pathlib import Path
from types import CodeType

import pytest

from benchmarks.long_kernels import ir_text
from kir.base import fork_map
from kir.faces.cli._main import run
from kir.frontends.cuda.output.cleanup import cleaned
from kir.ir.parser import parse_program


def calls(*argv: str) -> tuple[int, Counter[str]]:
    """How many Python functions a command calls, and how often each name."""
    counted = Profile(builtins=False)
    assert counted.runcall(run, argv) == 0
    called = [(entry.code, entry.callcount) for entry in counted.getstats() if isinstance(entry.code, CodeType)]
    named = Counter[str]()
    for code, count in called:
        named[code.co_name] += count
    return named.total(), named


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("long") / "long.kir"
    file.write_text(ir_text())
    run(["opt", str(file), "--emit", "cuda"])  # what is imported is not counted
    return str(file)


def test_reading_and_writing_a_long_kernel_takes_so_many_calls_and_no_more(long: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, most in (("parse", 650_000), ("opt", 700_000), ("diff", 1_200_000)):
        count, _ = calls(words, long, *([long] if words == "diff" else []))
        assert count < most, (words, count)
    count, named = calls("opt", long, "--emit", "cuda")
    assert count < 900_000, count
    assert named["write"] == 1, "a program is written once, not again for each question about it"


def test_the_sites_of_a_long_kernel_are_not_found_by_reading_all_of_it_at_each(
        tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_map, "may_be_copied", lambda: False)  # how much of the work a copy of the process takes is chance
    spent: list[int] = []
    for blocks in (2, 9, 18):
        file = tmp_path / f"long{blocks}.kir"
        file.write_text(ir_text(blocks))
        spent.append(calls("sites", str(file))[0])
    spent = spent[1:]  # the first imports, and works out what a process does once
    assert spent[1] < 3.2 * spent[0], spent


@pytest.mark.parametrize("body", [
    # A group of copies is closed (a call without operands) between the last use of one array and the first of the next.
    """  shared A: f32[32]
  shared B: f32[32]
  for t in 0..32 parallel thread
    copy load(X[t]) -> A[t] via cp_async grouped
    async_commit()
    async_wait(0)
    barrier()
    let x = A[31 - t]
    async_commit()
    barrier()
    B[t] = x
    barrier()
    Y[t] = B[31 - t]
""",
    # An unrolled loop that stores vectors already.
    """  for t in 0..32 parallel thread
    for i in 0..2 unroll {factor=2}
      Y[t * 8 + i * 4 +: 4] = load(X[t * 8 + i * 4 +: 4])
"""])
def test_sites_of_what_emitted_kernels_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str) -> None:
    file = tmp_path / "p.kir"
    file.write_text(f"kir 1\nprogram p\n  in X: f32[256]\n  out Y: f32[256]\nkernel main grid (row: 1) threads 32\n{body}")
    assert run(["sites", str(file)]) == 0
    assert "applies" in capsys.readouterr().out


def test_tidying_twice_the_statements_takes_twice_the_work() -> None:
    def work(count: int) -> int:
        sums = "".join(f"  let v{k + 1} = X[{k}] + v{k}\n" for k in range(count))
        program = parse_program(f"kir 1\nprogram k\n  in X: f32[{count}]\n  out Y: f32[1]\nkernel main grid (b: 1) threads 1\n  let v0 = X[0]\n{sums}"
                                f"  Y[0] = v{count}\n")
        counted = Profile()
        counted.runcall(cleaned, program.kernels[0].body)
        return sum(entry.callcount for entry in counted.getstats())
    assert work(600) < 2.1 * work(300)
