"""What this machine has: compilers, optional packages, a GPU, and what it grants for isolating other code.

Nothing here imports an optional package; versions come from metadata, and the driver is asked through ``ctypes``.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from kir.base.dataclass import dataclass

COMMAND_LIMIT_SECONDS = 20
"""How long a tool may take to print its version."""


@dataclass(frozen=True)
class Tool:
    """An executable: its real ``path`` (wrapper scripts followed), its ``version`` (``13.0.88``) or "" when unknown."""

    name: str
    path: Path
    version: str


@dataclass(frozen=True)
class Toolkit:
    """A CUDA toolkit found by way of its nvcc: ``root`` holds ``bin`` and ``include``."""

    root: Path
    nvcc: Tool


@dataclass(frozen=True)
class Gpu:
    """A device as the driver names it, with its compute capability and memory in bytes."""

    index: int
    name: str
    capability: tuple[int, int]
    memory: int


@dataclass(frozen=True)
class Isolation:
    """What the kernel grants an unprivileged process. ``landlock`` is the ABI version, 0 for none."""

    user_namespaces: bool
    landlock: int
    seccomp: bool


def toolkit(path: str | None = None) -> Toolkit | None:
    """The CUDA toolkit whose nvcc comes first on ``path`` (default: the process's), else the newest in /usr/local.

    A wrapper script around nvcc is followed to the program that it runs.
    """
    found = shutil.which("nvcc", path=path)
    candidates = [Path(found)] if found else []
    if path is None:
        candidates += sorted(Path("/usr/local").glob("cuda*/bin/nvcc"), key=_version_numbers, reverse=True)
    for candidate in candidates:
        real = _unwrapped(candidate)
        version = _version(real, r"V(\d+(?:\.\d+)+)")
        if version:
            return Toolkit(real.parent.parent, Tool("nvcc", real, version))
    return None


def ptxas() -> Tool | None:
    """ptxas of the toolkit, of the path, or of an installed Triton wheel, in that order."""
    return binary_tool("ptxas")


def binary_tool(name: str) -> Tool | None:
    """One of the toolkit's programs (``ptxas``, ``cuobjdump``, ``nvdisasm``): toolkit, path, then Triton's wheel."""
    known = toolkit()
    places = [known.root / "bin" / name] if known else []
    if found := shutil.which(name):
        places.append(_unwrapped(Path(found)))
    if triton := package_folder("triton"):
        places.append(triton / "backends" / "nvidia" / "bin" / name)
    for place in places:
        if place.is_file() and (version := _version(place, r"V(\d+(?:\.\d+)+)")):
            return Tool(name, place, version)
    return None


def give_back() -> None:
    """Hand memory that this process has freed back to the system. The C library keeps it where several threads have allocated by turns (glibc: an
    arena for each of them, none of which shrinks by itself): a process that interprets one large program after another would keep the sum of
    what all its threads have ever held."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(ctypes.c_size_t(0))


def package_version(distribution: str) -> str | None:
    """The version of an installed distribution, or None. Imports nothing."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def package_folder(name: str) -> Path | None:
    """The folder of an installed top-level package, or None. Imports nothing."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def gpus() -> tuple[Gpu, ...]:
    """The devices that the CUDA driver shows this process; empty without a driver or without a device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ()
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    found = []
    for index in range(count.value):
        device, memory, name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
        driver.cuDeviceGet(ctypes.byref(device), index)
        driver.cuDeviceGetName(name, 256, device)
        driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        capability = (device_attribute(index, 75), device_attribute(index, 76))
        found.append(Gpu(index, name.value.decode(errors="replace"), capability, memory.value))
    return tuple(found)


def device_attribute(index: int, attribute: int) -> int:
    """``cuDeviceGetAttribute`` of device ``index``, by the number of ``CUdevice_attribute`` (CUDA driver API).

    Raises ``OSError`` when the driver is absent or refuses.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    device, value = ctypes.c_int(), ctypes.c_int()
    for status in (
        driver.cuInit(0),
        driver.cuDeviceGet(ctypes.byref(device), index),
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device),
    ):
        if status != 0:
            raise OSError(f"the CUDA driver answered {status} for attribute {attribute} of device {index}")
    return value.value


def isolation() -> Isolation:
    """Which of the kernel's means of isolation this process may use, found by trying them (Linux; else none)."""
    if sys.platform != "linux":
        return Isolation(False, 0, False)
    libc = ctypes.CDLL(None, use_errno=True)
    # landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION), Linux system call 444: the ABI version.
    landlock = max(0, int(libc.syscall(ctypes.c_long(444), None, ctypes.c_size_t(0), ctypes.c_uint32(1))))
    # prctl(PR_GET_SECCOMP): fails with EINVAL on a kernel built without seccomp.
    seccomp = libc.prctl(21, 0, 0, 0, 0) >= 0 and Path("/proc/sys/kernel/seccomp/actions_avail").is_file()
    return Isolation(_may_unshare(), landlock, seccomp)


def memory_bytes() -> int:
    """Physical memory in bytes, or 0 when the system does not say."""
    names = os.sysconf_names
    if "SC_PAGE_SIZE" not in names or "SC_PHYS_PAGES" not in names:
        return 0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def processors() -> int:
    """How many processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def summary() -> Mapping[str, str]:
    """Python and system in a few words, for records: keys ``python``, ``system``, ``cores``, ``memory``."""
    return {
        "python": sys.version.split()[0],
        "system": f"{os.uname().sysname} {os.uname().release} {os.uname().machine}",
        "cores": str(processors()),
        "memory": f"{memory_bytes() / 2**30:.1f} GiB",
    }


def _may_unshare() -> bool:
    """Whether a child process can enter a new user, mount, network and PID namespace (tried in a child)."""
    flags = 0x10000000 | 0x00020000 | 0x40000000 | 0x20000000  # CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID
    script = f"import ctypes, sys; sys.exit(0 if ctypes.CDLL(None).unshare({flags}) == 0 else 1)"
    return _run([sys.executable, "-I", "-S", "-c", script]) is not None


def _unwrapped(path: Path) -> Path:
    """The program behind symbolic links and ``exec /path/to/nvcc "$@"`` scripts, at most eight of them deep."""
    for _ in range(8):
        path = path.resolve()
        try:
            with path.open("rb") as file:
                text = file.read(4096)
        except OSError:
            return path
        called = re.search(rb"(/[^\s\"']+/" + re.escape(path.name.encode()) + rb")[\s\"']", text) if text[:2] == b"#!" else None
        if called is None or not Path(os.fsdecode(called[1])).is_file() or Path(os.fsdecode(called[1])) == path:
            return path
        path = Path(os.fsdecode(called[1]))
    return path


def _version_numbers(path: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", str(path)))


def _version(program: Path, pattern: str) -> str:
    match = re.search(pattern, _run([str(program), "--version"]) or "")
    return match[1] if match else ""


def _run(command: list[str]) -> str | None:
    """Standard output of a short command, or None when it fails, is absent or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_LIMIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
