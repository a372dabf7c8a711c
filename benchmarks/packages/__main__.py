"""``python -m benchmarks.packages [PACKAGE ...] --on cpu|gpu --out DIR``: do the kernels that KIR wrote compute what the originals do?

Runs `kir corpus --swap PACKAGE -- python -m benchmarks.packages.drive PACKAGE ..` over all cases, some at once. A case that takes its
process down is noted, and the rest goes on in a new one; so are those that were running, or waiting, when the time was over. What is known
in DIR is not done again. On the CPU the interpreter carries out every launch with the program that the written text is read as. On a GPU
the written kernels run, and each kernel's first launches are carried out both ways, what they left and what was compiled compared, and
both timed: several processes at once, one of which times at a time. Cases with a kernel that was not within the bar, in either direction,
are then run again, one process alone on each GPU.

Writes ``packages-cpu.md`` or ``gpu-packages.md`` and one line of JSON a kernel beside it; with `--record` also the bindings of kernels that
are right, into skills/packages. `--check` runs nothing: it says there which of those are written otherwise by now.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.packages.states import BEGUN, WAITING, known
from kir.base.store import write_atomic
from kir.hardware import machine
from kir.learning.corpus.command import noted
from kir.learning.corpus.measured import MANY_ROUNDS, MICROSECONDS, NEAR, REPEATS, ROUNDS, SHORT
from kir.learning.corpus.patched_kernels import read_again
from kir.surface.reading import located

ROOT = Path(__file__).parents[2]
PACKAGES = ("liger_kernel", "fla", "flag_gems")
GENERATED = "~/.flaggems"
"""Where FlagGems writes the kernels that it makes at run time."""
GRACE = 25.0
"""Seconds for the case that is running when the time is over."""
SLACK = 1.05
"""How much longer than the original a kernel may take."""
Row = dict[str, Any]


def attempt(package: str, folder: Path, name: str, on: str, shard: str, limit: float, extra: list[str], gpu: str, cases: str) -> bool:
    """One run of the driver under the hook, on one of the GPUs: whether it ended well. A case that it did not end with is noted, and why."""
    swapped = ["--swap", package]
    if package == "flag_gems":
        Path(GENERATED).expanduser().mkdir(exist_ok=True)
        swapped += ["--swap", str(Path(GENERATED).expanduser())]
    results = folder / f"{name}.jsonl"
    number = len(list(folder.glob(f"{name}-*")))
    drive = [
        sys.executable,
        "-m",
        "benchmarks.packages.drive",
        package,
        "--device",
        "cuda" if on == "gpu" else "cpu",
        "--results",
        str(results),
        "--shard",
        shard,
        "--limit",
        str(limit),
        *(["--cases", cases] if cases else []),
    ]
    command = [sys.executable, "-c", "from kir.faces.cli import main; main()", "corpus", *swapped, "-o", str(folder / f"{name}-{number}"), "--json", *extra]
    paths = os.pathsep.join([str(ROOT), *([os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else [])])
    with (folder / f"{name}.log").open("a") as log:
        environment = {**os.environ, "PYTHONPATH": paths, **({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})}
        process = subprocess.Popen([*command, "--", *drive], cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            code = process.wait(limit + GRACE)
            lost = ("crashed", f"it took its process down (exit {code})")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # it is the first of its group
            code = process.wait()
            lost = ("stopped", "the time of the run was over while it ran")
    for case, row in known(results).items():
        if row["state"] == BEGUN:
            with results.open("a", encoding="utf-8") as out:
                out.write(json.dumps({"case": case, "state": lost[0], "reason": lost[1]}) + "\n")
    return code == 0


def until_done(
    package: str, folder: Path, name: str, on: str, shard: str, limit: float, extra: list[str], gpu: str = "", cases: str = ""
) -> None:
    """Attempts until one ends well or nothing new is learned."""
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        before = known(folder / f"{name}.jsonl")
        well = attempt(package, folder, name, on, shard, end - time.monotonic(), extra, gpu, cases)
        if well or known(folder / f"{name}.jsonl") == before:
            return


def phase(packages: list[str], out: Path, name: str, on: str, jobs: int, limit: float, extra: list[str], gpus: list[str]) -> None:
    """All packages within `limit` seconds, side by side, the processes dealt to the GPUs in turn."""
    end = time.monotonic() + limit
    shards = max(1, jobs // len(packages))

    def one(package: str, i: int, gpu: str) -> None:
        until_done(package, out / package, f"{name}{i}", on, f"{i}/{shards}", end - time.monotonic(), extra, gpu)

    with ThreadPoolExecutor(shards * len(packages)) as pool:
        dealt = [(p, i, gpus[(i + k) % len(gpus)] if gpus else "") for i in range(shards) for k, p in enumerate(packages)]
        for each in [pool.submit(one, *x) for x in dealt]:
            each.result()


def alone(packages: list[str], out: Path, name: str, limit: float, extra: list[str], gpus: list[str], cases: Path) -> None:
    """The cases named in a file within `limit` seconds, one process on each GPU: one package after another, each with its share of what is
    left."""
    end = time.monotonic() + limit

    def one(k: int, gpu: str) -> None:
        for i, p in enumerate(packages):
            share = (end - time.monotonic()) / (len(packages) - i)
            until_done(p, out / p, f"{name}{k}", "gpu", f"{k}/{len(gpus)}", share, extra, gpu, str(cases))

    with ThreadPoolExecutor(len(gpus)) as pool:
        for each in [pool.submit(one, k, gpu) for k, gpu in enumerate(gpus)]:
            each.result()


def off(rows: list[Row]) -> list[str]:
    """The cases of right kernels whose time is not within the bar of their original's, in either direction."""
    slow = [r for r in rows if r["equal_in"] and (t := ratio(r)) is not None and not 1 / SLACK <= t <= SLACK]
    return sorted({case for r in slow for case in r["equal_in"][:1]})


