"""Random programs on the device: many in one translation unit, launched by one process, and what is said of those that go wrong. No device, no compiler."""
from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.fuzz import device, units
from benchmarks.fuzz.launching import Ready, launched
from kir.analysis import normalize
from kir.hardware.device.client import ChildGone
from kir.hardware.target import target
from kir.interp import run
from kir.ir import nodes as n
from kir.ir.canonical import alpha_equal
from kir.ir.parser import parse_program
from kir.surface import Artifact, CompiledKernel, Image, backend
from tests.round_trips import ROUND_TRIPS

CUDA = list(islice((p for p in map(device.Program, range(40)) if not list(backend("cuda").accepts(p.program))), 5))


def test_programs_of_one_unit_have_names_of_their_own() -> None:
    texts = [backend("cuda").emit(p.program) for p in CUDA]
    made = units.unit(texts)
    assert made.text.count("#include <cstring>") == 1 and [made.text.count(f"namespace u{i} {{") for i in range(5)] == [1] * 5
    names = [new for each in made.names for new in each.values()]
    assert len({*names}) == len(names) and all(f"\n{new}(" in made.text for new in names)
    lines = made.text.splitlines()
    assert [made.holds(1 + next(i for i, line in enumerate(lines) if f"u{k}_" in line)) for k in range(5)] == list(range(5))


def test_what_a_compiler_refuses_is_one_program_of_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """nvcc names a line and ptxas a function; where neither is named, halves are tried."""
    texts, said = [backend("cuda").emit(p.program) for p in CUDA], list[int]()

    def built(text: str, *given: Any) -> tuple[bytes | None, str]:
        said.append(text.count("namespace u"))
        if len(said) == 1:
            line = 1 + next(i for i, x in enumerate(text.splitlines()) if "namespace u1 {" in x)
            return None, f"unit.cu({line}): error: identifier \"zz\" is undefined\nptxas error   : Entry function 'u3_p_main' uses too much shared data"
        return (None, "killed") if len(said) == 2 else (b"cubin", "")
    monkeypatch.setattr(units, "_built", built)
    found = units.compiled(texts, None, "sm_90a")  # type: ignore[arg-type]  # no compiler is called
    assert [isinstance(x, Artifact) for x in found] == [True, False, True, False, True] and said == [5, 3, 2, 1]
    assert found[1] == 'identifier "zz" is undefined' and "too much shared data" in str(found[3])


class _Device:
    """Stands for a device: interprets what the images are of; `ends` are programs whose launch ends the process."""

    turns: Any = None

    def __init__(self, programs: Sequence[device.Program], ends: Sequence[int] = (), wild: Sequence[int] = ()) -> None:
        self.programs, self.ends, self.wild, self.opened = programs, ends, wild, 0
        self.turns = type("Turns", (), {"beside": staticmethod(nullcontext)})()

    @contextmanager
    def child(self) -> Iterator[_Device]:
        yield self

    def ask_open(self, child: Any, rows: list[dict[str, Any]], cubins: list[bytes], plain: bool = False) -> None:
        self.opened += 1
        self.images = [int(cubins[row["cubin"]]) for row in rows]

    def ask(self, message: dict[str, Any], blobs: list[bytes], seconds: float) -> tuple[dict[str, Any], list[bytes]]:
        number = self.images[message["launches"][0]["image"]]
        if number in self.ends:
            raise ChildGone("crash", "its process died (SIGSEGV)")
        p = self.programs[number]
        made = run(p.program, {k: v.copy() for k, v in p.inputs.items()}, dict(p.scalars)).outputs
        return {"broken": ["Y"] if number in self.wild else [], "changed": []}, [np.ascontiguousarray(made[x]).tobytes() for x in message["return"]]


def _ready(i: int, p: device.Program) -> Ready:
    emitted = backend("cuda").emit(p.program)
    kernels = tuple(CompiledKernel(e.kernel, 0, 0, 0, e.threads, image=Image(str(i).encode(), e.function)) for e in emitted.entries)
    return Ready(p.program, p.inputs, p.scalars, emitted, Artifact("cuda", "sm_90a", kernels))


def test_what_ends_a_process_ends_one_program() -> None:
    gpu: Any = _Device(CUDA, ends=[1], wild=[3])
    came = launched(gpu, [_ready(i, p) for i, p in enumerate(CUDA)])
    words = [device.judged(p, made)[0] for p, made in zip(CUDA, came, strict=True)]
    assert words == ["the same", "did not come back", "the same", "other values", "the same"] and gpu.opened == 2
    assert came[3] == "it writes beyond ['Y'], and into the inputs none"


