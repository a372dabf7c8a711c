"""``python -m benchmarks.gpu_pool list`` writes the fixed list of candidates; ``python -m benchmarks.gpu_pool [--gpus 1,2,4,8] [--candidates 200]
[--seconds N] [--each N] [--again 8] [--lose 0] [--cluster ADDRESS] [--out DIR]`` gates it on so many GPUs of this machine, with `each` processes a GPU (else
as many as the cores allow when all GPUs work), or on a Ray cluster, and writes ``gpu-pool.jsonl`` and ``gpu-pool.md``: candidates a minute, how busy each
GPU and each core was, where the time went, and how far a kernel's time differs when it is gated again with nothing beside it, on the same GPU, and how far
two such times differ from each other; the runs share the seconds
as they need them, those of a package alike, those repeats and the start of processes apart. ``--lose 3`` ends a worker of the last GPU three times in each
run, as a GPU that fails does.
``python -m benchmarks.gpu_pool package [--calls 6] [--gpus ..] [--seconds N]`` optimizes recorded calls of a package instead, and
``python -m benchmarks.gpu_pool contexts [--gpus ..] [--queues 1,8]`` measures how many processes a minute get a context of a GPU when several ask at
once, which bounds how many candidates can have one of their own; ``page`` makes the page of what is kept. Counts that the machine does not have are left
out, and named."""

from __future__ import annotations

import json
import lzma
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.gpu_parts.session import ROOT
from benchmarks.gpu_workloads.table import RESULTS
from kir.base.dataclass import dataclass
from kir.base.store import write_atomic
from kir.gate.gpu import Gpu
from kir.gate.gpu import machine as gate_machine
from kir.gate.gpu.oracle import sharing
from kir.hardware import machine
from kir.hardware.device import turns
from kir.hardware.device.clocks import load
from kir.learning.optimize.pool import tasks
from kir.learning.optimize.pool.cluster import LOCAL, Cluster
from kir.learning.optimize.pool.devices import chosen
from kir.learning.optimize.pool.engines import Devices, Engine, Lost
from kir.learning.optimize.pool.judge import LIVES
from kir.learning.optimize.pool.tasks import Task
from kir.learning.tune.search import Measured

FILES = {"list": "gpu-pool.jsonl", "package": "gpu-pool-packages.jsonl", "contexts": "gpu-pool-contexts.jsonl"}
"""What a run keeps, by what is run."""
LIST = Path(__file__).parent / "data" / "pool" / "candidates.jsonl.xz"
MOST = 200
FROM = (("gemm", 60), ("softmax", 30), ("rmsnorm", 30), ("layernorm", 30), ("fmha", 20), ("transpose", 20), ("fused_add_rmsnorm", 20), ("addmm", 30))
"""Problems, each at its first timed shape, and how many of a search's own proposals are taken of each until there are enough."""
AGAIN = 8
"""Candidates that are gated again, twice, with nothing beside them."""
START = 90.0
"""Seconds that processes may take to come up."""
PACKAGE = "liger_kernel"
STAGES = {"compiling": ("cpu gate", "compile"), "starting": ("start",), "checking": ("correctness", "replay"), "timing": ("timing",), "its turn": ("turn",),
          "alone": ("alone",)}
"""What the gate's stages are counted as; waiting for a turn is within the others."""
STEP = 0.25
"""Seconds between two looks at the load."""
COLUMNS = ("GPUs", "engine", "workers a GPU", "candidates", "accepted", "seconds", "a minute", "times one GPU", "in the middle", "times one GPU", "GPUs busy",
           "cores busy", "core-seconds a candidate", "a minute with all cores busy",
           "of a worker's time: compiling, starting, checking, timing; of these waiting for its turn", "GPU held for timing",
           "time beside others, of the time alone", "time alone, of it once more", "workers lost", "machine")

PACKAGE_COLUMNS = ("GPUs", "calls", "candidates", "a minute", "faster", "seconds", "searching", "GPUs busy", "cores busy", "machine")


