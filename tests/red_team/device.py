"""How exploits are put to the gate: raw CUDA in the place of an honest kernel's text, so that the device's defenses stand alone; IR without the
interpreter's verdict; files of host programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from kir.base.diagnostic import Diagnostic, KirError
from kir.gate import Verdict
from kir.gate.gpu import Gpu, Options, gate_gpu
from kir.hardware.target import Target
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.parser import parse_program
from kir.problem import load_problem
from kir.surface import Argument, Artifact, Backend, Emitted, Entry, backend, frontend

from .exploits import PROBLEMS, Exploit
from .hosts import Host
from .kernels import HONEST_KERNEL

THREADS = 128
ALONE = Options(panel=False, interpret=False, budget=0.4)
"""The device without the interpreter."""


class RawBackend:
    """The CUDA backend with a text of its own for the program of `scaled_rows`."""

    surface: str = "cuda"

    def __init__(self, text: str) -> None:
        self.text = text
        self.cuda: Backend = backend("cuda")

    def accepts(self, program: n.Program) -> tuple[Diagnostic, ...]:
        return ()

    def emit(self, program: n.Program) -> Emitted:
        arguments = tuple(
            Argument(p.name, "pointer" if isinstance(p.of, n.Buffer) else "scalar", p.of.dtype.name if isinstance(p.of, n.Buffer) else p.of.name)
            for p in program.params
        )
        entry = Entry("main", "candidate", arguments, (program.kernels[0].grid[0].extent,), THREADS)
        return Emitted("cuda", content_hash(program), self.text, (), (entry,))

    def launched_with(self, emitted: Emitted, sizes: Mapping[str, int]) -> Emitted:
        return emitted

    def compile(self, emitted: Emitted, target: Target) -> Artifact:
        return self.cuda.compile(emitted, target)


@contextmanager
def writing(text: str) -> Iterator[None]:
    """While this lasts, every program is written as `text`."""
    raw: Any = RawBackend(text)
    with mock.patch("kir.gate.cpu._backend", lambda program, surface: (raw, [])), mock.patch("kir.gate.gpu.judge.backend", lambda surface: raw):
        yield


def judged(gpu: Gpu, text: str = HONEST_KERNEL, against: bool = False, unseen: bool = False) -> Verdict:
    """The GPU gate's verdict on raw CUDA, by default the honest kernel that exploits are made of; `against`: timed in turns with itself; `unseen`:
    without the rules about clocks and variables of cubins, so that what comes after them is tried."""
    problem = load_problem(PROBLEMS / "scaled_rows")
    with writing(text), ExitStack() as held:
        if unseen:
            held.enter_context(mock.patch("kir.gate.gpu.candidate.require_closed", lambda images, ptx=(): None))
            held.enter_context(mock.patch("kir.gate.gpu.candidate.watched", lambda image: []))
        return gate_gpu(gpu, problem.naive, problem, "cuda", problem.naive if against else None, options=ALONE)


def program_judged(gpu: Gpu, exploit: Exploit) -> str:
    """What the GPU gate says of an exploit in IR without the interpreter; empty where it accepts."""
    problem = load_problem(PROBLEMS / "scaled_rows")
    try:
        verdict = gate_gpu(gpu, parse_program(exploit.text, "cheat.kir"), problem, "cuda", options=ALONE)
    except KirError as told:
        return f"compile: {told.diagnostics[0].id}: {told.diagnostics[0].message}"
    return "" if verdict.accepted else f"{verdict.stage}: {verdict.reason}"


def refused(host: Host, folder: Path) -> str:
    """With what a file of a host program is refused as a candidate. Raises AssertionError where any of it ran, or another kernel than its own
    can be named."""
    marker, source, reader = folder / "ran", folder / "cheat.py", frontend("triton")
    source.write_text(host.text(str(marker)))
    assert [k.name for k in reader.kernels(source)] == ["kernel"]
    reader.parse(source, "kernel")
    try:
        reader.parse(source, "run")
    except KirError as told:
        assert not marker.exists()
        return f"{told.diagnostics[0].id}: {told.diagnostics[0].message}"
    raise AssertionError("the wrapper is a candidate")


def refused_for_the_right_reason(exploit: Exploit, verdict: Verdict, unseen: bool = False) -> bool:
    """Whether the verdict is what the exploit's row asks for."""
    words = (exploit.image,) if exploit.image and not unseen else exploit.words
    return not verdict.accepted and any(w in verdict.reason for w in words)


def timed(verdict: Verdict) -> float:
    """The seconds that were measured at the last shape; 0 for a verdict without."""
    return next((r.seconds for r in reversed(verdict.profile) if r.kind == "measured"), 0.0)
