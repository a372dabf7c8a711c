"""Many emitted CUDA programs in one translation unit: what a compiler does once a unit (headers, start, link) is done once for all of them."""
from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from kir.base.dataclass import dataclass
from kir.hardware.machine import Toolkit
from kir.surface import Artifact, CompiledKernel, Emitted, Image

SECONDS = 240
"""How long one unit may be compiled."""
_OWN = ("#include", "#pragma", "#if ", "#ifdef ", "#ifndef ", "#elif ", "#else", "#endif")
"""Directives that hold for their own text alone."""
_LINE = re.compile(r"unit\.cu\((\d+)\): error[^:]*: (.*)")
_NAMED = re.compile(r"^.*error.*\bu(\d+)_\w+.*$", re.MULTILINE)


@dataclass(frozen=True)
class Unit:
    """The text of several programs, each in a namespace of its own; the line that each begins at; and by program its functions' names there."""

    text: str
    starts: tuple[int, ...]
    names: tuple[Mapping[str, str], ...]

    def holds(self, line: int) -> int | None:
        """The program that a line (1-based) belongs to."""
        return max((i for i, start in enumerate(self.starts) if start <= line), default=None)


def unit(texts: Sequence[Emitted]) -> Unit:
    """One translation unit. Macros know no namespaces: a text that defines some cannot be among several (`alone`)."""
    includes = dict.fromkeys(line for e in texts for line in e.text.splitlines() if line.startswith("#include"))
    lines, starts, names = list(includes), list[int](), list[dict[str, str]]()
    for i, e in enumerate(texts):
        starts.append(len(lines) + 1)
        mine = {entry.function: f"u{i}_{entry.function}" for entry in e.entries}
        names.append(mine)
        own = "\n".join(line for line in e.text.splitlines() if not line.startswith(("#include", "//")))
        for old, new in mine.items():
            own = re.sub(rf"\b{old}\b", new, own)
        lines += [f"namespace u{i} {{", *own.splitlines(), "}"]
    return Unit("\n".join(lines) + "\n", tuple(starts), tuple(names))


def alone(e: Emitted) -> bool:
    """Whether a text has directives that would hold for the texts after it too: macros do, conditions end in the text that they begin in."""
    return any(line.startswith("#") and not line.startswith(_OWN) for line in e.text.splitlines())


def compiled(texts: Sequence[Emitted], tools: Toolkit, architecture: str) -> list[Artifact | str]:
    """Each text compiled, or the compiler's words against it. Those of one unit share a cubin, in which each function has a name of its own."""
    out: list[Artifact | str] = ["not compiled"] * len(texts)
    waiting = [[i for i, e in enumerate(texts) if not alone(e)], *([i] for i, e in enumerate(texts) if alone(e))]
    while waiting:
        chosen = waiting.pop()
        if not chosen:
            continue
        made = unit([texts[i] for i in chosen])
        cubin, said = _built(made.text, tools, architecture)
        if cubin is not None:
            for i, names in zip(chosen, made.names, strict=True):
                out[i] = _artifact(texts[i], names, cubin, architecture)
            continue
        refused = _refused(made, said)
        for i, why in refused.items():
            out[chosen[i]] = why
        rest = [i for k, i in enumerate(chosen) if k not in refused]
        if refused:
            waiting.append(rest)
        elif len(chosen) == 1:
            out[chosen[0]] = said.strip()[-200:] or "no reason given"
        else:
            waiting += [chosen[:len(chosen) // 2], chosen[len(chosen) // 2:]]
    return out


def _built(text: str, tools: Toolkit, architecture: str) -> tuple[bytes | None, str]:
    with tempfile.TemporaryDirectory(prefix="kir-unit-") as at:
        folder = Path(at)
        (folder / "unit.cu").write_text(text)
        command: list[str | Path] = [tools.nvcc.path, "-cubin", f"-arch={architecture}", "-std=c++17", "-O3", "unit.cu", "-o", "unit.cubin"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return None, f"it took longer than {SECONDS} s"
        if done.returncode != 0:
            return None, done.stderr + done.stdout
        return (folder / "unit.cubin").read_bytes(), ""


def _refused(made: Unit, said: str) -> dict[int, str]:
    """By program, what is said against it: nvcc names a line, ptxas a function."""
    out: dict[int, str] = {}
    for number, words in _LINE.findall(said):
        if (at := made.holds(int(number))) is not None:
            out.setdefault(at, words)
    for found in _NAMED.finditer(said):
        out.setdefault(int(found[1]), found[0].strip())
    return out


def _artifact(e: Emitted, names: Mapping[str, str], cubin: bytes, architecture: str) -> Artifact:
    kernels = []
    for entry in {x.function: x for x in e.entries}.values():
        options = dict(entry.options)
        cluster = tuple(int(x) for x in str(options.get("cluster", "")).split("x") if x)
        image = Image(cubin, names[entry.function], int(options.get("dynamic_shared", 0)), cluster)
        kernels.append(CompiledKernel(entry.kernel, 0, 0, 0, entry.threads, options=entry.options, image=image))
    return Artifact("cuda", architecture, tuple(kernels))


__all__ = ["Unit", "alone", "compiled", "unit"]
