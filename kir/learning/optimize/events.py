"""The log of a search: one JSON object a line, appended as things happen; a search that is run again over its log goes the same way.

Two events are the same when they agree in all but their `clock`. A search that finds its next event in the log takes it from there, gate's word
included, and goes on by itself where the log ends: so a killed search resumes, and a finished one replays.
"""
from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.base.store import Log

SCHEMA = "kir.optimize/1"
ENDING = ("again", "end")
"""Events of a search's end, which one that goes on over the log comes to later."""


class LogEnds(Exception):
    """A replay that has come to the end of its log."""


@dataclass
class Recorder:
    """Where events go, and come from as long as the log has more. Without a log they are only kept here. With `only` nothing new may happen:
    at the end of the log :class:`LogEnds` is raised."""

    log: Log | None = None
    only: bool = False
    events: list[dict[str, Any]] = field(default_factory=list)
    _stored: list[dict[str, Any]] = field(default_factory=list)
    _again: dict[str, dict[str, Any]] = field(default_factory=dict)
    _end: Mapping[str, Any] = field(default_factory=dict)
    _begun: float = field(default_factory=time.monotonic)
    _spent: float = 0.0
    judged: float = 0.0
    """Seconds of this run that compilers, the gate and the device took."""

    @classmethod
    def over(cls, path: Path | None, only: bool = False) -> Recorder:
        """Over a file, which may hold the beginning of the search. Raises KirError KIR-U021 for a log of another version, and as `Log.records`."""
        if path is None:
            return cls()
        log = Log(path)
        stored = list(log.records())
        for row in stored:
            if row.get("schema") != SCHEMA:
                raise error("KIR-U021", f"{path} is a log of the form '{row.get('schema', 'unknown')}'", needs=f"one of the form '{SCHEMA}', or another file")
        if stored and not only and all(row["event"] == "begin" or (row["event"] == "gate" and not row["accepted"]) for row in stored):
            path.unlink()  # of a kernel that was refused before anything was searched: nothing is lost, and the next may be another
            stored = []
        kept = [row for row in stored if row["event"] not in ENDING]
        out = cls(log, only, _stored=kept, _again={row["candidate"]: row for row in stored if row["event"] == "again"},
                  _end=stored[-1] if stored and stored[-1]["event"] == "end" else {})
        out._spent = float(stored[-1]["clock"]) if stored else 0.0
        return out

    @property
    def stored(self) -> Sequence[Mapping[str, Any]]:
        """What the log held."""
        return self._stored

    @property
    def clock(self) -> float:
        """Seconds spent on the search, those of earlier runs included. What is taken from the log has taken what it took then, and nothing now."""
        if self.replaying:
            return float(self.events[-1]["clock"]) if self.events else 0.0
        return self._spent + time.monotonic() - self._begun

    @contextlib.contextmanager
    def judging(self) -> Iterator[None]:
        """A block that is not the search's own time."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.judged += time.monotonic() - begun

    def ended(self, budget: Mapping[str, Any]) -> str:
        """Why the search ended by the log, under the same budget; "" where it did not, or has more to spend now."""
        return str(self._end["reason"]) if self._end.get("budget") == budget and not self.replaying else ""

    def _taken(self, stored: Mapping[str, Any]) -> Mapping[str, Any]:
        """An event of the log, which has happened now."""
        self.events.append(dict(stored))
        if not self.replaying:
            self._begun = time.monotonic()
        return stored

    def next_stored(self) -> Mapping[str, Any] | None:
        """The event that comes next by the log; None at its end."""
        return self._stored[len(self.events)] if len(self.events) < len(self._stored) else None

    @property
    def replaying(self) -> bool:
        """Whether the log has more events than happened so far."""
        return self.next_stored() is not None

    def add(self, event: str, **fields: Any) -> None:
        """An event that happened. Raises KirError KIR-U022 where the log has another one in its place, and LogEnds."""
        row = {"schema": SCHEMA, "event": event, **fields}
        stored = self.next_stored()
        if stored is not None and event not in ENDING:
            if {k: v for k, v in stored.items() if k != "clock"} != row:
                told = tuple(f"{k}: {stored.get(k)!r} in the log, {row.get(k)!r} now" for k in row if stored.get(k) != row[k])[:3]
                raise error("KIR-U022", f"event {len(self.events) + 1} of the log is another than this search comes to", witness=told,
                            needs="the inputs and the version of KIR that the log was made with, or another log")
            self._taken(stored)
            return
        if event == "end" and {k: v for k, v in self._end.items() if k != "clock"} == row:
            self.events.append(dict(self._end))
            return
        if self.only and event not in ENDING:
            raise LogEnds
        row["clock"] = round(self.clock, 3)
        self.events.append(row)
        if self.log is not None and not self.only:
            self.log.append(row)

    def following(self, event: str) -> list[dict[str, Any]]:
        """The events of a kind that come next by the log, one after another; none where the log ends with them, since there may have been more."""
        rest = self._stored[len(self.events):]
        count = next((k for k, row in enumerate(rest) if row["event"] != event), 0)
        return rest[:count]

    def due(self, now: Callable[[], bool]) -> bool:
        """Whether it is time to gate a candidate, as the clock says `now`: by the log, where that has more, whether one was gated."""
        stored = self.next_stored()
        return stored["event"] == "gate" if stored is not None else not self.only and now()

    def gated(self, key: str, judge: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """The gate's word on a candidate: from the log where it is there, else asked for and recorded."""
        stored = self.next_stored()
        if stored is not None and stored["event"] == "gate" and stored["candidate"] == key:
            return self._taken(stored)
        if self.only and stored is None:
            raise LogEnds
        with self.judging():
            said = dict(judge())
        self.add("gate", candidate=key, **said)
        return said

    def knows_again(self, key: str) -> bool:
        """Whether the log has the word on this one, judged once more."""
        return key in self._again

    def again(self, key: str, judge: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """The word on a candidate that is judged once more at the end: from the log where it is there, else asked for and recorded."""
        if (known := self._again.get(key)) is not None:
            self.events.append(dict(known))
            return known
        if self.only:
            raise LogEnds
        with self.judging():
            said = dict(judge())
        self.add("again", candidate=key, **said)
        return said
