"""`kill -9` at random points of `lineage`, `learn`, `optimize`, `tune` and `corpus`, alone or two on one store; then full disks, folders that cannot be
written, a clock set back, and two versions of KIR on one store.

`python -m benchmarks.checks.crashes [--points N] [--only JOB ..] [--seed N] [--minutes M] [--jobs N] [--log FILE] [--write]`. A command is first let run and
measured: points are drawn between its first write and its end, less what earlier processes on this store have done; so most are kills. At each point: every
accepted step that was on disk before is there afterwards, every file that a reader would look at is whole, and the command goes on. What comes of each
command on each store is a line that is added to the log, so that runs add up; `--write` writes docs/tables/crashes.md of the whole log. Exit code 1 where
something was lost.
"""
from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tables" / "crashes.md"
LOG = ROOT / "benchmarks" / "results" / "crashes.jsonl"
PROBLEM = str(ROOT / "tests" / "red_team" / "problems" / "narrowed")
KERNEL = """kir 1
program narrowed
  size N: i32
  in X: f32[N]
  out Y: bf16[N]
kernel main grid (b: ceildiv(N, 64)) threads 64
  for t in 0..64 parallel thread
    Y[b * 64 + t] = cast(load(X[b * 64 + t] else 0.0 clip), bf16) clip
"""
KERNELS = tuple(ROOT / "skills" / "experts" / path for path in ("softmax/softmax.cu", "transpose/transpose.cu", "rmsnorm/rmsnorm.cu"))
"""What `corpus` counts."""
LONGEST, TOGETHER = 600.0, 0.25
"""Seconds that a command may take to its end; and how often a second process works on the same store."""
SOURCES = ("kir", "passes", "frontends", "backends", "skills", "grammars", "docs")
"""What a copy of the code takes."""
SOON = 0.01
"""Seconds between two looks for a first write."""


@dataclass(frozen=True)
class Job:
    """A command on a store: its arguments (in `folder`), and the lines that hold what was accepted."""

    name: str
    arguments: Callable[[Path], Sequence[str]]
    accepted: str = ""
    kept: str = ""
    """A folder whose files, once written, stay as they are."""
    begun: bytes = b""
    """What stands in lines that say no more than that something was begun: while there are no others, it is begun anew."""


@dataclass
class Clock:
    """Seconds of a command alone on a fresh store: until it first writes, and until it ends; and those that earlier processes have `spent` on this store."""

    begins: float
    ends: float
    spent: float = 0.0

    def shorten(self, ends: float) -> None:
        """It has ended sooner, and so it begins sooner."""
        if ends < self.ends:
            self.begins, self.ends = self.begins * ends / self.ends, ends

    def drawn(self, r: random.Random) -> float:
        """A moment within what is left: at least a tenth of the whole, since what was killed is done again."""
        left = max(self.ends - self.begins - self.spent, 0.1 * (self.ends - self.begins))
        return self.begins + r.uniform(0.0, left)


@dataclass
class Row:
    """What came of a job's points."""

    points: int = 0
    finished: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


JOBS = (
    Job("lineage", lambda at: ("lineage", str(at / "rows.kir"), "--problem", PROBLEM, "--surface", "kir", "-o", str(at / "walk"), "--workers", "1"),
        "walk/journal.jsonl"),
    Job("learn", lambda at: ("learn", str(at / "walked"), "-o", str(at / "learned"), "--no-trials")),
    Job("optimize", lambda at: ("optimize", str(at / "rows.kir"), "--problem", PROBLEM, "--shape", "long", "--surface", "any", "--no-compile", "--budget",
                                "candidates=1,seconds=3", "--log", str(at / "search.jsonl"), "-o", str(at / "faster.kir")), "search.jsonl",
        begun=b'"event": "begin"'),
    Job("tune", lambda at: ("tune", "gemm_sm90", "--problem", "gemm:bf16", "--shape", "cube", "--budget", "1", "--log", str(at / "tuned.jsonl"), "--into",
                            str(at / "tuned")), "tuned.jsonl"),
    Job("corpus", lambda at: ("corpus", str(at / "kernels"), "--cache", str(at / "counted"), "-j", "1"), kept="counted"),
)


