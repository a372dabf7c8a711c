"""The part `recovery`: shipped lineages of CUDA kernels replayed forward, with their residues and from their parameters alone, beside the expert."""
from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu_parts.session import Row, Session
from kir.base.diagnostic import KirError
from kir.gate.gpu import Options, gate_gpu
from kir.hardware.target import Target
from kir.ir.nodes import Program
from kir.lineage.engine import PassEngine
from kir.lineage.parameter_replay import recover, recovered_text
from kir.lineage.records.answers import remember
from kir.lineage.records.folder import Folder
from kir.lineage.replay import replay
from kir.problem import load_problem
from kir.surface import backend

LINEAGES = Path(__file__).parents[2] / "skills" / "lineages"
HEAD = ("lineage", "steps", "residue", "rebuilt with residues", "from parameters alone", "shape", "expert", "recovered", "times as fast", "95 %", "verdict")
SHAPES = ("square", "cube2k")


def recovery(s: Session) -> None:
    """Replay forward and time beside the expert in one run; `recovery:NAME` takes what has NAME in its name."""
    note = "Binaries are compiled for each side anew and compared by their bytes. Times are of one run of the gate, expert and recovered program in turns."
    s.table("recovery", "Experts recovered from their lineages", HEAD, _rows(s), note)


def _rows(s: Session) -> Iterator[Row]:
    for folder in sorted(LINEAGES.iterdir()):
        if s.only in folder.name:
            yield from _lineage(s, Folder(folder))


def _lineage(s: Session, folder: Folder) -> Iterator[Row]:
    record = folder.read()
    remember(record, folder)
    if record.header.surface != "cuda":
        return
    engine = PassEngine.of(record.header)
    expert = folder.program(record.states[0])
    steps, residue = len(record.accepted), sum(x.residue_bytes for x in record.accepted)
    words: tuple[object, ...] = (folder.root.name, steps, f"{residue} bytes")
    again = replay(record, folder, engine)
    if not again.ok:
        yield (*words, again.diagnostics[0].message, *([""] * 7))
        return
    rebuilt = f"binary {_compared(expert, again.expert, s.gpu.target)}"
    found = recover(record, folder, engine)
    if not found.whole:
        yield (*words, rebuilt, f"{recovered_text(record, found)}: {found.diagnostics()[0].message[:80]}", *([""] * 6))
        return
    bare = f"{'the same program up to names' if found.same else 'another program'}; binary {_compared(expert, found.program, s.gpu.target)}"
    problem = load_problem(record.header.problem)
    names = {x.name for x in problem.timed_for(expert)}
    shapes = tuple(x for x in SHAPES if x in names) or tuple(sorted(names))[:1]
    options = Options(shapes=shapes, panel=False, sanitize=False, interpret=False, budget=2.0)
    verdict = gate_gpu(s.gpu, found.program, problem, "cuda", expert, options=options)
    s.record("recovery", verdict)
    against = (verdict.device.against if verdict.device else None) or {}
    times = {r.shape: r for r in verdict.profile if r.kind == "measured"}
    if not verdict.accepted or not against:
        yield (*words, rebuilt, bare, *([""] * 5), verdict.reason)
    for name, row in against.items():
        ratio, other = row["times_faster"], row["against"]
        low, high = ratio["interval"]
        yield (*words, rebuilt, bare, name, f"{other['median'] * 1e6:.2f} us", f"{times[name].seconds * 1e6:.2f} us", f"{ratio['median']:.4f}",
               f"{low:.4f} .. {high:.4f}", "accepted")


def _compared(a: Program, b: Program, target: Target) -> str:
    """Whether two programs compile to the same bytes."""
    first, second = (_binary(x, target) for x in (a, b))
    return f"identical (sha256 {first[:12]})" if first == second else f"differs ({first[:12]}, {second[:12]})"


def _binary(program: Program, target: Target) -> str:
    by = backend("cuda")
    try:
        artifact = by.compile(by.emit(program), target)
    except KirError as refused:
        return refused.diagnostics[0].message
    images = [k.image.cubin for k in artifact.kernels if k.image is not None]
    return hashlib.sha256(b"".join(images)).hexdigest() if images else "not compiled"
