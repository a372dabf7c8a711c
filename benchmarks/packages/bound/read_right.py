"""``python -m benchmarks.packages.bound.read_right PACKAGE .. --out DIR``: what KIR reads beside Triton's own interpreter, without a device.

Each kernel that its own host code launches (as `benchmarks.packages.bound` finds it, at small sizes) is carried out twice on copies of the same CPU tensors:
the package's own function by Triton's interpreter (``TRITON_INTERPRET=1``), and by KIR's interpreter the program that was read. All memory that they leave
is compared. PACKAGE is an installed one, or NAME=FOLDER. One line of JSON a kernel goes to DIR/read*.jsonl; a run with the same DIR goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.packages.bound import prepared as prepare
from benchmarks.packages.bound.alone import function
from benchmarks.packages.bound.interpreter import backwards, mend_interpreter
from benchmarks.packages.bound.listed import ROOT, listing
from kir.base.diagnostic import KirError
from kir.ir import nodes as n
from kir.ir.visit import statements

Row = dict[str, Any]
SIZES = (64, 32, 48, 16, 20, 8, 3, 128)
"""Where sizes begin."""
MOST = (1 << 14, 1 << 18)
"""Elements of the largest tensor, and where none is so small."""
PROGRAMS = 1100
"""Of the largest grid: Triton's interpreter runs them one after another."""
SECONDS = 60
"""What one kernel may take."""
WITHIN = {"f8e4m3": 0.13, "f8e5m2": 0.26, "bf16": 2e-2, "f16": 4e-3, "f32": 2e-4, "f64": 1e-9}
"""The largest difference that counts as right, by dtype, as a share of the tensor's largest value; of other dtypes none."""
ROOM = 1 << 18
"""Elements before and behind each tensor that nothing is kept in."""
BESIDE = 256
"""Elements of each tensor's memory after what a kernel is said to reach."""


def compared(place: str, home: str = "") -> Row:
    """`state`: `equal`, `differs`, `order` (so does the package's own function with its programs taken last first: at these sizes they write one another's
    elements), `idle` (it leaves its memory as it was), `unbound` (no launch is found or it is not read), `unfit` (Triton's
    interpreter does not run it), `refused` (KIR's does not), with `reason`."""
    path, kernel = Path(place.partition("::")[0]), place.partition("::")[2]
    prepare.SIZES = SIZES
    ready: Row = {}
    why = ""
    for prepare.MOST in MOST:
        try:
            ready = ready or prepare.launch(place)
        except (KirError, LookupError, ValueError) as bad:
            why = prepare.why(bad)
    if not ready:
        return {"state": "unbound", "reason": why}
    out = {k: ready[k] for k in ("sizes", "grid")}
    programs = 1
    for extent in ready["grid"]:
        programs *= extent
    if programs > PROGRAMS:
        return {**out, "state": "unbound", "reason": f"a grid of {programs}"}
    try:
        theirs = function(path, kernel, home)
        given = arguments(theirs, ready)
        first = {k: _inside(v) if hasattr(v, "clone") else v for k, v in given.items()}
        theirs[tuple(ready["grid"])](**first)
    except Exception as bad:  # whatever a package's module or Triton's interpreter says
        return {**out, "state": "unfit", "reason": f"{type(bad).__name__}: {bad}".replace("\n", " ")[-200:]}
    second = {k: v.clone() if hasattr(v, "clone") else v for k, v in given.items()}
    try:
        coarse = carried(path, kernel, ready, second)
    except Exception as bad:
        return {**out, "state": "refused", "reason": f"{type(bad).__name__}: {bad}".replace("\n", " ")[:300]}
    said = _verdict(given, first, second, coarse)
    if said["state"] == "differs":
        third = {k: _inside(v) if hasattr(v, "clone") else v for k, v in given.items()}
        with backwards():
            theirs[tuple(ready["grid"])](**third)
        if _verdict(given, first, third)["state"] == "differs":
            said["state"] = "order"
    return {**out, **said}


def carried(path: Path, kernel: str, ready: Row, given: Mapping[str, Any]) -> bool:
    """The program that is read of a kernel, carried out on CPU tensors; whether it multiplies with tf32's mantissas, which Triton's interpreter does not.
    Raises KirError."""
    from kir.learning.corpus.interpreted import carry_out
    from kir.learning.corpus.launch import Launch
    from kir.surface import frontend

    metas = {k: (v["dtype"] if "dtype" in v else v.get("value")) for k, v in ready["arguments"].items() if k in ready["constexprs"]}
    tensors = {k: v for k, v in given.items() if hasattr(v, "clone")}
    values = {k: v for k, v in given.items() if k not in tensors and k not in ready["constexprs"]}
    program = frontend("triton").parse(path, kernel)
    carry_out(program, Launch(str(path), kernel, tuple(ready["grid"]), tensors, values, metas, ready["options"]))
    return any(isinstance(s, n.Mma) and s.precision != "ieee" for k in program.kernels for s in statements(k.body))


def arguments(fn: Any, ready: Row) -> Row:
    """Arguments by the parameters' names: tensors on the CPU, filled by chance."""
    import inspect

    import torch
    import triton.language as tl

    from kir.learning.corpus.launch import DTYPES, TRITON

    torches = {ir: getattr(torch, name) for name, ir in DTYPES.items() if hasattr(torch, name)}
    words: dict[str, Any] = {ir: getattr(tl, name, None) for name, ir in TRITON.items()}
    words |= {"f16": tl.float16, "bf16": tl.bfloat16, "f32": tl.float32, "f64": tl.float64}
    chance = torch.Generator().manual_seed(17)
    out: Row = {}
    ready["constexprs"] = [p for p, kind in inspect.signature(fn.fn).parameters.items() if "constexpr" in str(kind.annotation)]
    for name, p in inspect.signature(fn.fn).parameters.items():
        said = ready["arguments"].get(name)
        if said is None:
            if p.default is inspect.Parameter.empty:
                out[name] = 1  # the program that is read never reads it
        elif "tensor" in said:
            count, dtype = said["elements"] + BESIDE, torches[said["tensor"]]
            values = torch.randn(count, generator=chance) if dtype.is_floating_point else torch.randint(0, 2, (count,), generator=chance)
            out[name] = _inside(values.to(dtype))
        else:
            out[name] = words.get(said["dtype"]) or said["dtype"] if "dtype" in said else said["value"]
    return out