def replaced(rows: list[Row], again: list[Row]) -> None:
    """Put measurements of a process that was alone in place of those of one among several."""
    alone = {(r["package"], r["file"], r["kernel"]): r["measured"] for r in again if ratio(r) is not None}
    for r in rows:
        r["measured"] = alone.get((r["package"], r["file"], r["kernel"]), r["measured"])


def outcomes(folder: Path, name: str) -> dict[str, Row]:
    """What came of each case: `equal`, `differs`, `failed`, `crashed` (it took its process down), `stopped` (the time was over while it ran) or
    `waiting` (it never began)."""
    out: dict[str, Row] = {}
    for path in sorted(folder.glob(f"{name}*.jsonl")):
        for case, row in known(path).items():
            out[case] = {**row, "reason": "the time of the run was over before it began"} if row["state"] == WAITING else row
    return out


def verdicts(notes: list[Row], found: dict[str, Row]) -> dict[str, float | None]:
    """The largest error of each part of a case with launches, None for one that is wrong. A part answers for all that was compared from
    its launches up to those of the next part."""
    launched: dict[str, set[int]] = {}
    for note in notes:
        case, mark, number = note["part"].rpartition(" #")
        if mark:
            launched.setdefault(case, set()).add(int(number))
    out: dict[str, float | None] = {}
    for case, numbers in launched.items():
        row = found.get(case, {})
        errors = row.get("errors", [])
        order = sorted(numbers)
        for i, start in enumerate(order):
            own = errors[start : order[i + 1] if i + 1 < len(order) else None]
            right = bool(own) and all(e is not None and e <= row["within"] for e in own)
            out[f"{case} #{start}"] = max(own) if right else None
    return out


def kernels(package: str, folder: Path, name: str) -> Iterator[Row]:
    """One row a kernel: what it ran as, in which cases, whether what it led to there was equal, and what was measured."""
    notes = [note for path in sorted(folder.glob(f"{name}*-*")) for note in noted(path)]
    judged = verdicts(notes, outcomes(folder, name))
    home = machine.package_folder(package)
    rows: dict[tuple[str, str], Row] = {}
    for note in notes:
        inside = Path(note["file"])
        place = inside.relative_to(home).as_posix() if home is not None and inside.is_relative_to(home) else inside.name
        row = rows.setdefault(
            (note["file"], note["kernel"]),
            {
                "package": package,
                "kernel": note["kernel"],
                "file": place,
                "generated": not (home is not None and inside.is_relative_to(home)),
                "hash": "",
                "launches": 0,
                "equal_in": [],
                "reasons": [],
                "error": None,
                "binding": "",
                "measured": [],
            },
        )
        if note["how"] not in ("swapped", "interpreted"):
            row["reasons"] = sorted({*row["reasons"], note["reason"]})
            continue
        row["hash"], row["launches"] = note["hash"], row["launches"] + note["launches"]
        row["measured"] += [note["measured"]] if "measured" in note else []
        error = judged.get(note["part"])
        if error is not None:
            row["equal_in"] = sorted({*row["equal_in"], note["part"].rpartition(" #")[0]})
            row["error"] = max(row["error"] or 0.0, error)
            row["binding"] = row["binding"] or note["binding"]
    yield from (rows[k] for k in sorted(rows))


