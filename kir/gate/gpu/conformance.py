"""Instruction conformance: each row of the instruction table on the device and in the interpreter, on random and extreme operands.

The interpreter is what the IR means; the device is what the hardware does. Frontend, backend and interpreter share one table, so that a
wrong mapping in it could fool them all: only the device can tell. Cases stand in `grammars/conformance.toml`.
"""
from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kir.base.dataclass import dataclass
from kir.base.diagnostic import KirError, error
from kir.base.instructions import instruction, table
from kir.base.registry import registry
from kir.gate.gpu.images.executable import Executable, bound
from kir.gate.gpu.machine import Gpu
from kir.hardware.device.client import ChildGone
from kir.hardware.device.executor import hash_of
from kir.interp import run
from kir.interp.numerics import rounding
from kir.ir import nodes as n
from kir.ir.build import const
from kir.ir.canonical import content_hash
from kir.ir.parser import parse_program
from kir.ir.rules.verify import verify
from kir.ir.types import DTYPES, I32
from kir.problem import numpy_dtype
from kir.surface import Argument, Artifact, Emitted, Entry, backend

Array = NDArray[Any]
COUNT = 4096
"""Operands of an elementwise case."""
EXTREME = {"f32": (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.17549435e-38, 3.4028235e38, -3.4028235e38, 0.5, 1.5, 2.5, 16777217.0),
           "i32": (0, 1, -1, 2**31 - 1, -(2**31), 31, 32, 33), "u32": (0, 1, 2**32 - 1, 2**31, 31, 32, 33, 0xFFFF)}
RESULT = {"i32": "i32", "bool": "bool", "u32": "u32", "f32": "f32"}
TYPES = {"f32": ("float", "f"), "i32": ("int", "r"), "u32": ("unsigned", "r")}
SURFACES = ("cuda", "triton", "tilelang")
ELEMENTWISE = ("cuda", "triton")
"""Surfaces of rows without a program of their own."""


@dataclass(frozen=True)
class Case:
    """Rows that one program runs, on one surface; `asm` where the text is our own around the instruction itself."""

    rows: tuple[str, ...]
    surface: str
    program: n.Program
    inputs: Mapping[str, Array]
    scalars: Mapping[str, int]
    how: Mapping[str, Any]
    asm: str = ""

    @property
    def ulp(self) -> float:
        """Units in the last place that the device may differ by."""
        return float(self.how.get("triton", self.how.get("ulp", 0)) if self.surface == "triton" else self.how.get("ulp", 0))


@dataclass(frozen=True)
class Outcome:
    """What came of a case: `ok`, the largest difference in ulp (or of integers), and where."""

    rows: tuple[str, ...]
    surface: str
    ok: bool
    worst: float
    allowed: float
    said: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"rows": list(self.rows), "surface": self.surface, "ok": self.ok, "worst": self.worst if np.isfinite(self.worst) else "inf",
                "allowed": self.allowed, "said": self.said}


@dataclass
class Conformance:
    """All outcomes, and rows that were not run with the reason."""

    outcomes: list[Outcome] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return bool(self.outcomes) and all(o.ok for o in self.outcomes)


def declared() -> dict[str, Any]:
    """The tables of `grammars/conformance.toml`."""
    return tomllib.loads(resources.files("kir.grammars").joinpath("conformance.toml").read_text())


def cases() -> tuple[list[Case], dict[str, str]]:
    """Every case, and the rows without one, with the reason. Raises KirError KIR-G109 for a row of the instruction table that is nowhere."""
    tables = declared()
    programs, without = tables.pop("program"), dict(tables.pop("without"))
    out = [case for name, how in tables.items() for case in elementwise(name, how)]
    for row in programs:
        out += list(_program(row))
    covered = {name for case in out for name in case.rows}
    for name in tables:
        if name not in covered:
            without[name] = "no surface takes the case"
    for name, row in table().items():
        if row.level != "static" and name not in covered and name not in without:
            raise error("KIR-G109", f"nothing says how the instruction '{name}' is run on a device", needs="a row in grammars/conformance.toml")
    return out, {k: v for k, v in without.items() if k not in covered}


# ------------------------------------------------------------------------------------------------------------------ elementwise

