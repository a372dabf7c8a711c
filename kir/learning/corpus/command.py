"""Running a command of the user's with the hook in it, and reading what it noted."""
from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kir
from kir.base.diagnostic import usage


def run_with_hook(words: Sequence[str], mode: str, folder: Path, packages: Sequence[str] = (), measure: bool = False,
                  tune: bool = True, example: str = "kir capture -- python app.py", seconds: float = 0.0) -> tuple[int | None, list[dict[str, Any]]]:
    """The command's exit code (None where it was ended after so many `seconds`) and the launches noted. Raises UsageError KIR-C117 for a command that is
    not there, with an `example`."""
    if not words:
        raise usage("KIR-C117", "there is no command to run", attempt=example)
    startup = Path(__file__).parent / "startup"
    home = Path(kir.__file__).parent.parent
    paths = [str(startup), *([os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []), str(home)]
    settings = json.dumps({"mode": mode, "folder": str(folder.resolve()), "packages": list(packages), "measure": measure, "tune": tune})
    for old in folder.glob("launches-*.jsonl"):
        old.unlink()
    try:
        code = _called(words, {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "KIR_LAUNCHES": settings}, seconds)
    except OSError as bad:
        script = words[0].endswith(".py") and Path(words[0]).is_file()
        raise usage("KIR-C117", f"'{words[0]}' cannot be run: {'it is a file in Python, and no command' if script else bad.strerror}",
                    attempt=f"{example.partition(' -- ')[0]} -- python {shlex.join(words)}" if script else example) from bad
    return code, noted(folder)


def _called(words: Sequence[str], environment: dict[str, str], seconds: float) -> int | None:
    """Run a command; one that takes longer than that, if that is anything, is ended with all that it started."""
    with subprocess.Popen(list(words), env=environment, start_new_session=bool(seconds)) as process:
        try:
            return process.wait(seconds or None)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None
        except BaseException:
            process.kill()
            raise


def noted(folder: Path) -> list[dict[str, Any]]:
    """The launches that the processes of a command noted in its folder."""
    return [json.loads(line) for path in sorted(folder.glob("launches-*.jsonl")) for line in path.read_text(encoding="utf-8").splitlines()]


def by_kernel(notes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a kernel and way of running: launches, distinct bindings, hash, reason."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for note in notes:
        key = (note["file"], note["kernel"], note["how"], note["hash"], note["reason"])
        row = rows.setdefault(key, {**{k: note[k] for k in ("file", "kernel", "how", "hash", "reason")}, "launches": 0, "bindings": 0})
        row["launches"] += note["launches"]
        row["bindings"] += bool(note["binding"])
    return [rows[k] for k in sorted(rows)]
