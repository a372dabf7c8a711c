"""``python -m benchmarks.packages.compiled [--quick]``: what Triton makes of the kernels that KIR writes, beside what it makes of the originals.

Each kernel of skills/packages is read and written; the written text and the package's own function are both compiled for sm_90 with the
signature of the recorded launch: as in Triton's own launcher an argument that is 1 or left out is a constant, and pointers and integers
that 16 divides are marked so. Two kernels are *the same* when their SASS is, register names and order included; else registers, spilled
bytes, shared memory, instructions and the widths of loads and stores are compared. `--quick` ends with Triton's IR, which is where text that
Triton does not accept is found. `--launches FILE` takes launches of a run (`gpu-packages.jsonl`) instead of those of skills/packages. No GPU
is needed. Writes ``packages-compiled.md`` and one line of JSON a kernel.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from benchmarks.packages.host import stand_in
from benchmarks.packages.originals import original
from kir.backends import _cubin
from kir.base.store import write_atomic
from kir.ir.binding import Binding
from kir.learning.corpus.launch import TRITON
from kir.learning.corpus.rank import launched

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
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
DIVISOR = 16
ROOM = 0.03
"""How much larger a figure may be and still count as no worse: Triton's own choices move by a few instructions."""
Row = dict[str, Any]


def signature(fn: Any, binding: Binding) -> tuple[dict[str, str], dict[str, Any], dict[tuple[int, ...], list[list[Any]]]]:
    """The types of a launch's arguments, the constants among them, and the marks. Raises KeyError for an argument that the binding does not
    have."""
    import triton.language as tl

    dtypes = {ir: getattr(tl, name, None) for name, ir in TRITON.items()}
    dtypes |= {"f16": tl.float16, "bf16": tl.bfloat16, "f32": tl.float32, "f64": tl.float64}
    types: dict[str, str] = {}
    constants: dict[str, Any] = {}
    marks: dict[tuple[int, ...], list[list[Any]]] = {}
    for i, p in enumerate(fn.params):
        if p.name in binding.absent:
            types[p.name], constants[p.name] = "constexpr", None
        elif p.name in binding.metas or p.is_constexpr:
            value: Any = binding.metas[p.name] if p.name in binding.metas or not p.has_default else p.default
            types[p.name], constants[p.name] = "constexpr", dtypes[value] if isinstance(value, str) and dtypes.get(value) else value
        elif p.name in binding.tensors:
            of = binding.tensors[p.name]
            types[p.name] = f"*{TYPES[of.dtype]}"
            if of.align and of.align % DIVISOR == 0 and not p.do_not_specialize_on_alignment:
                marks[(i,)] = [["tt.divisibility", DIVISOR]]
        else:
            value, dtype = binding.scalars[p.name], binding.dtypes.get(p.name, "i32")
            whole = isinstance(value, int) and dtype != "bool" and not p.do_not_specialize
            if whole and value == 1:
                types[p.name], constants[p.name] = "constexpr", 1
                continue
            types[p.name] = TYPES[dtype]
            if whole and isinstance(value, int) and value % DIVISOR == 0 and not p.do_not_specialize_on_alignment:
                marks[(i,)] = [["tt.divisibility", DIVISOR]]
    return types, constants, marks


def compiles(fn: Any, binding: Binding, quick: bool) -> Row:
    """Compile one function for one launch: what its cubin holds, or nothing with `quick`. Raises what Triton raises."""
    import triton
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend

    types, constants, marks = signature(fn, binding)
    source = ASTSource(fn, types, {(fn.arg_names.index(k),): v for k, v in constants.items()}, marks)
    target = GPUTarget("cuda", 90, 32)
    options = {k: v for k, v in binding.options.items() if k in OPTIONS}
    if not quick:
        return figures(triton.compile(source, target=target, options=options))
    backend = make_backend(target)
    parsed, context = backend.parse_options(options), ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    source.make_ir(target, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context)
    return {}