def _inside(values: Any) -> Any:
    """A copy with room on both sides: Triton's interpreter takes any address."""
    import torch

    room = torch.zeros(values.numel() + 2 * ROOM, dtype=values.dtype)
    room[ROOM : ROOM + values.numel()] = values
    return room[ROOM : ROOM + values.numel()]


def _verdict(given: Mapping[str, Any], first: Mapping[str, Any], second: Mapping[str, Any], coarse: bool = False) -> Row:
    """What the two left: the worst tensor says. Sums of `coarse` products may differ as those of half-precision values do."""
    import torch

    from kir.learning.corpus.launch import dtype_of

    changed, worst = False, ""
    most = {**WITHIN, "f32": WITHIN["f16"]} if coarse else WITHIN
    for name, before in given.items():
        if not isinstance(before, torch.Tensor):
            continue
        a, b, c = (x.double() if before.is_floating_point() else x.long() for x in (first[name], second[name], before))
        changed = changed or not torch.equal(torch.nan_to_num(a), torch.nan_to_num(c))
        odd = torch.isfinite(a) != torch.isfinite(b) if before.is_floating_point() else torch.zeros_like(a, dtype=torch.bool)
        off = torch.nan_to_num(a - b, nan=0.0, posinf=0.0, neginf=0.0).abs() if before.is_floating_point() else (a - b).abs()
        scale = float(torch.nan_to_num(a, nan=0.0, posinf=0.0, neginf=0.0).abs().max()) if before.is_floating_point() else 0.0
        if bool(odd.any()) or float(off.max()) > most.get(dtype_of(before), 0.0) * max(scale, 1.0):
            at = int(torch.nonzero(odd)[0]) if bool(odd.any()) else int(off.argmax())
            count = int((odd | (off > most.get(dtype_of(before), 0.0) * max(scale, 1.0))).sum())
            worst = worst or f"{name}[{at}]: {float(a[at]):.6g} there, {float(b[at]):.6g} here, {count} of {a.numel()} ({dtype_of(before)})"
    return {"state": "differs" if worst else "equal" if changed else "idle", "reason": worst}


def worker(given: argparse.Namespace) -> None:
    """Kernels of an own share, each under an alarm."""
    os.environ |= {"TRITON_INTERPRET": "1", "GEMS_VENDOR": "nvidia", "FLA_DISABLE_BACKEND_DISPATCH": "1"}
    jobs = [json.loads(line) for line in (given.out / "kernels.jsonl").read_text(encoding="utf-8").splitlines()]
    import torch  # before there is an alarm, which would leave it half imported

    torch.set_num_threads(1)
    mend_interpreter()
    own, of = (int(x) for x in given.shard.split("/"))
    file, end = given.out / f"read{own}.jsonl", time.monotonic() + given.limit
    known = {json.loads(x)["case"] for x in file.read_text(encoding="utf-8").splitlines()} if file.exists() else set()

    def late(*_: Any) -> None:
        raise TimeoutError("too long")
    signal.signal(signal.SIGALRM, late)
    for job in jobs[own::of]:
        if job["case"] in known:
            continue
        if time.monotonic() > end:
            return
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps({"case": job["case"], "state": "crashed", "reason": "it took its process down"}) + "\n")
        begun = time.monotonic()
        signal.alarm(SECONDS)
        try:
            row = compared(job["place"], job["home"])
        except Exception as bad:  # an internal error, or the alarm
            row = {"state": "late" if isinstance(bad, TimeoutError) else "internal", "reason": f"{type(bad).__name__}: {bad}"[:300]}
        finally:
            signal.alarm(0)
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps({"case": job["case"], **row, "seconds": round(time.monotonic() - begun, 1)}) + "\n")


def rows_of(folder: Path) -> dict[str, Row]:
    """The last line about each kernel of a run."""
    lines = [json.loads(x) for p in sorted(folder.glob("read*.jsonl")) for x in p.read_text(encoding="utf-8").splitlines()]
    return {r["case"]: r for r in lines}


def main(words: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", help="packages, or `work` (one process of a run)")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds after which no kernel begins")
    parser.add_argument("--shard", default="0/1", help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help="kernels with this word in their names")
    parser.add_argument("--without", action="append", default=[], help="kernels whose FILE::KERNEL fits this pattern are left out")
    given = parser.parse_args(words)
    if given.packages == ["work"]:
        worker(given)
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    lines = listing(given.packages, given.only, given.without, frozenset())
    (given.out / "kernels.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines), encoding="utf-8")
    end = time.monotonic() + given.limit
    while time.monotonic() < end:  # a process that ends with a kernel is started again behind it
        before = len(rows_of(given.out))
        running = [subprocess.Popen([sys.executable, "-m", "benchmarks.packages.bound.read_right", "work", "--out", str(given.out), "--shard",
                                     f"{i}/{given.jobs}", "--limit", str(end - time.monotonic())], cwd=ROOT) for i in range(given.jobs)]
        ended = [p.wait() for p in running]
        if not any(ended) or len(rows_of(given.out)) == before:
            break
    print(dict(Counter(r["state"] for r in rows_of(given.out).values())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
