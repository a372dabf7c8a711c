"""Cheats of a host program, which the gate cannot even be told: source is parsed, never run; and what confines compilers and children."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kir.hardware.confine import Limits, command_line, probed
from kir.hardware.device.client import Server

from .device import refused
from .exploits import PROGRAMS
from .hosts import HOSTS, Host
from .kernels import KERNELS


@pytest.mark.parametrize("host", HOSTS, ids=lambda h: h.name)
def test_a_host_program_is_parsed_and_never_run(host: Host, tmp_path: Path) -> None:
    said = refused(host, tmp_path)
    assert said.startswith("KIR-"), "only the kernel can be a candidate: the wrapper with its cheat is none"


def test_every_row_of_the_catalogue_has_its_exploit() -> None:
    covered = {row for x in (*HOSTS, *PROGRAMS, *KERNELS) for row in x.rows} | {31, 41}
    assert covered == set(range(1, 42)), "31 and 41 are no exploits of outputs: they are measured"


# ------------------------------------------------------------------------------------------------------------------ confinement


def test_the_level_is_found_by_trying() -> None:
    level = probed()
    assert level.limits, "limits are granted everywhere"
    if level.landlock:
        assert "write a file" in level.refused
    if level.seccomp or "network" in level.namespaces:
        assert "use the network" in level.refused
    assert level.text


needs_landlock = pytest.mark.skipif(not probed().landlock, reason="this kernel has no Landlock")


@needs_landlock
def test_a_confined_program_writes_its_own_folder_only(tmp_path: Path) -> None:
    import subprocess

    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    script = "import sys; open(sys.argv[1] + '/x', 'w').write('x')"

    def run(folder: Path) -> int:
        return subprocess.run(command_line([sys.executable, "-S", "-c", script, folder], Limits((str(own),))), capture_output=True, check=False).returncode

    assert run(own) == 0 and (own / "x").exists()
    assert run(other) != 0 and not (other / "x").exists()


@needs_landlock
def test_a_compiler_cannot_take_files_from_elsewhere_to_elsewhere(tmp_path: Path) -> None:
    import subprocess

    (tmp_path / "in").mkdir()
    done = subprocess.run(
        command_line(["/bin/sh", "-c", f"echo result > {tmp_path}/verdict.json"], Limits((str(tmp_path / "in"),))), capture_output=True, check=False
    )
    assert done.returncode != 0 and not (tmp_path / "verdict.json").exists()


def test_processor_time_is_limited() -> None:
    import subprocess

    done = subprocess.run(command_line([sys.executable, "-S", "-c", "while True: pass"], Limits(seconds=1)), capture_output=True, check=False, timeout=60)
    assert done.returncode != 0


def test_memory_of_its_own_is_limited() -> None:
    import subprocess

    def run(size: int) -> int:
        command = command_line([sys.executable, "-S", "-c", f"bytearray({size})"], Limits(own_bytes=1 << 28))
        return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode
    assert run(1 << 20) == 0 and run(1 << 29) != 0


def test_a_program_that_is_not_there_is_said_in_one_line() -> None:
    import subprocess

    done = subprocess.run(command_line(["/no/such/compiler"], Limits()), capture_output=True, text=True, check=False)
    assert done.returncode == 127 and done.stderr.count("\n") == 1


# ------------------------------------------------------------------------------------------------------------- children of the server


def test_children_are_apart_and_a_dead_one_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    from kir.hardware.device.client import ChildGone

    with Server("prisoner:serve", ["prisoner"]) as server:
        with server.child() as first, server.child() as second:
            assert first.ask({"do": "remember"})[0]["value"] == 1
            assert second.ask({"do": "remember"})[0]["value"] == 1, "nothing is carried from one to the next"
            with pytest.raises(ChildGone) as gone:
                first.ask({"do": "die"})
            assert gone.value.how == "crash" and "SIGKILL" in gone.value.said
            assert second.ask({"do": "remember"})[0]["value"] == 2
        with server.child() as third:
            with pytest.raises(ChildGone) as late:
                third.ask({"do": "sleep"}, seconds=0.5)
            assert late.value.how == "timeout"
        with server.child() as fourth:
            answer = fourth.ask({"do": "try"})[0]
            assert answer["stdout"] == os.devnull, "what a child prints goes nowhere"
            assert answer["sockets"] == 1, "the only channel is its own"
            assert answer["environment"] == [], "no secret is inherited"
            if probed().seccomp:
                assert not answer["network"]
            if probed().landlock:
                assert not answer["writes"]
            if probed().seccomp:
                assert not answer["programs"]


def test_a_server_that_is_killed_is_started_again_and_one_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    from kir.hardware.device.client import ChildGone

    with Server("prisoner:serve", ["prisoner"]) as server:
        with server.child() as first:
            server._process.kill()
            with pytest.raises(ChildGone):
                first.ask({"do": "die"})
        with server.child() as second:
            assert second.ask({"do": "remember"})[0]["value"] == 1
    with Server("prisoner:serve", ["no_such_module_at_all"]) as server:
        for _ in range(2):
            with pytest.raises(ChildGone, match="No module named 'no_such_module_at_all'"):
                server.child()


def test_a_child_that_has_no_group_yet_is_ended_too() -> None:
    import signal

    from kir.hardware.device.server import _ended

    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    assert _ended(pid, dying=False) == "killed", "a server that waits for it instead would wait for ever"
