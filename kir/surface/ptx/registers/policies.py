"""Cache policies of accesses: words of the IR (`cg`, `nc`, `evict_first`, `l2_128`; several joined by `_`) and the modifiers that PTX has
for them (ISA 9.7.9.1, 9.7.9.2)."""
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kir.surface.ptx.registers.reader import Modifiers, Reader

WORDS: dict[str, str] = {
    "volatile": "volatile", "nc": "nc", "ca": "ca", "cg": "cg", "cs": "cs", "lu": "lu", "cv": "cv", "wb": "wb", "wt": "wt",
    "evict_first": "L1::evict_first", "evict_last": "L1::evict_last", "evict_normal": "L1::evict_normal",
    "evict_unchanged": "L1::evict_unchanged", "no_allocate": "L1::no_allocate", "l2_64": "L2::64B", "l2_128": "L2::128B",
    "l2_256": "L2::256B"}
"""IR word to PTX modifier, in the order in which a policy and an opcode name them."""


def policy(r: Reader, m: Modifiers) -> str:
    """The policy that an opcode's modifiers say. Raises KirError KIR-F304 for a policy in a register."""
    if any(x.startswith(("L2::cache_hint", "L2::evict")) for x in m.left):
        raise r.refuse("an L2 policy", "an eviction priority of L1")
    return "_".join(word for word, modifier in WORDS.items() if m.flag(modifier))


def words(text: str) -> tuple[str, ...] | None:
    """The words of a policy, in order; None where one is unknown."""
    if not text:
        return ()
    for word in WORDS:
        if text == word or text.startswith(f"{word}_"):
            rest = words(text[len(word) + 1:])
            if rest is not None:
                return (word, *rest)
    return None


def modifiers(text: str) -> str | None:
    """The modifiers of a policy as an opcode has them, `.nc.L1::no_allocate`; None where PTX has none."""
    found = words(text)
    return None if found is None else "".join(f".{WORDS[word]}" for word in found)
