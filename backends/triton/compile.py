"""Compiling emitted Triton without a device: Triton's compiler in a process of its own, then what its cubins hold."""
from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from kir.base.diagnostic import Diagnostic, KirError
from kir.hardware.machine import binary_tool, package_version
from kir.hardware.target import Target
from kir.surface import Argument, Artifact, CompiledKernel, Emitted, Entry, Image, MachineLine

from .. import _cubin
from .._serving import Compilers

WARP = 32
SECONDS = 240.0
"""How long the compiler may take over one program."""
_COMPILERS = Compilers(f"{__package__}._served", "Triton")
_SIGNATURE = {
    "bool": "i1", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64", "u8": "u8", "u16": "u16", "u32": "u32", "u64": "u64",
    "f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "f8e4m3": "fp8e4nv", "f8e5m2": "fp8e5", "f8e4m3fnuz": "fp8e4b8",
}


def warm() -> None:
    """Begin to load the compiler, where it is here."""
    if package_version("triton") is not None:
        _COMPILERS.warm()


def compile_for(emitted: Emitted, target: Target) -> Artifact:
    """Compile every kernel of `emitted`. Raises KirError KIR-B010 with the compiler's words, located in the IR where it names a line,
    KIR-B011 when it takes too long, KIR-B012 when it dies. Without Triton the artifact says what is absent."""
    version = package_version("triton")
    if version is None:
        return Artifact("triton", target.architecture.name, (), (), "Triton is not here: `make full`, or pip install triton==3.6.0")
    major, minor = target.architecture.capability
    with tempfile.TemporaryDirectory(prefix="kir-triton-") as name:
        folder = Path(name)
        (folder / "emitted.py").write_text(emitted.text)
        entries = list({e.function: e for e in emitted.entries}.values())
        job = {"module": str(folder / "emitted.py"), "capability": major * 10 + minor, "kernels": [_kernel(e) for e in entries]}
        (folder / "job.json").write_text(json.dumps(job))
        _COMPILERS.run(folder, SECONDS)
        result: dict[str, Any] = json.loads((folder / "result.json").read_text())
        faults = [_fault(emitted, each) for each in result["kernels"] if "error" in each]
        if faults:
            raise KirError(*faults)
        kernels = tuple(_compiled(e, each) for e, each in zip(entries, result["kernels"], strict=True))
    tools = [("triton", str(result["version"])), *((t.name, t.version) for x in ("cuobjdump", "nvdisasm") if (t := binary_tool(x)))]
    return Artifact("triton", target.architecture.name, kernels, tuple(tools))


def machine_code(emitted: Emitted, target: Target) -> tuple[MachineLine, ...]:
    """The SASS of `emitted` with the lines that it comes from: Triton's cubins have them. Nothing without Triton. Raises KirError as `compile_for` does."""
    out: list[MachineLine] = []
    with tempfile.TemporaryDirectory(prefix="kir-triton-") as name:
        for number, kernel in enumerate(compile_for(emitted, target).kernels):
            if kernel.image is not None:
                cubin = Path(name) / f"{number}.cubin"
                cubin.write_bytes(kernel.image.cubin)
                out += _cubin.lined(cubin, "emitted.py")
    return tuple(out)


def _kernel(e: Entry) -> dict[str, Any]:
    def kind(a: Argument) -> str:
        if a.shown is not None:
            return f"tensordesc<{_SIGNATURE[a.dtype]}{list(a.box)}>"
        return ("*" if a.kind == "pointer" else "") + _SIGNATURE[a.dtype]
    return {"function": e.function, "signature": {a.name: kind(a) for a in e.arguments}, "options": dict(e.options),
            "attrs": [(i, a.divisor) for i, a in enumerate(e.arguments) if a.divisor > 1]}


def _fault(emitted: Emitted, each: dict[str, Any]) -> Diagnostic:
    words = str(each["error"]).strip().splitlines()
    line = int(each.get("line", 0))
    path = emitted.statement_of(line) if line else None
    rows = emitted.text.splitlines()
    notes = (f"line {line} of the emitted text: {rows[line - 1].strip()}",) if 0 < line <= len(rows) else ()
    return Diagnostic("KIR-B010", f"Triton's compiler refuses this: {words[-1] if words else 'no reason given'}",
                      anchor="/".join(map(str, path or ())), witness=tuple(words[-8:-1]), notes=notes)


def _compiled(e: Entry, each: dict[str, Any]) -> CompiledKernel:
    cubin = Path(each["cubin"])
    used = _cubin.usage(cubin).get(each["name"])
    disassembly = _cubin.sass(cubin)
    mix = _cubin.mixes(disassembly).get(each["name"], {})
    texts = {**each["texts"], "sass": _cubin.stripped(disassembly)} if disassembly else dict(each["texts"])
    registers, spills = (used.registers, used.stack) if used else (0, 0)
    cluster = (int(each["ctas"]),) if int(each["ctas"]) > 1 else ()
    warps = int(each["warps"])  # with those of a warp-specialized loop, which are the compiler's own
    threads = 0 if warps == dict(e.options)["num_warps"] else warps * WARP
    boxes = tuple((tuple(box), int(swizzle)) for box, swizzle in each["boxes"])
    image = Image(cubin.read_bytes(), each["name"], int(each["shared"]), cluster, bool(each["cooperative"]), tuple(each["hidden"]),
                  threads=threads, boxes=boxes)
    return CompiledKernel(e.kernel, registers, spills, int(each["shared"]), threads or e.threads, mix, texts, e.options, image)
