"""The pool: the same words as the gate's own, workers lost and replaced."""
from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kir.hardware.target import target
from kir.learning.optimize.judge import CpuJudge
from kir.learning.optimize.plan import Setting
from kir.learning.optimize.pool import PoolJudge, Task, judged
from kir.problem import load_problem

PROBLEM = load_problem("softmax")
SETTING = Setting(PROBLEM, PROBLEM.shape("small"), target("h200"), "cuda")


def dies_once(task: Task) -> dict[str, Any]:
    """A worker that is killed the first time."""
    mark = Path(task.cache) / "died"
    if not mark.exists():
        mark.touch()
        os._exit(9)
    return judged(Task(task.text, task.surface, task.problem, task.shape, task.target, False, ""))


def dies_always(task: Task) -> dict[str, Any]:
    """A candidate that ends whatever judges it."""
    os._exit(9)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path)


def test_a_pool_says_what_the_gate_says_though_a_worker_is_lost(folder: str) -> None:
    pool = PoolJudge(SETTING, 2, False, folder, dies_once)
    try:
        pool.prepare([(PROBLEM.naive, "cuda")])
        assert pool.judge(PROBLEM.naive, "cuda") == CpuJudge(SETTING, compiles=False).judge(PROBLEM.naive, "cuda")
        assert (Path(folder) / "died").exists()
        pool.work = dies_always
        assert pool.judge(PROBLEM.naive, "cuda").accepted, "a result that is known by its hash is not asked for again"
    finally:
        pool.close()


def test_a_candidate_that_ends_every_worker_is_refused(folder: str) -> None:
    pool = PoolJudge(SETTING, 1, False, folder, dies_always)
    try:
        said = pool.judge(PROBLEM.naive, "cuda")
        assert not said.accepted and "ends the process" in said.reason
    finally:
        pool.close()
