"""A device that is none: programs "compile" to their own text, which a confined child interprets."""
from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kir.base.diagnostic import Diagnostic
from kir.gate.gpu import Gpu
from kir.hardware.target import Target
from kir.ir import nodes as n
from kir.ir.canonical import content_hash
from kir.ir.printer import program_text
from kir.surface import Argument, Artifact, CompiledKernel, Emitted, Entry, Image


class TextBackend:
    """Writes IR text, and compiles it to itself."""

    surface: str = "text"

    def accepts(self, program: n.Program) -> tuple[Diagnostic, ...]:
        return ()

    def emit(self, program: n.Program) -> Emitted:
        arguments = tuple(Argument(p.name, "pointer" if isinstance(p.of, n.Buffer) else "scalar",
                                   p.of.dtype.name if isinstance(p.of, n.Buffer) else p.of.name) for p in program.params)
        entries = tuple(Entry(k.name, k.name, arguments, tuple(a.extent for a in k.grid), 32) for k in program.kernels)
        return Emitted("text", content_hash(program), program_text(program), (), entries)

    def launched_with(self, emitted: Emitted, sizes: Mapping[str, int]) -> Emitted:
        return emitted

    def compile(self, emitted: Emitted, target: Target) -> Artifact:
        kernels = tuple(CompiledKernel(e.kernel, 16, 0, 0, 32, image=Image(emitted.text.encode(), e.function)) for e in emitted.entries)
        return Artifact("text", target.architecture.name, kernels)


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpu]:
    """One device for the tests of a module, so that its servers start once."""
    import kir.gate.cpu
    import kir.gate.gpu.judge
    text, monkeypatch = TextBackend(), pytest.MonkeyPatch()
    monkeypatch.setattr(kir.gate.cpu, "_backend", lambda program, surface: (text, []))
    monkeypatch.setattr(kir.gate.gpu.judge, "backend", lambda surface: text)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    about = {"name": "NVIDIA H200", "major": 9, "minor": 0, "memory": 1 << 34}
    with Gpu(tmp_path_factory.mktemp("gpu"), task="interpreting_executor:serve", given=about) as made:
        assert str(Path(__file__).parent) in sys.path
        yield made
    monkeypatch.undo()