CONTEXT_COLUMNS = ("GPUs", "queues", "at once, a GPU", "processes", "seconds to a context", "seconds to end it", "a minute", "machine")
OPENED, AT_ONCE, QUEUES = 6, (1, 2, 4, 8), (1, 8)
"""Contexts that a process opens one after another, how many processes do on each GPU, and queues of launches of a context: a candidate's, and as usual."""


@dataclass(frozen=True)
class Noted:
    """A task whose worker writes down when it began and ended what, into a folder."""

    task: Task
    folder: str

    @property
    def key(self) -> str:
        return self.task.key


def ready(task: Task) -> dict[str, Any]:
    """What a process needs once: imports, its GPU opened, the servers that it forks others from."""
    gpu = tasks._gpu(task.cache)
    for server in (gpu.executors, gpu.oracles):
        server.child().close()
    return {}


def judged(one: Noted) -> dict[str, Any]:
    """The gate's word, noted."""
    begun, said = time.time(), dict[str, Any]()
    try:
        said = tasks.judged(one.task)
        return said
    finally:
        line = json.dumps({"gpu": os.environ.get("CUDA_VISIBLE_DEVICES", ""), "key": one.key, "begun": begun, "ended": time.time(),
                           "spent": said.get("spent", {})})
        with (Path(one.folder) / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as out:
            out.write(line + "\n")


def opened(task: tuple[str, int, int, int]) -> dict[str, Any]:
    """Processes with a context, opened and ended one after another: seconds of each. `task` has the cache's folder, a number of its own, how many, and of
    how many queues."""
    folder, number, count, queues = task
    gate_machine.CONNECTIONS.update(dict.fromkeys(gate_machine.CONNECTIONS, str(queues)))
    turns.DOORS = number + 1  # none waits for another's
    gpu, seconds = tasks._gpu(folder), dict[str, list[float]](opening=[], ending=[])
    for _ in range(count):
        begun = time.perf_counter()
        child, _ = gpu.opened(number)
        up = time.perf_counter()
        child.close()
        seconds["opening"].append(up - begun)
        seconds["ending"].append(time.perf_counter() - up)
    return seconds


def contexts(numbers: tuple[int, ...], each: int, cache: str, queues: int) -> dict[str, Any]:
    """A row of how fast contexts of so many queues are opened by `each` processes on each of some GPUs at once."""
    engine = Devices(numbers, each)
    try:
        for warm in [engine.begin(opened, (cache, 0, 1, queues)) for _ in range(len(numbers) * each)]:
            engine.result(warm, START)
        begun = time.perf_counter()
        said = [engine.result(one, START) for one in [engine.begin(opened, (cache, k, OPENED, queues)) for k in range(len(numbers) * each)]]
        took = time.perf_counter() - begun
    finally:
        engine.close()
    opening, ending = (statistics.median(x for r in said for x in r[name]) for name in ("opening", "ending"))
    return {"gpus": len(numbers), "each": each, "queues": queues, "processes": len(said) * OPENED, "opening": round(opening, 3), "ending": round(ending, 3),
            "seconds": round(took, 2), **_here()}


class Watch:
    """Looks at the load of GPUs and cores until it is ended."""

    def __init__(self, gpus: tuple[int, ...]) -> None:
        self.gpus, self.busy, self._over = gpus, {n: [0] for n in gpus}, threading.Event()
        self._cores = _jiffies()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(STEP):
            for n in self.gpus:
                self.busy[n].append(int(load(n).get("busy", 0)))

    def end(self) -> tuple[list[float], float]:
        """Percent that each GPU was busy, and all cores together."""
        self._over.set()
        self._thread.join()
        (idle, total), (idle_then, total_then) = _jiffies(), self._cores
        return [statistics.mean(x) for x in self.busy.values()], 100.0 * (1 - (idle - idle_then) / max(1, total - total_then))


def _cores() -> set[int]:
    """The cores that this process may use."""
    return os.sched_getaffinity(0)


def _jiffies() -> tuple[int, int]:
    """How long those cores were idle, and how long in all."""
    lines = (line.split() for line in Path("/proc/stat").read_text(encoding="ascii").splitlines())
    rows = [[int(x) for x in fields] for name, *fields in lines if name in {f"cpu{k}" for k in _cores()}]
    return sum(r[3] + r[4] for r in rows), sum(map(sum, rows))


def listed() -> list[Task]:
    """The fixed list."""
    rows = lzma.decompress(LIST.read_bytes()).decode().splitlines()
    return [Task(r["text"], r["surface"], r["problem"], (r["shape"], tuple(r["sizes"].items())), "h200", True, "", "gpu") for r in map(json.loads, rows)]


def make_list() -> int:
    """Write the list: what a search would gate first, of several problems on any surface, without what a model of the time says of it."""
    from kir.hardware.target import target
    from kir.ir.printer import program_text
    from kir.learning.optimize.judge import CpuJudge
    from kir.learning.optimize.plan import Setting
    from kir.learning.optimize.search import Budget, Search
    from kir.problem import load_problem

    rows: list[dict[str, Any]] = []
    for name, most in FROM:
        problem = load_problem(name)
        shape = problem.tagged("timed")[0]
        setting = Setting(problem, shape, target("h200"), "")
        for one in Search(problem.naive, setting, CpuJudge(setting), budget=Budget(seconds=1e6)).proposals(most)[:MOST - len(rows)]:
            rows.append({"problem": name, "shape": shape.name, "sizes": dict(shape.sizes), "surface": one.surface, "text": program_text(one.program)})
        print(name, len(rows), flush=True)
    random.Random(0).shuffle(rows)  # a run that is cut short has met all problems
    LIST.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(LIST, lzma.compress("".join(json.dumps(r) + "\n" for r in rows).encode(), preset=9))
    return 0


def gated(candidates: list[Task], numbers: tuple[int, ...], each: int, cache: Path, seconds: float, cluster: str = "", lose: int = 0, again: int = AGAIN,
          keep: Callable[[dict[str, Any]], None] = lambda row: None) -> dict[str, Any]:
    """One run of so many seconds, from when all processes are up, with a cache that holds no candidate: what came of it and where its time went. `lose`
    workers of the last GPU are ended, one after another; `again` candidates are gated again afterwards with nothing beside them: `keep` is given what is
    known before that."""
    entered = time.time()
    for number in numbers if not cluster else ():
        with Gpu.open(cache, number) as gpu:
            gpu.peaks  # noqa: B018  # measured, and the gate's own kernels made, before the clock runs
    with tempfile.TemporaryDirectory(prefix="kir-pool-") as notes, sharing() as shared:
        own = {"cache": str(cache), "shared": None if cluster not in ("", LOCAL) else (shared.secret, str(shared.answers.folder))}
        sent = [Noted(Task(**{**{k: getattr(t, k) for k in Task.__dataclass_fields__}, **own}), notes) for t in candidates]
        engine: Engine = Cluster(cluster, gpus=1.0 / each, devices=len(numbers)) if cluster else Devices(numbers, each)
        _say(entered, f"{len(numbers)} GPUs, {each} processes each are started")
        limit = time.monotonic() + START
        for up in [engine.begin(ready, one.task) for one in sent[:len(numbers) * each]]:
            try:
                engine.result(up, max(1.0, limit - time.monotonic()))
            except Exception as gone:  # the first candidate will meet it too
                _say(entered, f"a process did not come up: {type(gone).__name__}: {gone}")
        _say(entered, "the processes are up, the clock begins")
        watch, started, until = Watch(numbers), time.time(), time.monotonic() + seconds
        waiting = deque((one, engine.begin(judged, one), 0) for one in sent)
        killer = threading.Thread(target=_lose, args=(engine, numbers[-1], lose), daemon=True)
        killer.start()
        said, lost = [], 0
        while waiting and time.monotonic() < until:
            place = next((k for k, (_, begun, _) in enumerate(waiting) if engine.done(begun)), None)
            if place is None:
                time.sleep(STEP / 10)
                continue
            one, begun, ends = waiting[place]
            del waiting[place]
            try:
                said.append((one, Measured.from_json(engine.result(begun, 1.0))))
            except Lost:
                lost += 1
                if ends < LIVES:
                    waiting.append((one, engine.begin(judged, one), ends + 1))
            except Exception as gone:  # what one candidate does to its worker ends no run
                _say(entered, f"{type(gone).__name__}: {gone}")
        took = time.time() - started
        _say(entered, f"{len(said)} candidates in {took:.0f} s")
        busy, cores = watch.end()
        events = [json.loads(line) for file in Path(notes).iterdir() for line in file.read_text(encoding="utf-8").splitlines()]
        if isinstance(engine, Devices):
            engine.close()  # what nobody waits for any more is beside nothing that follows
        whole = [e for e in events if e["ended"] <= started + took]
        spent = {name: sum(e["spent"].get(stage, 0.0) for e in whole for stage in of) / (took * len(numbers) * each) for name, of in STAGES.items()}
        stages = {stage: round(sum(e["spent"].get(stage, 0.0) for e in whole), 1) for stage in sorted({k for e in whole for k in e["spent"]})}
        row: dict[str, Any] = {"gpus": len(numbers), "engine": "Ray" if cluster else "processes", "each": each, "candidates": len(said),
                               "accepted": sum(m.accepted for _, m in said), "seconds": round(took, 1),
                               "gpus_busy": [round(b, 1) for b in busy], "cores_busy": round(cores, 1),
                               "spent": {k: round(v, 4) for k, v in spent.items()},
                               "stages": stages, "steady": round(steady([e["ended"] for e in whole]), 1),
                               "beside": [], "repeated": [], "beyond": round(time.time() - entered - took, 1), "lost": lost, "ended": lose, "shared": True,
                               "retired": {str(k): v for k, v in engine.retired.items()} if isinstance(engine, Devices) else {},
                               **_here()}
        keep(row)
        if again and not lose and isinstance(engine, Devices):
            alone = list(_again(numbers, said, {e["key"]: e["gpu"] for e in whole}, again))
            row["beside"], row["repeated"] = [beside for beside, _ in alone], [twice for _, twice in alone]
            _say(entered, f"{len(row['beside'])} of them twice more, alone")
        engine.close()
    return {**row, "beyond": round(time.time() - entered - took, 1)}


def steady(ends: Sequence[float]) -> float:
    """Candidates a minute between the first fifth and the last, without how a run starts and how it runs dry; 0 for too few."""
    ordered = sorted(ends)
    cut = len(ordered) // 5
    middle = ordered[cut:len(ordered) - cut]
    return 60.0 * (len(middle) - 1) / (middle[-1] - middle[0]) if len(middle) > 2 and middle[-1] > middle[0] else 0.0


def _say(since: float, what: str) -> None:
    """How far a run is, for whoever waits."""
    print(f"{time.time() - since:5.0f} s: {what}"[:200], file=sys.stderr, flush=True)


def _lose(engine: Engine, number: int, times: int) -> None:
    """End the process of a GPU so often, each once it has work."""
    ended: set[int] = set()
    while len(ended) < times and isinstance(engine, Devices) and number not in engine.retired:
        time.sleep(STEP)
        busy = [engine._pools[place] for place in list(engine._running) if place[0] == number and place in engine._pools]
        for process in [p for pool in busy[:1] for p in (pool._processes or {}).values()]:
            if process.pid not in ended:
                ended.add(process.pid or 0)
                time.sleep(1.0)  # it is at work by then
                process.kill()


def _again(numbers: tuple[int, ...], said: Sequence[tuple[Noted, Measured]], where: Mapping[str, str], count: int) -> Iterator[tuple[float, float]]:
    """The time of some candidates in the run, of their time alone on the same GPU; and that of a second time alone."""
    alone = {str(n): Devices((n,), 1) for n in numbers}
    accepted = [(one, m) for one, m in said if m.accepted and where.get(one.key) in alone]
    chosen = accepted[:: max(1, len(accepted) // count)][:count]
    try:
        for engine, up in [(engine, engine.begin(ready, chosen[0][0].task)) for engine in alone.values() if chosen]:
            engine.result(up, START)
        for one, before in chosen:
            engine = alone[where[one.key]]
            with suppress(TimeoutError, Lost):
                first, second = (Measured.from_json(engine.result(engine.begin(judged, one), 60.0)) for _ in range(2))
                if first.accepted and second.accepted:
                    yield round(before.seconds / first.seconds, 4), round(first.seconds / second.seconds, 4)
    finally:
        for engine in alone.values():
            engine.close()


def package_run(calls: int, numbers: tuple[int, ...], seconds: float) -> dict[str, Any]:
    """The first recorded calls of a package, optimized under a budget of seconds on so many GPUs, by the command that a user calls."""
    with tempfile.TemporaryDirectory(prefix="kir-pool-package-") as scratch:
        folder = Path(scratch)
        rows = (ROOT / "skills" / "packages" / f"{PACKAGE}.jsonl").read_text(encoding="utf-8").splitlines()
        (folder / "calls.jsonl").write_text("\n".join(rows[:calls]) + "\n", encoding="utf-8")
        watch, begun = Watch(numbers), time.time()
        done = subprocess.run(
            [sys.executable, "-c", "from kir.faces.cli import main; main()", "optimize", str(folder / "calls.jsonl"), "--package", PACKAGE, "--on", "gpu",
             "--gpus", ",".join(map(str, numbers)), "--budget", f"candidates=100000,seconds={seconds:g}", "-o", str(folder / "out"),
             "--cache", str(folder / "cache")],
            capture_output=True, text=True, check=False)
        took = time.time() - begun
        busy, cores = watch.end()
        report = folder / "out" / "report.json"
        if not report.is_file():
            raise RuntimeError(f"kir optimize ended with {done.returncode}: {done.stderr[-500:]}")
        kernels = json.loads(report.read_text(encoding="utf-8"))["kernels"]
    return {"package": PACKAGE, "gpus": len(numbers), "calls": len(kernels), "candidates": sum(len(r["tried"]) for r in kernels),
            "faster": sum(bool(r["program"]) for r in kernels), "seconds": round(took, 1), "searching": round(sum(r["took"] for r in kernels), 1),
            "gpus_busy": [round(b, 1) for b in busy], "cores_busy": round(cores, 1), **_here()}


def _here() -> dict[str, str]:
    found = machine.gpus()
    return {"machine": f"{len(found)} x {found[0].name}, {len(_cores())} cores", "when": time.strftime("%Y-%m-%d %H:%M", time.gmtime())}


def page(rows: Sequence[Mapping[str, Any]], packages: Sequence[Mapping[str, Any]], absent: Sequence[int],
         opening: Sequence[Mapping[str, Any]] = ()) -> str:
    """The table of what is kept."""
    lines = ["# Gating on the GPUs of one host", "",
             f"Made by `python -m benchmarks.gpu_pool`: the candidates of a fixed list of {MOST} (eight problems, three surfaces) gated by a pool of local",
             "processes, several for each GPU, which were up when the clock began, with an empty cache; where a row has fewer, its time was over.",
             "They compile and compare side by side and",
             "take turns on their GPU: what is timed has it alone. *In the middle* are candidates a minute without the first fifth and the last, in which",
             "a run loads compilers and runs dry; rows that lack it are of a pool whose workers each loaded compilers of their own, and opened a context for",
             "each candidate. *GPUs busy* is the driver's count of the time in which a kernel ran. *Starting* is waiting",
             "for processes with a context, *checking* all calls that are not timed, and the oracle, which is asked once for each problem and its inputs.",
             "What lacks of a worker's time to the whole is what was cut off, and idle ends. *A minute with all cores busy*: where cores bind, however many",
             "GPUs there are; most of a candidate's core-seconds are its compiler's. *Time beside others*: the median over some of the candidates, and",
             "the ends, of what the run measured by what the same GPU gives when nothing else works on the host; beside it how far two such times differ.", ""]
    if absent:
        lines += [f"Not run, for want of a machine with as many: {', '.join(map(str, absent))} GPUs.", ""]
    lines += ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    single = {_key(r)[1:]: r for r in rows if r["gpus"] == 1}
    for r in sorted(rows, key=lambda r: (r["machine"], *_key(r))):
        rate, one = 60 * r["candidates"] / r["seconds"], single.get(_key(r)[1:])
        times = f"{rate / (60 * one['candidates'] / one['seconds']):.2f}" if one else ""
        middle, first = r.get("steady", 0.0), (one or {}).get("steady", 0.0)
        beside, repeated = (f"{statistics.median(x):.3f} ({min(x):.3f} to {max(x):.3f})" if x else "" for x in (r["beside"], r.get("repeated", [])))
        busy = ", ".join(f"{b:.0f} %" for b in r["gpus_busy"])
        left = f"; GPU {', '.join(r['retired'])} left" if r["retired"] else ""
        lost = f"{r['lost']} with a candidate, {r['ended']} ended by hand{left}" if r["lost"] else "0"
        share = [f"{r['spent'].get(name, 0.0):.0%}" for name in STAGES]
        cores = int(r["machine"].split()[-2])
        each = r["seconds"] * cores * r["cores_busy"] / 100 / r["candidates"]
        engine = "Ray, each worker with compilers of its own" if r["engine"] == "Ray" and not r.get("shared") else r["engine"]
        cells = (r["gpus"], engine, r["each"], r["candidates"], r["accepted"], r["seconds"], f"{rate:.1f}", times,
                 f"{middle:.1f}" if middle else "", f"{middle / first:.2f}" if middle and first else "", busy,
                 f"{r['cores_busy']:.0f} %", f"{each:.1f}", f"{60 * cores / each:.0f}", f"{', '.join(share[:4])}; {share[4]}",
                 f"{r['each'] * r['spent']['alone']:.0%}" if "alone" in r["spent"] else "", beside, repeated, lost, f"{r['machine']}, {r['when']}")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    if packages:
        lines += ["", "## A package", "",
                  f"Made by `python -m benchmarks.gpu_pool package`: recorded calls of `{PACKAGE}`, searched side by side by `kir optimize --package`",
                  "under a budget of seconds. *Seconds* are of a clock, and hold reading and ranking the calls; *searching* is the sum over all searches.", "",
                  "| " + " | ".join(PACKAGE_COLUMNS) + " |", "|" + " --- |" * len(PACKAGE_COLUMNS)]
        for r in sorted(packages, key=lambda r: (r["machine"], r["gpus"])):
            row = (r["gpus"], r["calls"], r["candidates"], f"{60 * r['candidates'] / r['seconds']:.1f}", r["faster"], r["seconds"], r["searching"],
                     ", ".join(f"{b:.0f} %" for b in r["gpus_busy"]), f"{r['cores_busy']:.0f} %", f"{r['machine']}, {r['when']}")
            lines.append("| " + " | ".join(map(str, row)) + " |")
    if opening:
        lines += ["", "## Contexts", "",
                  "Made by `python -m benchmarks.gpu_pool contexts`: processes that get a context of a GPU and end, several at once. Each candidate of a whole",
                  "gate has one of its own, and none is opened while another candidate is timed on its GPU. However many ask, on however many GPUs, a host",
                  "opens no more than so many a minute. *Queues* of launches: eight are the driver's choice, one is what the process of a candidate asks",
                  "for.", "",
                  "| " + " | ".join(CONTEXT_COLUMNS) + " |", "|" + " --- |" * len(CONTEXT_COLUMNS)]
        lines += [f"| {r['gpus']} | {r.get('queues', 8)} | {r['each']} | {r['processes']} | {r['opening']:.3f} | {r['ending']:.3f} | {_a_minute(r):.0f} | "
                  f"{r['machine']}, {r['when']} |" for r in sorted(opening, key=lambda r: (r["gpus"], r.get("queues", 8), r["each"]))]
    return "\n".join(lines) + "\n"


def _a_minute(row: Mapping[str, Any]) -> float:
    return 60.0 * float(row["processes"]) / float(row["seconds"])


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["gpus"], row["engine"], row["each"], bool(row["ended"]), row["machine"]


def kept(file: Path) -> list[dict[str, Any]]:
    """The rows of a file, none where there is none."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def _write(out: Path, counts: Sequence[int]) -> int:
    """The page of the rows in a folder."""
    rows = {which: kept(out / name) for which, name in FILES.items()}
    done = {r["gpus"] for r in rows["list"]}
    write_atomic(out / "gpu-pool.md", page(rows["list"], rows["package"], [n for n in counts if n not in done], rows["contexts"]))
    return 0


def main(words: list[str]) -> int:
    """0, or 2 for words that are none."""
    if words == ["list"]:
        return make_list()
    if words == ["page"]:
        return _write(RESULTS, [1, 2, 4, 8])
    part, words = (words[0], words[1:]) if words[:1] in (["package"], ["contexts"]) else ("list", words)
    given = {"--gpus": "1,2,4,8", "--candidates": str(MOST), "--seconds": "3600", "--cluster": "", "--out": str(RESULTS), "--each": "0", "--again": str(AGAIN),
             "--lose": "0",
             "--calls": "6", "--queues": ",".join(map(str, QUEUES))}
    while len(words) > 1 and words[0] in given:
        option, value, *words = words
        given[option] = value
    if words:
        print(f"no word {words[0]}; there are list, package, contexts, page, {', '.join(given)}", file=sys.stderr)
        return 2
    out, there = Path(given["--out"]), chosen(machine.gpus()).numbers
    counts = [int(n) for n in given["--gpus"].split(",")]
    files = {which: out / name for which, name in FILES.items()}
    rows = {which: kept(file) for which, file in files.items()}
    runs = [count for count in counts if count <= len(there)]
    each = int(given["--each"]) or max(1, len(_cores()) // max(1, len(there)) - 1)
    until = time.monotonic() + float(given["--seconds"])

    def keep(row: dict[str, Any]) -> None:
        keys: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "list": _key, "package": lambda r: (r["gpus"], r["calls"], r["machine"]),
            "contexts": lambda r: (r["gpus"], r.get("queues", 8), r["each"])}
        key = keys[part]
        rows[part] = [r for r in rows[part] if key(r) != key(row)] + [row]
        write_atomic(files[part], "".join(json.dumps(r) + "\n" for r in rows[part]))
        _write(out, counts)
    for place, count in enumerate(runs):
        share = (until - time.monotonic()) / (len(runs) - place if part == "package" else count * sum(1 / n for n in runs[place:]))
        if part == "contexts":
            with tempfile.TemporaryDirectory(prefix="kir-pool-cache-") as folder:
                for at_once, queues in product(AT_ONCE, map(int, given["--queues"].split(","))):
                    row = contexts(there[:count], at_once, folder, queues)
                    keep(row)
                    print(json.dumps(row), flush=True)
            continue
        if part == "package":
            row = package_run(int(given["--calls"]), there[:count], share)
        else:
            cache = Path(tempfile.mkdtemp(prefix="kir-pool-cache-"))
            row = gated(listed()[:int(given["--candidates"])], there[:count], each, cache, share, given["--cluster"], int(given["--lose"]),
                        int(given["--again"]), keep)
            until += row["beyond"]
            shutil.rmtree(cache, ignore_errors=True)
        keep(row)
        print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
