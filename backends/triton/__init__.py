"""Triton: tile-level IR written as `@triton.jit` functions, and compiled for a named architecture without a device."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kir.diagnostic import Diagnostic, KirError
from kir.ir.nodes import Program
from kir.surface import Argument, Artifact, Emitted
from kir.target import Target

from .emit import DIVISOR, write


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

    def launched_with(self, emitted: Emitted, sizes: Mapping[str, int]) -> Emitted:
        """The variant that Triton's launcher picks at these sizes: integers that 16 divides are compiled as such (its `JITFunction`)."""
        def known(a: Argument) -> Argument:
            divides = a.kind == "scalar" and sizes.get(a.source, 1) % DIVISOR == 0 and a.dtype[:1] in "iu"
            return replace(a, divisor=DIVISOR) if divides else a
        return replace(emitted, entries=tuple(replace(e, arguments=tuple(map(known, e.arguments))) for e in emitted.entries))

    def compile(self, emitted: Emitted, target: Target) -> Artifact:
        """Runs Triton's compiler in a process of its own."""
        from .compile import compile_for
        return compile_for(emitted, target)


BACKEND = TritonBackend()
