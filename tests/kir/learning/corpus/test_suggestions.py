"""Suggestions, tried: which are chosen, what their processes say, and what the table makes of it."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.packages.suggestions import chosen, is_hit, page, trials
from tests.kir.learning.corpus.test_rank import BINDING, KERNEL

ROOT = Path(__file__).parents[4]
STEP = "persistent@doubled"
TRY = '''
import json, sys
from pathlib import Path
from benchmarks.packages.suggestion import tried
from tests.backends.triton_launch import _accept_sized_arrays
from triton.runtime import interpreter
_accept_sized_arrays(interpreter)
row, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
fake = lambda arguments, one, slow, fast: ([2.0, 2.2, 2.1], [1.0, 1.1, 1.05])
print(json.dumps(tried(row, "cpu", folder, lambda: None, fake)))
'''


@pytest.fixture
def place(tmp_path: Path) -> str:
    (tmp_path / "doubled.py").write_text(KERNEL)
    return f"{tmp_path / 'doubled.py'}::doubled"


def suggestion(place: str, step: str, gain: float = 0.5, **more: Any) -> dict[str, Any]:
    return {"kernel": place, "binding": "doubled-1.toml", "step": step, "log2_gain": gain, "refused": [], "undecided": [], **more}


def recorded_in(tmp_path: Path, place: str) -> Path:
    lines = tmp_path / "recorded.jsonl"
    lines.write_text(json.dumps({"kernel": place, "binding": BINDING.partition("\n")[2]}) + "\n")
    return lines


def test_the_best_allowed_suggestion_of_each_kernel_is_chosen(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = [suggestion(place, "refused@x", 9.0, refused=["KIR-P1"]), suggestion(place, "open@x", 8.0, undecided=["KIR-P2"]),
             suggestion(place, "best@x", 1.0), suggestion(place, "second@x", 0.5), suggestion("other.py::k", "lost@x", 3.0)]
    (row,) = chosen(found, recorded_in(tmp_path, place), 16)
    assert row["step"] == "best@x" and row["gain"] == 2 and row["text"].startswith(f"# {place}\n# 1 launches\nrecorded = true\nkernel")
    assert chosen([suggestion(place, "worse@x", 0.0)], recorded_in(tmp_path, place), 16) == []


@pytest.mark.triton
def test_a_suggestion_is_applied_run_and_compared_with_the_original(tmp_path: Path, place: str) -> None:
    text = BINDING.format(file=place.partition("::")[0])
    row = {"kernel": place, "step": STEP, "target": "sm_90a", "text": text}
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", TRY, json.dumps(row), str(tmp_path)], env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["right"] and said["equal"] and said["ratio"]["median"] == pytest.approx(2.0) and said["seconds"] == [2.1, 1.05]


STAND_IN = '''
import json, sys
row = json.loads(sys.stdin.readline())
if row["step"] == "dies@x": sys.exit(3)
if row["step"] == "fails@x": print(json.dumps({"failed": "KirError: no"}), flush=True); sys.exit()
print("a word of the package"); print(json.dumps({"ready": True}), flush=True)
sys.stdin.readline()
print(json.dumps({"right": True, "equal": False, "difference": 1e-6, "ratio": {"median": 1.5, "interval": [1.4, 1.6], "samples": 15},
                  "seconds": [3e-6, 2e-6]}), flush=True)
'''


def test_processes_that_fail_harm_no_other_and_the_table_counts_hits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    begin = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: begin([sys.executable, str(script)], **options))
    rows = list(trials([{"kernel": f"{s}.py::k", "step": f"{s}@x", "gain": 1.2, "text": ""} for s in ("works", "dies", "fails")], 2, 20.0))
    assert [is_hit(r) for r in rows] == [True, False, False]
    assert rows[1]["failed"] == "its process died (3)" and rows[2]["failed"] == "KirError: no"
    text = page(rows, "a device", "the command", "Ranked: 3.")
    assert "Hit rate: 1 of 3 (33 %)" in text and "1.500 (1.400 to 1.600) | 3.00 | 2.00 | yes" in text and "| KirError: no |" in text