def elementwise(name: str, how: Mapping[str, Any]) -> Iterator[Case]:
    """The case of a row on each surface that writes it, else with the instruction itself."""
    row = instruction(name)
    count = row.args[0]
    given = how.get("operands", "f32")
    dtypes = [given] * count if isinstance(given, str) else list(given)
    result = RESULT.get(row.rule, dtypes[-1] if row.rule == "third" else dtypes[0])
    letters = "ABCD"[:count]
    reads = ", ".join(f"{x}[i]" for x in letters)
    attrs = f", {how['attrs']}" if "attrs" in how else ""
    text = "\n".join(["kir 1", f"program {name}", *(f"  in {x}: {d}[{COUNT}]" for x, d in zip(letters, dtypes, strict=True)),
                      f"  out Y: {result}[{COUNT}]", f"kernel main grid (i: {COUNT}) threads 1", f"  Y[i] = {name}({reads}{attrs})", ""])
    program = parse_program(text, f"{name}.kir")
    if wrong := [d for d in verify(program) if d.severity == "error"]:
        raise KirError(*wrong)
    random = np.random.default_rng(abs(hash_text(name)))
    inputs = dict(zip(letters, operands(dtypes, how, random), strict=True))
    found = False
    for surface in ELEMENTWISE if "asm" not in how else ():
        if surface in {e.name for e in registry("kir.backends")} and not backend(surface).accepts(program):
            found = True
            yield Case((name,), surface, program, _flushed(inputs) if surface == "triton" else inputs, {}, how)
    if not found and "asm" in how:
        yield Case((name,), "cuda", program, inputs, {}, how, str(how["asm"]))


