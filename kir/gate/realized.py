"""Whether a step of a lineage reached the machine: two compiled artifacts compared, names and source positions aside."""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kir.base.dataclass import dataclass
from kir.surface import UNCOMPILED, Artifact, CompiledKernel

_PTX_NAMES = re.compile(r"\b(?!(?:tid|ctaid|ntid|nctaid|laneid|warpid|clock|smid)\b)[A-Za-z_$][\w$]*_param_(\d+)\b")
_LOCATION = re.compile(r"^\s*\.(?:loc|file)\b.*$", re.MULTILINE)
_MLIR_LOCATION = re.compile(r"\s*loc\((?:[^()]|\([^()]*\))*\)|^#loc\d*\s*=.*$", re.MULTILINE)
_NAMED = re.compile(r'"[^"]*"')
_SSA = re.compile(r"%[A-Za-z_0-9]+")


@dataclass(frozen=True)
class Realized:
    """`differs` is what changed, one word or figure each (`registers 64 -> 40`, `mix HMMA +64`); empty when nothing did."""

    realized: bool
    reason: str
    differs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.realized

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"realized": self.realized, "reason": self.reason, "differs": list(self.differs)}


def realized(before: Artifact, after: Artifact) -> Realized:
    """Compare two artifacts of one surface and target, that of the state before a step and that after. Without both compiled the
    answer is no, with that reason: a step counts only when it was seen to arrive."""
    if not (before.compiled and after.compiled):
        return Realized(False, f"{UNCOMPILED}: {before.absent or after.absent}")
    if (before.surface, before.target) != (after.surface, after.target):
        return Realized(False, f"{before.surface} on {before.target} and {after.surface} on {after.target} cannot be compared")
    differs: list[str] = []
    if len(before.kernels) != len(after.kernels):
        differs.append(f"kernels {len(before.kernels)} -> {len(after.kernels)}")
    for a, b in zip(before.kernels, after.kernels, strict=False):
        differs += _kernel_differences(a, b)
    if differs:
        return Realized(True, differs[0], tuple(differs))
    return Realized(False, _why_not(before, after))


def _kernel_differences(a: CompiledKernel, b: CompiledKernel) -> list[str]:
    head = f"{a.kernel}: " if a.kernel != "main" else ""
    out = [f"{head}{what} {x} -> {y}" for what, x, y in (
        ("threads", a.threads, b.threads), ("registers", a.registers, b.registers), ("shared bytes", a.shared_bytes, b.shared_bytes),
        ("spilled bytes", a.spills, b.spills)) if x != y]
    change = {opcode: b.mix.get(opcode, 0) - a.mix.get(opcode, 0) for opcode in {*a.mix, *b.mix}}
    out += [f"{head}mix {opcode} {by:+d}" for opcode, by in sorted(change.items(), key=lambda kv: (-abs(kv[1]), kv[0])) if by]
    code = "sass" if "sass" in a.texts and "sass" in b.texts else "ptx"
    if not out and code in a.texts and normal_text(code, a.texts[code], a.kernel) != normal_text(code, b.texts.get(code, ""), b.kernel):
        out.append(f"{head}order or operands of the {code.upper()}")
    return out


def _why_not(before: Artifact, after: Artifact) -> str:
    """What is known of a step that left the machine code as it was."""
    changed = [name for a, b in zip(before.kernels, after.kernels, strict=True) for name in sorted({*dict(a.options), *dict(b.options)})
               if dict(a.options).get(name) != dict(b.options).get(name)]
    if changed:
        return f"the option {', '.join(changed)} had no effect"
    for a, b in zip(before.kernels, after.kernels, strict=True):
        for stage in ("ttgir", "ptx"):
            if stage in a.texts and normal_text(stage, a.texts[stage], a.kernel) != normal_text(stage, b.texts.get(stage, ""), b.kernel):
                return f"the compiler restores it below {stage.upper()}"
    return "the compiler makes the same code of both"


def normal_text(stage: str, text: str, kernel: str) -> str:
    """Compiled text without what says nothing of the code: source positions, the kernel's and the parameters' names, comments."""
    if stage == "ttgir":
        text = _NAMED.sub('""', _MLIR_LOCATION.sub("", text)).replace(f"@{kernel}", "@kernel")
        numbers: dict[str, str] = {}
        return _squeezed(_SSA.sub(lambda name: numbers.setdefault(name[0], f"%{len(numbers)}"), text))
    text = _LOCATION.sub("", text)
    if "\t.section\t.debug" in text:
        text = text[: text.index("\t.section\t.debug")]
    text = re.sub(rf"\b{re.escape(kernel)}\b", "kernel", _PTX_NAMES.sub(r"param_\1", text))
    return _squeezed(re.sub(r"//.*$|/\*.*?\*/", "", text, flags=re.MULTILINE))


def _squeezed(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def summary(differences: Mapping[str, Realized]) -> Realized:
    """Over several targets: realized where any target's code changed."""
    rows = list(differences.items())
    if not rows:
        return Realized(False, f"{UNCOMPILED}: no target was asked for")
    differs = tuple(f"{target}: {text}" for target, each in rows for text in each.differs)
    first = next((each for _, each in rows if each.realized), rows[0][1])
    return Realized(first.realized, first.reason, differs)


__all__ = ["Realized", "normal_text", "realized", "summary"]
