"""Runs Triton's compiler on one emitted module: a job and its result are JSON files. It runs in a process of its own (`_served`).

The job: `module` (path of the source), `capability` (90), `kernels` (name, function, signature, attrs, options). The result: `version`,
and a list of what came of each kernel: shared bytes, texts by stage and the path of the cubin, or the compiler's words.
"""
from __future__ import annotations

import importlib.util
import json
import traceback
from pathlib import Path
from typing import Any

SWIZZLES = (0, 32, 64, 128)
"""Bytes of the swizzles of a tensor map, by the driver's numbers (`CUtensorMapSwizzle`)."""


def main(job_path: str, result_path: str) -> None:
    """Compile every kernel of the job and write the result."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    job: dict[str, Any] = json.loads(Path(job_path).read_text())
    spec = importlib.util.spec_from_file_location("emitted", job["module"])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    results: list[dict[str, Any]] = []
    try:
        spec.loader.exec_module(module)
    except Exception as fault:
        _write(result_path, triton.__version__, [{"error": f"{type(fault).__name__}: {fault}", "line": _line(fault, job["module"])}])
        return
    target = GPUTarget("cuda", job["capability"], 32)
    for kernel in job["kernels"]:
        attrs = {(index,): [["tt.divisibility", divisor]] for index, divisor in kernel["attrs"]}
        try:
            source = ASTSource(getattr(module, kernel["function"]), kernel["signature"], constexprs={}, attrs=attrs)
            made = triton.compile(source, target=target, options=kernel["options"])
        except Exception as fault:
            results.append({"error": _words(fault), "line": _line(fault, job["module"])})
            continue
        cubin = Path(job["module"]).with_name(f"{kernel['function']}.cubin")
        cubin.write_bytes(made.asm["cubin"])
        texts = {stage: made.asm[stage] for stage in ("ttir", "ttgir", "ptx") if stage in made.asm}
        of = made.metadata
        hidden = [getattr(of, f"{kind}_scratch_size", 0) or 0 for kind in ("global", "profile")]
        ctas = getattr(of, "num_ctas", 1)
        boxes = [(each["block_size"], SWIZZLES[each["swizzle"]]) for each in getattr(of, "tensordesc_meta", None) or ()]
        results.append({"boxes": boxes, "shared": of.shared, "name": of.name, "texts": texts, "cubin": str(cubin), "hidden": [size * ctas for size in hidden],
                        "cooperative": bool(getattr(of, "launch_cooperative_grid", False)), "ctas": ctas, "warps": of.num_warps})
    _write(result_path, triton.__version__, results)


def _words(fault: BaseException) -> str:
    """What the compiler said, from the innermost cause that says something."""
    said = [str(fault).strip()]
    while (cause := fault.__cause__) is not None:
        fault = cause
        said.append(str(fault).strip() or type(fault).__name__)
    return "\n".join(text for text in said if text) or type(fault).__name__


def _line(fault: BaseException, module: str) -> int:
    """The line of the emitted module that a compilation error points at, or 0."""
    node = getattr(fault, "node", None)
    if node is not None and getattr(node, "lineno", None):
        base = getattr(fault, "src", "") or ""
        text = Path(module).read_text()
        at = text.find(base) if base else -1
        offset = text.count("\n", 0, at) if at >= 0 else 0
        return int(node.lineno) + offset
    frames = [frame for frame in traceback.extract_tb(fault.__traceback__) if frame.filename == module]
    return int(frames[-1].lineno or 0) if frames else 0


def _write(path: str, version: str, results: list[dict[str, Any]]) -> None:
    Path(path).write_text(json.dumps({"version": version, "kernels": results}))
