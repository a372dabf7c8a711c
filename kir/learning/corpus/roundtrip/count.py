"""What a corpus comes to: how many kernels came how far, and why the others did not."""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from kir.base.dataclass import dataclass
from kir.learning.corpus.roundtrip.one import Record


@dataclass
class Count:
    """Numbers of one corpus. `files` and `changed` count files that were written back and those that came back different."""

    name: str
    found: int = 0
    kernels: int = 0
    parsed: int = 0
    clean: int = 0
    emitted: int = 0
    equal: int = 0
    files: int = 0
    different: int = 0
    failed: list[Record] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    opaque: Counter[str] = field(default_factory=Counter)
    unequal: Counter[str] = field(default_factory=Counter)
    example: dict[str, str] = field(default_factory=dict)
    by_surface: Counter[str] = field(default_factory=Counter)

    @property
    def share_clean(self) -> float:
        """Kernels without an opaque node, of those found."""
        return self.clean / self.found if self.found else 1.0

    @property
    def share_equal(self) -> float:
        """Kernels that are re-emitted and equal when read back, of those found."""
        return self.equal / self.found if self.found else 1.0

    def to_json(self) -> dict[str, Any]:
        """The counts as JSON."""
        return {
            "name": self.name, "found": self.found, "kernels": self.kernels, "helpers": self.found - self.kernels, "parsed": self.parsed,
            "no_opaque": self.clean, "with_opaque": self.parsed - self.clean, "re_emitted": self.emitted, "equal": self.equal,
            "share_no_opaque": round(self.share_clean, 4), "share_equal": round(self.share_equal, 4),
            "files_written_back": self.files, "files_different": self.different, "surfaces": dict(self.by_surface),
            "opaque_reasons": [{"reason": r, "kernels": c, "example": self.example[r]} for r, c in self.opaque.most_common()],
            "not_equal": [{"reason": r, "kernels": c, "example": self.example[r]} for r, c in self.unequal.most_common()],
            "failed": self.failed,
        }


def counted(name: str, results: Iterable[dict[str, Any]]) -> Count:
    """The numbers of one corpus."""
    out = Count(name)
    for result in results:
        if result.get("untouched") is not None and any(r.get("kernel") for r in result["records"]):
            out.files += 1
            out.different += not result["untouched"]
        for r in result["records"]:
            _one(out, r)
    return out


def _one(out: Count, r: Record) -> None:
    state = r["state"]
    out.records.append(r)
    if not r.get("kernel"):
        out.failed.append(r)
        return
    out.found += 1
    out.by_surface[str(r.get("surface", ""))] += 1
    out.kernels += r.get("role") == "kernel"
    if state in ("crashed", "refused"):
        out.failed.append(r)
        return
    place = f"{r['file']}::{r['kernel']}"
    out.parsed += 1
    if "opaque" in r:
        for reason in dict.fromkeys(general(o["reason"]) for o in r["opaque"] if "which is not understood" not in o["reason"]):
            out.opaque[reason] += 1
            out.example.setdefault(reason, place)
        return
    out.clean += 1
    if r.get("emit") in ("equal", "differs"):
        out.emitted += 1
    if state == "equal":
        out.equal += 1
    else:
        reason = f"{r.get('id', '')} {general(str(r.get('message', '')))}".strip() if r.get("emit") == "refused" else (
            "it reads back differently" if r.get("emit") == "differs" else str(r.get("message", "")))
        out.unequal[reason] += 1
        out.example.setdefault(reason, place)


def general(reason: str) -> str:
    """A reason without the names of one kernel."""
    return re.sub(r"'[^']*'", lambda m: m[0] if "." in m[0] or m[0][1:-1] in _KEPT else "'..'", reason)


_KEPT = frozenset({"and", "or", "add", "sub", "mul", "div", "eq", "ne", "ge", "gt", "le", "lt", "**", "//", "%"})
