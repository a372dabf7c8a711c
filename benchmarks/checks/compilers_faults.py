"""Faults of compilers: what `kir check` says of the text that a release made of a right kernel, or that it computes something else.

`python -m benchmarks.checks.compilers_faults [--write]` checks each text of `benchmarks/data/compilers`, and writes docs/tables/compilers-faults.md. `--make`
makes the texts, of `kernels.py` and `triton_kernels.py` there, with the TileLang and the Triton that are installed (no GPU is needed). `--validate` has each
kernel compiled anew by the releases that are installed, from the IR that is read of it, and what comes out read back and compared as by
`kir gate --validate`; what came of it is kept by release, for the page. `--assembled` has the nvcc that is here assemble a kernel whose sign ptxas loses, and
looks at what came out; kept, too. Exit code 1 where a text is not judged as its row says.
"""
from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kir.base.dataclass import dataclass
from kir.gate.proved import Proved, proved
from kir.interp import run
from kir.rewrite.meaning import difference, draw
from kir.surface.reading import binding_of, load_expert

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "data" / "compilers"
PAGE = ROOT / "docs" / "tables" / "compilers-faults.md"
VALIDATED = ROOT / "benchmarks" / "results" / "compilers-validated.json"
TRACKERS = {"tilelang": "https://github.com/tile-ai/tilelang/issues/", "triton": "https://github.com/triton-lang/triton/issues/"}
ASSEMBLED = ROOT / "benchmarks" / "results" / "compilers-assembled.json"
LOST = """kir 1
program lost
  in X: i32[32]
  in W: i32[32]
  out Y: i32[32]
kernel main grid (b: 1) threads 32
  for t in 0..32 parallel thread
    let w = W[t]
    Y[t] = max(X[t], max(w, -w))
"""
"""The larger of a number and of the distance of another from zero."""
DRAWS = 4
"""Inputs on which a text is run beside its kernel."""


@dataclass(frozen=True)
class Text:
    """What a release made of a kernel: the kind of hazard that it has ("" where it is right, `values` where it computes something else), and the tracker's
    number of the fault (0 where it has none that we know). A text that is right of what a run shows (`shown`) has obligations that are not decided for all
    sizes."""

    kernel: str
    release: str
    kind: str
    issue: int
    surface: str = "tilelang"
    shown: bool = False

    @property
    def path(self) -> Path:
        return FOLDER / (f"{self.kernel}-{self.release}.cu" if self.surface == "tilelang" else f"{self.kernel}-triton-{self.release}.ptx")

    @property
    def binding(self) -> Path:
        own = FOLDER / f"{self.kernel}-{self.release}.toml"  # of a release that adds other parameters
        return own if own.is_file() else FOLDER / f"{self.kernel}.toml"

    @property
    def source(self) -> tuple[str, Path] | None:
        """The kernel itself with its binding, where its values are compared."""
        binding = FOLDER / f"{self.kernel}-source.toml"
        file = FOLDER / ("kernels.py" if self.surface == "tilelang" else "triton_kernels.py")
        return (f"{file}::{self.kernel}", binding) if binding.is_file() else None


TEXTS = (
    Text("guarded", "0.1.7.post3", "race", 2556), Text("guarded", "0.1.15", "", 2556),
    Text("updated", "0.1.7.post3", "race", 1257), Text("updated", "0.1.15", "", 1257),
    Text("otherwise", "0.1.11", "race", 3042),
    Text("strided", "0.1.7.post3", "barrier", 1106), Text("strided", "0.1.11", "race", 2612), Text("strided", "0.1.15", "race", 2612),
    Text("masked", "0.1.7.post3", "barrier", 1106), Text("masked", "0.1.11", "race", 2612), Text("masked", "0.1.15", "race", 2612),
    Text("seldom", "0.1.15", "values", 0),
    Text("spread", "3.6.0", "", 11614, "triton", shown=True), Text("spread", "3.8.0", "race", 11614, "triton"),
    Text("squared", "3.6.0", "race", 7264, "triton"),
    Text("counted", "3.3.1", "values", 7402, "triton"), Text("counted", "3.6.0", "", 7402, "triton", shown=True),
)
WORDS = {"": "proved for all sizes", "race": "a race", "barrier": "a barrier that not all threads reach", "values": "other values than the kernel's"}


