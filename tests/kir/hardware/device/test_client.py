"""Fork servers, as several threads use one."""
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kir.hardware.device.client import ChildGone, Server

TASK = "time:sleep"


def test_a_server_that_another_thread_closes_is_gone() -> None:
    """While one thread starts a killed server again, another may still ask the old one: it is told so, and asks the new one."""
    server = Server(TASK)
    server.child(30).close()
    server._process.kill()
    server.close()
    with pytest.raises(ChildGone, match="the fork server is gone"):
        server._forked(5)
    server.child(30).close()
    server.close()


def test_threads_start_a_killed_server_again_once() -> None:
    with Server(TASK) as server, ThreadPoolExecutor(4) as pool:
        server.child(30).close()
        for _ in range(3):
            killed = server._process
            killed.kill()
            killed.wait()
            for made in [each.result() for each in [pool.submit(server.child, 30) for _ in range(4)]]:
                made.close()
            assert server._process is not killed
