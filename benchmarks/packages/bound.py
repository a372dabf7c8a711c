"""``python -m benchmarks.packages.bound PACKAGE .. --out DIR``: kernels beside what KIR writes of them, launched as their own host code says, on a GPU.

Nobody writes a case here: the host code around a kernel is read (as `kir bind --ask --yes` does), sizes are the largest at which it may be called without
tensors beyond a limit, and tensors are filled by chance (whole numbers with zeros and ones); what nobody can know is
answered anyhow (`_answer`), as both kernels get the same. The original is the package's own function; the written
one is the text that `read_again` gives, which reads back as the same program. Both are launched on copies of the same memory, which is longer than
what the kernel is said to reach; what they leave is compared, all of it, and both are timed in turns, as the page of packages does. A kernel that
leaves its memory as it was shows nothing and does not count.

PACKAGE is an installed one, or NAME=FOLDER: a package's source, whose imports that are not here are stood in for. One line of JSON a kernel goes to
DIR; one that took its process down, or too long, is noted and the rest goes on. ``page`` writes benchmarks/results/gpu-bound.md from a run.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

from benchmarks.packages.__main__ import device_name
from benchmarks.packages.originals import original
from benchmarks.packages.states import BEGUN, known
from kir.base.store import write_atomic
from kir.hardware import machine
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.binding import Binding, expressions
from kir.ir.types import BOOL, F32, I32, DType
from kir.learning.corpus.launch import DTYPES, TRITON

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "gpu-bound"
SIZES = (1024, 512, 256, 128, 64, 20, 3)
"""Where sizes begin; the first at which the largest tensor fits is taken."""
MOST = 1 << 22
"""Elements of the largest tensor."""
BESIDE = 1 << 14
"""Elements of each tensor's memory after what a kernel is said to reach."""
WITHIN = 2e-3
"""The largest difference that counts as right, as a share of the largest value: orders of sums may differ."""
SLACK = 1.05
SECONDS = 45
"""What one kernel may take, all in all."""
Row = dict[str, Any]


def kernels_of(name: str, folder: Path) -> Iterator[str]:
    """FILE::KERNEL of the functions under a decorator that has `jit` in its name which some file of the package launches (`NAME[..](..)`)."""
    files = {path: path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.rglob("*.py"))}
    launched = {word for text in files.values() for word in re.findall(r"\b(\w+)\s*\[", text)}
    for path, text in files.items():
        if "jit" not in text or "triton" not in text:
            continue
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        for f in ast.walk(tree):
            if isinstance(f, ast.FunctionDef) and f.name in launched and any("jit" in ast.unparse(d).partition("(")[0] for d in f.decorator_list):
                yield f"{path}::{f.name}"


def measured(place: str) -> Row:
    """What came of one kernel: `state` is `equal`, `differs`, `idle` (it left its memory as it was), `unwritten`, `unbound` or `failed`, with `reason`."""
    from kir.base.diagnostic import KirError
    from kir.learning.corpus.measured import compare
    from kir.learning.corpus.patched_kernels import function_of, read_again

    path, kernel = Path(place.partition("::")[0]), place.partition("::")[2]
    again = read_again(str(path), kernel)
    if not again.text:
        return {"state": "unwritten", "reason": again.reason}
    try:
        binding, sizes, left = bound(place)
    except (KirError, LookupError, ValueError) as bad:
        return {"state": "unbound", "reason": str(getattr(bad, "diagnostics", [bad])[0])[:200]}
    out: Row = {"hash": again.digest, "sizes": sizes, "binding": binding.text()}
    try:
        theirs, ours = original(path, kernel), function_of(str(path), kernel, os.environ.get("KIR_BOUND", "/tmp/kir-bound"))
        given, grid = arguments(theirs, binding, sizes, left)
        options = {k: v for k, v in binding.options.items() if k in ("num_warps", "num_stages", "num_ctas", "maxnreg")}
        made = compare(given, lambda v: theirs[grid](**v, **options), lambda v: ours[grid](**v, **options))
    except Exception as bad:  # whatever a package's module, Triton or the device says
        said = [line.strip() for line in str(bad).splitlines() if line.strip(" ^")]
        return {**out, "state": "failed", "reason": f"{type(bad).__name__}: {' .. '.join(dict.fromkeys([*said[:1], *said[-1:]]))}"[:300]}
    right = made["equal"] or made["difference"] <= WITHIN * max(made["scale"], 1e-3)
    state = "differs" if not right else "equal" if _changes(given, lambda v: ours[grid](**v, **options)) else "idle"
    return {**out, "state": state, "reason": "" if right else f"{made['difference']:.3g} of {made['scale']:.3g}", "measured": made}


