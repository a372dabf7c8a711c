"""Arrays kept in files by what they are of, for all processes of one search: many candidates are judged on the same inputs, and an oracle that is asked
once at a timed shape takes longer than all else that a candidate costs."""
from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.problem.draws import numpy_dtype
from kir.problem.problem import Problem
from kir.problem.schema import Shape

Array = NDArray[Any]
Parts = tuple[dict[str, Array], ...]
MOST_BYTES = 24 << 30
"""Bytes of all arrays that are kept, and no more than a share of what the folder's disk has left."""
SHARE = 0.5
ALIGNED = 4096
KNOWN = {str(numpy_dtype(name)): numpy_dtype(name) for name in ("bool", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2", "e8m0", "i8", "i16", "i32", "i64",
                                                                "u8", "u16", "u32", "u64")}
"""Dtypes by what NumPy calls them."""


@dataclass(frozen=True)
class Answers:
    """A folder of arrays, at most `most` bytes of them: what was longest not asked for goes first. A file is mapped, not read, so that all processes of
    this machine share its memory. Files are whole or not there; one that cannot be read is made again."""

    folder: Path
    most: int = MOST_BYTES

    def kept(self, key: str, make: Callable[[], Parts]) -> Parts:
        """The arrays of a key, made now where they are not kept; who asks for what another process is making waits for it. What does not fit is made and
        not kept. Raises what `make` raises."""
        path = self.folder / f"{key}.arrays"
        if (found := _read(path)) is not None:
            return found
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self.folder / f"{key}.lock", "a+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (found := _read(path)) is not None:
                return found
            made = make()
            if not self._room(sum(_size(a) for part in made for a in part.values())):
                return made
            try:
                _write(path, made)
            except OSError:  # the disk is full
                return made
        return _read(path) or made

    def _room(self, wanted: int) -> bool:
        """Take away what was asked for longest ago until so many bytes fit; whether they do."""
        files: list[tuple[float, int, Path]] = []
        for path in self.folder.glob("*.arrays"):
            try:
                about = path.stat()
            except FileNotFoundError:  # another process took it away
                continue
            files.append((about.st_mtime, about.st_size, path))
        there, disk = sum(size for _, size, _ in files), os.statvfs(self.folder)
        most = min(self.most, there + int(SHARE * disk.f_bavail * disk.f_frsize))
        for _, size, path in sorted(files):
            if there + wanted <= most or wanted > most:
                break
            path.unlink(missing_ok=True)  # who has it mapped keeps it
            there -= size
        return there + wanted <= most


def key_of(problem: Problem, at: Shape, *more: object) -> str:
    """The key of something about a problem at sizes."""
    said = hashlib.sha256(json.dumps([problem.spec.model_dump_json(), problem.dtype, sorted(at.sizes.items()), [str(x) for x in more]]).encode())
    said.update(problem.computed_by)
    return said.hexdigest()


def digest(arrays: Mapping[str, Array]) -> str:
    """A hash of arrays with their names, dtypes and shapes."""
    said = hashlib.sha256()
    for name, a in sorted(arrays.items()):
        said.update(f"{name} {a.dtype} {a.shape};".encode())
        said.update(np.ascontiguousarray(a).reshape(-1).view(np.uint8).data if a.size else b"")
    return said.hexdigest()


def _size(a: Array) -> int:
    return -(-a.nbytes // ALIGNED) * ALIGNED


def _write(path: Path, parts: Parts) -> None:
    rows = [[[name, str(a.dtype), list(a.shape)] for name, a in part.items()] for part in parts]
    partial = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as file:  # not synced: what a lost machine leaves is of no use to anyone
            file.write(json.dumps(rows).encode().ljust(ALIGNED - 1) + b"\n")
            for part in parts:
                for a in part.values():
                    file.write(np.ascontiguousarray(a).reshape(-1).view(np.uint8).data if a.size else b"")
                    file.write(bytes(_size(a) - a.nbytes))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _read(path: Path) -> Parts | None:
    """The arrays of a file, mapped; None where there is none that is whole."""
    try:
        os.utime(path)
        with path.open("rb") as file:
            rows = json.loads(file.read(ALIGNED))
        whole = np.memmap(path, np.uint8, "r")
        place, out = ALIGNED, list[dict[str, Array]]()
        for part in rows:
            arrays: dict[str, Array] = {}
            for name, dtype, shape in part:
                like = np.empty(0, KNOWN[dtype])
                size = int(np.prod(shape, dtype=np.int64)) * like.itemsize
                arrays[name] = np.asarray(whole[place:place + size]).view(like.dtype).reshape(shape)
                place += -(-size // ALIGNED) * ALIGNED
            out.append(arrays)
        return tuple(out) if place <= whole.size else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


__all__ = ["Answers", "digest", "key_of"]