def judged(text: Text, path: Path | None = None) -> Proved:
    """What `kir check` says of it, or of another text in its place."""
    at = str(path or text.path)
    read = load_expert(at, binding_of(at, text.binding, ""))
    return proved(read.program, unsaid=read.unsaid)


def otherwise(text: Text) -> str:
    """Where a text computes something else than its kernel on drawn inputs, "" where not."""
    assert text.source is not None
    at, binding = text.source
    kernel, made = load_expert(at, binding).program, load_expert(str(text.path), text.binding).program
    for seed in range(DRAWS):
        arrays = draw(kernel, {}, seed)
        first, second = (run(p, {k: v.copy() for k, v in arrays.items()}, mode="check") for p in (kernel, made))
        if found := next((f.message for f in second.findings if f.severity == "error"), "") or difference(first, second):
            return found
    return ""


def as_said(text: Text, done: Proved) -> bool:
    """Whether the verdict is that of its row: a counterexample of its kind that a run showed, other values, or everything proved (or, where the row says so,
    no counterexample and the same values)."""
    if text.kind == "values":
        return bool(otherwise(text))
    if text.kind:
        return done.status(text.kind) == "refuted"  # type: ignore[arg-type]  # kinds by name
    return not any(f.status == "refuted" for f in done.findings) and not (text.source and otherwise(text)) if text.shown else done.verdict == "proved"


def validated_here() -> dict[str, str]:
    """What `kir gate --validate` says of each kernel with the releases that are installed, by kernel and release."""
    import tilelang
    import triton

    from kir.base.diagnostic import KirError
    from kir.gate.proved.compiled import validated
    from kir.hardware.target import target

    installed, out = {"tilelang": tilelang.__version__, "triton": triton.__version__}, dict[str, str]()
    for kernel, surface in dict.fromkeys((t.kernel, t.surface) for t in TEXTS):
        with tempfile.TemporaryDirectory() as at:
            file, binding = alone(kernel, surface, Path(at))
            try:
                done = validated(load_expert(file, binding).program, surface, target("sm_80"))
                said = done.status if done.status == "holds" else f"{done.status}: {done.why}"
            except KirError as refused:
                said = f"unread: {refused.diagnostics[0].message}"
        out[f"{kernel} {surface} {installed[surface]}"] = said[:160]
        print(f"{kernel}, {surface} {installed[surface]}: {said[:160]}", flush=True)
    return out


def assembled_here() -> dict[str, str]:
    """What ptxas makes of `LOST` for each architecture, by release: the instruction with three operands, and whether the sign of one is there."""
    from kir.hardware.machine import toolkit
    from kir.hardware.target import target
    from kir.ir.parser import parse_program
    from kir.surface import backend

    tools, out, program = toolkit(), dict[str, str](), parse_program(LOST, "lost.kir")
    for name in ("sm_80", "sm_90a"):
        made = backend("cuda").compile(backend("cuda").emit(program), target(name))
        if made.absent or tools is None:
            raise SystemExit(made.absent or "nvcc is not here")
        lines = [line.strip() for line in made.kernels[0].texts.get("sass", "").splitlines() if "MNMX" in line]
        lost = any(re.search(r"VIMNMX3\S* R\d+, (R\d+)(\.reuse)?, \1[,. ]", line) for line in lines)
        out[f"nvcc {tools.nvcc.version} {name}"] = f"{'a sign is lost' if lost else 'right'}: `{'` `'.join(lines)}`"
        print(f"nvcc {tools.nvcc.version}, {name}: {out[f'nvcc {tools.nvcc.version} {name}']}", flush=True)
    return out