def started(arguments: Sequence[str], before: Callable[[], None] | None = None, root: Path = ROOT) -> subprocess.Popen[bytes]:
    """The command in a process group of its own, of the code at `root`; `before` is called in it first."""
    return subprocess.Popen([sys.executable, "-W", "ignore", "-c", "from kir.faces.cli import main; main()", *arguments], cwd=root, stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, start_new_session=True, preexec_fn=before,
                            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(root), os.environ.get("PYTHONPATH", "")))})


def ended(child: subprocess.Popen[bytes], seconds: float) -> str | None:
    """What it said where it ended by itself within so many seconds; else None: its group is killed, with SIGKILL."""
    try:
        return child.communicate(timeout=seconds)[1].decode(errors="replace")
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):  # it has just ended by itself
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return None


def unwell(child: subprocess.Popen[bytes], said: str) -> str:
    """What is wrong with the end of a command: it is killed, or it ends with an error of its own."""
    if child.returncode not in (0, 1):
        return f"exit code {child.returncode}"
    return "" if _well(said) else _first(said)


def whole_lines(path: Path) -> list[bytes]:
    """The lines of an append-only file that were written to their end."""
    text = path.read_bytes() if path.is_file() else b""
    return text[:text.rfind(b"\n") + 1].splitlines()


def files_of(folder: Path) -> dict[str, bytes]:
    """The finished files of a folder."""
    return {p.name: p.read_bytes() for p in folder.glob("*") if p.is_file() and not p.name.endswith(".partial")}


def damaged(folder: Path) -> list[str]:
    """Files that a reader would look at and that are not whole."""
    found = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.endswith(".partial")):
        try:
            if path.suffix == ".json":
                json.loads(path.read_text())
            elif path.suffix == ".kir" and path.parent.parent.name == "store" and _hash(path) != path.parent.name + path.stem:
                found.append(f"{path.name}: its content is not what its name says")
        except (ValueError, FileNotFoundError) as bad:
            if path.exists():
                found.append(f"{path.name}: {bad}")
    return found


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def measured(job: Job, at: Path, row: Row) -> Clock:
    """How long a command takes on a fresh store, which is left fresh."""
    prepared(at)
    before, start = _names(at), time.monotonic()
    child, begins = started(job.arguments(at)), 0.0
    while child.poll() is None and not begins and time.monotonic() - start < LONGEST:
        time.sleep(SOON)
        begins = time.monotonic() - start if _names(at) != before else 0.0
    said = ended(child, LONGEST)
    if said is None:
        row.faults.append(f"{job.name}: did not end in {LONGEST:.0f} s")
    whole = time.monotonic() - start
    if not begins:
        row.faults.append(f"{job.name}: wrote nothing, so that no kill falls into its writes (exit code {child.returncode})")
    _end(job, at, row, child, said or "")
    return Clock(begins or whole / 2, whole)


def _names(at: Path) -> set[str]:
    return {str(p) for p in at.rglob("*")}


def point(job: Job, at: Path, r: random.Random, row: Row, clock: Clock) -> None:
    """One process (or two on one store) killed at a random moment, and what is left looked at."""
    row.points += 1
    before = whole_lines(at / job.accepted) if job.accepted else []
    held = files_of(at / job.kept) if job.kept else {}
    first = started(job.arguments(at))
    second = started(job.arguments(at)) if r.random() < TOGETHER else None
    row.counts["two processes"] += second is not None
    until, start = clock.drawn(r), time.monotonic()
    said = ended(first, until)
    if said is not None and clock.spent == 0:  # it was quicker than when it was measured, as on a machine with less to do: later points are within it
        clock.shorten(time.monotonic() - start)
    done = said is not None
    if second is not None:
        row.counts["killed"] += ended(second, r.uniform(0.0, clock.begins)) is None
    row.counts["killed"] += not done
    row.faults += [f"{job.name}: {x}" for x in damaged(at)]
    if job.begun and all(job.begun in line for line in before):
        before = []
    if job.accepted and not done and whole_lines(at / job.accepted)[:len(before)] != before:
        row.faults.append(f"{job.name}: {len(before)} accepted lines were there, and are not the first ones now")
    if job.kept and not done and any(files_of(at / job.kept).get(name) != text for name, text in held.items()):
        row.faults.append(f"{job.name}: {len(held)} files were there, and are not the same now")
    clock.spent += max(until - clock.begins, 0.0)
    if said is not None:
        row.finished += 1
        _end(job, at, row, first, said)
        clock.spent = 0.0


