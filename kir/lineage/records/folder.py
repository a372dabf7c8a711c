"""A lineage's folder on disk: ``lineage.json``, the journal of a walk in progress, the program store, emitted code.

Everything goes through :mod:`kir.base.store`, so that a killed walk leaves a journal that the next run resumes, and never half a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from importlib import resources
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Origin, did_you_mean, error, usage
from kir.base.store import Log, Store, write_atomic
from kir.ir.nodes import Program
from kir.ir.parser import parse_program
from kir.ir.printer import program_text
from kir.lineage.records.record import Header, Lineage, State, Step, canonical, dump, genesis, link, load, schema_fault, verify_chain

NAME = "lineage.json"
JOURNAL = "journal.jsonl"
STORE = "store"


@dataclass
class Folder:
    """The folder of one lineage. Serves the walk as its journal once :meth:`begin` was called."""

    root: Path
    _earlier: list[Step] = field(default_factory=list)
    _previous: str = ""
    _kept: dict[str, Program] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return Store(self.root / STORE)

    @property
    def log(self) -> Log:
        return Log(self.root / JOURNAL)

    @property
    def file(self) -> Path:
        return self.root / NAME

    def begin(self, header: Header, *, fresh: bool = False) -> bool:
        """Open the folder for a walk; True when an earlier run of the same walk is taken up.

        Raises :class:`KirError`: KIR-S013 when the journal was begun with another header, KIR-S011 for a changed record.
        """
        if fresh:
            self.log.path.unlink(missing_ok=True)
            self.file.unlink(missing_ok=True)
        records = list(self.log.records())
        if not records:
            self.log.append({"header": json.loads(canonical(header))})
            self._previous = _root(header)
            return False
        text = self.log.path.read_text(encoding="utf-8")
        wanted = json.loads(canonical(header))
        found = records[0].get("header")
        if found != wanted:
            raise self._other(found if isinstance(found, dict) else {}, wanted)
        self._previous = _root(header)
        for number, record in enumerate(records[1:], start=2):
            place = Origin(str(self.log.path), number, 1, number, 2)
            try:
                step = Step.model_validate(record)
            except ValidationError as fault:
                line = text.split("\n")[number - 1]
                raise schema_fault("KIR-S010", fault, line, f"{self.log.path} (line {number})", Step) from fault
            if step.previous != self._previous or link(step, self._previous).hash != step.hash:
                raise error("KIR-S011", f"the record of step {step.index} ({step.backward}) was changed", origin=place, attempt="--restart")
            self._previous = step.hash
            self._earlier.append(step)
        return bool(self._earlier)

    def _other(self, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Exception:
        differing = [key for key in wanted if found.get(key) != wanted[key]]
        return error(
            "KIR-S013",
            f"{self.root} holds the journal of another lineage: it differs in {', '.join(differing) or 'its form'}",
            origin=Origin(str(self.log.path), 1, 1, 1, 2),
            witness=tuple(f"{key}: {there!r} there, {here!r} asked for" for key in differing[:3] for there, here in [_parted(found.get(key), wanted[key])]),
            attempt="another folder, or --restart to begin anew in this one",
        )

    # The walk's journal.

    def keep(self, program: Program) -> str:
        """Store a program's text and return its key."""
        key = self.store.put(program_text(program))
        self._kept[key] = program
        return key

    def add(self, step: Step) -> None:
        """Put a decided step on disk, linked to the one before."""
        linked = link(step, self._previous)
        self.log.append(linked.model_dump(mode="json", by_alias=True))
        self._previous = linked.hash

    def done(self) -> Sequence[Step]:
        """The steps of an earlier run of the same walk."""
        return tuple(self._earlier)

    def program(self, state: State) -> Program:
        """A stored program; raises :class:`KirError` (KIR-S001, KIR-S002) when it is gone or was changed."""
        return parse_program(self.store.get(state.text), str(self.store.path(state.text)))

    def shown(self, state: State) -> Program:
        """A program for a page: the one that was kept, of which emitter and cost model know much already, else the stored one."""
        found = self._kept.get(state.text)
        return self.program(state) if found is None else found

    # The finished lineage.

    def finish(self, lineage: Lineage) -> None:
        """Write ``lineage.json``."""
        write_atomic(self.file, dump(lineage))

    def read(self) -> Lineage:
        """The finished lineage, its chain verified.

        Raises :class:`UsageError` (KIR-S010) when there is none, :class:`KirError` (KIR-S010, KIR-S011) for a file that is not
        as it was written.
        """
        if not self.file.is_file():
            unfinished = self.log.path.is_file()
            raise usage(
                "KIR-S010",
                f"there is no {NAME} in {self.root}{': its walk was not finished' if unfinished else ''}",
                attempt="the same `kir lineage` command again, which takes the walk up where it stopped" if unfinished
                else f"kir lineage {self.root}, which makes one of a kernel" if self.root.is_file()
                else did_you_mean(self.root.name, lineage_names()) or "kir lineages, which lists those that come with KIR",
            )
        text = self.file.read_text(encoding="utf-8", errors="replace")
        lineage = load(text, str(self.file))
        verify_chain(lineage, text, str(self.file))
        return lineage


def opened(path: Path) -> Folder:
    """The folder of a lineage named by its folder, by its ``lineage.json``, or by the bare name of one that ships with KIR."""
    if not path.exists() and len(path.parts) == 1 and (shipped_lineages() / path / NAME).is_file():
        return Folder(shipped_lineages() / path)
    return Folder(path.parent if path.suffix == ".json" else path)


def shipped_lineages() -> Path:
    """The folder of the lineages that ship with KIR."""
    return Path(str(resources.files("kir.skills"))) / "lineages"


def lineage_names() -> tuple[str, ...]:
    """The names of the lineages that ship with KIR."""
    folder = shipped_lineages()
    return tuple(sorted(p.name for p in folder.iterdir() if (p / NAME).is_file())) if folder.is_dir() else ()


def _parted(there: object, here: object) -> tuple[object, object]:
    """Two values; of two texts of several lines the first line of each that the other has otherwise."""
    if isinstance(there, str) and isinstance(here, str):
        pairs = zip_longest(there.splitlines(), here.splitlines(), fillvalue="")
        return next(((a, b) for a, b in pairs if a != b), (there, here))
    return there, here


def _root(header: Header) -> str:
    """The journal's first link: over the header alone, as the expert's record is made again on each run."""
    return genesis(header, State(content="", text="", nodes=0, measure=()), {}, "")