def alone(kernel: str, surface: str, at: Path) -> tuple[str, Path]:
    """A kernel of the sources in a file of its own, for all of TileLang are called `main`, and its binding: that of its texts, less what a compiler adds."""
    source = (FOLDER / ("kernels.py" if surface == "tilelang" else "triton_kernels.py")).read_text()
    own = [s for s in ast.parse(source).body if not isinstance(s, ast.FunctionDef) or surface == "triton" or s.name.removesuffix("_rounds") == kernel]
    file, name = at / "kernel.py", kernel
    file.write_text("\n\n".join(ast.unparse(s) for s in own if not isinstance(s, ast.Assign)) + "\n")
    if surface == "tilelang":
        name = next(x.name for s in own if isinstance(s, ast.FunctionDef) for x in s.body if isinstance(x, ast.FunctionDef))
    told = tomllib.loads((FOLDER / f"{kernel}.toml").read_text())
    lines = [f'kernel = "{name}"', *(["grid = [1]"] if surface == "triton" else [])]
    for key, t in told["tensors"].items():
        lines += [f"[tensors.{t.get('name', key)}]", f"shape = {t['shape']}", f'dtype = "{t["dtype"]}"']
        lines += ['role = "inout"'] if t.get("role") != "in" else []
    (at / "kernel.toml").write_text("\n".join(lines) + "\n")
    given = FOLDER / f"{kernel}-source.toml"
    return f"{file}::{name}", given if given.is_file() else at / "kernel.toml"


def page(rows: list[tuple[Text, Proved]]) -> Iterator[str]:
    """The generated page."""
    yield "# Faults of compilers\n\nMade by `python -m benchmarks.checks.compilers_faults --write`: each kernel of `kernels.py` and `triton_kernels.py` in"
    yield "`benchmarks/data/compilers` is right as it is written. The CUDA text that a release of TileLang made of it, or the PTX of a release of Triton"
    yield "(`--make`, with that release installed), lies beside it, and is read and checked as any other source; no GPU is needed. A counterexample is one"
    yield "that a run showed. Where another release makes a right text, that is proved, or no run shows a hazard and it computes what the kernel does.\n"
    yield "| kernel | release | fault | what is found | statement | the command |\n| --- | --- | --- | --- | --- | --- |"
    for text, done in rows:
        found = next((f for f in done.findings if f.kind == text.kind and f.status == "refuted"), None)
        where = f"`{found.anchor}`: {found.shown or found.what}" if found is not None else otherwise(text) if text.kind == "values" else ""
        words = "no hazard in its runs" if not text.kind and text.shown else WORDS[text.kind]
        command = f"kir check {text.path.relative_to(ROOT)} --bind {text.binding.relative_to(ROOT)}"
        issue = f"[{text.issue}]({TRACKERS[text.surface]}{text.issue})" if text.issue else "one round of a loop that has none"
        yield (f"| `{text.kernel}` | {text.surface.replace('tilelang', 'TileLang').replace('triton', 'Triton')} {text.release} | "
               f"{issue}{'' if text.kind else ', not there'} | {words} | {where} | "
               f"`{command if text.kind != 'values' else 'python -m benchmarks.checks.compilers_faults'}` |")
    wrong = [t for t, _ in rows if t.kind]
    known = {(t.surface, t.issue) for t in wrong if t.issue}
    yield f"\n{len(wrong)} texts with a fault, {len(known)} faults of the trackers, {len(rows) - len(wrong)} right texts."
    if kept := json.loads(VALIDATED.read_text()) if VALIDATED.is_file() else {}:
        shown = sorted({t.issue for t in wrong if t.issue and kept.get(f"{t.kernel} {t.surface} {t.release}", "").startswith("refuted")})
        yield "\n## By the gate\n\n`python -m benchmarks.checks.compilers_faults --validate`, with each release in turn installed: the kernel is read, written"
        yield "by KIR, compiled by that release, and what comes out is read back and compared as by `kir gate KERNEL --validate`. KIR writes out barriers a"
        yield f"kernel leaves to TileLang, so that a fault in putting them in may not show. Of the faults above {', '.join(map(str, shown))} do.\n"
        yield "| kernel | release | what the gate says |\n| --- | --- | --- |"
        for key, said in sorted(kept.items()):
            kernel, surface, release = key.split(" ")
            yield f"| `{kernel}` | {surface.replace('tilelang', 'TileLang').replace('triton', 'Triton')} {release} | {said.replace('|', '/')} |"


    if kept := json.loads(ASSEMBLED.read_text()) if ASSEMBLED.is_file() else {}:
        yield "\n## By the assembler\n\n`max(x, max(w, -w))` of integers: of both maxima ptxas makes one instruction of three operands, and loses the sign"
        yield "of one ([190973](https://github.com/pytorch/pytorch/issues/190973), [11032](https://github.com/triton-lang/triton/pull/11032), said of sm_100;"
        yield "the PTX is right). Found by random programs on an H200: `python -m benchmarks.fuzz.device --seed 144272` gives 1 where 3 is right. The gate"
        yield "sees it as other values. `python -m benchmarks.checks.compilers_faults --assembled` says what the nvcc that is here makes of it:\n"
        yield "| release | what ptxas makes of it |\n| --- | --- |"
        for key, said in sorted(kept.items()):
            yield f"| {key} | {said.replace('|', '/')} |"


