"""One launch as host code writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from kir.base.dataclass import dataclass
from kir.ir.binding import Binding
from kir.surface.launches.values import Known, Value


@dataclass(frozen=True)
class HostLaunch:
    """A launch of `kernel` in `file` at `line`. `arguments` are in order, `named` by the kernel's parameters; `grid` and `block` have an extent an
    axis; `templates` are a template's arguments as they are written; `factory` what a factory of kernels was called with. `known` is what the
    reading of the host code found besides, `seen` the numbers of `known` that a main program calls the launching function with."""

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
    seen: Mapping[str, int] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where it stands, as a message names it."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Specialization:
    """A kernel under the compile-time values that a package gives it. `name` is what a frontend reads it by (with template arguments where they are known
    as text), `label` what it is called in counts, `binding` its metas, `place` where they are said ("" for nowhere), `guessed` what nothing says, `more`
    how many further ones of the kernel are left out after it."""

    kernel: str
    name: str
    label: str
    binding: Binding
    place: str = ""
    guessed: tuple[str, ...] = ()
    more: int = 0

    def with_more(self, more: int) -> Specialization:
        """The same, the last of those that are offered."""
        return replace(self, more=more)
