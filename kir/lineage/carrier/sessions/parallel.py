"""Many holes at once: requests wait side by side, equal answers are checked once, and one budget holds for all."""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from kir.base.dataclass import dataclass
from kir.ir import nodes as n
from kir.lineage.carrier.answer import Answer
from kir.lineage.carrier.checking import Checked, check
from kir.lineage.carrier.contract import Contract
from kir.lineage.carrier.providers.budget import NO_LIMITS, Limits, Meter
from kir.lineage.carrier.providers.provider import CarrierProvider
from kir.lineage.carrier.sessions.session import Outcome, run
from kir.rewrite.edit import Path

Judge = Callable[[Contract, Answer], Checked]


@dataclass(frozen=True)
class Job:
    """One hole to fill."""

    contract: Contract
    program: n.Program
    path: Path


def run_many(jobs: Sequence[Job], provider: CarrierProvider, meter: Meter, *, limits: Limits = NO_LIMITS, turns: int = 3, workers: int = 32,
             judge: Judge = check) -> list[Outcome]:
    """The outcome of each job, in order. `limits` are those of each carrier, inside the meter's. Raises the first job's KirError for a hole
    that no answer could fill, after all have ended."""
    checked = once(judge)

    def one(job: Job) -> Outcome:
        inner = meter.child(job.contract.id, limits)
        return run(job.contract, job.program, job.path, provider, inner, turns=turns, judge=checked)
    with ThreadPoolExecutor(max_workers=max(1, min(workers, len(jobs)))) as pool:
        return [f.result() for f in [pool.submit(one, job) for job in jobs]]


def once(judge: Judge) -> Judge:
    """A judge that looks at each answer to a contract once; who asks meanwhile waits for that verdict. One answer at a time is checked, as
    the interpreter is all computation."""
    known: dict[tuple[str, str, str], Future[Checked]] = {}
    lock, turn = threading.Lock(), threading.Lock()

    def judged(contract: Contract, answer: Answer) -> Checked:
        key = (contract.hash, answer.hash, answer.file)
        with lock:
            mine = key not in known
            found = known.setdefault(key, Future())
        if mine:
            try:
                with turn:
                    found.set_result(judge(contract, answer))
            except BaseException as bad:
                found.set_exception(bad)
                raise
        return found.result()
    return judged
