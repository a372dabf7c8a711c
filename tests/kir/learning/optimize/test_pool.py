"""The pool: the same words as the gate's own, from processes, from one for each GPU, from a Ray cluster; workers lost and replaced."""
from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kir.base.diagnostic import KirError
from kir.hardware.device.client import ChildGone
from kir.hardware.machine import Gpu
from kir.hardware.target import target
from kir.ir.parser import parse_program
from kir.learning.optimize.judge import CpuJudge
from kir.learning.optimize.plan import Setting
from kir.learning.optimize.pool import devices
from kir.learning.optimize.pool.cluster import Cluster
from kir.learning.optimize.pool.devices import BUSY, chosen, parsed
from kir.learning.optimize.pool.engines import Devices, Engine, Processes
from kir.learning.optimize.pool.judge import PoolJudge
from kir.learning.optimize.pool.tasks import judged, require_answer, task_of
from kir.learning.tune.search import Measured
from kir.problem import load_problem
from tests.kir.learning.optimize.pool_worker import Again, Said, does

PROBLEM = load_problem("softmax")
SETTING = Setting(PROBLEM, PROBLEM.shape("small"), target("h200"), "cuda")
OTHER = parse_program("kir 1\nprogram other\n  size N: i32\n  out Y: f32[N]\nkernel main grid (i: N) threads 1\n  Y[i] = 1.0\n")


def pool(engine: Engine, folder: Path, *names: str, patience: float = 60.0) -> Iterator[tuple[str, Measured, int]]:
    """What a pool says of tasks that were begun together, and how many workers it had lost by then."""
    waiting = iter([*names, *names])
    judge = PoolJudge(engine, lambda p, s: Said(next(waiting), str(folder)), does, patience=patience)
    try:
        judge.prepare([(OTHER, "cuda")] * len(names))
        for name in names:
            yield name, judge.judge(OTHER, "cuda"), judge.lost
    finally:
        judge.close()


def test_a_pool_says_what_the_gate_says() -> None:
    judge = PoolJudge(Processes(1), lambda p, s: task_of(SETTING, p, s, compiles=False))
    try:
        judge.prepare([(PROBLEM.naive, "cuda")])
        assert judge.judge(PROBLEM.naive, "cuda") == CpuJudge(SETTING, compiles=False).judge(PROBLEM.naive, "cuda")
        assert judge.again(PROBLEM.naive, "cuda") == CpuJudge(SETTING, compiles=False).again(PROBLEM.naive, "cuda")
        assert len(judge.known) == 2, "the word on other inputs is another"
        judge.engine.close()
        judge.work = does
        assert judge.judge(PROBLEM.naive, "cuda").accepted, "a result that is known by its hash is not asked for again"
    finally:
        judge.close()


def test_a_worker_that_is_killed_is_replaced_and_a_candidate_that_kills_or_keeps_every_one_is_refused(tmp_path: Path) -> None:
    """Whatever was begun beside it is begun again, and is not blamed."""
    said = {name: (found, lost) for name, found, lost in pool(Processes(2), tmp_path, "fine", "dies once", "dies", "also fine", "hangs", patience=5.0)}
    assert "it takes more than 5 s to judge" in said["hangs"][0].reason
    assert said["fine"][0].accepted and said["dies once"][0].accepted and said["also fine"][0].accepted
    assert not said["dies"][0].accepted and "ends the process" in said["dies"][0].reason
    assert said["also fine"][1] >= 3


def test_an_interruption_is_not_for_the_workers_and_what_waits_is_not_done_before_the_last_word(tmp_path: Path) -> None:
    """Ctrl-C comes to every process of a terminal: a worker goes on, so that the best so far is judged once more; what was begun is in nobody's way."""
    engine = Processes(1)
    judge = PoolJudge(engine, lambda p, s: Again(s, str(tmp_path)), does)
    try:
        assert judge.judge(OTHER, "is interrupted").accepted
        judge.prepare([(OTHER, "fine"), *((OTHER, f"hangs {k}") for k in range(9))])
        assert judge.again(OTHER, "also fine").accepted and not judge._begun
    finally:
        judge.close()