def _flushed(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Without subnormal operands: Triton's compiled math takes them for zeros, and some of it for other numbers."""
    least = np.finfo(np.float32).smallest_normal
    return {k: np.where((np.abs(v) < least) & (v != 0), np.float32(1.0), v) if v.dtype == np.float32 else v for k, v in inputs.items()}


def hash_text(text: str) -> int:
    """A number of a name, the same in every process."""
    return hash_of(text) % 2**32


def operands(dtypes: Sequence[str], how: Mapping[str, Any], random: np.random.Generator) -> list[Array]:
    """Extreme values in all combinations first, then random ones: over the domain, and over all magnitudes where none is given."""
    low, high = how.get("domain", (None, None))
    chosen = []
    for place, d in enumerate(dtypes):
        kept = [v for v in EXTREME[d] if not how.get("bounded") or (np.isfinite(v) and low <= v <= high)]
        values = [np.array(v).astype(numpy_dtype(d)) for v in kept or [low]]
        limited = "range" in how and place >= int(how.get("wide", 1))
        chosen.append([np.array(v).astype(numpy_dtype(d)) for v in how["range"]] if limited else values)
    combinations = list(itertools.islice(itertools.product(*chosen), COUNT // 2))
    out = []
    for place, d in enumerate(dtypes):
        dtype = numpy_dtype(d)
        if d == "f32":
            if low is None:
                drawn = np.exp2(random.uniform(-100, 100, COUNT)) * random.choice([-1.0, 1.0], COUNT)
            elif low > 0 and high / low > 1e6:
                drawn = np.exp(random.uniform(np.log(low), np.log(high), COUNT))
            else:
                drawn = random.uniform(low, high, COUNT)
            column = drawn.astype(dtype)
        elif "range" in how and place >= int(how.get("wide", 1)):
            column = random.integers(how["range"][0], how["range"][1], COUNT).astype(dtype)
        else:
            column = random.integers(0, 2**32, COUNT, dtype=np.uint64).astype(np.uint32).view(dtype)
        for i, combination in enumerate(combinations):
            column[i] = combination[place]
        out.append(column)
    return out


def own_text(case: Case) -> Emitted:
    """CUDA around one instruction, with the calling convention of the CUDA backend."""
    params = [p for p in case.program.params if isinstance(p.of, n.Buffer)]
    names = {p.name: p.of.dtype.name for p in params if isinstance(p.of, n.Buffer)}
    asm = case.asm.replace("%r", "%0")
    ins = [x for x in names if x != "Y"]
    for i, x in enumerate(ins):
        asm = asm.replace(f"%{x.lower()}", f"%{i + 1}")
    reads = ", ".join(f'"{TYPES[names[x]][1]}"({x}[i])' for x in ins)
    listed = ", ".join(f"{'const ' if x != 'Y' else ''}{TYPES[d][0]}* {x}" for x, d in names.items())
    kind, letter = ("unsigned", "r") if case.how.get("bits") else TYPES[names["Y"]]
    value = "__uint_as_float(r)" if case.how.get("bits") else "r"
    text = (f'extern "C" __global__ void conform({listed}) {{\n  const int i = blockIdx.x;\n  {kind} r;\n'
            f'  asm volatile("{asm}" : "={letter}"(r) : {reads});\n  Y[i] = {value};\n}}\n')
    entry = Entry("main", "conform", tuple(Argument(x, "pointer", d) for x, d in names.items()), (const(COUNT, I32),), 1)
    return Emitted("cuda", content_hash(case.program), text, (), (entry,))


# --------------------------------------------------------------------------------------------------------------------- programs

def _program(row: Mapping[str, Any]) -> Iterator[Case]:
    """The case of a program on each of its surfaces that takes it."""
    if "expert" in row:
        place = resources.files("kir.skills").joinpath("experts", *str(row["expert"]).split("/"))
        program = parse_program(place.read_text(), str(row["expert"]))
    else:
        program = parse_program("kir 1\n" + row["text"], f"{row['name']}.kir")
    sizes = dict(row.get("sizes", {}))
    random = np.random.default_rng(hash_text(row["name"]))
    at = bound(program, sizes, {})
    inputs = {}
    for p in program.params:
        if isinstance(p.of, n.Buffer) and p.role != "out":
            layout = at.layouts[p.name]
            span = (-3, 4) if DTYPES[layout.dtype].is_float else (-1000, 1000)
            inputs[p.name] = random.integers(*span, layout.shape).astype(numpy_dtype(layout.dtype))
    for surface in row["surfaces"]:
        if surface in {e.name for e in registry("kir.backends")} and not backend(surface).accepts(program):
            yield Case(tuple(row["rows"]), surface, program, inputs, sizes, row)


# --------------------------------------------------------------------------------------------------------------------- running

def conform(gpu: Gpu, only: Sequence[str] = ()) -> Conformance:
    """Run every case (or those of the named rows). Raises KirError KIR-G109."""
    every, left = cases()
    has = gpu.target.architecture.has
    absent = {row: f"the device has no {c.how['family']}" for c in every if "family" in c.how and not has(c.how["family"]) for row in c.rows}
    chosen = [c for c in every if (not only or set(c.rows) & set(only)) and not set(c.rows) & set(absent)]
    out = Conformance([], left | absent)
    ready: list[tuple[Case, Emitted, Artifact]] = []
    for surface in SURFACES:
        group = [c for c in chosen if c.surface == surface]
        texts = [own_text(c) if c.asm else backend(surface).emit(c.program) for c in group]
        for c, text, artifact in zip(group, texts, compiled(gpu, surface, texts), strict=True):
            if isinstance(artifact, str):
                out.outcomes.append(Outcome(c.rows, surface, False, float("inf"), c.ulp, artifact))
            else:
                ready.append((c, text, artifact))
    with ThreadPoolExecutor(max_workers=gpu.workers) as pool:
        out.outcomes += pool.map(lambda each: _run(gpu, *each), ready)
    return out


def compiled(gpu: Gpu, surface: str, texts: Sequence[Emitted]) -> list[Artifact | str]:
    """Each text compiled for the device, or why it is not."""
    by = backend(surface)

    def one(text: Emitted) -> Artifact | str:
        try:
            made = gpu.cache.compiled(by, text, gpu.target)
            return made.absent if made.absent else made
        except KirError as refused:
            return f"{refused.diagnostics[0].id}: {refused.diagnostics[0].message}"
    with ThreadPoolExecutor(max_workers=gpu.workers) as pool:
        return list(pool.map(one, texts))


def _run(gpu: Gpu, c: Case, text: Emitted, artifact: Artifact) -> Outcome:
    try:
        both = launched(gpu, c.program, c.inputs, c.scalars, text, artifact)
    except ChildGone as gone:
        return Outcome(c.rows, c.surface, False, float("inf"), c.ulp, gone.said)
    worst, said = 0.0, ""
    for name, (got, want) in both.items():
        apart, where = difference(got, want, c.how, flushes=c.surface == "triton")
        if apart > worst or (apart > c.ulp and not said):
            worst = max(worst, apart)
            operand = ", ".join(f"{k} = {v.reshape(-1)[where]!r}" for k, v in c.inputs.items() if v.size == got.size)
            said = f"{name}[{where}] is {got.reshape(-1)[where]!r}, the interpreter says {want.reshape(-1)[where]!r} of {operand}"
    return Outcome(c.rows, c.surface, worst <= c.ulp, worst, c.ulp, said if worst > c.ulp else "")


def launched(gpu: Gpu, program: n.Program, inputs: Mapping[str, Array], scalars: Mapping[str, int], text: Emitted,
             artifact: Artifact) -> dict[str, tuple[Array, Array]]:
    """What a compiled program makes on the device, and in the interpreter, of each output. Raises ChildGone where it does not come back."""
    with np.errstate(all="ignore"), rounding.exact():
        expected = run(program, {k: v.copy() for k, v in inputs.items()}, dict(scalars)).outputs
    executable = Executable(program, text, {Executable.variant(text): artifact})
    at = bound(program, scalars, {})
    rows, cubins = executable.opening()
    buffers: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    back: list[str] = []
    params = {p.name: p.role for p in program.params}
    for name, layout in at.layouts.items():
        buffers.append({"name": name, "bytes": layout.size, "elements": layout.span, "dtype": layout.dtype, "fill": {"byte": 0xFF}})
        if name in inputs:
            buffers[-1]["fill"] = {"blob": len(blobs)}
            blobs.append(layout.packed(inputs[name]))
        if params.get(name) in ("out", "inout"):
            back.append(name)
    message = {"op": "call", "buffers": buffers, "launches": executable.launches(text, at), "memsets": executable.memsets(at), "return": back, "salt": 1,
               "sizes": dict(at.values)}
    with gpu.child() as child, gpu.turns.beside():
        gpu.ask_open(child, rows, cubins)
        _, raw = child.ask(message, blobs, 30.0)
    return {name: (at.layouts[name].unpacked(data), expected[name]) for name, data in zip(back, raw, strict=True)}


def difference(got: Array, want: Array, how: Mapping[str, Any], flushes: bool = False) -> tuple[float, int]:
    """The largest distance in units in the last place (integers: 0 or infinite), and its place. NaN equals NaN; where an absolute bound or
    a flush to zero of subnormal results explains a difference, it counts as none; with `flushes`, a subnormal result may be zero or the
    smallest normal number even where the row asks for the same bits."""
    a, b = got.reshape(-1), want.reshape(-1)
    if a.size == 0:
        return 0.0, 0
    if a.dtype.kind in "iub":
        differ = (a != 0) != (b != 0) if how.get("truth") else a != b
        return (float("inf"), int(np.argmax(differ))) if differ.any() else (0.0, 0)
    x, y = a.astype(np.float64), b.astype(np.float64)
    if "low_bits" in how:
        mask = ~np.uint32((1 << int(how["low_bits"])) - 1)
        x = (a.view(np.uint32) & mask).view(np.float32).astype(np.float64)
    info = np.finfo(np.float32) if a.dtype == np.float32 else np.finfo(np.float16)
    with np.errstate(all="ignore"):
        step = np.maximum(np.exp2(np.floor(np.log2(np.maximum(np.abs(y), float(info.smallest_normal))))) * float(info.eps), float(info.smallest_subnormal))
        apart = np.abs(x - y) / step
        apart = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, apart)
        loose = bool(how.get("ulp", 0)) or "abs" in how
        if loose:
            tiny = float(info.smallest_normal)
            apart = np.where((np.abs(x) <= tiny) & (np.abs(y) <= tiny), 0.0, apart)
            apart = np.where(np.abs(x - y) <= float(how.get("abs", 0.0)), 0.0, apart)
        else:
            tiny = float(info.smallest_normal)
            apart = np.where(flushes & (np.abs(y) < tiny) & (y != 0) & ((x == 0) | (np.abs(x) == tiny)), 0.0, apart)
            apart = np.where((x == y) & (np.signbit(x) != np.signbit(y)), np.inf, apart)
    apart = np.where(np.isnan(apart), np.inf, apart)
    place = int(np.argmax(apart))
    return float(apart[place]), place
