"""The device at hand: its fork servers, its harness, its measured peaks, the caches. One for a whole session of gating."""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any

import platformdirs

import kir.hardware.device
from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.base.store import write_atomic
from kir.gate.artifacts import ArtifactCache
from kir.gate.gpu.interpreting import MODULES as INTERPRETER_MODULES
from kir.gate.gpu.interpreting import TASK as INTERPRETER
from kir.gate.gpu.standby import Standbys
from kir.hardware import machine
from kir.hardware.confine import Limits, command_line
from kir.hardware.device import clocks as nvml
from kir.hardware.device.client import Child, ChildGone, Server
from kir.hardware.device.turns import Turns
from kir.hardware.target import ARCHITECTURES, DEVICES, Target, target
from kir.surface import Artifact, Backend, Emitted

EXECUTOR, ORACLE, PANEL = "kir.hardware.device.executor:serve", "kir.gate.gpu.oracle:serve", "kir.gate.gpu.panel:serve"
HARNESS = Path(kir.hardware.device.__file__).parent / "harness.cu"
LAUNCHER = ("numpy", "pycuda.driver")
"""What candidates' processes need, imported before they are forked and confined; the import touches no device."""
COMPILES_ALONE = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
"""torch's compiler works in the process that asks it, beside others that do the same; what it imports touches the device, and so is not imported before."""
CONNECTIONS = {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "CUDA_DEVICE_MAX_COPY_CONNECTIONS": "1"}
"""One queue of launches and one of copies instead of eight: a candidate has one stream, and fewer queues are set up sooner (`python -m
benchmarks.gpu_pool contexts` opens both)."""
THREADS = "OPENBLAS_NUM_THREADS"
"""Says how many threads an oracle's products take; those of several oracles side by side would wait for one another."""
COMPILE_SECONDS = 120
OPEN_SECONDS = 60.0
"""How long a child may take to start and load its modules."""
USES, MOST_KEPT = 32, 1
"""Candidates of a search that one process serves in turn, and how many processes wait for one."""


def lead(below: Callable[[int], int]) -> int:
    """Bytes before a candidate's first buffer: its addresses are others in each process, and tell it nothing."""
    return 512 * below(2048)


def require_device(attempt: str = "--on cpu") -> None:
    """Refuse where nothing can be launched; `attempt` is what works without. Raises KirError KIR-G004 without a device, KIR-G920 without
    pycuda: one line that says what to do."""
    if not machine.gpus():
        raise error("KIR-G004", "--on gpu: this machine has no CUDA device", attempt=attempt, needs="a machine with an NVIDIA GPU and its driver")
    if machine.package_version("pycuda") is None:
        raise error("KIR-G920", "--on gpu: pycuda is not installed, and kernels are launched through it", attempt=attempt,
                    needs="pip install 'kernel-lineage[gpu]', with a C++ compiler and the CUDA toolkit")


def _folder(folder: Path | None) -> Path:
    return folder or Path(platformdirs.user_cache_dir("kir")) / "gate"


