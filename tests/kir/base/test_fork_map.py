"""Work that two processes share: the same results in the same order, whatever becomes of the copy. And one that works for whoever asks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from kir.base import fork_map
from kir.base.copies import Copy

SHARED = """
import os
from kir.base import fork_map
from kir.base.copies import Copy
fork_map.may_be_copied = lambda: True
own = os.getpid()
def work(x):
    {body}
    return x * x, os.getpid() == own
found = fork_map.halved(range(7), work)
assert [x for x, _ in found] == [x * x for x in range(7)], found
print(all(mine for _, mine in found))
"""


@pytest.mark.parametrize(("body", "alone"), [
    ("import time; time.sleep(0.05)", False),
    ("os.getpid() == own or os._exit(3)", True),
    ("assert os.getpid() == own", True),
], ids=["shared", "a copy that ends", "a copy that fails"])
def test_results_are_whole_and_in_order(body: str, alone: bool) -> None:
    done = subprocess.run([sys.executable, "-c", SHARED.format(body=body)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{alone}\n"


def test_a_process_with_threads_is_not_copied() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert not fork_map.may_be_copied()
        assert fork_map.halved([1, 2, 3], lambda x: x + 1) == [2, 3, 4]
    finally:
        stop.set()
        thread.join()


def _work(item: object, stopped: Callable[[], bool]) -> object:
    match item:
        case "who":
            return os.getpid()
        case "wait":
            begun = time.monotonic()
            while not stopped() and time.monotonic() - begun < 20:
                time.sleep(0.001)
            return "stopped" if stopped() else "late"
        case "die":
            os._exit(1)
        case _:
            raise ValueError(item)


def test_a_copy_answers_is_stopped_and_may_be_gone() -> None:
    copy = Copy[object, object](_work)
    try:
        process = copy.ask("who", lambda: False)
        assert process != os.getpid()
        assert copy.ask("wait", lambda: True) == "stopped"
        assert copy.ask("who", lambda: True) == process, "what stopped the one before says nothing of this one"
    finally:
        copy.close()
    for item in ("die", 1.5):
        copy = Copy[object, object](_work)
        with pytest.raises(EOFError):
            copy.ask(item, lambda: False)
        with pytest.raises(EOFError):
            copy.ask("who", lambda: False)
        copy.close()