def ratio(row: Row) -> float | None:
    """The written kernel's time over its original's, over all launches that were measured."""
    times = [m["seconds"] for m in row["measured"] if "seconds" in m]
    return sum(b for _, b in times) / sum(a for a, _ in times) if times else None


def page(rows: list[Row], cases: dict[str, dict[str, Row]], on: str, command: str, device: str) -> str:
    """The tables in Markdown."""
    right = [r for r in rows if r["equal_in"]]
    title = "Kernels that KIR wrote, against oracles"
    lines = [
        f"# {title}: {'on a GPU' if on == 'gpu' else 'in the interpreter'}",
        "",
        f"Made by `{command}`{f' on {device}' if device else ''}.",
        "",
        "| package | cases | equal | kernels that ran | equal | of these made at run time |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for p in [*dict.fromkeys(r["package"] for r in rows)]:
        own = [r for r in rows if r["package"] == p]
        ran = [r for r in own if r["launches"]]
        good = [r for r in own if r["equal_in"]]
        states = [c["state"] for c in cases[p].values()]
        lines.append(f"| {p} | {len(states)} | {states.count('equal')} | {len(ran)} | {len(good)} | {sum(r['generated'] for r in good)} |")
    if on == "gpu":
        timed = [(r, t) for r in right if (t := ratio(r)) is not None]
        within = [r for r, t in timed if t <= SLACK]
        same = [r for r in right if r["measured"] and all(m["equal"] for m in r["measured"])]
        alike = [r for r, _ in timed if all(m.get("code", {}).get("same") for m in r["measured"])]
        lines += [
            "",
            f"{len(right)} kernels are right, {len(same)} of them bit for bit what the original leaves. {len(timed)} were timed; {len(within)} "
            f"({100 * len(within) / max(1, len(timed)):.0f} %) take at most {SLACK} of the original's time. {len(alike)} compile to the very "
            "instructions of the original (PTX).",
            "",
            f"How it is timed: captured batches of launches of about {MICROSECONDS / 1000:.0f} ms, the two kernels in turns on the same memory, "
            f"which is set to the arguments before each batch; {ROUNDS} rounds, {MANY_ROUNDS} where a launch takes less than "
            f"{SHORT * 1e6:.0f} us, since a batch of them is as short as what else goes on. Where the medians are more than {NEAR - 1:.0%} "
            f"apart, in either direction, as many rounds again, at most {1 + REPEATS} times in all; the median is over all of them. Several processes "
            "share a GPU, and one of them times at a time; kernels that were then not within the bar, in either direction, were measured again by a "
            "process alone.",
            "",
            "| kernel | hash | launches | equal in | bit for bit | same code | registers | original, us | written, us | ratio |",
            "| --- | --- | ---: | --- | --- | --- | --- | ---: | ---: | ---: |",
        ]
        for r in right:
            times = [m["seconds"] for m in r["measured"] if "seconds" in m]
            shown = f"{times[0][0] * 1e6:.2f} | {times[0][1] * 1e6:.2f} | {ratio(r):.3f}" if times else " | | "
            codes = [m["code"] for m in r["measured"] if m.get("code")]
            registers = " → ".join(map(str, dict.fromkeys(codes[0]["n_regs"]))) if codes else ""
            lines.append(
                f"| `{r['file']}::{r['kernel']}` | {r['hash']} | {r['launches']} | {r['equal_in'][0]} | "
                f"{'yes' if r['measured'] and all(m['equal'] for m in r['measured']) else 'no'} | "
                f"{'yes' if codes and all(c['same'] for c in codes) else 'no'} | {registers} | {shown} |"
            )
    else:
        lines += [
            "",
            f"{len(right)} kernels compute what the oracle says.",
            "",
            "| kernel | hash | launches | equal in | error |",
            "| --- | --- | ---: | --- | ---: |",
        ]
        lines += [f"| `{r['file']}::{r['kernel']}` | {r['hash']} | {r['launches']} | {', '.join(r['equal_in'][:3])} | {r['error']:.1e} |" for r in right]
    lines += ["", "## Kernels that did not run as KIR writes them", "", "| kernel | reason |", "| --- | --- |"]
    lines += [f"| `{r['file']}::{r['kernel']}` | {'; '.join(r['reasons'])[:200].replace('|', chr(92) + '|')} |" for r in rows if not r["launches"]]
    lines += ["", "## Cases that are not equal", "", "| package | case | state | reason |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {p} | {c} | {x['state']} | {x['reason'].replace('|', chr(92) + '|')} |"
        for p, found in cases.items()
        for c, x in sorted(found.items())
        if x["state"] != "equal" and x["reason"] != "nothing was compared"
    ]
    return "\n".join(lines) + "\n"


def record(rows: list[Row], folder: Path) -> None:
    """The bindings of kernels that are right, one line of JSON each."""
    for package in dict.fromkeys(r["package"] for r in rows):
        lines = [
            json.dumps(
                {"kernel": f"{package}:{r['file']}::{r['kernel']}", "oracle": r["equal_in"][0], "error": r["error"], "hash": r["hash"], "binding": r["binding"]}
            )
            for r in rows
            if r["package"] == package and r["equal_in"] and not r["generated"] and r["binding"]
        ]
        write_atomic(folder / f"{package}.jsonl", "\n".join(lines) + "\n")


def checked(folder: Path, packages: Sequence[str]) -> tuple[int, int]:
    """Says of each recorded kernel what is written of it `now`, where that is another text than the one of its `hash`, with which it was run ("": it is
    not written any more). How many are as they were, and of how many."""
    same = every = 0
    for file in (folder / f"{package}.jsonl" for package in packages):
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for row in rows:
            place, _, kernel = str(row["kernel"]).partition("::")
            now = read_again(str(located(place)[0]), kernel).digest
            row.pop("now", None)
            if now != row["hash"]:
                row["now"] = now
            same += now == row["hash"]
            every += 1
        write_atomic(file, "\n".join(json.dumps(row) for row in rows) + "\n")
    return same, every


def device_name() -> str:
    """What the driver calls the first GPU."""
    done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True)
    return done.stdout.strip().partition("\n")[0]


