"""The interpreter's cases of one program, side by side in processes of their own.

The GPU gate interprets before it measures; on several cores that takes as long as its longest case, and no longer than compiling does.
"""
from __future__ import annotations

import math
import os
import pickle
import socket
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue

from kir.base.diagnostic import Diagnostic, KirError
from kir.gate.cases import Case, ProblemCase
from kir.gate.correctness import Mode, Outcome, Runner, in_turn, outcome
from kir.gate.verdict import Run
from kir.hardware import machine
from kir.hardware.confine import Limits, confine
from kir.hardware.device import wire
from kir.hardware.device.client import Child, ChildGone, Server
from kir.interp.state import coverage
from kir.ir import nodes as n
from kir.problem import Problem, Shape, load_problem

TASK = "kir.gate.gpu.interpreting:serve"
MODULES = ("kir.interp", "kir.interp.checking.checker", TASK.partition(":")[0])
SECONDS = 1800.0
"""How long one case may take."""
MOST_PROCESSES = 4


def spread(server: Callable[[], Server], problem: Problem) -> Runner:
    """A runner that spreads cases of a problem over children of `server`. Cases of another kind, and those for which no process can be
    started, are run here."""
    def runner(program: n.Program, plan: Sequence[tuple[Case, Mode]]) -> Generator[Outcome, None, None]:
        if type(problem) is not Problem or not all(isinstance(case, ProblemCase) for case, _ in plan):
            yield from in_turn(program, plan)
            return
        order = sorted(range(len(plan)), key=lambda i: plan[i][1] != "check")  # the checked run is the longest: it begins first
        waiting: SimpleQueue[int] = SimpleQueue()
        for i in order:
            waiting.put(i)
        answers: list[Future[Outcome]] = [Future() for _ in plan]
        crew = min(MOST_PROCESSES, max(1, os.cpu_count() or 1), len(plan))
        children: list[Child] = []
        head = pickle.dumps((program, f"{problem.folder}:{problem.dtype}" if problem.dtype else str(problem.folder)))
        with ThreadPoolExecutor(max_workers=crew) as pool:
            for _ in range(crew):
                pool.submit(_work, server(), head, plan, waiting, answers, children)
            try:
                for i, (case, mode) in enumerate(plan):
                    try:
                        yield answers[i].result()
                    except ChildGone:
                        yield outcome(program, case, mode)
            finally:
                _emptied(waiting)
                for child in children:
                    child.close()
    return runner


def _work(server: Server, head: bytes, plan: Sequence[tuple[Case, Mode]], waiting: SimpleQueue[int], answers: list[Future[Outcome]],
          children: list[Child]) -> None:
    """Take cases while there are any. A case that ends its process is a refusal; where no process can be had, what waits is left undone."""
    def fresh() -> Child:
        child = server.child()
        children.append(child)
        child.ask({"op": "load"}, [head], SECONDS)
        return child
    try:
        child = fresh()
        while True:
            try:
                i = waiting.get_nowait()
            except Empty:
                return
            case, mode = plan[i]
            try:
                answers[i].set_result(_asked(child, case, mode))
            except ChildGone as gone:
                said = f"it cannot be interpreted at shape '{case.shape}': {gone.said}"
                row = Run(case.shape, dict(case.sizes), case.distribution, case.seed, mode, False, math.inf, "", 0.0, said)
                answers[i].set_result(Outcome(row))
                child = fresh()
    except ChildGone as gone:
        for i in _emptied(waiting):
            answers[i].set_exception(gone)


def _asked(child: Child, case: Case, mode: Mode) -> Outcome:
    assert isinstance(case, ProblemCase)
    at = {"name": case.at.name, "tags": list(case.at.tags), "sizes": dict(case.at.sizes)}
    message = {"op": "case", "shape": at, "distribution": case.distribution, "seed": case.seed, "mode": mode, "names": dict(case.names)}
    answer, _ = child.ask(message, (), SECONDS)
    row = answer["run"]
    run = Run(**{**row, "worst": float(row["worst"]), "bound": float(row["bound"])})
    errors, weak = (tuple(Diagnostic.from_json(d) for d in answer[key]) for key in ("errors", "weak"))
    return Outcome(run, errors, weak, coverage.from_json(answer["reached"]))


def _emptied(waiting: SimpleQueue[int]) -> list[int]:
    out = []
    while True:
        try:
            out.append(waiting.get_nowait())
        except Empty:
            return out


def serve(channel: socket.socket) -> None:
    """Answer until the channel closes: `load` first, then cases."""
    confine(Limits(programs=False, seconds=int(SECONDS), own_bytes=machine.memory_bytes() // 2))
    program: n.Program | None = None
    problem: Problem | None = None
    while True:
        message, blobs = wire.receive(channel)
        try:
            if message["op"] == "load":
                program, where = pickle.loads(blobs[0])  # of the parent's own making
                problem = load_problem(where)
                wire.send(channel, {})
                continue
            assert program is not None and problem is not None
            at = Shape(**message["shape"])
            inputs = problem.inputs(at, message["seed"], message["distribution"])
            found = outcome(program, ProblemCase(problem, at, message["distribution"], message["seed"], inputs, message["names"]), message["mode"])
            wire.send(channel, {"run": found.run.to_json(), "errors": [d.to_json() for d in found.errors], "weak": [d.to_json() for d in found.weak],
                                "reached": coverage.to_json(found.reached)})
        except (KirError, MemoryError) as fault:
            wire.send(channel, {"error": str(fault) or type(fault).__name__})
