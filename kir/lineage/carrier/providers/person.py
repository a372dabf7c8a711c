"""A person as a provider: in an editor, or by exchanging files in a folder."""
from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.base.store import write_atomic
from kir.lineage.carrier.providers.budget import Meter
from kir.lineage.carrier.providers.provider import Reply, Request

MARK = "# Write the answer above this line; what is below is the question, and is left out."


@dataclass
class Editor:
    """A person in front of `$VISUAL` or `$EDITOR`: the file begins with the last answer, or nothing, and ends with the question."""

    who: str
    command: str = ""
    name: str = "person"

    def propose(self, request: Request, meter: Meter) -> Reply:
        """What was written. Raises KirError KIR-H310 when there is no editor, it fails, or nothing was written."""
        command = shlex.split(self.command or os.environ.get("VISUAL", "") or os.environ.get("EDITOR", ""))
        if not command:
            raise error("KIR-H310", "no editor is named", needs="EDITOR in the environment, or --exchange FOLDER")
        last = next((m.text for m in reversed(request.messages) if m.role == "assistant"), "")
        with tempfile.TemporaryDirectory(prefix="kir-hole-") as folder:
            path = Path(folder) / "answer.kir.md"
            path.write_text(f"{last}\n{MARK}\n\n{_question(request)}", encoding="utf-8")
            try:
                done = subprocess.run([*command, str(path)], check=False)
            except OSError as bad:
                raise error("KIR-H310", f"the editor '{command[0]}' cannot be run: {bad.strerror}", needs="EDITOR in the environment") from bad
            text = path.read_text(encoding="utf-8", errors="replace").partition(MARK)[0] if done.returncode == 0 else ""
        if not text.strip():
            raise error("KIR-H310", f"nothing was written (the editor ended with {done.returncode})", needs="an answer above the line")
        return Reply(text, self.who)


@dataclass
class Exchange:
    """A person somewhere else: `request.md` is written into a folder, and `answer.md` is taken from it when it is there."""

    who: str
    folder: Path
    name: str = "person"

    def propose(self, request: Request, meter: Meter) -> Reply:
        """What `answer.md` holds; it is renamed to `answer.N.md`, so that no answer is taken twice. Raises KirError KIR-H311 after writing the
        request, when there is no answer yet."""
        answer = self.folder / "answer.md"
        write_atomic(self.folder / "request.md", _question(request))
        if not answer.is_file():
            raise error("KIR-H311", f"the question is in {self.folder / 'request.md'}; there is no answer yet", needs=f"the answer as {answer}",
                        attempt="the same command once more, when it is there")
        text = answer.read_text(encoding="utf-8", errors="replace")
        number = 1 + len(list(self.folder.glob("answer.*.md")))
        answer.replace(self.folder / f"answer.{number}.md")
        return Reply(text, self.who)


def _question(request: Request) -> str:
    said = "\n\n".join(m.text if m.role == "user" else f"(The answer that was refused:)\n\n{m.text}" for m in request.messages)
    return f"{said}\n\n---\n\n{request.system}"
