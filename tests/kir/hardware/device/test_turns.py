"""Whose turn a device is: nothing overlaps what has it alone, over threads and processes, and nobody starves or is left waiting by the dead."""
from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kir.hardware.device.turns import Turns

TAKES = """
import random, sys, time
from pathlib import Path
from kir.hardware.device.turns import Turns
turns, draw = Turns(Path(sys.argv[1])), random.Random(int(sys.argv[2]))
print("up", flush=True)
sys.stdin.readline()
for _ in range(30):
    kind = draw.choice(["alone", "alone", "beside", "beside", "opening"])
    with getattr(turns, kind)():
        begun = time.monotonic()
        with turns.beside(), turns.opening():  # what is called within a turn has it
            time.sleep(draw.random() * 4e-3)
        print(kind, begun, time.monotonic(), flush=True)
"""


def test_nothing_of_any_process_overlaps_what_has_the_device_alone(tmp_path: Path) -> None:
    """Some hundred turns of three processes and two threads: those alone overlap nothing, and the others do overlap one another, but for contexts that are
    being opened."""
    command = [sys.executable, "-c", TAKES, str(tmp_path / "turn")]
    others = [subprocess.Popen([*command, str(k)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for k in range(3)]
    for each in others:
        assert each.stdout is not None and each.stdin is not None and each.stdout.readline() == "up\n"
    for each in others:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()

    def here(turns: Turns, seed: int) -> list[tuple[str, float, float]]:
        draw, out = random.Random(seed), []
        for _ in range(30):
            kind = draw.choice(["alone", "alone", "beside", "beside", "opening"])
            with getattr(turns, kind)():
                begun = time.monotonic()
                time.sleep(draw.random() * 4e-3)
                out.append((kind, begun, time.monotonic()))
        return out

    shared = Turns(tmp_path / "turn")
    with ThreadPoolExecutor(2) as threads:
        seen = [row for rows in threads.map(lambda k: here(shared, k), (10, 11)) for row in rows]
    for each in others:
        lines = each.communicate()[0].splitlines()
        seen += [(a, float(b), float(c)) for a, b, c in (line.split() for line in lines)]
    assert len(seen) == 150
    overlaps = [{a[0], b[0]} for i, a in enumerate(seen) for b in seen[:i] if a[1] < b[2] and b[1] < a[2]]
    assert {"beside"} in overlaps and {"beside", "opening"} in overlaps
    assert not any("alone" in both or both == {"opening"} for both in overlaps)


def test_one_context_is_opened_through_each_door_and_none_while_another_is_alone(tmp_path: Path) -> None:
    turns, inside, seen = Turns(tmp_path / "turn"), list[int](), list[tuple[int, ...]]()

    def comes(door: int) -> None:
        with Turns(turns.file).opening(door):
            inside.append(door % 2)
            time.sleep(0.02)
            seen.append(tuple(inside))
            inside.remove(door % 2)
    with ThreadPoolExecutor(6) as threads:
        with turns.alone():
            waiting = [threads.submit(comes, door) for door in range(6)]
            time.sleep(0.05)
            assert not inside
        for each in waiting:
            each.result()
    assert all(len(set(both)) == len(both) for both in seen) and max(map(len, seen)) == 2


def test_who_waits_to_be_alone_is_not_starved_and_the_dead_hold_nothing(tmp_path: Path) -> None:
    code = ("import sys, time; from pathlib import Path; from kir.hardware.device.turns import Turns\n"
            "with Turns(Path(sys.argv[1])).alone(): print('mine', flush=True); time.sleep(60)")
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "turn")], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "mine\n"
    holder.kill()
    turns, over = Turns(tmp_path / "turn"), time.monotonic() + 30.0
    with ThreadPoolExecutor(3) as threads:
        ended: list[float] = []

        def sharing() -> None:
            while not ended and time.monotonic() < over:
                with turns.beside():
                    time.sleep(2e-3)

        busy = [threads.submit(sharing) for _ in range(2)]
        with turns.alone():
            ended.append(time.monotonic())
        for each in busy:
            each.result()
    holder.wait()
    assert ended[0] < over - 1.0 and turns.waited > 0


def test_those_who_wait_to_be_alone_follow_one_another(tmp_path: Path) -> None:
    """Two who would be alone, with a sharer between: the sharer is last, and they are one after the other. What each had alone is counted."""
    turns, order, inside = Turns(tmp_path / "turn"), list[str](), list[str]()

    def alone(name: str) -> float:
        with turns.alone():
            inside.append(name)
            time.sleep(0.02)
            assert inside == [name]
            inside.clear()
            order.append(name)
        return turns.had

    def beside() -> float:
        with turns.beside():
            order.append("beside")
        return turns.had
    with ThreadPoolExecutor(3) as threads:
        with Turns(turns.file).beside():
            waiting = []
            for work in (lambda: alone("first"), beside, lambda: alone("second")):
                waiting.append(threads.submit(work))
                time.sleep(0.1)  # it waits now
        had = [each.result() for each in waiting]
    assert order[2] == "beside" and sorted(order[:2]) == ["first", "second"]
    assert min(had[0], had[2]) >= 0.02 and had[1] == 0.0


@pytest.mark.parametrize(("outer", "inner", "fine"), [
    (Turns.alone, Turns.alone, True), (Turns.alone, Turns.beside, True), (Turns.beside, Turns.beside, True), (Turns.beside, Turns.alone, False)])
def test_a_turn_holds_for_what_is_called_and_never_grows(outer: Callable[[Turns], AbstractContextManager[None]],
                                                         inner: Callable[[Turns], AbstractContextManager[None]], fine: bool, tmp_path: Path) -> None:
    turns = Turns(tmp_path / "turn")
    with outer(turns):
        if fine:
            with inner(turns):
                pass
        else:
            with pytest.raises(AssertionError, match="does not become one alone"), inner(turns):
                pass
    with turns.alone():
        pass