def devices() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    if given := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return given.split(",")
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return [str(i) for i in range(sum(line.startswith("GPU") for line in done.stdout.splitlines()))]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", default=list(PACKAGES))
    parser.add_argument("--on", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--out", type=Path, default=Path("corpus"), help="where everything is kept")
    parser.add_argument("--tables", type=Path, default=None, help="the folder of the tables (default: --out)")
    parser.add_argument("--jobs", type=int, default=0, help="processes at once (0: one a core, at most 15 for each GPU)")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for all cases; half as many for those that are run again")
    parser.add_argument("--gpus", type=int, default=0, help="how many GPUs share the cases (0: all)")
    parser.add_argument("--record", action="store_true", help="write the bindings of kernels that are right into skills/packages")
    parser.add_argument("--check", action="store_true", help="run nothing: say in skills/packages which kernels are written otherwise by now")
    given = parser.parse_args()
    if given.check:
        same, every = checked(ROOT / "skills" / "packages", given.packages)
        print(f"{same} of {every} recorded kernels are written as they were when they were run; of the others, `now` is the hash of what is written")
        return
    gpus = devices()[: given.gpus or None] if given.on == "gpu" else []
    jobs = given.jobs or min(15 * max(1, len(gpus)), os.cpu_count() or 1)
    name, extra = "run", ["--no-tune", "--measure"] if given.on == "gpu" else []
    phase(given.packages, given.out, name, given.on, jobs, given.limit, extra, gpus)
    rows = publish(given, name)
    if given.on == "gpu" and (again := off(rows)):
        chosen = given.out / "again.txt"
        write_atomic(chosen, "\n".join(again) + "\n")
        alone(given.packages, given.out, "again", given.limit / 2, extra, gpus, chosen)
        rows = publish(given, name, "again")
    if given.record:
        record(rows, ROOT / "skills" / "packages")


def publish(given: argparse.Namespace, name: str, again: str = "") -> list[Row]:
    """Write the tables of a run, with the measurements of a second one in place of its own; the rows."""
    rows = [r for p in given.packages for r in kernels(p, given.out / p, name)]
    if again:
        replaced(rows, [r for p in given.packages for r in kernels(p, given.out / p, again)])
    cases = {p: outcomes(given.out / p, name) for p in given.packages}
    tables = given.tables or given.out
    tables.mkdir(parents=True, exist_ok=True)
    stem = "gpu-packages" if given.on == "gpu" else "packages-cpu"
    command = f"python -m benchmarks.packages {' '.join(given.packages)} --on {given.on}"
    text = page(rows, cases, given.on, command, device_name() if given.on == "gpu" else "")
    write_atomic(tables / f"{stem}.md", text)
    write_atomic(tables / f"{stem}.jsonl", "".join(json.dumps(r) + "\n" for r in rows))
    print("\n".join(text.splitlines()[:14]), flush=True)
    return rows


if __name__ == "__main__":
    main()