def test_each_gpu_has_a_worker_that_sees_it_alone(tmp_path: Path) -> None:
    """Two devices, three tasks: one process each; one that is lost is replaced."""
    said = {name: found for name, found, _ in pool(Devices((0, 1)), tmp_path, "a", "b", "dies once")}
    assert {said["a"].reason, said["b"].reason} == {"0", "1"} and said["dies once"].accepted and said["a"].seconds != said["b"].seconds


def test_several_workers_share_a_gpu_and_one_that_is_lost_takes_no_other_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows is done by no thread of an executor: since Python 3.12 that of a broken one holds a lock that dropping the executor wants."""
    ended, threads = Devices._ended, set[str]()

    def noted(*given: Any) -> None:
        threads.add(threading.current_thread().name)
        ended(*given)
    monkeypatch.setattr(Devices, "_ended", noted)
    engine = Devices((0,), 2)
    said = {name: found for name, found, _ in pool(engine, tmp_path, "meets b", "meets a", "dies once", "fine")}
    assert all(m.accepted and m.reason == "0" for m in said.values()) and engine.parallel == 2
    assert said["meets b"].seconds != said["meets a"].seconds, "they were at work at the same time"
    assert threads == {"pool_0"}


def test_what_lacked_memory_beside_others_is_done_once_more_with_the_gpu_for_itself(tmp_path: Path) -> None:
    """`large` needs all of a GPU's memory, `too large` more than it has: only the latter is refused."""
    said = {name: found for name, found, _ in pool(Devices((0,), 3), tmp_path, "a large one", "small", "too large", "small too")}
    assert all(said[name].accepted for name in ("a large one", "small", "small too"))
    assert not said["too large"].accepted and "OUT_OF_MEMORY" in said["too large"].reason


@pytest.mark.parametrize("engine", [Devices((0,), 2), Processes(1)])
def test_a_worker_out_of_memory_is_said_and_the_rest_goes_on(tmp_path: Path, engine: Engine) -> None:
    """Of the host, where others may have had it: a task is done once more, on a GPU with no other beside it."""
    names = ("greedy", "fine", "greedy once", "killed once", "also fine") if isinstance(engine, Devices) else ("greedy", "fine")
    said = {name: found for name, found, _ in pool(engine, tmp_path, *names)}
    assert [name for name in names if not said[name].accepted] == ["greedy"] and "out of memory" in said["greedy"].reason


def test_more_gpus_than_candidates_are_not_begun(tmp_path: Path) -> None:
    engine, begun = Devices((0, 1, 2, 3, 4, 5, 6, 7), 3), set[tuple[int, int]]()
    said = dict[str, Measured]()
    for name, found, _ in pool(engine, tmp_path, "meets b", "meets a"):
        said[name] = found
        begun |= engine._pools.keys()
    assert all(m.accepted for m in said.values()) and {m.reason for m in said.values()} == {"0", "1"} and len(begun) == 2


@pytest.mark.parametrize("how", ["broken", "deadly"])
def test_a_lost_gpu_costs_its_candidates_time_only(tmp_path: Path, how: str) -> None:
    """One that says so is left at once, one that ends its workers after three in a row; all candidates are judged by the other."""
    (tmp_path / f"{how}-1").touch()
    engine = Devices((0, 1))
    names = [f"candidate {k}" for k in range(8)]
    said = {name: found for name, found, _ in pool(engine, tmp_path, *names)}
    assert {m.reason for m in said.values() if m.accepted} == {"0"} and list(engine.retired) == [1]
    assert sum(m.accepted for m in said.values()) >= (8 if how == "broken" else 7), "a candidate that met two ends in a row by chance"


def test_a_gpu_goes_on_after_a_candidate_that_hangs(tmp_path: Path) -> None:
    """Its worker is ended, which is held against neither the GPU nor what waits for it."""
    engine = Devices((0,))
    said = {name: found for name, found, _ in pool(engine, tmp_path, "hangs", "next", patience=4.0)}
    assert "it takes more than 4 s" in said["hangs"].reason and said["next"].accepted and not engine.retired


