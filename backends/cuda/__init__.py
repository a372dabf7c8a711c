"""CUDA C++: IR written as `__global__` functions, tiles lowered to thread code first, and compiled with nvcc without a device.

Order: headers, compile, spelling, expressions, instructions, output, lowering.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kir.base.diagnostic import Diagnostic, KirError
from kir.hardware.target import Target
from kir.ir.canonical import content_hash
from kir.ir.nodes import Program
from kir.ir.visit import once
from kir.surface import Artifact, Emitted, MachineLine, SourceLine, StatementPath

from .lowering.thread_code import placed, thread_code, worded
from .output.emit import Written, write


class CudaBackend:
    """The backend; stateless."""

    surface: str = "cuda"

    def accepts(self, program: Program) -> tuple[Diagnostic, ...]:
        """What the emitter cannot say: tiles that have no form for threads, and instructions that it does not write."""
        return _written(program).refusals

    def emit(self, program: Program) -> Emitted:
        """CUDA C++ source. Raises KirError with the refusals."""
        written = _written(program)
        if written.emitted is None:
            raise KirError(*written.refusals)
        return written.emitted

    def threads(self, program: Program) -> Program:
        """The program as it is written: tiles as statements of threads. Raises KirError with the refusals of kernels that have no such form."""
        made, _, why = _threads(program)
        if why:
            raise KirError(*why)
        return made

    def launched_with(self, emitted: Emitted, sizes: Mapping[str, int]) -> Emitted:
        """The same: CUDA code is compiled once for all sizes."""
        return emitted

    def compile(self, emitted: Emitted, target: Target) -> Artifact:
        """Runs nvcc and ptxas in processes of their own."""
        from .compile import compile_for
        return compile_for(emitted, target)

    def machine_code(self, emitted: Emitted, target: Target) -> tuple[MachineLine, ...]:
        """SASS with the lines of the text that it comes from."""
        from .compile import machine_code
        return machine_code(emitted, target)


def _written(program: Program) -> Written:
    """The program as CUDA C++. What kept its tiles from being lowered is refused first: it is why the rest could not be written."""
    return once(program, "_cuda", lambda: _write(program))


def _threads(program: Program) -> tuple[Program, dict[StatementPath, StatementPath], tuple[Diagnostic, ...]]:
    """What `thread_code` makes of a program, once."""
    return once(program, "_cuda_threads", lambda: thread_code(program))


def _write(program: Program) -> Written:
    plain, _ = worded(program)
    threads, places, why = _threads(program)
    if why:
        return Written(None, why)
    written = write(threads)
    if written.emitted is None or threads is program:
        return written
    if threads is plain:
        return Written(replace(written.emitted, program=content_hash(program)), ())
    lines = tuple(SourceLine(each.line, path) for each in written.emitted.source_map
                  if (path := placed(each.path, places) if places else ()))
    return Written(replace(written.emitted, program=content_hash(program), source_map=lines), ())


BACKEND = CudaBackend()
