"""The instruction table: every call of the IR, its typing rule, executing level, effect and spelling on each surface.

The rows live in `grammars/instructions.toml`, so that no mapping between surfaces is written twice.
"""
from __future__ import annotations

from functools import cache

from kir.base.dataclass import dataclass
from kir.base.diagnostic import did_you_mean, error


@dataclass(frozen=True)
class Instruction:
    """One row. `args` is the least and the largest number of operands; `level` who executes it together (element, tile, thread,
    warp, warpgroup, team); `effect` one of "", sync, memory, async, hint; `spelling` maps a surface to its one-call form."""

    name: str
    rule: str
    args: tuple[int, int]
    level: str
    effect: str
    spelling: tuple[tuple[str, str], ...]
    ptx: str
    doc: str

    @property
    def is_pure(self) -> bool:
        """No effect beyond its value (advice counts as none)."""
        return self.effect in ("", "hint")

    @property
    def is_convergent(self) -> bool:
        """Must be reached by all its lanes together."""
        return self.level in ("warp", "warpgroup", "team")

    def on(self, surface: str) -> str | None:
        """The spelling on a surface, or None where it is not one call there."""
        return dict(self.spelling).get(surface)


@cache
def table() -> dict[str, Instruction]:
    """All rows by name."""
    import tomllib
    from importlib import resources

    rows = tomllib.loads(resources.files("kir.grammars").joinpath("instructions.toml").read_text(encoding="utf-8"))
    out = {}
    for name, row in rows.items():
        count = row.get("args", 1)
        least, most = (count, count) if isinstance(count, int) else count
        out[name] = Instruction(name, row["rule"], (least, most), row.get("level", "element"), row.get("effect", ""),
                                tuple((s, row[s]) for s in ("cuda", "tilelang", "triton") if s in row), row.get("ptx", ""),
                                row.get("doc", ""))
    return out


def masked(name: str, operands: int) -> bool:
    """Whether a call of the lanes of a warp with so many operands hands over, as the last of them, a mask that only the run knows."""
    row = table().get(name)
    return row is not None and row.level == "warp" and operands > row.args[0]


def instruction(name: str) -> Instruction:
    """The row of that name. Raises KirError KIR-V001, with the nearest names, when there is none."""
    found = table().get(name)
    if found is None:
        raise error("KIR-V001", f"there is no instruction or function '{name}'", attempt=did_you_mean(name, list(table())))
    return found


@cache
def by_spelling(surface: str) -> dict[str, Instruction]:
    """Rows of a surface by their spelling there."""
    return {text: row for row in table().values() if (text := row.on(surface)) is not None}