def test_what_processes_prepare_is_launched_later_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepared programs go from process to process with what the interpreter makes of them; several batches are launched at once."""
    def compiled(target: Any, surface: str, texts: Sequence[Any]) -> list[Artifact | str]:
        return [_ready(made.index(e.text), by_text[e.text]).artifact for e in texts]
    monkeypatch.setattr(device, "compiled", compiled)
    monkeypatch.setattr(device, "SHARES", {"cuda": 1})
    programs = [device.Program(seed) for seed in range(8)]
    taken = [p for p in programs if not list(backend("cuda").accepts(p.program))]
    by_text = {backend("cuda").launched_with(backend("cuda").emit(p.program), p.scalars).text: p for p in taken}
    made = list(by_text)
    several = [pickle.loads(pickle.dumps(device.prepared(target("h200"), seeds))) for seeds in ([0, 1, 2, 3], [4, 5, 6, 7])]
    assert all("expected" in vars(p) for one in several for _, p, _ in one.waiting)
    gpu: Any = _Device(list(by_text.values()))
    found, spent = device.finished(gpu, several)
    words = Counter(outcome[3] for _, outcome in found)
    assert words == Counter({"the same": len(taken), "refused to write": 8 - len(taken)}) and gpu.opened == 1 and {*spent} == {"launching", "judging"}


def test_other_values_are_a_fault_that_is_kept_until_it_is_mended() -> None:
    p = CUDA[0]
    right = run(p.program, {k: v.copy() for k, v in p.inputs.items()}, dict(p.scalars)).outputs
    wrong = {k: v + np.ones_like(v) for k, v in right.items()}
    assert device.judged(p, right) == ("the same", "") and device.judged(p, wrong)[0] == "other values"
    half, last, far = (np.array([x], np.float32) for x in (0.5, 0.5 + 2.0 ** -24, 0.5 + 2.0 ** -13))  # the last bit of a function is no fault
    told = [device.same(x, half, "f32", how)[0] for x, how in ((last, False), (last, True), (far, True))]
    assert told == ["other values", "within roundings", "other values"]
    state: dict[str, Any] = {"seed": 0, "left": [], "seconds": 0.0, "counts": {}, "faults": [], "mended": 0, "machine": "one"}
    device.take(state, [2, 3], [(2, ("cuda", p.form, p.dtype, "the same", "")), (3, ("cuda", p.form, p.dtype, "other values", "Y[0] is 1"))],
                {"making": 1.0, "cuda: compiling": 2.0})
    assert (state["seed"], state["left"]) == (4, [0, 1]) and "| cuda | 1 | 0 | 1 |" in device.page(state)
    assert device.page(state).rstrip().endswith("| no |") and device.page({**state, "mended": 1}).rstrip().endswith("| yes |")


WIDE = """kir 1
program p
  in X: i64[32]
  inout Z: i64[32]
  out Y: i64[32]
kernel main grid (b: 1) threads 32
  for t in 0..32 parallel thread
    let old = {0}(&Z[t % 3], X[t])
    Y[t] = old
    {0}(&Z[t % 5], X[t])
"""


@pytest.mark.parametrize("name", ["atomic_add", "atomic_xor", "atomic_exch", "atomic_max"])
def test_atomics_of_signed_64_bit_numbers_are_those_of_unsigned_ones(name: str, tmp_path: Path) -> None:
    """Seed 935: nvcc has `atomicAdd` for `unsigned long long` only. TileLang's header has neither for the larger of two (seed 576)."""
    p = normalize(parse_program(WIDE.format(name), "p.kir"))
    text = backend("cuda").emit(p).text
    assert text.count("reinterpret_cast<unsigned long long*>") == (0 if name == "atomic_max" else 2)
    assert alpha_equal(ROUND_TRIPS["cuda"].read_back(p, tmp_path), p)
    assert name != "atomic_max" or any("signed 64-bit" in x.message for x in backend("tilelang").accepts(p))


def test_passes_make_other_programs_of_some() -> None:
    made = [device.Program(seed) for seed in range(12)]
    assert all(isinstance(p.program, n.Program) for p in made) and device.Program(3).program == made[3].program