def _changes(given: Mapping[str, Any], run: Any) -> bool:
    """Whether a launch leaves its memory otherwise than it was."""
    from kir.learning.corpus.measured import copied, difference

    after = copied(given)
    run(after)
    return not difference(given, after)["equal"]


def bound(place: str) -> tuple[Binding, dict[str, int], dict[str, int | float]]:
    """The binding that a kernel's host code gives, sizes for it, and values of numbers that nothing says anything of: one, or a half. Raises
    LookupError where no host code launches it, ValueError where no sizes are found, KirError as the reader does."""
    from kir.analysis.heuristics import settled
    from kir.gate.inputs.sets import size_sets
    from kir.surface.finding import proposed, under
    from kir.surface.launches.questions import all_answered
    from kir.surface.reading import kernel_of, read_source

    path, kernel = Path(place.partition("::")[0]), place.partition("::")[2]
    reader, _ = kernel_of(path, kernel)
    found = proposed(reader, path, kernel)
    if not found.place:
        raise LookupError("no host code that is read launches it")
    binding = settled(all_answered(found.binding, found.assumed, under(reader, path, kernel), _answer))
    program = read_source(place, binding).specialized()
    for base in SIZES:
        for sizes in size_sets(program, (base,)) if binding.sizes else [{}]:
            if max((_elements(t.shape, binding, sizes) for t in binding.tensors.values()), default=0) <= MOST:
                left = {p.name: 0.5 if p.of.is_float else 1 for p in program.params
                        if p.role == "scalar" and p.value is None and isinstance(p.of, DType)}
                return binding, sizes, left
    raise ValueError("no sizes at which it may be called, within the limit")


