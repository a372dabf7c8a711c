"""What an oracle said, kept in files: made once by whoever comes first, whole or not there, never more than was allowed."""
from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from kir.problem import load_problem
from kir.problem.answers import ALIGNED, Answers, Parts, digest, key_of

PARTS: Parts = ({"Y": np.arange(12.0).reshape(3, 4), "none": np.zeros((0, 5), np.int64)}, {"Y": np.full((3, 4), 0.5, ml_dtypes.bfloat16)})


def same(a: Parts, b: Parts) -> bool:
    return len(a) == len(b) and all(x.keys() == y.keys() and all(x[k].dtype == y[k].dtype and x[k].shape == y[k].shape and (x[k] == y[k]).all() for k in x)
                                    for x, y in zip(a, b, strict=True))


def test_it_is_made_once_by_whoever_comes_first_and_mapped_by_all(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> Parts:
        made.append(1)
        time.sleep(0.05)  # the others are there by now, and wait
        return PARTS
    with ThreadPoolExecutor(4) as pool:  # each opens the lock by itself, as a process does
        found = list(pool.map(lambda _: Answers(tmp_path / "new").kept("a", make), range(4)))
    assert len(made) == 1 and all(same(f, PARTS) for f in found) and not found[0][0]["Y"].flags.writeable
    assert [p.name for p in (tmp_path / "new").iterdir() if p.suffix == ".arrays"] == ["a.arrays"]


@pytest.mark.parametrize("spoiled", [b"", b"no header", b"[[[\"Y\", \"float64\", [1000]]]]".ljust(ALIGNED)])
def test_a_file_that_is_not_whole_is_made_again(tmp_path: Path, spoiled: bytes) -> None:
    (tmp_path / "a.arrays").write_bytes(spoiled)
    assert same(Answers(tmp_path).kept("a", lambda: PARTS), PARTS) and same(Answers(tmp_path).kept("a", lambda: ()), PARTS)


def test_what_was_asked_for_longest_ago_goes_first_and_what_is_too_large_is_not_kept(tmp_path: Path) -> None:
    answers = Answers(tmp_path, 4 * ALIGNED)
    one = ({"x": np.ones(4)},)
    held = answers.kept("a", lambda: one)
    answers.kept("b", lambda: one)
    os.utime(tmp_path / "a.arrays", (1, 1))
    os.utime(tmp_path / "b.arrays", (2, 2))
    answers.kept("a", lambda: ())
    answers.kept("c", lambda: one)
    assert {p.stem for p in tmp_path.glob("*.arrays")} == {"a", "c"} and same(held, one)
    large = ({"x": np.ones(4 * ALIGNED)},)
    assert answers.kept("d", lambda: large) is large and {p.stem for p in tmp_path.glob("*.arrays")} == {"a", "c"}
    with pytest.raises(ZeroDivisionError):
        answers.kept("e", lambda: ({"x": np.ones(1 // 0)},))
    assert same(answers.kept("e", lambda: one), one)


def test_the_key_is_of_the_problem_the_sizes_and_every_byte() -> None:
    gemm, at = load_problem("gemm"), load_problem("gemm").shape("tail")
    a = {"A": np.zeros((2, 2)), "B": np.zeros(4)}
    others = [{"A": np.zeros(4), "B": np.zeros(4)}, {"A": np.zeros((2, 2), np.int64), "B": np.zeros(4)}, {"A": np.zeros((2, 2)), "C": np.zeros(4)},
              {"A": np.zeros((2, 2)), "B": np.array([0, 0, 0, -0.0])}]
    assert digest(a) == digest(dict(reversed(a.items()))) and len({digest(x) for x in (a, *others)}) == 5
    assert len({key_of(gemm, at), key_of(gemm, gemm.shape("deep")), key_of(load_problem("gemm:bf16"), at), key_of(load_problem("addmm"), at),
                key_of(gemm, at, 1)}) == 5
