"""What a recorded filling adds to a pass, and how many fills against a local server keep up with it."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from benchmarks.measure import Figure, best
from kir.ir.parser import parse_program
from kir.lineage.carrier import Contract, fill_recorded, holes
from kir.lineage.carrier.answer import Answer
from kir.lineage.carrier.providers.budget import Meter
from kir.lineage.carrier.providers.chat import Chat
from kir.lineage.carrier.providers.settings import Settings
from kir.lineage.carrier.records import save
from kir.lineage.carrier.sessions.parallel import Job, run_many
from kir.rewrite import run

TESTS = Path(__file__).parents[2] / "tests" / "kir" / "lineage" / "carrier"
LATENCY = 10.0
"""Seconds that the local server takes for a reply: what a small model takes for a kernel."""
FILLS = 200


def figures() -> Iterator[Figure]:
    """The two figures that carriers are held to."""
    from tests.kir.lineage.carrier.asking import HOST, RIGHT, SERIAL, WRONG
    from tests.kir.lineage.carrier.server import Says, loopback

    with tempfile.TemporaryDirectory() as folder:
        for name in ("contract.toml", "reference.py"):
            (Path(folder) / name).write_text((TESTS / "toy" / name).read_text())
        contract = Contract(Path(folder))
        save(contract, "serial", Answer(SERIAL), who="benchmark", provider="person", gate={}, folder=Path(folder))
        program = parse_program(HOST)
        ((path, _),) = holes(program)
        start = time.perf_counter()
        fill_recorded(contract, program, path, "serial")
        cold = time.perf_counter() - start
        seconds, _ = best(lambda: fill_recorded(contract, program, path, "serial"), runs=9)
        yield Figure("a hole filled from a recording", seconds * 1e3, "ms", 50, note=f"{cold * 1e3:.0f} ms the first time in a process")

        source = parse_program((Path(str(resources.files("kir.skills"))) / "problems" / "topk" / "naive.kir").read_text())
        bare, _ = best(lambda: run(source, "radix-select@main"), runs=5)
        whole, _ = best(lambda: run(source, "radix-select{answer=histogram}@main"), runs=5)
        yield Figure("`radix-select` with a recorded answer, over leaving the hole", (whole - bare) * 1e3, "ms", 50,
                     note=f"with all checks of the pass; the hole alone takes {bare * 1e3:.0f} ms")

        with loopback(lambda number, body: Says(RIGHT if number % 2 else WRONG, delay=LATENCY)) as server:
            settings = Settings.model_validate({"openai": {"model": "m", "endpoint": f"{server.url}/v1", "price": {"input": 0, "output": 0}}})
            chat = Chat.of(settings, "openai")
            start = time.perf_counter()
            outcomes = run_many([Job(contract, program, path)] * FILLS, chat, Meter("run"), turns=0, workers=FILLS)
            took = time.perf_counter() - start
        filled = sum(o.program is not None for o in outcomes)
        note = f"{len(server.requests)} requests at once, {filled} accepted, the others refused; the server takes {LATENCY:g} s"
        yield Figure(f"{FILLS} parallel fills, in times of the server's latency", took / LATENCY, "x", 1.5, note=note)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        yield Figure(f"{FILLS} parallel fills, memory of the process", peak, "MiB", 2048, note="server included")
