"""CUDA C++: thread-level and scalar IR written as `__global__` functions, and compiled with nvcc without a device."""
from __future__ import annotations

from collections.abc import Mapping

from kir.diagnostic import Diagnostic, KirError
from kir.ir.nodes import Program
from kir.surface import Artifact, Emitted
from kir.target import Target

from .emit import write


class CudaBackend:
    """The backend; stateless."""

    surface: str = "cuda"

    def accepts(self, program: Program) -> tuple[Diagnostic, ...]:
        """What the emitter cannot say: tiles of several threads, and instructions that it does not write."""
        return write(program).refusals

    def emit(self, program: Program) -> Emitted:
        """CUDA C++ source. Raises KirError with the refusals."""
        written = write(program)
        if written.emitted is None:
            raise KirError(*written.refusals)
        return written.emitted

    def launched_with(self, emitted: Emitted, sizes: Mapping[str, int]) -> Emitted:
        """The same: CUDA code is compiled once for all sizes."""
        return emitted

    def compile(self, emitted: Emitted, target: Target) -> Artifact:
        """Runs nvcc and ptxas in processes of their own."""
        from .compile import compile_for
        return compile_for(emitted, target)


BACKEND = CudaBackend()
