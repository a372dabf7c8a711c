"""Compiling emitted CUDA without a device: nvcc to PTX, ptxas to a cubin, then what the cubin holds."""
from __future__ import annotations

import re
import tempfile
from functools import cache
from pathlib import Path

from kir.base.diagnostic import Diagnostic, KirError
from kir.hardware.machine import Toolkit, binary_tool, toolkit
from kir.hardware.target import Target
from kir.surface import Artifact, CompiledKernel, Emitted, Entry, Image, MachineLine

from .. import _cubin
from .._process import run
from .._ptxas import Used, used
from . import headers

SECONDS = 240.0
"""How long nvcc and ptxas may each take over one program."""
_PTXAS = re.compile(r"ptxas \S+, line (\d+); error\s*: (.*)")
_LINE = re.compile(r"^\s*\.loc\s+\d+ (\d+) \d+(?:.*inlined_at \d+ (\d+))?")
_FAULT = re.compile(r"emitted\.cu\((\d+)\): error[^:]*: (.*)")


@cache
def _toolkit() -> Toolkit | None:
    return toolkit()


def compile_for(emitted: Emitted, target: Target) -> Artifact:
    """Compile `emitted`. Raises KirError KIR-B010 with nvcc's words, located in the IR, and KIR-B011 when it takes too long. Without a
    toolkit the artifact says what is absent."""
    found, name = _toolkit(), target.architecture.name
    if found is None:
        return Artifact("cuda", name, (), (), "nvcc is not here: install the CUDA toolkit, or pip install nvidia-cuda-nvcc")
    with tempfile.TemporaryDirectory(prefix="kir-cuda-") as at:
        folder = Path(at)
        (folder / "emitted.cu").write_text(emitted.text)
        said = ""
        if not headers.compiled(found, name, folder):
            front = run([found.nvcc.path, "-ptx", f"-arch={name}", *headers.OPTIONS, "emitted.cu", "-o", "emitted.ptx"], folder, SECONDS)
            said = (front.err + front.out).strip()
            if front.code != 0:
                raise KirError(*_faults(emitted, front.err + front.out))
        back = run([found.root / "bin" / "ptxas", "-v", "-O3", f"-arch={name}", "emitted.ptx", "-o", "emitted.cubin"], folder, SECONDS)
        if back.code != 0:
            raise KirError(*_refused_by_ptxas(emitted, name, folder, found))
        disassembly = _cubin.sass(folder / "emitted.cubin")
        ptx, resources, mixes = (folder / "emitted.ptx").read_text(), used(back.err), _cubin.mixes(disassembly)
        cubin = (folder / "emitted.cubin").read_bytes()
        entries = list({e.function: e for e in emitted.entries}.values())
        several = len(entries) > 1
        kernels = tuple(_compiled(e, resources[e.function], mixes, ptx, disassembly, several, cubin, said) for e in entries)
    tools = [("nvcc", found.nvcc.version), *((t.name, t.version) for x in ("cuobjdump", "nvdisasm") if (t := binary_tool(x)))]
    return Artifact("cuda", name, kernels, tuple(tools))


def machine_code(emitted: Emitted, target: Target) -> tuple[MachineLine, ...]:
    """The SASS of `emitted` with the lines that it comes from: compiled once more, with line information, which changes no instruction. Nothing without a
    toolkit. Raises KirError as `compile_for` does."""
    found, name = _toolkit(), target.architecture.name
    if found is None:
        return ()
    with tempfile.TemporaryDirectory(prefix="kir-cuda-") as at:
        folder = Path(at)
        (folder / "emitted.cu").write_text(emitted.text)
        front = run([found.nvcc.path, "-ptx", "-lineinfo", f"-arch={name}", "-std=c++17", "-O3", "emitted.cu", "-o", "emitted.ptx"], folder, SECONDS)
        if front.code != 0:
            raise KirError(*_faults(emitted, front.err + front.out))
        back = run([found.root / "bin" / "ptxas", "-lineinfo", "-O3", f"-arch={name}", "emitted.ptx", "-o", "emitted.cubin"], folder, SECONDS)
        if back.code != 0:
            raise KirError(*_refused_by_ptxas(emitted, name, folder, found))
        return _cubin.lined(folder / "emitted.cubin", "emitted.cu")


def _compiled(e: Entry, of: Used, mixes: dict[str, dict[str, int]], ptx: str, disassembly: str, several: bool, cubin: bytes,
              said: str) -> CompiledKernel:
    own_ptx = _of_kernel(ptx, e.function) if several else ptx
    texts = {"ptx": own_ptx} if several or not disassembly else {"ptx": own_ptx, "sass": _cubin.stripped(disassembly)}
    texts |= {"log": said} if said else {}
    shared = int(dict(e.options).get("dynamic_shared", 0)) + of.shared
    cluster = tuple(int(x) for x in str(dict(e.options).get("cluster", "")).split("x") if x)
    image = Image(cubin, e.function, int(dict(e.options).get("dynamic_shared", 0)), cluster)
    return CompiledKernel(e.kernel, of.registers, of.spills, shared, e.threads, mixes.get(e.function, {}), texts, e.options, image)


def _of_kernel(ptx: str, function: str) -> str:
    """One kernel of a PTX module, with what the module declares before its kernels."""
    first, start = ptx.find(".visible .entry"), ptx.find(f".visible .entry {function}(")
    stop = ptx.find(".visible .entry", start + 1)
    return ptx[:first] + ptx[start: stop if stop > 0 else len(ptx)] if start >= 0 else ""


def _refused_by_ptxas(emitted: Emitted, name: str, folder: Path, found: Toolkit) -> list[Diagnostic]:
    """What ptxas says, at the statements of the lines that its PTX came from: compiled once more, with lines."""
    run([found.nvcc.path, "-ptx", "-lineinfo", f"-arch={name}", "-std=c++17", "-O3", "emitted.cu", "-o", "lines.ptx"], folder, SECONDS)
    ptx = folder / "lines.ptx"
    rows = ptx.read_text().splitlines() if ptx.exists() else []
    said = run([found.root / "bin" / "ptxas", "-O3", f"-arch={name}", "lines.ptx", "-o", "lines.cubin"], folder, SECONDS).err if rows else ""
    out: dict[str, Diagnostic] = {}
    for number, message in _PTXAS.findall(said):
        before = (_LINE.search(row) for row in reversed(rows[: int(number)]))
        at = next((int(m.group(2) or m.group(1)) for m in before if m), 0)
        out.setdefault(message.strip(), _at(emitted, at, f"ptxas refuses this: {message.strip()}"))
    words = said.strip().splitlines() or ["no reason given"]
    return list(out.values())[:4] or [Diagnostic("KIR-B010", f"ptxas refuses this: {words[-1]}")]


def _at(emitted: Emitted, line: int, message: str) -> Diagnostic:
    """A refusal of a line of the emitted text, with the statement that it was written for."""
    rows, path = emitted.text.splitlines(), emitted.statement_of(line)
    notes = (f"line {line} of the emitted text: {rows[line - 1].strip()}",) if 0 < line <= len(rows) else ()
    return Diagnostic("KIR-B010", message, anchor="/".join(map(str, path or ())), notes=notes)


def _faults(emitted: Emitted, log: str) -> list[Diagnostic]:
    out = [_at(emitted, int(number), f"nvcc refuses this: {message.strip()}") for number, message in _FAULT.findall(log)[:4]]
    return out or [Diagnostic("KIR-B010", f"nvcc refuses this: {log.strip().splitlines()[-1] if log.strip() else 'no reason given'}")]
