"""What the tables are made of, and how their cases are run side by side."""
from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kir.learning.cards.card import Card
from kir.learning.cards.search import Rank
from kir.learning.evidence.walked import Walked
from kir.learning.induce.rank import Seen

BEGAN = time.monotonic()
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Given:
    """What a table is made of. `within` are seconds from the start (0: no limit); `kept` is a file of outcomes, which is read and added to."""

    cards: tuple[Card, ...]
    walks: tuple[Walked, ...]
    most: int
    workers: int
    seed: int
    folder: Path | None
    within: float = 0.0
    kept: Path | None = None
    ranks: Mapping[str, Rank] = field(default_factory=dict)
    """Orders that were learned without a family, by it."""
    seen: tuple[Seen, ...] = ()
    """What those are learned from."""

    @property
    def admitted(self) -> tuple[Card, ...]:
        return tuple(card for card in self.cards if card.state == "admitted")


def side_by_side(work: Callable[[Any, Given], Rows], cases: Sequence[object], given: Given) -> Rows:
    """The rows of all cases, in their order; of those that are done after the seconds that are given. A case that takes long holds up no other, nor does one
    that raises: it is a defect, said and counted in `RAISED`."""
    until = BEGAN + given.within if given.within else float("inf")
    done: dict[int, Rows] = {}
    if given.workers < 2:
        for number, case in enumerate(cases):
            if time.monotonic() > until:
                break
            _done(done, number, partial(work, case, given))
    else:
        _GIVEN[:] = [given]
        pool = ProcessPoolExecutor(given.workers, mp_context=multiprocessing.get_context("fork"))  # what is given is inherited, not sent
        try:
            asked = {pool.submit(_one, (work, case)): number for number, case in enumerate(cases)}
            finished, _ = wait(asked, timeout=max(1.0, until - time.monotonic()) if given.within else None)
            for each in finished:
                _done(done, asked[each], each.result)
        finally:
            running = list((pool._processes or {}).values())
            late = time.monotonic() > until
            pool.shutdown(wait=not late, cancel_futures=True)
            for process in running if late else ():
                process.kill()
    return [row for number in sorted(done) for row in done[number]]


def _done(done: dict[int, Rows], number: int, rows: Callable[[], Rows]) -> None:
    try:
        done[number] = rows()
    except Exception:
        RAISED.append(traceback.format_exc())


RAISED: list[str] = []
"""What cases raised that were run in this process or for it."""
_GIVEN: list[Given] = []


def _one(job: tuple[Callable[[Any, Given], Rows], object]) -> Rows:
    return job[0](job[1], _GIVEN[0])


def share(part: int, of: int) -> str:
    """A share as it is printed."""
    return f"{100 * part / of:.1f} % ({part} of {of})" if of else "none"


def added(kept: Path, line: str) -> None:
    """One line at the end of a file, whole, whoever else adds one."""
    with kept.open("ab", buffering=0) as file:
        file.write(line.encode())
