"""Top-k of rows in f32, beside torch and FlashInfer. Every way is one replay of a CUDA graph, so that none pays for being called from Python."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.gpu_workloads.launching import launcher
from benchmarks.gpu_workloads.measuring import Case

from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.lineage.carrier import Contract, fill
from kir.lineage.carrier.recognition import known
from kir.problem import load_problem
from kir.problem.schema import evaluate
from kir.rewrite import run

ROWS, SHORT = "rows(threads=512, items=8, room=4096)", "rows(threads=128, items=8, room=1024, bits=8)"
CLUSTERS, CHUNKS = "clusters(ctas=2, threads=1024, items=8, room=4096)", "chunks(threads=1024, items=8, blocks=1)"
SHAPES = ((64, 4096, 512, ROWS), (64, 131072, 256, CLUSTERS), (1, 1 << 20, 2048, CHUNKS), (1024, 1024, 8, SHORT),
          (64, 2048, 512, ROWS), (64, 8192, 512, ROWS), (64, 65536, 256, CLUSTERS), (64, 262144, 256, CLUSTERS),
          (1, 1 << 19, 2048, CHUNKS), (1, 1 << 21, 2048, CHUNKS), (1024, 512, 8, SHORT), (1024, 2048, 8, SHORT))
"""R, N, K, and the answer to the contract of radix select that is put there: the four shapes that count, then half and twice as long rows with
the same parameters."""


def cases() -> Iterator[Case]:
    """Each shape with normal inputs."""
    for r, length, k, answer in SHAPES:
        yield _case(r, length, k, answer)


def expert(answer: str) -> n.Program:
    """The naive program with an answer in the place of its one kernel: what `radix-select{answer=..}` makes of it. That it meets the contract is
    held by the gate's record and by tests."""
    contract = Contract.shipped("radix_select")
    return fill(contract, run(load_problem("topk").naive, "radix-select").program, ("main", 0), known(contract, answer, "f32").program, verified=False)


def _case(r: int, length: int, k: int, answer: str) -> Case:
    import torch

    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(r, length, device="cuda", generator=generator)
    want = torch.topk(x, k).values
    ways: dict[str, Callable[[], Any]] = {"torch": lambda: torch.topk(x, k), "torch, unsorted": lambda: torch.topk(x, k, sorted=False)}
    missing: dict[str, str] = {}
    try:
        flashinfer = importlib.import_module("flashinfer")
        flashinfer.top_k(x, k)
        ways["FlashInfer"] = lambda: flashinfer.top_k(x, k)
    except Exception as broken:  # not installed, or it does not compile here
        missing["FlashInfer"] = type(broken).__name__
    try:
        ways[answer] = _ours(expert(answer), x, k)
    except KirError as refused:
        missing[answer] = str(refused).splitlines()[0]

    def wrong(out: Any) -> str:
        values, places = out
        if not torch.equal(torch.sort(values, descending=True).values, want):
            return "other values than torch's"
        place = torch.sort(places.long()).values
        fine = torch.equal(torch.gather(x, 1, places.long()), values) and bool((place[:, 1:] != place[:, :-1]).all())
        return "" if fine else "places that do not hold the values, or twice the same"

    return Case("top-k", f"{r} x {length} k{k} f32", {name: _graph(way) for name, way in ways.items()}, (answer,), wrong, 0.0, missing)


def _ours(program: n.Program, x: Any, k: int) -> Callable[[], Any]:
    """A call that gives values [R, K] and places [R, K]."""
    import torch

    kinds = {"f32": torch.float32, "i32": torch.int32, "u32": torch.int32}
    sizes = {"R": x.shape[0], "N": x.shape[1], "K": k}
    values, places = (torch.empty(x.shape[0], k, device="cuda", dtype=kind) for kind in (torch.float32, torch.int32))
    work = {w.buffer.name: torch.empty([evaluate(str_of(d), sizes) for d in w.buffer.shape], device="cuda", dtype=kinds[w.buffer.dtype.name])
            for w in program.workspaces}
    call = launcher(program, {"X": x, "V": values, "I": places, **work}, sizes)
    return lambda: (call(), (values, places))[1]


def str_of(extent: n.Expr) -> str:
    """An extent as its text, which names sizes."""
    from kir.ir.printer import expr_text

    return expr_text(extent)


def _graph(way: Callable[[], Any]) -> Callable[[], Any]:
    """A call that replays what a way launches. Compiles and allocates first."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        way()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = way()
    return lambda: (graph.replay(), out)[1]