def figures(made: Any) -> Row:
    """Registers, spilled bytes, shared bytes, instructions, accesses to global memory by width, and the SASS without addresses."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(made.asm["cubin"])
        used = next(iter(_cubin.usage(cubin).values()))
        text = _cubin.sass(cubin)
    mix = next(iter(_cubin.mixes(text).values()), {})
    return {
        "registers": used.registers,
        "spilled": used.stack,
        "shared": made.metadata.shared,
        "instructions": sum(mix.values()),
        "accesses": {k: v for k, v in sorted(mix.items()) if k.startswith(("LDG", "STG", "ATOMG", "RED", "LDL", "STL"))},
        "sass": _cubin.stripped(text),
    }


def compared(row: Row, quick: bool) -> Row:
    """What came of one kernel: `why` it does not compile (or ""), the figures of both, and whether they are `same` and `no worse`."""
    from kir.learning.corpus.patched_kernels import completed, read_again
    from kir.surface.reading import located

    stand_in()
    out: Row = {"kernel": row["kernel"], "why": "", "original": {}, "written": {}, "same": False, "worse": []}
    path, kernel = located(row["kernel"])
    binding = Binding.parse(launched(row["binding"]))
    own, text = None, None
    try:
        own = original(path, kernel)
        text = completed(own.fn)
        if not quick:
            out["original"] = compiles(own, binding, quick)
    except Exception as bad:
        out["why"] = f"the original: {_words(bad)}"
        if not quick:
            return out
    again = read_again(str(path), kernel, text)
    if not again.text:
        return out | {"why": f"not written: {again.reason}"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"kir_{again.digest}.py"
        file.write_text(again.text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = module
        try:
            spec.loader.exec_module(module)
            out["written"] = compiles(getattr(module, kernel), binding, quick)
        except Exception as bad:
            return out | {"why": _words(bad)}
    if quick:
        return out | {"why": ""}
    one, other = out["original"], out["written"]
    out["same"] = one.pop("sass").replace(kernel, "") == other.pop("sass").replace(kernel, "")
    out["worse"] = [] if out["same"] else worse(one, other)
    return out


def worse(one: Row, other: Row) -> list[str]:
    """The figures in which the second is worse than the first."""
    out = [k for k in ("registers", "spilled", "shared", "instructions") if other[k] > one[k] * (1 + ROOM)]
    narrow = sum(other["accesses"].values()) > sum(one["accesses"].values()) * (1 + ROOM)
    return [*out, *(["accesses"] if narrow else [])]


def _words(bad: BaseException) -> str:
    """The last line of what was said, from the innermost cause."""
    while bad.__cause__ is not None:
        bad = bad.__cause__
    lines = [line.strip() for line in str(bad).splitlines() if line.strip(" ^")]
    return f"{type(bad).__name__}: {lines[-1] if lines else ''}"[:200]


def page(said: list[Row], quick: bool) -> str:
    """The tables in Markdown."""
    lines = ["# What Triton makes of what KIR writes", "", f"Made by `python -m benchmarks.packages.compiled{' --quick' if quick else ''}`, for sm_90.", ""]
    lines += ["| package | recorded kernels | compiled | the same SASS | no figure worse | worse |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for package in dict.fromkeys(x["kernel"].partition(":")[0] for x in said):
        own = [x for x in said if x["kernel"].startswith(f"{package}:")]
        good = [x for x in own if not x["why"]]
        same, bad = sum(x["same"] for x in good), sum(bool(x["worse"]) for x in good)
        shown = "| | |" if quick else f"{same} | {len(good) - same - bad} | {bad}"
        lines.append(f"| {package} | {len(own)} | {len(good)} | {shown} |")
    different = [x for x in said if not quick and not x["why"] and not x["same"]]
    if different:
        lines += ["", "## Kernels whose SASS is another", "", f"A figure counts as worse when it is more than {ROOM:.0%} larger.", ""]
        lines += ["| kernel | registers | spilled | shared | instructions | accesses | worse |", "| --- | --- | --- | --- | --- | --- | --- |"]
        for x in sorted(different, key=lambda x: (not x["worse"], -x["written"]["instructions"] / max(1, x["original"]["instructions"]))):
            a, b = x["original"], x["written"]
            pairs = [(a[k], b[k]) for k in ("registers", "spilled", "shared", "instructions")]
            pairs.append((sum(a["accesses"].values()), sum(b["accesses"].values())))
            cells = " | ".join(str(p) if p == q else f"{p} → {q}" for p, q in pairs)
            lines.append(f"| `{x['kernel']}` | {cells} | {', '.join(x['worse'])} |")
    reasons = Counter(x["why"] for x in said if x["why"])
    if reasons:
        lines += ["", "## What is not compiled", "", "| reason | kernels | for example |", "| --- | ---: | --- |"]
    for why, count in reasons.most_common():
        example = next(x["kernel"] for x in said if x["why"] == why)
        lines.append(f"| {why.replace('|', chr(92) + '|')} | {count} | `{example}` |")
    return "\n".join(lines) + "\n"


def recorded(launches: Path | None) -> list[Row]:
    """Kernels and bindings: of skills/packages, or of a run."""
    if launches is None:
        files = sorted((ROOT / "skills" / "packages").glob("*.jsonl"))
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]
    rows = [json.loads(line) for line in launches.read_text().splitlines()]
    return [{"kernel": f"{r['package']}:{r['file']}::{r['kernel']}", "binding": r["binding"]} for r in rows if r["binding"] and not r["generated"]]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="only as far as Triton's IR, without the originals")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="kernels with this word in their names")
    parser.add_argument("--launches", type=Path, default=None, help="the lines of a run")
    parser.add_argument("--limit", type=float, default=None, help="seconds after which no kernel is begun")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    given = parser.parse_args()
    rows = [r for r in recorded(given.launches) if given.only in r["kernel"]]
    with ProcessPoolExecutor(given.jobs) as pool:
        asked = [pool.submit(compared, row, given.quick) for row in rows]
        done, late = wait(asked, given.limit)
        for each in late:
            each.cancel()
        said = [each.result() if each in done else {"kernel": row["kernel"], "why": "there was no time for it"} for each, row in zip(asked, rows, strict=True)]
    given.out.mkdir(parents=True, exist_ok=True)
    write_atomic(given.out / "packages-compiled.md", page(said, given.quick))
    write_atomic(given.out / "packages-compiled.jsonl", "".join(json.dumps(x) + "\n" for x in said))
    print(page(said, given.quick))


if __name__ == "__main__":
    main()
