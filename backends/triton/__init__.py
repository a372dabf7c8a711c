"""Triton: tile-level IR written as `@triton.jit` functions, and compiled for a named architecture without a device."""
from __future__ import annotations

from kir.diagnostic import Diagnostic, KirError
from kir.ir.nodes import Program
from kir.surface import Artifact, Emitted
from kir.target import Target

from .emit import write


class TritonBackend:
    """The backend; stateless."""

    surface: str = "triton"

    def accepts(self, program: Program) -> tuple[Diagnostic, ...]:
        """What Triton cannot say."""
        return write(program).refusals

    def emit(self, program: Program) -> Emitted:
        """Triton source. Raises KirError with the refusals."""
        written = write(program)
        if written.emitted is None:
            raise KirError(*written.refusals)
        return written.emitted

    def compile(self, emitted: Emitted, target: Target) -> Artifact:
        """Runs Triton's compiler in a process of its own."""
        from .compile import compile_for
        return compile_for(emitted, target)


BACKEND = TritonBackend()
