"""Storage that a killed run cannot spoil: programs by content hash, append-only logs, evidence in SQLite.

All writes go through :func:`write_atomic` (a temporary file in the same folder, fsync, rename, fsync of the folder),
through one locked append, or through an SQLite transaction.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, Origin, did_you_mean, error

HASH_PATTERN = re.compile(r"[0-9a-f]{64}")
"""The form of a content hash, for ``fullmatch``."""

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE evidence (
        id INTEGER PRIMARY KEY,
        recorded TEXT NOT NULL,
        kind TEXT NOT NULL,
        subject TEXT NOT NULL,
        verdict TEXT NOT NULL,
        record TEXT NOT NULL CHECK (json_valid(record))
    ) STRICT;
    CREATE INDEX evidence_by_subject ON evidence (subject, kind);
    """,
)
"""The evidence schema: entry *n* takes a database from version *n* to *n* + 1 (kept in ``PRAGMA user_version``)."""


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a whole file so that it holds, at any moment, its old content or the new, never a part. Makes its folder.

    A killed process may leave a temporary file ``.NAME.….partial`` beside it, which readers never look at.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.parent / f".{path.name[:80]}.{os.getpid()}-{secrets.token_hex(4)}.partial"
    try:
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """What is written to a file or folder inside, no other process that claims it writes at the same time: by a lock on ``.NAME.lock`` beside it, which ends
    with the process. Raises :class:`KirError` KIR-C010 where another one is at it."""
    lock = path.resolve().with_name(f".{path.resolve().name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with lock.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                who = file.read(40).strip()
                raise error("KIR-C010", f"another process{f' ({who})' if who else ''} is writing to {path}", needs="that it ends, or another place") from None
            try:
                mine = os.fstat(file.fileno()).st_ino == lock.stat().st_ino
            except FileNotFoundError:
                mine = False
            if not mine:  # who held it before has taken it away meanwhile
                continue
            try:
                file.truncate(0)
                file.write(f"process {os.getpid()}")
                file.flush()
                yield
            finally:
                lock.unlink(missing_ok=True)
            return


def content_hash(text: str) -> str:
    """SHA-256 of the UTF-8 bytes, 64 lower-case hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


@dataclass(frozen=True)
class Store:
    """Texts by the hash of their content, as files ``ROOT/ab/cdef….kir`` that a person can read."""

    root: Path

    def put(self, text: str) -> str:
        """Keep ``text`` and return its hash. Keeping the same text again writes nothing."""
        key = content_hash(text)
        if key not in self:
            write_atomic(self.path(key), text)
        return key

    def get(self, hash: str) -> str:
        """The text with this hash, or with this unambiguous beginning of one (8 digits or more).

        Raises :class:`KirError`: KIR-S001 when there is none, KIR-S002 when the file no longer has its hash.
        """
        key = self.complete(hash)
        data = self.path(key).read_bytes()
        if (found := hashlib.sha256(data).hexdigest()) != key:
            raise error(
                "KIR-S002",
                f"the stored program {key[:12]} was changed: its content has the hash {found[:12]}",
                origin=Origin(str(self.path(key)), 1, 1, 1, 1),
                needs="the original file: restore it, or delete it and run again what made it",
            )
        return data.decode("utf-8")

    def complete(self, prefix: str) -> str:
        """The one full hash that starts with ``prefix``; raises KIR-S001 when none or several do."""
        if HASH_PATTERN.fullmatch(prefix):
            matches = [prefix] if prefix in self else []
        elif re.fullmatch(r"[0-9a-f]{8,63}", prefix):
            matches = [key for key in self if key.startswith(prefix)]
        else:
            matches = []
        if len(matches) != 1:
            count = f"{len(matches)} programs start with" if matches else "no program has"
            raise error("KIR-S001", f"{count} the hash '{prefix}' in {self.root}", witness=tuple(matches[:4]))
        return matches[0]

    def path(self, key: str) -> Path:
        """Where the text of a full hash is kept, whether or not it is there."""
        return self.root / key[:2] / f"{key[2:]}.kir"

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and HASH_PATTERN.fullmatch(key) is not None and self.path(key).is_file()

    def __iter__(self) -> Iterator[str]:
        for file in sorted(self.root.glob("[0-9a-f][0-9a-f]/*.kir")):
            if HASH_PATTERN.fullmatch(key := file.parent.name + file.stem):
                yield key


@dataclass(frozen=True)
class Log:
    """An append-only file of JSON objects, one a line. A line that a killed writer left unfinished does not count."""

    path: Path

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one record; it is on disk when this returns. Several processes may append at once."""
        line = json.dumps(record, ensure_ascii=False, sort_keys=True, allow_nan=False).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            _drop_unfinished_line(file.fileno())
            view = memoryview(line)
            while view:
                view = view[os.write(file.fileno(), view) :]
            os.fsync(file.fileno())

    def records(self) -> Iterator[dict[str, Any]]:
        """The records in order; none when the file does not exist.

        Raises :class:`KirError` (KIR-S003), with its line, for a finished line that is no JSON object.
        """
        if not self.path.exists():
            return
        lines = self.path.read_bytes().split(b"\n")
        for number, line in enumerate(lines[:-1], start=1):
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if not isinstance(record, dict):
                place = Origin(str(self.path), number, 1, number, len(line.decode("utf-8", "replace")) + 1)
                raise error("KIR-S003", "this line of the log is no JSON object", origin=place)
            yield record


@dataclass(frozen=True)
class Evidence:
    """One row of the evidence table.

    ``kind`` is what was done (``gate``, ``trial``, ``probe``), ``subject`` the hash or name it is about, ``verdict`` its
    outcome in a word, ``record`` everything else as JSON, ``recorded`` the time in UTC (ISO 8601), ``id`` its number.
    """

    id: int
    recorded: str
    kind: str
    subject: str
    verdict: str
    record: Mapping[str, Any]


class EvidenceTable:
    """Evidence in an SQLite file. Use as a context manager, or call :meth:`close`."""

    def __init__(self, path: Path) -> None:
        """Open or create; brings an older schema up to date.

        Raises :class:`KirError`: KIR-S004 for a schema newer than this KIR, KIR-S005 for a file that is no database.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._connection = sqlite3.connect(path, timeout=30.0, isolation_level=None)
        try:
            self._migrate()
        except BaseException:
            self._connection.close()
            raise

    def add(self, kind: str, subject: str, verdict: str, record: Mapping[str, Any]) -> int:
        """Add a row and return its id; it is on disk when this returns."""
        text = json.dumps(record, ensure_ascii=False, sort_keys=True, allow_nan=False)
        row = (datetime.now(UTC).isoformat(timespec="milliseconds"), kind, subject, verdict, text)
        with (
            self._faults(),
            closing(
                self._connection.execute("INSERT INTO evidence (recorded, kind, subject, verdict, record) VALUES (?, ?, ?, ?, ?)", row)
            ) as cursor,
        ):
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def find(self, *, kind: str | None = None, subject: str | None = None, verdict: str | None = None) -> list[Evidence]:
        """The rows with the given values, oldest first."""
        wanted = {name: value for name, value in (("kind", kind), ("subject", subject), ("verdict", verdict)) if value is not None}
        where = " AND ".join(f"{name} = :{name}" for name in wanted) or "TRUE"
        query = f"SELECT id, recorded, kind, subject, verdict, record FROM evidence WHERE {where} ORDER BY id"
        with self._faults(), closing(self._connection.execute(query, wanted)) as cursor:
            return [Evidence(id_, at, of, about, was, json.loads(text)) for id_, at, of, about, was, text in cursor]

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _migrate(self) -> None:
        with self._faults():
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("BEGIN IMMEDIATE")
            version = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
            if version > len(MIGRATIONS):
                self._connection.execute("ROLLBACK")
                raise error(
                    "KIR-S004",
                    f"{self._path} has evidence schema {version}; this KIR knows up to {len(MIGRATIONS)}",
                    needs="a newer KIR, or another file",
                )
            for script in MIGRATIONS[version:]:
                for statement in filter(str.strip, script.split(";")):
                    self._connection.execute(statement)
            self._connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
            self._connection.execute("COMMIT")

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as fault:
            raise error("KIR-S005", f"{self._path}: {fault}") from fault


def read_json(path: Path, fields: Mapping[str, type] | None = None) -> dict[str, Any]:
    """A file that holds one JSON object; with ``fields``, one with exactly these fields, each of its type.

    Raises :class:`KirError` (KIR-S006), located, when it is not.
    """
    try:
        text = path.read_text(encoding="utf-8")
        value = json.loads(text)
    except json.JSONDecodeError as fault:
        place = Origin(str(path), fault.lineno, fault.colno, fault.lineno, fault.colno + 1)
        raise error("KIR-S006", f"this is not JSON: {fault.msg}", origin=place) from fault
    except (OSError, UnicodeDecodeError) as fault:
        raise error("KIR-S006", f"{path} cannot be read: {fault}") from fault
    if not isinstance(value, dict):
        raise _wrong_field(path, text, "", "the file must hold one JSON object")
    if fields is not None:
        for name in value:
            if name not in fields:
                hint = did_you_mean(name, fields)
                raise _wrong_field(path, text, name, f"there is no field '{name}'{f'; {hint}' if hint else ''}")
        for name, type_ in fields.items():
            if name not in value:
                raise _wrong_field(path, text, "", f"the field '{name}' is missing")
            if not isinstance(value[name], type_):
                raise _wrong_field(path, text, name, f"the field '{name}' must be of type {type_.__name__}")
    return value


def _wrong_field(path: Path, text: str, name: str, message: str) -> KirError:
    start = max(0, text.find(json.dumps(name))) if name else 0
    return error("KIR-S006", message, origin=Origin.of(str(path), text, start, start + (len(name) + 2 if name else 1)))


def _drop_unfinished_line(handle: int) -> None:
    """Cut what a killed writer left after the last newline. The caller holds the lock."""
    size = os.fstat(handle).st_size
    stop = size
    while stop > 0:
        start = max(0, stop - 65536)
        newline = os.pread(handle, stop - start, start).rfind(b"\n")
        if newline >= 0:
            stop = start + newline + 1
            break
        stop = start
    if stop < size:
        os.ftruncate(handle, stop)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
