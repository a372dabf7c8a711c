"""What the rest of KIR sees of this frontend."""

from __future__ import annotations

from pathlib import Path

from kir.base.diagnostic import did_you_mean, error
from kir.ir import nodes as n
from kir.ir.binding import Binding, Setting, Tensor
from kir.ir.bindings.binding_values import check_values
from kir.ir.types import DType
from kir.surface import KernelRef

from .kernel import read_kernel
from .source.module import Module, module_of
from .suffixes import SUFFIXES

UNKNOWN = "?"


class PtxFrontend:
    """Reads kernels of PTX as compilers wrote them."""

    surface = "ptx"
    finds = "an .entry"
    suffixes = SUFFIXES

    def __init__(self) -> None:
        self._opened: dict[tuple[str, int], Module] = {}

    def open(self, source: Path) -> Module:
        """A file. Raises KirError KIR-F300, KIR-F302, KIR-F310, KIR-F311."""
        try:
            key = (str(source), source.stat().st_mtime_ns)
        except OSError as bad:
            raise error("KIR-F310", f"{source.name} cannot be read: {bad.__class__.__name__}") from bad
        if key not in self._opened:
            if len(self._opened) > 8:
                self._opened.clear()
            self._opened[key] = module_of(source)
        return self._opened[key]

    def kernels(self, source: Path) -> tuple[KernelRef, ...]:
        """The kernels of a file, in order. Raises KirError as `open` does."""
        m = self.open(source)
        return tuple(KernelRef(e.name, str(source), m.text.at(*e.span).line, self.surface) for e in m.entries.values())

    def parse(self, source: Path, kernel: str) -> n.Program:
        """The program of one kernel. Raises KirError as `open` does, and KIR-F312 for a kernel that is not there."""
        return self.instantiate(source, kernel, None)

    def instantiate(self, source: Path, kernel: str, binding: Binding | None) -> n.Program:
        """`parse` under a binding: its metas give the extents of a CTA and the bytes of dynamic shared memory, its tensors their dtypes."""
        if binding is not None:
            check_values(binding)
        m = self.open(source)
        if kernel not in m.entries:
            hint = did_you_mean(kernel, list(m.entries))
            raise error("KIR-F312", f"there is no kernel '{kernel}' in {source.name}", attempt=hint, needs="" if hint else ", ".join(m.entries))
        entry = m.entries[kernel]
        try:
            return read_kernel(m, entry, binding)
        except (IndexError, KeyError, ValueError) as bad:  # what no compiler writes: an instruction of too few operands, a shape that is no number
            raise m.text.fail("KIR-F302", f"an instruction of '{kernel}' has operands or types that do not fit: {bad}", entry.span) from bad

    def skeleton(self, source: Path, kernel: str) -> Binding:
        """A binding with what the text says, and "?" where a person must decide. Raises KirError as `parse` does."""
        program = self.parse(source, kernel)
        metas: dict[str, Setting] = {m.name: m.default if m.default is not None else UNKNOWN for m in program.metas
                                     if m.name not in ("threads_y", "threads_z") or m.default is None}
        tensors = {p.name: Tensor(shape=[UNKNOWN], dtype=p.of.dtype.name, role=p.role) for p in program.params if isinstance(p.of, n.Buffer)}
        scalars: dict[str, str | int | float] = {p.name: UNKNOWN for p in program.params
                                                 if isinstance(p.of, DType) and not dict(p.attrs).get("implicit") and not p.of.is_float}
        grid: list[str | int] = [UNKNOWN for _ in program.kernels[0].grid]
        return Binding(kernel=program.name, grid=grid, metas=metas, scalars=scalars, tensors=tensors)


FRONTEND = PtxFrontend()