def _answer(question: Any, wrong: str) -> str:
    """What `kir bind --ask --yes` answers; where nothing is proposed, a compile-time value is false, or 16 where it may not be, and a tensor as long as
    the longest. Raises ValueError for other questions."""
    kind = str(question.field[0])
    known = {"metas": "16" if wrong else "false", "tensors": "" if wrong or question.field[-1] != "shape" else str(MOST // 4)}
    said = ("" if wrong else str(question.proposal)) or known.get(kind, "")
    if not said:
        raise ValueError(f"nothing proposes {kind} {question.field[-1]}: {wrong}"[:120])
    return said


def numbers(texts: Mapping[str, str | int], binding: Binding, sizes: Mapping[str, int]) -> dict[str, int]:
    """The values of expressions over sizes and compile-time values. Raises ValueError for what has none."""
    from kir.analysis.facts import Facts
    from kir.analysis.simplify import simplify

    names: dict[str, n.Expr] = {k: build.const(v, BOOL if isinstance(v, bool) else I32 if isinstance(v, int) else F32)
                                for k, v in {**binding.options, **binding.metas}.items() if isinstance(v, (bool, int, float))}
    names |= {k: build.const(v, I32) for k, v in sizes.items()}
    out = {}
    for key, e in expressions(texts, names, "argument").items():
        value = simplify(e, Facts.from_program(n.Program("p")))
        if not isinstance(value, n.Const):
            raise ValueError(f"{key} = {texts[key]} has no value")
        out[key] = int(value.value)
    return out


def _elements(shape: Sequence[str | int], binding: Binding, sizes: Mapping[str, int]) -> int:
    out = 1
    for d in numbers({str(i): d for i, d in enumerate(shape)}, binding, sizes).values():
        out *= d
    return out


def arguments(fn: Any, binding: Binding, sizes: Mapping[str, int], left: Mapping[str, int | float]) -> tuple[dict[str, Any], tuple[int, ...]]:
    """The arguments of a launch by the parameters' names, and its grid. Raises LookupError for a parameter that nothing says anything of."""
    import torch
    import triton.language as tl

    torches = {ir: getattr(torch, name) for name, ir in DTYPES.items() if hasattr(torch, name)}
    words: dict[Any, Any] = {ir: getattr(tl, name, None) for name, ir in TRITON.items()}
    words |= {"f16": tl.float16, "bf16": tl.bfloat16, "f32": tl.float32, "f64": tl.float64}
    chance = torch.Generator(device="cuda").manual_seed(17)
    out: dict[str, Any] = {}
    for p in fn.params:
        if p.name in binding.absent:
            out[p.name] = None
        elif p.name in binding.metas:
            value = binding.metas[p.name]
            out[p.name] = words[value] if isinstance(value, str) and words.get(value) is not None else value
        elif p.name in binding.tensors:
            t = binding.tensors[p.name]
            dtype, reach = torches[t.dtype], _reach(t, binding, sizes)
            out[p.name] = _filled(torch, dtype, reach + BESIDE, chance)
        elif p.name in binding.scalars:
            value = binding.scalars[p.name]
            dtype = binding.dtypes.get(p.name, "")
            made: Any = value if isinstance(value, float) else numbers({p.name: value}, binding, sizes)[p.name]
            out[p.name] = bool(made) if dtype == "bool" else float(made) if dtype.startswith(("f", "bf")) else made
        elif p.name in sizes:
            out[p.name] = sizes[p.name]
        elif p.name in left:
            out[p.name] = left[p.name]
        elif not p.has_default:
            raise LookupError(f"nothing says what '{p.name}' is")
    grid = tuple(numbers({str(i): g for i, g in enumerate(binding.grid)}, binding, sizes).values())
    return out, grid or (1,)


def _reach(t: Any, binding: Binding, sizes: Mapping[str, int]) -> int:
    """Elements from the first of a tensor to the last."""
    shape = list(numbers({str(i): d for i, d in enumerate(t.shape)}, binding, sizes).values())
    if t.strides is None:
        return _elements(t.shape, binding, sizes)
    steps = numbers({str(i): d for i, d in enumerate(t.strides)}, binding, sizes).values()
    return 1 + sum((d - 1) * s for d, s in zip(shape, steps, strict=True))


def _filled(torch: Any, dtype: Any, count: int, chance: Any) -> Any:
    """Memory filled by chance: normal values, or zeros and ones."""
    if dtype.is_floating_point:
        return torch.randn(count, device="cuda", generator=chance).to(dtype)
    return torch.randint(0, 2, (count,), device="cuda", generator=chance).to(dtype)


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds, after all others, modules that are not here and that a file of some folder imports: what is taken from one is a mock."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = tuple(folders)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        frame: Any = sys._getframe(1)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if name.partition(".")[0] in sys.stdlib_module_names or frame is None or not frame.f_code.co_filename.startswith(self.folders):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> ModuleType:
        module = MagicMock(name=spec.name)
        module.__path__, module.__spec__, module.__name__ = [], spec, spec.name
        return module

    def exec_module(self, module: ModuleType) -> None:
        return None


def worker(given: argparse.Namespace) -> None:
    """Measure the kernels of a shard that are not known, until the time is over."""
    results, (first, _, count) = given.out / f"bound{given.shard.partition('/')[0]}.jsonl", given.shard.partition("/")
    end, before = time.monotonic() + given.limit, known(results)
    os.environ.setdefault("GEMS_VENDOR", "nvidia")
    os.environ.setdefault("FLA_DISABLE_BACKEND_DISPATCH", "1")
    jobs = [json.loads(line) for line in (given.out / "kernels.jsonl").read_text(encoding="utf-8").splitlines()][int(first)::int(count)]
    folders = list(dict.fromkeys(j["home"] for j in jobs if j["home"]))
    if folders:
        sys.path[:0] = folders
        sys.meta_path.append(StandIn(folders))
    with results.open("a", encoding="utf-8") as out:
        for job in jobs:
            if job["case"] in before or time.monotonic() > end:
                continue
            out.write(json.dumps({**job, "state": BEGUN}) + "\n")
            out.flush()
            begun = time.perf_counter()
            row = measured(job["place"])
            out.write(json.dumps({**job, **row, "seconds": round(time.perf_counter() - begun, 2)}) + "\n")
            out.flush()
            if row.get("reason", "").find("CUDA error") >= 0 or "illegal memory" in row.get("reason", ""):
                os._exit(3)  # the context is lost with all its memory


def run(given: argparse.Namespace) -> None:
    """All kernels of the packages, some processes at once; one that ends is started again without the kernel that it ended with."""
    given.out.mkdir(parents=True, exist_ok=True)
    skip = frozenset() if given.again else already()
    lines = []
    for word in given.packages:
        name, _, source = word.partition("=")
        folder = Path(source) / name if source else machine.package_folder(name)
        if folder is None or not folder.is_dir():
            raise SystemExit(f"there is no package {word}")
        for place in dict.fromkeys(kernels_of(name, folder)):
            inside = f"{name}:{Path(place.partition('::')[0]).relative_to(folder).as_posix()}::{place.partition('::')[2]}"
            if inside not in skip and given.only in inside and not any(fnmatch(inside.partition(":")[2], w) for w in given.without):
                lines.append({"case": inside, "place": place, "home": source})
    lines.sort(key=lambda x: (bool(x["home"]), hash_of(x["case"])))  # installed packages first: what they import is here
    write_atomic(given.out / "kernels.jsonl", "".join(json.dumps(x) + "\n" for x in lines))
    end = time.monotonic() + given.limit
    running: dict[int, subprocess.Popen[bytes]] = {}
    seen: dict[int, float] = {}
    while time.monotonic() < end + 5:
        for i in range(given.jobs):
            p, file = running.get(i), given.out / f"bound{i}.jsonl"
            if p is not None and p.poll() == 0:
                continue
            late = p is not None and p.poll() is None and time.time() - max(seen[i], file.stat().st_mtime if file.exists() else 0) > SECONDS + 5
            if late and p is not None:
                p.kill()
                p.wait()
            if p is None or p.poll() is not None:
                if p is not None:
                    for row in [r for r in known(file).values() if r["state"] == BEGUN]:
                        with file.open("a", encoding="utf-8") as to:
                            to.write(json.dumps({**row, "state": "crashed", "reason": "too long" if late else f"exit {p.returncode}"}) + "\n")
                if time.monotonic() < end - 15:
                    with (given.out / f"bound{i}.log").open("a") as log:
                        words = [sys.executable, "-m", "benchmarks.packages.bound", "work", "--out", str(given.out), "--shard", f"{i}/{given.jobs}",
                                 "--limit", str(end - time.monotonic())]
                        running[i], seen[i] = subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log), time.time()
        if running and all(p.poll() == 0 for p in running.values()):
            break
        time.sleep(1.0)
    for p in running.values():
        if p.poll() is None:
            p.kill()


def hash_of(text: str) -> str:
    """An order that no file decides: what is measured first when the time is short is a sample."""
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


def already() -> frozenset[str]:
    """Kernels that are right on the page of packages, or on this one."""
    out = set()
    for line in (ROOT / "benchmarks" / "results" / "gpu-packages.jsonl").read_text(encoding="utf-8").splitlines():
        r = json.loads(line)
        out |= {f"{r['package']}:{r['file']}::{r['kernel']}"} if r["equal_in"] else set()
    kept = RESULTS.with_suffix(".jsonl")
    rows = [json.loads(x) for x in kept.read_text(encoding="utf-8").splitlines()] if kept.exists() else []
    return frozenset(out | {r["case"] for r in rows if r["state"] == "equal"})


def rows_of(folder: Path) -> list[Row]:
    """The last line about each kernel of a run, those that never began as waiting."""
    found: dict[str, Row] = {}
    for path in sorted(folder.glob("bound*.jsonl")):
        found |= known(path)
    every = [json.loads(line) for line in (folder / "kernels.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [{k: v for k, v in found.get(x["case"], {**x, "state": "waiting", "reason": ""}).items() if k not in ("place", "home")} for x in every]
    return [r if r["state"] != BEGUN else {**r, "state": "waiting", "reason": ""} for r in rows]


def page(rows: Sequence[Row], device: str) -> str:
    """The tables in Markdown."""
    right = sorted((r for r in rows if r["state"] == "equal"), key=lambda r: r["case"])
    timed = [(r, r["measured"]["seconds"]) for r in right if "seconds" in r["measured"]]
    within = sum(b <= SLACK * a for _, (a, b) in timed)
    lines = ["# Kernels that KIR wrote, launched as host code says, on a GPU", "",
             f"Made by `python -m benchmarks.packages.bound`{f' on {device}' if device else ''}: kernels that the page of packages does not hold. No case was "
             "written for them: the launch is what KIR reads of the host code (docs/using/your-own-kernel.md), the tensors are filled by chance, and the "
             "package's own kernel is the oracle.", "",
             "| package | kernels that were begun | launched both ways | equal | leave memory as it was | differ |",
             "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for package in sorted({r["case"].partition(":")[0] for r in rows}):
        states = Counter(r["state"] for r in rows if r["case"].startswith(f"{package}:"))
        lines.append(f"| {package} | {states.total()} | {states['equal'] + states['idle'] + states['differs']} | {states['equal']} | {states['idle']} | "
                     f"{states['differs']} |")
    lines += ["", f"{len(right)} kernels are right, {sum(r['measured']['equal'] for r in right)} of them bit for bit. {len(timed)} were timed; {within} "
              f"({100 * within / max(1, len(timed)):.0f} %) take at most {SLACK} of the original's time.", "",
              "| kernel | hash | bit for bit | original, us | written, us | ratio |", "| --- | --- | --- | ---: | ---: | ---: |"]
    for r in right:
        times = r["measured"].get("seconds")
        shown = f"{times[0] * 1e6:.2f} | {times[1] * 1e6:.2f} | {times[1] / times[0]:.3f}" if times else " | | "
        lines.append(f"| `{r['case']}` | {r['hash']} | {'yes' if r['measured']['equal'] else 'no'} | {shown} |")
    reasons = Counter((r["state"], _alike(r["reason"])) for r in rows if r["state"] not in ("equal", "idle"))
    lines += ["", "## The others", "", "| state | reason | kernels |", "| --- | --- | ---: |"]
    lines += [f"| {state} | {reason.replace('|', chr(92) + '|')} | {count} |" for (state, reason), count in reasons.most_common(60)]
    return "\n".join(lines) + "\n"


def _alike(reason: str) -> str:
    return re.sub(r"'[^']*'", "'..'", reason.partition("\n")[0])[:120]


def main(words: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", help="packages, `work` (one shard of a run) or `page`")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds after which no kernel begins")
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--only", default="", help="kernels with this word in their names")
    parser.add_argument("--without", action="append", default=[], help="kernels whose FILE::KERNEL fits this pattern are left out")
    parser.add_argument("--again", action="store_true", help="those, too, that are known to be right")
    given = parser.parse_args(words)
    if given.packages == ["work"]:
        worker(given)
        return 0
    if given.packages != ["page"]:
        run(given)
        write_atomic(given.out / "device.txt", device_name())
    made = {r["case"]: r for r in rows_of(given.out) if r["state"] != "waiting"}
    kept = RESULTS.with_suffix(".jsonl")
    old = {r["case"]: r for line in (kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []) if (r := json.loads(line))}
    rows = [{**old, **made}[k] for k in sorted({**old, **made})]
    where = RESULTS.parent if given.packages == ["page"] else given.out
    write_atomic(where / "gpu-bound.jsonl", "".join(json.dumps(r) + "\n" for r in rows))
    text = page(rows, (given.out / "device.txt").read_text(encoding="utf-8").strip())
    write_atomic(where / "gpu-bound.md", text)
    print("\n".join(text.splitlines()[:16]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
