"""The asking side: start a fork server, have children forked, talk to them, and end them."""
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import kir
from kir.hardware.device import wire
from kir.hardware.device.wire import Blob, Message

START_SECONDS = 60.0
"""How long a server may take to import its modules."""
LAST_WORDS_SECONDS = 5.0
"""How long a server that has closed its end may take to end."""
COMMON = "KIR_SERVERS"
"""The environment variable that names a folder of servers which several processes share."""
OWNER = "owner"
NAME_LENGTH, MOST_OF_A_SOCKET = 17, 107
"""Characters of a server's name with its separator, and of the path of a socket (unix(7))."""


@contextmanager
def common() -> Iterator[str]:
    """A folder for servers that processes share whose `COMMON` names it. They end with the block, and with this process."""
    with tempfile.TemporaryDirectory(prefix="kir-servers-", ignore_cleanup_errors=True) as folder, open(Path(folder) / OWNER, "wb") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        yield folder


def join(name: str) -> bool:
    """For a process of which another is in charge (a worker of a cluster): share servers with all of this machine and user that join `name`, until the last
    of them has ended. False where that cannot be; then it has its own."""
    folder = joined(name)
    if len(str(folder)) + NAME_LENGTH > MOST_OF_A_SOCKET:
        return False
    if os.environ.get(COMMON) == str(folder):
        return True
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return False
        owner = os.open(folder / OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)  # open, and locked, while this process lives
        fcntl.flock(owner, fcntl.LOCK_SH)
    except OSError:
        return False
    os.environ[COMMON] = str(folder)
    return True


def joined(name: str) -> Path:
    """The folder of those who join `name` on this machine."""
    return Path(tempfile.gettempdir()) / f"kir-servers-{os.getuid()}-{name}"


class ChildGone(Exception):
    """A child that did not answer: `how` is `crash`, `timeout` or `refused`, `said` a sentence."""

    def __init__(self, how: str, said: str) -> None:
        super().__init__(said)
        self.how, self.said = how, said


