"""The part `uneven`: GEMM at sizes that tiles do not divide, beside the next sizes that they divide, by each stored way of making it."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from benchmarks.gpu_parts.session import Row, Session
from kir.base.diagnostic import KirError
from kir.gate.gpu.judge import Options, conclusion, gate_gpu
from kir.learning.tune import Candidate, Measured, ranked
from kir.learning.tune.device import told, with_shape
from kir.learning.tune.rank import Prefixes
from kir.learning.tune.space import find_space
from kir.problem import Problem, Shape, load_problem

Sizes = tuple[int, int, int]
HEAD = ("size", "bytes of a row of A, B past 128", "subject", "parameters", "measured", "95 %", "next size", "measured there", "times as long", "cuBLAS here",
        "verdict")
DEPTH = 64
PLAIN, SHARED, PADDED = "gemm_sm90", "gemm_sm90_multicast", "gemm_sm90_padded"
VARIANTS: Mapping[str, Mapping[str, int]] = {
    SHARED: {"rows": 128, "columns": 256, "stages": 4, "size": 2, "raster": 8, "rounds": 2},
    PLAIN: {"rows": 128, "columns": 256, "stages": 4, "raster": 16, "rounds": 2},
    PADDED: {"rows": 128, "columns": 256, "stages": 4, "raster": 16, "rounds": 2},
}
SIZES: tuple[tuple[Sizes, tuple[str, ...]], ...] = (
    ((4095, 4093, 4091), (PADDED,)), ((2001, 3003, 4005), (PADDED,)), ((4000, 4040, 4072), (SHARED, PLAIN, PADDED)),
    ((4096, 4040, 4096), (SHARED, PLAIN)), ((4000, 4096, 4096), (SHARED, PLAIN)), ((4096, 4096, 4072), (SHARED, PLAIN)),
    ((4032, 4032, 4032), (SHARED, PLAIN)), ((4080, 4080, 4080), (SHARED, PLAIN)), ((3000, 5000, 2504), (SHARED, PLAIN)),
    ((8136, 8072, 4056), (SHARED, PLAIN)))
"""What is measured: sizes, and the subjects that are for them."""


@dataclass
class _Measuring:
    """One problem on a device: programs by variant, times by variant and sizes."""

    session: Session
    problem: Problem
    made: dict[str, Candidate | str] = field(default_factory=dict)
    times: dict[tuple[str, Sizes], tuple[Measured, float]] = field(default_factory=dict)
    prefixes: Prefixes = field(default_factory=dict)

    def candidate(self, subject: str, point: Mapping[str, int]) -> Candidate | str:
        """The program of a variant, or why there is none."""
        key = f"{subject} {dict(point)}"
        if key not in self.made:
            space = find_space(subject)
            chosen = replace(space, parameters={k: (v,) for k, v in point.items()})
            found, pruned = ranked(chosen, self.problem, self.problem.shape("square"), self.session.gpu.target, known=self.prefixes)
            self.made[key] = found[0] if found else f"no candidate: {next(iter(pruned.reasons), '')}"
        return self.made[key]

    def at(self, one: Candidate, surface: str, sizes: Sizes, panel: bool) -> tuple[Measured, float]:
        """What the gate says of a program at some sizes, and what cuBLAS took there (0 where it was not asked)."""
        known = self.times.get((one.key, sizes))
        if known is not None and (known[1] or not panel):
            return known
        shape = Shape(name=" x ".join(map(str, sizes)), sizes=dict(zip("MNK", sizes, strict=True)), tags=("timed",))
        options = Options(shapes=(shape.name,), panel=panel, sanitize=False, budget=0.4, interpret=False)
        verdict = gate_gpu(self.session.gpu, one.program, with_shape(self.problem, shape), surface, options=options)
        self.session.record("uneven", verdict)
        beside = next(iter(conclusion(verdict).values()), None)
        self.times[one.key, sizes] = told(verdict, shape), float(beside["median"]) if beside else 0.0
        return self.times[one.key, sizes]


def uneven(s: Session) -> None:
    """Sizes that tiles do not divide; `uneven:SUBJECT` measures one subject alone."""
    head = "Sizes that tiles do not divide"
    note = f"A size is compared with the next one that tiles of 128 x 256 x {DEPTH} divide, where `{PLAIN}` is measured."
    s.table("uneven", head, HEAD, _rows(s), note)


def _rows(s: Session) -> Iterator[Row]:
    here = _Measuring(s, load_problem("gemm:bf16"))
    asked: set[Sizes] = set()
    for sizes, subjects in SIZES:
        for subject in subjects:
            if s.only and s.only != subject:
                continue
            panel = sizes not in asked
            asked.add(sizes)
            yield _row(here, sizes, subject, VARIANTS[subject], panel)


def _row(here: _Measuring, sizes: Sizes, subject: str, point: Mapping[str, int], panel: bool) -> Row:
    m, n, k = sizes
    words = (f"{m} x {n} x {k}", f"{k * 2 % 128}, {n * 2 % 128}", subject, " ".join(f"{a}={b}" for a, b in point.items()))
    try:
        one = here.candidate(subject, point)
        if isinstance(one, str):
            return (*words, *([""] * 6), one)
        tile = (point["rows"], point["columns"], DEPTH)
        after = tuple(-(-x // t) * t for x, t in zip(sizes, tile, strict=True))
        mine, beside = here.at(one, "cuda", sizes, panel)
        plain = here.candidate(PLAIN, VARIANTS[PLAIN])
        assert isinstance(plain, Candidate)
        whole, _ = here.at(plain, "cuda", (after[0], after[1], after[2]), False)
    except KirError as refused:
        return (*words, *([""] * 6), refused.diagnostics[0].message)
    if not mine.accepted or not whole.accepted:
        return (*words, *([""] * 6), mine.reason or whole.reason)
    return (*words, f"{mine.seconds * 1e6:.1f} us", f"{mine.low * 1e6:.1f} .. {mine.high * 1e6:.1f}", " x ".join(map(str, after)),
            f"{whole.seconds * 1e6:.1f} us", f"{mine.seconds / whole.seconds:.3f}", f"{beside * 1e6:.1f} us" if beside else "", "accepted")