def _end(job: Job, at: Path, row: Row, child: subprocess.Popen[bytes], said: str) -> None:
    """A command that came to its end did so well; the store begins anew."""
    if wrong := unwell(child, said):
        row.faults.append(f"{job.name}: {wrong}")
    prepared(at)


def prepared(at: Path) -> None:
    """A fresh store, but for what `learn` reads."""
    for path in at.iterdir() if at.exists() else ():
        if path.name != "walked":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    at.mkdir(exist_ok=True)
    (at / "rows.kir").write_text(KERNEL)
    (at / "kernels").mkdir()
    for path in KERNELS:
        shutil.copy(path, at / "kernels")


def goes_on(job: Job, at: Path, row: Row) -> None:
    """After its last point the command is let run to its end."""
    child = started(job.arguments(at))
    said = ended(child, LONGEST)
    if said is None:
        row.faults.append(f"{job.name}: did not end in {LONGEST:.0f} s")
    elif wrong := unwell(child, said):
        row.faults.append(f"{job.name}: {wrong} after a kill")
    else:
        row.counts["came to the end after the last kill"] += 1
    row.faults += [f"{job.name}: {x}" for x in damaged(at)]


# ------------------------------------------------------------------------------------------------------------- other accidents

def accidents(at: Path) -> list[tuple[str, str, bool]]:
    """What is tried, what came of it, and whether that is right: a refusal (exit code 1 or 2) without a traceback, and nothing damaged."""
    rows = []
    for name, how in (("full disk: no file longer than 4 KiB", _small_files), ("full disk: no file longer than 64 bytes", _tiny_files),
                      ("full disk: a file system of 16 KiB", partial(_mounted, how=FULL, room="16k")),
                      ("full disk: a file system of 48 KiB", partial(_mounted, how=FULL, room="48k")),
                      ("a folder that can only be read", partial(_mounted, how=READ_ONLY)), ("a file where the folder should be", _no_folder),
                      ("clock set back by ten years", _old_clock), ("a store of a later version", _later),
                      ("begun by another version of KIR", _other_version)):
        prepared(at)
        try:
            said, right = how(at)
        except PermissionError:  # no file system may be mounted here
            continue
        bad = damaged(at)
        said = said.replace(str(at), "FOLDER")
        rows.append((name, said + (f"; damaged: {bad[0]}" if bad else ""), right and not bad))
    return rows


def _well(text: str) -> bool:
    return "Traceback" not in text and "internal error" not in text


