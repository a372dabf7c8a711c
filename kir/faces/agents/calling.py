"""One call of a tool: a command of KIR in a process of its own, which is told of, and ended when nobody wants its answer any more."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import field
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass

BEAT = 1.0
"""Seconds between two words of a call that goes on."""
MOST_KEPT = 256
"""Programs that are kept for `kir://program/HASH`."""
MOST_TEXT = 6000
"""Characters of one text in an answer; the whole is a resource."""
MOST_LINE = 1 << 20
"""Characters of a line that a command writes beside its answer."""
Progress = Callable[[float, str], Awaitable[None]]


class Refused(Exception):
    """What a command refuses, in its words."""


@dataclass(frozen=True)
class Kept:
    """What calls leave behind for later ones to read: programs by the beginning of their hash, pages of lineages by their folder's name."""

    programs: OrderedDict[str, str] = field(default_factory=OrderedDict)
    reports: dict[str, Path] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    """Folders that a call writes to."""

    def keep(self, text: str, key: str) -> str:
        """The URI of a program's text."""
        self.programs[key] = text
        self.programs.move_to_end(key)
        while len(self.programs) > MOST_KEPT:
            self.programs.popitem(last=False)
        return f"kir://program/{key}"


@dataclass(frozen=True)
class Call:
    """What a tool may do: run a command, say how far it is, keep texts."""

    kept: Kept
    progress: Progress
    folder: Path

    async def command(self, *words: str) -> dict[str, Any]:
        """The JSON object of a command. Raises Refused with its diagnostics. A call that is cancelled ends the process, and what it started."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "from kir.faces.cli import main; main()", *words, "--json", cwd=self.folder, start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, limit=MOST_LINE,
            env={**os.environ, "KIR_PROGRESS": "lines"})
        assert process.stdout is not None and process.stderr is not None
        now = [f"kir {words[0]}"]
        told = asyncio.create_task(self._tell(now))
        try:
            out, err = await asyncio.gather(process.stdout.read(), _errors(process.stderr, now))
            await process.wait()
        finally:
            told.cancel()
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                await asyncio.shield(process.wait())
        try:
            found: dict[str, Any] = json.loads(out)
        except ValueError:
            raise Refused(err.strip()[-MOST_TEXT:] or f"kir {words[0]} ended with {process.returncode}") from None
        if found.get("schema") == "kir.error/1":
            raise Refused("\n".join(said(each) for each in found["diagnostics"]))
        return {**found, "exit": process.returncode}

    async def _tell(self, now: list[str]) -> None:
        seconds = 0.0
        while True:
            await asyncio.sleep(BEAT)
            seconds += BEAT
            await self.progress(seconds, f"{now[0]}: {seconds:.0f} s")

    @asynccontextmanager
    async def alone(self, folder: Path) -> AsyncIterator[None]:
        """No other call of this server writes to the folder meanwhile. Raises Refused where one does."""
        key = str((self.folder / folder).resolve())
        if key in self.kept.busy:
            raise Refused(f"another call is writing to {folder}: wait for it, or name another folder")
        self.kept.busy.add(key)
        try:
            yield
        finally:
            self.kept.busy.discard(key)


async def _errors(stream: asyncio.StreamReader, now: list[str]) -> str:
    """What a command writes to standard error but for what it says of its progress, which becomes what is told `now`."""
    kept: list[str] = []
    while True:
        try:
            row = (await stream.readline()).decode(errors="replace")
        except ValueError:  # a line of more than MOST_LINE characters is none of KIR's
            continue
        if not row:
            return "".join(kept)[-MOST_TEXT:]
        try:
            found = json.loads(row) if row.startswith('{"progress"') else None
        except ValueError:
            found = None
        if found is None:
            kept.append(row)
            continue
        done, total = found["progress"], found["total"]
        count = "" if done is None else f", {done} of {total}" if total else f", {done}"
        now[0] = f"{found['doing']}{count}"


def said(diagnostic: dict[str, Any]) -> str:
    """A diagnostic in a few lines."""
    place = diagnostic.get("origin") or {}
    where = f" ({place['file']}:{place['line']})" if place.get("file") else ""
    more = [f"  {word}: {diagnostic[key]}" for key, word in (("needs", "needs"), ("attempt", "try")) if diagnostic.get(key)]
    seen = [f"  witness: {each}" for each in (diagnostic.get("witness") or ())[:3]]
    notes = [f"  note: {each}" for each in diagnostic.get("notes") or ()]
    return "\n".join([f"{diagnostic['id']} {diagnostic['message']}{where}", *seen, *more, *notes])


def short(text: str, most: int = MOST_TEXT) -> str:
    """A text, or its beginning with how much is left out."""
    return text if len(text) <= most else f"{text[:most]}\n.. {len(text) - most} characters more: read the resource"