class Child:
    """One forked process. Ask it one thing at a time; leaving the `with` block ends it."""

    def __init__(self, server: Server, channel: socket.socket, pid: int) -> None:
        self.server, self.channel, self.pid = server, channel, pid
        self.ended = ""

    def ask(self, message: Message, blobs: Sequence[Blob] = (), seconds: float = 60.0) -> tuple[Message, list[bytearray]]:
        """The answer. Raises ChildGone when the child died, took longer than `seconds`, or answered with an error."""
        if self.ended:
            raise ChildGone("crash", f"the process had ended ({self.ended})")
        self.channel.settimeout(seconds)
        begun = time.perf_counter()
        try:
            wire.send(self.channel, message, blobs)
            answer, back = wire.receive(self.channel)
        except TimeoutError:
            self.close()
            raise ChildGone("timeout", f"it did not answer within {time.perf_counter() - begun:.0f} s, and was killed") from None
        except wire.Closed:
            self.close(dying=True)
            raise ChildGone("crash", f"its process died ({_in_words(self.ended)})") from None
        if "error" in answer:
            raise ChildGone("refused", str(answer["error"]))
        return answer, back

    def close(self, dying: bool = False) -> None:
        """End the process."""
        if not self.ended:
            self.ended = self.server.end(self.pid, dying)
            self.channel.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Server:
    """A fork server whose children run `task` (`module:function`). `modules` are imported before the first fork, `later` ones before the second. One that
    `shares` is the same for all processes whose environment names a folder in `COMMON`; the first that asks starts it."""

    def __init__(self, task: str, modules: Sequence[str] = (), environment: dict[str, str] | None = None, later: Sequence[str] = (),
                 shares: bool = False) -> None:
        self.task, self._modules, self._later, self._environment = task, list(modules), list(later), dict(environment or {})
        self._lock, self._starting = threading.Lock(), threading.Lock()
        self._served = False
        folder = os.environ.get(COMMON, "") if shares else ""
        self._common = Path(folder) if folder and (Path(folder) / OWNER).exists() else None
        self._process: Any = None  # what was started here, of a shared server perhaps nothing
        self._start()

    def _start(self) -> None:
        self._late = 0
        self._said = ""
        self._lost = False
        if self._common is not None:
            self._control = self._joined(self._common)
            return
        mine, theirs = socket.socketpair()
        self._control = mine
        self._process = self._spawned(theirs, "", subprocess.PIPE)
        theirs.close()

    def _spawned(self, served: socket.socket, owner: str, says: Any) -> subprocess.Popen[bytes]:
        roots = list(dict.fromkeys([str(Path(kir.__file__).parents[1]), *(p for p in sys.path if p)]))
        asked = f"{served.fileno()}, {self._modules!r}, {self._later!r}, {owner!r}"
        code = f"import sys; sys.path[:] = {roots!r}; from kir.hardware.device.server import main; main({asked})"
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LD_LIBRARY_PATH", "LANG", "HOME", "CUDA_VISIBLE_DEVICES", "CUDA_HOME",
                                                            "CUDA_INJECTION64_PATH")}
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", code], pass_fds=(served.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=says, env={**kept, "CUDA_CACHE_DISABLE": "1", "PYTHONDONTWRITEBYTECODE": "1", **self._environment})

    def _joined(self, folder: Path) -> socket.socket:
        """A connection to the server that a folder has, started here where there is none that answers."""
        name = folder / hashlib.sha256(repr((self.task, self._modules, self._later, sorted(self._environment.items()))).encode()).hexdigest()[:NAME_LENGTH - 1]
        with open(name.with_suffix(".lock"), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            mine = socket.socket(socket.AF_UNIX)
            try:
                mine.connect(str(name))
            except OSError:
                name.unlink(missing_ok=True)
                with socket.socket(socket.AF_UNIX) as listening, open(name.with_suffix(".said"), "wb") as says:
                    listening.bind(str(name))
                    listening.listen(256)
                    self._process = self._spawned(listening, str(folder / OWNER), says)
                mine.connect(str(name))
        self._words = name.with_suffix(".said")
        return mine

    def child(self, seconds: float = START_SECONDS) -> Child:
        """A fresh child. A server that has served and was killed since is started again. Raises ChildGone when it dies all the same."""
        asked = self._control
        try:
            made = self._forked(seconds)
        except ChildGone:
            with self._starting:
                if self._control is asked:  # no other thread has started it again
                    if not self._served or not self._lost:
                        raise
                    self.close()
                    self._start()
            made = self._forked(seconds)
        self._served = True
        return made

    def _forked(self, seconds: float) -> Child:
        mine, theirs = socket.socketpair()
        try:
            pid = int(self._asked(f"fork {self.task}", theirs.fileno(), seconds=seconds))
        except BaseException:
            mine.close()
            raise
        finally:
            theirs.close()
        return Child(self, mine, pid)

    def end(self, pid: int, dying: bool = False) -> str:
        """Kill a child if it lives (after a moment, if it is dying); how it ended."""
        try:
            return self._asked(f"{'reap' if dying else 'end'} {pid}")
        except ChildGone:
            return "killed"

    def _asked(self, request: str, handle: int | None = None, seconds: float = 30.0) -> str:
        with self._lock:
            try:
                self._control.settimeout(seconds)
                while self._late:
                    self._answer()
                    self._late -= 1
                socket.send_fds(self._control, [request.encode()], [handle] if handle is not None else [])
                self._late += 1
                answer = self._answer()
                self._late -= 1
            except OSError as gone:
                raise ChildGone("crash", f"the fork server is gone: {self._last_words(gone) or gone}") from None
        return answer.decode().strip()

    def _last_words(self, gone: OSError) -> str:
        """What a server said that has ended; one that closes its end is ending."""
        if self._common is not None:
            self._lost = not isinstance(gone, TimeoutError)
            with contextlib.suppress(OSError):
                self._said = self._said or self._words.read_text(errors="replace").strip()[-600:]
            return self._said
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(LAST_WORDS_SECONDS)
        self._lost = self._process.poll() is not None
        if self._lost and self._process.stderr is not None:
            with contextlib.suppress(ValueError):  # another thread has read them, and starts the server again
                self._said = self._said or self._process.stderr.read().decode(errors="replace").strip()[-600:]
        return self._said

    def _answer(self) -> bytearray:
        """The next answer, of 64 bytes. One that came too late for its request is read, and left, before the next request is made."""
        answer = bytearray()
        while len(answer) < 64:
            got = self._control.recv(64 - len(answer))
            if not got:
                raise OSError("closed")
            answer += got
        return answer

    def close(self) -> None:
        """End the server and with it all children; one that is shared goes on without them."""
        with contextlib.suppress(OSError):
            self._control.close()
        if self._common is not None or self._process is None:
            return
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _in_words(ended: str) -> str:
    kind, _, number = ended.partition(" ")
    if kind == "signal":
        with contextlib.suppress(ValueError):
            return signal.Signals(int(number)).name
    return "killed" if kind == "killed" else f"exit code {number}"
