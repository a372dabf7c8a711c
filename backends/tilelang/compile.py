"""Compiling emitted TileLang without a device: TileLang's own lowering under a named target, then nvcc, then what the cubins hold."""
from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kir.base.diagnostic import Diagnostic, KirError, error
from kir.hardware.device.libcuda import TENSOR_DTYPES
from kir.hardware.machine import Toolkit, binary_tool, package_version, toolkit
from kir.hardware.target import Target
from kir.surface import Artifact, CompiledKernel, Emitted, Entry, Image, Passed, Translated

from .. import _cubin
from .._process import run
from .._ptxas import used
from .._serving import Compilers
from .output.emit import SIZE

SECONDS = 240.0
"""How long the lowering and nvcc may each take over one program."""
VIEW = re.compile(r"^\s*(\w+) = T\.(?:reshape|view)\((\w+), ", re.MULTILINE)
"""A name for a tensor in another shape or dtype, and of which, as the backend writes it."""
_COMPILERS = Compilers(f"{__package__}._served", "TileLang")
_SCALARS = {"bool": "bool", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32", "int64": "i64",
            "uint64": "u64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
_TENSORS = {number: name for name, number in reversed(TENSOR_DTYPES.items())}


def warm() -> None:
    """Begin to load the compiler, where it is here."""
    if package_version("tilelang") is not None and toolkit() is not None:
        _COMPILERS.warm()


def compile_for(emitted: Emitted, target: Target) -> Artifact:
    """Compile every kernel of `emitted`. Raises KirError KIR-B010 with the words of TileLang or nvcc, located in the IR where they name a
    line, KIR-B011 when it takes too long, KIR-B012 when it dies. Without TileLang or nvcc the artifact says what is absent."""
    name, found = target.architecture.name, toolkit()
    if package_version("tilelang") is None:
        return Artifact("tilelang", name, (), (), "TileLang is not here: `make full`, or pip install tilelang==0.1.15")
    if found is None:
        return Artifact("tilelang", name, (), (), "nvcc is not here: install the CUDA toolkit, or pip install nvidia-cuda-nvcc")
    entries = list({e.function: e for e in emitted.entries}.values())
    with tempfile.TemporaryDirectory(prefix="kir-tilelang-") as at:
        folder = Path(at)
        result = _lowered(emitted, entries, name, folder)
        if faults := [_fault(emitted, each) for each in result["kernels"] if "error" in each]:
            raise KirError(*faults)
        views = dict(VIEW.findall(emitted.text))
        kernels = tuple(_compiled(found, e, each, result["include"], target, folder, views)
                        for e, each in zip(entries, result["kernels"], strict=True))
    tools = [("tilelang", str(result["version"])), ("nvcc", found.nvcc.version),
             *((t.name, t.version) for x in ("cuobjdump", "nvdisasm") if (t := binary_tool(x)))]
    return Artifact("tilelang", name, kernels, tuple(tools))


def translate(emitted: Emitted, target: Target) -> tuple[Translated, ...]:
    """The CUDA text of every kernel; nvcc is not needed. Raises KirError as `compile_for` does, and KIR-B013 where TileLang is not here."""
    if package_version("tilelang") is None:
        raise error("KIR-B013", "TileLang is not here", needs="`make full`, or pip install tilelang==0.1.15")
    entries = list({e.function: e for e in emitted.entries}.values())
    with tempfile.TemporaryDirectory(prefix="kir-tilelang-") as at:
        rows = _lowered(emitted, entries, target.architecture.name, Path(at))["kernels"]
    if faults := [_fault(emitted, each) for each in rows if "error" in each]:
        raise KirError(*faults)
    return tuple(Translated(e.kernel, str(each["function"]), str(each["source"]), int(each["threads"]), int(each["dynamic_shared"]),
                            renamed=tuple((a.name, a.source) for a in e.arguments if a.name != a.source))
                 for e, each in zip(entries, rows, strict=True))


def _lowered(emitted: Emitted, entries: list[Entry], architecture: str, folder: Path) -> dict[str, Any]:
    (folder / "emitted.py").write_text(emitted.text)
    job = {"module": str(folder / "emitted.py"), "architecture": architecture,
           "kernels": [{"function": str(dict(e.options)["factory"]), "sizes": sizes_of(e)} for e in entries]}
    (folder / "job.json").write_text(json.dumps(job))
    _COMPILERS.run(folder, SECONDS)
    answer: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return answer


def sizes_of(e: Entry) -> dict[str, int]:
    """The sizes that an entry's variant is compiled for."""
    return {name.removeprefix(SIZE): int(value) for name, value in e.options if name.startswith(SIZE)}


def _fault(emitted: Emitted, each: dict[str, Any]) -> Diagnostic:
    words, line, rows = str(each["error"]).strip().splitlines(), int(each["line"]), emitted.text.splitlines()
    path = emitted.statement_of(line) if line else None
    notes = (f"line {line} of the emitted text: {rows[line - 1].strip()}",) if 0 < line <= len(rows) else ()
    plain = [w.strip() for w in words if re.search(r"\w{2}", w)]
    said = next((w for w in reversed(plain) if re.match(r"[\w.]*(Error|error|Exception)\b", w)), plain[-1] if plain else "no reason given")
    return Diagnostic("KIR-B010", f"TileLang's compiler refuses this: {said[:400]}", anchor="/".join(map(str, path or ())), notes=notes)


def _compiled(found: Toolkit, e: Entry, each: dict[str, Any], include: list[str], target: Target, folder: Path,
              views: Mapping[str, str]) -> CompiledKernel:
    """nvcc to PTX and ptxas to a cubin, with the flags that TileLang itself gives nvcc."""
    name, base = target.architecture.name, f"{e.function}"
    (folder / f"{base}.cu").write_text(each["source"])
    flags = [x for x in each["flags"] if not x.startswith("--ptxas-options=")]
    options = [x.removeprefix("--ptxas-options=") for x in each["flags"] if x.startswith("--ptxas-options=")]
    front = run([found.nvcc.path, "-ptx", f"-arch={name}", "-std=c++20", "-O3", "-w", *(f"-I{x}" for x in include), *flags, f"{base}.cu",
                 "-o", f"{base}.ptx"], folder, SECONDS)
    if front.code != 0:
        said = [x for x in (front.err + front.out).splitlines() if "error" in x] or ["no reason given"]
        raise KirError(Diagnostic("KIR-B010", f"nvcc refuses what TileLang made of {e.kernel}: {said[0].strip()[:400]}", anchor=e.kernel))
    back = run([found.root / "bin" / "ptxas", "-v", "-O3", *options, f"-arch={name}", f"{base}.ptx", "-o", f"{base}.cubin"], folder, SECONDS)
    if back.code != 0:
        said = back.err.strip().splitlines() or ["no reason given"]
        raise KirError(Diagnostic("KIR-B010", f"ptxas refuses what TileLang made of {e.kernel}: {said[-1]}", anchor=e.kernel))
    cubin, function = folder / f"{base}.cubin", str(each["function"])
    of, disassembly = used(back.err)[function], _cubin.sass(cubin)
    shared = int(each["dynamic_shared"]) + of.shared
    texts = {"cuda": each["source"], "ptx": (folder / f"{base}.ptx").read_text()}
    if disassembly:
        texts["sass"] = _cubin.stripped(disassembly)
    cluster = tuple(each["cluster"]) if any(x != 1 for x in each["cluster"]) else ()
    arguments = _arguments(e, each["arguments"], views)
    image = None if arguments is None else Image(cubin.read_bytes(), function, int(each["dynamic_shared"]), cluster,
                                                 bool(each["cooperative"]), (), arguments, int(each["threads"]))
    return CompiledKernel(e.kernel, of.registers, of.spills, shared, int(each["threads"]),
                          _cubin.mixes(disassembly).get(function, {}), texts, e.options, image)


def _arguments(e: Entry, rows: list[dict[str, Any]], views: Mapping[str, str]) -> tuple[Passed, ...] | None:
    """What the device function takes, which may be a view by its own name; None where sizes that stayed open are needed to say it."""
    of = {a.name: a for a in e.arguments}
    out = []
    for row in rows:
        name = str(row["of"])
        while name not in of and name in views:
            name = views[name]
        if name not in of or "open" in row:
            return None
        a = of[name]
        match row["kind"]:
            case "pointer":
                out.append(Passed("pointer", a.source, a.dtype))
            case "scalar":
                out.append(Passed("scalar", a.source, _SCALARS[row["dtype"]]))
            case _:
                extents, strides, box, steps = (tuple(row[x]) for x in ("extents", "strides", "box", "steps"))
                out.append(Passed("map", a.source, _TENSORS[row["number"]], extents, strides, box, steps, row["swizzle"],
                                  row["interleave"], row["promotion"], row["nan_fill"], tuple(row["lower"]), tuple(row["upper"])))
    return tuple(out)
