"""What `kir check` proves for every size, over a sample that the page states.

    python -m benchmarks.checks.checked_page OUT [--recorded 25] [--jobs 8]

Kept in OUT, so that a second run goes on where the first was stopped; writes docs/tables/checked.md.
"""
from __future__ import annotations

import argparse
import multiprocessing
import os
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import islice
from pathlib import Path

from benchmarks.measure import cores
from kir.learning.corpus.proved import Job, kernels_of, proved_all, table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tables" / "checked.md"
PACKAGES = ("flag_gems", "liger_kernel", "fla")
RUNS, SECONDS = 3, 60.0
"""Sizes at which one program is run, and the processor time that it may take."""


def experts() -> Iterator[Job]:
    """The shipped experts in IR."""
    for path in sorted((ROOT / "skills" / "experts").glob("*/*.kir")):
        yield Job(str(path.relative_to(ROOT)), None, path.stem)


def naive() -> Iterator[Job]:
    """The naive programs of the shipped problems."""
    for path in sorted((ROOT / "skills" / "problems").glob("*/naive.kir")):
        yield Job(str(path.relative_to(ROOT)), None, f"naive {path.parent.name}")


def zoo() -> Iterator[Job]:
    """The kernels of tests/zoo.toml under their bindings, whose sizes are symbols."""
    for name, row in tomllib.loads((ROOT / "tests" / "zoo.toml").read_text(encoding="utf-8")).items():
        yield Job(f"{row['file']}::{row['kernel']}", ROOT / row["binding"], name)


def beside(jobs: Sequence[Job], folder: Path, processes: int) -> None:
    """Checks kernels in several processes, each of which keeps its rows apart, and adds these to what `folder` holds."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [folder / f"part{i}" for i in range(processes)]
    working = [multiprocessing.get_context("fork").Process(target=proved_all, args=(jobs[i::processes], part, SECONDS, RUNS)) for i, part in enumerate(parts)]
    for one in working:
        one.start()
    for one in working:
        one.join()
    with (folder / "kernels.jsonl").open("a", encoding="utf-8") as to:
        to.writelines((part / "kernels.jsonl").read_text(encoding="utf-8") for part in parts if (part / "kernels.jsonl").exists())


def main(words: Sequence[str] | None = None) -> None:
    """Check the sample, and write the page."""
    parser = argparse.ArgumentParser(description="What `kir check` proves over a sample of kernels.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recorded", type=int, default=25, help="recorded kernels of each package, the first ones")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    given = parser.parse_args(words)
    os.chdir(ROOT)
    parts = [("Experts in IR", "All of `skills/experts`, at all sizes that their facts allow.", list(experts())),
             ("Naive programs", "All of `skills/problems`, at all sizes.", list(naive())),
             ("The zoo", "All of `tests/zoo.toml` under their shipped bindings, at all sizes that these allow.", list(zoo()))]
    for package in PACKAGES:
        jobs = list(islice((j for j in kernels_of(package) if j.binding is not None), given.recorded))
        parts.append((package, f"The first {len(jobs)} of the recorded kernels (`skills/packages/{package}.jsonl`): for all data and all orders of threads "
                      "and CTAs, at the sizes of their binding, where that has numbers.", jobs))
    lines = ["# Checked for every size", "", f"Made by `python -m benchmarks.checks.checked_page OUT --recorded {given.recorded}` on {cores()}, "
             f"{date.today().isoformat()}, in {given.jobs} processes; what the words mean: [checking](../using/checking.md). What is decided depends on no "
             f"machine, but for what takes more than {SECONDS:g} seconds of processor time; the seconds do.", f"A program was run at {RUNS} sizes at most."]
    if given.jobs > 1:
        beside([job for _, _, jobs in parts for job in jobs], given.folder, given.jobs)
    rows = [proved_all(jobs, given.folder, SECONDS, RUNS) for _, _, jobs in parts]
    every = Counter(r["verdict"] for each in rows for r in each if r["verdict"] != "refused")
    lines += ["", f"Of all {every.total()} kernels that were read {100 * (every['proved'] + every['refuted']) / max(1, every.total()):.1f} % are decided."]
    for (title, what, _), each in zip(parts, rows, strict=True):
        lines += ["", f"## {title}", "", what, "", *table(each)]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
