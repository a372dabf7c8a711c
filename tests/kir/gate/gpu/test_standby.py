"""Tools that wait for their job, with scripts in the place of compute-sanitizer."""
from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kir.gate.gpu import standby
from kir.gate.gpu.sanitizer import _asked, _read
from kir.gate.gpu.standby import TOOLS, Standbys
from kir.hardware.device.replay import READY

TOOL = """#!{python}
import sys
if "early" in {how!r}:
    sys.exit(1)
print("========= COMPUTE-SANITIZER", flush=True)
print({ready!r}, flush=True)
job = sys.stdin.readline().strip()
if job:
    print("job of", len(open(job, "rb").read()), "bytes")
    print("========= ERROR SUMMARY: 0 errors")
"""


def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str = "") -> None:
    """Put a script in the place of the tool."""
    path = tmp_path / "compute-sanitizer"
    path.write_text(TOOL.format(python=sys.executable, how=how, ready=READY))
    path.chmod(0o755)
    monkeypatch.setattr(standby, "sanitizer", lambda: path)


def test_a_waiting_tool_does_one_job_and_the_next_is_done_by_a_fresh_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, monkeypatch)
    waiting = Standbys(0)
    waiting.refill()
    waiting.settle()
    assert set(waiting.waiting) == set(TOOLS)
    first = waiting.waiting["memcheck"].process.pid
    said = waiting.run("memcheck", b"x" * 1000)
    assert "job of 1000 bytes" in said and READY not in said and "memcheck" not in waiting.waiting
    assert said.endswith("it ended with exit code 0")
    assert _read([("memcheck", (said, ()))]) == ({"tools": ["memcheck"], "errors": []}, True)
    assert "job of 10 bytes" in waiting.run("memcheck", b"x" * 10)
    waiting.refill()
    assert waiting.waiting["memcheck"].process.pid != first
    waiting.close()
    assert not waiting.waiting


def test_a_tool_that_does_not_come_up_refuses_and_delays_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, monkeypatch, "early")
    waiting = Standbys(0)
    waiting.refill()
    waiting.settle()
    assert not waiting.waiting
    found, kept = _read([("memcheck", _asked(waiting, "memcheck", b"x", 5.0))])
    assert "did not finish, twice" in found["errors"][0] and not kept


def test_a_tool_that_ends_without_a_summary_is_asked_once_more_and_the_record_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, mark = tmp_path / "compute-sanitizer", tmp_path / "been here"
    path.write_text(f"""#!{sys.executable}
import os, sys
print({READY!r}, flush=True)
sys.stdin.readline()
if not os.path.exists({str(mark)!r}):
    open({str(mark)!r}, "w").close()
    sys.exit(3)
print("========= ERROR SUMMARY: 0 errors")
""")
    path.chmod(0o755)
    monkeypatch.setattr(standby, "sanitizer", lambda: path)
    found, kept = _read([("memcheck", _asked(Standbys(0), "memcheck", b"x", 20.0))])
    assert found == {"tools": ["memcheck"], "errors": [], "again": {"memcheck": "it ended with exit code 3"}} and kept


def test_what_a_tool_says_last_is_read_though_it_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "compute-sanitizer"
    lines = 20_000
    path.write_text(f"#!{sys.executable}\nimport sys\nprint({READY!r}, flush=True)\nsys.stdin.readline()\n"
                    f"print('x\\n' * {lines} + '========= ERROR SUMMARY: 0 errors')\n")
    path.chmod(0o755)
    monkeypatch.setattr(standby, "sanitizer", lambda: path)
    for _ in range(3):
        assert "ERROR SUMMARY: 0" in Standbys(0).run("memcheck", b"x", 20.0)


def test_a_job_that_takes_too_long_ends_with_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "compute-sanitizer"
    path.write_text(f"#!{sys.executable}\nimport time\nprint({READY!r}, flush=True)\ntime.sleep(60)\n")
    path.chmod(0o755)
    monkeypatch.setattr(standby, "sanitizer", lambda: path)
    waiting = Standbys(0)
    waiting.refill()
    process = waiting.waiting["racecheck"].process
    assert "more than 1 s" in waiting.run("racecheck", b"x", 1.0)
    assert process.poll() is not None
    waiting.close()