def _answer(child: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, text = child.communicate(timeout=LONGEST)
    return child.returncode, text.decode(errors="replace")


def _limited(at: Path, most: int) -> tuple[str, bool]:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    code, text = _answer(started(JOBS[0].arguments(at), limit))
    again, _ = _answer(started(JOBS[0].arguments(at)))
    return f"exit code {code}, then {again} with room: {_first(text)}", _well(text) and code in (1, 2) and again == 0


FULL = 'mount -t tmpfs -o size="$2" tmpfs "$1" || exit 99', 'mount -o remount,size=256m "$1"'
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" || exit 99', 'mount -o remount,rw,bind "$1"'
"""What makes a folder so in a namespace of its own, and what makes it well again."""


def _mounted(at: Path, how: tuple[str, str], room: str = "") -> tuple[str, bool]:
    """The command on such a folder, and again once it is well; what it holds then stays. Raises PermissionError where nothing may be mounted."""
    folder = at / "walk"
    folder.mkdir()
    script = f'{how[0]}; f="$1"; k="$3"; set -- "$1" "$2" "${{@:4}}"; "${{@:3}}"; a=$?; {how[1]}; "${{@:3}}"; b=$?; cp -r "$f" "$k"; echo "codes $a $b" >&2'
    command = (sys.executable, "-W", "ignore", "-c", "from kir.faces.cli import main; main()", *JOBS[0].arguments(at))
    child = subprocess.Popen(["unshare", "-rm", "bash", "-c", script, "bash", str(folder), room, str(at / "kept"), *command], cwd=ROOT,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, text = _answer(child)
    told = text.rstrip().rpartition("codes ")[2].split()
    if child.returncode == 99 or len(told) != 2:
        raise PermissionError(text)
    return f"exit code {told[0]}, then {told[1]} once it is well: {_first(text)}", _well(text) and told[0] in ("1", "2") and told[1] == "0"


def _other_version(at: Path) -> tuple[str, bool]:
    """A walk that another version began and that was killed is gone on with, and the other one goes on with what this one made."""
    other = at / "other"
    shutil.copytree(ROOT, other, symlinks=True, ignore=lambda folder, names: [x for x in names if Path(folder) == ROOT and x not in SOURCES])
    with (other / "kir" / "rewrite" / "driver.py").open("a") as file:
        file.write("\n# of another version\n")
    child, start = started(JOBS[0].arguments(at), root=other), time.monotonic()
    while child.poll() is None and not whole_lines(at / JOBS[0].accepted) and time.monotonic() - start < LONGEST:
        time.sleep(SOON)
    ended(child, 0.0)
    before = whole_lines(at / JOBS[0].accepted)
    code, text = _answer(started(JOBS[0].arguments(at)))
    again, more = _answer(started(JOBS[0].arguments(at), root=other))
    kept = whole_lines(at / JOBS[0].accepted)[:len(before)] == before
    shutil.rmtree(other)
    return f"exit code {code}, then {again} with the other: {_first(text) or 'nothing said'}", _well(text + more) and code == again == 0 and kept


def _small_files(at: Path) -> tuple[str, bool]:
    return _limited(at, 4096)


def _tiny_files(at: Path) -> tuple[str, bool]:
    return _limited(at, 64)


def _no_folder(at: Path) -> tuple[str, bool]:
    (at / "walk").write_text("a file where a folder should be\n")
    code, text = _answer(started(JOBS[0].arguments(at)))
    return f"exit code {code}: {_first(text)}", _well(text) and code in (1, 2)


def _half(at: Path) -> None:
    """A walk that is killed when it has accepted something."""
    child, start = started(JOBS[0].arguments(at)), time.monotonic()
    while child.poll() is None and not whole_lines(at / JOBS[0].accepted) and time.monotonic() - start < LONGEST:
        time.sleep(SOON)
    ended(child, 0.0)


def _old_clock(at: Path) -> tuple[str, bool]:
    """Files of the future are what a clock that was set back leaves: a killed walk's are dated ten years ahead."""
    _half(at)
    before, ahead = whole_lines(at / JOBS[0].accepted), time.time() + 3.15e8
    for path in at.rglob("*"):
        os.utime(path, (ahead, ahead))
    code, text = _answer(started(JOBS[0].arguments(at)))
    kept = whole_lines(at / JOBS[0].accepted)[:len(before)] == before
    return f"exit code {code}, {len(before)} lines kept: {_first(text) or 'nothing said'}", code == 0 and kept and len(before) > 0


def _later(at: Path) -> tuple[str, bool]:
    """Another version appends to the journal what this one does not know."""
    _half(at)
    journal = at / JOBS[0].accepted
    if journal.is_file():
        with journal.open("ab") as file:
            file.write(b'{"kind": "of a later version", "version": 99}\n')
    code, text = _answer(started(JOBS[0].arguments(at)))
    return f"exit code {code}: {_first(text) or 'went on'}", _well(text) and code in (0, 1)


def _first(text: str) -> str:
    return next((line.strip().replace(f"{ROOT}/", "")[:140] for line in text.splitlines() if line.strip()), "")


def page(rows: dict[str, Row], stores: dict[str, int], other: Sequence[tuple[str, str, bool]]) -> str:
    """The generated page."""
    lines = ["# Crashes", "", "Made by `python -m benchmarks.checks.crashes --write`: commands killed with SIGKILL at random moments between their "
             "first write and their end, alone or two on one store, and other accidents. A fault is an accepted step that is lost, a file that is "
             "not whole, or a command that does not go on.", "",
             "| command | points | processes killed | with a second process | ended by itself | let run to its end at last | "
             "faults |", "| --- | ---: | ---: | ---: | ---: | --- | --- |"]
    for name, row in rows.items():
        last = "yes" if row.counts["came to the end after the last kill"] == stores[name] else "no"
        lines.append(f"| `{name}` | {row.points} | {row.counts['killed']} | {row.counts['two processes']} | {row.finished} | {last} | "
                     f"{'; '.join(dict.fromkeys(row.faults))[:200] or 'none'} |")
    lines += ["", f"{sum(r.points for r in rows.values())} points, {sum(r.counts['killed'] for r in rows.values())} kills, "
              f"{sum(len(r.faults) for r in rows.values())} faults.", ""]
    if other:
        lines += ["| accident (`lineage`) | what came of it | right |", "| --- | --- | --- |"]
        lines += [f"| {a} | {b.replace('|', '/')} | {'yes' if ok else 'no'} |" for a, b, ok in other]
    return "\n".join(lines) + "\n"


def share(names: Sequence[str], points: int, seed: int, minutes: float, log: Path) -> None:
    """One process's share of the points, spread over the jobs, on stores of its own; a line of the log for each."""
    r, jobs = random.Random(seed), [j for j in JOBS if j.name in names]
    rows = {j.name: Row() for j in jobs}
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        prepared(at)
        if any(j.name == "learn" for j in jobs):
            ended(started(("lineage", str(at / "rows.kir"), "--problem", PROBLEM, "--surface", "kir", "-o", str(at / "walked"), "--workers", "1")), LONGEST)
        for k, job in enumerate(jobs):
            end = time.monotonic() + 60 * minutes / len(jobs)
            clock = measured(job, at, rows[job.name])
            for _ in range(points * (k + 1) // len(jobs) - points * k // len(jobs)):
                if time.monotonic() + clock.ends < end:
                    point(job, at, r, rows[job.name], clock)
            goes_on(job, at, rows[job.name])
            print(job.name, rows[job.name].points, dict(rows[job.name].counts), rows[job.name].faults, flush=True)
            noted(log, {"command": job.name, **vars(rows[job.name])})


def others(log: Path) -> None:
    """The other accidents; a line of the log for each."""
    with tempfile.TemporaryDirectory() as folder:
        for name, said, right in accidents(Path(folder) / "store"):
            print(name, "|", said, "|", "right" if right else "WRONG", flush=True)
            noted(log, {"accident": name, "said": said, "right": right})


def noted(log: Path, line: dict[str, Any]) -> None:
    """Add a line, whole, beside what other processes add."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab", buffering=0) as file:
        file.write(json.dumps(line, sort_keys=True).encode() + b"\n")


def together(lines: Sequence[dict[str, Any]]) -> tuple[dict[str, Row], dict[str, int], list[tuple[str, str, bool]]]:
    """The lines of a log as one: a row for each command, on how many stores, and the last word on each accident."""
    rows, stores, other = {j.name: Row() for j in JOBS}, Counter[str](), dict[str, tuple[str, str, bool]]()
    for line in lines:
        if "accident" in line:
            other[line["accident"]] = (line["accident"], line["said"], line["right"])
            continue
        row = rows[line["command"]]
        stores[line["command"]] += 1
        row.points += line["points"]
        row.finished += line["finished"]
        row.counts += Counter(line["counts"])
        row.faults += line["faults"]
    return {name: row for name, row in rows.items() if stores[name]}, stores, list(other.values())


def lines_of(log: Path) -> list[dict[str, Any]]:
    """The whole lines of a log."""
    return [json.loads(line) for line in whole_lines(log)]


def main() -> int:
    """Run the points that are asked for, spread over the jobs and over processes."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--points", type=int, default=1000)
    arguments.add_argument("--only", nargs="+", choices=[j.name for j in JOBS], default=[j.name for j in JOBS])
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--minutes", type=float, default=1e9, help="no more points after so long")
    arguments.add_argument("--jobs", type=int, default=1, help="processes, each with its share of the points and its own stores")
    arguments.add_argument("--no-accidents", action="store_true")
    arguments.add_argument("--log", type=Path, default=LOG, help="the file that lines are added to")
    arguments.add_argument("--write", action="store_true", help="write docs/tables/crashes.md of the whole log")
    chosen = arguments.parse_args()
    before = len(lines_of(chosen.log))
    with ProcessPoolExecutor(max_workers=chosen.jobs + 1) as pool:
        parts = [pool.submit(share, chosen.only, chosen.points * (k + 1) // chosen.jobs - chosen.points * k // chosen.jobs, chosen.seed + k, chosen.minutes,
                             chosen.log) for k in range(chosen.jobs if chosen.points else 0)]
        if not chosen.no_accidents:
            parts.append(pool.submit(others, chosen.log))
        for part in parts:
            part.result()
    lines = lines_of(chosen.log)
    if chosen.write:
        PAGE.write_text(page(*together(lines)))
    return 1 if any(line.get("faults") or line.get("right") is False for line in lines[before:]) else 0


if __name__ == "__main__":
    sys.exit(main())
