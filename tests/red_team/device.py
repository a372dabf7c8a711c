"""Raw CUDA in the place of an honest kernel's text: what the device's defenses must stop alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from kir.diagnostic import Diagnostic
from kir.gate import Verdict
from kir.gate.gpu import Gpu, Options, gate_gpu
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.problem import load_problem
from kir.surface import Argument, Artifact, Backend, Emitted, Entry, backend
from kir.target import Target

from .exploits import HONEST_KERNEL, PROBLEMS, Exploit

THREADS = 128


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


def judged(gpu: Gpu, exploit: Exploit | None) -> Verdict:
    """The GPU gate's verdict on an exploit, or on the honest kernel that it was made of."""
    problem = load_problem(PROBLEMS / "scaled_rows")
    with writing(exploit.text if exploit else HONEST_KERNEL):
        return gate_gpu(gpu, problem.naive, problem, "cuda", options=Options(panel=False, interpret=False, budget=0.4))


def refused_for_the_right_reason(exploit: Exploit, verdict: Verdict, honest: Verdict) -> bool:
    """Whether the verdict is what the exploit's row asks for. `slower`: accepted, and measured as slow as it is."""
    if exploit.words == ("slower",):
        return verdict.accepted and verdict.profile[-1].seconds > 2 * honest.profile[-1].seconds
    return not verdict.accepted and any(w in verdict.reason for w in exploit.words)
