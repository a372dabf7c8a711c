"""What a surface's compiler made of a kernel, read back: it has every barrier, wait and mask that the kernel needs, and computes the same."""
from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from kir.base.dataclass import dataclass
from kir.base.diagnostic import Diagnostic, KirError
from kir.gate.inputs.sets import size_sets
from kir.gate.proved.assembly import assembled
from kir.gate.proved.confirm import fits, proved
from kir.gate.proved.drawn import random_inputs
from kir.gate.proved.verdict import Finding, Proved
from kir.hardware.target import Target
from kir.interp import run
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.printer import expr_text
from kir.ir.types import DType
from kir.ir.visit import substitute, walk
from kir.rewrite.meaning import difference
from kir.surface import Translated, TranslatingBackend, backend
from kir.surface.reading import load_expert

ORDER = frozenset({"race", "barrier", "deadlock", "wait", "ring", "timing"})
"""Kinds of findings that a barrier or a wait keeps away."""
SIZES, STEPS = (3, 20, 67, 130), 200_000
"""Where the sizes begin at which both are run; and how many statements one run may take."""


@dataclass(frozen=True)
class Validated:
    """`holds`: no hazard in what was compiled that the kernel does not have, and the same values at `sizes`. `refuted`: `findings`, or other values, as
    `why` says. `unread`: what was compiled is not read, and `why`; nothing is known of it."""

    status: Literal["holds", "refuted", "unread"]
    why: str = ""
    checked: Proved | None = None
    findings: tuple[Finding, ...] = ()
    sizes: tuple[dict[str, int], ...] = ()
    dropped: bool = False
    """Whether what is missing of a kernel's PTX is a barrier or a wait."""

    @property
    def line(self) -> str:
        """For a terminal."""
        if self.status == "unread":
            return f"not validated: {self.why}"
        if self.status == "refuted":
            return f"what was compiled is not the kernel: {self.why}"
        known = "every hazard decided for all sizes" if self.checked is not None and self.checked.decided else "no hazard in its runs"
        at = "; ".join(", ".join(f"{k}={v}" for k, v in s.items()) or "its only size" for s in self.sizes)
        return f"what was compiled, read back: {known}, and the same values at {at}"

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """KIR-G139 for what was lost, KIR-G141 for a barrier or a wait that PTX lacks, KIR-G140 where nothing is known."""
        if self.status == "unread":
            return (Diagnostic("KIR-G140", f"what was compiled is not validated: {self.why}"),)
        if self.status == "holds":
            return ()
        if self.dropped:
            return tuple(Diagnostic("KIR-G141", f"what was compiled lacks a barrier or a wait: {f.shown or f.what}", anchor=f.anchor, origin=f.origin)
                         for f in self.findings if f.kind in ORDER) or (Diagnostic("KIR-G141", f"what was compiled lacks a barrier or a wait: {self.why}"),)
        rows = tuple(Diagnostic("KIR-G139", f"what was compiled has what the kernel has not: {f.shown or f.what}", anchor=f.anchor) for f in self.findings)
        return rows or (Diagnostic("KIR-G139", f"what was compiled computes something else: {self.why}"),)

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"status": self.status, "why": self.why, "sizes": [dict(s) for s in self.sizes],
                "checked": None if self.checked is None else self.checked.to_json()}


def validated(program: n.Program, surface: str, target: Target) -> Validated:
    """What the compiler of `surface` makes of a program, read back, checked and compared with it."""
    by = backend(surface)
    if len(program.kernels) != 1:
        return Validated("unread", f"the program has {len(program.kernels)} kernels, and one is read at a time")
    try:
        emitted = by.emit(program)
        if isinstance(by, TranslatingBackend):
            made = by.translated(emitted, target)
        else:
            artifact = by.compile(emitted, target)
            if artifact.absent:
                return Validated("unread", artifact.absent)
            made = assembled(emitted, artifact)
        if len(made) != 1:
            return Validated("unread", f"its compiler made {len(made)} kernels of it")
        return judged(program, made[0])
    except KirError as refused:
        return Validated("unread", f"{refused.diagnostics[0].id}: {refused.diagnostics[0].message}")


def judged(program: n.Program, made: Translated) -> Validated:
    """A compiler's text against the program that it is of. Raises KirError for a text that is not read at all."""
    with tempfile.TemporaryDirectory() as folder:
        source, binding = Path(folder) / f"compiled{made.suffix}", Path(folder) / "compiled.toml"
        source.write_text(made.text, encoding="utf-8")
        binding.write_text(binding_text(program, made), encoding="utf-8")
        again = load_expert(f"{source}::{made.function}", binding).program
    text = next((x for x in walk(again) if isinstance(x, n.Opaque)), None)
    if text is not None:
        return Validated("unread", f"a part of it stays text: {text.reason}")
    done, before = proved(again), proved(program)
    own = {f.kind for f in before.findings if f.status == "refuted"}
    lost = tuple(f for f in done.findings if f.status == "refuted" and f.kind != "overflow" and f.kind not in own)
    assembly = made.suffix == ".ptx"
    if lost:
        return Validated("refuted", lost[0].shown or lost[0].what, done, lost, dropped=assembly and any(f.kind in ORDER for f in lost))
    return _compared(program, again, done, assembly)