def _module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def made_by_triton() -> None:
    """Writes what the Triton that is installed makes of each kernel: PTX for sm_80 without the lines that only a debugger reads."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module = _module("triton_kernels")
    signatures = {"counted": {"index": "*i32", "out": "*i32"}, "spread": {"x": "*fp32", "out": "*fp32"}, "squared": {"x": "*fp32", "w": "*fp32", "y": "*fp32"}}
    for name, signature in signatures.items():
        warps = 8 if name == "spread" else 1
        source = ASTSource(fn=getattr(module, name), signature=signature, constexprs={})
        ptx = triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"num_warps": warps}).asm["ptx"].partition("\t.file")[0]
        kept = [line.rstrip() for line in ptx.splitlines() if not re.match(r"\s*\.loc|\$L__(tmp|func)", line)]
        (FOLDER / f"{name}-triton-{triton.__version__}.ptx").write_text("\n".join(kept).strip() + "\n")


def made() -> None:
    """Writes what the TileLang that is installed makes of each kernel; a kernel that it refuses is left out."""
    import tilelang
    from tilelang import tvm
    from tilelang.engine.lower import lower

    module = _module("kernels")
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
    for kernel in module.KERNELS:
        try:
            with target:
                text = lower(kernel(), target=target).kernel_source
        except Exception as refused:  # whatever it says, there is no text
            print(f"{kernel.__name__}: refused: {str(refused)[-200:]}")
            continue
        kept = [line.rstrip() for line in text.splitlines()]
        (FOLDER / f"{kernel.__name__.removesuffix('_rounds')}-{tilelang.__version__}.cu").write_text("\n".join(kept).strip() + "\n")


def main() -> int:
    """Check every text."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--make", action="store_true", help="make the texts of the TileLang and the Triton that are installed, and no more")
    arguments.add_argument("--validate", action="store_true", help="what `kir gate --validate` says with the releases that are installed, and no more")
    arguments.add_argument("--assembled", action="store_true", help="what the ptxas that is here makes of a sign, and no more")
    arguments.add_argument("--write", action="store_true", help="write docs/tables/compilers-faults.md")
    chosen = arguments.parse_args()
    if chosen.make:
        made()
        made_by_triton()
        return 0
    if chosen.validate:
        kept = json.loads(VALIDATED.read_text()) if VALIDATED.is_file() else {}
        VALIDATED.write_text(json.dumps({**kept, **validated_here()}, indent=1, sort_keys=True) + "\n")
        return 0
    if chosen.assembled:
        kept = json.loads(ASSEMBLED.read_text()) if ASSEMBLED.is_file() else {}
        ASSEMBLED.write_text(json.dumps({**kept, **assembled_here()}, indent=1, sort_keys=True) + "\n")
        return 0
    rows = [(text, judged(text)) for text in TEXTS]
    for text, done in rows:
        print(f"{text.kernel} {text.release}: {done.verdict}{'' if as_said(text, done) else ', which is not what its row says'}")
    if chosen.write:
        PAGE.write_text("\n".join(page(rows)) + "\n")
    return 0 if all(as_said(text, done) for text, done in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
