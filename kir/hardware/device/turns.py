"""Whose turn a device is: what must not be disturbed has it alone, all else shares it. Across processes, by file locks that end with their holders.

Two locks each. Who waits to be alone holds the first together with all others who do, and until it has been: who would share the device waits there, so that
a stream of short sharers starves nobody, and those who wait to be alone follow one another, with one wait for the sharers to leave for all of them.
"""
from __future__ import annotations

import contextlib
import fcntl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path

import platformdirs

from kir.base.dataclass import dataclass
from kir.hardware.device.clocks import bus

DOORS = 2
"""Contexts of a device that are opened at once."""


@dataclass
class Turns:
    """The turns of one device, kept in `file` and a second file beside it. A thread that has a turn has it for what it calls, too."""

    file: Path
    _held: threading.local = field(default_factory=threading.local)

    @classmethod
    def of(cls, device: int = 0) -> Turns:
        """Those of a device of CUDA's, by where it is on the PCI bus: the same for all processes of this user, whatever they see of the others."""
        place = bus(device)
        name = place.decode().strip().lower().replace(":", "-") if place else f"device-{device}"
        return cls(Path(platformdirs.user_cache_dir("kir")) / "turns" / name)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While nobody else uses the device. Whoever shares it may not ask for this: it would wait for itself."""
        with self._turn(fcntl.LOCK_EX):
            yield

    @contextmanager
    def beside(self) -> Iterator[None]:
        """While nobody has it alone; others may be beside."""
        with self._turn(fcntl.LOCK_SH):
            yield

    @contextmanager
    def opening(self, door: int = 0) -> Iterator[None]:
        """As `beside`, for what takes the driver long (a context): one at a time through each of `DOORS`, so that who waits to be alone waits for no more
        than that, and both processes of a candidate are opened together."""
        if getattr(self._held, "kind", None) is not None:
            yield
            return
        begun = time.perf_counter()
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with open(self.file.with_suffix(f".opening-{door % DOORS}"), "a+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._held.waited = self.waited + time.perf_counter() - begun
            with self._turn(fcntl.LOCK_SH):
                yield

    @property
    def waited(self) -> float:
        """Seconds for which this thread has waited for its turns so far."""
        return float(getattr(self._held, "waited", 0.0))

    @property
    def had(self) -> float:
        """Seconds for which this thread has had the device alone so far."""
        return float(getattr(self._held, "had", 0.0))

    @contextmanager
    def _turn(self, kind: int) -> Iterator[None]:
        mine: int | None = getattr(self._held, "kind", None)
        if mine is not None:
            assert mine == fcntl.LOCK_EX or kind == fcntl.LOCK_SH, "a turn that is shared does not become one alone"
            yield
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        alone, begun = kind == fcntl.LOCK_EX, time.perf_counter()
        with contextlib.ExitStack() as held:  # a description of its own for each turn: threads of a process wait for one another as processes do
            lock = held.enter_context(open(self.file, "a+b"))
            door = held.enter_context(open(self.file.with_suffix(".next"), "a+b"))
            fcntl.flock(door, fcntl.LOCK_SH if alone else fcntl.LOCK_EX)
            fcntl.flock(lock, kind)
            if not alone:
                fcntl.flock(door, fcntl.LOCK_UN)
            entered = time.perf_counter()
            self._held.waited = self.waited + entered - begun
            self._held.kind = kind
            try:
                yield
            finally:
                self._held.kind = None
                if alone:
                    self._held.had = self.had + time.perf_counter() - entered


__all__ = ["Turns"]
