"""What was asked and what came back, on disk: a run that was killed goes on without paying twice, and an equal question is not asked again.

The journal is an append-only log: `asked` before each call, with its worst case, `settled` after it, `done` at the end of a run. Replies are
kept beside it, by the hash of prompt, model and settings.
"""
from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Origin, error
from kir.base.store import Log, read_json, write_atomic
from kir.lineage.carrier.providers.budget import Meter, Spent
from kir.lineage.carrier.providers.provider import Request


@dataclass(frozen=True)
class Kept:
    """A reply as it is kept: its text, what it cost when it was asked for, and who gave it."""

    text: str
    spent: Spent
    who: str


def key_of(request: Request, settings: Mapping[str, Any]) -> str:
    """sha256, in hex, of everything that the reply depends on."""
    asked = {"system": request.system, "messages": [[m.role, m.text] for m in request.messages], "settings": dict(settings)}
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(frozen=True)
class Journal:
    """A folder with a run's log and all replies. `reuse` False asks again for what is kept."""

    folder: Path
    run: str
    reuse: bool = True

    @property
    def log(self) -> Log:
        """The run's log."""
        return Log(self.folder / "runs" / f"{self.run}.jsonl")

    def asked(self, key: str, what: str, worst: Spent) -> None:
        """A call is about to be made."""
        self.log.append({"event": "asked", "key": key, "what": what, "worst": _json(worst)})

    def settled(self, key: str, what: str, actual: Spent, note: str) -> None:
        """The call's cost is known."""
        self.log.append({"event": "settled", "key": key, "what": what, "actual": _json(actual), "note": note})

    def done(self) -> None:
        """The run came to its end; what follows is another one."""
        if self.log.path.exists():
            self.log.append({"event": "done"})

    def charge_earlier(self, meter: Meter) -> None:
        """Count what an earlier, unfinished run of the same name spent; a call without an outcome counts as its worst case."""
        unfinished: dict[tuple[str, str], Spent] = {}
        settled: list[tuple[str, Spent, str]] = []
        for number, record in enumerate(self.log.records(), start=1):
            try:
                match record.get("event"):
                    case "asked":
                        unfinished[record["key"], record["what"]] = _spent(record["worst"])
                    case "settled":
                        unfinished.pop((record["key"], record["what"]), None)
                        settled.append((record["what"], _spent(record["actual"]), record["note"]))
                    case _:
                        unfinished, settled = {}, []
            except (KeyError, TypeError, ValueError, ArithmeticError):
                raise error("KIR-H312", "this line of the journal is no record of a call", origin=Origin(str(self.log.path), number, 1, number, 2),
                            needs="the file as it was written; without it, what an unfinished run spent is not known") from None
        for what, actual, note in settled:
            meter.charge(what, actual, "; ".join(x for x in (note, "before the run was resumed") if x))
        for (key, what), worst in unfinished.items():
            meter.charge(what, worst, "killed before its outcome was known: its worst case")
            self.settled(key, what, worst, "killed before its outcome was known: its worst case")

    def kept(self, key: str) -> Kept | None:
        """The reply to an equal question, if it is kept. Raises KirError KIR-S006 for a file that was damaged."""
        path = self._path(key)
        if not self.reuse or not path.is_file():
            return None
        found = read_json(path, {"text": str, "who": str, "spent": dict})
        return Kept(found["text"], _spent(found["spent"]), found["who"])

    def keep(self, key: str, text: str, who: str, spent: Spent) -> None:
        """Keep a reply."""
        write_atomic(self._path(key), json.dumps({"text": text, "who": who, "spent": _json(spent)}, ensure_ascii=True))

    def _path(self, key: str) -> Path:
        return self.folder / "replies" / key[:2] / f"{key[2:]}.json"


def _json(s: Spent) -> dict[str, Any]:
    return {"dollars": str(s.dollars), "input": s.input, "output": s.output, "attempts": s.attempts}


def _spent(value: Mapping[str, Any]) -> Spent:
    return Spent(Decimal(value["dollars"]), int(value["input"]), int(value["output"]), int(value["attempts"]))
