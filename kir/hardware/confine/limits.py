"""What a confined process is left, and what the kernel granted of it."""
from __future__ import annotations

from dataclasses import asdict, field

from kir.base.dataclass import dataclass


@dataclass(frozen=True)
class Limits:
    """What a confined process is left: folders that it may write, seconds of processor time, bytes of one file, of its address space, and of
    memory of its own (0: no limit; a driver reserves more addresses than it uses), whether it may start programs, and whether it may use the
    GPU."""

    writable: tuple[str, ...] = ()
    seconds: int = 120
    file_bytes: int = 1 << 30
    memory_bytes: int = 0
    own_bytes: int = 0
    programs: bool = True
    gpu: bool = False

    def to_json(self) -> dict[str, object]:
        """A JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class Level:
    """What was granted: namespaces by name, Landlock's ABI (0: none), seccomp, and what was limited. `refused` are actions that a probe
    tried and could not do."""

    namespaces: tuple[str, ...] = ()
    landlock: int = 0
    seccomp: bool = False
    limits: tuple[str, ...] = ()
    refused: tuple[str, ...] = field(default=())

    @property
    def text(self) -> str:
        """One line, for verdicts."""
        parts = [*(f"{name} namespace" for name in self.namespaces), *([f"Landlock {self.landlock}"] if self.landlock else []),
                 *(["seccomp"] if self.seccomp else []), *(["limits on " + ", ".join(self.limits)] if self.limits else [])]
        return " + ".join(parts) or "nothing but a process of its own"

    def to_json(self) -> dict[str, object]:
        """A JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, row: dict[str, object]) -> Level:
        """The inverse of `to_json`. Raises KeyError, TypeError for what is none."""
        def texts(key: str) -> tuple[str, ...]:
            value = row[key]
            if not isinstance(value, (list, tuple)):
                raise TypeError(key)
            return tuple(str(x) for x in value)
        return cls(texts("namespaces"), int(str(row["landlock"])), bool(row["seccomp"]), texts("limits"), texts("refused"))
