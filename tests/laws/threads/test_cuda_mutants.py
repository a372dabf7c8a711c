"""Every barrier, wait, mask of lanes and bounds mask of the experts written in CUDA is needed: drop or weaken any one in the text, and what
`kir run --check` runs sees it, with both sides named. All mutants: `python -m benchmarks.checks.mutants`, which writes docs/tables/mutants.md; here the
quick ones, and that the page has a row for each."""
from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kir.skills
from benchmarks.checks.mutants import HOPPER, SOURCES, hopper, original, outcome, source, texts
from benchmarks.checks.mutants_page import PAGE
from benchmarks.checks.weakened import Weakened, weakened
from tests.command_line import called

MAIN = ("gemm_sm80", "scan", "topk_radix")
SOME = {
    "gemm_sm80": ("commit_group", "wait_group %0", "wait_group 0", "__syncthreads();: dropped", "inside: dropped", "bn + chunk * kChunk < N: dropped"),
    "scan": ("__syncthreads();: dropped", "lane == 31: dropped", "warp == 0: dropped", "warp > 0: `>`", "lane < kWarps: `<`", "j < N: its bound"),
    "topk_radix": ("t < 2: dropped", "turn < remaining: dropped", "key > prefix: `>`", "sums[t] >= remaining: dropped", "t + offset < kThreads: `<`"),
}


def some(name: str) -> Iterator[Weakened]:
    """The representative part: one or two of each kind (the barriers of the radix select: `tests/frontends/cuda/test_mutants.py`)."""
    for m in texts(name):
        what = f"{m.place}: {m.how}"
        bit = m.how in ("bit 0 left out", "bit 31 left out")
        if bit or (not m.how.startswith("bit ") and any(word in what for word in SOME[name])):
            yield m


@pytest.mark.parametrize("name", MAIN)
def test_a_weakened_expert_is_found(name: str) -> None:
    every = list(some(name))
    assert len(every) >= 5
    for m in every:
        row = outcome(name, m)
        assert row.finding and not row.finding.startswith("weak"), f"{m.line}: {m.place}: {m.how}"
        assert len(row.sides) == 2 and all(row.sides), f"{m.line}: {m.place}: {m.how}"


@pytest.mark.parametrize("name", ("scan", "topk_radix"))
def test_the_expert_itself_has_no_finding(name: str) -> None:
    assert original(name).finding == ""


@pytest.mark.parametrize("name", [*SOURCES, HOPPER])
def test_the_page_has_a_row_for_every_mutant(name: str) -> None:
    part = PAGE.read_text(encoding="utf-8").split(f"\n## {name}\n")[1].partition("\n## ")[0]
    rows = [tuple(c.strip() for c in re.split(r"(?<!\\)\|", line)[1:4]) for line in part.splitlines() if line.startswith("| ")][2:]
    made = [tuple(m.rpartition(" ")[::2]) for m, _ in hopper()] if name == HOPPER else [
        (m.how, f"{m.line}: `{m.place}`") for m in texts(name) if not re.match(r"bit [1-9]", m.how)]
    assert len(rows) == len(made)
    for (place, how, finding), (what, where) in zip(rows, made, strict=True):
        assert place.strip("`").replace("\\|", "|") == where.strip("`")
        assert how == what or (what == "bit 0 left out" and how.startswith("each of 32 bits"))
        assert finding and "not found" not in finding


def test_the_mutator_sees_every_kind_of_construct() -> None:
    text = """__global__ void k(const float* x, float* y, int n) {
  const int t = threadIdx.x;
  const bool inside = t < n && x[0] > 0.f;
  __syncwarp(0xffffffffu);
  __threadfence();
  asm volatile("fence.proxy.async;" ::: "memory");
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(t));
  asm volatile("cp.async.wait_group 1;" ::: "memory");
  for (int j = t; j <= n; ++j) y[j] = inside ? x[j] : 0.f;
  if (__any_sync(0xffu, t == 0)) y[t] = n >= 2 ? x[t] : 1.f;
}
"""
    hows = [(m.line, m.how) for m in weakened(text) if "bit " not in m.how or "bit 3 " in m.how]
    assert hows == [
        (3, "dropped"), (3, "`<` made `<=`"), (3, "its bound moved by one"), (3, "dropped"), (3, "`>` made `>=`"), (3, "its bound moved by one"),
        (4, "dropped"), (4, "bit 3 left out"), (5, "dropped"), (6, "dropped"), (7, "dropped"), (8, "dropped"), (8, "one group more may be pending"),
        (9, "its bound moved by one"), (9, "dropped"), (10, "dropped"), (10, "bit 3 left out"), (10, "dropped"), (10, "its bound moved by one")]
    assert all(m.text != text and len(m.text.splitlines()) == len(text.splitlines()) for m in weakened(text))


def test_the_command_needs_no_binding_and_names_both_sides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "changed.cu"
    text = source("scan").read_text(encoding="utf-8")
    file.write_text(text.replace("    carry += sums[kWarps - 1];\n    __syncthreads();", "    carry += sums[kWarps - 1];"))
    code, out, err = called(capsys, "run", str(file), "--problem", "scan", "--check")
    assert code == 1 and "1 case: " in out and "KIR-I014" in err and "changed.cu:25" in err and "changed.cu:33" in err


def test_a_wrong_value_names_who_stored_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "changed.cu"
    file.write_text(source("scan").read_text(encoding="utf-8").replace("if (lane >= offset) v += other;", "v += other;"))
    code, _, err = called(capsys, "run", str(file), "--problem", "scan", "--check")
    assert code == 1 and "KIR-I031" in err and "store(dst=Y)" in err and "changed.cu:34" in err and "the oracle says" in " ".join(err.split())


def test_a_kernel_without_a_binding_is_told_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(next(iter(kir.skills.__path__))) / "experts" / "scan" / "scan.cu"
    code, _, err = called(capsys, "opt", str(file), "-p", "")
    assert code == 1 and "KIR-S016" in err and "cuda_scan.toml" in err