@dataclass
class Gpu:
    """A device and what serves it. `folder` keeps compiled artifacts and the harness; `task` is what executors run (another one in tests);
    `given` the facts of a device that is not asked."""

    folder: Path
    number: int = 0
    task: str = EXECUTOR
    given: dict[str, Any] | None = None
    workers: int = 4
    _open: list[Server] = field(default_factory=list)
    _kept: list[tuple[Child, dict[str, Any]]] = field(default_factory=list)

    @classmethod
    def open(cls, folder: Path | None = None, number: int = 0, attempt: str = "--on cpu") -> Gpu:
        """The machine's device; without one, `attempt` is what to do instead. Raises KirError KIR-G004 without one, KIR-G101 without a toolkit."""
        require_device(attempt)
        out = cls(_folder(folder), number)
        out.harness  # noqa: B018  # made now, so that a missing toolkit is said before anything else
        return out

    # ---------------------------------------------------------------------------------------------------------------- the device
    @property
    def launches(self) -> bool:
        """Whether images go to a device (and not, in tests, to an interpreter)."""
        return self.task == EXECUTOR

    @cached_property
    def about(self) -> dict[str, Any]:
        """Name, capability, cache and memory, as the driver says."""
        if self.given is not None:
            return self.given
        found = machine.gpus()[self.number]
        return {"name": found.name, "major": found.capability[0], "minor": found.capability[1], "memory": found.memory}

    @property
    def target(self) -> Target:
        """The architecture to compile for, with the device's own figures where they are known by name.

        Raises KirError KIR-G105 for an architecture that the target table lacks."""
        words = str(self.about["name"]).lower().split()
        named = next((d for d in DEVICES.values() if d.name.split("-")[0] in words), None)
        base = f"sm_{self.about['major']}{self.about['minor']}"
        if named is not None and named.architecture.rstrip("a") == base:
            return target(named.name)
        for name in (f"{base}a", base):
            if name in ARCHITECTURES:
                return target(name)
        raise error("KIR-G105", f"{self.about['name']} is {base}, which KIR has no facts of", needs=f"one of {', '.join(ARCHITECTURES)}")

    @cached_property
    def peaks(self) -> dict[str, float]:
        """Measured on this device, once for all who keep their artifacts in this folder: `bandwidth` in bytes a second, `launch` in seconds of an empty
        kernel."""
        kept = self.folder / f"peaks-{self.turns.file.name}-{str(self.about['name']).replace(' ', '-')}.json"
        with contextlib.ExitStack() as held:
            if not kept.is_file():
                held.enter_context(self.turns.alone())  # and whoever comes second finds what the first has measured
            if not kept.is_file():
                child = held.enter_context(self.child())
                self.ask_open(child, [], [])
                write_atomic(kept, json.dumps({k: float(v) for k, v in child.ask({"op": "peaks"})[0].items()}))
        found: dict[str, float] = json.loads(kept.read_text(encoding="utf-8"))
        return found

    @cached_property
    def turns(self) -> Turns:
        """Whose turn the device is, among all processes that gate on it: what is timed has it alone."""
        return Turns.of(self.number) if self.given is None else Turns(self.folder / "turn")

    def clocks(self) -> dict[str, int]:
        """Clocks now."""
        return nvml.clocks(self.number)

    # ----------------------------------------------------------------------------------------------------------------- processes
    @cached_property
    def executors(self) -> Server:
        """The fork server of candidates."""
        return self._served(Server(self.task, [self.task.partition(":")[0], *(LAUNCHER if self.task == EXECUTOR else ())], {THREADS: "1", **CONNECTIONS}))

    @cached_property
    def oracles(self) -> Server:
        """The fork server of oracles. It sees no device."""
        threads = {THREADS: os.environ[THREADS]} if THREADS in os.environ else {}
        return self._served(Server(ORACLE, [ORACLE.partition(":")[0]], {"CUDA_VISIBLE_DEVICES": "", **threads}))

    @cached_property
    def interpreters(self) -> Server:
        """The fork server of interpreters. It sees no device."""
        return self._served(Server(INTERPRETER, list(INTERPRETER_MODULES), {"CUDA_VISIBLE_DEVICES": "", THREADS: "1"}))

    @cached_property
    def sanitizers(self) -> Standbys:
        """Processes under compute-sanitizer that wait for their job."""
        return Standbys(self.number, self.task == EXECUTOR)

    @cached_property
    def panels(self) -> Server:
        """The fork server of references: torch is imported where it is installed, CUDA is not touched. Not confined, for it runs no
        candidate, and libraries compile themselves."""
        modules = ["torch"] if machine.package_version("torch") else []
        place = self.folder / "panel"
        folders = {"TRITON_CACHE_DIR": str(place / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(place / "inductor"), "FLASHINFER_WORKSPACE_BASE": str(place)}
        return self._served(Server(PANEL, [*modules, PANEL.partition(":")[0]], {**folders, **COMPILES_ALONE}, shares=True))

    def _served(self, server: Server) -> Server:
        self._open.append(server)
        return server

    def child(self) -> Child:
        """A fresh process for a candidate."""
        return self.executors.child()

    def ask_open(self, child: Child, images: list[dict[str, Any]], cubins: Sequence[bytes], seconds: float = OPEN_SECONDS, door: int = 0,
                 plain: bool = False) -> dict[str, Any]:
        """Confine a child and load cubins in it; `plain` for one in which nothing is measured. Raises ChildGone."""
        limits = Limits(programs=False, seconds=600, file_bytes=1 << 20, own_bytes=machine.memory_bytes() // 2, gpu=True).to_json()
        opening = {"op": "open", "device": self.number, "limits": limits, "images": images, "lead": lead(secrets.randbelow), "plain": plain}
        with self.turns.opening(door):
            return child.ask(opening, [self.harness, *cubins], seconds)[0]

    def opened(self, door: int = 0, kept: bool = False) -> tuple[Child, dict[str, Any]]:
        """A fresh process for a candidate, confined, with a context and without cubins yet, and what it says of itself; where one that was `kept` will do,
        one that others have left. Raises ChildGone."""
        with contextlib.suppress(IndexError):
            if kept:
                return self._kept.pop()
        child = self.child()
        try:
            return child, self.ask_open(child, [], [], door=door)
        except BaseException:
            child.close()
            raise

    def keep(self, child: Child, about: dict[str, Any]) -> None:
        """Take back a process whose candidate was right in all that was seen of it: emptied, for the next one that a search asks about, and for no verdict
        that counts. One that has served `USES` of them, or does not answer, ends."""
        served = int(about.get("served", 0)) + 1
        with self.turns.beside():
            if served < USES and len(self._kept) < MOST_KEPT:
                with contextlib.suppress(ChildGone):
                    child.ask({"op": "clear", "lead": lead(secrets.randbelow)}, seconds=OPEN_SECONDS)
                    self._kept.append((child, {**about, "served": served}))
                    return
            child.close()

    def close(self) -> None:
        """End all processes that wait, and all servers."""
        while self._kept:
            self._kept.pop()[0].close()
        for server in self._open:
            server.close()
        self._open.clear()
        if "sanitizers" in self.__dict__:
            self.sanitizers.close()
        for name in ("executors", "oracles", "panels", "interpreters", "sanitizers"):
            self.__dict__.pop(name, None)

    def warm(self) -> None:
        """Start what a session needs once: fork servers, the harness, measured peaks, a first pair of sanitizers."""
        self.harness, self.peaks  # noqa: B018  # made now, kept
        self.sanitizers.refill()
        for server in (self.oracles, self.executors, self.interpreters):
            server.child().close()
        self.sanitizers.settle()

    def __enter__(self) -> Gpu:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # --------------------------------------------------------------------------------------------------------------- compilation
    @cached_property
    def cache(self) -> ArtifactCache:
        """Artifacts by the hash of all that went in."""
        return ArtifactCache(self.folder / "artifacts")

    def compiled(self, by: Backend, texts: Sequence[Emitted]) -> list[Artifact]:
        """Each text for this device, side by side, from the cache where it is there. Raises KirError of the backend."""
        with ThreadPoolExecutor(max_workers=self.workers) as pool:
            return list(pool.map(lambda e: self.cache.compiled(by, e, self.target), texts))

    @cached_property
    def harness(self) -> bytes:
        """The cubin of our own kernels. Raises KirError KIR-G101 without nvcc."""
        if self.task != EXECUTOR:
            return b""
        found = machine.toolkit()
        if found is None:
            raise error("KIR-G101", "the GPU gate compiles kernels of its own, and there is no nvcc", needs="a CUDA toolkit on PATH, or in /usr/local")
        name = self.target.architecture.name
        key = hashlib.sha256(HARNESS.read_bytes() + f"{found.nvcc.version} {name}".encode()).hexdigest()[:24]
        kept = self.folder / f"harness-{key}.cubin"
        if kept.is_file():
            return kept.read_bytes()
        with tempfile.TemporaryDirectory(prefix="kir-harness-") as place:
            out = Path(place) / "harness.cubin"
            command: list[str | Path] = [found.nvcc.path, "-cubin", "-O3", f"-gencode=arch=compute_{name[3:]},code={name}", "-o", out, HARNESS]
            done = subprocess.run(command_line(command, Limits((place,), COMPILE_SECONDS)), capture_output=True, text=True,
                                  timeout=2 * COMPILE_SECONDS, check=False, cwd=place, env={**os.environ, "TMPDIR": place})
            if done.returncode != 0:
                raise error("KIR-G101", f"nvcc does not compile the gate's own kernels: {done.stderr.strip()[-300:]}")
            write_atomic(kept, out.read_bytes())
        return kept.read_bytes()
