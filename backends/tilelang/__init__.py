"""TileLang: tile-level IR written as prim_funcs in factories, and compiled for a named architecture without a device.

Order: _worker, _served, spelling, form, output, compile.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kir.base.diagnostic import Diagnostic, KirError
from kir.hardware.target import Target
from kir.ir.nodes import Program
from kir.ir.visit import once
from kir.surface import Artifact, Emitted, Entry, Translated

from .output.emit import Written, fixed, write


class TileLangBackend:
    """The backend; stateless."""

    surface: str = "tilelang"

    def accepts(self, program: Program) -> tuple[Diagnostic, ...]:
        """What TileLang cannot say."""
        return _written(program).refusals

    def emit(self, program: Program) -> Emitted:
        """TileLang source. Raises KirError with the refusals."""
        written = _written(program)
        if written.emitted is None:
            raise KirError(*written.refusals)
        return written.emitted

    def launched_with(self, emitted: Emitted, sizes: Mapping[str, int]) -> Emitted:
        """The variant that is compiled at these sizes: a factory is called with them, as TileLang's users do, so that shapes are static."""
        def known(e: Entry) -> Entry:
            return replace(e, options=fixed(e, sizes))
        return replace(emitted, entries=tuple(map(known, emitted.entries)))

    def warm(self) -> None:
        """Begins to load the compiler, which takes seconds."""
        from .compile import warm
        warm()

    def compile(self, emitted: Emitted, target: Target) -> Artifact:
        """Runs TileLang's lowering and nvcc in processes of their own."""
        from .compile import compile_for
        return compile_for(emitted, target)

    def translated(self, emitted: Emitted, target: Target) -> tuple[Translated, ...]:
        """The CUDA text that TileLang's lowering writes of each kernel."""
        from .compile import translate
        return translate(emitted, target)


def _written(program: Program) -> Written:
    """The program as the surface's text, once: it is asked whether it can be written before it is."""
    return once(program, "_tilelang", lambda: write(program))


BACKEND = TileLangBackend()
