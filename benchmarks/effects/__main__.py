"""``python -m benchmarks.effects make|measure|jobs``: see the package."""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.effects import sources
from benchmarks.effects.pack import write

JOB_SECONDS = 170
"""How long one group may take to be made and compiled."""
ONE_MORE = 6
"""Seconds before the end of preparing, after which no further program is begun."""
LEFT = 45
"""Seconds before the end of `make` at which preparing ends: what is built by then is still timed."""


def prepared(number: int, job: sources.Job, out: str, skip: str = "", until: float = math.inf) -> tuple[str, str]:
    """Make one group's file: its path, or "" and why there is none. Whatever stops one group stops no other; what is not compiled at `until` is left out."""
    path = Path(out) / f"{number:05}.pack"
    if path.exists():
        return str(path), ""

    def late(*_: Any) -> None:
        raise TimeoutError(f"not made in {JOB_SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(JOB_SECONDS)
    try:
        group = sources.made(job)
        if group.surface in skip.split(","):
            return "", f"{group.surface} is left out"
        if not group.edges:
            return "", "no step"
        if time.monotonic() > until:
            return "", "out of time"
        write(group, path, until)
        return str(path), ""
    except BaseException as why:
        return "", f"{type(why).__name__}: {why}".partition("\n")[0][:200]
    finally:
        signal.alarm(0)


def chosen(kinds: str, part: str, which: str = "", surfaces: str = "", known: Sequence[Path] = ()) -> list[tuple[int, sources.Job]]:
    """Numbered jobs of some kinds and surfaces, every n-th of them, in an order that mixes kinds; with `known` only kernels of packages (and problems, in the
    sixth part) that the data in those folders have nothing of."""
    wanted = kinds.split(",") if kinds else []
    first, count = (int(x) for x in part.split("/"))
    found = [(i, j) for i, j in enumerate(sources.jobs(which)) if not wanted or j["kind"] in wanted]
    if surfaces:
        found = [(i, j) for i, j in found if j.get("surface") in surfaces.split(",")]
    if known:
        groups, solved = _groups(known)
        there = {"/".join(group.split("/")[:3]) for group in groups}
        found = [(i, j) for i, j in found if ("kernel" in j and sources.group_name(j["kernel"]) not in there)
                 or (which == "sixth" and "problem" in j and j["problem"] not in solved)]
    random.Random(0).shuffle(found)
    if which == "sixth":
        turn: Counter[tuple[str, ...]] = Counter()
        turns = []
        for _, job in found:
            of = (job["kind"], job["surface"] if job["kind"] == "across" else "")
            turns.append(turn[of])
            turn[of] += 1
        return [each for _, each in sorted(zip(turns, found, strict=True), key=lambda each: each[0])][first::count]  # kinds by turns
    first_of_all = ("package",) if which == "fifth" else ("lineage", "metas")
    found.sort(key=lambda each: each[1]["kind"] not in first_of_all)  # stable: these first, the others mixed
    return found[first::count]


def _groups(folders: Sequence[Path]) -> tuple[set[str], set[str]]:
    """The groups, and the problems, that data have something of."""
    from kir.learning.forecast.data import read

    every = [read(folder) for folder in folders]
    groups = {row.group for data in every for row in data.measured} | {row.group for data in every for row in data.pairs}
    return groups, {row.problem for data in every for row in data.programs.values()}


def prepare(jobs: list[tuple[int, sources.Job]], out: Path, workers: int, until: float, done: queue.Queue[str | None], skip: str = "") -> Counter[str]:
    """Make the files of all jobs, telling each as it is there, and None at the end; how often what went wrong."""
    out.mkdir(parents=True, exist_ok=True)
    failures: Counter[str] = Counter()
    pool = ProcessPoolExecutor(workers, initializer=os.nice, initargs=(10,))  # what is timed beside it comes first
    there = sorted(jobs, key=lambda each: not (out / f"{each[0]:05}.pack").exists())  # stable: what was prepared before is timed first
    asked = [pool.submit(prepared, number, job, str(out), skip, until - ONE_MORE) for number, job in there]
    try:
        for each in as_completed(asked, timeout=max(1.0, until - time.monotonic())):
            try:
                path, why = each.result()
            except Exception as broken:
                path, why = "", f"a worker is gone: {type(broken).__name__}"
            if path:
                done.put(path)
            failures[why] += bool(why)
    except TimeoutError:
        failures["out of time"] += sum(not f.done() for f in asked)
    done.put(None)
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.kill()
    return failures


def main(words: list[str]) -> int:
    """0, or 2 for words that are no command."""
    said = argparse.ArgumentParser(prog="benchmarks.effects")
    said.add_argument("command", choices=("jobs", "make", "measure", "write"))
    said.add_argument("packs", nargs="*", type=Path, help="measure: the folder of packs; write: files of rows")
    said.add_argument("--out", type=Path, default=Path("build/effects"), help="make: the folder of packs and of rows.jsonl; measure: the file of rows")
    said.add_argument("--kinds", default="", help="only some: space,lineage,package,metas,walk")
    said.add_argument("--second", dest="which", action="store_const", const="second", default="", help="the second part of the data: other sizes and seeds")
    said.add_argument("--third", dest="which", action="store_const", const="third", help="the third part: others again, and walks about packages' kernels")
    said.add_argument("--fourth", dest="which", action="store_const", const="fourth", help="the fourth part: others again, and walks about other kernels")
    said.add_argument("--surfaces", default="", help="only jobs that are of these surfaces alone: cuda,triton,tilelang")
    said.add_argument("--fifth", dest="which", action="store_const", const="fifth", help="the fifth part: kernels of packages, and walks about them")
    said.add_argument("--sixth", dest="which", action="store_const", const="sixth", help="the sixth part: packages on all surfaces; problems")
    said.add_argument("--known", type=Path, action="append", default=[], help="only kernels of packages that the data in this folder have nothing of")
    said.add_argument("--part", default="0/1", help="i/n: every n-th group from the i-th")
    said.add_argument("--only", choices=("prepare", ""), default="", help="make: compile and do not measure")
    said.add_argument("--skip", default="", help="surfaces that are left out, where their compilers are not installed")
    said.add_argument("--seconds", type=float, default=3e4)
    said.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    said.add_argument("--name", default="", help="write: the part's name, as h200-1")
    said.add_argument("--device", default="", help="write: the driver's name of the device")
    said.add_argument("--when", default="", help="write: when it was measured")
    given = said.parse_args(words)
    until = time.monotonic() + given.seconds
    if given.command == "jobs":
        for number, job in chosen(given.kinds, given.part, given.which, given.surfaces, given.known):
            print(number, json.dumps(job))
        return 0
    if given.command == "measure":
        from benchmarks.effects.device import measured, write_rows

        print(write_rows(measured(sorted(given.packs[0].glob("*.pack")), until), given.out), "rows")
        return 0
    if given.command == "write":
        from benchmarks.effects.tables import read_rows, tables
        from kir.learning.forecast.data import write as write_tables

        made = tables(read_rows(given.packs))
        part = (f" --{given.which}" if given.which else " --kinds package" if given.known else "") + (" --known .." if given.known else "")
        command = f"python -m benchmarks.effects make{part}, write --name {given.name}"
        write_tables(made, given.out, given.name, command, given.device, given.when)
        print({name: len(rows) for name, rows in made.items()})
        return 0
    jobs, done = chosen(given.kinds, given.part, given.which, given.surfaces, given.known), queue.Queue[str | None]()
    failures: list[Counter[str]] = []
    making = threading.Thread(target=lambda: failures.append(prepare(jobs, given.out, given.workers, until - LEFT, done, given.skip)), daemon=True)
    making.start()

    def paths() -> Iterator[Path]:
        seen = []
        while (path := done.get()) is not None:
            seen.append(Path(path))
            yield seen[-1]
        if not given.only:
            yield from seen  # timed once more, as long as time is left: how often the sign of an effect is the same

    if given.only:
        count = sum(1 for _ in paths())
    else:
        from benchmarks.effects.device import measured, write_rows

        count = write_rows(measured(paths(), until), given.out / "rows.jsonl")
    making.join()
    print(count, "packs" if given.only else "rows")
    for why, times in failures[0].most_common(30):
        print(f"{times:6} {why}")
    sys.stdout.flush()
    os._exit(0)  # what still compiles is of no use any more


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
