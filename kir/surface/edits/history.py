"""What edits replaced, kept beside the user's data, so that undoing a pass in another run gives the original bytes back."""
from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.surface.edits.splice import Splice, spliced


@dataclass(frozen=True)
class Earlier:
    """A text that a file held before an edit, and the hash of what its kernel was read as under the binding of then."""

    text: str
    program: str
    binding: str


class History:
    """One small file for each edit that was written, named by the text that it left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_user(cls) -> History:
        """The user's own."""
        import platformdirs

        return cls(Path(platformdirs.user_state_dir("kir")) / "edits")

    def _file(self, text: str, kernel: str) -> Path:
        digest = hashlib.sha256(f"{kernel}\0{text}".encode()).hexdigest()
        return self.folder / f"{digest}.json"

    def remember(self, after: str, kernel: str, back: tuple[Splice, ...], program: str, binding: str) -> None:
        """Keep how to get from `after` to the text before, which was read as the program of that hash under that binding text."""
        from kir.base.store import write_atomic

        held = {"program": program, "binding": binding, "splices": [[s.start, s.end, s.text] for s in back]}
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomic(self._file(after, kernel), json.dumps(held))

    def before(self, text: str, kernel: str) -> Iterator[Earlier]:
        """Texts that the file held before, latest first. A record that cannot be read ends the story."""
        seen = {text}
        while True:
            try:
                held = json.loads(self._file(text, kernel).read_text(encoding="utf-8"))
                back = tuple(Splice(int(a), int(b), str(c)) for a, b, c in held["splices"])
                text = spliced(text, back)
            except (OSError, ValueError, KeyError, TypeError):
                return
            if text in seen:
                return
            seen.add(text)
            yield Earlier(text, str(held["program"]), str(held["binding"]))
