"""Triton: tile-level IR written as `@triton.jit` functions, and compiled for a named architecture without a device.

Order: _worker, _served, compile, tiles, generic, output.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kir.base.diagnostic import Diagnostic, KirError
from kir.hardware.target import Target
from kir.ir.nodes import Program
from kir.ir.visit import once
from kir.surface import Argument, Artifact, Body, Emitted, Entry, MachineLine

from .output.body import kernel_body, kernel_launch
from .output.cache_policy import with_cache_policy
from .output.emit import DIVISOR, Written, write
from .tiles.names import spelled


class TritonBackend:
    """The backend; stateless."""

    surface: str = "triton"

    def accepts(self, program: Program) -> tuple[Diagnostic, ...]:
        """What Triton cannot say."""
        return _written(program).refusals

    def emit(self, program: Program) -> Emitted:
        """Triton source. Raises KirError with the refusals."""
        written = _written(program)
        if written.emitted is None:
            raise KirError(*written.refusals)
        return written.emitted

    def shown(self, program: Program) -> Emitted:
        """As `emit`, for a reader: what is said more than once has a name. Raises as `emit`."""
        written = write(program, readable=True)
        if written.emitted is None:
            raise KirError(*written.refusals)
        return written.emitted

    def body(self, program: Program, names: Mapping[str, str]) -> Body:
        """The statements of the program's one kernel under the given names."""
        return kernel_body(program, names)

    def spelled(self, names: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
        """Names that Python and Triton allow."""
        return spelled(names, taken)

    def axis(self, number: int) -> str:
        """The program id of an axis."""
        return f"tl.program_id({number})"

    def launch(self, program: Program) -> Entry:
        """How the program's one kernel is launched. Raises KirError KIR-B002, KIR-B004, KIR-B007."""
        return kernel_launch(program)

    def with_cache_policy(self, statement: str, cache: str) -> str | None:
        """A source statement with its one access under a cache policy. Raises KirError KIR-B008."""
        return with_cache_policy(statement, cache)

    def launched_with(self, emitted: Emitted, sizes: Mapping[str, int]) -> Emitted:
        """The variant that Triton's launcher picks at these sizes: integers that 16 divides are compiled as such (its `JITFunction`)."""
        def known(a: Argument) -> Argument:
            divides = a.kind == "scalar" and sizes.get(a.source, 1) % DIVISOR == 0 and a.dtype[:1] in "iu"
            return replace(a, divisor=DIVISOR) if divides else a
        return replace(emitted, entries=tuple(replace(e, arguments=tuple(map(known, e.arguments))) for e in emitted.entries))

    def warm(self) -> None:
        """Begins to load the compiler, which takes seconds."""
        from .compile import warm
        warm()

    def compile(self, emitted: Emitted, target: Target) -> Artifact:
        """Runs Triton's compiler in a process of its own."""
        from .compile import compile_for
        return compile_for(emitted, target)

    def machine_code(self, emitted: Emitted, target: Target) -> tuple[MachineLine, ...]:
        """SASS with the lines of the text that it comes from."""
        from .compile import machine_code
        return machine_code(emitted, target)


def _written(program: Program) -> Written:
    """The program as the surface's text, once: it is asked whether it can be written before it is."""
    return once(program, "_triton", lambda: write(program))


BACKEND = TritonBackend()
