"""Cache policies of accesses: words of the IR (`cg`, `nc`, `evict_first`, `l2_128`; several joined by `_`) and the modifiers that PTX has
for them (ISA 9.7.9.1, 9.7.9.2)."""
from __future__ import annotations

from typing import TYPE_CHECKING

from kir.ir import build
from kir.surface.ptx.form.bits import KINDS

if TYPE_CHECKING:
    from kir.surface.ptx.form.syntax import Instruction
    from kir.surface.ptx.registers.reader import Modifiers, Reader

WORDS: dict[str, str] = {
    "volatile": "volatile", "nc": "nc", "ca": "ca", "cg": "cg", "cs": "cs", "lu": "lu", "cv": "cv", "wb": "wb", "wt": "wt",
    "evict_first": "L1::evict_first", "evict_last": "L1::evict_last", "evict_normal": "L1::evict_normal",
    "evict_unchanged": "L1::evict_unchanged", "no_allocate": "L1::no_allocate", "l2_64": "L2::64B", "l2_128": "L2::128B",
    "l2_256": "L2::256B"}
"""IR word to PTX modifier, in the order in which a policy and an opcode name them."""
IN_REGISTERS: dict[str, tuple[str, int]] = {
    "l2_evict_first": ("evict_first", 0x12F0000000000000), "l2_evict_last": ("evict_last", 0x14F0000000000000),
    "l2_evict_normal": ("evict_normal", 0x16F0000000000000)}
"""IR word to the priority that `createpolicy.fractional.L2::` makes of all of an access's lines, and the 64 bits that stand for that policy: a register
holds it, which `.L2::cache_hint` takes as a last operand (ISA 9.7.9.17). The bits of the first two are those that NVIDIA's headers write out."""


def policy(r: Reader, m: Modifiers, i: Instruction | None = None, operands: int = 0) -> str:
    """The policy that an opcode's modifiers say, and where the instruction takes a further operand behind so many, that register. Raises KirError KIR-F304
    for another policy in a register."""
    hinted = m.flag("L2::cache_hint")
    if not hinted and i is not None and i.parts[0] in ("ld", "st") and len(i.operands) > operands:
        raise r.fail("KIR-F302", f"'{i.opcode}' takes {operands} operands, not {len(i.operands)}")
    if any(x.startswith("L2::evict") for x in m.left) or (hinted and (i is None or len(i.operands) != operands + 1)):
        raise r.refuse("an L2 policy", "an eviction priority of L1")
    said = [word for word, modifier in WORDS.items() if m.flag(modifier)]
    if hinted:
        assert i is not None
        bits = build.int_value(r.value(i.operands[operands], KINDS["b64"]))
        said.append(next((word for word, (_, own) in IN_REGISTERS.items() if own == bits), ""))
        if not said[-1]:
            raise r.refuse("an L2 policy in a register that nothing says", "one that createpolicy makes of all lines")
    return "_".join(said)


def created(r: Reader, i: Instruction) -> None:
    """createpolicy: the 64 bits that stand for a priority of all lines. Raises KirError KIR-F304 for another policy."""
    m = r.modifiers()
    made = next((bits for priority, bits in IN_REGISTERS.values() if m.flag(f"L2::{priority}")), None)
    of_all = m.flag("fractional") and (len(i.operands) == 1 or build.is_const(r.value(i.operands[1], KINDS["f32"]), 1.0))
    m.flag("b64")
    if made is None or not of_all or m.left:
        raise r.refuse("an L2 policy of a part of the lines, or of a range of addresses", "createpolicy.fractional.L2::evict_first.b64 or evict_last, of 1.0")
    r.write(i.operands[0], build.const(made, KINDS["b64"].dtype))


def words(text: str) -> tuple[str, ...] | None:
    """The words of a policy, in order; None where one is unknown."""
    if not text:
        return ()
    for word in (*WORDS, *IN_REGISTERS):
        if text == word or text.startswith(f"{word}_"):
            rest = words(text[len(word) + 1:])
            if rest is not None:
                return (word, *rest)
    return None


def modifiers(text: str) -> str | None:
    """The modifiers of a policy as an opcode has them, `.nc.L1::no_allocate`; None where PTX has none."""
    found = words(text)
    return None if found is None else "".join(f".{WORDS[word]}" if word in WORDS else ".L2::cache_hint" for word in found)