def test_what_was_begun_before_an_end_is_withdrawn(tmp_path: Path) -> None:
    """The worker that was at work is gone, what waited is not done, and the next task has the GPU for itself."""
    engine = Devices((0,))
    begun = [engine.begin(does, Said(name, str(tmp_path))) for name in ("hangs", "waits")]
    engine.close()
    try:
        assert engine.result(engine.begin(does, Said("next", str(tmp_path))), 50.0)["accepted"]
        assert not any(b.said.done() for b in begun) and not engine.retired
    finally:
        engine.close()


def test_with_no_gpu_left_there_is_one_error_that_names_why(tmp_path: Path) -> None:
    (tmp_path / "broken-0").touch()
    with pytest.raises(KirError, match=r"(?s)KIR-U036.*GPU 0: the GPU no longer answers"):
        list(pool(Devices((0,)), tmp_path, "a", "b"))


KNOWN = tuple(Gpu(n, "H200" if n != 2 else "A100", (9, 0), 1 << 37) for n in range(4))


@pytest.mark.parametrize(("wanted", "busy", "numbers", "left"), [
    ("", {}, (0, 1, 3), {2: "another kind"}), ("", {1: 97}, (0, 3), {1: "97 %", 2: "another kind"}), ("2", {}, (2,), {}), ("3,0", {}, (3, 0), {}),
    ("", {3: BUSY - 1}, (0, 1, 3), {2: "another kind"})])
def test_gpus_of_one_kind_that_nobody_uses_are_chosen(wanted: str, busy: dict[int, int], numbers: tuple[int, ...], left: dict[int, str],
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "PAUSE", 0.0)
    found = chosen(KNOWN, parsed(wanted), lambda n: {"busy": busy.get(n, 0)})
    assert found.numbers == numbers and found.left.keys() == left.keys() and all(why in found.left[n] for n, why in left.items())


@pytest.mark.parametrize(("words", "busy", "said"), [
    ("9", 0, "there is no GPU 9: this machine has 0, 1, 2, 3"), ("1,x", 0, "no list of GPUs"), ("", 50, "no GPU is free"), ("1", 50, "GPU 1: someone else")])
def test_a_gpu_that_is_not_there_or_not_free_is_said(words: str, busy: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "PAUSE", 0.0)
    with pytest.raises(KirError, match="KIR-U036") as refused:
        chosen(KNOWN, parsed(words), lambda n: {"busy": busy})
    assert said in str(refused.value)


class Gone:
    """A GPU that no process can open."""

    def opened(self) -> None:
        raise ChildGone("crash", "exit code 1")


def test_a_refusal_by_a_gpu_that_no_longer_answers_is_not_believed() -> None:
    with pytest.raises(KirError, match=r"KIR-U035.*exit code 1"):
        require_answer(cast(Any, Gone()))


def test_a_device_that_is_gone_is_an_error_of_the_worker_and_comes_through_as_one() -> None:
    with pytest.raises(KirError, match="KIR-G004") as gone:
        judged(task_of(SETTING, PROBLEM.naive, "cuda", on="gpu"))
    with pytest.raises(KirError, match="KIR-G004"):
        raise pickle.loads(pickle.dumps(gone.value))


def test_without_ray_or_a_cluster_there_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(KirError, match=r"KIR-U034.*not installed"):
        Cluster("local")


def test_a_ray_cluster_goes_on_though_a_worker_is_killed(tmp_path: Path) -> None:
    """A real cluster of two workers on this machine, one of which is killed under its task."""
    pytest.importorskip("ray")
    engine = Cluster("local", cpus=2)
    assert engine.parallel == 2
    said = {name: (found, lost) for name, found, lost in pool(engine, tmp_path, "fine", "dies once", "also fine")}
    assert all(found.accepted for found, _ in said.values()) and said["also fine"][1] == 1
