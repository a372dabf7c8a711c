"""The confinement itself, in plain system calls. Standard library only: this file is also a launcher (`python -I -S sandbox.py`).

Parts, strongest first; each is taken where the kernel grants it and named in the `Level` that comes back:
user and network namespaces (unshare), Landlock (files; TCP from its ABI 4), seccomp (sockets, tracing, mounts), rlimits, no new privileges.
Numbers are those of the Linux headers (`linux/landlock.h`, `linux/seccomp.h`, `asm/unistd.h`).
"""
from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import signal
import socket
import struct
import sys
from dataclasses import asdict, dataclass, field

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
"""Device files that anything may write."""
GPU_DEVICES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset", "/dev/nvidia-caps", "/dev/shm",
               "/proc/self")
"""What the CUDA driver opens for writing."""
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_FS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many kinds of file access each Landlock ABI knows."""
_READING = 0b1101
"""Execute, read a file, list a folder."""

# System calls that are refused, by machine: ptrace, mount and kin, tracing, modules, keys, other processes' memory, namespaces.
_REFUSED = {
    "x86_64": (0xC000003E, (101, 165, 166, 155, 175, 176, 313, 321, 298, 248, 249, 250, 310, 311, 272, 308, 246, 320, 169, 167, 168, 434,
                            425, 426, 427, 428, 429, 430, 431, 432, 442), 41, (59, 322)),
    "aarch64": (0xC00000B7, (117, 40, 39, 41, 105, 106, 273, 280, 241, 217, 218, 219, 270, 271, 97, 268, 104, 294, 142, 224, 225, 434,
                             425, 426, 427, 428, 429, 430, 431, 432, 442), 198, (221, 281)),
}


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


def confine(limits: Limits) -> Level:
    """Confine the calling process, which must have one thread, for good. What the kernel does not grant is left out of the level."""
    libc = ctypes.CDLL(None, use_errno=True)
    limited = _limit(limits)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    namespaces = _unshare(libc)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return Level(namespaces, 0, False, limited)
    landlock = _landlock(libc, limits)
    seccomp = _seccomp(libc, limits)
    return Level(namespaces, landlock, seccomp, limited)


# ------------------------------------------------------------------------------------------------------------------------ limits

def _limit(limits: Limits) -> tuple[str, ...]:
    wanted = [("processor time", resource.RLIMIT_CPU, limits.seconds), ("file size", resource.RLIMIT_FSIZE, limits.file_bytes),
              ("core dumps", resource.RLIMIT_CORE, 0), ("memory", resource.RLIMIT_AS, limits.memory_bytes),
              ("memory", resource.RLIMIT_DATA, limits.own_bytes)]
    done = []
    for name, which, value in wanted:
        if not value and which != resource.RLIMIT_CORE:
            continue
        _, hard = resource.getrlimit(which)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(which, (most, most))
            done.append(name)
        except (OSError, ValueError):
            continue
    return tuple(dict.fromkeys(done))


# -------------------------------------------------------------------------------------------------------------------- namespaces

def _unshare(libc: ctypes.CDLL) -> tuple[str, ...]:
    """Network and IPC of its own: in a user namespace where that is granted, else directly where the process is privileged."""
    user, group = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC) == 0:
        for file, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            try:
                with open(f"/proc/self/{file}", "w") as out:
                    out.write(text)
            except OSError:
                continue
        return ("user", "network", "ipc")
    return ("network", "ipc") if libc.unshare(CLONE_NEWNET | CLONE_NEWIPC) == 0 else ()


# ---------------------------------------------------------------------------------------------------------------------- landlock

def _landlock(libc: ctypes.CDLL, limits: Limits) -> int:
    """Files: everything may be read, only the writable folders written. Returns the ABI used, 0 where it was not granted."""
    abi = int(libc.syscall(ctypes.c_long(444), None, ctypes.c_size_t(0), ctypes.c_uint32(1)))
    if abi < 1:
        return 0
    every = (1 << _FS_BY_ABI[min(abi, 5)]) - 1
    network = 0b11 if abi >= 4 else 0
    scoped = 0b11 if abi >= 6 else 0
    packed = struct.pack("QQQ", every, network, scoped)[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
    ruleset = int(libc.syscall(ctypes.c_long(444), packed, ctypes.c_size_t(len(packed)), ctypes.c_uint32(0)))
    if ruleset < 0:
        return 0
    on_file = every & (0b111 | 1 << 14 | 1 << 15)
    places = [("/", every & _READING), *((path, every) for path in limits.writable), *((path, on_file) for path in DEVICES)]
    if limits.gpu:
        numbered = [f"/dev/nvidia{i}" for i in range(16)]
        places += [(path, every if os.path.isdir(path) else on_file) for path in (*GPU_DEVICES, *numbered)]
    for path, access in places:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        rule = struct.pack("=Qi", access, handle)
        libc.syscall(ctypes.c_long(445), ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0))
        os.close(handle)
    done = libc.syscall(ctypes.c_long(446), ctypes.c_int(ruleset), ctypes.c_uint32(0)) == 0
    os.close(ruleset)
    return abi if done else 0


# ----------------------------------------------------------------------------------------------------------------------- seccomp

class _Filter(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Filter)))


_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000 | 1, 0x80000000


def _seccomp(libc: ctypes.CDLL, limits: Limits) -> bool:
    """Refuses (EPERM) sockets other than local ones, and what only a privileged or prying program calls."""
    known = _REFUSED.get(platform.machine())
    if known is None:
        return False
    audit, refused, socket_call, exec_calls = known
    rows: list[tuple[int, int, int, int]] = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    for number in (*refused, *(() if limits.programs else exec_calls)):
        rows += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO)]
    rows += [(_EQUAL, 0, 3, socket_call), (_LOAD, 0, 0, 16), (_EQUAL, 1, 0, int(socket.AF_UNIX)), (_RETURN, 0, 0, _ERRNO), (_RETURN, 0, 0, _ALLOW)]
    table = (_Filter * len(rows))(*(_Filter(*row) for row in rows))
    program = _Program(len(rows), ctypes.cast(table, ctypes.POINTER(_Filter)))
    return bool(libc.prctl(PR_SET_SECCOMP, 2, ctypes.byref(program), 0, 0) == 0)


# ------------------------------------------------------------------------------------------------------------- launcher and probe

def _probe() -> Level:
    """Confine this process with nothing writable, then try what must not work."""
    level = confine(Limits())
    refused = []
    def tried(name: str, action: object) -> None:
        try:
            action()  # type: ignore[operator]  # a function of no arguments
        except (OSError, ValueError):
            refused.append(name)
    def write() -> None:
        name = f"/tmp/kir-probe-{os.getpid()}"
        with open(name, "w") as out:
            out.write("x")
        os.unlink(name)
    def connect() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
    def trace() -> None:
        if ctypes.CDLL(None, use_errno=True).ptrace(16, os.getppid(), 0, 0) != 0:
            raise OSError("refused")
    for name, action in (("write a file", write), ("use the network", connect), ("trace a process", trace)):
        tried(name, action)
    return Level(level.namespaces, level.landlock, level.seccomp, level.limits, tuple(refused))


def main(arguments: list[str]) -> None:
    """`LIMITS -- COMMAND..` becomes the command, confined; `--probe` prints a level."""
    if arguments == ["--probe"]:
        print(json.dumps(_probe().to_json()))
        return
    row = json.loads(arguments[0])
    row["writable"] = tuple(row["writable"])
    confine(Limits(**row))
    command = arguments[2:]
    try:
        os.execvp(command[0], command)
    except OSError as fault:
        print(f"{command[0]}: {fault.strerror}", file=sys.stderr)
        raise SystemExit(127) from None


if __name__ == "__main__":
    main(sys.argv[1:])
