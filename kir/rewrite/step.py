"""One step of a pipeline: a pass with its options, where and in which direction it runs, and what a result depends on."""
from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Literal

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Origin, usage
from kir.rewrite.base import Pass
from kir.rewrite.edit import Path
from kir.rewrite.options import Option, current_name, options_text
from kir.rewrite.residue import NOTHING, Residue

Direction = Literal["forward", "backward"]
_NOWHERE: Mapping[str, Origin] = MappingProxyType({})


@dataclass(frozen=True)
class Step:
    """One step of a pipeline. `options` are the parameters that are said; the others are as found or by default. `at` is an anchor
    ("": the only place there is). `path` with `hash` is the exact place, which decides on the program of that content hash."""

    name: str
    options: Mapping[str, Option] = field(default_factory=lambda: MappingProxyType({}))
    at: str = ""
    direction: Direction = "forward"
    assume: frozenset[str] = frozenset()
    guard: frozenset[str] = frozenset()
    force: bool = False
    residue: Residue = NOTHING
    path: Path | None = None
    hash: str = ""
    places: Mapping[str, Origin] = field(default_factory=lambda: _NOWHERE, compare=False, repr=False)
    """Where a text has each option, by its name, and under "" the step itself."""

    @classmethod
    def of(cls, item: Pass, at: str = "", direction: Direction = "forward", **more: Any) -> Step:
        """A step from a pass with its parameters."""
        return cls(item.name, MappingProxyType(item.options()), at, direction, **more)

    def __str__(self) -> str:
        out = ("~" if self.direction == "backward" else "") + self.name + options_text(self.options) + (f"@{self.at}" if self.at else "")
        out += f" assume {', '.join(sorted(self.assume))}" if self.assume else ""
        out += f" guard {', '.join(sorted(self.guard))}" if self.guard else ""
        out += " force" if self.force else ""
        out += f" keep {json.dumps(self.residue.text())}" if self.residue else ""
        return out + (f" on {self.hash} {json.dumps('/'.join(map(str, self.path)))}" if self.path is not None else "")

    def to_json(self) -> dict[str, Any]:
        """A JSON object with what is not at its default."""
        out: dict[str, Any] = {"pass": self.name}
        if self.options:
            out["options"] = {k: list(v) if isinstance(v, tuple) else v for k, v in self.options.items()}
        if self.at:
            out["at"] = self.at
        if self.direction == "backward":
            out["direction"] = "backward"
        if self.assume:
            out["assume"] = sorted(self.assume)
        if self.guard:
            out["guard"] = sorted(self.guard)
        if self.force:
            out["force"] = True
        if self.residue:
            out["residue"] = self.residue.to_json()
        if self.path is not None:
            out["path"], out["hash"] = list(self.path), self.hash
        return out

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Step:
        """The inverse of `to_json`; a parameter by an old name gets that of today. Raises UsageError KIR-R001 for an unknown field."""
        unknown = set(value) - {"pass", "options", "at", "direction", "assume", "guard", "force", "residue", "path", "hash"}
        if unknown or "pass" not in value:
            raise usage("KIR-R001", f"a step has no field '{sorted(unknown)[0]}'" if unknown else "a step names its pass")
        options = {current_name(str(value["pass"]), k): tuple(v) if isinstance(v, list) else v for k, v in value.get("options", {}).items()}
        return cls(str(value["pass"]), MappingProxyType(options), str(value.get("at", "")), value.get("direction", "forward"),
                   frozenset(value.get("assume", ())), frozenset(value.get("guard", ())), bool(value.get("force", False)),
                   Residue.from_json(value.get("residue", {})),
                   tuple(value["path"]) if "path" in value else None, str(value.get("hash", "")))
