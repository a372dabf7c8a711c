"""One launch as host code writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from kir.base.dataclass import dataclass
from kir.surface.launches.values import Known, Value


@dataclass(frozen=True)
class HostLaunch:
    """A launch of `kernel` in `file` at `line`. `arguments` are in order, `named` by the kernel's parameters; `grid` and `block` have an extent an
    axis; `templates` are a template's arguments as they are written; `factory` what a factory of kernels was called with. `known` is what the
    reading of the host code found besides."""

    kernel: str
    file: str
    line: int
    known: Known
    arguments: tuple[Value, ...] = ()
    named: Mapping[str, Value] = field(default_factory=dict)
    grid: tuple[Value, ...] = ()
    block: tuple[Value, ...] = ()
    shared_bytes: Value = 0
    templates: tuple[Value, ...] = ()
    factory: Mapping[str, Value] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where it stands, as a message names it."""
        return f"{self.file}:{self.line}"
