"""``python -m benchmarks.packages.bound PACKAGE .. --out DIR``: kernels beside what KIR writes of them, launched as their own host code says, on a GPU.

Nobody writes a case here: the host code around a kernel is read (as `kir bind --ask --yes` does), sizes are the largest at which it may be called without
tensors beyond a limit, and tensors are filled by chance (whole numbers with zeros and ones); what nobody can know is
answered anyhow (`prepared._answer`), as both kernels get the same. The original is the package's own function; the written
one is the text that `read_again` gives, which reads back as the same program. Both are launched on copies of the same memory, which is longer than
what the kernel is said to reach; what they leave is compared, all of it, and both are timed in turns, as the page of packages does. A kernel that
leaves its memory as it was shows nothing and does not count.

PACKAGE is an installed one, or NAME=FOLDER: a package's source, whose imports that are not here are stood in for. The reading needs no device and takes the
longer: `--prepare` does it alone, and what DIR/prepared*.jsonl holds of the same source is not read again. One line of JSON a kernel goes to DIR; one
that took its process down, or too long, is noted and the rest goes on, and a run with the same DIR goes on where the last one ended. ``page`` writes
benchmarks/results/gpu-bound.md from a run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.packages.__main__ import device_name
from benchmarks.packages.bound.launched import launched
from benchmarks.packages.bound.listed import RESULTS, ROOT, StandIn, already, listing
from benchmarks.packages.bound.page import page
from benchmarks.packages.bound.prepared import Row, prepared, source_hash
from benchmarks.packages.states import BEGUN, known
from kir.base.store import write_atomic

SECONDS = {True: 25, False: 90}
"""What one kernel may take, all in all, by whether it is only prepared."""
STAGES = {True: "prepared", False: "bound"}
"""The files of a run by whether it only prepares."""


def found(folder: Path, stage: str) -> dict[str, Row]:
    """The last line about each kernel of a stage; one that an earlier run left begun is not known."""
    out: dict[str, Row] = {}
    for path in sorted(folder.glob(f"{stage}*.jsonl")):
        out |= {case: row for case, row in known(path).items() if row["state"] != BEGUN or case not in out}
    return out


def worker(given: argparse.Namespace) -> None:
    """Take kernels that nobody has taken, of each length from an own place of the list on, until the time is over."""
    stage, end = STAGES[given.prepare], time.monotonic() + given.limit
    os.environ.setdefault("GEMS_VENDOR", "nvidia")
    os.environ.setdefault("FLA_DISABLE_BACKEND_DISPATCH", "1")
    jobs = [json.loads(line) for line in (given.out / "kernels.jsonl").read_text(encoding="utf-8").splitlines()]
    ready = {} if given.prepare else found(given.out, STAGES[True])
    folders = list(dict.fromkeys(j["home"] for j in jobs if j["home"]))
    if folders:
        sys.path[:0] = folders
        sys.meta_path.append(StandIn(folders))
    own, count = (int(x) for x in given.shard.split("/"))
    order: list[int] = []
    for group in sorted({j["group"] for j in jobs}):
        those = [i for i, j in enumerate(jobs) if j["group"] == group]
        first = own * len(those) // count
        order += [*those[first:], *those[:first]]
    with (given.out / f"{stage}{own}.jsonl").open("a", encoding="utf-8") as out:
        def say(job: Row, row: Row, begun: float) -> None:
            out.write(json.dumps({**job, **row, "seconds": round(time.perf_counter() - begun, 2)}) + "\n")
            out.flush()
        for at in order:
            if time.monotonic() > end:
                return
            if not _taken(given.out / f"taken-{stage}" / str(at)):
                continue
            job, begun = jobs[at], time.perf_counter()
            say(job, {"state": BEGUN}, begun)
            row = given_row(job, ready.get(job["case"]))
            if not given.prepare and row["state"] == "ready":
                row = launched(job["place"], row, given.out / "written")
            say(job, row, begun)
            if "CUDA error" in row.get("reason", "") or "illegal memory" in row.get("reason", ""):
                os._exit(3)  # the context is lost with all its memory


def given_row(job: Row, before: Row | None) -> Row:
    """What is prepared of a kernel: what an earlier run found, where the source is the same."""
    if before is not None and before["state"] != BEGUN and before.get("source") in (None, source_hash(Path(job["place"].partition("::")[0]))):
        return {k: v for k, v in before.items() if k not in ("place", "home", "group")}
    return prepared(job["place"])


def _taken(claim: Path) -> bool:
    """Whether this process is the one that takes a kernel."""
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def run(given: argparse.Namespace) -> None:
    """All kernels of the packages, some processes at once; one that ends is started again without the kernel that it ended with."""
    stage = STAGES[given.prepare]
    given.out.mkdir(parents=True, exist_ok=True)
    lines = listing(given.packages, given.only, given.without, frozenset() if given.again or given.sample else already())
    if given.sample:
        right = sorted({r["case"] for r in recorded().values() if r["state"] == "equal"} & {x["case"] for x in lines})
        drawn = set(random.Random(given.seed).sample(right, min(given.sample, len(right))))
        lines = [x for x in lines if x["case"] in drawn]
    write_atomic(given.out / "kernels.jsonl", "".join(json.dumps(x) + "\n" for x in lines))
    claims = given.out / f"taken-{stage}"
    shutil.rmtree(claims, ignore_errors=True)
    claims.mkdir()
    done = {case: row["state"] for case, row in found(given.out, stage).items()}
    usable = {} if given.prepare else {case: row["state"] for case, row in found(given.out, STAGES[True]).items()}
    for i, line in enumerate(lines):
        if done.get(line["case"], BEGUN) != BEGUN or usable.get(line["case"]) in ("unwritten", "unbound"):
            (claims / str(i)).touch()
    end = time.monotonic() + given.limit
    running: dict[int, subprocess.Popen[bytes]] = {}
    seen: dict[int, float] = {}
    while time.monotonic() < end + 5:
        for i in range(given.jobs):
            p, file = running.get(i), given.out / f"{stage}{i}.jsonl"
            if p is not None and p.poll() == 0:
                continue
            late = p is not None and p.poll() is None and time.time() - max(seen[i], file.stat().st_mtime if file.exists() else 0) > SECONDS[given.prepare] + 5
            if late and p is not None:
                p.kill()
                p.wait()
            if p is None or p.poll() is not None:
                if p is not None:
                    _note(file, "too long" if late else f"exit {p.returncode}")
                if time.monotonic() < end - 15:
                    with (given.out / f"{stage}{i}.log").open("a") as log:
                        words = [sys.executable, "-m", "benchmarks.packages.bound", "work", "--out", str(given.out), "--shard", f"{i}/{given.jobs}",
                                 "--limit", str(end - time.monotonic()), *(["--prepare"] if given.prepare else [])]
                        running[i], seen[i] = subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log), time.time()
        if running and all(p.poll() == 0 for p in running.values()):
            break
        time.sleep(1.0)
    for p in running.values():
        if p.poll() is None:
            p.kill()


def _note(file: Path, why: str) -> None:
    """Say of the kernel that a process ended with, that it did."""
    for row in [r for r in (known(file) if file.exists() else {}).values() if r["state"] == BEGUN]:
        with file.open("a", encoding="utf-8") as to:
            to.write(json.dumps({**row, "state": "crashed", "reason": why}) + "\n")


def recorded() -> dict[str, Row]:
    """The rows of the page, by their kernels."""
    kept = RESULTS.with_suffix(".jsonl")
    return {r["case"]: r for line in (kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []) if (r := json.loads(line))}


def rows_of(folder: Path) -> list[Row]:
    """The last line about each kernel of a run that came to an end, and of those that could not be prepared, why."""
    rows = {case: row for case, row in found(folder, STAGES[True]).items() if row["state"] not in ("ready", BEGUN)}
    rows |= {case: row for case, row in found(folder, STAGES[False]).items() if row["state"] != BEGUN}
    out = [{k: v for k, v in row.items() if k not in ("place", "home", "text", "group")} for _, row in sorted(rows.items())]
    homes = {row["case"]: f"{row['home']}/" for row in rows.values() if row.get("home")}
    return [{**row, "reason": row["reason"].replace(homes.get(row["case"], "\0"), "")} if "reason" in row else row for row in out]


def main(words: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", help="packages, `work` (one process of a run) or `page`")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds after which no kernel begins")
    parser.add_argument("--shard", default="0/1", help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help="kernels with this word in their names")
    parser.add_argument("--without", action="append", default=[], help="kernels whose FILE::KERNEL fits this pattern are left out")
    parser.add_argument("--again", action="store_true", help="those, too, that are known to be right")
    parser.add_argument("--sample", type=int, default=0, help="so many, drawn by chance, of those that the page says are right: are they still?")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--commit", default="", help="whose code this is, for rows of a sample")
    parser.add_argument("--prepare", action="store_true", help="only read, write back and bind: no device is needed")
    given = parser.parse_args(words)
    if given.packages == ["work"]:
        worker(given)
        return 0
    if given.packages != ["page"]:
        run(given)
    if given.prepare:
        states: dict[str, int] = {}
        for row in found(given.out, STAGES[True]).values():
            states[row["state"]] = states.get(row["state"], 0) + 1
        print(states)
        return 0
    if given.packages != ["page"]:
        write_atomic(given.out / "device.txt", device_name())
    made: dict[str, Any] = {r["case"]: r for r in rows_of(given.out)}
    if given.sample:
        made = {case: {**row, "again": given.commit} for case, row in made.items()}
    old = recorded()
    rows = [{**old, **made}[k] for k in sorted({**old, **made})]
    where = RESULTS.parent if given.packages == ["page"] else given.out
    write_atomic(where / "gpu-bound.jsonl", "".join(json.dumps(r) + "\n" for r in rows))
    text = page(rows, (given.out / "device.txt").read_text(encoding="utf-8").strip())
    write_atomic(where / "gpu-bound.md", text)
    print("\n".join(text.splitlines()[:16]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
