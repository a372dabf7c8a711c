"""``python -m benchmarks.packages.compiled [--cubin]``: does Triton compile what KIR writes, under the launches that were recorded?

Each kernel of skills/packages is read, written and handed to Triton for sm_90 with the signature of its recorded launch: an argument that
is 1 or left out is a constant, as in Triton's own launcher. Without `--cubin` compilation ends with Triton's IR, which is where text that
Triton does not accept is found. No GPU is needed. Writes ``packages-compiled.md``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from kir.corpus.launch import TRITON
from kir.ir.binding import Binding
from kir.store import write_atomic

ROOT = Path(__file__).parents[2]
TYPES = {
    **{v: k for k, v in TRITON.items()},
    "bool": "i1",
    "i8": "i8",
    "i16": "i16",
    "i32": "i32",
    "i64": "i64",
    "u8": "u8",
    "u16": "u16",
    "u32": "u32",
    "u64": "u64",
}
"""Words of a Triton signature by IR dtype."""


def signature(fn: Any, binding: Binding) -> tuple[dict[str, str], dict[str, Any]]:
    """The types of a launch's arguments, and the constants among them. Raises KeyError for an argument that the binding does not have."""
    import triton.language as tl

    dtypes = {ir: getattr(tl, name, None) for name, ir in TRITON.items()}
    dtypes |= {"f16": tl.float16, "bf16": tl.bfloat16, "f32": tl.float32, "f64": tl.float64}
    types: dict[str, str] = {}
    constants: dict[str, Any] = {}
    for p in fn.params:
        if p.name in binding.absent:
            types[p.name], constants[p.name] = "constexpr", None
        elif p.name in binding.metas or p.is_constexpr:
            value: Any = binding.metas[p.name] if p.name in binding.metas or not p.has_default else p.default
            types[p.name], constants[p.name] = "constexpr", dtypes[value] if isinstance(value, str) and dtypes.get(value) else value
        elif p.name in binding.tensors:
            types[p.name] = f"*{TYPES[binding.tensors[p.name].dtype]}"
        elif binding.scalars[p.name] == 1 and isinstance(binding.scalars[p.name], int) and binding.dtypes.get(p.name) != "bool":
            types[p.name], constants[p.name] = "constexpr", 1
        else:
            types[p.name] = TYPES[binding.dtypes.get(p.name, "i32")]
    return types, constants


def compiles(fn: Any, binding: Binding, cubin: bool) -> None:
    """Compile one function for one launch. Raises what Triton raises."""
    import triton
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend

    types, constants = signature(fn, binding)
    source = ASTSource(fn, types, {(fn.arg_names.index(k),): v for k, v in constants.items()})
    target = GPUTarget("cuda", 90, 32)
    options = {k: v for k, v in binding.options.items() if k in ("num_warps", "num_stages")}
    if cubin:
        triton.compile(source, target=target, options=options)
        return
    backend = make_backend(target)
    parsed, context = backend.parse_options(options), ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    source.make_ir(target, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context)


def outcome(row: dict[str, Any], cubin: bool) -> str:
    """ "" where Triton compiles the kernel that KIR writes; else why not."""
    from kir.corpus.swapped import read_again
    from kir.lineage.source import located

    path, kernel = located(row["kernel"])
    again = read_again(str(path), kernel)
    if not again.text:
        return f"not written: {again.reason}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"kir_{again.digest}.py"
        file.write_text(again.text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = module
        try:
            spec.loader.exec_module(module)
            compiles(getattr(module, kernel), Binding.parse(row["binding"]), cubin)
        except Exception as bad:
            lines = [line.strip() for line in str(bad).splitlines() if line.strip(" ^")]
            return f"{type(bad).__name__}: {lines[-1] if lines else ''}"[:200]
    return ""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cubin", action="store_true", help="compile to the end")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    given = parser.parse_args()
    rows = [json.loads(line) for path in sorted((ROOT / "skills" / "packages").glob("*.jsonl")) for line in path.read_text().splitlines()]
    with ProcessPoolExecutor(given.jobs) as pool:
        said = list(pool.map(outcome, rows, [given.cubin] * len(rows)))
    lines = ["# Does Triton compile what KIR writes?", "", f"Made by `python -m benchmarks.packages.compiled{' --cubin' if given.cubin else ''}`.", ""]
    lines += ["| package | recorded kernels | compiled |", "| --- | ---: | ---: |"]
    for package in dict.fromkeys(r["kernel"].partition(":")[0] for r in rows):
        own = [why for r, why in zip(rows, said, strict=True) if r["kernel"].startswith(f"{package}:")]
        lines.append(f"| {package} | {len(own)} | {own.count('')} |")
    lines += ["", "| reason | kernels | for example |", "| --- | ---: | --- |"]
    for why, count in Counter(w for w in said if w).most_common():
        example = next(r["kernel"] for r, w in zip(rows, said, strict=True) if w == why)
        lines.append(f"| {why.replace('|', chr(92) + '|')} | {count} | `{example}` |")
    write_atomic(given.out / "packages-compiled.md", "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