def _compared(program: n.Program, again: n.Program, done: Proved, assembly: bool = False) -> Validated:
    """Both run on the same inputs, in the checking mode, at sizes below and beyond a tile. Of PTX, each CTA passes as many barriers as one of the kernel:
    that is counted where a launch has one CTA, and its threads no other way to wait."""
    sizes: list[dict[str, int]] = []
    why = "no size is small enough to be run"
    for each in size_sets(program, SIZES) or [{}]:
        if not fits(program, each):
            continue
        arrays, scalars = random_inputs(program, each, 0)
        try:
            first, second = (run(p, {k: v.copy() for k, v in arrays.items()}, scalars, mode="check", most_steps=STEPS) for p in (program, again))
        except KirError as stopped:
            why = stopped.diagnostics[0].message
            continue
        wrong = next((f.message for f in second.findings if f.severity == "error"), "")
        if wrong and not any(f.severity == "error" for f in first.findings):
            return Validated("refuted", wrong, done, dropped=assembly and any(f.kind in ORDER and f.severity == "error" for f in second.findings))
        if assembly and second.counters.barriers < first.counters.barriers and _alone(program, each):
            passed = f"{second.counters.barriers} of {first.counters.barriers} barriers are passed"
            return Validated("refuted", f"{passed} at {', '.join(f'{k}={v}' for k, v in each.items()) or 'its only size'}", done, dropped=True)
        left = next((k for k in first.outputs if k not in second.outputs and k not in arrays), "")
        made = {k: second.outputs[k] if k in second.outputs else arrays[k] for k in first.outputs if not left}  # a text does not take what it does not use
        if found := f"it does not write {left}" if left else difference(first, replace(second, outputs=made), "reassociated"):
            return Validated("refuted", found, done)
        sizes.append(dict(each))
    return Validated("holds", "", done, (), tuple(sizes)) if sizes else Validated("unread", f"it is compared at no size: {why}", done)


def _alone(program: n.Program, sizes: dict[str, int]) -> bool:
    """Whether a launch has one CTA, whose threads synchronize at its barriers only."""
    apart = ("mbar_", "named_barrier_", "cluster_")
    if any(isinstance(x, n.Roles) or (isinstance(x, n.Call) and x.fn.startswith(apart)) for x in walk(program)):
        return False
    at = {k: build.const(v) for k, v in sizes.items()}
    return all(build.int_value(substitute(a.extent, at)) == 1 for a in program.kernels[0].grid)


def binding_text(program: n.Program, made: Translated) -> str:
    """The binding under which a compiler's text of a program's one kernel is read."""
    k = program.kernels[0]
    lines = [f'kernel = "{made.function}"', f"sizes = {_quoted(p.name for p in program.params if p.role == 'size')}",
             f"facts = {_quoted(expr_text(f) for f in program.facts)}", f"grid = {_quoted(expr_text(a.extent) for a in k.grid)}"]
    if made.suffix == ".ptx":
        lines.append(f"absent = {_quoted(_hidden(made))}")
    lines += ["[metas]", f"threads_x = {made.threads}", f"shared_bytes = {made.dynamic_shared}"]
    taken = _taken(made)
    spelled = {theirs: own for own, theirs in made.renamed}
    floats = {p.name for p in program.params if isinstance(p.of, DType) and p.of.is_float and spelled.get(p.name) == p.name}
    if numbers := [p.name for p in program.params if isinstance(p.of, DType) and spelled.get(p.name) in taken and p.name not in floats]:
        lines += ["[scalars]", *(f'{spelled[name]} = "{name}"' for name in numbers)]
    for p in program.params:
        own = spelled.get(p.name, p.name)
        if isinstance(p.of, DType) or own not in taken:
            continue  # what a kernel does not use is no parameter of its text
        lines += [f"[tensors.{own}]", *([f'name = "{p.name}"'] if own != p.name else []), f"shape = {_quoted(expr_text(d) for d in p.of.shape)}",
                  f'dtype = "{p.of.dtype}"', f'role = "{p.role}"']
    for w in program.workspaces:
        if made.suffix == ".ptx":
            own = spelled.get(w.buffer.name, w.buffer.name)
            lines += [f"[tensors.{own}]", *([f'name = "{w.buffer.name}"'] if own != w.buffer.name else []),
                      f"shape = {_quoted(expr_text(d) for d in w.buffer.shape)}", f'dtype = "{w.buffer.dtype}"', 'role = "inout"']
    for m in program.tensor_maps:
        if made.suffix == ".ptx" and m.name in spelled:
            more = {k: v for k, v in dict(m.attrs).items() if k != "swizzle"}
            lines += [f"[maps.{spelled[m.name]}]", f'of = "{spelled.get(m.of, m.of)}"', f'name = "{m.name}"', f"box = {list(m.box)}",
                      f"swizzle = {dict(m.attrs).get('swizzle', 0)}"]
            lines += [f"attrs = {{ {', '.join(f'{k} = {json.dumps(v)}' for k, v in more.items())} }}"] if more else []
    return "\n".join(lines) + "\n"


def _hidden(made: Translated) -> list[str]:
    """Parameters that a compiler adds for its own use: those beyond the kernel's."""
    numbers = {int(x) for x in re.findall(rf"\b{re.escape(made.function)}_param_(\d+)\b", made.text)}
    return [f"param_{k}" for k in sorted(numbers) if f"param_{k}" not in dict(made.renamed)]


def _taken(made: Translated) -> set[str]:
    """Words of the parameters that a text takes."""
    if made.suffix == ".ptx":
        return {own for own, _ in made.renamed}
    head = re.search(rf"\b{re.escape(made.function)}\s*\(([^)]*)\)\s*{{", made.text)
    return set(re.findall(r"\w+", head[1])) if head is not None else set()


def _quoted(items: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{x}"' for x in items) + "]"


__all__ = ["Validated", "binding_text", "judged", "validated"]
