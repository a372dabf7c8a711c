"""The K largest of each row, beside torch.topk and FlashInfer's top-k: all timed as graphs, on tensors that L2 holds and on such that it does not.

Each of KIR's answers that may suit a shape is timed; the fastest of a shape is the row, on each surface. A row's text says what its values are: where
they are not normal, only the result matters.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from benchmarks.gpu_workloads.running.asking import KNOWN, ask_words, asked, worth
from benchmarks.gpu_workloads.running.launching import compiled, compiled_for, launcher
from benchmarks.gpu_workloads.running.measuring import Case, begun, fastest
from benchmarks.gpu_workloads.running.replaying import HOT_CALLS, Made, copies, kept, replayed
from kir.base.diagnostic import KirError
from kir.gate.gpu.images.executable import Executable
from kir.hardware.device.libcuda import CudaError
from kir.hardware.target import target
from kir.ir.nodes import Program
from kir.learning.tune.rank import promised
from kir.problem import load_problem
from kir.rewrite import Context, run

ANSWERS = {
    "rows": (
        "rows(threads=1024, items=4, room=4096, bits=11)",
        "rows(threads=512, items=4, room=1024, bits=11)",
        "rows(threads=256, items=4, room=1024, bits=8)",
        "rows(threads=128, items=8, room=1024, bits=8)",
        "rows(threads=512, items=8, room=4096, bits=10)",
    ),
    "clusters": (
        "clusters(ctas=2, threads=1024, items=8, room=4096, bits=11)",
        "clusters(ctas=4, threads=512, items=8, room=4096, bits=11)",
        "clusters(ctas=2, threads=512, items=8, room=4096, bits=11)",
        "clusters(ctas=8, threads=512, items=8, room=4096, bits=11)",
    ),
    "chunks": (
        "chunks(threads=512, items=8, blocks=2, bits=11)",
        "chunks(threads=1024, items=4, blocks=1, bits=11)",
        "chunks(threads=512, items=4, blocks=1, bits=11)",
    ),
}
"""The answers of radix select that are tried, by their family."""
TILELANG: dict[str, dict[int, tuple[str, ...]]] = {
    "rows": {
        1024: ("rows(threads=128, items=8, room=1024, bits=8)",),
        1 << 30: ("rows(threads=1024, items=4, room=4096, bits=11)",),
    },
    "chunks": {1 << 30: (
        "chunks(threads=512, items=8, blocks=2, bits=11)",
        "chunks(threads=1024, items=4, blocks=1, bits=11)",
        "chunks(threads=512, items=4, blocks=4, bits=11)",
        "chunks(threads=512, items=16, blocks=1, bits=11)",
    )},
}
"""Those of them that TileLang is given, by their family and the longest row that they are tried on."""
TRITON: dict[str, dict[int, tuple[str, ...]]] = {
    "tiles": {
        256: ("tiles(tile=256, threads=32)", "parts(tile=256, threads=32)", "spread(tile=256, threads=32)", "spread(tile=256, threads=64)",
               "alone(tile=256, threads=32)", "alone(tile=256, threads=64)"),
        1024: ("tiles(tile=1024, threads=128)", "tiles(tile=1024, threads=256)", "parts(tile=1024, threads=128)", "parts(tile=1024, threads=64)",
               "spread(tile=1024, threads=128)", "spread(tile=1024, threads=64)",
               "alone(tile=1024, threads=128)", "alone(tile=1024, threads=64)"),
        4096: ("tiles(tile=4096, threads=256)", "tiles(tile=4096, threads=512)", "tiles(tile=4096, threads=128)",
               "parts(tile=4096, threads=256)", "parts(tile=4096, threads=512)", "spread(tile=4096, threads=256)", "spread(tile=4096, threads=512)",
               "alone(tile=4096, threads=256)", "alone(tile=4096, threads=512)"),
        8192: ("tiles(tile=8192, threads=512)", "tiles(tile=8192, threads=256)", "sieve(tile=8192, room=4096, threads=512, groups=128, each=64)",
               "parts(tile=8192, threads=512)", "parts(tile=8192, threads=256)", "spread(tile=8192, threads=512)",
               "alone(tile=8192, threads=512)"),
    },
    "sieve": {
        32768: (
            "sieve(tile=1024, room=256, threads=128, groups=128, each=32)",
            "sieve(tile=2048, room=256, threads=256, groups=128, each=16)",
            "sieve(tile=1024, room=256, threads=128, groups=64, each=32)",
            "sieve(tile=1024, room=512, threads=256, groups=128, each=32)",
            "sieve(tile=4096, room=256, threads=256, groups=128, each=8)",
        ),
        131072: (
            "sieve(tile=2048, room=512, threads=256, groups=128, each=64)",
            "sieve(tile=4096, room=512, threads=256, groups=128, each=32)",
            "sieve(tile=2048, room=512, threads=128, groups=128, each=32)",
            "sieve(tile=4096, room=512, threads=512, groups=128, each=32)",
        ),
        1 << 30: (
            "sieve(tile=4096, room=256, threads=256, groups=128, each=64)",
            "sieve(tile=16384, room=4096, threads=512, groups=128, each=64)",
        ),
    },
}
"""Answers on whole tiles, by their family and the longest row that they are tried on."""
ALIGN = 16
"""Bytes that tensors are aligned to: whole vectors of a tile are loaded where rows are as long."""
ALONE = "alone"
"""The answer that is faster without: its threads take single elements."""
PLAIN = {"tilelang": "histogram", "triton": "bits"}
"""What the pipelines `topk_tilelang` and `topk_triton` answer, which have nothing to choose; tried on every row."""
SHAPES: tuple[tuple[int, int, int, tuple[str, ...]], ...] = (
    (64, 4096, 512, ("rows", "clusters", "tiles")),
    (1024, 1024, 8, ("rows", "tiles")),
    (64, 131072, 256, ("clusters", "chunks", "sieve")),
    (1, 1048576, 2048, ("chunks", "sieve")),
    (128, 32768, 64, ("rows", "clusters", "sieve")),
    (512, 8192, 2048, ("rows", "tiles")),
    (8, 151936, 50, ("clusters", "chunks", "sieve")),
    (4096, 256, 8, ("rows", "tiles")),
    (64, 4096, 1, ("rows", "tiles")),
    (64, 4096, 4096, ("rows", "tiles")),
    (33, 1000, 333, ("rows", "tiles")),
)
"""Rows, their length, K, and the families that are tried."""
VALUES = ("normal", "a few values", "infinities", "NaN")
"""What rows hold; all but the first at the first shape alone."""


def cases() -> Iterator[Case]:
    """Each shape hot and cold, then the values that are not normal."""
    made = prepared()
    for r, n, k, families in asked(SHAPES, shape_name):
        yield from _cases(r, n, k, "normal", families, made)
    for values in VALUES[1:] if asked(SHAPES[:1], shape_name) else ():
        yield from _cases(*SHAPES[0][:3], values, SHAPES[0][3], made)


def prepared() -> dict[Key, Made]:
    """All answers, compiled."""
    every = [key(surface, answer, shape[:3]) for shape in asked(SHAPES, shape_name) for surface, answer in answers(shape[1], shape[3])]
    return kept("topk", sorted(dict.fromkeys(every), key=lambda k: (k[0] != "tilelang", k)), program, executable)  # TileLang's compiler is the slowest


Key = tuple[str, str, tuple[int, ...]]
"""A surface, an answer, and the sizes that it is compiled for: none for CUDA, where no launcher takes them."""


def answers(n: int, families: tuple[str, ...]) -> list[tuple[str, str]]:
    """The answers that are tried on rows so long, each with its surface."""
    found = [("cuda", a) for family in families for a in ANSWERS.get(family, ())]
    for surface, by_length in (("tilelang", TILELANG), ("triton", TRITON)):
        for family in families:
            longest = [m for m in by_length.get(family, {}) if m >= n]
            found += [(surface, a) for a in by_length[family][min(longest)]] if longest else []
    return [(surface, a) for surface, a in (*found, *PLAIN.items()) if worth("topk", title(surface, a)) and not (KNOWN and a in PLAIN.values())]


def shape_name(shape: tuple[int, int, int, tuple[str, ...]]) -> str:
    """What a row calls a shape."""
    return f"{shape[0]} x {shape[1]} k {shape[2]}"


def title(surface: str, answer: str) -> str:
    """What a row calls an answer."""
    return answer if surface == "cuda" else f"topk_{surface}" if answer == PLAIN[surface] else f"{answer}, {surface}"


def key(surface: str, answer: str, sizes: tuple[int, int, int]) -> Key:
    """What an answer at some sizes is kept by."""
    return surface, answer, () if surface == "cuda" else sizes


def program(of: Key) -> Program:
    """The naive program with that answer of radix select in its place; for TileLang with the barriers of its own alone."""
    posed = promised(load_problem("topk").naive, (), 0 if of[1].startswith(ALONE) else ALIGN)
    made = run(posed, f'radix-select{{answer="{of[1]}"}}@main', Context(target("sm_90a")))
    steps = "; ".join(f'surface-option{{option=tl_disable_thread_storage_sync value="true"}}@{k.name}' for k in made.program.kernels)
    return run(made.program, steps, Context(target("sm_90a"))).program if of[0] == "tilelang" and of[1] != PLAIN["tilelang"] else made.program


def executable(of: Key, program: Program) -> Executable:
    """What it is compiled to. Raises KirError."""
    if not of[2]:
        return compiled(program, of[0])
    r, n, k = of[2]
    return compiled_for(program, of[0], {"R": r, "N": n, "K": k}, {"X": (r, n), "V": (r, k), "I": (r, k)})


def _cases(r: int, n: int, k: int, values: str, families: tuple[str, ...], made: dict[Key, Made]) -> Iterator[Case]:
    import torch

    x = _inputs(r, n, values)
    count = copies(4.0 * r * n + 8.0 * r * k)
    sets = [(x.clone(), torch.empty(r, k, device="cuda"), torch.empty(r, k, device="cuda", dtype=torch.int32)) for _ in range(count)]
    largest = torch.topk(x, k, sorted=True).values

    def wrong(out: Any) -> str:
        v, i = out
        if int(i.min()) < 0 or int(i.max()) >= n:
            return "an index lies outside of its row"
        if not bool((x.gather(1, i.long()).view(torch.int32) == v.view(torch.int32)).all()):
            return "a value is not the one at its index"
        if int((i.long().sort(1).values.diff(dim=1) == 0).sum()):
            return "an index is there twice"
        same = torch.equal(torch.nan_to_num(v.sort(descending=True).values, nan=float("inf")), torch.nan_to_num(largest, nan=float("inf")))
        for _, kept_v, kept_i in sets:
            kept_v.fill_(-7.0)
            kept_i.fill_(-1)
        return "" if same else "not the largest"

    missing: dict[str, str] = {}
    tried = {title(surface, a): (surface, a) for surface, a in answers(n, families)}
    for hot in (True, False):
        if not hot and values != "normal":
            return
        used = [sets[0]] * HOT_CALLS if hot else sets
        ways: dict[str, Callable[[], Any]] = {}
        for name, way in _references(k).items():
            with suppress(Exception):  # what a reference does not take is said by its absence
                ways[name] = replayed([lambda s=s, way=way: way(s[0]) for s in used])  # type: ignore[misc]  # a default binds it
        ours: dict[str, Callable[[], Any]] = {}
        for answer, (surface, of) in tried.items():
            found = made[key(surface, of, (r, n, k))]
            try:
                if isinstance(found, str):
                    raise OSError(found)
                calls = [launcher(found[0], {"X": a, "V": v, "I": i}, {"R": r, "N": n, "K": k}, executable=found[1]) for a, v, i in used[: 1 if hot else None]]
                begun(answer)
                bound = [lambda call=call, s=s: (call(), s[1:])[1] for call, s in zip(calls, sets, strict=False)]
                ready = replayed(bound * HOT_CALLS if hot else bound)
                if said := wrong(ready()):
                    raise OSError(said)
                ours[answer] = ready
            except (KirError, CudaError, OSError) as refused:
                missing[answer] = str(refused).splitlines()[0]
        by = {s: {a: way for a, way in ours.items() if tried[a][0] == s} for s in dict.fromkeys(s for s, _ in tried.values())}
        named = [fastest(of) for of in by.values() if of]
        ways |= {name: ours[name] for name in named}
        shape = f"{shape_name((r, n, k, families))}{'' if values == 'normal' else ', ' + values}, {'in L2' if hot else 'from memory'}"
        yield Case("topk", shape, ways, (*named, *missing), wrong, 0.0, dict(missing), len(used))


def _inputs(r: int, n: int, values: str) -> Any:
    import torch

    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(r, n, device="cuda", generator=generator)
    if values == "a few values":
        return x.round().clamp(-2, 2)
    if values == "infinities":
        return torch.where(x > 1.5, float("inf"), torch.where(x < -1, -float("inf"), x))
    if values == "NaN":
        x[:, ::7] = float("nan")
    return x


def _references(k: int) -> dict[str, Callable[[Any], Any]]:
    import torch

    out: dict[str, Callable[[Any], Any]] = {"torch.topk": lambda x: torch.topk(x, k, sorted=False)}
    try:
        import flashinfer
    except ImportError:
        return out

    def by(algorithm: str | None) -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            if algorithm is None:
                os.environ.pop("FLASHINFER_TOPK_ALGO", None)
            else:
                os.environ["FLASHINFER_TOPK_ALGO"] = algorithm
            return flashinfer.top_k(x, k)

        return call

    version = flashinfer.__version__
    return {**out, f"FlashInfer {version}": by(None), f"FlashInfer {version} (its radix select)": by("default")}


if __name__ == "__main__":
    from benchmarks.gpu_workloads import topk

    ask_words(sys.argv[1:])
    topk.prepared()  # by its own name: what is kept is read by other modules
