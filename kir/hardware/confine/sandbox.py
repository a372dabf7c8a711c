"""The confinement itself, in plain system calls. Every compiler is started behind this file, without site packages: it imports no more of the standard
library than takes a few milliseconds.

Parts, strongest first; each is taken where the kernel grants it and named in the `Level` that comes back:
user and network namespaces (unshare), Landlock (files; TCP from its ABI 4), seccomp (sockets, tracing, mounts), rlimits, no new privileges.
Numbers are those of the Linux headers (`linux/landlock.h`, `linux/seccomp.h`, `asm/unistd.h`).
"""
from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kir.hardware.confine.limits import Limits

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
"""Device files that anything may write."""
GPU_DEVICES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset", "/dev/nvidia-caps", "/dev/shm",
               "/proc/self")
"""What the CUDA driver opens for writing."""
SIGKILL, AF_UNIX = 9, 1
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


def confined(limits: Limits | Told) -> tuple[tuple[str, ...], int, bool, tuple[str, ...]]:
    """Confine the calling process, which must have one thread, for good: the parts of a `Level`, without those that the kernel does not grant."""
    libc = ctypes.CDLL(None, use_errno=True)
    limited = _limit(limits)
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    namespaces = _unshare(libc)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return namespaces, 0, False, limited
    return namespaces, _landlock(libc, limits), _seccomp(libc, limits), limited


# ------------------------------------------------------------------------------------------------------------------------ limits

def _limit(limits: Limits | Told) -> tuple[str, ...]:
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

def _landlock(libc: ctypes.CDLL, limits: Limits | Told) -> int:
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


def _seccomp(libc: ctypes.CDLL, limits: Limits | Told) -> bool:
    """Refuses (EPERM) sockets other than local ones, and what only a privileged or prying program calls."""
    known = _REFUSED.get(os.uname().machine)
    if known is None:
        return False
    audit, refused, socket_call, exec_calls = known
    rows: list[tuple[int, int, int, int]] = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    for number in (*refused, *(() if limits.programs else exec_calls)):
        rows += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO)]
    rows += [(_EQUAL, 0, 3, socket_call), (_LOAD, 0, 0, 16), (_EQUAL, 1, 0, AF_UNIX), (_RETURN, 0, 0, _ERRNO), (_RETURN, 0, 0, _ALLOW)]
    table = (_Filter * len(rows))(*(_Filter(*row) for row in rows))
    program = _Program(len(rows), ctypes.cast(table, ctypes.POINTER(_Filter)))
    return bool(libc.prctl(PR_SET_SECCOMP, 2, ctypes.byref(program), 0, 0) == 0)


# ---------------------------------------------------------------------------------------------------------------------- launcher

class Told:
    """What a process is left, as `Limits`, told on a command line."""

    def __init__(self, words: list[str]) -> None:
        """Each word is `field=value`, or `writable=` and a folder."""
        told = [word.partition("=")[::2] for word in words]
        self.writable = tuple(value for name, value in told if name == "writable")
        number = {name: int(value) for name, value in told if name != "writable"}
        self.seconds, self.file_bytes, self.memory_bytes, self.own_bytes = (number[x] for x in ("seconds", "file_bytes", "memory_bytes", "own_bytes"))
        self.programs, self.gpu = bool(number["programs"]), bool(number["gpu"])


def words(limits: Limits) -> list[str]:
    """What `Told` reads."""
    numbers = {"seconds": limits.seconds, "file_bytes": limits.file_bytes, "memory_bytes": limits.memory_bytes, "own_bytes": limits.own_bytes,
               "programs": int(limits.programs), "gpu": int(limits.gpu)}
    return [*(f"{name}={value}" for name, value in numbers.items()), *(f"writable={folder}" for folder in limits.writable)]


def launch(arguments: list[str]) -> None:
    """`WORDS -- COMMAND..` becomes the command, confined."""
    at = arguments.index("--")
    confined(Told(arguments[:at]))
    command = arguments[at + 1:]
    try:
        os.execvp(command[0], command)
    except OSError as fault:
        print(f"{command[0]}: {fault.strerror}", file=sys.stderr)
        raise SystemExit(127) from None
